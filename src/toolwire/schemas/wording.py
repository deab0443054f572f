"""Describe problems of a value, and schemas, in plain words for a model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from toolwire.protocol.errors import ToolwireError
from toolwire.schemas.walking import Json, Path, Schema, at_reference

if TYPE_CHECKING:
    from toolwire.schemas.faults import Fault

Kind = Literal["invalid", "missing", "unknown"]

MAX_PROBLEMS: Final = 20


class Problem(NamedTuple):
    """One thing that is wrong with a value, and where."""

    path: Path
    message: str
    kind: Kind = "invalid"


class Invalid(ToolwireError):
    """A value does not fit its type or schema.

    `problems` has every reason that was found.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(sentence(problem, "value") for problem in problems))
        self.problems = problems


def sentence(problem: Problem, noun: str = "argument") -> str:
    """Write one line for a model: what is wrong, where, and what was expected."""
    path, message, kind = problem
    if kind == "invalid":
        whole = "The arguments" if noun == "argument" else f"The {noun}"
        return f"{noun.capitalize()} {show(place(path))}: {message}" if path else f"{whole}: {message}"
    name, inside = show(str(path[-1])), path[:-1]
    subject = f"key {name} in {noun} {show(place(inside))}" if inside else f"{noun} {name}"
    return f"{kind.capitalize()} {subject}: {message}"


def place(path: Path) -> str:
    """Write a path as text: `rows[2].name` for `("rows", 2, "name")`.

    The end of a long path is left out.
    """
    text = ""
    for step in path:
        if len(text) > 300:
            return text + "…"
        text += f"[{step}]" if isinstance(step, int) else f".{_clipped(step)}" if text else _clipped(step)
    return text


# Comparing two names takes up to a millisecond where they are long, so that few long ones are compared.
_LONG_NAME: Final = 64
_MANY_NAMES: Final = 100
_SHORTEST_CUT: Final = 3


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the name that was probably meant."""
    from difflib import get_close_matches

    if len(name) > _LONG_NAME:
        return None
    folded = {other.casefold(): other for other in islice(known, _MANY_NAMES) if len(other) <= _LONG_NAME}
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    # A word that was cut, as `desc` for `description`, resembles the whole word too little.
    close = close or [other for other in folded if len(name) >= _SHORTEST_CUT and other.startswith(name.casefold())]
    return folded[close[0]] if len(close) == 1 else None


def unknown_key(path: Path, name: str, known: Iterable[str]) -> Problem:
    """Name a key that is not known, and the one that may be meant."""
    names = list(islice(known, _MANY_NAMES))
    if (meant := nearest(name, names)) is not None:
        return Problem((*path, name), f"did you mean {show(meant)}?", "unknown")
    if not names:
        return Problem((*path, name), "none is expected here", "unknown")
    some = ", ".join(show(each) for each in names[:12]) + (", …" if len(names) > 12 else "")
    return Problem((*path, name), f"expected one of {some}", "unknown")


def missing_key(path: Path, name: str, schema: Schema, root: Schema) -> Problem:
    """Name a key that is missing, and what is expected there."""
    members = schema.get("properties")
    member = members.get(name) if isinstance(members, dict) else None
    return Problem((*path, name), f"expected {expected(member, root)}", "missing")


def explained(fault: Fault, root: Schema) -> list[Problem]:
    """Explain a fault: one problem for each key at fault, or one for the value."""
    path, keyword, schema, value, names = fault
    match keyword:
        case "required":
            return [missing_key(path, name, schema, root) for name in names]
        case "additionalProperties":
            known = schema.get("properties")
            # Of many unknown keys the first ones are compared with the known ones, for comparing takes long.
            known = known if isinstance(known, dict) else {}
            compared = [unknown_key(path, name, known) for name in names[:_COMPARED]]
            rest = [Problem((*path, name), "it is not expected", "unknown") for name in names[_COMPARED:]]
            return (compared + rest)[:MAX_PROBLEMS]
        case "not":
            return [Problem(path, f"{show(value)} is not allowed")]
        case "false":
            return [Problem(path, "nothing is allowed here")]
        case "uniqueItems":
            return [Problem(path, "expected items that are all different")]
        case "contains":
            return [Problem(path, "an item that is required is not there")]
        case "propertyNames":
            return [Problem(path, f"a key is not allowed: {show(names[0])}")]
        case "several":
            return [Problem(path, f"fits more than one of: {expected(schema, root)}")]
    return [Problem(path, f"expected {expected(schema, root)}, got {show(value)}")]


# How many unknown keys are compared with the known ones.
_COMPARED: Final = 5

_FORMATS: Final = {
    "date-time": 'a date and time such as "2026-01-31T09:30:00Z"',
    "date": 'a date such as "2026-01-31"',
    "time": 'a time such as "09:30:00"',
    "duration": 'a duration such as "PT90S"',
    "uuid": "a UUID",
    "email": "an email address",
    "uri": "a URI",
    "decimal": 'a decimal number such as "12.50"',
}
_TYPES: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


# How many subschemas one description names, and how long it becomes.
_NAMED: Final = 24
_LONG: Final = 600


def expected(schema: Json, root: Schema) -> str:
    """Describe a schema in words: `an integer of at least 1`, `a string or null`."""
    return _clipped(_Words(root).describe(schema, 0), _LONG)


class _Words:
    """The words for one schema, which name a bounded number of its parts."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _NAMED

    def describe(self, schema: Json, depth: int) -> str:
        self._left -= 1
        if not isinstance(schema, dict) or depth > 4 or self._left < 0:
            return "a value"
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
            return self.describe(at_reference(self._root, reference), depth + 1)
        if "const" in schema:
            return show(schema["const"])
        if isinstance(values := schema.get("enum"), list):
            shown = ", ".join(show(value) for value in values[:20]) + (", …" if len(values) > 20 else "")
            return f"one of {shown}" if len(values) != 1 else shown
        for keyword in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(keyword), list):
                return " or ".join(dict.fromkeys(self.describe(choice, depth + 1) for choice in choices[:8]))
        return self._describe_type(schema, depth)

    def _describe_type(self, schema: Schema, depth: int) -> str:
        kinds = schema.get("type", ())
        names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if isinstance(kind, str)]
        if not names:
            names = ["object"] if "properties" in schema else ["array"] if "items" in schema else []
        phrase = " or ".join(_TYPES.get(name, "a value") for name in names[:8]) or "a value"
        if phrase == "an object" and isinstance(members := schema.get("properties"), dict) and members:
            shown = ", ".join(show(name) for name in islice(members, 6)) + (", …" if len(members) > 6 else "")
            phrase = f"an object with {shown}"
        if phrase == "a string" and isinstance(form := schema.get("format"), str) and form in _FORMATS:
            phrase = _FORMATS[form]
        phrase += _bounds(schema)
        item = schema.get("items")
        if names == ["array"] and isinstance(item, dict) and item and depth < 2:
            phrase += f", each item {self.describe(item, depth + 1)}"
        return phrase


def _bounds(schema: Schema) -> str:
    words = [
        f"{text} {show(schema[keyword])}{unit}"
        for keyword, text, unit in (
            ("minimum", "of at least", ""),
            ("exclusiveMinimum", "greater than", ""),
            ("maximum", "of at most", ""),
            ("exclusiveMaximum", "less than", ""),
            ("multipleOf", "that is a multiple of", ""),
            ("minLength", "of at least", " characters"),
            ("maxLength", "of at most", " characters"),
            ("minItems", "with at least", " items"),
            ("maxItems", "with at most", " items"),
            ("minProperties", "with at least", " keys"),
            ("maxProperties", "with at most", " keys"),
        )
        if isinstance(schema.get(keyword), (int, float)) and not isinstance(schema.get(keyword), bool)
    ]
    if isinstance(pattern := schema.get("pattern"), str):
        words.append(f"that matches {_clipped(pattern, 100)}")
    return " " + " and ".join(words) if words else ""


def show(value: Json) -> str:
    """Write a value as a reader should see it: short, on one line."""
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    if isinstance(value, str):
        value = _clipped(value)
    # `json` costs 150 KB, and a server without mistakes never needs it.
    import json

    try:
        return _clipped(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"


def _clipped(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
