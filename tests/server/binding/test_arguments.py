"""Arguments reach the handler, or are refused line by line."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.binding.bound import Colour, Context, Forecast, Model, Place, binding, refused

from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.server.binding import InvalidArguments

# --- Calling ---


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


# --- Arguments that do not fit ---


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


# --- Stand-ins ---


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
    for text in (b'{"n":3.0}', b'{"n":3e0}', b'{"n":0.3E1}', b'{"n":30.0e-1}'):
        whole = bound.arguments(text)["args"]["n"]
        assert (type(whole), whole) == (int, 3), text
    assert type(bound.arguments(b'{"n":1234567890123456789.5}')["args"]["n"]) is int


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
