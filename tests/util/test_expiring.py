"""Values that are forgotten some time after their last use."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

from toolwire.testing import elapse
from toolwire.util.expiring import SWEEP_SECONDS, Expiring


class Value:
    """A value that can be watched."""


async def test_a_value_is_kept_for_its_time_after_its_last_use() -> None:
    kept: Expiring[str, int] = Expiring(10, sweeps=True)
    for key in ("used", "unused"):
        kept.put(key, 1, 100.0)
    await elapse(90.0)
    assert kept.renew("used") == 1
    await elapse(20.0)
    assert ("used" in kept, "unused" in kept, len(kept)) == (True, False, 1)
    assert (kept.renew("used"), kept.use("unused")) == (1, None)
    assert (kept.pop("used"), kept.pop("used")) == (1, None)
    kept.clear()


async def test_values_whose_time_is_over_need_no_memory() -> None:
    forgotten: list[str] = []
    kept: Expiring[str, Value] = Expiring(10, sweeps=True, on_evict=lambda key, _: forgotten.append(key))
    for key in ("first", "second"):  # The timer ended with the first value, and starts anew with the second one.
        value = Value()
        watched = weakref.ref(value)
        kept.put(key, value, 30.0)
        del value
        await elapse(SWEEP_SECONDS + 1)
        gc.collect()
        assert watched() is None
    assert forgotten == ["first", "second"]


async def test_the_value_that_was_used_longest_ago_makes_room() -> None:
    forgotten: list[str] = []
    kept: Expiring[str, int] = Expiring(2, sweeps=True, on_evict=lambda key, _: forgotten.append(key))
    for key in ("a", "b"):
        kept.put(key, 0, 100.0)
    kept.renew("a")
    kept.put("c", 0, 100.0)
    kept.put("c", 1, 100.0)
    assert (forgotten, len(kept)) == (["b"], 2)
    kept.clear()
    assert (forgotten, len(kept)) == (["b"], 0)


def test_a_use_does_not_extend_the_time_to_live() -> None:
    now = [0.0]
    kept: Expiring[str, int] = Expiring(2, clock=lambda: now[0])
    kept.put("a", 1, 10.0)
    kept.put("b", 2)
    now[0] = 9.0
    assert (kept.use("a"), kept.get("a")) == (1, 1)
    kept.put("c", 3)
    assert (kept.get("b"), kept.get("b", 0)) == (None, 0), "it was used longest ago"
    now[0] = 10.0
    assert (kept.use("a"), kept.renew("a"), list(kept), len(kept)) == (None, None, ["c"], 1)


def test_heavy_values_make_room_and_too_heavy_ones_are_not_stored() -> None:
    evicted: list[str] = []
    kept: Expiring[str, bytes] = Expiring(max_weight=10, weigh=len, on_evict=lambda key, _: evicted.append(key))
    for key, size in (("a", 4), ("b", 4), ("a", 6), ("c", 3)):
        kept.put(key, bytes(size))
    assert (evicted, kept.weight, list(kept)) == (["b"], 9, ["a", "c"])
    kept.put("d", bytes(11))
    assert (evicted, kept.weight, len(kept)) == (["b", "a", "c", "d"], 0, 0)


def test_several_threads_use_one_object() -> None:
    entries: Expiring[int, int] = Expiring(8, max_weight=64, weigh=lambda value: value % 5)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(3000):
                key = (step * seed) % 16
                entries.put(key, step, 0.0001 if step % 3 else 10)
                entries.use(key)
                entries.renew((key + 1) % 16)
                entries.pop((key + 2) % 16)
                list(entries), len(entries), entries.items()
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in (3, 5, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
