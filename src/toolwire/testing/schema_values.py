"""Values that fit a JSON Schema: fixed ones, and random ones for tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from toolwire.schemas import Json, Schema
from toolwire.schemas.walking import at_pointer
from toolwire.util.numbers import is_number

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
_TYPES: Final = ("string", "integer", "number", "boolean", "null", "array", "object")
_DEEP: Final = 3
_DEEPEST: Final = 30
_LONGEST: Final = 10_000


class PlainMaker:
    """A maker of values that a person would write, by one walk through a schema.

    Optional members are left out below `deep` levels.
    """

    def __init__(self, root: Schema, deep: int = _DEEP) -> None:
        self._root = root
        self._deep = deep

    def value(self, schema: Json, depth: int = 0) -> Json:
        """Make a value that fits the common keywords.

        A caller may check it against the whole schema.
        """
        if self.is_over(depth):
            return None
        if not isinstance(schema, dict):
            return self.anything()
        if (target := self._target(schema)) is not None:
            return self.value(at_pointer(self._root, target), depth + 1)
        if "const" in schema:
            return schema["const"]
        if isinstance(values := schema.get("enum"), list) and values:
            return self.one_of(values)
        if (example := self.example(schema)) is not None:
            return example
        for keyword in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(keyword), list) and choices:
                choice = self.choice(choices, depth)
                rest = {key: value for key, value in schema.items() if key != keyword}
                return self.value({**rest, **choice} if isinstance(choice, dict) else choice, depth + 1)
        if isinstance(schema.get("allOf"), list):
            return self.value(self._merged(schema), depth + 1)
        return self._make_typed(schema, depth)

    def _target(self, schema: Schema) -> str | None:
        reference = schema.get("$ref")
        return reference[1:] if isinstance(reference, str) and reference.startswith("#") else None

    def _merged(self, schema: Schema) -> Schema:
        """Merge the parts of `allOf` into one schema, as far as they do not overlap."""
        merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if isinstance(part, dict) and (target := self._target(part)) is not None:
                part = at_pointer(self._root, target)
            if isinstance(part, dict):
                members = {**merged.get("properties", {}), **part.get("properties", {})}
                required = [*merged.get("required", []), *part.get("required", [])]
                merged = {**part, **merged}
                if members:
                    merged["properties"] = members
                if required:
                    merged["required"] = required
        return merged

    def _make_typed(self, schema: Schema, depth: int) -> Json:
        match self.kind(schema):
            case "string":
                return self.text(schema)
            case "integer":
                return self.integer(schema)
            case "number":
                return self.number(schema)
            case "boolean":
                return self.boolean()
            case "null":
                return None
            case "array":
                return self.array(schema, depth)
            case "object":
                return self.object(schema, depth)
            case _:
                return self.anything()

    # --- what a schema leaves open ---

    def is_over(self, depth: int) -> bool:
        """Return whether the value is deep enough to end."""
        return depth > _DEEPEST

    def anything(self) -> Json:
        return None

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[0]

    def example(self, schema: Schema) -> Json:
        """Return a value that the schema names; None for none."""
        examples = schema.get("examples")
        return examples[0] if isinstance(examples, list) and examples else schema.get("default")

    def choice(self, choices: list[Any], depth: int) -> Json:
        # Null, where it is offered, ends a schema that contains itself.
        null = next((each for each in choices if isinstance(each, dict) and each.get("type") == "null"), None)
        return null if null is not None and depth > self._deep else choices[0]

    def kind(self, schema: Schema) -> Any:
        kinds = schema.get("type")
        kind = next((each for each in kinds if each != "null"), "null") if isinstance(kinds, list) else kinds
        if kind is None:
            return "object" if "properties" in schema else "array" if "items" in schema else "string"
        return kind

    def text(self, schema: Schema) -> str:
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

    def number(self, schema: Schema) -> float:
        bounds = [schema.get(key) for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")]
        low, above, high, below = (each if is_number(each) else None for each in bounds)
        value = 1.0
        if low is not None or above is not None:
            value = max(value, *(each for each in (low, None if above is None else above + 1) if each is not None))
        if high is not None or below is not None:
            value = min(value, *(each for each in (high, None if below is None else below - 1) if each is not None))
        step = schema.get("multipleOf")
        if is_number(step) and step > 0 and value % step:
            value = (value // step + 1) * step
        return int(value) if value == int(value) else value

    def integer(self, schema: Schema) -> float:
        return self.number(schema)

    def boolean(self) -> bool:
        return True

    def array(self, schema: Schema, depth: int) -> list[Json]:
        least = schema.get("minItems", 0)
        count = min(least if isinstance(least, int) else 0, 20) or (1 if depth <= self._deep else 0)
        if schema.get("maxItems") == 0:
            count = 0
        return [self.value(schema.get("items", {"type": "string"}), depth + 1) for _ in range(count)]

    def object(self, schema: Schema, depth: int) -> dict[str, Json]:
        members = schema.get("properties")
        members = members if isinstance(members, dict) else {}
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        if depth > _DEEPEST // 2:
            return {}  # A schema that contains itself without end has no value. Readers of answers take this one.
        names = [name for name in members if name in needed or depth < self._deep]
        made = {name: self.value(members[name], depth + 1) for name in names}
        return {**made, **{name: "text" for name in needed if name not in members}}


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return False


# --- random values ---

# Texts that programs often handle wrongly.
TEXTS: Final = (
    "",
    "a",
    " ",
    "0",
    "null",
    "é",
    "𝄞",
    "\x00",
    "\n",
    "\u202e",
    "../../etc/passwd",
    "'; DROP TABLE x; --",
    "<script>alert(1)</script>",
    "%s%n{0}${x}",
    "a" * 1_000,
)
INTEGERS: Final = (0, 1, -1, 2, 100, 2**31, 2**53, -(2**63), 10**30)
NUMBERS: Final = (0.0, 1.0, -1.0, 0.1, 1e-300, 1e300, -1e300)
_RANDOM_FORMATS: Final = {
    **{name: _FORMATS[name] for name in ("date", "date-time", "time", "duration", "email", "uuid")},
    "uri": "https://example.org/?a=b#c",
    "decimal": "12.50",
}
_RANDOM_DEEPEST: Final = 6
_RANDOM_LONGEST: Final = 5
# Limits for a schema that asks for more than a test can send, or that contains itself without end.
_MOST_PARTS: Final = 20_000
_DEEPEST_OF_ALL: Final = 100
_LONGEST_TEXT: Final = 1_000_000


class RandomMaker(PlainMaker):
    """A maker of random values, by the same walk."""

    def __init__(self, root: Schema, random: Random) -> None:
        super().__init__(root)
        self._random = random
        self._left = _MOST_PARTS

    def whole(self, schema: Json) -> Json:
        """Make a whole value with a bounded number of parts."""
        self._left = _MOST_PARTS
        return self.value(schema)

    def example(self, schema: Schema) -> Json:
        return None

    def is_over(self, depth: int) -> bool:
        self._left -= 1
        return self._left < 0 or depth > _DEEPEST_OF_ALL

    def one_of(self, values: Sequence[Any]) -> Any:
        return self._random.choice(values)

    def choice(self, choices: list[Any], depth: int) -> Json:
        # The last choice is often the one that ends a recursion, and null always does.
        return choices[-1] if depth > _RANDOM_DEEPEST else self._random.choice(choices)

    def kind(self, schema: Schema) -> Any:
        kinds = schema.get("type")
        kind = self._random.choice(kinds) if isinstance(kinds, list) and kinds else kinds
        return "object" if kind not in _TYPES and "properties" in schema else kind

    def text(self, schema: Schema) -> str:
        if schema.get("format") in _RANDOM_FORMATS:
            return _RANDOM_FORMATS[schema["format"]]
        least: int = schema.get("minLength", 0)
        most: int = schema.get("maxLength", 1_000)
        text = self._random.choice(TEXTS)
        return (text + "x" * max(0, min(least, _LONGEST_TEXT) - len(text)))[:most]

    def integer(self, schema: Schema) -> int:
        step = schema.get("multipleOf", 1)
        step = step if isinstance(step, int) and step > 0 else 1
        low, high = _bounds(schema, 1)
        edges = [value for value in (low, high) if value is not None]
        value = self._random.choice([*map(int, edges), *INTEGERS, self._random.randint(-1_000, 1_000)])
        if low is not None:
            value = max(value, int(low) if low == int(low) else int(low) + 1)
        if high is not None:
            value = min(value, int(high))
        return value - value % step

    def number(self, schema: Schema) -> float:
        low, high = _bounds(schema, 1e-9)
        edges = [value for value in (low, high) if value is not None]
        value: float = self._random.choice([*edges, *NUMBERS, self._random.uniform(-1_000, 1_000)])
        if low is not None:
            value = max(value, low)
        return value if high is None else min(value, high)

    def boolean(self) -> bool:
        return self._random.random() < 0.5

    def array(self, schema: Schema, depth: int) -> list[Json]:
        first = schema.get("prefixItems", [])
        least, most = schema.get("minItems", 0), schema.get("maxItems", _RANDOM_LONGEST)
        length = max(least, min(most, 0 if depth > _RANDOM_DEEPEST else self._random.randint(0, _RANDOM_LONGEST)))
        rest = schema.get("items", True)
        return [
            self.value(first[at] if at < len(first) else rest, depth + 1)
            for at in range(min(max(length, len(first)), _MOST_PARTS))
        ]

    def object(self, schema: Schema, depth: int) -> dict[str, Json]:
        required = schema.get("required", [])
        members = schema.get("properties", {})
        made = {
            name: self.value(member, depth + 1)
            for name, member in members.items()
            if name in required or (depth <= _RANDOM_DEEPEST and self._random.random() < 0.5)
        }
        free = schema.get("additionalProperties", False)
        if isinstance(free, dict) and depth <= _RANDOM_DEEPEST:
            made |= {f"key{at}": self.value(free, depth + 1) for at in range(self._random.randint(0, 2))}
        return made

    def anything(self) -> Json:
        return self._random.choice([None, True, 0, 1.5, "", "text", [], ["a"], {}, {"a": 1}])


def _bounds(schema: Schema, gap: float) -> tuple[float | None, float | None]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(above := schema.get("exclusiveMinimum"), int | float):
        low = above + gap
    if isinstance(below := schema.get("exclusiveMaximum"), int | float):
        high = below - gap
    return low, high
