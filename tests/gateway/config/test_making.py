"""Gateways from files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.cases import cases
from tests.gateway.backs import everything

from toolwire import Client, testing
from toolwire.auth import hashed
from toolwire.gateway.config import gateway_of
from toolwire.protocol.errors import ToolwireError, Unauthorized

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


@cases("front", ["2026-07-28", "2025-11-25"])
@cases("back", ["2026-07-28", "2025-11-25"])
async def test_a_server_by_url(front: str, back: str) -> None:
    async with testing.connect(everything(), over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        gateway = gateway_of(
            {"mcpServers": {"back": {"url": url, "prefix": "", "revision": back}}, "gateway": {"name": "front"}}
        )
        async with testing.connect(gateway, revision=front, over="port") as (client, _):
            assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3


def test_all_members_reach_the_gateway() -> None:
    """Members of other programs are ignored, and `servers` is what VS Code calls them."""
    server = {"url": "http://localhost:1/mcp", "list_timeout": 1, "trust": True, "alwaysAllow": ["x"]}
    gateway = gateway_of({"servers": {"a": server}, "inputs": [], "gateway": {"strict": True, "stale": True}})
    assert list(gateway.backs) == ["a"]
    assert (gateway.name, gateway.catalog.is_strict) == ("gateway", True)


@pytest.mark.covers("GW-9.1")
@pytest.mark.parametrize("front", ["2026-07-28", "2025-11-25"])
async def test_the_file_alone_lets_callers_in_limits_and_records_them(
    front: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_BOB", "key-of-bob")
    (tmp_path / "secret").write_text("0123456789abcdef0123456789abcdef\n")
    async with testing.connect(everything(), over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        file = tmp_path / "gateway.toml"
        file.write_text(f"""
            [mcpServers.back]
            url = "{url}"
            prefix = ""
            policy = {{ rules = {{ a = {{ between = [0, 9] }} }} }}
            tools.words.scopes = ["write"]

            [gateway]
            secret = {{ file = "secret" }}
            audit = {{ path = "audit.jsonl", key = {{ file = "secret" }} }}

            [gateway.auth]
            scopes = ["read"]

            [gateway.auth.api_keys.keys]
            ann = {{ key = "{hashed("key-of-ann")}", scopes = ["read", "write"] }}
            bob = {{ key = {{ env = "KEY_OF_BOB" }}, scopes = ["read"] }}
        """)
        gateway = gateway_of(file)
        with pytest.raises(Unauthorized):
            async with testing.connect(gateway, revision=front, over="http", auth="another-key"):
                pass
        async with testing.connect(gateway, revision=front, over="http", auth="key-of-bob") as (client, _):
            assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
            refused = await client.call_tool("add", {"a": 10, "b": 2})
            assert "does not allow this 'a'" in str(refused.content)
            with pytest.raises(ToolwireError):
                await client.call_tool("words", {"count": 1}, returns=list[str])
        async with testing.connect(gateway, revision=front, over="http", auth="key-of-ann") as (client, _):
            assert await client.call_tool("words", {"count": 1}, returns=list[str]) == ["word"]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    calls = [(line["who"]["subject"], line["name"], line["outcome"]) for line in lines if line["kind"] == "call"]
    assert [each for each in calls if each[2] != "denied"][:2] == [("bob", "add", "ok"), ("bob", "add", "refused")]
    assert calls[-1] == ("ann", "words", "ok")
