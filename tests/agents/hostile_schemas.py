"""Schemas of a few kilobytes that say a great deal: what a hostile server would list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]


def record(**members: Any) -> Schema:
    return {"type": "object", "properties": members}


def doubled(levels: int, make: Callable[[Schema], Schema]) -> Schema:
    """Return a schema whose definitions each use the next one, as often as `make` writes it."""
    definitions = {f"d{level}": make({"$ref": f"#/$defs/d{level + 1}"}) for level in range(levels)}
    definitions[f"d{levels}"] = {"type": "string"}
    return {**record(a={"$ref": "#/$defs/d0"}), "$defs": definitions}


def nested(levels: int, make: Callable[[Schema], Schema]) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(levels):
        schema = make(schema)
    return record(a=schema)


def product(choices: int, levels: int) -> Schema:
    """Return a choice beside members that are such choices themselves, and beside parts of all of them."""
    return {
        "anyOf": [record(**{f"c{number}_{levels}": {"type": "string"}}) for number in range(choices)],
        "allOf": [record(**{f"a{number}": {"type": "integer"}}) for number in range(choices)],
        "properties": {"x": product(choices, levels - 1)} if levels else {},
    }


def many_times(times: int, part: Schema) -> Schema:
    return {**record(**{f"p{number}": {"$ref": "#/$defs/it"} for number in range(times)}), "$defs": {"it": part}}


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


HOSTILE: dict[str, Schema] = {
    **{f"doubled {key}": doubled(40, lambda part, key=key: {key: [part, part]}) for key in ("anyOf", "oneOf", "allOf")},
    "doubled objects of parts": doubled(40, lambda part: {"type": "object", "allOf": [part, part]}),
    "doubled members": doubled(40, lambda part: record(left=part, right=part)),
    "doubled items": doubled(40, lambda part: {"type": "array", "prefixItems": [part, part], "items": part}),
    "doubled patterns": doubled(40, lambda part: {"type": "object", "patternProperties": {"a": part, "b": part}}),
    "doubled names": doubled(40, lambda part: {**record(left=part), "additionalProperties": part}),
    "doubled top": {**doubled(40, lambda part: {"allOf": [part, part]}), "allOf": [{"$ref": "#/$defs/d0"}] * 2},
    "a chain of references": doubled(1_500, lambda part: part),
    "a chain of choices": doubled(1_500, lambda part: {"anyOf": [part]}),
    "itself": record(a={"$ref": "#"}, b={"$ref": "#"}, c={"allOf": [{"$ref": "#/properties/c"}] * 2}),
    "each other": {
        **record(**{name: {"$ref": f"#/$defs/{name}"} for name in names(8)}),
        "$defs": {name: record(**{each: {"$ref": f"#/$defs/{each}"} for each in names(8)}) for name in names(8)},
    },
    "choices times parts": record(a=product(10, 6)),
    "a wide choice": record(a={"anyOf": [record(**{name: {}}) for name in names(200)], "properties": {"b": {}}}),
    "choices times members": record(
        a={"anyOf": [record(**{name: {}}) for name in names(200)], **record(**{key: {} for key in names(200)})}
    ),
    "deep arrays": nested(3_000, lambda part: {"type": "array", "items": part}),
    "deep choices": nested(60, lambda part: {"anyOf": [part, {"type": "null"}], "description": "y" * 500}),
    "patterns": record(a={"type": "object", "patternProperties": {name: {"type": "string"} for name in names(500)}}),
    "a long enum": record(a={"enum": list(range(5_000))}),
    "a long enum many times": many_times(300, {"enum": names(1_000)}),
    "a long text many times": many_times(300, {"type": "string", "description": "d" * 200_000}),
    "names required many times": {
        "allOf": [{"$ref": "#/$defs/it"}] * 500,
        "properties": {"a": {"allOf": [{"$ref": "#/$defs/it"}] * 500}},
        "$defs": {"it": {"required": names(1_000)}},
    },
    "a long name above losses": record(**{"n" * 50_000: record(**{key: {"format": "none"} for key in names(300)})}),
    "types many times": record(a={"type": ["string", "object"] * 500, "properties": {"x": {"type": "string"}}}),
    "many places": record(a={"type": "array", "prefixItems": [record(**{name: {}}) for name in names(400)]}),
}
