"""`Connection`: what a server shows of a client that is connected to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.lifecycle import ServerLifecycle
from toolwire.server.subscriptions import Hub, LegacyClient
from toolwire.wire.channel import Channel
from toolwire.wire.session import Session


class Connection:
    """A client that is connected to this process, as it is when it is looked at."""

    def __init__(self, session: Session, remembered: LegacyClient) -> None:
        self._session = session
        self._remembered = remembered

    @property
    def transport(self) -> Channel:
        """The channel that carries its messages."""
        return self._session.channel

    @property
    def revision(self) -> str | None:
        """The revision that was agreed on; None before that, and on 2026-07-28, where each request names its own."""
        return self._session.peer.lifecycle.revision

    @property
    def client(self) -> t.Implementation | None:
        """The name and version that the client gave in the handshake."""
        lifecycle = self._session.peer.lifecycle
        known = lifecycle.client if isinstance(lifecycle, ServerLifecycle) else UNSET
        return None if known is UNSET else known

    @property
    def subscriptions(self) -> frozenset[str]:
        """The addresses that it subscribed to with `resources/subscribe`."""
        return frozenset(self._remembered.uris)

    @property
    def requests(self) -> frozenset[str | int]:
        """The ids of its requests that are being handled."""
        return frozenset(self._session.peer.incoming)


def connections_of(hub: Hub) -> list[Connection]:
    return [Connection(session, remembered) for session, remembered in tuple(hub.clients.items())]


def subscriptions_of(hubs: Sequence[Hub], callbacks: Mapping[str, Sequence[Any]]) -> Mapping[str, int]:
    """Return how many listeners each address has in this process: connections, listen streams, and callbacks."""
    counted: dict[str, int] = {}
    listeners: list[Any] = [client.uris for hub in hubs for client in tuple(hub.clients.values())]
    listeners += [stream.uris for hub in hubs for stream in tuple(hub.streams)]
    for uris in listeners:
        for uri in tuple(uris):
            counted[uri] = counted.get(uri, 0) + 1
    for uri, functions in tuple(callbacks.items()):
        if functions:
            counted[uri] = counted.get(uri, 0) + len(functions)
    return counted
