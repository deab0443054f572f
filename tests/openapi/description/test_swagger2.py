"""Swagger 2.0 as OpenAPI 3.0: bodies and forms, media types, servers, arrays in parameters, schemas, security."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

from toolwire.openapi.description.reading import read_description
from toolwire.openapi.model import DescriptionError, Node


def swagger(**members: Any) -> dict[str, Any]:
    return {"swagger": "2.0", "info": {"title": "T", "version": "1"}, "paths": {}, **members}


def converted(uri: str | None = None, **members: Any) -> dict[str, Any]:
    document = swagger(**members)
    before = copy.deepcopy(document)
    root = read_description(document, base_uri=uri).root
    assert document == before
    assert root.version == "3.0"
    return root.root


def operation(method: str = "post", *, path: Any = None, root: Any = None, **members: Any) -> Any:
    document = converted(**(root or {}), paths={"/x": {**(path or {}), method: {"responses": {}, **members}}})
    return document["paths"]["/x"][method]


# --- servers ---


@cases(
    ("members", "uri", "urls"),
    [
        ({"host": "a.test", "basePath": "/v1/", "schemes": ["http", "https", "wss"]}, None, ["https://a.test/v1", "http://a.test/v1"]),
        ({"host": "a.test:8080"}, "http://b.test/api.json", ["http://a.test:8080"]),
        ({"host": "a.test", "basePath": "/"}, None, ["https://a.test"]),
        ({"basePath": "v2"}, "https://b.test/api.json", ["/v2"]),
        ({}, None, ["/"]),
        ({"host": 7, "basePath": [], "schemes": "https"}, None, ["/"]),
    ],
)  # fmt: skip
def test_host_base_path_and_schemes(members: dict[str, Any], uri: str | None, urls: list[str]) -> None:
    assert [each["url"] for each in converted(uri, **members)["servers"]] == urls


def test_schemes_of_an_operation() -> None:
    assert operation(root={"host": "a.test", "schemes": ["https"]}, schemes=["http"])["servers"] == [
        {"url": "http://a.test"}
    ]


# --- bodies ---

BODY = {"name": "pet", "in": "body", "required": True, "description": "A pet.", "schema": {"$ref": "#/definitions/Pet"}}
PET = {"definitions": {"Pet": {"type": "object"}}}


def test_a_body_in_each_media_type() -> None:
    schema = {"schema": {"$ref": "#/components/schemas/Pet"}}
    plain = operation(root=PET, parameters=[BODY])["requestBody"]
    assert plain == {"required": True, "description": "A pet.", "content": {"application/json": schema}}
    of_root = operation(root={**PET, "consumes": ["text/csv"]}, parameters=[BODY])["requestBody"]
    assert of_root["content"] == {"text/csv": schema}
    own = operation(root={**PET, "consumes": ["text/csv"]}, consumes=["application/xml", "a/b"], parameters=[BODY])
    assert own["requestBody"]["content"] == {"application/xml": schema, "a/b": schema}
    cleared = operation(root={**PET, "consumes": ["text/csv"]}, consumes=[], parameters=[BODY])
    assert cleared["requestBody"]["content"] == {"application/json": schema}
    assert "parameters" not in cleared


def test_a_body_that_is_a_shared_parameter_and_one_of_the_path() -> None:
    root = {**PET, "parameters": {"Body": BODY, "Again": {"$ref": "#/parameters/Body"}}}
    shared = operation(root=root, parameters=[{"$ref": "#/parameters/Again"}])
    assert shared["requestBody"]["content"]["application/json"] == {"schema": {"$ref": "#/components/schemas/Pet"}}
    of_path = operation(root=root, path={"parameters": [{"$ref": "#/parameters/Body"}]})
    assert of_path["requestBody"] == shared["requestBody"]
    other = {"name": "other", "in": "body", "schema": {"type": "string"}}
    replaced = operation(root=root, path={"parameters": [BODY]}, parameters=[other])
    assert replaced["requestBody"]["content"]["application/json"] == {"schema": {"type": "string"}}


FORM = [
    {"name": "a", "in": "formData", "type": "string", "description": "An a.", "required": True, "maxLength": 3},
    {"name": "b", "in": "formData", "type": "array", "items": {"type": "integer"}, "collectionFormat": "multi"},
    {"name": "c", "in": "formData", "type": "array", "items": {"type": "integer"}},
]


def test_a_form() -> None:
    body = operation(parameters=FORM)["requestBody"]
    media = {
        "schema": {
            "type": "object",
            "properties": {
                "a": {"type": "string", "maxLength": 3, "description": "An a."},
                "b": {"type": "array", "items": {"type": "integer"}},
                "c": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["a"],
        },
        "encoding": {"b": {"style": "form", "explode": True}, "c": {"style": "form", "explode": False}},
    }
    assert body == {"required": True, "content": {"application/x-www-form-urlencoded": media}}
    both = operation(consumes=["multipart/form-data", "application/x-www-form-urlencoded", "text/x"], parameters=FORM)
    assert list(both["requestBody"]["content"]) == ["multipart/form-data", "application/x-www-form-urlencoded"]
    json = operation(consumes=["application/json"], parameters=FORM)
    assert list(json["requestBody"]["content"]) == ["application/x-www-form-urlencoded"]


def test_a_file_makes_a_form_multipart() -> None:
    parameters = [{"name": "f", "in": "formData", "type": "file"}]
    for consumes in ([], ["application/x-www-form-urlencoded"], ["multipart/form-data"]):
        body = operation(consumes=consumes, parameters=parameters)["requestBody"]
        assert body == {
            "required": False,
            "content": {
                "multipart/form-data": {
                    "schema": {"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}}
                }
            },
        }


# --- parameters ---


@cases(
    ("location", "collection_format", "style", "explode"),
    [
        ("query", None, "form", False),
        ("query", "csv", "form", False),
        ("query", "multi", "form", True),
        ("query", "ssv", "spaceDelimited", False),
        ("query", "pipes", "pipeDelimited", False),
        ("query", "tsv", "tabDelimited", False),
        ("path", None, "simple", False),
        ("path", "csv", "simple", False),
        ("path", "pipes", "pipeDelimited", False),
        ("header", "csv", "simple", False),
        ("header", "ssv", "spaceDelimited", False),
    ],
)
def test_arrays_in_parameters(location: str, collection_format: str | None, style: str, explode: bool) -> None:
    items = {"type": "string", "enum": ["a", "b"]}
    old = {"name": "p", "in": location, "type": "array", "items": items, "description": "d", "x-own": 1, "minItems": 1}
    if collection_format is not None:
        old["collectionFormat"] = collection_format
    assert operation("get", parameters=[old])["parameters"] == [
        {
            "name": "p",
            "in": location,
            "description": "d",
            "x-own": 1,
            "schema": {"type": "array", "items": items, "minItems": 1},
            "style": style,
            "explode": explode,
        }
    ]


def test_a_parameter_of_the_operation_replaces_that_of_the_path() -> None:
    path = {
        "parameters": [{"name": "p", "in": "query", "type": "string"}, {"name": "p", "in": "header", "type": "string"}]
    }
    own = {"name": "p", "in": "query", "type": "integer", "default": 3, "allowEmptyValue": True, "required": False}
    assert operation("get", path=path, parameters=[own])["parameters"] == [
        {
            "name": "p",
            "in": "query",
            "required": False,
            "allowEmptyValue": True,
            "schema": {"type": "integer", "default": 3},
        },
        {"name": "p", "in": "header", "schema": {"type": "string"}},
    ]


def test_a_shared_parameter_is_converted_once() -> None:
    root = converted(
        parameters={"P": {"name": "p", "in": "query", "type": "string"}},
        responses={"R": {"description": "r", "schema": {"type": "object", "properties": {"a": {"type": "file"}}}}},
        paths={
            path: {"get": {"parameters": [{"$ref": "#/parameters/P"}], "responses": {"200": {"$ref": "#/responses/R"}}}}
            for path in ("/a", "/b")
        },
    )
    first, second = root["paths"]["/a"]["get"], root["paths"]["/b"]["get"]
    assert first["parameters"][0] is second["parameters"][0]
    content = [each["responses"]["200"]["content"]["application/json"]["schema"] for each in (first, second)]
    assert content[0] is content[1]
    assert content[0]["properties"]["a"] == {"type": "string", "format": "binary"}


# --- responses ---


def test_responses() -> None:
    root = {"produces": ["application/json", "text/csv"], "responses": {"Gone": {"description": "It is gone."}}}
    responses = operation(
        "get",
        root=root,
        responses={
            "200": {
                "description": "ok",
                "schema": {"type": "array", "items": {"$ref": "#/definitions/Pet"}},
                "examples": {"text/csv": "a,b"},
                "headers": {"X-Rate": {"type": "integer", "description": "Left.", "format": "int32"}},
            },
            "410": {"$ref": "#/responses/Gone"},
            "default": {},
            "x-own": 1,
        },
    )["responses"]
    schema = {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}
    assert responses == {
        "200": {
            "description": "ok",
            "content": {"application/json": {"schema": schema}, "text/csv": {"schema": schema, "example": "a,b"}},
            "headers": {"X-Rate": {"schema": {"type": "integer", "format": "int32"}, "description": "Left."}},
        },
        "410": {"description": "It is gone."},
        "default": {"description": ""},
        "x-own": 1,
    }


@pytest.mark.parametrize(("produces", "media_type"), [([], "application/octet-stream"), (["image/png"], "image/png")])
def test_a_file_as_an_answer(produces: list[str], media_type: str) -> None:
    found = operation("get", produces=produces, responses={"200": {"schema": {"type": "file"}}})["responses"]["200"]
    assert found["content"] == {media_type: {"schema": {"type": "string", "format": "binary"}}}


# --- schemas ---


def test_schemas() -> None:
    root = converted(
        definitions={
            "Pet": {
                "discriminator": "kind",
                "properties": {
                    "discriminator": {"type": "string"},
                    "$ref": {"$ref": "#/definitions/A%20b"},
                    "note": {"type": "string", "x-nullable": True},
                    "tree": {"items": {"$ref": "#/definitions/Pet"}, "type": "array"},
                },
                "additionalProperties": {"$ref": "#/definitions/A b"},
                "allOf": [{"$ref": "#/definitions/A b/properties/x"}],
                "example": {"$ref": "#/definitions/Pet"},
            },
            "A b": {"properties": {"x": {"type": "integer"}}},
        }
    )
    assert root["components"]["schemas"] == {
        "Pet": {
            "discriminator": {"propertyName": "kind"},
            "properties": {
                "discriminator": {"type": "string"},
                "$ref": {"$ref": "#/components/schemas/A%20b"},
                "note": {"type": "string", "x-nullable": True, "nullable": True},
                "tree": {"items": {"$ref": "#/components/schemas/Pet"}, "type": "array"},
            },
            "additionalProperties": {"$ref": "#/components/schemas/A b"},
            "allOf": [{"$ref": "#/components/schemas/A b/properties/x"}],
            "example": {"$ref": "#/definitions/Pet"},
        },
        "A b": {"properties": {"x": {"type": "integer"}}},
    }


def test_a_reference_to_a_schema_inside_an_operation() -> None:
    inline = {"type": "object", "properties": {"me": {"$ref": "#/paths/~1x/get/responses/200/schema"}}}
    document = converted(paths={"/x": {"get": {"responses": {"200": {"schema": inline}}}}})
    name = "responses_200_schema"
    assert document["paths"]["/x"]["get"]["responses"]["200"]["content"]["application/json"]["schema"] == {
        "type": "object",
        "properties": {"me": {"$ref": f"#/components/schemas/{name}"}},
    }
    assert document["components"]["schemas"][name]["properties"]["me"] == {"$ref": f"#/components/schemas/{name}"}


# --- security ---


def test_security() -> None:
    scopes = {"read": "Read."}
    urls = {"authorizationUrl": "https://a.test/a", "tokenUrl": "https://a.test/t"}
    root = converted(
        security=[{"key": []}],
        securityDefinitions={
            "basic": {"type": "basic", "description": "d"},
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            **{
                flow: {"type": "oauth2", "flow": flow, "scopes": scopes, **urls}
                for flow in ("implicit", "password", "application", "accessCode")
            },
        },
    )
    assert root["security"] == [{"key": []}]
    assert root["components"]["securitySchemes"] == {
        "basic": {"type": "http", "scheme": "basic", "description": "d"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        **{
            old: {"type": "oauth2", "flows": {new: {"scopes": scopes, **urls}}}
            for old, new in (
                ("implicit", "implicit"),
                ("password", "password"),
                ("application", "clientCredentials"),
                ("accessCode", "authorizationCode"),
            )
        },
    }


# --- several documents ---


def test_parts_of_other_documents(tmp_path: Path) -> None:
    files = {
        "root.yaml": """\
swagger: "2.0"
paths:
  /a:
    get:
      parameters: [{$ref: 'parts/parameters.yaml#/limit'}, {$ref: 'parts/parameters.yaml#/body'}]
      responses: {200: {$ref: 'parts/responses.json#/ok'}}
  /b: {$ref: parts/path.yaml}
  /c: {$ref: '#/paths/~1a'}
definitions:
  Own: {type: object, properties: {other: {$ref: 'parts/models.yaml#/definitions/Pet'}}}
""",
        "parts/parameters.yaml": """\
limit: {name: limit, in: query, type: array, items: {type: string}, collectionFormat: multi}
body: {name: b, in: body, schema: {$ref: 'models.yaml#/definitions/Pet'}}
""",
        "parts/responses.json": '{"ok": {"description": "ok", "schema": {"$ref": "single.yaml"}}}',
        "parts/path.yaml": "get: {responses: {200: {description: b, schema: {$ref: '../root.yaml#/definitions/Own'}}}}",
        "parts/models.yaml": "definitions: {Pet: {discriminator: kind, properties: {me: {$ref: '#/definitions/Pet'}}}}",
        "parts/single.yaml": "{type: object, properties: {f: {type: file}, up: {$ref: '#'}}}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    description = read_description(tmp_path / "root.yaml")
    root = description.root

    def followed(schema: Any) -> Any:
        return description.resolve(Node(schema, root)).value

    paths = root.root["paths"]
    get = paths["/a"]["get"]
    assert get["parameters"][0]["style"] == "form"
    assert get["parameters"][0]["explode"] is True
    pet = followed(get["requestBody"]["content"]["application/json"]["schema"])
    assert pet["discriminator"] == {"propertyName": "kind"}
    models = description.documents[(tmp_path / "parts/models.yaml").as_uri()]
    assert description.referenced(pet["properties"]["me"]["$ref"], models)[1].value is pet
    assert followed(root.root["components"]["schemas"]["Own"]["properties"]["other"]) is pet
    single = followed(get["responses"]["200"]["content"]["application/json"]["schema"])
    assert single["properties"]["f"] == {"type": "string", "format": "binary"}
    own = followed(paths["/b"]["get"]["responses"]["200"]["content"]["application/json"]["schema"])
    assert own is root.root["components"]["schemas"]["Own"]
    assert followed(paths["/c"]) is paths["/a"]
    assert {uri.rpartition("/")[2] for uri in description.digests} >= {"root.yaml", "models.yaml", "single.yaml"}


# --- mistakes ---


def test_a_mistake_belongs_to_its_operation(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        """\
swagger: "2.0"
paths:
  /a:
    get:
      parameters: [{$ref: '#/parameters/missing'}, {$ref: '#/parameters/loop'}]
      responses: {200: {$ref: '#/responses/missing'}, 201: {schema: {$ref: '#/definitions/Pat'}}}
  /b: {$ref: 'missing.yaml'}
  /c: 7
  /d: {get: 7, post: {parameters: 7, responses: 7}}
parameters: {loop: {$ref: '#/parameters/loop'}}
definitions: {Pet: {}}
"""
    )
    description = read_description(file)
    paths = description.root.root["paths"]
    get = paths["/a"]["get"]
    broken = [
        *get["parameters"],
        get["responses"]["200"],
        get["responses"]["201"]["content"]["application/json"]["schema"],
    ]
    for part in [*broken, paths["/b"]]:
        with pytest.raises(DescriptionError) as caught:
            description.resolve(Node(part, description.root))
        assert str(caught.value).startswith(f"{file}")
    assert "did you mean #/components/schemas/Pet?" in str(_error(description, broken[-1]))
    assert "missing.yaml: the file cannot be read" in str(_error(description, paths["/b"]))
    assert (paths["/c"], paths["/d"]["get"], paths["/d"]["post"]) == (7, 7, {"responses": {}})
    assert description.root.place("/components/schemas/Pet") == f"{file}:11"
    assert description.root.place("/paths/~1a/get/requestBody/content") == f"{file}:4"


def _error(description: Any, part: Any) -> DescriptionError:
    with pytest.raises(DescriptionError) as caught:
        description.resolve(Node(part, description.root))
    return caught.value
