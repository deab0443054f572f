"""Read null as "left out" for optional members that do not allow null."""

from __future__ import annotations

from typing import Any, Final

from toolwire.protocol.steps import Steps, TooManySteps
from toolwire.schemas.walking import (
    MAX_CHAIN,
    MAX_DEPTH,
    Json,
    Schema,
    alternatives,
    at_reference,
    parts_in,
    with_subschemas,
)

NULL: Final[Schema] = {"type": "null"}
# A step takes less than a microsecond.
_MAX_STEPS: Final = 200_000
# Some clients send null for all that is left out, so that large values are freed of it too.
_MAX_PARTS: Final = 100_000


def takes_null(schema: Json, root: Schema, steps: Steps | None = None) -> bool:
    """Return whether the type of a schema allows null; True in doubt.

    Raises `TooManySteps` when that takes more than `steps`. Without `steps`, that is a doubt.
    """
    if steps is not None:
        return _takes_null(schema, root, steps, frozenset())
    try:
        return _takes_null(schema, root, Steps(_MAX_STEPS), frozenset())
    except TooManySteps:
        return True


def _takes_null(schema: Json, root: Schema, steps: Steps, above: frozenset[int]) -> bool:
    # The engine refuses a longer chain, and copying it costs as much as it is long.
    steps.spend(1 + (len(above) >> 4))
    if len(above) > MAX_CHAIN:
        return True
    if not isinstance(schema, dict):
        return schema is not False
    if id(schema) in above:
        return False  # A choice that leads back to itself adds nothing.
    above |= {id(schema)}
    if isinstance(reference := schema.get("$ref"), str):
        steps.spend(len(reference) >> 6)
        return not reference.startswith("#") or _takes_null(at_reference(root, reference), root, steps, above)
    if "const" in schema:
        return schema["const"] is None
    if isinstance(values := schema.get("enum"), list):
        steps.spend(len(values) >> 4)
        return None in values
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            return any(_takes_null(choice, root, steps, above) for choice in choices)
    parts = schema.get("allOf")
    if isinstance(parts, list) and not all(_takes_null(each, root, steps, above) for each in parts):
        return False
    kinds = schema.get("type")
    return kinds is None or "null" in ([kinds] if isinstance(kinds, str) else kinds)


def with_optional_null(schema: Json) -> Json:
    """Say `T or null` for every member that may be left out."""
    return _with_optional_null(schema, schema)


def _with_optional_null(schema: Json, root: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    result = with_subschemas(schema, lambda part: _with_optional_null(part, root))
    properties = result.get("properties")
    if isinstance(properties, dict) and result.get("type") == "object":
        required = result.get("required", ())
        result["properties"] = {
            name: member if name in required else _or_null(member, root) for name, member in properties.items()
        }
    return result


def _or_null(member: Json, root: Schema) -> Json:
    if not isinstance(member, dict):
        return member
    member = {key: value for key, value in member.items() if key != "default" or value is not None}
    if takes_null(member, root):
        return member
    around = {key: member.pop(key) for key in ("title", "description", "default") if key in member}
    choices = member["anyOf"] if set(member) == {"anyOf"} else [member]
    return {"anyOf": [*choices, NULL], **around}


def may_have_nulls(text: bytes) -> bool:
    """Return whether a JSON text has a null and is short enough to be searched."""
    return b"null" in text and parts_in(text) <= _MAX_PARTS


def without_needless_nulls(value: Json, schema: Schema) -> Json:
    """Read null as "left out" for optional members that null does not fit.

    Strict modes of vendors make every member required and nullable, and send null for what the model leaves out.
    Returns the value itself when there is nothing to change, or when it is too large to be looked through.
    """
    try:
        return _LeftOut(schema).read(value, [schema], 0)
    except TooManySteps:
        return value


class _LeftOut:
    """A walk through a value that leaves needless nulls out."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = Steps(_MAX_STEPS)
        # The subschemas of a document live as long as this walk, so that they are distinguished by identity.
        self._known: dict[tuple[int, ...], list[Schema]] = {}

    def read(self, value: Json, candidates: list[Json], depth: int) -> Json:
        if depth > MAX_DEPTH or not isinstance(value, (dict, list)):
            return value
        key = tuple(map(id, candidates))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = alternatives(candidates, self._root, self._steps)
        self._steps.spend(1 + len(value) * (1 + len(found)))
        # Most parts of a large value hold no other part: they are passed over without a call.
        changes: dict[Any, Json] = {}
        if isinstance(value, list):
            first = max((_length_of_first(each) for each in found), default=0)
            rest = _item_schemas(found, first)
            for index, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    other = self.read(item, rest if index >= first else _item_schemas(found, index), depth + 1)
                    if other is not item:
                        changes[index] = other
            return [changes.get(index, item) for index, item in enumerate(value)] if changes else value
        needless: set[str] = set()
        for name, member in value.items():
            if member is None:
                if _may_be_left_out(name, found, self._root, self._steps):
                    needless.add(name)
            elif isinstance(member, (dict, list)):
                other = self.read(member, _member_schemas(found, name), depth + 1)
                if other is not member:
                    changes[name] = other
        if not changes and not needless:
            return value
        return {name: changes.get(name, member) for name, member in value.items() if name not in needless}


def _may_be_left_out(name: str, alternatives: list[Schema], root: Schema, steps: Steps) -> bool:
    described = [each for each in alternatives if name in _members(each)]
    return bool(described) and not any(
        name in each.get("required", ()) or takes_null(_members(each)[name], root, steps) for each in described
    )


def _members(schema: Schema) -> dict[str, Any]:
    members = schema.get("properties")
    return members if isinstance(members, dict) else {}


def _member_schemas(alternatives: list[Schema], name: str) -> list[Json]:
    named = [_members(each)[name] for each in alternatives if name in _members(each)]
    return named or [each["additionalProperties"] for each in alternatives if "additionalProperties" in each]


def _item_schemas(alternatives: list[Schema], index: int) -> list[Json]:
    found: list[Json] = []
    for each in alternatives:
        first = each.get("prefixItems", ())
        found.append(first[index] if isinstance(first, (list, tuple)) and index < len(first) else each.get("items"))
    return found


def _length_of_first(schema: Schema) -> int:
    first = schema.get("prefixItems")
    return len(first) if isinstance(first, (list, tuple)) else 0
