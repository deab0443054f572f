"""Make the probes with our own client: `python play_ours.py TARGET...`; `PAIRS_MODE` is "legacy" or "auto"."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from playing import Player

from toolwire import Client
from toolwire.client import Accept, Decline, Elicitation, Sampling
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


class Ours(Player):
    client: Client

    async def on_form(self, message: str, params: Any) -> Any:
        content = self.filled(message, plain(params.requested_schema))
        return Decline() if content is None else content

    async def on_page(self, message: str, params: Any) -> Any:
        self.asked.append({"page": message, "url": params.url})
        return Accept()

    async def on_sampling(self, params: t.CreateMessageRequestParams) -> str:
        self.note_sampling(plain(params))
        return "It is."

    def on_log(self, params: Any) -> None:
        self.tell("logs", [params.level, params.data])

    def opened(self) -> dict[str, Any]:
        client = self.client
        return {
            "revision": client.revision,
            "server": plain(client.server),
            "instructions": client.instructions,
            "capabilities": plain(client.capabilities),
        }

    async def list(self, kind: str) -> list[dict[str, Any]]:
        client = self.client
        if kind == "tools":
            return list(plain(await client.list_tools(audience=None)))
        lists = {
            "resources": client.list_resources,
            "templates": client.list_resource_templates,
            "prompts": client.list_prompts,
        }
        return list(plain(await lists[kind]()))

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: Any = None, meta: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        def report(params: Any) -> None:
            given = (params.progress, params.total, params.message)
            on_progress(*(None if each is msgspec.UNSET else each for each in given))

        callback = report if on_progress else None
        result = await self.client.call_tool(name, arguments, on_progress=callback, meta=meta)
        told: dict[str, Any] = {"content": plain(result.content), "isError": result.is_error}
        if result.has_structured:
            told["structuredContent"] = plain(result.structured)
        if result.meta:
            told["_meta"] = plain(result.meta)
        return told

    async def stop(self, calling: asyncio.Task[Any]) -> None:
        calling.cancel()
        await asyncio.wait([calling])

    async def read(self, uri: str) -> Any:
        return plain(await self.client.read_resource(uri))

    async def prompt(self, name: str, arguments: dict[str, str]) -> Any:
        return plain(await self.client.get_prompt(name, arguments))

    async def complete(self, kind: str, name: str, argument: str, value: str) -> Any:
        reference: Any = t.PromptReference(name) if kind == "prompt" else t.ResourceTemplateReference(name)
        return plain(await self.client.complete(reference, (argument, value)))

    async def ping(self) -> Any:
        await self.client.ping()
        return "answered"

    async def set_level(self, level: str) -> Any:
        await self.client.set_level(level)  # type: ignore[arg-type]
        return "answered"

    async def roots_changed(self) -> None:
        await self.client.set_roots([t.Root(uri=self.root, name="work")])

    @asynccontextmanager
    async def listening(self, uri: str) -> AsyncIterator[Any]:
        # This client refuses to wait for what was not declared.
        declared = self.client.capabilities
        wanted: dict[str, Any] = {
            name: True
            for name, family in (("tools", "tools"), ("prompts", "prompts"), ("resources_list", "resources"))
            if declared.get(family, {}).get("listChanged")
        }
        if declared.get("resources", {}).get("subscribe"):
            wanted["resources"] = [uri]
        if not wanted:
            yield []
            return
        subscription = self.client.listen(**wanted)

        async def hear() -> None:
            async for change in subscription:
                if change.uri is not None:
                    self.tell("updated", change.uri)
                else:
                    self.tell("changed", f"notifications/{change.kind}/list_changed")

        async with subscription:
            hearing = asyncio.create_task(hear())
            try:
                yield sorted(wanted)
            finally:
                hearing.cancel()

    async def start_task(self, name: str, arguments: dict[str, Any]) -> Any:
        return await self.client.call_tool_as_task(name, arguments)

    async def follow_task(self, task: Any) -> Any:
        result = await task.wait()
        return {"last": (await task.status()).status, "texts": [each["text"] for each in plain(result.content)]}

    async def cancel_task(self, task: Any) -> Any:
        await task.cancel()
        return (await task.status()).status

    def error_of(self, error: Exception) -> Any:
        return [error.code, error.message] if isinstance(error, ProtocolError) else repr(error)


async def main(target: list[str]) -> None:
    player = Ours()
    client = Client(
        target[0] if target[0].startswith("http://") else target,
        revision="2025-11-25" if os.environ["PAIRS_MODE"] == "legacy" else None,
        elicit=Elicitation(player.on_form, url=player.on_page),
        sample=Sampling(player.on_sampling, tools=True),
        roots=[t.Root(uri=player.root, name="work")],
        on_log=player.on_log,
        probe_timeout=60,
    )
    async with client:
        player.client = client
        await player.play()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
