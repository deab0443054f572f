"""The gate of an HTTP application is replaced while requests and streams are open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import cases
from tests.http.raw_streams import KINDS, Hearing, rest_of
from tests.http.serving_here import serving

from toolwire import Client, Server
from toolwire.auth import ApiKeys
from toolwire.client.http_target import HttpTarget
from toolwire.protocol.errors import Unauthorized


class SlowGate:
    """A gate that lets everybody in, but not before `opens` is set."""

    nobody: Any = None
    is_narrowed = False
    key_headers: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.opens = asyncio.Event()
        self.opens.set()
        self.asked = asyncio.Event()

    async def admit(self, scope: Any, headers: dict[str, str]) -> Any:
        self.asked.set()
        await self.opens.wait()
        return None

    async def serve(self, *request: Any) -> bool:
        return False

    def insufficient(self, *request: Any) -> tuple[bytes, bytes]:
        raise AssertionError


@cases("kind", KINDS)
async def test_a_stream_that_the_gate_before_let_in_does_not_begin(kind: str) -> None:
    server = Server("s")
    app = server.http_app(sse=True)
    gate = SlowGate()
    app.use_gate(gate)
    caller = Hearing(app, "key")
    first = await caller.open(kind)
    assert first.status == 200
    gate.opens.clear()
    gate.asked.clear()
    late = asyncio.ensure_future(caller.open(kind))
    await gate.asked.wait()
    app.use_gate(SlowGate())
    await rest_of(first)
    gate.opens.set()
    stream = await late
    # A stream of a session ends as one whose connection broke, so that nothing is lost for a client that resumes it.
    assert stream.status == (200 if kind == "2025-11-25" else 503)
    await rest_of(stream)
    again = await caller.open(kind)
    assert again.status == 200
    again.close()
    app.drain()
    await app.stop()
    await caller.pool.close()


@cases("kind", KINDS)
async def test_streams_stay_open_where_there_is_no_gate_before_and_after(kind: str) -> None:
    server = Server("s")
    app = server.http_app(sse=True)
    caller = Hearing(app, "key")
    stream = await caller.open(kind)
    reading = asyncio.ensure_future(rest_of(stream))
    app.use_gate(None)
    # A request that comes later is answered, and the stream is still there.
    (await caller.send("GET", "/readyz")).close()
    assert not reading.done()
    app.drain()
    await reading
    await app.stop()
    await caller.pool.close()


async def test_a_client_on_a_socket_listens_again_or_is_refused() -> None:
    server = Server("s", auth=ApiKeys({"key-of-ann": "ann", "key-of-bob": "bob"}))

    def later() -> None: ...

    async with serving(server) as port:

        def client(key: str) -> Client:
            target = HttpTarget(f"http://127.0.0.1:{port}/mcp", headers={"authorization": f"Bearer {key}"})
            return Client(target, revision="2026-07-28")

        server.tool(lambda: None, name="first")
        async with (
            client("key-of-ann") as ann,
            client("key-of-bob") as bob,
            ann.listen(tools=True) as of_ann,
            bob.listen(tools=True) as of_bob,
        ):
            server.use_auth(ApiKeys({"key-of-bob": "bob"}))
            server.tool(later)
            assert (await anext(aiter(of_bob))).kind == "tools"
            assert {tool.name for tool in await bob.list_tools()} == {"first", "later"}
            with pytest.raises(Unauthorized):
                await anext(aiter(of_ann))
