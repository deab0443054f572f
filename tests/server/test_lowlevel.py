"""One list handler and one call handler instead of components."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.server.tasks.talking import ABLE, begin, dialects, outcome
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Limits, Policy, Server, ToolError, ToolResult, testing, types
from toolwire.auth import Principal
from toolwire.protocol.errors import ProtocolError, ServerError
from toolwire.server import lowlevel

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]}


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def server_with(tools: list[Any]) -> Server:
    server = Server("s")

    @server.on_list_tools
    async def list_tools() -> list[Any]:
        return tools

    @server.on_call_tool
    async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        if name == "fail":
            raise ToolError("failed")
        if name == "full":
            return ToolResult("full", is_error=True, meta={"k": 1})
        return f"{name} {json.dumps(arguments)}"

    return server


TOOLS = [
    {"name": "double", "description": "Twice.", "inputSchema": SCHEMA, "_meta": {"k": 1}},
    types.Tool(name="fail", input_schema={"type": "object"}),
    {"name": "full", "inputSchema": {"type": "object"}},
]


@pytest.mark.covers("R11")
@cases("revision", REVISIONS)
async def test_the_list_handler_lists_and_the_call_handler_dispatches_by_name(revision: str) -> None:
    async with connect(server_with(TOOLS), revision) as client:
        listed = (await client.result("tools/list"))["tools"]
        assert [tool["name"] for tool in listed] == ["double", "fail", "full"]
        assert listed[0]["inputSchema"] == SCHEMA
        assert text(await client.call("double", {"n": 2})) == 'double {"n": 2}'
        assert text(await client.call("fail")) == "failed"
        full = await client.call("full")
        assert (text(full), full["isError"]) == ("full", True)


@cases("revision", REVISIONS[2:])
async def test_a_result_that_is_no_object_fits_the_schema_that_was_listed(revision: str) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    server = Server("s")

    @server.on_list_tools
    async def list_tools() -> list[types.Tool]:
        return [types.Tool(name="rows", input_schema={"type": "object"}, output_schema=numbers)]

    @server.on_call_tool
    async def call_tool(name: str, arguments: dict[str, Any]) -> list[int]:
        return [1, 2]

    async with connect(server, revision) as client:
        listed = (await client.result("tools/list"))["tools"][0]["outputSchema"]
        called = (await client.call("rows"))["structuredContent"]
        if revision == MODERN:
            assert (listed, called) == (numbers, [1, 2])
        else:
            assert listed == {"type": "object", "properties": {"result": numbers}, "required": ["result"]}
            assert called == {"result": [1, 2]}


@pytest.mark.covers("R11", "R14", "JSC-6")
async def test_arguments_are_checked_against_the_listed_schema_before_the_call() -> None:
    async with connect(server_with(TOOLS), MODERN) as client:
        for wrong in ({}, {"n": -1}, {"n": "x"}):
            assert (await client.call("double", wrong))["isError"] is True


@pytest.mark.covers("R11", "R9")
async def test_a_name_that_is_not_listed_is_unknown() -> None:
    async with connect(server_with(TOOLS), MODERN) as client:
        error = await client.error("tools/call", {"name": "triple", "arguments": {}})
    assert error["code"] == -32602
    assert "triple" in error["message"]


@pytest.mark.covers("R11", "R12")
async def test_a_tool_that_appears_later_is_found() -> None:
    tools = [TOOLS[0]]
    server = server_with(tools)
    async with connect(server, MODERN) as client:
        await client.result("tools/list")
        tools.append({"name": "late", "inputSchema": {"type": "object"}})
        assert text(await client.call("late")) == "late {}"
        tools[0] = {"name": "double", "inputSchema": {"type": "object"}}
        await client.result("tools/list")
        assert text(await client.call("double", {"n": "x"})) == 'double {"n": "x"}', "its new schema counts"


@pytest.mark.covers("R11")
async def test_plain_functions_and_the_context() -> None:
    server = Server("s")

    @server.on_list_tools
    def list_tools(ctx: Context) -> list[Any]:
        return [{"name": ctx.method.replace("/", "_"), "inputSchema": {"type": "object"}}]

    @server.on_call_tool
    def call_tool(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        return f"{name} {ctx.request_id}"

    async with connect(server, MODERN) as client:
        assert (await client.result("tools/list"))["tools"][0]["name"] == "tools_list"
        response = await client.request("tools/call", {"name": "tools_list"}, id="x-1")
        assert text(response["result"]) == "tools_list x-1"


@pytest.mark.covers("R19")
@cases("listed", [[{"name": "broken"}], [42], None])
async def test_a_list_handler_that_fails_is_a_masked_error(listed: Any) -> None:
    async with connect(server_with(listed), MODERN) as client:
        error = await client.error("tools/list")
        assert error["code"] == -32603
        assert "error id" in error["message"]
        assert (await client.call("x"))["isError"] is True


async def test_a_list_handler_has_the_time_of_any_handler() -> None:
    server = Server("s", limits=Limits(tool=0.05))

    @server.on_list_tools
    async def list_tools() -> list[Any]:
        await asyncio.Event().wait()
        return []

    server.on_call_tool(lambda name, arguments: name)
    late = "tools/list did not finish within 0.05 seconds"
    async with connect(server, MODERN) as client:
        assert (await client.error("tools/list"))["message"] == late
        assert text(await client.call("x")) == late


def test_a_call_handler_with_another_signature_is_refused() -> None:
    with pytest.raises(ServerError, match=r"takes \(name, arguments\) or \(name, arguments, ctx\)"):
        Server("s").on_call_tool(lambda name: None)

    async def context_first(ctx: Context, name: str, arguments: dict[str, Any]) -> str:
        return name

    with pytest.raises(ServerError, match=r"gets its context last: write \(name, arguments, ctx: Context\)"):
        Server("s").on_call_tool(context_first)


async def test_a_list_handler_alone_says_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.on_list_tools(lambda: [{"name": "x", "inputSchema": {"type": "object"}}])
    async with connect(server, MODERN) as client:
        assert (await client.error("tools/list"))["code"] == -32603
    assert "A list handler needs a call handler: @server.on_call_tool" in caplog.text


async def test_a_tool_that_was_listed_for_somebody_else_cannot_be_called() -> None:
    server = Server("s")
    called: list[str] = []

    @server.on_list_tools
    def list_tools(ctx: Context) -> list[Any]:
        mine = f"of_{ctx.principal.subject}"
        return [{"name": mine, "inputSchema": {"type": "object"}}]

    @server.on_call_tool
    def call_tool(name: str, arguments: dict[str, Any]) -> str:
        called.append(name)
        return name

    async with (
        testing.connect(server, principal=Principal("alice")) as (alice, _),
        testing.connect(server, principal=Principal("bob")) as (bob, _),
    ):
        assert [tool.name for tool in await alice.list_tools()] == ["of_alice"]
        assert (await alice.call_tool("of_alice")).text == "of_alice"
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await bob.call_tool("of_alice")
        assert (await bob.call_tool("of_bob")).text == "of_bob"
    assert called == ["of_alice", "of_bob"]


class Shop:
    """A server whose handlers list a tool only for callers with a scope."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("s", **options)
        self.asked: list[str] = []
        self.called: list[str] = []

        @self.server.on_list_tools
        def list_tools(ctx: Context) -> list[Any]:
            self.asked.append(ctx.method)
            assert ctx.params.cursor is UNSET
            may_refund = ctx.principal is not None and "admin" in ctx.principal.scopes
            execution = {"taskSupport": "optional"}
            tool = {"name": "refund", "inputSchema": {"type": "object"}, "execution": execution}
            return [tool] if may_refund else []

        @self.server.on_call_tool
        def call_tool(name: str, arguments: dict[str, Any]) -> str:
            self.called.append(name)
            return name


@cases("policy", [None, Policy(rules={"n": lambda n: None})])
@cases("revision", ["2025-11-25", MODERN])
async def test_a_tool_is_callable_only_for_as_long_as_it_is_listed(revision: str, policy: Policy | None) -> None:
    """The same user, with the scope and without it: what one session was shown is nothing to the other."""
    shop = Shop(policy=policy)
    async with connect(shop.server, revision, principal=Principal("ann", scopes=["admin"])) as admin:
        assert len((await admin.result("tools/list"))["tools"]) == 1
        assert text(await admin.call("refund")) == "refund"
        # Once for each request, and as if the client had asked for the list.
        assert shop.asked == ["tools/list"] * 2
        async with connect(shop.server, revision, principal=Principal("ann")) as plain:
            error = await plain.error("tools/call", {"name": "refund"})
            assert (error["code"], error["message"]) == (-32602, "Unknown tool: refund")
    assert shop.called == ["refund"]


@dialects
async def test_the_task_of_a_tool_that_is_no_longer_listed_is_unknown(revision: str) -> None:
    shop = Shop(limits=Limits(task_window=0.0), tasks=True)
    async with connect(shop.server, revision, ABLE, principal=Principal("ann", scopes=["admin"])) as admin:
        task = await begin(admin, "refund")
        assert text(await outcome(admin, task)) == "refund"
        async with connect(shop.server, revision, ABLE, principal=Principal("ann")) as plain:
            assert (await plain.error("tasks/get", {"taskId": task}))["code"] == -32602
            if revision != MODERN:
                assert (await plain.result("tasks/list"))["tasks"] == []
                assert len((await admin.result("tasks/list"))["tasks"]) == 1


async def test_a_tool_is_compiled_once_while_its_definition_stays_the_same() -> None:
    tools: list[Any] = [{"name": "rows", "inputSchema": {"type": "object"}}]
    server = server_with(tools)
    compiled = server.kernel.lowlevel._compiled
    async with connect(server, MODERN) as client:
        await client.call("rows")
        ((_, first),) = compiled.items()
        await client.call("rows")
        assert [each for _, each in compiled.items()] == [first]
        tools[0] = {**tools[0], "outputSchema": {"type": "object", "required": ["n"]}}
        assert (await client.call("rows"))["isError"] is True, "its result does not fit its new schema"


async def test_compiled_tools_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowlevel, "MAX_TOOLS", 3)
    server = server_with([{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(10)])
    async with connect(server, MODERN) as client:
        for n in range(10):
            assert text(await client.call(f"t{n}")) == f"t{n} {{}}"
    assert len(server.kernel.lowlevel._compiled) == 3
