"""Signatures become input schemas: types, names, headers, and schemas that the author wrote."""

from __future__ import annotations

import datetime
import functools
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional

import annotated_types
import msgspec
import pydantic
import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.server.binding.bound import Colour, Context, Forecast, Model, Place, binding, refused

from toolwire.protocol.errors import ServerError
from toolwire.schemas import SchemaError
from toolwire.server.binding import Binding, Header

# --- Input schemas ---


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

    bound = binding(tool)
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


# --- Names ---


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


# --- Raw schemas ---


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
@cases(
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


@dataclass
class Target:
    shard: Annotated[str, Header("Shard")]
    other: int = 0


# --- Headers ---


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


@cases(
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
