"""A client of 2026-07-28 for tests, over the HTTP client of this folder: correct unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.http.httpclient import Answer, HttpClient, Message
from tests.wireclient import MODERN, modern_meta

from toolwire.protocol.http import encode_value

NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


class ModernClient(HttpClient):
    """Each request is complete in itself: its metadata, and the headers that repeat it."""

    def headers_of(self, method: str, params: Mapping[str, Any]) -> dict[str, str | None]:
        headers: dict[str, str | None] = {"mcp-protocol-version": MODERN, "mcp-method": method}
        name = params.get(NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers["mcp-name"] = encode_value(name)
        return headers

    def start_request(
        self,
        method: str,
        params: Message | None = None,
        *,
        id: Any = 1,
        meta: Any = None,
        headers: Mapping[str, str | None] | None = None,
        **options: Any,
    ) -> Answer:
        given = {**(params or {}), "_meta": modern_meta() if meta is None else meta}
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": given}
        return self.start_post(message, {**self.headers_of(method, given), **(headers or {})}, **options)

    async def request(self, method: str, params: Message | None = None, **options: Any) -> Answer:
        return await self.start_request(method, params, **options).finished()

    def start_call(self, tool: str, arguments: Message | None = None, **options: Any) -> Answer:
        return self.start_request("tools/call", {"name": tool, "arguments": arguments or {}}, **options)

    async def call(self, tool: str, arguments: Message | None = None, **options: Any) -> Answer:
        return await self.start_call(tool, arguments, **options).finished()

    async def listen(self, *, id: Any = 1, **wanted: Any) -> Answer:
        """Open a listen stream and wait until it is acknowledged."""
        stream = self.start_request("subscriptions/listen", {"notifications": wanted}, id=id)
        await stream.message("notifications/subscriptions/acknowledged")
        return stream


def text_of(response: Message) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text
