"""A legacy session that two replicas serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.http.httpclient import Answer, HttpClient, SessionClient, serving
from tests.http.legacy.session_server import ASKING, Gate, make_server, nothing_is_left, text_of

from toolwire.http.asgi import HttpApp
from toolwire.stores import Stores
from toolwire.stores.sqlite import SqliteStores


class Replicas:
    """Two applications of two servers with one secret, whose stores are the same or share a file."""

    def __init__(self, gate: Gate, stores: list[Stores]) -> None:
        self.servers = [make_server(gate, stores=each) for each in stores]
        self.apps: list[HttpApp] = [server.http_app() for server in self.servers]
        self.clients: list[SessionClient] = []


@pytest.fixture(params=["memory", "sqlite"])
async def replicas(gate: Gate, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Replicas]:
    if request.param == "memory":
        stores: list[Stores] = [Stores.memory()] * 2
    else:
        stores = [SqliteStores(tmp_path / "shared.db") for _ in range(2)]
    replicas = Replicas(gate, stores)
    async with serving(*replicas.apps) as clients:
        replicas.clients = clients
        yield replicas
    for each in stores:
        if isinstance(each, SqliteStores):
            each.close()


async def two(replicas: Replicas, revision: str = "2025-11-25", **options: Any) -> tuple[SessionClient, SessionClient]:
    """One session, as seen by a client whose requests reach one replica or the other."""
    here, there = replicas.clients
    await here.initialize(revision, ASKING, **options)
    there.headers, there.revision, there.last_id = here.headers, here.revision, 1000
    await there.result("ping")  # A replica takes part once it has started.
    return here, there


async def test_a_question_is_answered_at_the_other_replica(replicas: Replicas) -> None:
    here, there = await two(replicas)
    call = here.start_call("ask")
    question = await call.message("elicitation/create")
    answer = await there.respond(question, {"action": "accept", "content": {"value": "Ada"}})
    assert answer.status == 202
    await call.finished()
    assert text_of(call.answer()) == "accept: Ada"


async def test_a_refusal_is_handed_on_to_the_other_replica(replicas: Replicas) -> None:
    here, there = await two(replicas)
    call = here.start_call("ask")
    question = await call.message("elicitation/create")
    await there.post({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
    await call.finished()
    assert call.answer()["result"]["isError"] is True


async def test_a_call_is_cancelled_at_the_other_replica(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    call = here.start_call("hold", id="mine")
    await gate.reached.wait()
    assert (await there.notify("notifications/cancelled", {"requestId": "mine"})).status == 202
    await gate.cancelled.wait()
    await call.finished()


async def test_a_stream_at_the_other_replica_hears_everything(replicas: Replicas) -> None:
    here, there = await two(replicas)
    stream = await there.get()
    await here.result("resources/subscribe", {"uri": "note://today"})
    replicas.servers[0].notify_updated("note://today")
    assert (await stream.message("notifications/resources/updated"))["params"] == {"uri": "note://today"}
    replicas.servers[0].notify_changed("tools")
    await stream.message("notifications/tools/list_changed")
    replicas.servers[1].notify_changed("prompts")
    await stream.message("notifications/prompts/list_changed")
    replicas.servers[0].log("error", "smoke")
    await stream.message("notifications/message")


async def test_streams_at_two_replicas_share_the_word(replicas: Replicas) -> None:
    here, there = await two(replicas)
    first, second = await here.get(), await there.get()
    replicas.servers[0].notify_changed("tools")
    await second.message("notifications/tools/list_changed")
    assert first.messages == []
    third = await here.get()
    replicas.servers[1].notify_changed("prompts")
    await third.message("notifications/prompts/list_changed")
    assert len(second.messages) == 1
    assert first.messages == []


async def test_a_call_is_resumed_at_the_other_replica(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    call = here.start_call("hold", id=9)
    await call.message("notifications/message")
    await gate.reached.wait()
    await call.disconnect()
    resumed = await there.get({"last-event-id": call.last_event_id})
    gate.opened.set()
    await resumed.finished()
    assert resumed.messages[-1]["id"] == 9
    assert text_of(resumed.messages[-1]) == "held"


async def test_a_polled_call_is_resumed_at_the_other_replica_before_it_is_done(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    call = await here.start_call("poll").finished()
    resumed = await there.get({"last-event-id": call.last_event_id})
    gate.opened.set()
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "polled"


async def test_the_sessions_own_stream_moves_to_the_other_replica(replicas: Replicas) -> None:
    here, there = await two(replicas)
    stream = await here.get()
    replicas.servers[0].notify_changed("tools")
    await stream.message("notifications/tools/list_changed")
    await stream.disconnect()
    replicas.servers[1].notify_changed("prompts")
    resumed = await there.get({"last-event-id": stream.last_event_id})
    await resumed.message("notifications/prompts/list_changed")
    replicas.servers[0].notify_changed("resources")
    await resumed.message("notifications/resources/list_changed")
    assert len(resumed.messages) == 2
    assert nothing_is_left(replicas.apps[0])


async def test_a_session_whose_owner_crashed_is_claimed_by_another_process(replicas: Replicas) -> None:
    here, there = await two(replicas)
    await here.result("resources/subscribe", {"uri": "note://today"})
    first, second = await here.get(), await there.get()
    replicas.servers[0].notify_changed("prompts")
    await second.message("notifications/prompts/list_changed")
    alive, crashing = (app.sessions.streams for app in replicas.apps)
    (waiting,) = alive._session_streams()
    answered = asyncio.Event()
    alive._link.on("owner", lambda data: answered.set())
    for _ in range(4):
        # The test calls the heartbeats: a clock would take a busy machine for a crash.
        waiting._heartbeat()
        await answered.wait()
        answered.clear()
    assert first.messages == []  # For as long as the other one is there.
    crashing._gets.clear()  # It hears nothing, answers nothing, and has told nobody.
    crashing.leave()
    waiting._heartbeat()
    waiting._heartbeat()
    await first.message("notifications/tools/list_changed")
    updated = await first.message("notifications/resources/updated")
    assert updated["params"] == {"uri": "note://today"}
    assert len(second.messages) == 1


async def test_delete_counts_at_the_other_replica(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    stream = await there.get()
    call = there.start_call("hold")
    await gate.reached.wait()
    assert (await here.delete()).status == 200
    await stream.finished()
    await call.finished()
    await gate.cancelled.wait()
    assert (await there.post(there.request("tools/list"))).status == 404
    assert (await here.post(here.request("tools/list"))).status == 404
    assert all(nothing_is_left(app) for app in replicas.apps)


async def test_modern_listeners_hear_of_changes_at_the_other_replica(replicas: Replicas) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    client = HttpClient(replicas.apps[0])
    await two(replicas)
    stream = client.start_post(listen, headers)
    await stream.message("notifications/subscriptions/acknowledged")
    replicas.servers[1].notify_changed("tools")
    await stream.message("notifications/tools/list_changed")
    replicas.servers[0].notify_changed("tools")
    await stream.until(lambda: len(stream.messages) == 3)
    await stream.disconnect()


async def test_many_sessions_over_two_replicas_at_once(replicas: Replicas, gate: Gate) -> None:
    gate.opened.set()
    apps, servers = replicas.apps, replicas.servers

    async def one(number: int) -> None:
        here, there = apps[number % 2], apps[(number + 1) % 2]
        client = SessionClient(here)
        try:
            await client.initialize("2025-11-25", ASKING)
            other = client.at(there)
            stream: Answer = await other.get()
            await client.result("resources/subscribe", {"uri": f"note://{number}"})
            call = client.start_call("ask")
            question = await call.message("elicitation/create")
            await other.respond(question, {"action": "accept", "content": {"value": str(number)}})
            await call.finished()
            assert text_of(call.answer()) == f"accept: {number}"
            servers[number % 2].notify_updated(f"note://{number}")
            updated = await stream.message("notifications/resources/updated")
            assert updated["params"]["uri"] == f"note://{number}"
            polled = await client.start_call("poll").finished()
            rest = await other.get({"last-event-id": polled.last_event_id})
            await rest.finished()
            assert text_of(rest.messages[-1]) == "polled"
            assert (await other.delete()).status == 200
            assert (await client.post(client.request("ping"))).status == 404
            await stream.finished()
        finally:
            await client.close()

    await asyncio.gather(*(one(number) for number in range(30)))
    assert all(nothing_is_left(app) for app in apps)
