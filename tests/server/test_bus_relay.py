"""Changes that pass between the processes of one server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.http.httpclient import serving
from tests.wireclient import LEGACY, MODERN, WireClient, connect

from toolwire import Resource, Server
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores

NOTE, OTHER = "note://today", "note://yesterday"
UPDATED = "notifications/resources/updated"
LIST_CHANGED = "notifications/resources/list_changed"


@pytest.fixture
async def servers() -> AsyncIterator[list[Server]]:
    """Two that stand for two processes, on a bus that drops what comes too fast."""
    stores = Stores(MemoryKV(), MemoryLog(), MemoryBus(max_pending=4))
    resources = [Resource(uri, content="sunny", name=uri) for uri in (NOTE, OTHER)]
    servers = [Server("almanac", stores=stores, resources=resources) for _ in range(2)]
    async with serving(*(server.http_app() for server in servers)) as clients:
        for client in clients:
            await client.initialize()
        yield servers


async def miss(server: Server, client: WireClient) -> None:
    """Let more happen than the bus takes: what matters comes first, and is dropped."""
    server.notify_updated(NOTE)
    for number in range(20):
        server.notify_updated(f"other://{number}")
    await client.notified(LIST_CHANGED)
    await client.result("resources/list")  # Everything that was to be said has been: an answer comes after it.


@pytest.mark.parametrize("revision", LEGACY)
async def test_who_subscribed_is_told_that_updates_may_have_been_missed(revision: str, servers: list[Server]) -> None:
    here, there = servers
    async with connect(here, revision) as client:
        await client.result("resources/subscribe", {"uri": NOTE})
        await miss(there, client)
        assert client.of(UPDATED) == [{"uri": NOTE}]


async def test_who_listens_is_told_that_updates_may_have_been_missed(servers: list[Server]) -> None:
    here, there = servers
    async with connect(here, MODERN) as client:
        wanted = {"resourcesListChanged": True, "resourceSubscriptions": [NOTE, OTHER]}
        client.start("subscriptions/listen", {"notifications": wanted})
        await client.notified("notifications/subscriptions/acknowledged")
        await miss(there, client)
        assert sorted(each["uri"] for each in client.of(UPDATED)) == [NOTE, OTHER]
