"""One time limit for a whole call of the client: rounds, pages, lists, second attempts, tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.client.fake import FakeServer, text
from tests.client.scripted_http import Reply, Request, Script, SignsIn, on, refusal, result
from tests.client.test_rounds import question, required

from toolwire import Client, Context, Server, testing
from toolwire.client import Elicitation, InvalidResponse, Pins
from toolwire.client import tasks as client_tasks
from toolwire.client.middleware import ClientContext
from toolwire.errors import Timeout
from toolwire.protocol import types as t
from toolwire.protocol.errors import URL_ELICITATION_REQUIRED, ProtocolError, Unreachable
from toolwire.testing import elapse
from toolwire.wire.deadlines import CallClock

# Shorter than `deadlines.LONG`, so that the time is counted exactly. One step is in time, and two are too late.
LIMIT = 15.0
STEP = 8.0
#: How long a person takes.
THINKING = 1000.0

TOGETHER = "not answered within 15 seconds, in all its requests together"
OBJECTS = {"type": "object"}
NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WRONG = text("done", structured_content={"n": "x"})


def slowly(*answers: Any) -> Callable[..., Awaitable[Any]]:
    """Return a handler that takes a step of time for each answer, or raises it."""
    left = iter(answers)

    async def handle(request: Any, outlet: Any) -> Any:
        await elapse(STEP)
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer(request, outlet) if callable(answer) else answer

    return handle


def tools(*listed: t.Tool) -> t.ListToolsResult:
    return t.ListToolsResult(tools=list(listed), ttl_ms=0, cache_scope="private")


async def turn() -> None:
    """Let everything happen that waits for nothing."""
    for _ in range(50):
        await asyncio.sleep(0)


async def think(message: str, params: Any) -> dict[str, Any]:
    await elapse(THINKING)
    return {"x": message}


# --- the clock ---


class Source:
    now = 50.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def source() -> Source:
    return Source()


def test_requests_share_the_limit_without_the_time_of_people(source: Source) -> None:
    clock = CallClock(10.0, source)
    assert clock.limit("tools/call") == 10.0
    source.now += 6.0
    with clock.leave_out():
        source.now += THINKING
        assert clock.left() == 4.0
    assert clock.limit("tools/call") == 4.0
    source.now += 4.0
    with pytest.raises(Timeout, match=r"tools/call was not answered within 10 seconds, in all its requests together"):
        clock.limit("tools/call")


def test_progress_extends_the_limit_up_to_the_ceiling(source: Source) -> None:
    clock = CallClock(10.0, source, ceiling=25.0)
    clock.limit("tools/call")
    for seconds in (9.0, 9.0):
        source.now += seconds
        clock.restart()
    assert clock.left() == 7.0
    source.now += 7.0
    with pytest.raises(Timeout, match="25 seconds"):
        clock.limit("tools/call")


def test_limit_counts_by_the_clock_of_the_next_connection(source: Source) -> None:
    clock, other = CallClock(10.0, source), Source()
    clock.limit("tools/call")
    source.now += 6.0
    other.now = 7.0
    clock.follow(other)
    source.now += 100.0
    other.now += 1.0
    assert clock.limit("tools/call") == 3.0


def test_time_of_a_request_counts_while_its_caller_is_paused(source: Source) -> None:
    clock = CallClock(10.0, source)
    clock.begin()
    with clock.leave_out():
        source.now += THINKING
        with clock.count_again():
            source.now += 2.0
            with clock.count_again():  # A second request beside the first.
                source.now += 2.0
        source.now += THINKING
    assert clock.left() == 6.0


@pytest.mark.parametrize("seconds", [None, float("inf")])
def test_call_without_a_limit_never_ends(source: Source, seconds: float | None) -> None:
    clock = CallClock(seconds, source, ceiling=25.0)
    clock.limit("tools/call")
    source.now += 1e9
    clock.restart()
    assert clock.limit("tools/call") is None
    clock.cap(3.0)
    assert clock.limit("tools/call") == 3.0


# --- rounds ---


async def test_rounds_share_the_limit() -> None:
    server = FakeServer({"tools/call": slowly(required("s", a=question()), text("late"))})
    async with testing.connect(server, elicit=lambda *_: {"x": "y"}) as (client, _):
        with pytest.raises(Timeout, match=f"^run: tools/call was {TOGETHER}"):
            await client.call_tool("run", timeout=LIMIT)


async def test_rounds_leave_out_the_time_of_a_person() -> None:
    asked = [required("s", a=question()), required("s", b=question()), text("in time")]
    answers = iter(asked)
    server = FakeServer({"tools/call": lambda request, outlet: next(answers)})
    async with testing.connect(server, elicit=think) as (client, _):
        assert (await client.call_tool("run", timeout=LIMIT)).text == "in time"


async def test_pauses_between_rounds_without_questions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.protocol.rounds._FIRST_PAUSE", STEP)
    monkeypatch.setattr("toolwire.protocol.rounds._LONGEST_PAUSE", STEP)
    sent = asyncio.Semaphore(0)

    def call(request: Any, outlet: Any) -> Any:
        sent.release()
        return required("s")

    async with testing.connect(FakeServer({"tools/call": call})) as (client, _):
        calling = asyncio.ensure_future(client.call_tool("run", timeout=LIMIT))
        for _ in range(2):
            await sent.acquire()
            await turn()
            await elapse(STEP)
        with pytest.raises(Timeout, match=TOGETHER):
            await calling


@pytest.mark.parametrize("several", [False, True])
async def test_pause_between_rounds_ends_with_the_limit(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.protocol.rounds._FIRST_PAUSE", 100 * LIMIT)
    monkeypatch.setattr("toolwire.protocol.rounds._LONGEST_PAUSE", 100 * LIMIT)
    sent = asyncio.Event()

    def call(request: Any, outlet: Any) -> Any:
        sent.set()
        return required("s")

    listed = tools(t.Tool(name="run", input_schema=OBJECTS))
    server = FakeServer({"tools/call": call, "tools/list": lambda request, outlet: listed})
    async with Client({"a": server} if several else server) as client:
        calling = asyncio.ensure_future(client.call_tool("a_run" if several else "run", timeout=LIMIT))
        await sent.wait()
        await turn()
        await elapse(LIMIT)
        with pytest.raises(Timeout):
            await asyncio.wait_for(calling, 10)


async def test_repeated_round_gets_what_is_left() -> None:
    later = ProtocolError(-32603, "try again later", {"retryAfterMs": 10})
    sent: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            return required("s", a=question())
        await elapse(STEP)
        if len(sent) == 2:
            raise later
        return text("late")

    async with testing.connect(FakeServer({"tools/call": call}), elicit=lambda *_: {"x": "y"}) as (client, _):
        with pytest.raises(Timeout, match=TOGETHER):
            await client.call_tool("run", timeout=LIMIT)
    assert len(sent) == 3


async def test_progress_of_a_later_round_gives_the_whole_limit_again() -> None:
    sent: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        sent.append(request)
        await elapse(STEP)
        if len(sent) == 1:
            return required("s", a=question())
        if len(sent) == 2:
            # Seven seconds are left now, unless progress gives more.
            await report(request, outlet)
            await elapse(STEP)
            await report(request, outlet)
            await elapse(STEP)
        return text("in time")

    async def report(request: Any, outlet: Any) -> None:
        token = request.params.meta.progress_token
        outlet.notify("notifications/progress", t.ProgressNotificationParams(progress_token=token, progress=len(sent)))
        await turn()

    server = FakeServer({"tools/call": call})
    options: dict[str, Any] = {"timeout": LIMIT + STEP / 2, "on_progress": lambda params: None}
    async with testing.connect(server, elicit=lambda *_: {"x": "y"}) as (client, _):
        assert (await client.call_tool("run", **options)).text == "in time"


async def test_call_without_progress_is_not_extended_by_its_callback() -> None:
    server = FakeServer({"tools/call": slowly(required("s", a=question()), text("late"))})
    async with testing.connect(server, elicit=lambda *_: {"x": "y"}) as (client, _):
        with pytest.raises(Timeout, match=TOGETHER):
            await client.call_tool("run", timeout=LIMIT, on_progress=lambda params: None)


def visit() -> ProtocolError:
    entry = {"mode": "url", "elicitationId": "1", "url": "https://a.example/", "message": "Go there"}
    return ProtocolError(URL_ELICITATION_REQUIRED, "visit", {"elicitations": [entry]})


async def test_call_after_a_visited_url_gets_what_is_left() -> None:
    server = FakeServer({"tools/call": slowly(visit(), text("late"))})
    opened = Elicitation(url=lambda *_: True)
    async with testing.connect(server, revision="2025-11-25", elicit=opened) as (client, _):
        with pytest.raises(Timeout, match=TOGETHER):
            await client.call_tool("run", timeout=LIMIT)


async def test_visit_to_a_url_does_not_count() -> None:
    async def open_url(*_: Any) -> bool:
        await elapse(THINKING)
        return True

    answers: Iterator[Any] = iter([visit(), text("in time")])

    def call(request: Any, outlet: Any) -> Any:
        answer = next(answers)
        if isinstance(answer, ProtocolError):
            raise answer
        return answer

    server = FakeServer({"tools/call": call})
    async with testing.connect(server, revision="2025-11-25", elicit=Elicitation(url=open_url)) as (client, _):
        assert (await client.call_tool("run", timeout=LIMIT)).text == "in time"


# --- pages ---


async def test_pages_share_the_limit() -> None:
    def page(request: Any, outlet: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[], next_cursor=str(request.id), ttl_ms=0, cache_scope="private")

    async with testing.connect(FakeServer({"tools/list": slowly(page, page)})) as (client, _):
        with pytest.raises(Timeout, match=f"^tools/list was {TOGETHER}"):
            await client.list_tools(timeout=LIMIT)


# --- the list that a result is checked against ---


async def test_result_does_not_wait_for_a_list_beyond_the_limit() -> None:
    listed = asyncio.Event()
    returned = asyncio.Event()

    async def call(request: Any, outlet: Any) -> Any:
        await elapse(LIMIT - 2)
        return WRONG

    async def listing(request: Any, outlet: Any) -> Any:
        await elapse(3)
        await returned.wait()
        listed.set()
        return tools(t.Tool(name="run", input_schema=OBJECTS, output_schema=NUMBERS))

    server = FakeServer({"tools/call": call, "tools/list": listing})
    async with testing.connect(server) as (client, wire):
        # The result could not be checked, and the list is not waited for.
        assert (await client.call_tool("run", timeout=LIMIT)).text == "done"
        returned.set()
        await wire.until(lambda direction, message: direction == "←" and "tools" in message.get("result", {}))
        # The list has come, and serves for the next result.
        with pytest.raises(InvalidResponse):
            await client.call_tool("run", timeout=None)


async def test_list_for_another_schema_gets_what_is_left() -> None:
    calls: list[Any] = []
    lists: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        calls.append(request)
        await elapse(LIMIT - 2)
        return WRONG

    async def listing(request: Any, outlet: Any) -> Any:
        lists.append(request)
        if len(lists) == 1:
            return tools(t.Tool(name="run", input_schema=OBJECTS, output_schema=NUMBERS))
        await elapse(3)
        return tools(t.Tool(name="run", input_schema=OBJECTS))

    async with testing.connect(FakeServer({"tools/call": call, "tools/list": listing})) as (client, _):
        await client.list_tools()
        # The second list would say that the result is right, and comes too late.
        with pytest.raises(InvalidResponse):
            await client.call_tool("run", timeout=LIMIT)
        assert len(lists) == 2


async def test_list_that_failed_confirms_no_schema() -> None:
    lists: list[Any] = []

    def listing(request: Any, outlet: Any) -> Any:
        lists.append(request)
        if len(lists) == 2:
            raise ProtocolError(-32603, "not now")
        schema: dict[str, Any] = {"output_schema": NUMBERS} if len(lists) == 1 else {}
        return tools(t.Tool(name="run", input_schema=OBJECTS, **schema))

    server = FakeServer({"tools/call": lambda request, outlet: WRONG, "tools/list": listing})
    async with testing.connect(server) as (client, _):
        await client.list_tools()
        with pytest.raises(InvalidResponse):
            await client.call_tool("run")
        assert (await client.call_tool("run")).text == "done"
    assert len(lists) == 3


async def test_result_is_checked_after_a_person_was_asked() -> None:
    async def call(request: Any, outlet: Any) -> Any:
        params = t.ElicitRequestParams(message="?", requested_schema=OBJECTS)
        await outlet.request("elicitation/create", params)
        return WRONG

    listed = tools(t.Tool(name="run", input_schema=OBJECTS, output_schema=NUMBERS))
    server = FakeServer({"tools/call": call, "tools/list": lambda request, outlet: listed})
    async with testing.connect(server, revision="2025-11-25", elicit=think) as (client, _):
        with pytest.raises(InvalidResponse):
            await client.call_tool("run", timeout=LIMIT)


async def test_result_is_checked_after_a_sign_in() -> None:
    signed: list[str] = []

    def answer(request: Request) -> Reply | None:
        if request.rpc == "tools/call" and "authorization" not in request.headers:
            signed.append(request.rpc)
            return Reply(401)
        if request.rpc == "tools/call":
            return result(request, content=[], structuredContent={"n": "x"})
        if request.rpc == "tools/list":
            tool = {"name": "run", "inputSchema": OBJECTS, "outputSchema": NUMBERS}
            return result(request, tools=[tool], ttlMs=0, cacheScope="private")
        return None

    async with Script(answer).client(auth=SignsIn(THINKING)) as client:
        with pytest.raises(InvalidResponse):
            await client.call_tool("run", timeout=LIMIT)
    assert signed


# --- what comes before a call, and second attempts ---


async def test_list_before_an_approval_counts_and_the_approval_does_not() -> None:
    listed = tools(t.Tool(name="run", input_schema=OBJECTS))
    late: list[bool] = []

    async def listing(request: Any, outlet: Any) -> Any:
        if late:
            await elapse(STEP)
        return listed

    async def call(request: Any, outlet: Any) -> Any:
        if late:
            await elapse(STEP)
        return text("done")

    async def approve(call: Any) -> bool:
        await elapse(THINKING)
        return True

    server = FakeServer({"tools/call": call, "tools/list": listing})
    async with Client(server, approve=approve) as client:
        assert (await client.call_tool("run", timeout=LIMIT)).text == "done"
    late.append(True)
    async with Client(server, approve=approve) as client:
        with pytest.raises(Timeout, match=TOGETHER):
            await client.call_tool("run", timeout=LIMIT)


async def test_call_with_new_headers_gets_what_the_first_call_and_the_list_left() -> None:
    async def call(request: Request) -> Reply | None:
        await elapse(STEP)
        return None if len(script.of("tools/call")) > 1 else refusal(request, -32020)

    tool = {"name": "x", "inputSchema": OBJECTS}
    lists = on(tools_list=lambda request: result(request, tools=[tool], ttlMs=0, cacheScope="private"), tools_call=call)
    script = Script(lists)
    async with script.client() as client:
        with pytest.raises(Timeout, match=f"^x: tools/call was {TOGETHER}"):
            await client.call_tool("x", timeout=LIMIT)
    assert [request.rpc for request in script.requests[1:]] == ["tools/call", "tools/list", "tools/call"]


async def test_list_for_new_headers_gets_what_the_call_left() -> None:
    async def listing(request: Request) -> Reply:
        await elapse(STEP)
        return result(request, tools=[], ttlMs=0, cacheScope="private")

    async def call(request: Request) -> Reply:
        await elapse(STEP)
        return refusal(request, -32020)

    async with Script(on(tools_list=listing, tools_call=call)).client() as client:
        with pytest.raises(Timeout, match=r"^tools/list"):
            await client.call_tool("x", timeout=LIMIT)


@pytest.mark.parametrize("send", ["call_tool", "request"])
async def test_pinned_call_shares_the_limit_with_its_list(send: str) -> None:
    listed = tools(t.Tool(name="run", input_schema=OBJECTS))
    server = FakeServer({"tools/call": slowly(text("late")), "tools/list": slowly(listed)})
    async with Client(server, pins=Pins()) as client:
        with pytest.raises(Timeout, match=TOGETHER):
            if send == "call_tool":
                await client.call_tool("run", timeout=LIMIT)
            else:
                await client.request("tools/call", {"name": "run"}, timeout=LIMIT)


async def test_request_that_is_sent_again_gets_what_is_left() -> None:
    async def read(request: Request) -> Reply:
        await elapse(STEP)
        if len(script.of("resources/read")) == 1:
            return Reply(502)
        return result(request, contents=[], ttlMs=0, cacheScope="private")

    script = Script(on(resources_read=read))
    async with script.client() as client:
        with pytest.raises(Timeout, match=f"^a:b: resources/read was {TOGETHER}"):
            await client.read_resource("a:b", timeout=LIMIT)


async def test_call_waits_for_a_lost_server_within_its_limit() -> None:
    is_back = asyncio.Event()
    opened: list[Any] = []

    async def initialize(request: Request) -> Reply | None:
        opened.append(request)
        if len(opened) > 1:
            await elapse(LIMIT)
            await is_back.wait()
        return None

    def call(request: Request) -> Reply | None:
        return Reply(404, {}) if len(opened) == 1 else None

    script = Script(on(initialize=initialize, tools_call=call), modern=False)
    async with script.client(timeout=None) as client:
        with pytest.raises(Unreachable, match="did not come back in time"):
            await client.call_tool("run", timeout=LIMIT)
        # So does the next one, which finds the connection lost.
        calling = asyncio.ensure_future(client.call_tool("run", timeout=LIMIT))
        await elapse(LIMIT)
        await turn()
        assert calling.done()
        with pytest.raises(Unreachable, match="did not come back in time"):
            await calling
        # It uses the connection that is being opened.
        calling = asyncio.ensure_future(client.call_tool("run"))
        is_back.set()
        assert (await calling).text == "ok"
        assert len(opened) == 2


async def test_sign_in_on_a_new_connection_does_not_count() -> None:
    sessions: list[Request] = []

    def answer(request: Request) -> Reply | None:
        if request.rpc == "initialize":
            sessions.append(request)
            return Reply(401) if len(sessions) == 2 else None
        if request.rpc == "tools/call" and len(sessions) == 1:
            return Reply(404, {})
        return None

    async with Script(answer, modern=False).client(auth=SignsIn(THINKING)) as client:
        assert (await client.call_tool("run", timeout=LIMIT)).text == "ok"
    assert len(sessions) == 3


# --- tasks ---


def task(status: str, **members: Any) -> dict[str, Any]:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None}
    return {"taskId": "t", "status": status, "pollIntervalMs": 10, **times, **members}


TASKS = {"tools": {}, "extensions": {t.TASKS_EXTENSION: {}}}


async def test_task_gets_what_its_call_left() -> None:
    cancelled = asyncio.Event()

    def cancel(request: Any, outlet: Any) -> Any:
        cancelled.set()
        return {"resultType": "complete"}

    started = {"resultType": "task", **task("working")}
    done = {"resultType": "complete", **task("completed", result={"content": []})}
    server = FakeServer(
        {"tools/call": slowly(started), "tasks/get": slowly(done), "tasks/cancel": cancel}, capabilities=TASKS
    )
    async with testing.connect(server) as (client, _):
        with pytest.raises(Timeout, match="was not done in time"):
            await client.call_tool("run", timeout=LIMIT)
        await cancelled.wait()


async def test_call_does_not_wait_for_the_cancellation_of_its_task() -> None:
    returned, cancelled = asyncio.Event(), asyncio.Event()
    ended_first: list[bool] = []

    async def cancel(request: Any, outlet: Any) -> Any:
        try:
            await returned.wait()
        finally:
            ended_first.append(returned.is_set())
            cancelled.set()
        return {"resultType": "complete"}

    started = {"resultType": "task", **task("working")}
    server = FakeServer(
        {"tools/call": slowly(started), "tasks/get": slowly(started), "tasks/cancel": cancel}, capabilities=TASKS
    )
    async with testing.connect(server) as (client, _):
        with pytest.raises(Timeout):
            await client.call_tool("run", timeout=LIMIT)
        returned.set()
        await cancelled.wait()
    assert ended_first == [True]


@pytest.mark.parametrize(
    ("of_client", "of_call", "seconds"),
    [
        ({}, {}, 600.0),
        ({}, {"timeout": LIMIT}, LIMIT),
        ({"timeout": LIMIT}, {}, LIMIT),
        ({"timeout": 60.0}, {}, 60.0),
        ({"timeout": 1000.0}, {}, 1000.0),
        ({"timeout": 60.0}, {"timeout": LIMIT}, LIMIT),
        ({"timeout": LIMIT}, {"timeout": 100.0}, 100.0),
    ],
    ids=str,
)
async def test_task_has_the_limit_that_the_program_set_or_ten_minutes(
    monkeypatch: pytest.MonkeyPatch, of_client: dict[str, float], of_call: dict[str, float], seconds: float
) -> None:
    monkeypatch.setattr(client_tasks, "poll_seconds", lambda milliseconds: 0.001)
    taken = 0.0

    async def poll(request: Any, outlet: Any) -> Any:
        nonlocal taken
        await elapse(seconds / 8)
        taken += seconds / 8
        return {"resultType": "complete", **task("working")}

    started = {"resultType": "task", **task("working")}
    server = FakeServer(
        {
            "tools/call": lambda request, outlet: started,
            "tasks/get": poll,
            "tasks/cancel": lambda request, outlet: {"resultType": "complete"},
        },
        capabilities=TASKS,
    )
    async with testing.connect(server, **of_client) as (client, _):  # type: ignore[arg-type]
        with pytest.raises(Timeout):
            await client.call_tool("run", **of_call)  # type: ignore[arg-type]
    assert seconds * 0.75 <= taken <= seconds * 1.25


async def test_progress_of_a_task_extends_the_limit_of_its_call() -> None:
    polls = iter(range(1, 100))

    async def poll(request: Any, outlet: Any) -> Any:
        await elapse(STEP)
        step = next(polls)
        members = {"result": {"content": []}} if step == 10 else {"statusMessage": f"step {step}"}
        return {"resultType": "complete", **task("completed" if step == 10 else "working", **members)}

    started = {"resultType": "task", **task("working")}
    server = FakeServer({"tools/call": lambda request, outlet: started, "tasks/get": poll}, capabilities=TASKS)
    async with testing.connect(server, timeout=LIMIT) as (client, _):
        result = await client.call_tool("run", on_progress=lambda report: None)
    assert not result.is_error


async def test_task_leaves_out_the_time_of_a_person() -> None:
    states = iter(
        [
            task("input_required", inputRequests={"a": question()}),
            task("completed", result={"content": [{"type": "text", "text": "in time"}]}),
        ]
    )
    server = FakeServer(
        {
            "tools/call": lambda request, outlet: {"resultType": "task", **task("working")},
            "tasks/get": lambda request, outlet: {"resultType": "complete", **next(states)},
            "tasks/update": lambda request, outlet: {"resultType": "complete"},
        },
        capabilities=TASKS,
    )
    async with testing.connect(server, elicit=think) as (client, _):
        assert (await client.call_tool("run", timeout=LIMIT)).text == "in time"


# --- middleware, several servers, skills ---


async def test_rounds_of_a_client_with_middleware_share_the_limit() -> None:
    limits: list[float | None] = []

    async def pass_on(ctx: ClientContext, call_next: Any) -> Any:
        limits.append(ctx.timeout)
        await elapse(THINKING)  # Middleware may ask a person.
        return await call_next(ctx)

    server = FakeServer({"tools/call": slowly(required("s", a=question()), text("late"))})
    async with testing.connect(server, elicit=lambda *_: {"x": "y"}, middleware=[pass_on]) as (client, _):
        with pytest.raises(Timeout, match=TOGETHER):
            await client.call_tool("run", timeout=LIMIT)
    assert limits[0] == LIMIT


async def test_limit_of_a_middleware_counts_anew_for_each_attempt() -> None:
    async def try_twice(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        ctx.timeout = LIMIT
        try:
            return await call_next(ctx)
        except Timeout:
            return await call_next(ctx)

    calls: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        calls.append(request)
        await elapse(2 * STEP if len(calls) == 1 else STEP)
        return text("in time")

    async with testing.connect(FakeServer({"tools/call": call}), middleware=[try_twice]) as (client, _):
        assert (await client.call_tool("run", timeout=1)).text == "in time"


async def test_rounds_of_one_of_several_servers_share_the_limit_of_a_middleware() -> None:
    async def limit(ctx: ClientContext, call_next: Any) -> Any:
        if ctx.method == "tools/call":
            ctx.timeout = LIMIT
        return await call_next(ctx)

    listed = tools(t.Tool(name="run", input_schema=OBJECTS))
    servers = {
        name: FakeServer(
            {
                "tools/call": slowly(required("s", a=question()), text("late")),
                "tools/list": lambda request, outlet: listed,
            },
            capabilities={"tools": {}},
        )
        for name in ("a", "b")
    }
    async with Client(servers, timeout=None, elicit=lambda *_: {"x": "y"}, middleware=[limit]) as client:
        with pytest.raises(Timeout):
            await client.call_tool("a_run")


async def test_rounds_of_one_of_several_servers_share_the_limit_of_the_call() -> None:
    listed = tools(t.Tool(name="run", input_schema=OBJECTS))
    servers = {
        name: FakeServer(
            {
                "tools/call": slowly(required("s", a=question()), text("late")),
                "tools/list": lambda request, outlet: listed,
            },
            capabilities={"tools": {}},
        )
        for name in ("a", "b")
    }
    async with Client(servers, elicit=lambda *_: {"x": "y"}) as client:
        with pytest.raises(Timeout):
            await client.call_tool("a_run", timeout=LIMIT)


async def test_pages_of_skills_share_the_limit() -> None:
    server = Server("skilled")
    extension = server.extension(t.SKILLS_EXTENSION, needs_client=False)
    cursors: list[Any] = []

    @extension.method("skills/list", params=t.ListSkillsRequestParams)
    async def list_skills(params: Any, ctx: Context) -> Any:
        cursors.append(params.cursor)
        await elapse(STEP)
        return {"skills": [], "nextCursor": str(len(cursors)), "ttlMs": 0, "cacheScope": "private"}

    async with Client(server) as client:
        with pytest.raises(Timeout):
            await client.skills.list(timeout=LIMIT)
    assert len(cursors) == 2
