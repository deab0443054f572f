"""Members that nobody knows, and `_meta`, cross a gateway as they are, byte for byte."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.cases import cases
from tests.gateway.backs import gateway_before

from toolwire import Client, Context, Server
from toolwire.client.targets import ServerTarget
from toolwire.protocol.revisions import MODERN

#: Python would write the number, the order and the escapes in another way.
UNKNOWN = b'"com.example/z":{"n":1.10,"b":[3,1e2],"a":"\\u00e9"}'
META = b'"_meta":{' + UNKNOWN + b',"ui":{"csp":{"n":1.10}}}'
ERAS = list(itertools.product((MODERN, "2025-11-25"), repeat=2))


def knowing_more() -> Server:
    """Make a server whose answers have members that nobody knows."""
    server = Server(
        "back", capabilities={"experimental": {"com.example/try": {"n": 2}}, "com.example/own": {"deep": {}}}
    )
    server.tool(_tool("plain"))
    server.resource("note://today")(_tool("today"))
    server.prompt(_tool("brief"))

    @server.use
    async def answer(ctx: Context, call_next: Any) -> Any:
        parts = _ANSWERS.get(ctx.method)
        if parts is None:
            return await call_next(ctx)
        return {name: msgspec.Raw(value) for name, value in parts.items()}

    return server


def _tool(name: str) -> Any:
    def run() -> str:
        return name

    run.__name__ = name
    return run


_TEXT = b'{"type":"text","text":"t",' + UNKNOWN + b"," + META + b"}"
_ODD = b'{"type":"com.example.odd","n":1.10,' + UNKNOWN + b"}"
_MORE = {"com.example/z": UNKNOWN.partition(b":")[2], "_meta": META.partition(b":")[2]}
_ANSWERS: dict[str, dict[str, bytes]] = {
    "tools/list": {
        "tools": b'[{"name":"plain","inputSchema":{"type":"object","x-n":1.10},' + UNKNOWN + b"," + META + b"}]"
    },
    "prompts/list": {"prompts": b'[{"name":"brief",' + UNKNOWN + b"," + META + b"}]"},
    "resources/list": {
        "resources": b'[{"uri":"note://today","name":"today","mimeType":"text/html;profile=mcp-app",'
        + UNKNOWN + b"," + META + b"}]"
    },
    "tools/call": {"content": b"[" + _TEXT + b"," + _ODD + b"]", **_MORE},
    "prompts/get": {
        "messages": b'[{"role":"user","content":' + _TEXT + b"," + UNKNOWN + b"}]", **_MORE
    },
    "resources/read": {
        "contents": b'[{"uri":"note://today","mimeType":"text/html;profile=mcp-app","text":"x",'
        + UNKNOWN + b"," + META + b"}]",
        **_MORE,
    },
}  # fmt: skip


@asynccontextmanager
async def tapped(server: Server, revision: str) -> AsyncIterator[tuple[Client, list[bytes]]]:
    """Connect to a server; yield the client and the bytes that come to it."""
    came: list[bytes] = []

    class Tapped(ServerTarget):
        async def open(self) -> Any:
            link = await super().open()
            link.tap(lambda way, data: came.append(bytes(data)) if way == "←" else None)
            return link

    async with Client(Tapped(server), revision=revision) as client:
        yield client, came


@cases("collides", [False, True])
@cases(("front", "back"), ERAS)
async def test_unknown_members_cross_byte_for_byte(front: str, back: str, collides: bool) -> None:
    async with gateway_before(knowing_more(), "memory", back) as gateway:
        if collides:
            gateway.resource("note://today")(_tool("here"))
        async with tapped(gateway, front) as (client, came):
            uri = "note://b/today" if collides else "note://today"
            for method, params in (
                ("tools/list", {}),
                ("prompts/list", {}),
                ("resources/list", {}),
                ("tools/call", {"name": "b_plain"}),
                ("prompts/get", {"name": "b_brief"}),
                ("resources/read", {"uri": uri}),
            ):
                came.clear()
                await client.request(method, params)
                whole, sent = b"".join(came), b"".join(_ANSWERS[method].values())
                for part in (UNKNOWN.partition(b":")[2], b'"ui":{"csp":{"n":1.10}}', b'"n":1.10', b"profile=mcp-app"):
                    assert whole.count(part) >= sent.count(part), (method, part, whole)


@cases(("front", "back"), ERAS)
async def test_unknown_capabilities_are_declared(front: str, back: str) -> None:
    async with gateway_before(knowing_more(), "memory", back) as gateway, Client(gateway, revision=front) as client:
        assert client.capabilities["experimental"] == {"com.example/try": {"n": 2}}
        assert client.capabilities["com.example/own"] == {"deep": {}}
