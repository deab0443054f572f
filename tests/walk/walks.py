"""Runs one walk: starts the traced process, calls it with raw bytes, and reads its counts."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
WARM_UP = 30
BATCH = 10
BATCHES = 12
PATIENCE = 60.0

Message = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """What one call costs: calls and opcodes of each function, in the order of their first call."""

    calls: dict[str, float]
    by_function: dict[str, float]

    @property
    def opcodes(self) -> float:
        return sum(self.by_function.values())


class WalkFailed(Exception):
    """A traced process ended, stayed silent or answered with an error."""


def make_call(id: int, revision: str, tool: str = "add") -> Message:
    """Return a call of a tool as a client of a revision sends it."""
    params: Message = {"name": tool, "arguments": {"a": id, "b": 1} if tool == "add" else {}}
    if revision == MODERN:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def make_initialize(capabilities: Message) -> Message:
    params = {
        "protocolVersion": LEGACY,
        "capabilities": capabilities,
        "clientInfo": {"name": "walk", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


INITIALIZED: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class TracedProcess:
    """A process of `traced_server.py` and the file that it writes its counts to."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.readings = folder / f"readings-{len(list(folder.iterdir()))}"
        self.readings.touch()
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.walk.traced_server", str(self.readings), *arguments]
        with self.readings.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def read_log(self) -> str:
        return self.readings.with_suffix(".log").read_text(errors="replace")

    def read_counts(self) -> Message:
        """Return the counts so far, once the process is idle: two readings in a row are the same."""
        last = None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            time.sleep(0.03)
            known = len(self.read_lines())
            self.process.send_signal(signal.SIGUSR1)
            while len(lines := self.read_lines()) == known:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise WalkFailed("the traced process does not answer")
                time.sleep(0.005)
            found: Message = json.loads(lines[-1])
            if last is not None and found == last:
                return found
            last = found
        raise WalkFailed("the traced process is never idle")

    def read_lines(self) -> list[str]:
        return [line for line in self.readings.read_text().split("\n")[:-1] if line]


class StdioDriver:
    """Speaks with a traced process over its standard streams."""

    def __init__(self, process: TracedProcess) -> None:
        assert process.process.stdin is not None and process.process.stdout is not None
        self._input, self._output = process.process.stdin, process.process.stdout.fileno()
        self._buffer = b""

    def send(self, message: Message) -> None:
        self._input.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> Message:
        while b"\n" not in self._buffer:
            data = os.read(self._output, 1 << 16)
            if not data:
                raise WalkFailed("the traced process ended")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: Message = json.loads(line)
        return message

    def call(self, message: Message) -> Message:
        self.send(message)
        return self.receive()


class HttpDriver:
    """POSTs messages over one connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._session: str | None = None
        self._buffer = b""
        self._socket = self._connect()

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise WalkFailed("the traced process does not listen") from None
                time.sleep(0.05)
            else:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection

    def close(self) -> None:
        self._socket.close()

    def call(self, message: Message) -> Message:
        body = json.dumps(message).encode()
        headers = {
            "Host": f"127.0.0.1:{self._port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
        }
        meta = message.get("params", {}).get("_meta")
        if meta:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
            headers["Mcp-Name"] = message["params"]["name"]
        elif self._session:
            headers |= {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": self._session}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._socket.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        return self._read_answer()

    def _read_answer(self) -> Message:
        while b"\r\n\r\n" not in self._buffer:
            self._fill()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        status, *lines = head.decode().split("\r\n")
        fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        self._session = fields.get("mcp-session-id", self._session)
        if " 202 " in status + " ":
            return {}
        if " 200 " not in status + " ":
            raise WalkFailed(f"{status}: {self._buffer!r}")
        if fields.get("transfer-encoding") == "chunked":
            body = self._read_chunks()
        else:
            body = self._read_exactly(int(fields["content-length"]))
        data = [line[6:] for line in body.decode().splitlines() if line.startswith("data: {")]
        message: Message = json.loads(data[-1] if data else body)
        return message

    def _read_chunks(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self._buffer:
                self._fill()
            size, self._buffer = self._buffer.split(b"\r\n", 1)
            chunk = self._read_exactly(int(size, 16) + 2)[:-2]
            if not chunk:
                return body
            body += chunk

    def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _fill(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise WalkFailed("the traced process closed the connection")
        self._buffer += data


# --- The eight walks ---


def walk_stdio(folder: Path, revision: str, tool: str = "add") -> Reading:
    with started(folder, "stdio") as process:
        driver = StdioDriver(process)
        if revision == LEGACY:
            driver.call(make_initialize({"elicitation": {}}))
            driver.send(INITIALIZED)

        def call(id: int) -> None:
            answer = driver.call(make_call(id, revision, tool))
            if tool == "ask":
                result = {"action": "accept", "content": {"value": True}}
                answer = driver.call({"jsonrpc": "2.0", "id": answer["id"], "result": result})
            check_answer(answer, id)

        return measure(process, call)


def walk_http(folder: Path, revision: str, *arguments: str) -> Reading:
    port = free_port()
    way = arguments or ("http",)
    with started(folder, way[0], str(port), *way[1:]) as process:
        driver = HttpDriver(port)
        try:
            if revision == LEGACY:
                driver.call(make_initialize({}))
                driver.call(INITIALIZED)
            return measure(process, lambda id: check_answer(driver.call(make_call(id, revision)), id))
        finally:
            driver.close()


def walk_gateway(folder: Path, revision: str) -> Reading:
    """Call through a traced gateway. Its upstream is a second process, whose counts are not read."""
    port = free_port()
    with started(folder, "http", str(port)):
        HttpDriver(port).close()
        return walk_http(folder, revision, "gateway", f"http://127.0.0.1:{port}/mcp")


def walk_memory(folder: Path) -> Reading:
    with started(folder, "memory", str(WARM_UP + BATCH * BATCHES + 1)) as process:
        process.process.wait(PATIENCE)
        found = [json.loads(line) for line in process.read_lines()][WARM_UP:]
        return choose_reading(found[::BATCH])


WALKS: dict[str, Callable[[Path], Reading]] = {
    "http-modern": lambda folder: walk_http(folder, MODERN),
    "http-legacy-session": lambda folder: walk_http(folder, LEGACY),
    "stdio-modern": lambda folder: walk_stdio(folder, MODERN),
    "stdio-legacy": lambda folder: walk_stdio(folder, LEGACY),
    "stdio-legacy-question": lambda folder: walk_stdio(folder, LEGACY, "ask"),
    "memory": walk_memory,
    "gateway-modern": lambda folder: walk_gateway(folder, MODERN),
    "gateway-legacy-client": lambda folder: walk_gateway(folder, LEGACY),
}


def run_walk(name: str) -> Reading:
    """Return what one call costs on the walk of this name."""
    with tempfile.TemporaryDirectory() as folder:
        return WALKS[name](Path(folder))


# --- Measuring ---


def measure(process: TracedProcess, call: Callable[[int], None]) -> Reading:
    """Return the cost of the cheapest batch of calls, after a warm-up."""
    for id in range(1, WARM_UP + 1):
        call(id)
    found = [process.read_counts()]
    for batch in range(BATCHES):
        for id in range(BATCH):
            call(1000 + batch * BATCH + id)
        found.append(process.read_counts())
    return choose_reading(found)


def choose_reading(found: list[Message]) -> Reading:
    """Return the cheapest of the batches between readings: a timer that fell into another one does not count."""
    readings = [
        Reading(_subtract(before["calls"], after["calls"]), _subtract(before["opcodes"], after["opcodes"]))
        for before, after in itertools.pairwise(found)
    ]
    return min(readings, key=lambda reading: reading.opcodes)


def _subtract(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    counts = {name: (count - before.get(name, 0)) / BATCH for name, count in after.items()}
    return {name: count for name, count in counts.items() if count}


def check_answer(answer: Message, id: int) -> None:
    if answer.get("id") != id or "result" not in answer or answer["result"].get("isError"):
        raise WalkFailed(f"unexpected answer to the call {id}: {answer}")


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[TracedProcess]:
    process = TracedProcess(folder, *arguments)
    try:
        yield process
    except (WalkFailed, OSError, subprocess.TimeoutExpired) as error:
        raise WalkFailed(f"{error}\n{process.read_log()}") from error
    finally:
        process.stop()
