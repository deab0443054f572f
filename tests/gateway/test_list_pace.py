"""How often lists of an upstream are read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.cases import cases

from toolwire.gateway.list_pace import BYTES_A_SECOND, LONGEST_PAUSE, READINGS_A_SECOND, ListPace

MIB = 1024 * 1024


def read(pace: ListPace, now: float, size: int, *, has_changed: bool = True) -> float:
    """Read at the earliest time from `now` on; return it."""
    now += pace.seconds_until_next(now)
    pace.begin(now)
    pace.end(now, size, has_changed=has_changed)
    return now


@pytest.mark.covers("GW-12.3")
def test_small_lists_are_read_ten_times_in_a_second() -> None:
    pace, now = ListPace(), 100.0
    times = [now := read(pace, now, 1_000) for _ in range(3 * READINGS_A_SECOND)]
    assert times[0] == 100.0 and 2.0 <= times[-1] - times[0] <= 3.0


@pytest.mark.covers("GW-12.3")
@cases("mib", [1, 8, 23])
def test_pauses_of_large_lists_grow_while_they_change(mib: int) -> None:
    pace, now = ListPace(), 100.0
    times = [now := read(pace, now, mib * MIB) for _ in range(12)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    base = mib * MIB / BYTES_A_SECOND
    assert pauses == [min(base * 2**number, LONGEST_PAUSE) for number in range(11)]


@pytest.mark.covers("GW-12.3")
@cases(("waited", "has_changed"), [(0.0, False), (1_000.0, True)])
def test_pauses_are_short_again_when_a_large_list_is_quiet(waited: float, has_changed: bool) -> None:
    pace, now = ListPace(), 100.0
    for _ in range(5):
        now = read(pace, now, 4 * MIB)
    now = read(pace, now + waited, 4 * MIB, has_changed=has_changed)
    assert pace.seconds_until_next(now) == 4.0


@pytest.mark.covers("GW-12.3")
def test_missing_lists_are_read_without_the_pause_of_their_size() -> None:
    pace = ListPace()
    now = read(pace, 100.0, 23 * MIB)
    assert pace.seconds_until_next(now) == 23.0
    assert pace.seconds_until_next(now, is_urgent=True) == 0.0
