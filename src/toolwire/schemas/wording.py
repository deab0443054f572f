"""What is wrong with a value, in plain words for a model to read; and a schema in words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

from toolwire.protocol.errors import ToolwireError
from toolwire.schemas.walking import Json, Schema, at_pointer, walk

Path = tuple[str | int, ...]
Kind = Literal["invalid", "missing", "unknown"]

MAX_PROBLEMS: Final = 20


class Problem(NamedTuple):
    """One thing that is wrong with a value, and where."""

    path: Path
    message: str
    kind: Kind = "invalid"


class Invalid(ToolwireError):
    """A value does not fit its type or schema; `problems` has every reason that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(sentence(problem, "value") for problem in problems))
        self.problems = problems


def sentence(problem: Problem, noun: str = "argument") -> str:
    """One line for a model to read: what is wrong, where, and what was expected."""
    path, message, kind = problem
    if kind == "invalid":
        whole = "The arguments" if noun == "argument" else f"The {noun}"
        return f"{noun.capitalize()} {show(place(path))}: {message}" if path else f"{whole}: {message}"
    name, inside = show(str(path[-1])), path[:-1]
    subject = f"key {name} in {noun} {show(place(inside))}" if inside else f"{noun} {name}"
    return f"{kind.capitalize()} {subject}: {message}"


def place(path: Path) -> str:
    """`rows[2].name` for `("rows", 2, "name")`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{_clipped(step)}" if text else _clipped(step)
    return text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    from difflib import get_close_matches

    folded = {other.casefold(): other for other in known}
    close = get_close_matches(name[:64].casefold(), list(folded)[:200], n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def unknown_key(path: Path, name: str, known: Iterable[str]) -> Problem:
    names = list(known)
    if (meant := nearest(name, names)) is not None:
        return Problem((*path, name), f"did you mean {show(meant)}?", "unknown")
    if not names:
        return Problem((*path, name), "none is expected here", "unknown")
    some = ", ".join(show(each) for each in names[:12]) + (", …" if len(names) > 12 else "")
    return Problem((*path, name), f"expected one of {some}", "unknown")


def missing_key(path: Path, name: str, schema: Json, root: Schema) -> Problem:
    member = schema.get("properties", {}).get(name) if isinstance(schema, dict) else None
    return Problem((*path, name), f"expected {expected(member, root)}", "missing")


def explained(error: Any, root: Schema, whole: Json) -> list[Problem]:
    kind, path = error.kind, tuple(error.instance_path)
    schema = walk(root, error.schema_path[:-1])
    match kind.name:
        case "required":
            return [missing_key(path, kind.property, schema, root)]
        case "additionalProperties" | "unevaluatedProperties":
            known = schema.get("properties", {}) if isinstance(schema, dict) else {}
            return [unknown_key(path, name, known) for name in kind.unexpected[:MAX_PROBLEMS]]
        case "anyOf" | "oneOf" if (branch := meant(error)) is not None:
            return [problem for inner in branch for problem in explained(inner, root, whole)]
        case "not":
            return [Problem(path, f"{show(error.instance)} is not allowed")]
        case "falseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
            value = walk(whole, path)
            names = list(value)[:MAX_PROBLEMS] if isinstance(value, dict) else []
            return [unknown_key(path, name, ()) for name in names]
        case "falseSchema":
            return [Problem(path, "nothing is allowed here")]
        case "uniqueItems":
            return [Problem(path, "expected items that are all different")]
        case "contains":
            return [Problem(path, "an item that is required is not there")]
        case "propertyNames":
            return [Problem(path, f"a key is not allowed: {_clipped(kind.error.message)}")]
    if not isinstance(schema, dict):
        return [Problem(path, _clipped(error.message, 200))]
    if kind.name == "oneOf" and type(kind).__name__ == "OneOfMultipleValid":
        return [Problem(path, f"fits more than one of: {expected(schema, root)}")]
    return [Problem(path, f"expected {expected(schema, root)}, got {show(error.instance)}")]


# Keywords that tell branches apart, and how far below the choice they do.
_TELLING: Final = ((("type", "enum", "const"), 0), (("enum", "const"), 1), (("required", "additionalProperties"), 0))


def meant(error: Any) -> list[Any] | None:
    """Of a failed choice, the errors of the one branch that was clearly meant: by its type, its tag or its keys."""
    if not isinstance(error.instance, (dict, list)):
        return None
    branches: list[list[Any]] = getattr(error.kind, "context", None) or []
    here = list(error.instance_path)
    for telling, below in _TELLING:
        branches = [
            branch
            for branch in branches
            if not any(inner.kind.name in telling and len(inner.instance_path) == len(here) + below for inner in branch)
        ]
        if len(branches) == 1:
            return branches[0]
    return None


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


def expected(schema: Json, root: Schema, depth: int = 0) -> str:
    """A schema in words: `an integer of at least 1`, `one of "a", "b"`, `a string or null`."""
    if not isinstance(schema, dict) or depth > 4:
        return "a value"
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        return expected(at_pointer(root, unquote(reference[1:])), root, depth + 1)
    if "const" in schema:
        return show(schema["const"])
    if isinstance(values := schema.get("enum"), list):
        shown = ", ".join(show(value) for value in values[:20]) + (", …" if len(values) > 20 else "")
        return f"one of {shown}" if len(values) != 1 else shown
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            return " or ".join(dict.fromkeys(expected(choice, root, depth + 1) for choice in choices[:8]))
    kinds = schema.get("type", ())
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if isinstance(kind, str)]
    if not names:
        names = ["object"] if "properties" in schema else ["array"] if "items" in schema else []
    phrase = " or ".join(_TYPES.get(name, "a value") for name in names) or "a value"
    if phrase == "an object" and isinstance(members := schema.get("properties"), dict) and members:
        shown = ", ".join(show(name) for name in list(members)[:6]) + (", …" if len(members) > 6 else "")
        phrase = f"an object with {shown}"
    if phrase == "a string" and schema.get("format") in _FORMATS:
        phrase = _FORMATS[schema["format"]]
    phrase += _bounds(schema)
    item = schema.get("items")
    if names == ["array"] and isinstance(item, dict) and item and depth < 2:
        phrase += f", each item {expected(item, root, depth + 1)}"
    return phrase


def _bounds(schema: Schema) -> str:
    words = [
        f"{text} {schema[keyword]}{unit}"
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
    """A value as a reader should see it: short, on one line."""
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    try:
        return _clipped(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"


def _clipped(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
