"""The life of a connection: it opens once, closes in order, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fake import FakeServer, text
from tests.client.scripted import Scripted

from toolwire import Server, testing
from toolwire.client import Client
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Unreachable
from toolwire.protocol.revisions import MODERN

HELLO = {"tools/call": lambda request, outlet: text("hello")}


async def test_connect_and_close_in_any_order_and_from_any_task() -> None:
    client = Client(FakeServer(HELLO))
    await client.close()
    await asyncio.gather(client.connect(), client.connect(), client.connect())
    assert client.connected
    assert len(client._target.server.sessions) == 1  # type: ignore[attr-defined]
    await asyncio.create_task(client.close())
    await client.close()
    assert not client.connected
    with pytest.raises(Unreachable, match="not connected"):
        await client.call_tool("hello")
    async with client:
        assert (await client.call_tool("hello")).text == "hello"
    assert "not connected" in repr(client)


async def test_closing_cancels_what_is_in_flight_instead_of_waiting_for_it() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    server = Server("slow")

    @server.tool
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Future()
        finally:
            ended.set()

    client = await Client(server).connect()
    call = asyncio.ensure_future(client.call_tool("wait"))
    await begun.wait()
    await client.close()
    assert ended.is_set()
    with pytest.raises(OutcomeUnknown, match=r"^The connection ended before tools/call was answered$"):
        await call


async def test_closing_while_connecting_ends_the_attempt() -> None:
    far = Scripted()
    client = Client(far.ours)
    connecting = asyncio.ensure_future(client.connect())
    await far.next()
    await client.close()
    with pytest.raises(Unreachable, match="closed while it connected"):
        await connecting
    assert await far.theirs.read() is None


async def test_a_cancelled_connect_lets_go_of_the_server() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours).connect())
    await far.next()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert await far.theirs.read() is None


async def test_errors_are_never_in_a_group() -> None:
    class Broken(FakeServer):
        async def serve(self, channel: Any, *, principal: Any = None) -> None:
            raise RuntimeError("wires crossed")

    with pytest.raises(Unreachable, match="'fake' stopped serving: wires crossed"):
        async with Client(Broken()):
            pass


async def test_a_call_in_flight_at_the_end_has_an_unknown_outcome() -> None:
    async def leave(request: Any, outlet: Any) -> Any:
        server.session.end()
        await asyncio.Event().wait()

    server = FakeServer({"tools/call": leave})
    async with Client(server) as client:
        with pytest.raises(OutcomeUnknown, match="tools/call"):
            await client.call_tool("x")
        # Not restartable: a second call says so, and nothing hangs.
        with pytest.raises(Unreachable):
            await client.call_tool("x")


@pytest.mark.covers("1.3.2.6", "T-4")
@pytest.mark.parametrize("revision", ["2024-11-05", MODERN])
async def test_nothing_is_sent_that_the_server_did_not_offer(revision: str) -> None:
    server = FakeServer(capabilities={"tools": {}})
    async with testing.connect(server, revision=revision) as (client, wire):
        before = len(wire.sent)
        for attempt in (
            client.list_prompts(),
            client.get_prompt("x"),
            client.read_resource("a:b"),
            client.set_level("info"),
            client.subscribe("a:b"),
        ):
            with pytest.raises(NotSupported):
                await attempt
        assert len(wire.sent) == before
        with pytest.raises(ProtocolError):  # An empty object declares: this one is sent.
            await client.list_tools()
