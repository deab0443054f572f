"""`Hosts`: the running servers that mount one upstream, and what it learns of their clients."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from toolwire.server.catalog import Catalog
from toolwire.server.subscriptions import BehindHub, Hub
from toolwire.stores import MemoryKV


class Hosts:
    """The servers that mount an upstream, directly or in another server."""

    def __init__(self, catalog: Catalog, upstream: BehindHub, note_change: Callable[[str], None]) -> None:
        """`catalog` is that of the upstream. `note_change` gets the family of each change of a host's components."""
        self._catalog = catalog
        self._upstream = upstream
        self._note_change = note_change
        self.hubs: list[Hub] = []
        """The hubs of the hosts, and of the upstream itself, while it runs."""
        self.are_replicated: bool = False
        """Whether other processes may serve the same clients."""
        self._listened: list[Catalog] = []

    def join(self) -> None:
        """Have the hosts tell the upstream of their clients, until `leave`."""
        for catalog in (self._catalog, *self._catalog.hosts()):
            for hub in catalog.owner.kernel.hubs:
                hub.attach(self._upstream)
                self.hubs.append(hub)
        for catalog in self._catalog.hosts():
            catalog.listeners.append(self._note_change)
            self._listened.append(catalog)
        self.are_replicated = any(
            not isinstance(catalog.owner.kernel.stores.kv, MemoryKV) for catalog in self._catalog.hosts()
        )

    def leave(self) -> None:
        """Learn nothing more of the clients of the hosts."""
        for hub in self.hubs:
            hub.detach(self._upstream)
        self.hubs.clear()
        for catalog in self._listened:
            catalog.listeners.remove(self._note_change)
        self._listened.clear()

    @property
    def marks(self) -> list[str]:
        """The marks of the servers that list the components. Where no server mounts the upstream, its own."""
        return [catalog.mark for catalog in self._catalog.hosts() or [self._catalog]]

    def watched(self, is_left_out: Callable[[Hashable, str], bool] | None = None) -> set[str]:
        """Return the URIs that clients are subscribed to. `is_left_out` is as in `Hub.watched`."""
        return {uri for hub in self.hubs for uri in hub.watched(is_left_out)}

    def compose(self) -> None:
        """Have the hosts compose their way to handle requests again, because the upstream takes part in it now."""
        for catalog in self._catalog.hosts():
            catalog.owner.kernel.compose()
