"""Tools of MCP servers for pydantic-ai: `Agent(model, toolsets=[pydantic_ai_toolset("https://…/mcp")])`."""

from __future__ import annotations

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


def pydantic_ai_toolset(*servers: Any, id: str | None = None, retries: int = 0, **options: Any) -> Any:
    """Return a toolset of pydantic-ai, which connects when an agent runs.

    `servers` and `options` are those of `Toolset`, or `servers` is one `Toolset` that was made before. Deferred tools
    are found by pydantic-ai's own search. Tools that may change something run alone (`sequential`).

    An error of a tool is a failed result, which the model reads. With `retries` it is a request to try again instead
    (`ModelRetry`), and one more than that ends the run.
    """
    return _toolset_class()(FrameworkTools(servers, options), id, retries)


@cache
def _toolset_class() -> Any:
    """Make the class when it is first needed, since its base belongs to the framework."""
    with framework("pydantic-ai-slim"):
        from pydantic_ai.exceptions import ModelRetry, ToolFailed
        from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
        from pydantic_core import SchemaValidator, core_schema

    # The schema of the server judges the arguments when the call is made.
    validator = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))

    class ToolwireToolset(AbstractToolset):
        """Tools of MCP servers, as a toolset of pydantic-ai."""

        def __init__(self, tools: FrameworkTools, id: str | None, retries: int) -> None:
            self._tools = tools
            self._id = id
            self._retries = retries

        @property
        def id(self) -> str | None:
            return self._id

        async def __aenter__(self) -> Any:
            await self._tools.open()
            return self

        async def __aexit__(self, *error: Any) -> None:
            await self._tools.close()

        async def get_tools(self, ctx: Any) -> dict[str, Any]:
            return {
                tool.name: ToolsetTool(
                    toolset=self, tool_def=_definition(tool), max_retries=self._retries, args_validator=validator
                )
                for tool in await self._tools.list_tools(has_search=True)
            }

        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
            result = await self._tools.call(name, tool_args, ctx.tool_call_id)
            if not result.is_error:
                return _content(result)
            failure = ModelRetry if self._retries else ToolFailed
            raise failure(result_text(result))

    return ToolwireToolset


def _definition(tool: FrameworkTool) -> Any:
    from pydantic_ai.tools import ToolDefinition

    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.schema,
        # Without it, vendors and their models decide, and some then require every argument.
        strict=tool.is_strict,
        sequential=not tool.is_parallel,
        defer_loading=tool.is_deferred,
        metadata={"server": tool.server},
    )


def _content(result: ResultParts) -> Any:
    """Return a result as pydantic-ai takes it: texts, binary content, structured values."""
    from pydantic_ai.messages import BinaryContent

    found: list[Any] = []
    for part in result.parts:
        if part.kind in ("image", "audio", "pdf") and part.data:
            found.append(BinaryContent(data=part.data, media_type=part.mime_type))
        else:
            found.append(part_text(part))
    if result.structured is not UNSET:
        found.append(result.structured)
    return found[0] if len(found) == 1 else found
