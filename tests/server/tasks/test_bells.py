"""Bells reach those who want to know of a task, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolwire.protocol.tasks import EVERY_PROCESS
from toolwire.server.tasks.bells import Bells
from toolwire.stores import StoreFailed, Stores

KEY = "toolwire:task2:s:ada:1"


class Heard:
    """What the bells of one process said."""

    def __init__(self, stores: Stores) -> None:
        self.said: list[Any] = []
        self.bells = Bells(
            "s", stores, changed=self.changed, told=self.told, may_take=self.may_take, missed=self.missed
        )

    def changed(self, key: str) -> None:
        self.said.append(("changed", key))

    def told(self, key: str, method: str, params: Any) -> None:
        self.said.append(("told", key, method, bytes(params)))

    def may_take(self) -> None:
        self.said.append("may take")

    def missed(self) -> None:
        self.said.append("missed")


async def delivered() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.covers("FLT-24")
async def test_a_process_hears_what_is_meant_for_it() -> None:
    stores = Stores.memory()
    one, two, three = Heard(stores), Heard(stores), Heard(stores)
    for number, each in enumerate((one, two, three)):
        each.bells.listen(f"p{number}")
    await one.bells.ring(KEY, "p0", "p1", "")
    await one.bells.tell("p2", KEY, "notifications/progress", b"{}")
    await one.bells.ring_ready("s")
    await one.bells.ring_ready("another server")
    await delivered()
    assert one.said == ["may take"], "a process knows by itself what it has changed"
    assert two.said == [("changed", KEY), "may take"]
    assert three.said == [("told", KEY, "notifications/progress", b"{}"), "may take"]


@pytest.mark.parametrize("first", ["watch", "listen"])
async def test_a_process_that_watches_hears_of_the_task_also_before_it_has_a_lease(first: str) -> None:
    stores = Stores.memory()
    here, there, deaf = Heard(stores), Heard(stores), Heard(stores)
    if first == "listen":
        here.bells.listen("p0")
    deaf.bells.watcher()
    with here.bells.waiting(KEY) as bell, here.bells.waiting(KEY) as other:
        watcher = here.bells.watcher()
        here.bells.listen("p0")
        await there.bells.ring(KEY, watcher, "p0")
        await asyncio.wait_for(asyncio.gather(bell.wait(), other.wait()), 30)
        await here.bells.ring(KEY, watcher, "p0")
    await delivered()
    assert here.said == [("changed", KEY)] * 2, "one under each of its names, and none of its own"
    assert deaf.said == []


async def test_a_task_that_very_many_watch_is_told_to_all_of_those() -> None:
    stores = Stores.memory()
    here, there, deaf = Heard(stores), Heard(stores), Heard(stores)
    for each in (here, there, deaf):
        each.bells.watcher()
    assert not here.bells.watches_with_everybody
    here.bells.watch_with_everybody()
    assert here.bells.watches_with_everybody
    await there.bells.ring(KEY, EVERY_PROCESS)
    await delivered()
    assert (here.said, deaf.said) == ([("changed", KEY)], [])


async def test_a_process_that_gets_another_name_looks_at_everything() -> None:
    stores = Stores.memory()
    here = Heard(stores)
    here.bells.listen("p0")
    with here.bells.waiting(KEY) as bell:
        here.bells.listen("p1")
        assert bell.is_set()
    await Heard(stores).bells.ring(KEY, "p0", "p1")
    await delivered()
    assert here.said == ["missed", ("changed", KEY)]


async def test_a_message_that_cannot_be_read_is_passed_over() -> None:
    stores = Stores.memory()
    heard = Heard(stores)
    heard.bells.listen("p0")
    await stores.bus.publish("toolwire:task-process2:p0", b"of another version")
    await delivered()
    assert heard.said == []


async def test_a_bus_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stores = Stores.memory()
    heard = Heard(stores)

    async def fail(topic: str, data: bytes) -> None:
        raise StoreFailed("away")

    monkeypatch.setattr(stores.bus, "publish", fail)
    await heard.bells.ring(KEY, "p1")
    await heard.bells.ring_ready("s")
    await heard.bells.tell("p1", KEY, "notifications/progress", b"{}")
    assert [record.getMessage() for record in caplog.records] == ["the change of a task could not be announced"] * 3


def test_bells_of_a_loop_that_has_ended_are_discarded() -> None:
    stores = Stores.memory()
    before = Heard(stores)

    async def once(heard: Heard) -> None:
        heard.bells.listen("p0")
        heard.bells.listen("p0")
        await Heard(stores).bells.ring_ready("s")
        await delivered()

    asyncio.run(once(before))
    before.bells.discard()
    after = Heard(stores)
    asyncio.run(once(after))
    assert before.said == after.said == ["may take"]
    after.bells.discard()
    assert stores.bus._count == 0  # type: ignore[attr-defined]


async def test_processes_of_the_version_before_hear_each_bell() -> None:
    stores = Stores.memory()
    here, there = Heard(stores), Heard(stores)
    heard: list[tuple[str, bytes]] = []
    for topic in ("toolwire:task-process2:old", "toolwire:tasks-ready2:s"):
        stores.bus.subscribe(topic, lambda data, topic=topic: heard.append((topic, data)))
    here.bells.listen("p0")
    await there.bells.ring(KEY, "old")
    await there.bells.ring_ready("s")
    await stores.bus.publish("toolwire:task-process2:p0", f'{{"key":"{KEY}"}}'.encode())
    await stores.bus.publish("toolwire:tasks-ready2:s", b"")
    await delivered()
    ring = f'{{"key":"{KEY}"}}'.encode()
    assert sorted(heard) == [("toolwire:task-process2:old", ring), *[("toolwire:tasks-ready2:s", b"")] * 2]
    assert here.said.count("may take") == 2 and here.said.count(("changed", KEY)) == 1
