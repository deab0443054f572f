"""The file of a gateway."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.backs import everything

from toolwire import Client, testing
from toolwire.gateway.config import gateway_of
from toolwire.protocol.errors import ServerError

SERVER = """
from toolwire import Server

server = Server("back")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    server.run()
"""


@pytest.mark.covers("GW-1.5")
@pytest.mark.parametrize("form", ["json", "toml"])
async def test_a_file_describes_a_gateway(form: str, tmp_path: Path) -> None:
    (tmp_path / "back.py").write_text(SERVER)
    command, script = json.dumps(sys.executable), json.dumps(str(tmp_path / "back.py"))
    file = tmp_path / f"gateway.{form}"
    if form == "json":
        file.write_text(
            f'{{"mcpServers": {{"back": {{"command": {command}, "args": [{script}], "prefix": "", '
            f'"revision": "2025-11-25"}}, "off": {{"url": "http://localhost:1/mcp", "disabled": true}}}}, '
            f'"gateway": {{"name": "front", "title": "The front"}}}}'
        )
    else:
        file.write_text(
            f'[mcpServers.back]\ncommand = {command}\nargs = [{script}]\nprefix = ""\nrevision = "2025-11-25"\n'
            '[gateway]\nname = "front"\ntitle = "The front"\n'
        )
    gateway = gateway_of(file)
    assert (gateway.name, gateway.identity.title) == ("front", "The front")
    async with Client(gateway) as client:
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
        assert gateway.backs["back"].revision == "2025-11-25"
        assert list(gateway.backs) == ["back"]


@pytest.mark.parametrize("front", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("back", ["2026-07-28", "2025-11-25"])
async def test_a_server_by_url(front: str, back: str) -> None:
    async with testing.connect(everything(), over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        gateway = gateway_of(
            {"mcpServers": {"back": {"url": url, "prefix": "", "revision": back}}, "gateway": {"name": "front"}}
        )
        async with testing.connect(gateway, revision=front, over="port") as (client, _):
            assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3


@pytest.mark.covers("GW-1.5")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, "names no server"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "disabled": True}}}, "names no server"),
        ({"mcpServers": {"a": {}}}, "needs either a command or a url"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "revision": "1999-01-01"}}}, "'a' cannot have the revision"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "timeout": 0}}}, "above zero"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "timeout": "soon"}}}, "The server 'a'.*timeout"),
        ({"mcpServers": {"a": {"url": "http://x/${NOT_SET_ANYWHERE}"}}}, "NOT_SET_ANYWHERE is not set"),
        ({"mcpServers": {"a": {"url": "http://x/mcp"}}, "gateway": {"nam": "x"}}, "gateway of This has 'nam'.*'name'"),
        ({"mcpServers": {"a": {"url": "http://x/mcp"}}, "gateway": {"port": 1}}, "the members are name, version"),
        ({"mcpServers": {"a": {"url": "http://x/mcp"}}, "gateway": {"strict": "x"}}, "Expected `bool`.*strict"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "prefx": ""}}}, "'a' of This has 'prefx': did you mean 'prefix'"),
        ({"mcpServer": {"a": {"url": "http://x/mcp"}}}, "'mcpServer': did you mean 'mcpServers'"),
        ({"mcpServers": ["http://x/mcp"]}, "objects by name"),
        ({"mcpServers": {"a": "http://x/mcp"}}, "'a' of This is wrong"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "list_timeout": 0}}}, "above zero"),
    ],
)
def test_mistakes_are_named(content: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        gateway_of(content)


ONE = '"back": {"url": "http://localhost:1/mcp"}'


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.json", "{", "cannot be read as a JSON file: .*line 1"),
        ("a.json", '{"mcpServers":\n  {,}}', "line 2"),
        ("a.toml", "x = !", "cannot be read as a TOML file: .*line 1"),
        ("a.json", None, "^'.*a.json' cannot be read: No such file"),
        ("a.json", f'{{"mcpServers": {{{ONE},\n{ONE}}}}}', "'back' stands there twice, in line 1 and in line 2"),
        ("a.toml", "[mcpServers.back]\n[mcpServers.back]\n", "line 2"),
        ("a.json", "[" * 100_000, "recursion"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, content: str | None, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    with pytest.raises(ServerError, match=text):
        gateway_of(file)


def test_all_members_reach_the_gateway() -> None:
    """Members of other programs are ignored, and `servers` is what VS Code calls them."""
    server = {"url": "http://localhost:1/mcp", "list_timeout": 1, "trust": True, "alwaysAllow": ["x"]}
    gateway = gateway_of({"servers": {"a": server}, "inputs": [], "gateway": {"strict": True, "stale": True}})
    assert list(gateway.backs) == ["a"]
    assert (gateway.name, gateway.catalog.is_strict) == ("gateway", True)
