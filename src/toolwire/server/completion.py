"""Suggestions for the arguments of prompts and the variables of templates."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any, Final

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.errors import ServerError
from toolwire.server.binding import Binding, BoundFunction, bind
from toolwire.server.call import Call
from toolwire.server.context import is_context
from toolwire.server.executors import invoker, invoker_in_one_thread

# 2024-11-05 server/utilities/completion onwards: at most a hundred values.
MAX_VALUES: Final = 100


class Completion(BoundFunction):
    """A list to filter by prefix, or a function of the partial value.

    The function takes the partial value and, if it wants them, the context, the arguments that are already chosen (a
    parameter named `arguments`) and dependencies. It returns a list of texts, a list and whether there are more, or
    `types.Completion`.
    """

    def __init__(self, source: Callable[..., Any] | Sequence[str]) -> None:
        self._values: tuple[str, ...] | None = None
        self._bound: Binding | None = None
        if callable(source):
            self._bound = bind(_collected(source), name="a completion", is_context=is_context, structured=False)
            names = [each.name for each in self._bound.parameters]
            if not names:
                raise ServerError("A completion function takes the partial value as its first parameter")
            self._partial, *others = names
            self._takes_arguments = "arguments" in others
            for each in self._bound.parameters[1:]:
                if each.required and each.name != "arguments":
                    raise ServerError(
                        f"A completion function has no parameter {each.name!r}: it takes (partial, ctx, arguments) "
                        "and dependencies"
                    )
            self._compile(self._bound)
        elif isinstance(source, Sequence) and not isinstance(source, str) and all(isinstance(v, str) for v in source):
            self._values = tuple(source)
        else:
            raise ServerError("A completion is a function or a list of texts")

    async def complete(self, call: Call, partial: str, arguments: dict[str, str]) -> t.Completion:
        if self._values is not None:
            return matching(self._values, partial)
        given: dict[str, Any] = {self._partial: partial}
        if self._takes_arguments:
            given["arguments"] = arguments
        if self._invoke_whole is not None:
            return typing.cast("t.Completion", await self._invoke_whole(call, given, _limited))
        async with AsyncExitStack() as stack:
            # The stack cleans up after the dependencies when the answer is formed.
            call.stack = stack
            return _limited(await self._invoke(call, given))

    def _compile(self, binding: Binding) -> None:
        self._invoke = invoker(binding, None, None)
        self._invoke_whole = invoker_in_one_thread(binding, None)


def _collected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that collects the values that a generator function yields; return any other as it is."""
    if not inspect.isgeneratorfunction(function):
        return function

    def collect(*args: Any, **kwargs: Any) -> list[Any]:
        return list(islice(function(*args, **kwargs), MAX_VALUES + 1))

    collect.__wrapped__ = function  # type: ignore[attr-defined]
    return collect


def matching(values: Sequence[str], partial: str) -> t.Completion:
    """Return the values that begin with the text that was typed, in whichever case."""
    lowered = partial.casefold()
    return _limited([value for value in values if value.casefold().startswith(lowered)])


def completions_for(
    owner: str, sources: Mapping[str, Callable[..., Any] | Sequence[str]] | None, names: Collection[str]
) -> dict[str, Completion]:
    """Compile the completions of a prompt or template, by argument. Refuse unknown arguments."""
    for argument in sources or ():
        if argument not in names:
            known = ", ".join(names) or "none"
            raise ServerError(f"{owner} has no argument {argument!r} to complete; its arguments are {known}")
    return {argument: Completion(source) for argument, source in (sources or {}).items()}


def choices_in(binding: Binding | None, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of the named arguments whose types have a fixed set of them."""
    parameters = () if binding is None else binding.parameters
    found = {each.name: choices_of(each.annotation) for each in parameters if each.name in names}
    return {name: choices for name, choices in found.items() if choices}


def choices_of(annotation: Any) -> tuple[str, ...]:
    """Return the values of a type as texts: the members of a `Literal` or an `Enum`; nothing for other types.

    `None` is left out: a caller leaves the argument out instead.
    """
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return choices_of(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(annotation) if each is not type(None)]
        found = [choices_of(each) for each in members]
        return tuple(dict.fromkeys(value for each in found for value in each)) if all(found) else ()
    if origin is typing.Literal:
        values = list(typing.get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = [each.value for each in annotation]
    else:
        return ()
    texts = [_text(each) for each in values if each is not None]
    return tuple(each for each in texts if each is not None) if None not in texts else ()


def _text(value: Any) -> str | None:
    """Return a value as the text that an argument of a prompt has for it; None for a value that has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else None


def _limited(value: Any) -> t.Completion:
    if isinstance(value, t.Completion):
        completion = value
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], bool):
        completion = t.Completion(values=_texts(value[0]), has_more=value[1])
    else:
        completion = t.Completion(values=_texts(() if value is None else value))
    values = _texts(completion.values)
    if not all(isinstance(each, str) for each in values):
        raise TypeError("A completion function returns texts")
    total = len(values)
    if total > MAX_VALUES:
        known = total if completion.total is UNSET else completion.total
        return t.Completion(values=values[:MAX_VALUES], total=known, has_more=True)
    if completion.total is UNSET and completion.has_more is UNSET:
        return t.Completion(values=values, total=total, has_more=False)
    return completion


def _texts(value: Any) -> list[Any]:
    # A text is a sequence of characters and a mapping one of keys, and nobody means to suggest those.
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"A completion function returns a list of texts, not {type(value).__name__}")
    return list(value)
