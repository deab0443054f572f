"""Carries changes between the processes of one server, over the bus."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams, Logged, Notified, Published
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import ToolwireError
from toolwire.server.catalog import Catalog
from toolwire.server.list_pages import list_digests
from toolwire.server.subscriptions import Hub
from toolwire.wire.bus_link import BusLink
from toolwire.wire.deadlines import in_time

log: logging.Logger = logging.getLogger("toolwire.server")

#: How long a process that starts or stops may take to say which lists it has.
_ANNOUNCE_SECONDS: Final = 1.0


class _Lists(Struct):
    """The lists of a process, by the digests of their families."""

    origin: str
    digests: dict[str, str]


class BusRelay:
    """A relay that publishes the changes of this process, and tells its clients those of the others.

    Streams of legacy HTTP sessions listen to the bus themselves, and hear the messages of this process there, too. The
    relay serves all other connections.
    """

    def __init__(self, hub: Hub, link: BusLink, catalog: Callable[[], Catalog], origin: str) -> None:
        """`catalog` returns the components that this process has now.

        All relays of one server in this process have the same `origin`. What one of them publishes, the clients of all
        of them know already.
        """
        self._hub = hub
        self._link = link
        self._catalog = catalog
        self._origin = origin
        link.on("change", self._heard)
        link.on("lists", self._heard_lists)
        link.on_lost(self._lost)

    @property
    def is_open(self) -> bool:
        return self._link.is_open

    def changed(self, change: Change) -> None:
        self._link.post("change", msgspec.json.encode(Published(self._origin, change)))

    def logged(self, params: t.LoggingMessageNotificationParams, session: str) -> None:
        self._link.post("log", msgspec.json.encode(Logged(params.level, Raw(msgspec.json.encode(params)), session)))

    def said(self, session: str, message: bytes) -> None:
        self._link.post("say", msgspec.json.encode(Notified(session, Raw(message))))

    async def announce_lists(self) -> None:
        """Tell the other processes which lists this one has, because it begins or ceases to answer requests.

        In a rolling upgrade, a client may have read a list from a process of either version. When the two versions
        have different lists, the clients of every other process are told to read theirs again.
        """
        lists = _Lists(self._origin, list_digests(self._catalog()))
        try:
            if not await in_time(_ANNOUNCE_SECONDS, self._link.publish("lists", msgspec.json.encode(lists))):
                log.warning("the bus is too slow: the other processes do not know the lists of this one")
        except ToolwireError as error:
            log.warning("the other processes do not know the lists of this one: %s", error)

    def _heard_lists(self, data: bytes) -> None:
        lists = _decode_lists(data)
        if lists.origin == self._origin:
            return
        own = list_digests(self._catalog())
        for family, digest in lists.digests.items():
            if family in own and own[family] != digest:
                self._link.deliver("change", msgspec.json.encode(Published(lists.origin, Change(family))))

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


_decode = decoder_of(Published).decode
_decode_lists = msgspec.json.Decoder(_Lists).decode
