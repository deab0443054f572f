"""The time a handler may take: with a timer where it is short, by looking now and then where it is long."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import Any

import pytest

from toolwire import Client, Server
from toolwire.server.handler_deadline import Deadline, Deadlines


def test_a_loop_that_stands_still_is_told_of_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, real = Clock(), [50.0]
    monkeypatch.setattr("toolwire.server.handler_deadline.monotonic", lambda: real[0])
    deadlines = Deadlines()
    deadlines.running.add(Deadline(300.0, None, clock))  # type: ignore[arg-type]
    deadlines.watch(clock)  # type: ignore[arg-type]
    told = []
    for took in (1.0, 2.9, 3.5, 9.0, 60.0, 1.0):
        real[0] += took
        caplog.clear()
        clock.go_to(clock.now + 1.0)
        told.append([record.getMessage() for record in caplog.records])
    assert [len(each) for each in told] == [0, 0, 1, 0, 1, 0]
    assert told[2][0].startswith("the event loop stood still for 2.5 seconds: an async handler computes or blocks")
    assert "executor='process'" in told[2][0]


class Clock:
    """A loop of which only the time matters."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Any, *arguments: Any) -> Any:
        self.timers.append((self.now + delay, partial(callback, *arguments)))
        return self

    def cancel(self) -> None:
        """Of a timer, which this stands for too: there is only one at a time."""
        self.timers.clear()

    def go_to(self, now: float) -> None:
        while self.timers and self.timers[0][0] <= now:
            self.now, callback = self.timers.pop(0)
            callback()
        self.now = now


class Task:
    cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def running(seconds: float) -> tuple[Any, Any, Deadlines, Deadline]:
    clock: Any = Clock()
    task: Any = Task()
    deadlines = Deadlines()
    deadline = Deadline(seconds, task, clock)
    deadlines.running.add(deadline)
    deadlines.watch(clock)
    return clock, task, deadlines, deadline


@pytest.mark.covers("R20")
def test_a_long_time_is_never_short_and_little_longer() -> None:
    clock, task, _, deadline = running(300.0)
    clock.go_to(400.0)
    assert not deadline.expired
    clock.go_to(402.0)
    assert deadline.expired
    clock.go_to(500.0)
    assert task.cancelled == 1


def test_nobody_looks_when_nothing_runs() -> None:
    clock, task, deadlines, deadline = running(300.0)
    deadlines.running.discard(deadline)
    deadline.stop()
    clock.go_to(1000.0)
    assert not deadlines.watched
    assert not clock.timers
    assert task.cancelled == 0


def test_time_stands_still_while_it_is_paused() -> None:
    clock, task, deadlines, deadline = running(300.0)
    clock.go_to(200.0)
    deadline.pause()
    deadline.pause()
    clock.go_to(1000.0)
    deadline.resume()
    assert task.cancelled == 0
    deadlines.running.clear()  # What is left has a timer of its own, and only that one is on this clock now.
    clock.timers.clear()
    deadline.resume()
    clock.go_to(1200.0)
    assert not deadline.expired
    clock.go_to(1202.0)
    assert task.cancelled == 1


def test_more_time_counts_from_now_on() -> None:
    clock, task, _, deadline = running(300.0)
    clock.go_to(350.0)
    deadline.allow(600.0)
    clock.go_to(940.0)
    assert not deadline.expired
    clock.go_to(952.0)
    assert task.cancelled == 1


@pytest.mark.parametrize("seconds", [0.01, 300.0])
def test_what_has_come_to_its_end_is_left_alone(seconds: float) -> None:
    clock, task, _, deadline = running(seconds)
    deadline.count()
    deadline.pause()
    deadline.stop()
    deadline.resume()
    clock.go_to(1000.0)
    assert task.cancelled == 0


@pytest.mark.parametrize("timeout", [5.0, 300.0])
async def test_a_call_leaves_no_ring_behind(timeout: float) -> None:
    server = Server("rings")

    @server.tool(timeout=timeout)
    async def waits() -> None:
        await asyncio.sleep(0)

    async with Client(server) as client:
        await client.call_tool("waits")
        gc.disable()
        try:
            # Earlier tests may leave garbage of their own at any moment. A ring of a call is there every time.
            assert min([await _garbage_of_ten_calls(client) for _ in range(5)]) < 10
        finally:
            gc.enable()


async def _garbage_of_ten_calls(client: Client) -> int:
    gc.collect()
    for _ in range(10):
        await client.call_tool("waits")
    return gc.collect()
