"""A session's requests of its own, and its ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from tests.protocol.pair import CLIENT_CAPABILITIES, Offer, initialize
from tests.wire.served_session import Far, Script, polled_pair, progress, serving, turns

from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, ProtocolError, Timeout, Unreachable
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.peer import Peer
from toolwire.wire.channel import MemoryChannel, memory_pair
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Pending, Session


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
        session.deadlines.look()
        first, ceiling = pending.expires, pending.ceiling
        assert first < ceiling < math.inf
        far.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 3}})
        assert seen == [3]
        assert first < pending.expires <= ceiling
        pending.seconds = 1000
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
        session.deadlines.look()
        first = session.deadlines._alarm
        later = asyncio.create_task(session.request("tools/call", UNSET, timeout=more))
        await far.until(2)
        session.deadlines.look()
        assert session.deadlines._alarm is first
        soon = asyncio.create_task(session.request("tools/call", UNSET, timeout=0.01))
        with pytest.raises(Timeout):
            await soon
        assert not slow.done()
        assert session.deadlines._alarm is not None
        assert session.deadlines._alarm.when() == session.peer.outgoing[1].expires
        for identifier in (1, 2):
            far.send({"jsonrpc": "2.0", "id": identifier, "result": {}})
        await slow
        await later


async def test_progress_before_the_first_look_begins_to_count() -> None:
    async with calling(ceiling=60) as (far, session):
        task = asyncio.create_task(session.request("tools/call", UNSET, timeout=50, on_progress=lambda _: None))
        await far.until(1)
        session.progressed(progress(1, token=1))
        pending: Pending = session.peer.outgoing[1]
        assert pending.expires < pending.ceiling < math.inf
        pending.expires = session.loop.time()
        session.deadlines.ring()
        with pytest.raises(Timeout):
            await task


async def test_progress_without_a_sent_token_leaves_the_deadline_alone() -> None:
    """The id of a request is its token only where the request asked for progress."""
    async with calling(ceiling=60) as (far, session):
        task = asyncio.create_task(session.request("tools/call", UNSET, timeout=5))
        await far.until(1)
        pending: Pending = session.peer.outgoing[1]
        pending.expires = session.loop.time() + 1
        before = pending.expires
        session.progressed(progress(1, token=1))
        assert pending.expires == before
        far.send({"jsonrpc": "2.0", "id": 1, "result": {}})
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
