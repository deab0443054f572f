"""What a handler learns from its context, and what it can report through it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.cases import cases
from tests.http.httpclient import serving
from tests.wireclient import LEGACY, MODERN, REVISIONS, connect, modern_meta

from toolwire import Context, Progress, Resource, Server, SyncContext, logs, testing
from toolwire.protocol.errors import ServerError

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
PROGRESS = "notifications/progress"
MESSAGE = "notifications/message"


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


# --- Facts ---


@pytest.mark.covers("J29", "E10")
@pytest.mark.parametrize("executor", ["loop", "thread"])
async def test_a_handler_has_the_context_if_it_asks_for_it(executor: str) -> None:
    server = Server("s")

    @server.tool(executor=executor)
    def with_context(word: str, ctx: Context) -> str:
        return f"{word} {ctx.method}"

    @server.tool(executor=executor)
    def without(word: str) -> str:
        return word

    async with connect(server, MODERN) as client:
        tools = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        assert tools["with_context"]["inputSchema"] == tools["without"]["inputSchema"]
        assert text(await client.call("with_context", {"word": "a"})) == "a tools/call"
        assert text(await client.call("without", {"word": "a"})) == "a"


def report(done: int) -> bool:
    return SyncContext.current().progress(done, message="from a helper")


@pytest.mark.parametrize("revision", [MODERN, "2025-06-18"])
async def test_a_helper_in_a_thread_has_the_context_whose_calls_are_plain(revision: str) -> None:
    server = Server("s")

    @server.tool
    def bare() -> bool:
        return report(1) and report(2)

    @server.tool
    def handed(ctx: SyncContext) -> bool:
        return ctx is SyncContext.current() is Context.current() and ctx.progress(1) and not report(1) and report(2)

    @server.tool
    async def beside() -> bool:
        return await asyncio.to_thread(report, 1) and await asyncio.to_thread(report, 2)

    @server.tool
    async def on_the_loop() -> bool:
        with pytest.raises(LookupError, match="no worker thread"):
            SyncContext.current()
        return await Context.current().progress(1) and await Context.current().progress(2)

    async with testing.connect(server, revision=revision) as (client, _):
        for name in ("bare", "handed", "beside", "on_the_loop"):
            seen: list[float] = []
            result = await client.call_tool(name, on_progress=lambda each, seen=seen: seen.append(each.progress))
            assert (result.text, seen) == ("true", [1, 2]), name
    with pytest.raises(LookupError):
        Context.current()


@pytest.mark.parametrize("revision", [MODERN, "2025-06-18"])
async def test_a_helper_in_a_thread_may_ask(revision: str) -> None:
    server = Server("s")

    @server.tool
    def greet() -> str:
        return f"Hi {SyncContext.current().elicit('Name?', str).data}"

    elicit = lambda message, params: {"value": "Ann"}  # noqa: E731
    async with testing.connect(server, revision=revision, elicit=elicit) as (client, _):
        assert (await client.call_tool("greet")).text == "Hi Ann"


async def test_a_helper_in_a_thread_learns_that_nobody_waits_any_more() -> None:
    server = Server("s")
    ended: list[str] = []
    done = threading.Event()

    @server.tool
    def ask() -> None:
        ctx = SyncContext.current()
        try:
            ctx.elicit("Go on?", bool)
        except asyncio.CancelledError:
            ended.append(f"cancelled {ctx.cancelled}")
            SyncContext.current().info("too late")
            ended.append("not cancelled any more")
        finally:
            done.set()

    async with connect(server, "2025-06-18", {"elicitation": {}}) as client:
        client.start("tools/call", {"name": "ask"}, id="it")
        await client.until(lambda: client.requests)
        client.notify("notifications/cancelled", {"requestId": "it"})
        await asyncio.to_thread(done.wait)
    assert ended == ["cancelled True"]


async def test_a_plain_handler_names_the_context_whose_calls_are_plain() -> None:
    server = Server("s")

    @server.tool
    def copy(ctx: SyncContext) -> bool:
        return ctx.progress(1) or ctx.info("copied")

    @server.tool
    def perhaps(ctx: SyncContext | None = None) -> str:
        assert ctx is not None
        return ctx.method

    assert not any(tool.input_schema.get("properties") for tool in server.tools)
    async with connect(server, MODERN) as client:
        assert text(await client.call("copy")) == "false"
        assert text(await client.call("perhaps")) == "tools/call"


def test_a_handler_on_the_loop_is_refused_the_context_whose_calls_are_plain() -> None:
    server = Server("s")

    async def waits(ctx: SyncContext) -> None: ...

    async def yields(ctx: SyncContext) -> AsyncIterator[int]:
        yield 1

    def plain(ctx: SyncContext | None) -> None: ...

    for function, options in ((waits, {}), (yields, {}), (plain, {"executor": "loop"})):
        with pytest.raises(ServerError, match=r"runs on a loop: it takes Context and awaits its calls"):
            server.tool(**options)(function)  # type: ignore[arg-type]
    with pytest.raises(ServerError, match="runs on a loop"):
        server.resource("a://b")(waits)


@pytest.mark.covers("J30")
async def test_the_user_and_the_request_id() -> None:
    async def look(ctx: Context) -> list[Any]:
        return [ctx.principal, ctx.request_id]

    server = Server("s", tools=look)
    async with connect(server, MODERN, principal="ann") as client:
        response = await client.request("tools/call", {"name": "look"}, id="q-7")
        assert response["result"]["content"][0]["text"] == '["ann","q-7"]'
        response = await client.request("tools/call", {"name": "look"}, id=7)
        assert response["result"]["content"][0]["text"] == '["ann",7]'
    async with connect(server, MODERN) as client:
        assert json.loads(text(await client.call("look")))[0] is None


@pytest.mark.covers("J30")
async def test_who_calls_is_never_taken_from_the_arguments() -> None:
    async def look(ctx: Context) -> str:
        return str(ctx.principal)

    async with connect(Server("s", tools=look), MODERN) as client:
        result = await client.call("look", {}, _auth="root", principal="root", _meta=modern_meta(principal="root"))
        assert text(result) == "None"


@pytest.mark.covers("E11")
@cases("revision", REVISIONS)
async def test_session_token_meta_and_revision(revision: str) -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> None:
        seen.append((ctx.session_id, ctx.progress_token, ctx.meta.get("example.org/trace"), ctx.revision, ctx.headers))

    async with connect(Server("s", tools=look), revision) as client:
        await client.call("look", _meta={"progressToken": "p-1", "example.org/trace": [1]})
        await client.call("look")
    assert seen == [(None, "p-1", [1], revision, {}), (None, None, None, revision, {})]


@pytest.mark.covers("META-10", "META-7", "E11")
async def test_the_context_shows_meta_as_it_was_sent() -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> None:
        seen.append(ctx.meta)

    sent = modern_meta(traceparent="00-1-2-01", **{"example.org/x": {"deep": [1, None]}})
    async with connect(Server("s", tools=look), MODERN) as client:
        await client.call("look", _meta=sent)
    assert seen == [sent]


async def test_state_lives_for_one_call() -> None:
    server = Server("s")

    @server.tool
    async def count(ctx: Context) -> int:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return int(ctx.state["n"])

    async with connect(server, MODERN) as client:
        assert [text(await client.call("count")) for _ in range(2)] == ["1", "1"]


async def test_a_resource_of_the_same_server() -> None:
    server = Server("s", resources=Resource("note://a", content="rain"))

    @server.tool
    async def look(ctx: Context) -> str:
        return str((await ctx.read_resource("note://a"))[0].text)

    @server.tool
    def look_in_thread(ctx: Context) -> str:
        return str(ctx.read_resource("note://a")[0].text)  # type: ignore[index]

    @server.tool
    async def miss(ctx: Context) -> str:
        return str(await ctx.read_resource("note://b"))

    for revision in ("2025-06-18", MODERN):
        async with connect(server, revision) as client:
            assert text(await client.call("look")) == "rain"
            assert text(await client.call("look_in_thread")) == "rain"
            assert text(await client.call("miss")) == "There is no resource note://b"


@cases("revision", REVISIONS)
async def test_what_the_client_can_be_asked(revision: str) -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> None:
        names = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "roots", "structured_output")
        seen.append([name for name in names if ctx.supports(name)])

    capabilities = {"elicitation": {}, "sampling": {"tools": {}}, "roots": {}}
    async with connect(Server("s", tools=look), revision, capabilities) as client:
        await client.call("look")
    expected = {
        "2024-11-05": ["sampling", "roots"],
        "2025-03-26": ["sampling", "roots"],
        "2025-06-18": ["elicitation", "sampling", "roots", "structured_output"],
    }
    newest = ["elicitation", "sampling", "sampling.tools", "roots", "structured_output"]
    assert seen == [expected.get(revision, newest)]


# --- Progress ---


@pytest.mark.covers("J31", "E40", "R29", "PRG-1")
@cases("revision", REVISIONS)
@cases("kind", ["async", "def"])
async def test_progress_rises(revision: str, kind: str) -> None:
    server = Server("s")

    @server.tool(name="async")
    async def in_loop(ctx: Context) -> list[bool]:
        return [await ctx.progress(value, 10, "working") for value in (1, 2.5, 2.5, 2, 7)]

    @server.tool(name="def")
    def in_thread(ctx: Context) -> list[bool]:
        return [ctx.progress(value, 10, "working") for value in (1, 2.5, 2.5, 2, 7)]  # type: ignore[misc]

    async with connect(server, revision) as client:
        result = await client.call(kind, _meta={"progressToken": 5})
    assert json.loads(text(result)) == [True, True, False, False, True]
    message = {} if revision == "2024-11-05" else {"message": "working"}
    assert client.of(PROGRESS) == [{"progressToken": 5, "progress": p, "total": 10, **message} for p in (1, 2.5, 7)]
    assert client.received.index(client.notifications[-1]) < len(client.received) - 1, "all of it before the answer"


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_progress_rises_through_the_resources_that_a_handler_reads(kind: str) -> None:
    server = Server("s")

    @server.resource("note://1")
    async def note(ctx: Context) -> str:
        return str([await ctx.progress(value) for value in (1, 3)])

    async def reading(ctx: Context) -> list[Any]:
        first, read = await ctx.progress(2), await ctx.read_resource("note://1")
        return [first, read[0].text, await ctx.progress(3), await ctx.progress(4)]

    def reading_in_thread(ctx: SyncContext) -> list[Any]:
        first, read = ctx.progress(2), ctx.read_resource("note://1")
        return [first, read[0].text, ctx.progress(3), ctx.progress(4)]

    server.tool(name="read")(reading if kind == "async" else reading_in_thread)
    async with connect(server, MODERN) as client:
        result = await client.call("read", _meta={"progressToken": 5})
    assert json.loads(text(result)) == [True, "[False, True]", False, True]
    assert [each["progress"] for each in client.of(PROGRESS)] == [2, 3, 4]


async def test_progress_is_a_number_that_json_has() -> None:
    server = Server("s")

    @server.tool
    async def count(ctx: Context) -> list[bool]:
        return [await ctx.progress(value, math.inf) for value in (math.nan, 1, math.inf, 2)]

    async with connect(server, MODERN) as client:
        result = await client.call("count", _meta={"progressToken": 5})
    assert json.loads(text(result)) == [False, True, False, True]
    assert client.of(PROGRESS) == [{"progressToken": 5, "progress": p} for p in (1, 2)]


@pytest.mark.covers("J31", "1.6.1")
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_progress_nobody_asked_for_is_not_sent(kind: str) -> None:
    server = Server("s")

    @server.tool(name="async")
    async def in_loop(ctx: Context) -> bool:
        return await ctx.progress(1)

    @server.tool(name="def")
    def in_thread(ctx: Context) -> bool:
        return ctx.progress(1)  # type: ignore[return-value]

    async with connect(server, MODERN) as client:
        assert text(await client.call(kind)) == "false"
        assert client.notifications == []


@pytest.mark.covers("S17", "1.6.3")
@cases(("values", "total"), [([0.1, 0.5, 1.0], 1.0), ([10, 50, 100], 100), ([1, 2], None)])
async def test_progress_counts_to_one_to_a_total_or_to_nothing(values: list[float], total: float | None) -> None:
    async def work(ctx: Context) -> None:
        for value in values:
            await ctx.report_progress(value, total)

    async with connect(Server("s", tools=work), "2025-06-18") as client:
        await client.call("work", _meta={"progressToken": "t"})
    expected = {} if total is None else {"total": total}
    assert client.of(PROGRESS) == [{"progressToken": "t", "progress": value, **expected} for value in values]


@pytest.mark.covers("PRG-2", "1.6.4")
@cases("revision", REVISIONS)
async def test_progress_after_the_answer_is_not_sent(revision: str) -> None:
    kept: list[Context] = []

    async def work(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.progress(1)

    async with connect(Server("s", tools=work), revision) as client:
        await client.call("work", _meta={"progressToken": "t"})
        assert await kept[0].progress(2) is False
        assert await kept[0].error("late") is False
        assert len(client.notifications) == 1


# --- Logging ---


@pytest.mark.covers("S18", "E41", "1.8.4")
@cases("revision", LEGACY)
async def test_log_messages_carry_level_logger_and_any_json(revision: str) -> None:
    async def work(ctx: Context) -> None:
        await ctx.log("notice", {"rows": [1, None]}, "db")
        await ctx.info("plain")

    async with connect(Server("s", tools=work), revision) as client:
        await client.call("work")
    assert client.of(MESSAGE) == [
        {"level": "notice", "logger": "db", "data": {"rows": [1, None]}},
        {"level": "info", "data": "plain"},
    ]


async def say_all(ctx: Context) -> None:
    for level in LEVELS:
        await ctx.log(level, level)  # type: ignore[arg-type]


@pytest.mark.covers("1.8.3", "J61", "1.8.2")
@cases("revision", LEGACY)
async def test_set_level_decides_what_is_sent(revision: str) -> None:
    async with connect(Server("s", tools=say_all), revision) as client:
        await client.call("say_all")
        assert [each["level"] for each in client.of(MESSAGE)] == LEVELS[1:], "before setLevel: info and above"
        for index, level in enumerate(LEVELS):
            client.notifications.clear()
            assert await client.result("logging/setLevel", {"level": level}) == {}
            await client.call("say_all")
            assert [each["level"] for each in client.of(MESSAGE)] == LEVELS[index:]


@pytest.mark.covers("1.8.6")
async def test_the_level_belongs_to_the_session() -> None:
    server = Server("s", tools=say_all)
    before = logging.getLogger("toolwire").level, logging.getLogger().level
    async with connect(server, "2025-06-18") as one, connect(server, "2025-06-18") as other:
        await one.result("logging/setLevel", {"level": "alert"})
        await one.call("say_all")
        await other.call("say_all")
        assert len(one.of(MESSAGE)) == 2
        assert len(other.of(MESSAGE)) == 7
    assert (logging.getLogger("toolwire").level, logging.getLogger().level) == before


@pytest.mark.covers("1.8.5")
@cases("level", ["loud", "", None, 3])
async def test_a_bad_level_is_an_error(level: Any) -> None:
    async with connect(Server("s"), "2025-06-18") as client:
        assert (await client.error("logging/setLevel", {"level": level}))["code"] == -32602


@pytest.fixture
def installed() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.install("error", stream=stream)
    yield stream
    logs.uninstall()


@pytest.mark.covers("J61")
async def test_set_level_moves_the_handler_that_the_program_installed(installed: io.StringIO) -> None:
    logger = logging.getLogger("toolwire.test")
    async with connect(Server("s"), "2025-06-18") as client:
        logger.info("before")
        await client.result("logging/setLevel", {"level": "debug"})
        logger.info("after")
    assert "after" in installed.getvalue()
    assert "before" not in installed.getvalue()


async def test_a_client_over_http_moves_no_handler(installed: io.StringIO) -> None:
    async with serving(Server("s").http_app()) as [client]:
        await client.initialize("2025-06-18")
        assert (await client.result("logging/setLevel", {"level": "emergency"})) == {}
    logging.getLogger("toolwire.test").error("somebody tries passwords")
    assert "somebody tries passwords" in installed.getvalue()


@pytest.mark.covers("LOG-1")
async def test_on_the_current_revision_only_a_request_that_asks_gets_messages() -> None:
    async with connect(Server("s", tools=say_all), MODERN) as client:
        await client.call("say_all")
        assert client.notifications == []
        await client.call("say_all", _meta=modern_meta(log_level="critical"))
        assert [each["level"] for each in client.of(MESSAGE)] == LEVELS[5:]
        await client.call("say_all")
        assert len(client.notifications) == 3


@pytest.mark.covers("E41")
async def test_the_server_logs_to_every_session_that_wants_it() -> None:
    server = Server("s")
    async with connect(server, "2025-06-18") as one, connect(server, "2025-11-25") as other:
        await other.result("logging/setLevel", {"level": "error"})
        server.log("warning", {"disk": "full"}, "health")
        assert await one.notified(MESSAGE) == [{"level": "warning", "logger": "health", "data": {"disk": "full"}}]
        await other.result("ping")
        assert other.notifications == []


async def test_an_unknown_level_is_the_authors_mistake() -> None:
    async def work(ctx: Context) -> None:
        await ctx.log("loud", "x")  # type: ignore[arg-type]

    async with connect(Server("s", tools=work), "2025-06-18") as client:
        assert (await client.call("work"))["isError"] is True


@cases("data", [object(), {1, 2}, b"bytes", float("nan")])
async def test_data_that_is_not_json_is_the_authors_mistake(data: Any) -> None:
    async def work(ctx: Context) -> str:
        await ctx.info(data)
        return "done"

    async with connect(Server("s", tools=work), "2025-06-18") as client:
        result = await client.call("work")
        assert text(result) == "done" or result["isError"]
        await client.result("ping")


# --- Cancellation ---


@pytest.mark.covers("E12", "CAN-2", "1.5.4")
@cases("revision", REVISIONS)
async def test_a_cancelled_async_handler_stops_and_is_not_answered(revision: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()
    kept: list[Context] = []

    async def wait(ctx: Context) -> None:
        kept.append(ctx)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with connect(Server("s", tools=wait), revision) as client:
        answer = client.start("tools/call", {"name": "wait"}, id="slow")
        await started.wait()
        assert kept[0].cancelled is False
        client.notify("notifications/cancelled", {"requestId": "slow", "reason": "tab closed"})
        await stopped.wait()
        await client.result("tools/list")
        assert not answer.done()
        assert kept[0].cancelled is True


@pytest.mark.covers("E12", "J79")
async def test_a_def_handler_sees_that_it_was_cancelled() -> None:
    server = Server("s")
    started, finished = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    go_on = threading.Event()
    seen: list[Any] = []

    @server.tool
    def work(ctx: Context) -> None:
        seen.append(ctx.cancelled)
        loop.call_soon_threadsafe(started.set)
        go_on.wait(10)
        seen.append(ctx.cancelled)
        loop.call_soon_threadsafe(finished.set)

    async with connect(server, MODERN) as client:
        client.start("tools/call", {"name": "work"}, id=1)
        await started.wait()
        client.notify("notifications/cancelled", {"requestId": 1})
        # With the id of the cancelled one, which is free again although its thread still runs.
        assert "result" in await client.request("server/discover", id=1)
        go_on.set()
        await finished.wait()
    assert seen == [False, True]


# --- Asking the own client ---


@pytest.mark.covers("E13")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_handler_asks_the_client_of_its_own_session(revision: str) -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Name?", str)).data)

    capabilities: dict[str, Any] = {"elicitation": {}}
    async with (
        connect(server, revision, capabilities) as ann,
        connect(server, revision, capabilities) as bo,
    ):
        for client, name in ((ann, "Ann"), (bo, "Bo")):
            client.answers["elicitation/create"] = lambda params, name=name: {
                "action": "accept",
                "content": dict.fromkeys(params["requestedSchema"]["properties"], name),
            }
        assert text(await ann.call("ask")) == "Ann"
        assert text(await bo.call("ask")) == "Bo"
        assert len(ann.requests) == len(bo.requests) == 1


@pytest.mark.covers("E13")
async def test_a_def_handler_asks_plainly() -> None:
    server = Server("s")

    @server.tool
    def ask(ctx: Context) -> str:
        answer: Any = ctx.elicit("Sure?", bool)
        ctx.info("asked")
        return f"{answer.action} {answer.data}"

    async with connect(server, "2025-06-18", {"elicitation": {}}) as client:
        client.answers["elicitation/create"] = lambda params: {"action": "decline"}
        assert text(await client.call("ask")) == "decline None"
        assert client.of(MESSAGE) == [{"level": "info", "data": "asked"}]


async def test_all_contexts_of_a_call_are_equal() -> None:
    server, seen = Server("s"), list[Context]()

    @server.use
    async def note(ctx: Context, call_next: Any) -> Any:
        seen.append(ctx)
        return await call_next(ctx)

    @server.tool
    async def look(ctx: Context) -> None:
        seen.extend((ctx, Context.current()))

    async with connect(server, MODERN) as client:
        await client.call("look")
        await client.call("look")
    assert seen[0] == seen[1] == seen[2] and len(set(seen)) == 2
    assert seen[0] != seen[3] and seen[0] != "ctx"


async def test_the_context_of_a_thread_shares_state_with_middleware() -> None:
    server = Server("s")

    @server.use
    async def tag(ctx: Context, call_next: Any) -> Any:
        ctx.state["tag"] = "from middleware"
        result = await call_next(ctx)
        assert ctx.state["back"] == "from thread"
        return result

    @server.tool
    def work(ctx: Context) -> str:
        ctx.state["back"] = "from thread"
        return str(ctx.state["tag"])

    async with connect(server, MODERN) as client:
        assert text(await client.call("work")) == "from middleware"


@pytest.mark.covers("E40", "J31")
@cases("revision", REVISIONS)
@cases("kind", ["async", "def"])
async def test_an_object_reports_progress_for_code_that_has_no_context(revision: str, kind: str) -> None:
    server, kept = Server("s"), []

    def work(progress: Progress) -> None:
        progress.advance()
        progress.report(5, message="half")

    @server.tool(name="async")
    async def on_loop(ctx: Context) -> None:
        kept.append(ctx.track(total=10))
        work(kept[-1])

    @server.tool(name="def")
    def in_thread(ctx: SyncContext) -> None:
        kept.append(ctx.track(total=10))
        work(kept[-1])
        # The loop has sent what was reported before it answers this.
        ctx.info("done")

    async with connect(server, revision) as client:
        await client.call(kind, _meta={"progressToken": "p"})
        await client.notified("notifications/progress")
        told = client.of("notifications/progress")
        assert (told[-1]["progressToken"], told[-1]["progress"], told[-1]["total"]) == ("p", 5, 10)
        assert [each["progress"] for each in told] in ([1, 5], [5])
        (progress,) = kept
        assert (progress.token, repr(progress)[:10]) == ("p", "<Progress ")
        await client.call(kind)
        progress.advance()
        kept[-1].advance()
        await client.result("tools/list")
        assert client.of("notifications/progress") == told, "nothing is said of a call that is over, or without a token"


@pytest.mark.covers("E40")
async def test_reports_from_a_busy_thread_do_not_pile_up() -> None:
    server, scheduled = Server("s"), []

    @server.tool
    async def busy(ctx: Context) -> None:
        progress = ctx.track(total=1000)
        loop = asyncio.get_running_loop()
        schedule = loop.call_soon_threadsafe

        def counted(*args: Any, **options: Any) -> Any:
            scheduled.append(args)
            return schedule(*args, **options)

        def work() -> None:
            for _ in range(1000):
                progress.advance()

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        try:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()  # The loop cannot run meanwhile.
        finally:
            loop.call_soon_threadsafe = schedule  # type: ignore[method-assign]

    async with connect(server, MODERN) as client:
        await client.call("busy", _meta={"progressToken": "p"})
        assert len(scheduled) == 1
