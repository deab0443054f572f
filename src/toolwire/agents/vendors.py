"""Limits of the interfaces of model vendors: names, keywords, strict modes.

State of 2026-11-19: openai 3.51.0, anthropic 2.10.0, google-genai 3.3.0, and refusals that their users report.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

#: The interfaces that tools are converted for.
TargetName: TypeAlias = Literal["openai", "openai-chat", "anthropic", "gemini", "gemini-legacy"]

ANTHROPIC: Final = "Anthropic"
OPENAI: Final = "OpenAI"
STRICT: Final = "OpenAI strict mode"
GEMINI: Final = "Gemini"
#: The field `parameters` of Gemini, which older models and proxies need; newer ones read `parameters_json_schema`.
GEMINI_LEGACY: Final = "Gemini's older endpoints"
VERTEX: Final = "Vertex AI"
GOOGLE_GENAI: Final = "google-genai"

_BOTH_GEMINI: Final = (GEMINI, GEMINI_LEGACY)

#: Keywords that make an interface refuse a tool, or all tools of the request.
REFUSED_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "oneOf": (STRICT, *_BOTH_GEMINI),
    "allOf": (STRICT, *_BOTH_GEMINI),
    "not": (STRICT, *_BOTH_GEMINI),
    "if": (STRICT, *_BOTH_GEMINI),
    "patternProperties": (STRICT, *_BOTH_GEMINI),
    "dependentSchemas": (STRICT, *_BOTH_GEMINI),
    "dependentRequired": (STRICT, *_BOTH_GEMINI),
    "prefixItems": (OPENAI, *_BOTH_GEMINI),
    "propertyNames": (STRICT, *_BOTH_GEMINI),
    "uniqueItems": (STRICT,),
    "const": _BOTH_GEMINI,
    "contentEncoding": _BOTH_GEMINI,
    "contentMediaType": _BOTH_GEMINI,
    "exclusiveMinimum": _BOTH_GEMINI,
    "exclusiveMaximum": _BOTH_GEMINI,
    "multipleOf": _BOTH_GEMINI,
    "examples": _BOTH_GEMINI,
    "$ref": (GEMINI_LEGACY,),
    "$dynamicRef": (STRICT, *_BOTH_GEMINI),
}
#: Keywords that need another one of the same schema, and are refused with it.
COMPANIONS: Final = {"then": "if", "else": "if", "contains": "not", "unevaluatedProperties": "not"}
#: Formats of strings that OpenAI's strict mode takes. Gemini knows one of them; its clients drop the rest.
STRING_FORMATS: Final = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
#: Keywords that may stand beside `anyOf`: Vertex AI does not count them, or they belong to the whole document.
BESIDE_CHOICE: Final = frozenset(("anyOf", "nullable", "title", "$defs", "definitions", "$schema"))

#: Names of tools. Anthropic documents 128 characters, but cut the name in a `tool_reference` at 64.
PLAIN_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GEMINI_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
#: Names of arguments.
ANTHROPIC_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
GEMINI_PROPERTY: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")


class NameRule(Struct, frozen=True):
    """The names that an interface takes, and the characters that make one of them illegal."""

    legal: re.Pattern[str]
    illegal: re.Pattern[str]
    longest: int


PLAIN_NAMES: Final = NameRule(PLAIN_NAME, re.compile(r"[^a-zA-Z0-9_-]"), 64)
GEMINI_NAMES: Final = NameRule(GEMINI_NAME, re.compile(r"[^a-zA-Z0-9_.:-]|^[^a-zA-Z_]"), 128)
ANTHROPIC_PROPERTIES: Final = NameRule(ANTHROPIC_PROPERTY, re.compile(r"[^a-zA-Z0-9_.-]"), 64)
GEMINI_PROPERTIES: Final = NameRule(GEMINI_PROPERTY, re.compile(r"[^a-zA-Z0-9_]|^[^a-zA-Z_]"), 64)


class SchemaRules(Struct, frozen=True, kw_only=True):
    """The limits of one interface on the input schema of a tool."""

    vendor: str
    properties: NameRule | None = None
    """The names that arguments may have; None for all."""
    has_type_lists: bool = True
    """Whether `type` may be a list."""
    has_any_enum: bool = True
    """Whether `enum` may hold other values than strings."""
    is_choice_alone: bool = False
    """Whether nothing may stand beside `anyOf`."""
    formats: tuple[str, ...] | None = None
    """The formats of strings that are taken; None for all."""
    is_openapi: bool = False
    """Whether schemas are written as Schema objects, which know few keywords and no references."""

    def refuses(self, keyword: str) -> bool:
        keyword = COMPANIONS.get(keyword, keyword)
        return self.vendor in REFUSED_KEYWORDS.get(keyword, ())


class StrictLimits(Struct, frozen=True):
    """The limits of schemas in strict mode."""

    depth: int
    properties: int
    enum_values: int
    name_characters: int


#: OpenAI's guide "Structured model outputs", read 2026-11-15. Older servers allowed 5 levels and 100 properties.
STRICT_LIMITS: Final = StrictLimits(depth=10, properties=5_000, enum_values=1_000, name_characters=120_000)
#: Most functions of a namespace that OpenAI's guide on tool search advises.
NAMESPACE_SIZE: Final = 10


class Target(Struct, frozen=True, kw_only=True):
    """One interface of a vendor: how it wants tools."""

    name: TargetName
    names: NameRule
    schema: SchemaRules
    is_strict_nullable: bool = False
    """Whether strict mode requires every argument, so that optional ones become nullable."""
    has_strict: bool = False


TARGETS: Final[dict[str, Target]] = {
    "openai": Target(
        name="openai",
        names=PLAIN_NAMES,
        schema=SchemaRules(vendor=OPENAI),
        is_strict_nullable=True,
        has_strict=True,
    ),
    "openai-chat": Target(
        name="openai-chat",
        names=PLAIN_NAMES,
        schema=SchemaRules(vendor=OPENAI),
        is_strict_nullable=True,
        has_strict=True,
    ),
    "anthropic": Target(
        name="anthropic",
        names=PLAIN_NAMES,
        schema=SchemaRules(vendor=ANTHROPIC, properties=ANTHROPIC_PROPERTIES),
        has_strict=True,
    ),
    "gemini": Target(
        name="gemini",
        names=GEMINI_NAMES,
        schema=SchemaRules(
            vendor=GEMINI,
            has_type_lists=False,
            has_any_enum=False,
            is_choice_alone=True,
            formats=STRING_FORMATS,
        ),
    ),
    "gemini-legacy": Target(
        name="gemini-legacy",
        names=GEMINI_NAMES,
        schema=SchemaRules(
            vendor=GEMINI_LEGACY,
            properties=GEMINI_PROPERTIES,
            has_type_lists=False,
            has_any_enum=False,
            is_choice_alone=True,
            formats=("date-time", "enum"),
            is_openapi=True,
        ),
    ),
}


def find_target(name: str) -> Target:
    """Return a target by its name; raise `ValueError` with the known names for any other."""
    target = TARGETS.get(name)
    if target is None:
        raise ValueError(f"there is no target {str(name)[:60]!r}; the targets are {', '.join(TARGETS)}")
    return target
