"""Gemini's Schema objects, which its older endpoints take in the place of JSON Schema."""

from __future__ import annotations

from typing import Any, Final

from toolwire.schemas.walking import Schema

# The members of Gemini's Schema object, by those of JSON Schema.
_MEMBERS: Final = {
    "title": "title", "description": "description", "enum": "enum", "format": "format", "items": "items",
    "properties": "properties", "required": "required", "minItems": "min_items", "maxItems": "max_items",
    "minLength": "min_length", "maxLength": "max_length", "pattern": "pattern", "minimum": "minimum",
    "maximum": "maximum", "anyOf": "any_of", "minProperties": "min_properties", "maxProperties": "max_properties",
}  # fmt: skip
#: The keywords of JSON Schema that have a place in a Schema object.
TAKEN_KEYWORDS: Final = frozenset((*_MEMBERS, "type", "nullable"))


def write_schema_object(schema: Schema) -> Schema:
    """Write a schema in the members of Gemini's Schema object."""
    result: Schema = {}
    value: Any
    for keyword, name in _MEMBERS.items():
        if keyword not in schema:
            continue
        value = schema[keyword]
        match keyword:
            case "properties":
                value = {member: write_schema_object(part) for member, part in value.items()}
            case "items":
                value = write_schema_object(value)
            case "anyOf":
                choices = [each for each in value if each.get("type") != "null"]
                if len(choices) < len(value):
                    result["nullable"] = True
                value = [write_schema_object(each) for each in choices]
        result[name] = value
    written = result.get("any_of")
    if isinstance(written, list) and len(written) < 2:
        del result["any_of"]
        result = {**(written[0] if written else {}), **result}
    kind = schema.get("type")
    if kind == "null":
        return {"type": "STRING", "nullable": True, "description": "null"}
    if isinstance(kind, str):
        result["type"] = kind.upper()
    elif "type" not in result and "any_of" not in result:
        # There is no schema for any value.
        result["any_of"] = [{"type": "STRING"}, {"type": "NUMBER"}, {"type": "BOOLEAN"}]
    if "any_of" in result and "description" in result:
        first, *rest = result["any_of"]
        result["any_of"] = [{"description": result.pop("description"), **first}, *rest]
    if result.get("properties") == {}:
        del result["properties"]
    return result
