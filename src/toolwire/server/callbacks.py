"""Callbacks that are called in passing, where nobody could await them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from toolwire.protocol.errors import ServerError

F = TypeVar("F", bound=Callable[..., Any])


def plain(callback: F, what: str) -> F:
    """Return the callback; raise for an `async def`, whose body would never run."""
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__):
        raise ServerError(f"{what} takes a plain function: make it a def, which may start a task for what takes long")
    return callback
