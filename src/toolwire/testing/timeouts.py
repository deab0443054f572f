"""`time_out`: let a tool exceed its time, and wait for its clean-up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from msgspec import Struct

from toolwire.content import ToolResult
from toolwire.server.call import Call
from toolwire.server.context import Context, call_of
from toolwire.server.middleware import Next
from toolwire.testing.connecting import connect


class TimedOut(Struct, frozen=True):
    """A call that was stopped by its timeout."""

    text: str
    """The text that the caller got."""
    allowed: float
    """The seconds that the timeout of the tool, its policies and the server's limits allow."""


async def time_out(
    server: Any,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    when: Callable[[], Awaitable[Any]] | None = None,
    principal: Any = None,
    patience: float = 5.0,
) -> TimedOut:
    """Call a tool, let its time be over, and return when the tool has ended.

    By then its clean-up has run: `finally`, `async with`, the code after the `yield` of its dependencies. `when` is
    awaited first, so that the tool has come to the point that the test wants: `when=started.wait`. Fail if the tool
    finishes by itself, or if it continues for `patience` seconds after it had to stop.
    """
    __tracebackhide__ = True
    stopper = _Stopper(tool, when)
    server.kernel.use(stopper)
    try:
        async with connect(server, principal=principal, timeout=None) as (client, _):
            call = asyncio.ensure_future(client.call_tool(tool, arguments))
            try:
                result = await stopper.settled(call, patience)
            finally:
                call.cancel()
                await stopper.close()
    finally:
        server.kernel.use_no_more(stopper)
    if stopper.allowed is None or not stopper.stopped:
        raise AssertionError(f"{tool} finished by itself: {result.text}")
    return TimedOut(result.text, stopper.allowed)


class _Stopper:
    """The innermost middleware: it knows the time that all policies together allow."""

    def __init__(self, tool: str, when: Callable[[], Awaitable[Any]] | None) -> None:
        self.allowed: float | None = None
        self.stopped = False
        self._ended = False
        self._tool = tool
        self._when = when
        self._told = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None

    async def __call__(self, ctx: Context, call_next: Next) -> Any:
        if ctx.method == "tools/call":
            call = call_of(ctx)
            earlier = call.guard

            def guard(seconds: float, handler: Coroutine[Any, Any, Any]) -> tuple[float, Coroutine[Any, Any, Any]]:
                self.allowed, handler = (seconds, handler) if earlier is None else earlier(seconds, handler)
                self._stopping = asyncio.ensure_future(self._stop(call))
                return self.allowed, self._watched(handler)

            call.guard = guard
        return await call_next(ctx)

    async def _watched(self, handler: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await handler
        finally:
            self._ended = True

    async def _stop(self, call: Call) -> None:
        if self._when is not None:
            await self._when()
        if not self._ended:
            self.stopped = True
            assert call.deadline is not None
            call.deadline.expire()
        self._told.set()

    async def settled(self, call: asyncio.Future[ToolResult], patience: float) -> ToolResult:
        """Wait for the answer to the call, for `patience` seconds after the stop."""
        __tracebackhide__ = True
        call.add_done_callback(lambda _: self._told.set())
        await self._told.wait()
        await asyncio.wait({call}, timeout=patience)
        if not call.done():
            raise AssertionError(f"{self._tool} had to stop and continued for {patience:g} seconds")
        return call.result()

    async def close(self) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
            await asyncio.wait({self._stopping})
