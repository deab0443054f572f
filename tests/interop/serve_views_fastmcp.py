"""Serve views with fastmcp, over stdio or, with a port, over HTTP."""

from __future__ import annotations

import sys

from fastmcp import Context, FastMCP
from fastmcp.apps import UI_EXTENSION_ID, AppConfig, ResourceCSP, ResourcePermissions

server: FastMCP = FastMCP("foreign")
URI = "ui://shop/orders.html"


@server.tool(app=AppConfig(resource_uri=URI))
async def show_orders(ctx: Context) -> str:
    return f"3 orders, {ctx.client_supports_extension(UI_EXTENSION_ID)}"


@server.tool(app=AppConfig(resource_uri=URI, visibility=["app"]))
async def cancel(order: int) -> str:
    return f"order {order} is cancelled"


@server.tool(app=AppConfig(resource_uri=URI, visibility=["model"]))
async def pay() -> str:
    return "paid"


@server.resource(
    URI,
    app=AppConfig(
        csp=ResourceCSP(connect_domains=["https://api.shop.example"]),
        permissions=ResourcePermissions(clipboard_write={}),
        prefers_border=True,
    ),
)
def orders() -> str:
    return "<!doctype html><p>orders</p>"


@server.resource("order://7")
def seven() -> str:
    return "order number 7"


if len(sys.argv) > 1:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
else:
    server.run(show_banner=False)
