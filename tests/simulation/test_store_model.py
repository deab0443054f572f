"""The model of the store against a real Redis: the same operations in the same order have the same outcomes."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.redis_server import RedisServer, running
from tests.simulation.store_model import FIRST_POSITION, StoreClient, StoreServer
from tests.simulation.world import Process, World

from toolwire.stores import Held, Ready, StoreFull
from toolwire.stores.redis import RedisStores

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis does not run there")

#: So small that random operations reach them.
LIMITS: dict[str, Any] = {
    "max_items": 6,
    "max_bytes": 120,
    "max_events": 4,
    "max_stream_bytes": 60,
    "max_streams": 3,
    "max_log_bytes": 90,
}

_prefixes = (f"model {number}" for number in itertools.count())
Operation = tuple[str, str, tuple[Any, ...], dict[str, Any]]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


class Both:
    """The model and the real store, at the same time of day."""

    def __init__(self, redis: RedisServer, **limits: Any) -> None:
        self.world = World(0)
        self.model = StoreServer(self.world, **limits)
        self.real = RedisStores(
            redis.url,
            prefix=next(_prefixes),
            clock=self.model.process.wall,
            first_position=FIRST_POSITION,
            **limits,
        )
        self.history: list[Any] = []

    async def run(self, part: str, method: str, *args: Any, **options: Any) -> Any:
        """Run an operation in both, and return the outcome that both have."""
        try:
            expected: Any = self.model.run(part, method, *args, **options)
        except Exception as error:
            expected = type(error)
        try:
            found: Any = await getattr(getattr(self.real, part), method)(*args, **options)
        except Exception as error:
            found = type(error)
        self.history.append((round(self.world.now, 1), part, method, args, options, expected))
        shown = "\n".join(map(str, self.history[-40:]))
        assert _rounded(found) == _rounded(expected), f"Redis: {found!r}, the model: {expected!r}, after\n{shown}"
        return expected


def _rounded(value: Any) -> Any:
    """Times are milliseconds in Redis and seconds in memory."""
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, tuple | list):
        return [_rounded(each) for each in value]
    return value


@pytest.fixture
def make(redis: RedisServer) -> Iterator[Callable[..., Both]]:
    made: list[Both] = []

    def both(**limits: Any) -> Both:
        made.append(Both(redis, **limits))
        return made[-1]

    yield both
    for each in made:
        each.real.close()


class Operations:
    """Random operations, which know some of what was answered before."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self.positions: list[int] = [FIRST_POSITION]
        self.records: dict[str, bytes] = {}
        self.leases: list[tuple[str, int]] = [("one", 1)]

    def kv(self) -> Operation:
        choose = self._random.choice
        key, value = choose("abcdefgh"), choose((b"", b"1", b"22", b"text", b"x" * 30, b"y" * 70))
        ttl = choose((None, None, 1.0, 5.0, 60.0))
        match self._random.randrange(8):
            case 0:
                return "kv", "get", (key,), {}
            case 1:
                return "kv", "put", (key, value), {"ttl": ttl, "if_absent": True}
            case 2:
                return "kv", "put", (key, value), {"ttl": ttl, "expect": choose((b"", b"1", b"22", b"text"))}
            case 3:
                return "kv", "add", (key, choose((-3, 1, 40))), {"ttl": ttl}
            case 4:
                return "kv", "delete", (key,), {}
            case 5:
                return "kv", "expire", (key, ttl), {}
            case 6:
                prefix, after = choose(("", "", "a", "b")), choose(("", "", "a", "c"))
                return "kv", "keys", (prefix,), {"after": after, "limit": choose((0, 1, 3, 1000))}
            case _:
                return "kv", "put", (key, value), {"ttl": ttl}

    def log(self) -> Operation:
        choose = self._random.choice
        stream = choose("stuv")
        match self._random.randrange(4):
            case 0:
                position = choose((None, choose(self.positions), choose(self.positions[-4:])))
                return "log", "read_after", (stream, position, choose((1, 2, 100))), {}
            case 1 if self._random.random() < 0.3:
                return "log", "delete", (stream,), {}
            case _:
                return "log", "append", (stream, choose((b"", b"12345", b"x" * 25, b"y" * 70))), {}

    def queue(self, *, removing: bool) -> Operation:
        """Return an operation; `removing`: some remove a record through the `KV`, and no numbers are asked for.

        A record that is removed there has no place any more, but Redis may count it for a while.
        """
        choose = self._random.choice
        process = choose(("one", "two", "three", f"new {next(self._numbers) // 60}"))
        match self._random.randrange(14):
            case 0 | 1 | 2 | 3:
                return self._change(process)
            case 4 | 5:
                options: dict[str, Any] = {"passing_over": set(choose(([], [], ["ann"], ["ann", "bob"])))}
                if self._random.random() < 0.2:
                    return "queue", "held", (process,), {"after": choose(("", "b")), "limit": choose((1, 1000))}
                return "queue", "take", (process, choose((["x"], ["x", "y"], ["z"])), choose((1, 3))), options
            case 6 | 7:
                return "queue", "renew", (process, choose((5.0, 20.0))), {}
            case 8:
                return "queue", choose(("stale", "leases", "stale" if removing else "counts")), (), {}
            case 9:
                return "queue", "bury", choose(self.leases), {}
            case 10:
                return "queue", "orphans", (choose((1, 10)),), {}
            case 11:
                return choose((("queue", "waiting", (choose((0.0, 3.0)), 10), {}), self._placed()))
            case 12 if removing:
                key = choose("abcdef")
                return choose((("kv", "delete", (key,), {}), ("kv", "expire", (key, choose((1.0, 5.0, None))), {})))
            case _:
                return ("queue", "release", (process,), {}) if self._random.random() < 0.2 else self._placed()

    def _placed(self) -> Operation:
        choose = self._random.choice
        one = ("queue", "place", (choose("abcdef"),), {})
        return choose((one, ("queue", "places", ("",), {"after": choose(("", "b")), "limit": choose((2, 1000))})))

    def _change(self, process: str) -> Operation:
        """Change a record, mostly with what is there now, and sometimes as if an answer had been lost."""
        choose = self._random.choice
        key = choose("abcdef")
        value = b"%d" % next(self._numbers) if self._random.random() < 0.9 else self.records.get(key, b"")
        ready = Ready(choose("xyz"), choose(("ann", "bob")), choose((0.0, 0.0, 4.0)))
        options: dict[str, Any] = {
            "ttl": choose((None, 10.0, 60.0)),
            "expect": self.records.get(key) if self._random.random() < 0.9 else choose((None, b"1")),
            "place": choose((ready, Held(process), Held(process, "y"), None)),
            "holder": choose(("", "", "", process)),
            "orphan_of": choose(("", "", "", "", process)),
            "most_ready": choose((None, 3)),
        }
        return "queue", "change", (key, value), options


@pytest.mark.parametrize("seed", range(12))
async def test_random_operations_on_the_queue_have_the_same_outcomes(make: Callable[..., Both], seed: int) -> None:
    both, operations = make(), Operations(seed)
    time = random.Random(f"time {seed}")
    for _ in range(300):
        part, method, args, options = operations.queue(removing=seed % 2 == 1)
        outcome = await both.run(part, method, *args, **options)
        if method == "change":
            now = await both.run("kv", "get", args[0])
            operations.records = {**operations.records, args[0]: now} if now is not None else operations.records
        elif method in ("stale", "leases") and outcome:
            operations.leases = outcome
        if time.random() < 0.15:
            both.world.now += time.choice((0.5, 3.0, 12.0))


@pytest.mark.parametrize("seed", range(12))
async def test_random_operations_have_the_same_outcomes(make: Callable[..., Both], seed: int) -> None:
    both, operations = make(**LIMITS), Operations(seed)
    time = random.Random(f"time {seed}")
    for _ in range(250):
        part, method, args, options = time.choice((operations.kv, operations.log))()
        outcome = await both.run(part, method, *args, **options)
        if method == "append":
            operations.positions.append(outcome)
        if time.random() < 0.2:
            both.world.now += time.choice((0.5, 1.0, 4.0, 30.0))


async def test_a_full_store_refuses_the_same(make: Callable[..., Both], redis: RedisServer) -> None:
    both = make()
    for key in "abc":
        await both.run("kv", "put", key, b"12345")
    await both.run("kv", "put", "n", b"10")
    await both.run("log", "append", "s", b"event")
    both.real.bus.subscribe("t", lambda _: None)  # A message that nobody listens to needs no room.
    await both.real.bus.publish("t", b"heard")
    redis.command("CONFIG", "SET", "maxmemory", "1")
    both.model.fill(1000.0)
    try:
        refused = 0
        for part, method, args, options in (
            ("kv", "put", ("a", b"54321"), {}),
            ("kv", "put", ("a", b"1"), {"expect": b"54321"}),
            ("kv", "put", ("a", b"longer than before"), {}),
            ("kv", "put", ("new", b"1"), {}),
            ("kv", "put", ("b", b"1234"), {"ttl": 5.0}),
            ("kv", "get", ("a",), {}),
            ("kv", "expire", ("b", 10.0), {}),
            ("kv", "delete", ("c",), {}),
            ("kv", "keys", ("",), {}),
            ("log", "read_after", ("s", None, 10), {}),
        ):
            refused += await both.run(part, method, *args, **options) is StoreFull
        assert refused == 2
        for part, method in (("log", "append"), ("bus", "publish")):
            with pytest.raises(StoreFull):
                await getattr(getattr(both.real, part), method)("t", b"data")
            with pytest.raises(StoreFull):
                _ask(both, part, method, "t", b"data")
    finally:
        redis.command("CONFIG", "SET", "maxmemory", "0")


def _ask(both: Both, part: str, method: str, *args: Any) -> Any:
    """Run an operation of the model by way of its connection."""
    process = Process(both.world, "asking")
    stores = StoreClient(both.model, process).stores()
    task = process.start(getattr(getattr(stores, part), method)(*args))
    both.world.run(both.world.now + 1.0)
    return task.result()


class Hearing:
    """A subscriber that remembers."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.more = asyncio.Event()

    def __call__(self, message: bytes) -> None:
        self.heard.append(message.decode())
        self.more.set()

    def lost(self) -> None:
        self.heard.append("lost")
        self.more.set()

    async def until(self, count: int) -> list[str]:
        while len(self.heard) < count:
            self.more.clear()
            await self.more.wait()
        return self.heard


MESSAGES = [(number % 2, "ab"[number % 3 == 0], f"{number}") for number in range(20)]


async def test_messages_are_heard_in_the_same_order(redis: RedisServer) -> None:
    """Two processes send in turn; each hears everything of a topic once, in the order of sending."""
    prefix = next(_prefixes)
    stores = [RedisStores(redis.url, prefix=prefix) for _ in range(2)]
    real = [Hearing(), Hearing()]
    for each, hearing in zip(stores, real, strict=True):
        await each.check()
        each.bus.subscribe("a", hearing, on_lost=hearing.lost)
    for sender, topic, text in MESSAGES:
        await stores[sender].bus.publish(topic, text.encode())
    expected = [text for _, topic, text in MESSAGES if topic == "a"]
    assert [await each.until(len(expected)) for each in real] == [expected, expected]
    for each in stores:
        each.close()

    world = World(0)
    server = StoreServer(world)
    processes = [Process(world, name) for name in ("one", "two")]
    made = [StoreClient(server, each).stores() for each in processes]
    heard = [Hearing(), Hearing()]

    async def listen(number: int) -> None:
        await made[number].check()
        made[number].bus.subscribe("a", heard[number].heard.append, on_lost=heard[number].lost)  # type: ignore[arg-type]

    for number in (0, 1):
        processes[number].start(listen(number))
    world.run(1.0)
    for sender, topic, text in MESSAGES:
        processes[sender].start(made[sender].bus.publish(topic, text.encode()))
        world.run(world.now + 1.0)
    assert [[each.decode() for each in one.heard] for one in heard] == [expected, expected]  # type: ignore[attr-defined]


def test_full_store_keeps_its_configured_limit() -> None:
    world = World(0)
    server = StoreServer(world, max_bytes=1000)
    server.fill(10.0)
    # A replica that starts meanwhile divides this limit among its callers.
    kv: Any = StoreClient(server, Process(world, "replica")).stores().kv
    assert kv.max_bytes == 1000


async def test_who_was_cut_off_hears_what_it_missed_or_that_it_did() -> None:
    world = World(0)
    server = StoreServer(world)
    sender, hearer = Process(world, "sender"), Process(world, "hearer")
    sending, hearing = StoreClient(server, sender), StoreClient(server, hearer)
    heard: list[Any] = []

    async def listen() -> None:
        stores = hearing.stores()
        await stores.check()
        stores.bus.subscribe("t", heard.append, on_lost=lambda: heard.append("lost"))

    hearer.start(listen())
    world.run(1.0)
    hearing.cut()
    sender.start(sending.stores().bus.publish("t", b"missed"))
    world.run(2.0)
    hearing.reconnect_soon()
    world.run(10.0)
    assert heard == [b"missed"]
    server.fail_over(0.5, 1.0, lambda: None)
    sender.start(sending.stores().bus.publish("t", b"before"))
    world.run(20.0)
    assert heard == [b"missed", b"before", "lost"], "the store has an older number than it had"


async def test_who_comes_back_to_a_new_primary_learns_that_numbers_were_given_again() -> None:
    world = World(0)
    server = StoreServer(world)
    sender, hearer = Process(world, "sender"), Process(world, "hearer")
    sending, hearing = StoreClient(server, sender), StoreClient(server, hearer)
    heard: list[Any] = []
    hearing.stores().bus.subscribe("t", heard.append, on_lost=lambda: heard.append("lost"))
    hearer.start(hearing.ask("bus", "look", None))
    sender.start(sending.ask("bus", "look", None))
    world.run(1.0)
    server.fail_over(0.5, 1.0, lambda: None)
    sender.start(sending.stores().bus.publish("t", b"before"))
    world.run(2.0)
    hearing.reconnect_soon = lambda: None  # type: ignore[method-assign]
    world.run(10.0)
    sender.start(sending.stores().bus.publish("t", b"after"))
    world.run(20.0)
    assert heard == [b"before"], "it has not come back yet, and has seen the number of the other message"
    hearing._reconnect()
    world.run(30.0)
    assert heard == [b"before", "lost"]
