"""Answers are kept for as long as the server allows, and for nobody they were not meant for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text

from toolwire import testing
from toolwire.client import Cache, Client
from toolwire.client.targets import ServerTarget
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.testing import elapse

A_DAY = 86_400_000


def numbered(ttl: Any, scope: str = "public") -> FakeServer:
    """A server whose every answer is new, and says that it may be kept for `ttl`."""
    count = 0
    hints = {"resultType": "complete", "cacheScope": scope, **({} if ttl is None else {"ttlMs": ttl})}

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


async def text_of(client: Client, uri: str = "a:1") -> str:
    return str((await client.read_resource(uri))[0].text)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.covers("CCH-2")
async def test_an_answer_is_fresh_for_its_time() -> None:
    clock = Clock()
    async with Client(numbered(5_000), cache=Cache(clock=clock)) as client:
        assert await text_of(client) == await text_of(client) == "1"
        clock.now += 4.999
        assert await text_of(client) == "1"
        clock.now += 0.001
        assert await text_of(client) == "2"


@pytest.mark.covers("CCH-2")
@cases("ttl", [0, -5, None])
async def test_what_may_not_be_kept_is_asked_for_each_time(ttl: int | None) -> None:
    async with Client(numbered(ttl)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["tool1", "tool2"]
        assert [tool.name for tool in await client.list_tools()] == ["tool3", "tool4"]


async def test_an_absurd_time_is_a_day() -> None:
    clock = Clock()
    async with Client(numbered(10**15), cache=Cache(clock=clock)) as client:
        assert await text_of(client) == "1"
        clock.now += 86_401
        assert await text_of(client) == "2"


@pytest.mark.covers("CCH-3")
async def test_an_entry_is_for_the_same_question_to_the_same_server() -> None:
    cache = Cache()
    async with Client(numbered(A_DAY), cache=cache) as client, Client(numbered(A_DAY), cache=cache) as other:
        assert [tool.name for tool in await client.list_tools()] == ["tool1", "tool2"]
        assert [tool.name for tool in await client.list_tools()] == ["tool1", "tool2"]
        assert [await text_of(client, uri) for uri in ("a:1", "a:2", "a:1")] == ["3", "4", "3"]
        assert (await client.list_tools_page("second")).tools[0].description == "second"
        assert (await client.list_tools_page()).tools[0].name == "tool1"
        assert await text_of(other) == "1"


@pytest.mark.covers("CCH-4")
@cases(("scope", "second"), [("public", "1"), ("private", "2"), ("strange", "2")])
async def test_private_answers_are_not_shared(scope: str, second: str) -> None:
    server = numbered(A_DAY, scope)
    target = ServerTarget(server)
    cache = Cache()
    async with Client(target, cache=cache) as client, Client(target, cache=cache) as other:
        assert await text_of(client) == "1"
        assert await text_of(other) == second
        assert await text_of(client) == "1"


async def test_what_is_asked_with_metadata_of_its_own_is_not_kept() -> None:
    async with Client(numbered(A_DAY)) as client:
        texts = [(await client.read_resource("a:1", meta={"x": 1}))[0] for _ in range(2)]
    assert texts[0] != texts[1]


async def test_a_cache_can_be_left_out() -> None:
    async with Client(numbered(A_DAY), cache=False) as client:
        assert [await text_of(client), await text_of(client)] == ["1", "2"]


async def test_what_is_kept_can_not_be_changed_by_who_got_it() -> None:
    async with Client(numbered(A_DAY)) as client:
        (await client.list_tools())[0].input_schema.clear()
        assert (await client.list_tools())[0].input_schema == {"type": "object"}


@cases(
    ("method", "params", "stale"),
    [
        ("notifications/tools/list_changed", {}, "list"),
        ("notifications/resources/updated", {"uri": "a:1"}, "read"),
        ("notifications/resources/updated", {"uri": "a:2"}, ""),
        ("notifications/resources/list_changed", {}, ""),
    ],
)
async def test_an_announced_change_makes_it_stale(method: str, params: dict[str, Any], stale: str) -> None:
    server = numbered(A_DAY)
    async with Client(server) as client:
        names, said = [tool.name for tool in (await client.list_tools_page()).tools], await text_of(client)
        server.sessions[-1].notify(method, params)
        await client.ping()
        assert ([tool.name for tool in (await client.list_tools_page()).tools] == names) is (stale != "list")
        assert (await text_of(client) == said) is (stale != "read")


async def test_the_cache_is_bounded() -> None:
    cache = Cache()
    async with Client(numbered(A_DAY), cache=cache) as client:
        for number in range(1_100):
            await client.read_resource(f"a:{number}")
        assert len(cache) == 1_000
        assert await text_of(client, "a:0") == "1101"


@pytest.mark.covers("CCH-8")
async def test_what_answers_led_to_is_not_kept() -> None:
    asked = 0

    def read(request: Any, outlet: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked % 2:
            return {"resultType": "input_required", "requestState": "x"}
        contents = [{"uri": "a:1", "text": str(asked)}]
        return {"resultType": "complete", "ttlMs": A_DAY, "cacheScope": "public", "contents": contents}

    async with Client(FakeServer({"resources/read": read}), revision=MODERN) as client:
        assert [await text_of(client), await text_of(client)] == ["2", "4"]


@pytest.mark.covers("CCH-6")
async def test_a_caller_who_suspects_a_change_lists_again_at_once() -> None:
    async with Client(numbered(A_DAY)) as client:
        before = await client.list_tools()
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("gone")
        assert {tool.name for tool in await client.list_tools()}.isdisjoint(tool.name for tool in before)


@pytest.mark.covers("CCH-5")
@cases("ttl", [A_DAY, 1, 0])
async def test_nothing_is_asked_again_because_time_has_passed(ttl: int) -> None:
    async with testing.connect(numbered(ttl), revision=MODERN) as (client, wire):
        await client.list_tools()
        await client.read_resource("a:1")
        said = len(wire.sent)
        for _ in range(3):
            await elapse(7 * A_DAY / 1000)
        assert len(wire.sent) == said
        await client.call_tool("x")
        assert [message["method"] for message in wire.sent[said:]] == ["tools/call"]
        assert t.CLIENT_INFO_KEY in wire.sent[-1]["params"]["_meta"]
