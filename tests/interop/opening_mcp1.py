"""A session of the python `mcp` client, releases 1.2 to 1.30, and the answers of its user and its model."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client


class Noting(Protocol):
    """What takes note of the questions of a server."""

    root: str

    def model_asked(self, params: Any) -> None: ...
    def page_shown(self, params: Any) -> bool: ...
    def filled(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None: ...
    async def message(self, message: Any) -> None: ...


class Callbacks:
    """The callbacks that answer; they are the same for all who take note."""

    def __init__(self, noting: Noting) -> None:
        self.noting = noting

    async def sampling(self, context: Any, params: Any) -> Any:
        self.noting.model_asked(params)
        content = types.TextContent(type="text", text="It is.")
        return types.CreateMessageResult(role="assistant", content=content, model="tiny-1", stopReason="endTurn")

    async def roots(self, context: Any) -> Any:
        return types.ListRootsResult.model_validate({"roots": [{"uri": self.noting.root, "name": "work"}]})

    async def elicitation(self, context: Any, params: Any) -> Any:
        if self.noting.page_shown(params):
            return types.ElicitResult(action="accept")
        content = self.noting.filled(params.message, params.requestedSchema)
        return types.ElicitResult(action="decline" if content is None else "accept", content=content)


@asynccontextmanager
async def connection(target: list[str]) -> AsyncIterator[tuple[Any, Any]]:
    """Both ends of the streams to a server."""
    opening: Any
    if not target[0].startswith("http://"):
        opening = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    elif target[0].endswith("/sse"):
        opening = sse_client(target[0])
    else:
        # Not every release has this module, and its function changed its name.
        from mcp.client import streamable_http

        newer = getattr(streamable_http, "streamable_http_client", None)
        opening = (newer or streamable_http.streamablehttp_client)(target[0])
    async with opening as ends:
        yield ends[0], ends[1]


@asynccontextmanager
async def open_session(noting: Noting, target: list[str]) -> AsyncIterator[tuple[ClientSession, Any]]:
    """Yield a session with a server, and what the server said at its beginning."""
    callbacks = Callbacks(noting)
    offered: dict[str, Any] = {
        "sampling_callback": callbacks.sampling,
        "list_roots_callback": callbacks.roots,
        "elicitation_callback": callbacks.elicitation,
        "message_handler": noting.message,
    }
    if hasattr(types, "SamplingToolsCapability"):
        offered["sampling_capabilities"] = types.SamplingCapability(tools=types.SamplingToolsCapability())
    # Older releases have fewer of these.
    known = inspect.signature(ClientSession.__init__).parameters
    options: dict[str, Any] = {name: callback for name, callback in offered.items() if name in known}
    async with connection(target) as (reading, writing), ClientSession(reading, writing, **options) as session:
        yield session, await session.initialize()
