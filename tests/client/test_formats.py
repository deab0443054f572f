"""Tools in the formats of model vendors, whatever server they come from."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import signatures
from tests.cases import cases

from toolwire import Client, Server
from toolwire import Tool as ServerTool
from toolwire.agents.schema_conversion import sort_keys
from toolwire.client.formats import by_vendor_name, for_anthropic, for_google, for_openai, for_openai_responses
from toolwire.gateway import Gateway
from toolwire.shape import Shape, ToolShape
from toolwire.types import Tool

FOREIGN = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "kind": {"const": "note"},
        "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
        "size": {"type": ["integer", "null"], "exclusiveMinimum": 0},
        "many": {"type": ["array", "string"], "items": {"type": ["object", "null"], "properties": {"value": True}}},
    },
    "required": ["kind", "many"],
    "additionalProperties": False,
}
# As Gemini gets it, whose interface takes the fewest keywords.
TAKEN = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "kind": {"type": "string", "enum": ["note"]},
        "pair": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "description": "in this order: string, integer",
        },
        "size": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "many": {
            "anyOf": [
                {
                    "type": "array",
                    "items": {"anyOf": [{"type": "object", "properties": {"value": {}}}, {"type": "null"}]},
                },
                {"type": "string"},
            ]
        },
    },
    "required": ["kind", "many"],
}


async def test_every_format() -> None:
    server = Server("s")

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    async with Client(server) as client:
        tools = await client.list_tools()
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
    }
    function = {"name": "add", "description": "Add two numbers.", "parameters": schema}
    assert for_openai(tools) == [{"type": "function", "function": {**function, "strict": False}}]
    assert for_openai_responses(tools) == [{"type": "function", **function, "strict": False}]
    assert for_anthropic(tools) == [{"name": "add", "description": "Add two numbers.", "input_schema": schema}]
    declared = {"name": "add", "description": "Add two numbers.", "parameters_json_schema": schema}
    assert for_google(tools) == [{"function_declarations": [declared]}]
    assert for_google([]) == for_openai([]) == []


def test_schemas_of_other_servers_are_rewritten() -> None:
    before = deepcopy(FOREIGN)
    (tool,) = for_google([Tool("note", FOREIGN)])[0]["function_declarations"]
    assert tool == {"name": "note", "description": "", "parameters_json_schema": TAKEN}
    assert before == FOREIGN


@cases("schema", [{}, {"type": "object"}, {"type": "string"}, {"properties": []}])
def test_a_schema_always_is_of_an_object(schema: dict[str, Any]) -> None:
    (tool,) = for_anthropic([Tool("it", schema)])
    assert tool["input_schema"]["type"] == "object"
    assert "properties" in tool["input_schema"]


@cases(("keyword", "required"), [("allOf", ["a", "b"]), ("anyOf", ["a"]), ("oneOf", ["a"])])
def test_choices_at_the_top_become_one_object(keyword: str, required: list[str]) -> None:
    part = {"properties": {"b": {"type": "string"}}, "required": ["b", "unknown"]}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], keyword: [part, True]}
    words = "exactly one" if keyword == "oneOf" else "one"
    (tool,) = for_anthropic([Tool("it", schema)])
    assert tool["input_schema"] == {
        "type": "object",
        "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
        "required": required,
        **({} if keyword == "allOf" else {"description": f"give {words} of these sets of arguments: (b, unknown)"}),
    }


def test_names_that_vendors_refuse_are_changed_and_found_again() -> None:
    names = ["notes.add", "notes_add", "notes/add", "ä", "x" * 100, "x" * 64, ""]
    tools = [Tool(name, {"type": "object"}) for name in names]
    found = by_vendor_name(tools)
    assert sorted(tool.name for tool in found.values()) == sorted(names)
    assert found["notes_add"].name == "notes_add"
    assert found["x" * 64].name == "x" * 64
    changed = {tool.name: name for name, tool in found.items() if name != tool.name}
    assert changed["notes.add"].startswith("notes_add_")
    assert changed["notes/add"].startswith("notes_add_")
    assert changed["x" * 100].startswith("x" * 55 + "_")
    assert for_google(tools)[0]["function_declarations"][0]["name"] in found
    assert [each["name"] for each in for_anthropic(tools)] == list(found)
    assert all(len(name) <= 64 for name in found)


def test_a_schema_that_is_too_deep_is_replaced() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "array", "items": schema}
    (tool,) = for_anthropic([Tool("deep", {"type": "object", "properties": {"a": schema}})])
    assert tool["input_schema"] == {"type": "object", "properties": {"a": {"type": "array"}}}


KEYWORDS = (
    "type", "properties", "items", "prefixItems", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "format",
    "additionalProperties", "exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum", "required", "description",
    "default", "pattern", "propertyNames", "examples", "multipleOf", "uniqueItems", "definitions", "title",
)  # fmt: skip
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES |= st.sampled_from(["array", "object", "string", "integer", "#/$defs/a", "#"])
ANYTHING = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=5)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from(KEYWORDS), ANYTHING, max_size=6))
def test_no_schema_of_a_server_breaks_the_client(schema: dict[str, Any]) -> None:
    (tool,) = for_openai([Tool("it", schema)])
    assert tool["function"]["parameters"]["type"] == "object"


@cases("label", signatures.SIGNATURES)
def test_our_own_schemas_stay_as_they_are(label: str) -> None:
    tool = signatures.tool(label).definition("2026-07-28")
    assert for_anthropic([tool])[0]["input_schema"] == sort_keys(tool.input_schema)


@pytest.mark.covers("GW-8.9")
@cases("over", ["alone", "mounted", "gateway"])
async def test_tools_for_apps_alone_are_listed_and_not_converted(over: str) -> None:
    inner = Server("inner")
    for name, visibility in (("both", ["model", "app"]), ("app", ["app"]), ("model", ["model"]), ("plain", None)):
        meta = None if visibility is None else {"ui": {"visibility": visibility}}
        inner.add(ServerTool(lambda: "done", name=name, meta=meta))
    server = inner
    if over == "mounted":
        server = Server("host").mount(inner, shape=Shape(tools={"app": ToolShape(title="App")}))
    elif over == "gateway":
        server = Gateway("front")
        server.add("b", inner, prefix="", shape=Shape(tools={"app": ToolShape(title="App")}))
    async with Client(server) as client:
        tools = await client.list_tools(audience=None)
        assert {tool.name for tool in tools} == {"both", "app", "model", "plain"}
        assert (await client.call_tool("app")).text == "done"
    shown = {"both", "model", "plain"}
    assert set(by_vendor_name(tools)) == shown
    assert {each["function"]["name"] for each in for_openai(tools)} == shown
    assert {each["name"] for each in for_openai_responses(tools)} == shown
    assert {each["name"] for each in for_anthropic(tools)} == shown
    assert {each["name"] for each in for_google(tools)[0]["function_declarations"]} == shown
