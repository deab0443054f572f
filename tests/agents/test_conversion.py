"""Tools in the forms of five interfaces: nothing raises, nothing is lost silently, the bytes never differ."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import signatures
from tests.agents.vendor_types import check_definitions
from tests.cases import cases
from tests.client.test_formats import ANYTHING, KEYWORDS

from toolwire import schemas
from toolwire.agents.argument_names import restore_arguments
from toolwire.agents.conversion import Names, convert_tools
from toolwire.agents.schema_conversion import convert_schema
from toolwire.agents.strict_schemas import NotStrict, make_strict
from toolwire.agents.vendors import TARGETS, find_target
from toolwire.types import Tool

ALL = tuple(TARGETS)


def written(schema: dict[str, Any], target: str) -> dict[str, Any]:
    return convert_schema(schema, TARGETS[target].schema).schema


def member(part: Any, target: str, **around: Any) -> Any:
    schema = {"type": "object", "properties": {"it": part}, **around}
    return written(schema, target)["properties"]["it"]


def lost(part: Any, target: str) -> dict[str, str]:
    schema = {"type": "object", "properties": {"it": part}}
    losses = convert_schema(schema, TARGETS[target].schema).losses
    assert {loss.path for loss in losses} <= {"/it", ""}
    return {loss.keyword: loss.text for loss in losses}


# --- what each interface takes ---


@pytest.mark.slow
@cases("target", ALL)
def test_vendors_take_the_schemas_of_every_signature(target: str) -> None:
    tools = [signatures.tool(label).definition("2026-07-28") for label in signatures.SIGNATURES]
    tools = [Tool(f"t{number}", tool.input_schema, description="d") for number, tool in enumerate(tools)]
    check_definitions(target, convert_tools(tools, target).definitions)
    check_definitions(target, convert_tools(tools, target, strict=True).definitions)


@pytest.mark.covers("AG-1", "AG-2")
@given(st.dictionaries(st.sampled_from(KEYWORDS), ANYTHING, max_size=6), st.sampled_from(ALL))
def test_vendors_take_what_is_made_of_any_schema(schema: dict[str, Any], target: str) -> None:
    before = deepcopy(schema)
    conversion = convert_tools([Tool("it", schema)], target, strict=True)
    assert schema == before
    check_definitions(target, conversion.definitions)
    json.dumps(conversion.definitions, allow_nan=False)


def test_anthropic_and_openai_keep_rules_that_they_take() -> None:
    part = {"type": ["integer", "null"], "exclusiveMinimum": 0, "multipleOf": 5}
    assert member(part, "anthropic") == member(part, "openai") == part
    assert lost(part, "anthropic") == lost(part, "openai") == {}
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert member(closed, "anthropic") == closed


@cases(
    ("part", "target", "expected"),
    [
        ({"const": "a"}, "gemini", {"type": "string", "enum": ["a"]}),
        ({"type": "integer", "exclusiveMinimum": 0}, "gemini", {"type": "integer", "minimum": 1}),
        ({"type": ["string", "null"]}, "gemini", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": ["string", "null"]}, "gemini-legacy", {"type": "STRING", "nullable": True}),
        ({"type": "array"}, "gemini", {"type": "array", "items": {}}),
        ({"type": "array"}, "openai", {"type": "array", "items": {}}),
        (True, "openai", {}),
        ({"$ref": "#/$defs/Row"}, "gemini", {"$ref": "#/$defs/Row"}),
        (
            {"$ref": "#/$defs/Row"},
            "gemini-legacy",
            {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}},
        ),
        (
            {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
            "gemini",
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"type": "string", "enum": ["b", "a"]},
            "gemini-legacy",
            {"type": "STRING", "enum": ["b", "a"]},
        ),
    ],
)
def test_what_says_the_same_is_no_loss(part: Any, target: str, expected: Any) -> None:
    definitions = {"Row": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    assert member(part, target, **{"$defs": definitions}) == expected


@pytest.mark.covers("AG-2")
@cases(
    ("part", "target", "keyword", "text"),
    [
        ({"type": "number", "exclusiveMinimum": 0}, "gemini", "exclusiveMinimum", "more than 0"),
        ({"type": "string", "format": "path"}, "gemini", "format", "format path"),
        ({"type": "integer", "enum": [1, 5]}, "gemini", "enum", "one of 1, 5"),
        ({"type": "integer", "multipleOf": 5}, "gemini", "multipleOf", "a multiple of 5"),
        (
            {"type": "object", "patternProperties": {"^a": {"type": "string"}}},
            "gemini",
            "patternProperties",
            'patternProperties: {"^a":{"type":"string"}}',
        ),
        ({"type": "string", "not": {"const": "x"}}, "gemini", "not", 'not: {"const":"x"}'),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            "openai",
            "prefixItems",
            "in this order: string, integer",
        ),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
            "gemini-legacy",
            "additionalProperties",
            "takes no other members",
        ),
        ({"type": "string", "default": "x"}, "gemini-legacy", "default", 'default: "x"'),
    ],
)
def test_a_lost_rule_is_listed_and_said_in_the_description(part: Any, target: str, keyword: str, text: str) -> None:
    assert lost(part, target)[keyword] == text
    assert text in member(part, target)["description"]


def test_a_definition_that_refers_to_itself_ends_after_some_levels() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": tree}}
    converted = convert_schema(schema, TARGETS["gemini-legacy"].schema)
    assert [loss.keyword for loss in converted.losses] == ["$ref"]
    assert "$" not in json.dumps(converted.schema)
    assert written(schema, "gemini") == written(schema, "openai")


@cases("target", ALL)
def test_properties_named_as_keywords_are_properties(target: str) -> None:
    names = ["required", "properties", "items", "type", "enum", "$ref", "anyOf", "const", "description", "default"]
    if target in ("anthropic", "gemini-legacy"):
        names.remove("$ref")
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names}
    found = written(schema, target)
    kind = "INTEGER" if target == "gemini-legacy" else "integer"
    assert found["properties"] == {name: {"type": kind} for name in names}
    assert found["required"] == sorted(names)


def test_a_choice_at_the_top_becomes_one_object_and_is_said() -> None:
    one = {"properties": {"id": {"type": "integer"}}, "required": ["id"]}
    other = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    for target in ("openai", "anthropic", "gemini"):
        converted = convert_schema({"type": "object", "oneOf": [one, other]}, TARGETS[target].schema)
        assert set(converted.schema["properties"]) == {"id", "name"}
        assert converted.schema["description"] == "give exactly one of these sets of arguments: (id); (name)"
        assert [loss.keyword for loss in converted.losses] == ["oneOf"]


@cases("target", ["gemini", "gemini-legacy"])
def test_nothing_stands_beside_a_choice(target: str) -> None:
    typed = {"type": "string", "anyOf": [{"format": "ipv4"}, {"maxLength": 3}, {"type": "string", "pattern": "x"}]}
    kind = "anyOf" if target == "gemini" else "any_of"
    found = member(typed, target)
    assert set(found) == {kind}
    assert {each["type"].lower() for each in found[kind]} == {"string"}
    sets = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    found = member(sets, target)
    assert set(found) == {"type", "properties", "description"}
    assert found["description"] == "give one of these sets of arguments: (a); (b)"
    assert lost(sets, target) == {"anyOf": "give one of these sets of arguments: (a); (b)"}


# --- names of arguments ---

ODD = {
    "type": "object",
    "properties": {
        "$filter": {"type": "string"},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
        "plain": {"anyOf": [{"type": "object", "properties": {"größe": {"type": "integer"}}}, {"type": "null"}]},
    },
    "required": ["$filter"],
    "$defs": {"Row": {"type": "object", "properties": {"a b": {"type": "integer"}}}},
}


@pytest.mark.covers("AG-3")
@cases("target", ["anthropic", "gemini-legacy"])
def test_arguments_with_refused_names_are_renamed_and_restored(target: str) -> None:
    (tool,) = convert_tools([Tool("it", ODD)], target).tools
    properties = tool.function["parameters"]["properties"]
    (filter_name,) = tool.function["parameters"]["required"]
    assert filter_name.startswith("_filter_")
    assert properties[filter_name]["description"] == "called '$filter' by the tool"
    text = json.dumps(tool.function["parameters"])
    row_name = next(word for word in text.split('"') if word.startswith("a_b_"))
    size_name = next(word for word in text.split('"') if word.startswith("gr"))
    sent = {filter_name: "x", "rows": [{row_name: 1}], "plain": {size_name: 3}}
    assert tool.restore_arguments(sent) == {"$filter": "x", "rows": [{"a b": 1}], "plain": {"größe": 3}}


# --- strict mode ---

STRICT = {
    "type": "object",
    "properties": {
        "required": {"type": "string"},
        "type": {"type": "integer"},
        "items": {"type": ["string", "null"]},
        "enum": {"enum": ["a", "b"], "type": "string"},
        "properties": {
            "type": "object",
            "properties": {"inner": {"type": "boolean"}, "must": {"$ref": "#/$defs/Row"}},
            "required": ["must"],
        },
        "list": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    },
    "required": ["required"],
    "$defs": {"Row": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}


def test_strict_mode_requires_everything_and_closes_every_object() -> None:
    strict = make_strict(written(STRICT, "openai"), is_nullable=True)
    assert strict["required"] == sorted(STRICT["properties"])
    assert strict["additionalProperties"] is False
    properties = strict["properties"]
    assert properties["type"]["type"] == ["integer", "null"]
    assert properties["items"]["type"] == ["string", "null"]
    assert properties["enum"] == {"enum": ["a", "b", None], "type": ["string", "null"]}
    assert properties["either"]["anyOf"][-1] == {"type": "null"}
    assert properties["required"] == {"type": "string"}
    inner = properties["properties"]["anyOf"][0]
    assert inner["required"] == ["inner", "must"]
    assert inner["properties"]["must"] == {"$ref": "#/$defs/Row"}
    assert strict["$defs"]["Row"]["additionalProperties"] is False


def filled(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """Write arguments as a model has to in strict mode: null for what is left out."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", ()):
        target = root["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        if isinstance(value, dict) and target.get("type") == "object":
            return filled(value, target, root)
        if isinstance(value, list) and target.get("type") == "array":
            return filled(value, target, root)
    if isinstance(value, dict) and "properties" in schema:
        return {name: filled(value.get(name), part, root) for name, part in schema["properties"].items()}
    if isinstance(value, list) and "items" in schema:
        return [filled(item, schema["items"], root) for item in value]
    return value


ROW = st.fixed_dictionaries({}, optional={"n": st.integers(-9, 9)})
ARGUMENTS = st.fixed_dictionaries(
    {"required": st.text(max_size=3)},
    optional={
        "type": st.integers(-9, 9),
        "enum": st.sampled_from(["a", "b"]),
        "properties": st.fixed_dictionaries({"must": ROW}, optional={"inner": st.booleans()}),
        "list": st.lists(ROW, max_size=3),
        "either": st.text(max_size=2) | st.integers(0, 3),
    },
)


@pytest.mark.covers("AG-4")
@given(ARGUMENTS, st.sampled_from(["keep", "null", "text"]))
def test_arguments_of_strict_mode_come_back_as_they_were(arguments: dict[str, Any], items: str) -> None:
    # Null for a member that may be null stays null: left out, it would be another value.
    arguments = {**arguments, "items": None if items != "text" else "x"}
    strict = make_strict(written(STRICT, "openai"), is_nullable=True)
    sent = filled(arguments, strict, strict)
    assert schemas.compile(strict, what="the schema").check(sent) == []
    restored = restore_arguments(sent, STRICT, TARGETS["openai"].schema, renamed=False, is_strict=True)
    assert restored == arguments


@cases(
    ("part", "reason"),
    [
        ({"type": "object", "additionalProperties": {"type": "string"}}, "/it has members of any name"),
        ({"type": "object"}, "/it is an object of any members"),
        ({}, "/it may be any value"),
        ({"oneOf": [{"type": "string"}]}, "/it uses oneOf"),
        ({"$ref": "#/$defs/Gone"}, "/it refers to #/$defs/Gone"),
    ],
)
def test_strict_mode_is_refused_for_one_tool_with_a_reason(part: Any, reason: str) -> None:
    odd = Tool("odd", {"type": "object", "properties": {"it": part}})
    plain = Tool("plain", {"type": "object", "properties": {"it": {"type": "string"}}})
    conversion = convert_tools([odd, plain], "openai", strict=True)
    assert [each["strict"] for each in conversion.definitions] == [False, True]
    assert [(loss.tool, loss.keyword, loss.text) for loss in conversion.losses] == [("odd", "strict", reason)]


def test_strict_mode_has_limits() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(NotStrict, match="it has 11 levels, and strict mode takes 10"):
        make_strict(schema, is_nullable=True)
    many = {"type": "object", "properties": {"a": {"type": "string", "enum": [str(n) for n in range(1_001)]}}}
    with pytest.raises(NotStrict, match="1,001 choices"):
        make_strict(many, is_nullable=True)


def test_strict_mode_of_anthropic_leaves_arguments_optional() -> None:
    (tool,) = convert_tools([Tool("it", STRICT)], "anthropic", strict=True).definitions
    assert tool["strict"] is True
    assert tool["input_schema"]["required"] == ["required"]
    assert tool["input_schema"]["additionalProperties"] is False


def test_strict_is_always_said_to_openai_and_wanted_for_named_tools() -> None:
    tools = [Tool(name, {"type": "object", "properties": {}}) for name in ("a", "b")]
    assert [each["strict"] for each in convert_tools(tools, "openai").definitions] == [False, False]
    assert [each["strict"] for each in convert_tools(tools, "openai", strict=["b"]).definitions] == [False, True]
    assert [each["function"]["strict"] for each in convert_tools(tools, "openai-chat").definitions] == [False, False]


# --- names and order ---


@pytest.mark.covers("AG-3")
@cases("target", ALL)
def test_names_are_legal_unique_and_found_again(target: str) -> None:
    names = ["notes.add", "notes_add", "notes/add", "ä", "x" * 200, "x" * 64, "", "9lives", "a:b", "ß"]
    conversion = convert_tools([Tool(name, {"type": "object"}) for name in names], target)
    rule = find_target(target).names
    assert all(rule.legal.fullmatch(name) for name in conversion.by_name)
    assert sorted(tool.name for tool in conversion.by_name.values()) == sorted(names)
    assert conversion.by_name["notes_add"].name == "notes_add"


def test_servers_whose_prefixed_names_meet_keep_two_tools() -> None:
    names = Names(TARGETS["openai"].names, reserved=["search_tools"])
    assert names.name("a", "b_c", has_prefix=True) == "a_b_c"
    other = names.name("a_b", "c", has_prefix=True)
    assert other.startswith("a_b_c_")
    assert names.name("a", "b_c", has_prefix=True) == "a_b_c"
    assert names.name("", "search_tools", has_prefix=False).startswith("search_tools_")


SHUFFLED = """
import json, random, sys
from tests.agents.test_conversion import ALL, some_tools
from toolwire.agents.conversion import convert_tools
tools = some_tools()
random.Random(int(sys.argv[1])).shuffle(tools)
print(json.dumps([convert_tools(tools, target, strict=True).definitions for target in ALL]))
"""


def some_tools() -> list[Tool]:
    made = [signatures.tool(label).definition("2026-07-28") for label in signatures.SIGNATURES]
    return [Tool(f"t{number}.x", tool.input_schema, description="d") for number, tool in enumerate(made)]


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {key: shuffled(part, chance) for key, part in items}
    return [shuffled(part, chance) for part in value] if isinstance(value, list) else value


@cases("target", ALL)
def test_the_same_tools_in_any_order_give_the_same_bytes(target: str) -> None:
    tools = some_tools()
    first = json.dumps(convert_tools(tools, target).definitions)
    for seed in range(20):
        chance = random.Random(seed)
        chance.shuffle(tools)
        mixed = [Tool(tool.name, shuffled(tool.input_schema, chance), description="d") for tool in tools]
        assert json.dumps(convert_tools(mixed, target).definitions) == first


@pytest.mark.covers("AG-5")
def test_two_processes_give_the_same_bytes() -> None:
    outputs = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", SHUFFLED, seed],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ".:src"},
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs != {""}


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no target 'claude'; the targets are openai, openai-chat, anthropic"):
        convert_tools([], "claude")
