"""The test host and the linter, on views of servers that other libraries made."""

from __future__ import annotations

import pytest
from tests.interop.test_foreign_apps import URI, command

from toolwire import Client, testing
from toolwire.apps import RENDERS_APPS
from toolwire.cli import lint_views
from toolwire.errors import ProtocolError


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("peer", ["mcp-2.3.0", "fastmcp-4.1.2", "typescript"])
async def test_a_foreign_view_in_the_test_host(peer: str, revision: str) -> None:
    async with (
        Client(command(peer), revision=revision, extensions=RENDERS_APPS) as client,
        testing.view(client, "show_orders") as view,
    ):
        await view.initialize()
        assert view.told("ui/notifications/tool-result")[0]["content"][0]["text"].startswith("3 orders")
        assert (await view.call_tool("cancel", {"order": 7})).text == "order 7 is cancelled"
        with pytest.raises(ProtocolError, match="not open to views"):
            await view.call_tool("pay")
        with pytest.raises(AssertionError, match="UI011: the page does not speak the handshake"):
            view.check_page()


@pytest.mark.parametrize("peer", ["mcp-2.3.0", "fastmcp-4.1.2", "typescript"])
async def test_the_linter_finds_the_faults_of_a_foreign_view(peer: str) -> None:
    async with Client(command(peer), extensions=RENDERS_APPS) as client:
        tools = await client.list_tools(audience=None)
        found = {(each.tool, each.rule) for each in await lint_views.check(client, tools)}
    assert {(URI, "UI011"), (URI, "UI003"), ("cancel", "UI005")} <= found
    assert not {rule for _, rule in found} & {"UI002", "UI006", "UI007", "UI009", "UI010", "UI012", "UI013", "UI014"}
