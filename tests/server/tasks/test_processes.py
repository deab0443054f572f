"""Processes look after each other's tasks, whatever else they find in the store."""

from __future__ import annotations

from toolwire.protocol.rounds import digest
from toolwire.server.tasks.processes import Processes
from toolwire.stores import MemoryKV


async def test_an_entry_that_cannot_be_read_stops_nobody() -> None:
    kv, looked = MemoryKV(), []
    stranger = f"toolwire:task-process:{digest('s')[:16]}:stranger"
    await kv.put(stranger, b"a newer format")

    async def recover() -> None:
        looked.append("after the tasks")

    processes = Processes("s", kv, recover)
    await processes.start()
    assert looked == ["after the tasks"]
    assert await processes.lives("stranger"), "its tasks are its own"
    assert await kv.get(stranger) is not None
    await processes.stop()
