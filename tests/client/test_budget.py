"""What is left to spend."""

from __future__ import annotations

import pytest

from toolwire.client import Budget, BudgetExceeded


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_calls_are_counted() -> None:
    budget = Budget(calls=2)
    for left in (1, 0):
        budget.spend("f")()
        assert budget.calls_left == left
    with pytest.raises(BudgetExceeded, match="The budget is used up: 2 calls"):
        budget.spend("f")
    budget.reset()
    budget.spend("f")


def test_a_tool_may_have_a_budget_of_its_own() -> None:
    budget = Budget(tools={"mail": 1, "never": 0})
    budget.spend("mail")
    with pytest.raises(BudgetExceeded, match="The budget for mail is used up: 1 call"):
        budget.spend("mail")
    with pytest.raises(BudgetExceeded):
        budget.spend("never")
    for _ in range(10):
        budget.spend("other")


def test_time_is_counted_and_what_is_left_bounds_the_next_call() -> None:
    clock = Clock()
    budget = Budget(seconds=10, clock=clock)
    ended = budget.spend("f")
    assert budget.timeout(60) == 10
    assert budget.timeout(None) == 10
    clock.now += 7
    ended()
    assert (budget.timeout(60), budget.timeout(2), budget.seconds_left) == (3, 2, 3)
    ended = budget.spend("f")
    clock.now += 100
    ended()
    with pytest.raises(BudgetExceeded, match="10 seconds"):
        budget.spend("f")


def test_a_clock_that_goes_back_gives_no_time_back() -> None:
    clock = Clock()
    budget = Budget(seconds=10, clock=clock)
    ended = budget.spend("f")
    clock.now -= 1000
    ended()
    assert budget.seconds_left == 10


def test_without_limits_nothing_is_limited() -> None:
    budget = Budget()
    assert (budget.calls_left, budget.seconds_left, budget.timeout(None), budget.timeout(5)) == (None, None, None, 5)


def test_a_budget_is_never_negative() -> None:
    with pytest.raises(ValueError, match="calls must be at least 0"):
        Budget(calls=-1)


def test_a_call_that_is_given_back_was_never_counted() -> None:
    budget = Budget(calls=5, tools={"mail": 1})
    budget.hold("mail").give_back()
    budget.hold("other").give_back()
    assert budget.calls_left == 5
    held = budget.hold("mail")
    budget.reset()
    held.give_back()
    assert budget.calls_left == 5, "it was counted before the budget began anew"
    budget.spend("mail")
    with pytest.raises(BudgetExceeded):
        budget.hold("mail")
