"""Dependencies of handlers in a served call: when they are made, and when and how they are cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Depends, Server, ToolError
from toolwire.protocol.errors import ServerError


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


class Journal(list[str]):
    """A dependency that notes what happens to it."""

    async def open(self) -> AsyncIterator[str]:
        self.append("open")
        try:
            yield "connection"
        except BaseException as error:
            self.append(type(error).__name__)
            raise
        finally:
            self.append("close")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_dependency_is_no_argument_and_is_made_for_each_call(revision: str) -> None:
    journal, server = Journal(), Server("s")

    @server.tool
    async def work(table: str, db: str = Depends(journal.open)) -> str:
        journal.append("work")
        return f"{table} on {db}"

    async with connect(server, revision) as client:
        (tool,) = (await client.result("tools/list"))["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["table"]
        assert text(await client.call("work", {"table": "t"})) == "t on connection"
        assert text(await client.call("work", {"table": "u"})) == "u on connection"
    assert journal == ["open", "work", "close"] * 2


@pytest.mark.covers("R19")
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_a_failure_of_the_handler_reaches_the_clean_up(kind: str) -> None:
    journal, server = Journal(), Server("s")

    @server.tool(name="async")
    async def in_loop(db: str = Depends(journal.open)) -> None:
        raise ToolError("no")

    @server.tool(name="def")
    def in_thread(db: Annotated[str, Depends(journal.open)]) -> None:
        raise ToolError("no")

    async with connect(server, MODERN) as client:
        result = await client.call(kind)
    assert (result["isError"], text(result)) == (True, "no")
    assert journal == ["open", "ToolError", "close"]


async def test_the_answer_is_formed_before_the_clean_up() -> None:
    server = Server("s")
    rows: list[int] = []

    async def cursor() -> AsyncIterator[list[int]]:
        rows.extend([1, 2])
        yield rows
        rows.clear()

    @server.tool
    async def read(found: list[int] = Depends(cursor)) -> list[int]:
        return found

    async with connect(server, MODERN) as client:
        assert (await client.call("read"))["structuredContent"] == [1, 2]
    assert rows == []


async def test_a_result_that_cannot_be_sent_rolls_back() -> None:
    journal, server = Journal(), Server("s")

    @server.tool
    async def work(db: str = Depends(journal.open)) -> int:
        return "not a number"  # type: ignore[return-value]

    async with connect(server, MODERN) as client:
        assert (await client.call("work"))["isError"] is True
    assert journal == ["open", "ResultError", "close"]


@pytest.mark.covers("R20", "R19")
async def test_a_timeout_and_a_cancellation_clean_up() -> None:
    journal, server = Journal(), Server("s")
    started = asyncio.Event()

    @server.tool(timeout=0.01)
    async def slow(db: str = Depends(journal.open)) -> None:
        await asyncio.Event().wait()

    @server.tool
    async def wait(db: str = Depends(journal.open)) -> None:
        started.set()
        await asyncio.Event().wait()

    async with connect(server, MODERN) as client:
        assert (await client.call("slow"))["isError"] is True
        assert journal == ["open", "CancelledError", "close"]
        client.start("tools/call", {"name": "wait"}, id="w")
        await started.wait()
        client.notify("notifications/cancelled", {"requestId": "w"})
        await client.result("tools/list")
        while len(journal) < 6:
            await asyncio.sleep(0)
    assert journal == ["open", "CancelledError", "close"] * 2


async def test_an_unanswered_question_unwinds_through_the_dependencies() -> None:
    journal, server = Journal(), Server("s")

    @server.tool
    async def ask(ctx: Context, db: str = Depends(journal.open)) -> str:
        return str((await ctx.elicit("Sure?", bool)).data)

    async with connect(server, MODERN, {"elicitation": {}}) as client:
        first = await client.result("tools/call", {"name": "ask"})
        assert first["resultType"] == "input_required"
        assert journal == ["open", "CancelledError", "close"], "a transaction rolls back"
        answers = {
            key: {"action": "accept", "content": dict.fromkeys(each["params"]["requestedSchema"]["properties"], True)}
            for key, each in first["inputRequests"].items()
        }
        second = await client.result(
            "tools/call", {"name": "ask", "requestState": first["requestState"], "inputResponses": answers}
        )
        assert text(second) == "True"
    assert journal[3:] == ["open", "close"]


async def test_dependencies_take_the_context_and_each_other() -> None:
    server = Server("s")
    made: list[str] = []

    def settings(ctx: Context) -> dict[str, str]:
        made.append("settings")
        return {"method": ctx.method}

    def session(settings: Annotated[dict[str, str], Depends(settings)]) -> Iterator[str]:
        yield f"session for {settings['method']}"

    @server.tool
    async def work(a: str = Depends(session), b: dict[str, str] = Depends(settings)) -> str:
        return f"{a} {b['method']}"

    async with connect(server, MODERN) as client:
        assert text(await client.call("work")) == "session for tools/call tools/call"
    assert made == ["settings"], "once a request, however many ask"


async def test_resources_and_prompts_have_dependencies_too() -> None:
    journal, server = Journal(), Server("s")

    @server.resource("note://{id}")
    async def note(id: str, db: str = Depends(journal.open)) -> str:
        return f"{id} {db}"

    @server.prompt
    def prompt(topic: str, db: str = Depends(journal.open)) -> str:
        return f"{topic} {db}"

    async with connect(server, MODERN) as client:
        read = await client.result("resources/read", {"uri": "note://7"})
        assert read["contents"][0]["text"] == "7 connection"
        got = await client.result("prompts/get", {"name": "prompt", "arguments": {"topic": "t"}})
        assert got["messages"][0]["content"]["text"] == "t connection"
        (listed,) = (await client.result("prompts/list"))["prompts"]
        assert [argument["name"] for argument in listed["arguments"]] == ["topic"]
    assert journal == ["open", "close"] * 2


async def test_a_caller_cannot_fill_a_dependency() -> None:
    journal, server = Journal(), Server("s")

    @server.tool
    async def work(db: str = Depends(journal.open)) -> str:
        return db

    async with connect(server, MODERN) as client:
        assert (await client.call("work", {"db": "mine"}))["isError"] is True
    assert journal == []


async def test_a_dependency_that_fails_is_a_masked_error() -> None:
    server = Server("s")

    async def broken() -> str:
        raise RuntimeError("the password is hunter2")

    @server.tool
    async def work(db: str = Depends(broken)) -> str:
        return db

    async with connect(server, MODERN) as client:
        result = await client.call("work")
    assert result["isError"] is True
    assert "hunter2" not in text(result)


def test_mistakes_are_named_at_registration() -> None:
    def unfilled(table: str) -> str:
        return table

    async def work(db: str = Depends(unfilled)) -> None: ...

    with pytest.raises(ServerError, match="nothing fills the parameter 'table' of the dependency unfilled"):
        Server("s").tool(work)
