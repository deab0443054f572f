"""A stdio server written with another library, whichever is installed: fastmcp, or the python `mcp` package.

It does what a server may do besides answering: report, log, ask, change. It runs in the environment of its library, so
it imports nothing of ours. The annotations stay what they are: old releases do not resolve texts.
"""

import asyncio
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel

if find_spec("fastmcp"):
    from fastmcp import Context, FastMCP
else:
    try:
        from mcp.server.fastmcp import Context, FastMCP
    except ImportError:
        from mcp.server import MCPServer as FastMCP
        from mcp.server.mcpserver import Context

server: Any = FastMCP("features")


class Point(BaseModel):
    x: int
    y: int = 0


class Answer(BaseModel):
    ok: bool


@server.tool()
async def point(x: int) -> Point:
    return Point(x=x)


@server.tool()
async def fail() -> str:
    raise ValueError("no luck")


@server.tool()
async def slow(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3)
    return "done"


@server.tool()
async def talk(ctx: Context) -> str:
    await ctx.info("hello from the server")
    return "talked"


@server.tool()
async def wait(ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    await asyncio.Event().wait()
    return "never"


@server.tool()
async def ask(ctx: Context) -> str:
    answer: Any = await ctx.elicit("sure?", Answer)
    return f"{answer.action} {answer.data.ok}"


@server.tool()
async def opinion(ctx: Context) -> str:
    if hasattr(ctx, "sample"):
        return str((await ctx.sample("art?", max_tokens=10)).text)
    from mcp import types

    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="art?"))
    answer: Any = await ctx.session.create_message(messages=[message], max_tokens=10)
    return str(answer.content.text)


@server.tool()
async def folders(ctx: Context) -> str:
    listed: Any = await (ctx.list_roots() if hasattr(ctx, "list_roots") else ctx.session.list_roots())
    return ", ".join(str(root.uri) for root in getattr(listed, "roots", listed))


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(sprout) if not find_spec("fastmcp") else server.tool(sprout)
    await ctx.session.send_tool_list_changed()
    return "grown"


async def sprout() -> str:
    return "sprouted"


@server.resource("memo://text")
def text() -> str:
    return "words"


@server.resource("memo://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    return b"\x00\x01"


@server.resource("memo://day/{day}")
def day(day: str) -> str:
    return f"note of {day}"


@server.prompt()
def greet(who: str) -> str:
    return f"hello {who}"


if __name__ == "__main__":
    server.run()
