"""Names of files that are in no known encoding, wherever a server may show one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

from toolwire import Context, File, Limits, Policy, Server, testing
from toolwire.client import Decline, Elicitation
from toolwire.protocol.errors import UrlRequired

NAME = os.fsdecode(b"caf\xe9.txt")
SHOWN = "caf\ufffd.txt"
ERAS = ["2025-11-25", "2026-07-28"]


def make_server() -> Server:
    server = Server("s", limits=Limits(task_poll=0.05))

    @server.tool
    async def plain() -> str:
        return NAME

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit(f"Delete {NAME}?", bool)).data)

    @server.tool(task="optional", detaches=True)
    async def ask_in_a_task(ctx: Context) -> str:
        await ctx.detach()
        return str((await ctx.elicit(f"Delete {NAME}?", bool)).data)

    @server.tool
    async def step(ctx: Context) -> str:
        async def find() -> str:
            return NAME

        return str(await ctx.step("find", find))

    @server.tool(policy=Policy(result=1000, mask=["hunter2"]))
    async def guarded() -> dict[str, str]:
        return {"name": NAME}

    @server.tool
    async def page() -> str:
        raise UrlRequired(f"Open it for {NAME}", "https://example.com/")

    @server.resource("a://b", name=NAME, description=NAME)
    async def named() -> str:
        return NAME

    return server


@cases("revision", ERAS)
@cases("tool", ["ask", "ask_in_a_task"])
async def test_a_question(revision: str, tool: str) -> None:
    asked: list[str] = []

    async def answer(message: str, *_: Any) -> dict[str, Any]:
        asked.append(message)
        return {"value": True}

    async with testing.connect(make_server(), revision=revision, elicit=answer) as (client, _):
        assert (await client.call_tool(tool)).text == "True"
    assert asked == [f"Delete {SHOWN}?"]


@pytest.mark.parametrize("revision", ERAS)
async def test_lists_steps_and_answers_under_a_policy(revision: str) -> None:
    async with testing.connect(make_server(), revision=revision) as (client, _):
        (listed,) = await client.list_resources()
        assert (listed.name, listed.description) == (SHOWN, SHOWN)
        assert (await client.call_tool("step")).text == SHOWN
        assert (await client.call_tool("guarded")).structured == {"name": SHOWN}


async def test_a_page_to_open() -> None:
    asked: list[str] = []

    async def declined(message: str, *_: Any) -> Decline:
        asked.append(message)
        return Decline()

    async with testing.connect(make_server(), revision="2026-07-28", elicit=Elicitation(url=declined)) as (client, _):
        await client.call_tool("page")
    assert asked == [f"Open it for {SHOWN}"]


async def test_the_log_of_a_server() -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()
    server = make_server()
    async with testing.connect(server, revision="2025-11-25", on_log=heard.put_nowait) as (client, _):
        await client.ping()
        server.log("error", NAME)
        assert (await heard.get()).data == SHOWN


async def test_a_call_without_a_transport() -> None:
    assert (await make_server().call_tool("plain")).text == SHOWN


def test_the_uri_of_a_file(tmp_path: Path) -> None:
    assert File(tmp_path / NAME).uri == "file:///caf%E9.txt"
    assert File(tmp_path / "café.txt").uri == "file:///caf%C3%A9.txt"
