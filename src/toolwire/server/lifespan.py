"""The lifespan of a server: entered once, however many connections there are."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from toolwire.protocol.errors import ServerError
from toolwire.server.catalog import Owner, OwnerKernel
from toolwire.wire.threads import call_on

log: logging.Logger = logging.getLogger("toolwire.server")


def check_loop(name: str, loop: asyncio.AbstractEventLoop | None) -> None:
    """Raise `ServerError` when a server runs on another event loop than the running one."""
    if loop not in (None, asyncio.get_running_loop()):
        raise ServerError(
            f"The server {name!r} runs on another event loop. Use it there, connect to it with "
            "toolwire.client.sync.Client, which hands its calls over to that loop, or close all of its connections "
            "there before you use it here"
        )


class Held(ABC):
    """Something that its first user enters and its last user leaves."""

    @abstractmethod
    async def enter(self) -> None: ...

    @abstractmethod
    async def exit(self) -> None: ...

    @property
    @abstractmethod
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it belongs to; None while nobody uses it."""

    @abstractmethod
    def check_loop(self) -> None:
        """Raise `ServerError` when it belongs to another event loop than the running one."""

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        await self.enter()
        try:
            yield
        finally:
            await self.exit()


class LivingKernel(OwnerKernel, Protocol):
    """The kernel, as far as it begins and ends with the server."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def forget_loop(self, *, forked: bool) -> None: ...


class LivingServer(Owner, Protocol):
    """The server, as far as its lifespan needs it."""

    @property
    def kernel(self) -> LivingKernel: ...


class Life(Held):
    """The lifespans of a server and of the servers mounted in it.

    The first connection enters them and the last one leaves them, in the task that entered them. While they last, the
    server belongs to the event loop of the first connection, and a connection on another loop is refused. Loops may
    follow one another.
    """

    def __init__(self, server: LivingServer) -> None:
        self._server = server
        self._span: _Span | None = None
        # Kept in a forked child. Its task never ends there, and asyncio would warn if it were destroyed.
        self._span_of_parent: _Span | None = None
        # Two threads may ask for the server at once, each with a loop of its own.
        self._lock = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        span = self._span
        return None if span is None or span.is_over else span.loop

    @property
    def holders(self) -> int:
        """The number of connections and calls that keep the lifespans alive."""
        return 0 if self._span is None or self._span.is_over else self._span.holders

    def check_loop(self) -> None:
        check_loop(self._server.name, self.loop)

    async def enter(self) -> None:
        with self._lock:
            self.check_loop()
            span = self._span
            if span is not None and span.is_over and not span.left.is_set():
                is_forked = span.process != os.getpid()
                self._server.kernel.forget_loop(forked=is_forked)
                if is_forked:
                    self._span_of_parent = span
            if span is None or span.is_over or span.leave.is_set():
                span = self._span = _Span()
                span.task = span.loop.create_task(self._live(span))
            span.holders += 1
        try:
            await span.entered.wait()
            if span.failure is not None:
                raise span.failure
        except BaseException:
            self._let_go(span)
            raise

    async def exit(self) -> None:
        span = self._span
        if span is None or span.loop is not asyncio.get_running_loop() or not span.holders:
            return  # It was entered on a loop that has ended, and so has the lifespan.
        self._let_go(span)
        if not span.holders:
            await span.left.wait()
            if span.failure is not None:
                raise span.failure

    def _let_go(self, span: _Span) -> None:
        span.holders -= 1
        if not span.holders:
            span.leave.set()
            span.changed.set()

    def mounts_changed(self) -> None:
        """Enter the lifespans of servers that are mounted while this one runs, and leave those of servers removed."""
        span = self._span
        if span is not None and not span.is_over:
            call_on(span.loop, span.changed.set)

    async def _live(self, span: _Span) -> None:
        lifespans = _Lifespans()
        try:
            async with lifespans:
                for server in self._servers():
                    await lifespans.enter(server)
                for follower in self._server.catalog.awaited:
                    # All have begun, so that waiting for one is waiting for all.
                    await follower.wait_until_known()
                await self._server.kernel.start()
                span.entered.set()
                try:
                    while not span.leave.is_set():
                        await span.changed.wait()
                        span.changed.clear()
                        await lifespans.follow(self._servers())
                except asyncio.CancelledError:
                    # The loop ends. The lifespans are left in the usual way: if the cancellation reached them, the code
                    # after their `yield` would not run.
                    if (task := asyncio.current_task()) is not None:
                        task.uncancel()
                await self._server.kernel.stop()
        except BaseException as error:
            # Everyone who enters raises this error, or the last one who leaves.
            span.failure = error
            if span.entered.is_set() and not isinstance(error, Exception):
                raise
        finally:
            span.entered.set()
            span.left.set()

    def _servers(self) -> list[Owner]:
        return [self._server, *(catalog.owner for catalog in self._server.catalog.family())]


def _another_kind(what: str) -> ServerError:
    return ServerError(f"lifespan= is an async function that yields once: {what}")


def checked_lifespan(lifespan: Any) -> Any:
    """Return a function that makes the context manager of a lifespan; refuse anything else."""
    if lifespan is None:
        return None
    import inspect  # Here, because most servers have no lifespan.

    if hasattr(lifespan, "__aenter__") and not inspect.isclass(lifespan):
        raise _another_kind("give the function itself, and do not call it")
    if inspect.isclass(lifespan) or inspect.isfunction(lifespan):
        try:
            inspect.signature(lifespan).bind(None)
        except TypeError:
            raise _another_kind(f"{lifespan.__name__} has to take one argument, the server") from None
        except ValueError:
            pass  # A class without a signature that Python knows.
    if inspect.isasyncgenfunction(lifespan):
        return asynccontextmanager(lifespan)  # The decorator is easily left out.
    if not callable(lifespan):
        raise ServerError(f"lifespan= is an async function that yields once, not {type(lifespan).__name__}")
    if inspect.iscoroutinefunction(lifespan) or inspect.isgeneratorfunction(lifespan):
        raise _another_kind("write `async def`, and `yield` in it")
    return lifespan


@asynccontextmanager
async def _managed_lifespan(server: Owner, lifespan: Callable[[Any], Any]) -> AsyncIterator[Any]:
    """Enter and leave the lifespan of a server. A function of another kind is named in a `ServerError`."""
    manager = lifespan(server)
    if not isinstance(manager, AbstractAsyncContextManager):
        what = f"that of {server.name!r} returned {type(manager).__name__}"
        raise _another_kind(f"{what}; write `async def`, `yield` in it, and @asynccontextmanager or nothing above it")
    try:
        async with manager as value:
            yield value
    except RuntimeError as error:
        # Both texts are those of `contextlib`.
        if str(error) == "generator didn't yield":
            raise _another_kind(f"that of {server.name!r} ended without a `yield`") from error
        if str(error) == "generator didn't stop":
            raise _another_kind(f"that of {server.name!r} yields twice") from error
        raise


class _Lifespans:
    """The lifespans that are entered now, each with its server."""

    def __init__(self) -> None:
        self._stacks: dict[Owner, AsyncExitStack] = {}
        self._settling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        return

    async def enter(self, server: Owner) -> None:
        stack = AsyncExitStack()
        if server.lifespan is not None:
            server.lifespan_value = await stack.enter_async_context(_managed_lifespan(server, server.lifespan))
        self._stacks[server] = stack

    async def follow(self, servers: list[Owner]) -> None:
        """Enter the lifespans of new servers, and leave those of servers that are gone. A failure is logged."""
        staying = set(servers)
        for server in [each for each in self._stacks if each not in staying]:
            try:
                await self._stacks.pop(server).aclose()
            except Exception:
                log.exception("the lifespan of %r failed at its end", server.name)
        for server in [each for each in servers if each not in self._stacks]:
            try:
                await self.enter(server)
            except Exception:
                log.exception("the lifespan of %r failed", server.name)
                self._stacks[server] = AsyncExitStack()  # It is not tried again.
                continue
            if server.catalog.follower is not None:
                # Nobody waits for a server that comes later.
                settling = asyncio.get_running_loop().create_task(server.catalog.follower.wait_until_known())
                self._settling.add(settling)
                settling.add_done_callback(self._settling.discard)

    async def __aexit__(self, *error: Any) -> bool | None:
        for settling in tuple(self._settling):
            settling.cancel()
        together = AsyncExitStack()
        for stack in self._stacks.values():
            together.push_async_exit(stack)
        return await together.__aexit__(*error)


class _Span:
    """The time from entering the lifespans to leaving them, on the running loop."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.holders = 0
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.changed = asyncio.Event()
        self.left = asyncio.Event()
        self.failure: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.process: int = os.getpid()

    @property
    def is_over(self) -> bool:
        """Return whether the lifespans were left, or their loop has ended. In a forked child, every loop has ended."""
        return self.left.is_set() or self.loop.is_closed() or self.process != os.getpid()
