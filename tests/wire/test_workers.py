"""Threads and processes for handlers."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.wire.process_end import wait_until_gone
from tests.wire.process_functions import add, coroutine, failing, hang, reporting, where

from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError, Timeout, ToolError
from toolwire.testing import elapse
from toolwire.wire.process_workers import ProcessFailed, ProcessWorkers, check_process_function, report
from toolwire.wire.shares import Taken
from toolwire.wire.thread_workers import Busy, CancelToken, ThreadWorkers, call_in_loop

# --- threads


async def test_a_blocked_function_does_not_block_the_loop_or_others() -> None:
    workers = ThreadWorkers()
    release = threading.Event()
    blocked = [workers.run(release.wait) for _ in range(5)]
    assert await workers.run(lambda: 7) == 7
    assert not any(future.done() for future in blocked)
    release.set()
    assert await asyncio.gather(*blocked) == [True] * 5
    workers.shutdown()


async def test_threads_start_when_needed_and_are_daemons() -> None:
    workers = ThreadWorkers(threads=3)
    assert workers._threads == []
    for _ in range(20):
        await workers.run(int)
    assert len(workers._threads) == 1
    release, all_busy = threading.Event(), threading.Barrier(4)

    def block(number: int) -> bool:
        if number < 3:
            all_busy.wait()
        return release.wait()

    running = [workers.run(block, number) for number in range(10)]
    await asyncio.to_thread(all_busy.wait)  # Three at once, although all came in one turn of the loop.
    assert len(workers._threads) == 3
    assert all(thread.daemon for thread in workers._threads)
    release.set()
    await asyncio.gather(*running)
    workers.shutdown()


async def test_a_burst_of_short_calls_wakes_few_threads() -> None:
    workers = ThreadWorkers()
    meeting = threading.Barrier(20)
    await asyncio.gather(*(workers.run(meeting.wait) for _ in range(20)))
    assert len(workers._threads) >= 20
    calls = 0
    original = workers._calls.put

    class Counting:
        get = workers._calls.get

        def put(self, wanted: bool) -> None:
            nonlocal calls
            calls += 1
            original(wanted)

    workers._calls = Counting()  # type: ignore[assignment]
    for _ in range(10):
        await asyncio.gather(*(workers.run(int) for _ in range(50)))
    assert calls < 250
    workers.shutdown()


async def test_a_full_queue_refuses() -> None:
    workers = ThreadWorkers(threads=2, queue=3)
    release = threading.Event()
    started = threading.Barrier(3)

    def block() -> None:
        started.wait()
        release.wait()

    running = [workers.run(block) for _ in range(2)]
    await asyncio.to_thread(started.wait)
    waiting = [workers.run(int) for _ in range(3)]
    with pytest.raises(Busy, match="all 2 workers are busy and the queue of 3 calls is full"):
        workers.run(int)
    release.set()
    await asyncio.gather(*running, *waiting)
    assert await workers.run(int) == 0
    workers.shutdown()


async def test_the_context_is_copied() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("caller")

    def function() -> str:
        seen = variable.get()
        variable.set("worker")
        return seen

    workers = ThreadWorkers()
    assert await workers.run(function) == "caller"
    assert variable.get() == "caller"
    workers.shutdown()


async def test_exceptions_come_back_as_they_are() -> None:
    class Unwind(BaseException):
        pass

    def fail(error: BaseException) -> None:
        raise error

    workers = ThreadWorkers()
    with pytest.raises(KeyError):
        await workers.run(fail, KeyError("x"))
    with pytest.raises(Unwind):
        await workers.run(fail, Unwind())
    with pytest.raises(RuntimeError, match="StopIteration"):
        await workers.run(fail, StopIteration())
    workers.shutdown()


async def test_a_cancelled_wait_drops_the_result_and_keeps_the_thread() -> None:
    workers = ThreadWorkers(threads=1)
    release, started = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait()
        raise ValueError("nobody hears this")

    task = asyncio.ensure_future(workers.run(block))
    await asyncio.to_thread(started.wait)
    never: list[int] = []
    skipped = workers.run(never.append, 1)
    skipped.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert await workers.run(lambda: "same thread") == "same thread"
    assert never == []
    assert len(workers._threads) == 1
    workers.shutdown()


async def test_many_results_share_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    workers = ThreadWorkers(threads=4)
    await workers.run(int)
    wakes = 0
    original = loop.call_soon_threadsafe

    def counting(*args: Any, **options: Any) -> Any:
        nonlocal wakes
        wakes += 1
        return original(*args, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    counted = threading.Barrier(2)
    finished = [0]

    def count() -> None:
        finished[0] += 1
        if finished[0] == 100:
            counted.wait()

    workers._limit = 1
    running = [workers.run(count) for _ in range(100)]
    counted.wait()  # the loop does not turn until the worker has done them all
    await asyncio.gather(*running)
    assert wakes <= 5
    workers.shutdown()


async def test_many_calls() -> None:
    workers = ThreadWorkers(queue=10_000)
    results = await asyncio.gather(*(workers.run(lambda x: x + 1, number) for number in range(10_000)))
    assert results == list(range(1, 10_001))
    workers.shutdown()


def test_a_pool_serves_one_loop_after_another() -> None:
    workers = ThreadWorkers(threads=2)
    release = threading.Event()

    async def first() -> None:
        workers.run(release.wait)
        assert await workers.run(int) == 0

    async def second() -> None:
        assert await workers.run(lambda: 2) == 2

    asyncio.run(first())
    asyncio.run(second())
    release.set()
    asyncio.run(second())
    workers.shutdown()


async def test_a_result_reaches_its_own_loop_when_another_comes_meanwhile() -> None:
    class Interrupted(ThreadWorkers):
        """Another thread gets its turn in the middle of `run`, here where it asks whether the pool is closed."""

        @property
        def _closed(self) -> bool:
            if others:
                thread = threading.Thread(target=asyncio.run, args=(others.pop(),))
                thread.start()
                thread.join()
            return False

        @_closed.setter
        def _closed(self, value: bool) -> None:
            return

    async def other() -> None:
        assert await workers.run(lambda: "theirs") == "theirs"

    others: list[Any] = []
    workers = Interrupted()
    others.append(other())
    async with asyncio.timeout(5):
        assert await workers.run(lambda: "ours") == "ours"
    workers.shutdown()


async def test_shutting_down_does_not_wait_for_a_stuck_thread() -> None:
    workers = ThreadWorkers(threads=1)
    release, started = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait()

    workers.run(block)
    waiting = workers.run(int)
    await asyncio.to_thread(started.wait)
    workers.shutdown()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(Busy):
        workers.run(int)
    release.set()
    await asyncio.to_thread(workers._threads[0].join)


async def test_an_idle_thread_keeps_nothing_of_a_finished_call_alive() -> None:
    class Big:
        pass

    workers = ThreadWorkers(threads=1)
    big = Big()
    reference = weakref.ref(big)
    await workers.run(lambda value: None, big)
    await workers.run(int)
    del big
    gc.collect()
    assert reference() is None
    workers.shutdown()


# --- from a thread back into the loop


async def test_a_thread_calls_into_the_loop_in_its_own_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("seen")
    loop = asyncio.get_running_loop()

    async def ask() -> str:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loop
        return variable.get()

    async def fail() -> None:
        raise ToolError("no")

    workers = ThreadWorkers()
    assert await workers.run(call_in_loop, loop, ask) == "seen"
    with pytest.raises(ToolError, match="no"):
        await workers.run(call_in_loop, loop, fail)
    workers.shutdown()


async def test_a_token_frees_the_thread_and_cancels_what_it_waits_for() -> None:
    loop = asyncio.get_running_loop()
    token = CancelToken()
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    outcomes: list[str] = []

    def tool() -> None:
        try:
            call_in_loop(loop, ask, token)
        except asyncio.CancelledError:
            outcomes.append("cancelled")

    workers = ThreadWorkers()
    running = workers.run(tool)
    await asked.wait()
    assert not token.cancelled
    token.cancel()
    await running
    await cancelled.wait()
    assert outcomes == ["cancelled"]
    # A call that starts after the token was cancelled does not start at all.
    asked.clear()
    await workers.run(tool)
    assert outcomes == ["cancelled", "cancelled"]
    assert not asked.is_set()
    workers.shutdown()


async def test_waiting_for_oneself_is_refused() -> None:
    async def nothing() -> None:
        pass

    with pytest.raises(RuntimeError, match="await the call instead"):
        call_in_loop(asyncio.get_running_loop(), nothing)


def test_a_loop_that_has_ended_is_a_cancellation() -> None:
    async def nothing() -> None:
        pass

    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(asyncio.CancelledError):
        call_in_loop(loop, nothing)


def test_a_callback_of_a_token_can_be_taken_back() -> None:
    token = CancelToken()
    calls: list[str] = []
    token.on_cancel(lambda: calls.append("kept"))
    token.on_cancel(lambda: calls.append("taken back"))()
    token.cancel()
    token.cancel()
    token.on_cancel(lambda: calls.append("late"))
    assert calls == ["kept", "late"]


# --- processes


@pytest.fixture
async def processes() -> AsyncIterator[ProcessWorkers]:
    workers = ProcessWorkers(count=2, queue=1)
    yield workers
    await workers.close()


async def test_a_function_runs_in_a_warm_process_with_nothing_of_the_protocol(processes: ProcessWorkers) -> None:
    assert await processes.run(add, [1], {"right": 2}) == 3
    pid, stdin, out_is_err = await processes.run(where)
    assert pid != os.getpid()
    assert stdin == b""
    assert out_is_err
    assert (await processes.run(where))[0] == pid


async def test_reports_arrive_in_order_before_the_result(processes: ProcessWorkers) -> None:
    seen: list[Any] = []
    assert await processes.run(reporting, [3], on_message=seen.append) == "done"
    assert seen == [("progress", 0), ("progress", 1), ("progress", 2)]
    with pytest.raises(RuntimeError, match="not a worker"):
        report("x")


async def test_exceptions_come_back_described(processes: ProcessWorkers) -> None:
    with pytest.raises(ProcessFailed, match="a secret reason") as raised:
        await processes.run(failing, ["value"])
    assert raised.value.type_name == "ValueError"
    assert 'raise ValueError("a secret reason")' in raised.value.traceback
    with pytest.raises(ProcessFailed) as raised:
        await processes.run(failing, ["exit"])
    assert raised.value.type_name == "SystemExit"
    with pytest.raises(ProcessFailed, match="a value cannot be pickled for another process"):
        await processes.run(failing, ["result"])
    with pytest.raises(ToolError, match="for the model"):
        await processes.run(failing, ["tool"])
    with pytest.raises(ProtocolError) as protocol:
        await processes.run(failing, ["protocol"])
    assert (protocol.value.code, protocol.value.message, protocol.value.data) == (
        INVALID_PARAMS,
        "wrong",
        {"field": "x"},
    )
    # None of that cost the process.
    assert len(processes._pool._all) == 1


async def test_a_crash_is_a_clean_error_and_the_next_call_works(processes: ProcessWorkers) -> None:
    with pytest.raises(ProcessFailed, match="ended with status 9"):
        await processes.run(failing, ["crash"])
    assert await processes.run(add, [1, 1]) == 2


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_stopping_kills_the_process_and_its_children(processes: ProcessWorkers, how: str, tmp_path: Path) -> None:
    pids: list[int] = []
    started = asyncio.Event()

    def message(pid: int) -> None:
        pids.extend((pid, next(iter(processes._pool._all)).pid))
        started.set()

    running = asyncio.ensure_future(
        processes.run(hang, [str(tmp_path / "x")], timeout=5 if how == "timeout" else None, on_message=message)
    )
    await started.wait()
    if how == "cancel":
        running.cancel()
    else:
        await elapse(5)
    with pytest.raises(asyncio.CancelledError if how == "cancel" else Timeout):
        await running
    assert pids
    for pid in pids:
        await asyncio.to_thread(wait_until_gone, pid)
    assert await processes.run(add, [2, 2]) == 4


async def test_no_more_processes_than_allowed_and_a_bounded_queue(processes: ProcessWorkers, tmp_path: Path) -> None:
    started = asyncio.Semaphore(0)
    running = [
        asyncio.ensure_future(
            processes.run(hang, [str(tmp_path / str(number))], on_message=lambda message: started.release())
        )
        for number in range(2)
    ]
    for _ in running:
        await started.acquire()
    waiting = asyncio.ensure_future(processes.run(add, [1, 2]))
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="all 2 processes are busy and the queue of 1 call is full"):
        await processes.run(add, [1, 2])
    running[0].cancel()
    assert await waiting == 3
    running[1].cancel()
    await asyncio.wait(running)


async def test_one_caller_has_a_share_of_the_processes(tmp_path: Path) -> None:
    workers = ProcessWorkers(count=2, queue=6, share=0.5)
    started = asyncio.Semaphore(0)
    path = [str(tmp_path / "started")]
    try:
        long = asyncio.ensure_future(workers.run(hang, path, on_message=lambda message: started.release(), caller="a"))
        await started.acquire()
        # More of the same caller wait, although a process is free, and no more than half of all may.
        waiting = [asyncio.ensure_future(workers.run(add, [1, number], caller="a")) for number in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Taken) as caught:
            await workers.run(add, [1, 2], caller="a")
        assert caught.value.own
        assert await workers.run(add, [2, 2], caller="b") == 4
        assert not any(each.done() for each in waiting)
        long.cancel()
        assert [await each for each in waiting] == [1, 2, 3]
        assert await workers.run(add, [1, 2], caller="a") == 3
        pool = workers._pool
        assert pool is not None
        assert (pool._turns.running, pool._turns.waiting, pool._admitted.total) == (0, 0, 0)
    finally:
        await workers.close()


async def test_arguments_that_can_not_be_sent_are_refused_here(processes: ProcessWorkers) -> None:
    with pytest.raises(TypeError, match="a value cannot be pickled for another process"):
        await processes.run(add, [lambda: 1, 2])


def test_only_what_a_fresh_interpreter_can_import_is_accepted() -> None:
    def local() -> None:
        pass

    check_process_function(add)
    for function, reason in (
        (local, "top level of a module"),
        (lambda: 1, "top level of a module"),
        (CancelToken.cancel, "top level of a module"),
        (coroutine, "not async def"),
        (functools.partial(add, 1), "function defined with def"),
        (len, "function defined with def"),
    ):
        with pytest.raises(ServerError, match=reason):
            check_process_function(function)


SCRIPT = """
import asyncio, sys
from toolwire.wire.process_workers import ProcessWorkers, check_process_function

class Point:
    def __init__(self, x):
        self.x = x

def double(point):
    return Point(point.x * 2)

async def main():
    check_process_function(double)
    workers = ProcessWorkers(count=1)
    print((await workers.run(double, [Point(4)])).x)
    await workers.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_functions_and_types_of_the_main_program_work(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, check=False, text=True)
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_a_main_program_without_a_file_is_refused() -> None:
    done = subprocess.run([sys.executable, "-"], input=SCRIPT, capture_output=True, check=False, text=True)
    assert "has no file that could be imported" in done.stderr


async def test_a_file_loaded_by_its_path_is_found_again(processes: ProcessWorkers, tmp_path: Path) -> None:
    import importlib.util

    # The name is that of another module, which must not be taken instead.
    path = tmp_path / "server.py"
    path.write_text(
        textwrap.dedent(
            """
            def name():
                return __file__
            """
        )
    )
    spec = importlib.util.spec_from_file_location("colorsys", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["colorsys"] = module
    try:
        spec.loader.exec_module(module)
        check_process_function(module.name)
        assert await processes.run(module.name) == str(path)
    finally:
        del sys.modules["colorsys"]


def test_a_pool_of_processes_serves_one_loop_after_another() -> None:
    workers = ProcessWorkers(count=1)

    async def once() -> None:
        assert await workers.run(add, [1, 1]) == 2
        await workers.close()

    asyncio.run(once())
    asyncio.run(once())
