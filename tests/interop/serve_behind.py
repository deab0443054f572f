"""The server of serve_features.py over streamable HTTP, with what only a gateway has to translate.

`python serve_behind.py PORT` runs in the environment of its library. The release 2 of the python `mcp` package asks by
resolvers, which send requests on the older revisions and answer `input_required` on 2026-07-28. The other libraries can
only send requests.
"""

import sys
from importlib.util import find_spec
from typing import Annotated, Any

from mcp import types
from serve_features import Answer, Context, server

HAS_RESOLVERS = not find_spec("fastmcp") and bool(find_spec("mcp.server.mcpserver"))
WEATHER = {"name": "weather", "inputSchema": {"type": "object"}}
QUESTION = {"role": "user", "content": {"type": "text", "text": "How is it?"}}

visited: dict[str, int] = {}


@server.tool()
async def visits(ctx: Context) -> int:
    """Count the calls of one session."""
    session = ctx.request_context.request.headers["mcp-session-id"]
    visited[session] = visited.get(session, 0) + 1
    return visited[session]


@server.tool()
async def client(ctx: Context) -> str:
    """Say what the client told of itself when it connected."""
    told = ctx.session.client_params
    return "" if told is None else str(told.model_dump_json(by_alias=True, exclude_none=True))


@server.tool()
async def names() -> list[str]:
    return ["Oslo", "Paris"]


@server.tool()
async def visit(ctx: Context) -> str:
    answer: Any = await ctx.session.elicit_url("Sign in", "https://example.com/in", "7")
    return str(answer.action)


def model_asked() -> dict[str, Any]:
    return {
        "messages": [types.SamplingMessage.model_validate(QUESTION)],
        "max_tokens": 10,
        "tools": [types.Tool.model_validate(WEATHER)],
        "tool_choice": types.ToolChoice(mode="required"),
    }


if HAS_RESOLVERS:
    from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample

    def sure() -> Elicit[Answer]:
        return Elicit("sure?", Answer)

    def thought() -> Sample:
        return Sample(**model_asked())

    def shown() -> ListRoots:
        return ListRoots()

    @server.tool()
    async def confirm(answer: Annotated[Answer, Resolve(sure)]) -> str:
        return f"accept {answer.ok}"

    @server.tool()
    async def think(answer: Annotated[types.CreateMessageResultWithTools, Resolve(thought)]) -> str:
        content: Any = answer.content
        return str((content[0] if isinstance(content, list) else content).text)

    @server.tool()
    async def roots(listed: Annotated[types.ListRootsResult, Resolve(shown)]) -> str:
        return ", ".join(str(root.uri) for root in listed.roots)

else:

    @server.tool()
    async def confirm(ctx: Context) -> str:
        answer: Any = await ctx.elicit("sure?", Answer)
        return f"{answer.action} {answer.data.ok}"

    @server.tool()
    async def think(ctx: Context) -> str:
        answer: Any = await ctx.session.create_message(**model_asked())
        content = answer.content
        return str((content[0] if isinstance(content, list) else content).text)

    @server.tool()
    async def roots(ctx: Context) -> str:
        return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


if __name__ == "__main__":
    port = int(sys.argv[1])
    if find_spec("fastmcp"):
        server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
    elif HAS_RESOLVERS:
        server.run(transport="streamable-http", host="127.0.0.1", port=port)
    else:
        server.settings.port = port
        server.run(transport="streamable-http")
