"""Requests to the ASGI application of a server in this process: bytes in, bytes out, and no socket."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@cache
def _scope(method: str) -> dict[str, Any]:
    headers = {
        "host": "127.0.0.1:8000",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
    }
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }


async def answered(app: Any, method: str, cursor: str | None = None) -> bytes:
    """Ask for a list in 2026-07-28; return the body of the answer."""
    params = {"_meta": META} | ({} if cursor is None else {"cursor": cursor})
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(dict(_scope(method)), receive, send)
    return b"".join(message.get("body", b"") for message in sent)
