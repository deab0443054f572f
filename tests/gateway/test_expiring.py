"""Values that are forgotten some time after their last use."""

from __future__ import annotations

import gc
import weakref

from toolwire.gateway.expiring import SWEEP_SECONDS, Expiring
from toolwire.testing import elapse


class Value:
    """A value that can be watched."""


async def test_a_value_is_kept_for_its_time_after_its_last_use() -> None:
    kept: Expiring[str, int] = Expiring(10)
    for key in ("used", "unused"):
        kept.put(key, 1, 100.0)
    await elapse(90.0)
    assert kept.use("used") == 1
    await elapse(20.0)
    assert ("used" in kept, "unused" in kept, len(kept)) == (True, False, 1)
    assert (kept.use("used"), kept.use("unused")) == (1, None)
    assert (kept.pop("used"), kept.pop("used")) == (1, None)
    kept.clear()


async def test_values_whose_time_is_over_need_no_memory() -> None:
    forgotten: list[str] = []
    kept: Expiring[str, Value] = Expiring(10, lambda key, _: forgotten.append(key))
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
    kept: Expiring[str, int] = Expiring(2, lambda key, _: forgotten.append(key))
    for key in ("a", "b"):
        kept.put(key, 0, 100.0)
    kept.use("a")
    kept.put("c", 0, 100.0)
    kept.put("c", 1, 100.0)
    assert (forgotten, len(kept)) == (["b"], 2)
    kept.clear()
    assert (forgotten, len(kept)) == (["b"], 0)
