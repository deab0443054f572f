"""Listening for changes, on both eras."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.cases import cases
from tests.client.fake import FakeServer, text

from toolwire import Server, testing
from toolwire.auth import ApiKeys
from toolwire.client import Change, Client
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    Timeout,
    TransportError,
    Unauthorized,
)
from toolwire.protocol.revisions import LEGACY, MODERN

LISTEN = "subscriptions/listen"


class Broadcast(FakeServer):
    """Keeps listen streams open, and tells of changes by the means of the revision."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            {
                LISTEN: self.listen,
                "resources/subscribe": lambda request, outlet: {},
                "resources/unsubscribe": lambda request, outlet: {},
                "tools/list": lambda request, outlet: {"tools": []},
            },
            **options,
        )
        self.open: dict[Any, asyncio.Event] = {}
        self.withheld: set[str] = set()

    async def listen(self, request: Any, outlet: Any) -> Any:
        meta = {t.SUBSCRIPTION_ID_KEY: request.id}
        accepted = request.params.notifications.to_dict()
        accepted = {key: value for key, value in accepted.items() if key not in self.withheld}
        self.open[request.id] = asyncio.Event()
        outlet.connection.notify("notifications/subscriptions/acknowledged", {"notifications": accepted, "_meta": meta})
        try:
            await self.open[request.id].wait()
            return {"resultType": "complete", "_meta": meta}
        finally:
            del self.open[request.id]

    def tell(self, method: str, stream: Any = None, **params: Any) -> None:
        if stream is not None:
            params["_meta"] = {t.SUBSCRIPTION_ID_KEY: stream}
        self.session.notify(f"notifications/{method}", params)


async def take(changes: AsyncIterator[Change], count: int) -> list[Change]:
    return [await anext(changes) for _ in range(count)]


@pytest.mark.covers("SUB-1", "STD-8")
async def test_streams_are_told_apart_by_their_ids() -> None:
    server = Broadcast()
    async with (
        testing.connect(server) as (client, wire),
        client.listen(tools=True, resources=["memo://a"]) as first,
        client.listen(tools=True) as second,
    ):
        one, two = (message["id"] for message in wire.sent if message["method"] == LISTEN)
        assert wire.sent[1]["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["memo://a"],
        }
        server.tell("tools/list_changed", str(one))  # Another JSON type is another id.
        server.tell("tools/list_changed", float(one))
        server.tell("tools/list_changed", [one])
        server.tell("tools/list_changed", 999)
        server.tell("tools/list_changed")
        server.tell("prompts/list_changed", one)  # Nobody asked for these.
        server.tell("resources/updated", one, uri="memo://a/child")
        server.tell("tools/list_changed", two)
        server.tell("tools/list_changed", one)
        assert await take(aiter(first), 2) == [Change("resource", "memo://a/child"), Change("tools")]
        assert await take(aiter(second), 1) == [Change("tools")]


@pytest.mark.covers("STD-9")
async def test_leaving_ends_the_stream_at_the_server() -> None:
    server = Broadcast()
    async with testing.connect(server) as (client, wire):
        async with client.listen(prompts=True):
            assert len(server.open) == 1
        await client.ping()
        assert server.open == {}
        assert wire.sent[-2]["method"] == "notifications/cancelled"
        assert wire.sent[-2]["params"]["requestId"] == wire.sent[1]["id"]


async def test_a_plain_loop_opens_and_closes_by_itself() -> None:
    server = Broadcast()
    async with testing.connect(server) as (client, wire):

        async def first() -> Change:
            async for change in client.listen(tools=True):
                return change
            raise AssertionError

        waiting = asyncio.ensure_future(first())
        await wire.until(lambda way, message: "acknowledged" in message.get("method", ""))
        server.tell("tools/list_changed", wire.sent[-1]["id"])
        assert await waiting == Change("tools")
        await wire.until(lambda way, message: message.get("method") == "notifications/cancelled")


@pytest.mark.parametrize("how", ["result", "cancelled"])
async def test_the_server_ends_a_stream_by_result_or_cancellation(how: str) -> None:
    server = Broadcast()
    async with testing.connect(server) as (client, _), client.listen(tools=True) as changes:
        [(identifier, end)] = server.open.items()
        server.tell("tools/list_changed", identifier)
        if how == "result":
            end.set()
        else:
            server.tell("cancelled", requestId=identifier)
        assert [change async for change in changes] == [Change("tools")]  # What came before counts.


@pytest.mark.covers("SUB-4")
async def test_what_the_server_withholds_is_known(caplog: pytest.LogCaptureFixture) -> None:
    server = Broadcast()
    server.withheld = {"promptsListChanged"}
    with caplog.at_level(logging.WARNING):
        async with Client(server) as client, client.listen(tools=True, prompts=True) as changes:
            assert changes.accepted == t.SubscriptionFilter(tools_list_changed=True)
    assert "will not announce changes of: prompts" in caplog.text


async def test_a_refused_stream_raises_at_once() -> None:
    def refuse(request: Any, outlet: Any) -> Any:
        raise ProtocolError(-32603, "too many streams")

    async with Client(FakeServer({LISTEN: refuse})) as client:
        with pytest.raises(ProtocolError, match="too many streams"):
            async with client.listen(tools=True):
                pass


async def test_a_stream_that_is_never_acknowledged_times_out() -> None:
    async def silent(request: Any, outlet: Any) -> Any:
        await asyncio.Event().wait()

    async with Client(FakeServer({LISTEN: silent}), timeout=0.01) as client:
        with pytest.raises(Timeout, match="acknowledge"):
            async with client.listen(tools=True):
                pass


async def test_equal_changes_that_nobody_took_count_once() -> None:
    server = Broadcast()
    async with testing.connect(server) as (client, _), client.listen(tools=True, resources=["a:"]) as changes:
        [identifier] = server.open
        for _ in range(3):
            server.tell("tools/list_changed", identifier)
            server.tell("resources/updated", identifier, uri="a:1")
        server.open[identifier].set()
        assert [change async for change in changes] == [Change("tools"), Change("resource", "a:1")]


async def test_a_flood_of_changes_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.listen.MAX_WAITING", 5)
    server = Broadcast()
    async with testing.connect(server) as (client, _), client.listen(resources=["a:"]) as changes:
        [identifier] = server.open
        for number in range(9):
            server.tell("resources/updated", identifier, uri=f"a:{number}")
        taken = aiter(changes)
        assert len(await take(taken, 5)) == 5
        with pytest.raises(Exception, match="nobody took"):
            await anext(taken)


@pytest.mark.covers("1.10.6", "1.10.5", "T-14")
@cases("revision", LEGACY)
async def test_before_2026_the_same_loop_subscribes(revision: str) -> None:
    server = Broadcast()
    async with testing.connect(server, revision=revision) as (client, wire):
        async with (
            client.listen(resources_list=True, resources=["memo://a", "memo://b"]) as one,
            client.listen(resources=["memo://b"]) as two,
        ):
            subscribed = [m["params"]["uri"] for m in wire.sent if m["method"] == "resources/subscribe"]
            assert subscribed == ["memo://a", "memo://b"]
            server.tell("resources/updated", uri="memo://a/child")
            server.tell("resources/updated", uri="memo://b")
            server.tell("resources/updated", uri="memo://bb")  # A child of none: told to all.
            server.tell("resources/list_changed")
            server.tell("tools/list_changed")
            a, b, bb = (Change("resource", f"memo://{path}") for path in ("a/child", "b", "bb"))
            assert await take(aiter(one), 4) == [a, b, bb, Change("resources")]
            assert await take(aiter(two), 2) == [b, bb]
        ended = [m["params"]["uri"] for m in wire.sent if m["method"] == "resources/unsubscribe"]
        assert sorted(ended) == ["memo://a", "memo://b"]


@pytest.mark.covers("1.10.5", "T-14")
async def test_subscribe_and_unsubscribe_are_operations_too() -> None:
    server = Broadcast()
    async with testing.connect(server, revision="2025-11-25") as (client, wire):
        await client.subscribe("memo://a")
        async with client.listen(resources=["memo://a"]):
            pass
        assert [m["method"] for m in wire.sent].count("resources/unsubscribe") == 0
        await client.unsubscribe("memo://a")
        assert wire.sent[-1]["method"] == "resources/unsubscribe"
    async with Client(server) as client:
        with pytest.raises(NotSupported, match="does not exist on 2026-07-28"):
            await client.subscribe("memo://a")


@pytest.mark.covers("1.10.5")
async def test_nobody_ends_the_subscription_of_another() -> None:
    def subscribe(request: Any, outlet: Any) -> Any:
        if request.params.uri == "memo://gone":
            raise ProtocolError(-32002, "no such resource")
        return {}

    server = Broadcast()
    server.handlers["resources/subscribe"] = subscribe
    async with testing.connect(server, revision="2025-11-25") as (client, wire):
        async with client.listen(resources=["memo://a"]):
            with pytest.raises(ProtocolError, match="no such resource"):
                async with client.listen(resources=["memo://gone", "memo://a"]):
                    pass
            await client.unsubscribe("memo://a")
            for _ in range(2):
                await client.subscribe("memo://a")
            await client.unsubscribe("memo://a")
            assert "resources/unsubscribe" not in [m["method"] for m in wire.sent]
        assert wire.sent[-1]["method"] == "resources/unsubscribe"


@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_what_the_server_does_not_announce_can_not_be_listened_for(revision: str) -> None:
    server = Broadcast(capabilities={"tools": {"listChanged": False}, "resources": {"subscribe": True}})
    async with testing.connect(server, revision=revision) as (client, wire):
        before = len(wire.sent)
        with pytest.raises(NotSupported, match=r"tools\.listChanged"):
            async with client.listen(tools=True):
                pass
        assert len(wire.sent) == before
        with pytest.raises(ValueError, match="something to listen for"):
            client.listen()
        with pytest.raises(TypeError, match="list of URIs"):
            client.listen(resources="memo://a")


@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_closing_the_client_ends_the_loop_quietly(revision: str) -> None:
    server = Broadcast()
    client = await Client(server, revision=revision).connect()
    async with client.listen(tools=True) as changes:
        waiting = asyncio.ensure_future(anext(aiter(changes), None))
        await client.ping()
        await client.close()
        assert await waiting is None


@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_a_lost_connection_is_an_error(revision: str) -> None:
    server = Broadcast()
    async with Client(server, revision=revision) as client, client.listen(tools=True) as changes:
        server.session.end()
        with pytest.raises(Exception) as caught:
            await anext(aiter(changes))
        assert isinstance(caught.value, OutcomeUnknown | OSError) or "stopped serving" in str(caught.value)


@pytest.mark.covers("R7")
async def test_a_listened_change_refreshes_known_tools() -> None:
    server = Broadcast()
    server.handlers["tools/call"] = lambda request, outlet: text("")
    async with testing.connect(server) as (client, wire), client.listen(tools=True):
        await client.list_tools()
        first = wire.sent[-1]["id"]
        server.tell("tools/list_changed", next(iter(server.open)))
        await wire.until(lambda way, message: message.get("method") == "tools/list" and message["id"] != first)


RESTARTS = """
import json, os, sys
KEY = "io.modelcontextprotocol/subscriptionId"
def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    method, id = message["method"], message.get("id")
    if method == "server/discover":
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        send(id=id, result={"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
    elif method == "subscriptions/listen":
        meta, wanted = {KEY: id}, message["params"]["notifications"]
        with open(sys.argv[1], "a") as notes:
            notes.write("x")
        send(method="notifications/subscriptions/acknowledged", params={"_meta": meta, "notifications": wanted})
        send(method="notifications/tools/list_changed", params={"_meta": meta})
    elif method == "tools/call":
        os._exit(1)
"""


@pytest.mark.covers("STD-13", "SUB-9", "STD-12")
async def test_a_stream_is_opened_again_after_a_crash(tmp_path: Path) -> None:
    script, notes = tmp_path / "server.py", tmp_path / "notes"
    script.write_text(RESTARTS, encoding="utf-8")
    async with Client([sys.executable, str(script), str(notes)]) as client:
        async with client.listen(tools=True, resources=["memo://a"]) as changes:
            taken = aiter(changes)
            assert await anext(taken) == Change("tools")
            with pytest.raises(OutcomeUnknown):
                await client.call_tool("crash")
            # Nobody knows what was missed, so everything changed; then the new stream goes on.
            assert await take(taken, 3) == [Change("tools"), Change("resource", "memo://a"), Change("tools")]
        assert notes.read_text() == "xx"


async def test_a_server_that_dies_of_being_listened_to_is_started_again_once(tmp_path: Path) -> None:
    script, notes = tmp_path / "server.py", tmp_path / "notes"
    quiet = 'send(method="notifications/tools/list_changed", params={"_meta": meta})'
    script.write_text(RESTARTS.replace(quiet, "os._exit(1)"), encoding="utf-8")
    async with Client([sys.executable, str(script), str(notes)]) as client:
        with pytest.raises(TransportError):
            async for _ in client.listen(tools=True):
                pass
    assert notes.read_text() == "xx"


def test_a_change_is_a_value() -> None:
    assert Change("tools") == Change("tools")
    assert len({Change("resource", "a:"), Change("resource", "a:"), Change("resource", "b:")}) == 2
    members = {"kind": "tools", "uri": None, "method": None, "params": None}
    assert msgspec.json.decode(msgspec.json.encode(Change("tools"))) == members


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
async def test_a_listener_whose_key_is_gone_is_told_so(revision: str) -> None:
    key = "a-key-of-24-characters-or-more"
    server = Server("keyed", auth=ApiKeys({key: "ann"}))
    server.tool(lambda: "done", name="work")
    app = server.http_app()
    pool = AsgiPool(app)
    target = HttpTarget("http://localhost/mcp", pool=pool, headers={"authorization": f"Bearer {key}"})
    async with Client(target, revision=revision) as client, client.listen(tools=True) as changes:
        server.apply_settings(replace(server.settings, auth=ApiKeys({key[::-1]: "ann"})))
        with pytest.raises(Unauthorized):
            async for _ in changes:
                pass
    app.drain()
    await app.stop()
    await pool.close()
