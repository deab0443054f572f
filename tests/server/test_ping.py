"""Pings to clients: who gets them, and what becomes of a client that does not answer."""

from __future__ import annotations

import pytest
from tests.cases import cases
from tests.runtimes import clients_of, runtime_of
from tests.wireclient import LEGACY, MODERN, Refusal, connect

from toolwire import Client, Limits, Server
from toolwire.testing import elapse


def served(seconds: float) -> Server:
    server = Server("pings", limits=Limits(ping=seconds))
    server.tool("hello")(lambda: "hello")
    return server


@cases("over", ["memory", "stdio"])
@cases("revision", LEGACY)
async def test_a_client_that_answers_stays_connected(revision: str, over: str) -> None:
    async with connect(served(30.0), revision, over=over) as client:
        client.answers["ping"] = lambda params: {}
        for count in (1, 2, 3):
            await elapse(30)
            await client.until(lambda count=count: len(client.requests) >= count)
        assert {request["method"] for request in client.requests} == {"ping"}
        assert (await client.call("hello"))["content"][0]["text"] == "hello"


@cases("revision", LEGACY)
async def test_any_answer_is_one(revision: str) -> None:
    async with connect(served(30.0), revision) as client:

        def refuse(params: object) -> dict[str, object]:
            raise Refusal(-32601, "Method not found")

        client.answers["ping"] = refuse
        await elapse(30)
        await client.until(lambda: len(client.requests) == 1)
        await elapse(30)
        await client.until(lambda: len(client.requests) == 2)
        assert (await client.call("hello"))["content"][0]["text"] == "hello"


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_client_that_does_not_answer_is_let_go(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = served(30.0)
    async with connect(server, revision) as client:
        client.channel.pause()
        (session,) = clients_of(server)
        while not session.over:
            await elapse(30)
        assert caplog.messages == ["a client did not answer a ping within 30 seconds: its connection is closed"]


async def test_a_client_of_2026_07_28_is_sent_none() -> None:
    async with connect(served(30.0), MODERN) as client:
        await client.call("hello")
        await elapse(100)
        assert (await client.call("hello"))["content"][0]["text"] == "hello"
        assert client.requests == []


async def test_nothing_is_left_of_a_connection_that_ended() -> None:
    server = served(30.0)
    async with Client(server, revision="2025-11-25") as client:
        await elapse(30)
        runtime = runtime_of(server)
        assert (await client.call_tool("hello")).text == "hello"
        assert len(runtime._pings) == 1
    assert clients_of(server) == {} and runtime._pings == {}
    await elapse(100)
