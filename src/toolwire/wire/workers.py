"""Threads for handlers that block: an own pool whose results reach the loop in batches.

Waking the loop is the dear part of handing over a result. Here many results share one wake-up, which is several times
the throughput of `loop.run_in_executor`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from toolwire.protocol.errors import ToolwireError
from toolwire.wire.handover import hand_over, start_daemon

Result = TypeVar("Result")


class Busy(ToolwireError):
    """Every worker is occupied and the queue is full: refuse the call, the caller may try again later."""


class _Job(NamedTuple):
    mailbox: _Mailbox
    future: asyncio.Future[Any]
    context: contextvars.Context
    function: Callable[..., Any]
    args: tuple[Any, ...]


class _Mailbox:
    """Finished jobs on their way to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._waking = False

    def post(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        """Called in a worker."""
        self._finished.append((future, value, error))
        # `_collect` clears the flag before it looks, so an entry added after a set flag is always seen.
        if not self._waking:
            self._waking = True
            hand_over(self.loop, self._collect)

    def _collect(self) -> None:
        self._waking = False
        finished = self._finished
        while finished:
            future, value, error = finished.popleft()
            if future.done():
                continue  # the task that waited was cancelled; nobody wants this any more
            if error is None:
                future.set_result(value)
            elif isinstance(error, StopIteration):
                # A future refuses it, because it would look like the end of the coroutine that waits.
                failure = RuntimeError("the function raised StopIteration")
                failure.__cause__ = error
                future.set_exception(failure)
            else:
                future.set_exception(error)


class ThreadWorkers:
    """At most `threads` daemon threads, started when needed, and at most `queue` calls that wait for one."""

    def __init__(self, threads: int = 40, queue: int = 1000) -> None:
        self._limit = threads
        self._queue = queue
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        # How many threads wait for work and have not been counted on yet. It may be too low, which at worst starts a
        # thread too many; too high would leave a call waiting behind a blocked one.
        self._idle = 0
        self._lock = threading.Lock()
        self._mailbox: _Mailbox | None = None
        self._closed = False

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Call a function in a thread, with a copy of the current context; await the result.

        Cancelling the wait does not stop the thread, which no language feature can do; its result is dropped. Raises
        `Busy` when the queue is full.
        """
        loop = asyncio.get_running_loop()
        if self._mailbox is None or self._mailbox.loop is not loop:
            self._mailbox = _Mailbox(loop)
        future: asyncio.Future[Result] = loop.create_future()
        self._put(_Job(self._mailbox, future, contextvars.copy_context(), function, args))
        return future

    def shutdown(self) -> None:
        """Take no more work and let idle threads end; one that is stuck is not waited for."""
        self._closed = True
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if job is not None:
                hand_over(job.mailbox.loop, job.future.cancel)
        for _ in self._threads:
            self._jobs.put(None)

    def _put(self, job: _Job) -> None:
        if self._closed:
            raise Busy("the server is stopping")
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif len(self._threads) < self._limit:
                self._threads.append(start_daemon("worker", self._work))
            elif self._jobs.qsize() >= self._queue:
                raise Busy(f"{self._limit} calls are running and {self._queue} are waiting; try again later")
            self._jobs.put(job)

    def _work(self) -> None:
        while self._serve():
            pass

    def _serve(self) -> bool:
        """One job; a function of its own, so that a thread that waits keeps nothing of the last call alive."""
        job = self._jobs.get()
        if job is None:
            return False
        value, error = (None, None) if job.future.cancelled() else _perform(job)
        # Before the result is known, or whoever waits for it and calls again would find no idle thread.
        with self._lock:
            if self._jobs.empty():
                self._idle += 1
        job.mailbox.post(job.future, value, error)
        return True


def _perform(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.context.run(job.function, *job.args), None
    except BaseException as error:
        return None, error


class CancelToken:
    """Tells code in other threads that its call was cancelled."""

    __slots__ = ("_callbacks", "_cancelled", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once, in the thread that cancels, or at once when that has happened. The result takes it back."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return lambda: self._forget(callback)
        callback()
        return lambda: None

    def _forget(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


def call_in_loop(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], Coroutine[Any, Any, Result]],
    token: CancelToken | None = None,
) -> Result:
    """From a worker thread: run a coroutine on the loop, in this thread's context, and wait for its result.

    When the token is cancelled the coroutine is cancelled and this raises `asyncio.CancelledError` at once.
    """
    if asyncio._get_running_loop() is loop:
        raise RuntimeError("this would wait for itself: inside the event loop, await the call instead")
    outcome: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    tasks: list[asyncio.Task[Result]] = []

    def start() -> None:
        if token is None or not token.cancelled:
            task = loop.create_task(make())
            tasks.append(task)
            task.add_done_callback(finished)

    def finished(task: asyncio.Task[Result]) -> None:
        if task.cancelled():
            outcome.put((None, asyncio.CancelledError()))
        elif (error := task.exception()) is not None:
            outcome.put((None, error))
        else:
            outcome.put((task.result(), None))

    def cancel() -> None:
        hand_over(loop, lambda: [task.cancel() for task in tasks])
        outcome.put((None, asyncio.CancelledError()))

    forget = token.on_cancel(cancel) if token is not None else None
    try:
        if not hand_over(loop, start):
            raise asyncio.CancelledError("the event loop has ended")
        value, error = outcome.get()
    finally:
        if forget is not None:
            forget()
    if error is not None:
        raise error
    result: Result = value
    return result
