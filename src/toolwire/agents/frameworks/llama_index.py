"""Tools of MCP servers for LlamaIndex: `FunctionAgent(tools=await tools.list_tools(), llm=llm)`."""

from __future__ import annotations

from functools import cache
from typing import Any, Self

from msgspec import UNSET

from toolwire.agents.frameworks.framework_tools import FrameworkTool, FrameworkTools, framework, part_text
from toolwire.agents.result_parts import ResultParts, json_text
from toolwire.agents.toolset import Toolset


class LlamaIndexTools:
    """Tools for LlamaIndex: `async with LlamaIndexTools("https://…/mcp") as tools`.

    `servers` and `options` are those of `Toolset`, or `servers` is one `Toolset` that was made before.
    """

    def __init__(self, *servers: Any, **options: Any) -> None:
        self._tools = FrameworkTools(servers, options)

    @property
    def toolset(self) -> Toolset:
        """The toolset that lists and calls."""
        return self._tools.toolset

    async def __aenter__(self) -> Self:
        await self._tools.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._tools.close()

    async def list_tools(self) -> list[Any]:
        """Return the tools of now, for `FunctionAgent(tools=...)`. They are asynchronous."""
        make = _classes()[0]
        return [make(self._tools, tool) for tool in await self._tools.list_tools()]

    def retriever(self) -> Any:
        """Return the tools of each moment, for `FunctionAgent(tool_retriever=...)`.

        The next turn has tools that servers add, and those that the model has searched for.
        """
        return _classes()[1](self)


@cache
def _classes() -> tuple[Any, Any]:
    """Make the classes when they are first needed, since their bases belong to the framework."""
    with framework("llama-index-core"):
        from llama_index.core.objects import ObjectRetriever
        from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput

    class Description(ToolMetadata):
        """Name, text and arguments of a tool. Arguments have the JSON Schema of the server."""

        def __init__(self, tool: FrameworkTool) -> None:
            super().__init__(tool.description, tool.name, fn_schema=None)
            self._schema = tool.schema

        def get_parameters_dict(self) -> dict[str, Any]:
            return dict(self._schema)

        def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]:
            # The interface takes longer descriptions than the framework.
            found: dict[str, Any] = super().to_openai_tool(skip_length_check=True)
            return found

    class ToolwireTool(AsyncBaseTool):
        """A tool of an MCP server, as a tool of LlamaIndex."""

        def __init__(self, tools: FrameworkTools, tool: FrameworkTool) -> None:
            self._tools = tools
            self._metadata = Description(tool)

        @property
        def metadata(self) -> Any:
            return self._metadata

        def call(self, /, *positional: Any, **arguments: Any) -> Any:
            raise NotImplementedError(f"the tool {self._metadata.name!r} is asynchronous: use acall")

        async def acall(self, /, **arguments: Any) -> Any:
            name = self._metadata.get_name()
            result = await self._tools.call(name, arguments)
            output = None if result.structured is UNSET else result.structured
            return ToolOutput(
                tool_name=name,
                blocks=_blocks(result),
                raw_input=arguments,
                raw_output=output,
                is_error=result.is_error,
            )

    class ToolwireRetriever(ObjectRetriever):
        """The tools of each moment."""

        def __init__(self, owner: LlamaIndexTools) -> None:
            self._owner = owner

        def retrieve(self, str_or_query_bundle: Any) -> list[Any]:
            raise NotImplementedError("the tools are asynchronous: use aretrieve")

        async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
            return await self._owner.list_tools()

    return ToolwireTool, ToolwireRetriever


def _blocks(result: ResultParts) -> list[Any]:
    from llama_index.core.base.llms.types import AudioBlock, DocumentBlock, ImageBlock, TextBlock

    found: list[Any] = []
    for part in result.parts:
        if part.kind == "image" and part.data:
            found.append(ImageBlock(image=part.data, image_mimetype=part.mime_type))
        elif part.kind == "audio" and part.data:
            found.append(AudioBlock(audio=part.data, format=part.mime_type.partition("/")[2]))
        elif part.kind == "pdf" and part.data:
            found.append(DocumentBlock(data=part.data, document_mimetype=part.mime_type, title=part.uri or None))
        else:
            found.append(TextBlock(text=part_text(part)))
    if result.structured is not UNSET:
        found.append(TextBlock(text=json_text(result.structured)))
    return found
