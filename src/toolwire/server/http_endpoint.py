"""The server as an HTTP application sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from toolwire.protocol.errors import InsufficientScope
from toolwire.protocol.lifecycle import Incoming, Offer
from toolwire.server.access import Access
from toolwire.server.catalog import Catalog
from toolwire.server.in_process import Nowhere
from toolwire.server.kernel import Kernel
from toolwire.server.offer import ReducedOffer, for_anybody, for_one_request
from toolwire.server.replay_state import principal_key
from toolwire.server.subscriptions import LegacyClient
from toolwire.wire.channel import Channel
from toolwire.wire.session import Handler
from toolwire.wire.shares import Caller

HeaderPaths: TypeAlias = Callable[[str], Mapping[str, tuple[str, ...]]]


class Endpoint:
    """The server as the HTTP application sees it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.name: Any = server.name
        self.offer: Any = server.kernel
        self.handler: Any = server.kernel
        self._anonymous = ReducedOffer(server.kernel, for_anybody)
        self._alone = ReducedOffer(server.kernel, for_one_request)
        self._anonymous_alone = ReducedOffer(self._anonymous, for_one_request)
        self.stores: Any = server.stores
        self.sealer: Any = server.kernel.questions.sealer
        self.link: Any = server._bus_link()

    def header_paths_for(self, principal: Any) -> HeaderPaths:
        """How to find the parameters of a tool that travel as headers, as far as a principal sees the tool."""
        access: Access = self._server.kernel.access
        if not access.active:
            return self._header_paths
        sees = access.view_of(principal).sees

        def visible_paths(tool: str) -> Mapping[str, tuple[str, ...]]:
            found = self._server.catalog.tool(tool, sees)
            return {} if found is None else found.component.binding.headers

        return visible_paths

    def _header_paths(self, tool: str) -> Mapping[str, tuple[str, ...]]:
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

    def hearing(self, principal: Any) -> Callable[[str], bool]:
        access: Access = self._server.kernel.access
        return lambda uri: access.may_hear(principal, uri)

    async def admit(self, calls: Sequence[Incoming]) -> None:
        kernel: Kernel = self._server.kernel
        try:
            kernel.access.admit_all(calls)
        except InsufficientScope:
            for call in calls:
                # So that whoever watches the calls sees this one refused.
                if kernel.access.needed(call) is not None:
                    with suppress(InsufficientScope):
                        await kernel.handle(call, Nowhere(is_local=False))
            raise

    async def serve(
        self, channel: Channel, principal: Any, revisions: Sequence[str], caller: Caller, handler: Handler
    ) -> None:
        await self._server._serve_as(channel, principal, revisions, caller, handler)

    def offer_to(self, principal: Any) -> Offer:
        return self._anonymous if principal is None else self.offer

    def offer_alone_to(self, principal: Any) -> Offer:
        return self._anonymous_alone if principal is None else self._alone

    async def start(self) -> None:
        await self._server._life.enter()
        self.link.open()

    def drain(self) -> None:
        self._server.kernel.hub.end_streams()

    async def stop(self) -> None:
        self.drain()
        self.link.close()
        await self._server._life.exit()
