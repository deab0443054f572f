"""Servers that a command starts: their output is shown, they are never waited for in silence, and they end with it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.command import Command
from tests.http_process import started

from toolwire import Client, Server
from toolwire.cli import client_files, screen, server_file, start_watch
from toolwire.cli.start_watch import StartWatch
from toolwire.protocol.errors import Timeout
from toolwire.wire.server_files import CLIENT_VARIABLE, is_started_by_client

NOISY = """
import sys
from toolwire import Server

sys.stderr.write("while loading\\ntoolwire: FORGED\\n")
server = Server("noisy")

@server.tool(annotations={"readOnlyHint": True})
def shout(number: int = 1) -> int:
    print("while running")
    return number

@server.tool(annotations={"readOnlyHint": True})
def fail() -> int:
    print("toolwire: FORGED")
    raise ValueError

@server.resource("text://one")
def one() -> str:
    return "one"

@server.prompt
def ask() -> str:
    return "ask"

if __name__ == "__main__":
    server.run("http", port=1)
"""
VERBOSE: dict[str, tuple[str, ...]] = {
    "list": (),
    "call": ("shout",),
    "read": ("text://one",),
    "prompt": ("ask",),
    "request": ("ping",),
    "lint": (),
    "doctor": (),
    "skills": (),
}


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    file = tmp_path / "noisy.py"
    file.write_text(NOISY, encoding="utf-8")
    return file


@pytest.mark.parametrize("command", VERBOSE)
def test_verbose_shows_the_output_of_the_server(toolwire: Command, noisy: Path, command: str) -> None:
    words = ["list", str(noisy)] if command == "skills" else [str(noisy), *VERBOSE[command]]
    done = toolwire(command, *words, "--verbose")
    lines = done.err.splitlines()
    assert "server| while loading" in lines, done
    assert "server| toolwire: FORGED" in lines
    assert "toolwire: FORGED" not in lines
    if command == "call":
        assert "server| while running" in lines


def test_output_of_a_server_whose_tool_fails_is_marked(toolwire: Command, noisy: Path) -> None:
    done = toolwire("call", str(noisy), "fail")
    assert done.status == 1
    assert "server| toolwire: FORGED" in done.err.splitlines()
    assert "toolwire: FORGED" not in done.err.splitlines()


def test_verbose_shows_the_output_of_each_server_of_a_configuration(toolwire: Command, noisy: Path) -> None:
    file = noisy.with_name("mcp.json")
    entry = f'{{"command": "{sys.executable}", "args": ["{noisy}"]}}'
    file.write_text(f'{{"mcpServers": {{"one": {entry}, "two": {entry}}}}}', encoding="utf-8")
    done = toolwire("list", str(file), "--verbose")
    assert done.status == 0, done.err
    assert {"server| one: while loading", "server| two: while loading"} <= set(done.err.splitlines())


@pytest.mark.parametrize("over", ["the file", "a gateway"])
async def test_inspect_verbose_shows_the_output_of_the_server(noisy: Path, over: str) -> None:
    target, line = noisy, "server| while loading\n"
    if over == "a gateway":
        target, line = noisy.with_name("gateway.toml"), "server| noisy: while loading\n"
        target.write_text(
            f'[mcpServers.noisy]\ncommand = "{sys.executable}"\nargs = ["{noisy}"]\n[gateway]\nname = "g"\n',
            encoding="utf-8",
        )
    command = [sys.executable, "-m", "toolwire", "inspect", str(target), "--no-open", "--verbose"]
    async with started(command) as served:
        while line not in served.said:
            assert await served.line(), "".join(served.said)
        served.signal(signal.SIGTERM)
        assert (await served.end())[0] == 0


def test_call_on_a_terminal_shows_the_output_dimmed(
    toolwire: Command, noisy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[2mserver| while running\n\x1b[22m" in toolwire("call", str(noisy), "shout", "--no-input").err


def test_output_is_made_harmless_and_has_no_colour_where_none_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    screen.server_note("a\x1b[31mb")
    assert "\x1b" not in capsys.readouterr().err


# --- servers that do not answer ---------------------------------------------------------------------------------------

LISTENS = """
import os, socket, sys, threading
with socket.create_server(("127.0.0.1", 0)) as listening:
    with open(sys.argv[1], "w") as file:
        file.write(f"{os.getpid()} {listening.getsockname()[1]}\\n")
    threading.Event().wait()
"""
# It ends with its input, so that nothing waits for it.
LISTENS_UNTIL_THE_END = LISTENS.replace("threading.Event().wait()", "sys.stdin.read()")


def let_time_pass(monkeypatch: pytest.MonkeyPatch, said: Path) -> None:
    """Set the clocks of event loops forward by a minute when a server has said that it listens."""

    def read_clock(loop: asyncio.BaseEventLoop) -> float:
        listens = said.exists() and said.read_text(encoding="utf-8").endswith("\n")
        return time.monotonic() + (60 if listens else 0)

    monkeypatch.setattr(asyncio.BaseEventLoop, "time", read_clock)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which ports a process listens on")
def test_timeout_of_a_server_that_listens_on_a_port_names_the_port(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, pipe = tmp_path / "listens", tmp_path / "said"
    script.write_text(LISTENS_UNTIL_THE_END, encoding="utf-8")
    let_time_pass(monkeypatch, pipe)
    done = toolwire("list", f"{sys.executable} {script} {pipe}", "--timeout", "15")
    port = pipe.read_text(encoding="utf-8").split()[1]
    assert done.status == 3
    assert f"it listens on port {port}, so give its address, such as http://127.0.0.1:{port}/mcp" in done.err
    assert "--timeout SECONDS" not in done.err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which ports a process listens on")
async def test_client_names_the_port_of_a_file_that_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "listens.py"
    said = f"import sys\nsys.argv.append({str(tmp_path / 'said')!r})\n"
    let_time_pass(monkeypatch, tmp_path / "said")
    file.write_text(f"{said}{LISTENS_UNTIL_THE_END}", encoding="utf-8")
    with pytest.raises(Timeout, match=r"; it listens on port \d+, so give its address, .* as listens\.py:server$"):
        await Client(file, timeout=15.0).connect()


@pytest.mark.parametrize(
    ("ports", "said", "label", "shows"),
    [
        ([], "", "s.py", "s.py has not answered for 3 seconds (Ctrl+C ends it)"),
        ([], "loading the model", "s.py", "for 3 seconds; its last line is: loading the model (Ctrl+C"),
        (
            [8000, 9000],
            "x",
            "node",
            "so give its address, such as http://127.0.0.1:8000/mcp (",
        ),
        ([8000], "x", "s.py", "or name the server object in the file, as s.py:server ("),
    ],
)
async def test_silence_of_a_server_is_explained_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ports: list[int],
    said: str,
    label: str,
    shows: str,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    channel: Any = SimpleNamespace(returncode=None, last_said=said, listening_ports=lambda: ports)
    scheduled: list[tuple[float, Callable[[], None]]] = []
    loop = SimpleNamespace(call_later=lambda seconds, act, *args: scheduled.append((seconds, lambda: act(*args))))
    monkeypatch.setattr(start_watch.asyncio, "get_running_loop", lambda: loop)
    watch = StartWatch(label, 30.0)
    watch.started(channel)
    [(seconds, look)] = scheduled
    assert seconds == 3.0
    look()
    assert shows in capsys.readouterr().err
    watch.until(lambda: True)
    look()
    assert capsys.readouterr().err == ""


# --- nothing is left behind -------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_command_ends_its_server_when_a_signal_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:
    script, pipe = tmp_path / "listens", tmp_path / "said"
    script.write_text(LISTENS, encoding="utf-8")
    os.mkfifo(pipe)
    target = f"{sys.executable} {script} {pipe}"
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "toolwire", "list", target)
    pid = int((await asyncio.to_thread(pipe.read_text)).split()[0])
    process.send_signal(number)
    assert await process.wait() == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# A server that answers nothing and ignores every signal that a process can ignore.
STUBBORN = """
import os, signal, sys, threading
for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
held = open(sys.argv[1], "w")
held.write("started\\n")
held.flush()
threading.Event().wait(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has none of these signals")
@pytest.mark.parametrize("command", ["list", "inspect"])
@pytest.mark.parametrize(
    "numbers",
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGHUP),
        (signal.SIGTERM, signal.SIGHUP),
        (signal.SIGQUIT,),
    ],
    ids=lambda numbers: "-".join(number.name for number in numbers),
)
async def test_stubborn_server_ends_before_its_command(
    tmp_path: Path, command: str, numbers: tuple[signal.Signals, ...]
) -> None:
    script, pipe = tmp_path / "stubborn", tmp_path / "held"
    script.write_text(STUBBORN, encoding="utf-8")
    os.mkfifo(pipe)
    words = ["--no-open"] if command == "inspect" else []
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolwire", command, f"{sys.executable} {script} {pipe}", *words
    )
    with await asyncio.to_thread(pipe.open) as held:
        assert await asyncio.to_thread(held.readline) == "started\n"
        for number in numbers:
            if process.returncode is None:
                process.send_signal(number)
            await asyncio.sleep(0.1)
        await process.wait()
        # The end of file comes when the server has ended.
        assert await asyncio.wait_for(asyncio.to_thread(held.read), 30) == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGQUIT")
@pytest.mark.parametrize(
    "words", [("gateway", "--port", "0"), ("gateway", "--transport", "stdio"), ("dev", "--no-open")]
)
async def test_servers_behind_a_gateway_end_before_it_at_sigquit(tmp_path: Path, words: tuple[str, ...]) -> None:
    script, pipe = tmp_path / "stubborn", tmp_path / "held"
    script.write_text(STUBBORN, encoding="utf-8")
    os.mkfifo(pipe)
    behind = [sys.executable, str(script), str(pipe)]
    if words[0] == "gateway":
        file = tmp_path / "gateway.json"
        entry = {"command": behind[0], "args": behind[1:]}
        file.write_text(json.dumps({"mcpServers": {"behind": entry}}), encoding="utf-8")
    else:
        file = tmp_path / "front.py"
        made = f"from toolwire.gateway import Gateway\ngateway = Gateway('front')\ngateway.add('behind', {behind!r})\n"
        file.write_text(made, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolwire", words[0], str(file), *words[1:]), stdin=asyncio.subprocess.PIPE
    )
    with await asyncio.to_thread(pipe.open) as held:
        assert await asyncio.to_thread(held.readline) == "started\n"
        process.send_signal(signal.SIGQUIT)
        assert await process.wait() == -signal.SIGQUIT
        # The end of file comes when the server has ended.
        assert await asyncio.wait_for(asyncio.to_thread(held.read), 30) == ""


DIES = """
import asyncio, os, signal, sys
from toolwire import Client

def end(line):
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(Client(sys.argv[1], on_stderr=end).connect())
"""
# A file that neither reads its input nor serves over it.
STAYS = """
import sys, threading
held = open({pipe!r}, "w")
sys.stderr.write("started\\n")
threading.Event().wait()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a named pipe tells when the process has ended")
async def test_file_that_listens_ends_when_the_process_of_its_client_dies(tmp_path: Path) -> None:
    file, program, pipe = tmp_path / "stays.py", tmp_path / "dies", tmp_path / "held"
    os.mkfifo(pipe)
    file.write_text(STAYS.format(pipe=str(pipe)), encoding="utf-8")
    program.write_text(DIES, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(sys.executable, program, file)
    # The end of file comes when the last process that holds the pipe has ended.
    assert await asyncio.to_thread(pipe.read_text) == ""
    assert await process.wait() == -signal.SIGKILL


# --- the transport of a server that a client started ------------------------------------------------------------------


async def test_command_whose_server_runs_over_http_serves_its_client(noisy: Path) -> None:
    async with Client([sys.executable, str(noisy)]) as client:
        assert (await client.call_tool("shout", {"number": 3})).structured == 3


def test_only_the_child_of_a_client_serves_over_stdio(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_started_by_client()
    monkeypatch.setenv(CLIENT_VARIABLE, str(os.getppid()))
    assert is_started_by_client()
    # A process that a server starts inherits the variable, and has another parent.
    monkeypatch.setenv(CLIENT_VARIABLE, str(os.getpid()))
    assert not is_started_by_client()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no poll()")
async def test_server_ends_if_its_client_ended_while_it_started(noisy: Path) -> None:
    ours = {**os.environ, CLIENT_VARIABLE: "1234567"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, noisy, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ours
    )
    # Closed before the server looks for its client, which is another process than its parent now.
    assert process.stdin is not None
    process.stdin.close()
    await process.communicate()
    assert process.returncode == 0


UNGUARDED = "from toolwire import Server\nserver = Server('top')\nother = Server('other')\n{run}\nafter = True\n"


@pytest.mark.parametrize("run", ["server.run('http')", "server.run()", "server.start('sse')"])
def test_loading_a_file_ends_where_it_runs_its_server(tmp_path: Path, run: str) -> None:
    file = tmp_path / "top.py"
    file.write_text(UNGUARDED.format(run=run), encoding="utf-8")
    loaded = server_file.load(str(file))
    assert isinstance(loaded, Server)
    assert loaded.name == "top"
    assert server_file.load(f"{file}:other").name == "other"


async def test_run_serves_where_the_file_runs_with_the_options_of_both(tmp_path: Path) -> None:
    file = tmp_path / "top.py"
    run = "try:\n    server.run('http', port=1, path='/here')\nfinally:\n    print('cleaned up')"
    file.write_text(UNGUARDED.format(run=run), encoding="utf-8")
    command = [sys.executable, "-m", "toolwire", "run", str(file), "--transport", "streamable-http", "--port", "0"]
    async with started(command) as served:
        async with Client(f"http://127.0.0.1:{served.port}/here") as client:
            assert client.server is not None
            assert client.server.name == "top"
        served.signal(signal.SIGTERM)
        assert (await served.end())[0] == 0


def test_main_is_for_one_python_file(toolwire: Command, noisy: Path) -> None:
    for words in ((f"{noisy}:server",), (str(noisy), "--reload")):
        done = toolwire("run", "--main", *words)
        assert (done.status, done.err.startswith("toolwire: --main ")) == (2, True)


# --- the traceback behind an error id ---------------------------------------------------------------------------------

FAILING = """
import sys
from toolwire import Server

server = Server("failing")
sys.stderr.write("chatter\\n  indented chatter\\n")

@server.tool(annotations={"readOnlyHint": True})
def fail() -> int:
    raise ValueError("the cause")

@server.resource("text://one")
def one() -> str:
    raise ValueError("the cause")

@server.prompt
def ask() -> str:
    raise ValueError("the cause")
"""
# Every request fails, also the first one.
BROKEN = (
    FAILING
    + """
@server.use
async def check(ctx, call_next):
    raise ValueError("the cause")
"""
)
FAILS: dict[str, tuple[str, ...]] = {
    "read": ("read", "failing.py", "text://one"),
    "prompt": ("prompt", "failing.py", "ask"),
    "request": ("request", "failing.py", "resources/read", "uri=text://one"),
    "request of a tool": ("request", "failing.py", "tools/call", "name=fail"),
    "call": ("call", "failing.py", "fail"),
    "doctor": ("doctor", "failing.py", "--call", "fail"),
    "doctor of a broken server": ("doctor", "broken.py"),
    "list": ("list", "broken.py"),
    "lint": ("lint", "broken.py"),
    "skills": ("skills", "list", "broken.py"),
    "install": ("install", "broken.py", "--client", "cursor", "--yes"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "failing.py").write_text(FAILING, encoding="utf-8")
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client_files, "_home", lambda: tmp_path)  # `install` must not reach the user's own files.
    return tmp_path


def traceback_in(err: str, prefix: str = "server| ") -> list[str]:
    """Return the lines from that of an error id to that of the cause."""
    lines = [line.removeprefix(prefix) for line in err.splitlines() if line.startswith(prefix)]
    starts = [number for number, line in enumerate(lines) if ": error " in line and " in the " in line]
    ends = [number for number, line in enumerate(lines) if line == "    ValueError: the cause"]
    return lines[starts[0] : ends[0] + 1] if starts and ends else []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", FAILS.values(), ids=FAILS)
def test_command_shows_the_traceback_behind_an_error_id(toolwire: Command, words: tuple[str, ...]) -> None:
    done = toolwire(*words)
    assert "    Traceback (most recent call last):" in traceback_in(done.err), done
    named = re.findall(r"error id ([0-9a-f]{12})", done.out + done.err)
    assert all(f"error {each} in" in done.err for each in named), done


@pytest.mark.usefixtures("folder")
def test_command_shows_no_other_output_of_a_server_without_an_error(toolwire: Command) -> None:
    done = toolwire("list", "failing.py")
    assert (done.status, done.err) == (0, "")
    # What a program wrote before it failed may be the reason, but only a failed call shows it.
    assert "chatter" not in toolwire("doctor", "failing.py", "--call", "fail").err


def test_command_shows_tracebacks_of_each_server_of_a_configuration(toolwire: Command, folder: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "toolwire", "run", str(folder / "failing.py")]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"one": entry, "two": entry}}), encoding="utf-8")
    done = toolwire("request", "mcp.json", "tools/call", "name=two_fail")
    assert "    Traceback (most recent call last):" in traceback_in(done.err, "server| two: "), done


def test_check_of_a_gateway_shows_why_a_server_failed(toolwire: Command, folder: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "toolwire", "run", str(folder / "broken.py")]}
    (folder / "gateway.json").write_text(json.dumps({"mcpServers": {"one": entry}}), encoding="utf-8")
    done = toolwire("gateway", "check", "gateway.json")
    assert done.status == 1
    assert "    Traceback (most recent call last):" in traceback_in(done.err, "server| one: "), done


INTERNAL = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    sys.stderr.write("no such table\\n")
    sys.stderr.flush()
    error = {"code": int(sys.argv[1]), "message": "failed"}
    print(json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "error": error}), flush=True)
"""


@pytest.mark.parametrize(("code", "is_shown"), [(-32603, True), (-32602, False)])
def test_internal_error_without_an_id_shows_the_last_lines(
    toolwire: Command, tmp_path: Path, code: int, is_shown: bool
) -> None:
    script = tmp_path / "internal"
    script.write_text(INTERNAL, encoding="utf-8")
    done = toolwire("list", f"{sys.executable} {script} {code}")
    assert done.status == 1
    assert ("server| no such table" in done.err) is is_shown


async def test_inspect_shows_the_traceback_behind_an_error_id(folder: Path) -> None:
    command = [sys.executable, "-m", "toolwire", "inspect", str(folder / "broken.py"), "--no-open"]
    async with started(command) as served:
        while not any("ValueError: the cause" in line for line in served.said):
            assert await served.line(), "".join(served.said)
        assert traceback_in("".join(served.said))
        assert "chatter" not in "".join(served.said)
        served.signal(signal.SIGTERM)
        assert (await served.end())[0] == 0
