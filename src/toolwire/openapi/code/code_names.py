"""Names in written code, made from names in the description.

A description comes from a remote party. Only ASCII letters, digits and `_` of its names reach the code, and no name is
a keyword or one that the code uses itself.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Final

_MAX_NAME: Final = 60
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9]+")


class PythonNames:
    """The names of one scope. Each is given out once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def reserve(self, wanted: str) -> str:
        """Reserve a name and return it, with a number where it is used already."""
        name = f"{wanted}_" if keyword.iskeyword(wanted) or wanted in self._taken else wanted
        number = 2
        while name in self._taken:
            name = f"{wanted}_{number}"
            number += 1
        self._taken.add(name)
        return name

    def has(self, name: str) -> bool:
        return name in self._taken


def snake_name(text: str, instead: str) -> str:
    """Return a name for a function or parameter: `pet_id` for `petId`.

    `instead` is used where nothing is left of it.
    """
    name = "_".join(_words(text)).lower()[:_MAX_NAME].rstrip("_")
    return _not_a_number(name, instead) or instead


def class_name(text: str, instead: str) -> str:
    """Return a name for a class: `NewPet` for `new-pet`.

    `instead` is used where nothing is left of it.
    """
    name = "".join(word[:1].upper() + word[1:] for word in _words(text))[:_MAX_NAME]
    return _not_a_number(name, instead) or instead


def _words(text: str) -> list[str]:
    return [word for word in _OTHERS.split(_HUMP.sub(" ", text)) if word]


def _not_a_number(name: str, before: str) -> str:
    if not name[:1].isdigit():
        return name
    return f"{before}_{name}" if before.islower() else f"{before}{name}"


def is_member_name(text: str) -> bool:
    """Return whether a member of a class may have this name.

    A name with two underscores would be mangled.
    """
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and not text.startswith("__")
