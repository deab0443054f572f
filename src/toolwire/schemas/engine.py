"""Validation by jsonschema-rs, the one door to it.

Everything that validates against a *document* goes through `compile`; it is the only place that hands a schema to
jsonschema-rs, and nothing outside the document is ever fetched (2026-07-28 server/tools: a `$ref` must not be
dereferenced over the network; the library below would fetch both http and file by default).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import msgspec

from toolwire.schemas.bounds import (
    MAX_BYTES,
    MAX_EFFORT,
    MAX_EFFORT_WITH_DETAIL,
    Document,
    Effort,
    SchemaError,
    dialect_of,
)
from toolwire.schemas.walking import Json, Schema
from toolwire.schemas.wording import MAX_PROBLEMS, Problem, expected, explained, missing_key, unknown_key

_BACKTRACK_LIMIT: Final = 10_000
_REGEX_BYTES: Final = 1 << 20


class Validator:
    """A compiled schema. `check` returns what is wrong, an empty list when nothing is."""

    def __init__(self, schema: Schema, engine: Any, effort: Effort, build: Callable[[Schema], Any]) -> None:
        self.schema = schema
        self.engine = engine
        self.effort = effort
        self._build = build

    def check(self, instance: Json) -> list[Problem]:
        try:
            effort = self.effort.of(instance)
            if effort > MAX_EFFORT:
                return [Problem((), "too large or too deeply nested for this schema")]
            if self.engine.is_valid(instance):
                return []
            if effort > MAX_EFFORT_WITH_DETAIL:
                return self._bad_members(instance)
            return self._explain(instance)
        except RecursionError:
            return [Problem((), "too deeply nested")]
        except (ValueError, TypeError):
            # The engine reads JSON values only; anything else cannot have come from, or go to, the wire.
            return [Problem((), "not a JSON value")]

    def _explain(self, instance: Json) -> list[Problem]:
        problems: dict[Problem, None] = {}
        for error in self.engine.iter_errors(instance):
            for problem in explained(error, self.schema, instance):
                problems.setdefault(problem)
            if len(problems) >= MAX_PROBLEMS:
                break
        return list(problems)[:MAX_PROBLEMS] or [Problem((), f"expected {expected(self.schema, self.schema)}")]

    def _bad_members(self, instance: Json) -> list[Problem]:
        """A large value: which members of the root object fail, without the engine's full list of errors."""
        problems: list[Problem] = []
        properties = self.schema.get("properties")
        if isinstance(instance, dict) and isinstance(properties, dict):
            required = [name for name in self.schema.get("required", ()) if name not in instance]
            problems += [missing_key((), name, self.schema, self.schema) for name in required]
            if self.schema.get("additionalProperties") is False and "patternProperties" not in self.schema:
                unknown = (unknown_key((), name, properties) for name in instance if name not in properties)
                problems += islice(unknown, MAX_PROBLEMS)
            shared: Schema = {
                key: self.schema[key] for key in ("$schema", "$defs", "definitions") if key in self.schema
            }
            for name, member in properties.items():
                if name in instance and self._fails(shared, member, instance[name]):
                    problems.append(Problem((name,), f"expected {expected(member, self.schema)}"))
        return problems[:MAX_PROBLEMS] or [Problem((), f"expected {expected(self.schema, self.schema)}")]

    def _fails(self, shared: Schema, member: Json, value: Json) -> bool:
        try:
            return not self._build({**shared, "allOf": [member]}).is_valid(value)
        except SchemaError:  # a reference by position, which only the whole document resolves
            return False


def compile(schema: Json, *, what: str) -> Validator:
    """Check that a schema is usable and build its validator; errors call it `what` (`the input schema of 'add'`)."""
    if not isinstance(schema, dict):
        raise SchemaError(f"{what} must be a JSON object, not {type(schema).__name__}")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"{what} is not JSON: {error}") from None
    if size > MAX_BYTES:
        raise SchemaError(f"{what} is {size} bytes long, the limit is {MAX_BYTES}")
    dialect = dialect_of(schema, what)
    document = Document(schema, what)

    def build(part: Schema) -> Any:
        return _engine(part, dialect, what)

    return Validator(schema, build(schema), Effort(document), build)


def _engine(schema: Schema, dialect: str, what: str) -> Any:
    """The one door to jsonschema-rs: no retrieval of anything, bounded regular expressions."""
    import jsonschema_rs

    def refuse(uri: str) -> Json:
        raise ValueError(f"{uri} is outside the schema")

    validator: Callable[..., Any] = getattr(jsonschema_rs, dialect)
    linear = jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES)
    backtracking = jsonschema_rs.FancyRegexOptions(
        backtrack_limit=_BACKTRACK_LIMIT, size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES
    )
    reason = ""
    # The linear engine cannot be made slow; look-around and back references need the other one, which counts its steps.
    for patterns in (linear, backtracking):
        try:
            return validator(schema, pattern_options=patterns, retriever=refuse)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            reason = getattr(error, "message", None) or str(error).partition("\n")[0]
    raise SchemaError(f"{what} is not valid: {reason}") from None
