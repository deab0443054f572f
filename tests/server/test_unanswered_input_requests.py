"""Questions to clients that cannot answer, will not, go away or take their time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.cases import cases
from tests.patience import patience
from tests.server.answering import ASKING, EVERYTHING, Answer, accept, by_message, call, converse
from tests.wireclient import LEGACY, MODERN, Message, Refusal, connect

from toolwire import Context, Depends, Limits, Server
from toolwire.protocol.errors import NotSupported
from toolwire.server.context import SyncContext
from toolwire.server.input_requests import SETTLE_TURNS, Refused
from toolwire.testing import elapse

every_revision = pytest.mark.parametrize("revision", ASKING)


OLD = tuple(revision for revision in ASKING if revision != MODERN)


def names(answers: dict[str, Any] | None = None) -> Answer:
    return by_message(answers or {"First name?": "Ada", "Last name?": "Lovelace", "Title?": "Countess"})


# --- Clients that cannot, will not, or go away ---


@pytest.mark.covers("CAP-1", "MRTR-4")
async def test_a_missing_capability_is_an_error_that_names_it_on_2026_07_28() -> None:
    server = Server("asks")

    @server.tool
    async def form(ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str))

    @server.tool
    async def group(ctx: Context) -> str:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.elicit("First name?", str))
            tasks.create_task(ctx.elicit("Last name?", str))
        return "unreachable"

    @server.tool
    def plain(ctx: SyncContext) -> str:
        return str(ctx.elicit("First name?", str))

    @server.resource("card://me")
    async def card(ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str))

    async with connect(server, MODERN, {"sampling": {}}) as client:
        for name in ("form", "group", "plain"):
            error = await client.error("tools/call", {"name": name})
            assert error["code"] == -32021, name
            assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
        error = await client.error("resources/read", {"uri": "card://me"})
        assert error["code"] == -32021


@pytest.mark.covers("CAP-2", "MRTR-4")
async def test_capabilities_are_those_of_the_request_at_hand() -> None:
    server = Server("asks")

    @server.tool
    async def greet(ctx: Context) -> str:
        await ctx.elicit("First name?", str)
        await ctx.elicit("Last name?", str)
        return "done"

    async with connect(server, MODERN, EVERYTHING) as client:
        first = await client.call("greet")
        (key,) = first["inputRequests"]
        more = {"requestState": first["requestState"], "inputResponses": {key: accept("Ada")}}
        client.capabilities = {}
        assert (await client.error("tools/call", {"name": "greet", **more}))["code"] == -32021
        client.capabilities = {"elicitation": {}}
        second = await client.result("tools/call", {"name": "greet", **more})
        assert [each["params"]["message"] for each in second["inputRequests"].values()] == ["Last name?"]


@cases("revision", LEGACY)
async def test_a_missing_capability_is_a_text_for_the_model_before(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def form(ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str))

    @server.prompt
    async def letter(ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str))

    # 2024-11-05 and 2025-03-26 know no elicitation, whatever a client declares.
    declared = {} if revision in ASKING else EVERYTHING
    async with connect(server, revision, declared) as client:
        done = await call(client, "form", {}, names())
        assert done.failure == "The client does not support forms (elicitation)"
        assert client.requests == []
        error = await client.error("prompts/get", {"name": "letter"})
        assert error["code"] == -32603
        assert "does not support forms" in error["message"]


@cases("revision", (*LEGACY, MODERN))
async def test_supports_asks_first(revision: str) -> None:
    server = Server("asks")
    features = (
        "elicitation",
        "elicitation.form",
        "elicitation.url",
        "sampling",
        "sampling.tools",
        "roots",
        "extensions.com.example/a",
    )

    @server.tool
    async def what(ctx: Context) -> list[bool]:
        return [ctx.supports(feature) for feature in features]

    @server.tool
    async def caught(ctx: Context) -> str:
        try:
            await ctx.elicit("First name?", str)
        except NotSupported as error:
            return f"cannot: {error.required}"
        return "can"

    newer = revision in ("2025-11-25", MODERN)
    everything = EVERYTHING | {"extensions": {"com.example/a": {}}}
    async with connect(server, revision, everything) as client:
        (block,) = (await client.call("what"))["content"]
        extension = True
        expected = [revision in ASKING, revision in ASKING, newer, True, newer, True, extension]
        assert block["text"].replace(" ", "") == str(expected).replace(" ", "").lower()
    async with connect(server, revision, {}) as client:
        (block,) = (await client.call("what"))["content"]
        assert "true" not in block["text"]
        assert (await client.call("caught"))["content"][0]["text"] == "cannot: {'elicitation': {'form': {}}}"


@pytest.mark.covers("MRTR-1")
async def test_other_methods_cannot_ask_on_2026_07_28() -> None:
    server = Server("asks")

    @server.prompt
    async def letter(to: str) -> str:
        return to

    @server.completion(prompt="letter", argument="to")
    async def people(partial: str, ctx: Context) -> list[str]:
        return [str((await ctx.elicit("First name?", str)).data)]

    reference = {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "to", "value": "A"}}
    async with connect(server, MODERN, EVERYTHING) as client:
        error = await client.error("completion/complete", reference)
        # No capability is missing, so this is not -32021.
        assert error["code"] == -32603
        assert "completion/complete cannot ask the client" in error["message"]
    async with connect(server, "2025-11-25", EVERYTHING) as client:
        done = await converse(client, "completion/complete", reference, names())
        assert done.result["completion"]["values"] == ["Ada"]


@pytest.mark.parametrize("revision", OLD)
@pytest.mark.covers("ELI-6")
async def test_a_client_that_refuses_with_an_error_fails_the_tool_not_the_request(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def form(ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str))

    @server.tool
    async def caught(ctx: Context) -> str:
        try:
            await ctx.elicit("First name?", str)
        except Refused as refused:
            return f"refused with {refused.code}"
        return "unreachable"

    def refuse(kind: str, params: Message) -> Message:
        raise Refusal(-32601, "Method not found")

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "form", {}, refuse)
        assert done.failure == "The client refused elicitation/create: Method not found"
        assert (await call(client, "caught", {}, refuse)).text == "refused with -32601"


@pytest.mark.parametrize("revision", OLD)
async def test_a_legacy_client_that_disconnects_while_a_question_is_open(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("asks")
    seen: list[BaseException] = []
    over = asyncio.Event()

    async def ask(ctx: Context) -> None:
        try:
            await ctx.elicit("First name?", str)
        except BaseException as error:
            seen.append(error)
            raise
        finally:
            over.set()

    server.tool(ask)
    async with connect(server, revision, EVERYTHING) as client:
        client.start("tools/call", {"name": "ask"})
        await client.until(lambda: client.requests)
    await over.wait()
    (error,) = seen
    assert isinstance(error, Refused)
    assert error.code is None
    # A client that leaves is no fault of the server's.
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@cases("revision", OLD)
@cases("plain", [False, True, "dependency"])
async def test_a_client_that_cancels_its_call_is_no_longer_asked(revision: str, plain: bool | str) -> None:
    server = Server("asks")
    ended: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def ask(ctx: Context) -> None:
        try:
            await ctx.elicit("First name?", str)
        except asyncio.CancelledError:
            ended.put_nowait("cancelled")
            raise

    def ask_plainly(ctx: SyncContext) -> None:
        try:
            ctx.elicit("First name?", str)
        except asyncio.CancelledError:
            loop.call_soon_threadsafe(ended.put_nowait, "cancelled")
            raise

    async def depends(asked: None = Depends(ask_plainly)) -> None:
        return

    server.tool("ask")(depends if plain == "dependency" else ask_plainly if plain else ask)
    async with connect(server, revision, EVERYTHING) as client:
        response = client.start("tools/call", {"name": "ask"}, id="call")
        (question,) = await client.until(lambda: client.requests)
        client.notify("notifications/cancelled", {"requestId": "call"})
        (params,) = await client.notified("notifications/cancelled")
        assert params["requestId"] == question["id"]
        assert await ended.get() == "cancelled"
        # An answer that comes too late is nobody's.
        client.send({"jsonrpc": "2.0", "id": question["id"], "result": accept("Ada")})
        assert (await client.request("ping"))["result"] == {}
        assert not response.done()


async def test_a_modern_client_that_cancels_while_the_handler_is_parked_gets_no_answer() -> None:
    server = Server("asks")
    parked = asyncio.Event()

    @server.tool
    async def ask(ctx: Context) -> None:
        parked.set()
        await ctx.elicit("First name?", str)

    async with connect(server, MODERN, EVERYTHING) as client:
        response = client.start("tools/call", {"name": "ask"}, id="call")
        await parked.wait()
        client.notify("notifications/cancelled", {"requestId": "call"})
        assert (await client.result("server/discover"))["resultType"] == "complete"
        assert (await client.result("tools/list"))["resultType"] == "complete"
        for _ in range(SETTLE_TURNS * 2):
            await asyncio.sleep(0)
        assert not response.done()


@pytest.mark.parametrize("revision", OLD)
async def test_a_question_that_is_never_answered_is_given_up(revision: str) -> None:
    server = Server("asks", limits=Limits(state=0.01))

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str))

    async with connect(server, revision, EVERYTHING) as client:
        async with patience("the end of a question, which waits for 0.01 seconds", 1):
            result = await client.call("ask")
        assert result["isError"]
        assert result["content"][0]["text"] == "The client did not answer elicitation/create"
        (params,) = await client.notified("notifications/cancelled")
        assert params["requestId"] == client.requests[0]["id"]


@pytest.mark.covers("E13")
@cases("revision", OLD)
@cases("plain", [False, True])
async def test_each_question_may_have_a_time_of_its_own(revision: str, plain: bool) -> None:
    server = Server("asks")
    capable = ("elicit",) if revision < "2025-11-25" else ("elicit", "elicit_url")

    async def ask(ctx: Context, what: str) -> str:
        if what == "elicit":
            await ctx.elicit("First name?", str, timeout=0.01)
        elif what == "elicit_url":
            await ctx.elicit_url("Sign in", "https://example.com/", timeout=0.01)
        elif what == "sample":
            await ctx.sample("Hello", timeout=0.01)
        else:
            await ctx.list_roots(timeout=0.01)
        return "answered"

    def ask_plainly(ctx: SyncContext, what: str) -> str:
        if what == "elicit":
            ctx.elicit("First name?", str, timeout=0.01)
        elif what == "elicit_url":
            ctx.elicit_url("Sign in", "https://example.com/", timeout=0.01)
        elif what == "sample":
            ctx.sample("Hello", timeout=0.01)
        else:
            ctx.list_roots(timeout=0.01)
        return "answered"

    server.tool("ask")(ask_plainly if plain else ask)
    async with connect(server, revision, EVERYTHING) as client:
        for what in (*capable, "sample", "list_roots"):
            async with patience(f"the end of {what}, which waits for 0.01 seconds", 1):
                result = await client.call("ask", {"what": what})
            assert result["isError"]
            assert result["content"][0]["text"].startswith("The client did not answer ")


@cases("timeout", [0, -1, float("nan"), float("inf")])
async def test_a_time_for_an_answer_is_above_zero(timeout: float) -> None:
    server = Server("asks", debug=True)

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("First name?", str, timeout=timeout))

    async with connect(server, MODERN, EVERYTHING) as client:
        assert "a number of seconds above zero" in (await client.call("ask"))["content"][0]["text"]


@pytest.mark.covers("MRTR-6")
async def test_the_shortest_time_counts_for_all_questions_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("toolwire.server.replay_state.time.time", lambda: now[0])
    server = Server("asks", limits=Limits(state=60))

    @server.tool
    async def ask(ctx: Context, times: list[float | None]) -> str:
        await asyncio.gather(*(ctx.elicit(f"{n}?", bool, key=f"{n}", timeout=time) for n, time in enumerate(times)))
        return "answered"

    async with connect(server, MODERN, EVERYTHING) as client:
        cases: list[tuple[list[float | None], float]] = [([5], 5), ([5, None, 30], 5), ([3600], 3600), ([None], 60)]
        for times, seconds in cases:
            for late in (0, 1):
                first = await client.call("ask", {"times": times})
                more = {
                    "requestState": first["requestState"],
                    "inputResponses": {key: accept(True) for key in first["inputRequests"]},
                }
                now[0] += seconds + late
                answer = await client.request("tools/call", {"name": "ask", "arguments": {"times": times}, **more})
                assert ("error" in answer) is bool(late), answer


# --- Time ---


@cases("revision", OLD)
@cases("way", ["first", "later", "together", "plain"])
async def test_the_tools_time_stands_still_while_it_asks(revision: str, way: str) -> None:
    server = Server("asks")
    limit = 5

    async def ask(ctx: Context) -> str:
        if way == "later":
            await asyncio.sleep(0)
        if way == "together":
            await asyncio.gather(ctx.elicit("First name?", str), ctx.elicit("Last name?", str))
            await asyncio.sleep(0)
        await ctx.elicit("Title?", str)
        return "done"

    def ask_plainly(ctx: SyncContext) -> str:
        ctx.elicit("Title?", str)
        return "done"

    server.tool("ask", timeout=limit)(ask_plainly if way == "plain" else ask)
    async with connect(server, revision, EVERYTHING) as client:
        response = client.start("tools/call", {"name": "ask"})
        expected = 2 if way == "together" else 1
        await client.until(lambda: len(client.requests) == expected)
        await elapse(limit * 2)
        client.send({"jsonrpc": "2.0", "id": client.requests[0]["id"], "result": accept("Ada")})
        if way == "together":
            # One of two is answered: the other is still open.
            await elapse(limit * 2)
            client.send({"jsonrpc": "2.0", "id": client.requests[1]["id"], "result": accept("Ada")})
            await client.until(lambda: len(client.requests) == 3)
            await elapse(limit * 2)
            client.send({"jsonrpc": "2.0", "id": client.requests[2]["id"], "result": accept("Ada")})
        result = (await response)["result"]
        assert result["content"][0]["text"] == "done"


@every_revision
async def test_the_tools_time_goes_on_after_the_answer(revision: str) -> None:
    server = Server("asks")

    @server.tool(timeout=0.02)
    async def ask(ctx: Context) -> str:
        await ctx.elicit("First name?", str)
        await asyncio.Event().wait()
        return "unreachable"

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "ask", {}, names())
        assert done.failure == "ask did not finish within 0.02 seconds"
