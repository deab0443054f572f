"""What is counted in a storage budget, and for how long."""

from __future__ import annotations

from toolwire.wire.shares import StorageBudget


def test_what_is_released_does_not_count_any_more() -> None:
    budget = StorageBudget(10, 0.5)
    first, second = budget.admit("ann", 3, 60), budget.admit("ann", 2, 60)
    assert not budget.admit("ann", 1, 60)
    budget.release(first)
    budget.release(first)
    assert budget.admit("ann", 3, 60) and not budget.admit("ann", 1, 60)
    budget.release(second)
    assert budget.has_room("ann", 2) and not budget.has_room("ann", 3)


def test_release_after_the_time_is_over_changes_nothing() -> None:
    budget = StorageBudget(10, 1.0)
    over = budget.admit("ann", 6, 0)
    assert budget.admit("ann", 6, 60)
    budget.release(over)
    assert budget.has_room("ann", 4) and not budget.has_room("ann", 5)


def test_next_release_is_that_of_an_entry_that_counts() -> None:
    budget = StorageBudget(10, 1.0)
    soon = budget.admit("ann", 1, 5)
    budget.admit("ann", 1, 60)
    assert 0 < budget.seconds_until_release() <= 5
    budget.release(soon)
    assert 50 < budget.seconds_until_release() <= 60


def test_entries_that_were_released_do_not_pile_up() -> None:
    budget = StorageBudget(10, 1.0)
    budget.admit("ann", 1, 30)
    for _ in range(10_000):
        budget.release(budget.admit("bob", 1, 60))
    assert len(budget._ends) < 200
    assert budget.has_room("ann", 9)
