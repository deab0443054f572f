"""What tests of tasks share: the time of day as the test has it."""

from __future__ import annotations

import pytest

from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores
from toolwire.testing import elapse


class Clock:
    """The time of day for records of tasks; `stores` keep the same time."""

    def __init__(self) -> None:
        self._now = 1_800_000_000.0
        self.stores = Stores(MemoryKV(clock=self.time), MemoryLog(), MemoryBus())

    def time(self) -> float:
        return self._now

    async def elapse(self, seconds: float) -> None:
        self._now += seconds
        await elapse(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in ("manager", "task_records", "methods", "running_tasks", "following", "dead_letters", "fleet_tasks"):
        monkeypatch.setattr(f"toolwire.server.tasks.{module}.time", made)
    return made
