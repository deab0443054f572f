"""Work is bounded by the size of what a peer sent: a small multiple of it, for every shape.

Steps are counted, never time: lines of Python that run. What the engine of schemas does is not seen by this, so that
values which would keep it busy for years stand here too: without their bounds, these tests never end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import msgspec
import pydantic
import pytest
from tests.counted_steps import steps_of

from toolwire.protocol.errors import ProtocolError
from toolwire.server.binding import Binding, InvalidArguments, bind

# What reading any arguments may take, however short they are, and what each byte may add. A first refusal compiles the
# schema, which is paid before counting.
OF_ANY = 25_000
PER_BYTE = 200


class And(msgspec.Struct, tag="and", tag_field="op"):
    args: list[Filter]


class Or(msgspec.Struct, tag="or", tag_field="op"):
    args: list[Filter]


class Leaf(msgspec.Struct, tag="leaf", tag_field="op"):
    n: int


Filter = Union[And, Or, Leaf]  # noqa: UP007  the names in it are known later


def structs(filter: Filter) -> None:
    """Take a filter, as classes of msgspec."""


@dataclass
class PlainAnd:
    op: Literal["and"]
    args: list[PlainFilter]


@dataclass
class PlainOr:
    op: Literal["or"]
    args: list[PlainFilter]


@dataclass
class PlainLeaf:
    op: Literal["leaf"]
    n: int


PlainFilter = Union[PlainAnd, PlainOr, PlainLeaf]  # noqa: UP007


def dataclasses(filter: PlainFilter) -> None:
    """Take a filter, as dataclasses."""


class ModelAnd(pydantic.BaseModel):
    op: Literal["and"]
    args: list[ModelFilter]


class ModelOr(pydantic.BaseModel):
    op: Literal["or"]
    args: list[ModelFilter]


class ModelLeaf(pydantic.BaseModel):
    op: Literal["leaf"]
    n: int


ModelFilter = Union[ModelAnd, ModelOr, ModelLeaf]  # noqa: UP007


def models(filter: ModelFilter) -> None:
    """Take a filter, as models of pydantic, which tries every alternative."""


class TaggedAnd(pydantic.BaseModel):
    op: Literal["and"]
    args: list[TaggedFilter]


class TaggedOr(pydantic.BaseModel):
    op: Literal["or"]
    args: list[TaggedFilter]


TaggedFilter = Annotated[Union[TaggedAnd, TaggedOr, ModelLeaf], pydantic.Field(discriminator="op")]  # noqa: UP007


def tagged(filter: TaggedFilter) -> None:
    """Take a filter, as models of pydantic that say which one is meant."""


def branch(op: str, name: str, member: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"op": {"const": op}, name: member}, "required": ["op", name]}


ARGS = {"type": "array", "items": {"$ref": "#/$defs/filter"}}
CHOICES = [branch("and", "args", ARGS), branch("or", "args", ARGS), branch("leaf", "n", {"type": "integer"})]
ROOT = {"type": "object", "properties": {"filter": {"$ref": "#/$defs/filter"}}}
RAW = {kind: {**ROOT, "$defs": {"filter": {kind: CHOICES}}} for kind in ("anyOf", "oneOf")}


TYPED = {"structs": structs, "dataclasses": dataclasses, "models": models, "tagged": tagged}
KINDS = [*TYPED, *RAW]


def reader(kind: str) -> Binding:
    if kind in TYPED:
        return bind(TYPED[kind], is_context=lambda annotation: False)
    return bind(lambda arguments: None, name=kind, input_schema=RAW[kind], is_context=lambda annotation: False)


def nested(depth: int, number: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"op": "leaf", "n": number}
    for level in range(depth):
        value = {"op": "and" if level % 2 else "or", "args": [value]}
    return value


def read(binding: Binding, value: Any) -> str:
    """Read arguments; the lines that refuse them, or nothing."""
    try:
        binding.arguments(msgspec.json.encode({"filter": value}))
    except (InvalidArguments, ProtocolError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [1, 4, 40, 55])
@pytest.mark.parametrize("number", [1, 1.0, 1.5, "1", "x", None], ids=str)
def test_a_recursive_choice_costs_what_its_size_says(kind: str, depth: int, number: Any) -> None:
    binding = reader(kind)
    read(binding, "no filter")
    value = nested(depth, number)
    size = len(msgspec.json.encode(value))
    told: list[str] = []
    assert steps_of(lambda: told.append(read(binding, value)), OF_ANY + PER_BYTE * size)
    # pydantic tries each alternative on each level anew, unless it is told which one is meant.
    is_too_deep = kind == "models" and depth > 4
    assert bool(told[0]) == (is_too_deep or number in (1.5, "x", None))
    if is_too_deep and number == 1:
        assert told[0] == 'Argument "filter": nested too deeply for a choice without a discriminator'


@pytest.mark.parametrize("kind", KINDS)
def test_the_place_of_a_mistake_in_a_recursive_choice_is_named(kind: str) -> None:
    told = read(reader(kind), nested(3, "x"))
    assert told == 'Argument "filter.args[0].args[0].args[0].n": expected an integer, got "x"'
