"""Workers that die are replaced, each after a delay of its own."""

from __future__ import annotations

import sys

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no fork", allow_module_level=True)

from toolwire.http.worker_processes import FIRST_DELAY, LAST_DELAY, Supervisor, _Child


def read_delay(caplog: pytest.LogCaptureFixture) -> float:
    """Return the delay in the last line of the log."""
    return float(caplog.messages[-1].removesuffix(" s").rpartition(" ")[2])


def test_the_delay_of_a_worker_that_dies_again_and_again_slows_no_other_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor(4, lambda worker: None, grace=1.0)
    try:
        supervisor._served = True
        for _ in range(12):
            supervisor._died(_Child(1, 0), -9)
        assert read_delay(caplog) == LAST_DELAY
        for slot in (1, 2):
            supervisor._died(_Child(2, slot), -9)
            assert read_delay(caplog) == 2 * FIRST_DELAY
        assert sorted(supervisor._starts) == [0, 1, 2], "each is started once"
        assert supervisor._starts[1] < supervisor._starts[0]
    finally:
        supervisor._close()


def test_a_worker_that_lived_for_long_is_replaced_soon(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(1, lambda worker: None, grace=1.0)
    try:
        supervisor._served = True
        for _ in range(5):
            supervisor._died(_Child(1, 0), -9)
        old = _Child(2, 0)
        old.born -= 3600
        supervisor._died(old, -9)
        assert read_delay(caplog) == FIRST_DELAY
    finally:
        supervisor._close()
