"""Operations as tools: names, arguments, forms of bodies, answers, annotations, decisions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.openapi.descriptions import api, defined, description, operation_in, tool_of

from toolwire import schemas
from toolwire.agents.vendors import ANTHROPIC, GEMINI, GEMINI_LEGACY, GOOGLE_GENAI, OPENAI, STRICT, VERTEX
from toolwire.cli.lint_vendors import check
from toolwire.openapi.definition.tool_definitions import ToolDefiner, define
from toolwire.openapi.model import DescriptionError, LeftOutOperation, OperationSettings, ToolDefinition
from toolwire.protocol import types as t

TEXT = {"type": "string"}
TREE = {
    "type": "object",
    "properties": {"value": TEXT, "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
}


def body(schema: Any, media_type: str = "application/json", **members: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {media_type: {"schema": schema}}, "required": True, **members}}


def answers(schema: Any, status: str = "200", media_type: str = "application/json") -> dict[str, Any]:
    return {"responses": {status: {"description": "", "content": {media_type: {"schema": schema}}}}}


def places(definition: ToolDefinition) -> dict[str, str]:
    return {
        each.name: f"{each.parameter.location} {each.parameter.name}"
        if each.parameter is not None
        else "body"
        if each.member is None
        else f"body {each.member}"
        for each in definition.arguments
    }


def fits(definition: ToolDefinition, value: Any) -> bool:
    return schemas.compile(definition.argument_schema(), what="the arguments").fits(value)


# -- Arguments ---------------------------------------------------------------------------------------------------------


def test_a_body_that_may_be_missing_is_whole_where_it_is_there() -> None:
    pet = {"type": "object", "properties": {"full name": TEXT, "id": TEXT, "tag": TEXT}, "required": ["full name"]}
    parameters = [{"name": "id", "in": "query", "schema": TEXT}]
    made = tool_of(api({"parameters": parameters, **body(pet, required=False)}, at="post /pets"))
    # Arguments that are called otherwise than the members of the body make no difference.
    assert places(made) == {
        "id_query": "query id",
        "full_name": "body full name",
        "id_body": "body id",
        "tag": "body tag",
    }
    assert fits(made, {}) and fits(made, {"id_query": "1"}) and fits(made, {"full_name": "Rex", "tag": "dog"})
    assert not fits(made, {"tag": "dog"}) and not fits(made, {"id_body": "1"})


@pytest.mark.covers("OA-4.4")
@cases("version", ["3.0.3", "3.1.0", "3.2.0"])
def test_parameters_and_members_of_the_body_stand_side_by_side(version: str) -> None:
    parameters = [
        {"name": "id", "in": "path", "schema": {"type": "integer"}, "description": "Which <b>pet</b>"},
        {"name": "dry_run", "in": "query", "schema": {"type": "boolean"}},
        {"name": "X-Tenant", "in": "header", "required": True, "schema": TEXT},
        {"name": "session", "in": "cookie", "required": True, "schema": TEXT},
    ]
    pet = {"type": "object", "properties": {"name": TEXT, "tag": TEXT}, "required": ["name"]}
    described = api({"parameters": parameters, **body(pet)}, version, at="put /pets/{id}")
    made = tool_of(described)
    assert places(made) == {
        "id": "path id",
        "dry_run": "query dry_run",
        "X-Tenant": "header X-Tenant",
        "session": "cookie session",
        "name": "body name",
        "tag": "body tag",
    }
    assert made.input_schema["required"] == ["id", "X-Tenant", "session", "name"]
    assert made.input_schema["properties"]["id"] == {"type": "integer", "description": "Which pet"}
    assert fits(made, {"id": 1, "X-Tenant": "a", "session": "b", "name": "c"})
    assert not fits(made, {"id": 1, "X-Tenant": "a", "session": "b", "name": "c", "unknown": 1})


@pytest.mark.covers("OA-4.4")
def test_names_that_collide_get_their_location() -> None:
    parameters = [{"name": "id", "in": "path"}, {"name": "id", "in": "query"}, {"name": "other", "in": "query"}]
    described = api(
        {"parameters": parameters, **body({"type": "object", "properties": {"id": TEXT, "name": TEXT}})},
        at="post /pets/{id}",
    )
    assert places(tool_of(described)) == {
        "id_path": "path id",
        "id_query": "query id",
        "other": "query other",
        "id_body": "body id",
        "name": "body name",
    }


def test_names_of_arguments_that_were_decided_stay() -> None:
    parameters = [{"name": "id", "in": "path"}, {"name": "id", "in": "query"}]
    decided = OperationSettings(arguments={"path id": "id"})
    made = tool_of(api({"parameters": parameters}, at="get /pets/{id}"), settings=decided)
    assert places(made) == {"id": "path id", "id_query": "query id"}


@cases(
    ("names", "expected"),
    [
        (["filter[name]", "$top", "a b"], ["filter_name", "top", "a_b"]),
        (["größe"], ["gr_e"]),
        (["日本"], ["query"]),
        (["x" * 80], [f"{'x' * 55}_d929cdee"]),
    ],
)
def test_arguments_have_plain_names(names: list[str], expected: list[str]) -> None:
    made = tool_of(api({"parameters": [{"name": name, "in": "query"} for name in names]}))
    assert [each.name for each in made.arguments] == expected


def test_parameters_whose_plain_names_are_the_same_differ() -> None:
    made = tool_of(api({"parameters": [{"name": "a[b]", "in": "query"}, {"name": "a.b", "in": "query"}]}))
    first, second = (each.name for each in made.arguments)
    assert first != second
    assert first.startswith("a_b_query_")


def test_a_member_that_an_optional_body_needs_says_so() -> None:
    """OpenAPI: a body is optional unless the description says otherwise, and few say it."""
    schema = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary", "description": "The photo."}, "note": TEXT},
        "required": ["file"],
    }
    body = {"content": {"multipart/form-data": {"schema": schema}}}
    made = tool_of(api({"requestBody": body}, at="post /photos"))
    assert "required" not in made.input_schema
    assert "The photo. Required if the request has a body." in str(made.input_schema["properties"]["file"])
    assert "description" not in made.input_schema["properties"]["note"]
    checked = schemas.compile(made.argument_schema(), what="the arguments")
    assert not checked.fits({"note": "x"})
    assert checked.fits({}) and checked.fits({"file": "aGk="})
    needed = tool_of(api({"requestBody": {**body, "required": True}}, at="post /photos"))
    assert needed.input_schema["required"] == ["file"]


@pytest.mark.covers("OA-4.6")
@cases(
    ("name", "location", "required", "is_argument"),
    [
        ("X-Tenant", "header", True, True),
        ("X-Tenant", "header", False, True),
        ("Accept-Language", "header", False, True),
        ("If-Match", "header", False, True),
        ("Prefer", "header", False, True),
        ("X-GitHub-Api-Version", "header", False, True),
        ("X-Auth-Token", "header", False, False),
        ("x-amz-signature", "header", False, False),
        ("Content-Disposition", "header", False, False),
        ("If-None-Match", "header", False, False),
        ("X-HTTP-Method-Override", "header", False, False),
        ("X-Original-URL", "header", False, False),
        ("True-Client-IP", "header", False, False),
        ("theme", "cookie", False, True),
        ("JSESSIONID", "cookie", False, False),
        ("connect.sid", "cookie", False, False),
        ("side", "cookie", False, True),
        ("session", "cookie", True, True),
        ("session", "cookie", False, False),
        ("Authorization", "header", True, False),
        ("accept", "header", True, False),
        ("Content-Type", "header", True, False),
        ("Cookie", "header", True, False),
        ("Host", "header", True, False),
        ("Connection", "header", True, False),
        ("traceparent", "header", True, False),
        ("X-Request-ID", "header", True, False),
        ("X-B3-TraceId", "header", True, False),
        ("Idempotency-Key", "header", True, False),
        ("X-Forwarded-For", "header", True, False),
        ("X-Api-Key", "header", True, False),  # the security scheme
        ("key", "query", True, False),  # the security scheme
        ("X-Api-Key", "query", True, True),
    ],
)
def test_headers_and_cookies_are_arguments_where_a_model_may_give_them(
    name: str, location: str, required: bool, is_argument: bool
) -> None:
    schemes = {
        "a": {"type": "apiKey", "in": "header", "name": "X-API-KEY"},
        "b": {"type": "apiKey", "in": "query", "name": "key"},
    }
    parameter = {"name": name, "in": location, "required": required, "schema": TEXT}
    made = tool_of(api({"parameters": [parameter]}, securitySchemes=schemes))
    assert (len(made.arguments) == 1) is is_argument
    # Nobody sends what belongs to the network, so the operator is told.
    is_told = any("is required, and nothing sends it" in text for text in made.warnings)
    assert is_told is (name.lower() in ("traceparent", "x-request-id", "x-b3-traceid", "x-forwarded-for"))


def test_an_optional_header_is_asked_for_where_a_person_says_so_and_fixed_where_a_value_is_given() -> None:
    parameters = [{"name": name, "in": "header", "schema": TEXT} for name in ("X-A-Token", "X-B", "X-C-Token")]
    made = tool_of(api({"parameters": parameters}), settings=OperationSettings(ask=("X-A-Token",), fixed={"X-B": "2"}))
    assert places(made) == {"X-A-Token": "header X-A-Token"}
    assert [(parameter.name, value) for parameter, value in made.fixed] == [("X-B", "2")]


@pytest.mark.parametrize(("required", "is_argument"), [(True, True), (False, False)])
def test_deprecated_parameters_leave_unless_they_are_required(required: bool, is_argument: bool) -> None:
    parameter = {"name": "old", "in": "query", "deprecated": True, "required": required, "schema": TEXT}
    assert (len(tool_of(api({"parameters": [parameter]})).arguments) == 1) is is_argument


def test_the_template_decides_which_parameters_the_path_has() -> None:
    made = tool_of(api({"parameters": [{"name": "b", "in": "path", "schema": TEXT}]}, at="get /pets/{a}"))
    assert places(made) == {"a": "path a"}
    assert len(made.warnings) == 2


@cases(
    "schema",
    [
        {"type": "array", "items": TEXT},
        {"type": "string"},
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT, "properties": {"a": TEXT}},
        {"type": "object", "nullable": True, "properties": {"a": TEXT}},
        {"oneOf": [{"type": "object", "properties": {"a": TEXT}}, {"type": "object", "properties": {"b": TEXT}}]},
        {},
    ],
)
def test_a_body_whose_members_cannot_stand_alone_is_one_argument(schema: Any) -> None:
    assert places(tool_of(api(body(schema), at="post /pets"))) == {"body": "body"}


def test_conditions_on_the_members_of_a_body_are_checked() -> None:
    pet = {
        "type": "object",
        "properties": {"name": TEXT, "id": TEXT},
        "anyOf": [{"required": ["name"]}, {"required": ["id"]}],
    }
    made = tool_of(api(body(pet), at="post /pets"))
    assert places(made) == {"name": "body name", "id": "body id"}
    assert "anyOf" not in made.input_schema
    assert fits(made, {"id": "1"})
    assert not fits(made, {})


def test_the_required_members_of_an_optional_body_are_required_together() -> None:
    pet = {"type": "object", "properties": {"name": TEXT, "tag": TEXT}, "required": ["name"]}
    made = tool_of(api(body(pet, required=False), at="post /pets"))
    assert "required" not in made.input_schema
    assert fits(made, {})
    assert fits(made, {"name": "a"})
    assert not fits(made, {"tag": "a"})


def test_a_required_member_that_nobody_describes_is_an_argument() -> None:
    made = tool_of(api(body({"type": "object", "properties": {"a": TEXT}, "required": ["b"]}), at="post /pets"))
    assert places(made) == {"a": "body a", "b": "body b"}


def test_secrets_are_marked() -> None:
    login = {
        "type": "object",
        "properties": {
            "user": TEXT,
            "password": {"type": "string", "format": "password"},
            "pin": {"$ref": "#/components/schemas/Pin"},
        },
    }
    made = tool_of(api(body(login), at="post /login", schemas={"Pin": {"type": "string", "writeOnly": True}}))
    assert {each.name: each.is_secret for each in made.arguments} == {"user": False, "password": True, "pin": True}


# -- Forms of bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-4.5")
@cases(
    ("offered", "expected"),
    [
        (["application/xml", "text/plain", "application/json"], "application/json"),
        (["text/plain", "application/vnd.api+json"], "application/vnd.api+json"),
        (["application/merge-patch+json", "application/json; charset=utf-8"], "application/json; charset=utf-8"),
        (["multipart/form-data", "application/x-www-form-urlencoded"], "application/x-www-form-urlencoded"),
        (["application/octet-stream", "multipart/form-data"], "multipart/form-data"),
        (["text/plain", "application/octet-stream"], "application/octet-stream"),
        (["application/xml", "text/plain"], "text/plain"),
        (["application/xml", "*/*"], "*/*"),
    ],
)
def test_forms_of_a_body_have_an_order(offered: list[str], expected: str) -> None:
    content = {name: {"schema": {"type": "object"}} for name in offered}
    made = tool_of(api({"requestBody": {"content": content}}, at="post /pets"))
    assert made.media is not None
    assert made.media.media_type == expected


def test_other_forms_take_a_decision() -> None:
    described = api(body({"type": "object"}, "application/xml"), at="post /pets")
    left = define(operation_in(described), described)
    assert isinstance(left, LeftOutOperation)
    assert "'media_type': 'application/xml'" in left.reason
    made = tool_of(described, settings=OperationSettings(media_type="application/xml"))
    assert made.input_schema["properties"]["body"]["type"] == "string"
    wrong = define(operation_in(described), described, OperationSettings(media_type="application/json"))
    assert isinstance(wrong, LeftOutOperation)
    assert "Choose one of application/xml" in wrong.reason
    optional = tool_of(api(body({}, "application/xml", required=False), at="post /pets"))
    assert not optional.arguments
    assert "the optional body (application/xml) is left out. Choose a form: --media-type 'POST" in optional.warnings[0]


@cases(
    ("version", "media_type", "schema", "uploads"),
    [
        ("3.0.3", "application/octet-stream", {"type": "string", "format": "binary"}, {"body"}),
        ("3.1.0", "application/octet-stream", None, {"body"}),
        ("3.0.3", "multipart/form-data", {"type": "string", "format": "binary"}, {"file"}),
        ("3.1.0", "multipart/form-data", {"contentMediaType": "image/png"}, {"file"}),
        ("3.1.0", "multipart/form-data", {"type": "string", "contentMediaType": "text/plain"}, set()),
        ("3.1.0", "application/json", {"type": "string", "contentEncoding": "base64"}, {"file"}),
        ("3.0.3", "application/json", {"type": "string", "format": "byte"}, {"file"}),
        ("3.0.3", "multipart/form-data", {"type": "array", "items": {"type": "string", "format": "binary"}}, {"file"}),
    ],
)
def test_bytes_are_uploads(version: str, media_type: str, schema: Any, uploads: set[str]) -> None:
    if media_type != "application/octet-stream":
        schema = {"type": "object", "properties": {"file": schema, "name": TEXT}}
    content = {media_type: {} if schema is None else {"schema": schema}}
    made = tool_of(api({"requestBody": {"content": content, "required": True}}, version, at="post /files"))
    assert {each.name for each in made.arguments if each.is_upload} == uploads


# -- Answers -----------------------------------------------------------------------------------------------------------


def test_answers_are_published_loosely_and_kept_as_they_are() -> None:
    pet = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"]}
    made = tool_of(api(answers(pet)))
    assert made.output_schema == {"type": "object", "properties": {"id": {"description": "integer"}}}
    assert made.true_output_schema == pet
    strict = tool_of(api(answers(pet)), settings=OperationSettings(output="strict"))
    assert strict.output_schema == pet
    none = tool_of(api(answers(pet)), settings=OperationSettings(output="none"))
    assert (none.output_schema, none.true_output_schema) == (None, None)


@cases(
    ("responses", "expected"),
    [
        ({"200": {"type": "object"}, "201": {"type": "object", "properties": {"a": TEXT}}}, "anyOf"),
        ({"200": {"type": "object"}, "404": {"type": "string"}}, {"type": "object"}),
        ({"2XX": {"type": "object"}}, {"type": "object"}),
        ({"default": {"type": "object"}}, {"type": "object"}),
        ({"200": {"type": "array", "items": TEXT}, "default": TEXT}, {"items": {"description": "string"}}),
        ({"200": {"type": "object"}, "201": {"type": "object"}}, {"type": "object"}),
        ({"404": {"type": "object"}}, None),
        ({}, None),
    ],
)
def test_answers_are_those_of_success(responses: dict[str, Any], expected: Any) -> None:
    content = {status: {"content": {"application/json": {"schema": each}}} for status, each in responses.items()}
    made = tool_of(api({"responses": content}))
    if expected == "anyOf":
        assert made.output_schema is not None
        assert made.output_schema["type"] == "object", "older revisions need no wrapping"
        assert len(made.output_schema["anyOf"]) == 2
    else:
        assert made.output_schema == expected


@pytest.mark.parametrize("other", [{"description": "nothing"}, {"content": {"text/csv": {"schema": TEXT}}}])
def test_no_schema_is_published_where_an_answer_may_be_no_json(other: Any) -> None:
    responses = {**answers({"type": "object"})["responses"], "204": other}
    assert tool_of(api({"responses": responses})).output_schema is None


def test_streams_are_lists_of_their_items() -> None:
    content = {"application/jsonl": {"itemSchema": {"$ref": "#/components/schemas/Pet"}}}
    pet = {"type": "object", "properties": {"a": TEXT}}
    made = tool_of(api({"responses": {"200": {"content": content}}}, "3.2.0", schemas={"Pet": pet}))
    assert made.output_schema is not None
    assert made.output_schema["items"] == {"$ref": "#/$defs/Pet"}
    assert schemas.compile(made.output_schema, what="the output").fits([{"a": "x"}])


def test_a_large_answer_has_a_small_schema() -> None:
    many = {
        f"S{n}": {
            "type": "object",
            "properties": {f"p{i}": {"$ref": f"#/components/schemas/S{(n * 7 + i) % 300}"} for i in range(12)},
        }
        for n in range(300)
    }
    made = tool_of(api(answers({"$ref": "#/components/schemas/S1"}), schemas=many))
    assert len(str(made.output_schema)) < 40_000
    assert made.output_schema is not None
    schemas.compile(made.output_schema, what="the output")


# -- Names, texts, annotations -----------------------------------------------------------------------------------------


@pytest.mark.covers("OA-4.3")
@cases(
    ("operation", "at", "expected"),
    [
        ({"operationId": "listPets"}, "get /pets", "listPets"),
        ({"operationId": "pets.list all"}, "get /pets", "pets_list_all"),
        ({"operationId": "repos/get-content"}, "get /pets", "repos_get-content"),
        ({}, "get /pets", "get_pets"),
        ({}, "get /pets/{petId}", "get_pets_by_petId"),
        ({}, "post /pets/{petId}/toys.json", "post_pets_by_petId_toys_json"),
        ({}, "get /", "get_root"),
        ({"operationId": "日本"}, "get /pets", "get_pets"),
    ],
)
def test_names_come_from_the_operation_alone(operation: dict[str, Any], at: str, expected: str) -> None:
    assert tool_of(api(operation, at=at)).name == expected


@pytest.mark.covers("OA-4.3")
def test_long_names_are_cut_and_stay_different() -> None:
    first, second = (tool_of(api({"operationId": "a" * 80 + end})).name for end in "xy")
    assert len(first) == len(second) == 64
    assert first != second


@pytest.mark.covers("OA-4.7")
@cases(
    ("method", "hints"),
    [
        ("get", (True, False, True, True)),
        ("query", (True, False, True, True)),
        ("put", (False, True, True, True)),
        ("delete", (False, True, True, True)),
        ("patch", (False, True, False, True)),
        ("post", (False, True, False, True)),
    ],
)
def test_all_four_hints_are_always_given(method: str, hints: tuple[bool, ...]) -> None:
    made = tool_of(api({}, "3.2.0", at=f"{method} /pets")).annotations
    assert (made.read_only_hint, made.destructive_hint, made.idempotent_hint, made.open_world_hint) == hints


@pytest.mark.covers("OA-4.7")
@cases("method", ["head", "options", "trace"])
def test_methods_that_do_nothing_are_no_tools(method: str) -> None:
    described = api({}, at=f"{method} /pets")
    assert isinstance(define(operation_in(described), described), LeftOutOperation)


def test_a_person_says_that_a_post_reads() -> None:
    decided = OperationSettings(annotations=t.ToolAnnotations(read_only_hint=True))
    made = tool_of(api({}, at="post /search"), settings=decided).annotations
    assert (made.read_only_hint, made.destructive_hint, made.idempotent_hint) == (True, False, True)


@pytest.mark.covers("OA-4.7")
@cases(
    ("at", "is_strange"),
    [("get /pets/delete", True), ("get /resetPassword", True), ("get /pets/{delete}", False), ("post /reset", False)],
)
def test_a_read_whose_path_says_otherwise_is_remarked(at: str, is_strange: bool) -> None:
    warnings = tool_of(api({}, at=at)).warnings
    assert any("only reads" in text for text in warnings) is is_strange


def test_large_integers_are_remarked() -> None:
    parameter = {"name": "id", "in": "query", "schema": {"type": "integer", "format": "int64"}}
    made = tool_of(api({"parameters": [parameter]}))
    assert any("2^53" in text for text in made.warnings)
    assert made.input_schema["properties"]["id"] == {"type": "integer"}


# -- Decisions ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-4.11")
def test_decisions_in_the_description_stand_under_those_of_a_person() -> None:
    written = {"name": "x", "description": "theirs", "annotations": {"readOnlyHint": True, "openWorldHint": False}}
    described = api({"x-mcp": written, "operationId": "id"}, at="post /search")
    made = tool_of(described)
    assert (made.name, made.description, made.annotations.read_only_hint) == ("x", "theirs", True)
    decided = OperationSettings(name="mine", annotations=t.ToolAnnotations(idempotent_hint=False))
    made = tool_of(described, settings=decided)
    assert (made.name, made.description) == ("mine", "theirs")
    assert (made.annotations.idempotent_hint, made.annotations.open_world_hint) == (False, False)


@pytest.mark.parametrize("written", [False, {"enabled": False}])
def test_an_operation_may_be_switched_off(written: Any) -> None:
    described = api({"x-mcp": written})
    left = define(operation_in(described), described)
    assert isinstance(left, LeftOutOperation)
    assert left.reason == "switched off"
    assert isinstance(define(operation_in(described), described, OperationSettings(enabled=True)), ToolDefinition)


@cases("written", [3, {"name": 3}, {"annotations": []}, {"enabled": "no"}, {"name": "a b"}, {"other": 1}])
def test_mistakes_in_x_mcp_are_left_out(written: Any) -> None:
    made = tool_of(api({"x-mcp": written, "operationId": "id"}))
    assert made.name in ("id", "a_b")


def test_a_person_chooses_a_name_that_clients_take() -> None:
    described = api({})
    left = define(operation_in(described), described, OperationSettings(name="a b"))
    assert isinstance(left, LeftOutOperation)
    assert "cannot have the tool name 'a b'" in left.reason


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"max_description": 0}])
def test_options_have_bounds(wrong: dict[str, int]) -> None:
    with pytest.raises(DescriptionError):
        ToolDefiner(description(), **wrong)


@cases(
    ("security", "expected"),
    [
        ([{"oauth": ["a", "b"], "key": ["c"]}], {"a", "b"}),
        ([{"oauth": ["a", "b"]}, {"oidc": ["b"]}], {"b"}),
        ([{"oauth": ["a"]}, {}], set()),
        ([], set()),
    ],
)
def test_scopes_are_those_of_every_alternative(security: list[Any], expected: set[str]) -> None:
    schemes = {"oauth": {"type": "oauth2"}, "oidc": {"type": "openIdConnect"}, "key": {"type": "apiKey"}}
    assert tool_of(api({"security": security}, securitySchemes=schemes)).scopes == expected


# -- Vendors -----------------------------------------------------------------------------------------------------------


VENDORS = (ANTHROPIC, OPENAI, STRICT, GEMINI, GEMINI_LEGACY, VERTEX, GOOGLE_GENAI)
CYCLES: dict[str, dict[str, Any]] = {
    "itself": {"Tree": TREE},
    "two": {
        "Tree": {"type": "object", "properties": {"value": TEXT, "next": {"$ref": "#/components/schemas/Other"}}},
        "Other": {"type": "object", "properties": {"back": {"$ref": "#/components/schemas/Tree"}}},
    },
    "base": {
        "Tree": {"allOf": [{"$ref": "#/components/schemas/Base"}], "properties": {"value": TEXT}},
        "Base": {"type": "object", "properties": {"parent": {"$ref": "#/components/schemas/Tree"}}},
    },
    "choice": {
        "Tree": {
            "type": "object",
            "properties": {"next": {"oneOf": [{"$ref": "#/components/schemas/Tree"}, {"type": "string"}]}},
        },
    },
}


def findings(definition: ToolDefinition, vendor: str) -> set[str]:
    """Return what a vendor refuses or misunderstands in a tool."""
    tool = t.Tool(name=definition.name, input_schema=definition.input_schema, output_schema=UNSET)
    return {f"{each.rule} {each.message}" for each in check(tool) if vendor in each.vendors and each.level != "hint"}


@pytest.mark.pairwise
@pytest.mark.covers("OA-11.10", "OA-3.2")
@pytest.mark.parametrize("version", ["3.0.3", "3.1.0", "3.2.0"])
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("cycle", CYCLES)
def test_a_cyclic_schema_on_each_vendor_profile(cycle: str, vendor: str, version: str) -> None:
    described = api(body({"$ref": "#/components/schemas/Tree"}), version, at="post /trees", schemas=CYCLES[cycle])
    # The older endpoints of Gemini alone take no reference. `depth=` writes schemas without one.
    expected = {"vendor-keyword uses $ref"} if vendor == GEMINI_LEGACY else set()
    assert findings(tool_of(described), vendor) - _ANY_VALUE == expected
    assert findings(tool_of(described, depth=3), vendor) - _ANY_VALUE == set()
    schemas.compile(tool_of(described).input_schema, what="the schema")


# Where a cycle is cut, a part takes any value. OpenAI's strict mode is the choice of a client, which then sees a type.
_ANY_VALUE = {"vendor-any takes any value, as it has no type"}


@pytest.mark.covers("OA-11.7", "OA-4.3")
@cases("renamed", ["listPets", "getPet", "get_orders", None])
def test_renaming_or_adding_an_operation_leaves_all_other_names(renamed: str | None) -> None:
    ids = {("/pets", "get"): "listPets", ("/pets/{id}", "get"): "getPet", ("/orders", "get"): None}

    def names(changed: str | None, *added: str) -> dict[str, str]:
        paths: dict[str, Any] = {path: {"get": {"responses": {}}} for path in added}
        for (path, method), name in ids.items():
            named = "anotherName" if changed is not None and changed in (name, f"{method}_{path[1:]}") else name
            paths[path] = {method: {"responses": {}, **({} if named is None else {"operationId": named})}}
        return {each.operation.path: each.name for each in defined(description(paths=paths))}

    before = names(None)
    after = names(renamed, "/aaa", "/listPets", "/pets/{id}/toys")
    moved = {path for path, name in before.items() if name == renamed}
    assert {path: name for path, name in before.items() if path not in moved} == {
        path: after[path] for path in before if path not in moved
    }
    assert all(after[path] == "anotherName" for path in moved)
