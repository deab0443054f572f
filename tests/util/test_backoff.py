"""Pauses between attempts: they grow, and no other side makes them short."""

from __future__ import annotations

import random

import pytest

from toolwire.util.backoff import FIRST_SECONDS, LONGEST_SECONDS, SETTLED_SECONDS, Backoff


def pauses(backoff: Backoff, count: int) -> list[float]:
    return [backoff.after(0) for _ in range(count)]


@pytest.mark.parametrize("retry", [0, 1])
def test_server_cannot_shorten_the_first_pause(retry: int) -> None:
    assert Backoff().after(retry) == FIRST_SECONDS
    assert Backoff().after(5000) == 5.0


def test_pauses_grow_whatever_the_server_asks_for() -> None:
    first, *_, last = pauses(Backoff(), 12)
    assert first == FIRST_SECONDS
    assert LONGEST_SECONDS / 2 <= last <= LONGEST_SECONDS


def test_connection_that_brings_something_and_breaks_keeps_the_pauses() -> None:
    backoff = Backoff(3)
    for _ in range(20):
        assert not backoff.exhausted
        last = backoff.after(0)
        backoff.ease()
    # Long enough to be no flood, and short enough for a server that ends its streams on purpose.
    assert 4 * FIRST_SECONDS <= last <= 8 * FIRST_SECONDS


def test_connection_that_lasted_starts_the_pauses_again() -> None:
    backoff = Backoff(3)
    pauses(backoff, 3)
    backoff.settle(SETTLED_SECONDS / 2)
    assert backoff.exhausted
    backoff.settle(SETTLED_SECONDS)
    assert backoff.after(0) == FIRST_SECONDS


def test_first_pause_is_the_constant_at_the_time_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)
    assert Backoff(3).next() == 0.0


def test_pauses_leave_the_random_numbers_of_the_program_alone() -> None:
    before = random.getstate()
    assert Backoff(first=1.0).next() is not None
    assert random.getstate() == before
