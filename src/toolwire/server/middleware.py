"""What runs around the operations of a server, composed once and not for each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Raw

from toolwire.protocol.errors import ServerError
from toolwire.protocol.types import Wire
from toolwire.server.context import Context

Next: TypeAlias = Callable[[Context], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Context, Next], Awaitable[Any]]


def checked(middleware: Middleware) -> Middleware:
    if not callable(middleware):
        raise ServerError(f"A middleware is an async function (ctx, call_next), not {type(middleware).__name__}")
    return middleware


def compose(middleware: Sequence[Middleware], operation: Next) -> Next:
    """The operation with the middleware around it; the first is the outermost."""
    for each in reversed(middleware):
        operation = _link(each, operation)
    return operation


def answering(middleware: Middleware) -> Middleware:
    """The same middleware; what it returns is refused under its name where it is no result."""
    name = getattr(middleware, "__qualname__", type(middleware).__qualname__)

    async def checked_answer(ctx: Context, call_next: Next) -> Any:
        result = await middleware(ctx, call_next)
        if not isinstance(result, Wire | dict | Raw):
            raise TypeError(
                f"the middleware {name} returned {type(result).__name__} for {ctx.method}: "
                "it returns what call_next gave it, or a result of its own out of toolwire.types"
            )
        return result

    return checked_answer


def _link(middleware: Middleware, following: Next) -> Next:
    return lambda ctx: middleware(ctx, following)
