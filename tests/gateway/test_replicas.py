"""Calls that one process of a gateway holds, and requests of their clients that come to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.gateway.backs import OVER, Recorded, behind, until
from tests.gateway.test_held_calls import LEGACY, Asking, accept, answer, call

from toolwire import Client, Context, Limits, Server, testing
from toolwire.auth import Principal
from toolwire.gateway.upstream import Upstream
from toolwire.protocol.errors import ProtocolError
from toolwire.stores import StoreFailed, Stores
from toolwire.stores.sqlite import SqliteStores

SECRET = b"a secret of all replicas, 32 bytes"


class Reached:
    """A store as one process reaches it, until the process dies."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_dead = False
        self.kept: list[str] = []
        self.dies_before: tuple[str, Callable[[], Awaitable[None]]] | None = None

    def __getattr__(self, name: str) -> Any:
        if self.is_dead:
            raise StoreFailed("this process is dead")
        return getattr(self._store, name)

    async def put(self, key: str, *given: Any, **named: Any) -> Any:
        if self.dies_before is not None and key.startswith(self.dies_before[0]):
            await self.dies_before[1]()
        return await self.__getattr__("put")(key, *given, **named)

    def subscribe(self, topic: str, callback: Callable[[bytes], None], **options: Any) -> Callable[[], None]:
        heard = lambda data: None if self.is_dead else callback(data)  # noqa: E731
        return cast("Callable[[], None]", self._store.subscribe(topic, heard, **options))

    def keep(self, process: str, *given: Any) -> Callable[[], None]:
        self.kept.append(process)
        return cast("Callable[[], None]", self._store.keep(process, *given))


class Replica:
    """One process of a gateway, as far as others can tell: a server of its own with one server behind it."""

    def __init__(self, stores: Stores, remote: Upstream) -> None:
        self._queue = stores.queue
        self._reached = [Reached(each) for each in (stores.kv, stores.log, stores.bus, stores.queue)]
        self.server: Server = Server("front", stores=Stores(*cast("Any", self._reached)), secret=SECRET)
        self.server.mount(remote, prefix="b")

    def die_before(self, key: str) -> None:
        """Die before a value of such a key is stored."""
        self._reached[0].dies_before = (key, self.die)

    async def die(self) -> None:
        """Reach no store and no other process any more, and say nothing to the server behind: the lease is gone."""
        for each in self._reached:
            each.is_dead = True
            for lease in each.kept:
                await self._queue.release(lease)

    def come_back(self) -> None:
        for each in self._reached:
            each.is_dead = False


class Fleet:
    """Two replicas, and a client of each."""

    def __init__(self, replicas: list[Replica], clients: list[Client], recorded: Recorded) -> None:
        self.replicas = replicas
        self.clients = clients
        self.recorded = recorded


@asynccontextmanager
async def fleet(
    server: Server,
    far: str,
    back: str,
    near: Any = "memory",
    *,
    stores: Stores | None = None,
    principals: tuple[Any, Any] = (None, None),
    on_log: Any = None,
) -> AsyncIterator[Fleet]:
    """Run two replicas in front of a server."""
    shared, recorded = stores or Stores.memory(), Recorded()
    replicas: list[Replica] = []
    clients: list[Client] = []
    async with AsyncExitStack() as stack:
        for principal in principals:
            target = await stack.enter_async_context(behind(server, far, recorded))
            replica = Replica(shared, Upstream("b", target, revision=back))
            connected = testing.connect(replica.server, over=near, elicit=answer, principal=principal, on_log=on_log)
            client, _ = await stack.enter_async_context(connected)
            replicas.append(replica)
            clients.append(client)
        yield Fleet(replicas, clients, recorded)


CELLS = pytest.mark.parametrize(
    ("back", "near", "far"), [(back, near, far) for back in LEGACY for near in OVER for far in OVER]
)


@pytest.mark.covers("GW-6.1")
@CELLS
async def test_every_request_of_a_call_may_come_to_another_replica(back: str, near: Any, far: str) -> None:
    asking = Asking()
    async with fleet(asking.server, far, back, near) as running:
        one, two = running.clients
        asked = await call(one, "b_book", {"seats": 2})
        named = await call(two, "b_book", {"seats": 2}, asked, **accept(asked))
        assert list(named["inputRequests"]) != list(asked["inputRequests"])
        done = await call(one, "b_book", {"seats": 2}, named, **accept(named, "Anna"))
        assert done["content"][0]["text"] == "2 True Anna"
        assert asking.begun == 1


async def test_replicas_meet_in_a_file(tmp_path: Path) -> None:
    asking = Asking()
    stores = SqliteStores(tmp_path / "stores.db")
    try:
        async with fleet(asking.server, "http", "2025-11-25", stores=stores) as running:
            one, two = running.clients
            asked = await call(one, "b_both", {})
            done = await call(two, "b_both", {}, asked, **accept(asked))
            assert done["content"][0]["text"] == "True True"
    finally:
        stores.close()


@cases(("back", "far"), [(back, far) for back in LEGACY for far in OVER])
async def test_progress_and_logs_reach_the_replica_that_waits(back: str, far: str) -> None:
    server = Server("back")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.elicit("Really?", bool)
        await ctx.progress(1, message="half")
        await ctx.warning("loud")
        return "x" * 200_000

    told: list[Any] = []

    async def ask(client: Client, **more: Any) -> Any:
        return await client.request(
            "tools/call",
            {"name": "b_work", "arguments": {}, **more},
            on_progress=lambda each: told.append(each.message),
            result_types=["complete", "input_required"],
        )

    async with fleet(server, far, back, on_log=lambda each: told.append(each.data)) as running:
        one, two = running.clients
        for client in running.clients:
            await client.set_level("debug")
        asked = await ask(one)
        done = await ask(two, requestState=asked["requestState"], inputResponses=accept(asked))
        assert len(done["content"][0]["text"]) == 200_000
        assert told == ["half", "loud"]


@pytest.mark.covers("GW-6.4")
async def test_a_state_is_good_for_one_request_of_one_client_on_all_replicas() -> None:
    asking = Asking()
    anna, ben = Principal("anna"), Principal("ben")
    async with fleet(asking.server, "http", "2025-11-25", principals=(anna, anna)) as running:
        one, two = running.clients
        other = testing.connect(running.replicas[1].server, elicit=answer, principal=ben)
        async with other as (stranger, _):
            asked = await call(one, "b_book", {"seats": 1})
            with pytest.raises(ProtocolError, match="requestState"):
                await call(stranger, "b_book", {"seats": 1}, asked, **accept(asked))
        with pytest.raises(ProtocolError, match="requestState"):
            await call(two, "b_book", {"seats": 9}, asked, **accept(asked))
        key = next(iter(asked["inputRequests"]))
        with pytest.raises(ProtocolError, match="not a elicitation/create result"):
            await call(two, "b_book", {"seats": 1}, asked, **{key: {"action": 7}})
        named = await call(two, "b_book", {"seats": 1}, asked, **accept(asked))
        for client in running.clients:
            with pytest.raises(ProtocolError, match="used already"):
                await call(client, "b_book", {"seats": 1}, asked, **accept(asked))
        done = await call(two, "b_book", {"seats": 1}, named, **accept(named, "Anna"))
        assert done["content"][0]["text"] == "1 True Anna"
        for client in running.clients:
            with pytest.raises(ProtocolError, match="used already, and the request has run with them"):
                await call(client, "b_book", {"seats": 1}, named, **accept(named, "Anna"))
        assert asking.begun == 1


@pytest.mark.covers("GW-6.1")
async def test_two_replicas_that_get_the_same_answers_run_the_call_once() -> None:
    asking = Asking()
    async with fleet(asking.server, "http", "2025-11-25") as running:
        asked = await call(running.clients[0], "b_both", {})
        both = [call(client, "b_both", {}, asked, **accept(asked)) for client in running.clients]
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert sum(isinstance(each, dict) and not each.get("isError") for each in outcomes) == 1
        assert asking.begun == 1


@pytest.mark.parametrize("far", OVER)
async def test_cancelling_at_another_replica_cancels_the_call_at_the_server(far: str) -> None:
    server = Server("back")
    waiting, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.elicit("Really?", bool)
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async with fleet(server, far, "2025-11-25") as running:
        one, two = running.clients
        asked = await call(one, "b_wait", {})
        going_on = asyncio.ensure_future(call(two, "b_wait", {}, asked, **accept(asked)))
        await waiting.wait()
        going_on.cancel()
        await asyncio.wait({going_on})
        await cancelled.wait()


# --- the replica that holds a call ends -------------------------------------------------------------------------------


@pytest.mark.covers("GW-6.2")
@pytest.mark.parametrize("back", LEGACY)
async def test_a_call_goes_on_where_the_server_keeps_its_events(back: str) -> None:
    asking = Asking()
    async with fleet(asking.server, "http", back) as running:
        one, two = running.clients
        asked = await call(one, "b_book", {"seats": 3})
        await running.replicas[0].die()
        named = await call(two, "b_book", {"seats": 3}, asked, **accept(asked))
        done = await call(two, "b_book", {"seats": 3}, named, **accept(named, "Anna"))
        assert done["content"][0]["text"] == "3 True Anna"
        assert asking.begun == 1
        # The replica was not dead, but stood still for longer than its lease.
        running.replicas[0].come_back()
        with pytest.raises(ProtocolError, match="used already"):
            await call(one, "b_book", {"seats": 3}, asked, **accept(asked))
        assert asking.begun == 1 and not asking.cancelled.is_set()


async def test_questions_of_a_call_that_goes_on_are_asked_again_where_an_answer_is_missing() -> None:
    asking = Asking()
    async with fleet(asking.server, "http", "2025-11-25") as running:
        one, two = running.clients
        asked = await call(one, "b_both", {})
        first, second = asked["inputRequests"]
        await running.replicas[0].die()
        left = await call(two, "b_both", {}, asked, **{first: accept(asked)[first]})
        assert list(left["inputRequests"]) == [second]
        done = await call(two, "b_both", {}, left, **accept(left))
        assert done["content"][0]["text"] == "True True"
        assert asking.begun == 1


@pytest.mark.covers("GW-6.2")
async def test_elsewhere_the_error_names_the_server_and_says_that_the_call_may_have_run() -> None:
    asking = Asking()
    async with fleet(asking.server, "memory", "2025-11-25") as running:
        one, two = running.clients
        asked = await call(one, "b_book", {"seats": 1})
        await running.replicas[0].die()
        lost = await call(two, "b_book", {"seats": 1}, asked, **accept(asked))
        text = lost["content"][0]["text"]
        assert lost["isError"] and "'b'" in text and "has ended" in text and "may have been carried out" in text
        assert asking.begun == 1


async def test_a_replica_that_ends_while_another_waits_for_it() -> None:
    server = Server("back")
    begun: list[str] = []
    reached, go_on = asyncio.Event(), asyncio.Event()

    @server.tool
    async def work(ctx: Context) -> str:
        begun.append("work")
        await ctx.elicit("Really?", bool)
        reached.set()
        await go_on.wait()
        return "done"

    async with fleet(server, "http", "2025-11-25") as running:
        one, two = running.clients
        asked = await call(one, "b_work", {})
        going_on = asyncio.ensure_future(call(two, "b_work", {}, asked, **accept(asked)))
        await reached.wait()
        await running.replicas[0].die()
        go_on.set()
        assert (await going_on)["content"][0]["text"] == "done"
        assert begun == ["work"]


@pytest.mark.parametrize("far", OVER)
async def test_a_replica_that_ends_before_it_hands_over_the_outcome(far: str) -> None:
    """Its last acts are the questions, or the result, that it got from the server."""
    asking = Asking()
    async with fleet(asking.server, far, "2025-11-25") as running:
        one, two = running.clients
        booking = await call(one, "b_book", {"seats": 5})
        both = await call(one, "b_both", {})
        running.replicas[0].die_before("toolwire:held:outcome:")
        named = await call(two, "b_book", {"seats": 5}, booking, **accept(booking))
        result = await call(two, "b_both", {}, both, **accept(both))
        if far == "memory":
            for each in (named, result):
                assert each["isError"] and "may have been carried out" in each["content"][0]["text"]
            return
        done = await call(two, "b_book", {"seats": 5}, named, **accept(named, "Anna"))
        assert done["content"][0]["text"] == "5 True Anna"
        assert result["content"][0]["text"] == "True True"
        assert asking.begun == 2


async def test_a_call_that_expires_on_one_replica_is_cancelled_and_forgotten() -> None:
    asking = Asking()
    async with fleet(asking.server, "http", "2025-11-25") as running:
        server = running.replicas[0].server
        server.apply_settings(replace(server.settings, limits=Limits(state=0.01)))
        asked = await call(running.clients[0], "b_book", {"seats": 1})
        await until(asking.cancelled.is_set)
        late = await call(running.clients[1], "b_book", {"seats": 1}, asked, **accept(asked))
        assert late["isError"]


# --- a replica is stopped ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("back", LEGACY)
async def test_a_replica_that_is_stopped_leaves_its_calls_to_others(back: str) -> None:
    asking = Asking()
    memory = Stores.memory()
    async with behind(asking.server, "http") as target, AsyncExitStack() as stack:
        replicas = [Replica(memory, Upstream("b", target, revision=back)) for _ in range(2)]
        two, _ = await stack.enter_async_context(testing.connect(replicas[1].server, elicit=answer))
        async with testing.connect(replicas[0].server, elicit=answer) as (one, _):
            asked = await call(one, "b_book", {"seats": 4})
        named = await call(two, "b_book", {"seats": 4}, asked, **accept(asked))
        done = await call(two, "b_book", {"seats": 4}, named, **accept(named, "Anna"))
        assert done["content"][0]["text"] == "4 True Anna"
        assert asking.begun == 1 and not asking.cancelled.is_set()


async def test_a_replica_that_is_stopped_cancels_a_call_that_nobody_can_go_on_with() -> None:
    asking = Asking()
    async with behind(asking.server, "memory") as target:
        replica = Replica(Stores.memory(), Upstream("b", target, revision="2025-11-25"))
        async with testing.connect(replica.server, elicit=answer) as (client, _):
            await call(client, "b_book", {"seats": 4})
        await until(asking.cancelled.is_set)
