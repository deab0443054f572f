"""The work for a schema is bounded by its size, whatever a server lists, and so is what it becomes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.hostile_schemas import HOSTILE, doubled, names, record
from tests.agents.vendor_types import check_definitions
from tests.cases import cases
from tests.counted_steps import steps_of

from toolwire import Server
from toolwire.agents import Toolset
from toolwire.agents.argument_names import restore_arguments
from toolwire.agents.conversion import ConvertedTool, convert_tool, convert_tools, output_schema
from toolwire.agents.vendors import TARGETS
from toolwire.protocol.steps import TooManySteps
from toolwire.schemas.effort import measure
from toolwire.schemas.nulls import takes_null, without_needless_nulls
from toolwire.types import Tool

ALL = tuple(TARGETS)
# Lines of Python for each value of a schema, and for any schema; the conversion is tried up to three times.
LINES_PER_PART, LINES_OF_ANY = 800, 80_000
# An argument that any JSON schema may be becomes three kinds at Gemini's older endpoints.
PARTS_PER_PART, PARTS_OF_ANY = 30, 3_000


def parts_of(schema: Any) -> int:
    try:
        return measure(schema).parts
    except RecursionError:
        return 10_000


def convert(schema: dict[str, Any], target: str) -> ConvertedTool:
    """Convert a schema with and without strict mode, and check what that takes."""
    converted: list[ConvertedTool] = []
    modes = (False, True) if TARGETS[target].has_strict else (False,)

    def work() -> None:
        tool = Tool("it", schema)
        converted.extend(convert_tool(tool, "s", "it", TARGETS[target], strict=strict) for strict in modes)

    parts = parts_of(schema)
    steps_of(work, 2 * (LINES_OF_ANY + LINES_PER_PART * parts))
    for each in converted:
        assert measure(each.function["parameters"]).parts <= PARTS_OF_ANY + PARTS_PER_PART * parts
        assert measure([[loss.text, loss.path] for loss in each.losses]).parts <= PARTS_OF_ANY + PARTS_PER_PART * parts
    return converted[0]


@cases(("label", "target"), [(label, target) for label in HOSTILE for target in ALL])
def test_hostile_schemas_take_bounded_work(label: str, target: str) -> None:
    converted = convert(HOSTILE[label], target)
    assert converted.function["parameters"]["type"] in ("object", "OBJECT")
    msgspec.json.encode(converted.definition())


_NAMES = ("a", "b", "c", "d")
_REFERENCES = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in _NAMES] + [{"$ref": "#"}])
_LEAVES = st.one_of(
    _REFERENCES,
    st.sampled_from([{"type": "string"}, {"type": ["integer", "null"]}, {"enum": [1, "x", None]}, {"const": 1}, True]),
)


def _wider(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some, members = st.lists(parts, min_size=2, max_size=4), st.dictionaries(st.sampled_from(_NAMES), parts, max_size=4)
    keywords: dict[Any, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), some),
        **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), members),
        **dict.fromkeys(("items", "not", "if", "contains", "additionalProperties", "propertyNames"), parts),
        "type": st.sampled_from(["object", "array", ["object", "array", "string"]]),
        "required": st.lists(st.sampled_from(_NAMES), max_size=3),
    }
    return st.fixed_dictionaries({}, optional=keywords)


_PARTS = st.recursive(_LEAVES, _wider, max_leaves=20)
_DOCUMENTS = st.builds(
    lambda top, parts: {**(top if isinstance(top, dict) else {}), "$defs": parts},
    _wider(_PARTS),
    st.fixed_dictionaries(dict.fromkeys(_NAMES, _PARTS)),
)


@pytest.mark.slow
@pytest.mark.covers("AG-2")
@given(_DOCUMENTS, st.sampled_from(ALL))
def test_the_work_for_any_schema_grows_with_its_size(schema: dict[str, Any], target: str) -> None:
    convert(schema, target)
    check_definitions(target, convert_tools([Tool("it", schema)], target, strict=True).definitions)


@cases("target", ALL)
def test_a_schema_that_is_too_much_work_keeps_its_arguments(target: str) -> None:
    schema = record(**{key: {"type": "string", "description": "d" * 40000} for key in names(300)})
    schema["required"] = ["n7"]
    converted = convert(schema, target)
    assert [loss for loss in converted.losses if loss.keyword == "schema"]
    written = converted.function["parameters"]
    assert len(written["properties"]) == 200
    assert written["properties"]["n7"]["type"].lower() == "string"
    assert written["properties"]["n7"]["description"] == "d" * 300
    assert written["required"] == ["n7"]


def test_references_that_are_written_out_end_earlier_where_they_are_too_many() -> None:
    schema = doubled(20, lambda part: record(left=part, right=part))
    written = convert(schema, "gemini-legacy").function["parameters"]
    inner = written["properties"]["a"]["properties"]["left"]["properties"]["right"]
    assert inner == {"type": "OBJECT", "description": "as d2 above"}


# --- the other walks over schemas of servers ---


def test_the_search_for_null_is_bounded() -> None:
    schema = doubled(60, lambda part: {"anyOf": [part, part]})
    assert takes_null(schema["properties"]["a"], schema)
    assert takes_null({"$ref": "#/$defs/d0"}, doubled(5_000, lambda part: part))
    steps_of(lambda: without_needless_nulls({"a": None}, schema), 3_000_000)


def test_the_names_of_arguments_are_restored_with_bounded_work() -> None:
    rules = TARGETS["gemini-legacy"].schema
    wide = doubled(40, lambda part: {**record(ä=part), "anyOf": [part, {"items": part}]})
    value: Any = {"a": {}}
    for _ in range(50):
        value = {"a": value, "b": [value] * 2}
    with pytest.raises(TooManySteps):
        restore_arguments(value, wide, rules, renamed=True, is_strict=True)
    rows = {"type": "array", "items": record(**{f"spalte {number} ü": {} for number in range(50)})}
    schema = record(rows=rows)
    written = convert(schema, "gemini-legacy").function["parameters"]["properties"]["rows"]["items"]
    row = dict.fromkeys(written["properties"], 1)
    assert len(row) == 50
    restored = restore_arguments({"rows": [row] * 5_000}, schema, rules, renamed=True, is_strict=False)
    assert restored["rows"][-1] == dict.fromkeys(rows["items"]["properties"], 1)


def test_a_huge_output_schema_is_left_out() -> None:
    assert output_schema(Tool("it", {}, output_schema=HOSTILE["deep arrays"])) is None
    assert output_schema(Tool("it", {}, output_schema={"enum": list(range(200_000))})) is None
    assert output_schema(Tool("it", {}, output_schema={"type": "object"})) == {"type": "object"}


@pytest.mark.covers("AG-2")
async def test_a_server_with_hostile_schemas_leaves_other_servers_usable() -> None:
    hostile, good = Server("hostile"), Server("good")
    # A message that is too deep is refused, with the whole list.
    listed = [label for label in HOSTILE if label != "deep arrays"]

    @hostile.on_list_tools
    async def tools() -> list[Tool]:
        return [Tool(f"t{number}", HOSTILE[label]) for number, label in enumerate(listed)]

    @hostile.on_call_tool
    async def call(name: str, arguments: Any) -> str:
        return name

    @good.tool
    async def fine() -> str:
        return "fine"

    async with Toolset({"hostile": hostile, "good": good}, strict=True, code=True, defer=False) as toolset:
        for target in ALL:
            definitions = await toolset.definitions(target)
            declared = definitions[0]["function_declarations"] if "gemini" in target else definitions
            assert len(declared) > len(listed)
        wanted = {"type": "tool_use", "id": "1", "name": "good_fine", "input": {}}
        _, answer = await asyncio.wait_for(toolset.answer({"role": "assistant", "content": [wanted]}), 30)
        assert answer["content"][0]["content"][0]["text"] == "fine"
        assert {loss.tool for loss in toolset.losses if loss.keyword == "schema"}
