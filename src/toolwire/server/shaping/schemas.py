"""The input schema of a tool whose arguments are shaped.

Arguments are the members of one object. Its schema may describe them in several places: under `properties`, behind a
`$ref`, in the branches of `allOf` and its like. All of these are rewritten together, so that no branch shows what
another one hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from msgspec import UNSET

from toolwire.protocol.errors import ServerError
from toolwire.schemas.walking import at_pointer, subschemas, with_subschemas
from toolwire.util.json_pointer import unescape_token

# The keywords whose schemas are about the same object.
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("if", "then", "else", "not")
# Keywords about names of members that no property lists. The public schema is closed, so that they have no use.
_DROPPED: Final = ("patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties")
_DEFINITIONS: Final = ("$defs", "definitions")
_MAX_DEPTH: Final = 32


class Renaming(Protocol):
    """The names of arguments, and what is said of them."""

    def public_argument(self, name: str) -> str | None: ...

    def is_required(self, name: str) -> bool:
        """Return whether a required argument is still required from a caller."""

    def described(self, name: str, schema: Any) -> Any:
        """Return the schema of an argument as callers see it."""


def argument_names(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of all arguments that a schema describes, wherever it does."""
    return _names_in(schema, schema)


def _names_in(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[str]:
    names: dict[str, None] = {}
    for part in _parts(schema, root, 0):
        properties = part.get("properties")
        names.update(dict.fromkeys(properties if isinstance(properties, dict) else ()))
        names.update(dict.fromkeys(each for each in part.get("required", ()) if isinstance(each, str)))
    return list(names)


def public_schema(schema: dict[str, Any], renaming: Renaming) -> dict[str, Any]:
    """Return the schema of the arguments that callers can give. It takes no others."""
    public = _shaped(schema, schema, renaming, 0)
    # Closed at the root alone, because branches do not see the properties of each other.
    names = [each for name in argument_names(schema) if (each := renaming.public_argument(name)) is not None]
    listed = public.setdefault("properties", {})
    for name in names:
        listed.setdefault(name, True)
    public["type"] = "object"
    public["additionalProperties"] = False
    for key in _DEFINITIONS:
        if isinstance(schema.get(key), dict):
            public[key] = schema[key]
    moved: Any = _with_moved_references(public, schema)
    return _without_unused_definitions(moved)


def _parts(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    """Yield every schema that is about the arguments themselves."""
    if depth > _MAX_DEPTH:
        raise ServerError("its input schema is nested too deeply to be shaped")
    if not isinstance(schema, dict):
        return
    yield schema
    for branch in _branches(schema):
        yield from _parts(branch, root, depth + 1)
    if "$ref" in schema:
        yield from _parts(_target(schema["$ref"], root), root, depth + 1)


def _branches(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from schema[key]
    yield from (schema[key] for key in _CONDITIONS if key in schema)
    for key in ("dependentSchemas", "dependencies"):
        if isinstance(schema.get(key), dict):
            yield from schema[key].values()


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the part of a document that a reference points to."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise ServerError(f"its input schema has the reference {reference!r:.100}, which cannot be shaped")
    target = at_pointer(root, reference[1:])
    if target is None:
        raise ServerError(f"its input schema has the reference {reference!r:.100} to nothing")
    return target


def _shaped(schema: Any, root: Mapping[str, Any], renaming: Renaming, depth: int) -> Any:
    """Rewrite one schema that is about the arguments."""
    if depth > _MAX_DEPTH:
        raise ServerError("its input schema is nested too deeply to be shaped")
    if not isinstance(schema, dict):
        return schema
    if "$dynamicRef" in schema or "$recursiveRef" in schema:
        raise ServerError("its input schema has a dynamic reference, which cannot be shaped")
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in (*_DEFINITIONS, *_DROPPED, "$ref"):
            continue
        if key == "additionalProperties" and depth == 0:
            continue
        if key == "properties" and isinstance(value, dict):
            named = {name: renaming.public_argument(name) for name in value}
            kept[key] = {public: renaming.described(name, value[name]) for name, public in named.items() if public}
        elif key == "required" and isinstance(value, list):
            needed = [each for each in value if isinstance(each, str) and renaming.is_required(each)]
            kept[key] = [public for each in needed if (public := renaming.public_argument(each)) is not None]
        elif key == "dependentRequired" and isinstance(value, dict):
            kept[key] = _dependent(value, renaming)
        elif key in ("dependentSchemas", "dependencies") and isinstance(value, dict):
            kept[key] = {
                public: _names(part, renaming) if isinstance(part, list) else _shaped(part, root, renaming, depth + 1)
                for name, part in value.items()
                if (public := renaming.public_argument(name)) is not None
            }
        elif key == "oneOf" and isinstance(value, list) and _is_about_withheld(value, root, renaming):
            # Which branch fits may depend on the value that nobody gives, so that any of them may.
            branches = [_shaped(each, root, renaming, depth + 1) for each in value]
            kept["allOf"] = [*kept.get("allOf", ()), {"anyOf": branches}]
        elif key in _LISTS and isinstance(value, list):
            kept[key] = [*kept.get(key, ()), *(_shaped(each, root, renaming, depth + 1) for each in value)]
        elif key in _CONDITIONS:
            # A condition on a value that nobody gives is the mounted server's to check.
            condition = schema.get("if") if key != "not" else value
            if not _is_about_withheld([condition], root, renaming):
                kept[key] = _shaped(value, root, renaming, depth + 1)
        elif key in ("default", "examples", "const", "enum"):
            continue  # Whole values of the arguments, which may have what is hidden.
        else:
            kept[key] = value
    if "$ref" in schema:
        target = _shaped(_target(schema["$ref"], root), root, renaming, depth + 1)
        agree = isinstance(target, dict) and all(target.get(key, value) == value for key, value in kept.items())
        kept = {**target, **kept} if agree else {**kept, "allOf": [*kept.get("allOf", ()), target]}
    return kept


def _is_about_withheld(schemas: list[Any], root: Mapping[str, Any], renaming: Renaming) -> bool:
    """Return whether schemas say something about an argument that callers need not, or cannot, give."""
    names = (name for each in schemas if isinstance(each, dict) for name in _names_in(each, root))
    return any(renaming.public_argument(each) is None or not renaming.is_required(each) for each in names)


def _names(names: list[Any], renaming: Renaming) -> list[str]:
    needed = (each for each in names if isinstance(each, str) and renaming.is_required(each))
    return [public for each in needed if (public := renaming.public_argument(each)) is not None]


def _dependent(members: dict[str, Any], renaming: Renaming) -> dict[str, list[str]]:
    return {
        public: _names(names, renaming)
        for name, names in members.items()
        if isinstance(names, list) and (public := renaming.public_argument(name)) is not None
    }


def _with_moved_references(public: dict[str, Any], original: dict[str, Any]) -> Any:
    """Point references into the arguments to a copy of the original, because they are about other objects."""
    moved = False
    home = "original"
    while home in public.get("$defs", {}):
        home += "_"

    kept = tuple(f"#/{each}/" for each in _DEFINITIONS)

    def walk(node: Any) -> Any:
        nonlocal moved
        if not isinstance(node, dict):
            return node
        copied = with_subschemas(node, walk)
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#") and not reference.startswith(kept):
            moved = True
            copied["$ref"] = f"#/$defs/{home}{reference[1:]}"
        return copied

    found = walk(public)
    if moved:
        inner = {key: value for key, value in original.items() if key not in _DEFINITIONS}
        found["$defs"] = {**found.get("$defs", {}), home: walk(inner)}
    return found


def _without_unused_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out definitions that nothing refers to: they may describe what is hidden."""
    body = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    used: set[tuple[str, str]] = set()
    waiting = list(_references(body))
    while waiting:
        steps = waiting.pop().split("/")
        if len(steps) < 3 or steps[1] not in _DEFINITIONS:
            continue
        place = (steps[1], unescape_token(steps[2]))
        held = schema.get(place[0], {})
        if place not in used and place[1] in held:
            used.add(place)
            waiting.extend(_references(held[place[1]]))
    for key in _DEFINITIONS:
        kept = {name: each for name, each in schema.get(key, {}).items() if (key, name) in used}
        if kept:
            body[key] = kept
    return body


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for part in subschemas(node):
            yield from _references(part)


def schema_of_argument(schema: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a schema for the value of one argument, where one place alone describes it."""
    found = [part["properties"][name] for part in _parts(schema, schema, 0) if name in (part.get("properties") or {})]
    if len(found) != 1 or not isinstance(found[0], dict):
        return None
    definitions = {key: schema[key] for key in _DEFINITIONS if key in schema}
    return {**found[0], **definitions}


def with_note(schema: Any, description: str | None, default: Any) -> Any:
    """Return the schema of an argument with another description, and another default."""
    changes = {"description": description} if description is not None else {}
    if default is not UNSET:
        changes["default"] = default
    if not changes:
        return schema
    return {**(schema if isinstance(schema, dict) else {}), **changes}
