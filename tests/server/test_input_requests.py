"""One tool that asks, written once, on every revision that knows elicitation."""

from __future__ import annotations

import asyncio
import datetime
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.cases import cases
from tests.server.answering import ASKING, EVERYTHING, Answer, accept, by_message, call, converse
from tests.wireclient import MODERN, Message, connect

from toolwire import Client, Context, Depends, Limits, Server, ToolError, testing
from toolwire.protocol.errors import ProtocolError
from toolwire.server.context import SyncContext
from toolwire.server.input_requests import SETTLE_TURNS

every_revision = cases("revision", ASKING)


def names(answers: dict[str, Any] | None = None) -> Answer:
    return by_message(answers or {"First name?": "Ada", "Last name?": "Lovelace", "Title?": "Countess"})


# --- The shapes of a handler ---


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


# --- What runs again, and what does not ---


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
        result = 0
        with suppress(OSError):
            result = await ctx.step("try", fails_first)
        await ctx.elicit("First name?", str)
        return f"{result} of {len(tries)}"

    @server.tool
    async def twice(ctx: Context) -> str:
        await ctx.step("same", lambda: 1)
        return str(await ctx.step("same", lambda: 2))

    @server.tool
    async def shapeless(ctx: Context) -> str:
        return str(await ctx.step("shape", lambda: object()))

    async with connect(server, revision, EVERYTHING) as client:
        # On 2026-07-28 the handler runs again with the answer, and the step that failed with it.
        assert (await call(client, "patient", {}, names())).text == ("2 of 2" if revision == MODERN else "0 of 1")
        assert "Two steps of the same call are named 'same'" in (await call(client, "twice", {}, names())).failure
        assert "must be a JSON value" in (await call(client, "shapeless", {}, names())).failure


@every_revision
@pytest.mark.parametrize("as_task", [False, True])
async def test_result_of_a_step_is_refused_where_json_would_change_it(revision: str, as_task: bool) -> None:
    server = Server("steps", limits=Limits(task_window=0.0) if as_task else Limits())
    wrong: dict[str, Any] = {
        "nan": float("nan"),
        "infinity": {"a": [1, None, float("-inf")]},
    }
    right: dict[str, Any] = {"null": None, "nested": {"a": [1.5, None, "null", "ü"]}}

    @server.tool(task="optional" if as_task else None)
    async def step(of: str, ctx: Context) -> str:
        try:
            return repr(await ctx.step("only", lambda: {**wrong, **right}[of]))
        except TypeError as error:
            return str(error)

    async with connect(server, revision, EVERYTHING) as client:
        for name in wrong:
            said = (await call(client, "step", {"of": name}, names())).text
            assert said.startswith("The result of the step 'only' must be a JSON value: "), name
        for name, value in right.items():
            assert (await call(client, "step", {"of": name}, names())).text == repr(value)


@every_revision
@pytest.mark.parametrize("as_task", [False, True])
async def test_result_of_a_step_is_the_same_in_every_round(revision: str, as_task: bool) -> None:
    server = Server("steps", limits=Limits(task_window=0.0) if as_task else Limits())
    seen: list[str] = []
    values: dict[str, tuple[Any, Any]] = {
        "bytes": (b"\x00\xff", "AP8="),
        "bytearray": (bytearray(b"\x00\xff"), "AP8="),
        "tuple": ((1, b"a"), [1, "YQ=="]),
        "keys": ({1: {2}}, {"1": [2]}),
        "date": (datetime.date(2026, 7, 28), "2026-07-28"),
        "large": (2**70, 2**70),
    }

    @server.tool(task="optional" if as_task else None)
    async def step(of: str, ctx: Context) -> str:
        value = await ctx.step("only", lambda: values[of][0])
        seen.append(repr(value))
        await ctx.elicit("First name?", str)
        seen.append(repr(value))
        return "done"

    async with connect(server, revision, EVERYTHING) as client:
        for name, (_, expected) in values.items():
            seen.clear()
            await call(client, "step", {"of": name}, names())
            assert set(seen) == {repr(expected)}, name


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


# --- Handlers that are in the way ---


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


# --- Where else questions come from ---


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


# --- With our own client ---


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
