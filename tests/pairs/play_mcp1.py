"""Make the probes with release 1 of the python `mcp` client: `python play_mcp1.py TARGET...`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession, McpError, types
from opening_mcp1 import open_session
from playing import Player

LISTS = {
    "tools": ("list_tools", "tools"),
    "resources": ("list_resources", "resources"),
    "templates": ("list_resource_templates", "resourceTemplates"),
    "prompts": ("list_prompts", "prompts"),
}


def plain(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class Mcp1(Player):
    session: ClientSession
    told: Any

    async def message(self, message: Any) -> None:
        if not isinstance(message, types.ServerNotification):
            return
        notification: Any = message.root
        if notification.method == "notifications/message":
            self.tell("logs", [notification.params.level, notification.params.data])
        elif notification.method == "notifications/resources/updated":
            self.tell("updated", str(notification.params.uri))
        elif notification.method.endswith("list_changed"):
            self.tell("changed", notification.method)

    def opened(self) -> dict[str, Any]:
        return {
            "revision": self.told.protocolVersion,
            "server": plain(self.told.serverInfo),
            "instructions": self.told.instructions,
            "capabilities": plain(self.told.capabilities),
        }

    async def list(self, kind: str) -> list[dict[str, Any]]:
        method, member = LISTS[kind]
        found: list[Any] = []
        cursor = None
        while True:
            page = await getattr(self.session, method)(cursor)
            found += [plain(each) for each in getattr(page, member)]
            cursor = page.nextCursor
            if cursor is None:
                return found

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: Any = None, meta: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        async def report(*given: Any) -> None:
            on_progress(*given)

        callback = report if on_progress else None
        return dict(plain(await self.session.call_tool(name, arguments, progress_callback=callback, meta=meta)))

    async def stop(self, calling: asyncio.Task[Any]) -> None:
        # No release has a method for this. Nothing else is open now.
        (number,) = self.session._response_streams  # type: ignore[attr-defined]
        params = types.CancelledNotificationParams(requestId=number, reason="Enough")
        notification = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(notification))
        calling.cancel()
        await asyncio.wait([calling])

    async def read(self, uri: str) -> Any:
        return plain(await self.session.read_resource(uri))["contents"]  # type: ignore[arg-type]

    async def prompt(self, name: str, arguments: dict[str, str]) -> Any:
        return plain(await self.session.get_prompt(name, arguments))

    async def complete(self, kind: str, name: str, argument: str, value: str) -> Any:
        reference: Any = (
            types.PromptReference(type="ref/prompt", name=name)
            if kind == "prompt"
            else types.ResourceTemplateReference(type="ref/resource", uri=name)
        )
        return plain((await self.session.complete(reference, {"name": argument, "value": value})).completion)

    async def ping(self) -> Any:
        await self.session.send_ping()
        return "answered"

    async def set_level(self, level: str) -> Any:
        await self.session.set_logging_level(level)  # type: ignore[arg-type]
        return "answered"

    async def roots_changed(self) -> None:
        await self.session.send_roots_list_changed()

    @asynccontextmanager
    async def listening(self, uri: str) -> AsyncIterator[Any]:
        await self.session.subscribe_resource(uri)  # type: ignore[arg-type]
        yield "subscribed"
        await self.session.unsubscribe_resource(uri)  # type: ignore[arg-type]

    async def start_task(self, name: str, arguments: dict[str, Any]) -> Any:
        return (await self.session.experimental.call_tool_as_task(name, arguments)).task.taskId

    async def follow_task(self, task: Any) -> Any:
        seen = [state.status async for state in self.session.experimental.poll_task(task)]
        result = await self.session.experimental.get_task_result(task, types.CallToolResult)
        return {"last": seen[-1], "texts": [each["text"] for each in plain(result)["content"]]}

    async def cancel_task(self, task: Any) -> Any:
        await self.session.experimental.cancel_task(task)
        return (await self.session.experimental.get_task(task)).status

    def error_of(self, error: Exception) -> Any:
        return [error.error.code, error.error.message] if isinstance(error, McpError) else repr(error)


async def main(target: list[str]) -> None:
    player = Mcp1()
    async with open_session(player, target) as (session, told):
        player.session, player.told = session, told
        await player.play()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
