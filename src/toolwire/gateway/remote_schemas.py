"""The structure of tool schemas of another server, as far as everything here relies on it."""

from __future__ import annotations

from typing import Any, Final

#: The members of a schema that have schemas by name, those with a list of schemas, and those with one schema.
_BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE: Final = ("additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")


def find_fault(schema: dict[str, Any]) -> str | None:
    """Return what no schema can have, such as properties that are a number; None for a usable schema.

    What a validator alone cares about, such as the name of a type, is no fault.
    """
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        return "'required' is no list of names"
    parts: list[Any] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            return "a part of it is no schema"
        for member in _BY_NAME:
            if not isinstance(found := part.get(member, {}), dict):
                return f"{member!r} is no object"
            parts += found.values()
        for member in _LISTED:
            if not isinstance(found := part.get(member, []), list):
                return f"{member!r} is no list"
            parts += found
        parts += [part[member] for member in _SINGLE if member in part]
        items = part.get("items", True)
        parts += items if isinstance(items, list) else [items]
    return None
