"""Bytes and texts that are kept for their caller."""

from __future__ import annotations

from toolwire import Client, Server
from toolwire.server.call import CURRENT
from toolwire.server.kept_results import KeptResult, KeptResults
from toolwire.types import CallToolResult, ResourceLink


async def test_bytes_stay_bytes_and_text_stays_text() -> None:
    kept = KeptResults("keeper")
    server = Server("keeper").add(KeptResult(kept.place))
    wholes: list[tuple[str | bytes, str]] = [
        (b"\x00\n\xff bytes\n", "image/png"),
        (b"", "application/octet-stream"),
        ("text bytes\n", "text/plain"),
        ("{}", "application/json\nx: 1"),
    ]

    @server.tool
    async def keep(number: int) -> CallToolResult:
        whole, mime_type = wholes[number]
        uri = await kept.keep(CURRENT.get(), whole, mime_type)
        assert uri is not None
        return CallToolResult(content=[ResourceLink(uri=uri, name="kept")])

    async with Client(server) as client:
        for number, (whole, mime_type) in enumerate(wholes):
            link = (await client.call_tool("keep", {"number": number})).content[0]
            assert isinstance(link, ResourceLink)
            (contents,) = await client.read_resource(link.uri)
            assert contents.mime_type == mime_type.replace("\n", " ")
            assert whole in (contents.text, contents.blob)
        assert await client.list_resource_templates() == []
