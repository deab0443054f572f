"""A process whose lease was lost is gone, for every process that looks, and in no other case."""

from __future__ import annotations

import pytest

from toolwire.http.legacy.process_watch import LEASE_SECONDS, ProcessWatch
from toolwire.stores import MemoryKV, StoreFailed
from toolwire.stores.memory_queue import MemoryQueue
from toolwire.wire import process_identity

PROCESS = "machine/1/2/there"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Queue(MemoryQueue):
    """A queue that can be away."""

    is_away = False

    async def stale(self) -> list[tuple[str, int]]:
        if self.is_away:
            raise StoreFailed("The store is away.")
        return await super().stale()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Queue:
    """The store has the same clock here as the process that looks."""
    return Queue(MemoryKV(clock=clock))


async def looks(watch: ProcessWatch, clock: Clock, seconds: float) -> list[bool]:
    """Look for some time, as often as a process does; return what each look found."""
    found = []
    until = clock.now + seconds
    while clock.now < until:
        clock.now += watch.interval
        found.append(await watch.gone({PROCESS}) == {PROCESS})
    return found


@pytest.mark.covers("FLT-20")
async def test_a_process_that_renews_no_more_is_gone(queue: Queue, clock: Clock) -> None:
    await queue.renew(PROCESS, LEASE_SECONDS)
    watch = ProcessWatch(queue, clock)
    # The lease itself, and the same time once more by the clock of the process that looks.
    assert await looks(watch, clock, 2 * LEASE_SECONDS) == [False] * 5 + [True]
    # Any other process knows it at once, and for good.
    assert await ProcessWatch(queue, clock).gone({PROCESS, "other"}) == {PROCESS, "other"}
    assert not await queue.renew(PROCESS, LEASE_SECONDS)


async def test_a_process_that_renews_is_there(queue: Queue, clock: Clock) -> None:
    watch = ProcessWatch(queue, clock)
    for _ in range(10):
        await queue.renew(PROCESS, LEASE_SECONDS)
        assert not any(await looks(watch, clock, 1.5 * LEASE_SECONDS))


async def test_a_process_that_looks_for_a_short_time_only_is_enough_for_the_next(queue: Queue, clock: Clock) -> None:
    """Processes that live for twenty seconds each find a lease lost that ran out before they were started."""
    await queue.renew(PROCESS, LEASE_SECONDS)
    first = ProcessWatch(queue, clock)
    assert not any(await looks(first, clock, 20.0))
    assert (await looks(ProcessWatch(queue, clock), clock, 20.0))[-1]


async def test_while_the_store_is_away_nobody_is_gone(queue: Queue, clock: Clock) -> None:
    await queue.renew(PROCESS, LEASE_SECONDS)
    watch = ProcessWatch(queue, clock)
    assert not any(await looks(watch, clock, 2 * LEASE_SECONDS - watch.interval))
    queue.is_away = True
    with pytest.raises(StoreFailed):
        await looks(watch, clock, 60.0)
    queue.is_away = False
    assert not any(await looks(watch, clock, LEASE_SECONDS))
    await queue.renew(PROCESS, LEASE_SECONDS)
    assert not any(await looks(watch, clock, LEASE_SECONDS))


async def test_leases_that_no_stream_waits_for_are_left_alone(queue: Queue, clock: Clock) -> None:
    await queue.renew("task runner", LEASE_SECONDS)
    await queue.renew(PROCESS, LEASE_SECONDS)
    watch = ProcessWatch(queue, clock)
    await looks(watch, clock, 3 * LEASE_SECONDS)
    assert [name for name, _ in await queue.leases()] == ["task runner"]


async def test_a_process_that_has_ended_on_this_machine_is_gone_sooner(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.renew(PROCESS, LEASE_SECONDS)
    await queue.renew("machine/3/4/lives", LEASE_SECONDS)
    monkeypatch.setattr(process_identity, "is_gone", lambda identity: identity == "machine/1/2")
    watch = ProcessWatch(queue, clock)
    assert await looks(watch, clock, LEASE_SECONDS) == [False, False, True]
    assert await watch.gone({PROCESS, "machine/3/4/lives"}) == {PROCESS}


async def test_a_process_of_a_machine_from_the_same_snapshot_is_not_gone(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is free on this machine, and it renews its lease on the other."""
    monkeypatch.setattr(process_identity, "is_gone", lambda identity: identity == "machine/1/2")
    watch = ProcessWatch(queue, clock)
    for _ in range(12):
        await queue.renew(PROCESS, LEASE_SECONDS)
        assert await looks(watch, clock, watch.interval) == [False]
