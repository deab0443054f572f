"""One neutral load driver for stdio servers: raw JSON-RPC lines over non-blocking pipes, the same bytes for everyone.

The answers are only counted while the clock runs; afterwards each is parsed and checked, so that a server which answers
wrongly or twice cannot look fast.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from typing import Any

from spawned import last_words

WINDOW = 64  # requests in flight when pipelined
CHUNK = 1 << 18
PATIENCE = 60.0  # seconds without a byte before a server is given up

# Requests are encoded before the clock starts; a server faster than this runs out of them early, which is no harm.
FASTEST_ONE_AT_A_TIME = 50_000
FASTEST_PIPELINED = 150_000

# What this process was allowed at its start, before it confines itself.
CORES = os.sched_getaffinity(0) if sys.platform == "linux" else set()

LEGACY = "2025-11-25"
MODERN = "2026-07-28"


class ServerFailed(Exception):
    """The server under test ended, hung or answered wrongly."""


def calls(first: int, count: int, tool: str, revision: str) -> list[bytes]:
    """Requests with the ids from `first` on; the id is also an argument, so that every answer is different."""
    params: dict[str, Any] = {"name": tool, "arguments": {"a": "ID", "b": 1}}
    if revision == MODERN:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    template = line({"jsonrpc": "2.0", "id": "ID", "method": "tools/call", "params": params})
    return [template.replace(b'"ID"', b"%d" % id) for id in range(first, first + count)]


def line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def place(server: int) -> str:
    """Keeps the driver on one core and the server on the others, and says what was done.

    Left to the scheduler, the two sometimes share a core, and a fast server that is called one at a time then measures
    almost five times as fast as across cores (seen: a bare echo at 88k calls a second against 19k), while a slow one
    stays the same. Ratios would depend on luck. Apart is what a client and a server on a free machine are.
    """
    if sys.platform != "linux":
        return "placed by the operating system"
    if len(CORES) < 2:
        return "driver and server share the only core"
    mine = min(CORES)
    os.sched_setaffinity(0, {mine})
    os.sched_setaffinity(server, CORES - {mine})
    return "driver and server on different cores"


def place_beside_driver(process: int) -> None:
    """Keeps a process on the core of the driver, which leaves the others to the server under test."""
    if sys.platform == "linux" and len(CORES) > 1:
        os.sched_setaffinity(process, {min(CORES)})


def release() -> None:
    """Undoes the placement of this process, which its children would inherit."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, CORES)


class StdioServer:
    """A spawned server and the two pipes to it."""

    def __init__(self, command: list[str], revision: str) -> None:
        self.revision = revision
        self.next_id = 1
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close(); a pipe would fill up
        started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, bufsize=0
        )
        self.placement = place(self.process.pid)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.write_end = self.process.stdin.fileno()
        self.read_end = self.process.stdout.fileno()
        os.set_blocking(self.write_end, False)
        os.set_blocking(self.read_end, False)
        self.readable = select.poll()
        self.readable.register(self.read_end, select.POLLIN)
        self.writable = select.poll()
        self.writable.register(self.write_end, select.POLLOUT)
        self.open()
        self.first_answer = time.perf_counter() - started

    def open(self) -> None:
        """Until the first answer: the handshake on the legacy revision, a call on the modern one."""
        if self.revision == MODERN:
            self.pipelined("add", count=1)
            return
        client = {"name": "bench", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client}
        self.write(line({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
        answer = json.loads(self.read_line())
        if answer.get("result", {}).get("protocolVersion") != LEGACY:
            raise ServerFailed(f"unexpected answer to initialize: {answer}")
        self.write(line({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def write(self, data: bytes) -> None:
        waiting = memoryview(data)
        while waiting:
            try:
                waiting = waiting[os.write(self.write_end, waiting) :]
            except BlockingIOError:
                self.writable.poll(PATIENCE * 1000)
            except BrokenPipeError as error:
                raise ServerFailed(last_words(self.process, self.stderr)) from error

    def read(self) -> bytes:
        while True:
            try:
                data = os.read(self.read_end, CHUNK)
            except BlockingIOError:
                if not self.readable.poll(PATIENCE * 1000):
                    raise ServerFailed(f"no answer for {PATIENCE:.0f} s") from None
                continue
            if not data:
                raise ServerFailed(last_words(self.process, self.stderr))
            return data

    def read_line(self) -> bytes:
        data = self.read()
        while not data.endswith(b"\n"):
            data += self.read()
        return data

    def one_at_a_time(self, tool: str, seconds: float) -> float:
        """Calls a second when each waits for the answer to the one before."""
        first, answers = self.next_id, []
        prepared = calls(first, int(seconds * FASTEST_ONE_AT_A_TIME), tool, self.revision)
        started = now = time.perf_counter()
        for request in prepared:
            self.write(request)
            answers.append(self.read_line())
            now = time.perf_counter()
            if now - started > seconds:
                break
        self.next_id += len(answers)
        self.check(b"".join(answers), first)
        return len(answers) / (now - started)

    def pipelined(self, tool: str, seconds: float = 0.0, count: int = 0) -> float:
        """Calls a second with a window of requests in flight, for some seconds or for a number of calls."""
        first, answered, received = self.next_id, 0, []
        prepared = calls(first, count or int(seconds * FASTEST_PIPELINED), tool, self.revision)
        sent = min(WINDOW, len(prepared))
        started = now = time.perf_counter()
        self.write(b"".join(prepared[:sent]))
        while answered < sent:
            data = self.read()
            received.append(data)
            arrived = data.count(b"\n")
            answered += arrived
            now = time.perf_counter()
            if (count or now - started < seconds) and sent < len(prepared):
                self.write(b"".join(prepared[sent : sent + arrived]))
                sent = min(sent + arrived, len(prepared))
        self.next_id += sent
        self.check(b"".join(received), first)
        return answered / (now - started)

    def check(self, received: bytes, first: int) -> None:
        """Every request since `first` has exactly one answer, and it is right."""
        seen = set()
        for text in received.splitlines():
            answer = json.loads(text)
            content = answer.get("result", {}).get("content") or [{}]
            if content[0].get("text") != str(answer.get("id", 0) + 1):
                raise ServerFailed(f"wrong answer: {text[:400].decode(errors='replace')}")
            seen.add(answer["id"])
        if seen != set(range(first, self.next_id)):
            raise ServerFailed(f"{len(seen)} of {self.next_id - first} calls were answered")

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stderr.close()
