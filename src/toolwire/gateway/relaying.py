"""One request of a client on its way to the server behind a gateway, and the result on its way back.

Both sides may speak different revisions. Four rules hold in every case:

* Members of `_meta` that describe one connection stay on that connection. All others cross, both ways.
* Members that no type here knows cross, too.
* Params and results are not decoded where the revisions agree and nobody here has to read them.
* What a server says crosses as it is. What goes wrong on the way to it names the server.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.auth.errors import NeedsLogin, NotConnected, SignInFailed
from toolwire.client.connection import CEILING_SECONDS, ClientConnection
from toolwire.client.errors import is_resource_not_found
from toolwire.client.listen import Subscription
from toolwire.client.reconnect import READING, Connector, denies_revision
from toolwire.client.relay import KNOWN_EXTENSIONS, RelayConnection, RelayedCall
from toolwire.client.repeated_rounds import send_round
from toolwire.client.target import fingerprint
from toolwire.gateway.asked_questions import AskedQuestions, name_question
from toolwire.gateway.back_connections import BackConnections, Conversation, conversation_of
from toolwire.gateway.back_health import CredentialMissing, Send, Source, source_of
from toolwire.gateway.back_messages import (
    ClientOfCall,
    WaitingHere,
    answered_round,
    answering,
    asking_between_calls,
    check_questions,
    discard_report,
    is_of_extension,
    is_usable_page,
    remember_page,
    reporting,
    reporting_task,
    set_level,
    telling_client,
    with_public_addresses,
)
from toolwire.gateway.held_call import HeldCall
from toolwire.gateway.held_calls import LOST, AnsweredRound, HeldCalls, TakeUp, relayed_for
from toolwire.gateway.held_judgements import answer_within_judgement, keep_judgement
from toolwire.gateway.sent_request import (
    HOPS_KEY,
    OF_ONE_CONNECTION,
    AboutTask,
    Headers,
    Sent,
    carried,
    carried_modern,
    forwarded_headers,
    hops_of,
    meta_for,
    parameter_headers,
    sent_with,
)
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.gateway.uris import UriNames
from toolwire.http.client.endpoint import TOO_LONG, TURNED_AWAY
from toolwire.http.legacy.session_calls import SessionConnection
from toolwire.http.legacy.session_records import BackSession
from toolwire.protocol import types as t
from toolwire.protocol.asking import QUESTIONS
from toolwire.protocol.classifier import Notice
from toolwire.protocol.decoders import convert_to
from toolwire.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    InvalidResponse,
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    ResourceNotFound,
    Timeout,
    ToolError,
    ToolwireError,
    TransportError,
    Unauthorized,
    Unreachable,
    UrlRequired,
    find_data_member,
)
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN
from toolwire.protocol.rounds import invalid_state, read_round, request_digest
from toolwire.protocol.sealing import BadSeal
from toolwire.redaction import repr_without
from toolwire.server.call import Call
from toolwire.server.hops import Hop
from toolwire.server.named_uris import MAX_URIS
from toolwire.server.replay_state import MAX_STATE, principal_key
from toolwire.stores import MemoryKV, StoreFailed, StoreFull
from toolwire.wire.channel import Sender
from toolwire.wire.deadlines import CallClock
from toolwire.wire.session import Session
from toolwire.wire.shares import is_distinct

if TYPE_CHECKING:
    from toolwire.client.target import Target

log: logging.Logger = logging.getLogger("toolwire.gateway")


#: The least seconds between two readings of the lists that errors of calls lead to.
REFRESH_SECONDS: Final = 5.0
#: How many seconds a server has to acknowledge a subscription of a client.
LISTEN_SECONDS: Final = 5.0
#: How many notifications of clients may wait for a connection to one server.
MAX_NOTIFYING: Final = 100

_NOT_REACHED: Final = "it cannot be reached"
_BUSY: Final = "it has too much to do now"
_TOO_LONG: Final = "the request is too long for it; shorten its arguments, or its address"
_REMEDY: Final = "an operator of the gateway finds the reason in its log, and gives it other credentials"
_NO_PAGE: Final = "it wants a page to be opened before the call, and names none that can be opened"
_STORE_FAILED: Final = (
    "The gateway cannot go on with this call now; the request may have been carried out. Try again later."
)
_ADDRESS: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://\S*[^\s:;,.)]", re.IGNORECASE)

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode


class _State(Struct, array_like=True):
    """The state of a modern server between two rounds, sealed for one request of one client."""

    back: str
    request: str
    principal: str
    state: str | None
    held: str | None = None
    """The call of a legacy server that is held; None for the state of a modern server."""
    round: int = 0
    judged: str = ""
    """The mark of what was decided when the call was accepted; empty in states of earlier versions."""
    asker: str = ""
    """The signed address of the server that asked; empty in states of earlier versions."""
    asked: str = ""
    """The name of the question among those of a modern server that are open."""

    def __repr__(self) -> str:
        return repr_without(self, "state")


_decode_state = msgspec.json.Decoder(_State).decode


class TaskNeeded(Exception):
    """A modern server refused a call, because the call has to be a task."""


class BackFailed(ToolError):
    """A server behind the gateway that could not be asked, or did not answer. `error` says what went wrong."""

    def __init__(self, text: str, error: Exception) -> None:
        super().__init__(text)
        self.error = error


class Answer(Struct, eq=False):
    """A result of the server, as it came or member by member, and the connection on which it came."""

    raw: Raw
    members: dict[str, Raw] | None
    """None where nobody has looked into it yet: the result of a legacy server."""
    connection: RelayConnection
    questions: t.InputRequiredResult | None = None
    """The questions of a legacy server whose call is held. There is no result yet."""


class RelayOwner(Protocol):
    """The upstream that a relay sends requests to."""

    async def reread_lists(self) -> None:
        """Read the lists again, because one of them led to an error."""

    def record_failure(self, error: ToolwireError, source: Source) -> None:
        """Record why a request failed, where the upstream may be the cause, with the caller and the tool."""

    def is_repeatable(self, tool: Any) -> bool:
        """Return whether a tool claims that a second call does no harm."""

    def find_sender(self, call: Call) -> Sender | None:
        """Return the client of a call, for an upstream of this process; None for any other."""


class Relay:
    """The way to one server behind a gateway."""

    shares_connection: bool = True
    """Whether all modern clients share one connection."""

    def __init__(
        self,
        name: str,
        connections: BackConnections,
        owner: RelayOwner,
        *,
        timeout: float | None,
        uris: UriNames,
        forwards: Iterable[str] = (),
    ) -> None:
        """`uris` are the addresses of the server that are other ones here.

        `forwards` are the names of the headers of a client's request that go on to the server, beside those of a trace.
        """
        self.name = name
        self.connections = connections
        self.owner: RelayOwner = owner
        self.timeout = timeout
        self.key: str = fingerprint(name, connections.target.address)
        """The key of the server in the records of sessions. A server at another address has another key."""
        self.name_key: str = fingerprint(name)
        """What stands for its name there, whatever its address is."""
        self.held: HeldCalls = HeldCalls(name, timeout, connections.log)
        self.asked: AskedQuestions = AskedQuestions(connections)
        self.withheld: frozenset[str] = frozenset()
        """The extensions of the server that are not offered."""
        self._earlier: list[Relay] = []
        self._forwarded: tuple[str, ...] = tuple(forwards)
        # Most servers get no further header, and their calls do not look for them.
        self.headers_for: Callable[[Call, Headers], dict[str, str] | None] = (
            self._all_headers if self._forwarded else parameter_headers
        )
        """Returns the headers of a request to a modern server that follow from the client's request."""
        self._uris = uris
        self._notifying: set[asyncio.Task[None]] = set()
        self.sending: Send = self.send_with_retry
        """Admits a request and sends it.

        The guard replaces it while the server fails, and where calls have to wait.
        """
        self._next_refresh = 0.0
        self._refreshing: asyncio.Future[None] | None = None

    @property
    def log(self) -> UpstreamLog:
        return self.connections.log

    def send(
        self,
        call: Call,
        method: str,
        sent: Sent,
        headers: Headers = None,
    ) -> Coroutine[Any, Any, Answer]:
        """Send a request for the client of a call, and return the result.

        `headers` returns the headers that repeat arguments, as the server's list has them now.
        """
        # No coroutine around the other one where nobody watches.
        return (self._watched if call.host.hop_observers else self.sending)(call, method, sent, headers)

    async def _watched(
        self, call: Call, method: str, sent: Sent, headers: Callable[[], Mapping[str, str]] | None
    ) -> Answer:
        hop = Hop(self.name, method, sent.members)
        endings = [observe(call, hop) for observe in call.host.hop_observers]
        if hop.trace:
            meta = {**sent.meta, **{name: Raw(_encode(value)) for name, value in hop.trace.items()}}
            sent = Sent(sent.members, _encode(meta))
        try:
            answer: Answer = await self.sending(call, method, sent, headers)
            is_question = answer.questions is not None or (
                answer.members is not None and answer.members.get("resultType") == _INPUT_REQUIRED
            )
            hop.answered(answer.raw, answer.connection.revision, is_question=is_question)
            return answer
        except BaseException as error:
            hop.failed(error)
            if isinstance(error.__cause__, NotConnected):
                hop.ending = "no_account"  # The server did nothing wrong.
            raise
        finally:
            for end in endings:
                end()

    async def send_with_retry(self, call: Call, method: str, sent: Sent, headers: Headers = None) -> Answer:
        """Send a request, and send it once more where that helps.

        What happens when a call fails. `failed` makes most of the texts, and tells the breaker. "lists" says whether
        they are read again, and "breaker" says what `is_failure` counts:

        error                   sent again?                      lists   breaker  error for the client
        ----------------------  -------------------------------  ------  -------  ---------------------------
        ProtocolError           no                               -32602  no       `_error_for_client`
        -32020 (headers)        after the lists were read        yes     no       "failed", and its text
        -32022 (revision)       on a new connection              no      no       "failed", and its text
        -32021 (a task)         as a task: `TaskNeeded`          no      no       as it is
        Unreachable             if the connection had ended      yes     counts   "was not carried out"
          with 413, 414, 431    no                               no      no       "the request is too long for it"
          with another status   the same                         yes     503      the status, or "too much to do"
        OutcomeUnknown          reads, idempotent tools          yes     counts   "may have been carried out"
        Timeout                 no                               no      counts   "may have been carried out"
        ToolError, UrlRequired  no                               no      no       as it is
        NotSupported            no                               no      no       what the client lacks
        NotConnected            no                               no      no       how to connect an account
        StoreFailed, StoreFull  no                               no      no       "try again later"
        InvalidResponse         no                               no      no       "may have been carried out"
        any other               no                               no      no       "failed", and its text

        Where no connection was opened, the error says "was not carried out", unless it was sent before.
        """
        request = call.request
        # Nearly all requests of modern clients: one request on the shared connection, answered by a complete result.
        is_single = sent.is_plain and request.revision == MODERN and request.progress_token is UNSET
        connection: Any = self.connections.shared.connection if is_single and self.shares_connection else None
        if connection is not None and (connection.ended or not connection.modern):
            connection = None
        clock: CallClock | None = None
        began = 0.0
        is_second = may_have_run = False
        while True:
            try:
                if connection is None:
                    connecting = self._connection(call, sent)
                    connection = await (connecting if clock is None else clock.wait_for(method, connecting))
                source = connection.session.deadlines.call_time
                if clock is None:
                    began = source.time()
                else:
                    clock.follow(source)
                raw: Raw | None = None  # The first result of a modern server.
                if is_single and connection.modern:
                    raw = await self._send_modern(call, connection, method, sent.members, sent, headers, clock)
                    result = members_of(raw)
                    if result.get("resultType", COMPLETE) == COMPLETE:
                        return Answer(raw, result, connection)
                if clock is None:
                    clock = self._clock(connection, began, None if raw is None else method)
                step = self._run_rounds if connection.modern else self._call_legacy
                ask = partial(step, call, connection, method, sent, headers, clock, raw)
                if is_single or not self.owns_state(call):
                    return await ask()
                state = await self._open_state(call)
                if state.held is not None:
                    # Another process may hold it, of the server before one that is modern.
                    ask = partial(self._hold, call, connection, method, sent, clock)
                return await answer_within_judgement(call, state.judged, ask)
            except ProtocolError as error:
                if error.code == INVALID_PARAMS and sent.about_task is None and method != "resources/read":
                    self.refresh_lists_soon()
                if connection is None:
                    raise self.failed(error, call, may_have_run) from None
                if sent.can_wait and _needs_task(error):
                    raise TaskNeeded from None
                if is_second:
                    raise self._error_for_client(call, method, error) from None
                clock = clock or self._clock(connection, began, method)
                if not await self._remove_cause(error, connection, method, clock):
                    raise self._error_for_client(call, method, error) from None
            except TransportError as error:
                if is_second or connection is None or not self._may_send_again(error, connection, method, sent):
                    if error.status not in TOO_LONG:
                        self.refresh_lists_soon()
                    raise self.failed(error, call, may_have_run or (False if connection is None else None)) from None
                may_have_run = isinstance(error, OutcomeUnknown)
                if connection.session.over:
                    # The server has ended the session. Nobody may get this connection again.
                    await asyncio.wait({connection.reader})
            except (ToolError, NotSupported, UrlRequired):
                raise
            except NotConnected as error:
                raise await self._not_connected(call, error) from error
            except ToolwireError as error:
                if connection is not None:
                    self.connections.lost(error, connection)
                if isinstance(error, Timeout) and clock is not None and not clock.is_first:
                    error = clock.make_timeout(method)
                raise self.failed(error, call, may_have_run or (False if connection is None else None)) from None
            clock = clock or self._clock(connection, began, method)
            is_second, connection = True, None

    def _clock(self, connection: RelayConnection, began: float, sent: str | None) -> CallClock:
        """Return the time limit of a call that began at a time.

        `sent` is the method of a request that was sent.
        """
        source = connection.session.deadlines.call_time
        clock = CallClock(self.timeout, source, ceiling=CEILING_SECONDS, began=began)
        if sent is not None:
            clock.limit(sent)
        return clock

    # --- connections ---

    async def connector(self, call: Call) -> Connector:
        """Return what keeps the connection for requests of a caller that belong to no conversation."""
        return self.connections.shared

    async def is_modern(self, call: Call) -> bool:
        """Return the era of the server. Raise `ToolError` where it cannot be reached."""
        try:
            return (await (await self.connector(call)).live()).modern
        except (ToolError, UrlRequired):
            raise
        except ToolwireError as error:
            raise self.failed(error, call) from None

    async def _connection(self, call: Call, sent: Sent) -> RelayConnection:
        shared: Any = self.connections.shared.connection
        if shared is None or shared.ended:
            shared = await self.connections.shared_connection()
        if shared.modern:
            return await self._legacy_session(call, sent, shared) or shared
        if self.connections.is_shared:
            return await self.connections.pooled(None if sent.about_task is None else sent.about_task.conversation)
        return await self._conversation(call, sent.about_task, shared)

    async def conversation_connection(self, call: Call) -> RelayConnection:
        """Return the connection of the conversation that a call of a legacy client belongs to."""
        return await self._connection(call, Sent({}))

    def may_open_session(self, call: Call) -> bool:
        """Return whether the client of a call gets a session of its own at a modern server: a legacy client that can
        be asked.
        """
        is_asked = not call.request.modern and not call.request.capabilities.keys().isdisjoint(_ASKED)
        return is_asked and self.connections.may_speak_legacy

    async def _legacy_session(
        self,
        call: Call,
        sent: Sent,
        shared: RelayConnection,
        owner: str = "",
        target: Target | None = None,
    ) -> RelayConnection | None:
        """Return a session at a modern server for a legacy client that can be asked; None for any other call.

        Many servers of both eras ask only in a session: their functions that ask have no way to do so on 2026-07-28.
        """
        if sent.task is not None or sent.about_task is not None or not self.may_open_session(call):
            return None
        try:
            return await self._conversation(call, None, shared, owner, target, revision=LATEST_LEGACY)
        except (ProtocolError, TransportError) as error:
            if not denies_revision(error):
                raise
            self.log.debug("it refuses sessions of legacy clients: %s", error)
            self.connections.note_modern_only()
            return None

    async def _conversation(
        self,
        call: Call,
        about: AboutTask | None,
        shared: RelayConnection,
        owner: str = "",
        target: Target | None = None,
        revision: str | None = None,
    ) -> RelayConnection:
        """Return the connection to a legacy server for the conversation of a call.

        `owner` is whose account acts at the server, and `target` is the place of the server for it; none of both
        where all calls act with the credential of the gateway. `revision` is the one to speak, else the newest.
        """
        if call.request.modern and about is None and self.owns_state(call):
            return shared  # The call is held, on a connection that it has already.
        # A question of a modern client ends its request, so that only calls which may be held can be asked. The
        # questions of a task wait in the task.
        can_ask = not call.request.modern or about is not None or _may_be_held(call)
        capabilities = carried(call.request.capabilities, self.withheld) if can_ask else {}
        if call.request.modern and "roots" in capabilities:
            # Each request of a modern client stands alone, and so do its roots (see `_once`).
            capabilities["roots"] = {"listChanged": True}
        conversation = conversation_of(owner, _client_of(call), capabilities)
        if about is not None and about.conversation not in (None, conversation):
            made = about.conversation
            if not self._is_same_account(cast("str", made.credential), owner):
                raise CredentialMissing("the task belongs to another account")
            made = made._replace(credential=owner)
            return await self.connections.of(
                made, msgspec.json.decode(made.capabilities), target=target, caller=call.request.caller
            )
        # Modern clients need not be one user, nor one conversation, even where they look the same.
        is_told = bool(capabilities) or call.request.log_level is not UNSET
        front = call.outlet.connection
        if not call.request.modern and isinstance(front, SessionConnection):
            return await self._joined(call, front, conversation, capabilities, target, revision)
        alone = call.request.modern and is_told and about is None
        return await self.connections.of(
            conversation, capabilities, alone=alone, target=target, caller=call.request.caller, revision=revision
        )

    async def _joined(
        self,
        call: Call,
        front: SessionConnection,
        conversation: Conversation,
        capabilities: Mapping[str, Any],
        target: Target | None,
        revision: str | None = None,
    ) -> RelayConnection:
        """Return the connection of a legacy client over HTTP: all processes use one session at the server."""
        known = front.record.backs.get(self.key)
        of = partial(
            self.connections.of,
            conversation,
            capabilities,
            target=target,
            caller=call.request.caller,
            revision=revision,
        )
        connection = await of(session=known)
        own = connection.session_id
        if own is None:
            return connection
        if not isinstance(call.host.stores.kv, MemoryKV):
            self.connections.share(conversation)
        if known is not None and known.id == own:
            connection.is_joined = True
            return connection
        try:
            address = self.connections.address_of(connection)
            opened = BackSession(own, connection.revision, address, server=self.name_key)
            holds = await front.join(self.key, opened, known)
        except (ProtocolError, StoreFull, StoreFailed) as error:
            self.log.warning("another process will open another session: %s", str(error))
            return connection
        if holds is opened:
            connection.is_joined = True
            return connection
        return await of(session=holds)

    # --- one request, with its rounds ---

    async def _run_rounds(
        self,
        call: Call,
        connection: RelayConnection,
        method: str,
        sent: Sent,
        headers: Headers,
        clock: CallClock,
        raw: Raw | None = None,
    ) -> Answer:
        """Send a request, and again with the answers to each question of a modern server.

        `raw` is its first result.
        """
        members, answered = sent.members, ""
        # Otherwise the questions of the server are asked here, or belong to those that were asked here.
        passes = call.request.modern and call.asking is None and call.outer is None
        if raw is None and passes and call.request.row.rounds:
            members, answered = await self._taken_up(call, members)
        round = 0
        while True:
            if raw is None:
                attempt = partial(self._send_modern, call, connection, method, members, sent, headers, clock)
                try:
                    raw = await (send_round(attempt, clock) if round else attempt())
                except ProtocolError as error:
                    raise self._of_round(error, members) from None
            result = members_of(raw)
            kind = result.get("resultType", COMPLETE)
            if kind == COMPLETE or (kind == _TASK and sent.task is not None):
                self.asked.remove(answered)
                return Answer(raw, result, connection)
            if kind != _INPUT_REQUIRED:
                # An escape would hide a type that is known here.
                if kind == _TASK or b"\\" in bytes(kind) or not _knows_more(call):
                    raise InvalidResponse(f"The result type {_text_of(kind)!r} cannot be handed on")
                self.asked.remove(answered)
                return Answer(raw, result, connection)
            if passes:
                allowed = with_allowed_questions(call, result, self._own_extensions(connection))
                wrapped = await self._wrapped(call, allowed)
                self.asked.remove(answered)
                return Answer(wrapped, _members(wrapped), connection)
            if self._uris.active:
                raw = self._uris.in_result(raw)
            asked = read_round(method, raw, round)
            # Where nothing is asked, no person takes part.
            with clock.leave_out() if asked.questions else nullcontext():
                members = await answered_round(call, sent, asked, clock)
            raw = None
            round += 1

    def _send_modern(
        self,
        call: Call,
        connection: RelayConnection,
        method: str,
        members: Mapping[str, Any],
        sent: Sent,
        headers: Headers,
        clock: CallClock | None,
    ) -> Coroutine[Any, Any, Raw]:
        """Return what sends one request to a modern server.

        A single request has no clock: it has the whole time of its call, no progress, and a `_meta` that came before.
        """
        identifier = connection.next_id()
        relayed: RelayedCall = ClientOfCall(call)
        meta: Any
        if clock is None:
            timeout, meta = self.timeout, connection.described.get(sent.raw_meta)
            if meta is None:
                meta = meta_for(call, connection, sent, None, self.withheld)
        else:
            timeout, token = clock.limit(method), None
            if call.request.progress_token is not UNSET:
                token = identifier
                relayed.on_progress = connection.extend_on_progress(clock, reporting(call))
            if sent.about_task is not None and sent.about_task.waiting is not None:
                relayed, timeout = sent.about_task.waiting, None
            meta = meta_for(call, connection, sent, token, self.withheld)
        if connection.senders is not None:
            relayed.send_as(self.owner.find_sender(call))
        repeated = self.headers_for(call, headers) if connection.repeats_arguments else None
        return connection.relay(identifier, method, {**members, "_meta": meta}, relayed, timeout, repeated)

    async def _call_legacy(
        self,
        call: Call,
        connection: RelayConnection,
        method: str,
        sent: Sent,
        headers: Headers,
        clock: CallClock,
        raw: Raw | None = None,
    ) -> Answer:
        """Send a request to a legacy server. Hold it for a modern client that can be asked."""
        if not connection.answers_itself and _may_be_held(call):
            return await self._hold(call, connection, method, sent, clock)
        if connection.is_pooled and _may_be_held(call) and call.params.request_state is not UNSET:
            raise invalid_state()  # No call is held in a pool. It would be a call of its own.
        try:
            raw = await self._send_legacy(call, connection, method, sent, headers, clock)
        finally:
            self.connections.free(connection)
        return Answer(raw, None, connection)

    async def _send_legacy(
        self,
        call: Call,
        connection: RelayConnection,
        method: str,
        sent: Sent,
        headers: Headers,
        clock: CallClock,
        held: HeldCall | None = None,
    ) -> Raw:
        """Send one request to a legacy server, with the callbacks of its client."""
        members, about = sent.members, sent.about_task
        identifier = connection.next_id()
        wants_progress = call.progress_token is not None
        token = identifier if wants_progress else None
        if sent.task is not None:
            members = {**members, "task": sent.task}
            if wants_progress:
                # 2025-11-25 tasks: the token stays valid after the answer.
                wants_progress, ends = False, sent.can_wait or call.request.modern
                connection.reports[identifier] = reporting(call) if ends else reporting_task(call)
                sent.stop_reports = partial(discard_report, connection.reports, identifier)
        if not connection.is_pooled:
            await set_level(call, connection)
            connection.newest_call = call
            connection.on_notice = telling_client(call, connection)
            connection.on_request = asking_between_calls(call, partial(self._own_extensions, connection))
            if held is not None and connection.reads_roots and connection.is_used:
                connection.tell_roots_changed()
        elif not connection.link.duplex:
            await set_level(call, connection)  # Each stream says to which call a log message belongs.
        timeout = clock.limit(method)
        relayed: RelayedCall
        if about is not None and about.waiting is not None:
            relayed, timeout = about.waiting, None
        elif held is not None:
            held.request = identifier
            relayed = relayed_for(held, wants_progress)
        else:
            relayed = ClientOfCall(call)
            relayed.on_request = answering(call, partial(self._own_extensions, connection))
            if wants_progress:
                relayed.on_progress = connection.extend_on_progress(clock, reporting(call))
        if connection.senders is not None:
            relayed.send_as(self.owner.find_sender(call))
        if self._uris.active and relayed.on_request is not None:
            relayed.on_request = with_public_addresses(relayed.on_request, self._uris)
        meta = meta_for(call, connection, sent, token, self.withheld)
        forwarded = self._legacy_headers(call, connection)
        return await connection.relay(identifier, method, {**members, "_meta": meta}, relayed, timeout, forwarded)

    def _all_headers(self, call: Call, headers: Headers) -> dict[str, str] | None:
        found = self._forwarded_headers(call)
        repeated = parameter_headers(call, headers)
        return repeated if found is None else {**found, **(repeated or {})}

    def _legacy_headers(self, call: Call, connection: RelayConnection) -> dict[str, str] | None:
        return self._forwarded_headers(call) if connection.link.carries_headers else None

    def _forwarded_headers(self, call: Call) -> dict[str, str] | None:
        return forwarded_headers(call, self._forwarded)

    def _own_extensions(self, connection: RelayConnection) -> Collection[str]:
        return unknown_extensions(connection) - self.withheld

    def withhold(self, extensions: frozenset[str]) -> None:
        """Do not tell the server that a client declares these extensions, because clients are not offered them."""
        if extensions == self.withheld:
            return
        self.withheld = extensions
        shared = cast("RelayConnection | None", self.connections.shared.connection)
        if shared is not None:
            shared.described.clear()

    # --- notifications ---

    async def subscription(self, call: Call, wanted: Mapping[str, Any]) -> Subscription | None:
        """Return a subscription, not open yet, for the client of a call; None where the server has no such request."""
        connector = await self.connector(call)
        connection = cast("RelayConnection", await connector.live())
        if not connection.modern:
            return None
        sent = sent_with(call, call.method)
        meta = meta_for(call, connection, sent, None, self.withheld)
        filters = t.decode(t.SubscriptionFilter, _encode(wanted))
        sender = self.owner.find_sender(call)
        return Subscription(connector, filters, LISTEN_SECONDS, heals=False, meta=meta, sender=sender)

    def notify(self, notice: Notice, session: object) -> None:
        """Hand on a notification that an extension has, without waiting. `session` is the connection of the client."""
        shared = cast("RelayConnection | None", self.connections.shared.connection)
        if shared is not None and shared.modern and not shared.ended:
            # At once, so that it comes before the requests that the client sends next.
            self._say(shared, notice)
        elif len(self._notifying) < MAX_NOTIFYING:
            task = asyncio.get_running_loop().create_task(self._say_later(notice, session))
            self._notifying.add(task)
            task.add_done_callback(self._notifying.discard)

    async def _say_later(self, notice: Notice, session: object) -> None:
        method = notice.method[:200]
        try:
            connection = await self.connections.shared_connection()
            if not connection.modern:
                if not isinstance(session, Session) or connection.is_pooled:
                    # A legacy server knows its client by the connection, and nothing says which client this one is.
                    self.log.debug("%s came without a connection, and is dropped", method)
                    return
                capabilities = carried(notice.declared, self.withheld)
                connection = await self.connections.of(conversation_of("", session, capabilities), capabilities)
            self._say(connection, notice)
        except ToolwireError as error:
            self.log.debug("%s cannot be handed on: %s", method, error)

    def _say(self, connection: RelayConnection, notice: Notice) -> None:
        members: dict[str, Any] = {} if notice.raw is UNSET else _members(notice.raw)
        given = _members(members["_meta"]) if "_meta" in members else {}
        meta: dict[str, Any] = {key: value for key, value in given.items() if key not in OF_ONE_CONNECTION}
        try:
            meta[HOPS_KEY] = hops_of(given) + 1
        except ProtocolError:
            return
        if connection.modern:
            # META-6: nothing is known from earlier requests, so that a notification says who sends it.
            meta[t.PROTOCOL_VERSION_KEY] = connection.revision
            meta[t.CLIENT_CAPABILITIES_KEY] = carried_modern(notice.declared, self.withheld)
            if t.CLIENT_INFO_KEY in given:
                meta[t.CLIENT_INFO_KEY] = given[t.CLIENT_INFO_KEY]
        connection.session.notify(notice.method, {**members, "_meta": meta})

    # --- calls of a legacy server that are held for a modern client ---

    async def _hold(self, call: Call, connection: RelayConnection, method: str, sent: Sent, clock: CallClock) -> Answer:
        """Make a call, or go on with the one that the client answers. If the server asks, the call is held."""
        params: t.RoundRequestParams = call.params
        principal = principal_key(call.principal)
        if params.request_state is UNSET:
            held = HeldCall(WaitingHere(call), connection, method, principal, call.request.capabilities)
            held.caller = call.request.caller or principal
            work = self._send_legacy(call, connection, method, sent, None, clock, held)
            task = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: self.connections.free(connection))
            held.begin(task)
            identifier = held.id
            outcome = await self.held.outcome(held, self.held.replica(call.host))
        else:
            answered = await self._opened(call, params, principal)
            identifier = answered.held
            outcome = await self.held.answer(call.host, answered)
        if outcome.questions is None:
            return Answer(cast("Raw", outcome.result), None, connection)
        digest = request_digest(call.method, params)
        mark = await keep_judgement(call)
        state = _State(self.name, digest, principal, None, identifier, outcome.round, mark, self.asked.sign(call))
        outcome.questions.request_state = await call.host.seal_state(call, _encode(state), self._context)
        return Answer(Raw(b"{}"), None, connection, outcome.questions)

    async def _opened(self, call: Call, params: t.RoundRequestParams, principal: str) -> AnsweredRound:
        """Return the answers of a client, and the call that its state says they are for."""
        state = await self._open_state(call)
        if state.principal != principal or state.request != request_digest(call.method, params):
            raise invalid_state()
        is_asker = self.asked.has_asked(call, state.asker)
        if state.held is None:
            raise invalid_state() if is_asker else self._asker_gone()
        return AnsweredRound(
            state.held,
            state.round,
            principal,
            {} if params.input_responses is UNSET else params.input_responses,
            WaitingHere(call),
            call.progress_token is not None,
            call.request.log_level is not UNSET,
            call.request.capabilities,
            # The process that holds the call knows the server that asked. Without it, the call cannot go on here.
            await self._take_up_for(call) if is_asker else None,
        )

    async def _take_up_for(self, call: Call) -> TakeUp:
        """Return what opens a connection on which a call of another process goes on, for the same client."""
        return self.connections.take_up

    # --- servers that were replaced ---

    def add_earlier(self, earlier: Relay) -> None:
        """Send the answers to questions of an earlier server to that server."""
        if earlier in self._earlier:
            return
        self._earlier.append(earlier)
        # Not a question that every call asks: few ways have an earlier one, and none has it for long.
        self.send = self._send_to_asker  # type: ignore[method-assign]

    def drop_earlier(self, earlier: Relay) -> None:
        """Take note that an earlier way holds nothing any more."""
        if earlier in self._earlier:
            self._earlier.remove(earlier)
            if not self._earlier:
                del self.send

    async def _send_to_asker(self, call: Call, method: str, sent: Sent, headers: Headers = None) -> Answer:
        try:
            relay = self._find_asker(call, await self._open_state(call)) if self.owns_state(call) else self
        except (StoreFailed, StoreFull) as error:
            raise self.failed(error, call) from None
        return await type(relay).send(relay, call, method, sent, headers)

    def _find_asker(self, call: Call, state: _State) -> Relay:
        for each in self._earlier:
            if state.held in each.held or state.asked in each.asked:
                return each
        if self.asked.has_asked(call, state.asker):
            return self
        return next((each for each in self._earlier if each.asked.has_asked(call, state.asker)), self)

    def _asker_gone(self) -> ToolError:
        self.log.info("answers came for a server that was replaced, and were not sent")
        return ToolError(
            f"The server that asked is gone: there is another {self.name!r} behind this one now. The answers were not "
            "sent. Call again, without requestState; what ran before the question may have been carried out"
        )

    # --- the state of a modern server, which a modern client keeps ---

    def owns_state(self, call: Call) -> bool:
        """Return whether the state of a request was sealed here, and not by this server for questions of its own."""
        state = getattr(call.params, "request_state", UNSET)
        if state is UNSET or call.outer is not None:
            return False
        try:
            call.host.sealer.open(state, self._context)
        except BadSeal:
            return False
        return True

    async def _open_state(self, call: Call) -> _State:
        return _decode_state(await call.host.open_state(call.params.request_state, self._context))

    async def _taken_up(self, call: Call, members: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the params with the state and the answers of a client, as the server wrote and expects them.

        The name of the question comes with them; empty where there is none.
        """
        params: t.RoundRequestParams = call.params
        if params.request_state is UNSET and params.input_responses is UNSET:
            return members, ""
        members, answered = dict(members), ""
        if params.request_state is not UNSET:
            state = await self._open_state(call)
            digest = request_digest(call.method, params)
            if state.principal != principal_key(call.principal) or state.request != digest:
                raise invalid_state()
            if not self.asked.has_asked(call, state.asker):
                raise self._asker_gone()
            if state.held is not None:
                raise invalid_state()
            answered = state.asked
            if state.state is not None:
                members["requestState"] = state.state
        if params.input_responses is not UNSET:
            members["inputResponses"] = params.input_responses
        return members, answered

    async def _wrapped(self, call: Call, result: Mapping[str, Raw]) -> Raw:
        state = result.get("requestState")
        text = None if state is None else msgspec.json.decode(state, type=str)
        mark = await keep_judgement(call)
        own = _State(
            self.name,
            request_digest(call.method, call.params),
            principal_key(call.principal),
            text,
            judged=mark,
            asker=self.asked.sign(call),
            asked=name_question(),
        )
        payload = _encode(own)
        if len(payload) > MAX_STATE:
            raise InvalidResponse("The requestState is too long to be handed on")
        sealed = await call.host.seal_state(call, payload, self._context)
        self.asked.add(own.asked, call.settings.limits.state)
        return Raw(_encode({**result, "requestState": sealed}))

    @property
    def _context(self) -> bytes:
        return b"gateway/" + self.name.encode()

    # --- failures ---

    def refresh_lists_soon(self) -> None:
        """Read the lists again beside the call: the server may have no such tool or prompt any more."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_refresh:
            self._next_refresh = now + REFRESH_SECONDS
            self._refreshing = asyncio.ensure_future(self._reread())

    async def reread_lists(self) -> None:
        """Wait until the lists were read again, at most once in `REFRESH_SECONDS`."""
        self.refresh_lists_soon()
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing})

    async def _reread(self) -> None:
        try:
            await self.owner.reread_lists()
        except ToolwireError as error:
            self.log.debug("the lists could not be read again: %s", error)

    def _may_send_again(self, error: TransportError, connection: RelayConnection, method: str, sent: Sent) -> bool:
        """Return whether a request may be sent again, on a new connection, without a chance that it runs twice.

        A call that may have run is repeated if its tool was listed as one whose second call does no more harm.
        """
        moved = self.connections.lost(error, connection)
        if isinstance(error, Unreachable):
            return moved or connection.ended or connection.session.over
        if not isinstance(error, OutcomeUnknown) or isinstance(error, InvalidResponse):
            return False
        return method in READING or (method == "tools/call" and self.owner.is_repeatable(sent.members.get("name")))

    async def _remove_cause(
        self, error: ProtocolError, connection: RelayConnection | None, method: str, clock: CallClock
    ) -> bool:
        """Remove the cause of an error that is none of the client's; return whether the request may be sent again."""
        if error.code == HEADER_MISMATCH:
            # XMH-7: the headers were made from an outdated list.
            try:
                await clock.wait_for(method, self.owner.reread_lists())
            except Timeout:
                return False
            return True
        if error.code == UNSUPPORTED_PROTOCOL_VERSION and connection is not None:
            # The server was replaced by one of another era.
            await self.connections.close()
            return True
        return False

    def _error_for_client(self, call: Call, method: str, error: ProtocolError) -> ToolwireError:
        """Return the error of a server in the terms of the client's revision."""
        if error.code in (HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION):
            return self.failed(error, call)
        if error.code == MISSING_CLIENT_CAPABILITY and not call.request.modern:
            return self.failed(error, call)
        if error.code == URL_ELICITATION_REQUIRED:
            required = _url_required(error)
            if required is None:
                return self.failed(ProtocolError(error.code, _NO_PAGE), call)
            if call.revision != "2025-11-25":
                return required
            for page in _pages(error)[-MAX_URIS:]:
                remember_page(call, page.elicitation_id)
            return error
        if method == "resources/read" and is_resource_not_found(error):
            return ResourceNotFound(error.message, error.data)
        return error

    def _of_round(self, error: ProtocolError, members: Mapping[str, Any]) -> ProtocolError:
        """Return the error of a later round, with the name of the server if it refuses the state that it gave.

        A server that was started again since may not know its own state. A client cannot know that, nor which server.
        """
        if error.code != INVALID_PARAMS or "requestState" not in members:
            return error
        text = f"The server {self.name!r} behind this one did not go on with the request: {error.message}"
        return ProtocolError(error.code, text, error.data)

    def _is_same_account(self, made: str, owner: str) -> bool:
        return made == owner

    async def _not_connected(self, call: Call, error: NotConnected) -> ToolwireError:
        """Return the error for a call, because an account has to be connected before."""
        return self.failed(error, call)

    def failed(self, error: ToolwireError, call: Call, may_have_run: bool | None = None) -> ToolError:
        """Return the error that names the server, and says whether the request may have been carried out.

        The error itself says so where `may_have_run` is None.
        It names no address, command or store, and quotes no refusal of credentials. A client of the same process or
        terminal also sees why a connection failed, and what a command wrote before it ended.
        """
        if isinstance(error, StoreFailed | StoreFull):
            self.log.error("a call was given up, because the store of this gateway failed: %s", str(error))
            return ToolError(_STORE_FAILED)
        self.owner.record_failure(error, source_of(call))
        text = error.message if isinstance(error, ProtocolError | Unauthorized) else str(error)
        self.log.warning("%s", self.log.texts.describe(error, text))
        text = self.log.texts.hide(text)
        if isinstance(error, Unauthorized):
            text = _refusal(error)
        if not isinstance(error, ProtocolError | TransportError):
            text = _ADDRESS.sub("it", text)
        elif isinstance(error, TransportError) and not call.outlet.is_local:
            text = _transport_failure(error)
        if may_have_run is None:
            may_have_run = _may_have_run(error)
        if may_have_run is not None and not isinstance(error, Unauthorized):  # That says that it was refused.
            text = f"{text}; the request {'may have been' if may_have_run else 'was not'} carried out"
        return BackFailed(f"The server {self.name!r} behind this one failed: {text}", error)


def _may_have_run(error: ToolwireError) -> bool | None:
    """Return whether a request that failed may have been carried out; None where the error does not say that."""
    if isinstance(error, Unreachable):
        return False
    if isinstance(error, ProtocolError) and error.code != URL_ELICITATION_REQUIRED:
        return error.code not in (HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION)
    return True if isinstance(error, OutcomeUnknown | Timeout | InvalidResponse) else None


def _transport_failure(error: TransportError) -> str:
    """Return what a caller may know of a failed request. A server that answered with a status can be reached."""
    if isinstance(error, OutcomeUnknown):
        return LOST
    if error.status is None:
        return _NOT_REACHED
    if error.status in TOO_LONG:
        return _TOO_LONG
    return _BUSY if error.status in TURNED_AWAY else f"it refused the request with status {error.status}"


def _refusal(error: Unauthorized) -> str:
    """Return what a caller may know of refused credentials: not what the server or its provider said."""
    if error.status is not None:
        return f"it refused with status {error.status}; {_REMEDY}"
    if isinstance(error, SignInFailed | NeedsLogin):
        return f"the gateway could not sign in; {_REMEDY}"
    return error.message


def members_of(raw: Raw) -> dict[str, Raw]:
    """Return the members of a result; raise `InvalidResponse` where it is no object."""
    try:
        return _members(raw)
    except msgspec.DecodeError as error:
        raise InvalidResponse(f"The result is broken: {error}") from None


def _questions(raw: Raw) -> t.InputRequiredResult:
    try:
        return t.decode(t.InputRequiredResult, raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidResponse(f"The questions cannot be read: {error}") from None


def unknown_extensions(connection: ClientConnection) -> frozenset[str]:
    """Return the extensions of a server that this library does not know."""
    declared = connection.agreement.capabilities.get("extensions")
    return frozenset(declared) - KNOWN_EXTENSIONS if isinstance(declared, dict) else frozenset()


def with_allowed_questions(call: Call, result: Mapping[str, Raw], extensions: Collection[str] = ()) -> dict[str, Raw]:
    """Return a result of a modern server whose questions a modern client may be asked.

    `extensions` are those of the server. Raise `Undeclared` or `InvalidResponse` otherwise.
    """
    raw = result.get("inputRequests")
    if raw is None:
        return dict(result)
    try:
        asked = _members(raw)
        methods = {key: _decode_question(each).method for key, each in asked.items()}
    except msgspec.DecodeError as error:
        raise InvalidResponse(f"The questions cannot be read: {error}") from None
    known = {key: each for key, each in asked.items() if methods[key] in QUESTIONS}
    for method in (methods[key] for key in methods.keys() - known.keys()):
        if not is_of_extension(method, call.request.capabilities, extensions):
            raise InvalidResponse(f"The server asked {method[:200]!r}, which the client did not declare")
    questions = _questions(Raw(_encode({"inputRequests": known}))).input_requests
    if questions is UNSET:
        return dict(result)
    checked = check_questions(questions, call)
    changed = {key: Raw(t.encode(each)) for key, each in checked.items() if each is not questions[key]}
    return {**result, "inputRequests": Raw(_encode({**asked, **changed}))} if changed else dict(result)


class _Question(Struct):
    """The kind of a question of a modern server."""

    method: str = ""


_decode_question = msgspec.json.Decoder(_Question).decode


def _text_of(kind: Raw) -> str:
    """Return the beginning of a `resultType` for an error text."""
    try:
        return str(msgspec.json.decode(kind))[:50]
    except (msgspec.DecodeError, RecursionError):
        return "?"


#: The capabilities of clients that a server can ask.
_ASKED: Final = frozenset(("elicitation", "sampling", "roots"))
COMPLETE: Final = Raw(b'"complete"')
_INPUT_REQUIRED: Final = Raw(b'"input_required"')
_TASK: Final = Raw(b'"task"')


def _needs_task(error: ProtocolError) -> bool:
    """Return whether a modern server refused a call because it has to be a task (TSK-4)."""
    if error.code != MISSING_CLIENT_CAPABILITY:
        return False
    required = find_data_member(error, "requiredCapabilities", dict)
    return required is not None and t.has_capability(required, f"extensions.{t.TASKS_EXTENSION}")


def _client_of(call: Call) -> Hashable:
    """Return what tells the client of a call from others: its connection, session or principal, or its address."""
    connection = call.outlet.connection
    if isinstance(connection, Session):
        return connection
    if not call.request.modern and call.session_id is not None:
        return call.session_id
    return principal_key(call.principal) if is_distinct(call.principal) else call.request.caller


def _knows_more(call: Call) -> bool:
    """Return whether a client takes result types of extensions, and nobody here has to read the result."""
    if not call.request.modern or call.asking is not None or call.outer is not None:
        return False
    is_read = call.host.results_are_read and call.request.row.result is not t.Result
    return "extensions" in call.request.capabilities and not is_read


def _may_be_held(call: Call) -> bool:
    """Return whether a call of a modern client may be held. A middleware that asks would lose its own answers."""
    return call.request.modern and call.request.row.rounds and call.asking is None and call.outer is None


def _pages(error: ProtocolError) -> list[t.ElicitRequestParams]:
    try:
        return convert_to(error.data, t.URLElicitationRequiredErrorData).elicitations
    except ValueError:
        return []


def _url_required(error: ProtocolError) -> UrlRequired | None:
    """Return the first page that a 2025-11-25 server wants opened; None unless a user can open each page."""
    pages = _pages(error)
    page = pages[0] if pages and all(map(is_usable_page, pages)) else None
    return None if page is None or page.url is UNSET else UrlRequired(page.message, page.url)
