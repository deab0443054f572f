"""What each interface cannot say, pinned for a set of schemas: a change of the conversion shows what it loses.

TOOLWIRE_WRITE=1 .venv/bin/python -m pytest -q tests/agents/test_losses_table.py   # writes losses.txt anew
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from tests.agents.hostile_schemas import HOSTILE, record

from toolwire.agents.conversion import convert_tool
from toolwire.agents.vendors import TARGETS
from toolwire.types import Tool

TABLE: Final = Path(__file__).with_name("losses.txt")
ROW: Final = {"$defs": {"row": record(n={"type": "integer"}, next={"$ref": "#/$defs/row"})}}
SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "plain": {**record(a={"type": "string"}, b={"type": "integer"}), "required": ["a"]},
    "bounds": record(a={"type": "number", "exclusiveMinimum": 0, "maximum": 9}, b={"type": "string", "maxLength": 5}),
    "steps": record(a={"type": "integer", "multipleOf": 5}, b={"type": "array", "uniqueItems": True, "items": {}}),
    "formats": record(a={"type": "string", "format": "path"}, b={"type": "string", "format": "date-time"}),
    "patterns": record(a={"type": "string", "pattern": "^(?!x)"}, b={"type": "string", "pattern": "^x"}),
    "values": record(a={"const": 1}, b={"enum": [1, 5, "x", None]}, c={"type": "integer", "enum": [1, 2, 3]}),
    "kinds": record(a={"type": ["string", "null"]}, b={"type": ["integer", "array"], "items": {"type": "string"}}),
    "choices": record(
        a={"anyOf": [{"type": "string"}, record(b={})]}, b={"oneOf": [{"type": "string"}, {"type": "null"}]}
    ),
    "choices beside": record(a={**record(x={}), "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}),
    "two choices": record(a={"type": "array", "anyOf": [True, True], "oneOf": [{"type": "string"}, {"type": "null"}]}),
    "parts": record(a={"allOf": [record(x={"type": "string"}), {"required": ["x"]}, {"type": "array"}]}),
    "names": record(a={"type": "object", "patternProperties": {"^x": {}}, "propertyNames": {"pattern": "x"}}),
    "members": record(
        a={**record(x={}), "additionalProperties": False}, b={"additionalProperties": {"type": "string"}}
    ),
    "places": record(a={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}),
    "conditions": record(a={"if": {"required": ["x"]}, "then": {"required": ["y"]}, "not": {"required": ["z"]}}),
    "dependent": {**record(a={}, b={}), "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"required": []}}},
    "itself": {**record(a={"$ref": "#/$defs/row"}), **ROW},
    "top choice": {"anyOf": [record(a={}), record(b={})], "not": {"required": ["c"]}},
    "top reference": {"$ref": "#/$defs/row", **ROW},
    "strange names": record(**{"ä ö": {"type": "string"}, "x" * 80: {}}),
    "no schema": {"type": "object", "properties": 7, "required": "a", "anyOf": [], "items": 3},
    "false": record(a=False, b={"items": False, "type": "array"}),
    "contents": record(a={"type": "string", "contentEncoding": "base64", "examples": ["x"], "default": "y"}),
    "too much work": HOSTILE["names required many times"],
    "too deep": HOSTILE["deep arrays"],
}


def losses(label: str, target: str) -> list[str]:
    converted = convert_tool(Tool("it", SCHEMAS[label]), "", "it", TARGETS[target], strict=True)
    shown = [f"{label} | {target} | {loss.path[:100]} | {loss.keyword} | {loss.text}" for loss in converted.losses[:20]]
    return [line.rstrip() for line in shown]


@pytest.mark.covers("AG-2")
def test_losses_are_those_of_the_table() -> None:
    found = [line for label in SCHEMAS for target in TARGETS for line in losses(label, target)]
    if os.environ.get("TOOLWIRE_WRITE"):
        TABLE.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == TABLE.read_text(encoding="utf-8").splitlines()
    assert not [line for line in found if line.startswith("plain |")]
