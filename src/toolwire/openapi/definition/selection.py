"""Choose operations by id, tag, path or function.

What is dropped is never kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from toolwire.loops import plain_callback
from toolwire.openapi.model import DescriptionError, OperationObject

_METHOD: Final = re.compile(r"[A-Za-z]+")


class tag(Struct, frozen=True):
    """The operations with a tag, or with a tag below it (3.2)."""

    name: str


class written(Struct, frozen=True):
    """A choice with the option that a person wrote, for errors: `--operation pets/list`."""

    choice: Choice
    label: str


class _All:
    def __repr__(self) -> str:
        return "ALL"


#: Every operation of the API.
ALL: Final = _All()

#: An `operationId`, a path pattern (`/pets/*`, `GET /pets/**`), a tag, a function, or `ALL`.
Choice: TypeAlias = "str | tag | written | Callable[[OperationObject], bool] | _All"


class OperationSelection:
    """Decides which operations become tools."""

    def __init__(
        self,
        keep: Iterable[Choice] | Choice | None,
        drop: Iterable[Choice] | Choice | None = None,
        option: str = "keep",
    ) -> None:
        """`option` is the name of `keep` in error texts."""
        self._keep = [_Rule(each, option) for each in _listed(keep)]
        self._drop = [_Rule(each, "drop") for each in _listed(drop)]

    def chooses(self, operation: OperationObject) -> bool:
        """Return whether an operation becomes a tool."""
        return self.reason_against(operation) is None

    def reason_against(self, operation: OperationObject) -> str | None:
        """Return why an operation becomes no tool; None for one that does."""
        # Every rule is asked, because `unmatched` names those that never applied.
        kept = [rule for rule in self._keep if rule.matches(operation)]
        dropped = [rule for rule in self._drop if rule.matches(operation)]
        if dropped:
            return f"dropped by {dropped[0].label}"
        return None if kept else "not chosen"

    def names(self, operation: OperationObject) -> bool:
        """Return whether `keep` names one operation: by its id, or by method and path."""
        names = (operation.operation_id, f"{operation.method} {operation.path}")
        return any(isinstance(rule.choice, str) and rule.choice.strip() in names for rule in self._keep)

    @property
    def unmatched(self) -> list[tuple[str, str]]:
        """Return the ids, paths and tags of `keep` that matched no operation.

        Each comes with the words in which it was written.
        """
        missed = [rule for rule in self._keep if not rule.has_matched]
        return [
            (rule.label, rule.choice.name if isinstance(rule.choice, tag) else rule.choice)
            for rule in missed
            if isinstance(rule.choice, (str, tag))
        ]


class _Rule:
    def __init__(self, given: Choice, option: str) -> None:
        choice, self.label = given, f"{option}={_describe_choice(given)}"
        if isinstance(given, written):
            choice, self.label = given.choice, given.label
        self.choice: Choice = choice
        self.has_matched = False
        self._test = _test_of(choice, option, self.label)

    def matches(self, operation: OperationObject) -> bool:
        is_match = self._test(operation)
        if not isinstance(is_match, bool):
            raise DescriptionError(f"{self.label} returned {type(is_match).__name__} in place of True or False")
        self.has_matched = self.has_matched or is_match
        return is_match


def _listed(choices: Iterable[Choice] | Choice | None) -> list[Choice]:
    if choices is None:
        return []
    if isinstance(choices, (str, tag, written, _All)) or callable(choices):
        return [choices]
    return list(choices)


def _describe_choice(choice: Choice) -> str:
    if isinstance(choice, tag):
        return f"tag({choice.name!r})"
    return repr(choice) if isinstance(choice, (str, _All)) else getattr(choice, "__name__", repr(choice))


def _test_of(choice: Choice, option: str, label: str) -> Callable[[OperationObject], bool]:
    if isinstance(choice, _All):
        return lambda operation: True
    if isinstance(choice, tag):
        return lambda operation: choice.name in operation.tags
    if isinstance(choice, str):
        return _test_of_text(choice, label)
    if callable(choice):
        return plain_callback(choice, f"{option}=")
    raise DescriptionError(
        f"{option}= takes operation ids, path patterns, tag(...), functions and ALL, not {type(choice).__name__}"
    )


def _test_of_text(text: str, label: str) -> Callable[[OperationObject], bool]:
    method, space, path = text.strip().rpartition(" ")
    if not path.startswith("/"):
        return lambda operation: operation.operation_id == text
    if space and _METHOD.fullmatch(method.strip()) is None:
        raise DescriptionError(f"{label} is neither an operation id nor a method and a path")
    wanted, pattern = method.strip().upper(), path_pattern(path)
    return lambda operation: (
        (not wanted or operation.method == wanted)
        and (operation.path == path or pattern.fullmatch(operation.path) is not None)
    )


def path_pattern(path: str) -> re.Pattern[str]:
    """Compile a path pattern.

    `*` stands for a part of a segment or a whole one, `**` for any number of segments.
    """
    pieces = re.split(r"(\*+)", path)
    written = "".join(".*" if piece[:2] == "**" else "[^/]*" if piece == "*" else re.escape(piece) for piece in pieces)
    return re.compile(written)
