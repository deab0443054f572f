"""Rules of `toolwire lint` on portability: schema keywords that model vendors refuse.

Clients strip some keywords without loss (`$schema`, `title`). Those are not reported. The remaining ones make a
vendor's interface refuse the tool, or the request with all tools in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from msgspec import UNSET

from toolwire.agents.vendors import (
    ANTHROPIC,
    ANTHROPIC_PROPERTY,
    BESIDE_CHOICE,
    GEMINI,
    GEMINI_LEGACY,
    GEMINI_PROPERTY,
    GOOGLE_GENAI,
    OPENAI,
    PLAIN_NAME,
    REFUSED_KEYWORDS,
    STRICT,
    STRING_FORMATS,
    VERTEX,
)
from toolwire.cli.lint_rules import Level, LintFinding
from toolwire.protocol import types as t
from toolwire.schemas import MAX_DEPTH, MAX_SUBSCHEMAS, SchemaError
from toolwire.schemas import compile as compile_schema
from toolwire.schemas.walking import direct, listed, mapped

_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_ONE: Final = ("items", "not", "if", "then", "else", "contains", "propertyNames")
_MANY: Final = (*_CHOICES, "prefixItems", "items")
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")

# Clients offer a model so many tools at most, those of all servers together. They leave the rest out.
_MOST_TOOLS: Final = {"Cursor": 40, "VS Code": 128}


def too_many(count: int) -> Iterator[str]:
    """Yield a sentence for each client that drops tools of such a large server."""
    for client, most in _MOST_TOOLS.items():
        if count > most:
            yield f"{client} offers a model about {most} tools, those of all servers together; here are {count:,}"


def check_all(tools: Collection[t.Tool]) -> Iterator[LintFinding]:
    """Check the number of the tools."""
    clients = tuple(client for client, most in _MOST_TOOLS.items() if len(tools) > most)
    for sentence in list(too_many(len(tools)))[-1:]:
        yield LintFinding("warning", "vendor-tool-count", "", "", sentence, clients)


def check(tool: t.Tool) -> Iterator[LintFinding]:
    yield from _name(tool)
    yield from _top(tool)
    for where, schema in _parts(tool.input_schema):
        yield from _part(tool, where, schema)


def _name(tool: t.Tool) -> Iterator[LintFinding]:
    if not PLAIN_NAME.fullmatch(tool.name):
        message = "the name is not 1 to 64 letters, digits, _ or -"
        yield LintFinding("error", "vendor-name", tool.name, "", message, (ANTHROPIC, OPENAI))


def _top(tool: t.Tool) -> Iterator[LintFinding]:
    schema = tool.input_schema
    if schema.get("type") != "object":
        message = "the input schema has no type: object at its top"
        yield LintFinding("error", "vendor-top-type", tool.name, "", message, (ANTHROPIC, OPENAI, GEMINI))
    if not isinstance(schema.get("properties"), dict):
        message = 'the input schema has no properties at its top: write "properties": {} where there are none'
        yield LintFinding("error", "vendor-top-properties", tool.name, "", message, (OPENAI,))
    if any(isinstance(part, dict) and isinstance(part.get("additionalProperties"), bool) for _, part in _parts(schema)):
        message = "uses additionalProperties: true or false; google-genai 3.1 fails on all tools of the server"
        yield LintFinding("hint", "vendor-closed", tool.name, "", message, (GOOGLE_GENAI,))
    for keyword in _CHOICES:
        if keyword in schema:
            message = f"{keyword} at the top of the input schema: make one object with optional members of it"
            yield LintFinding("error", "vendor-top-choice", tool.name, "", message, (ANTHROPIC, OPENAI))
    output = tool.output_schema
    for what, one in (("input", schema), ("output", {} if output is UNSET else output)):
        try:
            compile_schema(one, what=f"the {what} schema")
        except SchemaError as error:
            yield LintFinding("error", "schema", tool.name, "", str(error))


def _parts(root: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every subschema with its place, within bounds. References are not followed."""
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    for _ in range(MAX_SUBSCHEMAS):
        if not waiting:
            return
        where, schema, depth = waiting.pop()
        yield where, schema
        if not isinstance(schema, dict) or depth >= MAX_DEPTH:
            continue
        below = [(where, part) for part in (*direct(schema, _ONE), *listed(schema, _MANY))]
        # A boolean here opens or closes an object: it is a switch and no schema of a member.
        if isinstance(rest := schema.get("additionalProperties"), dict):
            below.append((where, rest))
        below += [(_place(where, name), part) for name, part in mapped(schema, _NAMED)]
        waiting += [(place, part, depth + 1) for place, part in reversed(below)]


def _place(where: str, name: str) -> str:
    """Write the place of a member, cut to what is shown."""
    return (f"{where}.{name[:80]}" if where else name[:80])[:400]


def _part(tool: t.Tool, where: str, schema: Any) -> Iterator[LintFinding]:
    def found(level: Level, rule: str, message: str, *vendors: str) -> LintFinding:
        if GEMINI in vendors:  # It names the older endpoints, too.
            vendors = tuple(vendor for vendor in vendors if vendor != GEMINI_LEGACY)
        return LintFinding(level, rule, tool.name, where, message, vendors)

    if not isinstance(schema, dict):
        if where:
            yield found(
                "warning", "vendor-boolean", f"the schema is {str(schema).lower()}, not an object", OPENAI, GEMINI
            )
        return
    for keyword, vendors in REFUSED_KEYWORDS.items():
        # At the top the choices are reported as what they are there.
        if keyword in schema and (where or keyword not in _CHOICES):
            yield found("warning", "vendor-keyword", f"uses {keyword}", *vendors)
    kind = schema.get("type")
    if "anyOf" in schema and where and not schema.keys() <= BESIDE_CHOICE:
        beside = ", ".join(sorted(schema.keys() - BESIDE_CHOICE))
        yield found("warning", "vendor-beside-choice", f"has {beside} beside anyOf: put it into a choice", VERTEX)
    if isinstance(kind, list):
        yield found("warning", "vendor-type-list", "has a list of types", GEMINI)
    if kind == "array" and "items" not in schema and "prefixItems" not in schema:
        yield found("error", "vendor-items", "is an array that does not say what its items are", OPENAI, GEMINI)
    if isinstance(schema.get("items"), list):
        yield found("error", "vendor-tuple", "has a list of schemas for its items", OPENAI, GEMINI)
    if where and not schema.keys() & {"type", "$ref", "enum", "const", *_CHOICES}:
        yield found("warning", "vendor-any", "takes any value, as it has no type", STRICT)
    values = schema.get("enum")
    if isinstance(values, list) and not all(isinstance(value, str) for value in values):
        yield found("warning", "vendor-enum", "has choices that are no strings", GEMINI)
    if kind == "string" and schema.get("format", "date") not in STRING_FORMATS:
        yield found("hint", "vendor-format", f"uses the format {schema['format']}", STRICT, GEMINI)
    for name, _ in mapped(schema, ("properties",)):
        if not ANTHROPIC_PROPERTY.fullmatch(name):
            text = f"has a member {name[:80]!r}, which is not a plain name"
            yield found("error", "vendor-property", text, ANTHROPIC, GEMINI_LEGACY)
        elif not GEMINI_PROPERTY.fullmatch(name):
            text = f"has a member {name[:80]!r}, which is not made of letters, digits and _"
            yield found("hint", "vendor-property", text, GEMINI_LEGACY)
