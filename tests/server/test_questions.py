"""Consent is used once: a state with its answers lets one request run, on whichever replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.redis_server import RedisServer, running
from tests.server.answering import EVERYTHING
from tests.server.test_replay_state import USED, answered
from tests.wireclient import MODERN, Message, WireClient, connect

from toolwire import Context, Limits, Policy, Server, testing
from toolwire.auth import Principal
from toolwire.server.context import SyncContext
from toolwire.server.policy import Call
from toolwire.stores import MemoryKV, StoreFailed, Stores
from toolwire.stores.redis import RedisStores
from toolwire.stores.sqlite import SqliteStores
from toolwire.testing import elapse
from toolwire.wire.shares import StorageBudget

SECRET = "a" * 32
ADA = Principal("ada")


def replica(stores: Stores, ran: list[str]) -> Server:
    """One of several servers that share a secret and perhaps a store; `ran` is what all of them did."""
    server = Server("replica", stores=stores, secret=SECRET)

    async def approve(ctx: Context, call: Call) -> bool:
        return (await ctx.elicit("Purge?", bool, key="yes")).data is True

    @server.tool(policy=Policy(approve=approve))
    async def purge() -> str:
        ran.append("purge")
        return "gone"

    @server.tool(policy=Policy(approve=approve), replay=False)
    async def purge_without_replay() -> str:
        ran.append("purge_without_replay")
        return "gone"

    @server.tool(policy=Policy(approve=approve), task="optional")
    async def purge_as_task() -> str:
        ran.append("purge_as_task")
        return "gone"

    @server.tool
    async def pay(ctx: Context) -> str:
        yes = await ctx.elicit("Pay?", bool, key="yes")
        await ctx.step("pay", lambda: ran.append("pay"))
        return str(yes.data)

    @server.tool
    def pay_plainly(ctx: SyncContext) -> str:
        yes = ctx.elicit("Pay?", bool, key="yes")
        ctx.step("pay", lambda: ran.append("pay_plainly"))
        return str(yes.data)

    @server.prompt
    async def letter(ctx: Context) -> str:
        yes = await ctx.elicit("Sign?", bool, key="yes")
        ran.append("letter")
        return str(yes.data)

    @server.resource("card://me")
    async def card(ctx: Context) -> str:
        yes = await ctx.elicit("Show?", bool, key="yes")
        ran.append("card")
        return str(yes.data)

    @server.tool
    async def steps(ctx: Context) -> str:
        ran.append("begin")
        await ctx.elicit("One?", bool, key="one")
        ran.append("one")
        await asyncio.gather(ctx.elicit("Two?", bool, key="two"), ctx.elicit("Three?", bool, key="three"))
        ran.append("all")
        return "done"

    return server


class Ask(NamedTuple):
    """A request that asks one question under the key `yes`, and what it does when that is answered."""

    method: str
    params: Message
    effect: str

    def __str__(self) -> str:
        return self.effect


TOOLS = ("purge", "purge_without_replay", "purge_as_task", "pay", "pay_plainly")
ASKS = [
    *(Ask("tools/call", {"name": name, "arguments": {}}, name) for name in TOOLS),
    Ask("prompts/get", {"name": "letter", "arguments": {}}, "letter"),
    Ask("resources/read", {"uri": "card://me"}, "card"),
]
asks = pytest.mark.parametrize("ask", ASKS, ids=str)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Stores]]:
    """Makes the stores of one more replica: other objects, the same content."""
    made: list[Any] = []
    memory = Stores.memory()
    url = request.getfixturevalue("redis").url if request.param == "redis" else ""

    def make() -> Stores:
        if request.param == "memory":
            return memory
        made.append(
            SqliteStores(tmp_path / "state.db")
            if request.param == "sqlite"
            else RedisStores(url, prefix=f"{tmp_path.name}")
        )
        return made[-1]  # type: ignore[no-any-return]

    yield make
    for stores in made:
        stores.close()


@asynccontextmanager
async def replicas(make: Callable[[], Stores], count: int = 2) -> AsyncIterator[tuple[list[WireClient], list[str]]]:
    ran: list[str] = []
    async with AsyncExitStack() as stack:
        yield (
            [
                await stack.enter_async_context(connect(replica(make(), ran), MODERN, EVERYTHING, principal=ADA))
                for _ in range(count)
            ],
            ran,
        )


@pytest.mark.covers("MRTR-7")
@asks
async def test_one_yes_runs_once_on_all_replicas_that_share_a_store(ask: Ask, shared: Callable[[], Stores]) -> None:
    async with replicas(shared) as (clients, ran):
        first = await clients[0].result(ask.method, ask.params)
        assert ran == []
        again = ask.params | answered(first, yes=True)
        for _ in range(2):
            # Nothing is used up by a request without the answer.
            asked = await clients[1].result(ask.method, ask.params | {"requestState": first["requestState"]})
            assert list(asked["inputRequests"]) == ["yes"]
        done = await asyncio.gather(*(client.request(ask.method, again) for client in clients * 4))
        refused = [each["error"] for each in done if "error" in each]
        assert len(refused) == 7
        assert all(error == {"code": -32602, "message": USED} for error in refused)
        # The states of a question that was asked again are the same consent.
        late = await clients[1].error(ask.method, ask.params | answered(asked, yes=True))
        assert late == {"code": -32602, "message": USED}
        assert ran == [ask.effect]
        # A new call asks a new question.
        fresh = await clients[1].result(ask.method, ask.params)
        await clients[0].result(ask.method, ask.params | answered(fresh, yes=True))
        assert ran == [ask.effect] * 2


@pytest.mark.covers("MRTR-7", "MRTR-9")
async def test_each_round_of_several_runs_once(shared: Callable[[], Stores]) -> None:
    call: Message = {"name": "steps", "arguments": {}}
    async with replicas(shared) as ((a, b), ran):
        first = await a.result("tools/call", call)
        assert ran == ["begin"]
        second = await b.result("tools/call", call | answered(first, one=True))
        assert ran == ["begin", "begin", "one"]
        assert (await a.error("tools/call", call | answered(first, one=True)))["message"] == USED
        # Some of the answers, in any order and as often as the client likes: nothing runs.
        rests = [
            await client.result("tools/call", call | answered(second, **given))
            for client in (a, b)
            for given in ({}, {"two": True}, {"three": True}, {"other": True})
        ]
        assert [sorted(rest["inputRequests"]) for rest in rests] == [
            ["three", "two"],
            ["three"],
            ["two"],
            ["three", "two"],
        ] * 2
        assert ran == ["begin", "begin", "one"]
        # All of them are one consent, which the first that is complete uses up.
        whole: Message = dict.fromkeys(rests[1]["inputRequests"], True)
        done = await a.result("tools/call", call | answered(rests[1], **whole))
        assert done["content"][0]["text"] == "done"
        for rest in [second, *rests]:
            whole = dict.fromkeys(rest["inputRequests"], True)
            assert (await b.error("tools/call", call | answered(rest, **whole)))["message"] == USED
        assert ran == ["begin", "begin", "one", "begin", "one", "all"]


async def test_replicas_that_share_no_store_know_nothing_of_each_other() -> None:
    call: Message = {"name": "purge", "arguments": {}}
    async with replicas(Stores.memory) as ((a, b), ran):
        again = call | answered(await a.result("tools/call", call), yes=True)
        for client in (a, b):
            await client.result("tools/call", again)
            assert (await client.error("tools/call", again))["message"] == USED
    assert ran == ["purge", "purge"], "once in each: docs/concepts/elicitation.md says so"


async def test_a_call_that_never_asks_does_not_touch_the_store() -> None:
    class Untouched:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    memory = Stores.memory()
    server = Server("quiet", stores=Stores(Untouched(), memory.log, memory.bus))  # type: ignore[arg-type]
    server.tool("quiet")(lambda: "quiet")
    async with connect(server, MODERN, EVERYTHING) as client:
        assert (await client.call("quiet"))["content"][0]["text"] == "quiet"


@pytest.mark.covers("MRTR-4")
@pytest.mark.parametrize("given", [{}, {"page": True, "name": True}], ids=["missing", "complete"])
async def test_a_request_that_cannot_be_asked_uses_nothing_up(given: dict[str, Any]) -> None:
    server = Server("asks")

    @server.tool
    async def both(ctx: Context) -> str:
        await asyncio.gather(
            ctx.elicit("Name?", bool, key="name"), ctx.elicit_url("Sign in", "https://example.com/", key="page")
        )
        return "done"

    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("both")
        client.capabilities = {"roots": {}}
        error = await client.error("tools/call", {"name": "both", **answered(first, **given)})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"elicitation": {}}}
        if not given:
            client.capabilities = {"elicitation": {"form": {}}}
            error = await client.error("tools/call", {"name": "both", **answered(first)})
            assert error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}
        client.capabilities = EVERYTHING
        answers = {"name": True, "page": {"action": "accept"}}
        done = await client.call("both", **answered(first, **answers))
        assert done["content"][0]["text"] == "done"


# --- What is remembered of used states ------------------------------------------------------------------------------


async def test_what_was_used_is_forgotten_after_the_state_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("toolwire.server.replay_state.time.time", lambda: now[0])
    memory = Stores.memory()
    stores = Stores(MemoryKV(clock=lambda: now[0]), memory.log, memory.bus)
    server = Server("asks", stores=stores, limits=Limits(state=60))

    @server.tool
    async def pay(ctx: Context) -> str:
        return str((await ctx.elicit("Pay?", bool, key="yes")).data)

    async with connect(server, MODERN, EVERYTHING) as client:
        again = {"name": "pay", **answered(await client.call("pay"), yes=True)}
        now[0] += 30
        await client.result("tools/call", again)
        assert len(await stores.kv.keys("toolwire:used:")) == 1
        now[0] += 30
        assert (await client.error("tools/call", again))["message"] == USED
        now[0] += 1
        assert "not valid" in (await client.error("tools/call", again))["message"]
        # A replica whose clock is behind still takes the state for a good one.
        assert len(await stores.kv.keys("toolwire:used:")) == 1
        now[0] += 60
        assert await stores.kv.keys("toolwire:used:") == []


async def test_one_caller_does_not_fill_the_store_with_used_states() -> None:
    ran: list[str] = []
    server = replica(Stores.memory(), ran)
    server.kernel.questions._used = StorageBudget(4, 0.5)
    call: Message = {"name": "purge", "arguments": {}}
    async with (
        connect(server, MODERN, EVERYTHING, principal=ADA) as ada,
        connect(server, MODERN, EVERYTHING, principal=Principal("bob")) as bob,
    ):
        for _ in range(2):
            again = call | answered(await ada.result("tools/call", call), yes=True)
            await ada.result("tools/call", again)
            for _ in range(5):
                # A repeat takes no room.
                assert (await bob.error("tools/call", again))["code"] == -32602
        waiting = call | answered(await ada.result("tools/call", call), yes=True)
        error = await ada.error("tools/call", waiting)
        assert (error["code"], error["message"].partition(";")[0]) == (
            -32603,
            "Too many calls were answered in a short time",
        )
        # A mark is kept for as long as its state is valid, and a minute more.
        assert 60_000 < error["data"]["retryAfterMs"] <= 660_000
        await bob.result("tools/call", call | answered(await bob.result("tools/call", call), yes=True))
        assert ran == ["purge"] * 3
        # What was refused for want of room is still good.
        server.kernel.questions._used = StorageBudget(10, 0.5)
        await ada.result("tools/call", waiting)
        assert ran == ["purge"] * 4


async def test_client_sends_its_answers_again_when_there_is_room_for_their_mark() -> None:
    refused = asyncio.Event()

    class Full(StorageBudget):
        def has_room(self, caller: Any, size: int) -> bool:
            is_first = not refused.is_set()
            refused.set()
            return not is_first

    ran: list[str] = []
    server = replica(Stores.memory(), ran)
    server.kernel.questions._used = Full(4, 0.5)
    async with testing.connect(server, revision=MODERN, elicit=lambda *_: {"value": True}) as (client, _):
        calling = asyncio.ensure_future(client.call_tool("purge", timeout=10))
        await refused.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        await elapse(1.0)
        await calling
    assert ran == ["purge"]


async def test_a_store_that_fails_lets_nothing_run(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryKV):
        fails = True

        async def put(self, key: str, value: bytes, **options: Any) -> bool:
            if self.fails:
                raise StoreFailed("the secret address of the store")
            return await super().put(key, value, **options)

    kv, memory, ran = Failing(), Stores.memory(), []  # type: ignore[var-annotated]
    call: Message = {"name": "pay", "arguments": {}}
    async with connect(replica(Stores(kv, memory.log, memory.bus), ran), MODERN, EVERYTHING) as client:
        again = call | answered(await client.result("tools/call", call), yes=True)
        error = await client.error("tools/call", again)
        text, later = "The answers cannot be taken now; try again later", {"retryAfterMs": 1000}
        assert error == {"code": -32603, "message": text, "data": later}
        assert "the secret address" in caplog.text
        assert ran == []
        kv.fails = False
        await client.result("tools/call", again)
        assert ran == ["pay"]


@pytest.mark.parametrize("arrives", [True, False], ids=["written, but the answer is lost", "not written"])
async def test_mark_of_a_used_state_is_written_again(arrives: bool) -> None:
    class Flapping(MemoryKV):
        failures = 0

        async def put(self, key: str, value: bytes, **options: Any) -> bool:
            if key.startswith("toolwire:used:") and self.failures:
                self.failures -= 1
                if arrives:
                    await super().put(key, value, **options)
                failure = StoreFailed("the connection was lost")
                failure.temporary = True
                raise failure
            return await super().put(key, value, **options)

    kv, memory, ran = Flapping(), Stores.memory(), []  # type: ignore[var-annotated]
    call: Message = {"name": "pay", "arguments": {}}
    async with connect(replica(Stores(kv, memory.log, memory.bus), ran), MODERN, EVERYTHING) as client:
        again = call | answered(await client.result("tools/call", call), yes=True)
        kv.failures = 2
        await client.result("tools/call", again)
        assert ran == ["pay"]
        # A state still works once only.
        assert (await client.error("tools/call", again))["code"] == -32602
        assert ran == ["pay"]
