"""Tasks of servers behind a gateway: every pair of dialects, in memory and by HTTP."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.gateway.backs import OVER, Recorded, behind
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import (
    CORE,
    DIALECTS,
    FORMS,
    RELATED,
    Over,
    accepted,
    answer,
    begin,
    changes,
    look,
    outcome,
    reaches,
    says,
    status_of,
    talk,
    text_in,
)
from tests.wireclient import MODERN, Message, WireClient, modern_meta

from toolwire import Client, Context, Limits, Policy, Server, ToolResult
from toolwire.auth import Principal
from toolwire.client import relay
from toolwire.client.relay import RelayConnection
from toolwire.client.target import Link, Target
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway, back_connections
from toolwire.gateway.back_connections import IDLE_SECONDS, Conversation
from toolwire.gateway.remote_tasks import MAX_KEPT_SECONDS
from toolwire.gateway.upstream import Upstream
from toolwire.protocol.errors import ProtocolError, Unreachable
from toolwire.stores import Stores
from toolwire.testing import elapse
from toolwire.util.expiring import SWEEP_SECONDS

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")

QUICK = Limits(task_window=0.0, task_poll=0.02)
CELLS = [(front, back, far) for front in DIALECTS for back in DIALECTS for far in OVER]
cells = pytest.mark.parametrize(("front", "back", "far"), CELLS)
pairs = pytest.mark.parametrize(("front", "back"), [(front, back) for front in DIALECTS for back in DIALECTS])
backs = pytest.mark.parametrize("back", DIALECTS)
fronts = pytest.mark.parametrize("front", DIALECTS)


class Leaving(ServerTarget):
    """A server that cannot be reached any more when the test says so."""

    is_away = False

    async def open(self) -> Link:
        if self.is_away:
            raise Unreachable("Nobody is there")
        return await super().open()


def held_tools(**options: Any) -> Held:
    return Held(limits=QUICK, **options)


@asynccontextmanager
async def before(
    server: Any, back: str, far: str = "memory", recorded: Recorded | None = None, **options: Any
) -> AsyncIterator[Gateway]:
    """Yield a gateway in front of a server, whose tools keep their names."""
    async with behind(server, far, recorded) as target:
        gateway = Gateway("front", **{"limits": QUICK, **options})
        gateway.add("b", target, prefix="", revision=back)
        yield gateway


@asynccontextmanager
async def through(
    server: Any, front: str, back: str, far: str = "memory", near: Over = "memory", **options: Any
) -> AsyncIterator[WireClient]:
    """Yield a client of a gateway in front of a server."""
    async with before(server, back, far, **options) as gateway, talk(gateway, front, near) as client:
        yield client


class Impatient(FakeServer):
    """A server of 2025-11-25 that answers `tasks/result` with an error before the task is over, as fastmcp 3.4 does."""

    def __init__(self, support: str) -> None:
        handlers = {
            "tools/list": lambda request, outlet: {"tools": [self.tool]},
            "tools/call": self.call,
            "tasks/get": self.look,
            "tasks/result": self.fetch,
            "tasks/cancel": self.cancel,
        }
        declared = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
        super().__init__(handlers, capabilities=declared, revisions=(CORE,))
        self.tool = {"name": "job", "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}
        self.status = "working"
        self.looks = 0

    def state(self) -> Message:
        times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
        return {"taskId": "t-1", "status": self.status, **times, "ttl": 60_000, "pollInterval": 20}

    def call(self, request: Any, outlet: Any) -> Message:
        return {"task": self.state()}

    def look(self, request: Any, outlet: Any) -> Message:
        self.looks += 1
        if self.looks == 3 and self.status == "working":
            self.status = "completed"
        return self.state()

    def fetch(self, request: Any, outlet: Any) -> Message:
        if self.status != "completed":
            raise ProtocolError(-32602, f"Task not completed yet (current state: {self.status})")
        return {"content": [{"type": "text", "text": "done"}]}

    def cancel(self, request: Any, outlet: Any) -> Message:
        self.status = "cancelled"
        return self.state()


@pytest.mark.parametrize("support", ["optional", "required"])
@pytest.mark.parametrize("window", [0.0, 20.0])
async def test_server_that_does_not_wait_for_the_end_of_a_task_is_asked_again(support: str, window: float) -> None:
    gateway = Gateway("front", limits=Limits(task_window=window, task_poll=0.02))
    gateway.add("b", cast("Server", Impatient(support)), prefix="")
    async with Client(gateway, revision=MODERN) as client:
        assert (await client.call_tool("job")).text == "done"


async def test_task_of_a_server_that_does_not_wait_is_cancelled() -> None:
    gateway = Gateway("front", limits=Limits(task_window=0.05, task_poll=0.02))
    server = Impatient("optional")
    server.looks = 3
    gateway.add("b", cast("Server", server), prefix="")
    async with Client(gateway, revision=MODERN) as client:
        task = await client.call_tool_as_task("job")
        await task.cancel()
        assert (await task.status()).status == "cancelled"


# --- the life of a task ---


@pytest.mark.covers("GW-3.15")
@cells
async def test_a_task_crosses_with_its_result(front: str, back: str, far: str) -> None:
    held = held_tools()
    async with through(held.server, front, back, far) as client:
        task = await begin(client, "hold", {"label": "y"})
        await held.started.wait()
        assert (await look(client, task))["taskId"] == task
        assert await status_of(client, task) == "working"
        held.go.set()
        result = await outcome(client, task)
        assert text_in(result) == "held y"
        # 2025-11-25 names the task in its result. In the extension the result stands in the task.
        related = result.get("_meta", {}).get(RELATED)
        assert related == ({"taskId": task} if front == CORE else None)
        # 2025-11-25 has no types of results.
        assert front == MODERN or "resultType" not in result
        assert await status_of(client, task) == "completed"
    assert held.seen == [("done", True)]


@pytest.mark.covers("GW-3.15")
@cells
async def test_questions_of_a_task_cross(front: str, back: str, far: str) -> None:
    held = held_tools()
    async with through(held.server, front, back, far) as client:
        task = await begin(client, "asking")
        asked = await reaches(client, task, "input_required")
        if front == MODERN:
            keys = {each["params"]["message"]: key for key, each in asked["inputRequests"].items()}
            assert set(keys) == {"First?", "Second?"}
            # One after the other: the rest stays open.
            await client.result("tasks/update", {"taskId": task, "inputResponses": {keys["First?"]: accepted("one")}})
            while "inputRequests" not in asked or keys["First?"] in asked["inputRequests"]:
                asked = await look(client, task)
            assert list(asked["inputRequests"]) == [keys["Second?"]]
            await client.result("tasks/update", {"taskId": task, "inputResponses": {keys["Second?"]: accepted("two")}})
        else:
            values = {"First?": "one", "Second?": "two"}
            client.answers["elicitation/create"] = lambda params: accepted(values[params["message"]])
        assert text_in(await outcome(client, task)) == "one and two"
        assert all(each["params"]["_meta"][RELATED] == {"taskId": task} for each in client.requests)


@pytest.mark.covers("GW-3.15")
@cells
async def test_cancelling_a_task_reaches_the_server(front: str, back: str, far: str) -> None:
    held = held_tools()
    async with through(held.server, front, back, far) as client:
        task = await begin(client, "hold")
        await held.started.wait()
        await client.result("tasks/cancel", {"taskId": task})
        await held.stopped.wait()
        assert await status_of(client, task) == "cancelled"
        again = await client.request("tasks/cancel", {"taskId": task})
        # 2025-11-25 refuses to cancel what is over; TSK-14: the extension acknowledges it.
        assert again["error"]["code"] == -32602 if front == CORE else "result" in again


@pairs
async def test_the_error_of_a_tool_and_of_the_protocol_cross(front: str, back: str) -> None:
    held = held_tools()
    async with through(held.server, front, back) as client:
        broken = await begin(client, "broken")
        end = await reaches(client, broken, "completed", "failed")
        # 2025-11-25 fails the task of a tool that fails.
        assert end["status"] == ("failed" if front == CORE else "completed")
        result = await outcome(client, broken)
        assert (text_in(result), result["isError"]) == ("it broke", True)
        refused = await begin(client, "refused")
        end = await reaches(client, refused, "failed")
        error = (
            end["error"] if front == MODERN else (await client.request("tasks/result", {"taskId": refused}))["error"]
        )
        assert (error["code"], error["message"], error["data"]) == (-32099, "not like this", {"why": "because"})


@pytest.mark.covers("GW-11.3")
@cases("back", DIALECTS)
@cases("middle", DIALECTS)
@cases("front", DIALECTS)
async def test_a_task_crosses_two_gateways(front: str, middle: str, back: str) -> None:
    held = held_tools()
    async with before(held.server, back) as inner, through(inner, front, middle) as client:
        task = await begin(client, "staged")
        held.go.set()
        asked = await reaches(client, task, "input_required")
        held.go_on.set()
        if front == MODERN:
            (key,) = asked["inputRequests"]
            await answer(client, task, **{key: "Ada"})
        else:
            client.answers["elicitation/create"] = lambda params: accepted("Ada")
        assert text_in(await outcome(client, task)) == "Hello, Ada!"
        held.go.clear()
        other = await begin(client, "hold")
        await held.started.wait()
        await client.result("tasks/cancel", {"taskId": other})
        await held.stopped.wait()


@pairs
async def test_members_that_nobody_knows_cross(front: str, back: str) -> None:
    server = Server("back", limits=QUICK)

    @server.tool(task="required")
    async def odd(ctx: Context) -> Any:
        return ToolResult("odd", meta={"example.com/number": 1.50, "example.com/x": {"y": [1]}})

    async with through(server, front, back) as client:
        meta = (await outcome(client, await begin(client, "odd")))["_meta"]
    assert meta["example.com/x"] == {"y": [1]}
    assert meta["example.com/number"] == 1.5


# --- which calls become tasks ---


@pairs
async def test_the_list_says_which_tools_run_as_tasks(front: str, back: str) -> None:
    async with through(held_tools().server, front, back) as client:
        tools = {each["name"]: each for each in (await client.result("tools/list"))["tools"]}
    if front == MODERN:
        assert all("execution" not in each for each in tools.values())
        return
    support = {name: each.get("execution", {}).get("taskSupport") for name, each in tools.items()}
    # A server with the extension decides for each call.
    expected = ("optional", "optional", "optional") if back == MODERN else (None, "optional", "required")
    assert (support["plain"], support["hold"], support["only"]) == expected


@backs
async def test_an_old_client_gets_the_result_of_a_tool_that_only_runs_as_a_task(back: str) -> None:
    held = held_tools()
    held.go.set()
    async with through(held.server, "2025-06-18", back) as client:
        for _ in range(2):
            assert text_in(await client.call("only")) == "only as a task"


@backs
async def test_a_client_that_gives_up_such_a_call_ends_the_task(back: str) -> None:
    server, started, stopped = Server("back", limits=QUICK), asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def wait(ctx: Context) -> None:
        await ctx.progress(1, 4, "a quarter")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with through(server, "2025-06-18", back) as client:
        params = {"name": "wait", "_meta": {"progressToken": "p"}}
        client.start("tools/call", params, id="given up")
        await started.wait()
        (told,) = await client.notified("notifications/progress", 1)
        assert told == {"progressToken": "p", "progress": 1, "total": 4, "message": "a quarter"}
        client.notify("notifications/cancelled", {"requestId": "given up"})
        await stopped.wait()


@backs
async def test_a_modern_client_without_tasks_is_told_what_it_lacks(back: str) -> None:
    held = held_tools()
    held.go.set()
    async with before(held.server, back) as gateway, talk(gateway, MODERN, capabilities=FORMS) as client:
        error = (await client.request("tools/call", {"name": "only", "arguments": {}}))["error"]
        assert error["code"] == -32021
        assert text_in(await client.call("hold")) == "held x"
        assert (await client.request("tasks/get", {"taskId": "x"}))["error"]["code"] == -32021


@pytest.mark.parametrize(("tool", "wish"), [("plain", {"task": {}}), ("only", {})])
async def test_the_rules_of_a_2025_server_hold(tool: str, wish: Message) -> None:
    async with through(held_tools().server, CORE, CORE) as client:
        error = (await client.request("tools/call", {"name": tool, "arguments": {}, **wish}))["error"]
    assert error["code"] == -32601


async def test_a_2025_client_gets_the_task_that_it_asked_for_also_where_a_modern_server_answers_at_once() -> None:
    async with through(held_tools().server, CORE, MODERN) as client:
        task = await begin(client, "plain", {"name": "Ada"})
        assert text_in(await outcome(client, task)) == "Hello, Ada!"
        assert await status_of(client, task) == "completed"


async def test_a_quick_call_of_a_2025_server_is_answered_with_its_result() -> None:
    held = held_tools()
    held.go.set()
    async with through(held.server, MODERN, CORE, limits=Limits(task_window=10.0)) as client:
        assert text_in(await client.call("hold")) == "held x"
        asking = await client.call("asking")
        assert asking["resultType"] == "task"
        assert len((await reaches(client, asking["taskId"], "input_required"))["inputRequests"]) == 2


async def test_a_server_without_tasks_has_none_here() -> None:
    server = Server("back")

    @server.tool
    async def plain() -> str:
        return "x"

    async with through(server, CORE, CORE) as client:
        assert "tasks" not in client.initialized["capabilities"]
        # 2025-11-25 tasks: what was not offered is ignored.
        assert text_in(await client.call("plain", task={})) == "x"


# --- telling ---


@backs
@pytest.mark.parametrize("near", ["memory", "http"])
async def test_a_2025_client_is_told_of_status_and_progress(back: str, near: Over) -> None:
    held = held_tools()
    async with through(held.server, CORE, back, near=near) as client:
        task = await begin(client, "reporting", _meta={"progressToken": "mine"})
        await says(client, task, "a quarter")
        held.go.set()
        (told,) = await changes(client, 1)
        assert (told["taskId"], told["status"]) == (task, "completed")
        numbers = [each["params"] for each in client.notifications if each["method"] == "notifications/progress"]
        assert all(each["progressToken"] == "mine" for each in numbers)
        if back == CORE:
            assert [each["progress"] for each in numbers] == [1, 4]


@pytest.mark.parametrize("near", ["memory", "http"])
@backs
async def test_a_modern_client_listens_to_tasks(back: str, near: Over) -> None:
    held = held_tools()
    async with through(held.server, MODERN, back, near=near) as client:
        task, other = await begin(client, "hold"), await begin(client, "hold", {"label": "other"})
        client.start("subscriptions/listen", {"notifications": {"taskIds": [task, "nobody's"]}})
        (acknowledged,) = await client.notified("notifications/subscriptions/acknowledged", 1)
        assert acknowledged["notifications"] == {"taskIds": [task]}
        held.go.set()
        told = await changes(client, 1)
        while told[-1]["status"] != "completed":
            told = await changes(client, len(told) + 1)
        assert {each["taskId"] for each in told} == {task}
        assert text_in(told[-1]["result"]) == "held x"
        assert text_in(await outcome(client, other)) == "held other"


# --- names ---


@pytest.mark.covers("GW-4.7")
@pairs
async def test_a_name_opens_on_every_replica_and_for_nobody_else(front: str, back: str) -> None:
    held, ann, bob = held_tools(), Principal("ann"), Principal("bob")
    secret = "a secret of all replicas"
    async with (
        before(held.server, back, secret=secret) as one,
        before(held.server, back, secret=secret) as two,
        before(held.server, back) as stranger,
        talk(one, front, principal=ann) as first,
        talk(two, front, principal=ann) as second,
    ):
        task = await begin(first, "hold")
        assert await status_of(second, task) == "working"
        for gateway, who in ((one, bob), (stranger, ann)):
            async with talk(gateway, front, principal=who) as client:
                for method in ("tasks/get", "tasks/cancel"):
                    error = (await client.request(method, {"taskId": task}))["error"]
                    assert (error["code"], error["message"]) == (-32602, "There is no such task, or it has expired")
        held.go.set()
        assert text_in(await outcome(second, task)) == "held x"


@pytest.mark.covers("GW-4.7")
@backs
async def test_tasks_are_listed_for_their_owner_only(back: str) -> None:
    held, ann, bob = held_tools(), Principal("ann"), Principal("bob")
    async with before(held.server, back, page_size=2) as gateway:

        @gateway.tool(task="optional")
        async def own() -> str:
            return "own"

        async with talk(gateway, CORE, principal=ann) as client:
            made = {await begin(client, "hold") for _ in range(3)} | {await begin(client, "own")}
            listed: list[str] = []
            page: Message = {"nextCursor": ""}
            while "nextCursor" in page:
                page = await client.result("tasks/list", {"cursor": page["nextCursor"]} if page["nextCursor"] else {})
                listed += [each["taskId"] for each in page["tasks"]]
            assert (set(listed), len(listed)) == (made, 4)
        async with talk(gateway, CORE, principal=bob) as client:
            assert (await client.result("tasks/list"))["tasks"] == []


@fronts
async def test_the_task_of_a_server_that_went_away_names_the_server(front: str) -> None:
    held, host = held_tools(), Server("front", limits=QUICK)
    target = Leaving(held.server)
    remote = Upstream("b", target, revision=MODERN)
    host.mount(remote)
    async with talk(host, front) as client:
        task = await begin(client, "hold")
        target.is_away = True
        await remote.back_connections.close()
        error = (await client.request("tasks/get", {"taskId": task}))["error"]
        assert "The server 'b' behind this one failed" in error["message"]
        host.unmount(remote)
        error = (await client.request("tasks/get", {"taskId": task}))["error"]
        assert error["code"] == -32602


# --- what holds for all that leaves ---


@pairs
async def test_policies_hold_for_the_outcome_of_a_task(front: str, back: str) -> None:
    held = held_tools()
    held.go.set()
    policy = Policy(mask=[r"held"], result=2000)
    async with through(held.server, front, back, policy=policy) as client:
        assert "held" not in str(await outcome(client, await begin(client, "hold")))
        large = await begin(client, "large", {"size": 5000})
        if front == MODERN:
            error: Message = {}
            while "error" not in error:
                error = await client.request("tasks/get", {"taskId": large})
        else:
            error = await client.request("tasks/result", {"taskId": large})
        assert "5000" not in str(error)
        assert "may have 2000" in error["error"]["message"]


@pytest.mark.parametrize("behind_gateway", [False, True], ids=["here", "behind"])
@fronts
async def test_a_mask_for_long_words_leaves_the_names_of_tasks(front: str, behind_gateway: bool) -> None:
    policy = Policy(mask=[r"[\w.-]{20,}"])
    held = held_tools() if behind_gateway else held_tools(policy=policy)
    held.go.set()
    talking = through(held.server, front, MODERN, policy=policy) if behind_gateway else talk(held.server, front)
    async with talking as client:
        assert text_in(await outcome(client, await begin(client, "hold", {"label": "x" * 20}))) == "held [redacted]"


@backs
async def test_policies_hold_for_the_tasks_that_a_client_listens_to(back: str) -> None:
    held = held_tools()
    policy = Policy(mask=[r"held"], result=2000)
    async with through(held.server, MODERN, back, policy=policy) as client:
        large = await begin(client, "large", {"size": 5000})
        task = await begin(client, "hold")
        client.start("subscriptions/listen", {"notifications": {"taskIds": [task, large]}})
        await client.notified("notifications/subscriptions/acknowledged", 1)
        held.go.set()
        told = await changes(client, 1)
        while (told[-1]["taskId"], told[-1]["status"]) != (task, "completed"):
            told = await changes(client, len(told) + 1)
        assert "held" not in str(told)
        assert text_in(told[-1]["result"]) == "[redacted] x"
        assert len(str(told)) < 5000


# --- several processes ---


async def test_a_question_is_seen_and_answered_at_every_replica() -> None:
    held, stores, secret = held_tools(), Stores.memory(), "a secret of all replicas"
    async with (
        before(held.server, CORE, secret=secret, stores=stores) as one,
        before(held.server, CORE, secret=secret, stores=stores) as two,
        talk(one, MODERN) as first,
        talk(two, MODERN) as second,
    ):
        task = await begin(first, "asking")
        keys = set((await reaches(first, task, "input_required"))["inputRequests"])
        assert set((await reaches(second, task, "input_required"))["inputRequests"]) == keys
        wrong = {"taskId": task, "inputResponses": {min(keys): {"action": "dance"}}}
        assert (await second.request("tasks/update", wrong))["error"]["code"] == -32602
        given = {key: accepted("yes") for key in keys}
        await second.result("tasks/update", {"taskId": task, "inputResponses": given})
        assert text_in(await outcome(second, task)) == "yes and yes"
        assert text_in(await outcome(first, task)) == "yes and yes"


async def test_a_question_whose_replica_has_ended_is_asked_again() -> None:
    held, stores, secret = held_tools(), Stores.memory(), "a secret of all replicas"
    async with (
        before(held.server, CORE, secret=secret, stores=stores) as one,
        before(held.server, CORE, secret=secret, stores=stores) as two,
        talk(two, MODERN) as second,
    ):
        async with talk(one, MODERN) as first:
            task = await begin(first, "asking")
            await reaches(first, task, "input_required")
        keys = (await reaches(second, task, "input_required"))["inputRequests"]
        given = {key: accepted("yes") for key in keys}
        await second.result("tasks/update", {"taskId": task, "inputResponses": given})
        assert text_in(await outcome(second, task)) == "yes and yes"


async def test_the_connection_on_which_a_task_was_made_outlives_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A legacy server that is a process knows a task in that process, and nowhere else."""
    monkeypatch.setattr(back_connections, "IDLE_SECONDS", -1.0)
    monkeypatch.setattr(back_connections.BackConnections, "_reap", lambda self: None)
    held, ann = held_tools(), Principal("ann")
    host = Server("front", limits=QUICK)
    remote = Upstream("b", ServerTarget(held.server), revision=CORE)
    host.mount(remote)
    async with talk(host, CORE, principal=ann) as stays:
        async with talk(host, CORE, principal=ann) as client:
            task = await begin(client, "hold")
        async with talk(host, CORE, principal=ann) as client:
            await client.call("plain")
        assert remote.back_connections.conversations == 2
        remote.back_connections.close_idle()
        assert remote.back_connections.conversations == 1
        assert await status_of(stays, task) == "working"
        assert remote.back_connections.conversations == 1


class Counting(Target):
    """A command: each connection is a process of its own, and all of them count their tasks from one."""

    def __init__(self, ttl: int | None = None) -> None:
        self.label = "counting"
        self.numbers = itertools.count()
        self.task: Message = {**TASK, "ttl": ttl}

    async def open(self) -> Link:
        result = {"content": [{"type": "text", "text": f"of process {next(self.numbers)}"}]}
        server = lying({"task": self.task}, get={**self.task, "status": "completed"}, result=result)
        return await ServerTarget(server).open()


@fronts
@pytest.mark.parametrize("names", [("ann", "bob"), ("ann", "ann"), None], ids=["two", "one", "nobody"])
async def test_two_tasks_with_the_same_id_are_two_tasks(front: str, names: tuple[str, str] | None) -> None:
    gateway = Gateway("front", limits=QUICK)
    gateway.add("b", Counting(), prefix="", revision=CORE)
    one, two = (None, None) if names is None else map(Principal, names)
    async with talk(gateway, front, principal=one) as ann, talk(gateway, front, principal=two) as bob:
        first, second = await begin(ann, "go"), await begin(bob, "go")
        texts = [text_in(await outcome(ann, first)), text_in(await outcome(bob, second))]
        assert texts == ["of process 1", "of process 2"]


@fronts
@pytest.mark.pairwise
@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize(("ttl", "seconds"), [(1_000, IDLE_SECONDS), (3_600_000, 3600.0), (None, MAX_KEPT_SECONDS)])
async def test_a_task_is_remembered_until_its_ttl_is_over(
    front: str, is_read: bool, ttl: int | None, seconds: float
) -> None:
    """2025-11-25 tasks, ttl: null is unlimited. What this process remembers of a task is not."""
    host = Server("front", limits=QUICK)
    remote = Upstream("b", Counting(ttl), revision=CORE)
    host.mount(remote)
    ann = Principal("ann")
    async with talk(host, front, principal=ann) as one, talk(host, front, principal=ann) as other:
        task = await begin(one, "go")
        if is_read:
            await outcome(one, task)
        # Each request about the task counts its time anew.
        for _ in range(3):
            await elapse(seconds - 1)
            assert text_in(await outcome(other, task)) == "of process 1"
        await elapse(seconds + IDLE_SECONDS + SWEEP_SECONDS)
        assert remote.back_connections.conversations == 0
        assert _conversations() == 0
        assert not remote.components.tool_tasks.is_used


@pytest.mark.parametrize(("front", "tool"), [(MODERN, "hold"), ("2025-06-18", "only")])
async def test_a_task_that_no_client_knows_is_forgotten_when_it_is_over(front: str, tool: str) -> None:
    held, host = held_tools(), Server("front", limits=Limits(task_window=5.0))
    held.go.set()
    remote = Upstream("b", ServerTarget(held.server), revision=CORE)
    host.mount(remote)
    async with talk(host, front) as client:
        for _ in range(2):
            assert text_in(await client.call(tool))
        assert _conversations() == remote.back_connections.conversations
        assert not remote.components.tool_tasks.is_used


def _conversations() -> int:
    gc.collect()
    return sum(type(each) is Conversation for each in gc.get_objects())


# --- servers that do what they should not ---

TASK = {"taskId": "t", "status": "working", "createdAt": "x", "lastUpdatedAt": "x", "ttlMs": None, "ttl": None}


def lying(call: Any, **methods: Any) -> FakeServer:
    """Make a server whose only tool answers as the test says."""
    tool = {"name": "go", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    answers = {"tools/list": {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}}
    answers |= {"tools/call": call, **{f"tasks/{name}": value for name, value in methods.items()}}
    declared = {
        "tools": {},
        "tasks": {"requests": {"tools": {"call": {}}}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
    handlers = {name: _saying(value) for name, value in answers.items()}
    return FakeServer(handlers, capabilities=declared)


def _saying(value: Any) -> Any:
    return lambda request, outlet: Raw(msgspec.json.encode(value))


@pairs
@pytest.mark.parametrize("damage", [{"taskId": 1}, {"status": "dancing"}, {"taskId": "x" * 10_000}], ids=str)
async def test_a_broken_task_is_an_error_that_names_the_server(front: str, back: str, damage: Message) -> None:
    broken = {**TASK, **damage}
    call = {"resultType": "task", **broken} if back == MODERN else {"task": broken}
    async with through(lying(call, cancel={}, get=broken), front, back) as client:
        wish: Message = {} if front == MODERN else {"task": {}}
        answered = await client.request("tools/call", {"name": "go", "arguments": {}, **wish})
        assert "The server 'b' behind this one failed" in str(answered)
        assert "x" * 300 not in str(answered)


@pairs
async def test_a_broken_state_of_a_task_is_an_error_that_names_the_server(front: str, back: str) -> None:
    call = {"resultType": "task", **TASK} if back == MODERN else {"task": TASK}
    async with through(lying(call, get={"taskId": "t", "status": 3}), front, back) as client:
        task = await begin(client, "go")
        answered = await client.request("tasks/get", {"taskId": task})
        if front != back:
            assert "The server 'b' behind this one failed" in answered["error"]["message"]


@pairs
async def test_state_of_another_task_is_an_error_that_names_the_server(front: str, back: str) -> None:
    call = {"resultType": "task", **TASK} if back == MODERN else {"task": TASK}
    async with through(lying(call, get={**TASK, "taskId": "other"}), front, back) as client:
        task = await begin(client, "go")
        answered = await client.request("tasks/get", {"taskId": task})
        assert "The server 'b' behind this one failed" in answered["error"]["message"]


async def test_a_task_that_nobody_asked_for_is_an_error() -> None:
    """TSK-1: its id would be that of the server, and anybody could use it."""
    server, bare = lying({"resultType": "task", **TASK}), {"extensions": {"x/y": {}}}
    async with before(server, MODERN) as gateway, talk(gateway, MODERN, capabilities=bare) as client:
        assert "The server 'b' behind this one failed" in text_in(await client.call("go"))


@cases("front", [*DIALECTS, "2025-06-18"])
async def test_nothing_is_kept_of_tasks_that_are_over(front: str) -> None:
    held, host, opened = held_tools(), Server("front", limits=Limits(task_window=5.0)), []
    held.go.set()

    class Noted(RelayConnection):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            opened.append(self)

    with pytest.MonkeyPatch.context() as patch:
        for module in (relay, back_connections):
            patch.setattr(module, "RelayConnection", Noted)
        remote = Upstream("b", ServerTarget(held.server), revision=CORE)
        host.mount(remote)
        async with talk(host, front) as client:
            for _ in range(3):
                wish: Message = {"task": {}} if front == CORE else {}
                result = await client.call("only" if front != CORE else "hold", _meta=_token(client), **wish)
                if "task" in result or "taskId" in result:
                    await outcome(client, result.get("task", result)["taskId"])
            assert len(opened) == 2
            assert [(each.reports, each.on_task_status, each.calls) for each in opened] == [({}, {}, {})] * 2


def _token(client: WireClient) -> Message:
    return (
        modern_meta(client.capabilities, progress_token="mine") if client.revision == MODERN else {"progressToken": 1}
    )
