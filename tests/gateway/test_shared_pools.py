"""Pools of connections to a legacy upstream that keeps nothing for its clients (`isolation="shared"`)."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import Recorded, behind, told, until

from toolwire import Client, Context, Server, testing
from toolwire.auth import Principal
from toolwire.client import Accept, Elicitation
from toolwire.client.target import Link
from toolwire.client.targets import CommandTarget
from toolwire.gateway import Gateway
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.revisions import MODERN
from toolwire.wire.channel import Channel, memory_pair

LEGACY = "2025-11-25"
FRONTS = pytest.mark.parametrize("front", [MODERN, LEGACY])


class Processes(CommandTarget):
    """A command whose processes are servers in this process, with numbers."""

    def __init__(self) -> None:
        super().__init__(["command"], "command")
        self.started = 0
        self.running: dict[int, Channel] = {}
        self.go_on = asyncio.Event()
        self.waiting: list[int] = []
        self.cancelled: list[int] = []
        self.declared: dict[int, Any] = {}
        self.can_start = True

    async def open(self) -> Link:
        if self.started and not self.can_start:
            raise Unreachable("no more processes")
        ours, theirs = memory_pair()
        self.started += 1
        number = self.started
        self.running[number] = theirs
        serving = asyncio.ensure_future(self.server(number, theirs).serve(theirs))
        serving.add_done_callback(lambda _: self.running.pop(number))
        return Link(ours, self.label)

    def server(self, number: int, channel: Channel | None) -> Server:
        server = Server("command")

        @server.tool
        async def who() -> int:
            return number

        @server.tool
        async def wait(ctx: Context) -> int:
            self.waiting.append(number)
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
            finally:
                self.waiting.remove(number)
            return number

        @server.tool
        async def steps(ctx: Context, label: str) -> str:
            await ctx.report_progress(1, 2, f"{label} begins")
            await ctx.warning(f"log of {label}")
            self.waiting.append(number)
            await self.go_on.wait()
            self.waiting.remove(number)
            await ctx.report_progress(2, 2, f"{label} ends")
            return label

        @server.tool
        async def ask(ctx: Context) -> str:
            return str(await ctx.elicit("Your name?", str))

        @server.tool
        async def roots(ctx: Context) -> str:
            return str(await ctx.list_roots())

        @server.tool(task="optional")
        async def slow() -> int:
            await self.go_on.wait()
            return number

        @server.tool
        async def session(ctx: Context) -> str:
            return str(ctx.session_id)

        @server.tool
        async def die() -> None:
            assert channel is not None
            await channel.close()

        return server


def pool_of(most: int | None = None, **options: Any) -> tuple[Processes, Gateway]:
    command = Processes()
    gateway = Gateway("front")
    gateway.add("b", command, revision=LEGACY, isolation="shared", max_processes=most, timeout=8, **options)
    return command, gateway


def connected(gateway: Gateway, name: str, front: str = LEGACY, **options: Any) -> Any:
    return testing.connect(gateway, revision=front, principal=Principal(name), **options)


async def who(client: Client) -> int:
    return await client.call_tool("b_who", returns=int)


@FRONTS
async def test_sessions_share_one_process(front: str) -> None:
    command, gateway = pool_of()
    async with AsyncExitStack() as stack:
        clients = [(await stack.enter_async_context(connected(gateway, f"u{n}", front)))[0] for n in range(10)]
        assert {await who(each) for each in clients} == {1}
        assert command.started == 1 and gateway.backs["b"].connections == 1


@FRONTS
async def test_calls_go_to_the_least_busy_process(front: str) -> None:
    command, gateway = pool_of(3)
    async with connected(gateway, "ann", front) as (ann, _), connected(gateway, "bob", front) as (bob, _):
        waits = []
        for count in range(1, 7):
            waits.append(asyncio.ensure_future((ann, bob)[count % 2].call_tool("b_wait", returns=int)))
            await until(lambda count=count: len(command.waiting) == count)
        assert sorted(command.waiting) == [1, 1, 2, 2, 3, 3] and command.started == 3
        command.go_on.set()
        assert sorted([await each for each in waits]) == [1, 1, 2, 2, 3, 3]


async def test_idle_processes_of_a_pool_end() -> None:
    command, gateway = pool_of(2, idle_seconds=0.02)
    async with connected(gateway, "ann") as (ann, _):
        waits = [asyncio.ensure_future(ann.call_tool("b_wait", returns=int)) for _ in range(2)]
        await until(lambda: len(command.waiting) == 2)
        command.go_on.set()
        assert sorted([await each for each in waits]) == [1, 2]
        await until(lambda: list(command.running) == [1])
        assert await who(ann) == 1


@FRONTS
async def test_dead_process_of_a_pool_is_replaced(front: str) -> None:
    command, gateway = pool_of(2)
    async with connected(gateway, "ann", front) as (ann, _), connected(gateway, "bob", front) as (bob, _):
        waiting = asyncio.ensure_future(ann.call_tool("b_wait", returns=int))
        await until(lambda: command.waiting == [1])
        assert await who(bob) == 2
        assert (await bob.call_tool("b_die")).is_error
        assert await who(bob) == 3
        assert not waiting.done()
        command.go_on.set()
        assert await waiting == 1
        assert (await ann.call_tool("b_die")).is_error
        assert await who(ann) > 1


async def test_pool_uses_its_first_process_while_no_other_one_starts() -> None:
    command, gateway = pool_of(2)
    async with connected(gateway, "ann") as (ann, _):
        waiting = asyncio.ensure_future(ann.call_tool("b_wait", returns=int))
        await until(lambda: command.waiting == [1])
        command.can_start = False
        assert await who(ann) == 1
        command.go_on.set()
        await waiting


@FRONTS
async def test_progress_reaches_its_caller_alone(front: str) -> None:
    command, gateway = pool_of()
    received: dict[str, list[Any]] = {"ann": [], "bob": []}
    async with connected(gateway, "ann", front) as (ann, _), connected(gateway, "bob", front) as (bob, _):
        calls = [
            asyncio.ensure_future(
                client.call_tool(
                    "b_steps",
                    {"label": name},
                    on_progress=lambda *values, name=name: received[name].append(values[-1].message),
                )
            )
            for name, client in (("ann", ann), ("bob", bob))
        ]
        await until(lambda: len(command.waiting) == 2)
        command.go_on.set()
        for call in calls:
            await call
    assert received == {"ann": ["ann begins", "ann ends"], "bob": ["bob begins", "bob ends"]}


@FRONTS
async def test_log_messages_of_a_shared_process_reach_no_client(front: str) -> None:
    # Nothing on a pipe says which call a log message belongs to.
    command, gateway = pool_of()
    received: list[Any] = []
    async with (
        connected(gateway, "ann", front, on_log=received.append) as (ann, _),
        connected(gateway, "bob", front) as (bob, _),
    ):
        command.go_on.set()
        await bob.call_tool("b_steps", {"label": "bob"})
        await ann.call_tool("b_steps", {"label": "ann"})
        assert await who(ann) == 1
    assert received == []


@FRONTS
async def test_log_messages_of_a_shared_session_reach_their_caller_alone(front: str) -> None:
    # Over HTTP they come on the stream of the call.
    command = Processes()
    received: dict[str, list[Any]] = {"ann": [], "bob": []}
    async with AsyncExitStack() as stack:
        back = command.server(1, None)
        place = await stack.enter_async_context(behind(back, "http"))
        gateway = Gateway("front").add("b", place, revision=LEGACY, isolation="shared", timeout=8)
        clients = {}
        for name, lines in received.items():
            connecting = connected(gateway, name, front, on_log=lambda params, lines=lines: lines.append(params.data))
            clients[name] = (await stack.enter_async_context(connecting))[0]
        calls = [
            asyncio.ensure_future(client.call_tool("b_steps", {"label": name})) for name, client in clients.items()
        ]
        await until(lambda: len(command.waiting) == 2)
        command.go_on.set()
        for call in calls:
            await call
        assert received == {"ann": ["log of ann"], "bob": ["log of bob"]}
        sessions = {(await each.call_tool("b_session")).text for each in clients.values()}
        assert len(sessions) == 1 and gateway.backs["b"].connections == 1


@FRONTS
async def test_cancellation_ends_the_call_of_its_caller_alone(front: str) -> None:
    command, gateway = pool_of()
    async with connected(gateway, "ann", front) as (ann, _), connected(gateway, "bob", front) as (bob, _):
        first = asyncio.ensure_future(ann.call_tool("b_wait", returns=int))
        second = asyncio.ensure_future(bob.call_tool("b_wait", returns=int))
        await until(lambda: len(command.waiting) == 2)
        first.cancel()
        await until(lambda: command.cancelled == [1])
        assert len(command.waiting) == 1 and not second.done()
        command.go_on.set()
        assert await second == 1


@FRONTS
@cases("tool", ["ask", "roots"])
async def test_questions_of_a_shared_process_are_refused(front: str, tool: str) -> None:
    command, gateway = pool_of()
    asked: list[str] = []

    async def answer(message: str, params: Any) -> Accept:
        asked.append(message)
        return Accept("Ada")

    handlers: dict[str, Any] = {"elicit": Elicitation(form=answer), "roots": ["/tmp"]}
    async with connected(gateway, "ann", front, **handlers) as (ann, _):
        result = await ann.call_tool(f"b_{tool}")
        assert result.is_error and not asked
        assert await who(ann) == 1 and command.started == 1


async def _refuse(message: str, params: Any) -> Accept:
    raise AssertionError("asked")


@cases("revision", [LEGACY, MODERN])
async def test_shared_connection_declares_nothing_that_a_client_would_have_to_answer(revision: str) -> None:
    recorded = Recorded()
    command = Processes()
    handlers: dict[str, Any] = {"elicit": Elicitation(form=_refuse), "roots": ["/tmp"]}
    async with behind(command.server(1, None), "memory", recorded) as place:
        gateway = Gateway("front").add("b", place, revision=revision, isolation="shared")
        async with connected(gateway, "ann", **handlers) as (ann, _):
            assert await who(ann) == 1
    if revision == LEGACY:
        (opening,) = recorded.sent("initialize")
        assert set(opening["params"]["capabilities"]) <= {"extensions"}
    else:
        # Each request to a modern server says what its client can do: isolation= changes nothing.
        # The second one is for clients that declare nothing.
        listing, *_ = recorded.sent("tools/list")
        declared = listing["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert {"elicitation", "sampling", "roots"} <= set(declared)


async def test_client_that_can_be_asked_gets_no_session_beside_a_shared_connection() -> None:
    command = Processes()
    gateway = Gateway("front").add("b", command, isolation="shared")
    async with connected(gateway, "ann", elicit=Elicitation(form=_refuse)) as (ann, _):
        assert await who(ann) == 1
    assert command.started == 1


async def test_task_of_a_pool_stays_at_its_process() -> None:
    command, gateway = pool_of(2)
    async with connected(gateway, "ann") as (ann, _), connected(gateway, "bob") as (bob, _):
        busy = asyncio.ensure_future(bob.call_tool("b_wait", returns=int))
        await until(lambda: len(command.waiting) == 1)
        task = await ann.call_tool_as_task("b_slow")
        busy.cancel()
        await until(lambda: not command.waiting)
        command.go_on.set()
        assert (await task.wait()).text == "2"
        assert await who(ann) == 1


async def test_updates_of_a_shared_server_reach_their_subscriber_alone() -> None:
    server = Server("b")

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    async with behind(server, "memory") as place:
        gateway = Gateway("front").add("b", place, revision=LEGACY, isolation="shared")
        async with connected(gateway, "ann") as (ann, wire), connected(gateway, "bob") as (bob, other):
            await bob.read_resource("note://today")
            async with ann.listen(resources=["note://today"]) as changes:
                server.notify_updated("note://today")
                assert await told(changes) == "resource"
            assert gateway.backs["b"].connections == 1
    updated = "notifications/resources/updated"
    assert any(each.get("method") == updated for each in wire.received)
    assert not any(each.get("method") == updated for each in other.received)


#: A server of 2025-11-25 that asks in each call, whatever its client declared, and returns the answer.
ASKING = """
import json, sys

info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "c", "version": "1"}}
tool = {"name": "ask", "inputSchema": {"type": "object", "properties": {"method": {"type": "string"}}}}
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if "id" not in asked:
        continue
    result = {}
    if method == "initialize":
        result = info
    elif method == "tools/list":
        result = {"tools": [tool]}
    elif method == "tools/call":
        question = asked["params"]["arguments"]["method"]
        params = {
            "elicitation/create": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
            "sampling/createMessage": {"messages": [], "maxTokens": 1},
            "roots/list": {},
        }
        print(json.dumps({"jsonrpc": "2.0", "id": "q", "method": question, "params": params[question]}), flush=True)
        answer = json.loads(sys.stdin.readline())
        result = {"content": [{"type": "text", "text": json.dumps(answer.get("error", answer))}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@FRONTS
async def test_refused_question_gets_the_reason(front: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = tmp_path / "asking.py"
    script.write_text(ASKING)
    gateway = Gateway("front").add("b", [sys.executable, str(script)], isolation="shared")

    async def sample(params: Any) -> str:
        raise AssertionError("asked")

    handlers: dict[str, Any] = {"elicit": Elicitation(form=_refuse), "roots": ["/tmp"], "sample": sample}
    async with connected(gateway, "ann", front, **handlers) as (ann, _):
        for method in ("elicitation/create", "sampling/createMessage", "roots/list"):
            text = (await ann.call_tool("b_ask", {"method": method})).text
            assert "-32601" in text and method in text and 'isolation = \\"shared\\"' in text
    assert caplog.text.count("which is refused") == 1
