"""Streams on which changes are told, for each era, without a client that opens them again."""

from __future__ import annotations

import json
from typing import Any

from toolwire.http1.asgi_pool import AsgiPool

KINDS = ("2024-11-05", "2025-11-25", "2026-07-28")


class Hearing:
    """A caller with a key who opens streams, without a client that would open them again."""

    def __init__(self, app: Any, key: str) -> None:
        self.pool = AsgiPool(app)
        self.headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}

    async def send(self, method: str, path: str = "/mcp", body: Any = None, **headers: str) -> Any:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            sent["content-type"] = "application/json"
        content = None if body is None else json.dumps(body).encode()
        return await self.pool.send(method, f"http://localhost{path}", sent, content)

    async def open(self, kind: str) -> Any:
        """Open a stream on which changes of the list of tools are told."""
        if kind == "2026-07-28":
            meta = {
                "io.modelcontextprotocol/protocolVersion": kind,
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
            return await self.send("POST", body=body, mcp_protocol_version=kind, mcp_method="subscriptions/listen")
        if kind == "2024-11-05":
            return await self.send("GET", "/sse")
        if "mcp-session-id" not in self.headers:
            client = {"protocolVersion": kind, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
            begun = await self.send("POST", body=body)
            self.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
            self.headers["mcp-protocol-version"] = kind
            begun.close()
            begun = await self.send("POST", body={"jsonrpc": "2.0", "method": "notifications/initialized"})
            begun.close()
        return await self.send("GET")


async def rest_of(stream: Any) -> str:
    """Return what a stream carries until it ends."""
    return b"".join([chunk async for chunk in stream.chunks()]).decode()
