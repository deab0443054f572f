"""One tool that asks, written once, on every revision that knows elicitation."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.server.answering import ASKING, EVERYTHING, Answer, accept, by_message, call, converse
from tests.wireclient import LEGACY, MODERN, Message, Refusal, connect

from toolwire import Client, Context, Depends, Limits, Server, ToolError, testing
from toolwire.protocol.errors import NotSupported, ProtocolError
from toolwire.server.context import SyncContext
from toolwire.server.input_requests import SETTLE_TURNS, Refused
from toolwire.testing import elapse

every_revision = pytest.mark.parametrize("revision", ASKING)
OLD = tuple(revision for revision in ASKING if revision != MODERN)


def names(answers: dict[str, Any] | None = None) -> Answer:
    return by_message(answers or {"First name?": "Ada", "Last name?": "Lovelace", "Title?": "Countess"})


# --- The shapes of a handler -----------------------------------------------------------------------------------------


@every_revision
async def test_two_questions_in_turn(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def greet(ctx: Context) -> str:
        first = await ctx.elicit("First name?", str)
        last = await ctx.elicit("Last name?", str)
        return f"{first.data} {last.data}"

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "greet", {}, names())
        assert done.text == "Ada Lovelace"
        assert done.messages == ["First name?", "Last name?"]
        assert len(done.rounds) == (2 if revision == MODERN else 0)


@pytest.mark.covers("TRN-1")
@pytest.mark.parametrize("over", ["memory", "stdio"])
@every_revision
async def test_only_an_older_server_sends_requests(revision: str, over: Any) -> None:
    server = Server("asks")

    @server.tool
    async def everything(ctx: Context) -> str:
        await ctx.progress(1)
        name = await ctx.elicit("First name?", str)
        return name.data or ""

    async with connect(server, revision, EVERYTHING, over=over) as client:
        params = {"name": "everything", "arguments": {}, "_meta": {"progressToken": "p"}}
        done = await converse(client, "tools/call", params, names())
        assert done.text == "Ada"
        kinds = {
            ("request" if "id" in message else "notification") if "method" in message else "answer"
            for message in client.received
        }
    # 2026-07-28 basic/transports: responses and notifications come back, and nothing else.
    assert kinds == ({"answer", "notification"} if revision == MODERN else {"answer", "notification", "request"})


@every_revision
@pytest.mark.parametrize("way", ["gather", "task group", "wait_for", "tasks"])
async def test_three_questions_at_once_leave_in_one_round(revision: str, way: str) -> None:
    server = Server("asks")

    @server.tool
    async def greet(ctx: Context) -> str:
        questions = [ctx.elicit(message, str) for message in ("Title?", "First name?", "Last name?")]
        if way == "gather":
            answers = await asyncio.gather(*questions)
        elif way == "wait_for":
            answers = await asyncio.wait_for(asyncio.gather(*questions), 60)
        elif way == "tasks":
            tasks = [asyncio.create_task(question) for question in questions]
            answers = [await task for task in tasks]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(question) for question in questions]
            answers = [task.result() for task in tasks]
        return " ".join(answer.data for answer in answers)

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "greet", {}, names())
        assert done.text == "Countess Ada Lovelace"
        assert len(done.asked) == 3
        if revision == MODERN:
            assert [len(each["inputRequests"]) for each in done.rounds] == [3]


@every_revision
async def test_questions_of_nested_tasks_that_start_a_few_turns_apart_still_leave_together(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def greet(ctx: Context) -> str:
        async def late(message: str, turns: int) -> Any:
            for _ in range(turns):
                await asyncio.sleep(0)
            return (await ctx.elicit(message, str)).data

        async def pair() -> list[str]:
            return await asyncio.gather(late("Title?", 1), late("First name?", SETTLE_TURNS - 4))

        both, last = await asyncio.gather(pair(), late("Last name?", 0))
        return " ".join([*both, last])

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "greet", {}, names())
        assert done.text == "Countess Ada Lovelace"
        assert len(done.rounds) == (revision == MODERN)


@every_revision
async def test_a_plain_function_asks(revision: str) -> None:
    server = Server("asks")
    threads: set[int] = set()

    @server.tool
    def greet(ctx: SyncContext) -> str:
        threads.add(threading.get_ident())
        first = ctx.elicit("First name?", str)
        last = ctx.elicit("Last name?", str)
        return f"{first.data} {last.data}"

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "greet", {}, names())
        assert done.text == "Ada Lovelace"
        assert done.messages == ["First name?", "Last name?"]
    assert threading.get_ident() not in threads


@every_revision
async def test_a_plain_generator_asks(revision: str) -> None:
    server = Server("asks")

    @server.tool
    def greet(ctx: SyncContext) -> Iterator[Any]:
        yield 1
        first = ctx.elicit("First name?", str)
        yield f"Hello {first.data}"

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "greet", {}, names())).text == "Hello Ada"


@every_revision
async def test_an_async_generator_asks(revision: str) -> None:
    server = Server("asks")
    closed: list[bool] = []

    @server.tool
    async def greet(ctx: Context) -> AsyncIterator[Any]:
        try:
            yield 1
            first = await ctx.elicit("First name?", str)
            yield 2
            yield f"Hello {first.data}"
        finally:
            closed.append(True)

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "greet", {}, names())).text == "Hello Ada"
    assert len(closed) == (2 if revision == MODERN else 1)


@every_revision
async def test_a_prompt_asks(revision: str) -> None:
    server = Server("asks")

    @server.prompt
    async def letter(to: str, ctx: Context) -> str:
        sender = await ctx.elicit("First name?", str)
        return f"A letter from {sender.data} to {to}"

    async with connect(server, revision, EVERYTHING) as client:
        done = await converse(client, "prompts/get", {"name": "letter", "arguments": {"to": "Charles"}}, names())
        assert done.result["messages"][0]["content"]["text"] == "A letter from Ada to Charles"


@every_revision
async def test_a_resource_and_a_template_ask(revision: str) -> None:
    server = Server("asks")

    @server.resource("card://me")
    async def card(ctx: Context) -> str:
        return str((await ctx.elicit("First name?", str)).data)

    @server.resource("card://{who}/seal")
    def seal(who: str, ctx: SyncContext) -> str:
        return f"{who} {ctx.elicit('Last name?', str).data}"

    async with connect(server, revision, EVERYTHING) as client:
        done = await converse(client, "resources/read", {"uri": "card://me"}, names())
        assert done.result["contents"][0]["text"] == "Ada"
        done = await converse(client, "resources/read", {"uri": "card://ada/seal"}, names())
        assert done.result["contents"][0]["text"] == "ada Lovelace"


@every_revision
async def test_a_resource_that_a_tool_reads_asks_in_the_tools_name(revision: str) -> None:
    server = Server("asks")

    @server.resource("card://me")
    async def card(ctx: Context) -> str:
        return str((await ctx.elicit("First name?", str)).data)

    @server.tool
    async def copy(ctx: Context) -> str:
        contents = await ctx.read_resource("card://me")
        last = await ctx.elicit("Last name?", str)
        return f"{contents[0].text} {last.data}"

    @server.tool
    def copy_plainly(ctx: SyncContext) -> str:
        return str(ctx.read_resource("card://me")[0].text)

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "copy", {}, names())).text == "Ada Lovelace"
        assert (await call(client, "copy_plainly", {}, names())).text == "Ada"


@every_revision
async def test_the_low_level_call_handler_asks(revision: str) -> None:
    server = Server("asks")

    @server.on_list_tools
    async def tools() -> list[dict[str, Any]]:
        return [{"name": "greet", "inputSchema": {"type": "object"}}]

    @server.on_call_tool
    async def handle(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"{name} {(await ctx.elicit('First name?', str)).data}"

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "greet", {}, names())).text == "greet Ada"


@every_revision
async def test_asking_under_a_timeout_of_the_handlers_own(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def greet(ctx: Context) -> str:
        try:
            async with asyncio.timeout(60):
                first = await ctx.elicit("First name?", str)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                last = group.create_task(ctx.elicit("Last name?", str))
        except TimeoutError:
            return "too slow"
        return f"{first.data} {last.result().data}"

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "greet", {}, names())).text == "Ada Lovelace"


# --- What runs again, and what does not ------------------------------------------------------------------------------


@every_revision
async def test_a_dependency_commits_in_the_last_round_only(revision: str) -> None:
    server = Server("asks")
    begun: list[int] = []
    committed: list[int] = []
    rolled_back: list[type[BaseException]] = []

    async def transaction() -> AsyncIterator[list[int]]:
        begun.append(1)
        try:
            yield begun
        except BaseException as error:
            rolled_back.append(type(error))
            raise
        committed.append(1)

    @server.tool
    async def greet(ctx: Context, begun: list[int] = Depends(transaction)) -> str:
        await ctx.elicit("First name?", str)
        assert not committed
        await ctx.elicit("Last name?", str)
        return "done"

    @server.tool
    def greet_plainly(ctx: SyncContext, begun: list[int] = Depends(transaction)) -> str:
        ctx.elicit("First name?", str)
        ctx.elicit("Last name?", str)
        return "done"

    async with connect(server, revision, EVERYTHING) as client:
        for name in ("greet", "greet_plainly"):
            for each in (begun, committed, rolled_back):
                each.clear()
            assert (await call(client, name, {}, names())).text == "done"
            assert committed == [1]
            assert len(begun) == (3 if revision == MODERN else 1)
            assert len(rolled_back) == len(begun) - 1


@every_revision
async def test_a_step_runs_once_over_three_rounds(revision: str) -> None:
    server = Server("asks")
    ran: list[str] = []

    def order(what: str) -> dict[str, Any]:
        ran.append(what)
        return {"order": what, "number": len(ran)}

    async def order_later(what: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return order(what)

    @server.tool
    async def buy(ctx: Context) -> str:
        first = await ctx.step("first", lambda: order("tea"))
        await ctx.elicit("First name?", str)
        second = await ctx.step("second", lambda: order_later("milk"))
        await ctx.elicit("Last name?", str)
        return f"{first} {second}"

    @server.tool
    def buy_plainly(ctx: SyncContext) -> str:
        first = ctx.step("first", lambda: order("tea"))
        ctx.elicit("First name?", str)
        second = ctx.step("second", lambda: order("milk"))
        ctx.elicit("Last name?", str)
        return f"{first} {second}"

    async with connect(server, revision, EVERYTHING) as client:
        for name in ("buy", "buy_plainly"):
            ran.clear()
            done = await call(client, name, {}, names())
            assert done.text == str({"order": "tea", "number": 1}) + " " + str({"order": "milk", "number": 2})
            assert ran == ["tea", "milk"]


@every_revision
async def test_a_step_that_runs_beside_a_question_is_finished_and_remembered(revision: str) -> None:
    server = Server("asks")
    started: list[int] = []
    finished: list[int] = []

    async def slow() -> int:
        started.append(1)
        for _ in range(SETTLE_TURNS * 5):
            await asyncio.sleep(0)
        finished.append(1)
        return 42

    @server.tool
    async def both(ctx: Context) -> str:
        answer, number = await asyncio.gather(ctx.elicit("First name?", str), ctx.step("slow", slow))
        return f"{answer.data} {number}"

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "both", {}, names())).text == "Ada 42"
    assert started == finished == [1]


@every_revision
async def test_a_step_that_fails_is_not_remembered_and_the_names_of_steps_differ(revision: str) -> None:
    server = Server("asks", debug=True)
    tries: list[int] = []

    def fails_first() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")
        return len(tries)

    @server.tool
    async def patient(ctx: Context) -> str:
        with suppress(OSError):
            await ctx.step("try", fails_first)
        await ctx.elicit("First name?", str)
        return str(await ctx.step("again" if revision != MODERN else "try", fails_first))

    @server.tool
    async def twice(ctx: Context) -> str:
        await ctx.step("same", lambda: 1)
        return str(await ctx.step("same", lambda: 2))

    @server.tool
    async def shapeless(ctx: Context) -> str:
        return str(await ctx.step("shape", lambda: object()))

    async with connect(server, revision, EVERYTHING) as client:
        if revision != MODERN:
            assert (await call(client, "patient", {}, names())).text == "2"
        assert "Two steps of the same call are named 'same'" in (await call(client, "twice", {}, names())).failure
        assert "must be a JSON value" in (await call(client, "shapeless", {}, names())).failure


@every_revision
async def test_answers_to_concurrent_questions_are_never_exchanged(revision: str) -> None:
    server = Server("asks")
    dice = random.Random(20260728)

    @server.tool
    async def many(count: int, ctx: Context) -> str:
        async def ask(number: int) -> bool:
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            own = await ctx.elicit(f"Number {number}?", int)
            again = await ctx.elicit(f"Again {number}?", int)
            return bool(own.data == number and again.data == number)

        order = list(range(count))
        dice.shuffle(order)
        return str(all(await asyncio.gather(*(ask(number) for number in order))))

    def answer(kind: str, params: Message) -> Message:
        return accept(int(params["message"].split()[1].rstrip("?")))

    async with connect(server, revision, EVERYTHING) as client:
        for _ in range(100):
            done = await call(client, "many", {"count": 5}, answer)
            assert done.text == "True"
            assert len(done.asked) == 10


# --- Handlers that are in the way ------------------------------------------------------------------------------------


@every_revision
async def test_a_broad_except_around_a_question_lets_it_pass(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def careful(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("First name?", str)
        except Exception:
            return "swallowed"
        return str(answer.data)

    @server.tool
    def careful_plainly(ctx: SyncContext) -> str:
        try:
            answer = ctx.elicit("First name?", str)
        except Exception:
            return "swallowed"
        return str(answer.data)

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "careful", {}, names())).text == "Ada"
        assert (await call(client, "careful_plainly", {}, names())).text == "Ada"


@every_revision
async def test_a_handler_that_swallows_even_its_cancellation_is_asked_anyway(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def stubborn(ctx: Context) -> str:
        for message in ("First name?", "Last name?"):
            try:
                answer = await ctx.elicit(message, str)
            except BaseException:
                continue
            if message == "Last name?":
                return str(answer.data)
        return "swallowed"

    @server.tool
    async def converts(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("First name?", str)
        except BaseException:
            raise ToolError("converted") from None
        return str(answer.data)

    @server.tool
    def stubborn_plainly(ctx: SyncContext) -> str:
        try:
            return str(ctx.elicit("First name?", str).data)
        except BaseException:
            return "swallowed"

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "stubborn", {}, names())).text == "Lovelace"
        assert (await call(client, "converts", {}, names())).text == "Ada"
        assert (await call(client, "stubborn_plainly", {}, names())).text == "Ada"


@every_revision
async def test_a_failure_beside_a_question_is_a_failure(revision: str) -> None:
    server = Server("asks")

    @server.tool
    async def fails(ctx: Context) -> str:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise ToolError("the printer is on fire")

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.elicit("First name?", str))
            group.create_task(fail())
        return "unreachable"

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "fails", {}, names())
        assert done.failure == "the printer is on fire"
        assert done.rounds == []


async def test_a_question_that_nobody_waits_for_does_not_hold_up_the_answer() -> None:
    server = Server("asks")
    left: list[asyncio.Task[Any]] = []

    @server.tool
    async def hasty(ctx: Context) -> str:
        left.append(asyncio.create_task(ctx.elicit("First name?", str)))
        await asyncio.sleep(0)
        return "done"

    async def dawdle(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        for _ in range(SETTLE_TURNS * 2):
            await asyncio.sleep(0)
        return result

    server.use(dawdle)
    async with connect(server, MODERN, EVERYTHING) as client:
        assert (await call(client, "hasty", {}, names())).text == "done"
    assert left[0].cancelled()


# --- Where else questions come from ----------------------------------------------------------------------------------


@every_revision
async def test_a_dependency_asks(revision: str) -> None:
    server = Server("asks")

    async def first_name(ctx: Context) -> str:
        return str((await ctx.elicit("First name?", str)).data)

    @server.tool
    async def greet(ctx: Context, first: str = Depends(first_name)) -> str:
        return f"{first} {(await ctx.elicit('Last name?', str)).data}"

    @server.tool
    def greet_plainly(ctx: SyncContext, first: str = Depends(first_name)) -> str:
        return f"{first} {ctx.elicit('Last name?', str).data}"

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "greet", {}, names())).text == "Ada Lovelace"
        assert (await call(client, "greet_plainly", {}, names())).text == "Ada Lovelace"


@every_revision
async def test_a_plain_dependency_asks(revision: str) -> None:
    server = Server("asks")
    left: list[type[BaseException] | None] = []

    def first_name(ctx: SyncContext) -> str:
        return str(ctx.elicit("First name?", str).data)

    def last_name(ctx: SyncContext) -> Iterator[str]:
        error: type[BaseException] | None = None
        try:
            yield str(ctx.elicit("Last name?", str).data)
        except BaseException as caught:
            error = type(caught)
            raise
        finally:
            left.append(error)

    @server.tool
    async def greet(ctx: Context, first: str = Depends(first_name), last: str = Depends(last_name)) -> str:
        async with asyncio.TaskGroup() as group:
            title = group.create_task(ctx.elicit("Title?", str))
            group.create_task(ctx.elicit("Sure?"))
        return f"{title.result().data} {first} {last}"

    @server.tool
    def greet_plainly(ctx: SyncContext, first: str = Depends(first_name)) -> str:
        return f"{ctx.elicit('Title?', str).data} {first}"

    answers = {"Title?": "Countess", "First name?": "Ada", "Last name?": "Lovelace", "Sure?": True}
    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "greet", {}, by_message(answers))
        assert done.text == "Countess Ada Lovelace"
        # First name, last name, and the two of the task group together.
        assert len(done.rounds) == (3 if revision == MODERN else 0)
        assert left[-1] is None
        assert (await call(client, "greet_plainly", {}, by_message(answers))).text == "Countess Ada"


@every_revision
async def test_a_plain_tool_reads_a_resource_that_asks_in_a_task_group(revision: str) -> None:
    server = Server("asks")

    @server.resource("card://me")
    async def card(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.elicit("First name?", str))
            last = group.create_task(ctx.elicit("Last name?", str))
        return f"{first.result().data} {last.result().data}"

    @server.tool
    def copy(ctx: SyncContext) -> str:
        return str(ctx.read_resource("card://me")[0].text)

    async with connect(server, revision, EVERYTHING) as client:
        assert (await call(client, "copy", {}, names())).text == "Ada Lovelace"


@every_revision
async def test_a_middleware_asks_before_and_after_the_handler(revision: str) -> None:
    server = Server("asks")
    ran: list[int] = []

    @server.use
    async def confirm(ctx: Context, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        first, last = await asyncio.gather(ctx.elicit("First name?", str), ctx.elicit("Last name?", str))
        ctx.state["name"] = f"{first.data} {last.data}"
        result = await call_next(ctx)
        if ctx.params.name == "greet":
            await ctx.elicit("Title?", str)
        return result

    @server.tool
    async def greet(ctx: Context) -> str:
        ran.append(1)
        return str(ctx.state["name"])

    @server.tool
    async def chat(ctx: Context) -> str:
        return f"{ctx.state['name']}, {(await ctx.elicit('Title?', str)).data}"

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "greet", {}, names())
        assert done.text == "Ada Lovelace"
        assert done.messages == ["First name?", "Last name?", "Title?"]
        assert len(ran) == (2 if revision == MODERN else 1)
        assert (await call(client, "chat", {}, names())).text == "Ada Lovelace, Countess"


@every_revision
async def test_a_middleware_that_runs_the_rest_in_a_task_of_its_own(revision: str) -> None:
    server = Server("asks")

    @server.use
    async def bounded(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            await ctx.elicit("Title?", str)
        return await asyncio.create_task(call_next(ctx))

    @server.tool
    async def greet(ctx: Context) -> str:
        first, last = await asyncio.gather(ctx.elicit("First name?", str), ctx.elicit("Last name?", str))
        return f"{first.data} {last.data}"

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "greet", {}, names())
        assert done.text == "Ada Lovelace"
        assert len(done.rounds) == (2 if revision == MODERN else 0)


async def test_a_middleware_that_keeps_its_unwinding_to_itself_does_not_set_the_handler_going() -> None:
    server = Server("asks")
    ran: list[int] = []

    @server.use
    async def confused(ctx: Context, call_next: Any) -> Any:
        with suppress(BaseException):
            await ctx.elicit("First name?", str)
        return await call_next(ctx)

    @server.tool
    async def act() -> str:
        ran.append(1)
        return "acted"

    async with connect(server, MODERN, EVERYTHING) as client:
        assert (await call(client, "act", {}, names())).text == "acted"
    assert ran == [1]


# --- Clients that cannot, will not, or go away -----------------------------------------------------------------------


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


@pytest.mark.parametrize("revision", LEGACY)
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


@pytest.mark.parametrize("revision", (*LEGACY, MODERN))
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


@pytest.mark.parametrize("revision", OLD)
@pytest.mark.parametrize("plain", [False, True, "dependency"])
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
        result = await client.call("ask")
        assert result["isError"]
        assert result["content"][0]["text"] == "The client did not answer elicitation/create"
        (params,) = await client.notified("notifications/cancelled")
        assert params["requestId"] == client.requests[0]["id"]


@pytest.mark.parametrize("revision", OLD)
@pytest.mark.parametrize("plain", [False, True])
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
            result = await client.call("ask", {"what": what})
            assert result["isError"]
            assert result["content"][0]["text"].startswith("The client did not answer ")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
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


# --- Time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", OLD)
@pytest.mark.parametrize("way", ["first", "later", "together", "plain"])
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


# --- With our own client ---------------------------------------------------------------------------------------------


@every_revision
@pytest.mark.parametrize("over", ["memory", "stdio"])
async def test_with_toolwires_own_client(revision: str, over: Any) -> None:
    server = Server("asks")
    ran: list[int] = []

    @server.tool
    async def greet(ctx: Context) -> str:
        number = await ctx.step("count", lambda: ran.append(1) or len(ran))
        title = await ctx.elicit("Title?", str)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.elicit("First name?", str))
            last = group.create_task(ctx.elicit("Last name?", str))
        return f"{number} {title.data} {first.result().data} {last.result().data}"

    answers = names()

    def answer(message: str, params: Any) -> Any:
        return answers("elicitation/create", {"message": message})["content"]

    async with testing.connect(server, revision=revision, over=over, elicit=answer) as (client, wire):
        assert (await client.call_tool("greet")).text == "1 Countess Ada Lovelace"
        if revision == MODERN:
            assert sum(each.get("result", {}).get("resultType") == "input_required" for each in wire.received) == 2


async def test_a_server_object_is_enough_for_the_client() -> None:
    server = Server("asks")

    @server.tool
    def greet(ctx: SyncContext) -> str:
        answer = ctx.elicit("First name?", str)
        return answer.action if answer.data is None else str(answer.data)

    async with Client(server, elicit=lambda message, params: {"value": "Ada"}) as client:
        assert (await client.call_tool("greet")).text == "Ada"
    async with Client(server) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("greet")
        assert caught.value.code == -32021
