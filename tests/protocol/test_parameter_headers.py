"""Which arguments of a tool travel in headers too, by its schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import cases

from toolwire.protocol.parameter_headers import BadHeader, header_paths

TEXT = {"type": "string"}


def named(token: Any, **schema: Any) -> dict[str, Any]:
    return {**TEXT, **schema, "x-mcp-header": token}


def test_headers_are_found_along_properties() -> None:
    inner = {"type": "object", "properties": {"city": named("City")}}
    schema = {"type": "object", "properties": {"place": inner, "id": named("Id", type="integer"), "note": TEXT}}
    assert header_paths(schema) == {"City": ("place", "city"), "Id": ("id",)}


def test_what_only_looks_like_a_header_is_data() -> None:
    data = {"x-mcp-header": "Data"}
    properties = {"a": {"type": "object", "default": data, "const": data, "enum": [data], "examples": [data]}}
    assert header_paths({"type": "object", "properties": properties}) == {}


@cases(
    "schema",
    [
        {"anyOf": [{"properties": {"a": named("A")}}]},
        {"$defs": {"x": named("A")}},
        {"properties": {"a": {"type": "array", "items": named("A")}}},
        {"patternProperties": {"^x": named("A")}},
        {"properties": {"a": {"allOf": [{"properties": {"b": named("A")}}]}}},
        {"properties": {"a": named("A"), "b": named("a")}},
        {"properties": {"a": named("two words")}},
        {"properties": {"a": named("")}},
        {"properties": {"a": named(1)}},
        {"properties": {"a": named("A", type="number")}},
        {"properties": {"a": named("A", type="object")}},
    ],
)
def test_a_header_that_makes_its_tool_invalid(schema: dict[str, Any]) -> None:
    with pytest.raises(BadHeader):
        header_paths(schema)


@cases(
    "wrap",
    [
        lambda schema: {"properties": {"a": schema}},
        lambda schema: {"$defs": {"a": schema}},
        lambda schema: {"not": schema},
        lambda schema: [schema],
    ],
    ids=["properties", "maps", "keywords", "lists"],
)
def test_a_schema_is_searched_256_levels_deep(wrap: Callable[[Any], Any]) -> None:
    schema: Any = {}
    for _ in range(256):
        schema = wrap(schema)
    assert header_paths(schema) == {}
    with pytest.raises(BadHeader, match="too deeply"):
        header_paths(wrap(schema))
