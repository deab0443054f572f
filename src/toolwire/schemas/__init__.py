"""JSON Schema: compile it within bounds, check a value against it, say what is wrong in plain words, keep it compact.

`engine` validates, `bounds` says what is taken, `wording` explains, `repair` reads what was meant, `compact` shortens.
"""

from __future__ import annotations

from toolwire.schemas.bounds import DIALECT, MAX_BYTES, MAX_DEPTH, MAX_SUBSCHEMAS, SchemaError
from toolwire.schemas.compact import inline, merge, without_optional_null
from toolwire.schemas.engine import Validator, compile
from toolwire.schemas.repair import understood, whole_numbers
from toolwire.schemas.walking import Json, Schema
from toolwire.schemas.wording import MAX_PROBLEMS, Invalid, Path, Problem, expected, sentence, unknown_key

__all__ = [
    "DIALECT",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_PROBLEMS",
    "MAX_SUBSCHEMAS",
    "Invalid",
    "Json",
    "Path",
    "Problem",
    "Schema",
    "SchemaError",
    "Validator",
    "compile",
    "expected",
    "inline",
    "merge",
    "sentence",
    "understood",
    "unknown_key",
    "whole_numbers",
    "without_optional_null",
]
