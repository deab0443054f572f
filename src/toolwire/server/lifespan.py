"""The lifespans of a server and of the servers mounted in it, on one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from toolwire.protocol.errors import ServerError
from toolwire.server.catalog import Owner

log: logging.Logger = logging.getLogger("toolwire.server")


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


class Lifespans:
    """The lifespans that are entered now on one loop, each with its server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, values: dict[Owner, Any]) -> None:
        """`values` gets what the lifespans yield."""
        self.loop = loop
        self._values = values
        self._stacks: dict[Owner, AsyncExitStack] = {}
        self._settling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        return

    async def enter(self, server: Owner) -> None:
        """Enter the lifespan of a server. Raise `ServerError` for an upstream that another loop uses."""
        if server.catalog.follower is not None:
            _check_loop(server, self.loop)
        stack = AsyncExitStack()
        entered = server.kernel.lifespans
        entered[self] = None
        stack.callback(entered.pop, self, None)
        if server.lifespan is not None:
            try:
                value = await stack.enter_async_context(_managed_lifespan(server, server.lifespan))
            except BaseException:
                entered.pop(self, None)
                raise
            self._values[server] = entered[self] = value
            stack.callback(self._values.pop, server, None)
        self._stacks[server] = stack

    async def follow(self, servers: list[Owner]) -> None:
        """Enter the lifespans of new servers, and leave those of servers that are gone. A failure is logged."""
        await self.leave_others(servers)
        for server in [each for each in servers if each not in self._stacks]:
            try:
                await self.enter(server)
            except Exception:
                log.exception("the lifespan of %r failed", server.name)
                self._stacks[server] = AsyncExitStack()  # It is not tried again.
                continue
            if server.catalog.follower is not None:
                # Nobody waits for a server that comes later.
                settling = self.loop.create_task(server.catalog.follower.wait_until_known())
                self._settling.add(settling)
                settling.add_done_callback(self._settling.discard)

    async def leave_others(self, servers: list[Owner]) -> None:
        """Leave the lifespans of all servers but these. A failure is logged."""
        staying = set(servers)
        for server in [each for each in self._stacks if each not in staying]:
            try:
                await self._stacks.pop(server).aclose()
            except Exception:
                log.exception("the lifespan of %r failed at its end", server.name)

    async def __aexit__(self, *error: Any) -> bool | None:
        for settling in tuple(self._settling):
            settling.cancel()
        together = AsyncExitStack()
        for stack in self._stacks.values():
            together.push_async_exit(stack)
        return await together.__aexit__(*error)

    def discard(self) -> None:
        """Forget the lifespans of a loop that has ended before they were left."""
        for server in self._stacks:
            server.kernel.lifespans.pop(self, None)


def _check_loop(server: Owner, loop: asyncio.AbstractEventLoop) -> None:
    """Raise `ServerError` when another loop uses an upstream: its connections belong to one loop."""
    if any(each.loop is not loop and not each.loop.is_closed() for each in tuple(server.kernel.lifespans)):
        raise ServerError(
            f"The upstream {server.name!r} is connected on another event loop. A server with upstreams runs on one "
            "loop at a time: use it there, or connect to it with toolwire.client.sync.Client, which hands its calls "
            "over to that loop"
        )
