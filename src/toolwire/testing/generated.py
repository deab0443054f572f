"""Generated input for tests: values that fit a JSON Schema, and a user and a model who answer questions at random."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from toolwire import schemas
from toolwire.client import Accept, Cancel, Decline, Elicitation, Sampling
from toolwire.protocol import types as t
from toolwire.schemas import Json, Schema, Validator
from toolwire.schemas.walking import at_pointer

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
_FORMATS: Final = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T23:59:59Z",
    "time": "23:59:59Z",
    "duration": "PT90S",
    "email": "a@example.org",
    "uri": "https://example.org/?a=b#c",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "decimal": "12.50",
}
_DEEPEST: Final = 6
_LONGEST: Final = 5
# Limits for a schema that asks for more than a test can send, or that contains itself without end.
_MOST_PARTS: Final = 20_000
_DEEPEST_OF_ALL: Final = 100
_LONGEST_TEXT: Final = 1_000_000


class Maker:
    """A maker of random values for the parts of one schema."""

    def __init__(self, root: Schema, random: Random) -> None:
        self._root = root
        self._random = random
        self._left = _MOST_PARTS

    def whole(self, schema: Json) -> Json:
        """Make a whole value with a bounded number of parts."""
        self._left = _MOST_PARTS
        return self.value(schema)

    def value(self, schema: Json, depth: int = 0) -> Json:
        """Make a value that fits as far as the common keywords say; the caller checks it against the whole schema."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST_OF_ALL:
            return None
        if not isinstance(schema, dict):
            return self._anything()
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            # A schema that contains itself ends when its optional parts are left out.
            return self.value(at_pointer(self._root, reference[1:]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._random.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                return self._chosen(schema, keyword, depth)
        if isinstance(schema.get("allOf"), list):
            return self.value(_merged(schema), depth + 1)
        return self._of_type(schema, depth)

    def _chosen(self, schema: Schema, keyword: str, depth: int) -> Json:
        choices = schema[keyword]
        # The last choice is often the one that ends a recursion, and null always does.
        choice = choices[-1] if depth > _DEEPEST else self._random.choice(choices)
        rest = {key: value for key, value in schema.items() if key != keyword}
        return self.value({**rest, **choice} if isinstance(choice, dict) else choice, depth + 1)

    def _of_type(self, schema: Schema, depth: int) -> Json:
        kinds = schema.get("type")
        kind = self._random.choice(kinds) if isinstance(kinds, list) and kinds else kinds
        match kind:
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self._random.random() < 0.5
            case "null":
                return None
            case "array":
                return self._array(schema, depth)
            case "object":
                return self._object(schema, depth)
            case _:
                return self._object(schema, depth) if "properties" in schema else self._anything()

    def _string(self, schema: Schema) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        least: int = schema.get("minLength", 0)
        most: int = schema.get("maxLength", 1_000)
        text = self._random.choice(TEXTS)
        return (text + "x" * max(0, min(least, _LONGEST_TEXT) - len(text)))[:most]

    def _integer(self, schema: Schema) -> int:
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

    def _number(self, schema: Schema) -> float:
        low, high = _bounds(schema, 1e-9)
        edges = [value for value in (low, high) if value is not None]
        value: float = self._random.choice([*edges, *NUMBERS, self._random.uniform(-1_000, 1_000)])
        if low is not None:
            value = max(value, low)
        return value if high is None else min(value, high)

    def _array(self, schema: Schema, depth: int) -> list[Json]:
        first = schema.get("prefixItems", [])
        least, most = schema.get("minItems", 0), schema.get("maxItems", _LONGEST)
        length = max(least, min(most, 0 if depth > _DEEPEST else self._random.randint(0, _LONGEST)))
        rest = schema.get("items", True)
        return [
            self.value(first[at] if at < len(first) else rest, depth + 1)
            for at in range(min(max(length, len(first)), _MOST_PARTS))
        ]

    def _object(self, schema: Schema, depth: int) -> dict[str, Json]:
        required = schema.get("required", [])
        members = schema.get("properties", {})
        made = {
            name: self.value(member, depth + 1)
            for name, member in members.items()
            if name in required or (depth <= _DEEPEST and self._random.random() < 0.5)
        }
        free = schema.get("additionalProperties", False)
        if isinstance(free, dict) and depth <= _DEEPEST:
            made |= {f"key{at}": self.value(free, depth + 1) for at in range(self._random.randint(0, 2))}
        return made

    def _anything(self) -> Json:
        return self._random.choice([None, True, 0, 1.5, "", "text", [], ["a"], {}, {"a": 1}])


def _bounds(schema: Schema, gap: float) -> tuple[float | None, float | None]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(above := schema.get("exclusiveMinimum"), int | float):
        low = above + gap
    if isinstance(below := schema.get("exclusiveMaximum"), int | float):
        high = below - gap
    return low, high


def _merged(schema: Schema) -> Schema:
    """Merge the parts of `allOf` into one schema, as far as they do not overlap."""
    merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        if isinstance(part, dict):
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", []), *part.get("required", [])]
            merged |= part
            if properties:
                merged["properties"] = properties
            if required:
                merged["required"] = required
    return merged


SIMPLEST: Final[tuple[Json, ...]] = (None, False, 0, 1, 0.0, "", "a", [], {})

# How often arguments are made again when they do not fit.
_ATTEMPTS: Final = 50


def made(schema: Schema, validator: Validator, random: Random, examples: int) -> Iterator[dict[str, Any]]:
    """Yield objects that a schema allows: `examples` of them, or fewer if no more could be made."""
    maker = Maker(schema, random)
    found = 0
    for _ in range(examples + _ATTEMPTS):
        value = maker.whole({**schema, "type": "object"})
        if found < examples and not validator.check(value):
            found += 1
            yield value


def fitting(tool: t.Tool, validator: Validator, random: Random, examples: int) -> Iterator[dict[str, Any]]:
    """Yield arguments that a tool takes; raise `ValueError` if none could be made."""
    nothing = True
    for arguments in made(tool.input_schema, validator, random, examples):
        nothing = False
        yield arguments
    if nothing and examples:
        raise ValueError(f"no arguments could be made for {tool.name!r}: leave it out of tools=")


# --- answers to questions of a server -------------------------------------------------------------------------------

# How often a user declines or cancels.
_UNWILLING: Final = 0.2


class MadeUp:
    """A user and a model who answer every question of a server; `given` has their answers since it was last cleared.

    Forms are filled in from their schema, or declined.
    """

    def __init__(self, random: Random) -> None:
        self.given: list[Any] = []
        self.elicitation: Elicitation = Elicitation(form=self._form, url=self._url)
        self.sampling: Sampling = Sampling(self._sample, tools=True, context=True)
        self._random = random

    def _form(self, message: str, params: t.ElicitRequestParams) -> Any:
        schema = params.requested_schema
        assert isinstance(schema, dict)
        validator = schemas.compile(schema, what="the schema of a form")
        content = None if self._refuses() else next(made(schema, validator, self._random, 1), None)
        return self._say(self._no() if content is None else Accept(content))

    def _url(self, message: str, params: t.ElicitRequestParams) -> Any:
        return self._say(self._no() if self._refuses() else Accept())

    def _sample(self, params: t.CreateMessageRequestParams) -> str:
        text = self._random.choice(TEXTS)
        self.given.append(text)
        return text

    def _refuses(self) -> bool:
        return self._random.random() < _UNWILLING

    def _no(self) -> Decline | Cancel:
        return self._random.choice((Decline(), Cancel()))

    def _say(self, answer: Accept | Decline | Cancel) -> Accept | Decline | Cancel:
        action = type(answer).__name__.lower()
        self.given.append({action: answer.content} if isinstance(answer, Accept) and answer.content else action)
        return answer
