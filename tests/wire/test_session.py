"""A session drives a peer over a channel: serving, limits and cancelling. No server framework here."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import msgspec
import pytest
from tests.protocol.pair import initialize
from tests.wire.served_session import Script, polled_pair, progress, serving, turns

from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.framing import Oversized
from toolwire.protocol.lifecycle import Incoming
from toolwire.wire import session as session_module
from toolwire.wire.channel import MemoryChannel, memory_pair
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session

# --- serving ---


@pytest.mark.covers("STL-3")
@pytest.mark.parametrize("pair", [memory_pair, polled_pair])
async def test_requests_run_side_by_side_and_are_answered_as_they_end(pair: Any) -> None:
    script = Script()
    async with serving(script, pair) as (far, session):
        far.call("a", "b", "c")
        await script.until(lambda: len(script.started) == 3)
        script.let("c")
        await far.until(1)
        script.let("a", "b")
        await far.until(3)
        assert far.received == [{"jsonrpc": "2.0", "id": name, "result": {"name": name}} for name in ("c", "a", "b")]
        assert not session.peer.incoming


async def test_a_protocol_error_of_a_handler_is_the_answer() -> None:
    async def handle(request: Incoming, outlet: Outlet) -> Any:
        raise ProtocolError(-32602, "no", {"why": 1})

    async with serving(Script(handle)) as (far, _):
        far.call("a")
        (answer,) = await far.until(1)
        assert answer["error"] == {"code": -32602, "message": "no", "data": {"why": 1}}


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("secret"),
        SystemExit("secret"),
        KeyboardInterrupt("secret"),
        GeneratorExit("secret"),
        BaseException("secret"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_else_a_handler_raises_is_masked_logged_and_ends_only_its_request(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(request: Incoming, outlet: Outlet) -> Any:
        if request.id == "bad":
            raise error
        return {}

    async with serving(Script(handle)) as (far, _):
        far.call("bad")
        (answer,) = await far.until(1)
        assert answer == {"jsonrpc": "2.0", "id": "bad", "error": {"code": -32603, "message": "Internal error"}}
        far.call("good")
        await far.until(2)
        assert far.received[1]["result"] == {}
    assert "the answer to tools/call could not be formed" in caplog.text
    assert "secret" in caplog.text


@pytest.mark.parametrize("of_the_task", [False, True])
async def test_a_cancellation_from_within_a_handler_does_not_leave_its_caller_waiting(of_the_task: bool) -> None:
    async def handle(request: Incoming, outlet: Outlet) -> Any:
        if not of_the_task:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with serving(Script(handle)) as (far, _):
        far.call("a")
        (answer,) = await far.until(1)
        assert answer["error"] == {"code": -32603, "message": "Internal error"}


@pytest.mark.parametrize("result", [object(), {"a": {1, 2, object()}}, float, {"self": None}])
async def test_a_result_that_is_no_json_is_an_internal_error(result: Any, caplog: pytest.LogCaptureFixture) -> None:
    if isinstance(result, dict) and "self" in result:
        result["self"] = result

    async def handle(request: Incoming, outlet: Outlet) -> Any:
        return result

    async with serving(Script(handle)) as (far, session):
        far.call("a")
        (answer,) = await far.until(1)
        assert answer["error"] == {"code": -32603, "message": "Internal error"}
        assert not session.peer.incoming


async def test_the_size_of_a_result_is_bounded() -> None:
    async def handle(request: Incoming, outlet: Outlet) -> Any:
        return {"pad": request.params.name}

    fits = "x" * 20
    size = len(json.dumps({"jsonrpc": "2.0", "id": fits, "result": {"pad": fits}}, separators=(",", ":")))
    async with serving(Script(handle), max_result=size) as (far, _):
        far.call(fits, fits + "x")
        good, bad = await far.until(2)
        assert good["result"] == {"pad": fits}
        assert bad["error"] == {"code": -32603, "message": f"The result is over the limit of {size} bytes"}


async def test_an_oversized_frame_is_refused_and_the_connection_goes_on() -> None:
    script = Script()
    async with serving(script) as (far, session):
        session.feed(Oversized())
        far.call("a")
        script.let("a")
        refused, answered = await far.until(2)
        assert refused == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "The message is over the size limit"}}
        assert answered["result"] == {"name": "a"}


@pytest.mark.parametrize("principal", [None, "ada"])
async def test_the_principal_of_a_connection_is_that_of_its_requests(principal: str | None) -> None:
    script = Script()
    async with serving(script, principal=principal) as (far, _):
        far.call("a")
        await script.until(lambda: bool(script.started))
        assert script.requests[0].principal == principal


async def test_a_failing_handler_of_notifications_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Touchy(Script):
        def notified(self, notice: Notice, session: Session) -> None:
            raise RuntimeError("touchy")

    script = Touchy()
    async with serving(script) as (far, _):
        far.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize("2025-11-25")})
        far.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        far.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a"}})
        script.let("a")
        await far.until(2)
    assert "the handler of a notification failed" in caplog.text
    assert "touchy" in caplog.text


async def test_what_is_ignored_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Script()) as (far, _):
        with caplog.at_level(logging.WARNING, "toolwire.wire"):
            far.send({"jsonrpc": "2.0", "result": {}})
            await turns()
        assert far.received == []
    assert "ignored a message: A result without an id belongs to no request" in caplog.text


async def test_ignored_messages_are_counted_in_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Script()) as (far, session):
        session.peer_name = "noisy"
        with caplog.at_level(logging.WARNING, "toolwire.wire"):
            for _ in range(100):
                far.send({"jsonrpc": "2.0", "result": {}})
            await turns()
            monkeypatch.setattr("toolwire.wire.session.IGNORED_SECONDS", 0.0)
            session._next_ignored_line = 0.0
            far.send({"jsonrpc": "2.0", "result": {}})
            await turns()
    lines = [record.message for record in caplog.records if "ignored" in record.message]
    reason = "A result without an id belongs to no request"
    assert lines == [f"noisy: ignored a message: {reason}", f"noisy: ignored 100 messages, the last one: {reason}"]


async def test_nothing_new_is_started_for_a_reader_that_is_behind() -> None:
    class Congested(MemoryChannel):
        congested = True

        def _count_unread(self) -> None:
            return

        async def drain(self) -> None:
            await self.caught_up.wait()

    def pair() -> tuple[MemoryChannel, MemoryChannel]:
        left, right = MemoryChannel(), Congested()
        left._peer, right._peer = right, left
        right.caught_up = asyncio.Event()  # type: ignore[attr-defined]
        return left, right

    script = Script()
    async with serving(script, pair) as (far, session):
        far.call("a")
        await turns()
        assert script.started == []
        channel: Any = session.channel
        channel.congested = False
        channel.caught_up.set()
        await script.until(lambda: script.started == ["a"])


class Reluctant(MemoryChannel):
    """A channel whose other end reads when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0
        self.read_up = asyncio.Event()

    async def taken(self) -> None:
        self.waited += 1
        await self.read_up.wait()


def reluctant_pair() -> tuple[MemoryChannel, MemoryChannel]:
    left, right = MemoryChannel(), Reluctant()
    left._peer, right._peer = right, left
    return left, right


async def told_first(request: Incoming, outlet: Outlet) -> Any:
    if request.params.name != "plain":
        outlet.notify("notifications/progress", t.ProgressNotificationParams(progress_token="p", progress=1))
    if request.params.name == "fails":
        raise ProtocolError(-32000, "failed")
    return {"name": request.params.name}


@pytest.mark.parametrize("name", ["works", "fails"])
async def test_an_answer_lets_the_notifications_of_its_request_go_first(name: str) -> None:
    async with serving(Script(told_first), reluctant_pair) as (far, session):
        channel: Any = session.channel
        far.call("plain", name)
        await far.until(2)
        await turns()
        # A call that told nothing waits for nobody, though others do.
        assert [message.get("id", message.get("method")) for message in far.received] == [
            "plain",
            "notifications/progress",
        ]
        assert channel.waited == 1
        channel.read_up.set()
        assert (await far.until(3))[-1]["id"] == name


@pytest.mark.parametrize("hurried", [True, False])
async def test_an_answer_that_waits_for_its_reader_ends_with_the_connection(hurried: bool) -> None:
    async with serving(Script(told_first), reluctant_pair) as (far, session):
        channel: Any = session.channel
        far.call("works")
        await far.until(1)
        while not channel.waited:
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(session.close(600))
        await turns()
        if hurried:
            session.hurry()
        else:
            channel.read_up.set()
        await closing
        assert far.answered == ([] if hurried else ["works"])
        assert session.serving == {}


async def test_whoever_is_in_a_hurry_gives_calls_no_more_time() -> None:
    script = Script()
    async with serving(script) as (far, session):
        far.call("a", "b")
        await script.until(lambda: script.started == ["a", "b"])
        closing = asyncio.ensure_future(session.close(600))
        script.let("a")
        await far.until(1)
        assert not closing.done()
        session.hurry()
        await closing
        assert far.answered == ["a"]
        assert script.ended == ["a", "b"]


# --- limits ---


@pytest.mark.parametrize("pair", [memory_pair, polled_pair])
async def test_only_so_many_run_at_once_and_the_rest_keep_their_order(pair: Any) -> None:
    script = Script()
    async with serving(script, pair, in_flight=2) as (far, _):
        far.call("a", "b", "c", "d", "e")
        await script.until(lambda: len(script.started) == 2)
        await turns()
        assert script.started == ["a", "b"]
        script.let("b")
        await script.until(lambda: len(script.started) == 3)
        await turns()
        assert script.started == ["a", "b", "c"]
        script.let("a", "c", "d", "e")
        await far.until(5)
        assert script.started == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("pair", [memory_pair, polled_pair])
async def test_a_flood_is_held_back_and_loses_nothing(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BACKLOG", 4)
    script = Script()
    names = [f"n{number}" for number in range(30)]
    async with serving(script, pair, in_flight=1) as (far, session):
        far.call(*names)
        await turns(60)
        assert script.started == ["n0"]
        assert len(session._backlog) == 4
        script.let(*names)
        await far.until(30)
        assert script.started == names
        assert far.answered == names


@pytest.mark.parametrize("pair", [memory_pair, polled_pair])
async def test_an_answer_gets_through_a_flood(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BACKLOG", 2)
    release = asyncio.Event()

    async def handle(request: Incoming, outlet: Outlet) -> Any:
        if request.id != 1:
            return {}
        await release.wait()
        answer = await outlet.request("roots/list", t.RequestParams())
        return msgspec.json.decode(answer)

    async with serving(Script(handle), pair, in_flight=1) as (far, session):
        far.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize("2025-11-25")})
        await far.until(1)
        for number in range(1, 12):
            far.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "x"}})
        await turns(30)
        assert len(session._backlog) == 2  # Reading has stopped.
        release.set()
        while not [message for message in far.received if message.get("method") == "roots/list"]:
            await turns()
        asked = next(message for message in far.received if message.get("method") == "roots/list")
        far.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}})
        await far.until(13)
        answers = {message["id"]: message for message in far.received if "method" not in message}
        assert answers[1]["result"] == {"roots": []}
        refused = [number for number in range(2, 12) if "error" in answers[number]]
        # Reading could not stop while the answer was awaited, so what went beyond twice the backlog was refused.
        assert refused == list(range(6, 12))
        assert answers[6]["error"] == {"code": -32603, "message": "Too many requests; try again"}


# --- cancelling ---


@pytest.mark.covers("CAN-2", "1.5.4", "STD-10")
async def test_a_running_request_is_stopped_and_never_answered() -> None:
    script = Script()
    async with serving(script) as (far, session):
        far.call("a", "b")
        await script.until(lambda: len(script.started) == 2)
        far.cancel("a")
        await script.until(lambda: script.ended == ["a"])
        assert script.gates["a"].cancelled()
        assert script.outlets[0].notify("notifications/progress", progress(1)) is False
        script.let("b")
        await far.until(1)
        await turns()
        assert far.answered == ["b"]
        far.cancel("b")
        far.cancel("nobody")
        far.call("a")  # The id is free again.
        script.gates.pop("a")
        script.let("a")
        await far.until(2)
        assert far.answered == ["b", "a"]
        assert not session.peer.incoming


@pytest.mark.covers("STD-10", "1.5.5")
async def test_a_handler_that_will_not_stop_is_not_heard_any_more() -> None:
    finish = asyncio.Event()
    stubborn = asyncio.Event()

    async def handle(request: Incoming, outlet: Outlet) -> Any:
        if request.id == "b":
            return {}
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stubborn.set()
            await finish.wait()
            assert outlet.notify("notifications/progress", progress(1)) is False
        return {"too": "late"}

    script = Script(handle)
    async with serving(script) as (far, _):
        far.call("a")
        await turns()
        far.cancel("a")
        await stubborn.wait()
        finish.set()
        await turns()
        far.call("b")
        await far.until(1)
        assert far.received == [{"jsonrpc": "2.0", "id": "b", "result": {}}]


@pytest.mark.covers("CAN-2")
async def test_a_queued_request_is_never_started() -> None:
    script = Script()
    async with serving(script, in_flight=1) as (far, _):
        far.call("a", "b", "c")
        await script.until(lambda: script.started == ["a"])
        far.cancel("b")
        script.let("a", "c")
        await far.until(2)
        assert script.started == ["a", "c"]
        assert far.answered == ["a", "c"]


@pytest.mark.covers("CAN-2")
async def test_a_request_that_is_cancelled_before_it_begins_makes_room_for_the_next() -> None:
    script = Script()
    async with serving(script, in_flight=1) as (far, _):
        far.call("a", "b")
        far.cancel("a")
        script.let("b")
        await far.until(1)
        assert script.started == ["b"]
        assert far.answered == ["b"]


async def test_an_outlet_is_open_as_long_as_its_request() -> None:
    async def handle(request: Incoming, outlet: Outlet) -> Any:
        assert outlet.notify("notifications/progress", progress(1)) is True
        assert outlet.congested is False
        await outlet.drain()
        return {}

    script = Script(handle)
    async with serving(script) as (far, session):
        far.call("a")
        await far.until(2)
        assert far.received[0]["method"] == "notifications/progress"
        assert far.received[0]["params"] == {"progressToken": "t", "progress": 1}
        (outlet,) = script.outlets
        assert outlet.connection is session
        assert outlet.notify("notifications/progress", progress(2)) is False
        assert len(far.received) == 2
