"""One way to talk about tasks over every transport: in memory, through pipes, and by HTTP.

What is sent is what the test says; requests of the server are answered by `answers`, on whichever stream they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Literal, TypeAlias

from tests.wire.httpclient import Answer, SessionClient
from tests.wire.modernclient import ModernClient
from tests.wireclient import MODERN, Message, Refusal, WireClient, modern_meta

from toolwire import Server
from toolwire.testing import _memory, _pipes

CORE = "2025-11-25"
EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
FORMS: Message = {"elicitation": {"form": {}}}
ABLE: Message = {**FORMS, "extensions": {EXTENSION: {}}}
DIALECTS = (CORE, MODERN)
TRANSPORTS: tuple[Over, ...] = ("memory", "stdio", "http")

Over: TypeAlias = Literal["memory", "stdio", "http"]


class HttpTalk:
    """The same calls as `WireClient` has, over an application."""

    def __init__(self, app: Any, revision: str, capabilities: Message, principal: Any) -> None:
        self.app = app
        self.revision = revision
        self.capabilities = capabilities
        self.answers: dict[str, Callable[[Message], Any]] = {}
        self.requests: list[Message] = []
        self.notifications: list[Message] = []
        self._client: Any = ModernClient(app) if revision == MODERN else SessionClient(app)
        self._client.principal = principal
        self._arrived = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []

    async def open(self) -> Message:
        if self.revision == MODERN:
            return {}
        answer = await self._client.initialize(self.revision, self.capabilities)
        self._readers.append(asyncio.create_task(self._read(await self._client.get())))
        result: Message = answer.json()["result"]
        return result

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self._client.close()

    def post(self, method: str, params: Message | None = None) -> Answer:
        if self.revision == MODERN:
            params = dict(params or {})
            meta = modern_meta(self.capabilities) | params.pop("_meta", {})
            return self._client.start_request(method, params, meta=meta)  # type: ignore[no-any-return]
        return self._client.start_post(self._client.request(method, params))  # type: ignore[no-any-return]

    def start(self, method: str, params: Message | None = None) -> asyncio.Task[Message]:
        answer = self.post(method, params)
        reader = asyncio.create_task(self._read(answer))
        self._readers.append(reader)

        async def response() -> Message:
            await answer.finished()
            return answer.answer()

        return asyncio.create_task(response())

    async def request(self, method: str, params: Message | None = None) -> Message:
        return await self.start(method, params)

    async def result(self, method: str, params: Message | None = None) -> Message:
        response = await self.request(method, params)
        assert "result" in response, response
        result: Message = response["result"]
        return result

    async def error(self, method: str, params: Message | None = None) -> Message:
        response = await self.request(method, params)
        assert "error" in response, response
        error: Message = response["error"]
        return error

    async def call(self, name: str, arguments: Message | None = None, **params: Any) -> Message:
        return await self.result("tools/call", {"name": name, "arguments": arguments or {}, **params})

    async def _read(self, answer: Answer) -> None:
        seen: list[Message] = []
        await answer.started()
        while answer.is_stream:
            await answer.until(lambda: len(answer.messages) > len(seen) or answer.ended)
            fresh = answer.messages[len(seen) :]
            if not fresh:
                return
            seen.extend(fresh)
            for message in fresh:
                await self._take(message)

    async def _take(self, message: Message) -> None:
        if "method" in message and "id" in message:
            self.requests.append(message)
            answer = self.answers.get(message["method"])
            if answer is not None:
                reply: Message = {"jsonrpc": "2.0", "id": message["id"]}
                try:
                    reply["result"] = answer(message.get("params", {}))
                except Refusal as refusal:
                    reply["error"] = refusal.error
                await self._client.post(reply)
        elif "method" in message:
            self.notifications.append(message)
        self._arrived.set()

    async def until(self, condition: Callable[[], Any]) -> Any:
        while not (found := condition()):
            self._arrived.clear()
            await self._arrived.wait()
        return found

    def of(self, method: str) -> list[Message]:
        return [each.get("params", {}) for each in self.notifications if each["method"] == method]

    async def notified(self, method: str, count: int = 1) -> list[Message]:
        await self.until(lambda: len(self.of(method)) >= count)
        return self.of(method)


@asynccontextmanager
async def talk(
    server: Server,
    revision: str,
    over: Over = "memory",
    capabilities: Message | None = None,
    principal: Any = None,
    app: Any = None,
) -> AsyncIterator[Any]:
    """A client of `revision`; one that can take tasks and show forms, unless its capabilities say otherwise."""
    able = capabilities if capabilities is not None else ABLE if revision == MODERN else FORMS
    if over == "http":
        application = app or server.http_app()
        client = HttpTalk(application, revision, able, principal)
        try:
            client.initialized = await client.open()  # type: ignore[attr-defined]
            yield client
        finally:
            await client.close()
            if app is None:
                await application.stop()
        return
    with ExitStack() as descriptors:
        ours, theirs, hang_up = _memory() if over == "memory" else _pipes(descriptors)
        serving = asyncio.create_task(server.serve(theirs, principal=principal))
        wire: Any = WireClient(ours)
        serving.add_done_callback(lambda task: wire.give_up())
        try:
            if revision == MODERN:
                wire.revision, wire.capabilities = revision, able
            else:
                wire.initialized = await wire.initialize(revision, able)
            yield wire
        finally:
            await ours.close()
            hang_up()
            await serving
            await theirs.close()


# --- both dialects in the same words ---------------------------------------------------------------------------------


async def begin(client: Any, name: str, arguments: Message | None = None, **params: Any) -> str:
    """Call a tool as a task, in the words of the client's dialect; the id of the task."""
    if client.revision == MODERN:
        result = await client.call(name, arguments, **params)
        assert result["resultType"] == "task", result
        return str(result["taskId"])
    result = await client.call(name, arguments, **{"task": {}, **params})
    return str(result["task"]["taskId"])


async def look(client: Any, identifier: str) -> Message:
    result: Message = await client.result("tasks/get", {"taskId": identifier})
    return result


async def status_of(client: Any, identifier: str) -> str:
    return str((await look(client, identifier))["status"])


async def reaches(client: Any, identifier: str, *statuses: str) -> Message:
    """Look at a task until it has one of these statuses."""
    while (task := await look(client, identifier))["status"] not in statuses:
        await asyncio.sleep(0)
    return task


async def outcome(client: Any, identifier: str) -> Message:
    """What the call would have answered: by `tasks/result`, or out of `tasks/get`."""
    if client.revision == MODERN:
        task = await reaches(client, identifier, "completed", "failed", "cancelled")
        result: Message = task["result"]
        return result
    return await client.result("tasks/result", {"taskId": identifier})  # type: ignore[no-any-return]


def text_in(result: Message) -> str:
    return str(result["content"][0]["text"])
