"""Requests with text that UTF-8 cannot carry are refused before anything is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.http.serving_here import serving

from toolwire import Client, Server
from toolwire.base_errors import ToolwireError

HALF = "\ud800"
CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "task": lambda client: client.task(HALF).status(),
    "value": lambda client: client.call_tool("echo", {"text": HALF}),
    "name of an argument": lambda client: client.call_tool("echo", {HALF: 1}),
    "tool": lambda client: client.call_tool(HALF),
    "meta": lambda client: client.call_tool("echo", {"text": "a"}, meta={"example.com/a": HALF}),
    "prompt": lambda client: client.get_prompt("p", {"text": HALF}),
    "resource": lambda client: client.read_resource(f"file:///{HALF}"),
    "as a task": lambda client: client.call_tool_as_task("echo", {"text": HALF}),
}


def make_server(called: list[str]) -> Server:
    server = Server("s")

    @server.tool(task="optional")
    def echo(text: str) -> str:
        called.append(text)
        return text

    @server.prompt
    def p(text: str) -> str:
        return text

    @server.resource("file:///{name}")
    def read(name: str) -> str:
        return name

    return server


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("call", CALLS)
async def test_request_with_half_of_a_surrogate_pair_is_refused(call: str, over: str, revision: str) -> None:
    called: list[str] = []
    server = make_server(called)

    async def check(client: Client) -> None:
        with pytest.raises(ToolwireError, match=r"was not sent: it has half of a surrogate pair \(\\ud800\)"):
            await CALLS[call](client)
        assert not called
        assert (await client.call_tool("echo", {"text": "still there"})).text == "still there"

    if over == "memory":
        async with Client(server, revision=revision) as client:
            await check(client)
        return
    async with serving(server) as port, Client(f"http://127.0.0.1:{port}/mcp", revision=revision) as client:
        await check(client)
