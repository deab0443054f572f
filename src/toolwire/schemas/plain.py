"""A fast check for simple schemas, so that most values do not need the engine.

Most output schemas name types, members and constants, and nothing else. The engine is a large library: loading it takes
more memory than all the rest of a client. A plain schema needs it only for a value that does not fit, or is large.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from toolwire.schemas.walking import Json, Schema

#: A value with more parts than this is left to the engine, which judges large values faster.
MAX_PARTS: Final = 100

# Draft 4 is not among them: to it, 1.0 is not an integer, and there are no constants.
_DIALECTS: Final = frozenset({"Draft202012Validator", "Draft201909Validator", "Draft7Validator", "Draft6Validator"})
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),), "boolean": (bool,), "integer": (int, float), "number": (int, float), "string": (str,),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_CONTAINERS: Final = frozenset({list, dict})
_ALIKE: Final = frozenset({type(None), bool, int})
_EVERYTHING: Final = _SCALARS | _CONTAINERS
_ANNOTATIONS: Final[dict[str, type]] = {
    "title": str, "description": str, "$comment": str, "deprecated": bool, "readOnly": bool, "writeOnly": bool,
    "examples": list,
}  # fmt: skip
# Below this, numbers are equal to the engine exactly if they are to Python.
_EXACT: Final = 2**53


class Plain:
    """A plain schema, compiled.

    `fits` accepts only valid values. It may refuse a valid one: then the engine decides.
    """

    __slots__ = ("_items", "_members", "_required", "_rest", "_sure", "_types", "_values", "_whole")

    def __init__(self) -> None:
        self._types: frozenset[type] = _EVERYTHING
        self._whole = False
        """Whether a number has to be an integer; 1.0 is one."""
        self._values: frozenset[tuple[bool, Json]] | None = None
        self._required: frozenset[str] = frozenset()
        self._members: dict[str, Plain] = {}
        self._rest: Plain | None = None
        self._items: Plain | None = None
        self._sure: frozenset[type] = frozenset()
        """The types of which every value fits."""

    def fits(self, value: Json) -> bool:
        """Return whether a value is small and surely fits.

        Every part is looked at, those too of which the schema says nothing: so the work and the depth are bounded.
        """
        if type(value) in self._sure:
            return True
        waiting: list[tuple[Plain, Json]] = [(self, value)]
        for rule, part in waiting:
            if not rule._takes(part):
                return False
            kind = type(part)
            if kind in _CONTAINERS and len(waiting) + len(part) > MAX_PARTS:
                return False
            if kind is dict:
                members, rest = rule._members, rule._rest or _ANYTHING
                for name, below in part.items():
                    if type(name) is not str or not _is_text(name):
                        return False
                    waiting.append((members.get(name, rest), below))
            elif kind is list:
                items = rule._items or _ANYTHING
                waiting += [(items, below) for below in part]
        return True

    def _takes(self, part: Json) -> bool:
        """Return whether a part of a value fits, apart from what is inside it."""
        kind = type(part)
        if kind not in self._types:
            return False
        if self._values is not None and (kind not in _SCALARS or (kind is bool, part) not in self._values):
            return False
        if kind is float:
            # Neither infinity nor NaN is a whole number.
            return part.is_integer() if self._whole else isfinite(part)
        if kind is str:
            return _is_text(part)
        return kind is not dict or part.keys() >= self._required

    def read(self, schema: Schema) -> bool:
        """Compile a schema. Return False if it is not plain or perhaps not well-formed."""
        is_plain = all(self._read_keyword(keyword, said) for keyword, said in schema.items())
        self._sure = self._types & _ALIKE if self._values is None else frozenset()
        return is_plain

    def _read_keyword(self, keyword: str, said: Json) -> bool:
        if keyword in _ANNOTATIONS:
            return type(said) is _ANNOTATIONS[keyword] and (type(said) is not list or all(map(_is_scalar, said)))
        match keyword:
            case "type":
                return self._read_types(said if type(said) is list else [said])
            case "const":
                return self._read_values([said])
            case "enum":
                return type(said) is list and self._read_values(said)
            case "required":
                if type(said) is not list or not all(type(name) is str for name in said):
                    return False
                self._required = frozenset(said)
                return len(self._required) == len(said)
            case "properties":
                return type(said) is dict and all(self._read_member(name, below) for name, below in said.items())
            case "additionalProperties":
                self._rest = None if said is True else _plain(said)
                return said is True or self._rest is not None
            case "items":
                self._items = None if said is True else _plain(said)
                return said is True or self._items is not None
        # Every validator ignores unknown keywords. `default` is one of those that promise nothing.
        is_empty = type(said) in _CONTAINERS and not said
        return (keyword == "default" or keyword.startswith("x-")) and (is_empty or _is_scalar(said))

    def _read_types(self, names: list[Json]) -> bool:
        if not names or not all(type(name) is str and name in _TYPES for name in names) or len(set(names)) < len(names):
            return False
        self._types = frozenset(kind for name in names for kind in _TYPES[name])
        self._whole = "integer" in names and "number" not in names
        return True

    def _read_values(self, values: list[Json]) -> bool:
        # A second set of values would replace the first one: `const` beside `enum` is left to the engine.
        if self._values is not None or not values or not all(map(_is_constant, values)):
            return False
        self._values = frozenset((type(value) is bool, value) for value in values)
        return len(self._values) == len(values)

    def _read_member(self, name: Json, schema: Json) -> bool:
        member = _plain(schema) if type(name) is str else None
        if member is None:
            return False
        self._members[name] = member
        return True


_ANYTHING: Final = Plain()


def plain(schema: Schema, dialect: str) -> Plain | None:
    """Read a schema of a dialect; None where only the engine can judge it."""
    if dialect not in _DIALECTS:
        return None
    return _plain({keyword: said for keyword, said in schema.items() if keyword != "$schema"})


def _plain(schema: Json) -> Plain | None:
    found = Plain()
    if schema is False:
        found._types = frozenset()
        return found
    return found if schema is True or (type(schema) is dict and found.read(schema)) else None


def _is_text(text: str) -> bool:
    """Return whether a text can be written as UTF-8: half of a surrogate pair cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_scalar(value: Json) -> bool:
    return type(value) in _SCALARS and (type(value) is not float or isfinite(value))


def _is_constant(value: Json) -> bool:
    return _is_scalar(value) and (type(value) not in (int, float) or -_EXACT < value < _EXACT)
