"""Puts middleware and observers around the operations of a server: once, not for each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Raw

from toolwire.protocol.errors import ServerError
from toolwire.protocol.types import Wire
from toolwire.server.call import Call
from toolwire.server.context import Context, call_of, context_of

Next: TypeAlias = Callable[[Context], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Context, Next], Awaitable[Any]]
#: Answers a call.
Operation: TypeAlias = Callable[[Call], Awaitable[Any]]
#: The server's own kind of middleware: it sees the call and not its context.
Observer: TypeAlias = Callable[[Call, Operation], Awaitable[Any]]


def check_middleware(middleware: Middleware) -> None:
    """Raise `ServerError` for what cannot be called."""
    if not callable(middleware):
        raise ServerError(f"A middleware is an async function (ctx, call_next), not {type(middleware).__name__}")


def with_middleware(middleware: Sequence[Middleware], operation: Operation) -> Operation:
    """Return the operation with middleware around it; the first is the outermost."""

    def following(ctx: Context) -> Awaitable[Any]:
        return operation(call_of(ctx))

    chain = chain_of(middleware, following)
    return lambda call: chain(context_of(call))


def chain_of(middleware: Sequence[Middleware], following: Next) -> Next:
    """Return the chain of some middleware, at whose end is `following`."""
    for each in reversed(middleware):
        following = _link(_checked(each), following)
    return following


def with_observers(observers: Sequence[Observer], operation: Operation) -> Operation:
    """Return the operation with observers around it; the first is the outermost."""
    for each in reversed(observers):
        operation = _observed(each, operation)
    return operation


def _checked(middleware: Middleware) -> Middleware:
    """Return the same middleware, which raises `TypeError` when it returns what is no result."""
    name = getattr(middleware, "__qualname__", type(middleware).__qualname__)

    async def checked(ctx: Context, call_next: Next) -> Any:
        result = await middleware(ctx, call_next)
        if not isinstance(result, Wire | dict | Raw):
            raise TypeError(
                f"the middleware {name} returned {type(result).__name__} for {ctx.method}: "
                "it returns what call_next gave it, or a result of its own out of toolwire.types"
            )
        return result

    return checked


def _link(middleware: Middleware, following: Next) -> Next:
    return lambda ctx: middleware(ctx, following)


def _observed(observer: Observer, following: Operation) -> Operation:
    return lambda call: observer(call, following)
