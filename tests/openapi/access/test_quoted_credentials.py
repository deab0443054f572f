"""What an API quotes of the credentials of this server does not reach callers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest

from toolwire import Client, Server
from toolwire.auth import StaticSecret
from toolwire.openapi import ALL, openapi

SECRET = "k3y/of+the=server 0123456789"
FORMS = {
    "plain": SECRET,
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "percent": quote(SECRET, safe=""),
    "json": json.dumps(SECRET).replace("/", "\\/"),
}


@asynccontextmanager
async def refusing_api(status: int, text: str) -> AsyncIterator[str]:
    """Serve an API that answers everything with one error."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"error": f"the key {text} may not do this"}).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as serving:
        yield f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}"


def description(url: str, place: str) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "servers": [{"url": url}],
        "security": [{"key": []}],
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": place, "name": "api_key"}}},
        "paths": {"/things": {"get": {"operationId": "things", "responses": {"200": {"description": "x"}}}}},
    }


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize(("status", "place"), [(400, "header"), (403, "query"), (500, "cookie"), (403, "header")])
async def test_error_of_an_api_shows_no_credential(status: int, place: str, form: str) -> None:
    secret = SECRET.replace(" ", "-").replace("=", "-") if place == "cookie" else SECRET
    text = FORMS[form] if place != "cookie" else secret
    async with refusing_api(status, text) as url:
        server = Server("api").include(
            openapi(description(url, place), keep=ALL, credentials={"key": StaticSecret(secret)})
        )
        async with Client(server) as client:
            result = await client.call_tool("things", {})
    assert result.is_error
    assert f"{status}" in result.text
    assert "may not do this" in result.text
    assert text not in result.text and secret not in result.text
