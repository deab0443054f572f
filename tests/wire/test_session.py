"""A session drives a peer over a channel: tasks, order, limits, deadlines and ends. No server framework here."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from tests.protocol.pair import CLIENT_CAPABILITIES, Offer, initialize, modern

from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, ProtocolError, Timeout, Unreachable
from toolwire.protocol.framing import Oversized
from toolwire.protocol.lifecycle import ClientLifecycle, Incoming, ServerLifecycle
from toolwire.protocol.peer import Notice, Peer
from toolwire.wire import session as session_module
from toolwire.wire.channel import Channel, MemoryChannel, memory_pair
from toolwire.wire.outlet import Outlet
from toolwire.wire.pending_requests import Pending
from toolwire.wire.session import Session

Handle = Callable[[Incoming, Outlet], Awaitable[Any]]


class Script:
    """A handler whose calls wait until the test lets them go, by the name in their params."""

    def __init__(self, handle: Handle | None = None) -> None:
        self._handle = handle
        self.started: list[str] = []
        self.ended: list[str] = []
        self.gates: dict[str, asyncio.Future[Any]] = {}
        self.requests: list[Incoming] = []
        self.outlets: list[Outlet] = []
        self.notices: list[Notice] = []
        self.closed = 0
        self._changed = asyncio.Event()

    async def handle(self, request: Incoming, outlet: Outlet) -> Any:
        self.requests.append(request)
        self.outlets.append(outlet)
        if self._handle is not None:
            return await self._handle(request, outlet)
        name = request.params.name
        self.started.append(name)
        self._changed.set()
        try:
            return await self.gate(name)
        finally:
            self.ended.append(name)
            self._changed.set()

    def gate(self, name: str) -> asyncio.Future[Any]:
        return self.gates.setdefault(name, asyncio.get_running_loop().create_future())

    def let(self, *names: str) -> None:
        for name in names:
            self.gate(name).set_result({"name": name})

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def notified(self, notice: Notice, session: Session) -> None:
        self.notices.append(notice)
        if notice.method == "notifications/progress":
            session.progressed(notice.params)

    def closing(self, session: Session) -> None:
        self.closed += 1
        self._changed.set()


class Far:
    """The other end, in plain JSON."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.received: list[Any] = []
        self._arrived = asyncio.Event()
        channel.attach(self._take, lambda error: None)

    def _take(self, data: bytes) -> None:
        self.received.append(json.loads(data))
        self._arrived.set()

    def send(self, message: Any) -> None:
        self.channel.write(message if isinstance(message, bytes) else json.dumps(message).encode())

    def call(self, *names: str) -> None:
        """`tools/call` of each name, which is its id too."""
        for name in names:
            self.send({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": modern(name=name)})

    def cancel(self, name: str) -> None:
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": name}})

    async def until(self, count: int) -> list[Any]:
        while len(self.received) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.received

    @property
    def answered(self) -> list[Any]:
        return [message["id"] for message in self.received if "method" not in message]


class Polled(MemoryChannel):
    """A channel that can only be read."""

    def attach(self, feed: Any, ended: Any) -> bool:
        return False


def polled_pair() -> tuple[MemoryChannel, MemoryChannel]:
    left, right = MemoryChannel(), Polled()
    left._peer, right._peer = right, left
    return left, right


@asynccontextmanager
async def serving(
    script: Script, pair: Callable[[], tuple[MemoryChannel, MemoryChannel]] = memory_pair, **options: Any
) -> AsyncIterator[tuple[Far, Session]]:
    ours, theirs = pair()
    session = Session(theirs, Peer(ServerLifecycle(Offer())), script, **options)
    running = asyncio.create_task(session.run())
    try:
        yield Far(ours), session
    finally:
        await session.close()
        await running


@asynccontextmanager
async def calling(revision: str = "2025-11-25", **options: Any) -> AsyncIterator[tuple[Far, Session]]:
    """A client's session; the far end is what the test makes of it."""
    ours, theirs = memory_pair()
    terms = ClientLifecycle(lambda revision: CLIENT_CAPABILITIES)
    terms.revision = revision
    session = Session(theirs, Peer(terms), Script(), **options)
    running = asyncio.create_task(session.run())
    try:
        yield Far(ours), session
    finally:
        await session.close()
        await running


async def turns(count: int = 5) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


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


async def test_nothing_new_is_started_for_a_reader_that_is_behind() -> None:
    class Congested(MemoryChannel):
        congested = True

        def _is_behind(self) -> bool:
            return True

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


def progress(value: float, token: str | int = "t") -> t.ProgressNotificationParams:
    return t.ProgressNotificationParams(progress_token=token, progress=value)


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


# --- requests of ours ---


@pytest.mark.covers("1.5.7", "CAN-1", "STD-9", "2.2.27")
async def test_a_caller_that_gives_up_tells_the_other_side_and_ignores_a_late_answer() -> None:
    async with calling() as (far, session):
        task = asyncio.create_task(session.request("tools/call", UNSET))
        (sent,) = await far.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert far.received[1]["method"] == "notifications/cancelled"
        assert far.received[1]["params"] == {"requestId": sent["id"], "reason": "The caller gave up"}
        far.send({"jsonrpc": "2.0", "id": sent["id"], "result": {}})
        await turns()
        assert len(far.received) == 2


@pytest.mark.covers("CAN-4", "2.1.19", "ERR-3")
async def test_a_deadline_cancels_and_is_told_apart_from_an_error_of_the_peer() -> None:
    async with calling() as (far, session):
        with pytest.raises(Timeout, match=r"tools/call was not answered within 0\.01 seconds") as caught:
            await session.request("tools/call", UNSET, timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        assert not isinstance(caught.value, ProtocolError)
        assert far.received[1]["params"] == {"requestId": 1, "reason": "The deadline passed"}
        assert not session.peer.outgoing


@pytest.mark.covers("1.3.1.6", "T-9")
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_initialize_is_never_cancelled(how: str) -> None:
    async with calling() as (far, session):
        if how == "timeout":
            with pytest.raises(Timeout):
                await session.request("initialize", UNSET, timeout=0.01)
        else:
            task = asyncio.create_task(session.request("initialize", UNSET))
            await far.until(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await turns()
        assert [message["method"] for message in far.received] == ["initialize"]


@pytest.mark.covers("CAN-4")
async def test_progress_moves_the_deadline_up_to_a_ceiling() -> None:
    seen: list[float] = []
    async with calling(ceiling=60) as (far, session):
        task = asyncio.create_task(
            session.request("tools/call", UNSET, timeout=50, on_progress=lambda params: seen.append(params.progress))
        )
        await far.until(1)
        pending: Pending = session.peer.outgoing[1]
        assert pending.expires == math.inf  # A long time begins with the first look.
        session._look()
        first, ceiling = pending.expires, pending.ceiling
        assert first < ceiling < math.inf
        far.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 3}})
        assert seen == [3]
        assert first < pending.expires <= ceiling
        pending.timeout = 1000
        far.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 4}})
        assert pending.expires == ceiling
        session.progressed(progress(5, token=99))  # Nobody's.
        far.send({"jsonrpc": "2.0", "id": 1, "result": {}})
        await task
        assert seen == [3, 4]


@pytest.mark.parametrize(("seconds", "more"), [(10, 15), (50, 60)])
async def test_one_timer_serves_many_deadlines(seconds: float, more: float) -> None:
    async with calling() as (far, session):
        slow = asyncio.create_task(session.request("tools/call", UNSET, timeout=seconds))
        await far.until(1)
        session._look()
        first = session._alarm
        later = asyncio.create_task(session.request("tools/call", UNSET, timeout=more))
        await far.until(2)
        session._look()
        assert session._alarm is first
        soon = asyncio.create_task(session.request("tools/call", UNSET, timeout=0.01))
        with pytest.raises(Timeout):
            await soon
        assert not slow.done()
        assert session._alarm is not None
        assert session._alarm.when() == session.peer.outgoing[1].expires
        for identifier in (1, 2):
            far.send({"jsonrpc": "2.0", "id": identifier, "result": {}})
        await slow
        await later


async def test_progress_before_the_first_look_begins_to_count() -> None:
    async with calling(ceiling=60) as (far, session):
        task = asyncio.create_task(session.request("tools/call", UNSET, timeout=50))
        await far.until(1)
        session.progressed(progress(1, token=1))
        pending: Pending = session.peer.outgoing[1]
        assert pending.expires < pending.ceiling < math.inf
        pending.expires = session.loop.time()
        session._wake()
        with pytest.raises(Timeout):
            await task


async def test_progress_without_a_deadline_is_only_told() -> None:
    seen: list[float] = []
    async with calling() as (far, session):
        task = asyncio.create_task(
            session.request("tools/call", UNSET, on_progress=lambda params: seen.append(params.progress))
        )
        await far.until(1)
        session.progressed(progress(1, token=1))
        assert session.peer.outgoing[1].expires == math.inf
        far.send({"jsonrpc": "2.0", "id": 1, "result": {"ok": 1}})
        result = await task
        assert result is not None
        assert msgspec.json.decode(result) == {"ok": 1}
        assert seen == [1]


async def test_an_error_of_the_peer_is_raised() -> None:
    async with calling() as (far, session):
        task = asyncio.create_task(session.request("tools/call", UNSET, timeout=30))
        await far.until(1)
        far.send({"jsonrpc": "2.0", "id": 1, "error": {"code": -5, "message": "no"}})
        with pytest.raises(ProtocolError) as caught:
            await task
        assert caught.value.code == -5
        assert len(far.received) == 1


async def test_a_request_can_have_an_id_of_its_own() -> None:
    async with calling() as (far, session):
        task = asyncio.create_task(session.request("tools/call", UNSET, identifier="mine"))
        (sent,) = await far.until(1)
        assert sent["id"] == "mine"
        far.send({"jsonrpc": "2.0", "id": "mine", "result": {}})
        await task


# --- ends ---


@pytest.mark.covers("ERR-3")
@pytest.mark.parametrize("pair", [memory_pair, polled_pair])
async def test_when_the_other_side_goes_away_nobody_waits_on(pair: Any) -> None:
    ours, theirs = pair()
    session = Session(theirs, Peer(ClientLifecycle(lambda revision: {})), Script())
    running = asyncio.create_task(session.run())
    waiting = asyncio.create_task(session.request("tools/call", UNSET))
    await turns()
    await ours.close()
    with pytest.raises(OutcomeUnknown, match="The connection ended before tools/call was answered"):
        await waiting
    await running
    assert session.error is None
    with pytest.raises(Unreachable):
        await session.request("tools/call", UNSET)
    assert session.notify("notifications/x", UNSET) is False
    await session.close()


async def test_a_transport_that_breaks_is_an_end_like_any_other() -> None:
    class Broken(MemoryChannel):
        def attach(self, feed: Any, ended: Any) -> bool:
            return False

        async def read(self) -> bytes | None:
            raise OSError("cable")

    session = Session(Broken(), Peer(ClientLifecycle(lambda revision: {})), Script())
    await session.run()
    assert isinstance(session.error, OSError)
    await session.close()


@pytest.mark.parametrize("pair", [memory_pair, polled_pair])
async def test_end_makes_run_return(pair: Any) -> None:
    _, theirs = pair()
    session = Session(theirs, Peer(ServerLifecycle(Offer())), Script())
    running = asyncio.create_task(session.run())
    await turns()
    session.end()
    session.end()
    await running
    await session.close()


async def test_close_lets_what_runs_and_what_waits_finish_within_its_grace() -> None:
    script = Script()
    async with serving(script, in_flight=1) as (far, session):
        far.call("a", "b")
        await script.until(lambda: script.started == ["a"])
        closing = asyncio.create_task(session.close(grace=30))
        await turns()
        far.call("late")
        script.let("a", "b")
        await closing
        late, *answered = far.received
        assert late["error"] == {"code": -32603, "message": "The server is shutting down"}
        assert [message["id"] for message in answered] == ["a", "b"]
        assert script.closed == 1
        await session.close()
        assert script.closed == 1


async def test_close_cancels_what_does_not_finish() -> None:
    script = Script()
    async with serving(script, in_flight=1) as (far, session):
        far.call("a", "b")
        await script.until(lambda: script.started == ["a"])
        await session.close(grace=0.01)
        assert script.ended == ["a"]
        assert script.started == ["a"]
        assert far.received == []
        assert not session.channel.is_connected


async def test_close_that_is_cancelled_still_ends_what_runs() -> None:
    script = Script()
    async with serving(script) as (far, session):
        far.call("a")
        await script.until(lambda: script.started == ["a"])
        closing = asyncio.create_task(session.close(grace=30))
        await script.until(lambda: script.closed == 1)
        closing.cancel()
        await script.until(lambda: script.ended == ["a"])


async def test_what_waits_is_not_begun_for_a_client_that_has_gone() -> None:
    script = Script()
    async with serving(script, in_flight=1) as (far, session):
        far.call("a", "b")
        await script.until(lambda: script.started == ["a"])
        await far.channel.close()
        script.let("a", "b")
        await session.close(grace=30)
        assert script.started == ["a"]


async def test_close_survives_a_handler_that_does_not(caplog: pytest.LogCaptureFixture) -> None:
    class Touchy(Script):
        def closing(self, session: Session) -> None:
            raise RuntimeError("touchy")

    async with serving(Touchy()) as (_, session):
        await session.close()
        assert not session.channel.is_connected
    assert "closing a connection failed" in caplog.text


async def test_close_fails_the_requests_that_are_still_out() -> None:
    async with calling() as (far, session):
        waiting = asyncio.create_task(session.request("tools/call", UNSET))
        await far.until(1)
        await session.close()
        with pytest.raises(OutcomeUnknown):
            await waiting


async def test_a_request_over_a_channel_that_is_gone_is_unreachable_and_cancels_nothing() -> None:
    async with calling() as (far, session):
        session.channel._closed = True  # type: ignore[attr-defined]
        with pytest.raises(Unreachable):
            await session.request("tools/call", UNSET, timeout=30)
        assert not session.peer.outgoing
        assert far.received == []


async def test_two_sessions_back_to_back() -> None:
    async def add(request: Incoming, outlet: Outlet) -> Any:
        roots = await outlet.request("roots/list", t.RequestParams())
        return {"roots": msgspec.json.decode(roots)["roots"], "for": request.params.name}

    async def roots(request: Incoming, outlet: Outlet) -> Any:
        return {"roots": [{"uri": "file:///x"}]}

    left, right = memory_pair()
    server = Session(right, Peer(ServerLifecycle(Offer())), Script(add))
    terms = ClientLifecycle(lambda revision: CLIENT_CAPABILITIES)
    client = Session(left, Peer(terms), Script(roots))
    runs = [asyncio.create_task(each.run()) for each in (server, client)]
    await client.request("initialize", initialize("2025-06-18"))
    terms.revision = "2025-06-18"
    client.notify("notifications/initialized", UNSET)
    results = await asyncio.gather(*(client.request("tools/call", {"name": str(n)}, timeout=30) for n in range(20)))
    decoded = [msgspec.json.decode(result) for result in results if result is not None]
    assert decoded == [{"roots": [{"uri": "file:///x"}], "for": str(n)} for n in range(20)]
    await client.close()
    await server.close()
    await asyncio.gather(*runs)
