"""The connections of a gateway to one server behind it.

A modern server remembers nothing between two requests, so that the requests of all clients go over one connection,
which HTTP multiplies by itself. A legacy server knows its client by the connection: what the client declared, and
everything that the server keeps for it. So every conversation gets a connection of its own.

An operator may say that a legacy server keeps nothing for its clients (`isolation="shared"`). Then all clients use a
pool: the shared connection, and further ones while calls are in flight on all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextvars import Context
from functools import partial
from itertools import count
from math import inf
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
from msgspec import Struct

from toolwire.client.notifications import NotificationHandlers
from toolwire.client.reconnect import Connector
from toolwire.client.relay import (
    DeclaredCapabilities,
    RelayConnection,
    RelayedCall,
    RelayOpener,
    Resumption,
    relay_opener,
)
from toolwire.client.target import Target
from toolwire.gateway.back_health import is_failure
from toolwire.gateway.back_urls import FailoverOpener, Returning, SeveralUrls, UrlStates
from toolwire.gateway.caller_turns import GATEWAY, bound_queues, refuse_busy
from toolwire.gateway.upstream_log import Quoted, UpstreamLog
from toolwire.http.client.session import HttpSession
from toolwire.http.client.turns import RequestTurns
from toolwire.http.legacy.session_records import BackSession
from toolwire.protocol import types as t
from toolwire.protocol.apps import APP_MIME_TYPE, UI_EXTENSION
from toolwire.protocol.errors import METHOD_NOT_FOUND, ProtocolError, Timeout, ToolwireError, Unreachable
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import is_modern
from toolwire.server.limits import Limits
from toolwire.wire.outlet import Outlet
from toolwire.wire.shares import Caller, Shares

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many conversations may have a connection to one legacy server at a time.
MAX_CONVERSATIONS: Final = 256
#: How many of these one client may have: its calls may need a connection each, and so may the capabilities it declares.
MAX_CONVERSATIONS_OF_ONE: Final = 64
#: How many seconds the connection of a conversation stays open without a call.
IDLE_SECONDS: Final = 600.0
#: How many times as long it stays open for subscriptions, and for lists that differ from the shared ones.
FOLLOWED_TIMES: Final = 6
#: How many seconds pass before a call looks again for a connection that is free, where none tells when it is.
LOOK_SECONDS: Final = 0.05
#: How many seconds a connection without a call counts as one that was opened for a call.
NEW_SECONDS: Final = 1.0
#: How many seconds a server may be silent before it counts as one that does not know `server/discover`.
PROBE_SECONDS: Final = 5.0
#: How often a call looks again which session its conversation uses, while calls beside it open and replace sessions.
_MOST_SWITCHES: Final = 3

#: What a gateway can carry. Servers list tools only for clients that can do what the tools need, so that the connection
#: for lists declares all of it. Nobody asks anything there, because no call of a legacy server goes over it.
EVERYTHING: Final[dict[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
    "extensions": {UI_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}, t.TASKS_EXTENSION: {}},
}

#: The capabilities declared in a pool: nothing that a client would have to answer.
ANSWERLESS: Final[dict[str, Any]] = {"extensions": EVERYTHING["extensions"]}

#: The client of conversations that all calls with one credential share.
SIGNED: Final = "signed"
#: The client of the connections of a pool.
POOL: Final = "pool"

_encode = msgspec.json.Encoder(order="sorted").encode


class Conversation(NamedTuple):
    """The parties of a conversation with a legacy server, as far as they may differ."""

    credential: Hashable
    client: Hashable
    capabilities: bytes
    number: int = 0
    """Tells connections apart that carry one call at a time, and those of a pool."""


#: The shared connection, as a member of the pool.
FIRST_MEMBER: Final = Conversation("", POOL, b"")


class ConnectionBounds(Struct, frozen=True):
    """The bounds of the connections to one server: how many there are, how long they stay, how calls wait for one."""

    most: int | None = None
    """None for `MAX_CONVERSATIONS`, and `MAX_CONVERSATIONS_OF_ONE` for one client."""
    idle_seconds: float | None = None
    """None for `IDLE_SECONDS`."""
    queue: int = 0
    """How many calls wait until a connection is free."""
    wait: float = 30.0
    """How many seconds they wait."""
    of_caller: int = 0
    """How many calls of one caller run at once at least, where its share of the places is less."""
    turn_queue: int = 100
    """How many calls of one caller wait for their share of the places."""
    is_shared: bool = False
    """Whether all clients share the connections to a legacy server, of which there is one unless `most` says more."""
    caller_share: float = Limits().share
    """The share of the shared connection that one caller gets."""


class PoolCapabilities(DeclaredCapabilities):
    """Everything for a modern server. For a legacy one, nothing that a client would have to answer."""

    def __init__(self) -> None:
        super().__init__(EVERYTHING)
        self._legacy = DeclaredCapabilities(ANSWERLESS)

    def capabilities(self, revision: str) -> dict[str, Any]:
        return super().capabilities(revision) if is_modern(revision) else self._legacy.capabilities(revision)


class PooledConnection(RelayConnection):
    """A connection to a legacy server that calls of all clients share.

    A message reaches a client only if it names the call that it belongs to: by the progress token, or over HTTP by the
    stream on which it comes. The server gets an error for every question.
    """

    answers_itself = True
    is_pooled = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._has_warned = False

    def _accepted(self, revision: str) -> dict[str, Any]:
        return EVERYTHING  # A question that was not declared gets the reason why it is refused.

    def concerned(
        self,
        about: RequestId | None,
        wants: Callable[[RelayedCall], Any] = lambda call: call.on_notice,
        task: str | None = None,
    ) -> RelayedCall | None:
        return None if about is None and not self.modern else super().concerned(about, wants, task)

    async def handle(self, request: Incoming, outlet: Outlet) -> t.Wire:
        if self.modern:
            return await super().handle(request, outlet)
        method = request.method[:200]
        if not self._has_warned:
            self._has_warned = True
            UpstreamLog(self.link.texts).warning(
                'it asked %s, which is refused: its clients share processes; use isolation = "conversation"',
                Quoted(method),
            )
        text = f'Several clients share this connection, so that {method} has no answer (isolation = "shared")'
        raise ProtocolError(METHOD_NOT_FOUND, text)


class ListConnection(RelayConnection):
    """A connection that reads the lists for other capabilities, and refuses questions."""

    async def handle(self, request: Incoming, outlet: Outlet) -> t.Wire:
        raise ProtocolError(METHOD_NOT_FOUND, f"Only lists are read here, so that {request.method[:200]} has no answer")


class _Lane:
    """The connection of one conversation, and when it was used last."""

    __slots__ = (
        "caller",
        "connector",
        "conversation",
        "is_shared",
        "is_taken",
        "kept_until",
        "opener",
        "opening",
        "session_id",
        "used",
    )

    def __init__(self, opener: RelayOpener, used: float, caller: Hashable) -> None:
        self.opener = opener
        self.conversation: Conversation | None = None
        """The conversation that it is for; None when it is closed."""
        self.caller = caller
        self.connector = Connector(opener)
        self.used = used
        self.opening = 0
        """How many calls wait until the connection is open."""
        self.kept_until = 0.0
        """The end of the tasks that the server runs for this conversation, as far as it is known."""
        self.is_taken = False
        """Whether one call has the connection for itself."""
        self.is_shared = False
        """Whether other processes use the session at the server, too."""
        self.session_id: str | None = None
        """The session that was used last."""

    async def live(self) -> RelayConnection:
        self.opening += 1
        try:
            connection = cast("RelayConnection", await self.connector.live())
        finally:
            self.opening -= 1
        if connection is self.connector.connection:
            self.session_id = connection.session_id or self.session_id
        return connection

    async def close(self) -> None:
        connection = self.connector.connection
        if self.is_shared and connection is not None:
            cast("RelayConnection", connection).leave_session()
        await self.connector.close()

    @property
    def load(self) -> int:
        """The number of calls on the connection."""
        return self.opening + _count_calls(self.connector)

    @property
    def is_busy(self) -> bool:
        if self.is_taken or self.opening:
            return True
        connection = cast("RelayConnection | None", self.connector.connection)
        if connection is None or connection.ended:
            return False
        # A connection that was opened a moment ago was opened for a call, which follows.
        is_new = not connection.is_used and self.used > asyncio.get_running_loop().time() - NEW_SECONDS
        return bool(connection.calls or connection.streams) or is_new

    @property
    def is_followed(self) -> bool:
        """Return whether it is open for announcements alone."""
        connection = cast("RelayConnection | None", self.connector.connection)
        if connection is None or connection.ended or self.is_taken or self.opening:
            return False
        return bool(connection.streams) and not connection.calls

    async def unused(self) -> None:
        """Wait until no call is in flight on the connection."""
        connection = cast("RelayConnection | None", self.connector.connection)
        if connection is None or connection.ended or not connection.calls:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            await connection.unused()


class ConnectionsOwner(Protocol):
    """The upstream that connections lead to."""

    def note_change(self, conversation: Conversation, method: str | None, uri: str | None) -> None:
        """Note what a legacy server announced in a conversation."""

    def note_closed(self, conversation: Conversation) -> None:
        """Note that the connection of a conversation was closed."""

    def note_opening(self) -> None:
        """Note that the shared connection is opened."""

    def note_moved(self) -> None:
        """Note that the shared connection is to be opened at another address."""

    def is_kept(self, client: Hashable) -> bool:
        """Return whether a client has subscriptions, or lists of its own, in its conversation."""


class BackConnections:
    """The connections to one server. `shared` is the one for lists, changes, and all calls of modern servers."""

    def __init__(
        self,
        owner: ConnectionsOwner,
        target: Target,
        identity: t.Implementation,
        *,
        timeout: float | None,
        revision: str | None,
        bounds: ConnectionBounds | None = None,
    ) -> None:
        self._owner = owner
        self.log: UpstreamLog = UpstreamLog(target.texts)
        self._bounds = bounds or ConnectionBounds()
        self._waiting = 0
        self._turns = asyncio.Lock()
        self.target = target
        self.urls: UrlStates | None = target.states if isinstance(target, SeveralUrls) else None
        """The addresses of a server that has several."""
        self._identity = identity
        self._timeout = timeout
        self.revision: str | None = revision
        """The one revision to speak; None for the newest that both sides know."""
        self._is_modern_only = False
        self.is_shared: bool = self._bounds.is_shared
        """Whether all clients share the connections to a legacy server."""
        # Its subscription tells of changes.
        opener = self._opener(EVERYTHING, _ignore)
        opener.make_connection = self._make_shared
        if self.is_shared:
            opener.answers = PoolCapabilities()
        self.shared: Connector = Connector(opener)
        self._lanes: dict[Conversation, _Lane] = {}
        self._taken: dict[RelayConnection, _Lane] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._failback: Returning | None = None

    def _opener(
        self,
        capabilities: Mapping[str, Any],
        changed: Callable[[str | None, str | None], None],
        target: Target | None = None,
        revision: str | None = None,
    ) -> RelayOpener:
        place = target or self.target
        return relay_opener(
            place,
            self._identity,
            capabilities,
            changed=changed,
            timeout=self._timeout,
            probe_timeout=PROBE_SECONDS,
            revision=revision or self.revision,
            kind=FailoverOpener if isinstance(place, SeveralUrls) else RelayOpener,
        )

    def _make_shared(self, *arguments: Any) -> RelayConnection:
        """Make the connection that callers share, with a share of its places for each."""
        connection = PooledConnection(*arguments) if self.is_shared else RelayConnection(*arguments)
        self._is_modern_only = False
        self._owner.note_opening()
        session, calls = connection.session, connection.calls
        if isinstance(session, HttpSession) and session.places is not None:
            shares = Shares(session.places, self._bounds.caller_share, "calls")
            shares.own = min(max(shares.own, self._bounds.of_caller), session.places)

            def find_caller(identifier: RequestId) -> Caller:
                call = calls.get(identifier)
                return GATEWAY if call is None else call.caller

            find_bounds = bound_queues(self._bounds.turn_queue, self._bounds.wait)
            session.turns = RequestTurns(shares, session.peer.outgoing, find_caller, find_bounds)
        return connection

    # --- several addresses ---

    def start_failback(self) -> None:
        """Try addresses again that did not work, where the server has several."""
        opener = self._opener(EVERYTHING, _ignore)
        self._failback = Returning(opener, self._prefer) if isinstance(opener, FailoverOpener) else None

    async def stop_failback(self) -> None:
        """Try addresses no more."""
        if self._failback is not None:
            await self._failback.stop()

    def address_of(self, connection: RelayConnection) -> str:
        """Return the address of a connection, where the server has several."""
        return "" if self.urls is None else connection.link.label

    def lost(self, error: ToolwireError, connection: RelayConnection, *, for_sure: bool = False) -> bool:
        """Take note that a request failed on a connection; return whether the next one goes to another address.

        `for_sure`: the request was one that every server answers.
        """
        if self.urls is None or not is_failure(error):
            return False
        address = self.address_of(connection)
        self.urls.failed(address, error, for_sure=for_sure)
        if self.urls.works(address) or not self.urls.works(self.urls.order()[0]):
            return False
        self._leave(connection)
        return True

    def _prefer(self) -> None:
        """Leave connections to a modern server that are not at the preferred address. Sessions stay where they are."""
        assert self.urls is not None
        best = self.urls.order()[0]
        connections = (self.shared.connection, *(lane.connector.connection for lane in self._lanes.values()))
        for each in cast("tuple[RelayConnection | None, ...]", connections):
            is_elsewhere = each is not None and not each.ended and self.address_of(each) != best
            if is_elsewhere and each is not None and (each.modern or each is self.shared.connection):
                self._leave(each)

    def _leave(self, connection: RelayConnection) -> None:
        """Open the next connection elsewhere. The requests in flight on this one end here."""
        for connector in (self.shared, *(lane.connector for lane in self._lanes.values())):
            if connector.connection is connection:
                connector.connection = None
                self._end(connection.retire())
                if connector is self.shared:
                    self._owner.note_moved()

    # --- connections ---

    async def shared_connection(self) -> RelayConnection:
        """Return the shared connection; open it if it is not open."""
        return cast("RelayConnection", await self.shared.live())

    def leave_shared(self) -> None:
        """Close the shared connection when the requests in flight on it have ended. The next one opens another."""
        connection, self.shared.connection = self.shared.connection, None
        if connection is not None:
            self._end(connection.retire())

    async def check(self, seconds: float) -> None:
        """Send a health check on the shared connection, and raise its failure in time."""
        connection: RelayConnection | None = None
        try:
            async with asyncio.timeout(seconds):
                connection = await self.shared_connection()
                await connection.check()
        except (ToolwireError, TimeoutError) as error:
            failure = (
                error
                if isinstance(error, ToolwireError)
                else Timeout(f"it did not answer a health check within {seconds:g} seconds")
            )
            if connection is None or not self.lost(failure, connection, for_sure=True):
                raise failure from None
            # Another address is used from now on.

    async def open_beside(
        self, capabilities: Mapping[str, Any], revision: str, target: Target | None = None
    ) -> RelayConnection:
        """Open a connection to a legacy server that declares these capabilities, until `close_beside`."""
        opener = self._opener(capabilities, _ignore, target, revision)
        opener.make_connection = ListConnection
        return cast("RelayConnection", await opener.open())

    def close_beside(self, connection: RelayConnection) -> None:
        """Close such a connection, without waiting: the end of a process may take a while."""
        self._end(connection.close())

    async def signed(self, owner: str, target: Target) -> RelayConnection:
        """Return the connection with one owner's credential, over which all calls of a modern server go."""
        # Each owner is a client of its own, so that one of them does not use up the connections of the others.
        return await self.of(_signed(owner), EVERYTHING, target=target)

    def connector_of(self, owner: str) -> Connector | None:
        """Return what keeps the connection with one owner's credential; None where there is none."""
        lane = self._lanes.get(_signed(owner))
        return None if lane is None else lane.connector

    def _agreed(self, credential: Hashable) -> RelayConnection | None:
        """Return the connection on which the server said what it is, to the holder of a credential."""
        connector = self.connector_of(credential) if isinstance(credential, str) and credential else self.shared
        return None if connector is None else cast("RelayConnection | None", connector.connection)

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
        """Return the connection of a conversation with a legacy server.

        `alone`: the messages of the server have to belong to this call and no other. Where they all come in one stream,
        the call gets a connection for itself, until `free`. `session` is the one that the conversation has at the
        server already, in this process or in another. `target` is the place of the server with the credential of
        the conversation. `caller` is whom it counts for; None where nobody tells callers apart. `revision` is the one
        to speak, else the newest of the server.
        """
        loop = asyncio.get_running_loop()
        alone = alone and self._has_one_stream()
        while True:
            while alone and (known := self._lanes.get(conversation)) is not None and known.is_busy:
                conversation = conversation._replace(number=conversation.number + 1)
            lane = self._lanes.pop(conversation, None)
            if lane is not None:
                conversation = lane.conversation or conversation
                break
            if self._make_room(conversation, caller):
                # Some servers tell of a change only in the conversation that made it.
                opener = self._opener(capabilities, _ignore, target, revision)
                opener.tries_sse = revision is None  # Else the server speaks 2026-07-28 at this address.
                lane = _Lane(opener, loop.time(), caller)
                lane.conversation = conversation
                lane.opener.changed = partial(self._note_change, lane)
                break
            await self._wait_for_room(conversation, caller)
        # At the end: the first one is the one that was used longest ago.
        self._put_lane(conversation, lane)
        if session is not None:
            self._use(lane, session, self._agreed(conversation.credential))
        if not alone:
            return await lane.live() if session is None else await self._in_session(lane, session, conversation)
        lane.is_taken = True
        try:
            connection = await lane.live()
        except BaseException:
            lane.is_taken = False
            raise
        self._taken[connection] = lane
        return connection

    async def _in_session(self, lane: _Lane, session: BackSession, conversation: Conversation) -> RelayConnection:
        """Return the connection of a lane in this session, or in a new one."""
        connection = await lane.live()
        for _ in range(_MOST_SWITCHES):
            if lane.opener.known is None and connection is lane.connector.connection:
                break
            # It was being opened already, before this process knew of the session.
            self._use(lane, session, self._agreed(conversation.credential))
            connection = await lane.live()
        return connection

    def _put_lane(self, conversation: Conversation, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        self._lanes[conversation] = lane
        lane.used = loop.time()
        if self._reaper is None:
            self._reaper = loop.call_later(self.idle_seconds / 4, self._reap, context=Context())

    # --- the pool ---

    async def pooled(self, made: Conversation | None = None) -> RelayConnection:
        """Return the least busy connection of the pool. Open another one while all are busy and there is room.

        `made` is the member that made the task which the request is about.
        """
        lane = self._lanes.get(made) if made is not None else self._least_busy()
        if lane is None:
            return await self.shared_connection()
        try:
            connection = await lane.live()
        except ToolwireError as error:
            # The pool has at least one connection that works: the shared one.
            self.log.warning("another process of the pool did not start: %s", error)
            return await self.shared_connection()
        lane.used = asyncio.get_running_loop().time()
        return connection

    def _least_busy(self) -> _Lane | None:
        """Return the least busy lane of the pool, or a new one; None for the shared connection."""
        load = _count_calls(self.shared)
        if not load:
            return None
        lanes = [lane for key, lane in self._lanes.items() if key.client == POOL]
        # One that runs comes before one that has to be started again.
        least = min(lanes, key=lambda lane: (lane.load, not lane.connector.connected), default=None)
        if (least is None or least.load) and 1 + len(lanes) < (self._bounds.most or 1):
            number = next(each for each in count(1) if FIRST_MEMBER._replace(number=each) not in self._lanes)
            opener = self._opener(EVERYTHING, partial(self._owner.note_change, FIRST_MEMBER._replace(number=number)))
            opener.make_connection, opener.answers = PooledConnection, PoolCapabilities()
            least = _Lane(opener, asyncio.get_running_loop().time(), None)
            self._put_lane(FIRST_MEMBER._replace(number=number), least)
        return None if least is None or least.load >= load else least

    def _note_change(self, lane: _Lane, method: str | None, uri: str | None) -> None:
        if lane.conversation is not None:
            self._owner.note_change(lane.conversation, method, uri)

    def _use(self, lane: _Lane, session: BackSession, shared: RelayConnection | None) -> None:
        """Have a lane use a session of the conversation, unless it is the one that it used before."""
        current = cast("RelayConnection | None", lane.connector.connection)
        if current is not None and current.session_id == session.id:
            lane.session_id, lane.opener.known = session.id, None
            return
        if lane.session_id == session.id or shared is None or (shared.modern and is_modern(session.revision)):
            return
        lane.session_id = session.id
        lane.opener.known = (msgspec.structs.replace(shared.agreement, revision=session.revision), session.id)
        if isinstance(lane.opener, FailoverOpener):
            lane.opener.session_at = session.address
        before, lane.connector.connection = lane.connector.connection, None
        if before is not None:
            self._end(before.retire())

    @property
    def may_speak_legacy(self) -> bool:
        """Return whether clients may have sessions at a modern server, as far as that is known."""
        return self.revision is None and not self._is_modern_only and not self.is_shared

    def note_modern_only(self) -> None:
        """Take note that a modern server refused `initialize`."""
        self._is_modern_only = True

    def share(self, conversation: Conversation) -> None:
        """Leave the session of a conversation to other processes when its connection is closed."""
        lane = self._lanes.get(conversation)
        if lane is not None:
            lane.is_shared = True

    def can_continue_at(self, successor: BackConnections) -> bool:
        """Return whether other connections to the same address lead to the same server in the same revision.

        A command and a server of this process are another process, and another object.
        """
        return self.target.transport == "http" and self.revision == successor.revision

    def leave_sessions(self) -> None:
        """Leave all sessions to the connections that come after these."""
        for lane in self._lanes.values():
            lane.is_shared = True

    def tell_roots_changed(self, client: Hashable) -> None:
        """Announce changed roots of a client in its conversations with a legacy server."""
        for conversation, lane in self._lanes.items():
            connection = cast("RelayConnection | None", lane.connector.connection)
            if conversation.client == client and connection is not None:
                connection.tell_roots_changed()

    def hand_on_level(self, client: Hashable, level: t.LoggingLevel) -> list[asyncio.Task[None]]:
        """Set the log level of a client in its conversations; return what it waits for."""
        waits = []
        for conversation, lane in self._lanes.items():
            connection = cast("RelayConnection | None", lane.connector.connection)
            if conversation.client == client and connection is not None and not connection.ended:
                connection.client_level = level
                setting = asyncio.get_running_loop().create_task(connection.lower_level(level))
                setting.add_done_callback(_note_failure)
                waits.append(setting)
        return waits

    def end_session(self, client: Hashable) -> None:
        """End the sessions of a client that is gone."""
        for conversation in [each for each in self._lanes if each.client == client]:
            self._lanes[conversation].is_shared = False
            self._close_lane(conversation)

    async def take_up(self, resumption: Resumption, owner: str = "", target: Target | None = None) -> RelayConnection:
        """Return a connection on which a request of another process goes on. It belongs to the caller.

        `owner` is whose account the request has, and `target` is the place of the server for it.
        """
        shared = await (self.shared_connection() if target is None else self.signed(owner, target))
        if shared.modern:
            raise Unreachable("it speaks another revision now")
        place = target or self.target
        if isinstance(place, SeveralUrls):
            place = place.at(resumption.address) or place
        link = await place.open()
        connection = RelayConnection(
            link,
            DeclaredCapabilities(EVERYTHING),
            None,
            partial(self._owner.note_change, _signed(owner)),
            NotificationHandlers(),
        )
        try:
            agreement = msgspec.structs.replace(shared.agreement, revision=resumption.revision)
            # What belongs to no request is not for the client of this one.
            connection.take_up(self._identity, agreement, resumption.session, listens=False)
        except BaseException:
            await connection.close()
            raise
        return connection

    def conversation(self, connection: RelayConnection) -> Conversation | None:
        """Return the conversation that a connection belongs to; None for a shared connection outside of a pool."""
        if self.is_shared and connection is self.shared.connection:
            return FIRST_MEMBER
        found = (key for key, lane in self._lanes.items() if lane.connector.connection is connection)
        return next(found, None)

    def find_lane(self, conversation: Conversation) -> Connector | None:
        """Return what keeps the connection of a conversation; None where there is none."""
        lane = self._lanes.get(conversation)
        return None if lane is None else lane.connector

    def find_conversation(self, client: Hashable) -> Conversation | None:
        """Return the conversation of a client that has a connection; None where there is none."""
        return next((each for each in self._lanes if each.client == client), None)

    def keep(self, conversation: Conversation, seconds: float) -> None:
        """Keep the connection of a conversation, also where nobody uses it: a server that is a process runs a task."""
        lane = self._lanes.get(conversation)
        if lane is not None:
            lane.kept_until = max(lane.kept_until, asyncio.get_running_loop().time() + seconds)

    def free(self, connection: RelayConnection) -> None:
        """Let others use a connection that a call had for itself."""
        lane = self._taken.pop(connection, None)
        if lane is not None:
            lane.is_taken = False

    def _has_one_stream(self) -> bool:
        shared = self.shared.connection
        return self.target.transport != "http" if shared is None else shared.link.duplex

    @property
    def is_busy(self) -> bool:
        """Return whether a call is in flight."""
        shared = cast("RelayConnection | None", self.shared.connection)
        return bool(shared is not None and shared.calls) or any(lane.is_busy for lane in self._lanes.values())

    @property
    def last_ended(self) -> float:
        """When the last call on the shared connection ended, on the monotonic clock."""
        connection = cast("RelayConnection | None", self.shared.connection)
        return -inf if connection is None else connection.ended_at

    def has_ended_call(self, seconds: float) -> bool:
        """Return whether a request has ended in the last seconds whose effects may be announced on another stream."""
        connections = (self.shared.connection, *(lane.connector.connection for lane in self._lanes.values()))
        since = monotonic() - seconds
        return any(
            each is not None and each.ended_at > since and not each.link.duplex
            for each in cast("tuple[RelayConnection | None, ...]", connections)
        )

    @property
    def count(self) -> int:
        """The number of connections. Each is a process, where the server is a command."""
        return len(self._lanes) + self.shared.connected

    @property
    def conversations(self) -> int:
        """The number of conversations that have a connection."""
        return len(self._lanes)

    @property
    def waiting(self) -> int:
        """The number of calls that wait until a connection is free."""
        shared = cast("RelayConnection | None", self.shared.connection)
        turns = None if shared is None else getattr(shared.session, "turns", None)
        return self._waiting + (turns.waiting if isinstance(turns, RequestTurns) else 0)

    @property
    def idle_seconds(self) -> float:
        """The seconds that the connection of a conversation stays open without a call."""
        return self._bounds.idle_seconds or IDLE_SECONDS

    def _crowd(self, conversation: Conversation, caller: Hashable) -> list[Conversation]:
        """Return the connections of which one has to go before there is another one; none where there is room."""
        most = self._bounds.most or MAX_CONVERSATIONS
        of_one = MAX_CONVERSATIONS_OF_ONE if self._bounds.most is None else max(1, most // 2)
        own = [
            key
            for key in self._lanes
            if key.client == conversation.client or (key.credential and key.credential == conversation.credential)
        ]
        if len(own) >= of_one:
            return own
        # A caller may have many sessions, and leaves a quarter to others.
        of_caller = [key for key, lane in self._lanes.items() if caller is not None and lane.caller == caller]
        if len(of_caller) >= most - most // 4:
            return of_caller
        return list(self._lanes) if len(self._lanes) >= most else []

    def _make_room(self, conversation: Conversation, caller: Hashable) -> bool:
        """Close a connection that nobody uses, where there are too many. Return False where all are in use."""
        crowd = self._crowd(conversation, caller)
        if not crowd:
            return True
        now = asyncio.get_running_loop().time()
        idle = [key for key in crowd if not self._lanes[key].is_busy]
        idle = idle or [key for key in crowd if self._lanes[key].is_followed and not _is_signed(key)]
        if not idle:
            return False
        # The one that was used longest ago; one with a task of the server only if all have one.
        self._close_lane(min(idle, key=lambda key: self._lanes[key].kept_until > now))
        return True

    async def _wait_for_room(self, conversation: Conversation, caller: Hashable) -> None:
        """Wait until a connection may be free. Raise `CallRefused` where too many wait, or for too long."""
        if self._waiting >= self._bounds.queue:
            raise refuse_busy()
        self._waiting += 1
        try:
            # One at a time, in the order in which they came.
            async with asyncio.timeout(self._bounds.wait), self._turns:
                while (crowd := self._crowd(conversation, caller)) and all(self._lanes[key].is_busy for key in crowd):
                    ends = [asyncio.ensure_future(self._lanes[key].unused()) for key in crowd]
                    try:
                        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for end in ends:
                            end.cancel()
        except TimeoutError:
            raise refuse_busy() from None
        finally:
            self._waiting -= 1

    def _reap(self) -> None:
        self.close_idle()
        loop = asyncio.get_running_loop()
        self._reaper = loop.call_later(self.idle_seconds / 4, self._reap, context=Context()) if self._lanes else None

    def close_idle(self) -> None:
        """Close the connections of conversations that have ended, or that nobody has used for a while."""
        now = asyncio.get_running_loop().time()
        for key, lane in list(self._lanes.items()):
            is_over = getattr(key.client, "over", False)
            # One that is open for announcements alone stays longer. The shared connection subscribes in its place then.
            may_end = not lane.is_busy or (lane.is_followed and not _is_signed(key))
            idle = self.idle_seconds * (FOLLOWED_TIMES if lane.is_followed or self._owner.is_kept(key.client) else 1)
            if may_end and lane.kept_until < now and (is_over or lane.used < now - idle):
                self._close_lane(key)

    def _close_lane(self, conversation: Conversation) -> None:
        lane = self._lanes.pop(conversation)
        lane.conversation = None
        self._end(lane.close())
        self._owner.note_closed(conversation)

    def _end(self, work: Coroutine[Any, Any, None]) -> None:
        closing = asyncio.get_running_loop().create_task(work)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def idle(self) -> None:
        """Wait until no call is in flight."""
        connectors = [self.shared, *(lane.connector for lane in self._lanes.values())]
        for connector in connectors:
            if connector.connection is not None:
                await cast("RelayConnection", connector.connection).unused()

    async def close(self) -> None:
        """Close all connections. The next call opens new ones."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for conversation in list(self._lanes):
            self._close_lane(conversation)
        await self.shared.close()
        self._turns = asyncio.Lock()  # The next one who waits may do so on another loop.
        if self._closing:
            await asyncio.wait(self._closing)


def _signed(owner: str) -> Conversation:
    # One account may come with several tokens or secrets, and has one share of the connections.
    return Conversation(owner, (SIGNED, owner.partition(":")[0]), b"")


def _count_calls(connector: Connector) -> int:
    connection = cast("RelayConnection | None", connector.connection)
    return 0 if connection is None or connection.ended else len(connection.calls)


def _is_signed(conversation: Conversation) -> bool:
    """Return whether all calls with a credential share a conversation."""
    return isinstance(conversation.client, tuple) and conversation.client[0] == SIGNED


def conversation_of(credential: Hashable, client: Hashable, capabilities: Mapping[str, Any]) -> Conversation:
    return Conversation(credential, client, _encode(capabilities))


def _ignore(method: str | None, uri: str | None) -> None:
    return


def _note_failure(setting: asyncio.Task[None]) -> None:
    if not setting.cancelled() and (error := setting.exception()) is not None:
        log.debug("a log level could not be handed on: %s", error)
