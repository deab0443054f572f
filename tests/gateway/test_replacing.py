"""A server behind a gateway is replaced or moved while calls run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import Away, one, told, tool_named, until
from tests.gateway.test_held_calls import Asking, accept, answer, call
from tests.gateway.test_remote_tasks import held_tools
from tests.server.tasks.talking import DIALECTS, begin, outcome, talk, text_in

from toolwire import Server, testing
from toolwire.gateway import Gateway
from toolwire.protocol.revisions import MODERN

ERAS = (MODERN, "2025-11-25")
cells = pytest.mark.parametrize(("front", "back"), [(front, back) for front in ERAS for back in ERAS])


def announced(wire: Any) -> int:
    return sum(each.get("method") == "notifications/tools/list_changed" for each in wire.received)


@pytest.mark.covers("GW-9.31")
@cells
async def test_a_call_ends_at_the_server_where_it_began(front: str, back: str) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    def server(name: str) -> Server:
        made = one(name, "who")

        @made.tool
        async def wait() -> str:
            begun.set()
            await go_on.wait()
            return name

        return made

    gateway = Gateway("front").add("b", server("old"), revision=back)
    async with testing.connect(gateway, revision=front) as (client, wire):
        assert await client.call_tool("b_who", returns=str) == "old"
        async with client.listen(tools=True) as changes:
            running = asyncio.ensure_future(client.call_tool("b_wait", returns=str))
            await begun.wait()
            await gateway.replace("b", server("new"), revision=back)
            # The next call is made at the new server. The lists look the same, so that nobody is told.
            assert await client.call_tool("b_who", returns=str) == "new"
            assert not running.done()
            go_on.set()
            assert await running == "old"
            await until(lambda: len(gateway.catalog.family()) == 1)
            assert announced(wire) == 0
            # A server whose tools are others is told once.
            await gateway.replace("b", one("third", "who", "more"), revision=back)
            assert await told(changes) == "tools"
            assert {tool.name for tool in await client.list_tools()} == {"b_who", "b_more"}
        assert announced(wire) == 1


@cells
async def test_clients_hear_of_updates_at_the_new_server(front: str, back: str) -> None:
    def server(name: str) -> Server:
        made = one(name, "who")

        @made.resource("note://today")
        def today() -> str:
            return name

        return made

    new = server("new")
    gateway = Gateway("front").add("b", server("old"), revision=back)
    async with (
        testing.connect(gateway, revision=front) as (client, _),
        client.listen(resources=["note://today"]) as changes,
    ):
        await gateway.replace("b", new, revision=back)
        # Another server has the resource now, and updates between the two are lost.
        assert await told(changes) == "resource"
        new.notify_updated("note://today")
        assert await told(changes) == "resource"


async def test_the_old_server_is_offered_until_the_new_one_is_there() -> None:
    target = Away(one("new", "who"))
    gateway = Gateway("front", strict=True).add("b", one("old", "who"))
    async with testing.connect(gateway) as (client, _):
        await client.list_tools()  # The next list waits for nothing.
        replacing = asyncio.ensure_future(gateway.replace("b", target))
        await until(lambda: len(gateway.catalog.family()) == 2)
        assert [tool.name for tool in await client.list_tools()] == ["b_who"]
        assert await client.call_tool("b_who", returns=str) == "old"
        # It cannot be reached, and the configuration is what it is.
        await replacing
        assert gateway.backs["b"].state == "away"
        target.is_there = True
        await until(lambda: gateway.backs["b"].state == "ready")
        assert await client.call_tool("b_who", returns=str) == "new"


@pytest.mark.covers("GW-9.31")
@pytest.mark.parametrize("after", ["2025-11-25", MODERN])
async def test_answers_reach_the_call_that_asked(after: str) -> None:
    asking, successor = Asking(), Asking()
    gateway = Gateway("front").add("b", asking.server, revision="2025-11-25")
    async with testing.connect(gateway, elicit=answer) as (client, _):
        asked = await call(client, "b_book", {"seats": 1})
        await gateway.replace("b", successor.server, revision=after)
        asked = await call(client, "b_book", {"seats": 1}, asked, **accept(asked))
        done = await call(client, "b_book", {"seats": 1}, asked, **accept(asked, "Anna"))
        assert done["content"][0]["text"] == "1 True Anna"
        assert (asking.begun, successor.begun) == (1, 0)
        await until(lambda: len(gateway.catalog.family()) == 1)
        assert (await client.call_tool("b_book", {"seats": 2})).text == "2 True Anna"
        assert successor.begun >= 1


@pytest.mark.covers("GW-9.31")
@cases(("front", "back"), [(front, back) for front in DIALECTS for back in DIALECTS])
@cases("how", ["removed", "replaced"])
async def test_task_of_replaced_server_ends_there_and_task_of_removed_server_is_hidden(
    how: str, front: str, back: str
) -> None:
    held, successor = held_tools(), held_tools()
    gateway = Gateway("front", limits=held.server.limits).add("b", held.server, prefix="", revision=back)
    async with talk(gateway, front) as client:
        task = await begin(client, "hold", {"label": "y"})
        await held.started.wait()
        if how == "removed":
            gateway.remove("b")
        else:
            await gateway.replace("b", successor.server, prefix="", revision=back)
        held.go.set()
        if how == "removed":
            assert (await client.error("tasks/get", {"taskId": task}))["code"] == -32602
            return
        assert text_in(await outcome(client, task)) == "held y"
        await until(lambda: len(gateway.catalog.family()) == 1)
    assert successor.seen == []


async def test_the_order_decides_where_names_collide() -> None:
    gateway = Gateway("front").add("a", one("first", "who"), prefix="").add("b", one("second", "who"), prefix="")
    async with testing.connect(gateway) as (client, wire):
        assert await client.call_tool("who", returns=str) == "first"
        assert gateway.backs["b"].hidden == ("who",)
        gateway.arrange(["b", "a"])
        assert list(gateway.backs) == ["b", "a"]
        assert await client.call_tool("who", returns=str) == "second"
        # A server that is replaced keeps its place.
        await gateway.replace("b", one("third", "who"), prefix="")
        gateway.arrange(["b", "a"])
        assert await client.call_tool("who", returns=str) == "third"
        assert announced(wire) == 0


async def test_addresses_stay_when_a_server_is_replaced() -> None:
    def notes(text: str) -> Server:
        server = one(text, "who")
        server.add(tool_named("link", text))

        @server.resource("note://today")
        def today() -> str:
            return text

        return server

    gateway = Gateway("front").add("a", notes("one")).add("b", notes("two"))
    async with testing.connect(gateway) as (client, wire):
        before = {each.uri for each in await client.list_resources()}
        await gateway.replace("a", notes("three"))
        await until(lambda: len(gateway.catalog.family()) == 2)
        assert {each.uri for each in await client.list_resources()} == before
        assert [each.text for each in await client.read_resource("note://today")] == ["three"]
        assert not any("list_changed" in each.get("method", "") for each in wire.received)


async def test_servers_that_leave_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.front.MAX_LEAVING", 2)
    asking = [Asking() for _ in range(4)]
    gateway = Gateway("front")
    async with testing.connect(gateway, elicit=answer) as (client, _):
        for number, each in enumerate(asking):
            gateway.add(f"b{number}", each.server, revision="2025-11-25")
            await until(lambda number=number: gateway.backs[f"b{number}"].tools)
            await call(client, f"b{number}_book", {"seats": 1})
        for number in range(4):
            gateway.remove(f"b{number}")
        await until(lambda: asking[0].cancelled.is_set() and asking[1].cancelled.is_set())
        assert len(gateway.catalog.family()) == 2
        assert not asking[2].cancelled.is_set() and not asking[3].cancelled.is_set()
