"""Views of servers that other libraries made, read by our client: alone, beside others, and through a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.test_foreign_http_servers import running
from tests.ports import free_port

from toolwire import Client, Server
from toolwire.apps import host_policy
from toolwire.client import Denied
from toolwire.gateway import Gateway

HERE = Path(__file__).parent
URI = "ui://shop/orders.html"
HOST = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")


def command(peer: str) -> list[str]:
    if peer == "typescript":
        folder, node = peers.needed_view_hosts(), peers.needed_node()
        script = folder / "serve_views.mjs"
        script.write_bytes((HERE / "serve_views.mjs").read_bytes())
        return [str(node), str(script)]
    script = HERE / ("serve_views_mcp2.py" if peer.startswith("mcp") else "serve_views_fastmcp.py")
    return [str(peers.needed(peer).python), str(script)]


@asynccontextmanager
async def served(peer: str, over: str) -> AsyncIterator[Any]:
    if over == "stdio":
        yield command(peer)
        return
    port = free_port()
    async with running([*command(peer), str(port)], port):
        yield f"http://127.0.0.1:{port}/mcp"


async def look(client: Client, prefix: str, own: str, *, rendered: bool) -> None:
    """See that a client shows the view of a foreign server, and lets it do what it may."""
    assert sorted(tool.name for tool in await client.list_tools()) == [f"{prefix}pay", f"{prefix}show_orders"]
    listed = {each.tool.name: each for each in await client.apps.list()}
    assert listed[f"{prefix}show_orders"].uri == URI
    view = await client.apps.open(f"{prefix}show_orders")
    assert view.html == "<!doctype html><p>orders</p>"
    assert host_policy(view.csp).granted == {"connectDomains": ["https://api.shop.example"]}
    assert list(view.permissions) == ["clipboardWrite"]
    assert view.prefers_border is True
    assert (await client.apps.call_from_view(view, f"{own}cancel", {"order": 7})).text == "order 7 is cancelled"
    (contents,) = await client.apps.read_from_view(view, "order://7")
    assert contents.text == "order number 7"
    with pytest.raises(Denied, match="not open to views"):
        await client.apps.call_from_view(view, f"{own}pay")
    said = (await client.call_tool(f"{prefix}show_orders")).text
    assert said in ("3 orders", f"3 orders, {rendered}")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("peer", "over"),
    [("mcp-2.3.0", "stdio"), ("mcp-2.3.0", "http"), ("fastmcp-4.1.2", "stdio"), ("typescript", "stdio")],
)
async def test_our_client_shows_the_views_of_others(peer: str, over: str, revision: str) -> None:
    rendered = revision >= "2025-11-25"
    async with served(peer, over) as target:
        async with Client(target, revision=revision, extensions=HOST) as client:
            await look(client, "", "", rendered=rendered)
        async with Client({"a": Server("other"), "b": target}, revision=revision, extensions=HOST) as client:
            await look(client, "b_", "", rendered=rendered)


@pytest.mark.parametrize("peer", ["mcp-2.3.0", "fastmcp-4.1.2", "typescript"])
async def test_a_gateway_carries_the_views_of_others(peer: str) -> None:
    gateway = Gateway("front").add("b", command(peer), list_timeout=60)
    async with Client(gateway, extensions=HOST) as client:
        await look(client, "b_", "b_", rendered=True)
