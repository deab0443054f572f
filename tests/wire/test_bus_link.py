"""The topic of all processes of a server, on a bus that fails now and then."""

from __future__ import annotations

import asyncio

import pytest

from toolwire.stores import MemoryBus, StoreFailed
from toolwire.testing.stores import Recorder
from toolwire.wire.bus_link import MAX_WAITING_BYTES, BusLink


class FailingBus(MemoryBus):
    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def publish(self, topic: str, data: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreFailed("it is not reached")
        await super().publish(topic, data)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)


async def test_messages_that_could_not_be_sent_are_made_up_for(caplog: pytest.LogCaptureFixture) -> None:
    bus = FailingBus()
    links = [BusLink(bus, "t"), BusLink(bus, "t")]
    heard = [Recorder(), Recorder()]
    for link, ears in zip(links, heard, strict=True):
        link.on("say", ears)
        link.on_lost(lambda ears=ears: ears(b"look again"))  # type: ignore[misc]
        link.open()
    links[0].post("say", b"1")
    await heard[1].until(1)
    bus.failures = 3
    for text in (b"2", b"3", b"4"):
        links[0].post("say", text)
    for ears in heard:
        # One was lost, which everybody is told, and those behind it arrive.
        while not {b"look again", b"4"} <= set(ears):
            await ears.until(len(ears) + 1)
        assert b"2" not in ears
    assert "publishing to the other processes failed: it is not reached" in caplog.text
    for link in links:
        link.close()


async def test_a_link_that_is_left_makes_up_for_nothing() -> None:
    bus = FailingBus()
    link = BusLink(bus, "t")
    link.open()
    bus.failures = 10**9
    link.post("say", b"1")
    while bus.failures > 10**9 - 3:
        await asyncio.sleep(0)
    link.close()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_a_message_to_one_process_is_heard_there_alone() -> None:
    bus = MemoryBus()
    links = [BusLink(bus, "t") for _ in range(3)]
    heard = [Recorder() for _ in links]
    for number, (link, ears) in enumerate(zip(links, heard, strict=True)):
        link.on("say", ears)
        link.open()
        link.hear(f"process {number}")
    await links[0].send("process 1", "say", b"1")
    links[0].post_to("process 1", "say", b"2")
    links[0].post_to("process 0", "say", b"3")
    links[0].post_to("nobody", "say", b"4")
    links[0].post("say", b"5")
    for ears in heard:
        while b"5" not in ears:
            await ears.until(len(ears) + 1)
    assert heard == [[b"3", b"5"], [b"1", b"2", b"5"], [b"5"]]
    for link in links:
        link.close()


async def test_a_process_that_is_left_hears_nothing_more() -> None:
    bus = MemoryBus()
    link, heard = BusLink(bus, "t"), Recorder()
    link.on("say", heard)
    link.open()
    leave = link.hear("process")
    await link.send("process", "say", b"1")
    await heard.until(1)
    leave()
    await link.send("process", "say", b"2")
    await link.publish("say", b"3")
    await heard.until(2)
    assert heard == [b"1", b"3"]
    link.close()


async def test_messages_to_one_process_that_were_missed_are_told() -> None:
    bus = MemoryBus(max_pending=1)
    link, lost = BusLink(bus, "t"), asyncio.Event()
    link.on_lost(lost.set)
    link.open()
    link.hear("process")
    for _ in range(3):
        await link.send("process", "say", b"")
    await lost.wait()
    link.close()


async def test_messages_that_wait_for_a_slow_bus_are_bounded_in_bytes(caplog: pytest.LogCaptureFixture) -> None:
    go_on = asyncio.Event()

    class SlowBus(MemoryBus):
        async def publish(self, topic: str, data: bytes) -> None:
            await go_on.wait()
            await super().publish(topic, data)

    heard = Recorder()
    link = BusLink(SlowBus(), "t")
    link.on("say", heard)
    link.open()
    size = MAX_WAITING_BYTES // 8
    for number in range(20):
        link.post("say", b"%02d" % number + b"x" * size)
    link.post("say", b"last")
    await asyncio.sleep(0)
    go_on.set()
    while b"last" not in heard:
        await heard.until(len(heard) + 1)
    assert sum(map(len, heard)) <= MAX_WAITING_BYTES
    assert "the bus is too slow: a message to the other processes was dropped" in caplog.messages
    link.close()


async def test_message_without_kind_is_its_content() -> None:
    bus = MemoryBus()
    link, heard, said = BusLink(bus, "t"), Recorder(), Recorder()
    link.on("", heard)
    link.on("say", said)
    leave = link.hear("p")
    link.open()
    await BusLink(bus, "t").send("p", "", b'{"key": 1}')
    await BusLink(bus, "t").publish("", b"")
    await BusLink(bus, "t").publish("say", b"")
    await heard.until(2)
    await said.until(1)
    assert (list(heard), list(said)) == ([b'{"key": 1}', b""], [b""])
    leave()
    link.close()
