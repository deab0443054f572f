"""One neutral load driver for HTTP servers: `wrk` for calls a second, plain sockets for sessions and streams."""

from __future__ import annotations

import http.client
import json
import math
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driver import LEGACY, MODERN, PATIENCE, ServerFailed, calls, line, place, release
from spawned import last_words, resident_kib

HERE = Path(__file__).resolve().parent
CONNECTIONS = 16
LONGEST = 20  # seconds
WARM_UP_SESSIONS = 20
SPARE_DESCRIPTORS = 200

BOTH = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def raise_descriptor_limit() -> int:
    """As many open files as the system lets us have; the servers inherit it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # Some systems say "unlimited" and do not mean it.
        pass
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def affordable_streams(wanted: int) -> int:
    return max(1, min(wanted, raise_descriptor_limit() - SPARE_DESCRIPTORS))


class HttpServer:
    """A spawned server and its address. Its core is not that of the driver, except where `everywhere` is asked for."""

    def __init__(
        self,
        contender: str,
        more_tools: int = 0,
        workers: int = 1,
        *,
        everywhere: bool = False,
        command: list[str] | None = None,
        port: int | None = None,
    ) -> None:
        """`command` starts another server than the usual one. With `port`, it does not print its address."""
        if command is None:
            command = [sys.executable, server_file("serve_http.py"), contender, str(more_tools), str(workers)]
        if everywhere:
            release()
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close(); a pipe would fill up
        output = subprocess.PIPE if port is None else self.stderr
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=self.stderr)
        if not everywhere:
            place(self.process.pid)
        self.url = self.announced() if port is None else self.listening(port)
        if not self.url:
            raise ServerFailed(last_words(self.process, self.stderr))
        where = urlsplit(self.url)
        self.address = (str(where.hostname), int(where.port or 80))
        self.host, self.path = where.netloc, where.path
        self.connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        self.streams: list[socket.socket] = []

    def announced(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def listening(self, port: int) -> str:
        """Wait until connections are accepted; return nothing if the process ends before."""
        until = time.perf_counter() + PATIENCE
        while self.process.poll() is None and time.perf_counter() < until:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return f"http://127.0.0.1:{port}/mcp"
            except OSError:
                time.sleep(0.05)
        return ""

    # --- calls a second ---

    def calls_a_second(self, tool: str, seconds: int, connections: int = CONNECTIONS) -> float:
        """Modern calls on some connections. The same call before and after shows that the answers are right."""
        self.check_modern(tool)
        started = time.perf_counter()
        self.check_modern(tool)
        # A server that is too slow for the time gets enough of it for some answers on each connection.
        one_answer_each = (time.perf_counter() - started) * connections
        seconds = max(seconds, min(LONGEST, math.ceil(3 * one_answer_each)))
        found = self.run_wrk("load.lua", self.modern_headers(tool), seconds, connections, modern_call(tool).decode())
        self.check_modern(tool)
        return found

    def session_calls_a_second(self, tool: str, seconds: int, connections: int = CONNECTIONS) -> float:
        """Legacy calls of as many sessions as there are connections."""
        self.connection.close()
        sessions = [self.open_session() for _ in range(connections)]
        try:
            body = calls(1_000_001, 1, tool, LEGACY)[0].rstrip(b"\n").decode().replace("1000001", "ID")
            headers = BOTH | {"mcp-protocol-version": LEGACY}
            return self.run_wrk("load_sessions.lua", headers, seconds, connections, body, *sessions)
        finally:
            self.connection.close()
            for session in sessions:
                self.close_session(session)

    def run_wrk(self, script: str, headers: dict[str, str], seconds: int, connections: int, *arguments: str) -> float:
        """Return the requests a second that `wrk` counted with a script. It inherits the core of this process."""
        if shutil.which("wrk") is None:
            raise ServerFailed("wrk is not installed; it is a package of that name nearly everywhere")
        options = [option for name, value in headers.items() for option in ("-H", f"{name}: {value}")]
        limits = ["-t1", f"-c{connections}", f"-d{seconds}s", f"--timeout={LONGEST}s"]
        command = ["wrk", *limits, "-s", str(HERE / script), *options, self.url, "--", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not done.stdout.strip():
            raise ServerFailed(f"wrk failed: {done.stderr.strip()[-200:]}")
        requests, microseconds, failed = map(int, done.stdout.strip().splitlines()[-1].split())
        if failed or not requests:
            raise ServerFailed(f"{failed} of {requests} calls failed")
        return requests / (microseconds / 1e6)

    def modern_headers(self, tool: str) -> dict[str, str]:
        return BOTH | {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}

    def check_modern(self, tool: str) -> None:
        self.connection.close()  # While others have their turn, a server may drop a connection that nobody uses.
        self.check_answer(self.post(modern_call(tool), self.modern_headers(tool))[1])

    # --- sessions ---

    def open_session(self) -> str:
        """A legacy session that has called once."""
        client = {"name": "bench", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client}
        opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        session = self.post(line(opening), BOTH)[0].get("mcp-session-id")
        if not session:
            raise ServerFailed("initialize opened no session")
        headers = BOTH | {"mcp-session-id": session, "mcp-protocol-version": LEGACY}
        self.post(line({"jsonrpc": "2.0", "method": "notifications/initialized"}), headers)
        self.check_answer(self.post(calls(1, 1, "add", LEGACY)[0], headers)[1])
        return session

    def close_session(self, session: str) -> None:
        self.ask("DELETE", None, {"mcp-session-id": session, "mcp-protocol-version": LEGACY})

    def open_stream(self, session: str) -> None:
        """A GET whose answer has begun and does not end."""
        lines = [
            f"GET {self.path} HTTP/1.1",
            f"host: {self.host}",
            "accept: text/event-stream",
            f"mcp-session-id: {session}",
            f"mcp-protocol-version: {LEGACY}",
        ]
        stream = socket.create_connection(self.address, timeout=PATIENCE)
        self.streams.append(stream)
        stream.sendall("\r\n".join([*lines, "", ""]).encode())
        received = b""
        while b"\r\n\r\n" not in received:
            data = stream.recv(4096)
            if not data:
                raise ServerFailed("a stream ended before it began")
            received += data
        if not received.startswith(b"HTTP/1.1 200"):
            raise ServerFailed(f"a stream was refused: {received[:100].decode(errors='replace')}")

    def kib_per_session(self, count: int) -> float:
        self.warm_up()
        before = resident_kib(self.process.pid)
        for _ in range(count):
            self.open_session()
        return (resident_kib(self.process.pid) - before) / count

    def kib_per_stream(self, count: int, *, sessions: bool) -> float:
        """What a stream adds together with its session; without sessions, what a bare stream adds.

        The requests are the same for both, since their headers are held for as long as the stream is open.
        """
        self.warm_up(sessions=sessions)
        before = resident_kib(self.process.pid)
        for number in range(count):
            self.open_stream(self.open_session() if sessions else no_session(number))
        return (resident_kib(self.process.pid) - before) / count

    def warm_up(self, *, sessions: bool = True) -> None:
        """What is allocated once is allocated here."""
        opened = [self.open_session() if sessions else no_session(number) for number in range(WARM_UP_SESSIONS)]
        for session in opened:
            self.open_stream(session)
        self.close_streams()
        if sessions:
            for session in opened:
                self.close_session(session)

    # --- one request ---

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPMessage, bytes]:
        return self.ask("POST", body, headers)

    def ask(self, method: str, body: bytes | None, headers: dict[str, str]) -> tuple[http.client.HTTPMessage, bytes]:
        try:
            self.connection.request(method, self.path, body, headers)
            response = self.connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerFailed(f"{method} failed: {type(error).__name__}: {error}") from error
        if response.status >= 300:
            raise ServerFailed(f"{method} was answered with {response.status}: {answer[:200].decode(errors='replace')}")
        return response.headers, answer

    def check_answer(self, body: bytes) -> None:
        """One JSON object, or the events of a stream of which the last is the answer."""
        events = [row[5:] for row in body.splitlines() if row.startswith(b"data:") and row[5:].strip()]
        answer: dict[str, Any] = json.loads(events[-1] if events else body)
        content = answer.get("result", {}).get("content") or [{}]
        if content[0].get("text") != "2":
            raise ServerFailed(f"wrong answer: {body[:400].decode(errors='replace')}")

    def close_streams(self) -> None:
        for stream in self.streams:
            stream.close()
        self.streams.clear()

    def close(self) -> None:
        self.close_streams()
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.stderr.close()


def server_file(name: str) -> str:
    """Return the path of a server under test."""
    return str(HERE / "servers" / name)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def no_session(number: int) -> str:
    """Stands for a session where there are none, and is as long as the name of one of Toolwire's."""
    return f"{number:0158}"


def modern_call(tool: str) -> bytes:
    return calls(1, 1, tool, MODERN)[0].rstrip(b"\n")
