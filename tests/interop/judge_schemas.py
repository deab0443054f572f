"""Ask the libraries of OpenAI, Anthropic and Google whether they take the input schemas of tools.

Runs in the environment of the peer `vendors`. Reads `{"schemas": {name: schema}, "formats": {format: tools}}` from
standard input, and writes `{judge: {name: reason}}` for what was refused to standard output.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import agents.strict_schema
import anthropic
import openai.lib._pydantic
from anthropic.lib.tools.mcp import mcp_tool
from anthropic.types import ToolParam
from google.genai import _mcp_utils, types
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

Schema = dict[str, Any]


def openai_strict(schema: Schema) -> None:
    strict = openai.lib._pydantic._ensure_strict_json_schema(schema, path=(), root=schema)
    follows_the_rules_of_strict_mode(strict)


def openai_agents_strict(schema: Schema) -> None:
    follows_the_rules_of_strict_mode(agents.strict_schema.ensure_strict_json_schema(schema))


def openai_tool(schema: Schema) -> None:
    function = {"name": "it", "description": "d", "parameters": schema}
    TypeAdapter(ChatCompletionFunctionToolParam).validate_python({"type": "function", "function": function})
    TypeAdapter(FunctionToolParam).validate_python({"type": "function", "strict": False, **function})


def anthropic_tool(schema: Schema) -> None:
    TypeAdapter(ToolParam).validate_python({"name": "it", "description": "d", "input_schema": schema})
    tool = SimpleNamespace(name="it", description="d", input_schema=schema)
    built = mcp_tool(tool, SimpleNamespace())
    assert built.to_dict()["input_schema"] == schema


def anthropic_strict(schema: Schema) -> None:
    anthropic.transform_schema(schema)


def google_json_schema(schema: Schema) -> None:
    plain = types.Schema.from_json_schema(json_schema=types.JSONSchema(**schema), raise_error_on_unsupported_field=True)
    fits_the_schema_object(plain)
    types.FunctionDeclaration(name="it", description="d", parameters_json_schema=schema)


def google_tool(schema: Schema) -> None:
    (declared,) = _mcp_utils.mcp_to_gemini_tool(
        SimpleNamespace(name="it", description="d", input_schema=schema)
    ).function_declarations
    fits_the_schema_object(declared.parameters)


def follows_the_rules_of_strict_mode(schema: Any) -> None:
    """Check what OpenAI's server asks of a strict schema (guide "Structured model outputs", supported schemas)."""
    if not isinstance(schema, dict):
        raise ValueError(f"{schema} is no object")
    for keyword in ("allOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "patternProperties"):
        assert keyword not in schema, keyword
    formats = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
    assert schema.get("format", "date") in formats, schema["format"]
    assert schema.keys() & {"type", "anyOf", "$ref", "enum"}, "has no type"
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False, "is open"
        assert schema["required"] == list(schema["properties"]), "has optional members"
    if schema.get("type") == "array":
        follows_the_rules_of_strict_mode(schema["items"])
    parts = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    for part in parts:
        follows_the_rules_of_strict_mode(part)


def fits_the_schema_object(schema: types.Schema) -> None:
    """Check what Google's servers ask of the Schema object (API reference, "Schema"; refusals of Vertex AI)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a value that is of no type of the Schema object
        plain = schema.model_dump(exclude_none=True)
    if "any_of" in plain:
        assert plain.keys() <= {"any_of", "nullable"}, f"has {set(plain)} alongside any_of"
    if "enum" in plain:
        assert plain["type"] == "STRING", "has choices that are no strings"
    for part in [*(schema.properties or {}).values(), *(schema.any_of or []), *filter(None, [schema.items])]:
        fits_the_schema_object(part)


JUDGES: tuple[Callable[[Schema], None], ...] = (
    openai_tool,
    openai_strict,
    openai_agents_strict,
    anthropic_tool,
    anthropic_strict,
    google_json_schema,
    google_tool,
)


# The types of what `tools=` of each interface takes.
FORMATS: dict[str, Any] = {
    "for_openai": list[ChatCompletionFunctionToolParam],
    "for_openai_responses": list[FunctionToolParam],
    "for_anthropic": list[ToolParam],
    "for_google": list[types.Tool],
}


def main() -> None:
    logging.disable()
    given = json.load(sys.stdin)
    refused: dict[str, dict[str, str]] = {judge.__name__: {} for judge in JUDGES} | {"formats": {}}

    def ask(judge: str, name: str, question: Callable[[], Any]) -> None:
        try:
            question()
        except Exception as error:
            refused[judge][name] = f"{type(error).__name__}: {error}"[:300]

    for name, schema in given["schemas"].items():
        for judge in JUDGES:
            ask(judge.__name__, name, partial(judge, copy.deepcopy(schema)))
    for name, tools in given["formats"].items():
        ask("formats", name, partial(TypeAdapter(FORMATS[name]).validate_python, tools))
    json.dump(refused, sys.stdout)


if __name__ == "__main__":
    main()
