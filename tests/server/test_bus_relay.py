"""Changes that pass between the processes of one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.cases import cases
from tests.http.httpclient import caught_up, serving
from tests.wireclient import LEGACY, MODERN, WireClient, connect

from toolwire import Resource, Server
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, StoreFailed, Stores

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


# --- processes with other lists ---


def release(version: int, stores: Stores) -> Server:
    """A release of a server. The second one has another tool, the third one another text of a resource."""
    server = Server("almanac", stores=stores, secret="s" * 32)

    @server.tool
    async def today() -> str:
        return "sunny"

    server.add(Resource(NOTE, content="sunny", name=NOTE, description="of the third" if version == 3 else "a note"))
    if version == 2:

        @server.tool
        async def tomorrow() -> str:
            return "rainy"

    return server


@cases(("version", "told"), [(1, []), (2, ["tools"]), (3, ["resources"])])
@cases("era", ["session", "stream", *LEGACY[-1:]])
async def test_clients_look_again_when_a_process_with_other_lists_starts_or_stops(
    version: int, told: list[str], era: str
) -> None:
    stores = Stores.memory()
    old, new = release(1, stores), release(version, stores)
    families = ("tools", "prompts", "resources")
    async with serving(old.http_app(), new.http_app()) as [here, there], AsyncExitStack() as stack:
        await here.initialize()

        if era == "session":
            opened = await here.get()

            def heard() -> list[str]:
                return [message["method"].split("/")[1] for message in opened.messages]

        else:
            client = await stack.enter_async_context(connect(old, era if era in LEGACY else MODERN))
            if era == "stream":
                wanted = {f"{family}ListChanged": True for family in families}
                client.start("subscriptions/listen", {"notifications": wanted})
                await client.notified("notifications/subscriptions/acknowledged")

            def heard() -> list[str]:
                return [family for family in families for _ in client.of(f"notifications/{family}/list_changed")]

        await there.initialize()  # Which starts it.
        await caught_up(here.app)
        while heard() != told:
            await asyncio.sleep(0)
        await there.app.stop()
        await caught_up(here.app)
        while heard() != told * 2:
            await asyncio.sleep(0)
        # Whatever else there was to say would have come before this.
        old.notify_changed("resources")
        while not (said := heard()) or len(said) <= len(told * 2):
            await asyncio.sleep(0)
        assert sorted(said) == sorted([*told * 2, "resources"])


async def test_a_bus_that_fails_does_not_keep_a_server_from_starting_and_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailingBus(MemoryBus):
        async def publish(self, topic: str, data: bytes) -> None:
            raise StoreFailed("It is not reached.")

    stores = Stores(MemoryKV(), MemoryLog(), FailingBus())
    async with serving(release(1, stores).http_app()) as [client]:
        await client.initialize()
    text = "the other processes do not know the lists of this one: It is not reached."
    assert caplog.messages.count(text) == 2
