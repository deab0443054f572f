"""Make the probes with release 2 of the python `mcp` client: `python play_mcp2.py TARGET...`.

The environment variable `PAIRS_MODE` is the client's `mode`: "auto" asks `server/discover` first, "legacy" says
`initialize`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client, MCPError
from opening_mcp2 import MODERN, open_client
from playing import Player

LISTS = {
    "tools": ("list_tools", "tools"),
    "resources": ("list_resources", "resources"),
    "templates": ("list_resource_templates", "resource_templates"),
    "prompts": ("list_prompts", "prompts"),
}
LEVEL_KEY = "io.modelcontextprotocol/logLevel"


def plain(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class Mcp2(Player):
    client: Client
    level: str | None = None
    before_answer = None

    @property
    def modern(self) -> bool:
        return self.client.protocol_version == MODERN

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/message":
            self.tell("logs", [message.params.level, message.params.data])
        elif method == "notifications/resources/updated":
            self.tell("updated", str(message.params.uri))
        elif method.endswith("list_changed"):
            self.tell("changed", method)

    def opened(self) -> dict[str, Any]:
        client = self.client
        return {
            "revision": client.protocol_version,
            "server": plain(client.server_info) if client.server_info else None,
            "instructions": client.instructions,
            "capabilities": plain(client.server_capabilities),
        }

    async def list(self, kind: str) -> list[dict[str, Any]]:
        method, member = LISTS[kind]
        found: list[Any] = []
        cursor = None
        while True:
            # The library's own memory would hide what the server says.
            page = await getattr(self.client, method)(cursor=cursor, cache_mode="bypass")
            found += [plain(each) for each in getattr(page, member)]
            cursor = page.next_cursor
            if cursor is None:
                return found

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: Any = None, meta: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        async def report(*given: Any) -> None:
            on_progress(*given)

        level = {LEVEL_KEY: self.level} if self.level and self.modern else {}
        given: Any = {**level, **(meta or {})} or None
        callback = report if on_progress else None
        return dict(plain(await self.client.call_tool(name, arguments, progress_callback=callback, meta=given)))

    async def stop(self, calling: asyncio.Task[Any]) -> None:
        calling.cancel()
        await asyncio.wait([calling])

    async def read(self, uri: str) -> Any:
        return plain(await self.client.read_resource(uri))["contents"]

    async def prompt(self, name: str, arguments: dict[str, str]) -> Any:
        return plain(await self.client.get_prompt(name, arguments))

    async def complete(self, kind: str, name: str, argument: str, value: str) -> Any:
        reference: Any = (
            types.PromptReference(type="ref/prompt", name=name)
            if kind == "prompt"
            else types.ResourceTemplateReference(type="ref/resource", uri=name)
        )
        return plain((await self.client.complete(reference, {"name": argument, "value": value})).completion)

    async def ping(self) -> Any:
        await self.client.session.send_request(types.PingRequest(), types.EmptyResult)
        return "answered"

    async def set_level(self, level: str) -> Any:
        if self.modern:
            self.level = level
            return "sent with each request"
        await self.client.set_logging_level(level)  # type: ignore[arg-type]
        return "answered"

    async def roots_changed(self) -> None:
        if not self.modern:
            await self.client.send_roots_list_changed()

    @asynccontextmanager
    async def listening(self, uri: str) -> AsyncIterator[Any]:
        if not self.modern:
            await self.client.subscribe_resource(uri)
            yield "subscribed"
            await self.client.unsubscribe_resource(uri)
            return
        wanted: dict[str, Any] = {
            "tools_list_changed": True,
            "prompts_list_changed": True,
            "resources_list_changed": True,
            "resource_subscriptions": [uri],
        }
        async with self.client.listen(**wanted) as subscription:
            yield plain(subscription.honored)

    def error_of(self, error: Exception) -> Any:
        return [error.error.code, error.error.message] if isinstance(error, MCPError) else repr(error)


async def main(target: list[str]) -> None:
    player = Mcp2()
    async with open_client(player, target, os.environ["PAIRS_MODE"]) as client:
        player.client = client
        await player.play()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
