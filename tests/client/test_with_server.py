"""The client and the real server back to back, over memory and over pipes, on every revision."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.cases import cases

from toolwire import Client, Context, Server, testing
from toolwire.client import Change, Decline, Rejected
from toolwire.protocol.errors import ProtocolError, ToolFailed
from toolwire.protocol.revisions import MODERN, REVISIONS

Over = Literal["memory", "stdio"]

EVERYWHERE = cases(("revision", "over"), [(revision, over) for revision in REVISIONS for over in ("memory", "stdio")])


@dataclass
class Row:
    city: str
    high: float


def weather() -> Server:
    server = Server("weather", instructions="Ask nicely.")

    @server.tool
    async def forecast(city: str, days: int = 1) -> list[Row]:
        return [Row(city, 21.5)] * days

    @server.tool
    async def fail() -> int:
        raise ValueError("secret detail")

    @server.tool
    async def count(ctx: Context) -> str:
        await ctx.progress(1, total=2)
        await ctx.progress(2, total=2)
        return "counted"

    @server.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", bool)
        return f"accepted={answer.accepted} data={answer.data}"

    @server.resource("station://7")
    def station() -> str:
        return "20.1"

    @server.prompt
    def briefing(city: str) -> str:
        return f"Brief me on {city}."

    return server


@pytest.mark.covers("R1")
@EVERYWHERE
async def test_everything_a_program_does_with_a_server(revision: str, over: Over) -> None:
    async with testing.connect(weather(), revision=revision, over=over) as (client, _):
        assert client.server is not None
        assert (client.server.name, client.instructions) == ("weather", "Ask nicely.")
        assert {tool.name for tool in await client.list_tools()} == {"book", "count", "fail", "forecast"}
        assert (
            await client.call_tool("forecast", {"city": "Oslo", "days": 2}, returns=list[Row])
            == [Row("Oslo", 21.5)] * 2
        )
        with pytest.raises(ToolFailed) as failed:
            await client.call_tool("fail", returns=int)
        assert "secret detail" not in str(failed.value)
        with pytest.raises(ProtocolError) as unknown:
            await client.call_tool("no-such-tool")
        assert unknown.value.code == -32602
        assert (await client.read_resource("station://7"))[0].text == "20.1"
        assert (await client.get_prompt("briefing", {"city": "Oslo"})).messages[0].content.text == "Brief me on Oslo."  # type: ignore[union-attr]
        progress: list[Any] = []
        assert await client.call_tool("count", returns=str, on_progress=progress.append) == "counted"
        assert [report.progress for report in progress] == [1, 2]
        await client.ping()


@cases("over", ["memory", "stdio"])
@cases("revision", ["2025-06-18", "2025-11-25", MODERN])
async def test_a_question_is_answered_on_both_eras(revision: str, over: Over) -> None:
    def accept(message: str, params: Any) -> Any:
        assert message == "Really?"
        return dict.fromkeys(params.requested_schema["properties"], True)

    async with testing.connect(weather(), revision=revision, over=over, elicit=accept) as (client, _):
        assert await client.call_tool("book", returns=str) == "accepted=True data=True"
    async with testing.connect(weather(), revision=revision, over=over, elicit=lambda m, p: Decline()) as (client, _):
        assert await client.call_tool("book", returns=str) == "accepted=False data=None"


@EVERYWHERE
async def test_a_change_is_heard_on_both_eras(revision: str, over: Over) -> None:
    server = weather()
    async with (
        testing.connect(server, revision=revision, over=over) as (client, _),
        client.listen(tools=True) as changes,
    ):

        async def added() -> int:
            return 1

        server.tool(added, name="added")
        assert await anext(aiter(changes)) == Change("tools")
        assert "added" in {tool.name for tool in await client.list_tools()}


async def test_many_calls_at_once() -> None:
    async with Client(weather()) as client:
        results = await asyncio.gather(
            *(client.call_tool("forecast", {"city": str(n)}, returns=list[Row]) for n in range(300))
        )
    assert [rows[0].city for rows in results] == [str(n) for n in range(300)]


async def test_the_command_serves_a_file(tmp_path: Path) -> None:
    script = tmp_path / "weather.py"
    script.write_text(
        """
from toolwire import Server
print("chatter")
server = Server("from a file")
@server.tool
def add(a: int, b: int) -> int:
    print("more chatter")
    return a + b
if __name__ == "__main__":
    server.run()
""",
        encoding="utf-8",
    )
    for target in (str(script), [sys.executable, "-m", "toolwire", "run", str(script)]):
        async with Client(target) as client:
            assert client.server is not None
            assert (client.server.name, client.revision) == ("from a file", MODERN)
            assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3


@pytest.mark.filterwarnings("ignore:Sampling is deprecated")
async def test_a_refused_sampling_ends_the_call() -> None:
    server = Server("sampler")

    @server.tool
    async def think(ctx: Context) -> str:
        return str(await ctx.sample("Think."))

    def refuse(params: Any) -> Any:
        raise Rejected("no thinking")

    async with Client(server, sample=refuse) as client:
        with pytest.raises(Rejected, match="no thinking"):
            await client.call_tool("think")
