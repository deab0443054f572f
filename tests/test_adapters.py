"""A Python type to its schema, from JSON and to JSON, whichever library does the reading."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import subprocess
import sys
import typing
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.adapters import Adapter, Invalid, Problem, adapter, elicitation_schema, evaluate

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Shape(enum.Enum):
    CIRCLE = "circle"
    SQUARE = "square"


@dataclass
class Place:
    """A place on earth."""

    city: str
    zip: int | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Dog:
    bark: int


@dataclass
class Cat:
    meow: int


@dataclass
class Bounded:
    size: Annotated[int, annotated_types.Interval(ge=1, lt=10)]
    pet: Dog | Cat


@dataclass
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not exceed high")


@dataclass
class Box(Generic[T]):
    item: T


class Row(TypedDict):
    id: Required[int]
    note: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int = 0


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str
    last_name: str = "Doe"


class Sealed(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Up(msgspec.Struct, tag="up"):
    by: int


class Down(msgspec.Struct, tag="down"):
    by: int


class Model(pydantic.BaseModel):
    """A model."""

    id: int
    name: str = pydantic.Field("x", max_length=5, description="Its name.")
    when: datetime.date | None = None


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    id: int


def problems_of(reader: Adapter, text: bytes) -> list[Problem]:
    with pytest.raises(Invalid) as caught:
        reader.decode(text)
    return caught.value.problems


ROUND_TRIPS: list[tuple[Any, Any]] = [
    (str, "a"),
    (int, 3),
    (float, 1.5),
    (bool, True),
    (type(None), None),
    (Any, {"a": [1, None]}),
    (list[int], [1, 2]),
    (list, [1, "a"]),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (dict[str, int], {"a": 1}),
    (dict[int, str], {1: "a"}),
    (dict, {"a": 1}),
    (typing.Sequence[int], [1]),
    (typing.Mapping[str, int], {"a": 1}),
    (Literal["a", 1], "a"),
    (Literal["a", None], None),
    (Colour, Colour.RED),
    (Size, Size.LARGE),
    (bytes, b"\x00\xff"),
    (datetime.datetime, datetime.datetime(2026, 1, 31, 9, 30, tzinfo=datetime.UTC)),
    (datetime.date, datetime.date(2026, 1, 31)),
    (datetime.time, datetime.time(9, 30)),
    (datetime.timedelta, datetime.timedelta(seconds=90)),
    (uuid.UUID, uuid.UUID(int=7)),
    (decimal.Decimal, decimal.Decimal("12.50")),
    (Path, Path("/tmp/x")),
    (Path | None, None),
    (list[Path], [Path("a")]),
    (Place, Place("Oslo", 150)),
    (Tree, Tree("a", [Tree("b")])),
    (Row, {"id": 1}),
    (Point, Point(1, 2)),
    (Renamed, Renamed("Ada")),
    (Up | Down, Down(2)),
    (Box[int], Box(3)),
    (list[Box[str]], [Box("a")]),
    (Dog | Cat, Cat(3)),
    (list[Dog | Cat], [Cat(3), Dog(1)]),
    (dict[str, Dog | Cat], {"a": Dog(1)}),
    (tuple[Dog | Cat, int], (Dog(1), 2)),
    (str | datetime.datetime, datetime.datetime(2026, 1, 31, 9, 30, tzinfo=datetime.UTC)),
    (str | datetime.datetime, "tomorrow"),
    (datetime.date | str, datetime.date(2026, 1, 31)),
    (Colour | Shape, Shape.SQUARE),
    (Colour | str, "zzz"),
    (uuid.UUID | int | str, 3),
    (str | Path, "a"),
    (list[int] | dict[str, int], {"a": 1}),
    (Bounded, Bounded(3, Cat(1))),
    (list[Bounded] | None, [Bounded(3, Dog(1))]),
    (Model, Model(id=1)),
    (list[Model], [Model(id=1, name="y")]),
    (Model | Place, Place("Oslo")),
    (dict[str, Model], {"a": Model(id=1)}),
]


@cases(("tp", "value"), ROUND_TRIPS, ids=lambda each: str(each)[:40])
@pytest.mark.covers("S5")
def test_every_type_goes_to_json_and_back(tp: Any, value: Any) -> None:
    reader = adapter(tp)
    text = reader.validate_output(value)
    assert reader.decode(text) == value
    assert type(reader.decode(text)) is type(value)


@cases(("tp", "value"), ROUND_TRIPS, ids=lambda each: str(each)[:40])
def test_the_schema_of_every_type_accepts_its_values(tp: Any, value: Any) -> None:
    reader = adapter(tp)
    plain = json.loads(reader.validate_output(value))
    for mode in ("output", "input"):
        validator = reader.validator(mode)
        assert validator is not None
        assert validator.check(plain) == []


@given(
    st.recursive(st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(), lambda inner: st.lists(inner))
)
def test_any_keeps_every_json_value(value: Any) -> None:
    reader = adapter(Any)
    assert reader.decode(reader.encode(value)) == value


@given(st.lists(st.one_of(st.builds(Dog, st.integers(0, 9)), st.builds(Cat, st.integers(0, 9)))))
def test_composed_unions_keep_the_class(pets: list[Any]) -> None:
    reader = adapter(list[Dog | Cat])
    assert reader.decode(reader.encode(pets)) == pets


# -- schemas ----------------------------------------------------------------------------------------------------------


def test_plain_schemas() -> None:
    assert adapter(int).schema() == {"type": "integer"}
    assert adapter(list[str]).schema() == {"type": "array", "items": {"type": "string"}}
    assert adapter(dict[str, float]).schema() == {"type": "object", "additionalProperties": {"type": "number"}}
    assert adapter(Colour).schema() == {"type": "string", "enum": ["r", "b"]}
    assert adapter(Literal["a", 1]).schema() == {"enum": ["a", 1]}
    assert adapter(int | float).schema() == {"type": "number"}
    assert adapter(Any | None).schema() == {}
    assert adapter(tuple[()]).schema() == {"type": "array", "items": False, "minItems": 0, "maxItems": 0}
    assert adapter(tuple[int, str]).schema() == {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": False,
        "minItems": 2,
        "maxItems": 2,
    }


def test_a_dataclass_has_no_generated_titles_and_optional_members_no_null() -> None:
    assert adapter(Place).schema("input") == {
        "type": "object",
        "description": "A place on earth.",
        "properties": {
            "city": {"type": "string"},
            "zip": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_output_schemas_keep_the_null_and_stay_open() -> None:
    schema = adapter(Place).schema("output")
    assert schema["properties"]["zip"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert "additionalProperties" not in schema


def test_definitions_appear_only_where_shared_or_recursive() -> None:
    assert "$defs" not in adapter(list[Place]).schema()
    assert list(adapter(tuple[Place, Place]).schema()["$defs"]) == ["Place"]
    tree = adapter(Tree).schema()
    assert tree["type"] == "object"
    assert tree["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_two_classes_of_one_name_do_not_meet() -> None:
    def other() -> Any:
        @dataclass
        class Place:
            x: int

        return Place

    second = other()
    schema = adapter(tuple[Place, second, Place, second]).schema()
    references = [place["$ref"] for place in schema["prefixItems"]]
    assert references[0] == references[2] != references[1] == references[3]
    assert [list(each["properties"]) for each in schema["$defs"].values()] == [["city", "zip", "tags"], ["x"]]


def test_schemas_are_the_same_every_time() -> None:
    first = json.dumps(adapter(Bounded).schema())
    assert all(json.dumps(adapter(Bounded).schema()) == first for _ in range(5))


def test_pydantic_schemas_are_compact_too() -> None:
    assert adapter(Model).schema("input") == {
        "type": "object",
        "description": "A model.",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string", "default": "x", "description": "Its name.", "maxLength": 5},
            "when": {"type": "string", "format": "date"},
        },
        "required": ["id"],
        "additionalProperties": False,
    }


def test_struct_members_use_their_wire_names() -> None:
    assert list(adapter(Renamed).schema()["properties"]) == ["firstName", "lastName"]
    assert adapter(Up).schema()["properties"]["type"] == {"const": "up"}


@pytest.mark.covers("S3")
@pytest.mark.parametrize("mode", ["input", "output"])
def test_a_named_tuple_is_an_object(mode: Any) -> None:
    schema = adapter(Point).schema(mode)
    assert schema["properties"] == {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}
    assert schema["required"] == ["x"]


@dataclass
class Drawing:
    corners: list[Point]
    by_name: dict[str, Point | int] = field(default_factory=dict)


class Sketch(msgspec.Struct, tag="sketch", rename="camel"):
    first_corner: Point
    other: Point | None = None
    gone: int | msgspec.UnsetType = msgspec.UNSET


@cases(
    ("tp", "value", "text"),
    [
        (Point, Point(1, 2), {"x": 1, "y": 2}),
        (list[Point], [Point(1)], [{"x": 1, "y": 0}]),
        (tuple[Point, int], (Point(1), 3), [{"x": 1, "y": 0}, 3]),
        (set[Point], {Point(1)}, [{"x": 1, "y": 0}]),
        (Drawing, Drawing([Point(1)], {"a": Point(2), "b": 3}), None),
        (Sketch, Sketch(Point(1)), {"type": "sketch", "firstCorner": {"x": 1, "y": 0}, "other": None}),
    ],
    ids=str,
)
def test_a_named_tuple_anywhere_is_written_with_names(tp: Any, value: Any, text: Any) -> None:
    reader = adapter(tp)
    written = reader.validate_output(value)
    assert text is None or json.loads(written) == text
    assert b'{"x":1,"y":0}' in written or b'{"x":1,"y":2}' in written
    assert reader.decode(written) == reader.decode_output(written) == value


def test_a_named_tuple_may_come_as_an_array() -> None:
    reader = adapter(list[Point])
    assert reader.decode(b"[[1,2],[3]]") == [Point(1, 2), Point(3)]
    for wrong in (b"[[]]", b"[[1,2,3]]", b'[["a"]]', b'[{"x":1,"z":2}]', b"[3]"):
        with pytest.raises(Invalid):
            reader.decode(wrong)


@pytest.mark.covers("S3")
def test_texts_in_annotated_become_descriptions() -> None:
    @dataclass
    class Query:
        text: Annotated[str, "What to look for."]
        place: Annotated[Place, "Where to look."]
        other: Place

    schema = adapter(Query, namespace={"Query": Query}).schema()
    assert schema["properties"]["text"] == {"type": "string", "description": "What to look for."}
    assert schema["properties"]["place"]["description"] == "Where to look."
    assert "description" not in schema["properties"]["other"]


# -- constraints ------------------------------------------------------------------------------------------------------

CONSTRAINTS: list[tuple[Any, bytes, bytes, dict[str, Any]]] = [
    (Annotated[int, msgspec.Meta(ge=1, lt=5)], b"4", b"5", {"minimum": 1, "exclusiveMaximum": 5}),
    (Annotated[int, annotated_types.Gt(0)], b"1", b"0", {"exclusiveMinimum": 0}),
    (Annotated[float, annotated_types.Le(2.5)], b"2.5", b"2.6", {"maximum": 2.5}),
    (Annotated[int, annotated_types.MultipleOf(3)], b"9", b"8", {"multipleOf": 3}),
    (Annotated[int, annotated_types.Interval(ge=1, le=2)], b"2", b"3", {"minimum": 1, "maximum": 2}),
    (Annotated[str, annotated_types.Len(1, 2)], b'"ab"', b'"abc"', {"minLength": 1, "maxLength": 2}),
    (Annotated[str, msgspec.Meta(pattern="^a+$")], b'"aa"', b'"b"', {"pattern": "^a+$"}),
    (Annotated[list[int], annotated_types.MinLen(1)], b"[1]", b"[]", {"minItems": 1}),
    (Annotated[dict[str, int], msgspec.Meta(max_length=1)], b'{"a":1}', b'{"a":1,"b":2}', {"maxProperties": 1}),
    (Annotated[list[Dog | Cat], msgspec.Meta(max_length=1)], b"[]", b'[{"bark":1},{"bark":2}]', {"maxItems": 1}),
    (Annotated[int, pydantic.Field(ge=1)], b"1", b"0", {"minimum": 1}),
    (Annotated[list[Model], msgspec.Meta(max_length=0)], b"[]", b'[{"id":1}]', {"maxItems": 0}),
]


@cases(("tp", "good", "bad", "keywords"), CONSTRAINTS, ids=lambda each: str(each)[:50])
@pytest.mark.covers("R14")
def test_constraints_are_enforced_and_described(tp: Any, good: bytes, bad: bytes, keywords: dict[str, Any]) -> None:
    reader = adapter(tp)
    reader.decode(good)
    with pytest.raises(Invalid):
        reader.decode(bad)
    assert keywords.items() <= reader.schema().items()


def test_constraints_inside_a_dataclass_hold() -> None:
    reader = adapter(Bounded)
    assert reader.decode(b'{"size":9,"pet":{"bark":1}}') == Bounded(9, Dog(1))
    assert problems_of(reader, b'{"size":10,"pet":{"bark":1}}')[0].path == ("size",)


def test_constraints_of_an_optional_apply_to_its_value() -> None:
    reader = adapter(Annotated[int | None, annotated_types.Ge(1)])
    assert reader.decode(b"null") is None
    with pytest.raises(Invalid):
        reader.decode(b"0")


@cases(
    "tp",
    [
        Annotated[str, annotated_types.Ge(1)],
        Annotated[bool, msgspec.Meta(ge=1)],
        Annotated[decimal.Decimal, annotated_types.Gt(0)],
        Annotated[int, annotated_types.Predicate(lambda value: value > 0)],
        Annotated[int, annotated_types.MinLen(1)],
        Annotated[Place, annotated_types.MinLen(1)],
        Annotated[int | str, msgspec.Meta(tz=True)],
        Annotated[int, msgspec.Meta(ge=1.5)],
    ],
    ids=range(8),
)
def test_constraints_that_cannot_hold_are_refused(tp: Any) -> None:
    with pytest.raises(TypeError, match="constraint"):
        adapter(tp)


class MixedValues(enum.Enum):
    A = 1
    B = "b"


@cases(
    "tp",
    [
        complex,
        object(),
        type("Odd", (), {}),
        dict[tuple[int, int], str],
        typing.Callable,
        type[int],
        MixedValues,
        set[Place],
        set[list[int]],
        Literal[b"x"],
    ],
    ids=range(10),
)
def test_types_without_a_json_form_are_refused(tp: Any) -> None:
    with pytest.raises(TypeError):
        adapter(tp)


# -- what is wrong ----------------------------------------------------------------------------------------------------


def test_every_problem_is_named_with_its_place() -> None:
    problems = problems_of(adapter(list[Place]), b'[{"city":1,"zip":"x"},{"town":"Oslo"}]')
    assert {problem.path for problem in problems} == {(0, "city"), (0, "zip"), (1, "town"), (1, "city")}
    assert {problem.kind for problem in problems} == {"invalid", "unknown", "missing"}


@cases("tp", [Place, Row, Renamed, Sealed, Model, Bounded], ids=lambda tp: tp.__name__)
def test_unknown_keys_are_refused_in_every_kind_of_class(tp: Any) -> None:
    problems = problems_of(adapter(list[tp]), b'[{"surely_unknown":1}]')
    assert any(problem.kind == "unknown" and problem.path == (0, "surely_unknown") for problem in problems)


def test_an_unknown_key_alone_is_refused_with_the_nearest_name() -> None:
    problems = problems_of(adapter(Place), b'{"city":"Oslo","zipp":3}')
    assert problems == [Problem(("zipp",), 'did you mean "zip"?', "unknown")]


def test_a_flood_of_unknown_keys_is_answered_briefly() -> None:
    flood = {f"key{n}": 1 for n in range(20_000)}
    for tp in (Place, list[Place], dict[str, Place], Dog | Cat, Model):
        many = {list[Place]: [flood] * 20, dict[str, Place]: {"a": flood}}.get(tp, flood)
        assert len(problems_of(adapter(tp), msgspec.json.encode(many))) <= 25


def test_a_tagged_union_looks_for_unknown_keys_in_the_right_class() -> None:
    reader = adapter(Up | Down)
    assert reader.decode(b'{"type":"up","by":1}') == Up(1)
    for text in (b'{"type":"up","by":1,"buy":2}', b'{"type":"up","buy":2,"by":"x"}'):
        assert Problem(("buy",), 'did you mean "by"?', "unknown") in problems_of(reader, text)


def test_a_model_that_allows_extra_keys_keeps_them() -> None:
    assert adapter(OpenModel).decode(b'{"id":1,"more":2}').more == 2


def test_what_a_class_itself_refuses_is_passed_on() -> None:
    assert problems_of(adapter(Checked), b'{"low":2,"high":1}') == [Problem((), "low must not exceed high")]
    assert problems_of(adapter(Checked | Dog), b'{"low":2,"high":1}')


def test_formats_are_checked_by_the_type() -> None:
    assert 'such as "2026-01-31"' in problems_of(adapter(datetime.date), b'"soon"')[0].message
    assert problems_of(adapter(Tree | Place), b'"x"')


@cases("text", [b"", b"{", b"[1", b"\xff", b'"\\ud800"', b"1" * 5000])
def test_what_is_not_json_is_invalid(text: bytes) -> None:
    for tp in (int, Dog | Cat, Model):
        with pytest.raises(Invalid):
            adapter(tp).decode_lenient(text)


def test_deep_nesting_is_invalid_and_no_crash() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    for tp in (Any, list[Dog | Cat], Model, list):
        with pytest.raises(Invalid):
            adapter(tp).decode_lenient(deep)


def test_messages_have_no_library_addresses() -> None:
    with pytest.raises(Invalid) as caught:
        adapter(Model).decode(b'{"id":"x","name":"much too long"}')
    assert "http" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


@cases("tp", [Place, Row, Renamed, Model, Bounded | Place], ids=str)
def test_what_someone_else_wrote_may_have_more_keys(tp: Any) -> None:
    text = b'{"city":"Oslo","id":1,"firstName":"Ada","more":{"x":1}}'
    adapter(tp).decode_output(text)
    with pytest.raises(Invalid):
        adapter(tp).decode(text)
    with pytest.raises(Invalid):
        adapter(tp).decode_output(b'{"more":1}')


def test_a_pattern_that_only_python_knows_still_refuses() -> None:
    reader = adapter(Annotated[str, msgspec.Meta(pattern=r"(?a:\w+)\Z(?#end)")])
    assert reader.decode(b'"abc"') == "abc"
    assert problems_of(reader, b'"!"')


# -- other readings ---------------------------------------------------------------------------------------------------


@cases(
    ("tp", "text", "value"),
    [
        (int, b'"3"', 3),
        (int, b"3.0", 3),
        (float, b'"1.5"', 1.5),
        (bool, b'"True"', True),
        (int | None, b'"3"', 3),
        (int | None, b'"null"', None),
        (list[int], b'"[1, 2]"', [1, 2]),
        (list[int], b'["1", 2.0]', [1, 2]),
        (Place, b'"{\\"city\\": \\"Oslo\\"}"', Place("Oslo")),
        (Dog | Cat, b'{"meow": "3"}', Cat(3)),
        (dict[str, int], b'{"a": "1"}', {"a": 1}),
        (Size, b'"2"', Size.LARGE),
        (Literal[1, 2], b'"2"', 2),
    ],
    ids=str,
)
def test_stand_ins_are_understood(tp: Any, text: bytes, value: Any) -> None:
    assert adapter(tp).decode_lenient(text) == value


@cases(
    ("tp", "text", "value"),
    [
        (str, b'"123"', "123"),
        (str, b'"{\\"a\\": 1}"', '{"a": 1}'),
        (str | int, b'"3"', "3"),
        (Any, b'"3"', "3"),
        (list[str], b'["1"]', ["1"]),
        (str | None, b'"null"', "null"),
    ],
    ids=str,
)
def test_strings_are_left_alone_where_a_string_fits(tp: Any, text: bytes, value: Any) -> None:
    assert adapter(tp).decode_lenient(text) == value


def test_a_string_is_not_made_of_something_else() -> None:
    for tp in (str, Literal["3"], Colour):
        with pytest.raises(Invalid):
            adapter(tp).decode_lenient(b"3")


def test_decode_takes_values_only_as_sent() -> None:
    with pytest.raises(Invalid):
        adapter(int).decode(b'"3"')


# -- output -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("R17", "E17")
@cases(
    ("tp", "value"),
    [
        (int, "x"),
        (list[Place], [{"town": "Oslo"}]),
        (Place, Dog(1)),
        (Dog | Cat, {"purr": 1}),
        (Model, {"id": "many"}),
        (float, float("nan")),
        (Annotated[int, msgspec.Meta(ge=1)], 0),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_its_type_is_refused(tp: Any, value: Any) -> None:
    with pytest.raises(Invalid):
        adapter(tp).validate_output(value)


def test_a_value_without_a_json_form_is_a_type_error_that_names_the_type() -> None:
    with pytest.raises(TypeError, match="object"):
        adapter(Any).validate_output(object())


def test_plain_dicts_fit_a_declared_class() -> None:
    assert adapter(Place).validate_output({"city": "Oslo"}) == b'{"city":"Oslo"}'
    assert json.loads(adapter(Model).validate_output({"id": 1})) == {"id": 1, "name": "x", "when": None}


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_class_local_to_a_function_resolves_by_the_namespace() -> None:
    @dataclass
    class Inner:
        x: int

    @dataclass
    class Outer:
        inner: Inner
        more: list[Inner] = field(default_factory=list)

    class Record(msgspec.Struct):
        inner: Inner
        count: int = 3
        items: list[int] = []

    names = {"Inner": Inner}
    assert adapter(Outer, namespace=names).decode(b'{"inner":{"x":1}}') == Outer(Inner(1))
    assert adapter(Record, namespace=names).decode(b'{"inner":{"x":1}}') == Record(Inner(1))
    assert adapter(Record, namespace=names).schema()["properties"]["count"] == {"type": "integer", "default": 3}


def test_a_missing_name_is_named() -> None:
    @dataclass
    class Outer:
        inner: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="'Nowhere'"):
        adapter(Outer)


def test_pydantic_is_imported_only_for_types_that_need_it() -> None:
    code = (
        "import sys, dataclasses, toolwire.adapters as a, toolwire.server.binding\n"
        "d = dataclasses.make_dataclass('D', [('x', int)])\n"
        "a.adapter(d | list[d] | None).decode_lenient(b'{\"x\": 1}')\n"
        "print([m for m in ('pydantic', 'jsonschema_rs', 'annotated_types') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- forms ------------------------------------------------------------------------------------------------------------


@dataclass
class Order:
    lang: Literal["pt", "en"]
    size: Annotated[int, msgspec.Meta(gt=0, le=10)] = 1
    email: Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"}, max_length=50)] = ""
    day: datetime.date | None = None
    parts: Annotated[list[Literal["sum", "raw"]], msgspec.Meta(min_length=1)] = field(default_factory=lambda: ["sum"])
    gift: bool = False


@pytest.mark.covers("1.16.2.1", "1.16.2.5")
def test_a_form_of_a_dataclass() -> None:
    schema, unpack = elicitation_schema(Order)
    assert schema == {
        "type": "object",
        "properties": {
            "lang": {"type": "string", "enum": ["pt", "en"]},
            "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
            "email": {"type": "string", "maxLength": 50, "format": "email", "default": ""},
            "day": {"type": "string", "format": "date"},
            "parts": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["sum", "raw"]}},
            "gift": {"type": "boolean", "default": False},
        },
        "required": ["lang"],
    }
    assert unpack({"lang": "pt", "size": 3, "day": "2026-01-31"}).day == datetime.date(2026, 1, 31)
    assert unpack(msgspec.Raw(b'{"lang":"en","day":null}')).parts == ["sum"]


@pytest.mark.covers("1.16.2.4")
def test_enums_are_titled_where_their_names_say_more() -> None:
    schema, unpack = elicitation_schema(Colour)
    titled = [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]
    assert schema == {
        "type": "object",
        "properties": {"value": {"type": "string", "oneOf": titled}},
        "required": ["value"],
    }
    assert unpack({"value": "r"}) is Colour.RED
    many, unpack_many = elicitation_schema(list[Colour])
    assert many["properties"]["value"] == {"type": "array", "items": {"anyOf": titled}}
    assert unpack_many({"value": ["r", "b"]}) == [Colour.RED, Colour.BLUE]
    assert elicitation_schema(Shape)[0]["properties"]["value"] == {"type": "string", "enum": ["circle", "square"]}


@cases(
    ("tp", "member", "answer", "value"),
    [
        (bool, {"type": "boolean"}, True, True),
        (int, {"type": "integer"}, 3, 3),
        (float, {"type": "number"}, 95.5, 95.5),
        (str, {"type": "string"}, "a", "a"),
        (datetime.datetime, {"type": "string", "format": "date-time"}, "2026-01-31T00:00:00Z", None),
        (Annotated[str, "Your name."], {"type": "string", "description": "Your name."}, "Ada", "Ada"),
    ],
    ids=str,
)
def test_one_value_is_asked_for_under_value(tp: Any, member: Any, answer: Any, value: Any) -> None:
    schema, unpack = elicitation_schema(tp)
    assert schema == {"type": "object", "properties": {"value": member}, "required": ["value"]}
    assert unpack({"value": answer}) == (value if value is not None else datetime.datetime.fromisoformat(answer))


@cases("tp", [Row, Model, Renamed], ids=lambda tp: tp.__name__)
def test_forms_of_the_other_kinds_of_class(tp: Any) -> None:
    schema, _ = elicitation_schema(tp)
    assert all(member["type"] in ("string", "integer") for member in schema["properties"].values())


@pytest.mark.covers("1.16.2.7", "ELI-10")
def test_answers_are_checked_on_receipt() -> None:
    _, unpack = elicitation_schema(Order)
    for wrong in ({"lang": "fr"}, {}, {"lang": "pt", "size": 0}, {"lang": "pt", "extra": 1}, [], None):
        with pytest.raises(Invalid):
            unpack(wrong)
    _, one = elicitation_schema(int)
    for wrong in ({}, {"value": "many"}, {"value": None}):
        with pytest.raises(Invalid):
            one(wrong)


@cases("tp", [Tree, list[int], dict[str, int], Bounded, Size, list[Place], Box[Place]], ids=str)
def test_what_is_not_flat_cannot_be_asked_for(tp: Any) -> None:
    with pytest.raises(TypeError, match="a form asks for"):
        elicitation_schema(tp)


def test_plain_name_that_the_module_or_the_function_defines_is_theirs() -> None:
    class Own:
        """A class that is called `str` where it is used."""

    assert evaluate("str", {}, {}, "f") is str
    assert evaluate("str", {"str": Own}, {}, "f") is Own
    assert evaluate("str", {}, {"str": Own}, "f") is Own
    assert evaluate("None", {}, {}, "f") is type(None)
