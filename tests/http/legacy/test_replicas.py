"""A legacy session that two replicas serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.http.httpclient import Answer, HttpClient, SessionClient, caught_up, serving
from tests.http.legacy.session_server import (
    ASKING,
    SESSION_REVISIONS,
    Gate,
    make_server,
    nothing_is_left,
    text_of,
)
from tests.runtimes import runtime_of

from toolwire.http.asgi import HttpApp
from toolwire.http.legacy import get_stream, session_streams
from toolwire.http.legacy.event_log import MESSAGE, event_id, header_of
from toolwire.http.legacy.get_stream import SessionStream
from toolwire.http.legacy.post_stream import PostStream
from toolwire.http.legacy.session_records import SessionRecord, StreamOwner
from toolwire.http.legacy.session_streams import SessionStreams
from toolwire.stores import MemoryBus, StoreFailed, Stores
from toolwire.stores.sqlite import SqliteStores
from toolwire.wire.bus_link import BusLink


class Replicas:
    """Two applications of two servers with one secret, whose stores are the same or share a file."""

    def __init__(self, gate: Gate, stores: list[Stores]) -> None:
        self.servers = [make_server(gate, stores=each) for each in stores]
        self.apps: list[HttpApp] = [server.http_app() for server in self.servers]
        self.clients: list[SessionClient] = []


@pytest.fixture(autouse=True)
def _no_clock_for_handovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests say when the time for a handover is over: a clock would take a busy machine for a crash."""
    monkeypatch.setattr(get_stream, "HANDOVER_SECONDS", 3600.0)


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


def crash(streams: SessionStreams) -> None:
    """Let a process hear nothing and say nothing from now on, without a word to anybody."""
    streams.leave()
    streams._link = BusLink(MemoryBus(), "nowhere")
    streams._gets.clear()
    streams._posts.clear()


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
    for _ in range(4):
        # The test calls the heartbeats: a clock would take a busy machine for a crash.
        await alive.alive(waiting)
        await alive._look_at_writers(alive._dependent())
    assert first.messages == []  # For as long as the other one is there.
    await lose_lease(replicas, crashing)
    crash(crashing)
    await alive._look_at_writers(alive._dependent())
    while not waiting.owns:
        await asyncio.sleep(0)
    waiting.not_handed_over()  # As when the time for a handover is over.
    await first.message("notifications/tools/list_changed")
    updated = await first.message("notifications/resources/updated")
    assert updated["params"] == {"uri": "note://today"}
    assert len(second.messages) == 1


# --- the record of the owner ---


async def recorded(app: HttpApp) -> StreamOwner | None:
    """Return the owner in the record of the only session."""
    streams = app.sessions.streams
    (stream, *_) = streams._session_streams()
    record = await streams._records.find(stream.token)
    assert record is not None
    return record.owner


async def compare_twice(streams: SessionStreams, stream: SessionStream) -> None:
    """Let two heartbeats pass, and what they begin."""
    for _ in range(2):
        await streams.alive(stream)
    while streams._claims:
        await asyncio.sleep(0)


def streams_of(replicas: Replicas) -> tuple[SessionStreams, SessionStreams]:
    first, second = (app.sessions.streams for app in replicas.apps)
    return first, second


async def test_the_record_names_the_owner_and_that_it_gave_up(replicas: Replicas) -> None:
    here, there = await two(replicas)
    first = await here.get()
    (own,) = streams_of(replicas)[0]._session_streams()
    owner = await recorded(replicas.apps[0])
    assert owner is not None
    assert (owner.number, owner.stream, owner.process) == (1, own.id, streams_of(replicas)[0].process)
    second = await there.get()
    (other,) = streams_of(replicas)[1]._session_streams()
    owner = await recorded(replicas.apps[0])
    assert owner is not None
    assert (owner.number, owner.stream) == (2, other.id)
    await second.disconnect()
    while not own.owns:
        await asyncio.sleep(0)
    owner = await recorded(replicas.apps[0])
    assert owner is not None
    assert (owner.number, owner.stream) == (3, own.id)
    replicas.servers[1].notify_changed("tools")
    await first.message("notifications/tools/list_changed")
    assert not second.messages
    await first.disconnect()
    while (await recorded(replicas.apps[0])) != StreamOwner(3):
        await asyncio.sleep(0)


async def test_one_of_many_streams_succeeds_an_owner(replicas: Replicas) -> None:
    here, there = await two(replicas)
    others = [await client.get() for client in (here, here, there, there)]
    owner = await there.get()
    await caught_up(replicas.apps[1])
    await caught_up(replicas.apps[0])
    claims: list[bytes] = []
    runtime_of(replicas.servers[0]).link.on("claim", claims.append)
    await owner.disconnect()
    streams = [stream for each in streams_of(replicas) for stream in each._session_streams() if stream.attached]
    assert len(streams) == len(others)
    while not any(stream.owns for stream in streams):
        await asyncio.sleep(0)
    while any(each._claims for each in streams_of(replicas)):
        await asyncio.sleep(0)
    await caught_up(replicas.apps[0])
    assert (len(claims), sum(stream.owns for stream in streams)) == (1, 1)


async def test_a_claim_that_comes_after_a_newer_one_changes_nothing(replicas: Replicas) -> None:
    here, there = await two(replicas)
    claims: list[bytes] = []
    runtime_of(replicas.servers[0]).link.on("claim", claims.append)
    first, second, third = await here.get(), await there.get(), await there.get()
    await caught_up(replicas.apps[0])
    (own,) = streams_of(replicas)[0]._session_streams()
    for streams in streams_of(replicas):
        streams._on_claim(claims[1])
    replicas.servers[0].notify_changed("tools")
    await third.message("notifications/tools/list_changed")
    assert not first.messages
    assert not second.messages
    assert not own.owns


async def test_a_contradiction_of_record_and_claims_ends_at_the_second_heartbeat(replicas: Replicas) -> None:
    here, there = await two(replicas)
    first, second = await here.get(), await there.get()
    streams = streams_of(replicas)[0]
    (own,) = streams._session_streams()

    def forget(record: SessionRecord) -> None:
        # As a process of an earlier release writes the record.
        record.owner = None

    await streams._records.change(own.token, forget)
    await streams.alive(own)
    assert not streams._claims
    await compare_twice(streams, own)
    await caught_up(replicas.apps[0])
    assert own.owns
    replicas.servers[1].notify_changed("tools")
    await first.message("notifications/tools/list_changed")
    await caught_up(replicas.apps[1])
    assert second.messages == []


async def test_streams_of_an_earlier_release_claim_and_ask_as_before(replicas: Replicas) -> None:
    here, there = await two(replicas)
    stream = await here.get()
    await there.get()
    ours, theirs = streams_of(replicas)
    (own,) = ours._session_streams()
    (other,) = theirs._session_streams()
    link = runtime_of(replicas.servers[0]).link
    # The second process is one of the release before: its claims have no number, and it asks who lives.
    claim = {"session": own.token.id, "stream": "g-old", "by": "old", "process": "older"}
    await link.publish("claim", json.dumps(claim).encode())
    await caught_up(replicas.apps[1])
    assert not own.owns
    assert not other.owns
    await compare_twice(theirs, other)
    await caught_up(replicas.apps[1])
    assert other.owns
    answered = asyncio.Event()
    runtime_of(replicas.servers[0]).link.on("owner", lambda data: answered.set())
    question = {"session": own.token.id, "by": ours.process}
    await link.send(theirs.process, "owner?", json.dumps(question).encode())
    await answered.wait()
    assert stream.messages == []


async def test_streams_of_processes_without_leases_take_turns(gate: Gate) -> None:
    # Nothing says whether the process of the owner lives, and one stream has to be the owner.
    memory = Stores.memory()
    stores = Stores(OtherKV(memory.kv), memory.log, memory.bus)  # type: ignore[arg-type]
    replicas = Replicas(gate, [stores, stores])
    async with serving(*replicas.apps) as replicas.clients:
        here, there = await two(replicas)
        first, second = await here.get(), await there.get()
        streams = streams_of(replicas)[0]
        (own,) = streams._session_streams()
        assert not own.owns
        await compare_twice(streams, own)
        await caught_up(replicas.apps[0])
        assert own.owns
        replicas.servers[1].notify_changed("tools")
        await first.message("notifications/tools/list_changed")
        await caught_up(replicas.apps[1])
        assert second.messages == []


async def test_an_owner_that_gave_up_during_an_outage_is_noted_after_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_streams, "LONGEST_PAUSE", 0.01)
    here, _ = await two(replicas)
    stream = await here.get()
    streams = streams_of(replicas)[0]
    (own,) = streams._session_streams()
    give_up, failures = streams._records.give_up, 3

    async def fail_first(token: Any, identifier: str) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreFailed("the store is away")
        await give_up(token, identifier)

    monkeypatch.setattr(streams._records, "give_up", fail_first)
    await stream.disconnect()
    while (await streams._records.find(own.token)).owner.stream:  # type: ignore[union-attr]
        await asyncio.sleep(0.001)
    assert failures == 0


# --- calls whose process is gone ---


async def lose_lease(replicas: Replicas, streams: SessionStreams) -> None:
    """Take the lease of a process away, as a process does that has seen it unrenewed for long enough."""
    await replicas.servers[1].stores.queue.release(await streams.lease())


async def look(streams: SessionStreams) -> None:
    await streams._look_at_writers(streams._resumed())


@pytest.mark.covers("FLT-20")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_a_call_whose_process_is_gone_is_answered_with_an_error(
    replicas: Replicas, gate: Gate, revision: str
) -> None:
    here, there = await two(replicas, revision)
    call = here.start_call("hold", id="lost")
    await call.message("notifications/message")
    await gate.reached.wait()
    alive, crashing = replicas.apps[1].sessions.streams, replicas.apps[0].sessions.streams
    await call.disconnect()
    lease = await crashing.lease()
    crash(crashing)
    resumed = await there.get({"last-event-id": call.last_event_id})
    for _ in range(3):
        await look(alive)
        assert not resumed.ended
    await replicas.servers[1].stores.queue.release(lease)
    await look(alive)
    await resumed.finished()
    [answer] = resumed.messages
    assert (answer["id"], answer["error"]["code"]) == ("lost", -32603)
    assert "the request may have run" in answer["error"]["message"]
    # The process was not gone after all, and answers. The first end of the stream counts.
    gate.opened.set()
    await gate.finished.wait()
    while len(replicas.apps[0].sessions.calls):
        await asyncio.sleep(0)
    again = await there.start_get({"last-event-id": call.events[0].id}).finished()
    assert [each for each in again.messages if "id" in each] == [answer]
    nothing_more = await there.start_get({"last-event-id": resumed.last_event_id}).finished()
    assert (nothing_more.status, nothing_more.messages) == (200, [])


@pytest.mark.parametrize("calls", [1, 20])
async def test_a_client_that_resumes_after_the_end_of_a_process_need_not_wait(
    replicas: Replicas, gate: Gate, calls: int
) -> None:
    """Whatever became of the processes that it asked before. All its calls are resumed, however many they are."""
    here, there = await two(replicas)
    broken = [here.start_call("hold", id=number) for number in range(calls)]
    for call in broken:
        await call.message("notifications/message")
        await call.disconnect()
    crashing = replicas.apps[0].sessions.streams
    await lose_lease(replicas, crashing)
    crash(crashing)
    resumed = [there.start_get({"last-event-id": call.last_event_id}) for call in broken]
    for number, stream in enumerate(resumed):
        await stream.finished()
        [answer] = stream.messages
        assert (answer["id"], answer["error"]["code"]) == (number, -32603)
    gate.opened.set()


async def test_as_many_calls_can_be_resumed_as_can_run(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    calls = [here.start_call("hold", id=number) for number in range(20)]
    for call in calls:
        await call.message("notifications/message")
        await call.disconnect()
    resumed = [await there.get({"last-event-id": call.last_event_id}) for call in calls]
    assert {stream.status for stream in resumed} == {200}
    # The streams of the session's own have a number of their own.
    own = [await there.get() for _ in range(8)]
    assert {stream.status for stream in own} == {200}
    assert (await there.get()).status == 429
    gate.opened.set()
    for stream in resumed:
        await stream.finished()
        assert text_of(stream.messages[-1]) == "held"


async def test_each_call_of_a_batch_is_answered_once(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas, "2025-03-26")
    hold = {"name": "hold", "arguments": {}}
    batch = here.start_post(
        [
            here.request("tools/call", hold, id=1),
            here.request("tools/call", hold, id="2"),
            here.request("tools/call", {"name": "report", "arguments": {}}, id=3),
        ]
    )
    await batch.message(id=3)
    await batch.disconnect()
    crashing = replicas.apps[0].sessions.streams
    await lose_lease(replicas, crashing)
    crash(crashing)
    resumed = await there.start_get({"last-event-id": batch.last_event_id}).finished()
    [answers] = resumed.messages
    assert sorted(str(each["id"]) for each in answers) == ["1", "2"]
    assert {each["error"]["code"] for each in answers} == {-32603}
    gate.opened.set()


@pytest.mark.parametrize("is_resumed", [True, False])
async def test_a_process_that_lost_its_lease_and_lives_is_waited_for(
    replicas: Replicas, gate: Gate, is_resumed: bool
) -> None:
    """It was cut off from the store. As soon as it knows of that, its streams name another lease."""
    here, there = await two(replicas)
    call = here.start_call("hold", id=7)
    await call.message("notifications/message")
    await gate.reached.wait()
    await call.disconnect()
    alive, cut_off = replicas.apps[1].sessions.streams, replicas.apps[0].sessions.streams
    lease = await cut_off.lease()
    resumed = await there.get({"last-event-id": call.last_event_id}) if is_resumed else None
    if alive._watching is not None:
        alive._watching.cancel()  # Only the looks below count, which come when the other process knows.
    await lose_lease(replicas, cut_off)
    cut_off._lease._lost(lease)  # The thread of the store says so, sooner or later.
    (post,) = cut_off._posts.values()
    while post._lease == lease or post._is_header_due_now:
        await asyncio.sleep(0)
    if resumed is None:
        resumed = await there.get({"last-event-id": call.last_event_id})
    for _ in range(3):
        await look(alive)
        await caught_up(replicas.apps[1])
    assert not resumed.ended
    gate.opened.set()
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "held"


async def lose_log(streams: SessionStreams) -> PostStream:
    """Lose everything that is logged of the only call, as a failover of the store does; return its stream."""
    (post,) = streams._posts.values()
    streams.events.forget(post.session, post.name)
    while await streams.events.kept(post.session, post.name):
        await asyncio.sleep(0)
    return post


async def test_a_header_that_a_failover_lost_is_logged_again(replicas: Replicas, gate: Gate) -> None:
    """Without it nobody would know which process writes the stream, and whether that is gone."""
    here, _ = await two(replicas)
    call = here.start_call("hold", id=7)
    await call.message("notifications/message")
    await gate.reached.wait()
    streams = replicas.apps[0].sessions.streams
    post = await lose_log(streams)
    streams._on_lost()
    while (header := header_of(await streams.events.kept(post.session, post.name))) is None:
        await asyncio.sleep(0)
    assert (header.process, header.lease) == (streams.process, await streams.lease())
    gate.opened.set()
    await call.finished()


async def test_a_stream_whose_header_is_lost_for_good_is_refused(
    replicas: Replicas, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover lost the header, and the process that would log it again is gone: nobody would ever answer."""
    monkeypatch.setattr(get_stream, "HEADER_PAUSE", 0.0)
    here, there = await two(replicas)
    call = here.start_call("hold", id=7)
    await call.message("notifications/message")
    await gate.reached.wait()
    streams = replicas.apps[0].sessions.streams
    post = await lose_log(streams)
    position = await streams.events.append(post.session, post.name, MESSAGE, b'{"jsonrpc":"2.0","method":"x"}')
    await call.disconnect()
    resumed = await there.get({"last-event-id": event_id(post.name, position)})
    assert resumed.status == 400
    gate.opened.set()


class OtherKV:
    """A store of another kind, without a queue."""

    def __init__(self, kv: Any) -> None:
        self._kv = kv

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kv, name)


async def test_stores_without_a_queue_keep_streams_without_leases(gate: Gate) -> None:
    memory = Stores.memory()
    stores = Stores(OtherKV(memory.kv), memory.log, memory.bus)  # type: ignore[arg-type]
    replicas = Replicas(gate, [stores, stores])
    async with serving(*replicas.apps) as replicas.clients:
        here, there = await two(replicas)
        call = here.start_call("hold", id=7)
        await call.message("notifications/message")
        await call.disconnect()
        resumed = await there.get({"last-event-id": call.last_event_id})
        gate.opened.set()
        await resumed.finished()
        assert text_of(resumed.messages[-1]) == "held"


@pytest.mark.parametrize("where", [0, 1])
async def test_a_call_whose_answer_the_log_did_not_take_is_answered_with_an_error(
    replicas: Replicas, gate: Gate, where: int
) -> None:
    here, _ = await two(replicas)
    call = here.start_call("hold", id=7)
    await call.message("notifications/message")
    await gate.reached.wait()
    await call.disconnect()
    replicas.apps[0].sessions.streams._posts.clear()  # As when the store was full until nobody tried any more.
    resumed = await replicas.clients[where].get({"last-event-id": call.last_event_id})
    if where == 1:
        (stream,) = replicas.apps[1].sessions.streams._resumed()
        stream._heartbeat()
    await resumed.finished()
    [answer] = resumed.messages
    assert answer["id"] == 7
    assert "is lost" in answer["error"]["message"]
    gate.opened.set()


@pytest.mark.covers("FLT-20")
@pytest.mark.parametrize("tool", ["hold", "silent"])
@pytest.mark.parametrize("is_connected", [True, False])
async def test_a_call_beyond_the_drain_is_answered_with_an_error(
    replicas: Replicas, gate: Gate, tool: str, is_connected: bool
) -> None:
    here, there = await two(replicas)
    call = here.start_call(tool, id=7)
    await gate.reached.wait()
    if tool == "hold":
        await call.message("notifications/message")
    if not is_connected:
        await call.disconnect()
    replicas.apps[0].drain()
    replicas.apps[0].give_up()  # As `HttpServer` does when the time is over.
    await gate.cancelled.wait()
    if is_connected:
        answer = (await call.finished()).answer()
    elif tool == "hold":
        answer = (await there.start_get({"last-event-id": call.last_event_id}).finished()).messages[-1]
    else:
        return  # The client has nothing to come back with.
    assert (answer["id"], answer["error"]["code"]) == (7, -32603)
    assert answer["error"]["message"] == "The server stopped before it answered; the request may have run"


# --- what a client may have missed on the session's own stream ---


async def moved(replicas: Replicas, last_event_id: str | None) -> tuple[Answer, SessionStream]:
    """Open a stream at the other replica, as a client does that lost the one it had."""
    streams = replicas.apps[1].sessions.streams
    stream = await replicas.clients[1].get({"last-event-id": last_event_id})
    (opened,) = streams._session_streams()
    return stream, opened


def looked_again(stream: Answer) -> list[str]:
    """Return the lists and the resources that a client was told to read again."""
    told = stream.messages
    return sorted(each["params"]["uri"] if "params" in each else each["method"].split("/")[1] for each in told)


EVERYTHING = ["note://today", "prompts", "resources", "tools"]


async def crashes(replicas: Replicas, stream: Answer) -> None:
    crash(replicas.apps[0].sessions.streams)
    stream.vanish()


async def stops(replicas: Replicas, stream: Answer) -> None:
    await replicas.apps[0].stop()


async def stops_too_early(replicas: Replicas, stream: Answer) -> None:
    """The client was gone before, and so its stream had a lease."""
    await stream.disconnect()
    await replicas.apps[0].stop()


async def gives_up(replicas: Replicas, stream: Answer) -> None:
    """Nobody came back for as long as the lease was."""
    await stream.disconnect()
    streams = replicas.apps[0].sessions.streams
    for each in tuple(streams._session_streams()):
        streams._drop(each)


async def could_not_write(replicas: Replicas, stream: Answer) -> None:
    await stream.disconnect()
    (each,) = replicas.apps[0].sessions.streams._session_streams()

    async def fail(*_: Any) -> Any:
        raise StoreFailed("It is not reached.")

    each.streams.events.append = fail
    replicas.servers[0].notify_changed("prompts")
    while not each.has_gap:
        await asyncio.sleep(0)


@pytest.mark.covers("FLT-21")
@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize("happen", [crashes, stops, stops_too_early, gives_up, could_not_write])
async def test_a_client_whose_stream_had_no_owner_is_told_to_look_again(
    replicas: Replicas, happen: Any, has_id: bool
) -> None:
    here, _ = await two(replicas)
    await here.result("resources/subscribe", {"uri": "note://today"})
    stream = await here.get()
    await happen(replicas, stream)
    replicas.servers[1].notify_updated("note://today")  # Which nobody writes down.
    await caught_up(replicas.apps[1])
    resumed, opened = await moved(replicas, stream.last_event_id if has_id else None)
    await caught_up(replicas.apps[1])
    assert opened.has_gap
    opened.not_handed_over()  # As when the time for a handover is over.
    await resumed.until(lambda: len(resumed.messages) == 4)
    assert looked_again(resumed) == EVERYTHING


async def comes_back(replicas: Replicas, stream: Answer) -> None:
    await stream.disconnect()


async def is_still_there(replicas: Replicas, stream: Answer) -> None:
    """The server has not noticed that the connection is lost."""


async def drains(replicas: Replicas, stream: Answer) -> None:
    """The process stops, and calls still run there."""
    replicas.apps[0].drain()
    await stream.finished()


@pytest.mark.parametrize("happen", [comes_back, is_still_there, drains])
async def test_a_client_whose_stream_always_had_an_owner_gets_what_happened_and_no_more(
    replicas: Replicas, happen: Any
) -> None:
    here, _ = await two(replicas)
    await here.result("resources/subscribe", {"uri": "note://today"})
    stream = await here.get()
    await happen(replicas, stream)
    if happen is not is_still_there:
        replicas.servers[1].notify_updated("note://today")
    handed = asyncio.Event()
    runtime_of(replicas.servers[1]).link.on("handed", lambda data: handed.set())
    resumed, opened = await moved(replicas, stream.last_event_id)
    await handed.wait()
    assert not opened.has_gap
    replicas.servers[0].notify_changed("prompts")
    await resumed.message("notifications/prompts/list_changed")
    assert looked_again(resumed) == (["prompts"] if happen is is_still_there else ["note://today", "prompts"])


@pytest.mark.parametrize("carries", ["notifications", "an answer"])
async def test_an_older_claim_that_is_heard_late_does_not_end_the_stream_that_went_on(
    replicas: Replicas, gate: Gate, carries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = await two(replicas)
    streams = replicas.apps[1].sessions.streams
    claims: list[bytes] = []
    runtime_of(replicas.servers[0]).link.on("claim", claims.append)
    if carries == "notifications":
        before = await here.get()
        place = before.last_event_id
    else:
        call = here.start_call("hold", id=7)
        await call.message("notifications/message")
        place = call.last_event_id
        before = await here.get({"last-event-id": place})
    (older,) = claims
    claim = streams._claim

    async def claim_late(stream: Any) -> None:
        streams._on_claim(older)
        await claim(stream)

    monkeypatch.setattr(streams, "_claim", claim_late)
    after = await there.get({"last-event-id": place})
    assert not after.ended
    if carries == "notifications":
        replicas.servers[0].notify_changed("prompts")
        await after.message("notifications/prompts/list_changed")
    else:
        gate.opened.set()
        await after.finished()
        assert text_of(after.messages[-1]) == "held"
    await before.finished()


@pytest.mark.parametrize("happens", [True, False])
async def test_a_client_that_does_not_resume_is_told_only_if_something_happened(
    replicas: Replicas, happens: bool
) -> None:
    here, _ = await two(replicas)
    stream = await here.get()
    await stream.disconnect()
    if happens:
        replicas.servers[1].notify_changed("prompts")
        (leased,) = replicas.apps[0].sessions.streams._session_streams()
        while not leased._unsent:
            await asyncio.sleep(0)
    handed = asyncio.Event()
    runtime_of(replicas.servers[1]).link.on("handed", lambda data: handed.set())
    _, opened = await moved(replicas, None)
    if not happens:
        await handed.wait()
    await caught_up(replicas.apps[1])
    assert opened.has_gap == happens


async def test_the_first_stream_of_a_session_is_not_told_anything(replicas: Replicas) -> None:
    await two(replicas)
    stream, opened = await moved(replicas, None)
    assert not opened.has_gap
    assert stream.messages == []


# --- ending a session ---


@pytest.mark.covers("FLT-23")
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


async def test_a_stream_that_goes_on_elsewhere_is_told_to_its_new_process_alone(
    replicas: Replicas, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = await two(replicas)
    bystander = runtime_of(replicas.servers[0]).link
    sent: list[tuple[str, str]] = []
    post_to = BusLink.post_to

    def spy(self: BusLink, process: str, kind: str, data: bytes) -> None:
        sent.append((process, kind))
        post_to(self, process, kind, data)

    monkeypatch.setattr(BusLink, "post_to", spy)
    common: list[bytes] = []
    bystander._bus.subscribe(bystander._topic, common.append)
    call = here.start_call("hold", id=7)
    await call.message("notifications/message")
    await gate.reached.wait()
    await call.disconnect()
    resumed = await there.get({"last-event-id": call.last_event_id})
    gate.opened.set()
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "held"
    sessions = replicas.apps[1].sessions
    assert sessions is not None
    assert {process for process, kind in sent if kind == "wake"} == {sessions.streams.process}
    assert {message.partition(b" ")[0] for message in common} <= {b"claim", b"log", b"change", b"lists"}
