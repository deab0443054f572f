"""Published schemas: which keywords become words, what is never narrower than the type, and null for "left out"."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic
from tests import signatures
from tests.cases import cases
from tests.test_adapters import ROUND_TRIPS

from toolwire import Server, schemas
from toolwire.adapters import adapter
from toolwire.schemas import PROFILES, Profile
from toolwire.schemas.nulls import takes_null, without_needless_nulls
from toolwire.schemas.walking import description_of

ALLOWED = {
    "type", "description", "default", "items", "minItems", "maxItems", "enum", "properties", "required",
    "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern", "format",
    "additionalProperties", "anyOf", "$ref", "$defs",
}  # fmt: skip


def parts(schema: Any) -> list[dict[str, Any]]:
    """Every subschema."""
    found = [schema]
    for keyword in ("properties", "$defs"):
        found += [each for member in schema.get(keyword, {}).values() for each in parts(member)]
    for keyword in ("items", "additionalProperties"):
        found += parts(schema[keyword]) if keyword in schema else []
    return found + [each for choice in schema.get("anyOf", ()) for each in parts(choice)]


@cases("profile", PROFILES)
@cases("label", signatures.SIGNATURES)
def test_only_keywords_that_every_vendor_knows(label: str, profile: Profile) -> None:
    schema = signatures.tool(label, profile).input_schema
    assert isinstance(schema["properties"], dict)
    for part in parts(schema):
        assert part.keys() <= ALLOWED
        assert "items" in part or part.get("type") != "array"
        assert part.get("type") == "string" or "enum" not in part
        assert "anyOf" not in part or set(part) == {"anyOf"}


@cases("profile", PROFILES)
@cases(("tp", "value"), ROUND_TRIPS, ids=lambda each: str(each)[:40])
def test_a_published_schema_takes_every_value_of_the_type(tp: Any, value: Any, profile: Profile) -> None:
    reader = adapter(tp)
    document = schemas.inline(
        {
            "type": "object",
            "properties": {"it": schemas.merge(definitions := {}, reader.document("input"))},
            "required": ["it"],
            "$defs": definitions,
        }
    )
    published = schemas.compile(schemas.portable(document, profile), what="the schema")
    assert published.check({"it": without_nulls(json.loads(reader.validate_output(value)))}) == []


def without_nulls(value: Any) -> Any:
    """A value as a model sends it, which leaves members out."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


@cases(
    ("part", "published"),
    [
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"const": None}, {"type": "null"}),
        ({"type": "integer", "enum": [2, 1]}, {"type": "integer", "minimum": 1, "maximum": 2}),
        ({"enum": [1.5, 2.5]}, {"type": "number", "description": "one of 1.5, 2.5"}),
        ({"enum": [True, False]}, {"type": "boolean"}),
        ({"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "uniqueItems": True}, {"type": "array", "items": {}, "description": "no item twice"}),
        ({"type": "object", "additionalProperties": True}, {"type": "object"}),
        (
            {"type": "string", "format": "base64url", "description": "It."},
            {"type": "string", "description": "It. (base64url)"},
        ),
        ({"type": "string", "pattern": "^(?!a)"}, {"type": "string", "description": "matches ^(?!a)"}),
        ({"type": "integer", "exclusiveMinimum": 3, "minimum": 1}, {"type": "integer", "minimum": 4}),
        ({"type": "integer", "minimum": 9, "exclusiveMinimum": 3}, {"type": "integer", "minimum": 9}),
        ({"type": "integer", "exclusiveMaximum": 3, "maximum": 1}, {"type": "integer", "maximum": 1}),
        ({"type": "string", "deprecated": True, "writeOnly": True}, {"type": "string", "description": "deprecated"}),
        (True, {}),
        (
            {"oneOf": [{"type": "integer"}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        ),
        (
            {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": "a", "description": "It."},
            {"anyOf": [{"type": "integer", "description": "It."}, {"type": "string", "default": "a"}]},
        ),
        ({"type": "string", "x-mcp-header": "Region"}, {"type": "string", "x-mcp-header": "Region"}),
    ],
    ids=str,
)
def test_keywords_become_words(part: Any, published: Any) -> None:
    schema = {"type": "object", "properties": {"it": part}, "required": ["it"]}
    assert schemas.portable(schema)["properties"]["it"] == published


def test_the_text_of_a_choice_is_found() -> None:
    assert description_of({"anyOf": [{"type": "string", "description": " It. "}]}) == "It."
    assert description_of({"description": "It.", "anyOf": [{"description": "Other."}]}) == "It."
    assert description_of({"anyOf": [True, {}]}) == description_of(True) == ""


# -- null -------------------------------------------------------------------------------------------------------------


@dataclass
class AsDataclass:
    name: str
    size: int = 1
    note: str | None = "none"


class AsStruct(msgspec.Struct):
    name: str
    size: int = 1
    note: str | None = "none"


class AsTagged(msgspec.Struct, tag="it"):
    name: str
    size: int = 1
    note: str | None = "none"


class AsTypedDict(TypedDict):
    name: str
    size: NotRequired[int]
    note: NotRequired[str | None]


class AsNamedTuple(NamedTuple):
    name: str
    size: int = 1
    note: str | None = "none"


class AsModel(pydantic.BaseModel):
    name: str
    size: int = 1
    note: str | None = "none"


RECORDS = [AsDataclass, AsStruct, AsTagged, AsTypedDict, AsNamedTuple, AsModel]
PLACES: dict[str, tuple[Any, Any]] = {
    "argument": (lambda record: record, lambda value: value),
    "list": (lambda record: list[record], lambda value: [value]),
    "dict": (lambda record: dict[str, record], lambda value: {"a": value}),
    "tuple": (lambda record: tuple[int, record], lambda value: [1, value]),
    "union": (lambda record: record | int, lambda value: value),
    "optional": (lambda record: record | None, lambda value: value),
}


@cases("place", PLACES)
@cases("record", RECORDS)
async def test_null_is_left_out_in_records(record: Any, place: str) -> None:
    seen: list[Any] = []
    kind, put = PLACES[place]

    async def tool(it: Any) -> None:
        seen.append(it)

    tool.__annotations__["it"] = kind(record)
    server = Server("s", tools=tool)
    tag = {"type": "it"} if record is AsTagged else {}
    result = await server.call_tool("tool", {"it": put({**tag, "name": "a", "size": None, "note": None})})
    assert not result.is_error, result.text
    expected = {"name": "a", "note": None} if record is AsTypedDict else record(name="a", size=1, note=None)
    assert seen == [{"a": expected} if place == "dict" else tuple(put(expected)) if place == "tuple" else put(expected)]
    refused = await server.call_tool("tool", {"it": put({**tag, "name": None})})
    assert refused.is_error


@cases(
    ("annotation", "default"),
    [
        (int, 5), (str, "a"), (bool, True), (list[int], [1]), (Literal["a", "b"], "b"), (AsDataclass, AsDataclass("a")),
        (AsModel, AsModel(name="a")), (int | str, "a"), (dict[str, int], {"a": 1}), (bytes, b"x"),
    ],
    ids=str,
)  # fmt: skip
async def test_null_is_the_default_where_the_type_has_no_none(annotation: Any, default: Any) -> None:
    seen: list[Any] = []

    async def tool(it: Any = default, other: int = 1) -> None:
        seen.append(it)

    tool.__annotations__["it"] = annotation
    server = Server("s", tools=tool)
    # The second call is repaired elsewhere too.
    for arguments in ({"it": None}, {"it": None, "other": "3"}):
        result = await server.call_tool("tool", arguments)
        assert not result.is_error, result.text
    assert seen == [default, default]


async def test_null_stays_null_where_it_fits() -> None:
    seen: list[Any] = []

    async def tool(a: int | None = 5, b: Any = 5, c: None = None) -> None:
        seen.append((a, b, c))

    await Server("s", tools=tool).call_tool("tool", {"a": None, "b": None, "c": None})
    assert seen == [(None, None, None)]


async def test_null_does_not_stand_for_a_required_argument() -> None:
    async def tool(a: int) -> None: ...

    result = await Server("s", tools=tool).call_tool("tool", {"a": None})
    assert result.is_error
    assert "a" in result.text


async def test_null_in_a_raw_schema() -> None:
    server = Server("s")
    seen: list[Any] = []
    place = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": ["integer", "null"]}}}
    members = {"limit": {"type": "integer", "default": 3}, "at": {"$ref": "#/$defs/Place"}, "any": {}}

    @server.tool(input_schema={"type": "object", "properties": members, "$defs": {"Place": place}})
    async def tool(arguments: dict[str, Any]) -> None:
        seen.append(arguments)

    result = await server.call_tool("tool", {"limit": None, "at": {"city": None, "zip": None}, "any": None})
    assert not result.is_error, result.text
    assert seen == [{"at": {"zip": None}, "any": None, "limit": 3}]


def test_schemas_that_lead_back_to_themselves_end() -> None:
    loop = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, {"type": "integer"}]}}}
    assert takes_null({"$ref": "#/$defs/A"}, loop) is False
    schema = {**loop, "type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}
    assert without_needless_nulls({"a": None}, schema) == {}
    same = {"b": [1, {"c": None}]}
    assert without_needless_nulls(same, schema) is same
