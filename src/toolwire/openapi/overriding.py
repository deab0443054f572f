"""Functions of a person in place of generated tools, with the operation's call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Annotated, Any, cast

from toolwire.base_errors import ServerError
from toolwire.openapi.operation_calls import Operation
from toolwire.server.dependencies import Depends


def with_operation(function: Callable[..., Any], operation: Callable[[], Operation]) -> Callable[..., Any]:
    """Return a copy of a function that gets the operation for its `Operation` parameters."""
    if isinstance(function, MethodType):
        return MethodType(cast("Any", with_operation(function.__func__, operation)), function.__self__)
    if not isinstance(function, FunctionType):
        raise ServerError(f"override() takes a function, not {type(function).__name__}")

    async def provide() -> Operation:
        return operation()

    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(copied, function)
    del copied.__wrapped__  # type: ignore[attr-defined]
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__annotations__ = {
        name: Annotated[Operation, Depends(provide)] if _is_operation(written, function) else written
        for name, written in function.__annotations__.items()
    }
    return copied


def _is_operation(written: Any, function: FunctionType) -> bool:
    """Return whether an annotation means `Operation`.

    It may be a text that only type checkers can resolve.
    """
    if not isinstance(written, str):
        return written is Operation
    first, _, rest = written.partition(".")
    found = function.__globals__.get(first)
    for name in rest.split(".") if rest else ():
        found = getattr(found, name, None)
    return found is Operation or (found is None and written.rpartition(".")[2] == "Operation")
