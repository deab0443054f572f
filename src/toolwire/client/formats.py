"""Tools in the formats of model vendors: OpenAI, Anthropic, Google.

The schemas use only keywords that every vendor accepts. Names that vendors refuse are changed; `by_vendor_name` finds
the tool that a model means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from toolwire import schemas
from toolwire.protocol.apps import audiences
from toolwire.protocol.types import Tool
from toolwire.schemas.walking import listed, mapped, required_names

# OpenAI, Anthropic and Google all take these names; MCP allows more (2025-11-25 server/tools, tool names).
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64
# Keywords at the top of a schema that are rewritten, or that vendors refuse there.
_AT_THE_TOP: Final = frozenset(
    (
        "$schema",
        "type",
        "properties",
        "required",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "enum",
        "const",
    )
)


def for_openai(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of OpenAI's chat completions, and of the many interfaces that copy them."""
    return [{"type": "function", "function": function} for function in _functions(tools)]


def for_openai_responses(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of OpenAI's responses."""
    # Without `strict` the Responses API makes every argument required.
    return [{"type": "function", **function, "strict": False} for function in _functions(tools)]


def for_anthropic(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of Anthropic's messages."""
    return [
        {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
        for each in _functions(tools)
    ]


def for_google(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Write tools for `tools=` of Google's generate_content: one tool with a function declaration for each."""
    declared = [
        {"name": each["name"], "description": each["description"], "parameters_json_schema": each["parameters"]}
        for each in _functions(tools)
    ]
    return [{"function_declarations": declared}] if declared else []


def by_vendor_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by the names that models know them by. Those for apps alone are left out."""
    kept = [tool for tool in tools if is_for_models(tool)]
    found: dict[str, Tool] = {tool.name: tool for tool in kept if _is_taken(tool.name)}
    for tool in kept:
        if _is_taken(tool.name):
            continue
        name = free = _REFUSED.sub("_", tool.name)[:_LONGEST] or "_"
        number = 2
        while free in found:
            ending = f"_{number}"
            free, number = name[: _LONGEST - len(ending)] + ending, number + 1
        found[free] = tool
    return found


def is_for_models(tool: Tool) -> bool:
    """Return whether models may call a tool: not one that is visible to the views of its server alone (SEP-1865)."""
    return "model" in audiences(tool.meta)


def _is_taken(name: str) -> bool:
    return bool(name) and len(name) <= _LONGEST and _REFUSED.search(name) is None


def _functions(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    return [
        {"name": name, "description": tool.description or "", "parameters": _parameters(tool)}
        for name, tool in by_vendor_name(tools).items()
    ]


def _parameters(tool: Tool) -> dict[str, Any]:
    try:
        return schemas.portable(_one_object(tool.input_schema))
    except RecursionError:
        # No vendor accepts a schema of this depth, and one refused schema fails the request with all tools in it.
        return {"type": "object", "properties": {}}


def _one_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Write the choices at the top of a schema, which OpenAI and Anthropic refuse, as the members of one object."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for keyword in ("allOf", "anyOf", "oneOf"):
        for part in listed(schema, (keyword,)):
            properties |= dict(mapped(part, ("properties",))) if isinstance(part, dict) else {}
            if keyword == "allOf" and isinstance(part, dict):
                required += required_names(part)
    properties |= dict(mapped(schema, ("properties",)))
    required += required_names(schema)
    rest = {key: value for key, value in schema.items() if key not in _AT_THE_TOP}
    kept = [name for name in dict.fromkeys(required) if name in properties]
    return {"type": "object", "properties": properties, **({"required": kept} if kept else {}), **rest}
