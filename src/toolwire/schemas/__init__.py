"""JSON Schema: compile it within limits, validate values, explain faults, keep it compact.

`engine` validates. `bounds` limits schemas, and `effort` limits values. `faults` finds mistakes, and `wording` says
them in words. `repair` and `nulls` read what a model meant. `compact` and `vendor_schemas` prepare them for lists.
Each module is imported when something first uses it: a client that checks results does not load the publication.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from toolwire.schemas.profiles import PROFILES, Profile
from toolwire.schemas.walking import MAX_DEPTH, Json, Path, Schema, parts_in
from toolwire.schemas.wording import MAX_PROBLEMS, Invalid, Problem, expected, missing_key, sentence, unknown_key

if TYPE_CHECKING:
    from toolwire.schemas.bounds import DIALECT, MAX_BYTES, MAX_SUBSCHEMAS, SchemaError
    from toolwire.schemas.compact import inline, merge, without_optional_null
    from toolwire.schemas.effort import Attempts
    from toolwire.schemas.engine import MAX_EXPLAINED, TOO_LARGE, Validator, compile, is_usable_pattern
    from toolwire.schemas.nulls import may_have_nulls, without_needless_nulls
    from toolwire.schemas.repair import reread, understood
    from toolwire.schemas.vendor_schemas import portable

_HOMES: Final = {
    "DIALECT": "bounds",
    "MAX_BYTES": "bounds",
    "MAX_SUBSCHEMAS": "bounds",
    "SchemaError": "bounds",
    "inline": "compact",
    "merge": "compact",
    "without_optional_null": "compact",
    "Attempts": "effort",
    "MAX_EXPLAINED": "engine",
    "TOO_LARGE": "engine",
    "Validator": "engine",
    "compile": "engine",
    "is_usable_pattern": "engine",
    "may_have_nulls": "nulls",
    "without_needless_nulls": "nulls",
    "portable": "vendor_schemas",
    "reread": "repair",
    "understood": "repair",
}

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
    "is_usable_pattern",
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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
