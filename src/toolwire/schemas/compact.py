"""Shorten generated schemas: merge definitions, inline those used once, drop needless nulls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from toolwire.schemas.walking import Json, Schema, subschemas, with_subschemas

_REF_PREFIX: Final = "#/$defs/"


def merge(definitions: dict[str, Json], schema: Schema) -> Schema:
    """Move the `$defs` of a generated schema into `definitions`.

    A definition gets another name if its own is already used for a different one.
    """
    own = schema.get("$defs")
    if not own:
        return schema
    renamed = {}
    for name, definition in own.items():
        free, number = name, 2
        while free in definitions and definitions[free] != definition:
            free, number = f"{name}{number}", number + 1
        renamed[name] = free
        definitions.setdefault(free, definition)
    body = {key: value for key, value in schema.items() if key != "$defs"}
    changed = {name: free for name, free in renamed.items() if name != free}
    if changed:
        for free in renamed.values():
            definitions[free] = _renamed(definitions[free], changed)
        body = _renamed(body, changed)
    return body


def _renamed(schema: Json, names: dict[str, str]) -> Json:
    if not isinstance(schema, dict):
        return schema
    changed = with_subschemas(schema, lambda part: _renamed(part, names))
    if name := _target_of(schema):
        changed["$ref"] = _REF_PREFIX + names.get(name, name)
    return changed


def inline(schema: Schema) -> Schema:
    """Move definitions that are used once to where they are used.

    `$defs` keeps those that are shared or recursive.
    """
    definitions: dict[str, Json] = schema.get("$defs", {})
    if not definitions:
        return {key: value for key, value in schema.items() if key != "$defs"}
    body = {key: value for key, value in schema.items() if key != "$defs"}
    uses: dict[str, int] = {}
    recursive: set[str] = set()
    _count(body, definitions, uses, recursive, ())
    kept = {name for name in uses if uses[name] > 1 or name in recursive}
    # The root says what it is (`"type": "object"`) even where it is recursive: readers look for that first.
    root = _target_of(body)
    if root in kept:
        body = {**definitions[root], **{key: value for key, value in body.items() if key != "$ref"}}
        uses = {}
        _count(body, definitions, uses, recursive, ())
        kept = {name for name in uses if uses[name] > 1 or name in recursive}
    compact: Schema = _inlined(body, definitions, kept)
    if kept:
        compact["$defs"] = {
            name: _inlined(definitions[name], definitions, kept) for name in definitions if name in kept
        }
    return compact


def _count(
    schema: Json, definitions: dict[str, Json], uses: dict[str, int], recursive: set[str], inside: tuple[str, ...]
) -> None:
    for name in _refs(schema):
        if name not in definitions:
            continue
        uses[name] = uses.get(name, 0) + 1
        if name in inside:
            recursive.add(name)
        elif uses[name] == 1:
            _count(definitions[name], definitions, uses, recursive, (*inside, name))


def _refs(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        if name := _target_of(schema):
            yield name
        for part in subschemas(schema):
            yield from _refs(part)


def _target_of(schema: Schema) -> str:
    """Return the name of the definition that a schema refers to; empty if none."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_REF_PREFIX):
        return ""
    return reference.removeprefix(_REF_PREFIX)


def _inlined(schema: Json, definitions: dict[str, Json], kept: set[str]) -> Json:
    if not isinstance(schema, dict):
        return schema
    name = _target_of(schema)
    if name in definitions and name not in kept:
        around = {key: value for key, value in schema.items() if key != "$ref"}
        # What is said at the place of use (a description, a default) is about this use and wins.
        return {**_inlined(definitions[name], definitions, kept), **_inlined(around, definitions, kept)}
    return with_subschemas(schema, lambda part: _inlined(part, definitions, kept))


def without_optional_null(schema: Json) -> Json:
    """Replace `T or null` by `T` for every member that may be left out.

    Models send nulls where they are offered; leaving the member out says the same. An explicit null is still accepted.
    """
    if not isinstance(schema, dict):
        return schema
    result = with_subschemas(schema, without_optional_null)
    properties = result.get("properties")
    if isinstance(properties, dict) and result.get("type") == "object":
        required = result.get("required", ())
        result["properties"] = {
            name: member if name in required else _without_null(member) for name, member in properties.items()
        }
    return result


def _without_null(member: Json) -> Json:
    if not isinstance(member, dict):
        return member
    if "default" in member and member["default"] is None:
        member = {key: value for key, value in member.items() if key != "default"}
    kinds = member.get("type")
    if isinstance(kinds, list) and "null" in kinds and len(kinds) > 1:
        rest = [kind for kind in kinds if kind != "null"]
        return {**member, "type": rest[0] if len(rest) == 1 else rest}
    choices = member.get("anyOf")
    if not isinstance(choices, list) or {"type": "null"} not in choices:
        return member
    rest = [choice for choice in choices if choice != {"type": "null"}]
    around = {key: value for key, value in member.items() if key != "anyOf"}
    return {**rest[0], **around} if len(rest) == 1 else {"anyOf": rest, **around}
