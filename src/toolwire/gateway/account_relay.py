"""The way to a server behind a gateway that every caller reaches in another way: with an account, or a process."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from toolwire.auth.errors import NotConnected
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection
from toolwire.gateway.held_calls import TakeUp
from toolwire.gateway.relaying import Relay
from toolwire.gateway.sent_request import Sent
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import ToolwireError
from toolwire.server.call import Call
from toolwire.server.replay_state import principal_key

if TYPE_CHECKING:
    from toolwire.client.target import Target

log: logging.Logger = logging.getLogger("toolwire.gateway")


#: The owner of the process of callers without a principal.
NOBODY: Final = "nobody"


class CallerPlaces(Protocol):
    """The place of a server for each caller."""

    async def place_for(self, call: Call) -> tuple[str, Target]:
        """Return a text that is another one for each owner of connections, and the place of the server for it."""

    def account(self, text: str) -> str:
        """Return the part of such a text that is the same for all credentials of one account."""

    async def connect_error(self, call: Call, missing: NotConnected) -> ToolwireError:
        """Return the error for a caller who has to connect an account first."""


class PrincipalProcesses:
    """The same command for every caller, in processes that no two principals share.

    Callers without a principal are one.
    """

    def __init__(self, command: Target) -> None:
        self._command = command

    async def place_for(self, call: Call) -> tuple[str, Target]:
        return principal_key(call.principal) or NOBODY, self._command

    def account(self, text: str) -> str:
        return text

    async def connect_error(self, call: Call, missing: NotConnected) -> ToolwireError:
        return missing  # Nothing here needs an account.


class AccountRelay(Relay):
    """The way to one server, on connections that belong to the caller."""

    shares_connection = False

    def __init__(self, *args: Any, credentials: CallerPlaces, **options: Any) -> None:
        super().__init__(*args, **options)
        self.credentials = credentials

    async def _connection(self, call: Call, sent: Sent) -> RelayConnection:
        owner, target = await self.credentials.place_for(call)
        lists = cast("RelayConnection | None", self.connections.shared.connection)
        if target.transport == "stdio" and lists is not None and not lists.ended and not lists.modern:
            # One more process would only tell again that the server is a legacy one.
            return await self._conversation(call, sent.about_task, lists, owner, target)
        shared = await self.connections.signed(owner, target)
        if shared.modern:
            return await self._legacy_session(call, sent, shared, owner, target) or shared
        return await self._conversation(call, sent.about_task, shared, owner, target)

    async def connector(self, call: Call) -> Connector:
        owner, target = await self.credentials.place_for(call)
        await self.connections.signed(owner, target)
        connector = self.connections.connector_of(owner)
        assert connector is not None
        return connector

    async def _take_up_for(self, call: Call) -> TakeUp:
        owner, target = await self.credentials.place_for(call)
        return partial(self.connections.take_up, owner=owner, target=target)

    def _is_same_account(self, made: str, owner: str) -> bool:
        return self.credentials.account(made) == self.credentials.account(owner)

    async def _not_connected(self, call: Call, error: NotConnected) -> ToolwireError:
        return await self.credentials.connect_error(call, error)

    def notify(self, notice: Notice, session: object) -> None:
        # Nothing says in whose name it is sent: a notification has no principal here.
        self.log.debug("%s has no account, and is dropped", notice.method[:200])
