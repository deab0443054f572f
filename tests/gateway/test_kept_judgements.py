"""What was decided about a task when it was accepted holds at every later read, whatever is listed then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.gateway.backs import OVER, behind, until
from tests.server.tasks.handlers import Sign
from tests.server.tasks.talking import CORE, DIALECTS, accepted, begin, look, outcome, reaches, talk, text_in
from tests.wireclient import MODERN, WireClient

from toolwire import Context, Limits, Policy, Server
from toolwire.auth import Principal
from toolwire.gateway import Gateway
from toolwire.shape import Shape, ToolShape

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")

SECRET = "sk-1234"
UNKNOWN = "There is no such task, or it has expired"
MASKS = Policy(mask=[r"sk-[0-9]+"])
QUICK = Limits(task_window=0.0, task_poll=0.02)
ANN = Principal("ann", scopes=frozenset({"read"}))
ANN_WITHOUT = Principal("ann")
PLACES = ("plain", "mount", "gateway", "two gateways")
WITHDRAWALS = ("removed", "denied", "taken away", "replaced")
STAGES = ("working", "asking", "finished")


class Leaking:
    """A server whose tool `leak` has a secret in its reports, its question and its result."""

    def __init__(self, name: str = "back", **options: Any) -> None:
        self.server: Server = Server(name, limits=QUICK)
        self.go, self.started = asyncio.Event(), Sign()
        self.server.tool(task="optional", **options)(self.leak)
        self.server.tool(self.other)

    async def leak(self, ctx: Context, asks: bool = False) -> str:
        await ctx.progress(1, 2, f"using {SECRET}")
        self.started.set()
        if asks:
            await ctx.elicit(f"May I use {SECRET}?", str)
        await self.go.wait()
        return f"the key is {SECRET}"

    async def other(self) -> str:
        return "other"


class House:
    """A server with the tool `leak`: its own, that of a mounted server, or of an upstream."""

    def __init__(self, place: str, back: str, **options: Any) -> None:
        self.place = place
        self.back = back
        self.leaking = Leaking(**({"policy": MASKS, "scopes": ["read"]} if place == "plain" else {}))
        self.front: Any = self.leaking.server
        self.inner: Gateway | None = None
        if place == "mount":
            self.front = Server("front", limits=QUICK, **options)
            self.front.mount(self.leaking.server, shape=_shape())
        elif place != "plain":
            self.front = Gateway("front", limits=QUICK, **options)

    @asynccontextmanager
    async def open(self, far: str) -> AsyncIterator[House]:
        async with AsyncExitStack() as stack:
            if "gateway" in self.place:
                target: Any = await stack.enter_async_context(behind(self.leaking.server, far))
                if self.place == "two gateways":
                    self.inner = Gateway("inner", limits=QUICK).add("c", target, prefix="", revision=self.back)
                    target = await stack.enter_async_context(behind(self.inner, far))
                self.target = target
                self.front.add("b", target, prefix="", revision=self.back, shape=_shape())
            yield self

    async def withdraw(self, how: str) -> None:
        """Take the tool away, in one of the ways in which a tool can go."""
        if self.place == "plain" or how == "removed":
            self.leaking.server.remove("leak")
        elif self.place == "mount":
            self.front.unmount(self.leaking.server)
            if how == "denied":
                self.front.mount(self.leaking.server, shape=Shape(deny=["leak"]))
            elif how == "replaced":
                self.front.mount(Leaking("another").server)
        elif how == "taken away":
            self.front.remove("b")
        elif how == "denied":
            await self.front.replace("b", self.target, prefix="", revision=self.back, shape=Shape(deny=["leak"]))
        else:
            successor = Server("successor", limits=QUICK)
            successor.tool(self.leaking.other)
            await self.front.replace("b", successor, prefix="", revision=self.back)
        await until(lambda: "leak" not in self.front.catalog.listed("tools") or how == "replaced")


def _shape() -> Shape:
    # The other tool is for everybody, so that nothing is restricted once this one is gone.
    return Shape(tools={"leak": ToolShape(policy=MASKS, scopes=["read"])})


async def _make(house: House, client: WireClient, stage: str) -> str:
    """Make a task, and let it reach a stage."""
    task = await begin(client, "leak", {"asks": stage == "asking"})
    await house.leaking.started.wait()
    if stage == "asking":
        await reaches(client, task, "input_required")
    if stage == "finished":
        house.leaking.go.set()
        await reaches(client, task, "completed")
    return task


async def _check_hidden(client: WireClient, task: str, message: str) -> None:
    """Check that all requests about a task are refused alike."""
    methods = (
        ("tasks/get", "tasks/result", "tasks/cancel") if client.revision == CORE else ("tasks/get", "tasks/cancel")
    )
    for method in methods:
        assert (await client.request(method, {"taskId": task}))["error"]["message"] == message
    if client.revision == MODERN:
        answered = await client.request("tasks/update", {"taskId": task, "inputResponses": {"x": accepted("y")}})
        assert answered["error"]["message"] == message


async def _is_listed(client: WireClient, task: str) -> bool:
    """Return whether a client finds a task: in the list, or on a listen stream."""
    if client.revision == CORE:
        return task in str((await client.result("tasks/list"))["tasks"])
    before = len(await client.notified("notifications/subscriptions/acknowledged", 0))
    client.start("subscriptions/listen", {"notifications": {"taskIds": [task]}})
    acknowledged = await client.notified("notifications/subscriptions/acknowledged", before + 1)
    return task in str(acknowledged[-1])


@pytest.mark.pairwise
@pytest.mark.parametrize("far", OVER)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("back", DIALECTS)
@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize("how", WITHDRAWALS)
@pytest.mark.parametrize("place", PLACES)
async def test_task_of_a_withdrawn_tool_is_hidden(
    place: str, how: str, front: str, back: str, stage: str, far: str
) -> None:
    async with House(place, back).open(far) as house, talk(house.front, front, principal=ANN) as client:
        task = await _make(house, client, stage)
        assert await _is_listed(client, task)
        await house.withdraw(how)
        seen = len(client.received)
        house.leaking.go.set()
        await _check_hidden(client, task, UNKNOWN)
        assert not await _is_listed(client, task)
        assert SECRET not in str(client.received)
        assert "[redacted]" not in str(client.received[seen:]), "not even the masked form"


@pytest.mark.pairwise
@pytest.mark.parametrize("far", OVER)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "removed"])
@pytest.mark.parametrize("back", DIALECTS)
@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize("place", PLACES)
async def test_caller_who_lost_the_scope_does_not_read_the_task(
    place: str, front: str, back: str, is_listed: bool, stage: str, far: str
) -> None:
    async with (
        House(place, back).open(far) as house,
        talk(house.front, front, principal=ANN) as client,
        talk(house.front, front, principal=ANN_WITHOUT) as poorer,
    ):
        task = await _make(house, client, stage)
        if not is_listed:
            await house.withdraw("removed")
        await _check_hidden(poorer, task, "This needs the scope read" if is_listed else UNKNOWN)
        assert not await _is_listed(poorer, task)
        assert SECRET not in str([*client.received, *poorer.received])
        house.leaking.go.set()


async def _drop_scope(house: House) -> None:
    """Let the operator demand no scope any more, and mask nothing."""
    if house.place == "plain":
        house.leaking.server.remove("leak")
        house.leaking.server.tool(task="optional")(house.leaking.leak)
    elif house.place == "mount":
        house.front.unmount(house.leaking.server)
        house.front.mount(house.leaking.server)
    else:
        await house.front.replace("b", house.target, prefix="", revision=house.back)


@pytest.mark.pairwise
@pytest.mark.parametrize("far", OVER)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("back", DIALECTS)
@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize("place", PLACES)
async def test_scopes_and_masks_of_then_hold_when_the_operator_takes_them_away(
    place: str, front: str, back: str, stage: str, far: str
) -> None:
    async with (
        House(place, back).open(far) as house,
        talk(house.front, front, principal=ANN) as client,
        talk(house.front, front, principal=ANN_WITHOUT) as poorer,
    ):
        task = await _make(house, client, stage)
        await _drop_scope(house)
        answer = await poorer.request("tasks/get", {"taskId": task})
        assert answer["error"]["message"] == "This needs the scope read"
        if stage == "asking":
            await _answer(client, task)
        house.leaking.go.set()
        assert text_in(await outcome(client, task)) == "the key is [redacted]"
        assert SECRET not in str([*client.received, *poorer.received])


async def _answer(client: WireClient, task: str) -> None:
    if client.revision == CORE:
        client.answers["elicitation/create"] = lambda params: accepted("yes")
        return
    (key,) = (await look(client, task))["inputRequests"]
    await client.result("tasks/update", {"taskId": task, "inputResponses": {key: accepted("yes")}})
