"""Names of programs are for display: neither side does anything else with them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.wireclient import MODERN, PREFIX, REVISIONS, Message, connect

from toolwire import Context, Server, testing
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError

IDENTITIES: list[Message] = [
    {"name": "raw", "version": "0"},
    {"name": "claude-ai", "version": "99.1", "title": "Claude", "websiteUrl": "https://example.com"},
    {"name": "mcp-inspector", "version": "2024-11-05"},
    {"name": "", "version": ""},
]


def build() -> Server:
    server = Server("display", instructions="Ask.")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", bool)).data)

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def brief(city: str) -> str:
        return f"Brief me on {city}."

    return server


CONVERSATION: list[tuple[str, Message]] = [
    ("tools/list", {}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "add", "arguments": {"a": "one"}}),
    ("tools/call", {"name": "ask"}),
    ("tools/call", {"name": "no-such-tool"}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "note://a"}),
    ("resources/read", {"uri": "other://a"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "brief", "arguments": {"city": "Oslo"}}),
    ("logging/setLevel", {"level": "debug"}),
    ("no/such/method", {}),
]


async def heard(revision: str, identity: Message) -> list[Any]:
    """Everything that the server says to a client of this name."""
    async with connect(build()) as client:
        client.answers["elicitation/create"] = lambda params: {"action": "accept", "content": {"value": True}}
        if revision == MODERN:
            client.revision, client.capabilities = MODERN, {"elicitation": {}}
        else:
            await client.initialize(revision, {"elicitation": {}}, **identity)
        for method, params in CONVERSATION:
            meta = {"_meta": {f"{PREFIX}clientInfo": identity}} if revision == MODERN else {}
            response = await client.request(method, {**params, **meta})
            # Sealed with a nonce, so never twice the same.
            response.get("result", {}).pop("requestState", None)
        return client.received


@pytest.mark.covers("META-5")
@cases("revision", REVISIONS)
async def test_the_server_says_the_same_to_everybody(revision: str) -> None:
    first, *others = [await heard(revision, identity) for identity in IDENTITIES]
    assert len(first) >= len(CONVERSATION)
    assert others == [first] * len(others)


@pytest.mark.covers("META-5")
@cases("revision", REVISIONS)
async def test_the_client_says_the_same_to_everybody(revision: str) -> None:
    said: list[Any] = []
    for identity in IDENTITIES:
        server = FakeServer(
            {
                "tools/list": lambda request, outlet: t.ListToolsResult(tools=[]),
                "tools/call": lambda request, outlet: text("x"),
                "resources/read": lambda request, outlet: t.ReadResourceResult(contents=[]),
            }
        )
        server.implementation = t.Implementation(identity["name"], identity["version"])
        async with testing.connect(server, revision=revision, roots=["/srv"]) as (client, wire):
            assert client.server == server.implementation
            await client.list_tools()
            await client.call_tool("x", {"a": 1})
            await client.read_resource("a:b")
            await client.ping()
            with pytest.raises(ProtocolError):
                await client.list_prompts()
            said.append(wire.sent)
    assert said == [said[0]] * len(said)
