"""The clock of deadlines, and timeouts that share a timer."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest

from toolwire.wire.deadlines import (
    SHARED,
    PersonTime,
    StoppableClock,
    TimeoutClock,
    Timeouts,
    _of_loops,
    in_time,
    timeouts,
)


class Clock:
    """A loop of which only the time matters."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], context: object = None) -> object:
        return self.call_at(self.now + delay, callback)

    def call_at(self, when: float, callback: Callable[[], None], context: object = None) -> object:
        self.timers.append((when, callback))
        return object()

    def go_to(self, now: float) -> None:
        while self.timers and self.timers[0][0] <= now:
            when, callback = self.timers.pop(0)
            self.now = max(self.now, when)
            callback()
        self.now = now


def made() -> tuple[Any, Timeouts, list[str]]:
    clock: Any = Clock()
    return clock, Timeouts(clock, 10.0), []


def test_each_ends_in_its_time_with_one_timer() -> None:
    clock, made_timeouts, called = made()
    for number in range(5):
        clock.go_to(100.0 + number)
        made_timeouts.start(lambda number=number: called.append(str(number)))
    assert len(clock.timers) == 1
    clock.go_to(109.9)
    assert called == []
    clock.go_to(111.0)
    assert called == ["0", "1"]
    assert len(clock.timers) == 1
    clock.go_to(200.0)
    assert called == ["0", "1", "2", "3", "4"]
    assert clock.timers == []


def test_what_is_called_off_is_not_called() -> None:
    clock, made_timeouts, called = made()

    def first() -> None:
        called.append("first")
        made_timeouts.stop(second)

    def second() -> None:
        called.append("second")

    made_timeouts.start(first)
    made_timeouts.start(second)
    clock.go_to(120.0)
    assert called == ["first"]
    made_timeouts.start(second)
    made_timeouts.stop(second)
    made_timeouts.stop(second)
    clock.go_to(140.0)
    assert called == ["first"]
    assert clock.timers == []


def test_one_that_begins_again_goes_to_the_end() -> None:
    clock, made_timeouts, called = made()

    def one() -> None:
        called.append("one")

    def other() -> None:
        called.append("other")

    made_timeouts.start(one)
    clock.go_to(105.0)
    made_timeouts.start(other)
    made_timeouts.start(one)
    clock.go_to(114.0)
    assert called == []
    clock.go_to(115.0)
    assert called == ["other", "one"]


def test_one_that_fails_takes_no_other_with_it() -> None:
    clock, made_timeouts, called = made()

    def fails() -> None:
        raise KeyError

    made_timeouts.start(fails)
    made_timeouts.start(lambda: called.append("after"))
    with pytest.raises(KeyError):
        clock.go_to(110.0)
    clock.go_to(110.0)
    assert called == ["after"]


async def test_each_loop_has_its_own() -> None:
    loop = asyncio.get_running_loop()
    assert timeouts(loop, 1.0) is timeouts(loop, 1.0)
    assert timeouts(loop, 1.0) is not timeouts(loop, 2.0)
    ended = asyncio.Event()
    timeouts(loop, 0.001).start(ended.set)
    await ended.wait()


def test_a_loop_that_has_ended_is_not_kept() -> None:
    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.get_running_loop()
        timeouts(loop, 60.0).start(print)
        timeouts(loop, 60.0).stop(print)
        return weakref.ref(loop)

    ended = asyncio.run(main())
    gc.collect()
    assert ended() is None


async def test_lengths_without_number_are_not_kept() -> None:
    loop = asyncio.get_running_loop()
    for number in range(1000):
        timeouts(loop, 100.0 + number)
    assert len(_of_loops[loop]) <= SHARED
    ended = asyncio.Event()
    alone = timeouts(loop, 0.0015)
    alone.start(ended.set)
    await ended.wait()


class Loop:
    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


def test_it_goes_with_the_loop_and_stands_while_anybody_holds_it() -> None:
    loop = Loop()
    clock = StoppableClock(cast(Any, loop))
    loop.now = 101
    assert (clock.time(), clock.stands) == (101, False)
    clock.hold()
    loop.now = 105
    clock.hold()
    loop.now = 110
    clock.let_go()
    assert (clock.time(), clock.stands) == (101, True)
    loop.now = 111
    clock.let_go()
    assert (clock.time(), clock.stands, clock.behind) == (101, False, 10)
    loop.now = 112
    clock.hold()
    loop.now = 115
    clock.let_go()
    loop.now = 116
    assert (clock.time(), clock.behind) == (103, 13)


@pytest.mark.parametrize("seconds", [None, 60.0])
async def test_a_step_that_ends_is_in_time(seconds: float | None) -> None:
    assert await in_time(seconds, asyncio.sleep(0))


async def test_a_step_that_takes_too_long_is_cancelled() -> None:
    step = asyncio.get_running_loop().create_future()
    assert not await in_time(0.0, step)
    assert step.cancelled()


async def test_a_timeout_of_the_step_itself_is_raised() -> None:
    async def fails() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await in_time(60.0, fails())


async def test_the_clock_of_a_timeout_can_stand_still() -> None:
    async with asyncio.timeout(60.0) as limit:
        before = limit.when()
        clock = TimeoutClock(limit)
        clock.pause()
        assert limit.when() is None
        clock.resume()
        after = limit.when()
        assert before is not None and after is not None and after >= before


# --- the time of people ----------------------------------------------------------------------------------------------


class Stopped:
    """A clock that counts who has stopped it."""

    def __init__(self) -> None:
        self.pauses = 0

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1


async def test_clocks_stop_while_a_person_is_asked_and_only_then() -> None:
    person, early, late, brief = PersonTime(), Stopped(), Stopped(), Stopped()
    with person.stopping(None), person.stopping(early):
        assert early.pauses == 0
        with person.asking():
            with person.stopping(brief):
                assert brief.pauses == 1
            assert brief.pauses == 0
            with person.asking(), person.stopping(late):
                assert (early.pauses, late.pauses) == (1, 1)
            assert (early.pauses, late.pauses) == (1, 0)
        assert early.pauses == 0


async def test_clocks_of_other_loops_stop_on_their_own_loop() -> None:
    person, clock, threads = PersonTime(), Stopped(), list[int]()
    stopped, resumed, begun = threading.Event(), threading.Event(), threading.Event()

    class Noting(Stopped):
        def pause(self) -> None:
            threads.append(threading.get_ident())
            stopped.set()

        def resume(self) -> None:
            threads.append(threading.get_ident())
            resumed.set()

    async def wait_for_sign_in() -> int:
        with person.stopping(Noting()):
            begun.set()
            await asyncio.to_thread(resumed.wait, 20)
        return threading.get_ident()

    other = asyncio.create_task(asyncio.to_thread(asyncio.run, wait_for_sign_in()))
    await asyncio.to_thread(begun.wait, 20)
    with person.stopping(clock), person.asking():
        assert await asyncio.to_thread(stopped.wait, 20)
        assert clock.pauses == 1
    assert await asyncio.to_thread(resumed.wait, 20)
    assert threads == [await other] * 2 and clock.pauses == 0
