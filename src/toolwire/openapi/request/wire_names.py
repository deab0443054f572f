"""Check that names from arguments do not replace fixed names in a request.

An object may be written as fields of its own: `role=admin` in a query, a cookie or a form. Such a name comes from an
argument. It must not be the name of a fixed value, of a credential or of a parameter that was judged on its own,
also not in a spelling that servers read alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote_plus

from toolwire.protocol.errors import ToolError

#: The source of a name: `query role`, `body role`, `credential`.
Owner: TypeAlias = str
# PHP reads a dot, a space and an underscore alike; ASP.NET reads `a.b` as `a[b]`.
_ALIKE: Final = re.compile(r"[.\s_]+")
_BRACKETS: Final = re.compile(r"[\[\]]+")
_PAIRS: Final = re.compile("[&;]")


class _Spelling(NamedTuple):
    """A name as servers may read it."""

    base: str
    """The name before its brackets."""
    head: str
    """The base and the first name in brackets."""


class OpenValue(NamedTuple):
    """The names that the value of one source is written under."""

    owner: Owner
    label: str
    """The name of the argument, for the error."""
    names: list[str]
    is_deep: bool = False
    """Whether all names begin with that of the source, as in `deepObject`."""


class WireNames:
    """The names in one place of an operation's requests.

    `taken` has each with its source.
    """

    def __init__(self, taken: Iterable[tuple[Owner, str]]) -> None:
        self._taken = [(owner, spelling) for owner, name in taken if (spelling := _spell(name)) is not None]
        self._others: dict[Owner, tuple[frozenset[str], frozenset[str]]] = {}
        self._owners = frozenset(owner for owner, _ in self._taken)

    def check(self, values: Iterable[OpenValue]) -> None:
        """Raise `ToolError` where an open value has a name that is taken."""
        given: list[tuple[OpenValue, _Spelling]] = []
        owners: dict[str, Owner] = {}
        for value in values:
            bases, heads = self._taken_by_others(value.owner)
            for spelling in filter(None, map(_spell, value.names)):
                if spelling.head in heads or spelling.base in (heads if value.is_deep else bases):
                    raise _refusal(value.label)
                if owners.setdefault(spelling.head, value.owner) != value.owner:
                    raise _refusal(value.label)
                given.append((value, spelling))
        for value, spelling in given:
            # `a` of one source, and `a[b]` of another.
            if owners.get(spelling.base, value.owner) != value.owner:
                raise _refusal(value.label)

    def has_owner(self, owner: Owner) -> bool:
        """Return whether a source is described."""
        return owner in self._owners

    def _taken_by_others(self, owner: Owner) -> tuple[frozenset[str], frozenset[str]]:
        # Callers may choose the owner of a member that is not described: only the described ones are kept.
        key = owner if owner in self._owners else ""
        known = self._others.get(key)
        if known is None:
            others = [spelling for source, spelling in self._taken if source != key]
            known = frozenset(each.base for each in others), frozenset(each.head for each in others)
            self._others[key] = known
        return known


def is_open(value: object, style: str, explode: bool) -> bool:
    """Return whether a value of this style is written under names of its own."""
    if style == "deepObject":
        return isinstance(value, (dict, list))
    return explode and isinstance(value, dict)


def names_in_query(query: str) -> list[str]:
    """Return the names in a query. Some servers take a semicolon for an ampersand."""
    return list(names_of(_PAIRS.split(query)))


def names_of(pairs: Iterable[str]) -> Iterator[str]:
    """Yield the names in pairs such as `name=value`."""
    return (pair.partition("=")[0] for pair in pairs)


def spell(name: str) -> str:
    """Return a name as servers may read it, to compare it with another one."""
    spelling = _spell(name)
    return "" if spelling is None else spelling.head


def _spell(name: str) -> _Spelling | None:
    decoded = unquote_plus(name) if "%" in name or "+" in name else name
    # Servers in C end a name at a NUL.
    parts = [_ALIKE.sub("_", each).strip("_") for each in _BRACKETS.split(decoded.partition("\0")[0].casefold())]
    known = [each for each in parts if each]
    return _Spelling(known[0], "_".join(known[:2])) if known else None


def _refusal(label: str) -> ToolError:
    return ToolError(f"{label!r} must not have a member with the name of another parameter")
