"""`testing.replay` and `testing.stubbed`: the tools of an API against its own description."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.petstore import petstore

from toolwire import Client, Server, testing
from toolwire.openapi import ALL, Api, Operation, openapi
from toolwire.schemas import compile as compile_schema
from toolwire.testing.schema_values import PlainMaker


def served(described: dict[str, Any], **options: Any) -> tuple[Server, Api]:
    api = openapi(described, keep=ALL, **options)
    return Server("pets").include(api), api


@pytest.mark.covers("OA-7.20")
async def test_every_tool_is_called_with_examples_of_the_description() -> None:
    described = petstore()
    described["paths"]["/pets"]["get"]["parameters"] = [
        {"name": "limit", "in": "query", "schema": {"type": "integer"}, "example": 7}
    ]
    body = described["paths"]["/pets"]["post"]["requestBody"]["content"]["application/json"]
    body["examples"] = {"first": {"value": {"name": "Rex", "tag": "dog"}}}
    described["paths"]["/pets/{petId}"]["get"]["responses"]["200"]["content"]["application/json"]["example"] = {
        "id": 3,
        "name": "Tom",
    }
    server, api = served(described)
    replayed = {each.tool: each for each in await testing.replay(server, api)}
    assert replayed["listPets"].requests[0].query == "limit=7"
    assert replayed["createPet"].arguments == {"name": "Rex", "tag": "dog"}
    assert replayed["createPet"].requests[0].body == b'{"name":"Rex","tag":"dog"}'
    shown = replayed["showPet"].result
    assert shown is not None and shown.structured == {"id": 3, "name": "Tom"}
    assert replayed["delete_pets_by_petId"].requests[0].path == "/v1/pets/text"


@pytest.mark.covers("OA-7.20")
async def test_a_tool_that_does_something_else_is_found() -> None:
    server, api = served(petstore())

    @api.override("listPets")
    async def pets(limit: int | None = None) -> str:
        """List all pets that are known here."""
        return "none"

    @api.override("showPet")
    async def show(call: Operation, pet_id: str) -> dict[str, Any]:
        """Show one pet."""
        return await call({"petID": pet_id}, returns=dict[str, Any])

    with pytest.raises(AssertionError) as caught:
        await testing.replay(server, api)
    assert "listPets({}) did not call listPets" in str(caught.value)
    assert "showPet({'pet_id': 'text'}): showPet was not called." in str(caught.value)


async def test_an_example_that_contradicts_its_schema_is_not_used() -> None:
    described = petstore()
    described["paths"]["/pets/{petId}"]["get"]["responses"]["200"]["content"]["application/json"]["example"] = {
        "id": "x"
    }
    server, api = served(described)
    async with testing.stubbed(api) as stub, Client(server) as client:
        shown = await client.call_tool("showPet", {"petId": "a/b"})
    assert shown.structured == {"id": 1, "name": "text", "tag": "cat"}
    assert [(each.operation, each.path) for each in stub.requests] == [("showPet", "/v1/pets/a%2Fb")]


async def test_arguments_that_nobody_can_make_up_are_left_out() -> None:
    described = petstore()
    described["paths"]["/orders"]["get"]["parameters"] = [
        {"name": "code", "in": "query", "required": True, "schema": {"type": "string", "pattern": "^QX-[0-9]{7}$"}}
    ]
    server, api = served(described)
    replayed = {each.tool: each.result for each in await testing.replay(server, api)}
    assert [tool for tool, result in replayed.items() if result is None] == ["listOrders"]


async def test_secrets_of_the_environment_have_a_value_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_KEY", "mine")
    described = petstore(security=[{"key": []}])
    described["components"]["securitySchemes"] = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    server, api = served(described, credentials={"key": "$PETS_KEY"})
    monkeypatch.delenv("PETS_KEY")
    replayed = await testing.replay(server, api)
    assert {each.requests[0].headers["x-key"] for each in replayed} == {"stub:stub"}
    assert "PETS_KEY" not in os.environ


async def test_what_the_description_does_not_have_is_404() -> None:
    api = openapi(petstore(), keep=ALL)
    async with testing.stubbed(api) as stub:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {"method": "GET", "path": "/v1/nothing", "query_string": b"", "headers": []}
        await stub(scope, receive, send)
    assert sent[0]["status"] == 404
    assert stub.requests == []


SCHEMAS: list[dict[str, Any]] = [
    {"type": "string", "minLength": 12, "maxLength": 14},
    {"type": "string", "pattern": "^[0-9a-f]{40}$"},
    {"type": "string", "format": "date-time"},
    {"type": "integer", "minimum": 5, "multipleOf": 4},
    {"type": "integer", "exclusiveMaximum": -3},
    {"type": "number", "exclusiveMinimum": 7},
    {"type": "array", "minItems": 3, "items": {"enum": ["b", "a"]}},
    {"type": ["null", "boolean"]},
    {"anyOf": [{"type": "object", "required": ["a"], "properties": {"a": {"const": 1}}}, {"type": "null"}]},
    {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}],
     "$defs": {"A": {"type": "object", "properties": {"a": {"default": 3}}, "required": ["a"]}}},
    {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}}},
    {"type": "object", "required": ["x"]},
    {"examples": ["given"], "type": "string"},
]  # fmt: skip


@cases("schema", SCHEMAS)
@cases("deep", [0, 3])
def test_plain_values_fit(schema: dict[str, Any], deep: int) -> None:
    assert compile_schema(schema, what="a schema").check(PlainMaker(schema, deep).value(schema)) == []
