"""Configurations with `mcpServers`: one server, or several as one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

from toolwire import Server
from toolwire.client import Client
from toolwire.client.config import read_config
from toolwire.client.http_target import HttpTarget
from toolwire.client.targets import CommandTarget, ServerTarget

HELLO = """
import sys
from toolwire import Server
server = Server(sys.argv[1])
@server.tool
def hello() -> str:
    return f"from {server.name}"
server.run()
"""


def configured(tmp_path: Path, *names: str) -> dict[str, Any]:
    file = tmp_path / "hello.py"
    file.write_text(HELLO)
    return {"mcpServers": {name: {"command": sys.executable, "args": [str(file), name]} for name in names}}


async def test_one_server_keeps_its_names(tmp_path: Path) -> None:
    async with Client(configured(tmp_path, "alone")) as client:
        assert [tool.name for tool in await client.list_tools()] == ["hello"]


async def test_one_server_may_be_called_anything(tmp_path: Path) -> None:
    async with Client(configured(tmp_path, "my notes, of 2026")) as client:
        assert (await client.call_tool("hello")).text == "from my notes, of 2026"


async def test_names_of_several_servers_become_part_of_those_of_tools(tmp_path: Path) -> None:
    async with Client(configured(tmp_path, "my notes", "ünïcode")) as client:
        assert [tool.name for tool in await client.list_tools()] == ["_n_code_hello", "my_notes_hello"]
        assert (await client.call_tool("my_notes_hello")).text == "from my notes"


async def test_several_servers_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(configured(tmp_path, "a", "b")))
    async with Client(str(file)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a_hello", "b_hello"]
        assert (await client.call_tool("b_hello")).text == "from b"


def test_what_an_entry_may_say() -> None:
    found = read_config(
        {
            "mcpServers": {
                "web": {"url": "https://example.com/mcp", "headers": {"X-Key": "k"}, "type": "http", "unknown": 1},
                "local": {"command": "npx", "args": ["server"], "env": {"A": "1"}, "cwd": "/tmp"},
                "off": {"url": "https://example.com/", "disabled": True},
            },
            "other": {},
        }
    )
    assert set(found) == {"web", "local"}
    web, local = found["web"], found["local"]
    assert isinstance(web, HttpTarget)
    assert web._headers == {"X-Key": "k"}
    assert isinstance(local, CommandTarget)
    assert (local.command, local._env, local._cwd) == (["npx", "server"], {"A": "1"}, "/tmp")


def test_values_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("TRICKY", "${KEY}")
    monkeypatch.delenv("UNSET", raising=False)
    entry = {
        "command": "${UNSET:-npx}",
        "args": [
            "${env:KEY}-${KEY}",
            "${EMPTY}",
            "${EMPTY:-filled}",
            "${KEY:-other}",
            "${UNSET:-}",
            "$KEY $$ ${} {KEY}",
        ],
        "env": {"A": "${KEY}", "B": "${TRICKY}", "C": "${X##*/} ${X:?no}"},
        "cwd": "/${KEY}",
    }
    web = {"url": "https://${UNSET:-example.com}/${KEY}", "headers": {"Authorization": "Bearer ${env:KEY}"}}
    found = read_config({"mcpServers": {"local": entry, "web": web}})
    local = found["local"]
    assert isinstance(local, CommandTarget)
    assert local.command == ["npx", "secret-secret", "", "filled", "secret", "", "$KEY $$ ${} {KEY}"]
    # What a variable holds is not expanded again, and the forms of a shell are the shell's.
    assert local._env == {"A": "secret", "B": "${KEY}", "C": "${X##*/} ${X:?no}"}
    assert local._cwd == "/secret"
    assert isinstance(found["web"], HttpTarget)
    assert (found["web"]._url, found["web"]._headers) == (
        "https://example.com/secret",
        {"Authorization": "Bearer secret"},
    )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"command": "${NOT_SET}"}, "variable NOT_SET is not set, which the command of the server 'it' needs"),
        ({"command": "x", "args": ["${env:NOT_SET}"]}, "NOT_SET is not set, which the args of the server 'it'"),
        ({"command": "x", "env": {"A": "${NOT_SET}"}}, "NOT_SET is not set, which the variable 'A' of the server 'it'"),
        ({"url": "http://x/${NOT_SET}"}, "NOT_SET is not set, which the url of the server 'it'"),
        ({"url": "http://x/", "headers": {"K": "${NOT_SET}"}}, "which the header 'K' of the server 'it' needs: set it"),
        (
            {"command": "x", "env": {"A": "${input:key}"}},
            r"'\$\{input:key\}' in the variable 'A' of the server 'it' cannot",
        ),
    ],
)
def test_a_variable_that_is_not_set_is_named_with_the_server_that_needs_it(
    entry: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ValueError, match=says):
        Client({"mcpServers": {"it": entry}})
    # A server that is switched off needs nothing.
    other = {"command": "x"}
    assert set(read_config({"mcpServers": {"it": {**entry, "disabled": True}, "other": other}})) == {"other"}


@cases(
    ("config", "says"),
    [
        ({}, "no mcpServers, nor servers as VS Code has"),
        ({"mcpServers": []}, "not a configuration"),
        ({"mcpServers": {"a": {"command": 1}}}, "not a configuration"),
        ({"mcpServers": {"a": {}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"ur": "http://x/"}}}, "The server 'a' has the key 'ur'; did you mean 'url'\\?$"),
        ({"mcpServers": {"a": {"command": "x", "url": "http://x/"}}}, "either a command or a url"),
        ({"mcpServers": {"a": {"command": "x", "headers": {}}}}, "has no headers"),
        ({"mcpServers": {"a": {"url": "http://x/", "type": "ws"}}}, "has the transport 'ws'"),
        ({"mcpServers": {"a": {"url": "nonsense"}}}, "not the URL"),
        ({"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "x"}}}, "would both be called 'a_b'"),
        ({"mcpServers": {"a" * 65: {"command": "x"}, "b": {"command": "x"}}}, "cannot be the name of one of several"),
        ({"mcpServers": {"": {"command": "x"}, "b": {"command": "x"}}}, "cannot be the name of one of several"),
        ({"a": Server("a"), "b": 7}, "The server 'b' cannot be used: A client takes a URL"),
        ({"a": Server("a"), 7: Server("b")}, "7 is not the name of a server"),
        ({"a": {"command": "x"}}, "no mcpServers"),
        ("missing.json", "cannot be read"),
    ],
)
def test_what_is_no_configuration(config: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Client(config)


def test_vs_code_calls_it_servers_and_a_broken_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"inputs": [], "servers": {"one": {"type": "stdio", "command": "npx", "args": ["server"]}}}')
    (found,) = read_config(file).values()
    broken = tmp_path / "broken.json"
    broken.write_text('{"servers": {"off": {"urll": "x", "disabled": true}, "one": {"comand": "npx"}}}')
    with pytest.raises(ValueError, match="The server 'one' has the key 'comand'; did you mean 'command'"):
        read_config(broken)
    assert isinstance(found, CommandTarget)
    assert found.command == ["npx", "server"]
    file.write_text('{"mcpServers": {},}')
    with pytest.raises(ValueError, match=r"mcp\.json' is not a configuration with mcpServers: JSON is malformed"):
        Client(file)


def test_a_target_may_stand_in_place_of_an_entry(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("")
    entry = {"command": "x", "disabled": False}
    given = {"a": Server("a"), "b": "https://example.com/mcp", "c": str(file), "d": ["npx", "server"], "e": entry}
    for config in (given, {"mcpServers": given}, {"servers": given}):
        found = read_config(config, inherit_env=True)
        assert [type(target) for target in found.values()] == [ServerTarget, HttpTarget, *[CommandTarget] * 3]
        assert all(target._inherit_env for target in found.values() if isinstance(target, CommandTarget))


def test_options_belong_to_the_entries() -> None:
    with pytest.raises(ValueError, match="headers= is not for a configuration"):
        Client({"mcpServers": {"a": {"command": "x"}}}, headers={"a": "b"})
