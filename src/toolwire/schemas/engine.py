"""Validation by jsonschema-rs, the one door to it.

Everything that validates against a *document* goes through `compile`; it is the only place that hands a schema to
jsonschema-rs, and nothing outside the document is ever fetched (2026-07-28 server/tools: a `$ref` must not be
dereferenced over the network; the library below would fetch both http and file by default). A plain schema gets its
engine when a value comes that it cannot judge by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import msgspec

from toolwire.protocol.steps import Steps, TooManySteps
from toolwire.schemas.bounds import MAX_BYTES, SchemaDocument, SchemaError, dialect_of
from toolwire.schemas.effort import Effort, measure
from toolwire.schemas.faults import Faults, Leaves, Search
from toolwire.schemas.patterns import share
from toolwire.schemas.plain import Plain, plain
from toolwire.schemas.walking import Json, Schema, parts_in
from toolwire.schemas.whole_numbers import whole_numbers
from toolwire.schemas.wording import MAX_PROBLEMS, Problem, expected, explained, missing_key, unknown_key

_encode = msgspec.json.Encoder().encode

_BACKTRACK_LIMIT: Final = 10_000
#: A value with more parts than this is neither repaired nor explained in detail: that would cost more than checking it.
MAX_EXPLAINED: Final = 4_000
_STEPS_OF_ANY: Final = 2_000
_STEPS_PER_PART: Final = 40
# Each member of a large object is checked by an engine of its own, which is kept.
_MAX_MEMBERS: Final = 64

TOO_LARGE: Final = Problem((), "too large or too deeply nested for this schema")


class Validator:
    """A compiled schema. `check` returns what is wrong, an empty list when nothing is."""

    def __init__(
        self, schema: Schema, document: SchemaDocument, build: Callable[[Schema], Any], glance: Plain | None
    ) -> None:
        """`glance` accepts small values without an engine; None for a schema that is not plain."""
        self.schema = schema
        self.weight: int = document.weight
        """About how many bytes it takes."""
        self._engine: Any = build(schema) if glance is None else None
        self._glance = glance
        self._effort = Effort(document)
        self.short: int = self._effort.short
        """A value whose JSON text has at most so many bytes need not be counted."""
        self._targets = document.targets
        self._wants_integers = document.wants_integers
        self._leaves = Leaves(build)
        self._build = build
        self._members: dict[str, Any] = {}

    def check(self, instance: Json, text: bytes | None = None, *, is_refused: bool = False) -> list[Problem]:
        """Return all problems of a value.

        `text` is its JSON, if the caller has it, to measure the value by.

        `is_refused` says that the value is known not to fit, so that the engine is not asked again.
        """
        if self._glance is not None and not is_refused and self._glance.fits(instance):
            return []
        try:
            if (text is None or len(text) > self.short) and not self._is_cheap(instance, text):
                return [TOO_LARGE]
            if not is_refused and self._is_valid(instance):
                return []
            return self._explain(instance)
        except RecursionError:
            return [Problem((), "too deeply nested")]
        except (ValueError, TypeError):
            # The engine reads JSON values only; anything else cannot have come from, or go to, the wire.
            return [Problem((), "not a JSON value")]

    def fits(self, instance: Json, text: bytes | None = None) -> bool:
        """Return whether nothing is wrong with a value."""
        if self._glance is not None and self._glance.fits(instance):
            return True
        try:
            is_cheap = (text is not None and len(text) <= self.short) or self._is_cheap(instance, text)
            return is_cheap and self._is_valid(instance)
        except (RecursionError, ValueError, TypeError):
            return False

    def faults(self, instance: Json) -> Faults | None:
        """Find where a value breaks its schema; None when it is too large to search."""
        parts = measure(instance, MAX_EXPLAINED).parts
        if parts > MAX_EXPLAINED:
            return None
        steps = Steps(_STEPS_OF_ANY + _STEPS_PER_PART * parts)
        try:
            return Search(self._targets, self._leaves, steps, MAX_EXPLAINED).faults(self.schema, instance)
        except (TooManySteps, RecursionError):
            return None

    def whole(self, instance: Json, text: bytes | None = None) -> Json:
        """Write `3.0` as `3` wherever the schema asks for an integer.

        Raises `TooManySteps` where that is too much work.
        """
        if not self._wants_integers:
            return instance
        size = measure(instance) if text is None else None
        if size is not None and not size.floats:
            return instance
        parts = parts_in(text or b"") if size is None else size.parts
        return whole_numbers(instance, self.schema, self._targets, parts)

    def quick(self) -> Callable[[Json], bool]:
        """Return a fast check that accepts most valid values.

        False, or an error, says nothing: call `check`.
        """
        if self._glance is not None:
            return self._glance.fits
        is_valid, short = self._engine.is_valid, self.short
        # The length of the text shows that a value is small, which is faster than to count its parts.
        return lambda value: len(_encode(value)) <= short and is_valid(value)

    def _is_valid(self, instance: Json) -> bool:
        if self._engine is None:
            self._engine = self._build(self.schema)
        return bool(self._engine.is_valid(instance))

    def _is_cheap(self, instance: Json, text: bytes | None) -> bool:
        return (text is not None and self._effort.fits_text(text)) or self._effort.fits(instance)

    def _explain(self, instance: Json) -> list[Problem]:
        faults = self.faults(instance)
        return self._bad_members(instance) if faults is None else self.explained(faults)

    def explained(self, faults: Faults) -> list[Problem]:
        """Put faults in words."""
        problems: dict[Problem, None] = {}
        for fault in faults[:MAX_PROBLEMS]:
            for problem in explained(fault, self.schema):
                problems.setdefault(problem)
        return list(problems)[:MAX_PROBLEMS] or [Problem((), f"expected {expected(self.schema, self.schema)}")]

    def _bad_members(self, instance: Json) -> list[Problem]:
        """Say of a large value which members of the root object fail."""
        problems: list[Problem] = []
        properties = self.schema.get("properties")
        if isinstance(instance, dict) and isinstance(properties, dict):
            required = [name for name in self.schema.get("required", ()) if name not in instance]
            problems += [missing_key((), name, self.schema, self.schema) for name in required[:MAX_PROBLEMS]]
            if self.schema.get("additionalProperties") is False and "patternProperties" not in self.schema:
                unknown = (name for name in instance if name not in properties)
                problems += [unknown_key((), name, properties) for name in islice(unknown, MAX_PROBLEMS)]
            for name, member in islice(properties.items(), _MAX_MEMBERS):
                if name in instance and not self._member_fits(name, member, instance[name]):
                    problems.append(Problem((name,), f"expected {expected(member, self.schema)}"))
        return problems[:MAX_PROBLEMS] or [Problem((), f"expected {expected(self.schema, self.schema)}")]

    def _member_fits(self, name: str, member: Json, value: Json) -> bool:
        if name not in self._members:
            kept: Schema = {key: self.schema[key] for key in ("$schema", "$defs", "definitions") if key in self.schema}
            try:
                self._members[name] = self._build({**kept, "allOf": [member]})
            except SchemaError:  # a reference by position, which only the whole document resolves
                self._members[name] = None
        engine = self._members[name]
        return engine is None or bool(engine.is_valid(value))


def compile(schema: Json, *, what: str) -> Validator:
    """Check that a schema is usable and build its validator.

    Errors call it `what` (`the input schema of 'add'`).
    """
    if not isinstance(schema, dict):
        raise SchemaError(f"{what} must be a JSON object, not {type(schema).__name__}")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"{what} is not JSON: {error}") from None
    if size > MAX_BYTES:
        raise SchemaError(f"{what} is {size} bytes long, the limit is {MAX_BYTES}")
    dialect = dialect_of(schema, what)
    document = SchemaDocument(schema, what)
    pattern_bytes = document.pattern_bytes

    def build(part: Schema) -> Any:
        return _engine(part, dialect, what, pattern_bytes)

    return Validator(schema, document, build, plain(schema, dialect))


def is_usable_pattern(pattern: str, count: int = 1) -> bool:
    """Return whether a regular expression compiles in a document that has so many of them."""
    try:
        _engine({"type": "string", "pattern": pattern}, "Draft202012Validator", "the pattern", share(count))
    except SchemaError:
        return False
    return True


def _engine(schema: Schema, dialect: str, what: str, pattern_bytes: int) -> Any:
    """Make an engine of a schema: it fetches nothing, and its regular expressions are bounded."""
    import jsonschema_rs

    def refuse(uri: str) -> Json:
        raise ValueError(f"{uri} is outside the schema")

    validator: Callable[..., Any] = getattr(jsonschema_rs, dialect)
    linear = jsonschema_rs.RegexOptions(size_limit=pattern_bytes, dfa_size_limit=pattern_bytes)
    backtracking = jsonschema_rs.FancyRegexOptions(
        backtrack_limit=_BACKTRACK_LIMIT, size_limit=pattern_bytes, dfa_size_limit=pattern_bytes
    )
    reason = ""
    # The linear engine cannot be made slow; look-around and back references need the other one, which counts its steps.
    for patterns in (linear, backtracking):
        try:
            return validator(schema, pattern_options=patterns, retriever=refuse)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            reason = getattr(error, "message", None) or str(error).partition("\n")[0]
    raise SchemaError(f"{what} is not valid: {reason}") from None
