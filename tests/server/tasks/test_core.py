"""What only 2025-11-25 has: waiting for `tasks/result`, and questions that come while a client waits."""

from __future__ import annotations

import asyncio

import pytest
from tests.http.httpclient import HttpClient, initialize_request
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import CORE, RELATED, Over, accepted, begin, over, reaches, status_of, talk, text_in
from tests.wireclient import Refusal

from toolwire import Limits


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
@pytest.mark.covers("T-32")
async def test_questions_are_asked_where_the_client_waits_for_the_result(over: Over) -> None:
    held = Held()
    async with talk(held.server, CORE, over) as client:
        values = {"First?": "one", "Second?": "two"}
        client.answers["elicitation/create"] = lambda params: accepted(values[params["message"]])
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
            client.send({"jsonrpc": "2.0", "id": request["id"], "result": accepted("v")})
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


async def test_listing_is_withheld_where_there_are_no_sessions() -> None:
    app = Held(capabilities={"tasks": {"list": {}}}).server.http_app(stateless=True)
    client = HttpClient(app)
    declared = (await client.post(initialize_request())).json()["result"]["capabilities"]["tasks"]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": {}}
    answer = await client.post(message, {"mcp-protocol-version": CORE})
    assert (sorted(declared), answer.json()["error"]["code"]) == (["cancel", "requests"], -32601)
    await client.close()
    await app.stop()
