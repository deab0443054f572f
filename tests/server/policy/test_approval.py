"""A hook that may hold a call until somebody approves of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Policy, Server
from toolwire.auth import Principal
from toolwire.server.policy import Call


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("revision", [each for each in REVISIONS if each >= "2025-06"])
@pytest.mark.parametrize("accepts", [True, False])
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
