"""A client of the python `mcp` library, release 2, and the answers of its user and its model."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning

# Much of what is tried is deprecated on 2026-07-28, and still has to work.
warnings.simplefilter("ignore", MCPDeprecationWarning)

MODERN = "2026-07-28"


class Noting(Protocol):
    """What takes note of the questions of a server."""

    root: str
    before_answer: Callable[[], Awaitable[None]] | None

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
        return types.CreateMessageResult(role="assistant", content=content, model="tiny-1", stop_reason="endTurn")

    async def roots(self, context: Any) -> Any:
        return types.ListRootsResult.model_validate({"roots": [{"uri": self.noting.root, "name": "work"}]})

    async def elicitation(self, context: Any, params: Any) -> Any:
        if self.noting.before_answer is not None:
            await self.noting.before_answer()
        if self.noting.page_shown(params):
            return types.ElicitResult(action="accept")
        content = self.noting.filled(params.message, params.requested_schema)
        return types.ElicitResult(action="decline" if content is None else "accept", content=content)


def open_client(noting: Noting, target: list[str], mode: str, **options: Any) -> Client:
    """Return the client of a server, for `async with`."""
    callbacks = Callbacks(noting)
    is_address = target[0].startswith("http://")
    return Client(
        target[0] if is_address else StdioServerParameters(command=target[0], args=target[1:]),
        mode=mode,
        sampling_callback=callbacks.sampling,
        sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
        list_roots_callback=callbacks.roots,
        elicitation_callback=callbacks.elicitation,
        message_handler=noting.message,
        **options,
    )
