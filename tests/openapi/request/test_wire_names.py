"""Members of objects in a request: none has the name of a credential, of a fixed value or of another parameter."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases

from toolwire.openapi.definition.tool_definitions import ToolDefiner
from toolwire.openapi.description.operations import operations_of
from toolwire.openapi.description.reading import read_description
from toolwire.openapi.model import OperationObject, OperationSettings, ToolDefinition
from toolwire.openapi.request.request_builder import RequestBuilder
from toolwire.protocol.errors import ToolError

BASE = "https://api.test"
TEXT = {"type": "string"}
OPEN = {"type": "object", "additionalProperties": TEXT}
FORM = "application/x-www-form-urlencoded"
KEYS = {
    "used": {"type": "apiKey", "in": "query", "name": "api_key"},
    "unused": {"type": "apiKey", "in": "query", "name": "auth[key]"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sess"},
}


def define(operation: dict[str, Any], fixed: dict[str, Any] | None = None, path: str = "/x") -> ToolDefinition:
    content = {
        "openapi": "3.2.0",
        "info": {"title": "T", "version": "1"},
        "components": {"securitySchemes": KEYS},
        "paths": {
            path: {"post": {"responses": {"200": {"description": "x"}}, "security": [{"used": []}], **operation}}
        },
    }
    description = read_description(content, base_uri="https://api.test/openapi.json")
    (found,) = operations_of(description)
    assert isinstance(found, OperationObject)
    made = ToolDefiner(description).define(found, OperationSettings(fixed=fixed))
    assert isinstance(made, ToolDefinition), made
    return made


def check_refused(made: ToolDefinition, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="must not have a member with the name of another parameter"):
        RequestBuilder(made, BASE).build(arguments)


def body(media_type: str, schema: dict[str, Any], **encoding: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema, "encoding": encoding}}}}


@cases(
    ("parameter", "members"),
    [
        (
            {"in": "query", "schema": OPEN},
            ["api_key", "API_KEY", "api_key[]", "api.key", "api key", "auth[key]", "AUTH"],
        ),
        ({"in": "cookie", "schema": OPEN}, ["sess", "Sess", "sess[]"]),
        ({"in": "querystring", "content": {FORM: {"schema": OPEN}}}, ["api_key", "Api_Key", "api_key[]", "auth[key]"]),
    ],
    ids=["query", "cookie", "querystring"],
)
def test_member_of_an_object_is_no_second_api_key(parameter: dict[str, Any], members: list[str]) -> None:
    made = define({"parameters": [{"name": "f", **parameter}]})
    RequestBuilder(made, BASE).build({"f": {"other": "1"}})
    for member in members:
        check_refused(made, {"f": {member: "evil"}})


def test_member_of_a_deep_object_is_no_second_api_key() -> None:
    deep = {"name": "auth", "in": "query", "style": "deepObject", "explode": True, "schema": OPEN}
    made = define({"parameters": [deep]})
    assert RequestBuilder(made, BASE).build({"auth": {"other": "1"}}).url == f"{BASE}/x?auth%5Bother%5D=1"
    for member in ("key", "KEY", "key]["):
        check_refused(made, {"auth": {member: "evil"}})


def test_query_string_given_as_text_has_no_second_api_key() -> None:
    made = define({"parameters": [{"name": "f", "in": "querystring", "content": {"text/plain": {"schema": TEXT}}}]})
    RequestBuilder(made, BASE).build({"f": "a=b&c"})
    for text in ("a=b&api_key=evil", "api%5Fkey=evil", "a;API_KEY=evil"):
        check_refused(made, {"f": text})


def test_object_gives_no_parameter_that_is_left_out_of_the_arguments() -> None:
    parameters = [
        {"name": "old", "in": "query", "deprecated": True, "schema": TEXT},
        {"name": "f", "in": "query", "schema": OPEN},
        {"name": "access_token", "in": "cookie", "schema": TEXT},
        {"name": "c", "in": "cookie", "schema": OPEN},
    ]
    made = define({"parameters": parameters})
    assert [each.name for each in made.arguments] == ["f", "c"]
    check_refused(made, {"f": {"old": "1"}})
    check_refused(made, {"c": {"access_token": "1"}})


@cases("media_type", [FORM, "multipart/form-data"])
@cases(
    ("style", "fixed", "members"),
    [("form", "role", ["role", "ROLE", "role[]", "api_key"]), ("deepObject", "x[role]", ["role", "Role"])],
)
def test_object_in_a_form_gives_no_fixed_member(media_type: str, style: str, fixed: str, members: list[str]) -> None:
    schema = {"type": "object", "properties": {"x": OPEN, fixed: TEXT}}
    made = define(body(media_type, schema, x={"style": style, "explode": True}), {fixed: "user"})
    sent = RequestBuilder(made, BASE).build({"x": {"other": "yes"}}).body
    assert sent is not None and b"yes" in sent and b"user" in sent
    for member in members:
        check_refused(made, {"x": {member: "admin"}})


@pytest.mark.parametrize("media_type", [FORM, "multipart/form-data"])
def test_open_form_has_no_second_field_of_a_described_member(media_type: str) -> None:
    role = {"type": "string", "enum": ["user"]}
    schema = {"type": "object", "properties": {"x": OPEN, "role": role, "a[b]": TEXT}, "additionalProperties": TEXT}
    made = define(body(media_type, schema, x={"style": "form", "explode": True}))
    (argument,) = made.arguments
    RequestBuilder(made, BASE).build({argument.name: {"role": "user", "a[b]": "1", "a[c]": "2", "x": {"y": "1"}}})
    for value in ({"ROLE": "admin"}, {"role[]": "admin"}, {"x": {"role": "admin"}}, {"x": {"n": "1"}, "n": "2"}):
        check_refused(made, {argument.name: value})
    check_refused(made, {argument.name: {"api_key": "evil"}})


def test_object_in_the_query_gives_no_fixed_member_of_a_form() -> None:
    schema = {"type": "object", "properties": {"role": TEXT, "a": TEXT}}
    operation = {**body(FORM, schema), "parameters": [{"name": "f", "in": "query", "schema": OPEN}]}
    check_refused(define(operation, {"role": "user"}), {"f": {"role": "admin"}})


def test_parameter_that_servers_read_as_a_fixed_one_is_no_argument() -> None:
    named = [("role", "query"), ("Role[]", "query"), ("X-Role", "header"), ("x_role", "header"), ("b", "query")]
    made = define(
        {"parameters": [{"name": name, "in": location, "schema": TEXT} for name, location in named]},
        {"role": "user", "X-Role": "user"},
    )
    assert [each.name for each in made.arguments] == ["b"]
    assert "the parameter 'Role[]' is left out" in " ".join(made.warnings)


def test_parameter_whose_value_the_path_has_is_no_argument() -> None:
    parameters = [{"name": name, "in": "query", "schema": TEXT} for name in ("Role", "b")]
    made = define({"parameters": parameters}, path="/x?role=user")
    assert [each.name for each in made.arguments] == ["b"]
    assert "the parameter 'Role' is left out: the query in the path has its value" in " ".join(made.warnings)


@cases("name", ["x_forwarded_for", "X_Real_IP", "x_api_key", "x_http_method_override", "sec_fetch"])
def test_headers_with_underscores_are_treated_like_those_with_hyphens(name: str) -> None:
    parameters = [{"name": each, "in": "header", "schema": TEXT} for each in (name, "x_color")]
    assert [each.name for each in define({"parameters": parameters}).arguments] == ["x_color"]
