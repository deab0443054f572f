"""A server on release 1 of the python package over stdio that adds a tool to the session that asks for it.

`python serve_sessions.py` runs in the environment of its library.
"""

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("sessions")


def extra() -> str:
    return "extra"


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(extra)
    await ctx.session.send_tool_list_changed()
    return "grown"


server.run()
