"""What was decided about a task when it was accepted holds at every later read, whatever is listed then."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.gateway.backs import OVER, Away, behind, until
from tests.patience import patience
from tests.redis_server import running
from tests.server.tasks.handlers import Sign
from tests.server.tasks.talking import (
    ABLE,
    CORE,
    DIALECTS,
    FORMS,
    accepted,
    begin,
    look,
    outcome,
    reaches,
    talk,
    text_in,
    wait_for_end,
)
from tests.wireclient import MODERN, Message, WireClient

from toolwire import Context, Limits, Policy, Server, ToolError
from toolwire.audit import AuditLog
from toolwire.auth import Principal
from toolwire.gateway import Gateway
from toolwire.gateway.config import gateway_of
from toolwire.protocol.rounds import digest
from toolwire.server.tasks.tasks_elsewhere import mark_of
from toolwire.shape import ResourceShape, Shape, ToolShape
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, MemoryQueue, StoreFailed, Stores
from toolwire.stores.redis import RedisStores
from toolwire.stores.sqlite import SqliteStores

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")

PLAIN = str(Path(__file__).parent / "leaking_back.py")
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
        self.asks_later = self.fails = False
        self.server.tool(task="optional", **options)(self.leak)
        self.server.tool(self.other)

    async def leak(self, ctx: Context, asks: bool = False) -> str:
        await ctx.progress(1, 2, f"using {SECRET}")
        self.started.set()
        if asks:
            await ctx.elicit(f"May I use {SECRET}?", str)
        await self.go.wait()
        if self.asks_later:
            await ctx.elicit(f"And now {SECRET}?", str)
        if self.fails:
            raise ToolError(f"refused for {SECRET}")
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


# --- restarts, replicas, files ---

KEY = "a secret of all replicas"


def _gateway(server: Server, stores: Stores | None = None, **options: Any) -> Gateway:
    """Make a gateway in front of a server, as one process of a fleet."""
    given: dict[str, Any] = {} if stores is None else {"stores": stores}
    return Gateway("front", limits=QUICK, secret=KEY, **given).add("b", server, prefix="", revision=MODERN, **options)


@cases("front", DIALECTS)
@cases("store", ["shared", "sqlite"])
async def test_scopes_and_masks_of_then_hold_on_another_replica_and_after_a_restart(
    store: str, front: str, tmp_path: Path
) -> None:
    leaking, memory = Leaking(), Stores.memory()

    def stores() -> Stores:
        return memory if store == "shared" else SqliteStores(tmp_path / f"{front}.db")

    async with talk(_gateway(leaking.server, stores(), shape=_shape()), front, principal=ANN) as client:
        task = await begin(client, "leak")
        leaking.go.set()
        await reaches(client, task, "completed")
    other = _gateway(leaking.server, stores())
    async with talk(other, front, principal=ANN) as client, talk(other, front, principal=ANN_WITHOUT) as poorer:
        assert text_in(await outcome(client, task)) == "the key is [redacted]"
        await _check_hidden(poorer, task, "This needs the scope read")
        assert SECRET not in str([*client.received, *poorer.received])


@cases("front", DIALECTS)
@cases("changes", [False, True])
async def test_process_that_does_not_know_what_was_decided_hides_the_task(changes: bool, front: str) -> None:
    """Without a shared store, a process knows only what its own policies say."""
    leaking = Leaking()
    async with talk(_gateway(leaking.server, shape=_shape()), front, principal=ANN) as client:
        task = await begin(client, "leak")
        leaking.go.set()
        await reaches(client, task, "completed")
    other = _gateway(leaking.server, shape=Shape(policy=MASKS) if changes else _shape())
    async with talk(other, front, principal=ANN) as client:
        if changes:
            await _check_hidden(client, task, UNKNOWN)
        else:
            assert text_in(await outcome(client, task)) == "the key is [redacted]"


@cases("front", DIALECTS)
async def test_deny_in_a_reloaded_file_hides_tasks(front: str) -> None:
    entry = {"command": sys.executable, "args": [PLAIN], "prefix": "", "policy": {"mask": ["sk-[0-9]+"]}}
    gateway = gateway_of({"mcpServers": {"b": entry}}, limits=QUICK)
    async with talk(gateway, front) as client:
        task = await begin(client, "leak")
        await gateway.reload({"mcpServers": {"b": {**entry, "deny": ["leak"]}}})
        await until(lambda: "leak" not in gateway.catalog.listed("tools"))
        await _check_hidden(client, task, UNKNOWN)
        assert SECRET not in str(client.received)


async def test_task_is_unknown_for_now_while_the_list_of_its_server_is_missing() -> None:
    leaking = Leaking()
    async with talk(_gateway(leaking.server), MODERN, principal=ANN) as client:
        task = await begin(client, "leak")
    gateway = Gateway("front", limits=QUICK, secret=KEY).add("b", Away(), prefix="", list_timeout=0.01)
    gateway.tool(leaking.other, task="optional")
    async with talk(gateway, MODERN, principal=ANN) as client:
        error = await client.error("tasks/get", {"taskId": task})
        text = "The task cannot be shown now: the list of the server 'b' is missing; try again later"
        assert (error["code"], error["message"]) == (-32603, text)


# --- names of earlier versions ---


def _earlier_name(gateway: Gateway, identifier: str, principal: Principal) -> str:
    """Return the name of a task as versions made it that kept no judgement."""
    owner = digest(principal.provider, principal.subject)
    payload = msgspec.json.encode([identifier, "leak", mark_of("b"), ""])
    return gateway.kernel.signer.seal(payload, b"task/" + owner.encode())


@cases("front", DIALECTS)
@cases("state", ["listed", "removed", "another owner", "masks by caller"])
async def test_name_of_an_earlier_version_is_judged_by_all_masks_that_exist(state: str, front: str) -> None:
    leaking, other = Leaking(), Server("other", limits=QUICK)
    gateway = _gateway(leaking.server)
    by_caller = Policy(by_principal=lambda who: None)
    gateway.add("o", other, policy=by_caller if state == "masks by caller" else MASKS)
    async with talk(gateway, front, principal=ANN) as client:
        identifier = await _task_of(leaking, principal=ANN)
        name = _earlier_name(gateway, identifier, ANN)
        if state == "removed":
            leaking.server.remove("leak")
            await until(lambda: "leak" not in gateway.catalog.listed("tools"))
        elif state == "another owner":
            # Its own tool comes first.
            gateway.tool(task="optional")(leaking.leak)
        if state == "listed":
            assert text_in(await outcome(client, name)) == "the key is [redacted]"
        else:
            await _check_hidden(client, name, UNKNOWN)
        assert SECRET not in str(client.received)


async def _task_of(leaking: Leaking, principal: Principal) -> str:
    """Make a task at a server itself, and return its id."""
    async with talk(leaking.server, MODERN, principal=principal) as client:
        task = await begin(client, "leak")
        leaking.go.set()
        await reaches(client, task, "completed")
        return task


# --- clients that wait, listen or are told ---


@cases("front", DIALECTS)
@cases("back", DIALECTS)
@cases("place", PLACES)
async def test_request_that_waits_and_stream_that_listens_end_with_the_tool(place: str, back: str, front: str) -> None:
    async with House(place, back).open("memory") as house, talk(house.front, front, principal=ANN) as client:
        task = await _make(house, client, "working")
        waiting = await wait_for_end(client, task)
        await house.withdraw("removed")
        seen = len(client.received)
        house.leaking.go.set()
        if front == CORE:
            assert (await waiting)["error"]["message"] == UNKNOWN
        for _ in range(200):
            await asyncio.sleep(0)
        assert "completed" not in str(client.received[seen:])
        assert SECRET not in str(client.received)


@cases("back", DIALECTS)
@cases("place", PLACES)
async def test_question_of_a_withdrawn_tool_is_not_asked(place: str, back: str) -> None:
    async with House(place, back).open("memory") as house, talk(house.front, CORE, principal=ANN) as client:
        house.leaking.asks_later = True
        task = await _make(house, client, "working")
        waiting = await wait_for_end(client, task)
        client.answers["elicitation/create"] = lambda params: accepted("yes")
        await house.withdraw("removed")
        house.leaking.go.set()
        assert (await waiting)["error"]["message"] == UNKNOWN
        assert client.requests == []


# --- kept results ---


class Keeping:
    """A server that keeps a large result of its tool `leak`, which has a secret in it."""

    def __init__(self, by: str = "call") -> None:
        inner = Server("inner", limits=QUICK)
        inner.tool(self.leak, task="optional" if by == "task" else None)
        self.inner = inner
        self.server: Server = Server("back", limits=QUICK).mount(inner, shape=Shape(result_budget=2000))

    async def leak(self, ctx: Context) -> str:
        return f"{'x' * 3000} the key is {SECRET}"


async def _keep(client: WireClient, by: str) -> str:
    """Call the tool, and return the URI of its kept result."""
    result = await (client.call("leak") if by == "call" else outcome(client, await begin(client, "leak")))
    return next(str(each["uri"]) for each in result["content"] if "uri" in each)


@pytest.mark.pairwise
@pytest.mark.parametrize("by", ["call", "task"])
@pytest.mark.parametrize("how", ["removed", "denied", "opened"])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("back", DIALECTS)
@pytest.mark.parametrize("front", DIALECTS)
async def test_kept_result_of_a_withdrawn_tool_stays_masked(
    front: str, back: str, hops: int, how: str, by: str
) -> None:
    keeping = Keeping(by)
    target: Server = keeping.server
    if hops == 2:
        target = Gateway("inner", limits=QUICK).add("c", target, prefix="", revision=back)
    gateway = Gateway("front", limits=QUICK).add("b", target, prefix="", revision=back, shape=_shape())
    async with (
        talk(gateway, front, principal=ANN) as client,
        talk(gateway, front, principal=ANN_WITHOUT) as poorer,
    ):
        uri = await _keep(client, by)
        if how == "removed":
            keeping.inner.remove("leak")
            await until(lambda: "leak" not in gateway.catalog.listed("tools"))
        else:
            shape = Shape(deny=["leak"]) if how == "denied" else None
            await gateway.replace("b", target, prefix="", revision=back, shape=shape)
        for _ in range(2):
            read = await client.result("resources/read", {"uri": uri})
            assert read["contents"][0]["text"].endswith("the key is [redacted]")
            assert (await poorer.error("resources/read", {"uri": uri}))["message"] == "This needs the scope read"
        assert SECRET not in str([*client.received, *poorer.received])


@cases("front", DIALECTS)
@cases("shared", [True, False])
async def test_kept_result_is_read_on_another_replica_by_what_the_store_knows(shared: bool, front: str) -> None:
    keeping, memory = Keeping(), Stores.memory()
    async with talk(_gateway(keeping.server, memory, shape=_shape()), front, principal=ANN) as client:
        uri = await _keep(client, "call")
    other = _gateway(keeping.server, memory if shared else Stores.memory())
    async with talk(other, front, principal=ANN) as client:
        if shared:
            read = await client.result("resources/read", {"uri": uri})
            assert read["contents"][0]["text"].endswith("the key is [redacted]")
        else:
            assert "not found" in (await client.error("resources/read", {"uri": uri}))["message"]


@cases("back", DIALECTS)
async def test_result_on_a_listen_stream_names_a_kept_result_that_can_be_read(back: str) -> None:
    keeping, go = Keeping(), asyncio.Event()

    @keeping.inner.tool(task="optional")
    async def late() -> str:
        await go.wait()
        return await keeping.leak(None)  # type: ignore[arg-type]

    gateway = Gateway("front", limits=QUICK).add("b", keeping.server, prefix="", revision=back, policy=MASKS)
    async with talk(gateway, MODERN, principal=ANN) as client:
        task = await begin(client, "late")
        await wait_for_end(client, task)
        go.set()
        told = await client.notified("notifications/tasks", 1)
        while told[-1]["status"] != "completed":
            told = await client.notified("notifications/tasks", len(told) + 1)
        uri = next(each["uri"] for each in told[-1]["result"]["content"] if "uri" in each)
        keeping.inner.remove("late")
        await until(lambda: "late" not in gateway.catalog.listed("tools"))
        read = await client.result("resources/read", {"uri": uri})
        assert read["contents"][0]["text"].endswith("the key is [redacted]")


# --- questions that wait for an answer ---


async def _go_on(client: WireClient, asked: Message) -> Message:
    """Answer the questions of a call, and return the next answer."""
    params = {"name": "leak", "arguments": {"asks": True}, "requestState": asked["requestState"]}
    params["inputResponses"] = {key: accepted("yes") for key in asked["inputRequests"]}
    return await client.request("tools/call", params)


@asynccontextmanager
async def _asking(hops: int, back: str) -> AsyncIterator[tuple[Gateway, Any, Leaking]]:
    """Yield a gateway before a server whose tool asks twice, and the target of the gateway."""
    leaking = Leaking()
    leaking.asks_later = True
    leaking.go.set()
    target: Server = leaking.server
    if hops == 2:
        target = Gateway("inner", limits=QUICK).add("c", target, prefix="", revision=back)
    gateway = Gateway("front", limits=QUICK)
    gateway.add("b", target, prefix="", revision=back if hops == 1 else MODERN, shape=_shape())
    yield gateway, target, leaking


async def _change(gateway: Gateway, target: Any, back: str, how: str) -> None:
    if how == "taken away":
        gateway.remove("b")
    elif how == "denied":
        await gateway.replace("b", target, prefix="", revision=back, shape=Shape(deny=["leak"]))
    elif how == "opened":
        await gateway.replace("b", target, prefix="", revision=back)


@pytest.mark.pairwise
@pytest.mark.parametrize("how", ["listed", "taken away", "denied", "opened"])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("back", DIALECTS)
async def test_caller_who_lost_the_scope_does_not_go_on_with_a_call(back: str, hops: int, how: str) -> None:
    async with (
        _asking(hops, back) as (gateway, target, _),
        talk(gateway, MODERN, principal=ANN, capabilities=FORMS) as client,
        talk(gateway, MODERN, principal=ANN_WITHOUT, capabilities=FORMS) as poorer,
    ):
        asked = await client.result("tools/call", {"name": "leak", "arguments": {"asks": True}})
        await _change(gateway, target, back if hops == 1 else MODERN, how)
        refused = await _go_on(poorer, asked)
        assert "This needs the scope read" in str(refused) or "Unknown tool" in str(refused)
        assert SECRET not in str(poorer.received)


@pytest.mark.pairwise
@pytest.mark.parametrize("how", ["listed", "taken away", "denied", "opened"])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("back", DIALECTS)
async def test_masks_of_then_hold_when_the_questions_of_a_call_are_answered(back: str, hops: int, how: str) -> None:
    async with (
        _asking(hops, back) as (gateway, target, _),
        talk(gateway, MODERN, principal=ANN, capabilities=FORMS) as client,
    ):
        asked = await client.result("tools/call", {"name": "leak", "arguments": {"asks": True}})
        await _change(gateway, target, back if hops == 1 else MODERN, how)
        for _ in range(2):
            answer = await _go_on(client, asked)
            asked = answer.get("result", {})
            if "inputRequests" not in asked:
                break
        if how in ("listed", "opened") or (back, hops) == (CORE, 1):
            assert text_in(asked) == "the key is [redacted]"
        assert SECRET not in str(client.received)


@cases("back", DIALECTS)
@cases("shared", [True, False])
async def test_judgement_of_a_question_is_known_on_another_replica(shared: bool, back: str) -> None:
    leaking, memory = Leaking(), Stores.memory()
    leaking.go.set()

    def gateway(shape: Shape | None) -> Gateway:
        made = Gateway("front", limits=QUICK, secret=KEY, stores=memory if shared else Stores.memory())
        return made.add("b", leaking.server, prefix="", revision=back, shape=shape)

    one, two = gateway(_shape()), gateway(None)
    async with (
        talk(one, MODERN, principal=ANN, capabilities=FORMS) as first,
        talk(two, MODERN, principal=ANN, capabilities=FORMS) as second,
        talk(two, MODERN, principal=ANN_WITHOUT, capabilities=FORMS) as poorer,
    ):
        asked = await first.result("tools/call", {"name": "leak", "arguments": {"asks": True}})
        refused = await _go_on(poorer, asked)
        if shared:
            assert "This needs the scope read" in str(refused)
            assert text_in((await _go_on(second, asked))["result"]) == "the key is [redacted]"
        else:
            assert (await _go_on(second, asked))["error"]["code"] == refused["error"]["code"] == -32602
        assert SECRET not in str([*first.received, *second.received, *poorer.received])


@cases("back", DIALECTS)
@cases("masks", ["known", "by caller"])
async def test_state_of_an_earlier_version_is_judged_by_all_masks_that_exist(masks: str, back: str) -> None:
    async with (
        _asking(1, back) as (gateway, target, _),
        talk(gateway, MODERN, principal=ANN, capabilities=FORMS) as client,
    ):
        asked = await client.result("tools/call", {"name": "leak", "arguments": {"asks": True}})
        context = b"gateway/b"
        state = msgspec.json.decode(gateway.kernel.sealer.open(asked["requestState"], context)[1:])
        asked["requestState"] = gateway.kernel.sealer.seal(b"=" + msgspec.json.encode(state[:6]), context)
        await _change(gateway, target, back, "opened")
        by_caller = Policy(by_principal=lambda who: None)
        gateway.add("o", Server("other"), policy=by_caller if masks == "by caller" else MASKS)
        answer = await _go_on(client, asked)
        if masks == "by caller":
            assert answer["error"]["code"] == -32602
        else:
            assert "And now [redacted]?" in str(answer)
        assert SECRET not in str(client.received)


# --- subscriptions ---


@pytest.mark.pairwise
@pytest.mark.parametrize("is_admitted", [True, False])
@pytest.mark.parametrize("how", ["listed", "removed", "opened"])
@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize("place", PLACES)
async def test_subscriber_hears_of_a_resource_by_what_was_demanded_then(
    place: str, front: str, how: str, is_admitted: bool
) -> None:
    admits = True
    rule = {"visible_to": lambda who: admits}
    back = Server("back")
    back.resource("note://open")(lambda: "open")
    back.resource("note://one", **(rule if place == "plain" else {}))(lambda: "one")
    server: Any = back
    if place == "mount":
        server = Server("front").mount(back, shape=Shape(resources={"note://one": ResourceShape(**rule)}))
    elif place != "plain":
        target = Gateway("inner").add("c", back) if place == "two gateways" else back
        server = Gateway("front").add("b", target, shape=Shape(resources={"note://one": ResourceShape(**rule)}))
    async with talk(server, front, principal=ANN) as client:
        wanted = ["note://one", "note://open"]
        if front == MODERN:
            client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": wanted}})
            await client.notified("notifications/subscriptions/acknowledged", 1)
        else:
            for uri in wanted:
                await client.result("resources/subscribe", {"uri": uri})
        if how == "removed":
            back.remove("note://one")
            await until(lambda: "note://one" not in server.catalog.listed("resources"))
        elif how == "opened" and place == "plain":
            back.remove("note://one")
            back.resource("note://one")(lambda: "one")
        elif how == "opened" and place == "mount":
            server.unmount(back)
            server.mount(back)
        elif how == "opened":
            await server.replace("b", target)
        admits = is_admitted
        heard: set[str] = set()
        async with patience("an update"):
            # The gateway may be about to subscribe at the new server.
            while "note://open" not in heard:
                for uri in wanted:
                    back.notify_updated(uri)
                await asyncio.sleep(0)
                heard = {each["uri"] for each in await client.notified("notifications/resources/updated", 0)}
        # A function that picks callers is gone with its resource.
        assert ("note://one" in heard) == (is_admitted and how == "listed")


@pytest.mark.parametrize("front", DIALECTS)
@pytest.mark.parametrize("back", DIALECTS)
@cases("how", ["replaced", "removed", "two of a name"])
async def test_update_of_an_unlisted_address_is_for_callers_of_the_server_that_sent_it(
    how: str, back: str, front: str
) -> None:
    held, started, wanted = asyncio.Event(), Sign(), ["doc://listed", "note://open"]
    old, new, other = Server("old"), Server("new"), Server("other")
    other.resource("note://open")(lambda: "open")
    for server in (old, new):
        server.resource("doc://listed")(lambda: "x")

    @old.tool
    async def hold() -> str:
        started.set()
        await held.wait()
        return "held"

    hidden = Shape(visible_to=["admin"])
    gateway = Gateway("front").add("o", other, revision=back)
    served: Server = gateway
    if how == "two of a name":
        # The same name in another gateway, which all callers may use.
        served = Server("outer").mount(gateway, "in").mount(Gateway("beside").add("b", old, revision=back), "beside")
        gateway.add("b", new, revision=back, shape=hidden)
    else:
        gateway.add("b", old, revision=back)
    admin = Principal("eve", scopes=frozenset({"admin"}))
    async with talk(served, front, principal=ANN) as ann, talk(served, front, principal=admin) as eve:
        name = "beside_b_hold" if served is not gateway else "b_hold"
        await ann.result("tools/list")
        call = ann.start("tools/call", {"name": name, "arguments": {}})
        await started.wait()
        for client in (ann, eve):
            if front == MODERN:
                client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": wanted}})
                await client.notified("notifications/subscriptions/acknowledged", 1)
            else:
                for uri in wanted:
                    await client.result("resources/subscribe", {"uri": uri})
        if how == "replaced":
            await gateway.replace("b", new, revision=back, shape=hidden)
        elif how == "removed":
            gateway.remove("b").add("b", new, revision=back, shape=hidden)
        heard: dict[Any, set[str]] = {}
        async with patience("an update"):
            while "doc://listed/unlisted" not in heard.get(eve, ()) or "note://open" not in heard[ann]:
                new.notify_updated("doc://listed/unlisted")
                other.notify_updated("note://open")
                await asyncio.sleep(0)
                for client in (ann, eve):
                    updates = await client.notified("notifications/resources/updated", 0)
                    heard[client] = {each["uri"] for each in updates} - {"doc://listed"}
        assert heard[ann] == {"note://open"}
        held.set()
        assert text_in((await call)["result"]) == "held"


@cases("back", DIALECTS)
@cases("how", ["opened", "taken away"])
async def test_audit_of_an_answered_call_has_nothing_that_was_masked_then(how: str, back: str) -> None:
    lines: list[str] = []
    leaking = Leaking()
    leaking.fails = True
    leaking.go.set()
    gateway = Gateway("front", limits=QUICK, audit=AuditLog(lines.append, key="a key of sixteen bytes"))
    gateway.add("b", leaking.server, prefix="", revision=back, shape=_shape())
    async with talk(gateway, MODERN, principal=ANN, capabilities=FORMS) as client:
        asked = await client.result("tools/call", {"name": "leak", "arguments": {"asks": True}})
        await _change(gateway, leaking.server, back, how)
        answer = await _go_on(client, asked)
    assert SECRET not in str([*client.received, *lines])
    assert how == "taken away" or text_in(answer["result"]) == "refused for [redacted]"
    assert len([line for line in lines if '"tools/call"' in line]) == 2


# --- a store that fails ---


class _Failing(MemoryKV):
    """A store that cannot be read."""

    is_failing = False

    async def get(self, key: str) -> bytes | None:
        if self.is_failing:
            raise StoreFailed("The store redis://10.0.0.1:6379/0 cannot be used")
        return await super().get(key)


@cases("back", DIALECTS)
@cases("what", ["task", "question", "kept result"])
async def test_error_of_a_failed_store_names_neither_the_store_nor_the_server(what: str, back: str) -> None:
    keeping, asking = Keeping(), Leaking()
    asking.go.set()
    server = keeping.server if what == "kept result" else asking.server
    memory = _Failing()
    stores = Stores(memory, MemoryLog(), MemoryBus(), MemoryQueue.of(memory))

    def gateway(shape: Shape | None) -> Gateway:
        made = Gateway("front", limits=QUICK, secret=KEY, stores=stores)
        return made.add("b", server, prefix="", revision=back, shape=shape)

    able = FORMS if what == "question" else ABLE
    one, two = gateway(_shape()), gateway(None)
    async with (
        talk(one, MODERN, principal=ANN, capabilities=able) as first,
        talk(two, MODERN, principal=ANN, capabilities=able) as second,
    ):
        if what == "task":
            method, params = "tasks/get", {"taskId": await begin(first, "leak")}
        elif what == "kept result":
            method, params = "resources/read", {"uri": await _keep(first, "call")}
        else:
            asked = await first.result("tools/call", {"name": "leak", "arguments": {"asks": True}})
            answers = {key: accepted("yes") for key in asked["inputRequests"]}
            method, params = "tools/call", {"name": "leak", "arguments": {"asks": True}, "inputResponses": answers}
            params["requestState"] = asked["requestState"]
        memory.is_failing = True
        answer = await second.request(method, params)
        memory.is_failing = False
        text = str(answer)
        assert "error" in answer or answer["result"]["isError"]
        assert "redis" not in text and "10.0.0.1" not in text and "'b'" not in text
        assert what == "kept result" or "ry again" in text or "again" in text


# --- Redis ---


@pytest.mark.parametrize("front", DIALECTS)
async def test_scopes_and_masks_of_then_hold_on_a_replica_with_redis(front: str) -> None:
    leaking, keeping = Leaking(), Keeping()
    leaking.go.set()
    with running() as redis:

        def gateway(server: Server, shape: Shape | None) -> Gateway:
            return _gateway(server, RedisStores(redis.url), shape=shape)

        async with talk(gateway(leaking.server, _shape()), front, principal=ANN) as client:
            task = await begin(client, "leak")
            await reaches(client, task, "completed")
        async with talk(gateway(keeping.server, _shape()), front, principal=ANN) as client:
            uri = await _keep(client, "call")
        open_now = gateway(leaking.server, None)
        async with (
            talk(open_now, front, principal=ANN) as client,
            talk(open_now, front, principal=ANN_WITHOUT) as poorer,
        ):
            assert text_in(await outcome(client, task)) == "the key is [redacted]"
            await _check_hidden(poorer, task, "This needs the scope read")
        async with talk(gateway(keeping.server, None), front, principal=ANN) as client:
            read = await client.result("resources/read", {"uri": uri})
            assert read["contents"][0]["text"].endswith("the key is [redacted]")
