"""What a `TARGET` can be."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.cli.command import Command
from tests.http_process import started

from toolwire.auth import OAuth
from toolwire.cli import client_files, doctor, doctor_http, inspect, keyboard, targets
from toolwire.cli.errors import UsageError
from toolwire.cli.targets import Place, locate

HELLO = Path(__file__).parents[2] / "examples" / "hello.py"

CONFIGURATION = {
    "mcpServers": {
        "here": {"command": "python", "args": ["-m", "here"], "env": {"KEY": "x"}, "cwd": "/srv"},
        "there": {"url": "https://there.example/mcp", "headers": {"Authorization": "Bearer t"}},
        "nowhere": {},
        "odd": {"command": "x", "args": 7},
        "misspelt": {"ur": "https://there.example/mcp"},
    }
}


def test_a_url_a_file_and_a_command() -> None:
    assert locate("https://weather.example/mcp") == Place("https://weather.example/mcp")
    assert locate("HTTPS://weather.example/MCP") == Place("https://weather.example/MCP")
    assert locate(str(HELLO)) == Place(str(HELLO))
    assert locate(f"{HELLO}:server").target[1:] == ["-P", "-m", "toolwire", "run", f"{HELLO}:server"]
    assert locate("npx -y 'some server'") == Place(["npx", "-y", "some server"])
    assert locate(f"{sys.executable} {HELLO}") == Place([sys.executable, str(HELLO)])


def test_a_single_word_is_a_command_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/it" if name == "weather-mcp" else None)
    assert locate("weather-mcp") == Place(["weather-mcp"])
    with pytest.raises(UsageError, match="'wether-mcp' is not a server: TARGET is a URL"):
        locate("wether-mcp")


def test_a_module_is_served_from_this_folder(
    toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "name.py").write_text("NAME = 'shop'")
    (folder / "server.py").write_text(
        "from toolwire import Server\nfrom .name import NAME\nserver = Server(NAME)\n"
        "if __name__ == '__main__':\n    server.run()\n"
    )
    monkeypatch.chdir(tmp_path)
    for target in ("shop.server", "shop.server:server", "shop/server.py"):
        done = toolwire("list", target)
        assert done.out.startswith("shop 1.0.0\n"), done.err


@cases("target", ["localhost:8000/mcp", "127.0.0.1:8000", "mcp.example.com/mcp"])
def test_an_address_without_its_scheme_is_told_so(target: str) -> None:
    with pytest.raises(UsageError, match="is not a URL: begin it with http:// or https://"):
        locate(target)


@pytest.mark.parametrize("target", ["missing.json", "missing.json:weather"])
def test_a_configuration_that_is_not_there_is_named(target: str) -> None:
    with pytest.raises(UsageError, match=r"^there is no file 'missing\.json'$"):
        locate(target)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes among its files")
@pytest.mark.parametrize(
    "words",
    [
        ("list", "pipe.json"),
        ("list", "pipe.json:x"),
        ("gateway", "check", "pipe.json"),
        ("gateway", "pipe.json"),
        ("openapi", "list", "pipe.json"),
        ("inspect", "pipe.json"),
    ],
    ids=" ".join,
)
def test_pipe_in_place_of_a_file_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in ("pipe.json", "pipe.py"):
        os.mkfifo(tmp_path / name)
    # In a process of its own, which can be ended if it waits for a writer.
    command = [sys.executable, "-m", "toolwire", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert re.search("not a (regular )?file", done.stdout + done.stderr), done
    assert "did you mean" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes among its files")
def test_pipe_as_the_configuration_of_a_client_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mcp.json")
    script = "import toolwire, sys; toolwire.Client(sys.argv[1])"
    command = [sys.executable, "-c", script, str(tmp_path / "mcp.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "cannot be read: not a regular file" in done.stderr


def test_an_entry_of_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(CONFIGURATION))
    assert locate(f"{file}:here") == Place(["python", "-m", "here"], {"KEY": "x"}, "/srv")
    assert locate(f"{file}:there") == Place("https://there.example/mcp", headers={"Authorization": "Bearer t"})
    for target, says in (
        (f"{file}:missing", "no server 'missing'; it has here, there, nowhere, odd, misspelt"),
        (f"{file}:nowhere", "neither a command nor a url"),
        (f"{file}:misspelt", "The server 'misspelt' has the key 'ur'; did you mean 'url'"),
        (f"{file}:odd", "the entry 'odd' of .* cannot be used: Expected `array`"),
    ):
        with pytest.raises(UsageError, match=says):
            locate(target)
    (tmp_path / "server.py").write_text("app = 1")
    file.write_text(json.dumps({"mcpServers": {"file": {"url": str(tmp_path / "server.py")}}}))
    with pytest.raises(UsageError, match="does not begin with http:// or https://"):
        locate(f"{file}:file")
    file.write_text(json.dumps({"servers": {"only": {"command": "it"}}}))
    assert locate(str(file)).target == ["it"]


def test_an_entry_takes_values_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mcp.json"
    entry = {"command": "it", "args": ["${PLACE:-here}"], "env": {"KEY": "${env:SOME_KEY}"}}
    file.write_text(json.dumps({"mcpServers": {"it": entry}}))
    monkeypatch.setenv("SOME_KEY", "k")
    monkeypatch.delenv("PLACE", raising=False)
    assert locate(f"{file}:it") == Place(["it", "here"], {"KEY": "k"})
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(UsageError, match=r"the entry 'it' of .* The environment variable SOME_KEY is not set"):
        locate(f"{file}:it")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (r'"C:\Program Files\srv\srv.exe" --name="a b"', [r"C:\Program Files\srv\srv.exe", "--name=a b"]),
        (r"C:\srv\srv.exe C:\data\ x", [r"C:\srv\srv.exe", "C:\\data\\", "x"]),
        (r'srv "C:\data\\" "say \"hi\"" \\host\share', ["srv", "C:\\data\\", 'say "hi"', r"\\host\share"]),
        ("npx  -y\tserver ''", ["npx", "-y", "server", "''"]),
        ('srv "" ""x', ["srv", "", "x"]),
        ("", []),
        ("   ", []),
    ],
)
def test_a_command_line_on_windows(command: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert targets._words(command) == words
    with pytest.raises(UsageError, match="No closing quotation"):
        targets._words(f'{command} "')


def test_all_the_servers_of_a_configuration(toolwire: Command, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": [str(HELLO)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"servers": {"one": entry, "two": entry}}))
    listed = toolwire("list", str(tmp_path / "mcp.json"), "tools").out
    assert "4 tools" in listed
    assert "two_add" in listed
    called = toolwire("call", str(tmp_path / "mcp.json"), "two_add", "a=1", "b=2")
    assert (called.status, called.out) == (0, "3\n")
    assert "name one, as in mcp.json:NAME" in toolwire("doctor", str(tmp_path / "mcp.json")).err


def test_an_entry_of_a_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_files, "_home", lambda: tmp_path)
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps(CONFIGURATION))
    assert locate("cursor:there").target == "https://there.example/mcp"
    with pytest.raises(UsageError, match=r"^there is no file '.*claude\.json'$"):
        locate("claude-code")
    (tmp_path / ".claude.json").write_text("{}")
    with pytest.raises(UsageError, match=r"claude\.json has no servers$"):
        locate("claude-code")


@pytest.mark.parametrize("text", ["{", "[]", "// a comment\n{}", "[" * 100_000])
def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"mcp\.json (is not plain JSON|does not hold a JSON object)"):
        locate(f"{file}:x")


@cases("target", ["gone.py", "gone.py:server", "gone.js"])
def test_a_missing_file_is_named(target: str) -> None:
    with pytest.raises(UsageError, match="there is no file 'gone"):
        locate(target)


def test_a_server_that_does_not_start_is_one_line_and_status_three(toolwire: Command) -> None:
    done = toolwire("list", f'"{sys.executable}" -c "raise SystemExit(\'no luck\')"')
    assert done.status == 3
    assert done.err.startswith("toolwire: ")
    assert "no luck" in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_an_environment_is_handed_to_the_server(toolwire: Command, tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text("import os\nfrom toolwire import Server\nServer(os.environ['NAME']).run()")
    assert toolwire("list", str(file), "--env", "NAME=given").out.startswith("given 1.0.0\n")
    assert "'NAME' is not KEY=VALUE" in toolwire("list", str(file), "--env", "NAME").err


# --- at a URL --------------------------------------------------------------------------------------------------------

GUARDED = """
import sys
from toolwire import Context, Server

server = Server("guarded")

@server.tool
async def headers(ctx: Context) -> str:
    return f"{ctx.headers.get('authorization')} {ctx.headers.get('x-team')}"
"""


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    file = tmp_path / "guarded.py"
    file.write_text(GUARDED)
    command = [sys.executable, "-m", "toolwire", "run", str(file), "--transport", "http", "--port", "0"]
    async with started(command) as served:
        yield f"http://127.0.0.1:{served.port}/mcp"


async def test_a_server_at_a_url(
    toolwire: Command, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def said(*words: str) -> str:
        # The command has a loop of its own.
        done = await asyncio.to_thread(toolwire, *words)
        assert done.status == 0, done.err
        return done.out

    assert (await said("list", address)).startswith("guarded 1.0.0\n")
    assert await said("call", address, "headers") == "None None\n"
    assert await said("call", address, "headers", "--token", "t", "--header", "X-Team: a b") == "Bearer t a b\n"
    monkeypatch.setenv("TOOLWIRE_TOKEN", "secret")
    assert await said("call", address, "headers") == "Bearer secret None\n"
    entry: dict[str, Any] = {"url": address, "headers": {"Authorization": "Bearer entry", "X-Team": "entry"}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"it": entry}}))
    # The variable is for a URL that the user typed: an entry has headers of its own.
    assert await said("call", str(file), "headers") == "Bearer entry entry\n"
    assert await said("call", str(file), "headers", "--token", "t") == "Bearer t entry\n"
    file.write_text(json.dumps({"mcpServers": {"it": {"url": address}}}))
    assert await said("call", f"{file}:it", "headers") == "None None\n"
    monkeypatch.delenv("TOOLWIRE_TOKEN")
    examined = await said("doctor", address)
    assert "0 to mend." in examined
    assert "ok  revisions: 2026-07-28, and 2025-11-25 for the older clients" in examined


@pytest.mark.parametrize(
    ("target", "option", "says"),
    [
        (str(HELLO), "--header=X: y", "--header is for a server at a URL, not for "),
        (str(HELLO), "--token=t", "--token is for a server at a URL, not for "),
        ("http://127.0.0.1:1/mcp", "--env=A=b", "--env is for a server that is started, not for 'http://"),
        ("several.json", "--env=A=b", "--env is for a server that is started, not for 'several.json'"),
        ("several.json", "--token=t", "--token is for a server at a URL, not for 'several.json'"),
    ],
)
@pytest.mark.parametrize("command", ["list", "inspect", "doctor"])
def test_options_for_another_kind_of_server(
    toolwire: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    target: str,
    option: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("several.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}))
    done = toolwire(command, target, option)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"toolwire: {says}")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_that_is_none(toolwire: Command, seconds: str) -> None:
    done = toolwire("list", str(HELLO), "--timeout", seconds)
    assert (done.status, "argument --timeout: " in done.err) == (2, True)


def test_headers_that_are_none(toolwire: Command) -> None:
    done = toolwire("list", "http://127.0.0.1:1/mcp", "--header", "nothing")
    assert (done.status, done.err) == (2, "toolwire: 'nothing' is not a header: write NAME:VALUE\n")


def test_nobody_at_the_url_is_status_three(toolwire: Command) -> None:
    done = toolwire("list", "http://127.0.0.1:1/mcp")
    assert done.status == 3
    assert done.err.startswith("toolwire: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["doctor", "inspect"])
def test_token_of_the_environment_is_kept_from_a_configured_url(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("TOOLWIRE_TOKEN", "secret")
    place = Place("https://there.example/mcp", headers={"Authorization": "Bearer own"})
    monkeypatch.setattr(targets, "locate", lambda target: place)
    sent: list[Any] = []

    def sees(kind: str) -> str:
        arguments = Namespace(target=kind, token=None, header=[], timeout=1.0, env=[], inherit_env=False)
        if command == "inspect":
            return str(inspect._at_url(arguments, place, "https://callback.example")["options"])
        monkeypatch.setattr(doctor_http, "check", lambda url, headers, timeout: sent.append(headers) or nothing())
        asyncio.run(anext(doctor._diagnoses(arguments)))
        return str(sent[-1])

    async def nothing() -> AsyncIterator[Any]:
        yield None

    assert "secret" in sees(place.target)
    configured = sees("mcp.json:there")
    assert "secret" not in configured
    assert "Bearer own" in configured


def test_a_person_can_sign_in_where_no_token_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_files, "_application_data", lambda: tmp_path)
    monkeypatch.delenv("TOOLWIRE_TOKEN", raising=False)
    place = Place("https://weather.example/mcp")

    def sign_in(token: str | None = None, *header: str) -> Any:
        return targets._sign_in(Namespace(target=place.target, token=token, header=header), place)

    assert sign_in() is None
    monkeypatch.setattr(keyboard, "is_there", lambda: True)
    made: list[Any] = []
    monkeypatch.setattr("toolwire.auth.OAuth", lambda **options: made.append(options) or OAuth(**options))
    assert isinstance(sign_in(), OAuth)
    made[0]["announce"]("https://login.example/?state=1")
    assert "waiting for the sign-in" in capsys.readouterr().err
    assert sign_in("given") == "given"
    assert sign_in(None, "Authorization: Basic x") is None


@pytest.mark.skipif(sys.platform == "win32", reason="files of Windows are regular files")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list", "{}.py"], "is a pipe or a device: name the Python file that defines the server"),
        (["run", "{}.py"], "is a pipe or a device: name the Python file that defines the server"),
        (["list", "{}.json"], "is not a regular file"),
        (["openapi", "list", "{}.json"], "this is not a file: name the file of the description"),
        (["openapi", "check", "{}.json"], "cannot be read: not a regular file"),
    ],
)
def test_pipe_in_place_of_a_file_is_refused_without_waiting(
    toolwire: Command, tmp_path: Path, words: list[str], says: str
) -> None:
    for suffix in (".py", ".json"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
    done = toolwire(*(word.format(tmp_path / "pipe") for word in words))
    assert done.status in (1, 2)
    assert says in done.err and done.err.count("\n") == 1
