"""Replicas of a gateway, each with the same file, behind a balancer that sends each request anywhere.

The file changes, and the replicas notice it at different moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.gateway.test_held_calls import Asking, accept, answer, call
from tests.gateway.test_sessions import SECRET, Balancer, Counting, SharedKV

from toolwire import Client
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.gateway import Gateway
from toolwire.gateway.config import gateway_of, making
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.revisions import MODERN
from toolwire.stores import Stores

ERAS = (MODERN, "2025-11-25")


class RoundRobin(Balancer):
    """Sends each request to the next replica."""

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self.current = (self.current + 1) % len(self.pools)
        return await super().send(method, url, headers, body)


class Fleet:
    """Three replicas, and the servers that their file may name by `http://NAME/mcp`."""

    def __init__(self) -> None:
        self.balancer = RoundRobin()
        self.gateways: list[Gateway] = []

    def client(self, front: str, **options: Any) -> Client:
        return Client(HttpTarget("http://localhost/mcp", pool=self.balancer), revision=front, **options)

    async def reload(self, number: int, file: dict[str, Any]) -> None:
        await self.gateways[number].reload(file)


@asynccontextmanager
async def fleet(file: dict[str, Any], servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    memory, running = Stores.memory(), Fleet()
    # One that other processes reach, too.
    stores = Stores(SharedKV(memory.kv), memory.log, memory.bus, memory.queue)
    apps = {name: server.http_app(allowed_hosts=[name]) for name, server in servers.items()}
    pools = {name: AsgiPool(app) for name, app in apps.items()}

    def target_of(name: str, entry: Any) -> Target:
        return HttpTarget(entry.url, pool=pools[entry.url.removeprefix("http://").removesuffix("/mcp")])

    monkeypatch.setattr(making, "target_of", target_of)
    async with AsyncExitStack() as stack:
        for name, app in apps.items():
            stack.push_async_callback(app.stop)
            stack.push_async_callback(pools[name].close)
            stack.callback(app.drain)
        for _ in range(3):
            gateway = gateway_of(file, stores=stores, secret=SECRET)
            app = gateway.http_app()
            stack.push_async_callback(app.stop)
            stack.callback(app.drain)
            running.gateways.append(gateway)
            running.balancer.pools.append(AsgiPool(app))
        stack.push_async_callback(running.balancer.close)
        yield running


def config(*, back: str, **urls: str) -> dict[str, Any]:
    servers = {name: {"url": f"http://{host}/mcp", "revision": back} for name, host in urls.items()}
    return {"mcpServers": servers, "gateway": {"name": "front"}}


@pytest.mark.covers("GW-6.7")
@pytest.mark.parametrize(("front", "back"), [(front, back) for front in ERAS for back in ERAS])
async def test_calls_go_on_while_one_replica_after_the_other_takes_the_change_over(
    front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Counting(), Counting()
    before, after = config(back=back, a="one"), config(back=back, a="one", b="two")
    async with (
        fleet(before, {"one": one.server, "two": two.server}, monkeypatch) as running,
        running.client(front) as client,
    ):
        count = 0
        for number in range(3):
            for _ in range(4):
                count += 1
                said = (await client.call_tool("a_count")).text
                # A legacy client has one session at the server, whichever replica a call comes to.
                assert said == str(count) or back == MODERN or front == MODERN
            await running.reload(number, after)
        assert {tool.name for tool in await client.list_tools()} == {"a_count", "b_count"}
        for _ in range(3):
            await client.call_tool("b_count")
        assert 404 not in running.balancer.statuses


@pytest.mark.covers("GW-6.7")
@pytest.mark.parametrize("front", ERAS)
async def test_a_changed_server_never_gets_the_session_of_another(front: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Counting(), Counting()
    before, after = config(back="2025-11-25", a="one"), config(back="2025-11-25", a="two")
    async with (
        fleet(before, {"one": one.server, "two": two.server}, monkeypatch) as running,
        running.client(front) as client,
    ):
        for _ in range(3):
            await client.call_tool("a_count")
        sessions = set(one.seen)
        for number in range(3):
            await running.reload(number, after)
            # The replicas differ for a while. A session that belongs to the old server ends with 404 at those that
            # have the new one, and the client begins another one by itself.
            for _ in range(3):
                await client.call_tool("a_count")
        assert (404 in running.balancer.statuses) is (front != MODERN)
        assert two.seen and not sessions & set(two.seen)
        before_last = dict(one.seen)
        for _ in range(3):
            await client.call_tool("a_count")
        assert one.seen == before_last


@pytest.mark.covers("GW-6.7")
async def test_questions_are_answered_at_another_replica_after_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asking, other = Asking(), Counting()
    before = config(back="2025-11-25", a="one")
    after = {**config(back="2025-11-25", a="one", b="two"), "gateway": {"name": "front", "title": "T"}}
    async with (
        fleet(before, {"one": asking.server, "two": other.server}, monkeypatch) as running,
        running.client(MODERN, elicit=answer) as client,
    ):
        asked = await call(client, "a_book", {"seats": 1})
        await asyncio.gather(*(running.reload(number, after) for number in range(3)))
        asked = await call(client, "a_book", {"seats": 1}, asked, **accept(asked))
        done = await call(client, "a_book", {"seats": 1}, asked, **accept(asked, "Anna"))
        assert done["content"][0]["text"] == "1 True Anna"
        assert asking.begun == 1


async def test_questions_reach_a_server_that_another_replica_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking()
    before = config(back="2025-11-25", a="one")
    after = config(back="2025-11-25", a="one")
    after["mcpServers"]["a"]["timeout"] = 30.0
    async with (
        fleet(before, {"one": asking.server}, monkeypatch) as running,
        running.client(MODERN, elicit=answer) as client,
    ):
        asked = await call(client, "a_book", {"seats": 1})
        for number in range(3):
            await running.reload(number, after)
        asked = await call(client, "a_book", {"seats": 1}, asked, **accept(asked))
        done = await call(client, "a_book", {"seats": 1}, asked, **accept(asked, "Anna"))
        assert done["content"][0]["text"] == "1 True Anna"
        assert asking.begun == 1
