"""Output schemas that accept any value: the types of members are given in words.

APIs answer `"12.50"` for a number and null for anything. A client that checks structured content refuses a result that
does not fit, so a schema with types would force the server to leave such members out.
"""

from __future__ import annotations

from typing import Any, Final

from toolwire.schemas.walking import Json, Schema, with_subschemas

_KINDS: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
# Keywords that show what a value is, so that its type needs no words.
_SHOWING: Final = frozenset(
    ("properties", "items", "prefixItems", "additionalProperties", "patternProperties", "anyOf", "allOf", "$ref")
)


class OpenTypes:
    """Opens the output schemas of one description. Definitions that several tools share stay shared."""

    def __init__(self) -> None:
        # The schema itself is kept, so that its id stays its own.
        self._known: dict[int, tuple[Schema, Schema]] = {}

    def open(self, schema: Schema) -> Schema:
        """Return an output schema without types, except for an object at the root.

        Before 2026-07-28 structured content is an object, so that a schema that does not say so is wrapped there.
        """
        definitions = schema.get("$defs")
        root: Schema = _opened({key: value for key, value in schema.items() if key != "$defs"})
        if schema.get("type") == "object":
            root = {"type": "object", **{key: value for key, value in root.items() if value != "object"}}
        if isinstance(definitions, dict):
            root["$defs"] = {name: self._definition(each) for name, each in definitions.items()}
        return root

    def _definition(self, schema: Json) -> Json:
        if not isinstance(schema, dict):
            return schema
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = schema, _opened(schema)
        return known[1]


def _opened(schema: Json) -> Any:
    if not isinstance(schema, dict):
        return {}
    result = with_subschemas(schema, _opened)
    kinds = result.pop("type", None)
    words = _words(kinds)
    if result.keys() & _SHOWING:
        words = _words_of_choices(result)
    if not words:
        return result
    said = result.get("description")
    result["description"] = f"{words}: {said}" if said else words
    return result


def _words(kinds: Any) -> str:
    named = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(kind for kind in named if isinstance(kind, str))


def _words_of_choices(schema: Schema) -> str:
    """Replace a choice of plain types by words; "" for any other choice."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list) or schema.keys() & _SHOWING != {"anyOf"}:
        return ""
    words = [each["description"] for each in choices if each.keys() == {"description"}]
    if len(words) < len(choices) or not all(part in _KINDS for each in words for part in each.split(" or ")):
        return ""
    del schema["anyOf"]
    return " or ".join(dict.fromkeys(part for each in words for part in each.split(" or ")))
