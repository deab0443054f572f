"""The questions of a modern server that its clients carry, and which server asked them.

A modern server is not waiting for an answer: the client brings back a `requestState`, and the server goes on. So
nothing here is held. But the name of a server may lead to another address by then, and an answer is for the server
that asked. The state that the client carries has the address of that server, signed, because clients may read a state
and must not learn the address by trying.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from toolwire.client.http_target import HttpTarget
from toolwire.client.target import fingerprint
from toolwire.protocol.sealing import BadSeal
from toolwire.server.call import Call, Host
from toolwire.stores import MemoryKV
from toolwire.util.expiring import Expiring

if TYPE_CHECKING:
    from toolwire.gateway.back_connections import BackConnections

#: How many open questions of one server are counted.
MAX_ASKED: Final = 10_000

_OF_REPLICAS: Final = "replicas"


class AskedQuestions:
    """The open questions of one server."""

    def __init__(self, connections: BackConnections) -> None:
        self._connections = connections
        target = connections.target
        # A server with several addresses is another one when it gets one more: answers may go there.
        place = fingerprint(*sorted(target.urls)) if isinstance(target, HttpTarget) else target.address
        self._place = b"asked by/" + place.encode(errors="surrogatepass")
        self._open: Expiring[str, None] = Expiring(MAX_ASKED)

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def __len__(self) -> int:
        """Return how many questions clients may still answer."""
        return len(self._open)

    def add(self, name: str, seconds: float) -> None:
        """Count a question as open, for some seconds at most."""
        self._open.put(name, None, seconds)

    def remove(self, name: str) -> None:
        """Count a question as answered."""
        self._open.pop(name)

    def sign(self, call: Call) -> str:
        """Return the name of the server for a state that a client carries."""
        return call.host.signer.seal(b"", self._place)

    def has_asked(self, call: Call, signed: str) -> bool:
        """Return whether a name in a state is that of this server. States of earlier versions name none."""
        try:
            return not signed or call.host.signer.open(signed, self._place) == b""
        except BadSeal:
            return False

    def leave(self, host: Host, successor: AskedQuestions | None) -> None:
        """Take note that another server has the name of this one now; None for no server.

        One at the same address is the same server, and gets the answers.
        """
        if successor is not None and self._is_continued_by(successor):
            self._open.clear()
        elif self._is_asked_by_replicas(host):
            self.add(_OF_REPLICAS, host.settings.limits.state)

    def _is_continued_by(self, successor: AskedQuestions) -> bool:
        return self._place == successor._place and self._connections.can_continue_at(successor._connections)

    def _is_asked_by_replicas(self, host: Host) -> bool:
        """Return whether clients may bring answers here to questions that other replicas have handed on."""
        connection = self._connections.shared.connection
        is_reached = connection is not None and connection.modern and self._connections.target.transport == "http"
        return is_reached and not isinstance(host.stores.kv, MemoryKV)


def name_question() -> str:
    """Return a new name for a question."""
    return os.urandom(12).hex()
