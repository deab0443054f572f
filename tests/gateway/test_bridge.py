"""A bridge: one server at a URL, as it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.gateway.backs import everything

from toolwire import Client, Context, Server, testing
from toolwire.gateway.bridge import Bridge
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN

ERAS = [LATEST_LEGACY, MODERN]


def address(client: Client) -> str:
    return repr(client).removeprefix("<Client of ").partition(",")[0]


def asking() -> Server:
    server = Server("notes", version="7", instructions="Write a lot.")

    @server.tool
    async def work(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", bool)
        await ctx.progress(1, total=2)
        await ctx.log("warning", "careful")
        return f"{answer.data}"

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    return server


@pytest.mark.filterwarnings("ignore:Logging to the client")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_everything_crosses_under_its_own_name(front: str, back: str) -> None:
    server, said, logs, progress = asking(), list[str](), list[Any](), list[Any]()
    async with testing.connect(server, over="port") as (direct, _):
        bridge = Bridge(address(direct), revision=back, report=said.append)
        client = Client(bridge, revision=front, elicit=lambda message, params: {"value": True}, on_log=logs.append)
        async with client, client.listen(tools=True, resources=["note://today"]) as changes:
            assert client.server is not None
            assert (client.server.name, client.server.version) == ("notes", "7")
            assert client.instructions == "Write a lot."
            assert [tool.name for tool in await client.list_tools()] == ["work"]
            assert (await client.call_tool("work", on_progress=progress.append)).text == "True"
            assert [each.progress for each in progress] == [1]
            assert [each.data for each in logs] == ["careful"]
            server.notify_updated("note://today")
            iterator = aiter(changes)
            assert (await anext(iterator)).uri == "note://today"
            server.remove("work")
            assert (await anext(iterator)).kind == "tools"
    assert said[0] == f"connected to {address(direct)}, which speaks {back}"


async def test_a_server_that_is_away_is_told_of() -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    async with testing.connect(everything(), over="port") as (direct, _):
        url = address(direct)
    bridge = Bridge(url, report=said.put_nowait)
    async with Client(bridge) as client:
        assert "is away, and is tried again" in await said.get()
        assert await client.list_tools() == []
        assert await client.list_prompts() == []


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("ftp://example.com/mcp", {}, "not the URL of a server"),
        ("https://example.com/mcp", {"revision": "1999-01-01"}, "Unknown revision '1999-01-01'"),
    ],
)
def test_wrong_use_is_named(url: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ServerError, match=says):
        Bridge(url, **options)
