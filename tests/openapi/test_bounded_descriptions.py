"""Work on a description is bounded by its size, whatever its schemas refer to. Steps are counted, never time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import cases
from tests.counted_steps import steps_of

from toolwire.openapi import ALL
from toolwire.openapi.api import openapi
from toolwire.openapi.code.written_code import written_code
from toolwire.openapi.model import DescriptionError

LEVELS = 22
# What the small descriptions here may take. Without bounds they would take 2 ** 36 steps.
MOST = 6_000_000

Schemas = dict[str, Any]


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def all_of_twice() -> Schemas:
    chain = {f"S{at}": {"allOf": [ref(f"S{at - 1}"), ref(f"S{at - 1}")]} for at in range(1, LEVELS)}
    return {"S0": {"type": "object", "properties": {"id": {"type": "integer", "readOnly": True}}}, **chain}


def all_of_two_that_cannot_be_merged() -> Schemas:
    """Two chains side by side whose parts differ, so that they stay under `allOf`."""
    found: Schemas = {"S0": {"pattern": "a"}, "T0": {"pattern": "b"}}
    for at in range(1, LEVELS):
        before = [ref(f"S{at - 1}"), ref(f"T{at - 1}")]
        found[f"S{at}"] = {"allOf": before}
        found[f"T{at}"] = {"allOf": before[::-1]}
    return found


def all_of_with_members() -> Schemas:
    found: Schemas = {"S0": {"properties": {"a": {"type": "string"}}}, "T0": {"properties": {"a": {"minLength": 3}}}}
    for at in range(1, LEVELS):
        found[f"S{at}"] = {"allOf": [ref(f"S{at - 1}"), ref(f"T{at - 1}")], "properties": {f"m{at}": {}}}
        found[f"T{at}"] = {"allOf": [ref(f"T{at - 1}"), ref(f"S{at - 1}")], "properties": {f"m{at}": {"maxLength": 9}}}
    return found


def any_of_twice() -> Schemas:
    chain = {f"S{at}": {"anyOf": [ref(f"S{at - 1}"), ref(f"S{at - 1}")]} for at in range(1, LEVELS)}
    return {"S0": {"type": "object", "properties": {"id": {"type": "integer"}}}, **chain}


def conditions_on_members() -> Schemas:
    """An object whose members can be arguments, with conditions that name each other twice."""
    chain = {f"C{at}": {"anyOf": [ref(f"C{at - 1}"), ref(f"C{at - 1}")]} for at in range(1, LEVELS)}
    last = {"type": "object", "properties": {"id": {"type": "string"}}, "anyOf": [ref(f"C{LEVELS - 1}")]}
    return {"C0": {"required": ["id"]}, **chain, f"S{LEVELS - 1}": last}


def discriminated_copies() -> Schemas:
    """Choices with a discriminator are copied, and each copy has the choices of the level before it."""
    found: Schemas = {"S0": {"type": "object", "properties": {"kind": {"type": "string"}}}}
    for at in range(1, LEVELS):
        found[f"A{at}"] = {"allOf": [ref(f"S{at - 1}")], "properties": {f"a{at}": {"type": "string"}}}
        found[f"B{at}"] = {"allOf": [ref(f"S{at - 1}")], "properties": {f"b{at}": {"type": "string"}}}
        found[f"S{at}"] = {
            "oneOf": [ref(f"A{at}"), ref(f"B{at}")],
            "discriminator": {"propertyName": "kind", "mapping": {"a": f"A{at}", "b": f"B{at}"}},
        }
    return found


def members_twice() -> Schemas:
    chain = {f"S{at}": {"properties": {"l": ref(f"S{at - 1}"), "r": ref(f"S{at - 1}")}} for at in range(1, LEVELS)}
    return {"S0": {"type": "string"}, **chain}


def cycles() -> Schemas:
    """Each schema leads to itself and to the next four, in a circle."""
    near = {f"S{at}": [ref(f"S{(at + step) % LEVELS}") for step in range(5)] for at in range(LEVELS)}
    return {name: {"allOf": parts, "properties": {name: {}}} for name, parts in near.items()}


def description(schemas: Schemas) -> dict[str, Any]:
    body = {"application/json": {"schema": ref(f"S{LEVELS - 1}")}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "T", "version": "1"},
        "servers": [{"url": "https://api.example"}],
        "paths": {
            "/things": {
                "post": {
                    "operationId": "make",
                    "requestBody": {"required": True, "content": body},
                    "responses": {"200": {"description": "", "content": body}},
                }
            }
        },
        "components": {"schemas": schemas},
    }


@pytest.mark.slow
@cases("depth", [None, 8])
@cases(
    "schemas",
    [
        all_of_twice,
        all_of_two_that_cannot_be_merged,
        all_of_with_members,
        any_of_twice,
        conditions_on_members,
        discriminated_copies,
        members_twice,
        cycles,
    ],
)
def test_schemas_that_name_the_one_before_twice_do_not_double_the_work(
    schemas: Callable[[], Schemas], depth: int | None
) -> None:
    source = description(schemas())
    assert len(json.dumps(source)) < 80_000

    def read() -> None:
        api = openapi(source, keep=["make"], base_uri="https://api.example/openapi.json", depth=depth)
        for definition in api.definitions:
            definition.argument_schema()
        try:
            written_code(api.description, api.definitions, name="demo", lock="api.lock.json")
        except DescriptionError:
            return

    steps_of(read, MOST)


def test_a_cycle_of_composed_members_takes_steps_by_its_size() -> None:
    def steps(count: int) -> int:
        schemas = {
            f"S{at}": {"allOf": [ref(f"S{(at + 1) % count}")], "properties": {"k": ref(f"S{(at + 1) % count}")}}
            for at in range(count)
        }
        source = description({**schemas, f"S{LEVELS - 1}": schemas.get(f"S{LEVELS - 1}", ref("S0"))})
        return steps_of(lambda: openapi(source, keep=["make"], base_uri="https://api.example/openapi.json"), MOST)

    assert steps(60) < 6 * steps(30)


@pytest.mark.parametrize("place", ["body", "parameter"])
def test_operation_with_an_endless_chain_of_references_is_left_out(place: str) -> None:
    count = 20_000
    chain: dict[str, Any] = {f"A{at}": {"$ref": f"#/components/schemas/A{at + 1}"} for at in range(count)}
    chain[f"A{count}"] = {"type": "string"}
    first = {"$ref": "#/components/schemas/A0"}
    written: dict[str, Any] = {"parameters": [{"name": "x", "in": "query", "schema": first}]}
    if place == "body":
        written = {"requestBody": {"content": {"application/json": {"schema": first}}}}
    operation = {"operationId": "g", "responses": {"200": {"description": "x"}}, **written}
    content = {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "servers": [{"url": "https://api.test"}],
        "paths": {"/g": {"post": operation}},
        "components": {"schemas": chain},
    }
    (row,) = openapi(content, keep=ALL).operations
    assert (row.tool, "too many steps" in (row.reason or "")) == (None, True)
