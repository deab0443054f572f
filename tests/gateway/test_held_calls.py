"""A legacy server asks in the middle of a call of a modern client: the call is held, and found again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.gateway.backs import OVER, gateway_before, until

from toolwire import Client, Context, Limits, Server, testing
from toolwire.auth import Principal
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway, held_calls
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.shape import Shape, ToolShape
from toolwire.stores import MemoryKV, StoreFailed, Stores

LEGACY = ("2025-11-25", "2025-06-18")
CELLS = pytest.mark.parametrize(
    ("back", "near", "far"), [(back, near, far) for back in LEGACY for near in OVER for far in OVER]
)


class Asking:
    """A server that asks, and counts how often it began and was cancelled."""

    def __init__(self) -> None:
        self.server: Server = Server("back")
        self.begun = 0
        self.cancelled = asyncio.Event()
        self.server.tool(self.book)
        self.server.tool(self.both)

    async def book(self, ctx: Context, seats: int) -> str:
        self.begun += 1
        try:
            answer = await ctx.elicit("Really?", bool)
            await ctx.progress(1, message="booked")
            name = await ctx.elicit("Whose name?", str)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return f"{seats} {answer.data} {name.data}"

    async def both(self, ctx: Context) -> str:
        self.begun += 1
        one, two = await asyncio.gather(ctx.elicit("One?", bool), ctx.elicit("Two?", bool))
        return f"{one.data} {two.data}"


def answer(message: str, params: Any) -> dict[str, Any]:
    return {"value": "Anna" if message == "Whose name?" else True}


async def call(client: Client, name: str, arguments: dict[str, Any], asked: Any = None, **answers: Any) -> Any:
    """Make one request, with the answers to the questions of an earlier result."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if asked is not None:
        params["requestState"] = asked["requestState"]
        params["inputResponses"] = answers
    return await client.request("tools/call", params, result_types=["complete", "input_required"])


def accept(asked: Any, value: Any = True) -> dict[str, Any]:
    return {key: {"action": "accept", "content": {"value": value}} for key in asked["inputRequests"]}


@pytest.mark.covers("GW-3.5")
@CELLS
async def test_questions_one_after_the_other_run_the_call_once(back: str, near: Any, far: str) -> None:
    asking = Asking()
    told: list[Any] = []
    async with (
        gateway_before(asking.server, far, back) as gateway,
        testing.connect(gateway, over=near, elicit=answer) as (client, wire),
    ):
        assert client.revision == MODERN
        result = await client.call_tool("b_book", {"seats": 2}, on_progress=lambda each: told.append(each.message))
        assert result.text == "2 True Anna"
        assert asking.begun == 1
        assert len([each for each in wire.sent if each.get("method") == "tools/call"]) == 3
        assert told == ["booked"]


@pytest.mark.covers("GW-3.5")
@CELLS
async def test_questions_that_are_asked_together_arrive_together(back: str, near: Any, far: str) -> None:
    asking = Asking()
    async with (
        gateway_before(asking.server, far, back) as gateway,
        testing.connect(gateway, over=near, elicit=answer) as (client, wire),
    ):
        assert (await client.call_tool("b_both")).text == "True True"
        assert asking.begun == 1
        assert len([each for each in wire.sent if each.get("method") == "tools/call"]) == 2


async def test_answers_may_come_in_parts_and_be_corrected() -> None:
    asking = Asking()
    async with (
        gateway_before(asking.server, "memory", "2025-11-25") as gateway,
        testing.connect(gateway, elicit=answer) as (client, _),
    ):
        asked = await call(client, "b_both", {})
        first, second = asked["inputRequests"]
        with pytest.raises(ProtocolError, match="not a elicitation/create result"):
            await call(client, "b_both", {}, asked, **{first: {"action": 7}})
        yes = accept(asked)
        left = await call(client, "b_both", {}, asked, **{first: yes[first]})
        assert list(left["inputRequests"]) == [second]
        done = await call(client, "b_both", {}, left, **{second: yes[second]})
        assert done["content"][0]["text"] == "True True"
        assert asking.begun == 1


@cases("how", ["expired", "failed", "many"])
async def test_answer_that_comes_again_is_told_apart_from_one_too_late(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking()

    @asking.server.tool
    async def fail(ctx: Context) -> str:
        await ctx.elicit("Really?", bool)
        raise ValueError("broken")

    if how == "many":
        monkeypatch.setattr("toolwire.gateway.replicas.MAX_OVER", 0)
    limits = Limits(state=0.01) if how == "expired" else Limits()
    tool, arguments = ("b_fail", {}) if how == "failed" else ("b_both", {})
    async with (
        gateway_before(asking.server, "memory", "2025-11-25", limits=limits) as gateway,
        testing.connect(gateway, elicit=answer) as (client, _),
    ):
        asked = await call(client, tool, arguments)
        if how == "expired":
            held = gateway.fronts.front.upstreams["b"].relay.held
            await until(lambda: not held.count and not held._ending)
        else:
            done = await call(client, tool, arguments, asked, **accept(asked))
            assert done.get("isError", False) is (how == "failed")
        if how == "failed":
            with pytest.raises(ProtocolError, match="used already"):
                await call(client, tool, arguments, asked, **accept(asked))
            return
        # There is room for a bounded number of records of ended calls.
        late = await call(client, tool, arguments, asked, **accept(asked))
        assert late["isError"] and "'b'" in late["content"][0]["text"] and "not held" in late["content"][0]["text"]


@pytest.mark.covers("GW-6.4")
async def test_a_state_is_good_for_one_request_of_one_client() -> None:
    asking = Asking()
    async with (
        gateway_before(asking.server, "memory", "2025-11-25") as gateway,
        testing.connect(gateway, elicit=answer, principal=Principal("anna")) as (anna, _),
        testing.connect(gateway, elicit=answer, principal=Principal("ben")) as (ben, _),
    ):
        asked = await call(anna, "b_book", {"seats": 1})
        with pytest.raises(ProtocolError, match="requestState"):
            await call(ben, "b_book", {"seats": 1}, asked, **accept(asked))
        with pytest.raises(ProtocolError, match="requestState"):
            await call(anna, "b_book", {"seats": 9}, asked, **accept(asked))
        named = await call(anna, "b_book", {"seats": 1}, asked, **accept(asked))
        with pytest.raises(ProtocolError, match="used already"):
            await call(anna, "b_book", {"seats": 1}, asked, **accept(asked))
        done = await call(anna, "b_book", {"seats": 1}, named, **accept(named, "Anna"))
        assert done["content"][0]["text"] == "1 True Anna"
        for again in (asked, named):
            with pytest.raises(ProtocolError, match="used already, and the request has run with them"):
                await call(anna, "b_book", {"seats": 1}, again, **accept(again, "Anna"))
        assert asking.begun == 1


@pytest.mark.covers("GW-6.3")
@pytest.mark.parametrize("far", OVER)
async def test_a_call_that_nobody_comes_back_for_is_cancelled(far: str) -> None:
    asking = Asking()
    async with (
        gateway_before(asking.server, far, "2025-11-25") as gateway,
        testing.connect(gateway, elicit=answer) as (client, _),
    ):
        gateway.apply_settings(replace(gateway.settings, limits=Limits(state=0.01)))
        asked = await call(client, "b_book", {"seats": 1})
        await asking.cancelled.wait()
        late = await call(client, "b_book", {"seats": 1}, asked, **accept(asked))
        assert late["isError"] and "may have been carried out" in late["content"][0]["text"]


@pytest.mark.covers("GW-9.31")
@pytest.mark.parametrize("name", ["b_book", "b_reserve"])
async def test_a_removed_server_keeps_the_calls_that_wait_for_answers_until_they_end(name: str) -> None:
    asking = Asking()
    gateway = Gateway("front")
    shape = Shape(tools={"book": ToolShape(rename="reserve")}) if name == "b_reserve" else None
    gateway.add("b", asking.server, revision="2025-11-25", shape=shape)
    async with testing.connect(gateway, elicit=answer) as (client, _):
        asked = await call(client, name, {"seats": 1})
        gateway.remove("b")
        assert await client.list_tools() == []
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await call(client, name, {"seats": 1})
        asked = await call(client, name, {"seats": 1}, asked, **accept(asked))
        done = await call(client, name, {"seats": 1}, asked, **accept(asked, "Anna"))
        assert done["content"][0]["text"] == "1 True Anna"
        # Nothing is left of it.
        await until(lambda: not gateway.catalog.family())
        assert gateway.catalog.find_unlisted is None


async def test_a_server_that_was_removed_ends_with_the_gateway() -> None:
    asking = Asking()
    gateway = Gateway("front")
    gateway.add("b", asking.server, revision="2025-11-25")
    async with testing.connect(gateway, elicit=answer) as (client, _):
        await call(client, "b_book", {"seats": 1})
        gateway.remove("b")
    await until(asking.cancelled.is_set)
    assert not gateway.catalog.family()


@pytest.mark.covers("GW-6.3")
async def test_held_calls_are_bounded_for_each_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_calls, "MAX_HELD_FOR_ONE", 2)
    asking = Asking()
    async with (
        gateway_before(asking.server, "memory", "2025-11-25") as gateway,
        testing.connect(gateway, elicit=answer, principal=Principal("anna")) as (anna, _),
        testing.connect(gateway, elicit=answer, principal=Principal("ben")) as (ben, _),
    ):
        for _ in range(2):
            assert "inputRequests" in await call(anna, "b_book", {"seats": 1})
        refused = await call(anna, "b_book", {"seats": 1})
        assert refused["isError"] and "Too many calls" in refused["content"][0]["text"]
        await asking.cancelled.wait()
        assert "inputRequests" in await call(ben, "b_book", {"seats": 1})


async def test_burst_of_held_calls_does_not_pass_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them ask before the record of the first one is written."""
    monkeypatch.setattr(held_calls, "MAX_HELD_FOR_ONE", 2)
    asking = Asking()

    class Slow(MemoryKV):
        async def put(self, key: str, *given: Any, **named: Any) -> Any:
            if key.startswith("toolwire:held:"):
                await until(lambda: asking.begun >= 6)
            return await super().put(key, *given, **named)

    memory = Stores.memory()
    async with (
        gateway_before(asking.server, "memory", "2025-11-25", stores=Stores(Slow(), memory.log, memory.bus)) as gateway,
        testing.connect(gateway, elicit=answer, principal=Principal("anna")) as (anna, _),
    ):
        results = await asyncio.gather(*(call(anna, "b_book", {"seats": 1}) for _ in range(6)))
        held = [each for each in results if "inputRequests" in each]
        assert len(held) == 2
        assert all("Too many calls" in each["content"][0]["text"] for each in results if each not in held)
        # The places are free again.
        for each in held:
            asked = await call(anna, "b_book", {"seats": 1}, each, **accept(each))
            done = await call(anna, "b_book", {"seats": 1}, asked, **accept(asked, "Anna"))
            assert done["content"][0]["text"] == "1 True Anna"
        assert "inputRequests" in await call(anna, "b_book", {"seats": 1})


async def test_held_calls_of_callers_whom_nobody_knows_are_bounded_for_each_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_calls, "MAX_HELD_FOR_ONE", 1)
    asking = Asking()
    async with gateway_before(asking.server, "memory", "2025-11-25") as gateway:
        app = gateway.http_app()
        pools = [AsgiPool(app, {"client": (f"192.0.2.{last}", 1)}) for last in (1, 2)]
        targets = [HttpTarget("http://localhost/mcp", pool=pool) for pool in pools]
        async with Client(targets[0], elicit=answer) as one, Client(targets[1], elicit=answer) as two:
            assert "inputRequests" in await call(one, "b_book", {"seats": 1})
            assert (await call(one, "b_book", {"seats": 1}))["isError"]
            assert "inputRequests" in await call(two, "b_book", {"seats": 1})
        for pool in pools:
            await pool.close()
        await app.stop()


@CELLS
async def test_a_call_that_is_cancelled_after_its_answers_is_cancelled_at_the_server(
    back: str, near: Any, far: str
) -> None:
    server = Server("back")
    waiting, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.elicit("Really?", bool)
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async with (
        gateway_before(server, far, back) as gateway,
        testing.connect(gateway, over=near, elicit=answer) as (client, _),
    ):
        running = asyncio.ensure_future(client.call_tool("b_wait"))
        await waiting.wait()
        running.cancel()
        await asyncio.wait({running})
        await cancelled.wait()


@cases("far", OVER)
async def test_a_failed_store_of_the_gateway_is_not_blamed_on_the_server_nor_named(far: str) -> None:
    class Failing(MemoryKV):
        async def put(self, key: str, *given: Any, **named: Any) -> Any:
            if key.startswith("toolwire:held:"):
                raise StoreFailed("The store redis://10.0.0.7:6379/0 cannot be used: it is not reached")
            return await super().put(key, *given, **named)

    memory = Stores.memory()
    stores = Stores(Failing(), memory.log, memory.bus)
    async with (
        gateway_before(Asking().server, far, "2025-11-25", stores=stores) as gateway,
        testing.connect(gateway, over="http", elicit=answer) as (client, _),
    ):
        failed = await client.call_tool("b_book", {"seats": 1})
        assert failed.is_error
        assert failed.text.startswith("The gateway cannot go on with this call now")
        assert "redis" not in failed.text and "'b'" not in failed.text
        assert gateway.backs["b"].breaker != "open"
