"""The ways in which a handler asks its client: `Asking`, and one class for each way.

BackChannel    a request of ours, on a legacy connection
Replay         2026-07-28 has no requests of servers: the handler is stopped at its first unanswered question. The
               client sends its request again with the answers, and the handler runs again from the top.
NoReplay       the same, for handlers that must not run again: questions are refused
TaskAsking     by the record of a task (`server.tasks.task_questions`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, ProtocolError, Timeout, ToolError, TransportError
from toolwire.protocol.json_numbers import check_numbers
from toolwire.protocol.rounds import Kind, Rounds, check_key
from toolwire.protocol.surrogates import encode_readable
from toolwire.wire.outlet import Outlet

# Questions that are asked together, under `gather` or a `TaskGroup`, arrive within a few turns of the loop. They are
# sent together.
SETTLE_TURNS = 10


class Unwind(BaseException):
    """Leaves a `def` handler at an unanswered question. `except Exception` does not catch it."""


class Refused(ToolError):
    """The client answered a question with an error, or not at all.

    `code` is the error code of the client: -1 if the user refused sampling (2025-11-25 client/sampling), None if there
    was no answer. The error is a failure of the tool, and never becomes the answer to the current request.
    """

    def __init__(self, message: str, code: int | None = None, error: ProtocolError | None = None) -> None:
        """`error` is the error of the client as it came."""
        super().__init__(message)
        self.code = code
        self.error = error


class DetachingRun(Protocol):
    """A call that may become a task while its handler runs."""

    @property
    def asking(self) -> Asking | None: ...

    async def became_task(self) -> bool:
        """Return whether the call is a task; wait for the outcome where it is becoming one."""


class Asking:
    """One way of asking the client of a call, and of making the steps of its handler."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: set[str] = set()

    async def ask(
        self,
        kind: Kind,
        params: t.Wire | None,
        key: str | None,
        threaded: bool = False,
        timeout: float | None = None,
    ) -> Raw:
        """Return the answer; the client has `timeout` seconds for it, or as long as the server allows."""
        raise NotImplementedError

    async def step(self, name: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of a step, made now or in an earlier run. It looks as after a replay."""
        if name in self._names:
            raise ValueError(f"Two steps of the same call are named {name!r}")
        self._names.add(name)
        return msgspec.json.decode(await self._make_step(name, run))

    async def _make_step(self, name: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> bytes:
        return step_result(name, await run())


class MayBecomeTask(Asking):
    """A way of asking for a call that may become a task. The questions are those of the task then."""

    __slots__ = ("run",)

    def __init__(self) -> None:
        super().__init__()
        self.run: DetachingRun | None = None
        """The run of a call that is becoming a task, or is one."""

    async def _asking_of_task(self) -> Asking | None:
        run = self.run
        return run.asking if run is not None and await run.became_task() else None


class BackChannel(Asking):
    """Asks by a request of ours on the same connection."""

    __slots__ = ("_keys", "_outlet", "_timeout")

    def __init__(self, outlet: Outlet, timeout: float | None) -> None:
        super().__init__()
        self._outlet = outlet
        self._timeout = timeout
        self._keys: set[str] = set()

    async def ask(
        self,
        kind: Kind,
        params: t.Wire | None,
        key: str | None,
        threaded: bool = False,
        timeout: float | None = None,
    ) -> Raw:
        if key is not None:
            # A legacy connection needs no keys. But a mistake should show on every revision.
            check_key(key, self._keys)
        try:
            seconds = self._timeout if timeout is None else timeout
            return await self._outlet.request(kind, params or t.RequestParams(), timeout=seconds)
        except ProtocolError as error:
            raise Refused(f"The client refused {kind}: {error.message}", error.code, error) from error
        except (Timeout, TransportError) as error:
            raise Refused(f"The client did not answer {kind}") from error
        except ValueError as error:
            # The revision of the client cannot express the question.
            raise NotSupported(f"The client cannot be asked this: {error}") from None


class Replay(MayBecomeTask):
    """Asks by ending the request. `task` runs the handler, and is cancelled when its questions are collected."""

    __slots__ = ("_idle", "_loop", "_parked", "_running", "rounds", "task", "unwinding")

    def __init__(self, rounds: Rounds, task: asyncio.Task[Any] | None) -> None:
        super().__init__()
        self.rounds: Rounds = rounds
        self.task: asyncio.Task[Any] | None = task
        # While answers are missing, the handler must not go on: its first question ends it.
        self.unwinding: bool = rounds.unfinished is not None
        self._loop = asyncio.get_running_loop()
        self._parked: list[asyncio.Future[Raw]] = []
        self._idle = -1
        self._running: set[asyncio.Task[Any]] = set()

    async def ask(
        self,
        kind: Kind,
        params: t.Wire | None,
        key: str | None,
        threaded: bool = False,
        timeout: float | None = None,
    ) -> Raw:
        if self.unwinding and not threaded:
            # The handler caught its cancellation and asks again, but this round is over.
            raise asyncio.CancelledError
        if self.rounds.unfinished is not None:
            raise Unwind
        if (asking := await self._asking_of_task()) is not None:
            return await asking.ask(kind, params, key, threaded, timeout)
        answer = self.rounds.ask(kind, params, key, timeout)
        if answer is not None:
            return answer
        if threaded:
            self.unwinding = True
            raise Unwind
        if self._idle < 0:
            self._loop.call_soon(self._settle)
        self._idle = 0
        return await self._park()

    async def _park(self) -> Raw:
        future: asyncio.Future[Raw] = self._loop.create_future()
        self._parked.append(future)
        return await future

    @property
    def is_ending(self) -> bool:
        """Return whether a question ends this request, which then cannot be answered with a task."""
        return self.unwinding or bool(self._parked)

    async def wait_for_end(self) -> None:
        """Wait until an open question has ended the handler; return where there is none."""
        if self.unwinding:
            raise asyncio.CancelledError
        if self._parked:
            await self._park()

    def _settle(self) -> None:
        if not self._parked:
            self._idle = -1
            return
        self._idle += 1
        if self._idle < SETTLE_TURNS:
            self._loop.call_soon(self._settle)
            return
        self.unwinding = True
        if self.task is not None:
            self.task.cancel()

    async def _make_step(self, name: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> bytes:
        done = self.rounds.steps.get(name)
        if done is None and self.rounds.unfinished is not None:
            raise asyncio.CancelledError
        if done is None:
            # The step has a task of its own, so that a question that is asked beside it does not stop a side effect.
            task = self._loop.create_task(self._performed(name, run))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            try:
                done = await asyncio.shield(task)
            except asyncio.CancelledError:
                if not self.unwinding:
                    task.cancel()
                raise
        return done

    async def _performed(self, name: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> Raw:
        done = self.rounds.steps[name] = Raw(step_result(name, await run()))
        return done

    async def unwound(self, seconds: float) -> None:
        """Drop the waiting questions, and wait for the steps that have begun."""
        self.release()
        if not self._running:
            return
        try:
            await asyncio.wait(self._running, timeout=seconds)
        finally:
            for late in tuple(self._running):
                late.cancel()

    def release(self) -> None:
        """Cancel the questions that wait in tasks of the handler."""
        parked, self._parked = self._parked, []
        for future in parked:
            future.cancel()

    def forget(self) -> None:
        """Drop the open questions of a handler that returned without waiting for them. Its result counts."""
        self.release()
        self.rounds.pending.clear()


class NoReplay(MayBecomeTask):
    """The way to ask for handlers with `replay=False`: every question is refused."""

    __slots__ = ()

    async def ask(
        self,
        kind: Kind,
        params: t.Wire | None,
        key: str | None,
        threaded: bool = False,
        timeout: float | None = None,
    ) -> Raw:
        if (asking := await self._asking_of_task()) is not None:
            return await asking.ask(kind, params, key, threaded, timeout)
        raise ToolError(
            "This handler asked a question, but it is registered with replay=False: on protocol revision 2026-07-28 "
            "asking means running the handler again from the top once the answer is there. Allow it with replay=True, "
            "or ask clients of earlier revisions only."
        )


def sendable(params: t.Wire) -> t.Wire:
    """Return a question whose text UTF-8 can carry (see `protocol.surrogates`)."""
    try:
        msgspec.json.encode(params)
    except UnicodeEncodeError:
        return t.decode(type(params), t.encode(params))
    return params


def step_result(name: str, value: Any) -> bytes:
    """Return the result of a step as JSON. Raise `TypeError` for what JSON lacks."""
    try:
        data = encode_readable(value)
        if b"null" in data:
            check_numbers("result", value)  # The encoder writes NaN and infinity as null.
        return data
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"The result of the step {name!r} must be a JSON value: {error}") from None
