"""The bus on Redis: a process reads the topics that it listens to, and nothing is stored that nobody hears."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.redis_server import RedisServer, running, until_answered, until_refused

from toolwire.stores import redis_bus
from toolwire.stores.redis import RedisBus, RedisStores
from toolwire.testing.stores import Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")

Open = Callable[[], RedisStores]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture
async def open_stores(redis: RedisServer) -> AsyncIterator[Open]:
    made: list[RedisStores] = []

    def stores() -> RedisStores:
        made.append(RedisStores(redis.url))
        return made[-1]

    yield stores
    for each in made:
        each.close()


def calls(redis: RedisServer, command: str) -> int:
    found = re.search(rf"cmdstat_{command}:calls=(\d+)", redis.command("INFO", "commandstats").decode())
    return int(found[1]) if found else 0


@pytest.mark.covers("FLT-24")
async def test_a_process_does_not_read_what_others_tell_each_other(
    open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, third = open_stores(), open_stores(), open_stores()
    read: list[str] = []
    take = RedisBus._take

    def spy(self: RedisBus, heard: Any, messages: Any) -> None:
        if self is one.bus:
            read.extend(heard.name for _ in messages)
        take(self, heard, messages)

    monkeypatch.setattr(RedisBus, "_take", spy)
    here, there = Recorder(), Recorder()
    one.bus.subscribe("mine", here)
    two.bus.subscribe("yours", there)
    await asyncio.gather(one.check(), two.check())
    for number in range(50):
        await third.bus.publish("yours", b"%d" % number)
    await third.bus.publish("mine", b"end")
    await asyncio.gather(here.until(1), there.until(50))
    assert (here, len(there)) == ([b"end"], 50)
    assert read == ["mine"]


async def test_the_wait_of_a_process_is_not_disturbed_by_others(redis: RedisServer, open_stores: Open) -> None:
    listener, others = open_stores(), open_stores()
    listener.bus.subscribe("mine", lambda data: None)
    await listener.check()
    heard = Recorder()
    others.bus.subscribe("yours", heard)
    await others.check()
    before = calls(redis, "xread")
    for number in range(100):
        await others.bus.publish("yours", b"%d" % number)
    await heard.until(100)
    await others.check()
    # Those of the others; the listener waits for five seconds each time.
    assert calls(redis, "xread") - before <= 100 + 10


@pytest.mark.covers("FLT-24")
async def test_a_message_that_nobody_hears_is_not_stored(redis: RedisServer, open_stores: Open) -> None:
    stores = open_stores()
    for number in range(10):
        await stores.bus.publish(f"topic {number}", b"x" * 1000)
    assert b"bus" not in redis.command("KEYS", "{toolwire}:*")
    leave = stores.bus.subscribe("heard", lambda data: None)
    await stores.bus.publish("heard", b"1")
    assert b":1" in redis.command("XLEN", "{toolwire}:bus:heard")
    leave()
    # It is kept for a while, for other processes. Then Redis forgets it, and that there was such a topic.
    assert 0 < int(redis.command("PTTL", "{toolwire}:bus:heard")[1:]) <= 120_000
    assert 0 < int(redis.command("PTTL", "{toolwire}:bus-topic:heard")[1:]) <= 60_000


async def test_a_topic_is_kept_while_a_process_listens(
    redis: RedisServer, open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_bus, "LISTEN_SECONDS", 0.05)
    stores = open_stores()
    stores.bus.subscribe("t", lambda data: None)
    await stores.check()
    redis.command("PEXPIRE", "{toolwire}:bus-topic:t", "30000")
    while int(redis.command("PTTL", "{toolwire}:bus-topic:t")[1:]) <= 30_000:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "loss",
    [
        [("DEL", "{toolwire}:bus-topic:t")],
        [("FLUSHALL",)],
        [("HINCRBY", "{toolwire}:bus-topic:t", "last", "1")],
        [("DEL", "{toolwire}:bus:t"), ("HINCRBY", "{toolwire}:bus-topic:t", "last", "-1")],
    ],
    ids=["nobody renewed the topic", "all data is gone", "the messages are gone", "the last messages are gone"],
)
async def test_subscribers_learn_that_messages_were_lost(
    redis: RedisServer, open_stores: Open, monkeypatch: pytest.MonkeyPatch, loss: list[tuple[str, ...]]
) -> None:
    monkeypatch.setattr(redis_bus, "LISTEN_SECONDS", 0.05)
    stores, others = open_stores(), open_stores()
    heard, elsewhere = Recorder(), Recorder()
    stores.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
    stores.bus.subscribe("u", elsewhere)
    await stores.check()
    await others.bus.publish("t", b"before")
    await heard.until(1)
    for command in loss:
        redis.command(*command)
    await heard.until(2)
    await others.bus.publish("t", b"after")
    await others.bus.publish("u", b"after")
    await asyncio.gather(heard.until(3), elsewhere.until(1))
    assert (heard, elsewhere) == ([b"before", b"lost", b"after"], [b"after"])


async def test_many_topics_in_one_process(open_stores: Open) -> None:
    stores, others = open_stores(), open_stores()
    heard = Recorder()
    for number in range(350):
        stores.bus.subscribe(f"{number}", heard)
    await stores.check()
    await asyncio.gather(*(others.bus.publish(f"{number}", b"%d" % number) for number in range(350)))
    await heard.until(350)
    assert sorted(heard, key=int) == [b"%d" % number for number in range(350)]


async def test_a_topic_that_is_left_and_listened_to_again(open_stores: Open) -> None:
    stores, others = open_stores(), open_stores()
    for number in range(30):
        heard = Recorder()
        leave = stores.bus.subscribe("t", heard, on_lost=lambda heard=heard: heard(b"lost"))
        await stores.kv.get("whatever is asked for afterwards comes afterwards")
        await others.bus.publish("t", b"%d" % number)
        await heard.until(1)
        assert heard == [b"%d" % number]
        leave()


async def test_a_check_hears_over_the_connection_that_messages_come_by(redis: RedisServer) -> None:
    redis.command("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "-xread")
    stores = RedisStores(f"unix://deaf:secret@{redis.socket}", timeout=0.3)
    assert await until_answered(lambda: stores.kv.put("a", b"1"))
    await until_refused(stores.check, "is not heard: the user of its address may not do what the store needs")
    redis.command("ACL", "SETUSER", "deaf", "+xread")
    await until_answered(stores.check)
    stores.close()


async def test_a_full_redis_can_be_used(redis: RedisServer, open_stores: Open) -> None:
    stores = open_stores()
    stores.bus.subscribe("t", lambda data: None)
    redis.command("CONFIG", "SET", "maxmemory", "1")
    await stores.check()
    redis.command("CONFIG", "SET", "maxmemory", "0")
    await stores.check()
