"""The time a handler may take: with a timer where it is short, by looking now and then where it is long."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, cast

import pytest

from toolwire import Client, Server
from toolwire.server.handler_deadline import Deadline, RunningHandlers


def test_a_loop_that_stands_still_is_told_of_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, real = Clock(), [50.0]
    monkeypatch.setattr("toolwire.server.handler_deadline.monotonic", lambda: real[0])
    RunningHandlers(clock).start(300.0, None)  # type: ignore[arg-type]
    told = []
    for took in (1.0, 2.9, 3.5, 9.0, 60.0, 1.0):
        real[0] += took
        caplog.clear()
        clock.go_to(clock.now + 1.0)
        told.append([record.getMessage() for record in caplog.records])
    assert [len(each) for each in told] == [0, 0, 1, 0, 1, 0]
    assert told[2][0].startswith("the event loop stood still for 2.5 seconds: an async handler computes or blocks")
    assert "executor='process'" in told[2][0]


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """A loop of which only the time matters."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], context: object = None) -> Timer:
        return self.call_at(self.now + delay, callback)

    def call_at(self, when: float, callback: Callable[[], None], context: object = None) -> Timer:
        timer = Timer(when, callback)
        self.timers.append(timer)
        return timer

    @property
    def waiting(self) -> list[Timer]:
        return sorted((each for each in self.timers if each.callback is not None), key=lambda timer: timer.when)

    def go_to(self, now: float) -> None:
        while (waiting := self.waiting) and waiting[0].when <= now:
            timer = waiting[0]
            self.timers.remove(timer)
            self.now = max(self.now, timer.when)
            assert timer.callback is not None
            timer.callback()
        self.now = now


class Task:
    cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def running(seconds: float) -> tuple[Clock, Task, RunningHandlers, Deadline]:
    clock, task = Clock(), Task()
    handlers = RunningHandlers(cast(Any, clock))
    return clock, task, handlers, handlers.start(seconds, cast(Any, task))


@pytest.mark.covers("R20")
def test_a_long_time_is_never_short_and_little_longer() -> None:
    clock, task, _, deadline = running(300.0)
    clock.go_to(400.0)
    assert not deadline.expired
    clock.go_to(402.0)
    assert deadline.expired
    clock.go_to(500.0)
    assert task.cancelled == 1


def test_a_short_time_is_exact_and_many_share_one_timer() -> None:
    clock, task, handlers, deadline = running(5.0)
    others = [handlers.start(5.0 + number, None) for number in range(10)]
    assert len(clock.waiting) == 2, "the alarm of the deadlines, and the look at the loop"
    clock.go_to(104.9)
    assert not deadline.expired
    clock.go_to(105.0)
    assert (deadline.expired, task.cancelled) == (True, 1)
    assert not any(other.expired for other in others), "they have no task that could be cancelled"


def test_nobody_looks_when_nothing_runs() -> None:
    clock, task, handlers, deadline = running(300.0)
    handlers.deadlines.discard(deadline)
    deadline.stop()
    clock.go_to(1000.0)
    assert not clock.waiting
    assert task.cancelled == 0


@pytest.mark.parametrize("counted", [True, False])
def test_time_stands_still_while_it_is_paused(counted: bool) -> None:
    clock, task, _, deadline = running(300.0)
    if counted:
        clock.go_to(201.0)  # The first look, at 101, began to count.
    deadline.pause()
    deadline.pause()
    clock.go_to(1000.0)
    deadline.resume()
    clock.go_to(2000.0)
    assert task.cancelled == 0
    deadline.resume()
    left = 200.0 if counted else 300.0
    clock.go_to(2000.0 + left - 1)
    assert not deadline.expired
    clock.go_to(2000.0 + left + 2)
    assert task.cancelled == 1


@pytest.mark.parametrize("paused", [True, False])
def test_more_time_counts_from_now_on(paused: bool) -> None:
    clock, task, _, deadline = running(300.0)
    clock.go_to(350.0)
    if paused:
        deadline.pause()
    deadline.allow(600.0)
    if paused:
        deadline.resume()
    clock.go_to(940.0)
    assert not deadline.expired
    clock.go_to(952.0)
    assert task.cancelled == 1


@pytest.mark.parametrize("seconds", [0.01, 300.0])
def test_what_has_come_to_its_end_is_left_alone(seconds: float) -> None:
    clock, task, _, deadline = running(seconds)
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
        gc.collect()
        gc.freeze()  # What earlier tests left is not looked at.
        try:
            # Threads of earlier tests may make garbage at any moment. A ring of a call is there every time.
            assert min([await _garbage_of_ten_calls(client) for _ in range(5)]) < 10
        finally:
            gc.enable()


async def _garbage_of_ten_calls(client: Client) -> int:
    gc.collect()
    for _ in range(10):
        await client.call_tool("waits")
    return gc.collect()


@pytest.mark.parametrize("seconds", [10.0, 300.0])
def test_the_time_that_is_left(seconds: float) -> None:
    clock = Clock()
    handlers = RunningHandlers(clock)  # type: ignore[arg-type]
    deadline = handlers.start(seconds, None)
    assert deadline.time_left == seconds
    clock.go_to(clock.now + 1.0)
    # A long time is counted from the first look on.
    counted = seconds - 1.0 if seconds < 20 else seconds
    assert deadline.time_left == counted
    deadline.pause()
    clock.go_to(clock.now + 3.0)
    assert deadline.time_left == counted
    deadline.resume()
    clock.go_to(clock.now + 2.0)
    assert deadline.time_left == counted - 2.0
    deadline.allow(8.0)
    assert deadline.time_left == 8.0
