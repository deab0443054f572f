"""Which model vendors refuse what in the schema of a tool.

What clients strip without loss (`$schema`, `title`, `additionalProperties: false`) is not reported; what remains makes
an interface refuse the tool, or the request with all tools in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET

from toolwire.cli.lint_finding import Finding, Level
from toolwire.protocol import types as t
from toolwire.schemas import MAX_DEPTH, MAX_SUBSCHEMAS, SchemaError
from toolwire.schemas import compile as compile_schema
from toolwire.schemas.walking import direct, listed, mapped

ANTHROPIC: Final = "Anthropic"
OPENAI: Final = "OpenAI"
STRICT: Final = "OpenAI strict mode"
GEMINI: Final = "Gemini"

_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_ONE: Final = ("items", "not", "if", "then", "else", "contains", "additionalProperties", "propertyNames")
_MANY: Final = (*_CHOICES, "prefixItems", "items")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")

# Gemini's function declarations take the schema object of OpenAPI 3.0; its newer JSON Schema field takes more, and few
# clients use it.
_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "oneOf": (STRICT, GEMINI),
    "allOf": (STRICT, GEMINI),
    "not": (STRICT, GEMINI),
    "if": (STRICT, GEMINI),
    "patternProperties": (STRICT, GEMINI),
    "dependentSchemas": (STRICT, GEMINI),
    "dependentRequired": (STRICT, GEMINI),
    "prefixItems": (OPENAI, GEMINI),
    "const": (GEMINI,),
    "$ref": (GEMINI,),
    "$dynamicRef": (STRICT, GEMINI),
}
_GEMINI_FORMATS: Final = ("enum", "date-time", "int32", "int64", "float", "double")
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check(tool: t.Tool) -> Iterator[Finding]:
    yield from _name(tool)
    yield from _top(tool)
    for where, schema in _parts(tool.input_schema):
        yield from _part(tool, where, schema)


def _name(tool: t.Tool) -> Iterator[Finding]:
    if not _NAME.fullmatch(tool.name):
        message = "the name is not 1 to 64 letters, digits, _ or -"
        yield Finding("error", "vendor-name", tool.name, "", message, (ANTHROPIC, OPENAI))


def _top(tool: t.Tool) -> Iterator[Finding]:
    schema = tool.input_schema
    if schema.get("type") != "object":
        message = "the input schema has no type: object at its top"
        yield Finding("error", "vendor-top-type", tool.name, "", message, (ANTHROPIC, OPENAI, GEMINI))
    for keyword in _CHOICES:
        if keyword in schema:
            message = f"{keyword} at the top of the input schema: make one object with optional members of it"
            yield Finding("error", "vendor-top-choice", tool.name, "", message, (ANTHROPIC, OPENAI))
    output = tool.output_schema
    for what, one in (("input", schema), ("output", {} if output is UNSET else output)):
        try:
            compile_schema(one, what=f"the {what} schema")
        except SchemaError as error:
            yield Finding("error", "schema", tool.name, "", str(error))


def _parts(root: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every subschema with its place, references not followed, within bounds."""
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    for _ in range(MAX_SUBSCHEMAS):
        if not waiting:
            return
        where, schema, depth = waiting.pop()
        yield where, schema
        if not isinstance(schema, dict) or depth >= MAX_DEPTH:
            continue
        below = [(where, part) for part in (*direct(schema, _ONE), *listed(schema, _MANY))]
        below += [(f"{where}.{name}" if where else name, part) for name, part in mapped(schema, _NAMED)]
        waiting += [(place, part, depth + 1) for place, part in reversed(below)]


def _part(tool: t.Tool, where: str, schema: Any) -> Iterator[Finding]:
    def found(level: Level, rule: str, message: str, *vendors: str) -> Finding:
        return Finding(level, rule, tool.name, where, message, vendors)

    if not isinstance(schema, dict):
        if where:
            yield found(
                "warning", "vendor-boolean", f"the schema is {str(schema).lower()}, not an object", OPENAI, GEMINI
            )
        return
    for keyword, vendors in _KEYWORDS.items():
        # At the top the choices are reported as what they are there.
        if keyword in schema and (where or keyword not in _CHOICES):
            yield found("warning", "vendor-keyword", f"uses {keyword}", *vendors)
    kind = schema.get("type")
    if isinstance(kind, list):
        yield found("warning", "vendor-type-list", "has a list of types", GEMINI)
    if kind == "array" and "items" not in schema and "prefixItems" not in schema:
        yield found("error", "vendor-items", "is an array that does not say what its items are", OPENAI, GEMINI)
    if isinstance(schema.get("items"), list):
        yield found("error", "vendor-tuple", "has a list of schemas for its items", OPENAI, GEMINI)
    if where and not schema.keys() & {"type", "$ref", "enum", "const", *_CHOICES}:
        yield found("warning", "vendor-any", "takes any value, as it has no type", STRICT, GEMINI)
    values = schema.get("enum")
    if isinstance(values, list) and not all(isinstance(value, str) for value in values):
        yield found("warning", "vendor-enum", "has choices that are no strings", GEMINI)
    if kind == "string" and schema.get("format", "enum") not in _GEMINI_FORMATS:
        yield found("hint", "vendor-format", f"uses the format {schema['format']}", GEMINI)
    for name, _ in mapped(schema, ("properties",)):
        if not _PROPERTY.fullmatch(name):
            yield found("error", "vendor-property", f"has a member {name[:80]!r}, which is no plain name", ANTHROPIC)
