"""JSON Schema: compile it within bounds, check a value against it, say what is wrong in plain words, keep it compact.

`engine` validates, `bounds` says which schemas are taken and `effort` which values, `faults` finds what is wrong,
`wording` says it, `repair` reads what was meant, `nulls` reads null for what was left out, `compact` shortens,
`portable` rewrites for publication.
"""

from __future__ import annotations

from toolwire.schemas.bounds import DIALECT, MAX_BYTES, MAX_DEPTH, MAX_SUBSCHEMAS, SchemaError
from toolwire.schemas.compact import inline, merge, without_optional_null
from toolwire.schemas.effort import Attempts, parts_in
from toolwire.schemas.engine import MAX_EXPLAINED, TOO_LARGE, Validator, compile
from toolwire.schemas.nulls import may_have_nulls, without_needless_nulls
from toolwire.schemas.portable import PROFILES, Profile, portable
from toolwire.schemas.repair import reread, understood
from toolwire.schemas.walking import Json, Path, Schema
from toolwire.schemas.wording import MAX_PROBLEMS, Invalid, Problem, expected, missing_key, sentence, unknown_key

__all__ = [
    "DIALECT",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_EXPLAINED",
    "MAX_PROBLEMS",
    "MAX_SUBSCHEMAS",
    "PROFILES",
    "TOO_LARGE",
    "Attempts",
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
    "may_have_nulls",
    "merge",
    "missing_key",
    "parts_in",
    "portable",
    "reread",
    "sentence",
    "understood",
    "unknown_key",
    "without_needless_nulls",
    "without_optional_null",
]
