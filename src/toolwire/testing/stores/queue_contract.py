"""The contract of `Queue`, and of the thread that renews its leases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.protocol.errors import ToolwireError
from toolwire.stores import (
    Counts,
    Held,
    LeaseLost,
    MemoryBus,
    MemoryKV,
    MemoryLog,
    Place,
    Queue,
    QueueFull,
    Ready,
    StoreFull,
    Stores,
    Task,
)
from toolwire.testing.stores.contracts import MakeStores, StoreClock, in_threads

NOTHING = Counts(ready={}, held={}, delayed=0, orphans=0, oldest=0.0, leases=0)


async def create(queue: Queue, key: str, place: Place | None, *, ttl: float | None = 1000, **more: Any) -> bytes:
    """Write a record whose text is its key, and return it."""
    value = key.encode("utf-8", "surrogatepass")
    assert await queue.change(key, value, ttl=ttl, expect=None, place=place, **more) is None
    return value


async def claim_keys(queue: Queue, process: str, kinds: str, most: int = 100, **more: Any) -> str:
    """Take tasks from the queue; return their keys, of one letter each."""
    return "".join(task.key for task in await queue.take(process, list(kinds), most, **more))


async def keys(tasks: Awaitable[list[Task]]) -> list[str]:
    return [task.key for task in await tasks]


# --- random steps ---

PROCESSES, KINDS, OWNERS, KEYS = "pqr", "xy", "12", "abcde"


class ChangeStep(NamedTuple):
    key: str
    place: Place | None
    expect: str
    holder: str
    orphan_of: str
    ttl: float | None
    grows: bool
    most_ready: int | None


class TakeStep(NamedTuple):
    process: str
    kinds: set[str]
    most: int
    passing_over: set[str]


class CallStep(NamedTuple):
    name: str
    given: tuple[Any, ...]


class WaitStep(NamedTuple):
    seconds: float


Step: TypeAlias = ChangeStep | TakeStep | CallStep | WaitStep

_process = st.sampled_from(PROCESSES)
_fence = st.sampled_from(["", "", "", *PROCESSES])
_places = st.one_of(
    st.none(),
    st.builds(Ready, st.sampled_from(KINDS), st.sampled_from(OWNERS), st.sampled_from([0.0, 0.0, 2.0, 5.0])),
    st.builds(Held, _process, st.sampled_from(["", *KINDS])),
)
_change = st.builds(
    ChangeStep,
    st.sampled_from(KEYS),
    _places,
    st.sampled_from(["present", "present", "present", "none", "wrong"]),
    _fence,
    _fence,
    st.sampled_from([None, 4.0, 20.0]),
    st.booleans(),
    st.sampled_from([None, None, 1, 2]),
)
_take = st.builds(
    TakeStep,
    _process,
    st.sets(st.sampled_from(KINDS)),
    st.integers(0, 3),
    st.sets(st.sampled_from(OWNERS), max_size=1),
)
_call = st.one_of(
    st.builds(CallStep, st.just("renew"), st.tuples(_process, st.sampled_from([3.0, 10.0]))),
    st.builds(CallStep, st.just("release"), st.tuples(_process)),
    st.builds(CallStep, st.just("bury"), st.tuples(_process, st.integers(1, 3))),
    st.builds(CallStep, st.just("orphans"), st.tuples(st.integers(0, 3))),
    st.builds(CallStep, st.just("held"), st.tuples(_process)),
    st.builds(CallStep, st.just("waiting"), st.tuples(st.sampled_from([0.0, 3.0]), st.integers(0, 3))),
    st.builds(CallStep, st.sampled_from(["counts", "stale", "leases"]), st.just(())),
    st.builds(CallStep, st.just("places"), st.tuples(st.sampled_from(["", "b", "z"]))),
)
_wait = st.builds(WaitStep, st.sampled_from([0.5, 1.0, 3.0, 10.0]))
STEPS: st.SearchStrategy[Step] = st.one_of(_change, _change, _change, _take, _call, _call, _wait)


async def outcome(step: Step, queue: Queue, present: bytes | None) -> Any:
    """Return the answer to a step, or the kind of its error."""
    try:
        if isinstance(step, ChangeStep):
            return await queue.change(
                step.key,
                (present or b"") + b"+" if step.grows else present or b"1",
                ttl=step.ttl,
                expect={"present": present, "none": None, "wrong": b"wrong"}[step.expect],
                place=step.place,
                holder=step.holder,
                orphan_of=step.orphan_of,
                most_ready=step.most_ready,
            )
        if isinstance(step, TakeStep):
            return await queue.take(step.process, step.kinds, step.most, passing_over=step.passing_over)
        assert isinstance(step, CallStep)
        return await getattr(queue, step.name)(*step.given)
    except ToolwireError as error:
        return type(error)


# --- the contract ---


class QueueContract:
    """The behaviour of a `Queue`.

    Subclass it in a file of tests with the fixture `make_stores`.
    """

    # --- records and places ---

    async def test_a_record_and_its_place_are_written_together(self, make_stores: MakeStores) -> None:
        stores = make_stores()
        queue = stores.queue
        assert await queue.change("a", b"1", ttl=None, expect=b"0", place=None) == b"", "there is none"
        assert await queue.change("a", b"1", ttl=None, expect=None, place=Ready("x", "o")) is None
        assert (await stores.kv.get("a"), await queue.place("a")) == (b"1", Ready("x", "o"))
        assert await queue.change("a", b"2", ttl=None, expect=None, place=None) == b"1"
        assert await queue.change("a", b"2", ttl=None, expect=b"0", place=None) == b"1"
        assert (await stores.kv.get("a"), await queue.place("a")) == (b"1", Ready("x", "o"))
        await queue.renew("p", 10)
        assert await queue.change("a", b"2", ttl=None, expect=b"1", place=Held("p")) is None
        assert (await stores.kv.get("a"), await queue.place("a")) == (b"2", Held("p", "x")), "the kind stays"
        assert await queue.change("a", b"3", ttl=None, expect=b"2", place=Held("p", "y")) is None
        assert await queue.place("a") == Held("p", "y")
        assert await queue.change("a", b"4", ttl=None, expect=b"3", place=None, holder="p") is None
        assert (await stores.kv.get("a"), await queue.place("a")) == (b"4", None)
        assert await queue.place("unknown") is None
        assert await queue.counts() == NOTHING._replace(leases=1)

    async def test_any_text_is_a_key_a_kind_an_owner_and_a_process(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        texts = ["a", "a\0b", "0", "00", ":", "a:", "ü", "\ud800", "\uffff", " h 1", "x" * 500, "\n"]
        for text in texts:
            assert await queue.renew(text, 10)
            for other in texts:
                key = f"{texts.index(text)} {texts.index(other)} {other}"
                await create(queue, key, Ready(text, other))
                assert await queue.place(key) == Ready(text, other)
        for text in texts:
            found = await queue.take(text, [text], 100)
            assert [task.key.partition(" ")[2].partition(" ")[2] for task in found] == texts, "owners take turns"
            assert [await queue.place(task.key) for task in found] == [Held(text, text)] * len(texts)
            assert {task.process for task in found} == {text}
        assert (await queue.counts()).held == dict.fromkeys(texts, len(texts))
        await queue.release("0")
        assert {task.process for task in await queue.orphans(100)} == {"0"}

    async def test_time_to_live_of_a_record_is_a_number(self, make_stores: MakeStores) -> None:
        stores = make_stores()
        with pytest.raises(ValueError):
            await stores.queue.change("a", b"1", ttl=float("nan"), expect=None, place=None)
        assert await stores.kv.get("a") is None

    async def test_record_with_the_empty_key_is_listed(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 100)
        for key in ("", "a"):
            await create(queue, key, Held("p", "x"))
        assert (await queue.held("p"))[1] == [key for key, _ in await queue.places("")] == ["", "a"]

    async def test_a_record_that_is_over_or_removed_has_no_place(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        stores = make_stores(clock=clock)
        queue = stores.queue
        await queue.renew("p", 1000)
        await create(queue, "a", Ready("x", "o"), ttl=10)
        await create(queue, "b", Held("p", "x"), ttl=10)
        await create(queue, "c", Ready("x", "o", delay=5), ttl=10)
        await create(queue, "d", Ready("x", "o"))
        await create(queue, "e", Held("p", "x"))
        clock.now += 10
        assert [await queue.place(key) for key in "abc"] == [None, None, None]
        assert await queue.counts() == NOTHING._replace(ready={"x": 1}, held={"x": 1}, oldest=10.0, leases=1)
        assert await stores.kv.delete("d")
        assert await stores.kv.delete("e")
        assert [await queue.place(key) for key in "de"] == [None, None]
        assert await queue.take("p", ["x"], 10) == []
        assert (await queue.held("p"))[1] == []
        await queue.release("p")
        assert await queue.orphans(10) == await queue.waiting(0, 10) == []
        # A new record under the same key has the place that it is given.
        await create(queue, "a", None)
        assert await queue.place("a") is None

    async def test_the_kv_changes_a_record_and_leaves_its_place(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        stores = make_stores(clock=clock)
        queue = stores.queue
        await create(queue, "a", Ready("x", "o"), ttl=10)
        assert await stores.kv.put("a", b"2", ttl=100)
        await create(queue, "b", Ready("x", "o"), ttl=10)
        assert await stores.kv.expire("b", None)
        clock.now += 50
        assert await queue.place("a") == await queue.place("b") == Ready("x", "o")
        await queue.renew("p", 1)
        assert await queue.take("p", ["x"], 10) == [Task("a", b"2", "p"), Task("b", b"b", "p")]
        clock.now += 50
        assert [await queue.place(key) for key in "ab"] == [None, Held("p", "x")]

    async def test_the_time_to_live_begins_anew_with_each_change(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        queue = make_stores(clock=clock).queue
        value = await create(queue, "a", Ready("x", "o"), ttl=10)
        clock.now += 9
        assert await queue.change("a", b"2", ttl=10, expect=value, place=Ready("x", "o")) is None
        clock.now += 9
        assert await queue.place("a") == Ready("x", "o")
        clock.now += 1
        assert await queue.place("a") is None

    async def test_places_are_listed_in_the_order_of_the_keys(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        stores = make_stores(clock=clock)
        queue = stores.queue
        await queue.renew("p", 100)
        await create(queue, "a:1", Ready("x", "o", delay=5))
        await create(queue, "a:2", Held("p", "x"))
        await create(queue, "a:3", None)
        await create(queue, "a:4", Ready("x", "o"), ttl=3)
        await create(queue, "a:\uffff", Ready("", "\ud800"))
        await create(queue, "b:1", Ready("x", "o"))
        await stores.kv.put("a:5", b"no task")
        clock.now += 3
        listed = [
            ("a:1", Ready("x", "o", 2.0)),
            ("a:2", Held("p", "x")),
            ("a:3", None),
            ("a:5", None),
            ("a:\uffff", Ready("", "\ud800")),
        ]
        assert await queue.places("a:") == listed
        assert await queue.places("a:", limit=2) == listed[:2]
        assert await queue.places("a:", after="a:2", limit=2) == listed[2:4]
        assert await queue.places("a:", after="a:4", limit=0) == []
        assert await queue.places("a:", after="a:\uffff") == []
        assert await queue.places("c") == []
        assert await queue.places("a:", after="0") == listed

    async def test_a_long_list_of_places_is_read_in_pages(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        for number in range(450):
            await create(queue, f"{number:03}", Ready("x", "o") if number % 2 else None)
        found: list[tuple[str, Place | None]] = []
        while page := await queue.places("", after=found[-1][0] if found else "", limit=203):
            assert len(page) <= 203
            found += page
        assert found == [(f"{number:03}", Ready("x", "o") if number % 2 else None) for number in range(450)]

    # --- room ---

    async def test_how_many_tasks_may_be_ready(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        queue = make_stores(clock=clock).queue
        await queue.renew("p", 1000)
        await create(queue, "a", Ready("x", "o"), most_ready=2)
        await create(queue, "b", Ready("y", "o", delay=50), most_ready=2, ttl=100)
        with pytest.raises(QueueFull):
            await create(queue, "c", Ready("x", "o"), most_ready=2)
        assert issubclass(QueueFull, StoreFull)
        assert await queue.change("c", b"", ttl=1, expect=b"", place=None) == b"", "nothing was written"
        await create(queue, "c", Held("p", "x"), most_ready=2)
        with pytest.raises(QueueFull):
            await queue.change("c", b"2", ttl=None, expect=b"c", place=Ready("x", "o"), most_ready=2)
        assert await queue.place("c") == Held("p", "x")
        assert await queue.change("a", b"2", ttl=None, expect=b"a", place=Ready("x", "o"), most_ready=2) is None
        assert await queue.change("a", b"3", ttl=None, expect=b"2", place=Ready("y", "o"), most_ready=2) is None
        clock.now += 100
        await create(queue, "d", Ready("x", "o"), most_ready=2)

    async def test_a_full_store_changes_neither_the_record_nor_the_place(self, make_stores: MakeStores) -> None:
        stores = make_stores(max_items=2, max_bytes=22)
        queue = stores.queue
        await queue.renew("p", 10)
        await queue.change("a", b"x" * 10, ttl=None, expect=None, place=Ready("x", "o"))
        await queue.change("b", b"x" * 10, ttl=None, expect=None, place=Held("p", "x"))
        with pytest.raises(StoreFull):
            await create(queue, "c", Ready("x", "o"))
        with pytest.raises(StoreFull):
            await queue.change("b", b"x" * 11, ttl=None, expect=b"x" * 10, place=None, holder="p")
        assert (await stores.kv.get("b"), await queue.place("b")) == (b"x" * 10, Held("p", "x"))
        assert await queue.take("p", ["x"], 10) == [Task("a", b"x" * 10, "p")], "which needs no room"
        assert await queue.change("a", b"y" * 10, ttl=None, expect=b"x" * 10, place=None, holder="p") is None
        assert await queue.change("b", b"", ttl=None, expect=b"x" * 10, place=Ready("x", "o"), holder="p") is None
        assert (await queue.counts())[:2] == ({"x": 1}, {})

    async def test_the_expired_make_room_first(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        queue = make_stores(max_items=3, clock=clock).queue
        for key in "abc":
            await create(queue, key, Ready("x", "o"), ttl=10)
        clock.now += 10
        for key in "def":
            await create(queue, key, Ready("x", "o"))
        with pytest.raises(StoreFull):
            await create(queue, "g", Ready("x", "o"))
        assert (await queue.counts()).ready == {"x": 3}

    # --- a step that is repeated after a lost answer ---

    async def test_a_creation_is_repeated(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        for _ in range(2):
            await create(queue, "a", Ready("x", "o"), most_ready=1)
            await create(queue, "b", Held("p", "x"))
        assert (await queue.counts())[:2] == ({"x": 1}, {"x": 1})
        assert await claim_keys(queue, "p", "x") == "a"
        await create(queue, "a", Ready("x", "o"), most_ready=1)
        assert await queue.place("a") == Held("p", "x"), "it was written, and taken afterwards"

    @pytest.mark.parametrize("place", [None, Ready("x", "o", 5.0), Held("q"), Held("p")], ids=str)
    async def test_a_change_is_repeated(self, make_stores: MakeStores, place: Place | None) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        await queue.renew("q", 10)
        value = await create(queue, "a", Held("p", "x"))
        for _ in range(2):
            assert await queue.change("a", b"2", ttl=10, expect=value, place=place, holder="p") is None
        before = await queue.counts()
        if isinstance(place, Ready):
            assert before.ready == {"x": 1}
        await queue.release("p")
        assert await queue.change("a", b"2", ttl=10, expect=value, place=place, holder="p") is None, (
            "it was written while the process held the task"
        )

    async def test_a_change_of_the_place_alone_is_repeated_as_long_as_the_task_is_there(
        self, make_stores: MakeStores
    ) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        await queue.renew("q", 10)
        value = await create(queue, "a", Held("p", "x"))
        await queue.release("p")

        async def hand_back() -> bytes | None:
            return await queue.change("a", value, ttl=10, expect=value, place=Ready("x", "o"), orphan_of="p")

        assert await hand_back() is None
        assert await hand_back() is None
        assert await claim_keys(queue, "q", "x") == "a"
        with pytest.raises(LeaseLost):
            await hand_back()
        assert await queue.place("a") == Held("q", "x")

    async def test_a_process_finds_the_tasks_that_it_holds(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        queue = make_stores(clock=clock).queue
        assert await queue.held("p") == (0, [])
        for process in "pq":
            await queue.renew(process, 100)
        await create(queue, "ü", Held("p", "y"))
        await create(queue, "z", Held("q", "x"))
        for key in "abcdef":
            await create(queue, key, Ready("x", "o"), ttl=10 if key == "c" else 1000)
        assert await claim_keys(queue, "p", "x", 5) == "abcde"
        assert await queue.held("p") == (6, [*"abcde", "ü"]), "of whatever kind, however they came there"
        assert await queue.held("p", limit=0) == await queue.held("p", limit=-1) == (6, [])
        assert await queue.held("p", limit=2) == (6, ["a", "b"])
        assert await queue.held("p", after="b", limit=2) == (6, ["c", "d"])
        assert await queue.held("p", after="bb", limit=100) == (6, ["c", "d", "e", "ü"])
        assert await queue.held("p", after="ü") == (6, [])
        clock.now += 10
        await queue.change("a", b"2", ttl=10, expect=b"a", place=None, holder="p")
        await queue.release("p")
        assert await queue.held("p") == (4, ["b", "d", "e", "ü"]), "also without a lease"
        assert await queue.held("q") == (1, ["z"])

    async def test_numbers_of_other_kinds_are_refused(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        record = await create(queue, "a", Ready("x", "1"))
        no_seconds: list[Any] = [float("nan"), 10**400, "5", True]
        for wrong in no_seconds:
            for refused in (
                queue.renew("p", wrong),
                queue.waiting(wrong, 10),
                queue.change("a", b"b", ttl=wrong, expect=record, place=None),
                queue.change("a", b"b", ttl=1, expect=record, place=Ready("y", "1", wrong)),
            ):
                with pytest.raises(ValueError):
                    await refused
            with pytest.raises(ValueError):
                queue.keep("p", wrong, lambda: None)
        no_whole_numbers: list[Any] = [1.5, 1.0, True, "1", float("nan")]
        for wrong in no_whole_numbers:
            for call in (
                queue.take("p", ["x"], wrong),
                queue.held("p", limit=wrong),
                queue.orphans(wrong),
                queue.waiting(0, wrong),
                queue.places("", limit=wrong),
                queue.change("b", b"b", ttl=1, expect=None, place=Ready("x", "1"), most_ready=wrong),
            ):
                with pytest.raises(ValueError):
                    await call
        assert await queue.leases() == [("p", 1)]
        assert await queue.places("", limit=10**20) == [("a", Ready("x", "1"))]
        assert await claim_keys(queue, "p", "x", 10**20) == "a"

    async def test_leases_are_renewed_ended_and_buried_repeatedly(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        for _ in range(2):
            assert await queue.renew("p", 10)
            assert await queue.renew("q", 10)
        assert not await queue.bury("p", 1)
        for _ in range(2):
            assert await queue.bury("p", 2)
            await queue.release("q")
        assert [await queue.renew(process, 10) for process in "pq"] == [False, False]
        assert await queue.bury("never seen", 1)
        assert await queue.renew("never seen", 10)

    # --- who may write ---

    @pytest.mark.parametrize("end", ["release", "bury"])
    async def test_a_process_without_a_lease_neither_writes_nor_takes(self, make_stores: MakeStores, end: str) -> None:
        stores = make_stores()
        queue = stores.queue
        with pytest.raises(LeaseLost):
            await create(queue, "a", Held("p"))
        with pytest.raises(LeaseLost):
            await queue.take("p", ["x"], 1)
        await queue.renew("p", 10)
        value = await create(queue, "a", Held("p", "x"))
        await create(queue, "b", Ready("x", "o"))
        if end == "release":
            await queue.release("p")
        else:
            assert await queue.bury("p", 1)
        for place in (None, Held("p"), Ready("x", "o")):
            with pytest.raises(LeaseLost):
                await queue.change("a", b"2", ttl=10, expect=value, place=place, holder="p")
        for key in "bc":
            with pytest.raises(LeaseLost):
                expect = b"b" if key == "b" else None
                await queue.change(key, b"2", ttl=10, expect=expect, place=Held("p"))
        with pytest.raises(LeaseLost):
            await queue.take("p", ["x"], 1)
        assert [await stores.kv.get(key) for key in "abc"] == [b"a", b"b", None]
        assert [await queue.place(key) for key in "ab"] == [Held("p", "x"), Ready("x", "o")]

    async def test_only_the_holder_writes(self, make_stores: MakeStores) -> None:
        stores = make_stores()
        queue = stores.queue
        for process in "pq":
            await queue.renew(process, 10)
        places = {"a": Held("p", "x"), "b": Ready("x", "o"), "c": None}
        for key, place in places.items():
            value = await create(queue, key, place)
            for expect in (value, b"other"):
                with pytest.raises(LeaseLost):
                    await queue.change(key, b"2", ttl=10, expect=expect, place=None, holder="q")
            for process in "pq":
                with pytest.raises(LeaseLost):
                    await queue.change(key, b"2", ttl=10, expect=value, place=None, orphan_of=process)
        assert [await stores.kv.get(key) for key in places] == [b"a", b"b", b"c"]
        assert [await queue.place(key) for key in places] == list(places.values())
        assert await queue.change("d", b"2", ttl=10, expect=b"1", place=None, holder="q") == b"", (
            "there is no such task"
        )
        assert await queue.change("a", b"2", ttl=10, expect=b"other", place=None, holder="p") == b"a"
        # Another process can end a task; the holder finds that out with its next change.
        assert await queue.change("a", b"over", ttl=10, expect=b"a", place=None) is None
        with pytest.raises(LeaseLost):
            await queue.change("a", b"2", ttl=10, expect=b"a", place=Held("p"), holder="p")

    @pytest.mark.parametrize("place", [Ready("x", "o"), Held("q"), None], ids=str)
    async def test_an_orphan_is_changed_by_the_first_who_comes(
        self, make_stores: MakeStores, place: Place | None
    ) -> None:
        stores = make_stores()
        queue = stores.queue
        for process in "pq":
            await queue.renew(process, 10)
        value = await create(queue, "a", Held("p", "x"))
        await queue.release("p")
        assert await queue.orphans(10) == [Task("a", value, "p")]
        assert await queue.change("a", b"2", ttl=10, expect=value, place=place, orphan_of="p") is None
        for expect in (value, b"2"):
            with pytest.raises(LeaseLost):
                await queue.change("a", b"3", ttl=10, expect=expect, place=None, orphan_of="p")
        assert await queue.orphans(10) == []
        assert await stores.kv.get("a") == b"2"

    # --- turns ---

    async def test_kinds_and_owners_take_turns(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        # Kind x: owner 1 has a to d, owner 2 e and f, owner 3 g. Kind y: owner 1 has h and i. Kind z: owner 1 has j.
        for key, kind, owner in zip("abcdefghij", "xxxxxxxyyz", "1111223111", strict=True):
            await create(queue, key, Ready(kind, owner))
        assert await claim_keys(queue, "p", "xy", 3) == "ahe"
        # Kind y is next; in x it is the turn of owner 3. Who comes now stands behind all of them.
        await create(queue, "k", Ready("x", "4"))
        await create(queue, "l", Ready("x", "2"))
        assert await claim_keys(queue, "p", "xy", 2) == "ig"
        assert await claim_keys(queue, "p", "x") == "bfkcld"
        assert await claim_keys(queue, "p", "xyz") == "j"
        # Who had nothing in line joins at the end again.
        for key, owner in zip("mno", "211", strict=True):
            await create(queue, key, Ready("x", owner))
        assert await claim_keys(queue, "p", "x") == "mno"

    async def test_owners_are_passed_over_and_keep_their_turn(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        for key, kind, owner in zip("abcdef", "xxxxyy", "112213", strict=True):
            await create(queue, key, Ready(kind, owner))
        assert await claim_keys(queue, "p", "xy", passing_over=["1", "2"]) == "f"
        assert await claim_keys(queue, "p", "xy", 2, passing_over=["1"]) == "cd"
        assert await claim_keys(queue, "p", "xy", passing_over=["1", "2", "3"]) == ""
        assert await claim_keys(queue, "p", "xy") == "eab"

    async def test_only_the_kinds_that_are_asked_for_are_taken(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        for key, kind in zip("abc", "xyz", strict=True):
            await create(queue, key, Ready(kind, "o"))
        assert (
            await claim_keys(queue, "p", "")
            == await claim_keys(queue, "p", "w")
            == await claim_keys(queue, "p", "xyz", 0)
            == ""
        )
        assert await claim_keys(queue, "p", "zyyz") == "bc"
        assert (await queue.counts())[:2] == ({"x": 1}, {"y": 1, "z": 1})

    async def test_a_task_keeps_its_place_in_line_when_its_record_changes(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        for key in "abcd":
            await create(queue, key, Ready("x", "o"))
        assert await queue.change("a", b"2", ttl=10, expect=b"a", place=Ready("x", "o", delay=50)) is None
        assert await queue.change("b", b"2", ttl=10, expect=b"b", place=Ready("x", "other")) is None
        assert await queue.change("c", b"2", ttl=10, expect=b"c", place=None) is None
        assert await queue.change("c", b"3", ttl=10, expect=b"2", place=Ready("x", "o")) is None
        assert await claim_keys(queue, "p", "x") == "abdc"

    async def test_a_task_that_was_handed_back_is_taken_again(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        await queue.renew("p", 10)
        await create(queue, "a", Ready("x", "o"))
        await create(queue, "b", Ready("x", "o"))
        (first,) = await queue.take("p", ["x"], 1)
        assert first == Task("a", b"a", "p")
        assert await queue.change("a", b"2", ttl=10, expect=b"a", place=Ready("x", "o"), holder="p") is None
        assert await queue.take("p", ["x"], 5) == [Task("b", b"b", "p"), Task("a", b"2", "p")]

    def test_each_task_is_taken_once_by_several_threads(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue

        async def fill() -> None:
            for number in range(200):
                await create(queue, str(number), Ready(f"kind {number % 3}", f"owner {number % 7}"))

        taken: list[Task] = []

        async def work(process: str) -> None:
            await queue.renew(process, 100)
            while tasks := await queue.take(process, ["kind 0", "kind 1", "kind 2"], 3):
                taken.extend(tasks)
                for task in tasks:
                    assert (
                        await queue.change(task.key, b"over", ttl=100, expect=task.value, place=None, holder=process)
                        is None
                    )

        asyncio.run(fill())
        in_threads(4, lambda number: asyncio.run(work(f"process {number}")))
        assert sorted(task.key for task in taken) == sorted(map(str, range(200)))
        assert asyncio.run(queue.counts()) == NOTHING._replace(leases=4)

    # --- time ---

    async def test_a_task_with_a_delay_is_taken_afterwards(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        queue = make_stores(clock=clock).queue
        await queue.renew("p", 1000)
        await create(queue, "a", Ready("x", "o", delay=10))
        await create(queue, "b", Ready("x", "o"))
        await create(queue, "c", Ready("x", "o", delay=5))
        await create(queue, "d", Ready("x", "other", delay=5))
        assert await queue.place("a") == Ready("x", "o", 10.0)
        assert await queue.counts() == NOTHING._replace(ready={"x": 4}, delayed=3, leases=1)
        assert await claim_keys(queue, "p", "x") == "b"
        clock.now += 4
        assert await queue.place("a") == Ready("x", "o", 6.0)
        assert await claim_keys(queue, "p", "x") == ""
        clock.now += 1
        assert await claim_keys(queue, "p", "x", 1) == "c"
        clock.now += 5
        await create(queue, "e", Ready("x", "o"))
        assert await queue.counts() == NOTHING._replace(ready={"x": 3}, held={"x": 2}, oldest=5.0, leases=1)
        assert await claim_keys(queue, "p", "x") == "dae", "tasks of an owner come in the order of their making"

    async def test_waiting_lists_the_oldest_ready_tasks(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        queue = make_stores(clock=clock).queue
        await create(queue, "a", Ready("x", "o", delay=20))
        await create(queue, "b", Ready("x", "o"))
        clock.now += 10
        await create(queue, "c", Ready("y", "o"))
        clock.now += 20
        assert await queue.waiting(0, 10) == [Task("b", b"b"), Task("c", b"c"), Task("a", b"a")]
        assert await keys(queue.waiting(20, 10)) == ["b", "c"]
        assert await keys(queue.waiting(20.5, 10)) == ["b"]
        assert await keys(queue.waiting(31, 10)) == []
        assert await keys(queue.waiting(0, 2)) == ["b", "c"]
        assert await keys(queue.waiting(0, 0)) == []
        assert (await queue.counts()).oldest == 30.0
        await queue.renew("p", 10)
        await queue.take("p", ["x"], 1)
        assert await keys(queue.waiting(0, 10)) == ["b", "c"], "a was made first"

    async def test_a_lease_is_stale_after_its_length_and_lasts_until_it_is_buried(
        self, make_stores: MakeStores
    ) -> None:
        clock = StoreClock()
        queue = make_stores(clock=clock).queue
        assert await queue.renew("machine 1", 10)
        clock.now += 1
        assert await queue.renew("machine 2", 10)
        assert await queue.renew("other", 100)
        assert await queue.leases() == [("machine 1", 1), ("machine 2", 1), ("other", 1)]
        assert await queue.leases("machine") == [("machine 1", 1), ("machine 2", 1)]
        clock.now += 8.5
        assert await queue.stale() == []
        clock.now += 0.5
        assert await queue.stale() == [("machine 1", 1)]
        clock.now += 60
        assert await queue.stale() == [("machine 1", 1), ("machine 2", 1)]
        await create(queue, "a", Ready("x", "o"))
        assert await claim_keys(queue, "machine 1", "x") == "a", "its lease was not buried"
        assert await queue.renew("machine 1", 10)
        assert await queue.stale() == [("machine 2", 1)]
        assert not await queue.bury("machine 1", 1), "it was renewed since"
        assert await queue.bury("machine 2", 1)
        assert await queue.stale() == []
        assert not await queue.renew("machine 2", 10)
        clock.now -= 50
        assert await queue.renew("machine 1", 10)
        assert await queue.stale() == [], "a clock that goes back does no harm"
        assert (await queue.counts()).leases == 2

    async def test_names_of_processes_are_forgotten_after_a_day(self, make_stores: MakeStores) -> None:
        clock = StoreClock()
        queue = make_stores(clock=clock).queue
        await queue.release("p")
        clock.now += 24 * 3600 - 1
        await queue.release("q")
        assert not await queue.renew("p", 10)
        clock.now += 1
        await queue.release("r")
        assert [await queue.renew(process, 10) for process in "pqr"] == [True, False, False]

    async def test_orphans_are_worked_off_in_batches(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        for process in ("dead", "gone", "lives"):
            await queue.renew(process, 10)
            for number in range(25):
                await create(queue, f"{process} {number:02}", Held(process, "x"))
        assert await queue.orphans(10) == []
        await queue.bury("gone", 1)
        await queue.release("dead")
        assert (await queue.counts()).orphans == 50
        worked: list[str] = []
        while tasks := await queue.orphans(7):
            assert len(tasks) <= 7
            for task in tasks:
                worked.append(task.key)
                place = Ready("x", "o") if len(worked) % 2 else None
                value = task.value + b"+"
                assert (
                    await queue.change(task.key, value, ttl=10, expect=task.value, place=place, orphan_of=task.process)
                    is None
                )
        assert worked == [f"{process} {number:02}" for process in ("dead", "gone") for number in range(25)]
        assert await queue.orphans(10) == []
        assert await queue.orphans(0) == []
        assert (await queue.counts())[:4] == ({"x": 25}, {"x": 25}, 0, 0)

    # --- keeping a lease ---

    async def test_a_lease_that_is_kept_is_not_stale_until_that_ends(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        stop = queue.keep("p", 600, lambda: None)
        while not await queue.leases():
            await asyncio.sleep(0)
        await create(queue, "a", Held("p", "x"))
        assert await queue.stale() == []
        stop()
        stop()
        await queue.release("p")
        assert await keys(queue.orphans(10)) == ["a"]

    async def test_loss_of_a_kept_lease_is_reported_once(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue
        lost: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def report(name: str) -> None:
            loop.call_soon_threadsafe(lost.put_nowait, name)

        stops = [queue.keep(process, 0.03, partial(report, process)) for process in "pq"]
        while len(await queue.leases()) < 2:
            await asyncio.sleep(0)
        while not await queue.bury("p", dict(await queue.leases()).get("p", 0)):
            pass
        assert await lost.get() == "p"
        assert await queue.leases("p") == []
        # The other is still kept, and a process that has lost its lease is called at once.
        stops.append(queue.keep("p", 600, partial(report, "again")))
        assert await lost.get() == "again"
        assert (await queue.counts()).leases == 1
        for stop in stops:
            stop()
        assert lost.empty()

    async def test_failing_callback_of_a_lost_lease_does_not_stop_the_queue(
        self, make_stores: MakeStores, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = make_stores().queue
        await queue.release("p")
        called = threading.Event()

        def fails() -> None:
            called.set()
            raise RuntimeError("on purpose")

        stop = queue.keep("p", 10, fails)
        assert await asyncio.to_thread(called.wait)
        stop()
        assert await queue.renew("q", 10)
        assert "on purpose" in caplog.text

    # --- compared with the memory ---

    @settings(
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors], deadline=None
    )
    @given(st.lists(STEPS, max_size=40), st.sampled_from([{}, {"max_items": 3}]))
    def test_behaves_like_the_queue_in_memory(
        self, make_stores: MakeStores, steps: list[Step], limits: dict[str, int]
    ) -> None:
        asyncio.run(self._compare_with_memory(make_stores, steps, limits))

    async def _compare_with_memory(self, make_stores: MakeStores, steps: list[Step], limits: dict[str, int]) -> None:
        clock = StoreClock()
        stores = make_stores(clock=clock, **limits)
        model = Stores(MemoryKV(clock=clock, **limits), MemoryLog(), MemoryBus())
        for step in steps:
            if isinstance(step, WaitStep):
                clock.now += step.seconds
                continue
            present = await model.kv.get(step.key) if isinstance(step, ChangeStep) else None
            assert await outcome(step, stores.queue, present) == await outcome(step, model.queue, present)
        for key in KEYS:
            assert await stores.queue.place(key) == await model.queue.place(key)
            assert await stores.kv.get(key) == await model.kv.get(key)
        looks = (
            *(CallStep("counts", ()), CallStep("stale", ()), CallStep("leases", ()), CallStep("places", ("",))),
            *(CallStep("orphans", (9,)), CallStep("waiting", (0, 9))),
        )
        for step in looks:
            assert await outcome(step, stores.queue, None) == await outcome(step, model.queue, None)
        stores.close()


class LeaseThreadContract:
    """Further behaviour of a queue that renews leases in a thread of its own.

    Use it beside `QueueContract`.
    """

    async def test_a_blocked_event_loop_keeps_its_lease(self, make_stores: MakeStores) -> None:
        queue = make_stores().queue

        async def watch() -> None:
            # Each number is that of a renewal by the thread of the store: this loop never asks for one.
            while not any(renewal >= 4 for _, renewal in await queue.leases("p")):
                await asyncio.sleep(0.001)

        stop = queue.keep("p", 0.05, lambda: None)
        in_threads(1, lambda number: asyncio.run(watch()))
        stop()
