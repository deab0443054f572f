"""What servers that we did not write change in the session of one client, through a gateway.

Each server keeps tools, resources and subscriptions by session. The gateway is reached in memory and over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.gateway.test_conversation import LEGACY, OVER, clients, names, next_change, until_listed
from tests.interop import peers
from tests.interop.test_foreign_http_servers import package, running
from tests.ports import free_port

from toolwire import Client
from toolwire.gateway import Gateway
from toolwire.protocol.errors import ProtocolError

pytestmark = pytest.mark.timeout(180)


@asynccontextmanager
async def growing(server: str) -> AsyncIterator[Gateway]:
    """Yield a gateway before a server whose tool `grow` adds the tool `extra`."""
    gateway = Gateway("front")
    if server == "mcp-1.30.0":
        gateway.add("b", [str(peers.needed(server).python), str(peers.SCRIPTS / "serve_sessions.py")])
        yield gateway
        return
    command = [str(peers.needed_node()), str(peers.node_script("serve_sessions.mjs"))]
    if server == "typescript-stdio":
        gateway.add("b", [*command, "stdio"])
        yield gateway
        return
    port = free_port()
    async with running([*command, "http", str(port)], port):
        gateway.add("b", f"http://127.0.0.1:{port}/mcp")
        yield gateway


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("server", ["typescript-stdio", "typescript-http", "mcp-1.30.0"])
async def test_tool_that_a_server_adds_in_a_session_is_announced_listed_and_called(server: str, over: str) -> None:
    async with (
        growing(server) as gateway,
        clients(over, gateway) as make,
        make() as one,
        make() as other,
        one.listen(tools=True) as changes,
    ):
        assert "b_extra" not in await names(one)
        await one.call_tool("b_grow")
        assert (await next_change(aiter(changes))).kind == "tools"
        assert "b_extra" in await names(one)
        assert (await one.call_tool("b_extra")).text == "extra"
        assert "b_extra" not in await names(other)
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await other.call_tool("b_extra")


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("transport", ["stdio", "streamableHttp"])
async def test_updates_that_a_client_switched_on_reach_it(transport: str, over: str) -> None:
    uri = "demo://resource/dynamic/text/1"
    command = [str(peers.needed_node()), package("server-everything"), transport]
    gateway = Gateway("front")
    async with (
        _everything(command, transport, gateway),
        clients(over, gateway) as make,
        make() as one,
        make() as other,
        one.listen(resources=[uri]) as changes,
        other.listen(resources=[uri]) as unheard,
    ):
        told, untold = aiter(changes), asyncio.ensure_future(anext(aiter(unheard)))
        await until_listed(one, "b_toggle-subscriber-updates")
        await one.call_tool("b_toggle-subscriber-updates")
        for _ in range(2):
            assert (await next_change(told)).uri == uri
        assert not untold.done()
        untold.cancel()


@asynccontextmanager
async def _everything(command: list[str], transport: str, gateway: Gateway) -> AsyncIterator[Any]:
    if transport == "stdio":
        gateway.add("b", command)
        yield command
        return
    port = free_port()
    async with running(command, port, {"PORT": str(port)}):
        url = f"http://127.0.0.1:{port}/mcp"
        gateway.add("b", url)
        yield url


@pytest.mark.parametrize("front", ["2026-07-28", LEGACY])
@pytest.mark.parametrize("transport", ["stdio", "streamableHttp"])
async def test_clients_see_the_tools_that_server_everything_has_for_them(transport: str, front: str) -> None:
    declared: list[dict[str, Any]] = [
        {},
        {"elicit": lambda message, params: {}},
        {"sample": lambda params: "It is.", "roots": ["file:///work"]},
        {"elicit": lambda message, params: {}, "sample": lambda params: "It is.", "roots": ["file:///work"]},
    ]
    command = [str(peers.needed_node()), package("server-everything"), transport]
    gateway = Gateway("front")
    async with _everything(command, transport, gateway) as direct, Client(gateway, revision=front):
        numbers = set()
        for options in declared:
            async with Client(direct, revision=LEGACY, **options) as client:
                expected = await names(client)
            async with Client(gateway, revision=front, **options) as client, asyncio.timeout(60):
                # On a busy machine, a process that reads the lists comes late.
                while {name.removeprefix("b_") for name in await names(client)} != expected:
                    await asyncio.sleep(0.2)
            numbers.add(len(expected))
        assert len(numbers) > 1
