"""The client keeps no answers: what `ttlMs` says neither saves a request nor causes one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fake import FakeServer, text

from toolwire import testing
from toolwire.client import Client
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN

A_DAY = 86_400_000


def numbered(ttl: Any) -> FakeServer:
    """A server whose every answer is new, and says that it may be kept for `ttl`."""
    count = 0
    hints = {"resultType": "complete", "cacheScope": "public", **({} if ttl is None else {"ttlMs": ttl})}

    def tools(request: Any, outlet: Any) -> Any:
        nonlocal count
        count += 1
        cursor = request.params.cursor
        tool = {"name": f"tool{count}", "description": str(cursor), "inputSchema": {"type": "object"}}
        more = {} if cursor == "second" else {"nextCursor": "second"}
        return {**hints, "tools": [tool], **more}

    def read(request: Any, outlet: Any) -> Any:
        nonlocal count
        count += 1
        return {**hints, "contents": [{"uri": request.params.uri, "text": str(count)}]}

    def call(request: Any, outlet: Any) -> Any:
        if request.params.name == "gone":
            raise ProtocolError(-32602, "Unknown tool: gone")
        return text("done")

    return FakeServer({"tools/list": tools, "resources/read": read, "tools/call": call})


@pytest.mark.covers("CCH-2", "CCH-3")
@pytest.mark.parametrize("ttl", [A_DAY, 0, -5, None])
async def test_every_list_and_every_read_is_a_request_of_its_own(ttl: int | None) -> None:
    async with Client(numbered(ttl)) as client, Client(numbered(ttl)) as other:
        assert [tool.name for tool in await client.list_tools()] == ["tool1", "tool2"]
        # Fresh or stale, the answer is the server's of now: nothing old is served.
        assert [tool.name for tool in await client.list_tools()] == ["tool3", "tool4"]
        reads = [(await client.read_resource(uri))[0] for uri in ("a:1", "a:2", "a:1")]
        assert [(found.uri, found.text) for found in reads] == [("a:1", "5"), ("a:2", "6"), ("a:1", "7")]
        # Nor for another page, or by another server.
        assert (await client.list_tools_page("second")).tools[0].description == "second"
        assert (await other.read_resource("a:1"))[0].text == "1"


@pytest.mark.covers("CCH-6")
async def test_a_caller_who_suspects_a_change_lists_again_at_once() -> None:
    async with Client(numbered(A_DAY)) as client:
        before = await client.list_tools()
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("gone")
        assert {tool.name for tool in await client.list_tools()}.isdisjoint(tool.name for tool in before)


@pytest.mark.covers("CCH-5")
@pytest.mark.parametrize("ttl", [A_DAY, 1, 0])
async def test_nothing_is_asked_again_because_time_has_passed(ttl: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    passed = 0.0
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + passed)
    async with testing.connect(numbered(ttl), revision=MODERN) as (client, wire):
        await client.list_tools()
        await client.read_resource("a:1")
        said = len(wire.sent)
        # The clock goes on by a week, and everything that was put off until then takes place.
        for _ in range(3):
            later = asyncio.Event()
            loop.call_later(7 * A_DAY / 1000, later.set)
            passed += 7 * A_DAY / 1000
            await later.wait()
        assert len(wire.sent) == said
        await client.call_tool("x")
        assert [message["method"] for message in wire.sent[said:]] == ["tools/call"]
        assert t.CLIENT_INFO_KEY in wire.sent[-1]["params"]["_meta"]
