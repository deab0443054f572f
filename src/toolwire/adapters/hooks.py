"""How msgspec reads and writes the few types that it does not know, and defaults as JSON."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Any

import msgspec

from toolwire.adapters.annotations import type_name
from toolwire.schemas import Json


def decode_hook(tp: type, value: Any) -> Any:
    """How msgspec reads the few types that it does not know."""
    if issubclass(tp, PurePath) and isinstance(value, str):
        return tp(value)
    raise msgspec.ValidationError(f"Expected `str`, got `{type(value).__name__}`")


def encode_hook(value: Any) -> Any:
    """How msgspec writes the few types that it does not know."""
    if isinstance(value, PurePath):
        return str(value)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None:
        if isinstance(value, pydantic.BaseModel):
            return value.model_dump(mode="json", by_alias=True)
        if type(value).__module__.startswith("pydantic"):
            return pydantic.TypeAdapter(type(value)).dump_python(value, mode="json")
    raise TypeError(f"a value of type {type_name(type(value))} has no JSON form")


def json_default(value: Any) -> Json:
    """A default value as it stands in a schema, UNSET when JSON cannot say it."""
    try:
        text = msgspec.json.encode(value, enc_hook=encode_hook)
    except Exception:  # whatever the author's object does when it is asked for its members
        return msgspec.UNSET
    plain = msgspec.json.decode(text)
    return msgspec.UNSET if plain is None and value is not None else plain
