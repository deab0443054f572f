"""Calls that go on as tasks: their states, their questions, their results, and how they are cancelled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from tests.inspector.page_client import inspected

from toolwire import Context, Limits, Server
from toolwire.client.tasks import TaskHandle

both_eras = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@dataclass
class Choice:
    confirm: bool


def make_server() -> Server:
    server = Server("tasks", limits=Limits(task_poll=0.05))

    @server.tool(task="required")
    async def work() -> str:
        return "worked"

    @server.tool(task="required")
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", Choice)
        return f"{answer.action}"

    @server.tool
    async def plain() -> str:
        return "at once"

    return server


@both_eras
async def test_a_task_is_followed_to_its_result(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        identifier = await page.start("tools/call", name="work")
        await page.event("call", call=lambda call: call["task"] and call["task"]["status"] == "completed")
        assert await page.text(identifier) == "worked"


@both_eras
async def test_a_task_is_cancelled_as_a_task(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        identifier = await page.start("tools/call", name="wait")
        await page.event("call", call=lambda call: call["task"] and call["task"]["status"] == "working")
        await page.ask("cancel", call=identifier)
        ended = await page.ended(identifier)
        assert ended["state"] == "cancelled" and ended["task"]["status"] == "cancelled"
        methods = [message["method"] for message in (await page.ask("state"))["messages"]]
        assert "tasks/cancel" in methods


@both_eras
async def test_a_task_that_was_over_before_it_could_be_cancelled_is_done(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the page would say "cancelled" beside "task: completed"."""
    server = Server("tasks", limits=Limits(task_poll=0.05))
    end = asyncio.Event()

    @server.tool(task="required")
    async def work() -> str:
        await end.wait()
        return "worked"

    cancel = TaskHandle.cancel

    async def too_late(self: TaskHandle, *, timeout: float | None = None) -> None:
        end.set()
        while not (await TaskHandle.status(self)).over:
            await asyncio.sleep(0)
        await cancel(self, timeout=timeout)

    monkeypatch.setattr(TaskHandle, "cancel", too_late)
    async with inspected(server, revision=revision) as page:
        identifier = await page.start("tools/call", name="work")
        await page.event("call", call=lambda call: call["task"] and call["task"]["status"] == "working")
        await page.ask("cancel", call=identifier)
        ended = await page.ended(identifier)
        assert (ended["state"], ended["task"]["status"]) == ("done", "completed")
        assert await page.text(identifier) == "worked"


@both_eras
async def test_a_task_asks(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        identifier = await page.start("tools/call", name="ask", task=True)
        await page.respond(await page.question(), action="accept", content={"confirm": True})
        assert await page.text(identifier) == "accept"
        ended = await page.ended(identifier)
        assert ended["task"] is None or ended["task"]["status"] == "completed"


@both_eras
async def test_a_call_that_is_no_task_has_no_state_of_one(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        call = await page.call("tools/call", name="plain")
        assert call["state"] == "done" and call["task"] is None
