"""What becomes of each kind of message: the same over every transport of an era.

A difference between transports stands in the table as an outcome of its own, with the clause that asks for it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from tests.cases import cases
from tests.http.httpclient import HttpClient, SessionClient
from tests.http.legacy.session_server import Gate
from tests.http.legacy.test_http_sse_2024 import OldClient
from tests.wireclient import MODERN, WireClient, connect, modern_meta

from toolwire import Limits, Server

Message = dict[str, Any]
NOTHING = ""
LAST = "last"
BATCH = 4


def make_server(gate: Gate | None = None) -> Server:
    server = Server("kinds", secret="a secret of at least sixteen bytes", limits=Limits(depth=16, batch=BATCH))
    gate = gate or Gate()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def hold() -> str:
        await gate.passes()
        return "held"

    return server


def call(id: Any = 1, **more: Any) -> Message:
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, **more}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def request(method: str, params: Any = None, id: Any = 1) -> Message:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else message | {"params": params}


def notification(method: str, params: Message | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else message | {"params": params}


def result(id: Any = 77) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": {}}


INITIALIZE = request(
    "initialize",
    {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}},
)
CANCEL = notification("notifications/cancelled", {"requestId": 5})


def describe(message: Any) -> str:
    """Describe an answer: its id, and its error where it has one."""
    if isinstance(message, list):
        return f"[{', '.join(map(describe, message))}]"
    identifier = message.get("id", "no id")
    return f"{identifier}: {message['error']['code']}" if "error" in message else f"{identifier}: result"


class Line(Protocol):
    """A client of one transport."""

    async def start(self, message: bytes) -> None:
        """Send a message, and wait for nothing."""

    async def send(self, message: bytes) -> tuple[str, int]:
        """Send a message; return what came back, and the HTTP status where that says something."""


class DuplexLine:
    """A channel, where another call is answered last, so that what came back before it is all there is."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    async def start(self, message: bytes) -> None:
        self._client.send(message)

    async def send(self, message: bytes) -> tuple[str, int]:
        begin = len(self._client.received)
        self._client.send(message)
        last = call(LAST, _meta=modern_meta()) if self._client.revision == MODERN else call(LAST)
        self._client.send(last)

        def answers() -> list[Any]:
            return self._client.received[begin:]

        await self._client.until(lambda: any(isinstance(each, dict) and each.get("id") == LAST for each in answers()))
        return ", ".join(describe(each) for each in answers()[:-1]), 0


class SseLine:
    """HTTP+SSE of 2024-11-05: everything is accepted, and answered on the stream."""

    def __init__(self, client: OldClient) -> None:
        self._client = client

    async def start(self, message: bytes) -> None:
        await self._client.send(message)

    async def send(self, message: bytes) -> tuple[str, int]:
        begin = len(self._client.stream.events)
        for each in (message, json.dumps(call(LAST)).encode()):
            accepted = await self._client.send(each)
            assert (accepted.status, accepted.body) == (202, b"")

        def answers() -> list[Any]:
            return [json.loads(event.data) for event in self._client.stream.events[begin:]]

        await self._client.stream.until(lambda: any(each.get("id") == LAST for each in answers()))
        return ", ".join(describe(each) for each in answers()[:-1]), 0


class HttpLine:
    def __init__(self, client: HttpClient, headers: Callable[[bytes], dict[str, str]] = lambda _: {}) -> None:
        self._client = client
        self._headers = headers

    async def start(self, message: bytes) -> None:
        self._client.start_post(message, self._headers(message))

    async def send(self, message: bytes) -> tuple[str, int]:
        answer = await self._client.post(message, self._headers(message))
        assert answer.status is not None
        if not answer.body:
            return NOTHING, answer.status
        return ", ".join(map(describe, answer.messages if answer.is_stream else [answer.json()])), answer.status


@asynccontextmanager
async def over_memory(revision: str, gate: Gate | None = None) -> AsyncIterator[Line]:
    async with connect(make_server(gate), revision) as client:
        yield DuplexLine(client)


@asynccontextmanager
async def over_stdio(revision: str, gate: Gate | None = None) -> AsyncIterator[Line]:
    async with connect(make_server(gate), revision, over="stdio") as client:
        yield DuplexLine(client)


@asynccontextmanager
async def over_sessions(revision: str, gate: Gate | None = None) -> AsyncIterator[Line]:
    app = make_server(gate).http_app()
    client = SessionClient(app)
    try:
        await client.initialize(revision)
        yield HttpLine(client)
    finally:
        await client.close()
        await app.stop()


@asynccontextmanager
async def over_stateless(revision: str, gate: Gate | None = None) -> AsyncIterator[Line]:
    app = make_server(gate).http_app(stateless=True)
    client = HttpClient(app, headers={"mcp-protocol-version": revision})
    try:
        yield HttpLine(client)
    finally:
        await client.close()
        await app.stop()


@asynccontextmanager
async def over_sse(revision: str, gate: Gate | None = None) -> AsyncIterator[Line]:
    assert revision == "2024-11-05"
    app = make_server(gate).http_app(sse=True)
    client = OldClient(app)
    try:
        await client.connect()
        await client.request("initialize", INITIALIZE["params"], id="init")
        await client.send(notification("notifications/initialized"))
        yield SseLine(client)
    finally:
        await client.close()
        await app.stop()


def modern_headers(message: bytes) -> dict[str, str]:
    """Return the headers that repeat what a message says."""
    try:
        body = json.loads(message)
    except ValueError:
        body = None
    headers = {"mcp-protocol-version": MODERN}
    if isinstance(body, dict) and isinstance(body.get("method"), str):
        headers["mcp-method"] = body["method"]
        params = body.get("params")
        if isinstance(params, dict) and isinstance(params.get("name"), str):
            headers["mcp-name"] = params["name"]
    return headers


@asynccontextmanager
async def over_http(revision: str, gate: Gate | None = None) -> AsyncIterator[Line]:
    assert revision == MODERN
    app = make_server(gate).http_app()
    client = HttpClient(app)
    try:
        yield HttpLine(client, modern_headers)
    finally:
        await client.close()
        await app.stop()


class Transport(Protocol):
    __name__: str

    def __call__(self, revision: str, gate: Gate | None = None) -> AbstractAsyncContextManager[Line]: ...


LEGACY_LINES: list[tuple[Transport, str]] = [
    (over_memory, "2025-06-18"),
    (over_memory, "2025-03-26"),
    (over_stdio, "2025-06-18"),
    (over_stdio, "2024-11-05"),
    (over_sse, "2024-11-05"),
    (over_sessions, "2025-11-25"),
    (over_sessions, "2025-03-26"),
    (over_stateless, "2025-11-25"),
    (over_stateless, "2025-03-26"),
]
POSTED = (over_sessions, over_stateless, over_http)
DEEP = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 20 + b"]" * 20 + b"}"

# What is no request and no notification: the same in both eras.
UNREADABLE: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "no id: -32700"),
    "no UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', "no id: -32700"),
    "too deep": (DEEP, "1: -32600"),
    "no object": (b'"text"', "no id: -32600"),
    "no version": ({"id": 1, "method": "ping"}, "1: -32600"),
    "another version": ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, "1: -32600"),
    "no method": ({"jsonrpc": "2.0", "id": 1}, "1: -32600"),
    "method and result": (request("ping") | {"result": {}}, "1: -32600"),
    "null as id": (request("ping", id=None), "no id: -32600"),
    "id of another type": (request("ping", id=1.5), "no id: -32600"),
}
LEGACY_KINDS: dict[str, tuple[Any, str]] = UNREADABLE | {
    "call": (call(), "1: result"),
    "call with the id in a text": (call("one"), "one: result"),
    "ping": (request("ping"), "1: result"),
    "unknown method": (request("tools/unknown"), "1: -32601"),
    "method of the server": (request("roots/list"), "1: -32601"),
    "modern method": (request("server/discover"), "1: -32601"),
    "wrong params": (request("tools/call", {"name": 1}), "1: -32602"),
    "params of another type": (request("tools/call", []), "1: -32602"),
    "known notification": (notification("notifications/roots/list_changed"), NOTHING),
    "unknown notification": (notification("notifications/unknown"), NOTHING),
    "wrong notification": (notification("notifications/progress", {"progress": "x"}), NOTHING),
    "second initialized": (notification("notifications/initialized"), NOTHING),
    "cancellation of nothing": (CANCEL, NOTHING),
    "cancellation without an id": (notification("notifications/cancelled", {}), NOTHING),
    "answer to nothing": (result(), NOTHING),
    "error to nothing": ({"jsonrpc": "2.0", "id": 77, "error": {"code": 1, "message": "no"}}, NOTHING),
    "error without an id": ({"jsonrpc": "2.0", "error": {"code": 1, "message": "no"}}, NOTHING),
}
# 2025-03-26 basic, batching: only this revision has batches.
BATCHES: dict[str, tuple[Any, str]] = {
    "batch of calls": ([call(1), call(2)], "[1: result, 2: result]"),
    "batch with one call": ([call(1), CANCEL], "[1: result]"),
    "batch of errors": ([request("tools/unknown"), request("ping", id=2)], "[1: -32601, 2: result]"),
    "batch of notifications": ([CANCEL, notification("notifications/unknown")], NOTHING),
    "batch of answers": ([result(), result(78)], NOTHING),
    "batch with unreadable members": ([{"id": 3}, call(1)], "[3: -32600, 1: result]"),
    "batch with initialize": ([INITIALIZE, request("ping", id=2)], "[1: -32600, 2: result]"),
    "batch with an id twice": ([call(1), call(1)], "[1: -32600, 1: result]"),
    "empty batch": ([], "no id: -32600"),
    "batch that is too long": ([request("ping", id=id) for id in range(BATCH + 1)], "no id: -32600"),
}


def as_bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


async def compare(line: Line, kinds: dict[str, tuple[Any, str]], *, posted: bool) -> None:
    wrong: dict[str, str] = {}
    for name, (message, expected) in kinds.items():
        outcome, status = await line.send(as_bytes(message))
        if outcome != expected:
            wrong[name] = outcome
        # 2025-03-26 basic/transports: 202 without a body for what has no answer.
        elif posted and (status == 202) != (outcome == NOTHING):
            wrong[name] = f"{status}: {outcome}"
    assert not wrong


@cases("transport, revision", LEGACY_LINES)
async def test_a_message_has_one_outcome_over_every_legacy_transport(transport: Transport, revision: str) -> None:
    posted = transport in POSTED
    # 2025-03-26 basic/transports: an answer that cannot be accepted is an HTTP error. A stream has no such status.
    result_and_error = {"jsonrpc": "2.0", "id": 77, "result": {}, "error": {"code": 1, "message": "no"}}
    kinds = LEGACY_KINDS | {"result and error": (result_and_error, "77: -32600" if posted else NOTHING)}
    # 1.3.1.7: once in a session. Without sessions each request stands alone.
    kinds["second initialize"] = (INITIALIZE, "1: result" if transport is over_stateless else "1: -32600")
    batches = BATCHES
    # 2025-03-26 basic/transports: the clause is about the body of a POST.
    mixed = "no id: -32600" if posted else "[1: result]"
    batches = BATCHES | {"batch of calls and answers": ([call(1), result()], mixed)}
    if revision != "2025-03-26":
        batches = {name: (message, "no id: -32600") for name, (message, _) in batches.items()}
    async with transport(revision) as line:
        await compare(line, kinds | batches, posted=posted)


@cases("transport", [over_memory, over_stdio, over_http])
async def test_a_message_has_one_outcome_over_every_modern_transport(transport: Transport) -> None:
    posted = transport in POSTED

    def modern(method: str, params: Message | None = None, id: Any = 1) -> Message:
        return request(method, (params or {}) | {"_meta": modern_meta()}, id)

    version = "io.modelcontextprotocol/protocolVersion"
    kinds = UNREADABLE | {
        "call": (call(_meta=modern_meta()), "1: result"),
        "unknown method": (modern("tools/unknown"), "1: -32601"),
        "method of another era": (modern("initialize"), "1: -32601"),
        "ping": (modern("ping"), "1: -32601"),
        "wrong params": (modern("tools/call", {"name": 1}), "1: -32602"),
        "no metadata": (request("tools/list"), "1: -32602"),
        "no capabilities": (request("tools/list", {"_meta": {version: MODERN}}), "1: -32602"),
        "unknown notification": (notification("notifications/unknown"), NOTHING),
        "cancellation of nothing": (CANCEL, NOTHING),
        # RPC-1, RPC-6: neither batches nor answers are posted, and nothing asks for one.
        "answer to nothing": (result(), "no id: -32600" if posted else NOTHING),
        "batch": ([modern("tools/list")], "no id: -32600"),
        "empty batch": ([], "no id: -32600"),
    }
    async with transport(MODERN) as line:
        # The first request decides the era of a channel.
        assert await line.send(as_bytes(call(_meta=modern_meta()))) in [("1: result", 0), ("1: result", 200)]
        await compare(line, kinds, posted=posted)


@cases("transport", [over_memory, over_stdio, over_sse, over_sessions])
async def test_an_id_in_flight_is_refused_whatever_it_is_sent_for(transport: Transport) -> None:
    gate = Gate()
    revision = "2024-11-05" if transport is over_sse else "2025-03-26"
    # RPC-2: an id differs from every other request that its sender has outstanding in the session.
    kinds: dict[str, tuple[Any, str]] = {
        "call": (call(5), "5: -32600"),
        "ping": (request("ping", id=5), "5: -32600"),
        "unknown method": (request("tools/unknown", id=5), "5: -32600"),
        "wrong params": (request("tools/call", {"name": 1}, id=5), "5: -32600"),
    }
    if revision == "2025-03-26":
        kinds["in a batch"] = ([call(5), request("ping", id=2)], "[5: -32600, 2: result]")
    async with transport(revision, gate) as line:
        await line.start(as_bytes(request("tools/call", {"name": "hold"}, id=5)))
        await gate.reached.wait()
        await compare(line, kinds, posted=transport in POSTED)
        await line.send(as_bytes(CANCEL))
        await gate.cancelled.wait()
        assert (await line.send(as_bytes(call(5))))[0] == "5: result"
