"""The server as an HTTP application sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolwire.server.catalog import Catalog
from toolwire.server.questions import principal_key
from toolwire.server.subscriptions import LegacyClient
from toolwire.wire.channel import Channel


class Endpoint:
    """The server as the HTTP application sees it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.name = server.name
        self.offer = self.handler = server.kernel
        self.stores = server.stores
        self.sealer = server.kernel.questions.sealer
        self.link = server._bus_link()
        self.when_host_ends: Callable[[], None] = self.drain
        self._unwatch_host: Callable[[], None] | None = None

    def header_paths(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        catalog: Catalog = self._server.catalog
        own = catalog.tools.get(tool)
        if own is not None:
            return own.binding.headers
        found = catalog.tool(tool)
        return {} if found is None else found.component.binding.headers

    def client_state(self, connection: Any) -> LegacyClient:
        return LegacyClient(connection)

    def principal_key(self, principal: Any) -> str:
        return principal_key(principal)

    async def serve(self, channel: Channel, principal: Any, revisions: Sequence[str]) -> None:
        await self._server.serve(channel, principal=principal, revisions=revisions)

    async def start(self) -> None:
        from toolwire.wire.http_host import watch_host

        await self._server._life.enter()
        self.link.open()
        self._unwatch_host = watch_host(self.when_host_ends)

    def drain(self) -> None:
        self._server.kernel.hub.end_streams()

    async def stop(self) -> None:
        if self._unwatch_host is not None:
            self._unwatch_host()
        self.drain()
        self.link.close()
        await self._server._life.exit()
