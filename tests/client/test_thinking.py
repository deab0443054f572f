"""Whoever answers a server's question may take their time, and may block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from toolwire import Client, Context, Server, testing
from toolwire.client.sync import Client as SyncClient
from toolwire.client.target import Link
from toolwire.client.targets import ServerTarget
from toolwire.protocol.errors import Timeout
from toolwire.protocol.revisions import MODERN, REVISIONS
from toolwire.wire.tapped_channel import Tap

ASKING = REVISIONS[2:]


class TappedTarget(ServerTarget):
    """A server whose messages are shown as they pass."""

    def __init__(self, server: Server, tap: Tap) -> None:
        super().__init__(server)
        self._tap = tap

    async def open(self) -> Link:
        link = await super().open()
        link.tap(self._tap)
        return link


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        return f"hello {(await ctx.elicit('Who?', str)).data}"

    @server.tool
    async def ask_and_hang(ctx: Context) -> None:
        await ctx.elicit("Who?", str)
        await asyncio.Event().wait()

    return server


@pytest.fixture
async def think(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Answers after most of a minute, for which the time of the loop jumps, with everything that is due then."""
    loop = asyncio.get_running_loop()
    now, ahead = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: now() + ahead)

    async def answer(message: str, params: Any) -> Any:
        nonlocal ahead
        ahead += 50
        for _ in range(20):
            await asyncio.sleep(0)
        return {"value": "Ann"}

    return answer


@pytest.mark.parametrize("revision", ASKING)
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_the_time_in_which_the_user_thinks_is_not_that_of_the_call(
    revision: str, over: Any, think: Callable[..., Any]
) -> None:
    async with testing.connect(asking(), revision=revision, over=over, elicit=think) as (client, _):
        assert (await client.call_tool("ask", timeout=10)).text == "hello Ann"


@pytest.mark.parametrize("revision", ASKING)
async def test_it_is_not_that_of_a_call_to_one_of_several_servers(revision: str, think: Callable[..., Any]) -> None:
    servers = {"a": asking(), "b": asking()}
    async with Client(servers, revision=revision, elicit=think, timeout=10) as client:
        assert (await client.call_tool("b_ask")).text == "hello Ann"
        with pytest.raises(Timeout, match="not answered within"):
            await client.call_tool("b_ask_and_hang", timeout=0.01)


@pytest.mark.parametrize("revision", ASKING)
async def test_the_deadline_goes_on_after_the_answer(revision: str, think: Callable[..., Any]) -> None:
    async with testing.connect(asking(), revision=revision, elicit=think) as (client, _):
        with pytest.raises(Timeout, match="not answered within"):
            await client.call_tool("ask_and_hang", timeout=0.01)


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_callback_that_blocks_holds_nobody_up(revision: str) -> None:
    loop, asked, answer = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def think(message: str, params: Any) -> Any:
        loop.call_soon_threadsafe(asked.set)
        assert answer.wait(10)
        return {"value": "Ann"}

    async with testing.connect(asking(), revision=revision, elicit=think) as (client, _):
        call = asyncio.ensure_future(client.call_tool("ask"))
        await asked.wait()
        assert len(await client.list_tools()) == 2
        answer.set()
        assert (await call).text == "hello Ann"


@pytest.mark.parametrize("servers", [1, 2])
async def test_callbacks_that_block_are_called_one_after_the_other(servers: int) -> None:
    """As two that ask the same person have to be."""
    questions = 0
    both_arrived = threading.Event()
    started: list[int] = []

    def count(direction: str, message: bytes) -> None:
        nonlocal questions
        questions += b"elicitation/create" in message
        if questions == 2:
            both_arrived.set()

    def think(message: str, params: Any) -> Any:
        started.append(len(started))
        assert both_arrived.wait(10)
        return {"value": f"after {len(started)}"}

    tapped = [TappedTarget(asking(), count) for _ in range(servers)]
    target: Any = tapped[0] if servers == 1 else dict(zip("ab", tapped, strict=True))
    tools = ["ask", "ask"] if servers == 1 else ["a_ask", "b_ask"]
    async with Client(target, revision="2025-11-25", elicit=think) as client:
        results = await asyncio.gather(*[client.call_tool(tool) for tool in tools])
    assert sorted(result.text for result in results) == ["hello after 1", "hello after 2"]


def test_the_blocking_client_can_be_used_while_it_answers() -> None:
    def think(message: str, params: Any) -> Any:
        return {"value": str(len(client.list_tools()))}

    with SyncClient(asking(), elicit=think) as client:
        assert client.call_tool("ask").text == "hello 2"


async def test_the_thread_of_the_callbacks_ends_with_the_client() -> None:
    threads: list[threading.Thread] = []

    def think(message: str, params: Any) -> Any:
        threads.append(threading.current_thread())
        return {"value": "Ann"}

    client = Client(asking(), elicit=think)
    for _ in range(2):
        async with client:
            assert (await client.call_tool("ask")).text == "hello Ann"
        await asyncio.to_thread(threads[-1].join, 10)
        assert not threads[-1].is_alive()
