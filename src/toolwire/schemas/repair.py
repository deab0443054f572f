"""What models send instead of the right type, read as what was meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from toolwire.schemas.bounds import MAX_DEPTH, MAX_EFFORT_WITH_DETAIL
from toolwire.schemas.engine import Validator
from toolwire.schemas.walking import SAME_VALUE_LIST, Json, Schema, at_pointer, listed, mapped, walk
from toolwire.schemas.wording import Path, meant


def understood(instance: Json, validator: Validator) -> Json:
    """The value with `"3"`, `3.0` and JSON in a string read as what the schema asks for.

    Only parts that fail as sent are touched, and never where a string is among the things expected.
    """
    try:
        for _ in range(4):  # JSON in a string may hold a number in a string
            if validator.effort.of(instance) > MAX_EFFORT_WITH_DETAIL or validator.engine.is_valid(instance):
                break
            before = instance
            for error in _innermost(validator.engine.iter_errors(instance)):
                reading = _reading(error, validator.schema)
                if reading is not _NO_READING:
                    instance = _with(instance, tuple(error.instance_path), reading)
            if instance is before:
                break
        return whole_numbers(instance, validator.schema, validator.schema)
    except (RecursionError, ValueError, TypeError):
        return instance


_NO_READING: Final = object()


def _innermost(errors: Iterable[Any]) -> Iterator[Any]:
    for error in errors:
        branch = meant(error) if error.kind.name in ("anyOf", "oneOf") else None
        if branch is None:
            yield error
        else:
            yield from _innermost(branch)


def _reading(error: Any, root: Schema) -> Json:
    value = error.instance
    if error.kind.name not in ("type", "enum", "const", "anyOf", "oneOf") or not isinstance(value, str):
        return _NO_READING
    schema = walk(root, error.schema_path[:-1])
    if _takes_string(schema, root):
        return _NO_READING
    text = value.strip()
    try:
        reading = msgspec.json.decode(text.lower() if text.casefold() in ("true", "false") else text)
    except (msgspec.DecodeError, RecursionError):
        return _NO_READING
    return reading if _has_type(reading, schema, root) else _NO_READING


def _has_type(value: Json, schema: Json, root: Schema, depth: int = 0) -> bool:
    if not isinstance(schema, dict) or depth > 8:
        return False
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        return _has_type(value, at_pointer(root, unquote(reference[1:])), root, depth + 1)
    if "const" in schema:
        return bool(schema["const"] == value)
    if isinstance(values := schema.get("enum"), list):
        return value in values
    if choices := list(listed(schema, ("anyOf", "oneOf"))):
        return any(_has_type(value, choice, root, depth + 1) for choice in choices)
    kinds = schema.get("type", ())
    return _type_of(value) in ([kinds] if isinstance(kinds, str) else kinds) or (
        isinstance(value, int) and not isinstance(value, bool) and "number" in kinds
    )


def _type_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"


def _takes_string(schema: Json, root: Schema, depth: int = 0) -> bool:
    """Whether some string could fit."""
    if not isinstance(schema, dict) or depth > 8:
        return True
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        return _takes_string(at_pointer(root, unquote(reference[1:])), root, depth + 1)
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(values := schema.get("enum"), list):
        return any(isinstance(value, str) for value in values)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            return any(_takes_string(choice, root, depth + 1) for choice in choices)
    kinds = schema.get("type")
    return kinds is None or kinds == "string" or (isinstance(kinds, list) and "string" in kinds)


def whole_numbers(instance: Json, schema: Json, root: Schema, depth: int = 0) -> Json:
    """The value with `3.0` as `3` wherever the schema asks for an integer: to JSON Schema they are the same."""
    if isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        schema = at_pointer(root, unquote(reference[1:]))
    if not isinstance(schema, dict) or depth > MAX_DEPTH * 2:
        return instance
    if isinstance(instance, float):
        return int(instance) if instance.is_integer() and _wants_integer(schema, root) else instance
    if isinstance(instance, dict):
        members = dict(mapped(schema, ("properties",)))
        rest = schema.get("additionalProperties")
        instance = {
            name: whole_numbers(value, members.get(name, rest), root, depth + 1) for name, value in instance.items()
        }
    elif isinstance(instance, list):
        first = schema.get("prefixItems", ())
        rest = schema.get("items")
        instance = [
            whole_numbers(value, first[position] if position < len(first) else rest, root, depth + 1)
            for position, value in enumerate(instance)
        ]
    for part in listed(schema, SAME_VALUE_LIST):
        instance = whole_numbers(instance, part, root, depth + 1)
    return instance


def _wants_integer(schema: Schema, root: Schema, depth: int = 0) -> bool:
    if schema.get("type") == "integer":
        return True
    choices = [part for part in listed(schema, ("anyOf", "oneOf")) if isinstance(part, dict)]
    if any(part.get("type") == "number" for part in choices) or depth > 4:
        return False
    return any(_wants_integer(part, root, depth + 1) for part in choices)


def _with(document: Json, path: Path, value: Json) -> Json:
    if not path:
        return value
    step, rest = path[0], path[1:]
    copy: Json = dict(document) if isinstance(document, dict) else list(document)
    copy[step] = _with(copy[step], rest, value)
    return copy
