"""Work is bounded by the size of what a peer sent: a small multiple of it, for every shape.

Steps are counted, never time: lines of Python that run. What the engine of schemas does is not seen by this, so that
values which would keep it busy for years stand here too: without their bounds, these tests never end.
"""

from __future__ import annotations

from typing import Any, Literal, Union

import msgspec
import pytest
from tests.counted_steps import steps_of

from toolwire.protocol.errors import ProtocolError
from toolwire.server.binding import Binding, InvalidArguments, bind

# What reading any arguments may take, however short they are, and what each byte may add. A first refusal compiles the
# schema, which is paid before counting.
OF_ANY = 25_000
PER_BYTE = 60


class And(msgspec.Struct, tag="and", tag_field="op"):
    args: list[Filter]


class Or(msgspec.Struct, tag="or", tag_field="op"):
    args: list[Filter]


class Leaf(msgspec.Struct, tag="leaf", tag_field="op"):
    n: int


Filter = Union[And, Or, Leaf]  # noqa: UP007  the names in it are known later


def structs(filter: Filter) -> None:
    """Take a filter, as classes of msgspec."""


def branch(op: str, name: str, member: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"op": {"const": op}, name: member}, "required": ["op", name]}


ARGS = {"type": "array", "items": {"$ref": "#/$defs/filter"}}
CHOICES = [branch("and", "args", ARGS), branch("or", "args", ARGS), branch("leaf", "n", {"type": "integer"})]
ROOT = {"type": "object", "properties": {"filter": {"$ref": "#/$defs/filter"}}}
RAW = {kind: {**ROOT, "$defs": {"filter": {kind: CHOICES}}} for kind in ("anyOf", "oneOf")}


def reader(kind: Literal["structs", "anyOf", "oneOf"]) -> Binding:
    if kind == "structs":
        return bind(structs, is_context=lambda annotation: False)
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


@pytest.mark.parametrize("kind", ["structs", "anyOf", "oneOf"])
@pytest.mark.parametrize("depth", [1, 8, 40, 55])
@pytest.mark.parametrize("number", [1, 1.0, 1.5, "1", "x", None], ids=str)
def test_a_recursive_choice_costs_what_its_size_says(kind: Any, depth: int, number: Any) -> None:
    binding = reader(kind)
    read(binding, "no filter")
    value = nested(depth, number)
    size = len(msgspec.json.encode(value))
    told: list[str] = []
    steps = steps_of(lambda: told.append(read(binding, value)), OF_ANY + PER_BYTE * size)
    assert steps
    assert bool(told[0]) == (number in (1.5, "x", None))


@pytest.mark.parametrize("kind", ["structs", "anyOf", "oneOf"])
def test_the_place_of_a_mistake_in_a_recursive_choice_is_named(kind: Any) -> None:
    told = read(reader(kind), nested(3, "x"))
    assert told == 'Argument "filter.args[0].args[0].args[0].n": expected an integer, got "x"'
