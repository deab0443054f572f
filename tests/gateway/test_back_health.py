"""The breaker, the health checks and the slots of servers behind a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.gateway.backs import Away, one, told, until
from tests.gateway.faulty_backs import FAULTS, FaultyPool, faulty
from tests.gateway.test_observing import numbers
from tests.http.httpclient import HttpClient

from toolwire import Client, Server, testing
from toolwire.auth import Principal
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Breaker, Gateway, Health, availability, gateway_of, list_follower
from toolwire.gateway.back_health import (
    CircuitBreaker,
    CredentialMissing,
    HealthChecks,
    UpstreamGuard,
    UpstreamLimits,
    is_failure,
)
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol.errors import (
    InvalidResponse,
    OutcomeUnknown,
    ProtocolError,
    ServerError,
    Timeout,
    ToolError,
    ToolwireError,
    TransportError,
    Unauthorized,
    Unreachable,
)
from toolwire.protocol.revisions import MODERN
from toolwire.server import list_changes
from toolwire.server_texts import ServerTexts
from toolwire.testing import elapse
from toolwire.util.backoff import Backoff

ERAS = pytest.mark.parametrize("back", [MODERN, "2025-11-25"])
DOWN = Unreachable("nobody listens")
LATE = Timeout("it was not answered in time")

# --- the states of a breaker ------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


ANN, BOB = ("ann", "run"), ("bob", "run")


def switch(**settings: Any) -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    return CircuitBreaker(Breaker(**settings), clock), clock


def take(breaker: CircuitBreaker, steps: str) -> None:
    """Take steps: failures, timeouts and successes (capitals are those of another caller), checks, and probes."""
    ways = {
        "f": partial(breaker.record_failure, DOWN, ANN),
        "F": partial(breaker.record_failure, DOWN, BOB),
        "t": partial(breaker.record_failure, LATE, ANN),
        "s": partial(breaker.record_success, ANN),
        "S": partial(breaker.record_success, BOB),
        "c": breaker.record_health_check,
        "m": partial(breaker.open, LATE),
        "p": breaker.record_probe,
    }
    for step in steps:
        ways[step]()


@pytest.mark.covers("GW-9.4")
@cases(
    ("steps", "state", "needs_check"),
    [
        ("ff", "closed", False),
        # No number of failures opens the breaker: a health check decides.
        ("ffffff", "closed", True),
        ("fffm", "open", True),
        ("fffc", "closed", False),
        ("tttm", "open", True),
        ("tttc", "closed", False),
        ("fffcff", "closed", False),
        ("fffcfff", "closed", True),
        ("ffsff", "closed", False),
        ("ffsfff", "closed", True),
        # Failures in a row are those of one caller and tool, and count together.
        ("fFf", "closed", True),
        ("ffSf", "closed", True),
        ("fFsF", "closed", False),
        ("fFsSff", "closed", False),
        ("fffs", "closed", False),
        ("fffFs", "closed", False),
        ("c", "closed", False),
        ("fffmc", "half-open", False),
        ("fffmcs", "half-open", False),
        ("fffmcss", "closed", False),
        ("fffmcsS", "closed", False),
        ("fffmcf", "half-open", True),
        ("fffmcfm", "open", True),
        ("fffmcfc", "closed", False),
        ("fffmcps", "half-open", True),
        ("fffmcpc", "closed", False),
        ("fffmcpcff", "closed", False),
        ("fffms", "open", True),
    ],
)
def test_states_of_a_breaker(steps: str, state: str, needs_check: bool) -> None:
    breaker, _ = switch(failures=3, probes=2)
    take(breaker, steps)
    assert (breaker.state, breaker.next_check_at is not None) == (state, needs_check)


@pytest.mark.covers("GW-9.4")
@cases(
    ("steps", "seconds"),
    [
        ("ff", None),
        ("fff", 0.0),
        ("fffs", None),
        ("fffc", None),
        # A caller that fails all the time costs one check in each second.
        ("fffcfff", 1.0),
        ("fffmc", None),
        ("fffmcp", 8.0),
        ("fffmcf", 0.0),
    ],
)
def test_time_of_the_next_health_check(steps: str, seconds: float | None) -> None:
    breaker, clock = switch(failures=3, pause=8.0)
    take(breaker, steps)
    assert breaker.next_check_at == (None if seconds is None else clock.now + seconds)


@pytest.mark.covers("GW-9.4")
def test_failures_of_a_caller_that_left_do_not_count_for_ever() -> None:
    breaker, clock = switch(failures=3, longest=60.0)
    take(breaker, "ffS")
    assert breaker.failures == 2
    clock.now += 61
    take(breaker, "S")
    assert breaker.failures == 0


@pytest.mark.covers("GW-9.4")
def test_failures_of_many_callers_use_bounded_memory() -> None:
    breaker, _ = switch(failures=3)
    for number in range(100):
        breaker.record_failure(DOWN, (f"caller {number}", "run"))
    assert breaker.failures == 3


@pytest.mark.covers("GW-9.4")
def test_pause_of_a_breaker_doubles_with_jitter_up_to_the_longest() -> None:
    breaker, clock = switch(failures=1, pause=1.0, longest=8.0)
    for bound in (1.0, 2.0, 4.0, 8.0, 8.0):
        breaker.open(DOWN)
        assert bound / 2 <= breaker.seconds_until_check <= bound
        clock.now += bound
        assert breaker.seconds_until_check == 0.0
        breaker.record_health_check()
    breaker.record_success(ANN)
    breaker.open(DOWN)
    assert breaker.seconds_until_check <= 1.0


@pytest.mark.covers("GW-9.4")
@cases(("asked", "at_least", "at_most"), [(20.0, 20.0, 20.0), (1e9, 600.0, 600.0), (None, 0.5, 1.0)])
def test_a_server_that_names_a_time_is_left_alone_that_long(asked: Any, at_least: float, at_most: float) -> None:
    breaker, _ = switch(failures=1)
    error = Unreachable("busy")
    error.retry_after = asked
    breaker.record_failure(error, ANN)
    breaker.open(LATE)
    assert at_least <= breaker.seconds_until_check <= at_most


def status(number: int) -> TransportError:
    error = TransportError("no")
    error.status = number
    return error


@pytest.mark.covers("GW-9.3")
@cases(
    ("error", "counts"),
    [
        (Unreachable("x"), True),
        (OutcomeUnknown("x"), True),
        (Timeout("x"), True),
        (status(500), True),
        (status(503), True),
        (status(429), False),
        (status(404), False),
        (ProtocolError(-32603, "x"), False),
        (ToolError("x"), False),
        (InvalidResponse("x"), False),
        (CredentialMissing("no credential now"), False),
    ],
)
def test_which_errors_say_that_a_server_does_not_work(error: Exception, counts: bool) -> None:
    assert is_failure(error) is counts


# --- a server with faults, behind a gateway ---------------------------------------------------------------------------


def made() -> Server:
    server = one("b", "run")

    @server.tool
    async def fail() -> str:
        raise ToolError("as it is meant to")

    @server.tool
    async def refuse() -> str:
        raise ProtocolError(-32001, "no")

    return server


SOON = Breaker(failures=2, pause=0.01, longest=0.02)
LATER = Breaker(failures=2, pause=1000, longest=1000)
QUICK = Health(every=1000, timeout=0.05)
CALL_SECONDS = 10.0


@asynccontextmanager
async def scene(
    back: str, breaker: Breaker | bool = SOON, front: str = MODERN, **options: Any
) -> AsyncIterator[tuple[Gateway, Client, FaultyPool]]:
    """Yield a gateway with a server `b` by HTTP that may have a fault, and a server `good`."""
    async with faulty(b=made()) as pool:
        gateway = Gateway("front", metrics=True).add("good", one("good", "run"))
        place = HttpTarget("http://b/mcp", pool=pool)
        settings = {"health": QUICK, "timeout": CALL_SECONDS, "revision": back, **options}
        gateway.add("b", place, breaker=breaker, **settings)
        async with testing.connect(gateway, revision=front) as (client, _):
            assert not (await client.call_tool("b_run")).is_error
            yield gateway, client, pool


@asynccontextmanager
async def counting(changes: Any) -> AsyncIterator[list[str]]:
    """Yield the changes that a client is told of, while they come."""
    seen: list[str] = []

    async def count() -> None:
        async for change in changes:
            seen.append(change.kind)  # noqa: PERF401 - each is seen when it comes

    task = asyncio.ensure_future(count())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.wait({task})


async def listing(client: Client, tools: int) -> None:
    """Wait until a client is listed so many tools."""
    async with asyncio.timeout(30):
        while len(await client.list_tools()) != tools:
            await asyncio.sleep(0)


def state_of(gateway: Gateway) -> tuple[str, str]:
    back = gateway.backs["b"]
    return back.breaker, back.state


@pytest.mark.covers("GW-9.3", "GW-9.4")
@ERAS
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_server_that_fails_is_left_alone_and_comes_back(
    back: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(list_changes, "TOGETHER_SECONDS", 0.0)
    seconds = 0.2 if fault == "hangs" else 30
    async with (
        scene(back, timeout=seconds) as (gateway, client, pool),
        client.listen(tools=True) as changes,
        counting(changes) as seen,
    ):
        pool.faults["b"] = fault
        for _ in range(2):
            assert (await client.call_tool("b_run")).is_error
        # A health check is sent first.
        await until(lambda: state_of(gateway) == ("open", "away"))
        arrived = pool.calls("b")
        refused = await client.call_tool("b_run")
        assert refused.is_error and "'b'" in refused.text and "try again" in refused.text
        assert "not carried out" in refused.text
        assert refused.meta["toolwire/retryAfterMs"] >= 1000
        assert pool.calls("b") == arrived
        assert (await client.call_tool("good_run", returns=str)) == "good"
        await listing(client, 1)
        await until(lambda: seen)
        before = len(seen)
        assert numbers(gateway, "toolwire_back_breaker")["b", "open"] == 1
        pool.heal()
        await until(lambda: state_of(gateway) == ("half-open", "ready"))
        await listing(client, 4)
        await until(lambda: len(seen) > before)
        assert (await client.call_tool("b_run", returns=str)) == "b"
        assert state_of(gateway) == ("closed", "ready")
        assert numbers(gateway, "toolwire_back_breaker")["b", "closed"] == 1


@pytest.mark.covers("GW-9.3")
@ERAS
async def test_errors_of_tools_and_of_the_application_say_nothing_about_health(back: str) -> None:
    async with scene(back, LATER) as (gateway, client, pool):
        for _ in range(4):
            assert (await client.call_tool("b_fail")).is_error
            with pytest.raises(ProtocolError):
                await client.call_tool("b_refuse")
        assert state_of(gateway) == ("closed", "ready")
        # An error of the application ends a row of failures, too: the server answered.
        for _ in range(2):
            pool.faults["b"] = "500"
            assert (await client.call_tool("b_refuse")).is_error
            assert not gateway.fronts.front.upstreams["b"].guard.needs_check
            pool.heal()
            with pytest.raises(ProtocolError):
                await client.call_tool("b_refuse")
        assert gateway.backs["b"].breaker == "closed"


@pytest.mark.covers("GW-9.4")
async def test_one_call_finds_out_whether_a_server_works_while_others_are_refused() -> None:
    async with scene(MODERN) as (gateway, client, pool):
        pool.faults["b"] = "503"
        for _ in range(2):
            await client.call_tool("b_run")
        await until(lambda: gateway.backs["b"].breaker == "open")
        pool.heal()
        await until(lambda: gateway.backs["b"].breaker == "half-open")
        pool.faults["b"] = "hangs"
        pool.sent.clear()
        trying = asyncio.ensure_future(client.call_tool("b_run"))
        await until(lambda: pool.calls("b") == 1)
        assert "is unreachable" in (await client.call_tool("b_run")).text
        assert pool.calls("b") == 1
        await elapse(CALL_SECONDS)
        assert "is unreachable" not in (await trying).text
        # It failed, and so does the health check.
        await until(lambda: gateway.backs["b"].breaker == "open")


def signs(pool: FaultyPool) -> int:
    """Return how many health checks were sent."""
    return sum(b'"ping"' in body or b'"server/discover"' in body for _, body in pool.sent)


@asynccontextmanager
async def two_callers(back: str, breaker: Breaker) -> AsyncIterator[tuple[Gateway, Client, Client, FaultyPool]]:
    """Yield a gateway whose server `b` has a tool that never ends, the clients of two callers, and the pool."""
    server = one("b", "run")

    @server.tool
    async def slow() -> None:
        await asyncio.Event().wait()

    async with faulty(b=server) as pool:
        gateway = Gateway("front")
        # The server may be slow to give a sign of life on a busy machine. The test of a server that hangs has its own.
        place, patient = HttpTarget("http://b/mcp", pool=pool), Health(every=1000, timeout=30)
        gateway.add("b", place, breaker=breaker, health=patient, timeout=CALL_SECONDS, revision=back)
        async with (
            testing.connect(gateway, principal=Principal("ann")) as (ann, _),
            testing.connect(gateway, principal=Principal("bob")) as (bob, _),
        ):
            await ann.list_tools()
            yield gateway, ann, bob, pool


@pytest.mark.covers("GW-9.4")
@ERAS
async def test_a_slow_tool_of_one_caller_does_not_keep_others_out(back: str) -> None:
    async with two_callers(back, LATER) as (gateway, ann, bob, pool):
        for _ in range(2):
            pool.sent.clear()
            calls = [asyncio.ensure_future(ann.call_tool("b_slow")) for _ in range(LATER.failures)]
            await until(lambda: pool.calls("b") == LATER.failures)
            await elapse(CALL_SECONDS)
            late = await asyncio.gather(*calls)
            assert all("was not answered within" in each.text for each in late)
            assert gateway.backs["b"].breaker == "closed"
            await until(lambda: signs(pool) == 1 and gateway.backs["b"].error is None)
        assert gateway.backs["b"].breaker == "closed"
        assert await bob.call_tool("b_run", returns=str) == "b"


@pytest.mark.covers("GW-9.4")
@ERAS
async def test_a_slow_call_does_not_decide_what_happens_to_a_half_open_breaker(back: str) -> None:
    async with two_callers(back, SOON) as (gateway, ann, bob, pool):
        pool.faults["b"] = "503"
        for _ in range(2):
            await bob.call_tool("b_run")
        await until(lambda: gateway.backs["b"].breaker == "open")
        pool.heal()
        await until(lambda: gateway.backs["b"].breaker == "half-open")
        pool.sent.clear()
        trying = asyncio.ensure_future(ann.call_tool("b_slow"))
        await until(lambda: pool.calls("b") == 1)
        await elapse(CALL_SECONDS)
        await until(lambda: gateway.backs["b"].breaker != "half-open")
        assert gateway.backs["b"].breaker == "closed"
        assert await bob.call_tool("b_run", returns=str) == "b"
        assert (await trying).is_error


@pytest.mark.covers("GW-9.4")
@ERAS
async def test_tool_that_fails_for_one_caller_stays_open_to_others(back: str) -> None:
    # One input of a working server is answered with 500.
    async with faulty(b=one("b", "run", "bad")) as pool:
        pool.answers_500 = b'"bad"'
        gateway = Gateway("front").add("b", HttpTarget("http://b/mcp", pool=pool), revision=back)
        async with (
            testing.connect(gateway, principal=Principal("ann")) as (ann, _),
            testing.connect(gateway, principal=Principal("bob")) as (bob, _),
        ):
            await bob.call_tool("b_run")
            pool.sent.clear()
            begun = asyncio.get_running_loop().time()
            for _ in range(25):
                assert all([(await ann.call_tool("b_bad")).is_error for _ in range(3)])
                assert await bob.call_tool("b_run", returns=str) == "b"
            assert gateway.backs["b"].breaker == "closed"
            await until(lambda: signs(pool) >= 1)
            # One check in each second, and not one for each row of failures.
            assert signs(pool) <= 2 + asyncio.get_running_loop().time() - begun


class Asked:
    """A guard and its health checks. Each waits until its answer is `given`, as nothing or as an error."""

    def __init__(self, **settings: Any) -> None:
        self.asked = 0
        self.given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        limits = UpstreamLimits(Breaker(**settings))
        plan = lambda *state: self.checks.plan()  # noqa: E731
        self.guard = UpstreamGuard(
            UpstreamLog(ServerTexts("b")), limits, self._send, lambda send: None, plan, check_needed=plan
        )
        self.checks = HealthChecks(self.guard, None, lambda: False, self._ask)

    async def _ask(self, seconds: float) -> None:
        self.asked += 1
        await self.given

    async def _send(self, call: Any, method: str, sent: Any, headers: Any) -> None:
        raise AssertionError("nothing is sent")


@pytest.mark.covers("GW-9.4")
@pytest.mark.parametrize("failure", [LATE, DOWN, status(500)], ids=["timeout", "unreachable", "500"])
@cases(
    ("error", "state"),
    [
        (None, "closed"),
        (ProtocolError(-32601, "no such method"), "closed"),
        (Unauthorized("log in"), "closed"),
        (status(429), "closed"),
        (status(503), "open"),
        (LATE, "open"),
        (DOWN, "open"),
    ],
)
async def test_one_health_check_decides_about_the_breaker(
    error: ToolwireError | None, state: str, failure: ToolwireError
) -> None:
    back = Asked(failures=2, pause=1000, longest=1000)
    for _ in range(6):
        back.guard.record_failure(failure, ANN)
        await asyncio.sleep(0.001)
    assert (back.asked, back.guard.state) == (1, "closed")
    if error is None:
        back.given.set_result(None)
    else:
        back.given.set_exception(error)
    await until(lambda: back.guard.state == state and back.guard.needs_check is (state == "open"))
    await back.checks.stop()
    assert back.asked == 1


@pytest.mark.covers("GW-9.4")
async def test_health_check_that_began_before_the_breaker_opened_does_not_count() -> None:
    back = Asked(failures=2, pause=1000, longest=1000)
    for _ in range(2):
        back.guard.record_failure(LATE, ANN)
    assert back.guard.state == "closed"
    await until(lambda: back.asked == 1)
    back.guard.record_failed_check(DOWN)
    back.given.set_result(None)
    await asyncio.sleep(0)
    assert back.guard.state == "open" and back.guard.seconds_until_check > 0
    await back.checks.stop()


@pytest.mark.covers("GW-9.4")
async def test_a_server_that_names_a_time_is_not_called_before() -> None:
    async with scene(MODERN) as (gateway, client, pool):
        pool.faults["b"], pool.retry_after = "503", "120"
        for _ in range(2):
            await client.call_tool("b_run")
        await until(lambda: gateway.backs["b"].breaker == "open")
        refused = await client.call_tool("b_run")
        assert 118_000 < refused.meta["toolwire/retryAfterMs"] <= 120_000
        assert "120 seconds" in refused.text


async def test_no_breaker() -> None:
    async with scene(MODERN, False, health=None) as (gateway, client, pool):
        pool.faults["b"] = "503"
        for _ in range(7):
            assert "is unreachable" not in (await client.call_tool("b_run")).text
        assert gateway.backs["b"].breaker == "closed"


@pytest.mark.covers("GW-9.4")
async def test_components_stay_listed_where_that_is_configured() -> None:
    async with faulty(b=made()) as pool:
        gateway = Gateway("front", stale=True)
        gateway.add("b", HttpTarget("http://b/mcp", pool=pool), breaker=LATER)
        async with testing.connect(gateway) as (client, _):
            pool.faults["b"] = "503"
            for _ in range(2):
                await client.call_tool("b_run")
            await until(lambda: state_of(gateway) == ("open", "away"))
            assert len(await client.list_tools()) == 3
            app = gateway.http_app()
            ready = await HttpClient(app, path="/readyz").start("GET").finished()
            assert (ready.status, ready.body) == (200, b"ok, b missing")
            await app.stop()


@pytest.mark.covers("GW-9.3")
@ERAS
async def test_a_server_that_nobody_calls_is_asked_for_signs_of_life(back: str) -> None:
    async with scene(back, health=Health(every=0.02, timeout=0.05)) as (gateway, _, pool):
        method = b'"server/discover"' if back == MODERN else b'"ping"'
        pool.sent.clear()
        await until(lambda: any(method in body for _, body in pool.sent))
        assert state_of(gateway) == ("closed", "ready")
        pool.faults["b"] = "hangs"
        await until(lambda: state_of(gateway) == ("open", "away"))
        pool.heal()
        await until(lambda: state_of(gateway) == ("half-open", "ready"))


@pytest.mark.covers("GW-9.3")
@ERAS
async def test_a_server_with_a_call_in_flight_is_not_asked_for_signs_of_life(back: str) -> None:
    server, go_on = Server("b"), asyncio.Event()

    @server.tool
    async def wait() -> str:
        await go_on.wait()
        return "done"

    async with faulty(b=server) as pool:
        gateway = Gateway("front")
        gateway.add("b", HttpTarget("http://b/mcp", pool=pool), revision=back, health=Health(every=0.005))
        async with testing.connect(gateway) as (client, _):
            waiting = asyncio.ensure_future(client.call_tool("b_wait", returns=str))
            await until(lambda: pool.calls("b") == 1)
            pool.sent.clear()
            await asyncio.sleep(0.05)
            assert signs(pool) <= 1  # One may have been on its way when the call began.
            go_on.set()
            assert await waiting == "done"


@pytest.mark.covers("GW-9.4")
@ERAS
async def test_a_server_in_this_process_that_dies_is_left_alone_and_comes_back(back: str) -> None:
    target = Away(one("b", "run"), is_there=True)
    gateway = Gateway("front").add("b", target, breaker=SOON, revision=back)
    async with testing.connect(gateway) as (client, _):
        assert await client.call_tool("b_run", returns=str) == "b"
        await target.leave()
        for _ in range(4):
            assert (await client.call_tool("b_run")).is_error
        await until(lambda: gateway.backs["b"].breaker == "open")
        target.is_there = True
        await until(lambda: state_of(gateway) == ("half-open", "ready"))
        assert await client.call_tool("b_run", returns=str) == "b"
        assert state_of(gateway) == ("closed", "ready")


@pytest.mark.covers("GW-9.4")
@ERAS
async def test_clients_hear_of_updates_as_soon_as_the_server_is_back(
    back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing but the sign of life says that the server is back.
    monkeypatch.setattr(list_follower, "Backoff", partial(Backoff, first=3600.0, longest=3600.0))
    server = one("b", "run")

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    target = Away(server, is_there=True)
    gateway = Gateway("front").add("b", target, breaker=SOON, revision=back)
    async with testing.connect(gateway) as (client, _), client.listen(resources=["note://today"]) as changes:
        await target.leave()
        for _ in range(4):
            assert (await client.call_tool("b_run")).is_error
        await until(lambda: state_of(gateway) == ("open", "away"))
        target.is_there = True
        # What changed while it was away was told to nobody.
        assert await told(changes) == "resource"
        server.notify_updated("note://today")
        assert await told(changes) == "resource"


@pytest.mark.covers("GW-9.4")
async def test_a_server_that_was_taken_away_with_calls_in_flight_is_asked_for_signs_of_life() -> None:
    server, begun, go_on = made(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with faulty(b=server) as pool:
        gateway = Gateway("front").add("b", HttpTarget("http://b/mcp", pool=pool), breaker=SOON)
        async with testing.connect(gateway) as (client, _):
            waiting = asyncio.ensure_future(client.call_tool("b_wait", returns=str))
            await begun.wait()
            pool.faults["b"] = "503"
            for _ in range(2):
                await client.call_tool("b_run")
            guard = gateway.fronts.front.upstreams["b"].guard
            await until(lambda: guard.state == "open")
            gateway.remove("b")
            pool.heal()
            await until(lambda: guard.state == "half-open")
            go_on.set()
            assert await waiting == "done"


# --- slots ------------------------------------------------------------------------------------------------------------


class Gated:
    """A server whose tool `wait` runs until it is let go."""

    def __init__(self) -> None:
        self.server = Server("b")
        self.running = 0
        self.most = 0
        self.go_on = asyncio.Event()

        @self.server.tool
        async def wait() -> str:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self.go_on.wait()
            finally:
                self.running -= 1
            return "done"


@pytest.mark.covers("GW-9.5")
@pytest.mark.parametrize("front", [MODERN, "2025-11-25"])
@ERAS
async def test_calls_wait_for_a_slot_and_others_do_not_notice(front: str, back: str) -> None:
    gated = Gated()
    gateway = Gateway("front", metrics=True).add("good", one("good", "run"))
    gateway.add("b", gated.server, revision=back, max_calls=2, queue=2)
    async with testing.connect(gateway, revision=front) as (client, _):
        calls = [asyncio.ensure_future(client.call_tool("b_wait", returns=str)) for _ in range(4)]
        await until(lambda: gateway.backs["b"].waiting == 2 and gated.running == 2)
        assert numbers(gateway, "toolwire_back_waiting") == {("good",): 0, ("b",): 2}
        refused = await client.call_tool("b_wait")
        assert refused.is_error and "'b'" in refused.text and "Try again in" in refused.text
        assert "toolwire/retryAfterMs" in refused.meta
        assert await client.call_tool("good_run", returns=str) == "good"
        calls[3].cancel()
        await until(lambda: gateway.backs["b"].waiting == 1)
        gated.go_on.set()
        assert [await each for each in calls[:3]] == ["done"] * 3
        assert gated.most == 2 and gateway.backs["b"].waiting == 0


@pytest.mark.covers("GW-9.5")
async def test_a_call_waits_for_a_limited_time() -> None:
    gated = Gated()
    gateway = Gateway("front").add("b", gated.server, max_calls=1, queue_seconds=0.01)
    async with testing.connect(gateway) as (client, _):
        first = asyncio.ensure_future(client.call_tool("b_wait", returns=str))
        await until(lambda: gated.running == 1)
        assert "is busy" in (await client.call_tool("b_wait")).text
        gated.go_on.set()
        assert await first == "done"


@pytest.mark.covers("GW-9.5")
async def test_one_caller_does_not_take_the_slots_of_others() -> None:
    gated = Gated()
    gateway = Gateway("front")
    gateway.add("b", gated.server, max_calls=3, max_calls_per_caller=2, queue=5)
    async with (
        testing.connect(gateway, principal=Principal("ann")) as (ann, _),
        testing.connect(gateway, principal=Principal("bob")) as (bob, _),
    ):
        calls = [asyncio.ensure_future(ann.call_tool("b_wait", returns=str)) for _ in range(5)]
        await until(lambda: gated.running == 2 and gateway.backs["b"].waiting == 3)
        calls.append(asyncio.ensure_future(bob.call_tool("b_wait", returns=str)))
        await until(lambda: gated.running == 3)
        gated.go_on.set()
        assert [await each for each in calls] == ["done"] * 6


@pytest.mark.covers("GW-9.5")
async def test_a_call_that_waited_is_refused_where_the_server_stopped_working_meanwhile() -> None:
    at_once = Breaker(failures=1, pause=1000, longest=1000)
    async with scene(MODERN, at_once, max_calls=1) as (gateway, client, pool):
        pool.faults["b"] = "hangs"
        pool.sent.clear()
        calls = [asyncio.ensure_future(client.call_tool("b_run")) for _ in range(3)]
        await until(lambda: gateway.backs["b"].waiting == 2 and pool.calls("b") == 1)
        gateway.fronts.front.upstreams["b"].guard.record_failed_check(DOWN)
        pool.heal()
        texts = [(await each).text for each in calls]
        assert sorted("is unreachable" in text for text in texts) == [False, True, True]
        assert pool.calls("b") == 1


# --- settings ---------------------------------------------------------------------------------------------------------


@cases(
    ("entry", "text"),
    [
        ({"breaker": {"failures": 0}}, "failures must be at least 1 .got 0."),
        ({"breaker": {"pause": 5, "longest": 1}}, "pause must be at most 1.0 .got 5.0."),
        ({"breaker": {"fallures": 1}}, "fallures"),
        ({"health": {"every": 0}}, "every must be above 0 .got 0.0."),
        ({"health": {}, "breaker": False}, "health= without a breaker"),
        ({"max_calls": 0}, "upstream .b.: max_calls must be at least 1 .got 0."),
        ({"max_calls_per_caller": -1}, "max_calls_per_caller must be at least 1 .got -1."),
        ({"queue": -1}, "queue must be at least 0 .got -1."),
        ({"queue_seconds": 0}, "queue_seconds must be above 0 .got 0.0."),
    ],
)
def test_settings_that_make_no_sense_are_refused(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        gateway_of({"mcpServers": {"b": {"url": "http://b/mcp", **entry}}})


async def test_settings_in_a_file() -> None:
    entry: dict[str, Any] = {
        "url": "http://127.0.0.1:1/mcp",
        "breaker": {"failures": 1, "pause": 500, "longest": 500},
        "health": {"every": 60, "timeout": 2, "failures": 1},
        "max_calls": 4,
        "max_calls_per_caller": 2,
        "queue": 8,
        "queue_seconds": 3,
    }
    gateway = gateway_of(msgspec.json.decode(msgspec.json.encode({"mcpServers": {"b": entry}})), stale=True)
    async with testing.connect(gateway) as (client, _):
        await until(lambda: gateway.backs["b"].state == "away")
        assert gateway.backs["b"].breaker == "closed"
        with pytest.raises(ProtocolError):
            await client.call_tool("b_run")


@ERAS
@cases(
    ("fault", "says"),
    [
        ("413", "the request is too long for it"),
        ("414", "the request is too long for it"),
        ("431", "the request is too long for it"),
        ("400", "it refused the request with status 400"),
        ("429", "it has too much to do now"),
        ("503", "it has too much to do now"),
    ],
)
async def test_server_that_answers_with_a_status_is_not_said_to_be_away(back: str, fault: str, says: str) -> None:
    async with faulty(b=one("b", "run")) as pool:
        gateway = Gateway("front").add("b", HttpTarget("http://b/mcp", pool=pool), revision=back)
        async with testing.connect(gateway, over="http") as (client, _):
            await client.call_tool("b_run")
            pool.faults["b"] = fault
            pool.once.add("b")
            text = (await client.call_tool("b_run")).text
            assert says in text
            assert text.endswith("the request was not carried out")
            assert "reached" not in text
            assert await client.call_tool("b_run", returns=str) == "b"


@ERAS
async def test_lists_are_not_read_again_for_a_request_that_is_too_long(back: str) -> None:
    async with faulty(b=one("b", "run")) as pool:
        gateway = Gateway("front").add("b", HttpTarget("http://b/mcp", pool=pool), revision=back)
        async with testing.connect(gateway, over="http") as (client, _):
            await client.call_tool("b_run")
            pool.sent.clear()
            pool.faults["b"] = "431"
            for _ in range(6):
                assert (await client.call_tool("b_run")).is_error
            del pool.faults["b"]
            assert await client.call_tool("b_run", returns=str) == "b"
            assert gateway.backs["b"].breaker == "closed"
            assert not [body for _, body in pool.sent if b'"tools/list"' in body]
