"""Dependencies of handlers in a served call: when they are made, and when and how they are cleaned up."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Client, Context, Depends, Server, SyncContext, ToolError
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


@cases("revision", REVISIONS)
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


# --- a `def` handler with nothing but `def` dependencies ---


class PlainJournal(list[str]):
    """The same in a thread, which it notes as well."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.closed = threading.Event()

    def open(self) -> Iterator[str]:
        self.threads.append(threading.get_ident())
        self.append("open")
        try:
            yield "connection"
        except BaseException as error:
            self.append(type(error).__name__)
        finally:
            self.append("close")
            self.threads.append(threading.get_ident())
            self.closed.set()


async def test_one_thread_makes_uses_and_cleans_up_however_many_calls_there_are() -> None:
    server = Server("s")

    def database() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(":memory:")  # May be used in this thread alone.
        try:
            yield connection
        finally:
            connection.close()

    @server.tool
    def count(db: sqlite3.Connection = Depends(database)) -> int:
        found: int = db.execute("SELECT 1").fetchone()[0]
        return found

    @server.resource("count://{n}")
    def counted(n: int, db: sqlite3.Connection = Depends(database)) -> str:
        return str(db.execute("SELECT ?", (n,)).fetchone()[0])

    async with Client(server) as client:
        results = await asyncio.gather(*(client.call_tool("count", returns=int) for _ in range(30)))
        read = await asyncio.gather(*(client.read_resource(f"count://{n}") for n in range(30)))
    assert results == [1] * 30
    assert [contents[0].text for contents in read] == [str(n) for n in range(30)]


@cases(
    ("handler", "seen"),
    [
        ("fails", ["open", "ToolError", "close"]),
        ("wrong", ["open", "ResultError", "close"]),
        ("works", ["open", "close"]),
    ],
)
async def test_that_thread_sees_what_became_of_the_call(handler: str, seen: list[str]) -> None:
    journal, server = PlainJournal(), Server("s")

    @server.tool
    def fails(db: str = Depends(journal.open)) -> None:
        raise ToolError("no")

    @server.tool
    def wrong(db: str = Depends(journal.open)) -> int:
        return "not a number"  # type: ignore[return-value]

    @server.tool
    def works(ctx: Context, db: str = Depends(journal.open)) -> Any:
        async def later() -> str:
            assert journal == ["open"]
            return f"{ctx.method} {db}"

        return later()

    async with connect(server, MODERN) as client:
        result = await client.call(handler)
    assert result.get("isError", False) is (handler != "works"), "clean-up cannot turn a failure into a success"
    assert handler != "works" or text(result) == "tools/call connection"
    assert journal == seen
    assert len(set(journal.threads)) == 1
    assert journal.threads[0] != threading.get_ident()


async def test_what_outlives_its_call_is_rolled_back_when_it_is_done() -> None:
    journal, server = PlainJournal(), Server("s")
    loop, started, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @server.tool
    def slow(db: str = Depends(journal.open)) -> str:
        loop.call_soon_threadsafe(started.set)
        assert release.wait(10)
        return "done"

    async with Client(server) as client:
        call = asyncio.ensure_future(client.call_tool("slow"))
        await started.wait()
        call.cancel()
        await client.list_tools()
        assert journal == ["open"], "it is still in use"
        release.set()
        assert await asyncio.to_thread(journal.closed.wait, 10)
    assert journal == ["open", "CancelledError", "close"]


async def test_an_unanswered_question_unwinds_through_that_thread() -> None:
    journal, server = PlainJournal(), Server("s")

    @server.tool
    def ask(ctx: SyncContext, db: str = Depends(journal.open)) -> str:
        return str(ctx.elicit("Sure?", bool).data)

    async with Client(server, elicit=lambda message, params: {"value": True}) as client:
        assert (await client.call_tool("ask")).text == "True"
    assert journal == ["open", "Unwind", "close", "open", "close"]


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
