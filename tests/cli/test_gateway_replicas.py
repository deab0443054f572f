"""`toolwire gateway FILE` on several machines: the same file, a Redis, and a balancer without sticky routing."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest
from tests import redis_server
from tests.gateway.test_sessions import Counting
from tests.http_process import Served, started

from toolwire import Client, testing
from toolwire.client.http_target import HttpTarget
from toolwire.http1.pool import HttpPool, Pool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.revisions import MODERN

COMMAND = (sys.executable, "-m", "toolwire", "gateway")


class RoundRobin(Pool):
    """Sends each request to the next port."""

    def __init__(self, *ports: int) -> None:
        self._pool = HttpPool()
        self._ports = ports
        self._next = count()
        self.statuses: list[int] = []

    @property
    def at_once(self) -> int | None:
        return None

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        port = self._ports[next(self._next) % len(self._ports)]
        response = await self._pool.send(method, url.replace(":1/", f":{port}/"), headers, body)
        self.statuses.append(response.status)
        return response

    async def close(self) -> None:
        await self._pool.close()


@pytest.mark.covers("GW-6.7")
async def test_replicas_serve_the_same_clients_while_their_file_changes(tmp_path: Path) -> None:
    counting, file = Counting(), tmp_path / "gateway.json"
    with redis_server.running() as redis:
        async with testing.connect(counting.server, over="port") as (direct, _):
            back = {"url": repr(direct).removeprefix("<Client of ").partition(",")[0], "revision": "2025-11-25"}
            table = {"stores": redis.url, "secret": "a secret of all replicas, 32 bytes"}

            def write(**servers: object) -> None:
                file.write_text(json.dumps({"mcpServers": {"a": back, **servers}, "gateway": table}))

            write()
            async with started([*COMMAND, file, "--port", "0"]) as one, started([*COMMAND, file, "--port", "0"]) as two:
                pool = RoundRobin(one.port, two.port)
                clients = [
                    Client(HttpTarget("http://127.0.0.1:1/mcp", pool=pool), revision=front)
                    for front in (MODERN, "2025-11-25")
                ]
                async with clients[0] as modern, clients[1] as legacy:
                    assert [(await legacy.call_tool("a_count")).text for _ in range(4)] == ["1", "2", "3", "4"]
                    write(b=back)
                    # Each of them notices the change in its own time, and calls go on meanwhile.
                    noticed = asyncio.gather(said(one, "added: b"), said(two, "added: b"))
                    number = 4
                    while not noticed.done():
                        number += 1
                        assert (await legacy.call_tool("a_count")).text == str(number)
                        await modern.call_tool("a_count")
                    for client in (modern, legacy):
                        assert {tool.name for tool in await client.list_tools()} == {"a_count", "b_count"}
                        for _ in range(2):
                            await client.call_tool("b_count")
                    assert not {404, 500, 502} & set(pool.statuses)
                await pool.close()


async def said(served: Served, text: str) -> None:
    while text not in await served.line():
        pass
