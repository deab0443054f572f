"""Plain values that fit a JSON Schema: the same ones each time, and such as a person would write."""

from __future__ import annotations

import re
from typing import Any, Final, TypeGuard

from toolwire.schemas import Json, Schema
from toolwire.schemas.walking import at_pointer

_FORMATS: Final = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T23:59:59Z",
    "time": "23:59:59Z",
    "duration": "PT90S",
    "email": "a@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/a",
    "uri-reference": "https://example.org/a",
    "url": "https://example.org/a",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "byte": "YQ==",
}
# Texts that fit the usual patterns.
_TEXTS: Final = (
    "text", "a", "A", "1", "12", "123", "1234", "12345", "a1", "A1", "AB", "ABC", "0123456789", "a-b", "a_b", "a.b",
    "1.0", "1.0.0", "v1", "#a1b2c3", "0a1b2c3d", "0" * 32, "0" * 40, "0" * 64, "sha256:" + "0" * 64, "en", "en-US",
    "a/b", "EUR", "+15550100", "true", "*", "/a", "a@b", "a:b", "a=b", "$1", *_FORMATS.values(),
)  # fmt: skip
_DEEP: Final = 3
_DEEPEST: Final = 30
_LONGEST: Final = 10_000


class PlainMaker:
    """A maker of values for the parts of one schema. Optional members are left out below `deep` levels."""

    def __init__(self, root: Schema, deep: int = _DEEP) -> None:
        self._root = root
        self._deep = deep

    def value(self, schema: Json, depth: int = 0) -> Json:
        """Return a value that fits as far as the common keywords say."""
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return None
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
            return self.value(at_pointer(self._root, reference[1:]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if isinstance(values := schema.get("enum"), list) and values:
            return values[0]
        for keyword in ("examples", "default"):
            found = schema.get(keyword)
            if isinstance(found, list) and found and keyword == "examples":
                return found[0]
            if found is not None and keyword == "default":
                return found
        for keyword in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(keyword), list) and choices:
                return self._chosen(schema, keyword, choices, depth)
        if isinstance(schema.get("allOf"), list):
            return self.value(self._together(schema), depth + 1)
        return self._of_type(schema, depth)

    def _chosen(self, schema: Schema, keyword: str, choices: list[Any], depth: int) -> Json:
        # Null, where it is offered, ends a schema that contains itself.
        null = next((each for each in choices if isinstance(each, dict) and each.get("type") == "null"), None)
        choice = null if null is not None and depth > self._deep else choices[0]
        rest = {key: value for key, value in schema.items() if key != keyword}
        return self.value({**rest, **choice} if isinstance(choice, dict) else choice, depth + 1)

    def _together(self, schema: Schema) -> Schema:
        found: Schema = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if isinstance(part, dict) and isinstance(reference := part.get("$ref"), str) and reference[:1] == "#":
                part = at_pointer(self._root, reference[1:])
            if not isinstance(part, dict):
                continue
            members = {**found.get("properties", {}), **part.get("properties", {})}
            required = [*found.get("required", []), *part.get("required", [])]
            found = {**part, **found, "properties": members, "required": required}
        return found if found["properties"] else {**found, "properties": {}}

    def _of_type(self, schema: Schema, depth: int) -> Json:
        kinds = schema.get("type")
        kind = next((each for each in kinds if each != "null"), "null") if isinstance(kinds, list) else kinds
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        if kind in ("integer", "number"):
            return _number(schema)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "object":
            return self._object(schema, depth)
        return {"string": _text(schema), "boolean": True}.get(kind)

    def _array(self, schema: Schema, depth: int) -> list[Json]:
        least = schema.get("minItems", 0)
        count = min(least if isinstance(least, int) else 0, 20) or (1 if depth <= self._deep else 0)
        if schema.get("maxItems") == 0:
            count = 0
        return [self.value(schema.get("items", {"type": "string"}), depth + 1) for _ in range(count)]

    def _object(self, schema: Schema, depth: int) -> dict[str, Json]:
        members = schema.get("properties")
        members = members if isinstance(members, dict) else {}
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        if depth > _DEEPEST // 2:
            return {}  # A schema that contains itself without end has no value. Readers of answers take this one.
        names = [name for name in members if name in needed or depth < self._deep]
        made = {name: self.value(members[name], depth + 1) for name in names}
        return {**made, **{name: "text" for name in needed if name not in members}}


def _number(schema: Schema) -> float:
    bounds = [schema.get(key) for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")]
    low, above, high, below = (each if _is_number(each) else None for each in bounds)
    value = 1.0
    if low is not None or above is not None:
        value = max(value, *(each for each in (low, None if above is None else above + 1) if each is not None))
    if high is not None or below is not None:
        value = min(value, *(each for each in (high, None if below is None else below - 1) if each is not None))
    step = schema.get("multipleOf")
    if _is_number(step) and step > 0 and value % step:
        value = (value // step + 1) * step
    return int(value) if value == int(value) else value


def _text(schema: Schema) -> str:
    pattern, form = schema.get("pattern"), schema.get("format")
    least, most = schema.get("minLength"), schema.get("maxLength")
    least = min(least, _LONGEST) if isinstance(least, int) else 0
    most = most if isinstance(most, int) else _LONGEST
    if isinstance(form, str) and form in _FORMATS and not isinstance(pattern, str):
        return _FORMATS[form]
    for text in _TEXTS if isinstance(pattern, str) else _TEXTS[:1]:
        sized = (text + text[-1:] * max(0, least - len(text)))[:most]
        if not isinstance(pattern, str) or _fits(pattern, sized):
            return sized
    return "text"[:most]


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
