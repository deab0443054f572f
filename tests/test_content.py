"""What users hand over as content, and the results they get back."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from msgspec import Raw
from tests.cases import cases

from toolwire import Server
from toolwire.content import (
    Audio,
    File,
    Image,
    Message,
    ResourceLink,
    Text,
    ToolResult,
    blob_contents,
    text_contents,
    to_blocks,
)
from toolwire.protocol.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
    decode,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"
JPEG = b"\xff\xd8\xff\xe0" + b"rest"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- Images, audio, files --------------------------------------------------------------------------------------------


@pytest.mark.covers("J34", "J37")
def test_image_and_audio_from_bytes() -> None:
    assert Image(data=PNG).to_dict() == {"type": "image", "data": encoded(PNG), "mimeType": "image/png"}
    assert Audio(data=WAV).to_dict() == {"type": "audio", "data": encoded(WAV), "mimeType": "audio/wav"}
    for media in (Image(data=PNG, meta={"k": 1}), Audio(data=WAV, meta={"k": 1})):
        assert media.to_dict()["_meta"] == {"k": 1}


def test_an_image_as_the_address_of_an_icon() -> None:
    address = Image(data=PNG).to_data_uri()
    assert address == f"data:image/png;base64,{encoded(PNG)}"
    Server("s", icons={"src": address, "mimeType": "image/png"})


def test_image_and_audio_from_a_path(tmp_path: Path) -> None:
    picture = tmp_path / "chart.webp"
    picture.write_bytes(b"anything")
    sound = tmp_path / "bell.mp3"
    sound.write_bytes(b"anything")
    assert Image(picture).to_content() == ImageContent(b"anything", "image/webp")
    assert Image(path=str(picture)).to_content().mime_type == "image/webp"
    assert Audio(sound).to_content() == AudioContent(b"anything", "audio/mpeg")


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"BM....", "image/bmp"),
    ],
)
def test_image_type_from_the_first_bytes(data: bytes, mime_type: str, tmp_path: Path) -> None:
    assert Image(data=data).to_content().mime_type == mime_type
    nameless = tmp_path / "picture"
    nameless.write_bytes(data)
    assert Image(nameless).to_content().mime_type == mime_type


@cases(
    ("data", "mime_type"),
    [
        (WAV, "audio/wav"),
        (b"OggS...", "audio/ogg"),
        (b"fLaC...", "audio/flac"),
        (b"ID3....", "audio/mpeg"),
        (b"\xff\xfb....", "audio/mpeg"),
    ],
)
def test_audio_type_from_the_first_bytes(data: bytes, mime_type: str) -> None:
    assert Audio(data=data).to_content().mime_type == mime_type


@cases(
    ("options", "mime_type"),
    [
        ({"mime_type": "image/x-own"}, "image/x-own"),
        ({"format": "jpg"}, "image/jpeg"),
        ({"format": ".SVG"}, "image/svg+xml"),
        ({"format": "qoi9"}, "image/qoi9"),
        ({"mime_type": "image/x-own", "format": "jpg"}, "image/x-own"),
    ],
)
def test_what_was_given_beats_what_is_seen(options: dict[str, Any], mime_type: str) -> None:
    assert Image(data=PNG, **options).to_content().mime_type == mime_type


def test_an_unrecognised_type_is_named() -> None:
    with pytest.raises(ValueError, match="pass mime_type="):
        Image(data=b"??").to_content()
    # A sound is no image.
    with pytest.raises(ValueError, match="pass mime_type="):
        Image(data=WAV).to_content()


@cases("kind", [Image, Audio, File])
def test_one_source_is_needed(kind: Any) -> None:
    with pytest.raises(ValueError, match="either path= or data="):
        kind()
    with pytest.raises(ValueError, match="either path= or data="):
        kind("x.png", data=b"x")


def test_annotations_and_meta_of_media() -> None:
    block = Image(data=PNG, annotations=Annotations(priority=1), meta={"k": 1}).to_dict()
    assert block["annotations"] == {"priority": 1}
    assert block["_meta"] == {"k": 1}


def test_file_is_text_where_it_is_text(tmp_path: Path) -> None:
    notes = tmp_path / "my notes.md"
    notes.write_text("# Ü", encoding="utf-8")
    assert File(notes).to_dict() == {
        "type": "resource",
        "resource": {"uri": "file:///my%20notes.md", "text": "# Ü", "mimeType": "text/markdown"},
    }


def test_file_does_not_tell_where_it_lies(tmp_path: Path) -> None:
    secret = tmp_path / "report.bin"
    secret.write_bytes(b"\x00\xff")
    assert str(tmp_path) not in str(File(secret).to_dict())


@cases(
    ("file", "resource"),
    [
        (
            File(data=b"%PDF-1.7"),
            {"uri": "file:///file", "mimeType": "application/pdf", "blob": encoded(b"%PDF-1.7")},
        ),
        (File(data=b"{}", format="json"), {"uri": "file:///file", "mimeType": "application/json", "text": "{}"}),
        (
            File(data=b"\xff", mime_type="text/plain"),
            {"uri": "file:///file", "mimeType": "text/plain", "blob": encoded(b"\xff")},
        ),
        (
            File(data=b"x", name="data.own9"),
            {"uri": "file:///data.own9", "mimeType": "application/octet-stream", "blob": encoded(b"x")},
        ),
        (
            File(data=b"x", uri="memo://1", format="own9"),
            {"uri": "memo://1", "mimeType": "application/own9", "blob": encoded(b"x")},
        ),
    ],
)
def test_file_from_bytes(file: File, resource: dict[str, Any]) -> None:
    assert file.to_dict() == {"type": "resource", "resource": resource}


@pytest.mark.covers("J36")
def test_resource_contents_have_default_types() -> None:
    assert text_contents("a://b", "x").to_dict() == {"uri": "a://b", "text": "x", "mimeType": "text/plain"}
    assert blob_contents("a://b", b"\x00\xff\x10").to_dict() == {
        "uri": "a://b",
        "blob": "AP8Q",
        "mimeType": "application/octet-stream",
    }


# --- What counts as content ------------------------------------------------------------------------------------------


@cases(
    ("value", "blocks"),
    [
        ("hello", [Text("hello")]),
        ("", [Text("")]),
        (Text("x"), [Text("x")]),
        (ResourceLink("a://b", "b"), [ResourceLink("a://b", "b")]),
        (Image(data=PNG), [ImageContent(PNG, "image/png")]),
        (ResourceContents("a://b", text="x"), [EmbeddedResource(ResourceContents("a://b", text="x"))]),
        (["a", Text("b"), Image(data=PNG)], [Text("a"), Text("b"), ImageContent(PNG, "image/png")]),
        ([Text("only")], [Text("only")]),
    ],
)
def test_content(value: Any, blocks: list[Any]) -> None:
    assert to_blocks(value) == blocks


@cases(
    "value",
    [
        None,
        True,
        7,
        {},
        {"a": 1},
        [],
        ["a", "b"],
        [1, Text("x")],
        [Text("x"), {"a": 1}],
        b"bytes without a type",
        (1, 2),
        ("a", "image/png"),
        (b"x", "png"),
        (b"x", "image/png", 1),
    ],
)
def test_data_is_not_content(value: Any) -> None:
    assert to_blocks(value) is None


@pytest.mark.covers("E5")
def test_a_dict_that_is_a_content_block() -> None:
    assert to_blocks({"type": "text", "text": "x"}) == [Text("x")]
    assert to_blocks({"type": "image", "data": "AP8Q", "mimeType": "image/png"}) == [
        ImageContent(b"\x00\xff\x10", "image/png")
    ]
    assert to_blocks([{"type": "text", "text": "x"}, "y"]) == [Text("x"), Text("y")]
    # Data that happens to have a type.
    assert to_blocks({"type": "image", "url": "https://x"}) is None
    assert to_blocks({"type": "sedan", "doors": 4}) is None
    assert to_blocks({"type": 7}) is None


@pytest.mark.covers("J22")
def test_bytes_with_a_type() -> None:
    assert to_blocks((b"x", "image/png")) == [ImageContent(b"x", "image/png")]
    assert to_blocks((bytearray(b"x"), "image/png")) == [ImageContent(b"x", "image/png")]
    assert to_blocks((b"x", "audio/wav")) == [AudioContent(b"x", "audio/wav")]
    assert to_blocks((b"x", "application/zip")) == [
        EmbeddedResource(ResourceContents("file:///file", blob=b"x", mime_type="application/zip"))
    ]
    assert to_blocks([(b"x", "image/png"), "caption"]) == [ImageContent(b"x", "image/png"), Text("caption")]


# --- Messages --------------------------------------------------------------------------------------------------------


def test_message() -> None:
    assert Message("hi").to_dict() == {"role": "user", "content": {"type": "text", "text": "hi"}}
    assert Message(Image(data=PNG), role="assistant").to_dict()["content"]["type"] == "image"
    assert Message({"type": "text", "text": "x"}) == Message("x")
    assert Message("x") != Message("x", role="assistant")


@pytest.mark.covers("E28")
@cases("role", ["system", "tool", ""])
def test_other_roles_are_refused(role: Any) -> None:
    with pytest.raises(ValueError, match="'user' or 'assistant'"):
        Message("x", role=role)


@pytest.mark.covers("1.11.4", "T-16")
@cases("content", [[Text("a"), Text("b")], {"a": 1}, None, 7])
def test_a_message_holds_one_block(content: Any) -> None:
    with pytest.raises(TypeError, match="one content block"):
        Message(content)


# --- Tool results ----------------------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int
    y: int


class Model(pydantic.BaseModel):
    x: int


def test_tool_result_on_the_wire() -> None:
    result = ToolResult(["a", Image(data=PNG)], structured={"n": 1}, is_error=True, meta={"k": 1})
    assert result.to_dict() == {
        "resultType": "complete",
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": encoded(PNG), "mimeType": "image/png"},
        ],
        "structuredContent": {"n": 1},
        "isError": True,
        "_meta": {"k": 1},
    }


@pytest.mark.covers("E14", "J27")
def test_what_was_not_given_is_not_sent() -> None:
    assert ToolResult("x", meta={}).to_dict() == {"resultType": "complete", "content": [{"type": "text", "text": "x"}]}
    assert ToolResult().to_dict() == {"resultType": "complete", "content": []}
    assert ToolResult([]).content == []


@cases(
    ("structured", "plain", "text"),
    [
        ({"a": 1}, {"a": 1}, '{"a":1}'),
        (None, None, "null"),
        ([1, 2], [1, 2], "[1,2]"),
        (Point(1, 2), {"x": 1, "y": 2}, '{"x":1,"y":2}'),
        (Model(x=1), {"x": 1}, '{"x":1}'),
        ([Model(x=1)], [{"x": 1}], '[{"x":1}]'),
        (Raw(b'{"a":1}'), {"a": 1}, '{"a":1}'),
    ],
)
def test_structured_value_has_a_text_copy(structured: Any, plain: Any, text: str) -> None:
    result = ToolResult(structured=structured)
    assert result.to_dict()["structuredContent"] == plain
    assert result.text == text
    assert ToolResult("own words", structured=structured).text == "own words"


def test_content_that_is_data_becomes_json_text() -> None:
    assert ToolResult({"a": 1}).content == [Text('{"a":1}')]
    assert ToolResult(["a", "b"]).content == [Text('["a","b"]')]


def test_what_can_not_be_json_is_named() -> None:
    with pytest.raises(TypeError, match="type object cannot be sent"):
        ToolResult(structured=object())


def test_tool_result_from_the_wire() -> None:
    data = b'{"content":[{"type":"text","text":"a"},{"type":"hologram"},{"type":"text","text":"b"}],"isError":true}'
    result = ToolResult.from_wire(decode(CallToolResult, data))
    assert result.text == "a\nb"
    assert result.is_error
    assert (result.structured, result.has_structured) == (None, False)
    assert "structuredContent" not in result.to_dict()
    assert result.meta == {}
    assert [block.type for block in result.content] == ["text", "hologram", "text"]


def test_tool_result_there_and_back() -> None:
    result = ToolResult("x", structured=None, is_error=True, meta={"k": 1})
    back = ToolResult.from_wire(decode(CallToolResult, msgspec.json.encode(result.to_wire())))
    assert back == result
    assert (back.structured, back.has_structured) == (None, True)
    assert back != ToolResult("x")


def test_false_is_error_from_the_wire() -> None:
    wire = CallToolResult(content=[TextContent("x")], is_error=False)
    assert ToolResult.from_wire(wire).is_error is False


def test_representations_are_short() -> None:
    assert repr(Image(data=b"x" * 10_000)) == "Image(data=<10000 bytes>)"
    assert "chart.png" in repr(Image("chart.png"))
    assert repr(Message("x")).startswith("Message(")
    assert "structured" not in repr(ToolResult("x"))
