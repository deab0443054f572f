"""A function to its schemas, its arguments, its call and its result."""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import itertools
import json
import typing
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from toolwire.content import Audio, Image, ToolResult
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError, ToolError
from toolwire.protocol.types import CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent
from toolwire.schemas import SchemaError
from toolwire.server.binding import Binding, Header, InvalidArguments, ResultError, bind

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8


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


class Row(TypedDict):
    id: int


class Point(NamedTuple):
    x: int
    y: int


class Reading(msgspec.Struct):
    value: int


class Colour(enum.Enum):
    RED = "r"


class Model(pydantic.BaseModel):
    id: int


# ---------------------------------------------------------------------------------------------------------------------
# Input schemas
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("S2", "R3", "E1")
def test_a_signature_becomes_a_schema() -> None:
    async def forecast(city: str, days: int = 1, unit: Literal["c", "f"] = "c", near: Place | None = None) -> str:
        """Forecast for a city.

        Args:
            city: Name of the city.
            days: How many days ahead.
        """
        return city

    bound = binding(forecast)
    assert bound.name == "forecast"
    assert bound.description == "Forecast for a city."
    assert bound.is_async
    assert bound.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city."},
            "days": {"type": "integer", "description": "How many days ahead.", "default": 1},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "near": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
                "required": ["city"],
            },
        },
        "required": ["city"],
    }


def test_no_arguments() -> None:
    def now() -> str:
        return "now"

    bound = binding(now)
    assert bound.input_schema == {"type": "object", "properties": {}}
    assert bound.arguments() == bound.arguments(UNSET) == bound.arguments(b"{}") == bound.arguments(b"null") == {}
    assert refused(bound, {"x": 1}) == ['Unknown argument "x": none is expected here']


@pytest.mark.covers("J11", "J12")
def test_defaults_are_in_the_schema_and_applied() -> None:
    marker = object()

    def tool(
        a: int = 3,
        b: list[str] = ["x"],  # noqa: B006
        c: Colour = Colour.RED,
        d: Place = Place("Oslo"),
        e: Any = marker,
        f: float | None = None,
        g: datetime.date = datetime.date(2026, 1, 31),
    ) -> None: ...

    bound = binding(tool)
    properties = bound.input_schema["properties"]
    assert {name: member["default"] for name, member in properties.items() if "default" in member} == {
        "a": 3,
        "b": ["x"],
        "c": "r",
        "d": {"city": "Oslo", "zip": None},
        "g": "2026-01-31",
    }
    assert "required" not in bound.input_schema
    values = bound.arguments(b"{}")
    assert values == {
        "a": 3,
        "b": ["x"],
        "c": Colour.RED,
        "d": Place("Oslo"),
        "e": marker,
        "f": None,
        "g": datetime.date(2026, 1, 31),
    }
    assert [(each.name, each.required) for each in bound.parameters[:2]] == [("a", False), ("b", False)]


@pytest.mark.covers("S4")
def test_optional_types_are_not_required_and_null_is_still_taken() -> None:
    def tool(a: int | None, b: Optional[str] = None, c: int = None) -> None: ...  # type: ignore[assignment]  # noqa: UP045, RUF013

    bound = binding(tool)
    assert "required" not in bound.input_schema
    assert bound.input_schema["properties"]["a"] == {"type": "integer"}
    assert bound.input_schema["properties"]["c"] == {"type": "integer"}
    assert bound.arguments(b"{}") == {"a": None, "b": None, "c": None}
    assert bound.arguments(b'{"a":null,"b":null,"c":null}') == {"a": None, "b": None, "c": None}
    assert bound.arguments(b'{"a":1}')["a"] == 1


def test_explicit_texts_win_over_the_docstring() -> None:
    def tool(
        a: Annotated[int, "From the annotation."],
        b: Annotated[int, msgspec.Meta(description="From Meta.")],
        c: Annotated[int, pydantic.Field(description="From Field.")],
        d: int,
        e: Annotated[int, annotated_types.Ge(1)],
    ) -> None:
        """Do it.

        :param a: docstring
        :param b: docstring
        :param c: docstring
        :param d: From the docstring.
        :param e: Also from the docstring.
        """

    bound = binding(tool, description="Mine.")
    assert bound.description == "Mine."
    assert [each.description for each in bound.parameters] == [
        "From the annotation.",
        "From Meta.",
        "From Field.",
        "From the docstring.",
        "Also from the docstring.",
    ]
    described = [member["description"] for member in bound.input_schema["properties"].values()]
    assert described == [each.description for each in bound.parameters]


def test_definitions_are_shared_across_parameters() -> None:
    def tool(a: Place, b: Place, c: Forecast, d: list[Model], e: Model) -> None: ...

    schema = binding(tool).input_schema
    assert sorted(schema["$defs"]) == ["Model", "Place"]
    assert schema["properties"]["a"] == schema["properties"]["b"] == {"$ref": "#/$defs/Place"}
    assert "$ref" not in json.dumps(schema["properties"]["c"])


def test_pydantic_field_as_the_default() -> None:
    def tool(
        a: int = pydantic.Field(ge=1, description="A."),
        b: int = pydantic.Field(5, le=9),
        c: str = pydantic.Field("x", alias="see"),
    ) -> None: ...

    bound = binding(tool)
    assert bound.input_schema["required"] == ["a"]
    assert bound.input_schema["properties"] == {
        "a": {"type": "integer", "minimum": 1, "description": "A."},
        "b": {"type": "integer", "maximum": 9, "default": 5},
        "see": {"type": "string", "default": "x"},
    }
    assert bound.arguments(b'{"a":1,"see":"y"}') == {"a": 1, "b": 5, "c": "y"}
    assert len(refused(bound, {"a": 0, "b": 10})) == 2


def test_what_a_pydantic_field_makes_or_holds_is_new_for_each_call() -> None:
    def tool(
        number: Annotated[int, pydantic.Field(default_factory=itertools.count(7).__next__)],
        made: list[str] = pydantic.Field(default_factory=list),
        given: list[str] = pydantic.Field(["x"]),
        model: Model = pydantic.Field(default_factory=lambda: Model(id=1)),
    ) -> None: ...

    bound = binding(tool)
    assert "required" not in bound.input_schema
    shown = {name: member.get("default") for name, member in bound.input_schema["properties"].items()}
    assert shown == {"made": None, "given": ["x"], "model": None, "number": None}
    first, second = bound.arguments(b"{}"), bound.arguments(b"{}")
    for name in ("made", "given", "model"):
        assert first[name] == second[name]
        assert first[name] is not second[name]
    assert (first["number"], second["number"]) == (7, 8)


def test_a_factory_that_fails_is_no_mistake_of_the_caller() -> None:
    def tool(model: Model = pydantic.Field(default_factory=lambda: Model(id="x"))) -> None: ...  # type: ignore[arg-type]

    with pytest.raises(pydantic.ValidationError):
        binding(tool).arguments(b"{}")


def test_a_factory_of_a_default_takes_no_arguments() -> None:
    def tool(a: int, b: int = pydantic.Field(default_factory=lambda data: data["a"])) -> None: ...

    with pytest.raises(TypeError, match="takes no arguments"):
        binding(tool)


@pytest.mark.covers("R31")
def test_patterns_of_the_schema_layer() -> None:
    def run(command: str, args: list[str]) -> None: ...
    def issue(title: str, labels: list[str] = []) -> None: ...  # noqa: B006
    def analyse(operations: list[Literal["sum", "average"]]) -> None: ...

    array_of_strings = {"type": "array", "items": {"type": "string"}}
    assert binding(run).input_schema["properties"]["args"] == array_of_strings
    assert binding(issue).input_schema["properties"]["labels"] == {**array_of_strings, "default": []}
    assert binding(analyse).input_schema["properties"]["operations"]["items"]["enum"] == ["sum", "average"]
    raw = {
        "type": "object",
        "properties": {"operations": {"type": "array", "items": {"enum": ["sum", "average", "count"]}}},
    }
    bound = binding(lambda args: None, name="raw", input_schema=raw)
    assert bound.arguments(b'{"operations":["sum"]}') == {"args": {"operations": ["sum"]}}
    assert refused(bound, {"operations": ["max"]})


@pytest.mark.parametrize("star", ["args", "kwargs"])
def test_open_signatures_are_refused(star: str) -> None:
    def positional(*args: int) -> None: ...
    def keyword(**kwargs: int) -> None: ...

    with pytest.raises(ServerError, match=star):
        binding(positional if star == "args" else keyword)


def test_what_cannot_be_described_is_refused_with_its_place() -> None:
    class Odd:
        pass

    def tool(a: Odd) -> None: ...
    def result() -> Odd: ...

    with pytest.raises(TypeError, match=r"tool, parameter 'a': Odd"):
        binding(tool)
    with pytest.raises(TypeError, match=r"result, result: Odd"):
        binding(result)
    with pytest.raises(ServerError, match="name="):
        binding(lambda: None)


# ---------------------------------------------------------------------------------------------------------------------
# Names
# ---------------------------------------------------------------------------------------------------------------------


def test_types_local_to_a_builder_resolve() -> None:
    def build() -> Binding:
        @dataclass
        class Local:
            x: int
            more: list[Local] = field(default_factory=list)

        def tool(a: Local, b: dict[str, Local] | None = None) -> list[Local]:
            return [a]

        return binding(tool)

    bound = build()
    value = bound.arguments(b'{"a":{"x":1,"more":[{"x":2}]}}')["a"]
    assert value.more[0].x == 2
    assert bound.output_schema is not None


def test_a_local_type_wins_over_a_module_type_of_that_name() -> None:
    def build() -> Binding:
        @dataclass
        class Place:
            other: int

        def tool(a: Place) -> None: ...

        return binding(tool)

    assert build().arguments(b'{"a":{"other":1}}')["a"].other == 1


def test_a_missing_name_is_named() -> None:
    def tool(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"tool use 'Missing'"):
        binding(tool)


def test_a_context_known_to_type_checkers_only() -> None:
    def tool(a: int, where: types.Context) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def plain(a: int, where: SyncContext | None) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert binding(tool).context_parameter == binding(plain).context_parameter == "where"


def test_methods_partials_wrappers_and_callable_objects() -> None:
    class Tools:
        def method(self, a: int) -> str:
            """A method."""
            return f"method {a}"

        @staticmethod
        def static(a: int) -> str:
            return f"static {a}"

        def __call__(self, a: int) -> str:
            return f"called {a}"

    def plain(a: int, b: int) -> str:
        return f"{a} {b}"

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return "wrapped " + function(*args, **kwargs)

        return inner

    def call(bound: Binding) -> Any:
        return bound.call(bound.arguments(b'{"a":1}'))

    assert call(binding(Tools().method)) == "method 1"
    assert binding(Tools().method).description == "A method."
    assert call(binding(Tools.static)) == "static 1"
    assert call(binding(Tools())) == "called 1"
    assert call(binding(functools.partial(plain, b=2))) == "1 2"
    assert call(binding(decorate(Tools().method))) == "wrapped method 1"


# ---------------------------------------------------------------------------------------------------------------------
# Calling
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("J29", "S7")
def test_the_context_goes_where_it_is_asked_for() -> None:
    context = Context()

    def first(ctx: Context, a: int) -> Any:
        return ctx, a

    def last(a: int, ctx=None) -> Any:  # type: ignore[no-untyped-def]
        return ctx, a

    def maybe(a: int, c: Context | None = None) -> Any:
        return c, a

    def without(a: int) -> Any:
        return context, a

    for function in (first, last, maybe, without):
        bound = binding(function)
        assert list(bound.input_schema["properties"]) == ["a"]
        assert bound.call(bound.arguments(b'{"a":1}'), context) == (context, 1)


def test_the_context_is_taken_once() -> None:
    def tool(a: Context, b: Context) -> None: ...

    with pytest.raises(ServerError, match="twice"):
        binding(tool)


def test_every_kind_of_parameter_is_filled() -> None:
    def tool(a: int, /, b: int, *, c: int, ctx: Context) -> Any:
        return a, b, c, ctx

    bound = binding(tool)
    assert bound.call(bound.arguments(b'{"a":1,"b":2,"c":3}'), "context") == (1, 2, 3, "context")


@pytest.mark.covers("E10", "J29")
def test_a_raw_handler_takes_the_arguments_and_perhaps_the_context() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}

    def one(arguments):  # type: ignore[no-untyped-def]
        return arguments

    def two(arguments, context):  # type: ignore[no-untyped-def]
        return arguments, context

    def annotated(arguments: dict[str, Any], c: Context) -> Any:
        return arguments, c

    def named(a: int, b: int = 7) -> Any:
        return a, b

    def neither() -> Any:
        return "none"

    def call(function: Callable[..., Any]) -> Any:
        bound = binding(function, input_schema=schema)
        return bound.call(bound.arguments(b'{"a":1}'), "context")

    assert call(one) == {"a": 1}
    assert call(two) == ({"a": 1}, "context")
    assert call(annotated) == ({"a": 1}, "context")
    assert call(named) == (1, 7)
    assert call(neither) == "none"
    with pytest.raises(ServerError, match="raw input schema"):
        binding(lambda x, y, z: None, name="odd", input_schema=schema)


def test_kinds_of_function() -> None:
    def plain() -> None: ...
    async def coroutine() -> None: ...
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    kinds = [
        (bound.is_async, bound.is_generator, bound.is_async_generator)
        for bound in map(binding, (plain, coroutine, generator, async_generator))
    ]
    assert kinds == [(False, False, False), (True, False, False), (False, True, False), (True, False, True)]


# ---------------------------------------------------------------------------------------------------------------------
# Arguments that do not fit
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("E16", "R14", "JSC-6")
def test_every_bad_argument_gets_a_line() -> None:
    def tool(
        city: str,
        days: Annotated[int, msgspec.Meta(ge=1, le=10)],
        when: datetime.datetime,
        near: Place,
        colour: Colour,
        models: list[Model],
        id: uuid.UUID = uuid.UUID(int=0),
    ) -> None: ...

    found = refused(
        binding(tool),
        {
            "citty": "Oslo",
            "days": 11,
            "when": "tomorrow",
            "near": {"city": "x", "zipp": 3},
            "colour": "g",
            "models": [{"id": 1}, {"id": "many"}],
            "id": "12",
        },
    )
    assert sorted(found) == sorted(
        [
            'Unknown argument "citty": did you mean "city"?',
            'Missing argument "city": expected a string',
            'Argument "days": expected an integer of at least 1 and of at most 10, got 11',
            'Argument "when": expected a date and time such as "2026-01-31T09:30:00Z"',
            'Unknown key "zipp" in argument "near": did you mean "zip"?',
            'Argument "colour": expected "r", got "g"',
            'Argument "models[1].id": expected an integer, got "many"',
            'Argument "id": expected a UUID',
        ]
    )


def test_refusals_are_short_and_have_no_library_words() -> None:
    def tool(a: Model, b: Place, c: Place | Forecast) -> None: ...

    text = "\n".join(refused(binding(tool), {"a": {"id": "x" * 5000}, "b": 1, "c": {}}))
    assert len(text) < 600
    for word in ("http", "pydantic", "msgspec", "Traceback", "<class"):
        assert word not in text


def test_only_what_is_really_wrong_is_named() -> None:
    def tool(price: decimal.Decimal, model: Model, day: datetime.datetime, city: str) -> None: ...

    sent = {"price": 12.5, "model": {"id": "7"}, "day": "2026-01-31T00:00:00", "city": 1}
    assert refused(binding(tool), sent) == ['Argument "city": expected a string, got 1']


def test_a_pattern_that_only_python_knows_still_gets_its_lines() -> None:
    def tool(word: Annotated[str, msgspec.Meta(pattern=r"(?a:\w+)\Z(?#end)")], other: int) -> None: ...

    found = refused(binding(tool), {"word": "!", "othr": 1})
    assert found[:2] == [
        'Unknown argument "othr": did you mean "other"?',
        'Missing argument "other": expected an integer',
    ]
    assert found[2].startswith('Argument "word": ')


def test_an_unknown_nested_key_alone_is_refused() -> None:
    def tool(near: Place) -> None: ...

    assert refused(binding(tool), {"near": {"city": "x", "zipp": 3}}) == [
        'Unknown key "zipp" in argument "near": did you mean "zip"?'
    ]


def test_what_is_no_object_is_refused() -> None:
    def tool(a: int) -> None: ...

    bound = binding(tool)
    for raw in (b"{", b"", b"\xff"):
        with pytest.raises(InvalidArguments):
            bound.arguments(raw)
    raw_schema = binding(lambda arguments: None, name="r", input_schema={"type": "object"})
    for raw in (b"[]", b"3", b'"x"', b'"{}"', b"true", b"[" * 5000):
        for either in (bound, raw_schema):
            with pytest.raises(ProtocolError, match="one JSON object") as refusal:
                either.arguments(raw)
            assert refusal.value.code == INVALID_PARAMS


def test_the_number_of_lines_is_bounded() -> None:
    def tool(a: int) -> None: ...

    assert len(refused(binding(tool), {f"x{n}": 1 for n in range(1000)})) <= 21
    assert len(refused(binding(tool), {f"x{n}": 1 for n in range(200_000)})) <= 21


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.none() | st.integers() | st.text() | st.lists(st.text()))
)
def test_arguments_are_read_or_refused_whatever_they_are(arguments: dict[str, Any]) -> None:
    def tool(a: int, b: str | datetime.date = "x", c: list[Place] | None = None) -> None: ...

    try:
        values = binding(tool).arguments(msgspec.json.encode(arguments))
    except InvalidArguments as error:
        assert error.lines
    else:
        assert isinstance(values["a"], int)


# ---------------------------------------------------------------------------------------------------------------------
# Stand-ins
# ---------------------------------------------------------------------------------------------------------------------


def test_strings_floats_and_stringified_json_are_understood_where_no_string_fits() -> None:
    def tool(n: int, f: float, flag: bool, rows: list[int], near: Place, text: str, model: Model) -> None: ...

    sent = {
        "n": "3",
        "f": "1.5",
        "flag": "true",
        "rows": "[1, 2.0]",
        "near": '{"city": "123"}',
        "text": "123",
        "model": '{"id": "7"}',
    }
    assert binding(tool).arguments(msgspec.json.encode(sent)) == {
        "n": 3,
        "f": 1.5,
        "flag": True,
        "rows": [1, 2],
        "near": Place("123"),
        "text": "123",
        "model": Model(id=7),
    }


def test_stand_ins_are_not_reported_beside_real_faults() -> None:
    def tool(n: int, city: str) -> None: ...

    assert refused(binding(tool), {"n": "3", "city": 1}) == ['Argument "city": expected a string, got 1']


def test_raw_schemas_understand_stand_ins_too() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "rows": {"type": "array", "items": {"type": "integer"}}},
    }
    bound = binding(lambda args: None, name="raw", input_schema=schema)
    value = bound.arguments(b'{"n":"3","rows":"[1, 2]"}')["args"]
    assert value == {"n": 3, "rows": [1, 2]}
    whole = bound.arguments(b'{"n":3.0}')["args"]["n"]
    assert type(whole) is int


@pytest.mark.covers("1.11.3")
def test_strings_become_the_annotated_types() -> None:
    def prompt(topic: str, count: int, exact: bool = False, day: datetime.date | None = None) -> None: ...

    bound = binding(prompt)
    assert bound.arguments_from_strings({"topic": "42", "count": "3", "exact": "true", "day": "2026-01-31"}) == {
        "topic": "42",
        "count": 3,
        "exact": True,
        "day": datetime.date(2026, 1, 31),
    }
    with pytest.raises(InvalidArguments, match="count"):
        bound.arguments_from_strings({"topic": "x", "count": "three"})


# ---------------------------------------------------------------------------------------------------------------------
# Raw schemas
# ---------------------------------------------------------------------------------------------------------------------

RAW = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "x-custom": {"kept": True},
    "properties": {
        "level": {"enum": ["low", "high"], "default": "low"},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "minItems": 1},
        "box": {"type": "object", "properties": {"w": {"type": "number", "minimum": 0, "maximum": 10}}},
    },
    "required": ["rows"],
    "if": {"properties": {"level": {"const": "high"}}, "required": ["level"]},
    "then": {"required": ["box"]},
    "$defs": {"row": {"$anchor": "row", "type": "object", "required": ["id"]}},
}


@pytest.mark.covers("J13", "JSC-5", "S6")
def test_a_raw_schema_is_sent_unchanged_and_enforced() -> None:
    before = json.dumps(RAW)
    bound = binding(lambda args: args, name="raw", input_schema=RAW)
    assert json.dumps(bound.input_schema) == before == json.dumps(RAW)
    assert bound.parameters == ()
    assert bound.arguments(b'{"rows":[{"id":1}]}') == {"args": {"rows": [{"id": 1}], "level": "low"}}
    assert refused(bound, {"rows": [{}], "level": "high", "box": {"w": 11}})
    assert refused(bound, {"rows": [], "level": "middle"})
    assert refused(bound, {"rows": [{"id": 1}], "level": "high"})


def test_defaults_of_a_raw_schema_are_not_shared_between_calls() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "default": []}}}
    bound = binding(lambda args: args, name="raw", input_schema=schema)
    bound.arguments(b"{}")["args"]["a"].append(1)
    assert bound.arguments(b"{}") == {"args": {"a": []}}


@pytest.mark.covers("S6", "S7")
def test_a_decoder_makes_the_handlers_own_type() -> None:
    class Range:
        def __init__(self, low: int, high: int) -> None:
            if low > high:
                raise ValueError("low must not exceed high")
            self.low, self.high = low, high

    schema = {
        "type": "object",
        "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}},
        "required": ["low", "high"],
    }

    def tool(range: Range, ctx: Context) -> int:
        return range.high - range.low

    bound = binding(tool, input_schema=schema, decoder=lambda args: Range(**args))
    assert bound.call(bound.arguments(b'{"low":1,"high":3}'), Context()) == 2
    assert refused(bound, {"low": 3, "high": 1}) == ["The arguments do not fit: low must not exceed high"]
    with pytest.raises(ServerError, match="input_schema="):
        binding(tool, decoder=lambda args: args)


@pytest.mark.covers("JSC-1", "JSC-3")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"properties": {}},
        {"type": "object", "$schema": "https://example.com/own"},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/hostname"}}},
        {"type": "object", "properties": {"a": {"type": "strin"}}},
    ],
    ids=str,
)
def test_unusable_raw_schemas_are_refused_at_registration(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="input schema of 'raw'"):
        binding(lambda args: None, name="raw", input_schema=schema)
    if schema.get("type") == "object":
        with pytest.raises(SchemaError, match="output schema of 'raw'"):
            binding(lambda args: None, name="raw", output_schema=schema)


# ---------------------------------------------------------------------------------------------------------------------
# Headers
# ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Target:
    shard: Annotated[str, Header("Shard")]
    other: int = 0


def test_header_parameters_are_marked_in_the_schema() -> None:
    def tool(
        region: Annotated[str, Header("Region"), "Where."],
        target: Target,
        prio: Annotated[int | None, Header("Prio")] = None,
        flag: Annotated[bool, Header("Flag"), pydantic.Field(description="A flag.")] = False,
    ) -> None: ...

    bound = binding(tool)
    assert bound.headers == {
        "Region": ("region",),
        "Shard": ("target", "shard"),
        "Prio": ("prio",),
        "Flag": ("flag",),
    }
    assert bound.input_schema["properties"]["region"] == {
        "type": "string",
        "x-mcp-header": "Region",
        "description": "Where.",
    }
    assert bound.input_schema["properties"]["flag"]["x-mcp-header"] == "Flag"


def raw_with_header(**member: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A", **member}}}


@pytest.mark.parametrize(
    "schema",
    [
        raw_with_header(**{"x-mcp-header": "two words"}),
        raw_with_header(**{"x-mcp-header": ""}),
        raw_with_header(**{"x-mcp-header": "a:b"}),
        raw_with_header(**{"x-mcp-header": "ünï"}),
        raw_with_header(**{"x-mcp-header": "a\n"}),
        raw_with_header(**{"x-mcp-header": 3}),
        raw_with_header(type="number"),
        raw_with_header(type=["string", "null"]),
        raw_with_header(type="object"),
        {"type": "object", "x-mcp-header": "A"},
        {
            "type": "object",
            "properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
        },
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}},
        {"type": "object", "$defs": {"a": {"type": "string", "x-mcp-header": "A"}}},
        {"type": "object", "additionalProperties": {"type": "string", "x-mcp-header": "A"}},
    ],
    ids=str,
)
def test_bad_headers_are_refused_at_registration(schema: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="header"):
        binding(lambda args: None, name="raw", input_schema=schema)


def test_headers_in_data_are_only_data() -> None:
    schema = {
        "type": "object",
        "properties": {
            "x-mcp-header": {"type": "string"},
            "a": {"type": "object", "default": {"x-mcp-header": "no header"}},
        },
    }
    assert binding(lambda args: None, name="raw", input_schema=schema).headers == {}


def test_a_header_on_a_shared_class_is_refused() -> None:
    def tool(a: Target, b: Target) -> None: ...

    with pytest.raises(ServerError, match="same place"):
        binding(tool)


# ---------------------------------------------------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------------------------------------------------


def untyped(value: Any = None):  # type: ignore[no-untyped-def]
    return value


def converted(value: Any, returns: Any = UNSET, **options: Any) -> CallToolResult:
    def tool() -> Any: ...

    if returns is UNSET:
        tool.__annotations__.clear()
    else:
        tool.__annotations__["return"] = returns
    return binding(tool, **options).convert(value)


def output_schema(returns: Any, **options: Any) -> Any:
    def tool() -> Any: ...

    tool.__annotations__["return"] = returns
    return binding(tool, **options).output_schema


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


@pytest.mark.covers("J21", "E2")
@pytest.mark.parametrize("returns", [UNSET, str, str | None, str | bytes, Any, Annotated[str, "A greeting."]])
def test_a_string_is_one_text_block_and_nothing_else(returns: Any) -> None:
    result = converted("hello", returns)
    assert texts(result) == ["hello"]
    assert result.structured_content is UNSET
    assert output_schema(str) is None


@pytest.mark.parametrize("returns", [UNSET, None, str | None, Image | None])
def test_none_is_no_content(returns: Any) -> None:
    result = converted(None, returns)
    assert result.content == []
    assert result.structured_content is UNSET


@pytest.mark.covers("J20", "E3")
@pytest.mark.parametrize("returns", [UNSET, dict, dict[str, Any], Mapping[str, Any], Any])
def test_an_untyped_dict_is_one_json_text_block(returns: Any) -> None:
    result = converted({"a": 1}, returns)
    assert [json.loads(text) for text in texts(result)] == [{"a": 1}]
    assert result.structured_content is UNSET
    assert output_schema(dict) is None


@pytest.mark.covers("J26", "S12", "S13", "J14", "OUT-3")
@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (Forecast, Forecast("Oslo", 21.5)),
        (list[Forecast], [Forecast("Oslo", 21.5)]),
        (Row, {"id": 1}),
        (dict[str, float], {"a": 1.5}),
        (Reading, Reading(3)),
        (Model, Model(id=3)),
        (int, 3),
        (bool, False),
        (list[str], ["a", "b"]),
        (Forecast | None, None),
        (Point, Point(1, 2)),
        (Place | Forecast, Forecast("Oslo", 1.0)),
        (Literal["yes", "no"], "yes"),
        (datetime.date, datetime.date(2026, 1, 31)),
    ],
    ids=str,
)
def test_typed_values_are_sent_as_text_and_as_structure(returns: Any, value: Any) -> None:
    result = converted(value, returns)
    (text,) = texts(result)
    assert isinstance(result.structured_content, Raw)
    assert json.loads(text) == json.loads(bytes(result.structured_content))
    assert isinstance(output_schema(returns), dict)


@pytest.mark.covers("T-19")
@pytest.mark.parametrize("value", [Forecast("Oslo", 1.0), Reading(1), Model(id=1)], ids=str)
def test_a_value_of_a_declared_class_is_structured_without_an_annotation(value: Any) -> None:
    result = converted(value)
    assert json.loads(texts(result)[0]) == json.loads(bytes(result.structured_content))


@pytest.mark.covers("J18", "J19", "J22", "J24", "E4")
def test_content_of_every_kind() -> None:
    image = ImageContent(PNG, "image/png")
    assert converted(image).content == [image]
    assert converted(Image(data=PNG)).content == [image]
    assert converted((PNG, "image/png")).content == [image]
    assert converted((PNG, "image/png"), tuple[bytes, str]).content == [image]
    link = ResourceLink("a://b", "b")
    mixed = ["text", link, Image(data=PNG), (PNG, "image/png")]
    for returns in (UNSET, list, list[str | ResourceLink | Image | tuple[bytes, str]]):
        assert converted(mixed, returns).content == [TextContent("text"), link, image, image]
    assert converted(tuple(mixed)).content == [TextContent("text"), link, image, image]
    assert converted(Audio(data=b"RIFF0000WAVE")).content[0].type == "audio"
    assert isinstance(converted((b"%PDF-", "application/pdf")).content[0], EmbeddedResource)
    assert converted([], list[Image]).content == []


@pytest.mark.covers("S11")
@pytest.mark.parametrize("returns", [Image, list[Image], str | Image, list[TextContent], ToolResult, Forecast | Image])
def test_content_has_no_output_schema(returns: Any) -> None:
    assert output_schema(returns) is None


@pytest.mark.covers("E5")
def test_a_dict_that_is_a_content_block_is_that_block() -> None:
    result = converted({"type": "image", "data": "AAAA", "mimeType": "image/png"})
    assert isinstance(result.content[0], ImageContent)


@pytest.mark.covers("J23", "J25", "J27", "E6", "E7")
def test_a_full_result_is_used_as_it_is() -> None:
    given = ToolResult("text", structured={"a": 1}, is_error=True, meta={"k": "v"})
    for result in (converted(given), converted(given, Forecast), converted(given.to_wire(), ToolResult)):
        assert texts(result) == ["text"]
        assert result.structured_content == {"a": 1}
        assert result.is_error
        assert result.meta == {"k": "v"}
    plain = converted(ToolResult("text"))
    assert plain.structured_content is UNSET
    assert plain.meta is UNSET
    assert not plain.is_error


@pytest.mark.covers("E9")
def test_plain_values_and_full_results_go_together() -> None:
    bound = binding(untyped)
    assert texts(bound.convert("plain")) == ["plain"]
    assert texts(bound.convert(CallToolResult(content=[TextContent("full")]))) == ["full"]


@pytest.mark.covers("OUT-1", "E17", "R17")
def test_results_that_break_their_schema_are_refused() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for value in ({"n": "x"}, {}, [1], "text", None, ToolResult("x", structured={"n": "x"})):
        with pytest.raises(ResultError):
            converted(value, output_schema=schema)
    for value in ({"city": "x"}, "text", None, [], ToolResult("x", structured={"city": 1})):
        with pytest.raises(ResultError):
            converted(value, Forecast)
    for promise in ({"output_schema": schema}, {"returns": Forecast}):
        with pytest.raises(ToolError, match="'tool' promises a structured result and returned none"):
            converted(ToolResult("x"), **promise)


@pytest.mark.covers("T-19")
def test_errors_are_not_held_to_the_schema() -> None:
    schema = {"type": "object", "required": ["n"]}
    assert converted(ToolResult("failed", is_error=True), output_schema=schema).is_error
    assert converted(ToolResult("failed", is_error=True), Forecast).is_error


@pytest.mark.covers("J14", "S14")
def test_a_raw_output_schema_is_sent_unchanged() -> None:
    schema = {"type": "array", "items": {"$ref": "#/$defs/Row"}, "$defs": {"Row": {"type": "object"}}, "x-extra": 1}
    bound = binding(untyped, output_schema=schema)
    assert bound.output_schema == schema
    result = bound.convert([{"id": 1}])
    assert json.loads(bytes(result.structured_content)) == json.loads(texts(result)[0]) == [{"id": 1}]
    given = bound.convert(ToolResult("short", structured=[{}]))
    assert texts(given) == ["short"]
    assert json.loads(bytes(given.structured_content)) == [{}]


@pytest.mark.covers("S14")
def test_an_encoder_makes_the_value() -> None:
    class Vector:
        def __init__(self, *parts: float) -> None:
            self.parts = parts

    schema = {"type": "array", "items": {"type": "number"}}
    result = converted(Vector(1, 2), output_schema=schema, encoder=lambda vector: list(vector.parts))
    assert json.loads(bytes(result.structured_content)) == [1, 2]
    assert texts(converted(Vector(1), Vector, encoder=lambda vector: f"{vector.parts}")) == ["(1,)"]


@pytest.mark.covers("S15")
def test_the_author_chooses_structured_or_not() -> None:
    assert output_schema(str, structured=True) == {"type": "string"}
    assert bytes(converted("x", str, structured=True).structured_content) == b'"x"'
    assert output_schema(dict, structured=True) == {"type": "object"}
    assert bytes(converted({"a": 1}, structured=True).structured_content) == b'{"a":1}'
    assert output_schema(Forecast, structured=False) is None
    assert converted(Forecast("Oslo", 1.0), Forecast, structured=False).structured_content is UNSET
    with pytest.raises(ServerError, match="structured="):
        output_schema(Image, structured=True)


def test_a_generator_is_typed_by_what_it_returns() -> None:
    def returns_value() -> Generator[str, None, Forecast]:
        yield "working"
        return Forecast("Oslo", 1.0)

    def only_yields() -> Iterator[Forecast]:
        yield Forecast("Oslo", 1.0)

    assert binding(returns_value).output_schema is not None
    assert binding(only_yields).output_schema is None


@pytest.mark.parametrize(
    "value", [object(), {"a": object()}, {(1, 2): 3}, [lambda: 1]], ids=["object", "dict", "key", "list"]
)
@pytest.mark.parametrize("returns", [UNSET, dict[str, int], Any], ids=str)
def test_what_is_not_json_is_an_error_that_shows_only_the_type(value: Any, returns: Any) -> None:
    with pytest.raises(ResultError) as caught:
        converted(value, returns)
    assert isinstance(caught.value, TypeError)
    assert "0x" not in str(caught.value)


def test_paths_and_models_inside_plain_values_are_json() -> None:
    assert json.loads(texts(converted({"p": Path("a"), "m": Model(id=1)}))[0]) == {"p": "a", "m": {"id": 1}}


def test_returning_a_sequence_type_from_typing() -> None:
    assert output_schema(typing.Sequence[int]) == {"type": "array", "items": {"type": "integer"}}
