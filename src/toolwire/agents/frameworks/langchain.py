"""Tools of MCP servers for LangChain and LangGraph: `create_agent(model, await tools.list_tools())`.

A question of a server is an interrupt of the graph. The call waits, with its connection, until the graph is resumed;
where the process has ended in between, the call is made again, and the server gets the answer when it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Self

from msgspec import UNSET

from toolwire.agents.frameworks.framework_tools import FrameworkTool, FrameworkTools, framework, part_text
from toolwire.agents.frameworks.graph_calls import GraphCall, GraphQuestion
from toolwire.agents.result_parts import ResultParts, json_text
from toolwire.agents.toolset import Toolset
from toolwire.client.handlers import Elicitation
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported
from toolwire.util.expiring import Expiring

#: How many calls may wait for their graphs to be resumed. The oldest is cancelled for a new one.
MAX_WAITING: Final = 1_000


class LangChainTools:
    """Tools for LangChain: `async with LangChainTools("https://…/mcp") as tools`.

    `servers` and `options` are those of `Toolset`. Questions of the servers are interrupts, unless `elicit=` is given;
    `Command(resume=...)` has the same form as with LangChain's own adapter. With one `Toolset` that was made before,
    its own `elicit=` is asked.
    """

    def __init__(self, *servers: Any, **options: Any) -> None:
        if not (len(servers) == 1 and isinstance(servers[0], Toolset)):
            options.setdefault("elicit", Elicitation(form=self._ask, url=self._ask))
        self._tools = FrameworkTools(servers, options)
        self._running: dict[Any, GraphCall] = {}
        # Calls whose graphs are interrupted.
        self._waiting: Expiring[Any, GraphCall] = Expiring(MAX_WAITING, on_evict=lambda key, call: call.task.cancel())

    @property
    def toolset(self) -> Toolset:
        """The toolset that lists and calls."""
        return self._tools.toolset

    async def __aenter__(self) -> Self:
        await self._tools.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks = [call.task for call in self._calls()]
        for task in tasks:
            task.cancel()
        await self._tools.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def list_tools(self) -> list[Any]:
        """Return the tools of now, for `create_agent` or a `ToolNode`. They are asynchronous."""
        make = _tool_class()
        return [make(self, tool) for tool in await self._tools.list_tools()]

    def middleware(self) -> Any:
        """Return a middleware for `create_agent` that gives the model the tools of the moment.

        Tools that servers add, and those that the model has searched for, are there in the next turn.
        """
        return _middleware_class()(self)

    async def _call(self, name: str, arguments: Mapping[str, Any], id: str | None) -> ResultParts:
        """Call a tool, or go on with a call that has waited for an answer."""
        from langchain_core.runnables.config import var_child_runnable_config

        config = var_child_runnable_config.get()
        thread = (config or {}).get("configurable", {}).get("thread_id")
        key = object() if id is None or (thread, id, name) in self._running else (thread, id, name)
        call = self._waiting.pop(key) or GraphCall(self._tools, name, arguments, id, config)
        self._running[key] = call
        try:
            return await call.result()
        except BaseException:
            if call.is_interrupted:
                self._waiting.put(key, call)
            else:
                call.task.cancel()
                await asyncio.wait({call.task})
            raise
        finally:
            del self._running[key]

    def _calls(self) -> list[GraphCall]:
        return [*self._running.values(), *(call for _, call in self._waiting.items())]

    async def _ask(self, message: str, params: t.ElicitRequestParams) -> Any:
        """Ask the user by an interrupt of the graph whose call needs the answer."""
        question = GraphQuestion(message, params)
        self._find_call().ask(question)
        return await question.answer

    def _find_call(self) -> GraphCall:
        """Return the call that a question belongs to."""
        from langchain_core.runnables.config import var_child_runnable_config

        config = var_child_runnable_config.get()
        running = [call for call in self._calls() if not call.task.done()]
        if not running:
            raise NotSupported("A question of the server comes outside of a call: no graph can be interrupted")
        # Before 2026-07-28 a question does not say which call it is for: it is the one that has asked nothing.
        own = [call for call in running if config is not None and call.config is config]
        return next(iter(own or [call for call in running if not call.is_asking] or running))


@cache
def _tool_class() -> Any:
    """Make the class when it is first needed, since its base belongs to the framework."""
    with framework("langchain"):
        from langchain_core.messages import ToolMessage
        from langchain_core.tools import BaseTool

    class ToolwireTool(BaseTool):
        """A tool of an MCP server, as a tool of LangChain."""

        def __init__(self, owner: LangChainTools, tool: FrameworkTool) -> None:
            super().__init__(
                name=tool.name,
                description=tool.description,
                args_schema=tool.schema,
                metadata={"server": tool.server},
            )
            self._owner = owner
            self._id: str | None = None

        async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
            # The id is not handed to `_arun` where the arguments are described by JSON Schema.
            bound = self.model_copy()
            bound._id = input.get("id") if isinstance(input, dict) and input.get("type") == "tool_call" else None
            return await super(ToolwireTool, bound).ainvoke(input, config, **kwargs)

        def _run(self, /, **arguments: Any) -> Any:
            raise NotImplementedError(f"the tool {self.name!r} is asynchronous: use ainvoke")

        async def _arun(self, /, **arguments: Any) -> Any:
            result = await self._owner._call(self.name, arguments, self._id)
            content = _content(result)
            if self._id is None:
                return content
            artifact = None if result.structured is UNSET else result.structured
            status = "error" if result.is_error else "success"
            return ToolMessage(content, tool_call_id=self._id, name=self.name, status=status, artifact=artifact)

    return ToolwireTool


@cache
def _middleware_class() -> Any:
    with framework("langchain"):
        from langchain.agents.middleware import AgentMiddleware

    class ToolwireMiddleware(AgentMiddleware):
        """Gives the model the tools of the moment."""

        def __init__(self, owner: LangChainTools) -> None:
            super().__init__()
            self._owner = owner
            self._tools: dict[str, Any] = {}

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            own = await self._owner.list_tools()
            self._tools = {tool.name: tool for tool in own}
            rest = [tool for tool in request.tools if getattr(tool, "name", None) not in self._tools]
            return await handler(request.override(tools=[*rest, *own]))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            name = request.tool_call["name"]
            if request.tool is None and name in self._tools:
                request = request.override(tool=self._tools[name])
            return await handler(request)

    return ToolwireMiddleware


def _content(result: ResultParts) -> Any:
    """Return a result as the content of a message: text or standard blocks."""
    blocks: list[dict[str, Any]] = []
    for part in result.parts:
        if part.kind in ("image", "audio", "pdf") and part.data:
            kind = "file" if part.kind == "pdf" else part.kind
            blocks.append({"type": kind, "base64": part.base64, "mime_type": part.mime_type})
        else:
            blocks.append({"type": "text", "text": part_text(part)})
    if result.structured is not UNSET:
        blocks.append({"type": "text", "text": json_text(result.structured)})
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
