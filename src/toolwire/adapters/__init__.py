"""A Python type as JSON: its schema, reading a value of it, and writing one.

msgspec reads and writes what it can (`native`); shapes that it refuses (unions of two dataclasses, `str | datetime`,
constraints from `annotated_types` inside a dataclass …) are composed out of parts that it accepts (`nodes`); a type
that mentions pydantic is left to pydantic (`pydantic_models`).

A type becomes a graph of nodes once (`graph`). Each node knows its schema and, where msgspec cannot do the whole, how
to build its value from plain JSON values.
"""

from __future__ import annotations

from toolwire.adapters.annotations import evaluate, unknown_name
from toolwire.adapters.base import Adapter, FreshDefault
from toolwire.adapters.choosing import adapter, from_field_default
from toolwire.adapters.elicitation import elicitation_schema
from toolwire.adapters.hooks import decode_hook, encode_hook, json_default
from toolwire.schemas import Invalid, Problem

__all__ = [
    "Adapter",
    "FreshDefault",
    "Invalid",
    "Problem",
    "adapter",
    "decode_hook",
    "elicitation_schema",
    "encode_hook",
    "evaluate",
    "from_field_default",
    "json_default",
    "unknown_name",
]
