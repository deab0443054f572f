"""Work that runs once at a time, for any number of callers."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from toolwire.util.single_flight import LoopsFlight, SingleFlight


class Work:
    """Work that waits for `go`, and counts how often it began."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        await self.go.wait()
        return self.begun


async def test_callers_share_the_work_that_runs() -> None:
    flight, work = SingleFlight[int](), Work()
    callers = [asyncio.create_task(flight.run(work)) for _ in range(3)]
    other_key = asyncio.create_task(flight.run(work, "other"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert flight.find() is not None
    work.go.set()
    assert await asyncio.gather(*callers) == [2, 2, 2]
    assert (await other_key, work.begun, flight.find()) == (2, 2, None)
    assert await flight.run(work) == 3, "work that is over is done again"


async def test_work_goes_on_when_its_callers_give_up() -> None:
    flight, work = SingleFlight[int](), Work()
    caller = asyncio.create_task(flight.run(work))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    work.go.set()
    assert (await flight.run(work), work.begun) == (1, 1)


async def test_joined_work_ends_with_its_last_waiter() -> None:
    flight, work = SingleFlight[int](), Work()
    first, last = (asyncio.create_task(flight.join(work)) for _ in range(2))
    await asyncio.sleep(0)
    task = flight.find()
    assert task is not None
    first.cancel()
    await asyncio.wait({first})
    assert not task.cancelling()
    last.cancel()
    await asyncio.wait({last})
    assert task.cancelling()
    again = asyncio.create_task(flight.join(work))
    await asyncio.sleep(0)
    assert (await asyncio.wait({task}))[0] == {task} and task.cancelled()
    work.go.set()
    assert (await again).result() == 2, "work that was given up is not shared any more"


async def test_joined_work_continues_after_a_waiter_without_patience() -> None:
    flight, work = SingleFlight[int](), Work()
    waiter = asyncio.create_task(flight.join(work))
    task = await flight.join(work, wait=lambda task: asyncio.wait({task}, timeout=0.0))
    assert not task.done()
    work.go.set()
    assert await waiter is task
    assert task.result() == 1


async def test_failure_is_read_by_each_waiter() -> None:
    async def fail() -> int:
        raise ValueError("failed")

    flight = SingleFlight[int]()
    tasks = await asyncio.gather(*(flight.join(fail) for _ in range(3)))
    assert {str(task.exception()) for task in tasks} == {"failed"}


async def test_stopped_work_has_ended() -> None:
    flight, work = SingleFlight[int](), Work()
    waiter = asyncio.create_task(flight.join(work))
    await asyncio.sleep(0)
    await flight.stop()
    assert (await waiter).cancelled()
    assert flight.find() is None
    await flight.stop()


async def test_failed_work_is_done_again_and_raises_for_each_caller() -> None:
    flight, begun = SingleFlight[int](), 0

    async def fail() -> int:
        nonlocal begun
        begun += 1
        raise ValueError(f"attempt {begun}")

    for attempt in (1, 2):
        with pytest.raises(ValueError, match=f"attempt {attempt}"):
            await flight.run(fail)
    flight.start(fail)
    await asyncio.sleep(0)
    gc.collect()  # A failure that no caller waits for is not reported by the loop.


async def test_cancelled_work_ends() -> None:
    flight, work = SingleFlight[int](), Work()
    task = flight.start(work)
    flight.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flight.find() is None


def test_each_loop_does_its_own_work() -> None:
    flight = SingleFlight[int]()

    async def once() -> int:
        work = Work()
        work.go.set()
        return await flight.run(work)

    assert [asyncio.run(once()), asyncio.run(once())] == [1, 1]


async def test_another_loop_begins_anew_when_work_was_given_up() -> None:
    flight, begun = LoopsFlight[int](), threading.Event()

    async def never() -> int:
        begun.set()
        await asyncio.Event().wait()
        return 0

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await flight.run(never)

    async def one() -> int:
        return 1

    first = asyncio.create_task(asyncio.to_thread(asyncio.run, give_up()))
    await asyncio.to_thread(begun.wait, 20)
    assert await flight.run(one) == 1
    await first
    assert not flight.is_running


async def test_another_loop_begins_anew_when_a_loop_was_closed() -> None:
    flight = LoopsFlight[int]()

    async def never() -> int:
        await asyncio.Event().wait()
        return 0

    async def one() -> int:
        return 1

    def begin() -> object:
        loop = asyncio.new_event_loop()
        task = loop.create_task(flight.run(never))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    abandoned = await asyncio.to_thread(begin)
    assert flight.is_running
    assert await flight.run(one) == 1
    del abandoned
