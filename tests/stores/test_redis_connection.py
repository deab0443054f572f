"""Redis as people run it: replicas that take over, Sentinels, a cluster, TLS."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.http1.raw_http import certificate
from tests.ports import free_port
from tests.redis_server import RedisServer, ask, packed, replica_of, running, sentinel_of, until_refused

from toolwire.stores import StoreFailed, redis_bus
from toolwire.stores.redis import RedisStores
from toolwire.stores.redis_address import read_address
from toolwire.stores.redis_connection import RedisConnection, RedisServers
from toolwire.stores.redis_errors import RedisErrors
from toolwire.testing.stores import Recorder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")

#: Longer than any failover takes, also on a busy machine: what is asked for in time is answered.
PATIENT = 120.0


@pytest.fixture
def primary() -> Iterator[RedisServer]:
    # It passes its data on to a replica at once, instead of waiting for further ones.
    with running("--repl-diskless-sync-delay", "0", port=free_port()) as server:
        yield server


@pytest.fixture
def replica(primary: RedisServer) -> Iterator[RedisServer]:
    with replica_of(primary) as server:
        yield server


def fail_over(old: RedisServer, new: RedisServer) -> None:
    """What Sentinel does, or an operator: connections to the old primary stay open."""
    new.command("REPLICAOF", "NO", "ONE")
    old.command("REPLICAOF", "127.0.0.1", str(new.port))


# --- it refuses, and takes it later ---


class Refusing:
    """A Redis that answers the next scripts with an error, as one does that is busy with itself."""

    def __init__(self, redis: RedisServer, refusal: bytes) -> None:
        self._redis = redis
        self._refusal = refusal
        self.left = 0
        self.refused = 0
        self.port = 0
        self.carrying: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.carrying.add(task)
        inner, outer = await asyncio.open_unix_connection(self._redis.socket)
        try:
            while words := await _command(reader):
                if words[0] in (b"EVALSHA", b"EVAL") and self.left:
                    self.left -= 1
                    self.refused += 1
                    writer.write(b"-" + self._refusal + b"\r\n")
                else:
                    outer.write(packed(*words))
                    writer.write(await _reply(inner))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            outer.close()
            writer.close()


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    line = await reader.readline()
    words = []
    for _ in range(int(line[1:] or 0)):
        length = int((await reader.readline())[1:])
        words.append((await reader.readexactly(length + 2))[:-2])
    return words


async def _reply(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readuntil(b"\r\n")
    if line[:1] == b"$" and line[1:2] != b"-":
        return line + await reader.readexactly(int(line[1:]) + 2)
    if line[:1] == b"*":
        return line + b"".join([await _reply(reader) for _ in range(max(int(line[1:]), 0))])
    return line


@asynccontextmanager
async def refusing(redis: RedisServer, refusal: bytes) -> AsyncIterator[Refusing]:
    proxy = Refusing(redis, refusal)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in proxy.carrying:
            task.cancel()
        await asyncio.gather(*proxy.carrying, return_exceptions=True)


@pytest.mark.parametrize(
    ("refusal", "in_words"),
    [
        (b"READONLY You can't write against a read only replica.", "it is a replica, which takes no changes"),
        (
            b"ERR Error running script (call to f_1): @user_script:12: @user_script: 12: -READONLY You can't write.",
            "it is a replica, which takes no changes",
        ),
        (b"LOADING Redis is loading the dataset in memory", "it still reads its data from disk"),
        (b"MASTERDOWN Link with MASTER is down", "a replica that has lost its primary"),
        (b"NOREPLICAS Not enough good replicas to write.", "too few of its replicas are connected"),
        (b"CLUSTERDOWN The cluster is down", "some slots have no node"),
        (b"TRYAGAIN Multiple keys request during rehashing of slot", "moving the keys of the store to another node"),
        (b"ASK 2788 127.0.0.1:1", "moving the keys of the store to another node"),
        (b"UNBLOCKED force unblock from blocking operation", "it has become a replica"),
    ],
)
async def test_a_script_that_was_refused_is_sent_again_and_runs_once(
    primary: RedisServer, refusal: bytes, in_words: str
) -> None:
    async with refusing(primary, refusal) as proxy:
        stores = RedisStores(f"redis://127.0.0.1:{proxy.port}/0", timeout=PATIENT)
        assert await stores.kv.add("n", 1) == 1
        proxy.left = 3
        assert await asyncio.gather(*(stores.kv.add("n", 1) for _ in range(3))) == [2, 3, 4]
        assert proxy.refused == 3
        stores.close()
        short = RedisStores(f"redis://127.0.0.1:{proxy.port}/0", timeout=0.2)
        proxy.left = 1_000_000
        refused = await until_refused(lambda: short.kv.add("n", 1), in_words)
        assert refused.temporary
        short.close()
    witness = RedisStores(primary.url)
    assert await witness.kv.get("n") == b"4"
    witness.close()


@pytest.mark.parametrize(
    ("refusal", "in_words"),
    [
        (b"MISCONF Redis is configured to save RDB snapshots", "it cannot save its data: its log says why"),
        (b"BUSY Redis is busy running a script.", "busy with a script of another program"),
        (b"CROSSSLOT Keys in request don't hash to the same slot", "in another slot than the others"),
        (b"ERR something new", "something new"),
    ],
)
async def test_other_errors_are_told_in_words_and_nothing_is_sent_again(
    primary: RedisServer, refusal: bytes, in_words: str
) -> None:
    async with refusing(primary, refusal) as proxy:
        stores = RedisStores(f"redis://127.0.0.1:{proxy.port}/0", timeout=PATIENT)
        await stores.check()
        proxy.left = 1
        with pytest.raises(StoreFailed, match=in_words):
            await stores.kv.put("a", b"1")
        assert await stores.kv.put("a", b"1")
        stores.close()


async def test_connection_is_aborted_when_the_server_does_not_read() -> None:
    begun, may_read, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    received = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        with suppress(ConnectionError):
            words: list[bytes] = []
            while words != [b"ECHO", b"1"]:
                words = await _command(reader)
                writer.write(b"+PONG\r\n")
            begun.set()
            await may_read.wait()
            while data := await reader.read(1 << 20):
                received += len(data)
        ended.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = read_address(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
    errors = RedisErrors(redis, address, "toolwire", 0.3)
    pool = RedisServers(address, b"toolwire", errors, 0.3)._pool(address.url_of(address.nodes[0]))
    connection = RedisConnection(pool, errors, 0.3)
    await connection.open(("ECHO", "1"))
    size = 64 << 20
    with pytest.raises(TimeoutError):
        async with connection.limit():
            await connection.send([("SET", "a", b"x" * size)])
            await connection.read()  # Python 3.13.0 does not wait before, however much waits to be sent.
    await begun.wait()
    async with asyncio.timeout(10):
        await connection.close()
    # What was given up is not sent once the server reads again.
    may_read.set()
    await ended.wait()
    assert received < size
    server.close()


# --- a replica takes over ---


@pytest.mark.covers("FLT-26")
async def test_a_failover_by_readonly_is_followed_to_the_new_primary(
    primary: RedisServer, replica: RedisServer
) -> None:
    stores = RedisStores(f"redis://127.0.0.1:{primary.port},127.0.0.1:{replica.port}/0", timeout=PATIENT)
    heard = Recorder()
    stores.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
    await stores.bus.publish("t", b"before")
    await stores.kv.put("a", b"1")
    replica.until(b":1", "EXISTS", "{toolwire}:kv:a")
    fail_over(primary, replica)
    assert await stores.kv.put("b", b"2")
    assert await stores.kv.get("a") == b"1"
    assert b"1\r\n" in replica.command("EXISTS", "{toolwire}:kv:b")
    # What the old primary did not pass on nobody knows, so all look again; then messages are heard as before.
    while heard[-1] != b"after":
        await stores.bus.publish("t", b"after")
        await asyncio.sleep(0.01)
    assert heard[:2] == [b"before", b"lost"]
    await stores.check()
    fail_over(replica, primary)
    assert await stores.kv.put("c", b"3")
    await stores.check()
    stores.close()


async def test_a_failover_is_noticed_where_nothing_is_asked_for(
    primary: RedisServer, replica: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_bus, "LISTEN_SECONDS", 0.3)
    stores = RedisStores(f"redis://127.0.0.1:{primary.port},127.0.0.1:{replica.port}/0", timeout=PATIENT)
    lost = asyncio.Event()
    stores.bus.subscribe("t", lambda data: None, on_lost=lost.set)
    await stores.check()
    fail_over(primary, replica)
    await lost.wait()
    stores.close()


@pytest.mark.covers("FLT-26")
async def test_a_server_that_is_replaced_at_the_same_address(primary: RedisServer, replica: RedisServer) -> None:
    """As behind a virtual address: the connection breaks, and the next one reaches another server."""
    targets = [primary]
    async with forwarding(lambda: targets[0]) as port:
        stores = RedisStores(f"redis://127.0.0.1:{port}/0", timeout=PATIENT)
        heard = Recorder()
        stores.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
        await stores.bus.publish("t", b"before")
        replica.until(b":1", "XLEN", "{toolwire}:bus:t")
        targets[0] = replica
        replica.command("REPLICAOF", "NO", "ONE")
        primary.kill()
        while heard[-1] != b"after":
            try:
                await stores.bus.publish("t", b"after")
            except StoreFailed as error:
                assert "nobody knows whether the change was made" in str(error)
            await asyncio.sleep(0.01)
        assert heard[:2] == [b"before", b"lost"], "numbers of the new server may be those of messages that were lost"
        stores.close()


@asynccontextmanager
async def forwarding(target: Callable[[], RedisServer], context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port that leads to a Redis, whichever it is when a connection is made."""
    carrying: set[asyncio.Task[Any]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        carrying.add(task)
        there, back = await asyncio.open_unix_connection(target().socket)
        try:
            await asyncio.gather(_pipe(reader, back), _pipe(there, writer), return_exceptions=True)
        finally:
            for each in (back, writer):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    server = await asyncio.start_server(carry, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


# --- Sentinels ---


@pytest.mark.covers("FLT-27")
@pytest.mark.parametrize("how", ["on request", "after a crash"])
async def test_sentinels_lead_to_the_primary_and_to_the_next_one(
    primary: RedisServer, replica: RedisServer, how: str
) -> None:
    with sentinel_of(primary, "notes") as sentinel:
        nobody = free_port()
        address = f"redis+sentinel://127.0.0.1:{nobody},127.0.0.1:{sentinel}/notes/0"
        stores = RedisStores(address, timeout=PATIENT)
        heard = Recorder()
        stores.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
        assert await stores.kv.put("a", b"1")
        assert b":1" in primary.command("EXISTS", "{toolwire}:kv:a")
        replica.until(b":1", "EXISTS", "{toolwire}:kv:a")
        if how == "on request":
            # It agrees when it has heard from the replica, and on a slow machine it may give up halfway.
            while b"%d" % replica.port not in ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "notes"):
                ask(sentinel, "SENTINEL", "FAILOVER", "notes")
                await asyncio.sleep(0.05)
            # Until then it takes changes, which are lost.
            primary.until(b"role:slave", "INFO", "replication")
        else:
            primary.kill()
        replica.until(b"role:master", "INFO", "replication")
        while True:
            try:
                assert await stores.kv.put("b", b"2")
                break
            except StoreFailed as error:
                assert "nobody knows whether the change was made" in str(error)
        replica.until(b":1", "EXISTS", "{toolwire}:kv:b")
        await stores.check()
        while b"after" not in heard:
            await stores.bus.publish("t", b"after")
            await asyncio.sleep(0.01)
        assert b"lost" in heard
        stores.close()


async def test_sentinels_that_do_not_know_the_name(primary: RedisServer, replica: RedisServer) -> None:
    with sentinel_of(primary, "notes") as sentinel:
        stores = RedisStores(f"redis+sentinel://127.0.0.1:{sentinel}/letters", timeout=PATIENT)
        with pytest.raises(StoreFailed, match="its Sentinels know no primary with the name 'letters'"):
            await stores.check()
        stores.close()


async def test_sentinels_with_a_password_of_their_own(primary: RedisServer, replica: RedisServer) -> None:
    with sentinel_of(primary, "notes") as sentinel:
        assert ask(sentinel, "ACL", "SETUSER", "asker", "on", ">of sentinels", "+@all").startswith(b"+OK")
        assert ask(sentinel, "ACL", "SETUSER", "default", "off").startswith(b"+OK")
        place = f"redis+sentinel://127.0.0.1:{sentinel}/notes?sentinel_username=asker&sentinel_password="
        stores = RedisStores(place + "of%20sentinels")
        await stores.check()
        stores.close()
        wrong = RedisStores(place + "another-secret")
        with pytest.raises(StoreFailed, match="does not accept the user name and password") as raised:
            await wrong.check()
        assert "another-secret" not in f"{raised.value!r} {wrong!r}"
        wrong.close()


# --- a cluster ---

SLOTS = 16_384


class Cluster:
    """Two nodes that have half of the slots each."""

    def __init__(self, nodes: list[RedisServer]) -> None:
        one, two = nodes
        for node, first in ((one, 0), (two, SLOTS // 2)):
            node.command("CLUSTER", "ADDSLOTS", *map(str, range(first, first + SLOTS // 2)))
        one.command("CLUSTER", "MEET", "127.0.0.1", str(two.port))
        for node in nodes:
            node.until(b"cluster_state:ok", "CLUSTER", "INFO")
            node.until(b"cluster_known_nodes:2", "CLUSTER", "INFO")
        self.slot = one.command("CLUSTER", "KEYSLOT", "{toolwire}").decode().strip()[1:]
        self.owner, self.other = (one, two) if int(self.slot) < SLOTS // 2 else (two, one)

    def begin_to_move(self) -> None:
        self.other.command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", _id(self.owner))
        self.owner.command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", _id(self.other))

    def move_one_key(self) -> None:
        _, _, key, *_ = self.owner.command("CLUSTER", "GETKEYSINSLOT", self.slot, "1").split(b"\r\n")
        self.owner.command("MIGRATE", "127.0.0.1", str(self.other.port), key, "0", "5000")

    def finish(self) -> None:
        while not self.owner.command("CLUSTER", "COUNTKEYSINSLOT", self.slot).startswith(b":0"):
            self.move_one_key()
        for node in (self.other, self.owner):
            node.command("CLUSTER", "SETSLOT", self.slot, "NODE", _id(self.other))
        self.owner, self.other = self.other, self.owner


def _id(node: RedisServer) -> str:
    return node.command("CLUSTER", "MYID").split(b"\r\n")[1].decode()


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[Cluster]:
    """Two nodes need two seconds until they agree that they are a cluster."""
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
        nodes = [stack.enter_context(running(*options, port=free_port())) for _ in range(2)]
        yield Cluster(nodes)


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    running_cluster.owner.command("FLUSHALL")
    running_cluster.other.command("FLUSHALL")
    return running_cluster


@pytest.mark.covers("FLT-27")
@pytest.mark.parametrize("way", ["redis://127.0.0.1:{other}", "redis://127.0.0.1:{nobody},127.0.0.1:{other}", "unix"])
async def test_any_node_of_a_cluster_leads_to_the_one_that_has_the_keys(cluster: Cluster, way: str) -> None:
    address = way.format(other=cluster.other.port, nobody=free_port())
    stores = RedisStores(f"unix://{cluster.other.socket}" if way == "unix" else address, timeout=PATIENT)
    heard = Recorder()
    stores.bus.subscribe("t", heard)
    assert await stores.kv.put("a", b"1")
    position = await stores.log.append("s", b"1")
    await stores.bus.publish("t", b"1")
    await heard.until(1)
    assert await stores.log.read_after("s", None, 1) == [(position, b"1")]
    await stores.check()
    stores.close()
    assert b":0" in cluster.other.command("DBSIZE")


async def test_a_slot_that_moves_to_another_node(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    stores = RedisStores(f"redis://127.0.0.1:{cluster.owner.port}", timeout=PATIENT)
    heard = Recorder()
    stores.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
    for number in range(20):
        await stores.kv.put(f"{number}", b"1")
    await stores.check()
    cluster.begin_to_move()
    for _ in range(5):
        cluster.move_one_key()
    # Some keys are here and some are there: no script can run. Both wait until all of them have arrived.
    changing = asyncio.ensure_future(stores.kv.add("sum", 1))
    reading = asyncio.ensure_future(stores.kv.keys(""))
    while "it is a cluster that is moving the keys of the store to another node" not in caplog.text:
        await asyncio.sleep(0.01)
    assert not changing.done()
    cluster.finish()
    assert await changing == 1
    assert set(map(str, range(20))) <= set(await reading)
    await stores.check()
    while b"after" not in heard:
        await stores.bus.publish("t", b"after")
        await asyncio.sleep(0.01)
    stores.close()


# --- TLS ---


@pytest.mark.covers("FLT-27")
async def test_a_redis_with_tls(primary: RedisServer, tmp_path: Path) -> None:
    file = str(certificate(tmp_path))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    # Not every build of Redis knows TLS, so this ends in front of one.
    async with forwarding(lambda: primary, context) as port:
        stores = RedisStores(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={file}")
        await stores.check()
        # The other side of the connection, which has to agree to its end, runs on this loop.
        await asyncio.to_thread(stores.close)
        stranger = RedisStores(f"rediss://127.0.0.1:{port}/0", timeout=0.3)
        await until_refused(stranger.check, "certificate")
        await asyncio.to_thread(stranger.close)
