"""Functions bound for tests, and the types in their signatures."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from toolwire.server.binding import Binding, InvalidArguments, bind


class Context:
    pass


def binding(function: Callable[..., Any], **options: Any) -> Binding:
    return bind(function, is_context=lambda annotation: annotation is Context, **options)


def refused(bound: Binding, arguments: Any) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        bound.arguments(msgspec.json.encode(arguments))
    assert str(caught.value) == "\n".join(caught.value.lines)
    return caught.value.lines


@dataclass
class Place:
    city: str
    zip: int | None = None


@dataclass
class Forecast:
    city: str
    high_c: float


class Colour(enum.Enum):
    RED = "r"


class Model(pydantic.BaseModel):
    id: int
