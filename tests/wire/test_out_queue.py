"""The bounds of outgoing queues: what is dropped, who waits, and what is always queued."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.cases import cases
from tests.wire.served_session import Script, serving, turns

from toolwire.protocol.lifecycle import Incoming
from toolwire.util.out_queue import CONGESTED, FULL, OutQueue
from toolwire.wire.channel import memory_pair
from toolwire.wire.outlet import Outlet

PROGRESS, MESSAGE, CHANGED = (
    "notifications/progress",
    "notifications/message",
    "notifications/notes/touched",
)


@cases(("size", "optional", "other"), [(CONGESTED, 1, 1), (CONGESTED + 1, 0, 1), (FULL + 1, 0, 0)])
def test_optional_notifications_are_dropped_first(size: int, optional: int, other: int) -> None:
    queue = OutQueue()
    queue.put(b"x" * size)
    assert (queue.admits(True), queue.admits(False)) == (bool(optional), bool(other))
    assert queue.dropped == 2 - optional - other


async def test_producers_wait_until_bytes_are_sent() -> None:
    queue = OutQueue()
    queue.put(b"x" * (CONGESTED + 1))
    waiting = asyncio.ensure_future(queue.drain())
    data = queue.take_all()
    await turns()
    assert not waiting.done()
    queue.remove(len(data))
    await waiting
    assert not queue.size


def test_a_queue_that_drops_instead_of_waiting_has_room_up_to_its_limit() -> None:
    queue = OutQueue(limit=5)
    queue.put(b"abc")
    assert (queue.has_room(2), queue.has_room(3)) == (True, False)
    assert queue.pop() == b"abc"
    assert (queue.size, queue.has_room(5), bool(queue)) == (0, True, False)


async def test_producers_continue_when_nothing_more_is_sent() -> None:
    queue = OutQueue()
    queue.put(b"x" * (CONGESTED + 1))
    waiting = [asyncio.ensure_future(queue.drain()), asyncio.ensure_future(queue.flush())]
    await turns()
    queue.close()
    await asyncio.gather(*waiting)


@cases(("method", "bound"), [(PROGRESS, CONGESTED), (MESSAGE, CONGESTED), (CHANGED, FULL)])
async def test_unread_connection_holds_a_bounded_number_of_bytes(method: str, bound: int) -> None:
    sent: list[bool] = []

    async def handle(request: Incoming, outlet: Outlet) -> Any:
        sent.extend(outlet.notify(method, {"text": "x" * 10_000}) for _ in range(1000))  # type: ignore[arg-type]
        assert outlet.full is (bound == FULL)
        return {}

    left, right = memory_pair()
    pair: Callable[[], Any] = lambda: (left, right)  # noqa: E731
    async with serving(Script(handle), pair) as (far, _):
        far.call("a")
        left.pause()
        await turns()
        assert bound < left._inbox.size < bound + 20_000
        left.resume()
        received = await far.until(sum(sent) + 1)
    assert not all(sent)
    # The answer is never dropped.
    assert received[-1] == {"jsonrpc": "2.0", "id": "a", "result": {}}
