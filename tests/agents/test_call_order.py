"""The order of calls: also of those that wait, are cancelled, or come from two responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.agents.models import response, results
from tests.patience import patience

from toolwire import Server
from toolwire.agents import CallOutcome, Toolset
from toolwire.types import ToolAnnotations

pytestmark = pytest.mark.warm_start


class Bank:
    """A server whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.server = Server("bank")
        self.running: list[str] = []
        self.most = 0
        self.made: list[str] = []
        self.open = asyncio.Event()

        @self.server.tool
        async def pay(order: str) -> str:
            return await self.hold(order)

        @self.server.tool
        async def refund(order: str) -> str:
            return await self.hold(order)

        @self.server.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def look() -> str:
            return "seen"

    async def hold(self, order: str) -> str:
        self.running.append(order)
        self.most = max(self.most, len(self.running))
        try:
            await self.open.wait()
            self.made.append(order)
            return f"paid {order}"
        finally:
            self.running.remove(order)


def pay(*orders: str, tool: str = "pay") -> dict[str, Any]:
    answer: dict[str, Any] = response("openai", [(order, tool, {"order": order}) for order in orders])
    return answer


async def until_running(bank: Bank, count: int) -> None:
    async with patience("the calls"):
        while len(bank.running) < count:
            await asyncio.sleep(0.01)


@pytest.mark.covers("AG-6")
async def test_a_call_that_waits_for_its_turn_can_be_cancelled() -> None:
    bank = Bank()
    outcomes: list[CallOutcome] = []
    async with Toolset(bank.server, on_result=outcomes.append) as tools:
        answering = asyncio.ensure_future(tools.answer(pay("first", "second", "third")))
        await until_running(bank, 1)
        assert tools.cancel("second") is True
        assert tools.cancel("second") is False
        assert tools.cancel("unknown") is False
        bank.open.set()
        found = results("openai", await answering)
        assert tools.cancel("third") is False
    assert bank.made == ["first", "third"]
    assert [is_error for _, _, is_error in found] == [False, True, False]
    assert "was cancelled by the application before it was made" in found[1][1]
    assert {each.id: each.result is None for each in outcomes} == {"first": False, "second": True, "third": False}


@pytest.mark.covers("AG-6")
async def test_a_tool_that_may_change_something_runs_once_at_a_time_for_two_responses() -> None:
    bank = Bank()
    async with Toolset(bank.server) as tools:
        both = [asyncio.ensure_future(tools.answer(pay(order))) for order in ("first", "second")]
        await until_running(bank, 1)
        # Calls that only read, and other tools, do not wait for it.
        other = asyncio.ensure_future(tools.answer(pay("other", tool="refund")))
        await until_running(bank, 2)
        _, seen = await tools.answer(response("openai", [("1", "look", {})]))
        assert seen["output"] == "seen"
        assert bank.running == ["first", "other"]
        assert tools.cancel("second") is True
        third = asyncio.ensure_future(tools.answer(pay("third")))
        bank.open.set()
        answers = await asyncio.gather(*both, other, third)
    assert bank.most == 2
    assert sorted(bank.made) == ["first", "other", "third"]
    assert "before it was made" in answers[1][1]["output"]


async def test_no_call_begins_after_a_toolset_was_closed() -> None:
    bank = Bank()
    async with Toolset(bank.server) as tools:
        answering = asyncio.ensure_future(tools.answer(pay("first", "second")))
        await until_running(bank, 1)
    found = results("openai", await answering)
    assert [is_error for _, _, is_error in found] == [True, True]
    assert "before it was made" in found[1][1]
    assert bank.made == []
