"""The streams of a legacy session: its own, by GET, and resuming."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.httpclient import SessionClient, caught_up, serving
from tests.http.legacy.session_server import SESSION_REVISIONS, Gate, make_server, nothing_is_left

from toolwire import Limits
from toolwire.http.asgi import HttpApp
from toolwire.http.legacy import get_stream
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores

# --- resuming what is not there ---


@pytest.mark.covers("3.4.4.1", "3.4.4.2", "3.4.4.9", "T-43")
async def test_event_ids_of_others_resume_nothing(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize()
    mine = await client.start_call("report").finished()
    other = client.at(app)
    await other.initialize()
    theirs = await other.start_call("report").finished()
    stream, _, position = mine.last_event_id.partition(".")
    other_stream, _, other_position = theirs.last_event_id.partition(".")
    for identifier in (
        theirs.last_event_id,
        f"{stream}.{other_position}",
        f"{other_stream}.{position}",
        f"{stream}.",
        f"{stream}.~x",
        f"{stream}.99999999999999999999999",
        f"{stream}",
        "1",
        "x" * 1000,
    ):
        answer = await client.start_get({"last-event-id": identifier}).finished()
        assert answer.status == 400, identifier
    assert nothing_is_left(app)
    again = await client.start_get({"last-event-id": mine.events[0].id}).finished()
    assert again.messages == mine.messages
    nothing_more = await client.start_get({"last-event-id": mine.last_event_id}).finished()
    assert (nothing_more.status, nothing_more.messages) == (200, [])


# --- the session's own stream ---


@pytest.mark.covers("3.4.3.1", "3.4.3.2")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_changes_come_on_the_stream_that_a_get_opens(gate: Gate, revision: str) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize(revision)
        stream = await client.get()
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        server.notify_changed("tools")
        await stream.message("notifications/tools/list_changed")
        server.notify_updated("note://today")
        assert await client.result("resources/subscribe", {"uri": "note://today"}) == {}
        server.notify_updated("note://today")
        server.notify_updated("note://tomorrow")
        updated = await stream.message("notifications/resources/updated")
        assert updated["params"] == {"uri": "note://today"}
        assert await client.result("resources/unsubscribe", {"uri": "note://today"}) == {}
        server.notify_updated("note://today")
        server.notify_changed("prompts")
        await stream.message("notifications/prompts/list_changed")
        assert len([each for each in stream.messages if each["method"] == "notifications/resources/updated"]) == 1


async def test_a_get_has_to_accept_a_stream(client: SessionClient) -> None:
    await client.initialize()
    assert (await client.start_get({"accept": "application/json"}).finished()).status == 406


async def test_the_log_level_belongs_to_the_session(gate: Gate) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        stream = await client.get()
        assert await client.result("logging/setLevel", {"level": "error"}) == {}
        assert (await client.start_call("report").finished()).messages[:-1] == []
        server.log("info", "unheard")
        server.log("critical", "heard")
        message = await stream.message("notifications/message")
        assert message["params"]["data"] == "heard"
        assert await client.result("logging/setLevel", {"level": "debug"}) == {}
        assert len((await client.start_call("report").finished()).messages) == 2


@pytest.mark.covers("3.4.3.4", "T-43", "J91")
async def test_nothing_is_said_on_two_streams(gate: Gate) -> None:
    server = make_server(gate)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize()
        first, second = await client.get(), await client.get()
        server.notify_changed("tools")
        await second.message("notifications/tools/list_changed")
        assert first.messages == []
        # The one that had the word goes, and the other takes over.
        await second.disconnect()
        for _ in range(10):
            await asyncio.sleep(0)
        server.notify_changed("prompts")
        await first.message("notifications/prompts/list_changed")


async def test_changes_that_were_not_promised_are_not_told() -> None:
    stores = Stores(MemoryKV(), MemoryLog(), MemoryBus(max_pending=4))
    server = make_server(capabilities={"tools": {"listChanged": False}, "resources": None}, stores=stores)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        stream = await client.get()
        for family in ("tools", "resources", "prompts"):
            server.notify_changed(family)
        await stream.message("notifications/prompts/list_changed")
        for number in range(20):
            server.notify_updated(f"note://{number}")  # So many that some are lost, and everything is told again.
        await stream.until(lambda: len(stream.messages) > 1)
        assert {each["method"] for each in stream.messages} == {"notifications/prompts/list_changed"}


async def test_a_session_has_so_many_streams_and_no_more(gate: Gate) -> None:
    app = make_server(gate, limits=Limits(streams=2)).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        streams = [await client.get() for _ in range(2)]
        refused = await client.start_get().finished()
        assert refused.status == 429
        assert "retry-after" in refused.headers
        await streams[0].disconnect()
        assert (await client.get()).status == 200


@pytest.mark.covers("J91")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_the_sessions_own_stream_resumes_too(gate: Gate, revision: str) -> None:
    server = make_server(gate)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize(revision)
        stream = await client.get()
        server.notify_changed("tools")
        await stream.message("notifications/tools/list_changed")
        await stream.disconnect()
        server.notify_changed("prompts")
        resumed = await client.get({"last-event-id": stream.last_event_id})
        await resumed.message("notifications/prompts/list_changed")
        server.notify_changed("resources")
        await resumed.message("notifications/resources/list_changed")
        assert [each["method"].split("/")[1] for each in resumed.messages] == ["prompts", "resources"]


async def test_what_is_said_while_the_connection_takes_nothing_is_there_for_its_successor(gate: Gate) -> None:
    server = make_server(gate)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        server.notify_changed("tools")
        await stream.message("notifications/tools/list_changed")
        stream.stop_reading()
        server.notify_changed("prompts")
        await stream.until(lambda: stream.stalled)
        server.notify_changed("resources")  # Which nobody has written down yet.
        await caught_up(app)
        resumed = await client.get({"last-event-id": stream.last_event_id})
        await resumed.message("notifications/resources/list_changed")
        assert [each["method"].split("/")[1] for each in resumed.messages] == ["prompts", "resources"]


async def test_what_is_not_said_when_a_session_ends_is_never_written(gate: Gate) -> None:
    stores = Stores.memory()
    server = make_server(gate, stores=stores)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        stream.stop_reading()
        server.notify_changed("prompts")
        await stream.until(lambda: stream.stalled)
        server.notify_changed("resources")
        await caught_up(app)
        assert (await client.delete()).status in (200, 204)
        stream.read_on()
        await stream.finished()
    assert isinstance(stores.log, MemoryLog)
    assert stores.log._streams == {}


async def test_a_stream_that_nobody_comes_back_to_is_given_up(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_stream, "LEASE", 0.0)
    app = make_server(gate).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        await stream.disconnect()
        while not nothing_is_left(app):
            await asyncio.sleep(0)


async def test_an_open_stream_is_kept_alive_and_ends_with_its_session(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_stream, "KEEP_ALIVE", 0.001)
    stores = Stores.memory()
    app = make_server(gate, stores=stores).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        await stream.until(lambda: b": keep-alive" in stream.body)
        assert isinstance(stores.kv, MemoryKV)
        for key in [key for key in stores.kv._items if key.startswith("toolwire:session:")]:
            await stores.kv.delete(key)  # As if its time had run out.
        await stream.finished()


async def test_a_busy_session_is_told_of_each_change_once_it_keeps_up(gate: Gate) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        for number in range(20):
            await client.result("resources/subscribe", {"uri": f"note://{number}"})
        stream = await client.get()
        stream.stop_reading()
        for number in range(20):
            server.notify_updated(f"note://{number}")
        await stream.until(lambda: stream.stalled)
        stream.read_on()
        await stream.until(lambda: len(stream.messages) == 20)
        assert {each["params"]["uri"] for each in stream.messages} == {f"note://{number}" for number in range(20)}


@pytest.mark.covers("FLT-21")
async def test_a_bus_that_lost_messages_costs_no_change(gate: Gate) -> None:
    stores = Stores(MemoryKV(), MemoryLog(), MemoryBus(max_pending=4))
    server = make_server(gate, stores=stores)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        await client.result("resources/subscribe", {"uri": "note://today"})
        stream = await client.get()
        server.notify_updated("note://today")
        server.notify_changed("tools")
        for number in range(20):
            server.notify_updated(f"note://{number}")
        await stream.message("notifications/tools/list_changed")
        await stream.message("notifications/resources/updated")
        server.notify_changed("prompts")
        await stream.until(
            lambda: len([each for each in stream.messages if each["method"].endswith("prompts/list_changed")]) >= 1
        )


async def test_many_streams_that_open_at_once_all_get_the_word(gate: Gate) -> None:
    stores = Stores(MemoryKV(), MemoryLog(), MemoryBus(max_pending=8))
    server = make_server(gate, stores=stores)
    async with serving(server.http_app()) as [client]:
        sessions = [client.at(client.app) for _ in range(40)]
        for session in sessions:
            await session.initialize()
        streams = await asyncio.gather(*(session.get() for session in sessions))
        server.notify_changed("tools")
        await asyncio.gather(*(stream.message("notifications/tools/list_changed") for stream in streams))
        for session in sessions:
            await session.close()


async def test_subscriptions_have_a_bound(gate: Gate) -> None:
    app = make_server(gate).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        answer = await client.post(client.request("resources/subscribe", {"uri": "x://" + "y" * 100_000}))
        assert answer.json()["error"]["code"] == -32602


async def test_subscriptions_made_at_once_are_all_remembered(gate: Gate) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        stream = await client.get()
        await asyncio.gather(
            *(client.result("resources/subscribe", {"uri": f"note://{number}"}) for number in range(8))
        )
        for number in range(8):
            server.notify_updated(f"note://{number}")
        await stream.until(lambda: len(stream.messages) == 8)


# --- the lease of the process ---


async def test_a_process_has_a_lease_while_it_may_have_streams_in_the_log() -> None:
    stores = Stores.memory()
    async with serving(make_server(stores=stores).http_app()) as [client]:
        await client.initialize()
        await client.call("add", {"a": 1, "b": 2})
        assert await stores.queue.leases() == []  # The answer was no stream.
        for _ in range(2):
            await client.start_call("report").finished()
            assert len(await stores.queue.leases()) == 1
    assert await stores.queue.leases() == []


def test_the_lease_of_a_loop_that_ended_is_not_renewed() -> None:
    now = [1000.0]
    kv = MemoryKV(clock=lambda: now[0])
    stores = Stores(kv, MemoryLog(), MemoryBus())
    app = make_server(stores=stores).http_app()

    async def report() -> list[tuple[str, int]]:
        client = SessionClient(app)
        await client.initialize()
        await client.start_call("report").finished()
        await client.close()
        return await stores.queue.leases()

    [(first, _)] = asyncio.run(report())
    leases = [name for name, _ in asyncio.run(report())]
    assert first in leases and len(leases) == 2
    now[0] += 60.0
    assert [name for name, _ in asyncio.run(stores.queue.stale())] == [first]
