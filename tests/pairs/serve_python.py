"""One server, written with whichever library is installed: fastmcp 2, 3 or 4, or release 1 or 2 of the `mcp` package.

`python serve_python.py stdio` or `python serve_python.py http PORT`. It runs in the environment of its library and
imports nothing of ours. Everything is done in the library's ordinary way; what a library cannot do, it does not offer.
"""

import asyncio
import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated, Any

from mcp import types
from pydantic import BaseModel

IS_FASTMCP = bool(find_spec("fastmcp"))
RELEASE = int(version("fastmcp" if IS_FASTMCP else "mcp").split(".", maxsplit=1)[0])
IS_MCP_1, IS_MCP_2 = not IS_FASTMCP and RELEASE == 1, not IS_FASTMCP and RELEASE == 2

if IS_FASTMCP:
    from fastmcp import Context, FastMCP

    if RELEASE == 2:
        from fastmcp.tools.tool import ToolResult
    else:
        from fastmcp.tools import ToolResult
elif IS_MCP_1:
    from mcp.server.fastmcp import Context, FastMCP
else:
    from mcp.server import MCPServer as FastMCP
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve

server: Any = FastMCP("foreign", instructions="Ask away.", **({"version": "7.8"} if not IS_MCP_1 else {}))

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
QUESTION = {"role": "user", "content": {"type": "text", "text": "How is it?"}}
WEATHER = {"name": "weather", "description": "Look outside", "inputSchema": {"type": "object"}}


class Point(BaseModel):
    x: int
    y: int = 0


class Person(BaseModel):
    name: str
    age: int


# --- Results ---


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def point(x: int) -> Point:
    return Point(x=x)


@server.tool()
async def media():  # type: ignore[no-untyped-def]
    return [
        types.ImageContent(type="image", data=PIXEL, mimeType="image/png"),
        types.AudioContent(type="audio", data="UklGRg==", mimeType="audio/wav"),
    ]


@server.tool()
async def embedded():  # type: ignore[no-untyped-def]
    text = {"uri": "memo://inside", "mimeType": "text/plain", "text": "inside"}
    blob = {"uri": "memo://bytes", "mimeType": "application/octet-stream", "blob": "AAE="}
    return [
        types.EmbeddedResource.model_validate({"type": "resource", "resource": text}),
        types.EmbeddedResource.model_validate({"type": "resource", "resource": blob}),
        types.ResourceLink.model_validate({"type": "resource_link", "uri": "memo://text", "name": "text"}),
    ]


@server.tool()
async def fail() -> str:
    raise ValueError("no luck")


@server.tool()
async def large(size: int) -> str:
    return "é" * size


@server.tool(meta={"ui": {"resourceUri": "ui://panel"}})
async def panel() -> str:
    return "shown"


@server.tool()
async def mirror(ctx: Context):  # type: ignore[no-untyped-def]
    """Tell what came in `_meta`, and answer with more of it."""
    meta = ctx.request_context.meta or {}
    came = meta if isinstance(meta, dict) else meta.model_dump(by_alias=True)
    words = json.dumps({name: came[name] for name in sorted(came) if name.startswith("com.example/")})
    answer = {"com.example/kind": {"name": "mirror", "deep": [1, {"a": None}]}}
    if IS_FASTMCP:
        return ToolResult(content=[types.TextContent(type="text", text=words)], meta=answer)
    return types.CallToolResult.model_validate({"content": [{"type": "text", "text": words}], "_meta": answer})


# --- Meanwhile ---


@server.tool()
async def slow(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
        # The reports of one moment arrive in any order at some clients.
        await asyncio.sleep(0.05)
    return "done"


fates: dict[str, str] = {}


@server.tool()
async def wait(key: str) -> str:
    fates[key] = "begun"
    try:
        await asyncio.Event().wait()
    except BaseException:
        fates[key] = "cancelled"
        raise
    return "never"


@server.tool()
async def fate(key: str) -> str:
    return fates.get(key, "unknown")


@server.tool()
async def talk(ctx: Context) -> str:
    for level in ("debug", "info", "error"):
        if IS_FASTMCP:
            await ctx.log(f"said with {level}", level=level)
        else:
            await ctx.log(level, f"said with {level}")
    return "talked"


# --- Questions ---


@server.tool()
async def ask(question: str, ctx: Context) -> str:
    answer: Any = await ctx.elicit(question, Person)
    data = getattr(answer, "data", None)
    return f"{answer.action} {data.name if data else None} {data.age if data else None}"


@server.tool()
async def visit(ctx: Context) -> str:
    answer: Any = await ctx.session.elicit_url("Sign in", "https://example.com/in", "7")
    return str(answer.action)


@server.tool()
async def think(ctx: Context) -> str:
    answer: Any = await ctx.session.create_message(
        messages=[types.SamplingMessage.model_validate(QUESTION)], max_tokens=10, system_prompt="Be brief."
    )
    return str(answer.content.text)


@server.tool()
async def think_with_tools(ctx: Context) -> str:
    answer: Any = await ctx.session.create_message(
        messages=[types.SamplingMessage.model_validate(QUESTION)],
        max_tokens=10,
        tools=[types.Tool.model_validate(WEATHER)],
        tool_choice=types.ToolChoice(mode="required"),
    )
    content = answer.content[0] if isinstance(answer.content, list) else answer.content
    return str(content.text)


@server.tool()
async def folders(ctx: Context) -> str:
    return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


if IS_MCP_2:

    def who() -> Elicit[Person]:
        return Elicit("Who?", Person)

    def where() -> ListRoots:
        return ListRoots()

    @server.tool()
    async def held(
        person: Annotated[Person, Resolve(who)], listed: Annotated[types.ListRootsResult, Resolve(where)]
    ) -> str:
        return f"{person.name} at {', '.join(str(root.uri) for root in listed.roots)}"

elif IS_FASTMCP and RELEASE == 4:

    @server.tool()
    async def held(ctx: Context) -> Any:
        if not ctx.input_responses:
            form = types.ElicitRequestFormParams(message="Who?", requested_schema=Person.model_json_schema())
            asked = types.ElicitRequest(method="elicitation/create", params=form)
            return types.InputRequiredResult(input_requests={"who": asked}, request_state="one")
        answer: Any = ctx.input_responses["who"]
        return f"{answer.content['name']} with {ctx.request_state}"


# --- Reading ---


@server.resource("memo://text")
def text() -> str:
    return "words"


@server.resource("memo://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    return b"\x00\x01"


@server.resource("ui://panel", mime_type="text/html;profile=mcp-app")
def page() -> str:
    return "<!doctype html><title>Panel</title>"


@server.resource("skill://brew/SKILL.md", mime_type="text/markdown")
def skill() -> str:
    return "---\nname: brew\ndescription: Brew tea\n---\nBoil water."


@server.resource("memo://day/{day}")
def day(day: str) -> str:
    return f"note of {day}"


@server.prompt()
def greet(who: str) -> str:
    """Greet somebody."""
    return f"hello {who}"


async def complete(ref: Any, argument: Any, context: Any) -> Any:
    values = {"who": ["Ada", "Alan", "Grace"], "day": ["monday", "tuesday"]}[argument.name]
    return types.Completion(values=[each for each in values if each.startswith(argument.value)])


if not IS_FASTMCP:
    server.completion()(complete)
elif RELEASE == 4:
    server.completion(complete)


# --- Changes ---


async def sprout() -> str:
    return "sprouted"


def extra() -> str:
    return "extra"


def farewell() -> str:
    return "bye"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool, a resource and a prompt, and say so; say that memo://text was changed."""
    server.tool()(sprout)
    server.resource("memo://extra")(extra)
    server.prompt()(farewell)
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_resource_list_changed()
    await ctx.session.send_prompt_list_changed()
    if IS_MCP_2:
        await ctx.notify_tools_changed()
        await ctx.notify_resources_changed()
        await ctx.notify_prompts_changed()
        await ctx.notify_resource_updated("memo://text")
    return "grown"


# --- Tasks ---


async def job(label: str) -> str:
    """Work for a while."""
    await asyncio.sleep(600 if label == "forever" else 0.2)
    return f"job {label}"


def offer_tasks() -> None:
    if IS_FASTMCP:
        if RELEASE == 4:
            from fastmcp_tasks import TasksExtension

            server.add_extension(TasksExtension())
        server.tool(task=True)(job)
    elif IS_MCP_1:
        offer_tasks_of_mcp_1()


def offer_tasks_of_mcp_1() -> None:
    """Only the lower layer of this release knows tasks."""
    server.tool()(job)
    lower = server._mcp_server
    lower.experimental.enable_tasks()
    listing, calling = (lower.request_handlers[each] for each in (types.ListToolsRequest, types.CallToolRequest))

    async def listed(request: Any) -> Any:
        result = await listing(request)
        for tool in result.root.tools:
            if tool.name == "job":
                tool.execution = types.ToolExecution(taskSupport="optional")
        return result

    async def called(request: Any) -> Any:
        context = lower.request_context.experimental
        if request.params.name != "job" or not context.is_task:
            return await calling(request)

        async def work(task: Any) -> Any:
            words = await job(request.params.arguments["label"])
            content = [types.TextContent(type="text", text=words)]
            return types.CallToolResult(content=content, structuredContent={"result": words})

        return types.ServerResult(await context.run_task(work))

    lower.request_handlers[types.ListToolsRequest] = listed
    lower.request_handlers[types.CallToolRequest] = called


def declare_extension() -> None:
    """Declare an extension that nobody else knows."""
    vendor = {"com.example/brewing": {"strength": 3, "kinds": ["green", "black"]}}
    lower = getattr(server, "_mcp_server", None) or server._lowlevel_server
    if hasattr(lower, "extensions"):
        lower.extensions.update(vendor)
        return
    # Release 1 of `mcp` has no place for extensions.
    capabilities_of = lower.get_capabilities

    def declared(*given: Any) -> Any:
        capabilities = capabilities_of(*given)
        known = (capabilities.model_extra or {}).get("extensions", {})
        return capabilities.model_copy(update={"extensions": {**known, **vendor}})

    lower.get_capabilities = declared


offer_tasks()
declare_extension()

if __name__ == "__main__":
    over, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    quiet = {"show_banner": False} if IS_FASTMCP else {}
    if over == "stdio":
        server.run(**quiet)
    elif IS_MCP_1:
        server.settings.port = port
        server.run(transport="streamable-http")
    else:
        server.run(transport="streamable-http", host="127.0.0.1", port=port, **quiet)
