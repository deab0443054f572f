"""Middleware around every request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, ProtocolError, Server, Tool, ToolError, types


async def echo(word: str) -> str:
    return word


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@cases("revision", REVISIONS)
async def test_the_first_is_the_outermost(revision: str) -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        async def middleware(ctx: Context, call_next: Any) -> Any:
            order.append(f"{name} before {ctx.method}")
            result = await call_next(ctx)
            order.append(f"{name} after")
            return result

        return middleware

    server = Server("s", tools=echo, middleware=[named("a"), named("b")])
    server.use(named("c"))
    async with connect(server, revision) as client:
        assert text(await client.call("echo", {"word": "hi"})) == "hi"
    calls = [f"{name} before tools/call" for name in "abc"]
    assert order[-6:] == [*calls, "c after", "b after", "a after"]


async def test_every_method_passes_through() -> None:
    seen: list[str] = []

    async def watch(ctx: Context, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    async with connect(Server("s", tools=echo, middleware=watch), MODERN) as client:
        await client.result("server/discover")
        await client.result("tools/list")
        await client.call("echo", {"word": "hi"})
    assert seen == ["server/discover", "tools/list", "tools/call"]


@pytest.mark.parametrize("revision", [MODERN, "2025-06-18"])
async def test_a_middleware_reads_lists_and_changes_them(revision: str) -> None:
    server = Server("s", tools=[echo, Tool(echo, name="_hidden")])

    @server.use
    async def hide(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        if isinstance(result, types.ListToolsResult):
            result.tools = [tool for tool in result.tools if not tool.name.startswith("_")]
        return result

    async with connect(server, revision) as client:
        for _ in range(2):
            listed = await client.result("tools/list")
            assert [tool["name"] for tool in listed["tools"]] == ["echo"]
        assert text(await client.call("_hidden", {"word": "hi"})) == "hi"


async def test_a_middleware_can_answer_by_itself_and_change_the_answer() -> None:
    server = Server("s", tools=echo)

    @server.use
    async def shortcut(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/call" and ctx.params.name == "magic":
            return types.CallToolResult(content=[types.TextContent("magic")])
        result = await call_next(ctx)
        if isinstance(result, types.CallToolResult):
            result.content.append(types.TextContent("checked"))
        return result

    async with connect(server, MODERN) as client:
        assert text(await client.call("magic")) == "magic"
        result = await client.call("echo", {"word": "hi"})
    assert [block["text"] for block in result["content"]] == ["hi", "checked"]


@pytest.mark.covers("R19")
async def test_what_a_middleware_raises_is_treated_like_what_a_handler_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("s", tools=echo)
    raising: list[Exception] = []

    @server.use
    async def guard(ctx: Context, call_next: Any) -> Any:
        if raising:
            raise raising.pop()
        return await call_next(ctx)

    async with connect(server, MODERN) as client:
        raising.append(ProtocolError(-31000, "Not today"))
        assert (await client.error("tools/call", {"name": "echo"}))["code"] == -31000
        raising.append(ToolError("Too many calls"))
        result = await client.call("echo")
        assert (result["isError"], text(result)) == (True, "Too many calls")
        raising.append(RuntimeError("the password is hunter2"))
        assert "hunter2" not in text(await client.call("echo"))
        raising.append(RuntimeError("the password is hunter2"))
        error = await client.error("tools/list")
        assert (error["code"], "hunter2" in error["message"]) == (-32603, False)
    assert "hunter2" in caplog.text


@pytest.mark.parametrize("revision", [MODERN, "2025-06-18"])
@pytest.mark.parametrize("answer", [None, "text", [1]])
async def test_what_is_no_result_is_the_fault_of_the_middleware_that_returned_it(
    revision: str, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    server = Server("s", tools=echo)

    @server.use
    async def watch(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        seen.append(result)
        return result

    @server.use
    async def forgetful(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        return result if ctx.method == "server/discover" else answer

    async with connect(server, revision) as client:
        refused = await client.call("echo", {"word": "hi"})
        assert refused["isError"] is True
        assert text(refused).startswith("Internal error")
        assert (await client.error("tools/list"))["code"] == -32603
    assert "forgetful returned" in caplog.text
    assert answer not in seen


async def test_a_middleware_may_answer_with_a_plain_object() -> None:
    server = Server("s", tools=echo)

    @server.use
    async def plain(ctx: Context, call_next: Any) -> Any:
        return {"content": [{"type": "text", "text": "plain"}]}

    async with connect(server, MODERN) as client:
        assert text(await client.call("echo")) == "plain"


async def test_a_middleware_sees_the_outcome_of_a_failing_tool() -> None:
    outcomes: list[Any] = []

    async def broken() -> None:
        raise ToolError("no")

    async def watch(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        outcomes.append(result.is_error)
        return result

    async with connect(Server("s", tools=broken, middleware=watch), MODERN) as client:
        await client.call("broken")
    assert outcomes == [True]


async def test_local_calls_pass_through_too() -> None:
    seen: list[str] = []

    async def watch(ctx: Context, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    server = Server("s", tools=echo, middleware=watch)
    assert (await server.call_tool("echo", {"word": "hi"})).text == "hi"
    assert seen == ["tools/call"]


async def test_an_answer_that_is_kept_serves_both_eras() -> None:
    server = Server("s")
    kept: list[Any] = []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.use
    async def keep(ctx: Context, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        if not kept:
            kept.append(await call_next(ctx))
        return kept[0]

    async with connect(server, MODERN) as modern, connect(server, "2024-11-05") as legacy:
        for _ in range(2):
            new = await modern.result("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            old = await legacy.result("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            assert new["resultType"] == "complete"
            assert new["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "s"
            assert old == {"content": [{"type": "text", "text": "3"}]}
