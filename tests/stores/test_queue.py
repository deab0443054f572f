from __future__ import annotations

import itertools

import pytest

from toolwire.protocol.errors import ServerError
from toolwire.stores import (
    Held,
    LeaseLost,
    MemoryBus,
    MemoryKV,
    MemoryLog,
    MemoryQueue,
    Place,
    Queue,
    Ready,
    Stores,
)
from toolwire.stores.queue import NO_QUEUE, judge

PLACES: tuple[Place | None, ...] = (
    None,
    Ready("x", "o"),
    Ready("x", "o", 5.0),
    Ready("y", "o"),
    Ready("x", "q"),
    Held("lives", "x"),
    Held("dead", "x"),
)


def test_a_write_is_refused_or_made_and_the_reason_is_the_first_that_holds() -> None:
    """Every combination of what is there, what is expected, where it is, where it goes, and who asks."""
    written = 0
    for present, expect, now, place, holder, orphan_of in itertools.product(
        (None, b"1", b"2", b"new"), (None, b"1", b"new"), PLACES, PLACES, ("", "lives", "dead"), ("", "lives", "dead")
    ):
        if present is None and now is not None:
            continue
        holds = now.process if isinstance(now, Held) else None
        refused = (holder and (holds != holder or holder == "dead")) or (
            orphan_of and (holds != orphan_of or orphan_of == "lives")
        )
        is_there = present == b"new" and (expect != b"new" or _same(now, place))
        try:
            answer = judge(present, now, b"new", expect, place, holder, orphan_of, lambda name: name == "lives")
        except LeaseLost:
            needs_lease = isinstance(place, Held) and place.process == "dead" and present == expect
            assert (refused or needs_lease) and not is_there and not (present is None and expect is not None)
            continue
        if present is None and expect is not None:
            assert answer == (False, b"")
        elif is_there:
            assert answer == (False, None)
        else:
            assert not refused
            assert answer == ((True, None) if present == expect else (False, present))
            written += answer[0]
    assert written


def _same(now: Place | None, place: Place | None) -> bool:
    """Whether two places are the same but for the delay."""
    return now == place or (isinstance(now, Ready) and isinstance(place, Ready) and now[:2] == place[:2])


def test_a_kind_that_is_left_out_is_the_kind_that_it_was() -> None:
    for kind, answer in (("", (False, None)), ("x", (False, None)), ("y", (True, None))):
        held = Held("p", "x")
        assert judge(b"1", held, b"1", b"1", Held("p", kind), "", "", lambda name: True) == answer


def test_stores_in_memory_have_one_queue_for_each_kv() -> None:
    kv = MemoryKV()
    queue: Queue = Stores(kv, MemoryLog(), MemoryBus()).queue
    assert Stores(kv, MemoryLog(), MemoryBus()).queue is queue is MemoryQueue.of(kv)
    assert Stores.memory().queue is not queue
    with pytest.raises(ServerError, match="has a queue"):
        MemoryQueue(kv)


async def test_stores_of_another_kind_say_that_they_have_no_queue() -> None:
    class OtherKV:
        pass

    memory = Stores.memory()
    stores = Stores(OtherKV(), memory.log, memory.bus)  # type: ignore[arg-type]
    assert stores.queue is NO_QUEUE
    with pytest.raises(ServerError, match=r"make them as Stores\(kv, log, bus, queue\)"):
        await stores.queue.take("p", ["x"], 1)
    with pytest.raises(ServerError, match="have no queue"):
        stores.queue.keep("p", 10, lambda: None)
    assert Stores(OtherKV(), memory.log, memory.bus, memory.queue).queue is memory.queue  # type: ignore[arg-type]
