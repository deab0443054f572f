"""How many calls run at once, and the queue in front of them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, connect

from toolwire import Limits, Policy, Server
from toolwire.auth import Principal
from toolwire.client import sync
from toolwire.protocol.errors import CallRefused, ServerError
from toolwire.server.policy import Slots
from toolwire.server.policy.concurrency import Gates, Placed
from toolwire.testing import elapse


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


class Held:
    """A tool that runs until it is let go, and counts."""

    def __init__(self) -> None:
        self.running = self.most = self.calls = 0
        self.changed = asyncio.Condition()
        self.go = asyncio.Event()

    async def work(self) -> int:
        async with self.changed:
            self.running += 1
            self.calls += 1
            self.most = max(self.most, self.running)
            self.changed.notify_all()
        try:
            await self.go.wait()
        finally:
            async with self.changed:
                self.running -= 1
                self.changed.notify_all()
        return self.calls

    async def until(self, running: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.running == running)


async def waiting(server: Server, count: int) -> None:
    assert server.enforcer is not None
    while server.enforcer.gates.waiting != count:
        await asyncio.sleep(0)


async def test_calls_beyond_the_slots_wait_and_beyond_the_queue_are_refused() -> None:
    held = Held()
    server = Server("s")
    server.tool(policy=Policy(concurrency=Slots(2, queue=1)))(held.work)
    async with connect(server, MODERN) as client:
        calls = [client.start("tools/call", {"name": "work"}) for _ in range(3)]
        await held.until(2)
        await waiting(server, 1)
        refused = await client.call("work")
        assert text(refused).startswith("work is busy: it runs 2 calls at once and 1 more are waiting. Try again in ")
        assert refused["_meta"]["toolwire/retryAfterMs"] >= 1000
        held.go.set()
        answers = await asyncio.gather(*calls)
    assert all("isError" not in each["result"] for each in answers)
    assert held.most == 2
    assert held.calls == 3


async def test_a_queue_is_waited_in_for_a_limited_time() -> None:
    held = Held()
    server = Server("s", tools=held.work, policy=Policy(concurrency=Slots(1, wait=0.01)))
    async with connect(server, MODERN) as client:
        running = client.start("tools/call", {"name": "work"})
        await held.until(1)
        assert "This server is busy" in text(await client.call("work"))
        held.go.set()
        assert "isError" not in (await running)["result"]


async def test_time_in_the_queue_is_not_time_of_the_handler() -> None:
    held = Held()
    server = Server("s", tools=held.work, policy=Policy(concurrency=1))
    server.tool(name="short", timeout=5)(lambda: 1)
    async with connect(server, MODERN) as client:
        running = client.start("tools/call", {"name": "work"})
        await held.until(1)
        short = client.start("tools/call", {"name": "short"})
        await waiting(server, 1)
        await elapse(10)
        held.go.set()
        assert [("isError" in (await each)["result"]) for each in (running, short)] == [False, False]


async def test_slots_per_caller_leave_room_for_others() -> None:
    held = Held()
    server = Server("s", tools=held.work, policy=Policy(concurrency=Slots(1, queue=0, per="caller")))
    async with (
        connect(server, MODERN, principal=Principal("ann")) as ann,
        connect(server, MODERN, principal=Principal("bob")) as bob,
    ):
        first = ann.start("tools/call", {"name": "work"})
        await held.until(1)
        assert (await ann.call("work"))["isError"] is True
        second = bob.start("tools/call", {"name": "work"})
        await held.until(2)
        held.go.set()
        assert [("isError" in (await each)["result"]) for each in (first, second)] == [False, False]


@pytest.mark.parametrize("which", ["running", "waiting"])
async def test_a_call_that_is_cancelled_gives_its_place_back(which: str) -> None:
    held = Held()
    server = Server("s", tools=held.work, policy=Policy(concurrency=Slots(1, queue=1)))
    async with connect(server, MODERN) as client:
        client.start("tools/call", {"name": "work"}, id="running")
        await held.until(1)
        waits = client.start("tools/call", {"name": "work"}, id="waiting")
        await waiting(server, 1)
        client.notify("notifications/cancelled", {"requestId": which})
        await waiting(server, 0)
        held.go.set()
        if which == "running":
            assert "result" in await waits
        assert "isError" not in await client.call("work")
    assert server.enforcer is not None
    assert server.enforcer.gates._gates == {}


class HeldThread:
    """A tool in a thread, which runs until it is let go, whatever becomes of its call."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), threading.Event()
        self.running = self.most = 0
        self._loop = asyncio.get_running_loop()

    def work(self) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self._loop.call_soon_threadsafe(self.began.set)
        self.go.wait(30)
        self.running -= 1
        return "done"


async def gates_empty(server: Server) -> None:
    assert server.enforcer is not None
    while server.enforcer.gates._gates:
        await asyncio.sleep(0.001)


async def begun(client: Any, held: HeldThread, id: str | None = None) -> asyncio.Future[Any]:
    """Call the tool until its thread begins. On a busy machine the time of the call may be over before that."""
    held.began.clear()
    while True:
        call: asyncio.Future[Any] = client.start("tools/call", {"name": "work"}, id=id)
        beginning = asyncio.ensure_future(held.began.wait())
        await asyncio.wait({call, beginning}, return_when=asyncio.FIRST_COMPLETED)
        if beginning.done():
            return call
        beginning.cancel()


@pytest.mark.parametrize("ending", ["cancelled", "out of time"])
async def test_a_slot_is_held_until_the_thread_of_its_call_has_ended(ending: str) -> None:
    held = HeldThread()
    timeout = None if ending == "cancelled" else 0.01
    server = Server("s", tools=held.work, policy=Policy(concurrency=Slots(1, queue=0), timeout=timeout))
    try:
        async with connect(server, MODERN) as client:
            first = await begun(client, held, "first")
            if ending == "cancelled":
                client.notify("notifications/cancelled", {"requestId": "first"})
            else:
                assert "did not finish" in text((await first)["result"])
            for _ in range(3):
                assert "This server is busy" in text(await client.call("work"))
            held.go.set()
            await gates_empty(server)
            assert held.most == 1
            await begun(client, held)
    finally:
        held.go.set()


async def test_a_call_that_is_over_before_a_thread_is_free_gives_its_slot_back() -> None:
    held = HeldThread()
    server = Server("s", limits=Limits(threads=1))
    server.tool(held.work)
    server.tool(name="slotted", policy=Policy(concurrency=Slots(1, queue=0), timeout=0.01))(held.work)
    try:
        async with connect(server, MODERN) as client:
            occupied = client.start("tools/call", {"name": "work"})
            await held.began.wait()
            for _ in range(3):
                assert "did not finish" in text(await client.call("slotted"))
            held.go.set()
            await occupied
            assert held.most == 1, "what nobody waits for is never begun"
    finally:
        held.go.set()


async def test_a_tool_that_fails_gives_its_slot_back() -> None:
    async def broken() -> None:
        raise RuntimeError

    server = Server("s", tools=broken, policy=Policy(concurrency=Slots(1, queue=0)))
    async with connect(server, MODERN) as client:
        for _ in range(3):
            assert "Internal error" in text(await client.call("broken"))


@pytest.mark.covers("R20")
async def test_a_policy_bounds_the_time_of_a_tool_and_the_shorter_bound_wins() -> None:
    server = Server("s", policy=Policy(timeout=60))

    async def slow() -> None:
        await asyncio.Event().wait()

    server.tool(policy=Policy(timeout=0.01))(slow)
    server.tool(name="also", timeout=0.01)(slow)
    async with connect(server, MODERN) as client:
        for name in ("slow", "also"):
            assert text(await client.call(name)) == f"{name} did not finish within 0.01 seconds"


async def test_gates_nobody_uses_are_forgotten() -> None:
    gates = Gates()
    placed = Placed(Slots(1, queue=0, per="caller"), "p")
    releases = [await gates.enter(placed, f"caller{number}", "f") for number in range(100)]
    assert len(gates._gates) == 100
    with pytest.raises(CallRefused):
        await gates.enter(placed, "caller7", "f")
    for release in releases:
        release()
    assert gates._gates == {}


@cases("slots", [(0,), (1, -1), (1, 1, 0), (1, 1, 1, "nobody")])
def test_slots_that_make_no_sense(slots: Any) -> None:
    with pytest.raises(ServerError):
        Slots(*slots)


async def test_slots_are_shared_with_blocking_clients() -> None:
    server = Server("s", policy=Policy(concurrency=1))
    holding, release = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hold() -> str:
        holding.set()
        await release.wait()
        return "held"

    @server.tool
    async def pass_by() -> str:
        return "passed"

    def elsewhere() -> str:
        with sync.Client(server) as client:
            return client.call_tool("pass_by").text

    async with connect(server, MODERN) as client:
        held = asyncio.create_task(client.call("hold"))
        await holding.wait()
        here = asyncio.create_task(client.call("pass_by"))
        there = asyncio.create_task(asyncio.to_thread(elsewhere))
        enforcer = server.enforcer
        assert enforcer is not None
        while enforcer.gates.waiting < 2 and not there.done():
            await asyncio.sleep(0)
        release.set()
        assert await there == text(await here) == "passed"
        assert text(await held) == "held"
        assert not enforcer.gates.waiting


async def test_refusal_names_the_time_that_calls_take_for_those_in_front() -> None:
    now = 0.0
    gates = Gates(clock=lambda: now)
    placed = Placed(Slots(2, queue=2), "p")
    release = await gates.enter(placed, "", "f")
    now = 17.0
    release()  # The average was one second, and a sixteenth of the difference is added.
    held = [await gates.enter(placed, "", "f") for _ in range(2)]
    waiting = [asyncio.create_task(gates.enter(placed, "", "f")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(CallRefused) as refused:
        await gates.enter(placed, "", "f")
    assert refused.value.retry_after == 2.0 * 3 / 2
    for release in held:
        release()
    for release in await asyncio.gather(*waiting):
        release()
    assert gates._gates == {}


async def test_refusal_after_waiting_counts_the_calls_that_still_wait() -> None:
    gates = Gates()
    placed = Placed(Slots(2, queue=3, wait=0.01), "p")
    for _ in range(2):
        await gates.enter(placed, "", "f")
    patient = asyncio.create_task(gates.enter(placed, "", "f"))
    with pytest.raises(CallRefused, match=r"it runs 2 calls at once and [12] more are waiting"):
        await gates.enter(placed, "", "f")
    with pytest.raises(CallRefused, match=r"it runs 2 calls at once and [12] more are waiting"):
        await patient


async def test_check_refuses_what_would_not_enter() -> None:
    gates = Gates()
    own, everyone = Placed(Slots(2, queue=1, per="caller"), "p"), Placed(Slots(2, queue=1, per="everyone"), "q")
    for placed in (own, everyone):
        for _ in range(2):
            await gates.enter(placed, "ann", "f")
        gates.check(placed, "ann", "f")  # The queue has room.
        waiter = asyncio.create_task(gates.enter(placed, "ann", "f"))
        await asyncio.sleep(0)
        with pytest.raises(CallRefused):
            gates.check(placed, "ann", "f")
        if placed is own:
            gates.check(placed, "bob", "f")
        else:
            with pytest.raises(CallRefused):
                gates.check(placed, "bob", "f")
        waiter.cancel()
        await asyncio.wait({waiter})


async def test_call_that_is_cancelled_when_its_turn_comes_gives_its_slot_back() -> None:
    gates = Gates()
    placed = Placed(Slots(1, queue=2), "p")
    release = await gates.enter(placed, "", "f")
    waiters = [asyncio.create_task(gates.enter(placed, "", "f")) for _ in range(2)]
    await asyncio.sleep(0)
    release()
    waiters[0].cancel()
    async with asyncio.timeout(5):
        (await waiters[1])()
    assert gates._gates == {}
