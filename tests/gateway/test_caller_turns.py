"""The connections to one upstream: a share of them for each caller, and one for health checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.gateway.backs import until
from tests.gateway.faulty_backs import FaultyPool

from toolwire import Client, Server
from toolwire.auth import Principal
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Breaker, Gateway
from toolwire.gateway.caller_turns import GATEWAY, bound_queues, refuse_busy
from toolwire.http.client.session import Exchange
from toolwire.http.client.turns import RequestTurns
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import CallRefused, Timeout
from toolwire.protocol.revisions import MODERN
from toolwire.testing import elapse
from toolwire.wire.shares import Shares

#: The connections of the pool, and the calls of one caller among them: a quarter of what checks and streams leave.
CONNECTIONS, SHARE = 19, 4


class SmallPool(FaultyPool):
    """A pool with few connections."""

    @property
    def at_once(self) -> int:
        return CONNECTIONS


class Upstream:
    """A server with a tool that answers when it may, and a tool that answers at once."""

    def __init__(self) -> None:
        self.server = Server("b")
        self.running = 0
        self.may_end = asyncio.Event()

        @self.server.tool
        async def hold() -> str:
            self.running += 1
            try:
                await self.may_end.wait()
            finally:
                self.running -= 1
            return "held"

        @self.server.tool
        async def quick() -> str:
            return "quick"


@asynccontextmanager
async def scene(**options: Any) -> AsyncIterator[tuple[Upstream, SmallPool, Gateway, Client, Client]]:
    """Serve a gateway over HTTP before an upstream with few connections, to alice and bob."""
    upstream = Upstream()
    pool = SmallPool(b=upstream.server)
    gateway = Gateway("front").add("b", HttpTarget("http://b/mcp", pool=pool), revision=MODERN, **options)
    app = gateway.http_app(auth=None)
    fronts = [AsgiPool(app, {"toolwire.principal": Principal(name)}) for name in ("alice", "bob")]
    places = [HttpTarget("http://localhost/mcp", pool=front) for front in fronts]
    try:
        async with (
            Client(places[0], revision=MODERN, timeout=None) as alice,
            Client(places[1], revision=MODERN, timeout=None) as bob,
        ):
            yield upstream, pool, gateway, alice, bob
            upstream.may_end.set()
    finally:
        app.drain()
        for front in fronts:
            await front.close()
        await app.stop()
        await pool.close()


def start_calls(client: Client, count: int) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(client.call_tool("b_hold")) for _ in range(count)]


async def test_slow_calls_of_one_caller_leave_connections_to_another() -> None:
    async with scene() as (upstream, _, gateway, alice, bob):
        assert (await bob.call_tool("b_quick")).text == "quick"
        calls = start_calls(alice, CONNECTIONS + 5)
        await until(lambda: upstream.running >= SHARE and gateway.backs["b"].waiting == CONNECTIONS + 5 - SHARE)
        assert upstream.running == SHARE
        for _ in range(3):
            async with asyncio.timeout(20):
                assert (await bob.call_tool("b_quick")).text == "quick"
        upstream.may_end.set()
        assert {(await each).text for each in calls} == {"held"}
        assert gateway.backs["b"].waiting == 0


async def test_health_check_passes_while_calls_hold_all_connections() -> None:
    # One caller may have all places, so that nothing but the place of the check is left.
    async with scene(max_calls_per_caller=CONNECTIONS) as (upstream, pool, gateway, alice, bob):
        await bob.call_tool("b_quick")
        calls = start_calls(alice, 2 * CONNECTIONS)
        # Two places are for streams and notifications, and the listen stream of the gateway has one more.
        await until(lambda: upstream.running == CONNECTIONS - 4 and gateway.backs["b"].waiting)
        guard = gateway.fronts.front.upstreams["b"].guard
        pool.sent.clear()
        for _ in range(Breaker().failures):
            guard.record_failure(Timeout("it was not answered in time"), ("alice", "hold"))
        assert guard.needs_check
        await until(lambda: not guard.needs_check)
        assert any(b'"server/discover"' in body for _, body in pool.sent)
        assert gateway.backs["b"].breaker == "closed"
        upstream.may_end.set()
        assert {(await each).text for each in calls} == {"held"}


async def test_calls_that_wait_too_long_are_refused_and_do_not_count_as_failures() -> None:
    async with scene(queue_seconds=0.01) as (upstream, pool, gateway, alice, bob):
        await bob.call_tool("b_quick")
        pool.sent.clear()
        calls = start_calls(alice, SHARE)
        await until(lambda: upstream.running == SHARE)
        refused = [(await each).text for each in start_calls(alice, 3)]
        assert all("try again later" in text for text in refused) and pool.calls("b") == SHARE
        breaker = gateway.fronts.front.upstreams["b"].guard.breaker
        assert breaker is not None and breaker.failures == 0
        upstream.may_end.set()
        assert {(await each).text for each in calls} == {"held"}


async def test_calls_beyond_the_queue_of_their_caller_are_refused_at_once() -> None:
    async with scene(queue=2) as (upstream, _, gateway, alice, _):
        calls = start_calls(alice, SHARE + 2)
        await until(lambda: upstream.running == SHARE and gateway.backs["b"].waiting == 2)
        refused = await alice.call_tool("b_hold")
        assert refused.is_error and "try again later" in refused.text and "toolwire/retryAfterMs" in refused.meta
        calls[-1].cancel()
        await until(lambda: gateway.backs["b"].waiting == 1)
        upstream.may_end.set()
        assert {(await each).text for each in calls[:-1]} == {"held"}


def test_upstream_has_a_connection_for_each_of_its_calls() -> None:
    gateway = Gateway("front").add("b", "http://b/mcp", max_calls=500).add("c", "http://c/mcp")
    several = Gateway("front").add("d", urls=["http://d/mcp", "http://e/mcp"], max_calls=500)

    def connections(gateway: Gateway, name: str) -> int:
        target: Any = gateway.fronts.front.upstreams[name].back_connections.target
        return (target.to_try()[0] if name == "d" else target)._connections

    assert [connections(gateway, "b"), connections(gateway, "c"), connections(several, "d")] == [503, 259, 503]


# --- the turns themselves ---------------------------------------------------------------------------------------------


class Requests:
    """Requests in flight, named after their callers: `a1` is one of caller `a`, and `-1` of none."""

    def __init__(self, limit: int = 8, length: int = 10) -> None:
        self.in_flight: dict[str, Any] = {}
        self.turns = RequestTurns(Shares(limit, 0.25, "calls"), self.in_flight, self.caller, bound_queues(length, 30.0))

    def caller(self, name: Any) -> Any:
        return {"-": None, "g": GATEWAY}.get(name[0], name[0])

    async def start(self, *names: str) -> None:
        for name in names:
            exchange = SimpleNamespace(identifier=name, has_own_place=False, refuse_unsent=None)
            self.in_flight[name] = exchange
            if not self.turns.take():
                exchange.task = asyncio.ensure_future(self.turns.wait(exchange))  # type: ignore[arg-type]
                await asyncio.sleep(0)

    def has_turn(self, name: str) -> bool:
        task = getattr(self.in_flight[name], "task", None)
        return task is None or (task.done() and task.exception() is None)

    async def end(self, name: str) -> None:
        del self.in_flight[name]
        self.turns.give_back(name)
        for _ in range(3):
            await asyncio.sleep(0)


async def test_turns_of_one_caller_wait_behind_its_own_calls_only() -> None:
    requests = Requests()
    await requests.start("a1", "a2", "a3", "a4", "b1", "b2", "b3", "-1", "-2", "-3", "g1")
    waiting = [name for name in requests.in_flight if not requests.has_turn(name)]
    assert waiting == ["a3", "a4", "b3"] and requests.turns.waiting == 3
    await requests.end("b1")
    assert requests.has_turn("b3") and not requests.has_turn("a3")
    for name in ("a1", "a2"):
        await requests.end(name)
    assert requests.has_turn("a3") and requests.has_turn("a4") and requests.turns.waiting == 0


async def test_turns_are_uncounted_again_when_few_are_held() -> None:
    requests = Requests()
    names = ("a1", "a2", "b1")
    await requests.start(*names)
    for name in names:
        await requests.end(name)
    assert requests.turns.take() and requests.turns.take() and not requests.turns.take()
    assert requests.turns._turns.shares.total == 0


async def test_queues_of_callers_take_turns_when_everything_is_held() -> None:
    requests = Requests(limit=4)
    await requests.start("-1", "-2", "-3", "-4", "a1", "a2", "b1", "c1")
    order = []
    for name in ("-1", "-2", "-3"):
        before = [each for each in requests.in_flight if requests.has_turn(each)]
        await requests.end(name)
        order += [each for each in requests.in_flight if requests.has_turn(each) and each not in before]
    assert order == ["a1", "b1", "c1"]


async def test_free_turn_skips_calls_that_are_cancelled() -> None:
    requests = Requests()
    await requests.start("a1", "a2", "a3", "a4")
    requests.in_flight["a3"].task.cancel()  # Its task has not run since.
    await requests.end("a1")
    assert requests.has_turn("a4") and requests.in_flight["a3"].task.cancelled() and requests.turns.waiting == 0


@pytest.mark.parametrize("refuses", [False, True])
async def test_request_is_refused_when_its_time_is_over_before_its_turn(refuses: bool) -> None:
    exchange = Exchange(SimpleNamespace(loop=asyncio.get_running_loop()), 1, "tools/call", 5.0, None)  # type: ignore[arg-type]
    exchange.refuse_unsent = refuse_busy if refuses else None
    with pytest.raises(CallRefused if refuses else Timeout), exchange:
        exchange.interrupt(Timeout("late"))
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_granted", [False, True])
async def test_cancelled_wait_leaves_its_turn_to_the_next(is_granted: bool) -> None:
    requests = Requests()
    await requests.start("a1", "a2", "a3", "a4")
    if is_granted:
        del requests.in_flight["a1"]
        requests.turns.give_back("a1")
    requests.in_flight["a3"].task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await requests.in_flight["a3"].task
    if not is_granted:
        await requests.end("a1")
    await requests.in_flight["a4"].task
    assert requests.turns.waiting == 0


async def test_wait_ends_with_a_refusal_after_the_time_of_the_queue() -> None:
    requests = Requests(length=1)
    await requests.start("a1", "a2", "a3", "a4")
    with pytest.raises(CallRefused, match="try again later"):
        await requests.in_flight["a4"].task
    await elapse(31.0)
    with pytest.raises(CallRefused, match="try again later"):
        await requests.in_flight["a3"].task
    assert requests.turns.waiting == 0
