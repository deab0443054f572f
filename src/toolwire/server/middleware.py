"""What runs around the operations of a server, composed once and not for each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from toolwire.protocol.errors import ServerError
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


def _link(middleware: Middleware, following: Next) -> Next:
    return lambda ctx: middleware(ctx, following)
