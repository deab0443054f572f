"""Clients of a gateway that leave notifications unread: memory stays bounded, and answers arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.client.fake import FakeServer
from tests.client.scripted_http import DISCOVERED, STREAM, URL, Reply, Request, Script, event, result, rpc
from tests.http.httpclient import Answer, HttpClient, SessionClient
from tests.http.modernclient import ModernClient
from tests.wireclient import modern_meta

from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.revisions import MODERN
from toolwire.util.out_queue import CONGESTED, FULL

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")

NOTES = "com.example/notes"
MESSAGE = "x" * 100_000
# Ten megabytes: more than twice what is queued before notifications are dropped.
COUNT = 100
TOOLS = {
    "tools": [{"name": "flood", "inputSchema": {"type": "object"}}],
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
EXTENDED: dict[str, Any] = {"tools": {}, "logging": {}, "extensions": {NOTES: {}}}

FRONTS = pytest.mark.parametrize("front", [MODERN, "2025-11-25"])
KINDS = ("progress", "log", "extension")


def notification(kind: str, token: Any, number: int) -> tuple[str, dict[str, Any]]:
    if kind == "progress":
        return "notifications/progress", {"progressToken": token, "progress": number, "message": MESSAGE}
    if kind == "log":
        return "notifications/message", {"level": "error", "data": MESSAGE}
    return "notifications/notes/touched", {"text": MESSAGE}


class HttpBack:
    """A modern server that floods the stream of each call, as fast as it is read."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.sent = 0
        self.script = Script(self._answer)

    @property
    def target(self) -> HttpTarget:
        return HttpTarget(URL, pool=AsgiPool(self.script))

    def _answer(self, request: Request) -> Any:
        if request.rpc == "server/discover":
            return result(request, **{**DISCOVERED, "capabilities": EXTENDED})
        if request.rpc == "tools/list":
            return result(request, **TOOLS)
        return Reply(headers=STREAM, body=self._flood(request)) if request.rpc == "tools/call" else None

    async def _flood(self, request: Request) -> AsyncIterator[bytes]:
        token = request.message["params"]["_meta"].get("progressToken")
        for number in range(COUNT):
            method, params = notification(self._kind, token, number)
            self.sent += 1
            yield event(rpc(method=method, params=params))
        yield event(rpc(id=request.id, result=DONE))


class PipeBack:
    """A server that floods a connection which all calls share, and that waits for no reader."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.sent = 0
        handlers = {"tools/list": lambda request, outlet: Raw(msgspec.json.encode(TOOLS)), "tools/call": self._call}
        self.target = FakeServer(handlers, capabilities=EXTENDED)

    async def _call(self, request: Any, outlet: Any) -> Raw:
        for number in range(COUNT):
            method, params = notification(self._kind, request.progress_token, number)
            outlet.connection._write(rpc(method=method, params=params))
            self.sent += 1
            await asyncio.sleep(0)
        return Raw(msgspec.json.encode(DONE))


async def flooded(app: Any, front: str) -> tuple[HttpClient, Answer]:
    """Call the tool, and stop reading. Return when something waits to be read."""
    if front == MODERN:
        modern = ModernClient(app)
        meta = modern_meta(log_level="debug", progress_token="mine", capabilities={"extensions": {NOTES: {}}})
        client, call = modern, modern.start_call("back_flood", meta=meta)
    else:
        legacy = SessionClient(app)
        await legacy.initialize(front, {"extensions": {NOTES: {}}})
        client, call = legacy, legacy.start_call("back_flood", _meta={"progressToken": 1})
    call.stop_reading()
    await call.until(lambda: call.stalled)
    return client, call


async def quiet(count: Any) -> int:
    """Wait until a count has not changed for many turns of the loop, and return it."""
    before, same = -1, 0
    while same < 100:
        await asyncio.sleep(0)
        same = same + 1 if count() == before else 0
        before = count()
    return before


@pytest.mark.slow
@FRONTS
@pytest.mark.parametrize("kind", KINDS)
async def test_gateway_stops_reading_from_a_server_whose_client_is_behind(front: str, kind: str) -> None:
    back = HttpBack(kind)
    gateway = Gateway("front")
    gateway.add("back", back.target)
    app = gateway.http_app()
    client, call = await flooded(app, front)
    assert await quiet(lambda: back.sent) * len(MESSAGE) < 2 * FULL
    call.read_on()
    await call.finished()
    assert call.answer()["result"]["content"][0]["text"] == "done"
    # Nothing was dropped, because nothing was read that could not be queued.
    assert len(call.messages) > COUNT
    await client.close()
    await app.stop()


@FRONTS
@pytest.mark.parametrize("kind", ["progress", "log"])
async def test_gateway_drops_reports_of_a_shared_connection_whose_client_is_behind(front: str, kind: str) -> None:
    gateway = Gateway("front")
    back = PipeBack(kind)
    gateway.add("back", back.target)
    app = gateway.http_app()
    client, call = await flooded(app, front)
    assert await quiet(lambda: back.sent) == COUNT
    call.read_on()
    await call.finished()
    assert call.answer()["result"]["content"][0]["text"] == "done"
    assert 0 < (len(call.messages) - 1) * len(MESSAGE) < 3 * CONGESTED
    await client.close()
    await app.stop()


@FRONTS
async def test_gateway_ends_a_call_whose_client_leaves_an_extension_unread(front: str) -> None:
    gateway = Gateway("front")
    back = PipeBack("extension")
    gateway.add("back", back.target)
    app = gateway.http_app()
    client, call = await flooded(app, front)
    # The gateway has cancelled the call at the server.
    assert await quiet(lambda: back.sent) < COUNT
    call.read_on()
    await call.finished()
    assert "unread" in call.answer()["error"]["message"]
    assert (len(call.messages) - 1) * len(MESSAGE) < 2 * FULL
    await client.close()
    await app.stop()
