"""Answers of a client that we did not write while Redis is unreachable, with two replicas: each call ends.

The client sends an answer once, and ignores whether the server took it. So the server has to deliver it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from tests.http.test_answers_in_outage import Replicas
from tests.interop import peers
from tests.patience import patience
from tests.redis_server import RedisServer, running

# Starting a client takes seconds, and on a busy machine many.
pytestmark = pytest.mark.timeout(180)
NAMES = ("one", "two", "three", "four")
#: How long Redis stays unreachable after the answers have come.
OUTAGE_SECONDS = 3.0


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


class Routed(Replicas):
    """Two replicas: the first has all calls, and the answers go to one of them."""

    def __init__(self, url: str, answers_to: int) -> None:
        super().__init__(url, timeout=1.0)
        self.answers = 0
        self._answers_to = answers_to

    @property
    def kept(self) -> int:
        """The number of answers that wait for Redis."""
        return sum(len(app.sessions._late) for app in self.apps)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        messages = [await receive()] if scope["type"] == "http" else []
        while messages and messages[-1].get("more_body"):
            messages.append(await receive())
        body = b"".join(each.get("body", b"") for each in messages)
        is_answer = bool(body) and "method" not in json.loads(body)
        self.answers += is_answer

        async def replay() -> Any:
            return messages.pop(0) if messages else await receive()

        await self.apps[self._answers_to if is_answer else 0](scope, replay, send)


@asynccontextmanager
async def serving(replicas: Routed) -> AsyncIterator[str]:
    """Serve both replicas at one address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(replicas, lifespan="off", log_level="warning", timeout_graceful_shutdown=1))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(replicas.close)
        for app in replicas.apps:
            await stack.enter_async_context(app.lifespan())
        task = asyncio.ensure_future(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await task


@pytest.mark.parametrize("answers_to", [0, 1], ids=["the process that asked", "another process"])
async def test_calls_of_a_foreign_client_end_after_an_outage(redis: RedisServer, answers_to: int) -> None:
    peer = peers.needed("mcp-2.3.0")
    replicas = Routed(redis.url, answers_to)
    async with serving(replicas) as address:
        client = await asyncio.create_subprocess_exec(
            peer.python,
            peer.driver,
            "outage",
            address,
            env={**os.environ, "DRIVE_MODE": "legacy", "DRIVE_NAMES": ",".join(NAMES)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdin is not None and client.stdout is not None
        try:
            async with patience("the questions", 120):
                assert await client.stdout.readline() == b"asked\n"
            redis.pause()
            try:
                client.stdin.write(b"go\n")
                async with patience("the answers in the outage", 60):
                    await replicas.failed.wait()
                    while replicas.answers < len(NAMES) or (answers_to == 1 and replicas.kept < len(NAMES)):
                        await asyncio.sleep(0.01)
                    if answers_to == 0:
                        # Delivered without Redis: the tools have run.
                        while len(replicas.ran) < len(NAMES):
                            await asyncio.sleep(0.01)
                await asyncio.sleep(OUTAGE_SECONDS)
                assert sorted(replicas.ran) == (sorted(NAMES) if answers_to == 0 else [])
            finally:
                redis.resume()
            async with patience("the results", 60):
                report = json.loads(await client.stdout.readline())
                await client.wait()
        finally:
            if client.returncode is None:
                client.kill()
                await client.wait()
    assert report["revision"] == "2025-11-25"
    assert report["booked"] == [f"{name}: accept" for name in NAMES]
    # Each question was answered once, and each call was carried out once.
    assert replicas.answers == len(NAMES)
    assert sorted(replicas.ran) == sorted(NAMES)
