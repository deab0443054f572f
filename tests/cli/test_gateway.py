"""`toolwire gateway FILE`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command
from tests.gateway.backs import Away, everything, one, until
from tests.http_process import started

from toolwire import Client, Gateway, testing
from toolwire.auth import Principal
from toolwire.auth.vault.records import Owner
from toolwire.gateway import gateway_of
from toolwire.protocol.revisions import MODERN

COMMAND = (sys.executable, "-m", "toolwire", "gateway")
BACK = str(Path(__file__).parent.parent / "gateway" / "plain_back.py")


@pytest.mark.covers("GW-1.5")
@pytest.mark.parametrize(("back", "workers"), [(MODERN, "1"), ("2025-11-25", "2")])
async def test_the_servers_of_a_file_are_served_at_one_address(back: str, workers: str, tmp_path: Path) -> None:
    async with testing.connect(everything(), over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        file = tmp_path / "gateway.json"
        file.write_text(
            json.dumps(
                {"mcpServers": {"back": {"url": url, "prefix": "", "revision": back}}, "gateway": {"name": "front"}}
            )
        )
        async with started([*COMMAND, file, "--port", "0", "--workers", workers]) as served:
            for front in (MODERN, "2025-11-25"):
                address = f"http://127.0.0.1:{served.port}/mcp"
                client = Client(address, revision=front, elicit=lambda message, params: {"value": True})
                async with client:
                    assert client.server is not None and client.server.name == "front"
                    assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
                    assert await client.call_tool("book", returns=str) == "True True"
        async with Client([*COMMAND, str(file), "--transport", "stdio"]) as client:
            assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3


def family(pid: int) -> set[int]:
    """Return a process and all that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {pid, *(each for child in children for each in family(int(child)))}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.covers("GW-9.30", "GW-9.35")
@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
async def test_a_file_that_changes_is_followed_and_no_process_is_left(
    workers: int, number: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.json"

    def write(said: str) -> None:
        entry = {"command": sys.executable, "args": [BACK, said], "revision": "2025-11-25"}
        file.write_text(json.dumps({"mcpServers": {"back": entry}}) if said else "{")

    async def said(text: str) -> None:
        for _ in range(workers):
            while text not in await served.line():
                pass

    write("one")
    async with started([*COMMAND, file, "--port", "0", "--workers", str(workers)]) as served:
        address = f"http://127.0.0.1:{served.port}/mcp"
        async with Client(address) as client:
            assert (await client.call_tool("back_who")).text == "one"
            write("")
            await said("cannot be read as a JSON file")
            assert (await client.call_tool("back_who")).text == "one"
            # The parent passes the signal on, and nobody ends.
            served.signal(signal.SIGHUP)
            write("two")
            await said("was loaded again: changed: back")
            for _ in range(4):
                async with Client(address) as other:
                    assert (await other.call_tool("back_who")).text == "two"
            processes = family(served.pid)
            assert len(processes) > 2 * workers
            # A call in flight gets its grace, as at every server.
            begun = tmp_path / "begun"
            calling = asyncio.ensure_future(client.call_tool("back_who", {"file": str(begun)}))
            await until(begun.exists)
            processes |= family(served.pid)
            served.signal(number)
            begun.unlink()
            assert (await calling).text == "two"
        status, _ = await served.end()
        assert status == 0 and not [each for each in processes if is_alive(each)]


async def test_a_signal_while_a_gateway_waits_for_its_servers_leaves_no_process(tmp_path: Path) -> None:
    """Many clients close standard input, wait two seconds, and send SIGTERM."""
    ended = tmp_path / "ended"
    script = tmp_path / "lingering.py"
    # A server that goes on after the end of its input, until it is asked to end.
    script.write_text(
        f"import runpy, time\nrunpy.run_path({BACK!r})\nopen({str(ended)!r}, 'w').close()\ntime.sleep(60)\n"
    )
    entry = {"command": sys.executable, "args": [str(script), "one"], "revision": "2025-11-25", "prefix": ""}
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps({"mcpServers": {"back": entry}}))
    pipe = asyncio.subprocess.PIPE
    command = (*COMMAND, str(file), "--transport", "stdio")
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    for number, (method, params) in enumerate({"initialize": opening, "tools/call": {"name": "who"}}.items()):
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        while json.loads(await process.stdout.readline()).get("id") != number:
            pass
    processes = family(process.pid)
    assert len(processes) > 1
    process.stdin.close()
    await until(ended.exists)
    process.send_signal(signal.SIGTERM)
    await process.wait()
    left = [each for each in processes if is_alive(each)]
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert not left


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("nowhere.json",), 2, "cannot be read"),
        ((__file__,), 2, "cannot be read as a JSON file"),
        (("nowhere.json", "--transport", "stdio", "--port", "1"), 2, "--port is for --transport http"),
        (("one.toml", "--inspect", "--workers", "2"), 2, "--inspect is for one process over HTTP"),
        (("one.toml", "--inspect", "--transport", "stdio"), 2, "--inspect is for one process over HTTP"),
        (("two.toml", "--inspect"), 2, "--inspect is for one process over HTTP"),
        (("short.toml",), 2, "'short.toml', line 3, gateway.secret: A secret needs at least 16 bytes"),
    ],
)
def test_wrong_use_is_named(
    toolwire: Command,
    words: tuple[str, ...],
    status: int,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    one = 'mcpServers.a.url = "http://127.0.0.1:1/mcp"\n'
    for name, further in {"one": "", "two": "http.workers = 2\n", "short": '[gateway]\nsecret = "short"\n'}.items():
        (tmp_path / f"{name}.toml").write_text(one + further)
    done = toolwire("gateway", *words)
    assert done.status == status
    assert text in done.err


def test_servers_that_a_gateway_cannot_reach_are_named(toolwire: Command) -> None:
    gateway = Gateway("front").add("gone", Away()).add("there", one("t", "run"))
    toolwire.serves(gateway)
    done = toolwire("list", "server")
    assert "there_run" in done.out
    assert done.err.endswith("toolwire: the lists are not complete: this gateway cannot reach gone\n")
    done = toolwire("call", "server", "gone_run")
    assert done.status == 2
    assert "the server has no tool 'gone_run'; it has there_run, and cannot reach gone" in done.err


@pytest.mark.parametrize(
    ("words", "options", "stores"),
    [
        ((), {"port": 1, "path": "/file", "allowed_hosts": ("a",)}, "SqliteStores"),
        (("--port", "2", "--allowed-hosts", "b"), {"port": 2, "path": "/file", "allowed_hosts": ["b"]}, "SqliteStores"),
        (("--stores", "redis://localhost:1/0"), {"port": 1, "path": "/file", "allowed_hosts": ("a",)}, "RedisStores"),
    ],
)
def test_options_win_over_the_file(
    toolwire: Command,
    words: tuple[str, ...],
    options: dict[str, Any],
    stores: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[tuple[Gateway, dict[str, Any]]] = []
    monkeypatch.setattr(Gateway, "run", lambda gateway, transport, **given: runs.append((gateway, given)))
    file = tmp_path / "gateway.toml"
    file.write_text(
        'mcpServers.a.url = "http://127.0.0.1:1/mcp"\n[http]\nport = 1\npath = "/file"\nallowed_hosts = ["a"]\n'
        'log_level = "error"\n[gateway]\nstores = "state.db"\n'
    )
    assert toolwire("gateway", str(file), *words).status == 0
    ((gateway, given),) = runs
    del given["on_ready"]
    assert given == options
    assert type(gateway.stores).__name__ == stores


def test_a_short_secret_is_one_line(toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_SECRET", "0123456789abcdef0123456789abcdef,short")
    file = tmp_path / "gateway.toml"
    file.write_text('mcpServers.a.url = "http://127.0.0.1:1/mcp"\n')
    done = toolwire("gateway", str(file))
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "TOOLWIRE_SECRET cannot be used: A secret needs at least 16 bytes, this one has 5" in done.err


def test_the_schema_is_printed(toolwire: Command) -> None:
    done = toolwire("gateway", "schema")
    assert done.status == 0
    assert json.loads(done.out)["properties"].keys() >= {"mcpServers", "gateway", "http"}


@pytest.mark.parametrize(
    ("words", "status", "out", "err"),
    [
        (("--offline",), 0, "{file}:3: warning: gateway.secret: a secret stands here in clear", "0 errors, 1 warning"),
        (("--offline", "--strict"), 1, "{file}:3: warning", "0 errors, 1 warning"),
        ((), 1, "{file}:1: error: mcpServers.check: not reached: http://127.0.0.1:1 cannot be reached", "1 error"),
    ],
)
def test_a_file_is_checked(
    toolwire: Command, words: tuple[str, ...], status: int, out: str, err: str, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('mcpServers.check.url = "http://127.0.0.1:1/mcp"\n[gateway]\nsecret = "0123456789abcdef"\n')
    done = toolwire("gateway", "check", str(file), *words)
    assert done.status == status
    assert out.format(file=file) in done.out
    assert err in done.err
    assert "0123456789abcdef" not in done.out + done.err


def test_a_check_for_programs(toolwire: Command, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('mcpServers.a.url = "http://127.0.0.1:1/mcp"\nmcpServers.a.prefx = ""\n')
    done = toolwire("gateway", "check", str(file), "--json")
    assert done.status == 1
    (problem,) = json.loads(done.out)["problems"]
    assert problem == {
        "level": "error",
        "line": 2,
        "key": "mcpServers.a.prefx",
        "text": "there is no such key: did you mean 'prefix'?",
    }


def test_words_are_no_file_names(toolwire: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` is a word, also where there is a file of that name; `./check` is the file."""
    monkeypatch.chdir(tmp_path)
    for word in ("check", "credentials", "pins", "schema"):
        (tmp_path / word).write_text("no JSON")
        assert "cannot be read as a JSON file" in toolwire("gateway", f"./{word}").err
    assert toolwire("gateway", "schema").status == 0
    assert "the following arguments are required: FILE" in toolwire("gateway", "check").err


SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.covers("GW-9.21")
def test_accounts_are_listed_and_revoked(toolwire: Command, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'[gateway]\nstores = "state.db"\nsecret = "{SECRET}"\n'
        '[mcpServers.a]\nurl = "http://127.0.0.1:1/mcp"\ncredentials.kind = "user_secret"\n'
        '[mcpServers.b]\nurl = "http://127.0.0.1:2/mcp"\ncredentials.kind = "user_secret"\n'
    )
    done = toolwire("gateway", "credentials", "list", str(file))
    assert (done.status, "there are no accounts" in done.err) == (2, True)

    async def connect() -> None:
        gateway = gateway_of(file)
        for name, subject in (("a", "ann"), ("a", "bob"), ("b", "ann")):
            owner = Owner.from_principal(Principal(subject, "https://login.example"))
            await gateway.vault.store(name, owner, f"s3cret of {subject}", identity=gateway.vault.identity(name))
        gateway.stores.close()

    asyncio.run(connect())
    done = toolwire("gateway", "credentials", "list", str(file))
    assert done.status == 0
    assert "3 accounts" in done.err
    assert sum("ann" in line and "https://login.example" in line for line in done.out.splitlines()) == 2
    assert "s3cret" not in done.out
    only = json.loads(toolwire("gateway", "credentials", "list", str(file), "--server", "b", "--json").out)
    assert [(each["name"], each["subject"]) for each in only] == [("b", "ann")]
    assert "name a user" in toolwire("gateway", "credentials", "revoke", str(file)).err
    assert "has no credentials" in toolwire("gateway", "credentials", "list", str(file), "--server", "c").err
    done = toolwire("gateway", "credentials", "revoke", str(file), "--user", "ann")
    assert (done.status, "2 accounts revoked" in done.err) == (0, True)
    left = json.loads(toolwire("gateway", "credentials", "list", str(file), "--json").out)
    assert [(each["name"], each["subject"]) for each in left] == [("a", "bob")]
    # An account that this secret does not open is shown, and can be forgotten.
    file.write_text(file.read_text().replace(SECRET, SECRET[::-1]))
    done = toolwire("gateway", "credentials", "list", str(file))
    assert "cannot be opened" in done.out
    done = toolwire("gateway", "credentials", "revoke", str(file), "--all", "--server", "a")
    assert "1 account revoked" in done.err
    done = toolwire("gateway", "credentials", "revoke", str(file), "--all")
    assert (done.status, "0 accounts revoked" in done.err) == (1, True)


@pytest.mark.covers("GW-8.10")
def test_tools_that_wait_are_shown_and_approved(toolwire: Command, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    server = '[mcpServers.a]\nurl = "http://127.0.0.1:1/mcp"\n'
    file.write_text(server)
    assert "no server of this file has pins" in toolwire("gateway", "pins", "list", str(file)).err
    file.write_text(f"{server}pins = true\n")
    assert "keeps its pins in memory" in toolwire("gateway", "pins", "list", str(file)).err
    file.write_text(f'[gateway]\nstores = "state.db"\n{server}pins = true\n')

    async def change() -> None:
        gateway = gateway_of(file)
        record = {
            "approved": {"read": {"name": "read", "description": "Reads."}},
            "waiting": {
                "read": {"name": "read", "description": "Reads\n\x1b[31m all."},
                "new": {"name": "new", "description": "New."},
            },
        }
        await gateway.stores.kv.put("tool-pins/gateway/a", json.dumps(record).encode())
        gateway.stores.close()

    asyncio.run(change())
    done = toolwire("gateway", "pins", "list", str(file))
    assert (done.status, "2 tools waiting" in done.err) == (0, True)
    # What a server wrote cannot act on the terminal.
    assert "    - 'Reads.'\n    + 'Reads\\n\\x1b[31m all.'\n" in done.out
    whole = json.loads(toolwire("gateway", "pins", "list", str(file), "--json").out)
    digest = next(each["digest"] for each in whole["a"] if each["tool"] == "read")
    assert "name the tools" in toolwire("gateway", "pins", "approve", str(file), "a").err
    assert "has no pins" in toolwire("gateway", "pins", "approve", str(file), "b", "--all").err
    assert "another one now" in toolwire("gateway", "pins", "approve", str(file), "a", "read@0").err
    done = toolwire("gateway", "pins", "approve", str(file), "a", f"read@{digest}")
    assert (done.status, "1 tool approved" in done.err) == (0, True)
    assert "1 tool approved" in toolwire("gateway", "pins", "approve", str(file), "a", "--all").err
    assert "0 tools waiting" in toolwire("gateway", "pins", "list", str(file)).err
