"""Roots of clients, for servers that ask for them when they are initialized and serve all calls by them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.gateway.backs import until
from tests.gateway.test_sessions import replicas

from toolwire import Client, testing
from toolwire.client.http_target import HttpTarget
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import ProtocolError, TransportError
from toolwire.protocol.revisions import MODERN
from toolwire.wire.session import Session

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")

LEGACY = "2025-11-25"
TOOL = t.Tool(name="allowed", input_schema={"type": "object"})


class Filesystem(FakeServer):
    """A server of 2025-11-25 that reads the roots of each client when it is initialized, and when they change."""

    def __init__(self) -> None:
        super().__init__(
            {"tools/list": lambda request, outlet: t.ListToolsResult(tools=[TOOL]), "tools/call": self.call},
            capabilities={"tools": {}},
            revisions=(LEGACY,),
        )
        self.roots: dict[Session, list[str]] = {}
        self.failures: list[Exception] = []
        self.running: set[asyncio.Task[None]] = set()

    async def call(self, request: Any, outlet: Any) -> Any:
        return text(*self.roots.get(outlet.connection, ["none"]))

    def notified(self, notice: Notice, session: Session) -> None:
        super().notified(notice, session)
        if notice.method in ("notifications/initialized", "notifications/roots/list_changed"):
            reading = asyncio.ensure_future(self.read(session))
            self.running.add(reading)
            reading.add_done_callback(self.running.discard)

    async def read(self, session: Session) -> None:
        try:
            raw = await session.request("roots/list", t.RequestParams())
        except ProtocolError as error:
            self.failures.append(error)
            return
        except TransportError:
            return  # The connection that reads the lists has no client, and ended.
        assert raw is not None
        self.roots[session] = [root.uri for root in t.decode(t.ListRootsResult, raw).roots]

    def changes(self) -> int:
        return sum(notice.method == "notifications/roots/list_changed" for notice in self.notices)


def before(server: Filesystem) -> Gateway:
    gateway = Gateway("front")
    gateway.add("b", ServerTarget(server))  # type: ignore[arg-type]
    return gateway


@pytest.mark.covers("GW-3.8")
@cases("over", ["memory", "stdio", "http"])
@cases("front", [MODERN, LEGACY, "2025-06-18"])
async def test_the_first_call_is_served_by_the_roots_of_its_client(front: str, over: Any) -> None:
    server = Filesystem()
    async with testing.connect(before(server), revision=front, over=over, roots=["file:///one"]) as (client, _):
        for _ in range(2):
            assert (await client.call_tool("b_allowed")).text == "file:///one"


@pytest.mark.covers("GW-3.8")
@cases("over", ["memory", "stdio", "http"])
@cases("front", [MODERN, LEGACY, "2025-06-18"])
async def test_the_next_call_is_served_by_changed_roots(front: str, over: Any) -> None:
    """2026-07-28 has no notification of a change. There the roots of each call are asked for."""
    server = Filesystem()
    async with testing.connect(before(server), revision=front, over=over, roots=["file:///one"]) as (client, _):
        assert (await client.call_tool("b_allowed")).text == "file:///one"
        await client.set_roots(["file:///two", "file:///three"])
        assert (await client.call_tool("b_allowed")).text == "file:///two\nfile:///three"


class Remembering(Filesystem):
    """A server that reads the roots of each client in its first call, and when they change."""

    async def call(self, request: Any, outlet: Any) -> Any:
        if outlet.connection not in self.roots:
            await self.read(outlet.connection)
        return await super().call(request, outlet)

    def notified(self, notice: Notice, session: Session) -> None:
        if session in self.roots:
            super().notified(notice, session)


@cases("over", ["memory", "stdio", "http"])
@cases("front", [MODERN, LEGACY])
async def test_a_server_that_keeps_the_roots_of_a_call_gets_changed_ones(front: str, over: Any) -> None:
    server = Remembering()
    async with testing.connect(before(server), revision=front, over=over, roots=["file:///one"]) as (client, _):
        assert (await client.call_tool("b_allowed")).text == "file:///one"
        for uri in ("file:///two", "file:///three"):
            await client.set_roots([uri])
            assert (await client.call_tool("b_allowed")).text == uri


@cases("over", ["memory", "http"])
async def test_a_change_of_roots_reaches_the_server_without_a_call(over: Any) -> None:
    server = Filesystem()
    async with testing.connect(before(server), revision=LEGACY, over=over, roots=["file:///one"]) as (client, _):
        await client.call_tool("b_allowed")
        await client.set_roots(["file:///two"])
        await until(lambda: server.changes() == 1)
        await client.call_tool("b_allowed")


async def test_a_change_of_roots_that_another_replica_gets_reaches_the_server() -> None:
    servers = Filesystem(), Filesystem()
    backs: list[dict[str, Any]] = [{"b": ServerTarget(server)} for server in servers]  # type: ignore[arg-type]
    async with replicas(backs, LEGACY) as balancer:
        target = HttpTarget("http://localhost/mcp", pool=balancer)
        async with Client(target, revision=LEGACY, roots=["file:///one"]) as client:
            assert (await client.call_tool("b_allowed")).text == "file:///one"
            balancer.current = 1
            await client.set_roots(["file:///two"])
            await until(lambda: servers[0].changes() == 1)
            balancer.current = 0
            assert (await client.call_tool("b_allowed")).text == "file:///two"
    assert servers[1].changes() == 0


async def test_roots_of_one_client_are_not_those_of_another() -> None:
    server = Filesystem()
    gateway = before(server)
    async with (
        testing.connect(gateway, revision=LEGACY, roots=["file:///one"]) as (one, _),
        testing.connect(gateway, revision=LEGACY, roots=["file:///two"]) as (two, _),
        testing.connect(gateway, revision=LEGACY) as (none, _),
    ):
        for _ in range(2):
            assert (await one.call_tool("b_allowed")).text == "file:///one"
            assert (await two.call_tool("b_allowed")).text == "file:///two"
            assert (await none.call_tool("b_allowed")).text == "none"
            await one.set_roots(["file:///one"])
    assert server.changes() <= 2


async def test_a_server_that_answers_no_ping_is_called_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.relay.PING_SECONDS", 0.01)
    monkeypatch.setattr("toolwire.client.relay.ANSWER_SECONDS", 0.01)
    server, answered = Filesystem(), asyncio.Event()

    async def roots() -> list[str]:
        await answered.wait()
        return ["file:///one"]

    async with testing.connect(before(server), revision=LEGACY, roots=roots) as (client, _):
        assert (await client.call_tool("b_allowed")).text == "none"
        answered.set()
        await until(lambda: server.roots)
        assert (await client.call_tool("b_allowed")).text == "file:///one"
    assert not server.failures
