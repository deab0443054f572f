"""Legacy sessions over HTTP: POST, GET and DELETE of 2025-03-26, 2025-06-18 and 2025-11-25.

A session is its id: every process that has the key can serve its requests. A process keeps state of a session only
while one of its calls runs or one of its streams is open here. Processes tell each other the rest over the bus: answers
go to the process that asked, everything else goes to all.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.http.app_settings import AdmitAgain, AppSettings, HasSettings
from toolwire.http.exchange import version_header
from toolwire.http.legacy.event_log import Resume, parse_event_id
from toolwire.http.legacy.get_stream import GetStream
from toolwire.http.legacy.late_replies import LateReplies
from toolwire.http.legacy.post_stream import PostStream
from toolwire.http.legacy.session_calls import SessionCalls, StateChange
from toolwire.http.legacy.session_records import RENEWAL, BackSession, SessionRecord, SessionRecords
from toolwire.http.legacy.session_streams import SessionStreams
from toolwire.http.legacy.session_token import ID_BYTES, SessionToken, SessionTokens, principal_digest
from toolwire.http.limits import HttpLimits
from toolwire.http.responses import JSON_TYPE, json_refusal, refuse, respond
from toolwire.http.unsent_answers import PacedSend, UnsentAnswers
from toolwire.http1.asgi_types import HeaderList, Receive, SendMessage
from toolwire.protocol.capability_bits import from_bits, to_bits
from toolwire.protocol.changes import Change, declared_extensions
from toolwire.protocol.classifier import Cancel, Notice, Send, classify_request, refuse_used_id
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, counted
from toolwire.protocol.http import (
    SESSION,
    Rejection,
    accepts,
    classify_legacy,
    has_only_replies,
    legacy_revision,
    opens_session,
    read_legacy,
)
from toolwire.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Message,
    Request,
    RequestId,
    Response,
    decode,
    encode_error,
    encode_response,
)
from toolwire.protocol.lifecycle import Declare, Incoming, Offer, ServerLifecycle
from toolwire.protocol.sealing import Sealer, encode_base64url
from toolwire.stores import PositionLost, StoreFull, Stores
from toolwire.wire.bus_link import BusLink
from toolwire.wire.session import Handler, notify_without_session
from toolwire.wire.shares import Caller, Shares, Taken, is_distinct

log: logging.Logger = logging.getLogger("toolwire.http")

_RETRY_LATER: Final[HeaderList] = ((b"retry-after", b"5"),)
# When a session that is not used any more is over, and the caller that it is counted for.
_Slot: TypeAlias = tuple[float, Caller]


class SessionHost(Protocol):
    """The server behind the sessions."""

    @property
    def name(self) -> str: ...

    @property
    def offer(self) -> Offer: ...

    def offer_to(self, principal: Any) -> Offer:
        """Return what is offered to a caller; less to one without a distinct principal."""

    def declare_to(self, principal: Any) -> Declare:
        """Return what leaves out of the answer to `initialize` what a caller may not know."""

    @property
    def handler(self) -> Handler: ...

    @property
    def stores(self) -> Stores: ...

    @property
    def sealer(self) -> Sealer: ...

    @property
    def link(self) -> BusLink: ...

    @property
    def abandoned_leases(self) -> list[str]:
        """The leases of this process on loops that ended before they released them."""

    def client_state(self, connection: Any) -> Any:
        """Return what a connection remembers of its client: an object with `level` and `uris`."""

    def principal_key(self, principal: Any) -> str: ...

    def hearing(self, principal: Any) -> Callable[[Change], bool]:
        """Return a function that says whether a principal may be told of changes of a resource."""

    def has_moved(self, backs: Mapping[str, BackSession]) -> bool:
        """Return whether the name of a server at which a session has one leads to another server now."""

    def session_ended(self, session: str) -> None:
        """Take note that a session is over."""

    def roots_changed(self, session: str) -> None:
        """Take note that the client of a session has other roots."""

    async def admit(self, calls: Sequence[Incoming]) -> None:
        """Raise `InsufficientScope` when the caller lacks what the calls need."""


class _Cancelled(Struct):
    session: str
    request: RequestId


class _Ended(Struct):
    session: str


class _RootsChanged(Struct):
    session: str
    process: str
    """The process that got the notification."""


class _Answered(Struct):
    session: str
    message: Raw


class Sessions:
    """The sessions of one application, for as long as one event loop serves it."""

    def __init__(
        self,
        host: SessionHost,
        application: HasSettings,
        exchanges: Shares,
        unsent: UnsentAnswers,
        *,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`exchanges` counts the requests of the whole application that run, and `unsent` their unread answers."""
        self._host = host
        self._exchanges = exchanges
        self._unsent = unsent
        self._application = application
        limits = application.settings.limits
        self._clock = clock
        self._random = random
        self._tokens = SessionTokens(host.sealer, f"Mcp-Session-Id/{host.name}")
        self._records = SessionRecords(host.stores.kv, application, clock, random)
        process = encode_base64url(random(6))
        self.streams: SessionStreams = SessionStreams(
            process, host.link, host.stores, self._records, random, host.abandoned_leases
        )
        self.calls: SessionCalls = SessionCalls(
            process,
            host.handler,
            host.client_state,
            self._remember,
            self._records.change,
            self.streams.notify,
            application,
        )
        # A request sets one up and reads it without an await in between, so one for each offer and revision is enough.
        self._lifecycles: dict[tuple[str, bool], ServerLifecycle] = {}
        # The sessions that this process opened, in the order of their last use.
        self._opened: dict[str, _Slot] = {}
        self._slot: _Slot = (0, None)
        self._shares = Shares(limits.sessions, limits.share, "sessions open", seconds=60)
        self._leave: list[Callable[[], None]] = []
        self._late = LateReplies(limits.share)

    @property
    def limits(self) -> HttpLimits:
        return self._application.settings.limits

    async def open(self) -> None:
        """Start listening to the other processes."""
        await self._records.open()
        self._leave = [
            self._host.link.on("cancel", self._on_cancel),
            self._host.link.on("ended", self._on_ended),
            self._host.link.on("roots", self._on_roots),
            self._host.link.on("answer", self._on_answer),
            self._host.link.hear(self.calls.name),
        ]

    def drain(self) -> None:
        """End the streams that have no end of their own."""
        self.streams.drain()

    async def close(self) -> None:
        """Give calls some time to finish, then end every stream."""
        await self.calls.finish(self.limits.drain)
        await self._late.close()
        self.leave()
        await self.streams.close()

    def leave(self) -> None:
        """Stop listening to the other processes."""
        self.streams.leave()
        for leave in self._leave:
            leave()
        self._leave.clear()

    def discard(self) -> None:
        """Let go of the other processes, because the event loop of the sessions has ended."""
        self.leave()
        self.streams.discard()

    def __len__(self) -> int:
        """Return the number of sessions that this process opened and that may be in use."""
        return len(self._opened)

    # --- POST ---

    async def post(
        self,
        settings: AppSettings,
        admit_again: AdmitAgain,
        principal: Any,
        caller: Caller,
        headers: Mapping[str, str],
        body: bytes,
        receive: Receive,
        send: PacedSend,
        extra: HeaderList,
    ) -> None:
        """Serve a request that these settings have let in."""
        limits = settings.limits
        message = read_legacy(body, limits.depth, limits.batch)
        if isinstance(message, Rejection):
            raise refuse(message)
        identifier: RequestId | None = None
        if isinstance(message, Request):
            if opens_session(headers, message):
                await self._initialize(principal, caller, headers, message, send, extra)
                return
            identifier = message.id
        elif has_only_replies(message):
            revision = await self._reply(principal, caller, headers, message, len(body))
            await respond(send, 202, b"", (*extra, version_header(revision)))
            return
        token, record = await self._session(principal, headers, identifier)
        if record.backs and self._host.has_moved(record.backs):
            # The client has state at a server whose name leads to another one now. What it has at a server that was
            # removed is gone with the server, and it is told that the lists have changed. The calls that run in the
            # session come to their end, wherever they run: only what begins is refused.
            self._free_slot(token.id)
            raise _no_session(identifier)
        extra = (*extra, version_header(token.revision))
        if identifier is not None or type(message) is Batch:
            _check_accept(headers, identifier)
        lifecycle = self._lifecycle_for(principal, token, record)
        posted = classify_legacy(message, lifecycle, self.calls.of(token.id), limits.batch)
        if isinstance(posted, Rejection):
            raise refuse(posted)
        for event in posted.events:
            await self._act_on(event, token)
        calls = posted.calls
        if calls:
            for call in calls:
                call.headers, call.principal, call.caller = headers, principal, caller
            await self._host.admit(calls)
            # No await from here up to their start, or another request could use the same id.
            running = self.calls.of(token.id)
            if running:
                # The ids that came into use meanwhile.
                posted.ready.extend(refuse_used_id(call.id).data for call in calls if call.id in running)
                calls = [call for call in calls if call.id not in running]
        if calls:
            if len(running) + len(calls) > limits.in_flight:
                raise json_refusal(429, "Too many requests of this session are running", identifier, _RETRY_LATER)
            self._unsent.check(caller)
            self._exchanges.take(caller, len(calls))
            stream = PostStream(
                self.streams,
                token.id,
                self.streams.new_name(),
                token.revision,
                receive,
                send,
                extra,
                posted.ready if posted.is_batch else None,
            )
            self.streams.add(stream)
            for call in calls:
                # Counted until its handler has ended, which may be after its client disconnected.
                task = self.calls.start(call, stream, token, record, settings, admit_again)
                task.add_done_callback(lambda _: self._exchanges.give_back(caller))
            await stream.serve()
        elif posted.ready:
            await respond(send, 200, posted.answer(), (*JSON_TYPE, *extra))
        else:
            await respond(send, 202, b"", extra)

    async def _act_on(self, event: Notice | Cancel | Response | ErrorResponse, token: SessionToken) -> None:
        """Carry out a notification, a cancellation or an answer."""
        if isinstance(event, Notice):
            notify_without_session(self._host.handler, event)
            if event.method == "notifications/roots/list_changed":
                self._host.roots_changed(token.id)
                # Calls of the session may run in other processes, at servers behind them that serve its roots.
                await self._host.link.publish("roots", _encode(_RootsChanged(token.id, self.calls.name)))
        elif not isinstance(event, Cancel):
            await self._answered(event, token)
        elif not self.calls.cancel(token.id, event.id):
            await self._host.link.publish("cancel", _encode(_Cancelled(token.id, event.id)))

    async def _initialize(
        self,
        principal: Any,
        caller: Caller,
        headers: Mapping[str, str],
        request: Request,
        send: SendMessage,
        extra: HeaderList,
    ) -> None:
        _check_accept(headers, request.id)
        lifecycle = ServerLifecycle(self._host.offer_to(principal), declare=self._host.declare_to(principal))
        verdict = classify_request(request, lifecycle, ())
        assert isinstance(verdict, Send)  # The protocol answers this one itself.
        if lifecycle.revision is None:
            await respond(send, 200, verdict.data, (*JSON_TYPE, *extra))
            return
        try:
            declared = dict(lifecycle.capabilities)
            bits = to_bits(declared)
            identifier = self._open_for(caller)
            record = SessionRecord(client=lifecycle.client)
            if from_bits(bits) != declared:
                record.capabilities = declared
            try:
                await self._records.create(identifier, record)
            except BaseException:
                self._free_slot(identifier)
                raise
        except Taken as error:
            error.request_id = request.id
            raise
        except ProtocolError as error:
            answer = encode_error(request.id, error.code, error.message, error.data)
            await respond(send, 200, answer, (*JSON_TYPE, *extra))
            return
        except StoreFull:
            raise json_refusal(503, "No more sessions can be opened now", request.id, _RETRY_LATER) from None
        now = int(self._clock())
        token = SessionToken(
            identifier,
            lifecycle.revision,
            bits,
            self._digest(principal),
            now,
            now + int(self.limits.session_age),
            self._records.home,
        )
        session = (b"mcp-session-id", self._tokens.write(token).encode())
        answer_headers = (*JSON_TYPE, session, version_header(lifecycle.revision), *extra)
        await respond(send, 200, verdict.data, answer_headers)

    def _open_for(self, caller: Caller) -> str:
        """Take a slot for a new session; raise `Taken` where its caller, or the process, has too many."""
        now = asyncio.get_running_loop().time()
        # All are kept for the same time after their last use, so those that are over are first in the order. Not
        # `Expiring`: a slot is freed in one place, before its caller takes another, and each request moves its slot.
        while self._opened:
            oldest = next(iter(self._opened))
            if self._opened[oldest][0] > now:
                break
            self._free_slot(oldest)
        self._shares.take(caller)
        identifier = encode_base64url(self._random(ID_BYTES))
        self._opened[identifier] = self._slot_from(now, caller)
        return identifier

    def _slot_from(self, now: float, caller: Caller) -> _Slot:
        """Make the slot of a session that is used now. Sessions of the same second share one object."""
        slot = (math.ceil(now) + self.limits.session_idle + RENEWAL, caller)
        if slot != self._slot:
            self._slot = slot
        return self._slot

    def _free_slot(self, session: str) -> None:
        """Free the slot of a session, if this process opened it."""
        opened = self._opened.pop(session, None)
        if opened is not None:
            self._shares.give_back(opened[1])

    # --- GET ---

    async def get(self, principal: Any, headers: Mapping[str, str]) -> GetStream:
        """Return the stream that a GET opens or resumes, ready to be served."""
        if not accepts(headers, "text/event-stream"):
            raise json_refusal(406, "Accept text/event-stream")
        token, record = await self._session(principal, headers, None)
        resume = await self._resume(token, headers.get("last-event-id", ""))
        resumes_answer = resume is not None and resume.from_post
        # All calls that can run at once can be resumed: they may have run in one process that is gone.
        most = self.limits.in_flight if resumes_answer else self.limits.streams
        if self.streams.count(token.id, resumed=resumes_answer) >= most:
            raise json_refusal(429, f"A session has at most {counted(most, 'stream')} open", headers=_RETRY_LATER)
        stream: GetStream | None
        if resume is not None and resumes_answer:
            try:
                stream = await self.streams.resume(token, resume)
            except PositionLost:
                raise _no_event() from None
        else:
            promised = self._host.offer_to(principal).capabilities(token.revision)
            declared = declared_extensions(self._lifecycle_for(principal, token, record).capabilities)
            stream = await self.streams.listen(token, resume, self._host.hearing(principal), promised, declared)
        if stream is None:
            raise _no_session(None)
        return stream

    async def _resume(self, token: SessionToken, last_event_id: str) -> Resume | None:
        if not last_event_id:
            return None
        resume = parse_event_id(last_event_id)
        try:
            if resume is None or (resume.from_post and resume.position is None):
                raise PositionLost
            if resume.position is not None:
                await self.streams.events.read(token.id, resume, 1)
        except PositionLost:
            raise _no_event() from None
        return resume

    # --- DELETE ---

    async def delete(self, principal: Any, headers: Mapping[str, str], send: SendMessage, extra: HeaderList) -> None:
        token, _ = await self._session(principal, headers, None)
        await self._end_everywhere(token)
        await respond(send, 200, b"", extra)

    async def _end_everywhere(self, token: SessionToken) -> None:
        await self._records.end(token)
        self._end(token.id)
        await self._host.link.publish("ended", _encode(_Ended(token.id)))

    def _end(self, session: str) -> None:
        self._free_slot(session)
        self.calls.end(session)
        self.streams.end(session)
        self._host.session_ended(session)

    # --- the session of a request ---

    async def _session(
        self, principal: Any, headers: Mapping[str, str], identifier: RequestId | None
    ) -> tuple[SessionToken, SessionRecord]:
        token = self._token(principal, headers, identifier)
        record = None if token is None else await self._records.find(token)
        if token is None or record is None:
            if token is not None:
                self._free_slot(token.id)
            raise _no_session(identifier)
        revision = legacy_revision(headers, identifier, token.revision)
        if isinstance(revision, Rejection):
            raise refuse(revision)
        self._renew_slot(token.id)
        return token, record

    def _token(self, principal: Any, headers: Mapping[str, str], identifier: RequestId | None) -> SessionToken | None:
        """Return the content of the session id, without the store; None if it is invalid."""
        text = headers.get(SESSION)
        if text is None:
            raise json_refusal(
                400, "Mcp-Session-Id is missing: send initialize first, then the id it returned", identifier
            )
        return self._tokens.read(text, principal=self._digest(principal), now=self._clock())

    def _renew_slot(self, session: str) -> None:
        opened = self._opened.get(session)
        now = asyncio.get_running_loop().time()
        if opened is not None and opened[0] < now + self._application.settings.limits.session_idle:
            del self._opened[session]
            self._opened[session] = self._slot_from(now, opened[1])

    def _digest(self, principal: Any) -> bytes:
        return principal_digest(self._host.principal_key(principal))

    def _lifecycle(self, principal: Any, token: SessionToken) -> ServerLifecycle:
        key = (token.revision, is_distinct(principal))
        lifecycle = self._lifecycles.get(key)
        if lifecycle is None:
            lifecycle = self._lifecycles[key] = ServerLifecycle(self._host.offer_to(principal))
            lifecycle.adopt(token.revision)
        return lifecycle

    def _lifecycle_for(self, principal: Any, token: SessionToken, record: SessionRecord) -> ServerLifecycle:
        lifecycle = self._lifecycle(principal, token)
        known = record.capabilities
        lifecycle.capabilities = from_bits(token.capabilities) if known is UNSET else known
        lifecycle.client = record.client
        lifecycle.ready = False  # Any process may be the one that gets `notifications/initialized`.
        return lifecycle

    # --- notifications, cancellations and answers ---

    async def _reply(
        self, principal: Any, caller: Caller, headers: Mapping[str, str], message: Message | Batch, size: int
    ) -> str:
        """Deliver answers and cancellations. Return the revision of their session.

        One for a call of this process reaches it at once, whatever the store does. Those for calls of other processes
        are kept until the store can pass them on: many clients send them only once.
        """
        token = self._token(principal, headers, None)
        if token is None:
            raise _no_session(None)
        posted = classify_legacy(message, self._lifecycle(principal, token), (), self.limits.batch)
        if isinstance(posted, Rejection):
            raise refuse(posted)
        events = [event for event in posted.events if not self._act_here(event, token)]
        if events:

            async def pass_on() -> None:
                await self._session(principal, headers, None)
                for event in events:
                    await self._act_on(event, token)

            await self._late.deliver(caller, size, pass_on)
        return token.revision

    def _act_here(self, event: Notice | Cancel | Response | ErrorResponse, token: SessionToken) -> bool:
        """Deliver an answer or a cancellation to a call of this process, if one waits."""
        if isinstance(event, Cancel):
            return self.calls.cancel(token.id, event.id)
        return isinstance(event, Response | ErrorResponse) and self.calls.answered(token.id, event)

    async def _answered(self, message: Response | ErrorResponse, token: SessionToken) -> None:
        if self.calls.answered(token.id, message) or not isinstance(message.id, str):
            return
        process = message.id.partition(".")[0]
        if process == self.calls.name or len(process) != len(self.calls.name):
            return  # 3.4.10.9: nobody waits for this answer, or nobody ever asked.
        if isinstance(message, Response):
            data = encode_response(message.id, message.result)
        else:
            error = message.error
            data = encode_error(message.id, error.code, error.message, error.data)
        forwarded = _encode(_Answered(token.id, Raw(data)))
        await self._host.link.send(process, "answer", forwarded)

    def _on_cancel(self, data: bytes) -> None:
        cancelled = _decode_cancelled(data)
        self.calls.cancel(cancelled.session, cancelled.request)

    def _on_roots(self, data: bytes) -> None:
        changed = _decode_roots(data)
        if changed.process != self.calls.name:
            self._host.roots_changed(changed.session)

    def _on_ended(self, data: bytes) -> None:
        self._end(_decode_ended(data).session)

    def _on_answer(self, data: bytes) -> None:
        answered = _decode_answered(data)
        message = decode(bytes(answered.message))
        if isinstance(message, Response | ErrorResponse):
            self.calls.answered(answered.session, message)

    async def _remember(self, token: SessionToken, change: StateChange) -> None:
        try:
            record = await self._records.change(token, change.apply)
        except StoreFull:
            raise ProtocolError(INTERNAL_ERROR, "There is no room to remember this now; try again later") from None
        await self.streams.tell_state(token.id, record)


def _check_accept(headers: Mapping[str, str], identifier: RequestId | None) -> None:
    # 2025-03-26 basic/transports: a client lists both, because the server chooses.
    if not (accepts(headers, "application/json") and accepts(headers, "text/event-stream")):
        raise json_refusal(406, "Accept application/json and text/event-stream", identifier)


def _no_session(identifier: RequestId | None) -> Exception:
    # One text for an id that is forged, is over, or belongs to somebody else.
    return json_refusal(404, "There is no such session: send initialize again, without Mcp-Session-Id", identifier)


def _no_event() -> Exception:
    # Not 404, which would tell the client that its session is over (2025-03-26 basic/transports).
    return json_refusal(400, "Last-Event-ID names no event of this session that is still kept")


_encode = msgspec.json.encode
_decode_cancelled = msgspec.json.Decoder(_Cancelled).decode
_decode_ended = msgspec.json.Decoder(_Ended).decode
_decode_roots = msgspec.json.Decoder(_RootsChanged).decode
_decode_answered = msgspec.json.Decoder(_Answered).decode
