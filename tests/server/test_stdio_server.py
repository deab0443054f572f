"""A server in a process of its own: how it starts, what may disturb it, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.wireclient import MODERN, REVISIONS

pytestmark = pytest.mark.warm_start

posix = pytest.mark.skipif(os.name != "posix", reason="signals and descriptors of POSIX systems")

SERVER = """
    import asyncio, os, subprocess, sys, time
    from contextlib import asynccontextmanager
    from toolwire import Context, Server, SyncContext

    NOTES = {notes!r}

    def note(text):
        with open(NOTES, "a") as file:
            file.write(text + "\\n")

    @asynccontextmanager
    async def lifespan(server):
        note("enter")
        try:
            yield "value"
        finally:
            note("exit")

    server = Server("process", lifespan=lifespan)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    def noisy() -> str:
        print("printed by a tool")
        sys.stdout.write("written by a tool\\n")
        os.write(1, b"written to descriptor 1\\n")
        subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
        child = subprocess.run([sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"], capture_output=True)
        return child.stdout.decode().strip()

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        note("waiting")
        try:
            await asyncio.sleep(60)
        finally:
            note("stopped waiting")
        return "done"

    @server.tool
    def block(ctx: SyncContext) -> str:
        ctx.progress(1)
        time.sleep(60)
        return "done"

    @server.tool
    async def brief(ctx: Context) -> str:
        await ctx.progress(1)
        await asyncio.sleep(0.2)
        note("brief done")
        return "brief"

    @server.tool(task="required")
    async def work(seconds: float) -> str:
        note("task begun")
        try:
            await asyncio.sleep(seconds)
            note("task done")
        except asyncio.CancelledError:
            note("task cancelled")
            raise
        return "done"

    if __name__ == "__main__":
        {main}
"""
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Process:
    """A server process spoken to line by line."""

    def __init__(
        self, folder: Path, main: str = "server.run()", top: str = "", command: list[str] | None = None
    ) -> None:
        self.notes_file = folder / "notes.txt"
        self.file = folder / "served.py"
        self.file.write_text(top + textwrap.dedent(SERVER).format(notes=str(self.notes_file), main=main))
        self.process = subprocess.Popen(
            command or [sys.executable, str(self.file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._next = 0

    def send(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> int:
        self._next += 1
        message = {
            "jsonrpc": "2.0",
            "id": self._next,
            "method": method,
            "params": {**(params or {}), "_meta": {**META, **meta}},
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self._next

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        identifier = self.send("tools/call", {"name": tool, "arguments": arguments})
        answer = self.read()
        assert answer["id"] == identifier
        return answer["result"]  # type: ignore[no-any-return]

    def end(self) -> tuple[int, str, str]:
        """Close standard input, wait, and give the status, what was left on stdout, and stderr."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out.decode(), err.decode()

    def notes(self) -> list[str]:
        return self.notes_file.read_text().split("\n")[:-1] if self.notes_file.exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path


@contextlib.contextmanager
def running(process: Process) -> Iterator[Process]:
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        for pipe in (process.process.stdin, process.process.stdout, process.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.mark.covers("STD-11", "J7")
def test_the_end_of_input_ends_the_server_with_status_0(folder: Path) -> None:
    with running(Process(folder)) as server:
        assert server.call("echo", text="hi")["content"][0]["text"] == "hi"
        status, out, err = server.end()
        assert (status, out, err) == (0, "", "")
        assert server.notes() == ["enter", "exit"]


@pytest.mark.covers("J32")
def test_what_is_in_flight_at_the_end_of_input_is_finished(folder: Path) -> None:
    with running(Process(folder)) as server:
        identifier = server.send("tools/call", {"name": "brief"}, progressToken="t")
        assert server.read()["method"] == "notifications/progress"
        status, out, err = server.end()
        assert (status, err) == (0, "")
        answer = json.loads(out)
        assert answer["id"] == identifier
        assert answer["result"]["content"][0]["text"] == "brief"
        assert server.notes() == ["enter", "brief done", "exit"]


def with_limits(limits: str) -> str:
    """Return code that runs a server with these limits."""
    change = f"replace(server.settings, limits=type(server.limits)({limits}))"
    return f"from msgspec.structs import replace; server.apply_settings({change}); server.run()"


@pytest.mark.parametrize("tool", ["wait", "block"])
def test_what_takes_longer_is_stopped_before_the_client_kills_the_server(folder: Path, tool: str) -> None:
    main = with_limits("drain=600")
    with running(Process(folder, main)) as server:
        server.send("tools/call", {"name": tool}, progressToken="t")
        assert server.read()["method"] == "notifications/progress"
        status, out, err = server.end()
        assert (status, out, err) == (0, "", "")
        assert server.notes()[-1] == "exit"


@pytest.mark.covers("2.1.2")
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_is_one_message_a_line(folder: Path, revision: str) -> None:
    call: dict[str, Any] = {"name": "echo", "arguments": {"text": "two\nlines \u2028"}}
    client = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    if revision == MODERN:
        said = [{"id": 2, "method": "tools/call", "params": {**call, "_meta": META}}]
    with running(Process(folder)) as server:
        out, err = server.process.communicate(
            b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in said), timeout=30
        )
    assert err == b""
    assert out.endswith(b"\n")
    answers = [json.loads(line) for line in out.split(b"\n")[:-1]]
    assert [answer["id"] for answer in answers] == [each["id"] for each in said if "id" in each]
    assert answers[-1]["result"]["content"][0]["text"] == "two\nlines \u2028"


def begin_task(server: Process, seconds: float) -> None:
    able = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    call = {"name": "work", "arguments": {"seconds": seconds}}
    server.send("tools/call", call, **{"io.modelcontextprotocol/clientCapabilities": able})
    assert server.read()["result"]["resultType"] == "task"
    while server.notes()[-1] != "task begun":
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("limits", "seconds", "end"),
    [
        ("", 0.3, "task done"),
        ("drain_stdio=0.05", 60, "task cancelled"),
        ("drain_tasks=0.05", 60, "task cancelled"),
        ("drain_stdio=0", 60, "task cancelled"),
    ],
)
def test_a_task_has_the_time_of_calls_at_the_end_of_input(folder: Path, limits: str, seconds: float, end: str) -> None:
    with running(Process(folder, with_limits(limits))) as server:
        begin_task(server, seconds)
        status, _, err = server.end()
        assert (status, err) == (0, "")
        assert server.notes() == ["enter", "task begun", end, "exit"]


@posix
@pytest.mark.parametrize("input_ends", [False, True])
def test_one_signal_leaves_tasks_no_time(folder: Path, input_ends: bool) -> None:
    with running(Process(folder, with_limits("drain_stdio=600, drain_tasks=600"))) as server:
        begin_task(server, 60)
        if input_ends:
            assert server.process.stdin is not None
            server.process.stdin.close()
            server.process.stdin = None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert server.notes() == ["enter", "task begun", "task cancelled", "exit"]


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("input_ends", [False, True])
def test_one_signal_stops_the_server_at_once_and_without_a_traceback(
    folder: Path, number: signal.Signals, input_ends: bool
) -> None:
    # Whoever sends a signal has waited already: calls in flight get no more time.
    main = with_limits("drain=600, drain_stdio=600")
    with running(Process(folder, main)) as server:
        server.send("tools/call", {"name": "wait"}, progressToken="t")
        assert server.read()["method"] == "notifications/progress"
        if input_ends:
            assert server.process.stdin is not None
            server.process.stdin.close()
            server.process.stdin = None
        server.process.send_signal(number)
        status = server.process.wait(30)
        out, err = server.process.communicate()
        assert (status, out, err) == (0, b"", b"")
        assert server.notes() == ["enter", "waiting", "stopped waiting", "exit"]


@pytest.mark.covers("STD-2", "3.1.2")
def test_nothing_but_messages_reaches_standard_output(folder: Path) -> None:
    with running(Process(folder)) as server:
        result = server.call("noisy")
        # The child found nothing on its standard input, instead of stealing the client's requests.
        assert result["content"][0]["text"] == "0"
        assert server.call("echo", text="still here")["content"][0]["text"] == "still here"
        status, out, err = server.end()
        assert (status, out) == (0, "")
        for text in ("printed by a tool", "written by a tool", "written to descriptor 1", "printed by a child"):
            assert text in err


def test_output_while_the_file_is_imported_does_not_disturb_toolwire_run(folder: Path) -> None:
    top = "import os\nprint('banner at import')\nos.write(1, b'and more')\n"
    command = [sys.executable, "-m", "toolwire", "run", str(folder / "served.py")]
    with running(Process(folder, top=top, command=command)) as server:
        assert server.call("echo", text="clean")["content"][0]["text"] == "clean"
        status, out, err = server.end()
        assert (status, out) == (0, "")
        assert "banner at import" in err


@posix
@pytest.mark.parametrize("uvloop", [False, True])
@pytest.mark.parametrize("source", ["file", "null", "closed"])
def test_standard_input_of_any_kind(folder: Path, source: str, uvloop: bool) -> None:
    block = "" if uvloop else "import sys; sys.modules['uvloop'] = None\n"
    prepared = Process(folder, top=block)
    prepared.process.communicate()
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "x"}, "_meta": META},
    }
    line = folder / "input.jsonl"
    line.write_text(json.dumps(request) + "\n")
    command = [sys.executable, str(prepared.file)]
    if source == "closed":
        done = subprocess.run(["sh", "-c", 'exec "$0" "$1" <&-', *command], capture_output=True, timeout=30)
    else:
        with open(line if source == "file" else os.devnull) as stream:
            done = subprocess.run(command, stdin=stream, capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")
    if source == "file":
        assert json.loads(done.stdout)["result"]["content"][0]["text"] == "x"
    else:
        assert done.stdout == b""


@posix
def test_the_server_ends_when_its_parent_dies(folder: Path) -> None:
    prepared = Process(folder)
    prepared.process.communicate()
    prepared.notes_file.unlink()
    # The parent hands the server a pipe that this test keeps open, so the input never ends.
    reader, writer = os.pipe()
    ended_reader, ended_writer = os.pipe()
    parent_code = (
        "import subprocess, sys, time\n"
        f"command = [sys.executable, {str(prepared.file)!r}]\n"
        f"child = subprocess.Popen(command, stdin={reader}, pass_fds=({ended_writer},))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code], stdout=subprocess.PIPE, pass_fds=(reader, ended_writer), text=True
    )
    os.close(reader)
    os.close(ended_writer)
    try:
        assert parent.stdout is not None
        parent.stdout.readline()
        os.write(writer, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert json.loads(parent.stdout.readline())["id"] == 1
        parent.kill()
        parent.wait()
        # The last copy of this pipe is the server's: its end is the server's end.
        assert os.read(ended_reader, 1) == b""
        assert prepared.notes() == ["enter", "exit"]
    finally:
        os.close(writer)
        os.close(ended_reader)
        parent.stdout.close()  # type: ignore[union-attr]


@pytest.mark.covers("J3", "J4")
def test_a_server_that_runs_cannot_be_started_again_and_an_idle_one_not_stopped(folder: Path) -> None:
    main = (
        "import threading\n"
        "    from toolwire.protocol.errors import ServerError\n"
        "    try: server.stop()\n"
        "    except ServerError as error: note(str(error))\n"
        "    def again():\n"
        "        while not server.active: time.sleep(0.01)\n"
        "        try: server.start()\n"
        "        except ServerError as error: note(str(error))\n"
        "        server.stop()\n"
        "    threading.Thread(target=again).start()\n"
        "    server.start()"
    )
    with running(Process(folder, main)) as server:
        assert server.process.wait(30) == 0
        assert server.notes() == [
            "The server 'process' is not running",
            "enter",
            "The server 'process' is already running",
            "exit",
        ]
