"""One caller cannot take everybody's share: of sessions, streams, calls, uploads, tasks or threads."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases
from tests.http.httpclient import BOTH, Answer, HttpClient, SessionClient, initialize_request
from tests.http.modernclient import ModernClient
from tests.wireclient import modern_meta

from toolwire import Context, Limits, Policy, Server
from toolwire.auth import Principal
from toolwire.http.callers import Callers
from toolwire.protocol.errors import ServerError
from toolwire.protocol.http import DUPLICATE
from toolwire.wire.shares import Shares, Taken
from toolwire.wire.thread_workers import ThreadWorkers

# --- the mechanism ---


@given(
    st.integers(1, 50),
    st.floats(0.01, 1.0),
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 10), st.booleans())),
)
def test_nobody_holds_more_than_a_share_and_all_not_more_than_there_is(
    limit: int, share: float, steps: list[tuple[str | None, int, bool]]
) -> None:
    shares = Shares(limit, share, "things")
    held: dict[str | None, int] = {}
    for caller, amount, takes in steps:
        if takes:
            with suppress(Taken):
                shares.take(caller, amount)
                held[caller] = held.get(caller, 0) + amount
        elif held.get(caller, 0) >= amount:
            shares.give_back(caller, amount)
            held[caller] -= amount
        assert shares.total == sum(held.values()) <= limit
        assert all(shares.held_by(each) == count for each, count in held.items())
        assert all(count <= shares.own for each, count in held.items() if each is not None)
        assert shares.callers == sum(1 for count in held.values() if count), "nobody is remembered who holds nothing"


def test_a_refusal_says_who_has_too_much_and_when_to_try_again() -> None:
    shares = Shares(4, 0.5, "doors open", seconds=5)
    shares.take("a", 2)
    with pytest.raises(Taken, match="You have 2 doors open at once, and one caller may have no more; try again in 5 s"):
        shares.take("a")
    shares.take(None, 2)
    with pytest.raises(Taken, match="The server has 4 doors open at once, and it takes no more") as caught:
        shares.take("b")
    assert (caught.value.own, caught.value.data) == (False, {"retryAfterMs": 5000})


@cases("share", [0, -1, 1.1])
def test_shares_that_are_none(share: float) -> None:
    with pytest.raises(ServerError, match="share must be"):
        Limits(share=share)


# --- who is a caller ---


def caller(client: str | None, headers: dict[str, str] | None = None, trusted: tuple[str, ...] = ()) -> Any:
    scope = {"client": None if client is None else (client, 1)}
    return Callers(trusted).of(None, scope, headers or {})


@cases(
    ("client", "found"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        # Made of an IPv4 address: 6to4, where one has many networks, NAT64, where all are in one network, and Teredo.
        ("2002:c000:201::1", "192.0.2.1"),
        ("2002:c000:201:ffff::1", "192.0.2.1"),
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("2001:0:5ef5:79fd:1:2:3fff:fdfe", "192.0.2.1"),
        ("2002:7f00:1::1", "127.0.0.1"),
        ("testclient", "testclient"),
        # This machine: one user, or a proxy that was not named.
        ("127.0.0.1", None),
        ("127.8.9.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        (None, None),
    ],
)
def test_an_address_is_a_caller(client: str | None, found: str | None) -> None:
    assert caller(client) == found


def test_a_principal_is_a_caller_wherever_it_comes_from() -> None:
    callers = Callers()
    ann = callers.of(Principal("ann", provider="x"), {"client": ("127.0.0.1", 1)}, {})
    assert ann == callers.of(Principal("ann", provider="x", username="Ann"), {"client": ("192.0.2.1", 1)}, {})
    assert ann != callers.of(Principal("ann", provider="y"), {"client": ("127.0.0.1", 1)}, {})
    assert callers.of("somebody", {"client": None}, {}) == callers.of("somebody", {}, {})


PROXY = "10.0.0.1"


@cases(
    ("headers", "found"),
    [
        ({}, PROXY),
        ({"x-forwarded-for": "192.0.2.1"}, "192.0.2.1"),
        ({"x-forwarded-for": "192.0.2.1:4711"}, "192.0.2.1"),
        ({"x-forwarded-for": "[2001:db8::1]:4711"}, "2001:db8::/64"),
        ({"x-forwarded-for": "2001:db8::1"}, "2001:db8::/64"),
        # What stands further left was written by whoever comes next, and may be a lie.
        ({"x-forwarded-for": "203.0.113.9, 192.0.2.1"}, "192.0.2.1"),
        ({"x-forwarded-for": f"203.0.113.9{DUPLICATE}192.0.2.1"}, "192.0.2.1"),
        # Other proxies of ours stand in the way.
        ({"x-forwarded-for": "203.0.113.9, 192.0.2.1, 10.0.0.7 ,10.2.3.4"}, "192.0.2.1"),
        ({"x-forwarded-for": "10.0.0.7, 10.0.0.8"}, "10.0.0.7"),
        ({"x-forwarded-for": "192.0.2.1, unknown"}, PROXY),
        ({"x-forwarded-for": ""}, PROXY),
        ({"x-forwarded-for": "192.0.2.1," + "10.0.0.2," * 10_000}, PROXY),
        ({"x-forwarded-for": ",".join(["192.0.2.1", *["10.0.0.2"] * 10_000])}, "10.0.0.2"),
        ({"forwarded": "for=192.0.2.1;proto=https;by=10.0.0.1"}, "192.0.2.1"),
        ({"forwarded": 'for=203.0.113.9, For="[2001:db8::1]:4711"'}, "2001:db8::/64"),
        ({"forwarded": "for=_hidden"}, PROXY),
        ({"forwarded": "proto=https"}, PROXY),
        ({"forwarded": "for=192.0.2.1", "x-forwarded-for": "203.0.113.9, 192.0.2.1"}, "192.0.2.1"),
        # The proxy wrote one of them, and the other one may be a lie.
        ({"forwarded": "for=203.0.113.9", "x-forwarded-for": "192.0.2.1"}, "192.0.2.1"),
        ({"forwarded": "for=203.0.113.8", "x-forwarded-for": "192.0.2.1"}, "192.0.2.1"),
        ({"forwarded": "for=203.0.113.8", "x-forwarded-for": ""}, PROXY),
    ],
)
def test_a_proxy_that_was_named_says_who_calls(headers: dict[str, str], found: str) -> None:
    assert caller(PROXY, headers, ("10.0.0.0/8",)) == found
    # Nobody else is believed.
    assert caller(PROXY, headers) == PROXY
    assert caller(PROXY, headers, ("10.0.0.2", "::1")) == PROXY


def test_proxy_that_writes_forwarded_is_not_believed_what_a_client_wrote() -> None:
    callers = Callers(["10.0.0.0/8"])

    def origin(peer: str, **headers: str) -> str | None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return callers.of(None, {"client": (peer, 1)}, named)

    assert origin(PROXY, forwarded="for=192.0.2.1") == "192.0.2.1"
    for lie in ("198.51.100.1", "198.51.100.2"):
        assert origin(PROXY, forwarded="for=203.0.113.9", x_forwarded_for=lie) == f"{PROXY}, unclear"
    assert origin(PROXY, forwarded="for=192.0.2.1", x_forwarded_for="192.0.2.1") == "192.0.2.1"
    assert origin("10.0.0.2", forwarded="for=203.0.113.9", x_forwarded_for="192.0.2.1") == "192.0.2.1"
    # A request of the proxy itself, such as a health check, has none of both.
    assert origin("10.0.0.3") == "10.0.0.3"
    assert origin("10.0.0.3", forwarded="for=203.0.113.9", x_forwarded_for="192.0.2.1") == "192.0.2.1"
    # Only a trusted peer says anything about itself.
    assert origin("192.0.2.7", forwarded="for=203.0.113.9") == "192.0.2.7"


def test_headers_that_differ_are_no_way_around_the_share_of_a_caller() -> None:
    differ = {"forwarded": "for=203.0.113.9", "x-forwarded-for": "192.0.2.1"}
    assert caller("127.0.0.1", differ, ("127.0.0.1",)) is not None


def test_nobody_is_trusted_for_an_ipv6_address_that_is_made_of_a_trusted_one() -> None:
    assert caller("2002:a00:1::1", {"x-forwarded-for": "192.0.2.1"}, ("10.0.0.0/8",)) == "10.0.0.1"


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_a_proxy_writes_there_is_a_caller(first: str, second: str) -> None:
    for header, text in (("x-forwarded-for", first), ("forwarded", second)):
        found = caller(PROXY, {header: text}, (PROXY,))
        ipaddress.ip_network(found)  # An address or a network, never a piece of the text.


@cases("wrong", ["proxy.example", "10.0.0.0/99", ""])
def test_a_proxy_is_named_by_its_address(wrong: str) -> None:
    with pytest.raises(ValueError, match="trusted_proxies"):
        Server("x").http_app(trusted_proxies=[wrong])


# --- everything that callers share ---


class World:
    """A server whose calls wait, and the ways to hold something of it."""

    def __init__(self, policy: Policy | None = None, **limits: Any) -> None:
        self.server = server = Server("world", limits=Limits(**limits, task_window=0.0), policy=policy)
        self.sessions: dict[str, Any] = {}
        self.go = asyncio.Event()
        self.threads = threading.Event()
        self.begun = threading.Semaphore(0)
        self.app = server.http_app(sse=True, trusted_proxies=["127.0.0.1"])
        self.stateless = server.http_app(stateless=True, trusted_proxies=["127.0.0.1"])

        @server.tool
        async def wait() -> str:
            await self.go.wait()
            return "done"

        @server.tool
        def block() -> str:
            self.begun.release()
            self.threads.wait()
            return "done"

        @server.tool(task="required")
        async def work(ctx: Context) -> str:
            await self.go.wait()
            return "done"

    async def close(self) -> None:
        self.go.set()
        self.threads.set()
        await self.app.stop()
        await self.stateless.stop()


def identified(client: Any, who: str) -> Any:
    """A client that comes from an address, or as a principal."""
    if who.startswith("192."):
        client.headers["x-forwarded-for"] = who
    else:
        client.principal = Principal(who)
    return client


async def held(answer: Answer, ready: Callable[[], bool]) -> Any:
    """What became of a request that should stay open: its refusal, or how to let go of it."""
    await answer.until(lambda: answer.ended or ready())
    return (answer.status, answer.headers, None) if answer.ended else (200, {}, answer.disconnect)


async def open_session(world: World, who: str) -> Any:
    client = identified(SessionClient(world.app), who)
    answer = await client.post(initialize_request())
    if answer.status != 200:
        return answer.status, answer.headers, None
    client.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
    return 200, {}, lambda: client.start("DELETE").finished()


async def open_get(world: World, who: str) -> Any:
    client = world.sessions.get(who)
    if client is None:
        client = world.sessions[who] = identified(SessionClient(world.app), who)
        await client.initialize()
    answer = client.start("GET", headers={"accept": "text/event-stream"}, body=b"")
    return await held(answer, lambda: answer.body != b"")


async def open_sse(world: World, who: str) -> Any:
    client = identified(HttpClient(world.app, path="/sse"), who)
    answer = client.start("GET", headers={"accept": "text/event-stream"})
    return await held(answer, lambda: answer.body != b"")


async def open_listen(world: World, who: str) -> Any:
    client = identified(ModernClient(world.app), who)
    answer = client.start_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    return await held(answer, lambda: answer.body != b"")


async def begun(world: World, answer: Answer, count: Callable[[], int], before: int) -> Any:
    """As `held`, for a call that says nothing: it is there when it is counted."""
    while not answer.ended and count() == before:
        await asyncio.sleep(0)
    return (answer.status, answer.headers, None) if answer.ended else (200, {}, answer.disconnect)


async def open_exchange(world: World, who: str) -> Any:
    before = world.app.runtime()._exchanges.total
    answer = identified(ModernClient(world.app), who).start_call("wait")
    return await begun(world, answer, lambda: world.app.runtime()._exchanges.total, before)


async def open_stateless(world: World, who: str) -> Any:
    client = identified(HttpClient(world.stateless), who)
    before = world.stateless.runtime()._exchanges.total
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    answer = client.start_post(message, {"mcp-protocol-version": "2025-11-25"})
    return await begun(world, answer, lambda: world.stateless.runtime()._exchanges.total, before)


async def open_session_call(world: World, who: str) -> Any:
    client = identified(SessionClient(world.app), who)
    await client.initialize()
    before = world.app.runtime()._exchanges.total
    answer = client.start_call("wait", id=7)
    status, headers, leave = await begun(world, answer, lambda: world.app.runtime()._exchanges.total, before)
    if leave is None:
        return status, headers, None

    async def cancel() -> None:
        # A client that goes away may come back for the answer: only a cancellation ends the call.
        running = world.app.runtime()._exchanges.total
        await client.notify("notifications/cancelled", {"requestId": 7})
        await answer.finished()
        while world.app.runtime()._exchanges.total == running:
            await asyncio.sleep(0)

    return 200, {}, cancel


async def open_upload(world: World, who: str) -> Any:
    client = identified(HttpClient(world.app), who)
    before = world.app.runtime()._uploads.total
    answer = client.start("POST", body=None, headers={"content-type": "application/json", "accept": BOTH})
    answer.send_body(b"x" * 100)
    return await begun(world, answer, lambda: world.app.runtime()._uploads.total, before)


async def open_task(world: World, who: str) -> Any:
    client = identified(ModernClient(world.app), who)
    meta = modern_meta({"extensions": {"io.modelcontextprotocol/tasks": {}}})
    answer = await client.request("tools/call", {"name": "work", "arguments": {}}, meta=meta)
    if answer.status != 200:
        return answer.status, answer.headers, None
    identifier = answer.json()["result"]["taskId"]

    async def cancel() -> None:
        cancelled = await client.request("tasks/cancel", {"taskId": identifier}, meta=meta)
        assert "result" in cancelled.json(), cancelled.body

    return 200, {}, cancel


WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sessions": (open_session, {"sessions": 8}),
    "streams by GET": (open_get, {"sessions": 8}),
    "HTTP+SSE connections": (open_sse, {"sessions": 8}),
    "listen streams": (open_listen, {"listeners": 8}),
    "exchanges": (open_exchange, {"exchanges": 8}),
    "stateless exchanges": (open_stateless, {"exchanges": 8}),
    "calls of sessions": (open_session_call, {"exchanges": 8}),
    "uploads": (open_upload, {"uploads": 800}),
    # One runs and one waits: a quarter of each.
    "tasks": (open_task, {"tasks_running": 4, "tasks_waiting": 4}),
}


@cases(("first", "second"), [("ann", "bob"), ("192.0.2.1", "192.0.2.2"), ("192.0.2.1", "bob")])
@cases("way", WAYS)
async def test_one_caller_cannot_take_everybodys_share(way: str, first: str, second: str) -> None:
    open_one, limits = WAYS[way]
    world = World(**limits)
    try:
        mine = []
        for _ in range(2):  # A quarter of eight.
            status, _, leave = await open_one(world, first)
            assert status == 200
            mine.append(leave)
        status, headers, leave = await open_one(world, first)
        assert (status, leave) == (429, None)
        assert int(headers["retry-after"]) > 0
        status, _, other = await open_one(world, second)
        assert status == 200, "the other caller still gets in"
        await mine.pop()()
        status, _, again = await open_one(world, first)
        assert status == 200, "who leaves makes room"
        for each in (*mine, other, again):
            await each()
    finally:
        await world.close()


async def test_each_call_of_a_batch_without_a_session_counts() -> None:
    world = World(exchanges=8)
    client = identified(HttpClient(world.stateless), "ann")
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    try:
        refused = await client.post([call | {"id": id} for id in range(3)])
        assert refused.status == 429, "a quarter of eight is two"
        total = world.stateless.runtime()._exchanges
        answer = client.start_post([call | {"id": id} for id in range(2)])
        while total.total < 2:
            await asyncio.sleep(0)
        # What has no call is not counted.
        ping = await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert ping.status == 200
        world.go.set()
        assert [each["id"] for each in (await answer.finished()).json()] == [0, 1]
        assert total.total == 0
    finally:
        await world.close()


# --- threads ---


class Blocked:
    """Jobs that hold their thread until they are let go, one by one."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.gates: dict[str, threading.Event] = {}

    def job(self, name: str) -> Callable[[], str]:
        gate = self.gates[name] = threading.Event()

        def work() -> str:
            self.loop.call_soon_threadsafe(self.begun.put_nowait, name)
            gate.wait()
            return name

        return work

    def release(self) -> None:
        for gate in self.gates.values():
            gate.set()


async def test_a_caller_has_a_share_of_the_threads_and_of_the_queue() -> None:
    workers, blocked = ThreadWorkers(threads=4, queue=8, share=0.5), Blocked()
    try:
        jobs = [workers.run_for("a", blocked.job(f"a{number}")) for number in range(6)]
        assert {await blocked.begun.get(), await blocked.begun.get()} == {"a0", "a1"}
        assert workers.waiting == 4
        with pytest.raises(Taken) as caught:
            workers.run_for("a", blocked.job("a6"))
        assert caught.value.own
        # The other two threads are for somebody else, and nothing of the first caller stands before them.
        others = [workers.run_for("b", blocked.job(f"b{number}")) for number in range(2)]
        assert {await blocked.begun.get(), await blocked.begun.get()} == {"b0", "b1"}
        blocked.gates["a0"].set()
        assert await jobs[0] == "a0"
        assert await blocked.begun.get() == "a2", "who has done one job begins the next"
        jobs.append(workers.run_for("a", blocked.job("a7")))
        # One that nobody waits for any more is passed over.
        jobs[3].cancel()
        blocked.gates["a1"].set()
        assert await blocked.begun.get() == "a4"
        blocked.release()
        assert [await job for number, job in enumerate(jobs) if number != 3] == ["a0", "a1", "a2", "a4", "a5", "a7"]
        assert [await job for job in others] == ["b0", "b1"]
        assert workers.waiting == 0
        assert await workers.run_for("a", lambda: "again") == "again"
    finally:
        blocked.release()
        workers.shutdown()


async def test_one_who_shares_with_nobody_has_all_threads() -> None:
    workers, blocked = ThreadWorkers(threads=4, queue=8, share=0.25), Blocked()
    try:
        jobs = [workers.run(blocked.job(str(number))) for number in range(4)]
        assert {await blocked.begun.get() for _ in jobs} == {"0", "1", "2", "3"}
        blocked.release()
        assert [await job for job in jobs] == ["0", "1", "2", "3"]
    finally:
        blocked.release()
        workers.shutdown()


async def test_what_waits_for_a_share_is_cancelled_at_the_end() -> None:
    workers, blocked = ThreadWorkers(threads=4, queue=8, share=0.25), Blocked()
    jobs = [workers.run_for("a", blocked.job(str(number))) for number in range(2)]
    await blocked.begun.get()
    workers.shutdown()
    with pytest.raises(asyncio.CancelledError):
        await jobs[1]
    blocked.release()
    assert await jobs[0] == "0"


@cases("policy", [None, Policy(concurrency=10)])
@cases(("first", "second"), [("ann", "bob"), ("192.0.2.1", "192.0.2.2")])
async def test_calls_of_one_caller_do_not_take_all_threads(first: str, second: str, policy: Policy | None) -> None:
    world = World(policy, threads=4, queue=4)
    try:
        mine = [identified(ModernClient(world.app), first).start_call("block") for _ in range(2)]
        refused = await identified(ModernClient(world.app), first).call("block")
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) > 0
        assert "calls that wait for a thread" in refused.json()["error"]["message"]
        other = identified(ModernClient(world.app), second).start_call("block")
        for _ in range(2):
            await asyncio.to_thread(world.begun.acquire)
        world.threads.set()
        for answer in (*mine, other):
            assert (await answer.finished()).status == 200
    finally:
        await world.close()


async def test_an_address_cannot_keep_all_tasks_of_those_whom_nobody_knows() -> None:
    world = World(tasks=8)
    world.go.set()
    try:
        for _ in range(2):
            assert (await open_task(world, "192.0.2.1"))[0] == 200
        client = identified(ModernClient(world.app), "192.0.2.1")
        meta = modern_meta({"extensions": {"io.modelcontextprotocol/tasks": {}}})
        refused = await client.request("tools/call", {"name": "work", "arguments": {}}, meta=meta)
        assert "You have too many tasks" in refused.json()["error"]["message"]
        assert (await open_task(world, "192.0.2.2"))[0] == 200
    finally:
        await world.close()


async def test_a_proxy_that_was_not_named_is_pointed_out_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("x", limits=Limits(sessions=4))
    app = server.http_app()
    for number in range(4):
        scope_client = HttpClient(app, headers={"x-forwarded-for": f"203.0.113.{number}"})
        answer = scope_client.start_post(initialize_request(), client=("192.0.2.9", 1))
        assert (await answer.finished()).status == (200 if number == 0 else 429)
    hints = [each.getMessage() for each in caplog.records if "trusted_proxies" in each.getMessage()]
    assert len(hints) == 1
    assert "192.0.2.9" in hints[0]
    await app.stop()
