"""The charts: pictures that are what they say."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from toolwire import Client, Server
from toolwire.protocol import types as t


@pytest.fixture
def server(example: Callable[[str], ModuleType]) -> Server:
    server: Server = example("charts").server
    return server


def pixels(png: bytes) -> list[bytes]:
    """The rows of an uncomplicated PNG file, each chunk checked by its checksum."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, data, width = 8, b"", 0
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width = struct.unpack(">I", body[:4])[0]
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    raw, stride = zlib.decompress(data), width * 3 + 1
    return [raw[row + 1 : row + stride] for row in range(0, len(raw), stride)]


async def test_a_bar_for_each_value(server: Server) -> None:
    async with Client(server) as client:
        result = await client.call_tool("draw_bars", {"values": [1, 2, -1]})
    (block,) = result.content
    assert isinstance(block, t.ImageContent)
    assert block.mime_type == "image/png"
    rows = pixels(block.data)
    assert (len(rows), len(rows[0])) == (360, 640 * 3)
    # From left to right through the upper half: only the second bar is that high.
    top = {bytes(rows[60][at : at + 3]) for at in range(0, 640 * 3, 3)}
    assert top == {b"\xff\xff\xff", bytes((230, 130, 50))}


async def test_lines_are_text_that_stays_text(server: Server) -> None:
    series = {"a<script>": [1, 2, 3], "b": [3]}
    async with Client(server) as client:
        result = await client.call_tool("draw_lines", {"series": series, "title": "x & y"})
    resource = result.content[0].resource  # type: ignore[union-attr]
    assert resource.mime_type == "image/svg+xml"
    drawn = ElementTree.fromstring(resource.blob)
    space = "{http://www.w3.org/2000/svg}"
    assert [each.text for each in drawn.iter(f"{space}text")] == ["x & y", "a<script>", "b"]
    assert len(list(drawn.iter(f"{space}polyline"))) == 2


@pytest.mark.parametrize("values", [[], [1e300, -1e300], ["x"], [0] * 101])
async def test_what_cannot_be_drawn_is_refused(server: Server, values: list[Any]) -> None:
    async with Client(server) as client:
        assert (await client.call_tool("draw_bars", {"values": values})).is_error
        assert not (await client.call_tool("draw_bars", {"values": [0]})).is_error
