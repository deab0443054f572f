"""The context of an `async` handler with its own event loop in a worker thread.

A handler with `executor="thread"` awaits its context as on the server's loop. Each call hops to the server's loop, and
its result back. So a handler that computes holds up its own loop, and no other call.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.rounds import Kind
from toolwire.server.call import Call
from toolwire.server.context.context import Context
from toolwire.server.context.progress import Progress
from toolwire.server.input_requests import SETTLE_TURNS
from toolwire.wire.thread_workers import CancelToken, call_in_loop
from toolwire.wire.threads import call_on, hand_over

if TYPE_CHECKING:
    from toolwire.auth.vault.vault import Credential

T = TypeVar("T")


class OwnLoopContext(Context):
    """The context of an `async` handler that runs in a worker thread."""

    __slots__ = ("_has_ended", "_here", "_idle", "_lock", "_loop", "_over", "_questions", "_steps", "_token")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._loop = asyncio.get_running_loop()
        self._token = CancelToken()
        # Set on the server's loop when the thread is done.
        self._over = asyncio.Event()
        # The loop of the handler, from its beginning.
        self._here: asyncio.AbstractEventLoop | None = None
        # Questions that are asked together leave together.
        self._questions: list[_Hop[Any]] = []
        # The steps that run in the handler's loop, which therefore must not end before them.
        self._lock = threading.Lock()
        self._steps = 0
        self._idle: asyncio.Event | None = None
        self._has_ended = False
        call.own_loop_context = self

    # --- running ---

    def run(self, main: Callable[[OwnLoopContext], Coroutine[Any, Any, T]]) -> T:
        """Run a handler to its end in this thread, on a new loop."""
        try:
            with asyncio.Runner() as runner:
                self._here = runner.get_loop()
                return runner.run(self._main(main))
        finally:
            hand_over(self._loop, self._over.set)

    async def over(self, seconds: float) -> None:
        """Wait on the server's loop until the handler has ended, but at most some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def _main(self, main: Callable[[OwnLoopContext], Coroutine[Any, Any, T]]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._idle = asyncio.Event()
        stop_watching = self._token.on_cancel(partial(call_on, loop, task.cancel))
        try:
            return await main(self)
        finally:
            stop_watching()
            while self._is_stepping():
                await self._idle.wait()

    def _is_stepping(self) -> bool:
        """Return whether a step still runs; where none does, let none begin any more."""
        with self._lock:
            self._has_ended = not self._steps
        if self._idle is not None:
            self._idle.clear()
        return not self._has_ended

    def end(self) -> None:
        """Cancel the handler, which may run on until it awaits something, and set `ctx.cancelled`."""
        self._token.cancel()
        if self._call.own_loop_context is self:
            self._call.own_loop_context = None

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether the handler of this context runs on a loop."""
        return self._here is loop

    async def _hop(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the server's loop, and wait for it here."""
        here = asyncio.get_running_loop()
        if here is self._loop:
            return await make()
        hop = _Hop(make, self._loop, here)
        self._send([hop])
        return await hop.result

    def _send(self, hops: list[_Hop[Any]]) -> None:
        def start() -> None:
            for hop in hops:
                hop.start()

        if self._token.cancelled or not hand_over(self._loop, start):
            for hop in hops:
                hop.result.cancel()

    # --- what differs from a context on the server's loop ---

    @property
    def cancelled(self) -> bool:
        return self._token.cancelled or self._call.cancelled

    async def _ask(self, kind: Kind, params: t.Wire | None, key: str | None, timeout: float | None) -> Raw:
        here = asyncio.get_running_loop()
        make = partial(super()._ask, kind, params, key, timeout)
        if here is self._loop:
            return await make()
        hop: _Hop[Raw] = _Hop(make, self._loop, here)
        self._questions.append(hop)
        if len(self._questions) == 1:
            here.call_soon(self._send_questions, SETTLE_TURNS)
        return await hop.result

    def _send_questions(self, turns: int) -> None:
        """Send the questions of the last turns together: on 2026-07-28 they make one round."""
        if turns and self._here is not None:
            self._here.call_soon(self._send_questions, turns - 1)
            return
        questions, self._questions = self._questions, []
        self._send(questions)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> bool:
        if self._call.request.progress_token is UNSET and self._call.task_run is None:
            return False
        return await self._hop(partial(super().progress, progress, total, message))

    report_progress = progress

    def track(self, total: float | None = None) -> Progress:
        async def make() -> Progress:
            return Context.track(self, total)

        if asyncio.get_running_loop() is self._loop:
            return super().track(total)
        return call_in_loop(self._loop, make, self._token)

    async def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> bool:
        return await self._hop(partial(super().log, level, data, logger))

    async def credential(self, name: str, *, scopes: Iterable[str] = ()) -> Credential:
        return await self._hop(partial(super().credential, name, scopes=scopes))

    async def elicitation_complete(self, id: str | None) -> bool:
        return await self._hop(partial(super().elicitation_complete, id))

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        # This thread waits for the resource, which therefore must not wait for a thread.
        return await self._hop(partial(self._call.host.read_for, self._call, uri, True))

    async def detach(self) -> None:
        await self._hop(super().detach)

    async def close_stream(self, *, retry_ms: int | None = None) -> None:
        await self._hop(partial(super().close_stream, retry_ms=retry_ms))

    async def step(self, name: str, function: Callable[[], Any]) -> Any:
        return await self._hop(partial(super().step, name, partial(self._step_here, function)))

    async def _step_here(self, function: Callable[[], Any]) -> Any:
        """Run a step in the handler's loop, and wait for it on the server's loop."""
        here = self._here
        with self._lock:
            if here is None or self._has_ended:
                raise asyncio.CancelledError
            self._steps += 1

        async def perform() -> Any:
            try:
                value = function()
                return await value if inspect.isawaitable(value) else value
            finally:
                self._step_ended()

        hop: _Hop[Any] = _Hop(perform, here, self._loop)
        here.call_soon_threadsafe(hop.start)  # It is open: it waits for this step.
        return await hop.result

    def _step_ended(self) -> None:
        with self._lock:
            self._steps -= 1
        if self._idle is not None:
            self._idle.set()


class _Hop(Generic[T]):
    """A coroutine that runs on one loop and is awaited on another.

    Cancelling `result` cancels it.
    """

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        there: asyncio.AbstractEventLoop,
        here: asyncio.AbstractEventLoop,
    ) -> None:
        self.result: asyncio.Future[T] = here.create_future()
        self._make = make
        self._there = there
        self._here = here
        self._task: asyncio.Task[T] | None = None
        self.result.add_done_callback(self._abandon)

    def start(self) -> None:
        """Start the coroutine. Call this on its loop."""
        self._task = self._there.create_task(self._make())
        self._task.add_done_callback(lambda task: call_on(self._here, self._deliver, task))
        if self.result.cancelled():
            self._task.cancel()

    def _deliver(self, task: asyncio.Task[T]) -> None:
        if self.result.done():
            if not task.cancelled():
                task.exception()  # Otherwise asyncio logs that it was not looked at.
        elif task.cancelled():
            self.result.cancel()
        elif (error := task.exception()) is not None:
            self.result.set_exception(error)
        else:
            self.result.set_result(task.result())

    def _abandon(self, result: asyncio.Future[T]) -> None:
        if result.cancelled():
            hand_over(self._there, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
