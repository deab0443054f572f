"""A small scripted server for the client's tests: the real protocol core below, plain functions on top.

A handler is a function of the request (and the outlet, if it wants to ask or notify) that returns a result or raises
`ProtocolError`. What it does not define is -32601.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import METHOD_NOT_FOUND, ProtocolError
from toolwire.protocol.lifecycle import SUPPORTED, Incoming, ServerLifecycle
from toolwire.protocol.methods import Method
from toolwire.protocol.peer import Peer
from toolwire.protocol.shaping import shape
from toolwire.wire.channel import Channel
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session

EVERYTHING: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}

Handle = Callable[[Incoming, Outlet], Any]


class FakeServer:
    """Serves what `handlers` has, by method; records requests and notifications."""

    name = "fake"

    def __init__(
        self,
        handlers: Mapping[str, Handle] | None = None,
        *,
        capabilities: Mapping[str, Any] = EVERYTHING,
        revisions: tuple[str, ...] = SUPPORTED,
        instructions: str | UnsetType = UNSET,
    ) -> None:
        self.handlers = dict(handlers or {})
        self.declared = dict(capabilities)
        self.revisions = revisions
        self.implementation = t.Implementation("fake", "9")
        self.instructions = instructions
        self.requests: list[Incoming] = []
        self.notices: list[Notice] = []
        self.noticed = asyncio.Event()
        self.sessions: list[Session] = []

    def capabilities(self, revision: str) -> dict[str, Any]:
        return self.declared

    def extension_method(self, method: str) -> Method | None:
        return None

    def repeat(self, text: str) -> str:
        return text

    async def serve(self, channel: Channel, *, principal: Any = None) -> None:
        session = Session(channel, Peer(ServerLifecycle(self, self.revisions)), self, principal=principal)
        self.sessions.append(session)
        try:
            await session.run()
        finally:
            await session.close()

    @property
    def session(self) -> Session:
        return self.sessions[-1]

    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

    async def handle(self, request: Incoming, outlet: Outlet) -> Any:
        self.requests.append(request)
        if request.method == "server/discover":
            result: Any = t.DiscoverResult(
                supported_versions=list(self.revisions),
                capabilities=self.declared,
                instructions=self.instructions,
                ttl_ms=0,
                cache_scope="private",
                meta={t.SERVER_INFO_KEY: self.implementation.to_dict()},
            )
        elif request.method in self.handlers:
            result = self.handlers[request.method](request, outlet)
            if isinstance(result, Awaitable):
                result = await result
        else:
            raise ProtocolError(METHOD_NOT_FOUND, f"no handler for {request.method}")
        return shape(result, request.revision) if isinstance(result, t.Wire) else result

    def notified(self, notice: Notice, session: Session) -> None:
        self.notices.append(notice)
        if notice.method == "notifications/progress":
            session.progressed(notice.params)
        self.noticed.set()

    def closing(self, session: Session) -> None:
        return


def text(*words: str, **members: Any) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(word) for word in words], **members)


def raw_arguments(request: Incoming) -> Any:
    import msgspec

    return msgspec.json.decode(request.params.arguments)
