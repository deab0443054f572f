"""Processes look after each other's tasks, whatever else they find in the store."""

from __future__ import annotations

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
