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
        ({"mcpServers": {"a": {"url": "http://x/mcp", "revision": "1999-01-01"}}}, "Unknown revision"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "timeout": 0}}}, "above zero"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "timeout": "soon"}}}, "mcpServers"),
        ({"mcpServers": {"a": {"url": "http://x/${NOT_SET_ANYWHERE}"}}}, "NOT_SET_ANYWHERE is not set"),
        ({"mcpServers": {"a": {"url": "http://x/mcp"}}, "gateway": {"nam": "x"}}, "nam"),
    ],
)
def test_mistakes_are_named(content: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        gateway_of(content)


@pytest.mark.parametrize(("name", "content"), [("a.json", "{"), ("a.toml", "x ="), ("a.json", None)])
def test_a_file_that_cannot_be_read(name: str, content: str | None, tmp_path: Path) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    with pytest.raises(ServerError, match="cannot be read"):
        gateway_of(file)
