"""What a block leaves behind is named."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.cases import cases
from tests.runtimes import clients_of

from toolwire import Client, Server, testing


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[str]:
    yield "up"


def make_server() -> Server:
    server = Server("s", lifespan=lifespan)

    @server.tool
    def in_thread() -> str:
        return threading.current_thread().name

    @server.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    return server


@pytest.mark.covers("R32")
@cases("over", ["memory", "stdio", "http", "port"])
async def test_a_server_that_cleans_up_leaves_nothing(over: testing.Over) -> None:
    server = make_server()
    async with testing.no_leaks(server), testing.connect(server, over=over, revision="2025-11-25") as (client, _):
        assert "worker" in (await client.call_tool("in_thread")).text
        call = asyncio.ensure_future(client.call_tool("wait"))
        await asyncio.sleep(0)
        call.cancel()


async def _for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.covers("R32")
async def test_a_task_a_thread_and_a_descriptor_are_named() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    with pytest.raises(AssertionError) as caught:
        async with testing.no_leaks(patience=0.05):
            task = asyncio.create_task(_for_ever())
            thread.start()
            reading, writing = os.pipe()
    task.cancel()
    release.set()
    thread.join()
    os.close(reading)
    os.close(writing)
    said = str(caught.value)
    assert said.startswith("the block left behind:\n")
    assert f"a task: _for_ever at {__file__}:" in said
    assert "a thread: forgotten at " in said
    if sys.platform == "linux":
        assert f"a descriptor: {reading} of pipe:" in said
    async with testing.no_leaks(patience=0.05):
        pass


@pytest.mark.covers("R32")
async def test_what_the_server_still_holds_is_named() -> None:
    server = make_server()
    client = Client(server)
    with pytest.raises(AssertionError) as caught:
        async with testing.no_leaks(server, patience=0.05):
            await client.connect()
            call = asyncio.ensure_future(client.call_tool("wait"))
            while not any(session.serving for session in clients_of(server)):
                await asyncio.sleep(0)
    for held in ("connections that are open: 1", "calls that run: 1", "holders of the lifespan: 1"):
        assert held in str(caught.value)
    call.cancel()
    await client.close()


async def test_what_is_on_its_way_out_may_leave() -> None:
    async with testing.no_leaks():
        leaving = asyncio.Event()
        task = asyncio.create_task(leaving.wait())
        asyncio.get_running_loop().call_later(0.01, leaving.set)
    assert task.done()


async def test_a_failure_of_the_block_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with testing.no_leaks():
            task = asyncio.create_task(_for_ever())
            raise KeyError("mine")
    task.cancel()
