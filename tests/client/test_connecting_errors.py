"""The errors of a program that connects to the wrong place, or uses a client wrongly, say what to do."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
from tests.cases import cases
from tests.client.scripted_http import Reply, Script

from toolwire import Client, Context, Server
from toolwire.protocol.errors import ProtocolError, ToolError, ToolFailed, ToolwireError, Unreachable


@cases("status", [404, 405, 501, 200])
@cases(("path", "is_advised"), [("", True), ("/", True), ("/mcp", False)])
async def test_address_without_a_server_is_named_with_the_usual_path(status: int, path: str, is_advised: bool) -> None:
    script = Script(lambda request: Reply(status, {"content-type": "text/html"}, b"<h1>Hello</h1>"))
    url = f"http://localhost{path}"
    with pytest.raises(ToolwireError, match=rf"^No MCP server at {url}: .*status {status}") as failed:
        await script.client(url).connect()
    assert ("usually /mcp" in str(failed.value)) is is_advised


async def test_server_that_fails_is_not_taken_for_a_missing_one() -> None:
    script = Script(lambda request: Reply(500, {}))
    with pytest.raises(ToolwireError) as failed:
        await script.client("http://localhost").connect()
    assert "no MCP server" not in str(failed.value)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print('hello \\x1b[31m world')", r"exited with code 0 after it wrote .*'hello \\x1b\[31m world'\)$"),
        (
            "import sys; print('x' * 9000); sys.exit('because')",
            r"code 1 after .*\): because$",
        ),
    ],
)
async def test_program_that_prints_and_ends_is_shown_with_its_first_line(code: str, text: str) -> None:
    with pytest.raises(Unreachable, match=text) as failed:
        await Client([sys.executable, "-c", code]).connect()
    assert len(str(failed.value)) < 1000


def calculator() -> Server:
    server = Server("calculator")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Sure?"))

    return server


def test_client_in_a_plain_with_block_names_the_other_ways() -> None:
    client: Any = Client(calculator())
    with pytest.raises(TypeError, match=r"async with.*toolwire\.client\.sync"), client:
        pass


@pytest.mark.parametrize("is_listed", [True, False])
async def test_unknown_tool_is_compared_with_the_tools_of_the_server(is_listed: bool) -> None:
    async with Client(calculator()) as client:
        if is_listed:
            await client.list_tools()
        with pytest.raises(ProtocolError, match=r"^Unknown tool: ad; did you mean 'add'") as unknown:
            await client.call_tool("ad")
        assert unknown.value.code == -32602
        with pytest.raises(ProtocolError) as strange:
            await client.call_tool("zzz")
        assert "did you mean" not in str(strange.value)


async def test_arguments_given_as_options_are_shown_as_a_dict() -> None:
    async with Client(calculator()) as client:
        caller: Any = client
        with pytest.raises(TypeError, match=r'call_tool\("add", \{"a": \.\.\., "b": \.\.\.\}\)'):
            await caller.call_tool("add", a=3, b=4)


async def test_missing_capability_names_the_option_of_the_client() -> None:
    async with Client(calculator(), revision="2026-07-28") as client:
        with pytest.raises(ProtocolError, match=r"does not support forms.*give Client elicit="):
            await client.call_tool("ask")


@pytest.mark.parametrize("returns", [None, str])
@pytest.mark.parametrize(
    ("revision", "advice"),
    [
        ("2025-11-25", "the tool 'ask' asks for elicitation: give Client elicit="),
        ("2025-06-18", "the tool 'ask' asks for elicitation: give Client elicit="),
        ("2025-03-26", "the tool 'ask' asks for elicitation, which 2025-03-26 does not have"),
    ],
)
async def test_missing_capability_is_logged_once_on_older_revisions(
    revision: str, advice: str, returns: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(calculator(), revision=revision) as client:
        for _ in range(2):
            with contextlib.suppress(ToolFailed):
                assert (await client.call_tool("ask", returns=returns)).is_error
    assert [line.getMessage() for line in caplog.records if line.name == "toolwire.client"] == [advice]


async def test_other_capabilities_are_advised_too(caplog: pytest.LogCaptureFixture) -> None:
    server = calculator()

    @server.tool
    async def think(ctx: Context) -> str:
        return str(await ctx.sample("What is it?"))

    @server.tool
    async def look(ctx: Context) -> str:
        return str(await ctx.list_roots())

    @server.tool
    async def refuse() -> str:
        raise ToolError("This region does not support roots")

    async with Client(server, revision="2025-11-25", elicit=lambda message, params: {}) as client:
        for name in ("refuse", "think", "look"):
            assert (await client.call_tool(name)).is_error
    assert [line.getMessage() for line in caplog.records if line.name == "toolwire.client"] == [
        "the tool 'think' asks for sampling: give Client sample=",
        "the tool 'look' asks for roots: give Client roots=",
    ]
