"""Requests in a legacy session: one POST, batches, cancelling, and clients that go away and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cases import cases
from tests.http.httpclient import SessionClient, initialize_request, serving
from tests.http.legacy.session_server import (
    ASKING,
    SECRET,
    SESSION_REVISIONS,
    Gate,
    make_server,
    nothing_is_left,
    text_of,
)

from toolwire import Context, Limits, Server
from toolwire.http.asgi import HttpApp
from toolwire.http.legacy import post_stream
from toolwire.http.legacy.event_log import MAX_HEADER, StreamHeader, header_of
from toolwire.http.legacy.session_calls import SessionConnection
from toolwire.http.legacy.session_records import BackSession, SessionRecord
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores
from toolwire.util.out_queue import CONGESTED

# --- one POST ---


@pytest.mark.covers("3.4.1.4", "3.4.1.5")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_a_plain_call_is_answered_with_json(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    answer = await client.start_call("add", {"a": 1, "b": 2}).finished()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert text_of(answer.json()) == "3"
    unknown = await client.post(client.request("no/such"))
    assert (unknown.status, unknown.json()["error"]["code"]) == (200, -32601)
    assert await client.result("ping") == {}


@pytest.mark.covers("3.4.1.3", "3.4.10.9")
async def test_notifications_and_answers_are_202_without_a_body(client: SessionClient) -> None:
    await client.initialize()
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/unheard/of"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
        {"jsonrpc": "2.0", "id": 17, "result": {}},
        {"jsonrpc": "2.0", "id": "zzzzzzzz.1", "result": {}},
        {"jsonrpc": "2.0", "id": "nobody", "error": {"code": -1, "message": "no"}},
        {"jsonrpc": "2.0", "error": {"code": -1, "message": "no"}},
    ):
        answer = await client.post(message)
        assert (answer.status, answer.body) == (202, b""), message


@pytest.mark.covers("3.4.1.2")
@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json, text/event-stream", 200),
        ("text/event-stream;q=0.5, APPLICATION/JSON", 200),
        ("*/*", 200),
        (None, 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
    ],
)
async def test_a_request_accepts_both_forms_of_an_answer(
    client: SessionClient, accept: str | None, status: int
) -> None:
    await client.initialize()
    answer = await client.post(client.request("tools/list"), {"accept": accept})
    assert answer.status == status
    opened = await client.post(initialize_request(), {"accept": accept, "mcp-session-id": None})
    assert opened.status == status


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"null", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b"[" * 200 + b"]" * 200, -32600),
    ],
)
async def test_what_is_no_message_is_400(client: SessionClient, app: HttpApp, body: bytes, code: int) -> None:
    await client.initialize()
    answer = await client.post(body)
    assert answer.status == 400
    assert answer.json()["error"]["code"] == code
    assert nothing_is_left(app)


@pytest.mark.covers("3.4.2.1", "3.4.2.2", "1.6.7", "2.1.15", "J32")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_what_a_call_says_comes_on_its_own_stream(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    standalone = await client.get()
    answer = await client.start_call("report", _meta={"progressToken": "t"}).finished()
    assert answer.is_stream
    assert answer.headers["x-accel-buffering"] == "no"
    assert [message.get("method") for message in answer.messages] == [
        "notifications/message",
        "notifications/progress",
        None,
    ]
    assert text_of(answer.answer()) == "reported"
    identifiers = [event.id for event in answer.events]
    assert len(set(identifiers)) == len(identifiers)
    assert len({identifier.partition(".")[0] for identifier in identifiers}) == 1
    assert standalone.messages == []


@pytest.mark.covers("2.1.12", "3.4.4.3", "3.4.4.7", "T-33", "3.4.10.10")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_priming_is_for_2025_11_25_only(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    answer = await client.start_call("report").finished()
    primed = revision == "2025-11-25"
    assert (answer.events[0].data == "" and answer.events[0].id != "") == primed
    assert (answer.retry is not None) == primed
    assert all(event.data for event in answer.events[1:])
    opened = await client.get()
    assert ([event.data for event in opened.events] == [""]) == primed


@pytest.mark.covers("3.4.2.1", "T-42")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_question_goes_out_on_the_stream_and_its_answer_is_posted(client: SessionClient, revision: str) -> None:
    await client.initialize(revision, ASKING)
    call = client.start_call("ask")
    question = await call.message("elicitation/create")
    assert question["params"]["message"] == "Your name?"
    assert (await client.respond(question, {"action": "accept", "content": {"value": "Ada"}})).status == 202
    await call.finished()
    assert text_of(call.answer()) == "accept: Ada"


async def test_an_answer_from_another_session_is_nobodys(client: SessionClient, app: HttpApp) -> None:
    await client.initialize("2025-11-25", ASKING)
    thief = client.at(app)
    await thief.initialize("2025-11-25", ASKING)
    call = client.start_call("ask")
    question = await call.message("elicitation/create")
    assert (await thief.respond(question, {"action": "accept", "content": {"value": "Eve"}})).status == 202
    await client.respond(question, {"action": "decline"})
    await call.finished()
    assert text_of(call.answer()) == "decline: None"


async def test_a_question_that_is_refused_is_a_tools_failure(client: SessionClient) -> None:
    await client.initialize("2025-11-25", ASKING)
    call = client.start_call("ask")
    question = await call.message("elicitation/create")
    error = {"code": -32603, "message": "no screen"}
    assert (await client.post({"jsonrpc": "2.0", "id": question["id"], "error": error})).status == 202
    await call.finished()
    assert call.answer()["result"]["isError"] is True


async def test_an_id_that_is_in_flight_is_not_taken_twice(client: SessionClient, gate: Gate) -> None:
    await client.initialize()
    call = client.start_call("silent", id="one")
    await gate.reached.wait()
    again = await client.start_call("add", {"a": 1, "b": 1}, id="one").finished()
    assert again.json()["error"]["code"] == -32600
    gate.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "silence"


async def test_too_many_calls_at_once_are_429(gate: Gate) -> None:
    app = make_server(gate, limits=Limits(in_flight=1)).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        call = client.start_call("silent")
        await gate.reached.wait()
        refused = await client.start_call("add", {"a": 1, "b": 1}).finished()
        assert refused.status == 429
        assert "retry-after" in refused.headers
        gate.opened.set()
        await call.finished()
        assert (await client.start_call("add", {"a": 1, "b": 1}).finished()).status == 200


async def test_a_slow_reader_holds_the_call_back(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("almanac", secret=SECRET)
    said = 0

    @server.tool
    async def flood(ctx: Context) -> str:
        nonlocal said
        for _ in range(100):
            await ctx.info("x" * 100_000)
            said += 1
        return "done"

    async with serving(server.http_app()) as [client]:
        await client.initialize()
        call = client.start_call("flood")
        call.stop_reading()
        await call.until(lambda: call.stalled)
        for _ in range(200):
            await asyncio.sleep(0)
        assert said < 60
        call.read_on()
        await call.finished()
        assert text_of(call.answer()) == "done"
        assert len(call.messages) == 101


class SlowLog(MemoryLog):
    """A log that takes events when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()

    async def append(self, stream: str, data: bytes) -> int:
        await self.go.wait()
        return await super().append(stream, data)


@cases("revision", SESSION_REVISIONS)
async def test_a_call_whose_client_left_is_held_back_by_the_log(revision: str) -> None:
    events = SlowLog()
    server = Server("almanac", secret=SECRET, stores=Stores(MemoryKV(), events, MemoryBus()))
    said, left, size = 0, asyncio.Event(), 10_000

    @server.tool
    async def flood(ctx: Context) -> str:
        nonlocal said
        await ctx.info("begun")
        await left.wait()
        for _ in range(1000):
            await ctx.info("x" * size)
            said += 1
        return "done"

    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize(revision)
        call = client.start_call("flood", id=1)
        await call.message("notifications/message")
        await call.disconnect()
        events.go.clear()
        left.set()
        for _ in range(200):
            await asyncio.sleep(0)
        assert 0 < said * size < 4 * post_stream.CONGESTED_ALONE
        events.go.set()
        while not nothing_is_left(app):
            await asyncio.sleep(0)
        assert said == 1000


async def test_reports_that_never_wait_have_a_bound() -> None:
    server = Server("almanac", secret=SECRET)

    @server.tool
    async def flood(ctx: Context) -> str:
        progress = ctx.track()
        for number in range(100):
            progress.report(number, message="x" * 100_000)
            await asyncio.sleep(0)
        return "done"

    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize()
        call = client.start_call("flood", _meta={"progressToken": 1})
        call.stop_reading()
        await call.until(lambda: call.stalled)
        assert app.sessions is not None
        (stream,) = app.sessions.streams._posts.values()
        while len(app.sessions.calls):
            assert stream._queue.size <= CONGESTED + 200_000
            await asyncio.sleep(0)
        call.read_on()
        await call.finished()
        assert text_of(call.answer()) == "done"
        assert 5 < len(call.messages) < 80


async def test_answers_that_nobody_can_get_are_not_kept(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize("2025-03-26")
    names = [("large", {"size": 1000}), ("silent", {})]
    requests = [client.request("tools/call", {"name": name, "arguments": given}) for name, given in names]
    batch = client.start_post(requests)
    await gate.reached.wait()
    assert app.sessions is not None
    (stream,) = app.sessions.streams._posts.values()
    await batch.disconnect()
    gate.opened.set()
    await gate.finished.wait()
    while not nothing_is_left(app):
        await asyncio.sleep(0)
    assert stream._answers == []


@cases(("count", "size"), [(1000, 10), (20, 300_000), (5, 1_000_000)])
@cases("revision", SESSION_REVISIONS)
async def test_the_log_always_knows_who_writes_a_stream(revision: str, count: int, size: int) -> None:
    stores = Stores.memory()
    server = Server("almanac", secret=SECRET, stores=stores)
    go_on = asyncio.Event()

    @server.tool
    async def flood(ctx: Context) -> str:
        for _ in range(count):
            await ctx.info("x" * size)
        await go_on.wait()
        return "done"

    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize(revision)
        call = client.start_call("flood", id="one")
        await call.until(lambda: sum(event.data != "" for event in call.events) == count)
        assert app.sessions is not None
        events = app.sessions.streams.events
        ((session, name),) = app.sessions.streams._posts
        header = header_of(await events.kept(session, name))
        assert header == StreamHeader(app.sessions.calls.name, ["one"], await app.sessions.streams.lease())
        go_on.set()
        await call.finished()


async def test_a_request_id_that_is_too_long_to_keep_cannot_be_resumed(client: SessionClient, gate: Gate) -> None:
    await client.initialize()
    call = client.start_call("hold", id="x" * MAX_HEADER)
    await call.message("notifications/message")
    assert call.last_event_id == ""
    gate.opened.set()
    assert text_of((await call.finished()).answer()) == "held"


class SlowBus(MemoryBus):
    """A bus that takes messages when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def publish(self, topic: str, data: bytes) -> None:
        self.asked.set()
        await self.go.wait()
        await super().publish(topic, data)


async def test_an_id_is_not_taken_twice_while_a_batch_waits(gate: Gate) -> None:
    bus = SlowBus()
    app = make_server(gate, stores=Stores(MemoryKV(), MemoryLog(), bus)).http_app()
    async with serving(app) as [client]:
        await client.initialize("2025-03-26")
        call = client.request("tools/call", {"name": "silent", "arguments": {}}, id=1)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
        batch = client.start_post([call, cancelled])
        await bus.asked.wait()
        alone = client.start_post(call)
        await gate.reached.wait()
        bus.go.set()
        [refused] = (await batch.finished()).json()
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)
        gate.opened.set()
        assert (await alone.finished()).answer()["result"]["content"][0]["text"] == "silence"
        assert app.sessions is not None
        assert len(app.sessions.calls) == len(app.sessions.streams) == 0


# --- batches ---


@pytest.mark.covers("1.1.1.1", "1.1.1.6", "3.4.1.1", "3.4.10.8")
async def test_a_batch_is_answered_with_an_array(client: SessionClient) -> None:
    await client.initialize("2025-03-26")
    add = {"name": "add", "arguments": {"a": 1, "b": 1}}
    answer = await client.post(
        [
            client.request("tools/call", add, id=1),
            client.request("ping", id=2),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            client.request("no/such", id=3),
            {"jsonrpc": "2.0", "id": 4},
        ]
    )
    assert answer.status == 200
    by_id = {each["id"]: each for each in answer.json()}
    assert sorted(by_id) == [1, 2, 3, 4]
    assert text_of(by_id[1]) == "2"
    assert by_id[2]["result"] == {}
    assert by_id[3]["error"]["code"] == -32601
    assert by_id[4]["error"]["code"] == -32600


async def test_a_batch_that_says_something_becomes_a_stream(client: SessionClient) -> None:
    await client.initialize("2025-03-26")
    answer = await client.post(
        [
            client.request("ping", id=1),
            client.request("tools/call", {"name": "report", "arguments": {}}, id=2),
            client.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 2}}, id=3),
        ]
    )
    assert answer.is_stream
    answers = {each["id"]: each for each in answer.messages if "id" in each}
    assert answers[1]["result"] == {}
    assert text_of(answers[2]) == "reported"
    assert text_of(answers[3]) == "4"


@pytest.mark.covers("1.1.1.4", "1.1.1.2", "1.1.1.3", "1.1.1.7")
async def test_batches_that_have_no_answer_or_are_none(client: SessionClient) -> None:
    await client.initialize("2025-03-26")
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    response = {"jsonrpc": "2.0", "id": 5, "result": {}}
    assert (await client.post([note, note])).status == 202
    assert (await client.post([response, response])).status == 202
    assert (await client.post([])).status == 400
    assert (await client.post([response, client.request("ping")])).status == 400
    assert (await client.post([note] * 101)).status == 400
    [refused] = (await client.post([initialize_request()])).json()
    assert refused["error"]["code"] == -32600
    alone = await client.post([initialize_request()], {"mcp-session-id": None})
    assert alone.status == 400


@pytest.mark.covers("1.1.1.8", "T-6")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_other_revisions_have_no_batches(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    answer = await client.post([client.request("ping")])
    assert answer.status == 400
    assert answer.json()["error"]["code"] == -32600


async def test_a_batch_that_is_cancelled_is_still_answered(client: SessionClient, gate: Gate) -> None:
    await client.initialize("2025-03-26")
    batch = client.start_post([client.request("tools/call", {"name": "silent", "arguments": {}}, id="gone")])
    await gate.reached.wait()
    await client.notify("notifications/cancelled", {"requestId": "gone"})
    await batch.finished()
    [answer] = batch.json()
    assert answer["id"] == "gone"
    assert "error" in answer


# --- cancelling and going away ---


@pytest.mark.covers("1.5.7", "T-10")
@pytest.mark.parametrize("tool", ["silent", "hold"])
async def test_a_cancelled_call_stops_and_its_exchange_ends(
    client: SessionClient, app: HttpApp, gate: Gate, tool: str
) -> None:
    await client.initialize()
    call = client.start_call(tool, id=7)
    await gate.reached.wait()
    assert (await client.notify("notifications/cancelled", {"requestId": 7})).status == 202
    await gate.cancelled.wait()
    await call.finished()
    if tool == "hold":
        assert call.is_stream
        assert [each for each in call.messages if "id" in each] == []
    else:
        assert call.status == 200
        assert "error" in call.json()
    assert nothing_is_left(app)


async def test_a_session_cannot_cancel_what_is_not_its_own(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize()
    other = client.at(app)
    await other.initialize()
    call = client.start_call("silent", id=7)
    await gate.reached.wait()
    await other.notify("notifications/cancelled", {"requestId": 7})
    gate.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "silence"


@pytest.mark.covers("1.5.6", "3.4.2.4", "T-10", "2.1.11")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_a_client_that_goes_away_cancels_nothing_and_comes_back_for_the_rest(
    client: SessionClient, app: HttpApp, gate: Gate, revision: str
) -> None:
    await client.initialize(revision)
    call = client.start_call("hold", id=5)
    await call.message("notifications/message")
    await gate.reached.wait()
    seen = call.last_event_id
    await call.disconnect()
    gate.opened.set()
    await gate.finished.wait()
    assert not gate.cancelled.is_set()
    resumed = await client.get({"last-event-id": seen})
    assert resumed.status == 200
    await resumed.finished()
    assert [each["params"]["data"] for each in resumed.messages if "method" in each] == ["going on"]
    assert text_of(resumed.messages[-1]) == "held"
    assert nothing_is_left(app)


async def test_a_stream_that_is_resumed_while_the_call_runs_goes_on_live(client: SessionClient, gate: Gate) -> None:
    await client.initialize()
    call = client.start_call("hold")
    await call.message("notifications/message")
    await gate.reached.wait()
    # The client lost its connection, and the server has not noticed.
    resumed = await client.get({"last-event-id": call.last_event_id})
    await call.finished()
    gate.opened.set()
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "held"
    assert len(call.messages) == 1


async def test_a_connection_that_takes_nothing_does_not_hold_up_its_successor(
    client: SessionClient, gate: Gate
) -> None:
    await client.initialize()
    call = client.start_call("hold")
    await call.message("notifications/message")
    await gate.reached.wait()
    call.stop_reading()
    gate.opened.set()
    await call.until(lambda: call.stalled)
    resumed = await client.get({"last-event-id": call.last_event_id})
    await resumed.finished()
    assert [each["params"]["data"] for each in resumed.messages if "method" in each] == ["going on"]
    assert text_of(resumed.messages[-1]) == "held"


async def test_a_call_that_nobody_can_hear_of_runs_to_its_end(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize()
    call = client.start_call("silent")
    await gate.reached.wait()
    await call.disconnect()
    gate.opened.set()
    await gate.finished.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert nothing_is_left(app)


async def test_a_quiet_call_becomes_a_stream_that_can_be_resumed(
    client: SessionClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_stream, "OPENS_AFTER", 0.0)
    await client.initialize()
    call = client.start_call("silent")
    await call.until(lambda: call.events)
    assert call.events[0].data == ""
    await call.disconnect()
    gate.opened.set()
    resumed = await client.get({"last-event-id": call.last_event_id})
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "silence"


async def test_a_call_that_ends_when_its_silence_does_is_answered_once(
    client: SessionClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[Callable[[], None]] = []
    silence = SimpleNamespace(start=due.append, stop=lambda callback: due.remove(callback) if callback in due else None)
    monkeypatch.setattr(post_stream, "timeouts", lambda loop, seconds: silence)
    await client.initialize("2025-11-25")
    call = client.start_call("silent")
    await gate.reached.wait()
    gate.opened.set()
    # In the same turn of the loop in which the handler ends.
    asyncio.get_running_loop().call_soon(lambda: [callback() for callback in due])
    await call.finished()
    assert text_of(call.answer()) == "silence"


@pytest.mark.covers("2.1.14", "3.4.4.3", "3.4.4.4")
async def test_a_stream_that_is_closed_early_goes_on_by_get(client: SessionClient, gate: Gate) -> None:
    await client.initialize("2025-11-25")
    call = await client.start_call("poll", id=3).finished()
    assert call.is_stream
    assert call.messages == []
    assert call.events[0].data == ""
    assert call.retry == 70
    polled = await client.get({"last-event-id": call.last_event_id})
    gate.opened.set()
    await polled.finished()
    assert polled.messages[-1]["id"] == 3
    assert text_of(polled.messages[-1]) == "polled"


@pytest.mark.covers("3.4.2.3")
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18"])
async def test_earlier_revisions_are_never_closed_early(client: SessionClient, gate: Gate, revision: str) -> None:
    await client.initialize(revision)
    call = client.start_call("poll")
    await gate.reached.wait()
    assert not call.ended
    gate.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "polled"


async def test_a_question_waits_for_a_client_that_comes_back(client: SessionClient) -> None:
    await client.initialize("2025-11-25", ASKING)
    call = client.start_call("ask")
    await call.until(lambda: call.events)
    primed = call.events[0].id
    question = await call.message("elicitation/create")
    await call.disconnect()
    resumed = await client.get({"last-event-id": primed})
    assert await resumed.message("elicitation/create") == question
    await client.respond(question, {"action": "accept", "content": {"value": "Ada"}})
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "accept: Ada"


async def test_an_answer_too_large_to_keep_is_an_error_for_who_comes_late(
    client: SessionClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_stream, "OPENS_AFTER", 0.0)
    await client.initialize()
    there, away = (client.start_call("large", {"size": 2_000_000}) for _ in range(2))
    for call in (there, away):
        await call.until(lambda call=call: call.events)
    await away.disconnect()
    gate.opened.set()
    await there.finished()
    assert len(text_of(there.answer())) == 2_000_000
    late = await client.get({"last-event-id": away.last_event_id})
    await late.finished()
    assert late.messages[-1]["error"]["code"] == -32603


@pytest.mark.covers("GW-6.5")
async def test_call_joins_the_session_that_another_process_opened_at_a_server() -> None:
    ours, theirs = BackSession("ours", "2025-11-25"), BackSession("theirs", "2025-11-25")
    stored = SessionRecord(backs={"b": theirs})

    async def edit(token: Any, change: Callable[[SessionRecord], None]) -> SessionRecord:
        change(stored)
        return stored

    unused: Any = None
    connection = SessionConnection(unused, SessionRecord(), unused, unused, unused, edit)
    assert await connection.join("b", ours, replaces=None) == theirs
    assert await connection.join("b", ours, replaces=theirs) == ours
