"""Operations of a description: each is read, or named with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.descriptions import api, description, operation_in

from toolwire.openapi.description.operations import operations_of
from toolwire.openapi.model import LeftOutOperation, OperationObject

OK: dict[str, Any] = {"responses": {"200": {"description": "fine"}}}


def found(described: Any) -> list[tuple[str, str, bool]]:
    return [(each.method, each.path, isinstance(each, OperationObject)) for each in operations_of(described)]


@cases("version", ["3.0.3", "3.1.0", "3.2.0"])
def test_every_method_of_a_path_is_an_operation(version: str) -> None:
    methods = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
    described = description(version, paths={"/pets": dict.fromkeys(methods, OK)}, webhooks={"new": {"post": OK}})
    assert found(described) == [(method.upper(), "/pets", True) for method in methods]


def test_query_and_additional_operations_are_read_since_3_2() -> None:
    item = {"query": OK, "additionalOperations": {"COPY": OK, "purge": OK}}
    assert found(description("3.2.0", paths={"/pets": item})) == [
        ("QUERY", "/pets", True),
        ("COPY", "/pets", True),
        ("purge", "/pets", True),
    ]
    before = operations_of(description("3.1.0", paths={"/pets": {"query": OK}}))
    assert isinstance(before[0], LeftOutOperation)
    assert "exists since OpenAPI 3.2" in before[0].reason


@pytest.mark.covers("OA-11.1")
@cases(
    ("item", "says"),
    [
        ({"copy": OK}, "additionalOperations"),
        ({"get": "text"}, "an operation is an object"),
        ({"get": {**OK, "parameters": [{"in": "query", "required": True}]}}, "a parameter has a name"),
        ({"get": {**OK, "parameters": [{"name": "a", "in": "body"}]}}, "in: 'body'"),
        ({"get": {**OK, "parameters": [{"$ref": "#/components/parameters/none"}]}}, "leads to nothing"),
        ({"get": {**OK, "parameters": {}}}, "parameters is a list"),
        ({"get": {**OK, "requestBody": 3}}, "requestBody is an object"),
        ({"get": {"responses": {"200": 3}}}, "a response is an object"),
        ({"get": {**OK, "security": {}}}, "security is a list"),
        ({"get": {**OK, "servers": [{}]}}, "a server has a url"),
        ({"$ref": "#/paths/none"}, "leads to nothing"),
        ("text", "a path item is an object"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place_and_its_neighbours_stay(item: Any, says: str) -> None:
    left, fine = operations_of(description(paths={"/bad": item, "/good": {"get": OK}}))
    assert isinstance(left, LeftOutOperation)
    assert left.path == "/bad"
    assert says in left.reason
    assert isinstance(fine, OperationObject)


@pytest.mark.covers("OA-11.3")
@cases("path", ["/../admin", "/a/%2e%2E/b", "/a/./b", "/a/.."])
def test_a_path_cannot_leave_the_address_of_the_server(path: str) -> None:
    left, fine = operations_of(description(paths={path: {"get": OK}, "/a..b/{c}..?x=../y": {"get": OK}}))
    assert isinstance(left, LeftOutOperation) and "would be another path" in left.reason
    assert isinstance(fine, OperationObject)


def test_parameters_of_the_path_stand_under_those_of_the_operation() -> None:
    shared = [{"name": "id", "in": "path"}, {"name": "X-A", "in": "header", "description": "of the path"}]
    own = [{"name": "x-a", "in": "header", "description": "own"}, {"name": "id", "in": "query"}]
    described = description(paths={"/pets/{id}": {"parameters": shared, "get": {**OK, "parameters": own}}})
    parameters = operation_in(described).parameters
    assert [(each.name, each.location, each.description) for each in parameters] == [
        ("id", "path", ""),
        ("x-a", "header", "own"),
        ("id", "query", ""),
    ]
    assert parameters[0].required, "a parameter of the path is always required"


@cases(
    ("written", "style", "explode"),
    [
        ({"in": "path"}, "simple", False),
        ({"in": "header"}, "simple", False),
        ({"in": "query"}, "form", True),
        ({"in": "cookie"}, "form", True),
        ({"in": "query", "style": "spaceDelimited"}, "spaceDelimited", False),
        ({"in": "query", "style": "deepObject", "explode": True}, "deepObject", True),
        ({"in": "cookie", "style": "cookie"}, "cookie", True),
        ({"in": "query", "explode": False}, "form", False),
    ],
)
def test_styles_have_the_defaults_of_their_location(written: dict[str, Any], style: str, explode: bool) -> None:
    described = api({"parameters": [{"name": "a", **written}]}, "3.2.0", at="get /pets/{a}")
    (parameter,) = operation_in(described).parameters
    assert (parameter.style, parameter.explode) == (style, explode)


def test_a_query_string_has_the_schema_and_the_encoding_of_its_content() -> None:
    media = {"schema": {"type": "object"}, "encoding": {"a": {"contentType": "text/plain", "allowReserved": True}}}
    parameter = {"name": "q", "in": "querystring", "content": {"application/x-www-form-urlencoded": media}}
    (read,) = operation_in(api({"parameters": [parameter]}, "3.2.0", at="query /pets")).parameters
    assert (read.location, read.content) == ("querystring", "application/x-www-form-urlencoded")
    assert read.schema is not None
    assert read.schema.value == {"type": "object"}
    assert (read.encoding["a"].content_type, read.encoding["a"].allow_reserved) == ("text/plain", True)


def test_path_items_are_followed_and_members_beside_the_reference_win() -> None:
    described = description(
        "3.1.0",
        paths={"/pets": {"$ref": "#/components/pathItems/pets", "get": {**OK, "operationId": "own"}}},
        components={"pathItems": {"pets": {"get": {**OK, "operationId": "shared"}, "post": OK}}},
    )
    assert [each.operation_id for each in operations_of(described)] == ["own", None]


@pytest.mark.covers("OA-4.10")
@cases("level", ["operation", "path", "root", "none"])
def test_servers_are_those_of_the_operation_else_of_the_path_else_of_the_document(level: str) -> None:
    levels = ["operation", "path", "root", "none"]
    has = {name: levels.index(name) >= levels.index(level) for name in levels}

    def servers(name: str) -> dict[str, Any]:
        return {"servers": [{"url": f"/{name}"}]} if has[name] and level != "none" else {}

    item = {**servers("path"), "get": {**OK, **servers("operation")}}
    (server,) = operation_in(description(paths={"/pets": item}, **servers("root"))).servers
    assert server.url == {"none": "/"}.get(level, f"/{level}")
    assert server.document_uri == "https://api.example/openapi.json"


def test_variables_of_servers_are_texts() -> None:
    written = {"url": "https://{host}:{port}", "variables": {"port": {"default": 8443, "enum": [8443, "443"]}}}
    (server,) = operation_in(api({"servers": [written]})).servers
    assert (server.variables["port"].default, server.variables["port"].enum) == ("8443", ("8443", "443"))


@cases(
    ("own", "expected"),
    [
        ({}, [{"key": ()}]),
        ({"security": []}, []),
        ({"security": [{}]}, [{}]),
        ({"security": [{"a": ["x"], "b": []}, {"c": None}]}, [{"a": ("x",), "b": ()}, {"c": ()}]),
    ],
)
def test_security_of_the_operation_replaces_that_of_the_document(own: dict[str, Any], expected: list[Any]) -> None:
    described = description(paths={"/pets": {"get": {**OK, **own}}}, security=[{"key": []}])
    assert [each.schemes for each in operation_in(described).security] == expected


def test_tags_have_their_parents() -> None:
    tags = [{"name": "cats", "parent": "pets"}, {"name": "pets", "parent": "all"}, {"name": "all", "parent": "cats"}]
    described = description("3.2.0", paths={"/cats": {"get": {**OK, "tags": ["cats"]}}}, tags=tags)
    assert operation_in(described).tags == ("cats", "pets", "all")


def test_bodies_and_answers_are_read_with_all_their_parts() -> None:
    part = {"contentType": "image/png", "headers": {"X-Part": {"schema": {"type": "string"}}}, "style": "form"}
    media = {"schema": {"type": "object"}, "encoding": {"file": part}}
    stream = {"itemSchema": {"type": "object"}, "prefixEncoding": [{}], "itemEncoding": {"contentType": "text/plain"}}
    described = api(
        {
            "requestBody": {"$ref": "#/components/requestBodies/pet"},
            "responses": {
                "2xx": {"content": {"application/jsonl": stream}, "headers": {"Next": {"schema": {"type": "string"}}}},
                "default": {"description": "wrong", "links": {"more": {"operationId": "get"}}},
            },
            "x-mine": 1,
        },
        "3.2.0",
        requestBodies={"pet": {"required": True, "content": {"multipart/form-data": media}}},
    )
    operation = operation_in(described)
    assert operation.request_body is not None
    (form,) = operation.request_body.content
    assert operation.request_body.required
    assert (form.encoding["file"].content_type, list(form.encoding["file"].headers)) == ("image/png", ["X-Part"])
    assert (form.encoding["file"].style, form.encoding["file"].explode) == ("form", None)
    (items,) = operation.responses["2XX"].content
    assert items.item_schema is not None
    assert items.item_encoding is not None
    assert len(items.prefix_encoding) == 1
    assert list(operation.responses["2XX"].headers) == ["Next"]
    assert operation.responses["default"].links == {"more": {"operationId": "get"}}
    assert operation.extensions == {"x-mine": 1}


def test_a_document_without_paths_has_no_operations() -> None:
    described = description("3.1.0", webhooks={"new": {"post": OK}})
    del described.root.root["paths"]
    assert operations_of(described) == []
