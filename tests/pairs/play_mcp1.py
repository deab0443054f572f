"""Make the probes with release 1 of the python `mcp` client: `python play_mcp1.py TARGET...`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
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

    async def sampling(self, context: Any, params: Any) -> Any:
        self.model(plain(params))
        content = types.TextContent(type="text", text="It is.")
        return types.CreateMessageResult(role="assistant", content=content, model="tiny-1", stopReason="endTurn")

    async def roots(self, context: Any) -> Any:
        return types.ListRootsResult.model_validate({"roots": [{"uri": self.root, "name": "work"}]})

    async def elicitation(self, context: Any, params: Any) -> Any:
        if params.mode == "url":
            self.page(params.message, params.url)
            return types.ElicitResult(action="accept")
        content = self.form(params.message, params.requestedSchema)
        return types.ElicitResult(action="decline" if content is None else "accept", content=content)

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

    async def call(self, name: str, arguments: dict[str, Any], on_progress: Any = None) -> dict[str, Any]:
        async def report(*given: Any) -> None:
            on_progress(*given)

        result = await self.session.call_tool(name, arguments, progress_callback=report if on_progress else None)
        return dict(plain(result))

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


@asynccontextmanager
async def connection(target: list[str]) -> AsyncIterator[tuple[Any, Any]]:
    opening: Any
    if target[0].startswith("http://"):
        opening = streamable_http_client(target[0])
    else:
        opening = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with opening as ends:
        yield ends[0], ends[1]


async def main(target: list[str]) -> None:
    player = Mcp1()
    async with (
        connection(target) as (reading, writing),
        ClientSession(
            reading,
            writing,
            sampling_callback=player.sampling,
            sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
            list_roots_callback=player.roots,
            elicitation_callback=player.elicitation,
            message_handler=player.message,
        ) as session,
    ):
        player.session = session
        player.told = await session.initialize()
        await player.play()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
