"""Two schemas for one value written as one schema, where that says exactly the same."""

from __future__ import annotations

from typing import Any, Final

from toolwire.schemas.walking import Json, Schema

# Keywords that only describe: of two texts the first one is kept.
ANNOTATIONS: Final = frozenset(("description", "default", "deprecated", "contentEncoding", "contentMediaType"))

# Keywords whose meaning depends on their neighbours. Two schemas of which one has such a keyword, and the other one of
# its neighbours, cannot be written as one.
_NEIGHBOURS: Final[dict[str, frozenset[str]]] = {
    "additionalProperties": frozenset(("properties", "patternProperties")),
    "unevaluatedProperties": frozenset((
        "properties", "patternProperties", "additionalProperties", "allOf", "anyOf", "oneOf", "not", "if",
        "dependentSchemas", "$ref",
    )),
    "unevaluatedItems": frozenset((
        "items", "prefixItems", "contains", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "$ref",
    )),
    "items": frozenset(("prefixItems",)),
    "contains": frozenset(("minContains", "maxContains")),
    "if": frozenset(("then", "else")),
}  # fmt: skip

# Parts of one `allOf`. Without a bound, lists that are joined pairwise double with each level.
_MAX_PARTS: Final = 64


def merged(first: Json, second: Json) -> Schema | None:
    """Merge two schemas into one; None where only `allOf` is exact."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return None
    if _are_entangled(first, second) or _are_entangled(second, first):
        return None
    result: Schema = dict(first)
    for keyword, value in second.items():
        if keyword not in first:
            result[keyword] = value
        elif first[keyword] == value or keyword in ANNOTATIONS:
            continue
        elif (both := _both(keyword, first[keyword], value)) is not None:
            result[keyword] = both
        else:
            return None
    return result


def _are_entangled(one: Schema, other: Schema) -> bool:
    return any(
        keyword in one
        and any(neighbour in other and one.get(neighbour) != other[neighbour] for neighbour in neighbours)
        for keyword, neighbours in _NEIGHBOURS.items()
    )


def _both(keyword: str, first: Any, second: Any) -> Any:
    """Merge two values of a keyword; None where that is not possible."""
    match keyword:
        case "required":
            return list(dict.fromkeys((*first, *second)))
        case "type":
            return _common_types(first, second)
        case "properties":
            return _both_members(first, second)
        case "allOf":
            parts = [*first, *(each for each in second if each not in first)]
            return parts if len(parts) <= _MAX_PARTS else None
    return None


def _both_members(first: dict[str, Json], second: dict[str, Json]) -> dict[str, Json] | None:
    members = dict(first)
    for name, schema in second.items():
        if name not in first or first[name] == schema:
            members[name] = schema
        elif (both := merged(first[name], schema)) is not None:
            members[name] = both
        else:
            return None
    return members


def _common_types(first: Any, second: Any) -> Any:
    """Return the types that are in both; None where there is no such type."""
    one = first if isinstance(first, list) else [first]
    other = second if isinstance(second, list) else [second]
    common = [kind for kind in one if kind in other or (kind == "integer" and "number" in other)]
    common += [kind for kind in other if kind == "integer" and "number" in one and kind not in common]
    return (common[0] if len(common) == 1 else common) or None
