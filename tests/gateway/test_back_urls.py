"""Servers behind a gateway that have several addresses, and calls that are sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import until
from tests.gateway.faulty_backs import FAULTS, FaultyPool, faulty
from tests.gateway.test_observing import numbers
from tests.http.modernclient import ModernClient

from toolwire import Client, Server, testing
from toolwire.auth import StaticSecret
from toolwire.base_errors import UnsendableRequest
from toolwire.client.http_target import HttpTarget
from toolwire.client.reconnect import is_passing
from toolwire.client.relay import Resumption
from toolwire.gateway import Breaker, Gateway, Health, back_urls
from toolwire.gateway.back_health import is_failure
from toolwire.gateway.back_urls import SeveralUrls, UrlStates
from toolwire.http1.pool import HttpPool
from toolwire.protocol.errors import OutcomeUnknown, ServerError, Timeout, Unreachable
from toolwire.protocol.revisions import MODERN

ERAS = pytest.mark.parametrize("back", [MODERN, "2025-11-25"])
#: Faults with which a request was certainly not carried out.
CLEAR = ("refuses", "503")


def made(name: str) -> Server:
    server = Server(name)

    @server.tool
    async def where() -> str:
        return name

    @server.tool(annotations={"idempotentHint": True})
    async def same() -> str:
        return name

    @server.tool(annotations={"readOnlyHint": True})
    async def look() -> str:
        return name

    @server.resource("note://where")
    def note() -> str:
        return name

    return server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(back_urls, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(back_urls, "LONGEST_SECONDS", 0.02)


@asynccontextmanager
async def scene(back: str, front: str = MODERN, **options: Any) -> AsyncIterator[tuple[Gateway, Client, FaultyPool]]:
    """Yield a gateway with a server at the hosts `a` and `c`, in this order of preference."""
    async with faulty(a=made("a"), c=made("c")) as pool:
        gateway = Gateway("front", metrics=True, secret="s" * 32)
        place = SeveralUrls(["http://a/mcp", "http://c/mcp"], pool=pool)
        gateway.add("b", place, **{"revision": back, "breaker": Breaker(failures=9), **options})
        async with testing.connect(gateway, revision=front) as (client, _):
            assert await where(client) == "a"
            yield gateway, client, pool


async def where(client: Client, tool: str = "b_where") -> str:
    return (await client.call_tool(tool)).text


def used(gateway: Gateway) -> list[bool]:
    return [why is None for why in gateway.backs["b"].urls.values()]


@pytest.mark.covers("GW-9.7")
@ERAS
@pytest.mark.parametrize("fault", FAULTS)
async def test_calls_go_to_another_address_and_back_again(back: str, fault: str) -> None:
    async with scene(back, timeout=0.5 if fault == "hangs" else 30) as (gateway, client, pool):
        pool.faults["a"] = fault
        pool.sent.clear()
        failed = 0
        while (text := await where(client)) != "c":
            failed += 1
            # A call that may have run at the first address is not sent to the second one.
            assert "may have been carried out" in text or "500" in text
            assert pool.calls("c") == 0
        # The first failure makes the gateway look whether the lists can be read, so that it may know sooner.
        assert (failed == 0) is (fault in CLEAR) and failed <= back_urls.FAILURES
        assert used(gateway) == [False, True]
        assert numbers(gateway, "toolwire_back_url_up") == {("b", "http://a/mcp"): 0, ("b", "http://c/mcp"): 1}
        assert await where(client) == "c"
        assert gateway.backs["b"].state == "ready" and gateway.backs["b"].breaker == "closed"
        pool.heal()
        await until(lambda: used(gateway) == [True, True])
        # A modern server is called at the address that is preferred. A session stays where it is.
        assert await where(client) == ("a" if back == MODERN else "c")
        async with testing.connect(gateway, revision="2025-11-25") as (another, _):
            assert await where(another) == "a"


@pytest.mark.covers("GW-9.7")
@ERAS
async def test_no_address_works_until_the_second_one_does(back: str) -> None:
    soon = Breaker(failures=2, pause=0.01, longest=0.02)
    async with scene(back, breaker=soon, health=Health(every=1000, timeout=5)) as (gateway, client, pool):
        pool.faults.update(a="refuses", c="refuses")
        for _ in range(2):
            assert (await client.call_tool("b_where")).is_error
        await until(lambda: gateway.backs["b"].breaker == "open")
        assert used(gateway) == [False, False]
        del pool.faults["c"]
        await until(lambda: gateway.backs["b"].breaker == "half-open")
        assert await where(client) == "c"
        assert used(gateway) == [False, True]


@pytest.mark.covers("GW-9.7")
async def test_signs_of_life_lead_to_another_address() -> None:
    async with scene(MODERN, health=Health(every=0.01, timeout=0.05)) as (gateway, client, pool):
        pool.faults["a"] = "hangs"
        await until(lambda: used(gateway) == [False, True])
        assert gateway.backs["b"].breaker == "closed"
        assert await where(client) == "c"


@pytest.mark.covers("GW-9.7")
@ERAS
async def test_calls_in_flight_end_at_their_address(back: str) -> None:
    first, waits, go_on = made("a"), asyncio.Event(), asyncio.Event()

    @first.tool
    async def wait() -> str:
        waits.set()
        await go_on.wait()
        return "done at a"

    async with faulty(a=first, c=made("c")) as pool:
        gateway = Gateway("front")
        gateway.add("b", SeveralUrls(["http://a/mcp", "http://c/mcp"], pool=pool), revision=back)
        async with testing.connect(gateway) as (client, _):
            waiting = asyncio.ensure_future(client.call_tool("b_wait", returns=str))
            await waits.wait()
            pool.faults["a"] = "refuses"
            assert await where(client) == "c"
            go_on.set()
            assert await waiting == "done at a"


@pytest.mark.covers("GW-9.7")
@pytest.mark.parametrize("address", ["http://a/mcp", "http://c/mcp"])
async def test_a_held_call_goes_on_at_the_address_of_its_session(address: str) -> None:
    async with scene("2025-11-25") as (gateway, _, _):
        connections = gateway.fronts.front.upstreams["b"].back_connections
        resumption = Resumption("a-session", "2025-11-25", 1, "tools/call", "a-position", address)
        connection = await connections.take_up(resumption)
        assert connection.link.label == address
        await connection.close()


@pytest.mark.covers("GW-9.7")
async def test_all_addresses_get_the_same_credential() -> None:
    async with scene(MODERN, credentials=StaticSecret("the-secret")) as (_, client, pool):
        assert pool.headers["a"]["authorization"] == "Bearer the-secret"
        pool.faults["a"] = "refuses"
        assert await where(client) == "c"
        assert pool.headers["c"]["authorization"] == "Bearer the-secret"


@pytest.mark.covers("GW-9.7")
def test_the_order_of_addresses() -> None:
    now = 100.0
    states = UrlStates(["a", "b", "c"], lambda: now)
    assert states.order() == ["a", "b", "c"] and states.next_try() is None
    states.failed("a", Unreachable("gone"))
    assert states.order() == ["b", "c"] and not states.works("a")
    for _ in range(back_urls.FAILURES - 1):
        states.failed("b", OutcomeUnknown("lost"))
    states.forgive()
    states.failed("b", Timeout("late"))
    assert states.works("b"), "only failures in a row count"
    for _ in range(back_urls.FAILURES):
        states.failed("b", Timeout("late"))
    assert states.order() == ["c"]
    now += 1
    states.failed("c", Unreachable("gone"))
    assert states.order() == ["a"], "the one that was left alone longest"
    states.worked("c")
    assert states.order() == ["c"]
    assert states.errors == {"a": "gone", "b": "late", "c": None}


@cases(
    ("options", "text"),
    [
        ({"urls": "http://a/mcp"}, "as a list of texts"),
        ({"urls": ["http://a/mcp", "http://a/mcp"]}, "different addresses"),
        ({"target": ["command"], "urls": ["http://a/mcp"]}, "as a list of texts"),
        ({"urls": [f"http://a{number}/mcp" for number in range(17)]}, "at most 16"),
        ({"urls": ["http://a/mcp"], "env": {}}, "env= is not for"),
        ({"urls": ["ftp://a"]}, "not the URL of a server"),
    ],
)
def test_addresses_that_do_not_fit_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        Gateway("front").add("b", **options)


def test_addresses_in_place_of_a_target() -> None:
    gateway = Gateway("front").add("b", urls=["http://a/mcp", "http://c/mcp"])
    assert gateway.backs["b"].urls == {"http://a/mcp": None, "http://c/mcp": None}
    assert Gateway("front").add("b", "http://a/mcp", urls=["http://c/mcp"]).backs["b"].urls.keys() == {
        "http://a/mcp",
        "http://c/mcp",
    }


# --- what is sent again -----------------------------------------------------------------------------------------------


@pytest.mark.covers("GW-9.6")
@ERAS
@pytest.mark.parametrize("fault", ["closes", "500", "503"])
@pytest.mark.parametrize(
    ("tool", "calls"),
    [
        ("b_where", 1),
        ("b_same", 2),
        ("b_look", 2),
    ],
)
async def test_only_calls_that_do_no_harm_are_sent_twice(back: str, fault: str, tool: str, calls: int) -> None:
    """The client core says which: 2 for a lost answer of a tool that is listed as harmless, 1 for everything else."""
    async with faulty(a=made("a")) as pool:
        gateway = Gateway("front")
        gateway.add("b", HttpTarget("http://a/mcp", pool=pool), revision=back)
        async with testing.connect(gateway) as (client, _):
            assert await where(client) == "a"
            pool.sent.clear()
            pool.faults["a"] = fault
            pool.once.add("a")
            result = await client.call_tool(tool)
            sent_twice = fault != "503" and calls == 2
            assert pool.calls("a") == (2 if sent_twice else 1)
            assert result.is_error is not sent_twice


# --- what a caller makes impossible to send --------------------------------------------------------------------------

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@ERAS
async def test_repeated_trace_headers_are_one_list_or_no_trace(back: str) -> None:
    async with scene(back) as (gateway, _, pool):
        client = ModernClient(gateway.http_app())
        states = [(b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
        assert (await client.call("b_where", raw_headers=[(b"traceparent", TRACE), *states])).status == 200
        assert {name: pool.headers["a"].get(name) for name in ("traceparent", "tracestate")} == {
            "traceparent": TRACE.decode(),
            "tracestate": "a=1,b=2",
        }
        assert (await client.call("b_where", raw_headers=[(b"traceparent", TRACE)] * 2 + states)).status == 200
        assert not {"traceparent", "tracestate"} & pool.headers["a"].keys()
        assert used(gateway) == [True, True]


@ERAS
async def test_repeated_header_that_goes_on_is_refused_and_harms_no_address(back: str) -> None:
    async with scene(back, forward_headers=["X-Tenant"]) as (gateway, _, pool):
        client = ModernClient(gateway.http_app())
        answer = await client.call("b_where", raw_headers=[(b"x-tenant", b"one")])
        assert answer.status == 200 and pool.headers["a"]["x-tenant"] == "one"
        pool.sent.clear()
        for _ in range(back_urls.FAILURES):
            answer = await client.call("b_where", raw_headers=[(b"x-tenant", b"one"), (b"x-tenant", b"two")])
            assert answer.answer()["error"]["message"] == "The header x-tenant was sent more than once"
        assert not any(b"where" in body for _, body in pool.sent)
        assert used(gateway) == [True, True] and gateway.backs["b"].breaker == "closed"


async def test_request_that_cannot_be_sent_says_nothing_about_its_server() -> None:
    async with HttpPool() as pool:
        with pytest.raises(UnsendableRequest) as caught:
            await pool.send("POST", "http://127.0.0.1:9/mcp", {"x-tenant": "one\ntwo"}, b"")
    assert not is_failure(caught.value) and not is_passing(caught.value)
