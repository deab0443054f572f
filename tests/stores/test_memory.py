from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.counted_steps import steps_of

from toolwire.stores import KV, Bus, Held, Log, MemoryBus, MemoryKV, MemoryLog, MemoryQueue, Ready, Stores
from toolwire.testing.stores import (
    BusContract,
    KVContract,
    LogContract,
    MakeStores,
    QueueContract,
    Recorder,
    StoreClock,
)


@pytest.fixture
def make_stores() -> MakeStores:
    return memory_stores


def memory_stores(*, clock: Callable[[], float] | None = None, **limits: Any) -> Stores:
    kv = {name: limits.pop(name) for name in ("max_items", "max_bytes") if name in limits}
    bus = {name: limits.pop(name) for name in ("max_subscribers", "max_pending") if name in limits}
    names = {"max_stream_bytes": "max_bytes", "max_log_bytes": "max_total_bytes"}
    log = {names.get(name, name): value for name, value in limits.items()}
    return Stores(MemoryKV(clock=clock or time.monotonic, **kv), MemoryLog(**log), MemoryBus(**bus))


class TestKV(KVContract):
    pass


class TestLog(LogContract):
    pass


class TestBus(BusContract):
    pass


class TestQueue(QueueContract):
    pass


def test_the_container() -> None:
    stores = Stores.memory()
    kv: KV = stores.kv
    log: Log = stores.log
    bus: Bus = stores.bus
    assert (type(kv), type(log), type(bus)) == (MemoryKV, MemoryLog, MemoryBus)


async def test_renewing_for_ever_costs_no_memory() -> None:
    kv = MemoryKV(clock=StoreClock())
    await kv.put("a", b"1", ttl=1)
    for _ in range(5000):
        await kv.expire("a", 10)
        await kv.put("a", b"1", ttl=10)
    assert len(kv._deadlines) <= 100


async def test_reading_alone_clears_the_expired_away() -> None:
    clock = StoreClock()
    kv = MemoryKV(clock=clock)
    for number in range(100):
        await kv.put(str(number), b"1", ttl=1)
    clock.now += 1
    for _ in range(100):
        await kv.get("something else")
    assert (kv._items, kv._bytes, kv._deadlines) == ({}, 0, [])


async def test_a_deleted_stream_leaves_nothing_behind() -> None:
    log = MemoryLog()
    await log.append("s", b"x" * 6)
    await log.delete("s")
    assert (log._total, log._streams) == (0, {})


async def test_nothing_is_delivered_inside_publish() -> None:
    bus = MemoryBus()
    heard = Recorder()
    bus.subscribe("t", heard)
    await bus.publish("t", b"1")
    assert heard == []
    await heard.until(1)


async def test_what_was_sent_and_not_yet_delivered_is_dropped_at_the_end() -> None:
    bus = MemoryBus()
    heard, witness = Recorder(), Recorder()
    stop = bus.subscribe("t", heard)
    await bus.publish("t", b"1")
    stop()
    bus.subscribe("t", witness)
    await bus.publish("t", b"2")
    await witness.until(1)
    assert (heard, witness, len(bus._topics["t"])) == ([], [b"2"], 1)


async def test_the_subscribers_of_a_loop_that_is_closed_are_forgotten() -> None:
    bus = MemoryBus()

    async def subscribe() -> None:
        bus.subscribe("t", lambda data: None)

    thread = threading.Thread(target=lambda: asyncio.run(subscribe()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "t" in bus._topics
    await bus.publish("t", b"3")
    assert "t" not in bus._topics


def test_counting_the_tasks_takes_as_long_for_many_as_for_few() -> None:
    def at_once(work: Coroutine[Any, Any, Any]) -> None:
        with contextlib.suppress(StopIteration):
            work.send(None)

    def steps(tasks: int) -> int:
        queue = MemoryQueue.of(MemoryKV())
        at_once(queue.renew("p", 100))
        for number in range(tasks):
            place = (Ready("x", "o"), Ready("x", "o", 50.0), Held("p", "y"))[number % 3]
            at_once(queue.change(str(number), b"1", ttl=100, expect=None, place=place))
        return steps_of(lambda: at_once(queue.counts()))

    assert steps(30) == steps(3000)
