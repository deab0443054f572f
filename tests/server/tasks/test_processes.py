"""Processes look after each other's tasks, whatever else they find in the store."""

from __future__ import annotations

import asyncio

import pytest

from toolwire.protocol.rounds import digest
from toolwire.server.tasks.task_processes import Processes
from toolwire.stores import MemoryKV


@pytest.mark.parametrize("entry", [b"a newer format", b'{"identity":"a newer form","seen":0}'])
async def test_an_entry_that_cannot_be_read_stops_nobody(entry: bytes) -> None:
    kv, looked = MemoryKV(), []
    stranger = f"toolwire:task-process:{digest('s')[:16]}:stranger"
    await kv.put(stranger, entry)

    async def recover() -> None:
        looked.append("after the tasks")

    processes = Processes("s", kv, recover)
    await processes.start()
    assert looked == ["after the tasks"]
    assert await processes.lives("stranger"), "its tasks are its own"
    assert await kv.get(stranger) is not None
    await processes.stop()


def test_a_process_goes_on_where_its_first_loop_has_ended() -> None:
    kv = MemoryKV()

    async def recover() -> None:
        return

    async def go_on() -> None:
        before = asyncio.all_tasks()
        processes.go_on()
        (beat,) = asyncio.all_tasks() - before
        name = await processes.registered()
        assert await kv.get(f"toolwire:task-process:{digest('s')[:16]}:{name}") is not None
        processes.go_on()
        assert asyncio.all_tasks() - before == {beat}
        await processes.stop()
        assert beat.cancelled()

    async def begin() -> None:
        await processes.start()
        await kv.delete(f"toolwire:task-process:{digest('s')[:16]}:{await processes.registered()}")

    processes = Processes("s", kv, recover)
    asyncio.run(begin())
    asyncio.run(go_on())
