"""Navigation in a schema: subschemas, pointers and paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from toolwire.protocol.steps import Steps
from toolwire.util import json_pointer

Json = Any
Schema = dict[str, Any]
Path = tuple[str | int, ...]

# 2026-07-28 server/tools (JSON Schema usage): how many levels a schema may have.
MAX_DEPTH: Final = 64
# How many subschemas in a row may hand the same value on: the engine follows them on its stack.
MAX_CHAIN: Final = 200

# Keywords with a list of subschemas that judge the same value.
SAME_VALUE_LIST: Final = ("allOf", "anyOf", "oneOf")


def direct(schema: Schema, keywords: Iterable[str]) -> Iterator[Json]:
    return (schema[key] for key in keywords if isinstance(schema.get(key), (dict, bool)))


def listed(schema: Schema, keywords: Iterable[str]) -> Iterator[Json]:
    return (part for key in keywords if isinstance(schema.get(key), list) for part in schema[key])


def mapped(schema: Schema, keywords: Iterable[str]) -> Iterator[tuple[str, Json]]:
    return (
        (name, part)
        for key in keywords
        if isinstance(schema.get(key), dict)
        for name, part in schema[key].items()
        if isinstance(part, (dict, bool))
    )


# Where a schema has subschemas. Everything else in it is data, whatever its members are called.
_ONE: Final = (
    "not", "if", "then", "else", "contains", "propertyNames", "additionalItems", "additionalProperties",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_LISTS: Final = (*SAME_VALUE_LIST, "prefixItems")
# In `dependencies` of older drafts, a list of names stands beside schemas.
_MAPS: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
# `items` was a list of schemas in drafts before 2020-12.
_HOLDERS: Final[dict[str, Any]] = {
    **dict.fromkeys(_ONE, (dict, bool)),
    **dict.fromkeys(_LISTS, (list,)),
    **dict.fromkeys(_MAPS, (dict,)),
    "items": (dict, bool, list),
}


def subschemas(schema: Schema) -> Iterator[Json]:
    """Yield the subschemas directly below a schema.

    They are found by their position, never by the name of a member.
    """
    for keyword, value in schema.items():
        holder = _HOLDERS.get(keyword)
        if holder is None or not isinstance(value, holder):
            continue
        if isinstance(value, list):
            yield from value
        elif keyword in _MAPS:
            yield from (part for part in value.values() if not isinstance(part, list))
        else:
            yield value


def with_subschemas(schema: Schema, change: Callable[[Json], Json]) -> Schema:
    """Return a copy of a schema with `change` applied to each direct subschema."""
    result: Schema = {}
    for keyword, value in schema.items():
        holder = _HOLDERS.get(keyword)
        if holder is None or not isinstance(value, holder):
            result[keyword] = value
        elif isinstance(value, list):
            result[keyword] = [change(part) for part in value]
        elif keyword in _MAPS:
            result[keyword] = {name: part if isinstance(part, list) else change(part) for name, part in value.items()}
        else:
            result[keyword] = change(value)
    return result


def at_pointer(document: Json, pointer: str) -> Json | None:
    """Follow a JSON pointer (`/$defs/Row`); None where it leads to nothing."""
    found = json_pointer.at_pointer(document, pointer)
    return None if found is json_pointer.MISSING else found


def at_reference(root: Json, reference: str) -> Json | None:
    """Follow a `$ref` within the document (`#/$defs/Row`); None where it leads to nothing."""
    # Imported here: most schemas of a server have no reference, and the module costs 0.3 MiB.
    from urllib.parse import unquote

    return at_pointer(root, unquote(reference[1:]))


def alternatives(candidates: Iterable[Json], root: Json, steps: Steps) -> list[Schema]:
    """Find the subschemas that may judge a value, each once and in order, references followed."""
    found: dict[int, Schema] = {}
    waiting = list(candidates)
    for schema in waiting:  # It grows on the way.
        steps.spend()
        if not isinstance(schema, dict) or id(schema) in found:
            continue
        found[id(schema)] = schema
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
            steps.spend(len(reference) >> 6)
            waiting.append(at_reference(root, reference))
        waiting += listed(schema, SAME_VALUE_LIST)
    return list(found.values())


def required_names(schema: Schema) -> list[str]:
    """Return the members that a schema requires, whatever stands in the place of their names."""
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def description_of(schema: Json) -> str:
    """Return the description of a schema, or else of its first choice that has one."""
    if not isinstance(schema, dict):
        return ""
    candidates = (schema, *listed(schema, ("anyOf", "oneOf")))
    texts = (each.get("description") for each in candidates if isinstance(each, dict))
    return next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")


def parts_in(data: bytes) -> int:
    """Count, at the speed of C, how many values a JSON text has at most."""
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{") + (len(data) >> 6)
