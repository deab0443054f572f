"""Tools of MCP servers for Google's ADK: `LlmAgent(tools=[adk_toolset("https://…/mcp")])`."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from msgspec import UNSET

from toolwire.agents.frameworks.framework_tools import (
    FrameworkTool,
    FrameworkTools,
    framework,
    part_text,
    result_text,
)
from toolwire.agents.result_parts import ResultParts


def adk_toolset(*servers: Any, **options: Any) -> Any:
    """Return a toolset of ADK. It connects when an agent runs, and `Runner.close` closes it.

    `servers` and `options` are those of `Toolset`, or `servers` is one `Toolset` that was made before. The agent lists
    the tools in each turn. An error is a response with `error`.
    """
    return _classes()[0](FrameworkTools(servers, options, target="gemini"))


@cache
def _classes() -> tuple[Any, Any]:
    """Make the classes when they are first needed, since their bases belong to the framework."""
    with framework("google-adk"):
        from google.adk.tools.base_tool import BaseTool
        from google.adk.tools.base_toolset import BaseToolset
        from google.genai.types import FunctionDeclaration

    class ToolwireTool(BaseTool):
        """A tool of an MCP server, as a tool of ADK."""

        def __init__(self, tools: FrameworkTools, tool: FrameworkTool) -> None:
            super().__init__(name=tool.name, description=tool.description, custom_metadata={"server": tool.server})
            self._tools = tools
            self._schema = tool.schema
            # ADK may put a prefix before the name, which the toolset does not know.
            self._own_name = tool.name

        def _get_declaration(self) -> Any:
            return FunctionDeclaration(
                name=self.name, description=self.description, parameters_json_schema=self._schema
            )

        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
            result = await self._tools.call(self._own_name, args, tool_context.function_call_id)
            return {"error": result_text(result)} if result.is_error else {"output": _output(result)}

    class ToolwireToolset(BaseToolset):
        """Tools of MCP servers, as a toolset of ADK."""

        def __init__(self, tools: FrameworkTools) -> None:
            super().__init__()
            self._tools = tools
            self._is_connected = False
            self._connecting = asyncio.Lock()
            # Tools that servers add are in the next turn of the same run.
            self._use_invocation_cache = False

        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            async with self._connecting:
                if not self._is_connected:
                    await self._tools.open()
                    self._is_connected = True
            return [ToolwireTool(self._tools, tool) for tool in await self._tools.list_tools()]

        async def close(self) -> None:
            if self._is_connected:
                self._is_connected = False
                await self._tools.close()

    return ToolwireToolset, ToolwireTool


def _output(result: ResultParts) -> Any:
    """Return a result as ADK takes it: text or values, with parts for media."""
    from google.genai.types import Part

    found: list[Any] = []
    for part in result.parts:
        if part.kind in ("image", "audio", "pdf") and part.data:
            found.append(Part.from_bytes(data=part.data, mime_type=part.mime_type or "application/octet-stream"))
        else:
            found.append(part_text(part))
    if result.structured is not UNSET:
        found.append(result.structured)
    return found[0] if len(found) == 1 else found
