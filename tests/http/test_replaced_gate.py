"""The gate of an HTTP application is replaced while requests and streams are open."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.http.raw_streams import KINDS, Hearing, rest_of
from tests.http.serving_here import serving

from toolwire import Client, Context, Server
from toolwire.auth import ApiKeys, Principal
from toolwire.client.http_target import HttpTarget
from toolwire.http.asgi import HttpApp
from toolwire.http.responses import HttpRefusal
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ProtocolError, Unauthorized
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores


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

    def is_for_browsers(self, path: str) -> bool:
        return False

    async def serve(self, *request: Any) -> bool:
        return False

    def insufficient(self, *request: Any) -> tuple[bytes, bytes]:
        raise AssertionError


def use_gate(app: HttpApp, gate: Any) -> None:
    app.apply_settings(replace(app.settings, gate=gate))


class Closed(SlowGate):
    """A gate that lets nobody in."""

    async def admit(self, scope: Any, headers: dict[str, str]) -> Any:
        self.asked.set()
        raise HttpRefusal(401, "No")


@cases("kind", KINDS)
@cases("is_refused", [False, True])
async def test_request_that_a_gate_lets_in_while_it_is_replaced_is_decided_by_the_next_one(
    kind: str, is_refused: bool
) -> None:
    server = Server("s")
    app = server.http_app(sse=True)
    gate, after = SlowGate(), Closed() if is_refused else SlowGate()
    use_gate(app, gate)
    caller = Hearing(app, "key")
    first = await caller.open(kind)
    assert first.status == 200
    gate.opens.clear()
    gate.asked.clear()
    late = asyncio.ensure_future(caller.open(kind))
    await gate.asked.wait()
    use_gate(app, after)
    await rest_of(first)
    gate.opens.set()
    stream = await late
    if kind == "2025-11-25":
        # It ends as a stream whose connection broke, so that nothing is lost for a client that resumes it.
        assert stream.status == 200
        await rest_of(stream)
    else:
        assert after.asked.is_set()
        assert stream.status == (401 if is_refused else 200)
        stream.close()
    again = await caller.open(kind)
    assert again.status == (401 if is_refused else 200)
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
    use_gate(app, None)
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
            server.apply_settings(replace(server.settings, auth=ApiKeys({"key-of-bob": "bob"})))
            server.tool(later)
            assert (await anext(aiter(of_bob))).kind == "tools"
            assert {tool.name for tool in await bob.list_tools()} == {"first", "later"}
            with pytest.raises(Unauthorized):
                await anext(aiter(of_ann))


class SlowKV(MemoryKV):
    """A store that answers when `answers` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.answers.set()

    async def get(self, key: str) -> bytes | None:
        self.asked.set()
        await self.answers.wait()
        return await super().get(key)


@cases("is_refused", [False, True])
async def test_call_of_a_session_whose_record_is_read_meanwhile_is_let_in_by_the_next_gate(is_refused: bool) -> None:
    kv = SlowKV()
    auth = ApiKeys({"key-of-ann": Principal("ann")})
    server = Server("s", auth=auth, stores=Stores(kv, MemoryLog(), MemoryBus()))
    scopes: list[frozenset[str]] = []

    @server.tool
    async def work(ctx: Context) -> None:
        assert ctx.principal is not None
        scopes.append(ctx.principal.scopes)

    app = server.http_app()
    pool = AsgiPool(app)
    target = HttpTarget("http://localhost/mcp", pool=pool, headers={"authorization": "Bearer key-of-ann"})
    async with Client(target, revision="2025-11-25") as client:
        await client.call_tool("work")
        kv.answers.clear()
        kv.asked.clear()
        calling = asyncio.ensure_future(client.call_tool("work"))
        await kv.asked.wait()
        keys = {"key-of-bob": "bob"} if is_refused else {"key-of-ann": Principal("ann", scopes=frozenset({"new"}))}
        server.apply_settings(replace(server.settings, auth=ApiKeys(keys)))
        kv.answers.set()
        if is_refused:
            with pytest.raises(ProtocolError, match="let in no longer"):
                await calling
        else:
            await calling
    assert scopes == [frozenset()] if is_refused else [frozenset(), frozenset({"new"})]
    app.drain()
    await pool.close()
    await app.stop()


@cases("is_other", [False, True])
async def test_each_call_of_a_batch_is_let_in_again_as_the_caller_of_the_batch(is_other: bool) -> None:
    kv, name = SlowKV(), "ann"

    async def verify(token: str) -> Principal:
        await asyncio.sleep(0)
        return Principal(name)

    server = Server("s", auth=verify, stores=Stores(kv, MemoryLog(), MemoryBus()))
    server.tool(lambda: "done", name="work")
    app = server.http_app()
    caller = Hearing(app, "key")
    begun = await caller.send("POST", body=request_of("initialize", 0, **INITIALIZE))
    await rest_of(begun)
    caller.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
    kv.answers.clear()
    kv.asked.clear()
    calls = [request_of("tools/call", number, name="work", arguments={}) for number in (1, 2, 3)]
    calling = asyncio.ensure_future(caller.send("POST", body=calls))
    await kv.asked.wait()
    if is_other:
        name = "bob"
    server.apply_settings(replace(server.settings, auth=lambda token: verify(token)))
    kv.answers.set()
    answers = json.loads(await rest_of(await calling))
    assert {answer["id"]: "result" in answer for answer in answers} == dict.fromkeys((1, 2, 3), not is_other)
    app.drain()
    await caller.pool.close()
    await app.stop()


INITIALIZE = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def request_of(method: str, identifier: int, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
