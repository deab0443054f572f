"""Serve views with `mcp.server.apps` of mcp 2, over stdio or, with a port, over HTTP."""

from __future__ import annotations

import sys

from mcp.server.apps import Apps, ResourceCsp, ResourcePermissions, client_supports_apps
from mcp.server.mcpserver import Context, MCPServer

apps = Apps()
URI = "ui://shop/orders.html"


@apps.tool(resource_uri=URI, description="Show orders")
async def show_orders(ctx: Context) -> str:
    return f"3 orders, {client_supports_apps(ctx)}"


@apps.tool(resource_uri=URI, visibility=["app"], description="Cancel an order")
async def cancel(order: int) -> str:
    return f"order {order} is cancelled"


@apps.tool(resource_uri=URI, visibility=["model"], description="Pay")
async def pay() -> str:
    return "paid"


apps.add_html_resource(
    URI,
    "<!doctype html><p>orders</p>",
    csp=ResourceCsp(connect_domains=["https://api.shop.example"]),
    permissions=ResourcePermissions(clipboard_write={}),
    prefers_border=True,
)
server = MCPServer("foreign", extensions=[apps])


@server.resource("order://7")
def seven() -> str:
    return "order number 7"


if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
