"""Tasks of 2025-11-25: the client asks for one, polls it and fetches its outcome."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.server import process_handlers
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import (
    CORE,
    RELATED,
    TRANSPORTS,
    Over,
    begin,
    look,
    outcome,
    reaches,
    status_of,
    talk,
    text_in,
)
from tests.wire.httpclient import HttpClient, initialize_request
from tests.wireclient import LEGACY, MODERN, Refusal

from toolwire import Limits, Server

over = pytest.mark.parametrize("over", TRANSPORTS)


@over
@pytest.mark.covers("J66", "J69", "J73", "E15", "E33")
async def test_a_call_with_task_is_answered_at_once_and_goes_on(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        created = (await client.call("hold", {"label": "a"}, task={"ttl": 60_000}))["task"]
        assert (created["status"], created["ttl"]) == ("working", 60_000)
        assert created["pollInterval"] == 1000
        for time in ("createdAt", "lastUpdatedAt"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", created[time])
        assert await look(client, created["taskId"]) == created
        held.go.set()
        done = await reaches(client, created["taskId"], "completed")
        assert done["createdAt"] == created["createdAt"]
        assert text_in(await client.call("hold", {"label": "b"})) == "held b", "without the field it is a plain call"
    assert held.seen == [("done", True), ("done", False)]


@over
@pytest.mark.covers("J74", "J75", "T-32")
async def test_tasks_result_waits_and_answers_what_the_call_would_have(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        task = await begin(client, "hold")
        waiting = client.start("tasks/result", {"taskId": task})
        await held.started.wait()
        assert text_in(await client.call("plain", {"name": "Ada"})) == "Hello, Ada!", "it blocks nobody else"
        assert not waiting.done()
        held.go.set()
        result = (await waiting)["result"]
        assert (text_in(result), result["_meta"][RELATED]) == ("held x", {"taskId": task})
        assert await client.result("tasks/result", {"taskId": task}) == result, "and again"
        assert RELATED not in str(await look(client, task))


@over
@pytest.mark.covers("J75")
async def test_those_who_wait_leave_room_for_others(over: Over) -> None:
    held = Held(limits=Limits(in_flight=4))
    async with talk(held.server, CORE, over) as client:
        task = await begin(client, "hold")
        waiting = [client.start("tasks/result", {"taskId": task}) for _ in range(4)]
        done, still = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 2:
            more, still = await asyncio.wait(still, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert {each.result()["error"]["code"] for each in done} == {-32603}
        assert await status_of(client, task) == "working"
        held.go.set()
        assert [text_in((await each)["result"]) for each in still] == ["held x"] * 2
        assert text_in(await client.result("tasks/result", {"taskId": task})) == "held x"


@over
@pytest.mark.covers("J74", "T-31")
async def test_failures_come_back_as_the_call_would_have_answered_them(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        broken = await begin(client, "broken")
        result = await client.result("tasks/result", {"taskId": broken})
        assert (text_in(result), result["isError"]) == ("it broke", True)
        shown = await look(client, broken)
        assert (shown["status"], shown["statusMessage"]) == ("failed", "it broke")
        refused = await begin(client, "refused")
        error = await client.error("tasks/result", {"taskId": refused})
        assert error == {"code": -32099, "message": "not like this", "data": {"why": "because"}}
        assert await status_of(client, refused) == "failed"
        crashed = await client.result("tasks/result", {"taskId": await begin(client, "crashing")})
        assert "secret" not in text_in(crashed)


@over
@pytest.mark.covers("J68", "J70")
async def test_what_a_tool_does_not_allow_is_refused(over: Over) -> None:
    async with talk(Held().server, CORE, over) as client:
        forbidden = await client.error("tools/call", {"name": "plain", "task": {}})
        required = await client.error("tools/call", {"name": "only"})
        assert (forbidden["code"], required["code"]) == (-32601, -32601)
        assert "without `task`" in forbidden["message"]


@pytest.mark.covers("J71", "T-49")
@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
async def test_the_setting_is_listed_where_it_is_known(revision: str) -> None:
    async with talk(Held().server, revision) as client:
        tools = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
    if revision == CORE:
        assert tools["hold"]["execution"] == {"taskSupport": "optional"}
        assert tools["only"]["execution"] == {"taskSupport": "required"}
        assert "execution" not in tools["plain"]
    else:
        assert not [tool for tool in tools.values() if "execution" in tool]


@pytest.mark.covers("J72", "2.2.26")
@pytest.mark.parametrize("revision", [revision for revision in LEGACY if revision != CORE])
async def test_older_clients_run_everything_synchronously(revision: str) -> None:
    held = Held()
    held.go.set()
    async with talk(held.server, revision) as client:
        assert "tasks" not in client.initialized["capabilities"]
        assert text_in(await client.call("hold", task={"ttl": 1})) == "held x"
        assert text_in(await client.call("only")) == "only as a task"
        assert (await client.error("tasks/get", {"taskId": "x"}))["code"] == -32601
    assert held.seen == [("done", False)]


@pytest.mark.covers("T-29")
async def test_the_capability_says_what_can_be_a_task() -> None:
    async with talk(Held().server, CORE) as client:
        declared = client.initialized["capabilities"]
        assert declared["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert "extensions" not in declared, "the extension does not exist here"
        for proposed in ("tasks/delete", "tasks/update"):
            assert (await client.error(proposed, {"taskId": "t"}))["code"] == -32601


@over
@pytest.mark.covers("J77", "J78", "1.5.3")
async def test_cancelling_wakes_those_who_wait_and_is_final(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        task = await begin(client, "hold")
        waiting = client.start("tasks/result", {"taskId": task})
        await held.started.wait()
        assert (await client.result("tasks/cancel", {"taskId": task}))["status"] == "cancelled"
        assert (await waiting)["error"]["message"] == "The task was cancelled"
        await held.stopped.wait()
        again = await client.error("tasks/cancel", {"taskId": task})
        assert again["code"] == -32602
        held.go.set()
        assert await status_of(client, task) == "cancelled"
        finished = await begin(client, "hold")
        await reaches(client, finished, "completed")
        assert (await client.error("tasks/cancel", {"taskId": finished}))["code"] == -32602
    assert held.seen == [("cancelled", True), ("done", True)]


@over
@pytest.mark.covers("J79", "J86")
async def test_a_blocking_handler_sees_that_it_was_cancelled_and_blocks_nobody(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        task = await begin(client, "blocking")
        # Until the handler has said something, everything else is answered.
        while (await look(client, task)).get("statusMessage") != "1 of 2":
            await asyncio.sleep(0)
        await client.result("tasks/cancel", {"taskId": task})
        while held.seen != [False, True]:
            await asyncio.sleep(0.001)
        assert await status_of(client, task) == "cancelled", "what it returned came too late"


@pytest.mark.parametrize("revision", [CORE, MODERN])
async def test_a_handler_in_a_process_of_its_own_is_a_task_too(revision: str) -> None:
    server = Server("processes", limits=Limits(task_window=0.0))
    server.tool(task="optional", executor="process")(process_handlers.compute)
    server.tool(task="optional", executor="process")(process_handlers.hang)
    async with talk(server, revision) as client:
        hanging = await begin(client, "hang")
        computed = await outcome(client, await begin(client, "compute", {"base": 7}))
        assert '"base":7' in text_in(computed)
        await client.result("tasks/cancel", {"taskId": hanging})
        assert await status_of(client, hanging) == "cancelled"


@over
@pytest.mark.covers("J83", "E35")
async def test_each_transition_is_announced(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        client.answers["elicitation/create"] = lambda params: {"action": "accept", "content": {"value": "yes"}}
        task = await begin(client, "asking")
        await client.notified("notifications/tasks/status")
        await client.result("tasks/result", {"taskId": task})
        told = await client.notified("notifications/tasks/status", 3)
        assert [each["status"] for each in told] == ["input_required", "working", "completed"]
        assert told[-1] == await look(client, task), "with the whole task, and nothing else"


@over
@pytest.mark.covers("J85", "T-12", "1.6.5")
async def test_progress_and_logs_go_on_with_the_token_of_the_call(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        task = await begin(client, "reporting", _meta={"progressToken": "p7"})
        await client.notified("notifications/progress")
        held.go.set()
        told = await client.notified("notifications/progress", 2)
        assert [(each["progress"], each["progressToken"]) for each in told] == [(1, "p7"), (4, "p7")]
        assert all(each["_meta"][RELATED] == {"taskId": task} for each in told)
        (logged,) = await client.notified("notifications/message")
        assert logged["_meta"][RELATED] == {"taskId": task}


@over
async def test_progress_is_the_status_message_too(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        task = await begin(client, "reporting")
        while (await look(client, task)).get("statusMessage") != "a quarter":
            await asyncio.sleep(0)
        held.go.set()
        assert "statusMessage" not in await reaches(client, task, "completed")


@over
@pytest.mark.covers("T-32")
async def test_questions_are_asked_where_the_client_waits_for_the_result(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        values = {"First?": "one", "Second?": "two"}
        client.answers["elicitation/create"] = lambda params: {
            "action": "accept",
            "content": {"value": values[params["message"]]},
        }
        task = await begin(client, "asking")
        await reaches(client, task, "input_required")
        assert client.requests == [], "nothing is asked before somebody listens"
        result = await client.result("tasks/result", {"taskId": task})
        assert text_in(result) == "one and two"
        assert all(each["params"]["_meta"][RELATED] == {"taskId": task} for each in client.requests)
        thread = await begin(client, "asking_in_thread")
        values["Name?"] = "Ada"
        assert text_in(await client.result("tasks/result", {"taskId": thread})) == "Hello, Ada!"


async def test_two_who_wait_are_not_asked_twice() -> None:
    held = Held()
    async with talk(held.server, CORE) as client:
        task = await begin(client, "asking")
        await reaches(client, task, "input_required")
        first = client.start("tasks/result", {"taskId": task}, id="first")
        second = client.start("tasks/result", {"taskId": task}, id="second")
        await client.until(lambda: len(client.requests) == 2)
        # The one that asked gives up: the other asks in its place.
        client.notify("notifications/cancelled", {"requestId": "first"})
        await client.until(lambda: len(client.requests) == 4)
        for request in client.requests[2:]:
            client.send(
                {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "accept", "content": {"value": "v"}}}
            )
        assert text_in((await second)["result"]) == "v and v"
        assert not first.done()


async def test_a_refused_question_is_an_error_of_the_tool() -> None:
    def refuse(params: object) -> None:
        raise Refusal(-1, "not now")

    held = Held()
    async with talk(held.server, CORE) as client:
        client.answers["elicitation/create"] = refuse
        result = await client.result("tasks/result", {"taskId": await begin(client, "asking_in_thread")})
        assert result["isError"]
        assert "not now" in text_in(result)


@pytest.mark.covers("J80")
async def test_listing_goes_page_by_page() -> None:
    held = Held()
    held.go.set()
    async with talk(held.server, CORE) as client:
        made = [await begin(client, "hold") for _ in range(120)]
        first = await client.result("tasks/list")
        second = await client.result("tasks/list", {"cursor": first["nextCursor"]})
        listed = [task["taskId"] for task in [*first["tasks"], *second["tasks"]]]
        assert (sorted(listed), len(first["tasks"]), "nextCursor" in second) == (sorted(made), 100, False)
        assert (await client.error("tasks/list", {"cursor": "nonsense"}))["code"] == -32602


@pytest.mark.covers("J81")
@pytest.mark.parametrize("stateless", [False, True])
async def test_listing_is_withheld_from_http_clients_that_nobody_knows(stateless: bool) -> None:
    held = Held(capabilities={"tasks": {"list": {}}})
    app = held.server.http_app(stateless=stateless)
    try:
        if stateless:
            client = HttpClient(app)
            declared = (await client.post(initialize_request())).json()["result"]["capabilities"]["tasks"]
            message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": {}}
            answer = await client.post(message, {"mcp-protocol-version": CORE})
            error = answer.json()["error"]
            await client.close()
        else:
            async with talk(held.server, CORE, "http", app=app) as talking:
                declared = talking.initialized["capabilities"]["tasks"]
                error = await talking.error("tasks/list")
            async with talk(held.server, CORE, "http", app=app, principal="ada") as known:
                assert "list" in known.initialized["capabilities"]["tasks"]
                assert await known.result("tasks/list") == {"tasks": []}
        assert (sorted(declared), error["code"]) == (["cancel", "requests"], -32601)
    finally:
        await app.stop()


@over
@pytest.mark.covers("J82", "TSK-18")
async def test_a_task_belongs_to_its_principal(over: Over) -> None:
    held = Held()
    app = held.server.http_app() if over == "http" else None
    async with (
        talk(held.server, CORE, over, principal="ada", app=app) as ada,
        talk(held.server, CORE, over, principal="eve", app=app) as eve,
    ):
        task = await begin(ada, "hold")
        unknown = await eve.error("tasks/get", {"taskId": "never was"})
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert await eve.error(method, {"taskId": task}) == unknown
        assert await eve.result("tasks/list") == {"tasks": []}
        assert [each["taskId"] for each in (await ada.result("tasks/list"))["tasks"]] == [task]
        held.go.set()
        await reaches(ada, task, "completed")
    if app is not None:
        await app.stop()


@pytest.mark.covers("J76")
@pytest.mark.parametrize("over", TRANSPORTS)
async def test_a_client_that_goes_while_it_waits_hurts_nobody(over: Over) -> None:
    held = Held(limits=Limits(drain=0.0))
    app = held.server.http_app() if over == "http" else None
    async with talk(held.server, CORE, over, principal="ada", app=app) as staying:
        async with talk(held.server, CORE, over, principal="ada", app=app) as going:
            task = await begin(going, "hold")
            if over == "http":
                post = going.post("tasks/result", {"taskId": task})
                await held.started.wait()
                post.vanish()
            else:
                going.start("tasks/result", {"taskId": task})
                await held.started.wait()
        held.go.set()
        assert text_in(await staying.result("tasks/result", {"taskId": task})) == "held x"
    if app is not None:
        await app.stop()


async def test_giving_up_on_the_result_does_not_end_the_task() -> None:
    held = Held()
    async with talk(held.server, CORE) as client:
        task = await begin(client, "hold")
        client.start("tasks/result", {"taskId": task}, id="waiting")
        await held.started.wait()
        client.notify("notifications/cancelled", {"requestId": "waiting"})
        assert await status_of(client, task) == "working"
        held.go.set()
        await reaches(client, task, "completed")
