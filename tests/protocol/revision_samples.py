"""The revisions by short names, and a sample of every type on the wire."""

from __future__ import annotations

import json
import types as python_types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, UnsetType

from toolwire.protocol import types
from toolwire.protocol.revisions import (
    REVISIONS,
)

R1, R2, R3, R4, R5 = REVISIONS


UNTIL_R2 = (R1, R2)


UNTIL_R3 = (R1, R2, R3)


FROM_R2 = (R2, R3, R4, R5)


FROM_R3 = (R3, R4, R5)


FROM_R4 = (R4, R5)


def wire(value: Any) -> Any:
    """What the plain encoder sends."""
    return json.loads(msgspec.json.encode(value))


def sample(hint: Any) -> Any:
    """A value for an annotation; a struct gets a value for every member."""
    if isinstance(hint, type) and issubclass(hint, types.Wire):
        hints = get_type_hints(hint)
        return hint(**{name: sample(hints[name]) for name in hint.__struct_fields__})
    origin = get_origin(hint)
    if origin in (Union, python_types.UnionType):
        return sample(next(option for option in get_args(hint) if option not in (UnsetType, type(None))))
    if origin is Literal:
        return get_args(hint)[0]
    if origin is list:
        return [sample(get_args(hint)[0])]
    if origin is dict:
        return {"key": sample(get_args(hint)[1])}
    return {str: "x", int: 1, float: 1.5, bool: True, bytes: b"x", Raw: Raw(b"{}"), Any: {}}[hint]


STRUCTS: list[type[types.Wire]] = [
    value
    for name in types.__all__
    if isinstance(value := getattr(types, name), type) and issubclass(value, types.Wire) and name == value.__name__
]
