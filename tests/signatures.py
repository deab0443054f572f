"""Signatures of tools, one of each kind that a schema has to say: what every vendor of models must take.

`OPEN` names those that take any value somewhere. Strict modes need a type everywhere and cannot take them.
`python tests/signatures.py PROFILE` serves a tool for each of them over stdio.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import inspect
import sys
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import annotated_types
import msgspec
import pydantic

from toolwire import Server, Tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    MIDDLE = 5
    HIGH = 9


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    """A place on a map."""

    x: float
    y: float = 0
    label: str | None = None


@dataclass
class Route:
    start: Point
    end: Annotated[Point, "Where it ends."]
    via: list[Point] = field(default_factory=list)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Link:
    value: int
    next: Annotated[Link | None, "What follows."] = None


@dataclass
class Dog:
    barks: int


@dataclass
class Cat:
    lives: int = 9


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Span(NamedTuple):
    low: int
    high: int = 10


class Create(msgspec.Struct, tag="create"):
    name: str
    size: int = 1


class Delete(msgspec.Struct, tag="delete"):
    name: str


class Numbered(msgspec.Struct, tag=7, tag_field="version"):
    name: str


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str
    last_name: str = "Doe"


class Nothing(msgspec.Struct):
    pass


class Model(pydantic.BaseModel):
    """A model."""

    id: int
    name: str = pydantic.Field("x", max_length=5, description="Its name.")
    when: datetime.date | None = None


class Limits(pydantic.BaseModel):
    share: float = pydantic.Field(gt=0, lt=1)
    step: int = pydantic.Field(multiple_of=5, gt=0)
    names: set[str] = set()
    secret: pydantic.SecretStr | None = None
    data: bytes = b""
    price: decimal.Decimal = decimal.Decimal(1)
    pair: tuple[int, str] = (1, "a")
    kind: Literal["only"] = "only"


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    id: int


class ClosedModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    id: int


class Square(pydantic.BaseModel):
    kind: Literal["square"]
    side: float


class Circle(pydantic.BaseModel):
    kind: Literal["circle"]
    radius: float


class Nested(pydantic.BaseModel):
    shapes: list[Annotated[Square | Circle, pydantic.Field(discriminator="kind")]]
    parent: Nested | None = None


Given = Mapping[str, Any]
REQUIRED = inspect.Parameter.empty


def of(annotation: Any, default: Any = REQUIRED) -> Given:
    return {"value": (annotation, default)}


SIGNATURES: dict[str, Given] = {
    "no arguments": {},
    "string": of(str),
    "integer": of(int),
    "number": of(float),
    "boolean": of(bool),
    "null": of(None),
    "no annotation": of(REQUIRED),
    "any": of(Any),
    "several": {"name": (str, REQUIRED), "count": (int, 3), "note": (str | None, None), "ratio": (float, 0.5)},
    "optional": of(int | None, None),
    "optional without a default": of(str | None),
    "optional with another default": of(int | None, 5),
    "default": of(int, 5),
    "default of another type": of(int, None),
    "described": of(Annotated[int, "How many."]),
    "described optional": of(Annotated[int | None, "How many."], None),
    "bare list": of(list),
    "bare dict": of(dict),
    "bare tuple": of(tuple),
    "bare set": of(set),
    "list of any": of(list[Any]),
    "list of strings": of(list[str]),
    "list of lists": of(list[list[int]]),
    "list with a default": of(list[str], []),
    "sequence": of(Sequence[int]),
    "set": of(set[int]),
    "frozenset": of(frozenset[str]),
    "tuple of one type": of(tuple[int, ...]),
    "pair": of(tuple[int, str]),
    "pair of one type": of(tuple[float, float]),
    "empty tuple": of(tuple[()]),
    "tuple of records": of(tuple[Point, Dog]),
    "described pair": of(Annotated[tuple[int, str], "A number and its name."]),
    "dict of integers": of(dict[str, int]),
    "dict of any": of(dict[str, Any]),
    "dict of records": of(dict[str, Point]),
    "dict by number": of(dict[int, str]),
    "dict by UUID": of(dict[uuid.UUID, int]),
    "dict by choice": of(dict[Literal["a", "b"], int]),
    "mapping": of(Mapping[str, float]),
    "union of plain types": of(int | str),
    "described union": of(Annotated[int | str, "A number or a name."], 3),
    "union with lists": of(list[int] | str),
    "optional union": of(int | list[str] | None, None),
    "union of numbers": of(int | float),
    "union of records": of(Dog | Cat),
    "list of a union": of(list[Dog | Cat]),
    "tagged union": of(Create | Delete),
    "tag that is a number": of(Numbered),
    "discriminated union": of(Annotated[Square | Circle, pydantic.Field(discriminator="kind")]),
    "literal of strings": of(Literal["a", "b"], "a"),
    "literal of one string": of(Literal["only"]),
    "literal of integers": of(Literal[1, 2, 3]),
    "literal of far integers": of(Literal[1, 10, 100], 10),
    "literal of a boolean": of(Literal[True]),
    "mixed literal": of(Literal["auto", 0, 1]),
    "literal or null": of(Literal["a", None], None),
    "enum": of(Colour),
    "enum with a default": of(Colour, Colour.RED),
    "enum of integers": of(Level),
    "flag": of(Rights),
    "list of an enum": of(list[Colour]),
    "bytes": of(bytes),
    "described bytes": of(Annotated[bytes, "A picture."]),
    "date and time": of(datetime.datetime),
    "date": of(datetime.date),
    "time": of(datetime.time),
    "duration": of(datetime.timedelta),
    "decimal": of(decimal.Decimal),
    "UUID": of(uuid.UUID),
    "path": of(Path),
    "bounds": of(Annotated[int, msgspec.Meta(ge=1, le=9)]),
    "open bounds": of(Annotated[int, msgspec.Meta(gt=0, lt=10)]),
    "open bounds of a number": of(Annotated[float, msgspec.Meta(gt=0, lt=1)]),
    "multiple": of(Annotated[int, msgspec.Meta(multiple_of=5)]),
    "length": of(Annotated[str, msgspec.Meta(min_length=1, max_length=9)]),
    "pattern": of(Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]),
    "items": of(Annotated[list[int], msgspec.Meta(min_length=1, max_length=3)]),
    "members": of(Annotated[dict[str, int], msgspec.Meta(min_length=1)]),
    "examples": of(Annotated[int, msgspec.Meta(description="How many.", examples=[3, 5])]),
    "interval": of(Annotated[int, annotated_types.Interval(gt=1, le=5)]),
    "dataclass": of(Point),
    "described record": of(Annotated[Point, "Where to go."]),
    "optional record": of(Point | None, None),
    "record with a default": of(Point, Point(1)),
    "nested record": of(Route),
    "recursive record": of(Tree),
    "recursive record with a text": of(Link),
    "the same record twice": {"a": (Point, REQUIRED), "b": (Point, REQUIRED), "c": (list[Point], REQUIRED)},
    "typed dict": of(Row),
    "named tuple": of(Span),
    "list of named tuples": of(list[Span]),
    "struct": of(Renamed),
    "struct without members": of(Nothing),
    "pydantic model": of(Model),
    "pydantic limits": of(Limits),
    "open pydantic model": of(OpenModel),
    "closed pydantic model": of(ClosedModel),
    "nested pydantic model": of(Nested),
    "pydantic field": of(int, pydantic.Field(3, gt=0, description="How many.")),
    "pydantic union": of(Model | str | None, None),
    "list of pydantic models": of(list[Model]),
    "pydantic address": of(pydantic.AnyUrl),
}
# These take any value somewhere.
OPEN = ("no annotation", "any", "bare list", "bare tuple", "bare set", "list of any")
# These have members that no schema names, which strict modes cannot say.
DICTS = (
    "bare dict", "dict of any", "dict of integers", "dict of records", "dict by number", "dict by UUID",
    "dict by choice", "mapping", "members",
)  # fmt: skip
# These refer to themselves, which needs a `$ref`.
RECURSIVE = ("recursive record", "recursive record with a text", "nested pydantic model")


def function(given: Given) -> Callable[..., Any]:
    """Make a function with the parameters given."""

    def tool(**arguments: Any) -> str:
        return repr(arguments)

    kind = inspect.Parameter.KEYWORD_ONLY
    tool.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind, annotation=tp, default=default) for name, (tp, default) in given.items()],
        return_annotation=str,
    )
    return tool


def tool_name(label: str) -> str:
    return label.replace(" ", "_").replace("-", "_")


def tool(label: str, profile: typing.Literal["portable", "nullable"] = "portable") -> Tool:
    """Make the tool of one signature."""
    return Tool(
        function(SIGNATURES[label]),
        name=tool_name(label),
        description=f"Take one value: {label}. Return it as a text.",
        schema_profile=profile,
    )


def main(profile: typing.Literal["portable", "nullable"]) -> None:
    Server("signatures", tools=[tool(label, profile) for label in SIGNATURES]).run()


if __name__ == "__main__":
    main(sys.argv[1])  # type: ignore[arg-type]
