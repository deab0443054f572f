"""JSON Schema: compile it within bounds, check a value against it, say what is wrong in plain words, keep it compact.

`engine` validates, `bounds` says what is taken, `wording` explains, `repair` reads what was meant, `compact` shortens,
`portable` rewrites for publication, `nulls` reads null for what was left out.
"""

from __future__ import annotations

from toolwire.schemas.bounds import DIALECT, MAX_BYTES, MAX_DEPTH, MAX_SUBSCHEMAS, SchemaError
from toolwire.schemas.compact import inline, merge, without_optional_null
from toolwire.schemas.engine import Validator, compile
from toolwire.schemas.nulls import without_needless_nulls
from toolwire.schemas.portable import PROFILES, Profile, portable
from toolwire.schemas.repair import understood, whole_numbers
from toolwire.schemas.walking import Json, Schema
from toolwire.schemas.wording import MAX_PROBLEMS, Invalid, Path, Problem, expected, sentence, unknown_key

__all__ = [
    "DIALECT",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_PROBLEMS",
    "MAX_SUBSCHEMAS",
    "PROFILES",
    "Invalid",
    "Json",
    "Path",
    "Problem",
    "Profile",
    "Schema",
    "SchemaError",
    "Validator",
    "compile",
    "expected",
    "inline",
    "merge",
    "portable",
    "sentence",
    "understood",
    "unknown_key",
    "whole_numbers",
    "without_needless_nulls",
    "without_optional_null",
]
