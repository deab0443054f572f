"""Hooks for the few types that msgspec does not know, and defaults as JSON."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import msgspec

from toolwire.adapters.annotations import type_name
from toolwire.schemas import Json


def is_path_class(cls: type) -> bool:
    """Return whether a class is one of `pathlib`."""
    # A program that uses such a class has imported pathlib. Other programs do not load it for us: it costs 0.4 MiB.
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and issubclass(cls, pathlib.PurePath)


def decode_hook(tp: type, value: Any) -> Any:
    """Read one of the few types that msgspec does not know."""
    if is_path_class(tp) and isinstance(value, str):
        return tp(value)
    raise msgspec.ValidationError(f"Expected `str`, got `{type(value).__name__}`")


def encode_hook(value: Any) -> Any:
    """Write one of the few types that msgspec does not know."""
    if is_path_class(type(value)):
        return str(value)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None:
        if isinstance(value, pydantic.BaseModel):
            return value.model_dump(mode="json", by_alias=True)
        if type(value).__module__.startswith("pydantic"):
            return pydantic.TypeAdapter(type(value)).dump_python(value, mode="json")
    raise TypeError(f"a value of type {type_name(type(value))} has no JSON form")


def is_named_tuple(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def with_names(value: Any) -> Any:
    """Replace each NamedTuple in a value by an object with its names.

    msgspec would write an array.
    """
    if isinstance(value, dict):
        return {key: with_names(part) for key, part in value.items()}
    if is_named_tuple(type(value)):
        return {name: with_names(part) for name, part in zip(value._fields, value, strict=True)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [with_names(part) for part in value]
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        members = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        plain: dict[Any, Any] = {} if config.tag is None else {config.tag_field: config.tag}
        plain.update((name, with_names(getattr(value, attribute))) for name, attribute in members)
        return {name: part for name, part in plain.items() if part is not msgspec.UNSET}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: with_names(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def json_default(value: Any) -> Json:
    """A default value as it stands in a schema, UNSET when JSON cannot say it."""
    try:
        text = msgspec.json.encode(with_names(value), enc_hook=encode_hook)
    except Exception:  # whatever the author's object does when it is asked for its members
        return msgspec.UNSET
    plain = msgspec.json.decode(text)
    return msgspec.UNSET if plain is None and value is not None else plain
