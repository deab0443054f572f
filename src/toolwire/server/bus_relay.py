"""Carries changes between the processes of one server, over the bus."""

from __future__ import annotations

import os

import msgspec
from msgspec import Raw

from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams, Logged, Published
from toolwire.server.subscriptions import Hub
from toolwire.wire.bus_link import BusLink


class BusRelay:
    """A relay that publishes the changes of this process, and tells its clients those of the others.

    Streams of legacy HTTP sessions listen to the bus themselves, and hear the messages of this process there, too. The
    relay serves all other connections.
    """

    def __init__(self, hub: Hub, link: BusLink) -> None:
        self._hub = hub
        self._link = link
        self._origin = os.urandom(6).hex()
        link.on("change", self._heard)
        link.on_lost(self._lost)

    def changed(self, change: Change) -> None:
        self._link.post("change", msgspec.json.encode(Published(self._origin, change)))

    def logged(self, params: t.LoggingMessageNotificationParams, session: str) -> None:
        self._link.post("log", msgspec.json.encode(Logged(params.level, Raw(msgspec.json.encode(params)), session)))

    def _heard(self, data: bytes) -> None:
        published = _decode(data)
        if published.origin == self._origin:
            return
        change = published.change
        if change.params is not None:
            change = msgspec.structs.replace(change, params=FrozenParams(change.params))
        self._hub.tell_here(change)

    def _lost(self) -> None:
        self._hub.tell_everything_here()


_decode = msgspec.json.Decoder(Published).decode
