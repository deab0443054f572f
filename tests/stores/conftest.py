"""Marks the contracts of the stores with the requirements that they prove."""

from __future__ import annotations

import pytest

from toolwire.testing.stores import QueueContract

COVERS = {
    QueueContract.test_a_record_and_its_place_are_written_together: ("FLT-1",),
    QueueContract.test_how_many_tasks_may_be_ready: ("FLT-10",),
    QueueContract.test_a_full_store_changes_neither_the_record_nor_the_place: ("FLT-1",),
    QueueContract.test_a_creation_is_repeated: ("FLT-1",),
    QueueContract.test_a_change_is_repeated: ("FLT-1",),
    QueueContract.test_leases_are_renewed_ended_and_buried_repeatedly: ("FLT-5",),
    QueueContract.test_a_process_without_a_lease_neither_writes_nor_takes: ("FLT-9",),
    QueueContract.test_only_the_holder_writes: ("FLT-9",),
    QueueContract.test_kinds_and_owners_take_turns: ("FLT-2",),
    QueueContract.test_owners_are_passed_over_and_keep_their_turn: ("FLT-2",),
    QueueContract.test_only_the_kinds_that_are_asked_for_are_taken: ("FLT-3",),
    QueueContract.test_a_task_with_a_delay_is_taken_afterwards: ("FLT-4",),
    QueueContract.test_a_lease_is_stale_after_its_length_and_lasts_until_it_is_buried: ("FLT-4",),
    QueueContract.test_orphans_are_worked_off_in_batches: ("FLT-25",),
    QueueContract.test_a_lease_that_is_kept_is_not_stale_until_that_ends: ("FLT-5",),
    QueueContract.test_loss_of_a_kept_lease_is_reported_once: ("FLT-5",),
}

for _test, _requirements in COVERS.items():
    pytest.mark.covers(*_requirements)(_test)
