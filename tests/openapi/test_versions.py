"""Every version from the document to the request: what 3.0, 3.1, 3.2 and Swagger 2.0 have and the others have not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.openapi.descriptions import defined
from tests.openapi.rich_descriptions import OPENAPI_3_0, OPENAPI_3_2, SWAGGER_2

from toolwire import schemas
from toolwire.openapi.access.security import read_security_schemes
from toolwire.openapi.access.signing import OutgoingRequest
from toolwire.openapi.definition.selection import OperationSelection, tag
from toolwire.openapi.description.operations import operations_of
from toolwire.openapi.description.reading import read_description
from toolwire.openapi.model import OperationObject, ToolDefinition
from toolwire.openapi.request.request_builder import RequestBuilder
from toolwire.openapi.request.request_urls import server_url

BASE = "https://api.test"
OK: dict[str, Any] = {"responses": {"200": {"description": "fine"}}}


def tools(content: dict[str, Any]) -> dict[str, ToolDefinition]:
    """Make the tools of a description, by name."""
    return {each.name: each for each in defined(read_description(content, base_uri=f"{BASE}/openapi.json"))}


def sent(made: ToolDefinition, **arguments: Any) -> OutgoingRequest:
    assert schemas.compile(made.argument_schema(), what="the arguments").check(arguments) == []
    return RequestBuilder(made, BASE).build(arguments)


def one(version: str, operation: dict[str, Any], path: str = "/pets", method: str = "get", **members: Any) -> Any:
    content = {"openapi": version, "info": {"title": "T", "version": "1"}, **members}
    (made,) = defined(read_description({**content, "paths": {path: {method: {**OK, **operation}}}}))
    return made


# --- 3.2 ---


@pytest.mark.covers("OA-2.3")
def test_query_is_a_method_with_a_body_and_a_whole_query_string() -> None:
    search = tools(OPENAPI_3_2)["searchPets"]
    request = sent(search, q={"a": ["x", "y"], "b": "c d"}, body={"a": 1})
    assert (request.method, request.url) == ("QUERY", f"{BASE}/pets?a=x&a=y&b=c+d")
    assert request.body == b'{"a":1}'
    assert search.annotations.read_only_hint is True
    # `itemSchema`: an answer of JSON lines is a list of items.
    assert search.output_schema is not None
    assert "items" in search.output_schema


@pytest.mark.covers("OA-2.3")
def test_additional_operations_have_their_own_methods() -> None:
    purge = tools(OPENAPI_3_2)["purge"]
    assert sent(purge).method == "PURGE"
    assert (purge.annotations.read_only_hint, purge.annotations.destructive_hint) == (False, True)


@pytest.mark.covers("OA-2.3")
def test_parts_by_position_have_their_encodings() -> None:
    mixed = tools(OPENAPI_3_2)["post_mixed"]
    request = sent(mixed, body=[{"a": 1}, "text", "more"])
    assert request.headers["content-type"].startswith("multipart/mixed; boundary=")
    assert request.body is not None
    assert request.body.count(b"Content-Type: application/json\r\n") == 1
    assert request.body.count(b"Content-Type: text/plain\r\n") == 2


@pytest.mark.covers("OA-2.3")
def test_tags_have_parents_servers_have_names_and_documents_have_addresses() -> None:
    description = read_description(OPENAPI_3_2, base_uri="https://elsewhere.test/a.json")
    search = next(each for each in operations_of(description) if isinstance(each, OperationObject))
    assert search.tags == ("cats", "pets")
    assert OperationSelection(tag("pets")).chooses(search)
    assert server_url(search.servers, server="prod") == BASE
    assert description.root.uri == "https://api.test/openapi.json"
    # Relative servers are read against the address that the document was fetched from, and not against `$self`.
    relative = read_description({**OPENAPI_3_2, "servers": [{"url": "v9"}]}, base_uri="https://elsewhere.test/x/a.json")
    operation = next(each for each in operations_of(relative) if isinstance(each, OperationObject))
    assert server_url(operation.servers) == "https://elsewhere.test/x/v9"


@pytest.mark.covers("OA-2.3")
def test_a_device_flow_is_read() -> None:
    schemes = read_security_schemes(read_description(OPENAPI_3_2))
    flow = schemes["device"].flows["deviceAuthorization"]
    assert (flow.device_authorization_url, flow.token_url) == ("https://a.test/device", "https://a.test/token")
    assert schemes["device"].metadata_url == "https://a.test/.well-known/oauth-authorization-server"


@pytest.mark.covers("OA-2.3")
@cases(
    ("style", "value", "written"),
    [
        ("cookie", "a b%2C", "c=a b%2C"),
        ("form", "a b%2C", "c=a%20b%252C"),
        ("cookie", ["x", "y"], "c=x; c=y"),
        ("cookie", {"R": 1, "G": 2}, "R=1; G=2"),
    ],
)
def test_a_cookie_has_its_own_style(style: str, value: Any, written: str) -> None:
    made = one("3.2.0", {"parameters": [{"name": "c", "in": "cookie", "required": True, "style": style, "schema": {}}]})
    assert sent(made, c=value).headers["cookie"] == written


def test_what_is_new_in_3_2_is_named_in_older_documents() -> None:
    content = {**OPENAPI_3_2, "openapi": "3.1.0"}
    reasons = {each.method: getattr(each, "reason", None) for each in operations_of(read_description(content))}
    assert "QUERY exists since OpenAPI 3.2" in str(reasons["QUERY"])


# --- 3.1 ---


@pytest.mark.covers("OA-2.2")
def test_schemas_of_3_1_are_json_schema() -> None:
    schema = {
        "type": ["string", "integer", "null"],
        "const": 3,
        "$ref": "#/components/schemas/A",
        "description": "beside the reference",
    }
    made = one(
        "3.1.0",
        {"parameters": [{"name": "a", "in": "query", "schema": schema}]},
        components={"schemas": {"A": {"exclusiveMinimum": 2, "examples": [3]}}},
        webhooks={"new": {"post": OK}},
        jsonSchemaDialect="https://json-schema.org/draft/2020-12/schema",
    )
    validator = schemas.compile(made.argument_schema(), what="the arguments")
    assert [validator.fits({"a": value}) for value in (3, 2, "3", 4)] == [True, False, False, False]
    assert made.input_schema["properties"]["a"]["description"] == "beside the reference"


@pytest.mark.covers("OA-2.2")
def test_an_older_dialect_is_understood() -> None:
    body = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
            "b": {},
            "c": {},
        },
        "dependencies": {"b": ["c"]},
        "definitions": {"x": {"type": "integer"}},
    }
    made = one(
        "3.1.0",
        {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}},
        method="post",
        jsonSchemaDialect="http://json-schema.org/draft-07/schema#",
    )
    validator = schemas.compile(made.argument_schema(), what="the arguments")
    values: list[Any] = [{"a": ["x"]}, {"a": [1]}, {"a": ["x", "y"]}, {"b": 1}, {"b": 1, "c": 2}]
    assert [validator.fits(value) for value in values] == [True, False, False, False, True]


@pytest.mark.covers("OA-2.2")
def test_path_items_are_components_and_webhooks_are_no_operations() -> None:
    content = {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "webhooks": {"new": {"post": OK}},
        "paths": {"/a": {"$ref": "#/components/pathItems/A"}},
        "components": {"pathItems": {"A": {"get": OK}}},
    }
    assert [(each.method, each.path) for each in operations_of(read_description(content))] == [("GET", "/a")]
    del content["paths"]
    assert operations_of(read_description(content)) == []


# --- 3.0 ---


@pytest.mark.covers("OA-2.1", "OA-3.6")
@cases(
    ("schema", "fitting", "others"),
    [
        ({"type": "string", "nullable": True}, ["x", None], [1]),
        ({"type": "string", "nullable": False}, ["x"], [1, None]),
        ({"type": "string", "nullable": True, "enum": ["a"]}, ["a", None], ["b"]),
        ({"$ref": "#/components/schemas/A", "nullable": True}, ["x"], [None]),
        ({"allOf": [{"$ref": "#/components/schemas/A"}], "nullable": True}, ["x", None], [1]),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, [2], [1]),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": False}, [1], [2]),
        ({"type": "integer", "format": "int64"}, [2**63 - 1], ["9223372036854775807"]),
        ({"type": "string", "enum": [1, True]}, ["1", "true"], [1]),
        ({"type": "integer", "enum": ["1", "2"]}, [1, 2], ["1"]),
        ({"type": "number", "required": True}, [1.5], ["x"]),
        ({"type": "string", "enum": []}, ["x"], [1]),
        ({"type": "string", "pattern": "^(?<year>\\d+)$"}, ["2026"], [""]),
        ({"type": "any"}, [1, "x"], []),
        ({"type": {}}, [1, "x"], []),
    ],
)
def test_the_dialect_of_3_0_and_quirks_of_vendors(schema: Any, fitting: list[Any], others: list[Any]) -> None:
    made = one(
        "3.0.3",
        {"parameters": [{"name": "a", "in": "query", "required": True, "schema": schema}]},
        components={"schemas": {"A": {"type": "string"}}},
    )
    validator = schemas.compile(made.argument_schema(), what="the arguments")
    assert [value for value in fitting if not validator.fits({"a": value})] == []
    assert [value for value in others if validator.fits({"a": value})] == []


@pytest.mark.covers("OA-2.1")
def test_a_request_of_3_0_has_everything_in_its_place() -> None:
    made = tools(OPENAPI_3_0)
    request = sent(
        made["getPet"],
        id="7",
        filter={"a": "b"},
        fields=["x", "y"],
        limit=5,
        json={"k": [1]},
        session="s",
        **{"X-Tenant": "t"},
    )
    assert request.url == (f"{BASE}/pets/;id=7?filter%5Ba%5D=b&fields=x,y&json=%7B%22k%22%3A%5B1%5D%7D&limit=5")
    assert (request.headers["x-tenant"], request.headers["cookie"]) == ("t", "session=s")
    replaced = made["replace_pet"]
    assert replaced.annotations.destructive_hint is True
    written = sent(replaced, id="7", name="a", kind="cat", claws=True)
    assert msgspec.json.decode(written.body or b"") == {"name": "a", "kind": "cat", "claws": True}
    assert "id" not in replaced.input_schema["properties"].get("parent", {}).get("required", [])


# --- Swagger 2.0 ---


@pytest.mark.covers("OA-2.4")
def test_a_request_of_swagger_2_has_everything_in_its_place() -> None:
    description = read_description(SWAGGER_2)
    made = {each.name: each for each in defined(description)}
    get, post, upload = made["get_pets_by_id"], made["post_pets_by_id"], made["post_upload"]
    assert server_url(get.operation.servers) == "https://api.test/v0"
    assert sent(get, id="7", tags=["a", "b"], limit=3).url == f"{BASE}/pets/7?tags=a%7Cb&limit=3"
    assert sent(post, id="7", kind="cat", n=None).body == b'{"kind":"cat","n":null}'
    assert {each.name: each.is_upload for each in upload.arguments} == {"file": True, "ids": False}
    assert read_security_schemes(description)["oauth"].flows["authorizationCode"].token_url == "https://a.test/t"


# --- media types ---


@pytest.mark.covers("OA-4.5")
@cases(
    ("media_type", "is_upload", "content_type"),
    [
        ("", False, "application/json"),
        ("text/csv", False, "text/csv; charset=utf-8"),
        ("text/markdown", False, "text/markdown; charset=utf-8"),
        ("image/png", True, "image/png"),
        ("application/pdf", True, "application/pdf"),
        ("audio/*", True, "application/octet-stream"),
    ],
)
def test_a_body_whose_form_is_clear_needs_no_decision(media_type: str, is_upload: bool, content_type: str) -> None:
    schema = {"type": "string", "format": "binary"} if is_upload else {"type": "string"}
    body = {"required": True, "content": {media_type: {"schema": schema}}}
    made = one("3.0.3", {"requestBody": body}, method="post")
    (argument,) = made.arguments
    assert (argument.name, argument.is_upload) == ("body", is_upload)
    value: Any = b"\x89PNG" if is_upload else "a,b"
    assert RequestBuilder(made, BASE).build({"body": value}).headers["content-type"] == content_type


def test_a_media_type_that_cannot_be_sent_is_no_choice() -> None:
    content = {"application/json\r\nX: y": {"schema": {"type": "object"}}, "text/plain": {"schema": {"type": "string"}}}
    operation = {
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"content": {"text/html\nX": {}}}},
    }
    made = one("3.0.3", operation, method="post")
    request = sent(made, body="x")
    assert request.headers["content-type"] == "text/plain; charset=utf-8"
    assert "\n" not in request.headers["accept"]


# --- patterns ---


def test_patterns_share_a_budget_and_those_that_do_not_fit_are_left_out() -> None:
    heavy = "^[^\\u0000\\u0085\\u2028\\u2029\\r\\n]{1,255}$"
    properties = {f"p{at}": {"type": "string", "pattern": f"^x{at}$"} for at in range(60)}
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
    alone = one("3.0.3", {"parameters": [{"name": "h", "in": "query", "schema": {"type": "string", "pattern": heavy}}]})
    assert alone.argument_schema()["properties"]["h"]["pattern"] == heavy
    beside = [*parameters, {"name": "h", "in": "query", "schema": {"type": "string", "pattern": heavy}}]
    made = one("3.0.3", {"parameters": beside})
    schemas.compile(made.argument_schema(), what="the arguments").check({"h": 1})
    assert "pattern" not in made.argument_schema()["properties"]["h"]
    assert made.argument_schema()["properties"]["p7"]["pattern"] == "^x7$"
    assert any("is too large beside the rest of its schema" in text for text in made.warnings)
