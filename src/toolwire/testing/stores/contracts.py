"""The contracts of `KV`, `Log` and `Bus`, and the helpers of all contracts."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.stores import PositionLost, StoreFull, Stores


class StoreClock:
    """A clock that stands still. A test moves it by hand."""

    def __init__(self) -> None:
        self.now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class MakeStores(Protocol):
    """Makes new and empty stores. The limits have the names of the parameters of `SqliteStores`."""

    def __call__(self, *, clock: Callable[[], float] | None = None, **limits: Any) -> Stores: ...


class Recorder(list[Any]):
    """A subscriber of a bus that records its messages."""

    def __init__(self) -> None:
        self._more = asyncio.Event()

    def __call__(self, message: Any) -> None:
        self.append(message)
        self._more.set()

    async def until(self, count: int) -> None:
        """Wait for a number of messages."""
        while len(self) < count:
            self._more.clear()
            await self._more.wait()


def in_threads(count: int, function: Callable[[int], None]) -> None:
    """Call a function in several threads at once, with the number of the thread."""
    threads = [threading.Thread(target=function, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


Step = tuple[str, str, bytes, float | None]


class _KVExamples:
    """Stores that all examples of a property share, on one event loop."""

    def __init__(self, make_stores: MakeStores) -> None:
        self.clock = StoreClock()
        self.stores = make_stores(clock=self.clock)
        self.numbers = itertools.count()
        self.runner = asyncio.Runner()


class KVContract:
    """The behaviour of a `KV`.

    Subclass it in a file of tests with the fixture `make_stores`.
    """

    @pytest.fixture
    def _kv_examples(self, make_stores: MakeStores) -> Iterator[_KVExamples]:
        """Yield the stores that all examples of a property share."""
        examples = _KVExamples(make_stores)
        with examples.runner:
            yield examples

    async def test_put_get_delete(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv
        assert await kv.get("a") is None
        assert await kv.put("a", b"1")
        assert await kv.get("a") == b"1"
        assert await kv.delete("a")
        assert not await kv.delete("a")
        assert await kv.get("a") is None

    async def test_any_text_is_a_key_and_any_bytes_a_value(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv
        keys = ["", "a\0b", "a", "ü", "\ud800", "x" * 5000]
        for number, key in enumerate(keys):
            await kv.put(key, bytes([number, 0, 255]))
        assert [await kv.get(key) for key in keys] == [bytes([number, 0, 255]) for number in range(len(keys))]

    async def test_put_if(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv
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

    async def test_numbers_are_added_to(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        kv = make_stores(clock=clock, max_items=2).kv
        assert [await kv.add("a", 5, ttl=10), await kv.add("a", -7, ttl=1000), await kv.add("a", 0)] == [5, -2, -2]
        assert await kv.get("a") == b"-2"
        clock.now += 9.9
        assert await kv.add("a", 102) == 100, "its time is counted from its first value on"
        clock.now += 0.1
        assert await kv.add("a", 1) == 1
        clock.now += 1e6
        assert await kv.add("a", 1) == 2
        for no_number in (b"text", b"", b" 1", b"1 ", b"+1", b"1_0", b"1.5", "\u0661".encode()):
            await kv.put("b", no_number)
            with pytest.raises(ValueError):
                await kv.add("b", 1)
            assert await kv.get("b") == no_number
        with pytest.raises(StoreFull):
            await kv.add("c", 1)

    async def test_numbers_are_exact_or_refused(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv
        most = 2**53 - 1
        assert [await kv.add("a", most - 1), await kv.add("a", 1), await kv.add("a", 0)] == [most - 1, most, most]
        for amount in (1, most, most + 1, 2**63, 10**400):
            with pytest.raises(ValueError):
                await kv.add("a", amount)
        assert await kv.get("a") == b"%d" % most
        assert [await kv.add("a", -most), await kv.add("a", -most)] == [0, -most]
        with pytest.raises(ValueError):
            await kv.add("a", -1)
        assert await kv.get("a") == b"-%d" % most
        for beyond in (most + 1, -most - 1, 2**63, 10**400):
            await kv.put("b", b"%d" % beyond)
            for amount in (0, 1, -1):
                with pytest.raises(ValueError):
                    await kv.add("b", amount)
            assert await kv.get("b") == b"%d" % beyond

    async def test_time_to_live_is_a_number(self, make_stores: MakeStores) -> None:
        kv, nan = make_stores().kv, float("nan")
        await kv.put("a", b"1")
        for refused in (
            kv.put("a", b"2", ttl=nan),
            kv.add("b", 1, ttl=nan),
            kv.add("a", 1, ttl=nan),
            kv.expire("a", nan),
        ):
            with pytest.raises(ValueError):
                await refused
        assert (await kv.get("a"), await kv.get("b")) == (b"1", None)
        for ttl in (float("inf"), 1e300):
            assert await kv.put("c", b"1", ttl=ttl)
            assert await kv.get("c") == b"1"
        for ttl in (0.0, -1.0, float("-inf")):
            await kv.put("c", b"1", ttl=ttl)
            assert await kv.get("c") is None

    async def test_numbers_of_other_kinds_are_refused(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv
        await kv.put("a", b"1")
        no_whole_numbers: list[Any] = [1.5, 1.0, True, "1", float("nan"), float("inf")]
        for wrong in no_whole_numbers:
            for refused in (kv.add("a", wrong), kv.add("b", wrong), kv.keys("", limit=wrong)):
                with pytest.raises(ValueError):
                    await refused
        no_seconds: list[Any] = [10**400, -(10**400), "5", True, b"1"]
        for wrong in no_seconds:
            for refused in (kv.put("a", b"2", ttl=wrong), kv.add("a", 1, ttl=wrong), kv.expire("a", wrong)):
                with pytest.raises(ValueError):
                    await refused
        assert (await kv.get("a"), await kv.get("b")) == (b"1", None)
        assert await kv.keys("", limit=10**20) == ["a"]
        assert await kv.keys("", limit=-(10**20)) == []

    async def test_empty_key_is_listed_first(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv
        for key in ("b", "", "\0", "a"):
            await kv.put(key, b"1")
        assert await kv.keys("") == ["", "\0", "a", "b"]
        assert [await kv.keys("", limit=1), await kv.keys("", after="\0")] == [[""], ["a", "b"]]

    def test_threads_count_together(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv

        async def count(number: int) -> None:
            for _ in range(100):
                await kv.add("sum", 1)

        in_threads(4, lambda number: asyncio.run(count(number)))
        assert asyncio.run(kv.get("sum")) == b"400"

    async def test_values_expire_at_their_time(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        kv = make_stores(clock=clock).kv
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

    async def test_the_time_to_live_can_be_renewed_shortened_and_lifted(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        kv = make_stores(clock=clock).kv
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

    async def test_a_full_store_refuses_new_state_and_keeps_the_live(self, make_stores: MakeStores) -> None:
        kv = make_stores(max_items=2).kv
        await kv.put("a", b"1")
        await kv.put("b", b"1")
        with pytest.raises(StoreFull):
            await kv.put("c", b"1")
        assert await kv.put("a", b"2"), "replacing needs no room"
        assert (await kv.get("a"), await kv.get("b"), await kv.get("c")) == (b"2", b"1", None)
        await kv.delete("a")
        assert await kv.put("c", b"1")

    async def test_bytes_are_bounded_too(self, make_stores: MakeStores) -> None:
        kv = make_stores(max_bytes=20).kv
        await kv.put("a", b"x" * 9)
        await kv.put("b", b"x" * 9)
        with pytest.raises(StoreFull):
            await kv.put("c", b"")
        with pytest.raises(StoreFull):
            await kv.put("a", b"x" * 10)
        assert await kv.get("a") == b"x" * 9
        assert await kv.put("a", b"x" * 4)
        assert await kv.put("c", b"x" * 4)

    async def test_the_expired_make_room_first(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        kv = make_stores(max_items=100, clock=clock).kv
        for number in range(99):
            await kv.put(f"short {number}", b"1", ttl=1)
        await kv.put("long", b"1", ttl=100)
        clock.now += 1
        for number in range(99):
            assert await kv.put(f"new {number}", b"1")
        assert await kv.get("long") == b"1"
        with pytest.raises(StoreFull):
            await kv.put("one too many", b"1")

    async def test_keys_come_in_order_and_in_pages(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        kv = make_stores(clock=clock).kv
        for key in ("a:1", "b:3", "b:1", "b:ü", "b:2", "b;", "b", "\ud800"):
            await kv.put(key, b"")
        assert await kv.keys("b:") == ["b:1", "b:2", "b:3", "b:ü"]
        assert await kv.keys("b:", limit=2) == ["b:1", "b:2"]
        assert await kv.keys("b:", after="b:2", limit=2) == ["b:3", "b:ü"]
        assert await kv.keys("b:", after="b:25") == ["b:3", "b:ü"]
        assert await kv.keys("b:", after="a") == ["b:1", "b:2", "b:3", "b:ü"]
        assert await kv.keys("b:3", after="b:3") == await kv.keys("b:ü", after="b:ü") == []
        assert await kv.keys("b:", after="c") == await kv.keys("none") == await kv.keys("b:", limit=0) == []
        await kv.delete("b:2")
        await kv.put("b:25", b"", ttl=1)
        await kv.put("b:1", b"again")
        assert await kv.keys("b:") == ["b:1", "b:25", "b:3", "b:ü"]
        clock.now += 1
        assert await kv.keys("b:") == ["b:1", "b:3", "b:ü"]

    @settings(
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors], deadline=None
    )
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
    def test_behaves_like_a_table_with_deadlines(self, _kv_examples: _KVExamples, steps: list[Step]) -> None:
        _kv_examples.runner.run(self._compare_with_table(_kv_examples, steps))

    async def _compare_with_table(self, examples: _KVExamples, steps: list[Step]) -> None:
        clock, kv = examples.clock, examples.stores.kv
        model: dict[str, tuple[bytes, float]] = {}
        example = next(examples.numbers)
        for action, letter, value, ttl in steps:
            key = f"{example} {letter}"
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
        for letter in "abc":
            expected = model.get(f"{example} {letter}")
            found = await kv.get(f"{example} {letter}")
            assert found == (expected[0] if expected and expected[1] > clock.now else None)
        assert await kv.keys(f"{example} ") == sorted(k for k, item in model.items() if item[1] > clock.now)

    def test_only_one_thread_wins_a_put_if_absent(self, make_stores: MakeStores) -> None:
        kv = make_stores().kv
        wins: list[str] = []

        async def claim(number: int) -> None:
            wins.extend([f"{key}" for key in range(300) if await kv.put(str(key), b"%d" % number, if_absent=True)])

        in_threads(4, lambda number: asyncio.run(claim(number)))
        assert sorted(wins) == sorted(map(str, range(300)))


class LogContract:
    """The behaviour of a `Log`.

    Subclass it in a file of tests with the fixture `make_stores`.
    """

    async def test_append_and_read_after(self, make_stores: MakeStores) -> None:
        log = make_stores().log
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

    async def test_the_oldest_events_are_dropped_and_that_can_be_known(self, make_stores: MakeStores) -> None:
        log = make_stores(max_events=3).log
        positions = [await log.append("s", b"%d" % number) for number in range(5)]
        assert await log.read_after("s", positions[1], 10) == list(zip(positions[2:], [b"2", b"3", b"4"], strict=True))
        with pytest.raises(PositionLost):
            await log.read_after("s", positions[0], 10)
        assert len(await log.read_after("s", None, 10)) == 3

    async def test_the_bytes_of_a_stream_are_bounded(self, make_stores: MakeStores) -> None:
        log = make_stores(max_stream_bytes=10).log
        first = await log.append("s", b"x" * 6)
        second = await log.append("s", b"y" * 6)
        assert await log.read_after("s", None, 10) == [(second, b"y" * 6)]
        assert await log.read_after("s", first, 10) == [(second, b"y" * 6)]
        third = await log.append("s", b"z" * 11)
        assert await log.read_after("s", third, 10) == []
        with pytest.raises(PositionLost):
            await log.read_after("s", second, 10)

    async def test_the_stream_that_was_silent_longest_makes_room(self, make_stores: MakeStores) -> None:
        log = make_stores(max_streams=2).log
        a = await log.append("a", b"1")
        b = await log.append("b", b"1")
        await log.append("a", b"2")
        await log.append("c", b"1")
        assert len(await log.read_after("a", a, 10)) == 1
        with pytest.raises(PositionLost):
            await log.read_after("b", b, 10)

    async def test_the_bytes_of_all_streams_are_bounded(self, make_stores: MakeStores) -> None:
        log = make_stores(max_log_bytes=10).log
        await log.append("a", b"x" * 6)
        await log.append("b", b"x" * 6)
        assert await log.read_after("a", None, 10) == []
        assert len(await log.read_after("b", None, 10)) == 1
        await log.delete("b")
        await log.append("a", b"x" * 10)
        assert len(await log.read_after("a", None, 10)) == 1, "what was deleted counts no more"

    async def test_foreign_positions_are_lost(self, make_stores: MakeStores) -> None:
        log = make_stores(first_position=100).log
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

    def test_threads_append_without_losing_events(self, make_stores: MakeStores) -> None:
        log = make_stores(max_events=10_000).log

        async def write(number: int) -> None:
            for _ in range(200):
                await log.append("s", b"%d" % number)

        in_threads(4, lambda number: asyncio.run(write(number)))
        events = asyncio.run(log.read_after("s", None, 10_000))
        assert len(events) == len({position for position, _ in events}) == 800


class BusContract:
    """The behaviour of a `Bus`.

    Subclass it in a file of tests with the fixture `make_stores`.
    """

    async def test_subscribers_receive_their_topic_in_order(self, make_stores: MakeStores) -> None:
        bus = make_stores().bus
        one, two, other = Recorder(), Recorder(), Recorder()
        bus.subscribe("t", one)
        stop = bus.subscribe("t", two)
        bus.subscribe("u", other)
        for number in range(3):
            await bus.publish("t", b"%d" % number)
        await two.until(3)
        stop()
        stop()
        await bus.publish("t", b"3")
        await one.until(4)
        assert (one, two, other) == ([b"0", b"1", b"2", b"3"], [b"0", b"1", b"2"], [])

    async def test_after_the_end_nothing_is_delivered_any_more(self, make_stores: MakeStores) -> None:
        bus = make_stores().bus
        received, witness = Recorder(), Recorder()
        stop = bus.subscribe("t", received)
        stop()
        await bus.publish("t", b"1")
        bus.subscribe("t", witness)
        await bus.publish("t", b"2")
        await witness.until(1)
        assert (received, witness) == ([], [b"2"]), "and earlier messages are not delivered either"

    async def test_a_callback_may_end_its_own_subscription(self, make_stores: MakeStores) -> None:
        bus = make_stores().bus
        received, witness = Recorder(), Recorder()

        def callback(data: bytes) -> None:
            received(data)
            stop()

        stop = bus.subscribe("t", callback)
        bus.subscribe("t", witness)
        await bus.publish("t", b"1")
        await bus.publish("t", b"2")
        await witness.until(2)
        assert received == [b"1"]

    async def test_failing_subscriber_does_not_stop_the_rest(
        self, make_stores: MakeStores, caplog: pytest.LogCaptureFixture
    ) -> None:
        bus = make_stores().bus
        received = Recorder()

        def callback(data: bytes) -> None:
            received(data)
            if data == b"1":
                raise RuntimeError("inside")

        bus.subscribe("t", callback)
        bus.subscribe("t", received)
        await bus.publish("t", b"1")
        await bus.publish("t", b"2")
        await received.until(4)
        assert [record.name for record in caplog.records] == ["toolwire.stores"]

    async def test_the_number_of_subscribers_is_bounded(self, make_stores: MakeStores) -> None:
        bus = make_stores(max_subscribers=1).bus
        stop = bus.subscribe("t", lambda data: None)
        with pytest.raises(StoreFull):
            bus.subscribe("u", lambda data: None)
        stop()
        bus.subscribe("u", lambda data: None)

    async def test_on_lost_is_called_when_messages_were_dropped(self, make_stores: MakeStores) -> None:
        bus = make_stores(max_pending=2).bus
        here, received = Recorder(), Recorder()

        async def flood() -> None:
            for number in range(5):
                await bus.publish("t", b"%d" % number)

        bus.subscribe("t", received, on_lost=lambda: received(b"lost"))
        bus.subscribe("done", here)
        # This loop stands still while another one publishes.
        in_threads(1, lambda number: asyncio.run(flood()))
        await received.until(3)
        assert received == [b"lost", b"3", b"4"]
        await bus.publish("t", b"5")
        await received.until(4)
        assert received[-1] == b"5"

    async def test_a_callback_runs_in_the_context_of_its_subscriber(self, make_stores: MakeStores) -> None:
        bus = make_stores().bus
        variable = contextvars.ContextVar("variable", default="none")
        received = Recorder()
        variable.set("subscriber")
        bus.subscribe("t", lambda data: received(variable.get()))
        variable.set("publisher")
        await bus.publish("t", b"")
        await received.until(1)
        assert received == ["subscriber"]

    async def test_each_subscriber_is_called_on_its_own_loop(self, make_stores: MakeStores) -> None:
        bus = make_stores().bus
        here, there = Recorder(), list[tuple[int, bytes]]()
        ready = threading.Event()

        async def other_loop() -> None:
            done = asyncio.Event()

            def on_there(data: bytes) -> None:
                there.append((threading.get_ident(), data))
                done.set()

            bus.subscribe("t", on_there)
            ready.set()
            await done.wait()
            await bus.publish("back", b"2")

        bus.subscribe("back", lambda data: here((threading.get_ident(), data)))
        thread = threading.Thread(target=lambda: asyncio.run(other_loop()))
        thread.start()
        await asyncio.to_thread(ready.wait)
        await bus.publish("t", b"1")
        await here.until(1)
        await asyncio.to_thread(thread.join)
        assert there == [(thread.ident, b"1")]
        assert here == [(threading.get_ident(), b"2")]
        # That loop is closed now: the bus drops its subscriber.
        await bus.publish("t", b"3")
