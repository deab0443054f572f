"""How a handler asks its client: over the back channel of a legacy connection, or by replay on 2026-07-28.

Both look the same from above: `ask` returns the raw answer. On a legacy connection it travels as a request of ours. On
2026-07-28 there is no such direction: the handler is unwound at its first unanswered question, the client sends the
request again with the answers, and the handler runs from the top with them at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolError
from toolwire.protocol.rounds import Kind, Rounds
from toolwire.wire.session import Outlet

# Asks made together, under `gather` or a `TaskGroup`, reach us within a few turns of the loop; they leave together.
SETTLE_TURNS = 10


class Unwind(BaseException):
    """Leaves a `def` handler at an unanswered question. Not an `Exception`, so that a broad `except` lets it pass."""


class Asking(Protocol):
    """One way of asking."""

    async def ask(self, kind: Kind, params: t.Wire | None, key: str | None) -> Raw: ...

    async def step(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any: ...


class BackChannel:
    """Asks by a request of ours on the same connection."""

    __slots__ = ("_outlet", "_timeout")

    def __init__(self, outlet: Outlet, timeout: float | None) -> None:
        self._outlet = outlet
        self._timeout = timeout

    async def ask(self, kind: Kind, params: t.Wire | None, key: str | None) -> Raw:
        return await self._outlet.request(kind, params or t.RequestParams(), timeout=self._timeout)

    async def step(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        # Nothing is ever replayed here, so the step simply runs; the value looks as it would after a replay.
        return msgspec.json.decode(_step_result(name, await run()))


class Replay:
    """Asks by ending the request; `task` runs the handler and is cancelled once its questions are in."""

    __slots__ = ("_idle", "_loop", "_names", "_parked", "_task", "rounds", "threaded", "unwinding")

    def __init__(self, rounds: Rounds, task: asyncio.Task[Any] | None) -> None:
        self.rounds = rounds
        self.unwinding = False
        self.threaded = False
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._parked: list[asyncio.Future[Raw]] = []
        self._idle = -1
        self._names: set[str] = set()

    async def ask(self, kind: Kind, params: t.Wire | None, key: str | None) -> Raw:
        answer = self.rounds.ask(kind, params, key)
        if answer is not None:
            return answer
        if self.threaded:
            raise Unwind
        future: asyncio.Future[Raw] = self._loop.create_future()
        self._parked.append(future)
        if self._idle < 0:
            self._loop.call_soon(self._settle)
        self._idle = 0
        return await future

    def _settle(self) -> None:
        self._idle += 1
        if self._idle < SETTLE_TURNS:
            self._loop.call_soon(self._settle)
            return
        self.unwinding = True
        if self._task is not None:
            self._task.cancel()

    async def step(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        if name in self._names:
            raise ValueError(f"Two steps of the same call are named {name!r}")
        self._names.add(name)
        done = self.rounds.steps.get(name)
        if done is None:
            done = Raw(_step_result(name, await run()))
            self.rounds.steps[name] = done
        return msgspec.json.decode(done)

    def release(self) -> None:
        """Let go of questions that were parked in tasks of the handler's own."""
        for future in self._parked:
            future.cancel()


class NoReplay:
    """Stands where `replay=False` was said."""

    __slots__ = ()

    async def ask(self, kind: Kind, params: t.Wire | None, key: str | None) -> Raw:
        raise ToolError(
            "This tool asked a question, but it is registered with replay=False: on protocol revision 2026-07-28 asking "
            "means running the handler again from the top once the answer is there. Allow it with replay=True, or ask "
            "clients of earlier revisions only."
        )

    async def step(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        return msgspec.json.decode(_step_result(name, await run()))


def _step_result(name: str, value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"The result of the step {name!r} must be a JSON value: {error}") from None
