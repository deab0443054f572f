"""Callbacks of the user beside the reader of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from toolwire import Client, Context, Server
from toolwire.client import callbacks
from toolwire.client.callbacks import Callbacks
from toolwire.protocol import types as t


@pytest.fixture
async def beside() -> AsyncIterator[Callbacks]:
    beside = Callbacks()
    yield beside
    for task in beside.tasks:
        task.cancel()
    await asyncio.gather(*beside.tasks, return_exceptions=True)


async def test_a_flood_makes_one_task_and_drops_the_oldest(beside: Callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_WAITING", 3)
    begun, go, seen = asyncio.Event(), asyncio.Event(), list[int]()

    async def slow(number: int) -> None:
        seen.append(number)
        begun.set()
        await go.wait()

    beside.call(slow, 0)
    await begun.wait()
    for number in range(1, 100):
        beside.call(slow, number)
    assert len(beside.tasks) == 1
    go.set()
    await asyncio.gather(*beside.tasks)
    assert seen == [0, 97, 98, 99]
    beside.call(slow, 100)
    await asyncio.gather(*beside.tasks)
    assert seen[-1] == 100


async def test_the_bytes_that_wait_are_bounded(beside: Callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_WAITING_BYTES", 100)
    begun, go, seen = asyncio.Event(), asyncio.Event(), list[int]()

    async def slow(number: int) -> None:
        seen.append(number)
        begun.set()
        await go.wait()

    beside.call(slow, 0, size=1_000)
    await begun.wait()
    for number, size in enumerate([40, 40, 40, 10, 1_000, 60, 30], start=1):
        beside.call(slow, number, size=size)
    go.set()
    await asyncio.gather(*beside.tasks)
    assert seen == [0, 6, 7]
    beside.call(slow, 8, size=1_000)
    await asyncio.gather(*beside.tasks)
    assert seen[-1] == 8, "one alone may be of any size"


async def test_a_burst_before_the_first_call_has_begun(beside: Callbacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_WAITING", 3)
    seen = list[int]()

    async def note(number: int) -> None:
        seen.append(number)

    for number in range(10):
        beside.call(note, number)
    await asyncio.gather(*beside.tasks)
    assert seen == [7, 8, 9]


async def test_a_slow_callback_holds_up_no_other_and_a_failure_is_its_own(
    beside: Callbacks, caplog: pytest.LogCaptureFixture
) -> None:
    seen = list[int]()

    async def stuck(number: int) -> None:
        await asyncio.Event().wait()

    async def odd(number: int) -> None:
        if number % 2 == 0:
            raise ValueError(number)
        seen.append(number)

    for number in range(4):
        beside.call(stuck, number)
        beside.call(odd, number)
    while len(beside.tasks) > 1:
        await asyncio.sleep(0)
    assert seen == [1, 3]
    assert caplog.text.count("a callback failed") == 2


async def test_a_callable_without_a_hash(beside: Callbacks) -> None:
    @dataclass
    class Notes:
        seen: list[int] = field(default_factory=list)

        async def __call__(self, number: int) -> None:
            self.seen.append(number)

    notes = Notes()
    for number in range(3):
        beside.call(notes, number)
    await asyncio.gather(*beside.tasks)
    assert notes.seen == [0, 1, 2]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_reports_of_a_call_reach_an_async_callback_in_order(revision: str) -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> None:
        for step in range(100):
            await ctx.progress(step, 100)

    seen = list[float]()

    async def on_progress(params: t.ProgressNotificationParams) -> None:
        seen.append(params.progress)

    async with Client(server, revision=revision) as client:
        await client.call_tool("work", on_progress=on_progress)
        assert seen == list(range(100))


async def test_a_callback_that_never_began_is_let_go(beside: Callbacks) -> None:
    """Nothing is left behind that was never awaited: warnings are errors."""
    seen = list[int]()

    async def note(number: int) -> None:
        seen.append(number)

    beside.call(note, 0)
    (task,) = beside.tasks
    task.cancel()
    await asyncio.wait({task})
    assert seen == []


async def test_large_messages_of_progress_do_not_wait_in_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_WAITING_BYTES", 10_000)
    server, go, last_came, seen = Server("s"), asyncio.Event(), asyncio.Event(), list[float]()

    @server.tool
    async def work(ctx: Context) -> str:
        for number in range(20):
            await ctx.progress(number, message="x" * 2_000)
        return "done"

    async def slow(progress: t.ProgressNotificationParams) -> None:
        await go.wait()
        seen.append(progress.progress)
        if progress.progress == 19:
            last_came.set()

    async with Client(server) as client:
        await client.call_tool("work", {}, on_progress=slow)
        go.set()
        await last_came.wait()
    assert len(seen) <= 6
