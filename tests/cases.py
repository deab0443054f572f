"""Runs the quick members of a list in one test, which reports every member that fails.

`@cases("text, meaning", [...])` takes what `pytest.mark.parametrize` takes. Its members share the fixtures of the test:
members that need their own stay with `parametrize`. With `--all-cells`, or when a test is named with its parameters,
each member is a test of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from itertools import product
from typing import Any, NamedTuple, TypeVar, cast

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])
Ids = list[str] | Callable[[Any], object] | None

# Set by conftest.py before tests are collected.
separate = False


class Member(NamedTuple):
    id: str
    arguments: dict[str, Any]


def cases(
    names: str | Sequence[str], members: Iterable[Any], *, ids: Iterable[str] | Callable[[Any], object] | None = None
) -> Callable[[Test], Test]:
    """Return a decorator that calls a test once for each member, and reports all that fail."""
    if separate:
        return cast("Callable[[Test], Test]", pytest.mark.parametrize(names, members, ids=ids))
    axis = _read_members(names, list(members), ids if ids is None or callable(ids) else list(ids))

    def decorate(function: Test) -> Test:
        # Stacked lists make a grid of one test.
        return _make_test(getattr(function, "single", function), [*getattr(function, "axes", []), axis], function)

    return decorate


def _make_test(single: Any, axes: list[list[Member]], function: Any) -> Any:
    grid = [
        Member("-".join(member.id for member in cell), {k: v for member in cell for k, v in member.arguments.items()})
        for cell in product(*axes)
    ]

    if inspect.iscoroutinefunction(single):

        async def test(**shared: Any) -> None:
            found = Outcomes(len(grid))
            for member in grid:
                try:
                    await asyncio.create_task(single(**member.arguments, **shared))
                except BaseException as error:
                    found.note(member.id, error)
            found.report()
    else:

        def test(**shared: Any) -> None:  # type: ignore[misc]
            found = Outcomes(len(grid))
            for member in grid:
                try:
                    copy_context().run(single, **member.arguments, **shared)
                except BaseException as error:
                    found.note(member.id, error)
            found.report()

    functools.update_wrapper(test, function)
    signature = inspect.signature(single)
    given = grid[0].arguments if grid else {}
    left = [parameter for name, parameter in signature.parameters.items() if name not in given]
    test.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    test.single, test.axes = single, axes  # type: ignore[attr-defined]
    return test


class Outcomes:
    """Failures and skips of members."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.failed: list[BaseException] = []
        self.skipped: list[BaseException] = []

    def note(self, id: str, error: BaseException) -> None:
        """Keep the error of a member; raise one that ends the whole test."""
        if isinstance(error, pytest.skip.Exception):
            self.skipped.append(error)
        elif isinstance(error, Exception) or (isinstance(error, pytest.fail.Exception) and not _is_timeout(error)):
            error.add_note(f"in the case {id}")
            self.failed.append(error)
        else:
            raise error

    def report(self) -> None:
        """Raise what failed; skip when no member ran."""
        if len(self.failed) == 1:
            raise self.failed[0]
        if self.failed:
            raise BaseExceptionGroup(f"{len(self.failed)} of {self.members} cases failed", self.failed)
        if self.skipped and len(self.skipped) == self.members:
            raise self.skipped[0]


def _is_timeout(error: BaseException) -> bool:
    """Whether pytest-timeout ended the test: it does so once, and the next member could hang for ever."""
    return str(error).startswith("Timeout ")


def _read_members(names: str | Sequence[str], members: list[Any], ids: Ids) -> list[Member]:
    is_single = isinstance(names, str) and "," not in names
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    return [
        _read_member([name for name in split if name], is_single, member, index, ids)
        for index, member in enumerate(members)
    ]


def _read_member(names: list[str], is_single: bool, member: Any, index: int, ids: Ids) -> Member:
    id = None
    if hasattr(member, "marks"):  # pytest.param(...)
        if member.marks:
            raise TypeError("a case has no marks of its own: use pytest.mark.parametrize")
        id, values = member.id, member.values
    else:
        values = (member,) if is_single else member
    if id is None:
        id = "-".join(_make_ids(names, values, index, ids))
    return Member(str(id), dict(zip(names, values, strict=True)))


def _make_ids(names: list[str], values: Sequence[Any], index: int, ids: Ids) -> Iterator[str]:
    if ids is not None and not callable(ids):
        yield str(ids[index])
        return
    for name, value in zip(names, values, strict=True):
        made = ids(value) if callable(ids) else None
        if made is not None:
            yield str(made)
        elif isinstance(value, str | bytes | int | float | None):
            yield str(value)
        else:
            yield str(getattr(value, "__name__", f"{name}{index}"))
