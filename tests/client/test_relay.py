"""Connections that carry the requests of others: whose call a message of the server belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.client import scripted
from tests.client.scripted_http import STREAM, URL, Reply, Request, Script, event, on, rpc, stream

from toolwire import Context, Server
from toolwire.client.http_target import HttpTarget
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection, RelayedCall, relay_opener
from toolwire.client.target import Target
from toolwire.client.targets import ChannelTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import MODERN


class Scripted(scripted.Scripted):
    """The far end of a channel, which answers pings by itself."""

    async def next(self) -> dict[str, Any]:
        while (message := await super().next()).get("method") == "ping":
            self.answer(message, {})
        return message


def connector(target: Target, revision: str, capabilities: dict[str, Any] | None = None) -> Connector:
    return Connector(
        relay_opener(
            target,
            t.Implementation("relay", "1"),
            capabilities or {},
            changed=lambda method, uri: None,
            timeout=10.0,
            probe_timeout=5.0,
            revision=revision,
        )
    )


async def opened(script: Scripted, revision: str, capabilities: dict[str, Any] | None = None) -> RelayConnection:
    """Open a connection to a server that the test plays."""
    opening = asyncio.ensure_future(connector(ChannelTarget(script.ours), revision, capabilities).live())
    request = await script.next()
    if revision == MODERN:
        script.answer(
            request,
            {
                "resultType": "complete",
                "supportedVersions": [MODERN],
                "capabilities": {"logging": {}},
                "ttlMs": 0,
                "cacheScope": "private",
            },
        )
    else:
        script.answer(
            request,
            {
                "protocolVersion": revision,
                "capabilities": {"logging": {}},
                "serverInfo": {"name": "s", "version": "1"},
            },
        )
        assert (await script.next())["method"] == "notifications/initialized"
    connection = await opening
    assert isinstance(connection, RelayConnection)
    return connection


def relay(connection: RelayConnection, call: RelayedCall, params: bytes = b"{}") -> asyncio.Task[Raw]:
    return asyncio.ensure_future(connection.relay(connection.next_id(), "tools/call", Raw(params), call))


def noting(told: list[str], name: str) -> RelayedCall:
    async def answer(request: Incoming) -> Any:
        told.append(f"{name} was asked")
        return Raw(b'{"action":"decline","from":"%b"}' % name.encode())

    def hear(notice: Notice) -> None:
        told.append(f"{name} heard {notice.params.data}")

    return RelayedCall(answer, None, hear)


async def test_params_and_results_are_not_read() -> None:
    script = Scripted()
    connection = await opened(script, MODERN)
    call = relay(connection, RelayedCall(), b'{"name":"x","new":1.10,"_meta":{"a":1}}')
    sent = await script.theirs.read()
    assert sent is not None and b'{"name":"x","new":1.10,"_meta":{"a":1}}' in sent
    script.theirs.write(b'{"jsonrpc":"2.0","id":%d,"result":{"odd":1e2}}' % msgspec.json.decode(sent)["id"])
    assert bytes(await call) == b'{"odd":1e2}'
    await connection.close()


async def test_a_question_on_a_connection_belongs_to_the_newest_call_of_its_conversation() -> None:
    script = Scripted()
    connection = await opened(script, "2025-11-25", {"elicitation": {"form": {}}})
    told: list[str] = []
    older, newer = relay(connection, noting(told, "older")), relay(connection, noting(told, "newer"))
    first, second = await script.next(), await script.next()
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    script.send({"id": 77, "method": "elicitation/create", "params": form})
    answer = await script.next()
    assert answer["result"] == {"action": "decline", "from": "newer"}
    script.answer(second, {})
    await newer
    script.send({"id": 78, "method": "elicitation/create", "params": form})
    assert (await script.next())["result"]["from"] == "older"
    script.answer(first, {})
    await older
    script.send({"id": 79, "method": "elicitation/create", "params": form})
    assert (await script.next())["error"]["code"] == -32601
    assert told == ["newer was asked", "older was asked"]
    await connection.close()


async def test_a_question_ends_with_the_call_that_it_belongs_to() -> None:
    script = Scripted()
    connection = await opened(script, "2025-11-25", {"roots": {}})
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def never(request: Incoming) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    call = relay(connection, RelayedCall(never))
    request = await script.next()
    script.send({"id": 1, "method": "roots/list"})
    await asked.wait()
    call.cancel()
    await asyncio.wait({call})
    await cancelled.wait()
    assert (await script.next())["params"]["requestId"] == request["id"]
    await connection.close()


async def test_log_messages_on_a_connection_of_many_clients_reach_nobody_else() -> None:
    script = Scripted()
    connection = await opened(script, MODERN)
    told: list[str] = []
    message = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
    one, two, quiet = (
        relay(connection, noting(told, "one")),
        relay(connection, noting(told, "two")),
        relay(connection, RelayedCall()),
    )
    first, second, third = await script.next(), await script.next(), await script.next()
    script.send(message)  # It may be for either.
    script.answer(first, {})
    await one
    script.send(message)  # Only one call in flight wants messages.
    script.answer(second, {})
    script.answer(third, {})
    await asyncio.wait({two, quiet})
    assert told == ["two heard x"]
    await connection.close()


async def test_a_request_that_no_server_sends_is_refused() -> None:
    script = Scripted()
    connection = await opened(script, "2025-11-25", {})
    told: list[str] = []
    call = relay(connection, noting(told, "call"))
    request = await script.next()
    script.send({"id": 5, "method": "tools/list", "params": {}})
    assert (await script.next())["error"]["code"] == -32601
    script.answer(request, {})
    await call
    assert not told
    await connection.close()


@pytest.mark.parametrize("answered_first", ["one", "two"])
async def test_over_http_the_stream_says_whose_question_it_is(answered_first: str) -> None:
    """Both calls are in flight when the server asks, and the stream of the older one brings the question."""
    server = Server("s")
    go_on = {"one": asyncio.Event(), "two": asyncio.Event()}
    both = asyncio.Barrier(3)

    @server.tool
    async def ask(ctx: Context, who: str) -> str:
        await both.wait()
        await go_on[who].wait()
        return str((await ctx.elicit("?", bool)).action)

    app = server.http_app()
    pool = AsgiPool(app)
    lane = connector(HttpTarget("http://localhost/mcp", pool=pool), "2025-11-25", {"elicitation": {"form": {}}})
    connection = await lane.live()
    assert isinstance(connection, RelayConnection)
    told: list[str] = []
    calls = {
        name: relay(connection, noting(told, name), msgspec.json.encode({"name": "ask", "arguments": {"who": name}}))
        for name in ("one", "two")
    }
    await both.wait()
    go_on[answered_first].set()
    await calls[answered_first]
    assert told == [f"{answered_first} was asked"]
    for each in go_on.values():
        each.set()
    await asyncio.wait(calls.values())
    assert len(told) == 2
    await lane.close()
    app.drain()
    await pool.close()
    await app.stop()


async def test_a_question_before_the_first_call_waits_for_it() -> None:
    """Some servers ask for the roots as soon as they are initialized."""
    script = Scripted()
    connection = await opened(script, "2025-11-25", {"roots": {}})
    told: list[str] = []
    script.send({"id": 1, "method": "roots/list"})
    await asyncio.sleep(0)
    call = relay(connection, noting(told, "call"))
    first, second = await script.next(), await script.next()
    request, answer = (first, second) if "method" in first else (second, first)
    assert answer["result"]["from"] == "call"
    script.answer(request, {})
    await call
    connection.on_request = noting(told, "the client").on_request
    script.send({"id": 2, "method": "roots/list"})
    assert (await script.next())["result"]["from"] == "the client"
    await connection.close()


async def test_a_question_that_no_call_follows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.relay.FIRST_CALL_SECONDS", 0.01)
    script = Scripted()
    connection = await opened(script, "2025-11-25", {"roots": {}})
    script.send({"id": 1, "method": "roots/list"})
    assert (await script.next())["error"]["code"] == -32601
    await connection.close()


@pytest.mark.parametrize("is_broken", [False, True])
async def test_only_a_stream_that_the_server_closed_counts_as_closed(
    is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks off says nothing about what the server wants."""
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)

    async def first() -> AsyncIterator[bytes]:
        yield event(b"", id="a", retry=2)
        if is_broken:
            raise ConnectionResetError

    def resumed(request: Request) -> Reply:
        if "last-event-id" not in request.headers:
            return Reply(405, {})
        return stream(event(rpc(id=script.of("tools/call")[0].id, result={"content": []}), id="b"))

    script = Script(on(GET=resumed, tools_call=lambda request: Reply(headers=STREAM, body=first())), modern=False)
    lane = connector(HttpTarget(URL, pool=AsgiPool(script)), "2025-11-25")
    connection = await lane.live()
    assert isinstance(connection, RelayConnection)
    waits: list[int | None] = []

    async def closed(retry_ms: int | None) -> None:
        waits.append(retry_ms)

    assert bytes(await relay(connection, RelayedCall(on_close=closed))) == b'{"content":[]}'
    assert waits == ([] if is_broken else [2])
    await lane.close()
