"""`UpstreamCredentials`: which credentials in the vault of a gateway are those of its upstreams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolwire.gateway.names import credential_names
from toolwire.server.server import Server

if TYPE_CHECKING:
    from toolwire.auth.vault.kinds import Kind


class UpstreamCredentials:
    """The credentials of the upstreams of one gateway. It touches the vault only for upstreams that have some."""

    def __init__(self, gateway: Server) -> None:
        self._gateway = gateway
        self._names: set[str] = set()

    def note(self, name: str) -> None:
        """Note that an upstream is about to have credentials in the vault."""
        self._names.add(name)

    def take_credentials(self, name: str) -> dict[str, Kind]:
        """Take the credentials of an upstream out of the vault, and return them."""
        if name not in self._names:
            return {}
        self._names.remove(name)
        vault = self._gateway.vault
        taken = {each: vault.kind(each) for each in credential_names(name) if each in vault}
        for each in taken:
            vault.remove(each)
        return taken

    def restore(self, name: str, kinds: Mapping[str, Kind]) -> None:
        """Put credentials that were taken back into the vault."""
        for each, kind in kinds.items():
            self._names.add(name)
            self._gateway.vault.add(each, kind)

    def find_kinds(self, name: str) -> tuple[str, ...]:
        """Return the kinds of the credentials of an upstream: that of calls, and that of lists."""
        if name not in self._names:
            return ()
        vault = self._gateway.vault
        return tuple(type(vault.kind(each)).__name__ for each in credential_names(name) if each in vault)
