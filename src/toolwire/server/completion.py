"""Suggestions for the arguments of prompts and the variables of templates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, cast

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.errors import ServerError
from toolwire.server.context import Context, is_context
from toolwire.server.running import threaded_context

# 2024-11-05 server/utilities/completion onwards: at most a hundred values.
MAX_VALUES: Final = 100


class Completion:
    """A list to filter by prefix, or a function of the partial value.

    The function takes the partial value and, if it wants them, the context and the arguments that are already chosen
    (a parameter named `arguments`). It returns a list, a list and whether there are more, or `types.Completion`.
    """

    def __init__(self, source: Callable[..., Any] | Sequence[str]) -> None:
        self._values: tuple[str, ...] | None = None
        if callable(source):
            self._function = source
            self._is_async = inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(type(source).__call__)
            parameters = list(inspect.signature(source).parameters.values())
            if not parameters:
                raise ServerError("A completion function takes the partial value as its first parameter")
            self._extra = [_extra(parameter) for parameter in parameters[1:]]
        elif isinstance(source, Sequence) and not isinstance(source, str) and all(isinstance(v, str) for v in source):
            self._values = tuple(source)
        else:
            raise ServerError("A completion is a function or a list of texts")

    async def complete(self, ctx: Context, partial: str, arguments: dict[str, str]) -> t.Completion:
        if self._values is not None:
            lowered = partial.casefold()
            return _limited([value for value in self._values if value.casefold().startswith(lowered)])
        if self._is_async:
            call = self._function(partial, *self._arguments(ctx, arguments))
            return _limited(await cast("Coroutine[Any, Any, Any]", call))
        extra = self._arguments(threaded_context(ctx) if "context" in self._extra else ctx, arguments)
        return _limited(await ctx._host.workers.run(self._function, partial, *extra))

    def _arguments(self, ctx: Context, arguments: dict[str, str]) -> list[Any]:
        return [ctx if kind == "context" else arguments for kind in self._extra]


def _extra(parameter: inspect.Parameter) -> str:
    if is_context(parameter.annotation) or parameter.name in ("ctx", "context"):
        return "context"
    if parameter.name == "arguments":
        return "arguments"
    raise ServerError(f"A completion function has no parameter {parameter.name!r}: it takes (partial, ctx, arguments)")


def _limited(value: Any) -> t.Completion:
    if isinstance(value, t.Completion):
        completion = value
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], bool):
        completion = t.Completion(values=list(value[0]), has_more=value[1])
    else:
        completion = t.Completion(values=list(value or ()))
    if not all(isinstance(each, str) for each in completion.values):
        raise TypeError("A completion function returns texts")
    total = len(completion.values)
    if total > MAX_VALUES:
        known = total if completion.total is UNSET else completion.total
        return t.Completion(values=completion.values[:MAX_VALUES], total=known, has_more=True)
    if completion.total is UNSET and completion.has_more is UNSET:
        return t.Completion(values=completion.values, total=total, has_more=False)
    return completion
