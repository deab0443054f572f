"""Answers and cancellations that arrive while the store is unreachable: none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.http.httpclient import SessionClient, serving
from tests.http.legacy.session_server import ASKING, Gate, make_server
from tests.http.modernclient import text_of
from tests.patience import patience

from toolwire.http.asgi import HttpApp
from toolwire.http.legacy import late_replies
from toolwire.stores import MemoryBus, MemoryKV, StoreFailed, StoreFull, Stores
from toolwire.testing import elapse

ANSWER = {"action": "accept", "content": {"value": "Ada"}}
REVISIONS = pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])


class Outage:
    """A store that is unreachable at times: it refuses, or it does not answer."""

    def __init__(self) -> None:
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.silent = self.is_full = False

    async def check(self) -> None:
        if self.reachable.is_set():
            return
        if self.silent:
            await self.reachable.wait()
            return
        if self.is_full:
            raise StoreFull("the store has no room")
        failure = StoreFailed("the store is not reached")
        failure.temporary = True
        raise failure


class FailingKV(MemoryKV):
    outage: Outage

    async def get(self, key: str) -> bytes | None:
        await self.outage.check()
        return await super().get(key)

    async def put(self, key: str, value: bytes, **options: Any) -> bool:
        await self.outage.check()
        return await super().put(key, value, **options)


class FailingBus(MemoryBus):
    outage: Outage

    async def publish(self, topic: str, data: bytes) -> None:
        await self.outage.check()
        await super().publish(topic, data)


@pytest.fixture
async def outage() -> Outage:
    return Outage()


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def replicas(
    outage: Outage, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[SessionClient, SessionClient]]:
    """One session at two processes that share their stores: a client of the first, and one of the second."""
    kv, bus = FailingKV(), FailingBus()
    kv.outage = bus.outage = outage
    stores = Stores(kv, Stores.memory().log, bus)
    apps: list[HttpApp] = [make_server(gate, stores=stores).http_app() for _ in range(2)]
    async with serving(*apps) as [first, second]:
        # The second process listens from its first request on.
        await second.initialize()
        yield first, first.at(apps[1])
        # At the end, second copies are given up soon.
        monkeypatch.setattr(late_replies, "CONFIRM_SECONDS", 0.01)


async def ask(client: SessionClient, other: SessionClient, revision: str) -> tuple[Any, Any]:
    await client.initialize(revision, ASKING)
    other.headers.update(client.headers)
    call = client.start_call("ask")
    return call, await call.message("elicitation/create")


async def ask_before_outage(
    replicas: tuple[SessionClient, SessionClient], outage: Outage, revision: str = "2025-11-25", *, silent: bool = False
) -> tuple[Any, Any]:
    """Begin a call at the first process, and let the store fail after its question."""
    call, question = await ask(*replicas, revision)
    outage.silent = silent
    outage.reachable.clear()
    return call, question


async def check_answered(call: Any) -> None:
    async with patience("the end of the call"):
        await call.finished()
    assert text_of(call.answer()) == "accept: Ada"


@REVISIONS
@pytest.mark.parametrize("silent", [False, True])
async def test_answer_reaches_a_call_of_this_process_without_the_store(
    replicas: tuple[SessionClient, SessionClient], outage: Outage, gate: Gate, revision: str, silent: bool
) -> None:
    first, _ = replicas
    call, question = await ask_before_outage(replicas, outage, revision, silent=silent)
    async with patience("the answer"):
        assert (await first.respond(question, ANSWER)).status == 202
        await gate.finished.wait()
    outage.reachable.set()
    await check_answered(call)


@REVISIONS
@pytest.mark.parametrize("silent", [False, True])
async def test_answer_for_another_process_is_kept_until_the_store_is_reachable(
    replicas: tuple[SessionClient, SessionClient], outage: Outage, gate: Gate, revision: str, silent: bool
) -> None:
    _, second = replicas
    call, question = await ask_before_outage(replicas, outage, revision, silent=silent)
    posting = asyncio.ensure_future(second.respond(question, ANSWER))
    await elapse(late_replies.CONFIRM_SECONDS)
    async with patience("the response to the answer"):
        assert (await posting).status == 202
    assert not gate.finished.is_set()
    outage.reachable.set()
    await elapse(late_replies.LONGEST_PAUSE)
    await check_answered(call)


async def test_second_copy_of_an_answer_follows_a_failure(
    replicas: tuple[SessionClient, SessionClient], outage: Outage, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that runs the call may hear again only a moment after the store is reachable."""
    first, second = replicas
    call, question = await ask_before_outage(replicas, outage)
    assert (await second.respond(question, ANSWER)).status == 202
    lost = asyncio.Event()

    def lose(session: str, message: Any) -> bool:
        lost.set()
        return True

    with monkeypatch.context() as patch:
        patch.setattr(first.app.sessions.calls, "answered", lose)
        outage.reachable.set()
        await elapse(late_replies.LONGEST_PAUSE)
        async with patience("the first copy"):
            await lost.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not gate.finished.is_set()
    await elapse(late_replies.SECOND_COPY_SECONDS)
    await check_answered(call)


async def test_accepted_answer_survives_a_store_that_is_full_after_the_outage(
    replicas: tuple[SessionClient, SessionClient], outage: Outage
) -> None:
    _, second = replicas
    call, question = await ask_before_outage(replicas, outage)
    assert (await second.respond(question, ANSWER)).status == 202
    outage.is_full = True
    await elapse(late_replies.LONGEST_PAUSE)
    assert len(second.app.sessions._late) == 1
    outage.reachable.set()
    await elapse(late_replies.LONGEST_PAUSE)
    await check_answered(call)


@pytest.mark.parametrize("here", [True, False])
async def test_cancellation_stops_its_call_during_or_after_an_outage(
    replicas: tuple[SessionClient, SessionClient], outage: Outage, gate: Gate, here: bool
) -> None:
    first, second = replicas
    await first.initialize()
    second.headers.update(first.headers)
    first.start_call("hold", id="x")
    await gate.reached.wait()
    outage.reachable.clear()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}
    assert (await (first if here else second).post(cancel)).status == 202
    if not here:
        outage.reachable.set()
        await elapse(late_replies.LONGEST_PAUSE)
    async with patience("the cancellation"):
        await gate.cancelled.wait()
    outage.reachable.set()


async def test_kept_answers_are_bounded_in_bytes(replicas: tuple[SessionClient, SessionClient], outage: Outage) -> None:
    first, second = replicas
    call, question = await ask(first, second, "2025-11-25")
    second.app.sessions._late._shares.limit = 10_000_000
    outage.reachable.clear()
    large = {"action": "accept", "content": {"value": "x" * 1_000_000}}
    statuses = [(await second.respond(question, large)).status for _ in range(20)]
    assert statuses == [202] * 9 + [503] * 11
    outage.reachable.set()
    await elapse(late_replies.LONGEST_PAUSE)
    async with patience("the end of the call"):
        await call.finished()
    # What was passed on, twice after a failure, takes no room any more.
    await elapse(late_replies.SECOND_COPY_SECONDS)
    async with patience("the second copies"):
        while len(second.app.sessions._late):
            await asyncio.sleep(0)
    outage.reachable.clear()
    assert [(await second.respond(question, large)).status for _ in range(9)] == [202] * 9
    outage.reachable.set()


async def test_answer_in_a_session_that_has_ended_is_404(replicas: tuple[SessionClient, SessionClient]) -> None:
    first, second = replicas
    _, question = await ask(first, second, "2025-11-25")
    await first.delete()
    assert (await second.respond(question, ANSWER)).status == 404
