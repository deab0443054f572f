"""The stores on Redis: the same behaviour as in memory, in several processes, with a real server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.redis_server import RedisServer, running
from tests.stores.processes import ProcessContract

from toolwire.stores import Stores
from toolwire.stores.redis import RedisKV, RedisStores
from toolwire.testing.stores import BusContract, KVContract, LeaseThreadContract, LogContract, MakeStores, QueueContract

pytestmark = pytest.mark.warm_start

_prefixes = (f"test {number}" for number in itertools.count())


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture
def make_stores(redis: RedisServer) -> Iterator[MakeStores]:
    made: list[RedisStores] = []

    def stores(*, clock: Callable[[], float] | None = None, **limits: Any) -> Stores:
        made.append(RedisStores(redis.url, prefix=next(_prefixes), clock=clock, **limits))
        return made[-1]

    yield stores
    for each in made:
        each.close()


class TestKV(KVContract):
    pass


class TestLog(LogContract):
    pass


class TestBus(BusContract):
    pass


class TestQueue(QueueContract, LeaseThreadContract):
    pass


@pytest.fixture
def address(redis: RedisServer) -> str:
    return f"{redis.url}?prefix={quote(next(_prefixes))}"


@pytest.fixture
def stores(address: str) -> Iterator[RedisStores]:
    stores = RedisStores(address)
    yield stores
    stores.close()


class TestProcesses(ProcessContract):
    pass


async def test_the_values_of_a_prefix_have_a_name_that_outlives_them(redis: RedisServer, stores: RedisStores) -> None:
    """Sessions that have ended stay ended when Redis loses its data."""
    assert isinstance(stores.kv, RedisKV)
    before = stores.kv.name
    await stores.kv.put("key", b"value")
    redis.command("FLUSHALL")
    other = RedisStores(redis.url, prefix=before.partition(":")[2])
    another = RedisStores(redis.url, prefix="another")
    assert (other.kv.name, another.kv.name) == (before, "redis:another")  # type: ignore[attr-defined]
