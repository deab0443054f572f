"""Omitted parts of an answer: JSON Pointers in `_meta`, and words in the content."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Raw, UnsetType

from toolwire.printable import printable
from toolwire.protocol import types as t
from toolwire.server.deep_results import LEFT_OUT as LEFT_OUT

#: The key of `_meta` that is true where more was left out than is listed.
LEFT_OUT_MORE: Final = "io.toolwire/left-out-more"
#: The key of `_meta` with the JSON Pointers at which the answer contradicts the description of the API.
DRIFT: Final = "io.toolwire/drift"
MAX_POINTERS: Final = 50
_IN_WORDS: Final = 6
_LONGEST: Final = 200


class OmittedParts:
    """JSON Pointers of the first fifty parts that a result omits from its answer."""

    def __init__(self) -> None:
        self.pointers: dict[str, None] = {}
        self.has_more: bool = False

    def __bool__(self) -> bool:
        return bool(self.pointers)

    def add(self, path: Iterable[str | int]) -> None:
        """Add the part at a path."""
        if not self.has_more:
            self._add(pointer_of(path))

    def update(self, other: OmittedParts) -> None:
        """Add the parts that another list has."""
        for pointer in other.pointers:
            self._add(pointer)
        self.has_more |= other.has_more

    def _add(self, pointer: str) -> None:
        if len(self.pointers) < MAX_POINTERS or pointer in self.pointers:
            self.pointers[pointer] = None
        else:
            self.has_more = True

    def in_words(self) -> str:
        """Name the first parts in one line; "" without a part that has a name."""
        named = [printable(each) for each in self.pointers if each][:_IN_WORDS]
        if not named:
            return ""
        rest = len(self.pointers) - ("" in self.pointers) - len(named)
        more = " and more" if self.has_more else f" and {rest} more" if rest else ""
        return ", ".join(named) + more

    def mark(self, result: t.CallToolResult) -> t.CallToolResult:
        """Name the parts in the `_meta` of a result."""
        if self.pointers:
            more = {LEFT_OUT_MORE: True} if self.has_more else {}
            result.meta = with_members(result.meta, {LEFT_OUT: list(self.pointers), **more})
        return result


def with_members(meta: dict[str, Any] | Raw | UnsetType, members: dict[str, Any]) -> dict[str, Any]:
    """Return `_meta` with more members."""
    return {**meta, **members} if isinstance(meta, dict) else members


def pointer_of(path: Iterable[str | int]) -> str:
    """Return the JSON Pointer of a path, cut where it is very long."""
    # RFC 6901 section 3: `~` is escaped before `/`.
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)[:_LONGEST]
