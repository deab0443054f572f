"""The dashboard: rows, numbers, and a change that holds once a person approves it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from toolwire import Client, Server


@pytest.fixture
def server(example: Callable[[str], ModuleType]) -> Server:
    server: Server = example("dashboard").server
    return server


async def test_orders_are_a_table(server: Server) -> None:
    async with Client(server) as client:
        all_orders = await client.call_tool("show_orders")
        open_orders = await client.call_tool("show_orders", {"state": "open"})
    assert len(all_orders.structured["result"]) == 240
    assert all_orders.text.splitlines()[0] == "| Order | customer | total | state | tea | day |"
    assert {order["state"] for order in open_orders.structured["result"]} == {"open"}
    assert len(open_orders.text.splitlines()) == 2 + len(open_orders.structured["result"])


async def test_sales_are_a_chart(server: Server) -> None:
    async with Client(server) as client:
        result = await client.call_tool("chart_sales", {"kind": "line"})
    assert result.structured["labels"][:3] == ["Jan", "Feb", "Mar"]
    assert [len(values) for values in result.structured["series"].values()] == [8, 8]
    assert set(result.meta["io.toolwire/chart"]) == {"wide", "narrow"}
    assert "| Jan |" in result.text


@pytest.mark.parametrize(("decision", "price"), [("change_prices", "9.97"), ("keep_prices", "9.50")])
async def test_a_person_decides_about_prices(server: Server, decision: str, price: str) -> None:
    async with Client(server) as client:
        tools = {tool.name for tool in await client.list_tools()}
        assert tools == {"show_orders", "chart_sales", "propose_prices"}
        change = await client.call_tool("propose_prices", {"percent": 5, "tea": "Assam"})
        assert "+Assam           9.97 EUR" in change.text
        arguments = change.structured["arguments"]
        await client.call_tool(decision, {**arguments, "comment": "fine"})
        again = await client.call_tool("propose_prices", {"percent": 10, "tea": "Assam"})
        assert f"-Assam           {price} EUR" in again.text
        late = await client.call_tool("change_prices", arguments)
        assert late.is_error
        assert "propose the change again" in late.text


async def test_an_unknown_tea_is_explained(server: Server) -> None:
    async with Client(server) as client:
        result = await client.call_tool("propose_prices", {"percent": 5, "tea": "Coffee"})
    assert result.is_error
    assert "there are Assam" in result.text
