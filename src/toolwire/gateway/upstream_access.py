"""Restrictions of an upstream that is a server of this process.

The upstream judges each call by its caller (see `wire.channel.Sender`). The gateway reads its lists once for all
callers, so that it has to ask here who may see and use what it lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, cast

from toolwire.auth.principal import Principal, with_scopes
from toolwire.gateway.remote_components import RemotePrompt, RemoteResource, RemoteTemplate, RemoteTool
from toolwire.server.access import Access, Demand, Implied, held_scopes
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Found, Way
from toolwire.server.components import Component, Resource
from toolwire.server.kernel import Kernel
from toolwire.server.server import Server
from toolwire.wire.channel import Sender


class UpstreamAccess:
    """The demands of an upstream in this process on the callers of its gateway."""

    def __init__(self, server: Server, catalog: Catalog) -> None:
        """`catalog` has the components of the upstream as the gateway offers them."""
        self._server = server
        self._catalog = catalog
        # The threads that are inside. Gateways that lead to each other in a circle come back here.
        self._inside: set[int] = set()
        self._implied: tuple[Catalog, int, Implied] | None = None

    @property
    def access(self) -> Access:
        return self._server.kernel.access

    def demand(self, component: Component) -> Demand | None:
        """Return what the upstream demands of callers of a component; None for one that it does not have."""
        with self._entered() as is_first:
            found = self._find(component) if is_first else None
            return None if found is None else self.access.demand(found)

    def find_sender(self, call: Call) -> Sender:
        """Return the client of a call, with the scopes that the servers on the way to the upstream imply."""
        principal = call.principal
        implied = self._implied_before(cast("Kernel", call.host).catalog)
        if implied and isinstance(principal, Principal):
            principal = with_scopes(principal, held_scopes(principal, implied))
        return Sender(principal, call.request.caller, call.outlet.is_local)

    def _implied_before(self, front: Catalog) -> Implied:
        """Return the functions that add implied scopes on the way from a server to the upstream."""
        known = self._implied
        if known is None or known[0] is not front or known[1] != front.version:
            version = front.version
            way = next((way for owner, way in front.ways_to(self._catalog.owner.name) if self._ends(way)), ())
            ways = [front.owner, *(mount.catalog.owner for mount in way)]
            implied = tuple(each.kernel.access.effective for each in ways if each.kernel.access.implies)
            known = self._implied = (front, version, implied)
        return known[2]

    def _ends(self, way: Way) -> bool:
        return bool(way) and way[-1].catalog is self._catalog

    def tags(self, component: Component) -> frozenset[str]:
        """Return the tags of a component, which rules of the gateway may name."""
        found = self._find(component)
        return component.tags if found is None else found.component.tags

    def follow(self) -> None:
        """Compute demands anew whenever a restriction of the upstream changes, until `stop_following`."""
        self._server.catalog.listeners.append(self._changed)

    def stop_following(self) -> None:
        """Follow the restrictions of the upstream no more."""
        self._server.catalog.listeners.remove(self._changed)

    def _changed(self, family: str) -> None:
        with self._entered() as is_first:
            if is_first:
                # The lists may be the same, and are announced when they were read again.
                self._catalog.changed(family, for_sure=False)

    @contextmanager
    def _entered(self) -> Iterator[bool]:
        thread = get_ident()
        if thread in self._inside:
            yield False
            return
        self._inside.add(thread)
        try:
            yield True
        finally:
            self._inside.discard(thread)

    def _find(self, component: Component) -> Found[Any] | None:
        while component.original is not None:
            component = component.original
        catalog = self._server.catalog
        if isinstance(component, RemoteTool):
            return catalog.tool(component.remote.name)
        if isinstance(component, RemotePrompt):
            return catalog.prompt(component.remote.name)
        if isinstance(component, RemoteTemplate):
            return catalog.all("templates").get(component.remote.uri_template)
        if isinstance(component, RemoteResource):
            return catalog.resource(component.remote.uri)
        return catalog.resource(component.uri) if isinstance(component, Resource) else None
