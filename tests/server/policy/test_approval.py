"""A hook that may hold a call until somebody approves of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Policy, Server
from toolwire.auth import Principal
from toolwire.server.policy import Call, Rate, Slots


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def guarded(approve: Any, **more: Any) -> tuple[Server, list[str]]:
    ran: list[str] = []
    server = Server("s")

    async def purge(table: str) -> str:
        ran.append(table)
        return "gone"

    server.tool(policy=Policy(approve=approve, **more))(purge)
    return server, ran


@cases(
    ("answer", "said"),
    [
        (True, "gone"),
        (False, "The call of purge was not approved."),
        ("not on Fridays", "The call of purge was not approved: not on Fridays"),
        (None, "The call of purge was not approved."),
        (1, "The call of purge was not approved."),
    ],
)
async def test_only_a_plain_yes_lets_a_call_through(answer: Any, said: str) -> None:
    asked: list[Call] = []

    async def approve(ctx: Context, call: Call) -> Any:
        asked.append(call)
        return answer

    server, ran = guarded(approve)
    ann = Principal("ann")
    async with connect(server, MODERN, principal=ann) as client:
        assert text(await client.call("purge", {"table": "users"})) == said
    assert asked == [Call("tools/call", "purge", {"table": "users"}, ann)]
    assert ran == (["users"] if answer is True else [])


async def test_what_is_approved_is_what_the_tool_gets() -> None:
    asked: list[Any] = []

    async def approve(ctx: Context, call: Call) -> bool:
        asked.append(call.arguments)
        return True

    server = Server("s")

    @server.tool(policy=Policy(approve=approve))
    async def purge(tables: list[str]) -> str:
        return str(tables)

    async with connect(server, MODERN) as client:
        assert text(await client.call("purge", {"tables": '["a"]'})) == "['a']"
    assert asked == [{"tables": ["a"]}]


async def test_a_call_is_held_until_somebody_decides() -> None:
    decision: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    held = asyncio.Event()

    async def approve(ctx: Context, call: Call) -> bool:
        held.set()
        return await decision

    server, ran = guarded(approve)
    async with connect(server, MODERN) as client:
        call = client.start("tools/call", {"name": "purge", "arguments": {"table": "t"}})
        await held.wait()
        assert ran == []
        decision.set_result(True)
        assert text((await call)["result"]) == "gone"


async def test_a_call_that_nobody_decides_on_is_refused() -> None:
    async def approve(ctx: Context, call: Call) -> bool:
        await asyncio.Event().wait()
        return True

    server, ran = guarded(approve, approval_timeout=0.01)
    async with connect(server, MODERN) as client:
        refused = await client.call("purge", {"table": "t"})
        assert text(refused) == "Nobody approved the call of purge within 0.01 seconds."
    assert ran == []


@pytest.mark.parametrize("failure", [RuntimeError("secret"), TimeoutError("secret")])
async def test_a_hook_that_breaks_lets_nothing_through(failure: Exception) -> None:
    async def approve(ctx: Context, call: Call) -> bool:
        raise failure

    server, ran = guarded(approve)
    async with connect(server, MODERN) as client:
        answer = await client.call("purge", {"table": "t"})
    assert answer["isError"] is True
    assert "secret" not in str(answer)
    assert ran == []


@cases("revision", [each for each in REVISIONS if each >= "2025-06"])
@cases("accepts", [True, False])
async def test_the_hook_may_ask_the_user_of_the_client(revision: str, accepts: bool) -> None:
    async def approve(ctx: Context, call: Call) -> bool:
        answer = await ctx.elicit(f"Purge {call.arguments['table']}?", bool)
        return answer.accepted and answer.data is True

    server, ran = guarded(approve)
    content = {"action": "accept", "content": {"value": accepts}}
    async with connect(server, revision, {"elicitation": {}}) as client:
        client.answers["elicitation/create"] = lambda params: content
        answer = await client.call("purge", {"table": "t"})
        if revision == MODERN:
            assert answer["resultType"] == "input_required"
            assert ran == []
            key = next(iter(answer["inputRequests"]))
            more = {"inputResponses": {key: content}, "requestState": answer["requestState"]}
            answer = await client.call("purge", {"table": "t"}, **more)
    assert text(answer) == ("gone" if accepts else "The call of purge was not approved.")
    assert ran == (["t"] if accepts else [])


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_call_that_comes_back_with_its_answers_is_counted_once(shared: bool) -> None:
    async def approve(ctx: Context, call: Call) -> bool:
        return (await ctx.elicit(f"Purge {call.arguments['count']}?", bool)).data is True

    server = Server("s")

    @server.tool(policy=Policy(quota=Rate("2/hour", shared=shared), approve=approve))
    async def purge(count: int) -> str:
        return str(count)

    yes = {"action": "accept", "content": {"value": True}}
    async with connect(server, MODERN, {"elicitation": {}}) as client:
        for _ in range(2):
            # A number in a string: what is judged, and what the state is bound to, is the number.
            answer = await client.call("purge", {"count": "3"})
            key = next(iter(answer["inputRequests"]))
            more = {"inputResponses": {key: yes}, "requestState": answer["requestState"]}
            assert text(await client.call("purge", {"count": "3"}, **more)) == "3"
        # The answers are used up, and stand for no other call.
        again = await client.request("tools/call", {"name": "purge", "arguments": {"count": "3"}, **more})
        assert "error" in again
        assert "Too many calls" in text(await client.call("purge", {"count": "3"}))
        for state in ("made up", answer["requestState"][:-4] + "AAAA"):
            params = {"name": "purge", "arguments": {"count": "3"}, **more, "requestState": state}
            assert "error" in await client.request("tools/call", params)


async def test_answers_that_are_not_complete_run_nothing_and_count_as_nothing() -> None:
    begun: list[str] = []

    async def approve(ctx: Context, call: Call) -> bool:
        begun.append(call.name)
        answers = await asyncio.gather(ctx.elicit("a?", bool, key="a"), ctx.elicit("b?", bool, key="b"))
        return all(each.data is True for each in answers)

    server = Server("s")

    @server.tool(policy=Policy(quota="1/hour", approve=approve))
    async def purge() -> str:
        return "gone"

    yes = {"action": "accept", "content": {"value": True}}
    async with connect(server, MODERN, {"elicitation": {}}) as client:
        first = await client.call("purge")
        half = {"inputResponses": {"a": yes}, "requestState": first["requestState"]}
        for _ in range(3):
            second = await client.call("purge", **half)
            assert list(second["inputRequests"]) == ["b"]
        assert begun == ["purge"]
        rest = {"inputResponses": {"b": yes}, "requestState": second["requestState"]}
        assert text(await client.call("purge", **rest)) == "gone"


async def test_nobody_is_asked_about_a_call_that_there_is_no_room_for() -> None:
    asked: list[str] = []
    inside, done = asyncio.Event(), asyncio.Event()

    async def approve(ctx: Context, call: Call) -> bool:
        asked.append(call.name)
        return True

    server = Server("s")

    @server.tool(policy=Policy(concurrency=Slots(1, queue=0), approve=approve))
    async def purge() -> str:
        inside.set()
        await done.wait()
        return "gone"

    async with connect(server, MODERN) as client:
        running = client.start("tools/call", {"name": "purge"})
        await inside.wait()
        assert "is busy" in text(await client.call("purge"))
        assert asked == ["purge"]
        done.set()
        assert text((await running)["result"]) == "gone"
