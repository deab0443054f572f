"""Functions of a user that have to answer at once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from toolwire.protocol.errors import ServerError

F = TypeVar("F", bound=Callable[..., Any])

_NOT_PLAIN: Final = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


def plain_callback(callback: F, what: str) -> F:
    """Return the callback; raise for an `async def` or a generator, whose body would never run.

    Such a function returns an object that is true and is not None, so that it would allow everything.
    """
    function: Any = callback
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(type(function), "__call__", None)  # noqa: B004 - the method of the class, for objects
    if any(is_kind(each) for is_kind in _NOT_PLAIN for each in (function, called)):
        raise ServerError(f"{what} takes a plain function: make it a def, which may start a task for what takes long")
    return callback
