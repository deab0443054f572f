"""Worker threads for handlers that block. Their results reach the loop in batches.

Waking the loop is the expensive part of passing a result on. Here many results share one wake-up, which has several
times the throughput of `loop.run_in_executor`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from queue import SimpleQueue
from typing import Any, TypeVar

from msgspec import Struct

from toolwire.protocol.errors import ToolwireError, counted
from toolwire.wire.shares import Caller, Shares, Turns
from toolwire.wire.threads import hand_over, start_daemon

Result = TypeVar("Result")


class Busy(ToolwireError):
    """The refusal of a call, because every worker is busy and the queue is full. The caller may try again later."""


class _Job(Struct, frozen=True):
    mailbox: _Mailbox
    future: asyncio.Future[Any]
    context: contextvars.Context
    function: Callable[..., Any]
    args: tuple[Any, ...]
    caller: Caller = None


class _Mailbox:
    """Finished jobs on their way to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._waking = False

    def post(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        """Pass a result to the loop. Called in a worker."""
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
                continue  # The task that waited was cancelled, so nobody wants the result.
            if error is None:
                future.set_result(value)
            elif isinstance(error, StopIteration):
                # A future refuses StopIteration, because it would end the coroutine that waits.
                failure = RuntimeError("the function raised StopIteration")
                failure.__cause__ = error
                future.set_exception(failure)
            else:
                future.set_exception(error)


class ThreadWorkers:
    """A pool of at most `threads` daemon threads, started when needed, and at most `queue` calls that wait for one.

    A thread that is woken takes one job after the other. If there is more than one, it has another thread woken before
    it begins, so that no job waits behind one that blocks. Short jobs are done before that thread arrives, so a burst
    of them costs two wake-ups and not one each.

    `share` is the part of the threads, and of the places in the queue, that one caller of `run_for` may use.
    """

    def __init__(self, threads: int = 40, queue: int = 1000, share: float = 1.0) -> None:
        self._limit = threads
        self._queue = queue
        # The jobs of callers that use their whole share of the threads wait for their turn.
        self._turns = Turns(Shares(threads + queue, share, "calls in threads", of=threads))
        self._waiting = Shares(queue, share, "calls that wait for a thread")
        self._jobs: deque[_Job] = deque()
        self._threads: list[threading.Thread] = []
        # Sleeping threads wait for one of these: True to look for jobs, False to end.
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._asleep = 0
        self._lock = threading.Lock()
        # Each is true only while some thread has yet to look at the jobs: one that was called and has not arrived, or
        # one that has finished its job. A thread that clears a flag looks after that, so no job is overlooked.
        self._called = False
        self._returning = False
        # The mailbox of the loop that called last. Nearly always there is only one loop.
        self._mailbox: _Mailbox | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Return the number of calls that wait for a thread."""
        return len(self._jobs) + self._waiting.total

    def run(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Call a function in a thread, with a copy of the current context; return a future of its result.

        Cancelling the wait does not stop the thread, because Python cannot; its result is dropped. Raise `Busy` when
        the queue is full.
        """
        job = self._job(function, args)
        if len(self._jobs) >= self._queue:
            self._check_room()
        self._jobs.append(job)
        if not (self._called or self._returning):
            self._call()
        return job.future

    def run_for(self, caller: Hashable, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Call a function as `run` does, within the share of a caller: other jobs of the caller may have to end first.

        Raise `Taken` when the caller has used its share of the queue, too.
        """
        job = self._job(function, args, caller)
        self._turns.shares.check(None)
        if not self._turns.take(caller):
            self._waiting.take(caller)
            if self._turns.take_or_queue(caller, lambda: self._begin_waiting(job)) is not None:
                return job.future
            self._waiting.give_back(caller)
        self._jobs.append(job)
        if not (self._called or self._returning):
            self._call()
        return job.future

    def _job(self, function: Callable[..., Any], args: tuple[Any, ...], caller: Caller = None) -> _Job:
        loop = asyncio.get_running_loop()
        mailbox = self._mailbox
        if mailbox is None or mailbox.loop is not loop:
            # The thread of another loop may replace it at any time, so only the local variable is used below.
            mailbox = self._mailbox = _Mailbox(loop)
        if self._closed:
            raise Busy("the server is stopping")
        return _Job(mailbox, loop.create_future(), contextvars.copy_context(), function, args, caller)

    def _begin_waiting(self, job: _Job) -> bool:
        """Let a job that waited for its turn be done. Return whether its result is still wanted."""
        self._waiting.give_back(job.caller)
        if self._closed:
            hand_over(job.mailbox.loop, job.future.cancel)
        if self._closed or job.future.cancelled():
            return False
        self._jobs.append(job)
        return True

    def run_beside(self, function: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """Call a function in a thread of its own, because a worker waits for it, and all workers could be waiting."""
        if self._closed:
            raise Busy("the server is stopping")
        loop = asyncio.get_running_loop()
        job = _Job(_Mailbox(loop), loop.create_future(), contextvars.copy_context(), function, args)
        start_daemon("beside a worker", _work_off, job)
        return job.future

    def _check_room(self) -> None:
        """Raise `Busy` when the queue is full. Jobs for which a thread is free, or can be started, do not count."""
        with self._lock:
            free = self._asleep + self._limit - len(self._threads) + self._called
            if len(self._jobs) >= self._queue + free:
                raise Busy(
                    f"all {self._limit} workers are busy and the queue of {counted(self._queue, 'call')} is full; "
                    "try again later"
                )

    def _call(self) -> None:
        """Wake one more thread, or start one, unless all are busy."""
        with self._lock:
            if self._called:
                return
            if self._asleep:
                self._called = True
                self._asleep -= 1
                self._calls.put(True)
            elif len(self._threads) < self._limit:
                self._called = True
                self._threads.append(start_daemon("worker", self._work))

    def shutdown(self) -> None:
        """Take no more work and let idle threads end. Threads that are stuck are not waited for."""
        self._closed = True
        for waiter in self._turns.drop_queue():
            waiter.begin()
        while self._jobs:
            try:
                job = self._jobs.popleft()
            except IndexError:
                break  # A thread took the last job.
            hand_over(job.mailbox.loop, job.future.cancel)
        for _ in self._threads:
            self._calls.put(False)

    def _work(self) -> None:
        arrived = True
        while arrived:
            self._called = False
            while self._serve():
                pass
            arrived = self._sleep()

    def _sleep(self) -> bool:
        """Wait until called; return False when there is no more work."""
        with self._lock:
            self._returning = False
            if self._jobs:
                return True
            self._asleep += 1
        return self._calls.get()

    def _serve(self) -> bool:
        """Do one job. This is a function of its own, so that a waiting thread keeps nothing of the last call alive."""
        try:
            job = self._jobs.popleft()
        except IndexError:
            return False
        self._returning = False
        if self._jobs and not self._called:
            self._call()
        value, error = (None, None) if job.future.cancelled() else _perform(job)
        if job.caller is not None:
            self._turns.give_back(job.caller)
        # Set before the result is known. Otherwise a caller that gets it and calls again would wake another thread.
        self._returning = True
        job.mailbox.post(job.future, value, error)
        return True


def _work_off(job: _Job) -> None:
    job.mailbox.post(job.future, *_perform(job))


def _perform(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.context.run(job.function, *job.args), None
    except BaseException as error:
        return None, error


class CancelToken:
    """A flag that tells code in other threads that its call was cancelled."""

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
        """Call back once: in the thread that cancels, or now if the call is cancelled. Return what undoes this."""
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
    """Run a coroutine on the loop, from a worker thread and in its context, and wait for the result.

    When the token is cancelled, cancel the coroutine and raise `asyncio.CancelledError` at once.
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
