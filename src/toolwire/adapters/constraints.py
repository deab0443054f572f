"""Constraints and texts from `Annotated`, for msgspec and for schemas."""

from __future__ import annotations

import datetime
from typing import Any, Final

import msgspec

from toolwire.adapters.nodes import ArrayNode, LeafNode, MappingNode, TypeNode, bare
from toolwire.schemas import Schema

_NUMERIC: Final = frozenset(("gt", "ge", "lt", "le", "multiple_of"))
_LENGTH: Final = frozenset(("min_length", "max_length"))
_SCHEMA_NAMES: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
}


def applicable(node: TypeNode) -> frozenset[str]:
    if isinstance(node, (ArrayNode, MappingNode)):
        return _LENGTH
    if not isinstance(node, LeafNode):
        return frozenset()
    base = bare(node.tp)
    if base in (int, float):
        return _NUMERIC
    if base is str:
        return _LENGTH | {"pattern"}
    if base in (bytes, bytearray):
        return _LENGTH
    return frozenset(("tz",)) if base in (datetime.datetime, datetime.time) else frozenset()


def limits_schema(limits: dict[str, Any]) -> Schema:
    return {_SCHEMA_NAMES[key]: value for key, value in limits.items() if key in _SCHEMA_NAMES}


def meta_limits(meta: msgspec.Meta) -> dict[str, Any]:
    keys = (*_SCHEMA_NAMES, "tz")
    return {key: value for key in keys if (value := getattr(meta, key)) is not None}


def meta_text(meta: msgspec.Meta) -> Schema:
    pairs = (("title", meta.title), ("description", meta.description), ("examples", meta.examples))
    return {**{key: value for key, value in pairs if value is not None}, **(meta.extra_json_schema or {})}


def annotated_types_limits(item: Any) -> dict[str, Any] | None:
    """Translate a constraint of `annotated_types` for msgspec; None for anything else.

    A constraint that no schema can express is refused.
    """
    if not any(base.__module__ == "annotated_types" for base in type(item).__mro__):
        return None
    match type(item).__name__:
        case "DocInfo":
            return {}
        case "Gt" | "Ge" | "Lt" | "Le" | "MultipleOf" | "MinLen" | "MaxLen" | "Interval" | "Len":
            names = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
            found = {name: value for name in names if (value := getattr(item, name, None)) is not None}
            return {name: value for name, value in found.items() if (name, value) != ("min_length", 0)}
        case name:
            raise TypeError(f"the constraint {name} of annotated_types cannot be described in a schema")


def text_of(item: Any) -> Schema:
    if isinstance(item, str):
        return {"description": item}
    if isinstance(documentation := getattr(item, "documentation", None), str):
        return {"description": documentation}
    extra = getattr(item, "__json_schema__", None)
    return dict(extra) if isinstance(extra, dict) else {}
