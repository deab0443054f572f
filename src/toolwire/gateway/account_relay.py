"""The way to a server behind a gateway at which every caller acts with an account of their own."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from toolwire.auth.errors import NotConnected
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection
from toolwire.gateway.held_calls import TakeUp
from toolwire.gateway.relaying import Relay
from toolwire.gateway.sent_request import AboutTask
from toolwire.protocol.errors import ToolwireError
from toolwire.server.call import Call

if TYPE_CHECKING:
    from toolwire.gateway.back_credentials import BackCredentials

log: logging.Logger = logging.getLogger("toolwire.gateway")


class AccountRelay(Relay):
    """The way to one server, on connections that carry the account of the caller."""

    def __init__(self, *args: Any, credentials: BackCredentials, **options: Any) -> None:
        super().__init__(*args, **options)
        self.credentials = credentials

    async def _connection(self, call: Call, about: AboutTask | None) -> RelayConnection:
        owner, target = await self.credentials.place_for(call)
        shared = await self.connections.signed(owner, target)
        return shared if shared.modern else await self._conversation(call, about, shared, owner, target)

    async def connector(self, call: Call) -> Connector:
        owner, target = await self.credentials.place_for(call)
        await self.connections.signed(owner, target)
        connector = self.connections.connector_of(owner)
        assert connector is not None
        return connector

    async def _take_up_for(self, call: Call) -> TakeUp:
        owner, target = await self.credentials.place_for(call)
        return partial(self.connections.take_up, owner=owner, target=target)

    async def _not_connected(self, call: Call, error: NotConnected) -> ToolwireError:
        return await self.credentials.connect_error(call, error)

    def notify(self, method: str, raw: Raw, session: object) -> None:
        # Nothing says in whose name it is sent: a notification has no principal here.
        log.debug("%s: %s has no account, and is dropped", self.name, method[:200])
