"""`NamedUris`: which servers behind this one named a URI to whom."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from toolwire.util.expiring import Expiring

#: How many servers have named URIs, how many callers each of them has, and how many URIs each of these.
MAX_SERVERS: Final = 1000
MAX_CALLERS: Final = 200
MAX_URIS: Final = 100

_Callers: TypeAlias = Expiring[str, Expiring[str, None]]


class NamedUris:
    """The URIs that results of servers named to each caller.

    They are kept by the name of the server, and longer than it: no other server gets what one that is gone has named.
    """

    def __init__(self) -> None:
        self._servers: Expiring[str, _Callers] = Expiring(MAX_SERVERS)

    def add(self, server: str, caller: str, uri: str) -> bool:
        """Note that a server named a URI to a caller; return whether that is new."""
        callers = self._servers.use(server)
        if callers is None:
            callers = Expiring(MAX_CALLERS)
            self._servers.put(server, callers)
        uris = callers.use(caller)
        if uris is None:
            uris = Expiring(MAX_URIS)
            callers.put(caller, uris)
        is_new = uri not in uris
        uris.put(uri, None)
        return is_new

    def has(self, server: str, caller: str, uris: Collection[str]) -> bool:
        """Return whether a server named one of the URIs to a caller."""
        callers = self._servers.get(server)
        known = None if callers is None else callers.get(caller)
        return known is not None and any(each in known for each in uris)

    def find_all(self, uri: str) -> set[str]:
        """Return the servers that named a URI to anybody, also those that are gone."""
        return {server for server, callers in self._servers.items() if any(uri in uris for _, uris in callers.items())}

    def find(self, caller: str, uris: Collection[str]) -> set[str]:
        """Return the servers that named one of the URIs to a caller, also those that are gone."""
        return {server for server in self._servers if self.has(server, caller, uris)}
