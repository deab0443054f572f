"""`ClientGateway`: the gateway inside a client of several servers.

It has one client, in the same process. So everything goes over the one connection that the client has to each server,
and the client gets the errors of the servers as they were raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any, Final, cast

from msgspec import structs

from toolwire._version import __version__
from toolwire.client.config import owner_of
from toolwire.client.reconnect import Connector, may_repeat
from toolwire.client.relay import RelayConnection
from toolwire.client.requests import wait_out
from toolwire.client.target import Target
from toolwire.gateway.back_connections import BackConnections, ConnectionsOwner, Conversation
from toolwire.gateway.back_health import UpstreamLimits
from toolwire.gateway.gateway import Gateway
from toolwire.gateway.list_follower import FollowSettings
from toolwire.gateway.relaying import Answer, BackFailed, Relay, RelayOwner
from toolwire.gateway.remote_components import RemotePrompt, RemoteTool
from toolwire.gateway.remote_lists import KnownServer
from toolwire.gateway.sent_request import Headers, Sent
from toolwire.gateway.shared_lists import ListsOwner, SharedLists
from toolwire.gateway.upstream import Upstream
from toolwire.http.legacy.session_records import BackSession
from toolwire.protocol import types as t
from toolwire.protocol.changes import UPDATED
from toolwire.protocol.errors import (
    OutcomeUnknown,
    ServerError,
    ToolwireError,
    TransportError,
    Unreachable,
)
from toolwire.protocol.jsonrpc import RequestId
from toolwire.server.call import Call
from toolwire.server.catalog import Found
from toolwire.server.components import Component

_FAMILIES: Final = ("tools", "resources", "prompts")


class ClientGateway(Gateway):
    """A gateway for the client in the same process.

    `members` are the servers by the prefix of their names, each with the connection that the client has to it.
    `patience` is how many seconds to wait for them at the start.
    """

    _marks_upstreams = False

    def __init__(self, members: Mapping[str, tuple[Target, Connector]], patience: float) -> None:
        super().__init__("toolwire-gateway", version=__version__)
        self.errors: dict[RequestId, Exception | None] = {}
        """The requests of the client that are in flight, and how their server failed."""
        self._by_name: dict[str, _Member] = {}
        self._patience = patience
        for name, (target, connector) in members.items():
            self._put_member(name, target, connector, [each for each in members if each.startswith(f"{name}_")])

    def _put_member(self, name: str, target: Target, connector: Connector, longer: list[str]) -> None:
        self._by_name[name] = back = _Member(name, target, connector, self.errors, longer, self._patience)
        self.put(back, f"{name}_")
        self._find_by_names()

    def _find_by_names(self) -> None:
        # Of `a` and `a_b`, names that start with `a_b_` belong to `a_b`.
        self.catalog.find_unlisted = self._unlisted

    # --- servers that come and go ---

    def add_member(self, name: str, target: Target, connector: Connector) -> None:
        """Add a server, which is connected to while the client is."""
        self._put_member(name, target, connector, [each for each in self._by_name if each.startswith(f"{name}_")])

    async def joined(self, name: str) -> None:
        """Wait until a server that was added is there, or known to be away."""
        back = self._by_name.get(name)
        if back is not None:
            await back.settled.wait()
        self._declare_families()

    async def remove_member(self, name: str, connector: Connector) -> None:
        """Take a server away. Its calls in flight end with an error."""
        back = self._by_name.pop(name)
        back.is_removed = True
        back.settled.set()
        self.remove(name)
        self._find_by_names()
        leaving = back.lifecycle.leaving  # It is forgotten when the upstream ends, which may be while this one waits.
        await connector.close()
        if leaving is not None:
            leaving.cancel()  # Nothing that began there can end.
            await asyncio.wait({leaving})

    # --- beginning ---

    def begin(self) -> None:
        """Prepare to be served again."""
        for back in self._by_name.values():
            back.settled.clear()

    async def reached(self) -> None:
        """Wait until each server is there, or known to be away. Raise `Unreachable` when all are away."""
        for back in tuple(self._by_name.values()):
            await back.settled.wait()
        missing = self.missing
        if len(missing) == len(self._by_name):
            told = "; ".join(f"{name}: {why}" for name, why in missing.items())
            raise Unreachable(f"None of the servers can be reached: {told}")
        self._declare_families()

    def _declare_families(self) -> None:
        missing = self.missing
        self.kernel.offer.add_families(kind for kind in _FAMILIES if missing or self._declares(kind))

    def _declares(self, kind: str) -> bool:
        """Return whether one of the servers has components of a kind, also if it lists none of them."""
        connections = (back.back_connections.shared.connection for back in self._by_name.values())
        return any(each is not None and t.has_capability(each.agreement.capabilities, kind) for each in connections)

    # --- what the client wants to know ---

    @property
    def missing(self) -> dict[str, str]:
        """The servers that are away, each with the reason."""
        return {name: why for name, back in self._by_name.items() if (why := back.availability.error) is not None}

    def told(self, server: str, method: str | None) -> None:
        """Take note that a server announced a change; None stands for any change."""
        back = self._by_name.get(server)
        if back is not None:
            back.told(method)

    def origin(self, tool: str) -> tuple[str, t.Tool] | None:
        """Return the server of a tool, and the tool as the server defines it."""
        found = self.catalog.tool(tool)
        if found is None or not isinstance(found.component, RemoteTool):
            return None
        return found.owner.name, found.component.remote

    def tools_of(self, server: str) -> list[t.Tool]:
        """Return the tools of a server as the server defines them."""
        tools = self._by_name[server].catalog.tools.values()
        return [tool.remote for tool in tools if isinstance(tool, RemoteTool)]

    def own_address(self, server: str, uri: str) -> str:
        """Return the address that a resource has at its server. One that has no other address here is that already."""
        return self._by_name[server].uris.inner(uri)

    # --- components that no list has ---

    def _unlisted(self, kind: str, key: str) -> Found[Any] | None:
        """Find a component by its name alone: the server decides whether it has it, and says why it is away."""
        name = owner_of(key, self._by_name)
        if name is None:
            return None
        back, inner = self._by_name[name], key[len(name) + 1 :]
        component: Component
        try:
            if kind == "tools":
                component = RemoteTool(back.components, t.Tool(name=inner, input_schema={"type": "object"}), inner)
            else:
                component = RemotePrompt(back.components, t.Prompt(name=inner), inner)
        except ServerError:
            return None  # No component can have such a name.
        mount = next(each for each in self.catalog.mounts if each.catalog is back.catalog)
        return Found(component, back, (mount,))


class _MemberConnections(BackConnections):
    """The one connection of a client to one of its servers. Lists, changes and all calls go over it."""

    def __init__(self, connector: Connector, target: Target, owner: ConnectionsOwner) -> None:
        super().__init__(owner, target, t.Implementation("", ""), timeout=None, revision=None)
        self.shared: Connector = connector

    async def of(
        self,
        conversation: Conversation,
        capabilities: Mapping[str, Any],
        *,
        alone: bool = False,
        session: BackSession | None = None,
        target: Target | None = None,
        caller: Hashable = None,
        revision: str | None = None,
    ) -> RelayConnection:
        return await self.shared_connection()


class _Member(Upstream):
    """One of the servers of a client."""

    def __init__(
        self,
        name: str,
        target: Target,
        connector: Connector,
        errors: dict[RequestId, Exception | None],
        longer: list[str],
        patience: float,
    ) -> None:
        self._longer = longer
        super().__init__(
            name,
            target,
            timeout=None,  # The client has the deadlines.
            list_timeout=patience,
            protection=UpstreamLimits(breaker=None),
            make_connections=partial(_MemberConnections, connector, target),
            make_relay=partial(_MemberRelay, errors),
            make_lists=_MemberLists,
        )
        self.settled: asyncio.Event = asyncio.Event()
        """Whether it is known what the server has, or that it is away."""
        self.is_removed: bool = False

    async def wait_until_known(self) -> None:
        await super().wait_until_known()
        self.settled.set()

    def told(self, method: str | None) -> None:
        """Take note of an announcement; None stands for all of them. The follower acts on it, a little later."""
        if method != UPDATED:
            self.lists.follower.note_announcement()

    @property
    def lists_may_vary(self) -> bool:
        return False  # The connection declares what the client can do.

    def find_sender(self, call: Call) -> None:
        """Return nothing: the requests are those of the client itself."""

    def rename(self, inner: str, room: int) -> str:
        """Return the name as it is, because the client may know it from another place."""
        public = f"{self.name}_{inner}"
        other = next((each for each in self._longer if public.startswith(f"{each}_")), None)
        if other is not None:
            raise ServerError(f"{public[:200]!r} would be one of {other}")
        return inner


class _MemberLists(SharedLists):
    """The lists of one of the servers. A list of the client waits for a reading that was announced."""

    def __init__(self, owner: ListsOwner, settings: FollowSettings) -> None:
        super().__init__(owner, structs.replace(settings, is_pinned=True, waits=True))

    def find_capability_lists(self, call: Call) -> None:
        """Return no further lists: the connection declares what the client can do."""

    def check_connection(self, connection: KnownServer) -> None:
        """Take every server: its restrictions hold for the client, which is its only caller."""


class _MemberRelay(Relay):
    """The way to one of the servers. What fails on it is sent again, and raised, as a client of one server does."""

    def __init__(
        self,
        errors: dict[RequestId, Exception | None],
        name: str,
        connections: BackConnections,
        owner: RelayOwner,
        **options: Any,
    ) -> None:
        super().__init__(name, connections, owner, **options)
        self._errors = errors

    async def send(self, call: Call, method: str, sent: Sent, headers: Headers = None) -> Answer:
        try:
            return self._answered(call, await super().send(call, method, sent, headers))
        except BackFailed as failed:
            if not self._may_repeat(failed.error, method, sent):
                raise self._noted(call, failed.error) from None
            error = failed.error
        except ToolwireError:
            raise
        except Exception as broken:  # Of a callback of the program.
            raise self._noted(call, broken) from None
        try:
            assert isinstance(error, TransportError)
            await wait_out(error)
            await self.connections.shared.recovered()
            return self._answered(call, await super().send(call, method, sent, headers))
        except BackFailed as failed:
            raise self._noted(call, failed.error) from None
        except TransportError as failure:
            raise self._noted(call, failure) from None

    def _may_send_again(self, error: TransportError, connection: RelayConnection, method: str, sent: Sent) -> bool:
        """Return whether a request may be sent again at once. Calls of tools may be after a while (`_may_repeat`)."""
        is_call = method == "tools/call" and isinstance(error, OutcomeUnknown)
        return not is_call and super()._may_send_again(error, connection, method, sent)

    def _may_repeat(self, error: Exception, method: str, sent: Sent) -> bool:
        connection = self.connections.shared.connection
        if connection is None or not self.connections.target.restartable or not isinstance(error, TransportError):
            return False
        again = method == "tools/call" and self.owner.is_repeatable(sent.members["name"])
        return may_repeat(error, connection, method, t.RequestParams(), again)

    def _answered(self, call: Call, answer: Answer) -> Answer:
        """Forget that another server was asked before, and failed."""
        if self._errors.get(call.request.id) is not None:
            self._errors[call.request.id] = None
        return answer

    def _noted(self, call: Call, error: Exception) -> BackFailed:
        """Keep an error for the client, which raises it in place of the answer."""
        owner = cast("_Member", self.owner)
        if owner.is_removed and isinstance(error, TransportError):
            error = _renamed(error, f"The server {self.name!r} was removed from the client: {error}")
        elif isinstance(error, Unreachable) and owner.availability.is_away:
            error = _renamed(error, f"The server {self.name!r} is away: {error}")
        if call.request.id in self._errors:
            self._errors[call.request.id] = error
        return BackFailed(f"The server {self.name!r} failed", error)


def _renamed(error: TransportError, text: str) -> TransportError:
    """Return the error with another text."""
    renamed = type(error)(text)
    renamed.__dict__.update(error.__dict__)
    return renamed
