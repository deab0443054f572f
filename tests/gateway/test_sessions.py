"""Sessions of legacy clients at a gateway, and the sessions that these have at the servers behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
from tests.cases import cases
from tests.gateway.backs import behind

from toolwire import Client, Context, Server
from toolwire.client.http_target import HttpTarget
from toolwire.client.relay import RelayConnection, RelayOpener
from toolwire.gateway import Gateway
from toolwire.gateway.upstream import Upstream
from toolwire.http.asgi import HttpApp
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse
from toolwire.stores import Stores

SECRET = b"a secret of all replicas, 32 bytes"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26")


class SharedKV:
    """A store that other processes reach, too."""

    def __init__(self, kv: Any) -> None:
        self._kv = kv

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kv, name)


class Balancer(Pool):
    """Replicas of a gateway behind one address, and the HTTP statuses that they answered with."""

    def __init__(self) -> None:
        self.pools: list[AsgiPool] = []
        self.apps: list[HttpApp] = []
        self.gateways: list[Gateway] = []
        self.current = 0
        self.statuses: list[int] = []

    @property
    def at_once(self) -> int | None:
        return None

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        response = await self.pools[self.current].send(method, url, headers, body)
        self.statuses.append(response.status)
        return response

    async def close(self) -> None:
        for pool in self.pools:
            await pool.close()

    async def stop(self, number: int) -> None:
        """Stop a replica, as at the end of its process."""
        self.apps[number].drain()
        await self.apps[number].stop()


class Counting:
    """A server that keeps something for each of its clients."""

    def __init__(self) -> None:
        self.server: Server = Server("back")
        self.seen: dict[str, int] = {}
        self.server.tool(self.count)

    def count(self, ctx: Context) -> str:
        client = str(ctx.session_id)
        self.seen[client] = self.seen.get(client, 0) + 1
        return str(self.seen[client])


@asynccontextmanager
async def replicas(backs: list[dict[str, Any]], revision: str, stores: Stores | None = None) -> AsyncIterator[Balancer]:
    """Run replicas of a gateway; each has the servers behind it that are given for it."""
    memory = Stores.memory()
    shared = stores or Stores(SharedKV(memory.kv), memory.log, memory.bus, memory.queue)
    balancer = Balancer()
    async with AsyncExitStack() as stack:
        for targets in backs:
            front = Gateway("front", stores=shared, secret=SECRET)
            for name, target in targets.items():
                front.add(name, target, revision=revision)
            app = front.http_app()
            stack.push_async_callback(app.stop)
            stack.callback(app.drain)
            balancer.apps.append(app)
            balancer.gateways.append(front)
            balancer.pools.append(AsgiPool(app))
        stack.push_async_callback(balancer.close)
        yield balancer


def client_of(balancer: Balancer, front: str, **options: Any) -> Client:
    return Client(HttpTarget("http://localhost/mcp", pool=balancer), revision=front, **options)  # type: ignore[arg-type]


@pytest.mark.covers("GW-6.5")
@cases("front", LEGACY)
@cases("back", LEGACY)
async def test_a_session_that_moves_goes_on_with_its_session_at_the_server(front: str, back: str) -> None:
    counting = Counting()
    async with behind(counting.server, "http") as target, replicas([{"b": target}, {"b": target}], back) as balancer:
        async with client_of(balancer, front) as client:
            for number, replica in enumerate((0, 1, 1, 0), start=1):
                balancer.current = replica
                assert (await client.call_tool("b_count")).text == str(number)
        assert len(counting.seen) == 1


async def test_two_clients_have_two_sessions_at_the_server() -> None:
    counting = Counting()
    async with (
        behind(counting.server, "http") as target,
        replicas([{"b": target}, {"b": target}], "2025-11-25") as balancer,
        client_of(balancer, "2025-11-25") as anna,
        client_of(balancer, "2025-11-25") as ben,
    ):
        for number, replica in enumerate((0, 1), start=1):
            balancer.current = replica
            assert (await anna.call_tool("b_count")).text == str(number)
            assert (await ben.call_tool("b_count")).text == str(number)


async def test_calls_that_come_to_two_replicas_at_once_agree_on_a_session() -> None:
    counting = Counting()
    async with (
        behind(counting.server, "http") as target,
        replicas([{"b": target}, {"b": target}], "2025-11-25") as balancer,
        client_of(balancer, "2025-11-25") as client,
    ):
        calls = []
        for replica in (0, 1):
            balancer.current = replica
            calls.append(asyncio.ensure_future(client.call_tool("b_count")))
            await asyncio.sleep(0)
        await asyncio.gather(*calls)
        counting.seen.clear()
        for replica in (0, 1):
            balancer.current = replica
            await client.call_tool("b_count")
        assert len(counting.seen) == 1


@pytest.mark.covers("GW-6.6", "GW-11.14")
async def test_session_that_a_replica_opens_late_replaces_none_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call learns of the session of another replica while a call before it still opens one."""
    counting = Counting()
    opening, may_open, open_relay = asyncio.Event(), asyncio.Event(), RelayOpener.open

    async def open_late(opener: RelayOpener) -> Any:
        connection = await open_relay(opener)
        if balancer.current == 1:
            opening.set()
            await may_open.wait()
        return connection

    async with (
        behind(counting.server, "http") as target,
        replicas([{"b": target}, {"b": target}], "2025-11-25") as balancer,
        client_of(balancer, "2025-11-25") as client,
    ):
        for balancer.current in (1, 0):
            await client.list_tools()
        monkeypatch.setattr(RelayOpener, "open", open_late)
        balancer.current = 1
        calls = [asyncio.ensure_future(client.call_tool("b_count"))]
        await opening.wait()
        balancer.current = 0
        await client.call_tool("b_count")
        counting.seen.clear()
        balancer.current = 1
        for _ in range(2):
            calls.append(asyncio.ensure_future(client.call_tool("b_count")))
            await asyncio.sleep(0.01)
        may_open.set()
        for call in calls:
            assert not (await call).is_error
        for balancer.current in (0, 1):
            await client.call_tool("b_count")
        assert list(counting.seen.values()) == [5]


async def test_replica_that_learns_of_a_new_session_leaves_the_one_before_to_other_replicas() -> None:
    """Another replica may be about to send a call in it."""
    counting = Counting()
    async with (
        behind(counting.server, "http") as target,
        replicas([{"b": target}, {"b": target}], "2025-11-25") as balancer,
        client_of(balancer, "2025-11-25") as client,
    ):
        for balancer.current in (0, 1):
            await client.call_tool("b_count")
        (session,) = counting.seen
        (lane,) = balancer.gateways[1].fronts.front.upstreams["b"].back_connections._lanes.values()
        connection = cast("RelayConnection", lane.connector.connection)
        connection.leave_session()
        await connection.close()
        for balancer.current in (1, 0, 1):
            await client.call_tool("b_count")
        assert len(counting.seen) == 2
        await until_ended(balancer)
        assert any(key.endswith(session) for key in await kept(counting.server))


async def test_a_session_ends_where_its_server_is_another_one() -> None:
    counting, other = Counting(), Counting()
    async with behind(counting.server, "http") as target:
        moved = HttpTarget("http://elsewhere/mcp", pool=AsgiPool(other.server.http_app()))
        async with (
            replicas([{"b": target}, {"b": moved}], "2025-11-25") as balancer,
            client_of(balancer, "2025-11-25") as client,
        ):
            await client.call_tool("b_count")
            balancer.current = 1
            # The client begins a new session by itself.
            await client.list_tools()
            assert 404 in balancer.statuses
            assert not other.seen


@pytest.mark.covers("GW-6.6")
async def test_server_that_is_removed_ends_no_session() -> None:
    counting, other = Counting(), Counting()
    async with behind(counting.server, "http") as target, behind(other.server, "http") as staying:
        backs = [{"b": target, "c": staying}, {"c": staying}, {"b": target, "c": staying}]
        async with replicas(backs, "2025-11-25") as balancer, client_of(balancer, "2025-11-25") as client:
            for balancer.current, tools in enumerate((["b_count", "c_count"], ["c_count"], ["b_count", "c_count"])):
                for tool in tools:
                    assert (await client.call_tool(tool)).text
            assert list(other.seen.values()) == [3]
            assert 404 not in balancer.statuses


@pytest.mark.covers("GW-6.6")
async def test_calls_run_to_their_end_in_a_session_that_ends() -> None:
    counting, other, staying = Counting(), Counting(), Server("staying")
    begun, done = asyncio.Event(), asyncio.Event()

    @staying.tool
    async def wait(ctx: Context) -> str:
        begun.set()
        await done.wait()
        return str((await ctx.elicit("How many?", int)).data)

    async def answer_question(message: str, params: Any) -> dict[str, Any]:
        return {"value": 7}

    async with behind(counting.server, "http") as target, behind(staying, "http") as kept_target:
        moved = HttpTarget("http://elsewhere/mcp", pool=AsgiPool(other.server.http_app()))
        backs = [{"b": target, "c": kept_target}, {"b": moved, "c": kept_target}]
        async with (
            replicas(backs, "2025-11-25") as balancer,
            client_of(balancer, "2025-11-25", elicit=answer_question) as client,
        ):
            await client.call_tool("b_count")
            calling = asyncio.ensure_future(client.call_tool("c_wait"))
            await begun.wait()
            balancer.current = 1
            assert (await client.call_tool("b_count")).text == "1"
            assert 404 in balancer.statuses and list(other.seen.values()) == [1]
            done.set()
            assert (await calling).text == "7"


@pytest.mark.covers("GW-6.6")
async def test_a_server_that_is_added_ends_no_session() -> None:
    counting, other = Counting(), Counting()
    async with behind(counting.server, "http") as target, behind(other.server, "http") as elsewhere:
        backs = [{"b": target}, {"b": target, "c": elsewhere}]
        async with replicas(backs, "2025-11-25") as balancer, client_of(balancer, "2025-11-25") as client:
            await client.call_tool("b_count")
            balancer.current = 1
            assert (await client.call_tool("b_count")).text == "2"
            assert (await client.call_tool("c_count")).text == "1"
            assert 404 not in balancer.statuses


@pytest.mark.covers("GW-6.5")
async def test_a_session_outlives_the_replica_that_opened_it() -> None:
    counting = Counting()
    async with (
        behind(counting.server, "http") as target,
        replicas([{"b": target}, {"b": target}], "2025-11-25") as balancer,
        client_of(balancer, "2025-11-25") as client,
    ):
        await client.call_tool("b_count")
        balancer.current = 1
        await balancer.stop(0)
        assert (await client.call_tool("b_count")).text == "2"


async def until_ended(balancer: Balancer) -> None:
    """Wait until the replicas have closed the connections that they use no more."""
    for gateway in balancer.gateways:
        while gateway.fronts.front.upstreams["b"].back_connections._closing:
            await asyncio.sleep(0)


async def kept(server: Server) -> list[str]:
    """Return the sessions that a server knows."""
    return await server.stores.kv.keys("toolwire:session:")


async def test_a_session_that_the_server_has_ended_is_replaced_on_all_replicas() -> None:
    counting = Counting()
    async with (
        behind(counting.server, "http") as target,
        replicas([{"b": target}, {"b": target}], "2025-11-25") as balancer,
        client_of(balancer, "2025-11-25") as client,
    ):
        for balancer.current in (0, 1):
            await client.call_tool("b_count")
        for key in await kept(counting.server):
            await counting.server.stores.kv.delete(key)
        counting.seen.clear()
        for number, replica in enumerate((0, 1, 0), start=1):
            balancer.current = replica
            assert (await client.call_tool("b_count")).text == str(number)
        assert len(counting.seen) == 1


async def test_the_end_of_a_session_ends_its_session_at_the_server() -> None:
    counting = Counting()
    async with (
        behind(counting.server, "http") as target,
        replicas([{"b": target}, {"b": target}], "2025-11-25") as balancer,
    ):
        async with client_of(balancer, "2025-11-25") as client:
            for balancer.current in (1, 0):
                await client.list_tools()
            before = len(await kept(counting.server))
            await client.call_tool("b_count")
            assert len(await kept(counting.server)) == before + 1
            # The end is told to a replica that has no connection of this client.
            balancer.current = 1
        async with asyncio.timeout(30):
            while len(await kept(counting.server)) > before:
                await asyncio.sleep(0)


async def test_two_servers_of_one_name_keep_their_sessions_apart() -> None:
    one, two = Counting(), Counting()
    host = Server("front", secret=SECRET)
    async with behind(one.server, "http") as first:
        second = HttpTarget("http://elsewhere/mcp", pool=(pool := AsgiPool(app := two.server.http_app())))
        for prefix, target in (("x", first), ("y", second)):
            middle = Server(prefix)
            middle.mount(Upstream("b", target, revision="2025-11-25"))
            host.mount(middle, prefix=prefix)
        balancer = Balancer()
        balancer.apps.append(host.http_app())
        balancer.pools.append(AsgiPool(balancer.apps[0]))
        async with client_of(balancer, "2025-11-25") as client:
            for number in (1, 2):
                for prefix in ("x", "y"):
                    assert (await client.call_tool(f"{prefix}_count")).text == str(number)
            assert 404 not in balancer.statuses
        await balancer.stop(0)
        await balancer.close()
        app.drain()
        await pool.close()
        await app.stop()
