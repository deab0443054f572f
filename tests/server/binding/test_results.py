"""Return values become results: content, structure, and what does not fit."""

from __future__ import annotations

import datetime
import json
import typing
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from msgspec import UNSET, Raw
from tests.cases import cases
from tests.server.binding.bound import Forecast, Model, Place, binding

from toolwire.content import Audio, Image, ToolResult
from toolwire.protocol.errors import ServerError, ToolError
from toolwire.protocol.types import CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent
from toolwire.server.binding import ResultError

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8


class Row(TypedDict):
    id: int


class Point(NamedTuple):
    x: int
    y: int


class Reading(msgspec.Struct):
    value: int


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
@cases("returns", [UNSET, str, str | None, str | bytes, Any, Annotated[str, "A greeting."]])
def test_a_string_is_one_text_block_and_nothing_else(returns: Any) -> None:
    result = converted("hello", returns)
    assert texts(result) == ["hello"]
    assert result.structured_content is UNSET
    assert output_schema(str) is None


@cases("returns", [UNSET, None, str | None, Image | None])
def test_none_is_no_content(returns: Any) -> None:
    result = converted(None, returns)
    assert result.content == []
    assert result.structured_content is UNSET


@pytest.mark.covers("J20", "E3")
@cases("returns", [UNSET, dict, dict[str, Any], Mapping[str, Any], Any])
def test_an_untyped_dict_is_one_json_text_block(returns: Any) -> None:
    result = converted({"a": 1}, returns)
    assert [json.loads(text) for text in texts(result)] == [{"a": 1}]
    assert result.structured_content is UNSET
    assert output_schema(dict) is None


@pytest.mark.covers("J26", "S12", "S13", "J14", "OUT-3")
@cases(
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
@cases("value", [Forecast("Oslo", 1.0), Reading(1), Model(id=1)], ids=str)
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
@cases("returns", [Image, list[Image], str | Image, list[TextContent], ToolResult, Forecast | Image])
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


@cases("value", [object(), {"a": object()}, {(1, 2): 3}, [lambda: 1]], ids=["object", "dict", "key", "list"])
@cases("returns", [UNSET, dict[str, int], Any], ids=str)
def test_what_is_not_json_is_an_error_that_shows_only_the_type(value: Any, returns: Any) -> None:
    with pytest.raises(ResultError) as caught:
        converted(value, returns)
    assert isinstance(caught.value, TypeError)
    assert "0x" not in str(caught.value)


def test_paths_and_models_inside_plain_values_are_json() -> None:
    assert json.loads(texts(converted({"p": Path("a"), "m": Model(id=1)}))[0]) == {"p": "a", "m": {"id": 1}}


def test_returning_a_sequence_type_from_typing() -> None:
    assert output_schema(typing.Sequence[int]) == {"type": "array", "items": {"type": "integer"}}
