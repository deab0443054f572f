"""Tools of MCP servers for OpenAI Agents: `Agent(mcp_servers=[server])`."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from msgspec import UNSET

from toolwire.agents.answers import ERROR_PREFIX
from toolwire.agents.frameworks.framework_tools import FrameworkTool, FrameworkTools, framework, part_text
from toolwire.agents.result_parts import Part, ResultParts, json_text

#: The images that OpenAI takes.
_IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))


def openai_agents_server(*servers: Any, name: str = "toolwire", **options: Any) -> Any:
    """Return a server for OpenAI Agents: `async with openai_agents_server("https://…/mcp") as server`.

    `servers` and `options` are those of `Toolset`, or `servers` is one `Toolset` that was made before. The agent lists
    the tools in each turn. An error begins with `Error: `, since OpenAI has no flag for it.
    """
    return _server_class()(FrameworkTools(servers, options), name)


@cache
def _server_class() -> Any:
    """Make the class when it is first needed, since its base belongs to the framework."""
    with framework("openai-agents"):
        from agents.exceptions import UserError
        from agents.mcp import MCPServer

    class ToolwireServer(MCPServer):
        """Tools of MCP servers, as one server of OpenAI Agents."""

        def __init__(self, tools: FrameworkTools, name: str) -> None:
            super().__init__()
            self._tools = tools
            self._name = name

        @property
        def name(self) -> str:
            return self._name

        async def connect(self) -> None:
            await self._tools.open()

        async def cleanup(self) -> None:
            await self._tools.close()

        async def __aenter__(self) -> Any:
            await self.connect()
            return self

        async def __aexit__(self, *error: object) -> None:
            await self.cleanup()

        async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Any]:
            return [_definition(tool) for tool in await self._tools.list_tools()]

        async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None, meta: Any = None) -> Any:
            return _result(await self._tools.call(tool_name, arguments or {}))

        async def list_prompts(self) -> Any:
            raise UserError("prompts are not for models: read them with a Client of Toolwire")

        async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
            return await self.list_prompts()

    return ToolwireServer


def _definition(tool: FrameworkTool) -> Any:
    """Return a tool with the members of both releases of `mcp` that the framework reads."""
    return SimpleNamespace(
        name=tool.name,
        description=tool.description,
        title=None,
        inputSchema=tool.schema,
        input_schema=tool.schema,
        annotations=None,
        meta=None,
    )


def _result(result: ResultParts) -> Any:
    content = [_block(part) for part in result.parts]
    if result.structured is not UNSET:
        content.append(_text(json_text(result.structured)))
    if result.is_error:
        first = content[0].text if content and content[0].type == "text" else "the tool failed"
        content[: 1 if content and content[0].type == "text" else 0] = [_text(ERROR_PREFIX + first)]
    return SimpleNamespace(
        content=content,
        isError=result.is_error,
        is_error=result.is_error,
        structuredContent=None,
        structured_content=None,
    )


def _block(part: Part) -> Any:
    if part.kind == "image" and part.mime_type in _IMAGES and part.data:
        return SimpleNamespace(type="image", data=part.base64, mimeType=part.mime_type, mime_type=part.mime_type)
    return _text(part_text(part))


def _text(text: str) -> Any:
    return SimpleNamespace(type="text", text=text)
