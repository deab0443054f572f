"""Pings of a client: an idle connection is tested, and one that does not answer is opened again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.patience import patience

from toolwire import Client, Server
from toolwire.protocol.errors import OutcomeUnknown
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN
from toolwire.testing import elapse

SIGNS = {LATEST_LEGACY: "ping", MODERN: "server/discover"}

# Answers until it is told to hang, which blocks its loop.
HANGS_ONCE = """
import signal
import sys
import time
from pathlib import Path
from typing import Any
from toolwire import Server

server = Server("hangs")

@server.tool
async def hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Path(sys.argv[1]).touch()
    time.sleep(600)

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


@pytest.mark.parametrize("revision", SIGNS)
async def test_client_pings_at_every_interval(revision: str) -> None:
    assert await _signs(revision, ping_interval=20) == 3


@pytest.mark.parametrize("revision", SIGNS)
async def test_client_does_not_ping_without_an_interval(revision: str) -> None:
    assert await _signs(revision) == 0


async def _signs(revision: str, **options: Any) -> int:
    """Return how many pings a client sends by itself in a minute."""
    sent: list[bytes] = []

    def note(direction: str, message: bytes) -> None:
        if direction == "→":
            sent.append(message)

    async with Client(Server("plain"), revision=revision, on_message=note, **options) as client:
        await client.ping()
        sent.clear()
        for _ in range(3):
            await elapse(20)
            await client.ping()
    return sum(SIGNS[revision].encode() in message for message in sent) - 3


async def test_hung_server_is_replaced_by_the_next_call(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(HANGS_ONCE)
    hung = tmp_path / "hung"
    target = [sys.executable, str(file), str(hung)]
    async with Client(target, ping_interval=10) as client, client.listen(tools=True) as changes:
        listening = asyncio.ensure_future(anext(aiter(changes)))
        calling = asyncio.ensure_future(client.call_tool("hang", timeout=300))
        async with patience("the call"):
            while not hung.exists():
                await asyncio.sleep(0.01)
        while not calling.done():
            await elapse(10)
        with pytest.raises(OutcomeUnknown):
            await calling
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
        assert (await listening).kind == "tools", "what it listens for counts as changed after the restart"


@pytest.mark.parametrize("interval", [0, 0.5, -1, float("nan"), float("inf"), True, "20"])
def test_impossible_intervals_are_refused(interval: object) -> None:
    with pytest.raises(ValueError, match="ping_interval"):
        Client(Server("plain"), ping_interval=interval)  # type: ignore[arg-type]


async def test_error_counts_as_an_answer() -> None:
    from tests.client.fake import FakeServer

    server = FakeServer(revisions=(LATEST_LEGACY,))  # It has no ping: -32601.
    async with Client(server, ping_interval=30) as client:  # type: ignore[arg-type]
        connection = client._connector.current()
        for _ in range(3):
            await elapse(30)
            await asyncio.sleep(0)
        assert client._connector.current() is connection and client.connected
