"""One way to talk about tasks over every transport: in memory, through pipes, and by HTTP.

What is sent is what the test says; requests of the server are answered by `answers`, on whichever stream they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import repeat
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest
from tests.httpwire import connect_http
from tests.patience import patience
from tests.wireclient import MODERN, Message, WireClient, connect

from toolwire import Server
from toolwire.testing import elapse

CORE = "2025-11-25"
EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
FORMS: Message = {"elicitation": {"form": {}}}
# 2025-11-25 knows nothing of the extension, and takes no notice of it.
ABLE: Message = {**FORMS, "extensions": {EXTENSION: {}}}
DIALECTS = (CORE, MODERN)
TRANSPORTS: tuple[Over, ...] = ("stdio", "http")

Over: TypeAlias = Literal["memory", "stdio", "http"]
Joining: TypeAlias = AbstractAsyncContextManager[WireClient]


@asynccontextmanager
async def open_to(server: Server, revision: str, over: Over = "memory") -> AsyncIterator[Callable[..., Joining]]:
    """How clients of `revision` join `server`: by calls with their capabilities and principal.

    They can take tasks and show forms, unless their capabilities say otherwise.
    """
    if over != "http":
        yield lambda capabilities=ABLE, principal=None: connect(
            server, revision, capabilities, principal=principal, over=over
        )
        return
    app = server.http_app()
    try:
        yield lambda capabilities=ABLE, principal=None: connect_http(app, revision, capabilities, principal=principal)
    finally:
        stopping = asyncio.create_task(app.stop())
        # Tasks that still run are waited for; here that time passes at once.
        await elapse(max(server.limits.drain, server.limits.drain_tasks))
        await stopping


@asynccontextmanager
async def talk(server: Server, revision: str, over: Over = "memory", **client: Any) -> AsyncIterator[WireClient]:
    """The only client of `server`."""
    async with open_to(server, revision, over) as join, join(**client) as joined:
        yield joined


class Way(NamedTuple):
    """A transport and a dialect."""

    over: Over
    revision: str

    def __str__(self) -> str:
        return f"{self.over}-{self.revision}"

    @property
    def modern(self) -> bool:
        return self.revision == MODERN

    def talk(self, server: Server, **client: Any) -> Joining:
        return talk(server, self.revision, self.over, **client)

    def open(self, server: Server) -> AbstractAsyncContextManager[Callable[..., Joining]]:
        return open_to(server, self.revision, self.over)


#: For what has to hold over each transport in each dialect; tests/test_requirements.py knows these by their names.
WAYS = [Way(over, revision) for over in TRANSPORTS for revision in DIALECTS]
ways = pytest.mark.parametrize("way", WAYS, ids=str)
dialects = pytest.mark.parametrize("revision", DIALECTS)
over = pytest.mark.parametrize("over", TRANSPORTS)


# --- both dialects in the same words ---------------------------------------------------------------------------------


def task_in(result: Message) -> Message:
    """The task that a call was answered with."""
    assert "task" in result or result.get("resultType") == "task", result
    task: Message = result.get("task", result)
    return task


async def begin(client: WireClient, name: str, arguments: Message | None = None, **params: Any) -> str:
    """Call a tool as a task, in the words of the client's dialect; the id of the task."""
    wish: Message = {} if client.revision == MODERN else {"task": {}}
    return str(task_in(await client.call(name, arguments, **{**wish, **params}))["taskId"])


async def look(client: WireClient, identifier: str) -> Message:
    return await client.result("tasks/get", {"taskId": identifier})


async def status_of(client: WireClient, identifier: str) -> str:
    return str((await look(client, identifier))["status"])


def pause_after(turns: int = 50) -> Iterator[float]:
    """Yield the pauses of a wait: what takes longer than some turns waits for another process, or for a time."""
    yield from repeat(0.0, turns)
    yield from repeat(0.01)


async def reaches(client: WireClient, identifier: str, *statuses: str) -> Message:
    """Look at a task until it has one of these statuses."""
    async with patience(f"a task to be {' or '.join(statuses)}"):
        pauses = pause_after()
        while (task := await look(client, identifier))["status"] not in statuses:
            await asyncio.sleep(next(pauses))
        return task


async def says(client: WireClient, identifier: str, message: str | None) -> Message:
    """Look at a task until it has this status message, or none."""
    async with patience(f"the status message {message!r}"):
        pauses = pause_after()
        while (task := await look(client, identifier)).get("statusMessage") != message:
            await asyncio.sleep(next(pauses))
        return task


async def outcome(client: WireClient, identifier: str) -> Message:
    """What the call would have answered: by `tasks/result`, or out of `tasks/get`."""
    if client.revision == MODERN:
        task = await reaches(client, identifier, "completed", "failed", "cancelled")
        result: Message = task["result"]
        return result
    return await client.result("tasks/result", {"taskId": identifier})


async def wait_for_end(client: WireClient, identifier: str) -> asyncio.Future[Message]:
    """Wait as the dialect has it: for the answer to `tasks/result`, or on a listen stream, which goes on and on."""
    if client.revision == MODERN:
        waiting = client.start("subscriptions/listen", {"notifications": {"taskIds": [identifier]}})
        await client.notified("notifications/subscriptions/acknowledged")
    else:
        waiting = client.start("tasks/result", {"taskId": identifier})
        await look(client, identifier)  # By the time that this is answered, the other is waited for.
    return waiting


async def changes(client: WireClient, count: int) -> list[Message]:
    """What was told of a task, once it is so much: on the session's own channel, or to those who listen."""
    modern = client.revision == MODERN
    return await client.notified("notifications/tasks" if modern else "notifications/tasks/status", count)


async def answer(client: WireClient, identifier: str, **values: Any) -> None:
    """Give the answers to a task's questions: by `tasks/update`, or to those that a waiting `tasks/result` brings."""
    given = {key: accepted(value) for key, value in values.items()}
    if client.revision == MODERN:
        await client.result("tasks/update", {"taskId": identifier, "inputResponses": given})
    else:
        client.answers["elicitation/create"] = lambda params: given[params["message"]]
        client.start("tasks/result", {"taskId": identifier})


def accepted(value: Any) -> Message:
    return {"action": "accept", "content": {"value": value}}


def text_in(result: Message) -> str:
    return str(result["content"][0]["text"])
