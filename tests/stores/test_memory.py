from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.stores import KV, Bus, Log, MemoryBus, MemoryKV, MemoryLog, PositionLost, StoreFull, Stores


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_container() -> None:
    stores = Stores.memory()
    kv: KV = stores.kv
    log: Log = stores.log
    bus: Bus = stores.bus
    assert (type(kv), type(log), type(bus)) == (MemoryKV, MemoryLog, MemoryBus)


# --- KV ---------------------------------------------------------------------------------------------


async def test_put_get_delete() -> None:
    kv = MemoryKV()
    assert await kv.get("a") is None
    assert await kv.put("a", b"1")
    assert await kv.get("a") == b"1"
    assert await kv.delete("a")
    assert not await kv.delete("a")
    assert await kv.get("a") is None


async def test_put_if() -> None:
    kv = MemoryKV()
    assert not await kv.put("a", b"1", expect=b"0")
    assert await kv.put("a", b"1", if_absent=True)
    assert not await kv.put("a", b"2", if_absent=True)
    assert not await kv.put("a", b"2", expect=b"0")
    assert await kv.get("a") == b"1"
    assert await kv.put("a", b"2", expect=b"1")
    assert await kv.get("a") == b"2"
    assert await kv.put("b", b"", if_absent=True)
    assert not await kv.put("b", b"1", if_absent=True)
    assert await kv.put("b", b"1", expect=b"")


async def test_values_expire_at_their_time() -> None:
    clock = Clock()
    kv = MemoryKV(clock=clock)
    await kv.put("a", b"1", ttl=10)
    clock.now += 9.9
    assert await kv.get("a") == b"1"
    clock.now += 0.1
    assert await kv.get("a") is None
    assert not await kv.delete("a")
    assert not await kv.expire("a", 10)
    assert not await kv.put("a", b"2", expect=b"1")
    assert await kv.put("a", b"2", if_absent=True)
    clock.now += 1e9
    assert await kv.get("a") == b"2"


async def test_the_time_to_live_can_be_renewed_shortened_and_lifted() -> None:
    clock = Clock()
    kv = MemoryKV(clock=clock)
    for key in "abc":
        await kv.put(key, b"1", ttl=10)
    assert await kv.expire("a", 20)
    assert await kv.expire("b", None)
    assert await kv.expire("c", 5)
    clock.now += 5
    assert await kv.get("c") is None
    clock.now += 10
    assert await kv.get("a") == b"1"
    clock.now += 5
    assert await kv.get("a") is None
    assert await kv.get("b") == b"1"
    await kv.put("b", b"2", ttl=1)
    clock.now += 1
    assert await kv.get("b") is None


async def test_a_full_store_refuses_new_state_and_keeps_the_live() -> None:
    kv = MemoryKV(max_items=2)
    await kv.put("a", b"1")
    await kv.put("b", b"1")
    with pytest.raises(StoreFull):
        await kv.put("c", b"1")
    assert await kv.put("a", b"2"), "replacing needs no room"
    assert (await kv.get("a"), await kv.get("b"), await kv.get("c")) == (b"2", b"1", None)
    await kv.delete("a")
    assert await kv.put("c", b"1")


async def test_bytes_are_bounded_too() -> None:
    kv = MemoryKV(max_bytes=20)
    await kv.put("a", b"x" * 9)
    await kv.put("b", b"x" * 9)
    with pytest.raises(StoreFull):
        await kv.put("c", b"")
    with pytest.raises(StoreFull):
        await kv.put("a", b"x" * 10)
    assert await kv.get("a") == b"x" * 9
    assert await kv.put("a", b"x" * 4)
    assert await kv.put("c", b"x" * 4)


async def test_the_expired_make_room_first() -> None:
    clock = Clock()
    kv = MemoryKV(max_items=100, clock=clock)
    for number in range(99):
        await kv.put(f"short {number}", b"1", ttl=1)
    await kv.put("long", b"1", ttl=100)
    clock.now += 1
    for number in range(99):
        assert await kv.put(f"new {number}", b"1")
    assert await kv.get("long") == b"1"
    with pytest.raises(StoreFull):
        await kv.put("one too many", b"1")


async def test_renewing_for_ever_costs_no_memory() -> None:
    kv = MemoryKV(clock=Clock())
    await kv.put("a", b"1", ttl=1)
    for _ in range(5000):
        await kv.expire("a", 10)
        await kv.put("a", b"1", ttl=10)
    assert len(kv._deadlines) <= 100


async def test_reading_alone_clears_the_expired_away() -> None:
    clock = Clock()
    kv = MemoryKV(clock=clock)
    for number in range(100):
        await kv.put(str(number), b"1", ttl=1)
    clock.now += 1
    for _ in range(100):
        await kv.get("something else")
    assert (kv._items, kv._bytes, kv._deadlines) == ({}, 0, [])


Step = tuple[str, str, bytes, float | None]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "absent", "expect", "delete", "expire", "wait"]),
            st.sampled_from("abc"),
            st.sampled_from([b"", b"1", b"22"]),
            st.sampled_from([None, 1.0, 2.0, 3.0]),
        )
    )
)
async def test_behaves_like_a_table_with_deadlines(steps: list[Step]) -> None:
    clock = Clock()
    kv = MemoryKV(clock=clock)
    model: dict[str, tuple[bytes, float]] = {}
    for action, key, value, ttl in steps:
        model = {k: item for k, item in model.items() if item[1] > clock.now}
        present = model[key][0] if key in model else None
        deadline = float("inf") if ttl is None else clock.now + ttl
        if action == "wait":
            clock.now += ttl or 0.5
        elif action == "delete":
            assert await kv.delete(key) == (model.pop(key, None) is not None)
        elif action == "expire":
            assert await kv.expire(key, ttl) == (present is not None)
            if present is not None:
                model[key] = (present, deadline)
        else:
            allowed = action == "put" or (present is None if action == "absent" else present == b"1")
            expect = b"1" if action == "expect" else None
            assert await kv.put(key, value, ttl=ttl, if_absent=action == "absent", expect=expect) == allowed
            if allowed:
                model[key] = (value, deadline)
    for key in "abc":
        expected = model.get(key)
        assert await kv.get(key) == (expected[0] if expected and expected[1] > clock.now else None)


def in_threads(count: int, function: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=function, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_only_one_thread_wins_a_put_if_absent() -> None:
    kv = MemoryKV()
    wins: list[str] = []

    async def claim(number: int) -> None:
        wins.extend([f"{key}" for key in range(300) if await kv.put(str(key), b"%d" % number, if_absent=True)])

    in_threads(4, lambda number: asyncio.run(claim(number)))
    assert sorted(wins) == sorted(map(str, range(300)))


# --- Log --------------------------------------------------------------------------------------------


async def test_append_and_read_after() -> None:
    log = MemoryLog()
    first = await log.append("s", b"1")
    second = await log.append("s", b"2")
    await log.append("other", b"x")
    third = await log.append("s", b"3")
    assert await log.read_after("s", None, 10) == [(first, b"1"), (second, b"2"), (third, b"3")]
    assert await log.read_after("s", first, 10) == [(second, b"2"), (third, b"3")]
    assert await log.read_after("s", first, 1) == [(second, b"2")]
    assert await log.read_after("s", third, 10) == []
    assert await log.read_after("s", None, 0) == []
    assert await log.read_after("unknown", None, 10) == []


async def test_the_oldest_events_are_dropped_and_that_can_be_known() -> None:
    log = MemoryLog(max_events=3)
    positions = [await log.append("s", b"%d" % number) for number in range(5)]
    assert await log.read_after("s", positions[1], 10) == list(zip(positions[2:], [b"2", b"3", b"4"], strict=True))
    with pytest.raises(PositionLost):
        await log.read_after("s", positions[0], 10)
    assert len(await log.read_after("s", None, 10)) == 3


async def test_the_bytes_of_a_stream_are_bounded() -> None:
    log = MemoryLog(max_bytes=10)
    first = await log.append("s", b"x" * 6)
    second = await log.append("s", b"y" * 6)
    assert await log.read_after("s", None, 10) == [(second, b"y" * 6)]
    assert await log.read_after("s", first, 10) == [(second, b"y" * 6)]
    third = await log.append("s", b"z" * 11)
    assert await log.read_after("s", third, 10) == []
    with pytest.raises(PositionLost):
        await log.read_after("s", second, 10)


async def test_the_stream_that_was_silent_longest_makes_room() -> None:
    log = MemoryLog(max_streams=2)
    a = await log.append("a", b"1")
    b = await log.append("b", b"1")
    await log.append("a", b"2")
    await log.append("c", b"1")
    assert len(await log.read_after("a", a, 10)) == 1
    with pytest.raises(PositionLost):
        await log.read_after("b", b, 10)


async def test_the_bytes_of_all_streams_are_bounded() -> None:
    log = MemoryLog(max_total_bytes=10)
    await log.append("a", b"x" * 6)
    await log.append("b", b"x" * 6)
    assert await log.read_after("a", None, 10) == []
    assert len(await log.read_after("b", None, 10)) == 1
    await log.delete("b")
    assert log._total == 0


async def test_positions_from_elsewhere_are_lost() -> None:
    log = MemoryLog(first_position=100)
    before = await log.append("s", b"1")
    assert before == 100
    for position in (98, 101, 10**30, -1, "100", "x"):
        with pytest.raises(PositionLost):
            await log.read_after("s", position, 10)
    with pytest.raises(PositionLost):
        await log.read_after("unknown", before, 10)
    assert await log.delete("s")
    assert not await log.delete("s")
    await log.append("other", b"")
    await log.append("s", b"2")
    with pytest.raises(PositionLost):
        await log.read_after("s", before, 10)


def test_threads_append_without_losing_events() -> None:
    log = MemoryLog(max_events=10_000)

    async def write(number: int) -> None:
        for _ in range(200):
            await log.append("s", b"%d" % number)

    in_threads(4, lambda number: asyncio.run(write(number)))
    events = asyncio.run(log.read_after("s", None, 10_000))
    assert len(events) == len({position for position, _ in events}) == 800


# --- Bus --------------------------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


async def test_subscribers_hear_their_topic_in_order() -> None:
    bus = MemoryBus()
    one, two, other = list[bytes](), list[bytes](), list[bytes]()
    bus.subscribe("t", one.append)
    stop = bus.subscribe("t", two.append)
    bus.subscribe("u", other.append)
    for number in range(3):
        await bus.publish("t", b"%d" % number)
    assert one == [], "nothing is delivered inside publish"
    await until(lambda: len(two) == 3)
    stop()
    stop()
    await bus.publish("t", b"3")
    await until(lambda: len(one) == 4)
    assert (one, two, other) == ([b"0", b"1", b"2", b"3"], [b"0", b"1", b"2"], [])


async def test_after_the_end_nothing_is_delivered_any_more() -> None:
    bus = MemoryBus()
    heard, witness = list[bytes](), list[bytes]()
    stop = bus.subscribe("t", heard.append)
    await bus.publish("t", b"1")
    stop()
    bus.subscribe("t", witness.append)
    await bus.publish("t", b"2")
    await until(lambda: witness == [b"2"])
    assert heard == []
    assert len(bus._topics["t"]) == 1


async def test_a_callback_may_end_its_own_subscription() -> None:
    bus = MemoryBus()
    heard = list[bytes]()

    def callback(data: bytes) -> None:
        heard.append(data)
        stop()

    stop = bus.subscribe("t", callback)
    await bus.publish("t", b"1")
    await bus.publish("t", b"2")
    await until(lambda: not bus._topics)
    assert heard == [b"1"]


async def test_a_failing_subscriber_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bus = MemoryBus()
    heard = list[bytes]()

    def callback(data: bytes) -> None:
        heard.append(data)
        if data == b"1":
            raise RuntimeError("inside")

    bus.subscribe("t", callback)
    bus.subscribe("t", heard.append)
    await bus.publish("t", b"1")
    await bus.publish("t", b"2")
    await until(lambda: len(heard) == 4)
    assert [record.name for record in caplog.records] == ["toolwire.stores"]


async def test_a_slow_subscriber_is_told_that_it_missed_something() -> None:
    bus = MemoryBus(max_pending=2)
    heard = list[bytes]()
    bus.subscribe("t", heard.append, on_lost=lambda: heard.append(b"lost"))
    for number in range(5):
        await bus.publish("t", b"%d" % number)
    await until(lambda: len(heard) == 3)
    assert heard == [b"lost", b"3", b"4"]
    await bus.publish("t", b"5")
    await until(lambda: len(heard) == 4)
    assert heard[-1] == b"5"


async def test_the_number_of_subscribers_is_bounded() -> None:
    bus = MemoryBus(max_subscribers=1)
    stop = bus.subscribe("t", lambda data: None)
    with pytest.raises(StoreFull):
        bus.subscribe("u", lambda data: None)
    stop()
    bus.subscribe("u", lambda data: None)


async def test_a_callback_runs_in_the_context_of_its_subscriber() -> None:
    bus = MemoryBus()
    variable = contextvars.ContextVar("variable", default="none")
    heard = list[str]()
    variable.set("subscriber")
    bus.subscribe("t", lambda data: heard.append(variable.get()))
    variable.set("publisher")
    await bus.publish("t", b"")
    await until(lambda: bool(heard))
    assert heard == ["subscriber"]


async def test_each_subscriber_is_called_on_its_own_loop() -> None:
    bus = MemoryBus()
    here, there = list[tuple[int, bytes]](), list[tuple[int, bytes]]()
    ready, heard = threading.Event(), asyncio.Event()

    def on_here(data: bytes) -> None:
        here.append((threading.get_ident(), data))
        heard.set()

    async def other_loop() -> None:
        done = asyncio.Event()

        def on_there(data: bytes) -> None:
            there.append((threading.get_ident(), data))
            done.set()

        bus.subscribe("t", on_there)
        ready.set()
        await done.wait()
        await bus.publish("back", b"2")

    bus.subscribe("back", on_here)
    thread = threading.Thread(target=lambda: asyncio.run(other_loop()))
    thread.start()
    await asyncio.to_thread(ready.wait)
    await bus.publish("t", b"1")
    await heard.wait()
    await asyncio.to_thread(thread.join)
    assert there == [(thread.ident, b"1")]
    assert here == [(threading.get_ident(), b"2")]
    # That loop is closed now: the bus notices, and forgets its subscriber.
    await bus.publish("t", b"3")
    assert "t" not in bus._topics
