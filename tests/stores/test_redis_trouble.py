"""What can go wrong with a Redis: each ends in time, with an error that says what to do and holds no secret."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.cases import cases
from tests.ports import free_port
from tests.redis_server import RedisServer, running, until_answered, until_refused

from toolwire.protocol.errors import ServerError
from toolwire.stores import StoreFailed, StoreFull
from toolwire.stores.by_address import open_stores
from toolwire.stores.redis import RedisStores
from toolwire.stores.redis_pipeline import ScriptCall, ScriptQueue
from toolwire.stores.redis_scripts import GET
from toolwire.testing.stores import Recorder

SECRET = "hunter-2-is-secret"
QUICK = 0.3

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture
async def stores(redis: RedisServer) -> AsyncIterator[RedisStores]:
    """Stores that wait as long as a busy machine takes."""
    stores = RedisStores(redis.url, timeout=60.0)
    yield stores
    stores.close()


@pytest.fixture
async def quick(redis: RedisServer) -> AsyncIterator[RedisStores]:
    """Stores that soon give up."""
    stores = RedisStores(redis.url, timeout=QUICK)
    yield stores
    stores.close()


# --- it is not there, or goes away ---


async def test_a_redis_that_is_not_there_yet(redis: RedisServer, quick: RedisStores) -> None:
    redis.kill()
    for _ in range(3):
        await until_refused(
            lambda: quick.kv.put("a", b"1"), "not reached, so see whether it runs and its address is right"
        )
    redis.start()
    await until_answered(quick.check)
    assert await until_answered(lambda: quick.kv.put("a", b"1"))


async def test_a_short_absence_is_waited_for(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    stores = RedisStores(redis.url, timeout=30.0)
    await stores.kv.put("a", b"1")
    redis.kill()
    reading = asyncio.ensure_future(stores.kv.get("a"))
    while "cannot be used" not in caplog.text:
        await asyncio.sleep(0.01)
    # From now on it is known to be away; before, a change might have been under way.
    writing = asyncio.ensure_future(stores.kv.put("b", b"2"))
    redis.start()
    assert await asyncio.gather(reading, writing) == [None, True]
    stores.close()


async def test_a_redis_that_is_killed_and_started_again_under_load(
    redis: RedisServer, quick: RedisStores, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Recorder()
    quick.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
    await until_answered(lambda: quick.bus.publish("t", b"before"))
    outcomes: list[object] = []
    done = asyncio.Event()

    async def load(number: int) -> None:
        while not done.is_set():
            try:
                await quick.kv.put(f"{number}", b"x" * 1000)
                outcomes.append(await quick.kv.get(f"{number}"))
            except StoreFailed as error:
                outcomes.append(error)
                await asyncio.sleep(0.01)

    loads = [asyncio.create_task(load(number)) for number in range(20)]
    for _ in range(2):
        redis.kill()
        failures = len(outcomes)
        while not any(isinstance(each, StoreFailed) for each in outcomes[failures:]):
            await asyncio.sleep(0.01)
        redis.start()
        await until_answered(quick.check)
    done.set()
    await asyncio.gather(*loads)
    assert {type(each) for each in outcomes} <= {bytes, StoreFailed, type(None)}
    # What was missed nobody knows, but that something may have been.
    while b"lost" not in heard:
        await heard.until(len(heard) + 1)
    # It was published twice if the first answer did not come in time.
    assert list(dict.fromkeys(heard)) == [b"before", b"lost"]
    while heard[-1] != b"after":
        await until_answered(lambda: quick.bus.publish("t", b"after"))
        await asyncio.sleep(0.02)
    assert "can be used again" in caplog.text


async def test_a_connection_that_is_cut_while_it_waits_misses_nothing(redis: RedisServer, stores: RedisStores) -> None:
    heard = Recorder()
    stores.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
    await stores.check()
    with_others = RedisStores(redis.url)
    await with_others.check()
    for number in range(20):
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        while True:
            try:
                await with_others.bus.publish("t", b"%d" % number)
                break
            except StoreFailed as error:
                assert "nobody knows whether the change was made" in str(error)
    await with_others.bus.publish("t", b"end")
    while b"end" not in heard:
        await heard.until(len(heard) + 1)
    assert sorted(set(map(bytes, heard)) - {b"end"}, key=int) == [b"%d" % number for number in range(20)]
    with_others.close()


async def test_who_is_told_that_messages_were_missed_can_look_at_everything_again(
    redis: RedisServer, quick: RedisStores
) -> None:
    looks: list[asyncio.Task[bool]] = []
    told = asyncio.Event()

    def lost() -> None:
        look = until_answered(lambda: quick.kv.put("looked", b"1"), though="did not answer within")
        looks.append(asyncio.get_running_loop().create_task(look))
        told.set()

    quick.bus.subscribe("t", lambda data: None, on_lost=lost)
    await until_answered(lambda: quick.bus.publish("t", b"before"))
    redis.kill()
    # Away for long enough that nothing waits for it any more.
    for _ in range(3):
        with pytest.raises(StoreFailed):
            await quick.kv.get("a")
    assert not told.is_set()
    redis.start()
    await told.wait()
    assert await looks[0]


async def test_a_redis_that_does_not_answer(redis: RedisServer, quick: RedisStores) -> None:
    await until_answered(quick.check)
    redis.pause()
    try:
        for _ in range(2):
            with pytest.raises(StoreFailed, match=r"did not answer within 0\.3 seconds"):
                await quick.kv.get("a")
        with pytest.raises(StoreFailed, match=r"did not answer within 0\.3 seconds"):
            await quick.kv.put("a", b"1")
    finally:
        redis.resume()
    await until_answered(quick.check)
    assert await until_answered(lambda: quick.kv.put("a", b"1"))


async def test_scripts_that_redis_has_forgotten_are_taught_again(redis: RedisServer, stores: RedisStores) -> None:
    await stores.kv.put("a", b"1")
    redis.command("SCRIPT", "FLUSH")
    positions = await asyncio.gather(*(stores.log.append("s", b"%d" % number) for number in range(10)))
    assert positions == sorted(positions)
    assert await stores.kv.get("a") == b"1"


# --- it refuses ---


async def test_a_full_redis(redis: RedisServer, stores: RedisStores) -> None:
    stores.bus.subscribe("t", lambda data: None)
    await stores.kv.put("kept", b"1")
    redis.command("CONFIG", "SET", "maxmemory", "1")
    changes = (stores.kv.put("a", b"1"), stores.log.append("s", b"1"), stores.bus.publish("t", b"1"))
    for refusal in await asyncio.gather(*changes, return_exceptions=True):
        assert isinstance(refusal, StoreFull)
        assert "raise its maxmemory" in str(refusal)
    assert await stores.kv.put("kept", b"2"), "replacing needs no room"
    assert await stores.kv.get("kept") == b"2"
    assert await stores.kv.expire("kept", 100)
    assert await stores.kv.delete("kept")
    another = RedisStores(redis.url, prefix="another")
    assert await another.kv.get("a") is None, "it can still be begun with"
    another.close()
    redis.command("CONFIG", "SET", "maxmemory", "0")
    assert await stores.kv.put("a", b"1")
    await stores.bus.publish("t", b"1")


@pytest.mark.parametrize("place", ["unix://:{secret}@{path}", "unix://{path}?password={secret}"])
async def test_a_wrong_password(place: str, caplog: pytest.LogCaptureFixture) -> None:
    with running("--requirepass", "right") as redis:
        stores = RedisStores(place.format(secret=SECRET, path=redis.socket), timeout=QUICK)
        caplog.set_level(logging.DEBUG)
        refused = await until_refused(stores.check, "does not accept the user name and password")
        stores.close()
        assert SECRET not in f"{refused!r} {refused.__cause__!r} {stores!r} {caplog.text}"
        right = RedisStores(place.format(secret="right", path=redis.socket))
        await right.check()
        right.close()
        nobody = RedisStores(redis.url)
        with pytest.raises(StoreFailed, match="does not accept the user name and password"):
            await nobody.check()
        nobody.close()


async def test_a_user_who_may_not(redis: RedisServer) -> None:
    redis.command("ACL", "SETUSER", "small", "on", f">{SECRET}", "~*", "+@all", "-script", "-evalsha")
    stores = RedisStores(f"unix://small:{SECRET}@{redis.socket}", timeout=QUICK)
    assert SECRET not in str(await until_refused(stores.check, "may not do what the store needs"))
    stores.close()


async def test_a_user_who_may_not_listen_is_told_so_once(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    redis.command("ACL", "SETUSER", "deaf", "on", f">{SECRET}", "~*", "+@all", "-xread")
    stores = RedisStores(f"unix://deaf:{SECRET}@{redis.socket}", timeout=60.0)
    heard = Recorder()
    stores.bus.subscribe("t", heard)
    await stores.bus.publish("t", b"1")
    await heard.until(1)
    while not re.search(rb"cmdstat_xread:.*rejected_calls=[3-9]", redis.command("INFO", "commandstats")):
        await asyncio.sleep(0.02)
    stores.close()
    assert caplog.text.count("is not heard: the user of its address may not do what the store needs") == 1
    assert SECRET not in caplog.text


async def test_a_replica_takes_no_changes(redis: RedisServer, quick: RedisStores) -> None:
    redis.command("REPLICAOF", "127.0.0.1", "1")
    await until_refused(lambda: quick.kv.put("a", b"1"), "give the address of the primary")
    redis.command("REPLICAOF", "NO", "ONE")
    await until_answered(quick.check)
    assert await until_answered(lambda: quick.kv.put("a", b"1"))


async def test_what_answers_is_not_redis() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    stores = RedisStores(f"redis://:{SECRET}@127.0.0.1:{port}/0", timeout=QUICK)
    with pytest.raises(StoreFailed, match=rf"redis://127.0.0.1:{port}/0 cannot be used") as raised:
        await stores.check()
    assert SECRET not in str(raised.value)
    stores.close()
    server.close()
    await server.wait_closed()


async def test_what_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stores = RedisStores(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout=QUICK)
        with pytest.raises(StoreFailed, match="cannot be used"):
            await stores.check()
        stores.close()


async def test_nothing_listens_there() -> None:
    stores = RedisStores(f"redis://user:{SECRET}@127.0.0.1:{free_port()}/3", timeout=QUICK)
    assert SECRET not in str(await until_refused(stores.check, "not reached"))
    stores.close()


# --- others have been there ---


@pytest.mark.parametrize("key", ["kv-names", "kv:a", "kv-sizes", "log-streams", "log:a", "bus:a", "bus-topic:a"])
async def test_keys_of_another_kind(redis: RedisServer, quick: RedisStores, key: str) -> None:
    redis.command("SADD", "{toolwire}:" + key, "of another program")
    bus: Any = quick.bus
    quick.bus.subscribe("a", lambda data: None)
    failures: list[BaseException] = []
    # The bell of the bus may be heard before the topics are looked at, and a busy machine may not answer in time.
    while not failures:
        outcomes = await asyncio.gather(
            quick.kv.put("a", b"1"), quick.log.append("a", b"1"), bus.hear(), return_exceptions=True
        )
        failures = [each for each in outcomes if isinstance(each, BaseException) and "not answer" not in str(each)]
    (failed,) = failures
    assert isinstance(failed, StoreFailed)
    assert "another program uses the prefix 'toolwire' there: choose another one" in str(failed)
    assert b":1" in redis.command("SCARD", "{toolwire}:" + key), "it stays as it was"
    elsewhere = RedisStores(redis.url, prefix="elsewhere")
    assert await elsewhere.kv.put("a", b"1")
    elsewhere.close()


async def test_garbage_in_its_own_keys(redis: RedisServer, stores: RedisStores) -> None:
    heard = Recorder()
    stores.bus.subscribe("t", heard)
    await stores.kv.put("a", b"1")
    first = await stores.log.append("s", b"1")
    await stores.bus.publish("t", b"1")
    redis.command("HSET", "{toolwire}:log-state", "s", "garbage")
    last = int(redis.command("HGET", "{toolwire}:bus-topic:t", "last").split(b"\r\n")[1])
    redis.command("XADD", "{toolwire}:bus:t", f"{last + 1}-0", "what", "ever")
    redis.command("HSET", "{toolwire}:bus-topic:t", "last", str(last + 1))
    assert await stores.log.append("s", b"2") == first + 1
    assert [data for _, data in await stores.log.read_after("s", None, 10)] == [b"2"]
    redis.command("SET", "{toolwire}:kv-bytes", "garbage")
    with pytest.raises(StoreFailed, match="cannot be used"):
        await stores.kv.put("b", b"1")
    assert await stores.kv.get("a") == b"1"
    redis.command("ZADD", "{toolwire}:kv-names", "0", b"\xc3\x28")
    with pytest.raises(StoreFailed, match="another program uses the prefix"):
        await stores.kv.keys("")
    await stores.bus.publish("t", b"2")
    await heard.until(2)
    assert heard == [b"1", b"2"]


# --- what it leaves behind ---


async def test_what_redis_removes_by_itself(redis: RedisServer, stores: RedisStores) -> None:
    await stores.kv.put("a", b"1", ttl=10)
    await stores.kv.put("b", b"1")
    await stores.log.append("s", b"1")
    stores.bus.subscribe("t", lambda data: None)
    await stores.bus.publish("t", b"1")

    def left(key: str) -> int:
        return int(redis.command("PTTL", "{toolwire}:" + key)[1:])

    assert 10_000 < left("kv:a") <= 70_000
    assert left("kv:b") == -1
    assert 0 < left("log:s") <= 24 * 3600 * 1000
    assert 0 < left("bus:t") <= 120_000
    assert 0 < left("bus-topic:t") <= 60_000
    await stores.kv.expire("a", None)
    assert left("kv:a") == -1


SUM_OF_VALUES = """
local sum = 0
for _, name in ipairs(redis.call('HKEYS', '{toolwire}:kv-sizes')) do
    sum = sum + #name + redis.call('STRLEN', '{toolwire}:kv:' .. name)
end
return sum
"""
SUM_OF_EVENTS = """
local sum = 0
for _, name in ipairs(redis.call('ZRANGE', '{toolwire}:log-streams', 0, -1)) do
    for _, event in ipairs(redis.call('XRANGE', '{toolwire}:log:' .. name, '-', '+')) do sum = sum + #event[2][2] end
end
return sum
"""


async def test_the_sums_stay_right(redis: RedisServer) -> None:
    now = [1000.0]
    stores = RedisStores(redis.url, clock=lambda: now[0], max_events=3, max_streams=3, max_items=20)
    for number in range(30):
        await stores.kv.put(str(number % 20), b"x" * number, ttl=number % 7 + 1)
        await stores.kv.expire(str(number % 5), 3)
        await stores.kv.delete(str(number % 3))
        await stores.log.append(str(number % 5), b"y" * number)
        now[0] += 1 if number < 20 else 30
    await stores.log.delete("1")
    kept = [redis.command("GET", "{toolwire}:kv-bytes"), redis.command("GET", "{toolwire}:log-bytes")]
    counted = [redis.command("EVAL", SUM_OF_VALUES, "0"), redis.command("EVAL", SUM_OF_EVENTS, "0")]
    assert [int(each.split(b"\r\n")[1]) for each in kept] == [int(each[1:]) for each in counted]
    assert int(redis.command("ZCARD", "{toolwire}:log-streams")[1:]) <= 3
    stores.close()


async def test_a_lost_sum_of_events_is_added_up_again(redis: RedisServer) -> None:
    stores = RedisStores(redis.url, max_events=3, max_streams=3)
    for number in range(9):
        await stores.log.append(str(number % 3), b"y" * 100)
    redis.command("DEL", "{toolwire}:log-bytes")
    assert await stores.log.delete("0")
    await stores.log.append("1", b"z")
    assert redis.command("GET", "{toolwire}:log-bytes") == b"$3\r\n501\r\n"
    assert int(redis.command("EVAL", SUM_OF_EVENTS, "0")[1:]) == 501
    stores.close()


async def test_what_is_asked_for_in_one_turn_of_a_loop_goes_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    queue = ScriptQueue(loop)
    sent: list[int] = []
    monkeypatch.setattr(queue, "ring", lambda: sent.append(len(queue.take())))
    for number in (3, 1):
        for _ in range(number):
            queue.add(ScriptCall(GET, (), (), lambda reply: reply, 0.0, loop, loop.create_future()))
        await asyncio.sleep(0)
    assert sent == [3, 1]


def test_a_loop_that_ends_before_its_scripts_are_sent_holds_nobody_up(redis: RedisServer) -> None:
    stores = RedisStores(redis.url)
    left = asyncio.new_event_loop()

    async def ask_and_leave() -> None:
        stores.bus.subscribe("a", lambda data: None)
        left.stop()

    leaving = left.create_task(ask_and_leave())
    left.run_forever()
    left.close()
    assert leaving.done()
    assert asyncio.run(stores.kv.add("sum", 1)) == 1
    stores.close()


async def test_closing_finishes_what_was_asked_for_and_leaves_nothing_behind(redis: RedisServer) -> None:
    before = set(threading.enumerate())
    stores = RedisStores(redis.url)
    asked = [asyncio.ensure_future(stores.kv.put(str(number), b"1")) for number in range(50)]
    stores.bus.subscribe("t", lambda data: None)
    await asyncio.sleep(0)
    stores.close()
    stores.close()
    assert await asyncio.gather(*asked) == [True] * 50
    assert set(threading.enumerate()) <= before
    # The one that is left asks this.
    redis.until(b"connected_clients:1\r", "INFO", "clients")
    with pytest.raises(StoreFailed, match="closed"):
        await stores.kv.get("a")
    with pytest.raises(StoreFailed, match="closed"):
        stores.bus.subscribe("t", lambda data: None)


async def test_closing_does_not_wait_for_a_redis_that_is_away(redis: RedisServer) -> None:
    stores = RedisStores(redis.url, timeout=60.0)
    await stores.check()
    redis.kill()
    asked = asyncio.ensure_future(stores.kv.put("a", b"1"))
    await asyncio.sleep(0)
    await asyncio.to_thread(stores.close)
    with pytest.raises(StoreFailed, match="cannot be used"):
        await asked


def test_a_process_may_end_without_closing(redis: RedisServer) -> None:
    code = f"""
import asyncio, logging
from toolwire.stores.by_address import open_stores
# On a busy machine the debug mode of asyncio warns of every callback that waited for a core.
logging.getLogger("asyncio").setLevel(logging.ERROR)
stores = open_stores({redis.url!r})
async def main():
    stores.bus.subscribe("t", print)
    await stores.kv.put("a", b"1")
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (0, "")


# --- addresses ---


@cases(
    "address",
    [
        f"redis://:{SECRET}/x@host/0",
        f"redis://:12?{SECRET}@host/0",
        f"redis://:{SECRET}#@host/0",
        f"redis://user:{SECRET}@host:port/0",
        f"redis://user:{SECRET}@host/notes",
        f"redis://user:{SECRET}@/0",
        f"http://user:{SECRET}@host/0",
        f"unix://{SECRET}",
        f"redis://:{SECRET}@host/0?decode_responses=1",
        f"rediss://:{SECRET}@host/0?ssl_whatever=1",
        f"redis://:{SECRET}@host/0?timeout=soon",
        f"redis://:{SECRET}@host/0?timeout=-1",
        f"redis://:{SECRET}@host/0?prefix=%7B",
        f"redis://:{SECRET}@one,/0",
        f"redis://:{SECRET}@one,two:port/0",
        f"redis://:{SECRET}@host/0?max_items=none",
        f"redis+sentinel://:{SECRET}@host",
        f"redis+sentinel://:{SECRET}@host/name/notes",
        f"redis+sentinel://:{SECRET}@/name",
        f"redis+cluster://:{SECRET}@host/0",
    ],
)
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ServerError) as raised:
        open_stores(address)
    assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@cases(
    ("address", "shown"),
    [
        (f"redis://user:{SECRET}@host", "redis://host:6379/0"),
        (f"rediss://:{SECRET}@[::1]:7000/2?ssl_cert_reqs=none", "rediss://[::1]:7000/2"),
        ("unix:///run/redis.sock?db=1&prefix=notes", "unix:///run/redis.sock"),
        (f"redis://:{SECRET}@one,two:7000,[::1]/1", "redis://one:6379,two:7000,[::1]:6379/1"),
        (f"redis://:{SECRET}@one/1?db=2", "redis://one:6379/2"),
        (f"redis+sentinel://:{SECRET}@one,two:7000/my%20name", "redis+sentinel://one:26379,two:7000/my name/0"),
        (f"rediss+sentinel://one/name/3?sentinel_password={SECRET}", "rediss+sentinel://one:26379/name/3"),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    stores = RedisStores(address)
    assert stores._link.errors.store == shown
    assert SECRET not in f"{stores!r} {stores._link._servers._address!r}"


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ServerError, match=r"A store on Redis needs redis: pip install 'toolwire\[redis\]'"):
        RedisStores("redis://localhost")
