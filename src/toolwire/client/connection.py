"""One agreed connection to a server: requests with their metadata and rounds, and what the server sends by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.client.callbacks import Callbacks
from toolwire.client.errors import InvalidResponse, Rejected
from toolwire.client.handlers import Answers
from toolwire.client.negotiation import agree
from toolwire.client.notifications import NotificationHandlers, extension_row
from toolwire.client.repeated_rounds import run_rounds, send_round
from toolwire.client.target import Link
from toolwire.client.tools import KnownTools
from toolwire.protocol import types as t
from toolwire.protocol.changes import LIST_CHANGED, UPDATED
from toolwire.protocol.classifier import Notice
from toolwire.protocol.decoders import convert_to
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    URL_ELICITATION_REQUIRED,
    USER_REJECTED,
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    Timeout,
    TransportError,
    Unreachable,
)
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.lifecycle.negotiation import Agreement, negotiate
from toolwire.protocol.methods import METHODS, Method, methods
from toolwire.protocol.open_codec import with_unknown
from toolwire.protocol.revisions import is_modern
from toolwire.protocol.rounds import check_kind, retry_params
from toolwire.protocol.shaping import shape
from toolwire.protocol.surrogates import refusing_surrogates
from toolwire.protocol.tasks import related_meta
from toolwire.wire.deadlines import CallClock
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session

log: logging.Logger = logging.getLogger("toolwire.client")

R = TypeVar("R", bound=t.Result)

#: How many seconds a call may take where the program sets no limit.
DEFAULT_SECONDS: Final = 60.0
#: How many seconds progress may extend the deadline of a call by. A task may take as long by default.
CEILING_SECONDS: Final = 600.0
#: A round with more questions than this is taken for an attack.
MAX_QUESTIONS: Final = 100
#: How long the answer to a ping may take.
CHECK_SECONDS: Final = 10.0

OnProgress: TypeAlias = Callable[[t.ProgressNotificationParams], Any]
OnLog: TypeAlias = Callable[[t.LoggingMessageNotificationParams], Any]
# Called with the method and the URI of every announced change; with None when announcements were missed.
Changed: TypeAlias = Callable[[str | None, str | None], None]
Decode: TypeAlias = Callable[[Raw], R]


class ChangeListener(Protocol):
    """A listener for the changes that a connection reports."""

    def acknowledged(self, accepted: t.SubscriptionFilter) -> None: ...

    def covers(self, uri: str) -> bool: ...

    @property
    def hears_extensions(self) -> bool: ...

    def changed(self, method: str, uri: str | None, params: Raw | UnsetType) -> None: ...

    def told(self, method: str, params: Raw | UnsetType) -> None: ...

    def missed(self) -> None: ...

    def end(self, error: BaseException | None) -> None: ...


_CHANGES: Final = frozenset({*LIST_CHANGED.values(), UPDATED})
# The methods of all revisions.
_KNOWN: Final = frozenset(row.name for row in METHODS)
_encode = refusing_surrogates(msgspec.json.Encoder().encode)


def callable_methods(agreement: Agreement) -> frozenset[str]:
    """Return the methods whose capability the server declared. The client sends no others (1.3.2.6)."""
    return frozenset(
        row.name
        for row in methods(agreement.revision).values()
        if row.kind == "request"
        and row.sender != "server"
        and (row.capability is None or t.has_capability(agreement.capabilities, row.capability))
    )


class ClientConnection:
    """The state of the client for one connection. It also handles what arrives on the session."""

    def __init__(
        self, link: Link, answers: Answers, on_log: OnLog | None, changed: Changed, handlers: NotificationHandlers
    ) -> None:
        self.link = link
        self.answers = answers
        self.tools: KnownTools = KnownTools()
        self.streams: dict[RequestId, ChangeListener] = {}
        self.subscribed: dict[str, int] = {}
        # 2025-11-25 tasks: the token of a call that became a task stays valid after its answer.
        self.reports: dict[RequestId, OnProgress] = {}
        self._on_log = on_log
        self._changed = changed
        self._handlers = handlers
        self._lifecycle = ClientLifecycle(self._accepted, self._extension_notification, self._extension_request)
        self.session: Session = link.session(self._lifecycle, self, CEILING_SECONDS)
        self.callbacks: Callbacks = Callbacks()
        self._closer: asyncio.Task[None] | None = None
        self.ended: bool = False
        self.reader: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._read())

    def _accepted(self, revision: str) -> dict[str, Any]:
        """Return the capabilities whose questions are taken. Any other question is an unknown method."""
        return self.answers.capabilities(revision)

    # --- set-up and end ---

    async def agree(
        self,
        client: t.Implementation,
        revision: str | None,
        *,
        probe: float,
        clock: CallClock,
        is_modern_only: bool = False,
    ) -> None:
        begin = partial(negotiate, client, self.answers.capabilities, revision)
        agreement = await agree(
            self.link,
            self.session,
            self._lifecycle,
            begin,
            probe=probe,
            clock=clock,
            is_modern_only=is_modern_only or (revision is not None and is_modern(revision)),
        )
        self.agreed(client, agreement)
        if not self.modern:
            # 2024-11-05 to 2025-11-25 basic/lifecycle: the handshake ends with this.
            self.session.notify("notifications/initialized", UNSET)

    def agreed(self, client: t.Implementation, agreement: Agreement) -> None:
        """Speak as both sides have agreed."""
        self.agreement: Agreement = agreement
        self.revision: str = self.agreement.revision
        self._lifecycle.revision = self.revision
        self.modern: bool = is_modern(self.revision)
        self.callable: frozenset[str] = callable_methods(agreement)
        # 2026-07-28 basic/transports/streamable-http, custom headers.
        self.repeats_arguments: bool = self.modern and self.link.carries_headers
        self._identity: dict[str, Any] = {
            t.PROTOCOL_VERSION_KEY: self.revision,
            t.CLIENT_CAPABILITIES_KEY: self.answers.capabilities(self.revision),
            t.CLIENT_INFO_KEY: client.to_dict(),
        }
        self.set_log_level(None)
        self.link.channel.negotiated(self.revision)

    def set_log_level(self, level: t.LoggingLevel | None) -> None:
        """2026-07-28: say in every request who sends it and which log messages it wants. Encode that once, not for each
        call.
        """
        if not self.modern:
            self._base: dict[str, Any] = {}
            self.meta: Any = UNSET
            return
        self._base = self._identity if level is None else {**self._identity, t.LOG_LEVEL_KEY: level}
        self.meta = Raw(_encode(self._base))

    async def _read(self) -> None:
        try:
            await self.session.run()
        finally:
            self.ended = True
        for stream in list(self.streams.values()):
            stream.end(OutcomeUnknown("The connection ended while listening"))

    async def close(self) -> None:
        """Close the connection. It closes once, and also when the task that waits for it is cancelled."""
        if self._closer is None:
            self._closer = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closer)

    async def _close(self) -> None:
        for stream in list(self.streams.values()):
            stream.end(None)  # The client closed it: its readers end without an error.
        await self.session.close()
        self.ended = True
        await self.link.close()
        running = {self.reader, *self.callbacks.tasks}
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    async def close_stale(self, error: TransportError) -> None:
        """Close the connection to a server that no longer answers; those who listen on it see the error."""
        for stream in list(self.streams.values()):
            stream.end(error)
        await self.close()

    async def retire(self) -> None:
        """Close the connection when the requests in flight have ended."""
        await self.session.finished()
        await self.close()

    async def lost(self, error: TransportError) -> TransportError:
        """Return the error with what is known about the end of the server."""
        if not self.link.duplex or self._closer is not None:
            return error  # It concerns one request, or we closed the connection, so there is no more to tell.
        # A request may notice the end of the connection before the reader does.
        await asyncio.wait({self.reader}, timeout=1.0)
        if not self.ended:
            return error
        why = await self.link.last_words()
        return OutcomeUnknown(f"{why}; {error}") if isinstance(error, OutcomeUnknown) else Unreachable(why)

    async def check(self, seconds: float = CHECK_SECONDS) -> None:
        """Ask the server for a sign of life. Raise what any request would raise."""
        if self.modern:
            sign = self.session.request("server/discover", t.RequestParams(meta=self.meta), seconds)
        else:
            sign = self.session.request("ping", t.RequestParams(), seconds)
        await self._told("a ping", sign)

    def require(self, method: str) -> None:
        """Raise `NotSupported` for a method that the server did not offer, before anything is sent."""
        if method in self.callable:
            return
        row = methods(self.revision).get(method)
        if row is None or row.capability is None:
            raise NotSupported(f"{method} does not exist on {self.revision}, which the server speaks")
        raise NotSupported(f"The server did not declare the capability {row.capability!r}, which {method} needs")

    async def learn_capabilities(self, timeout: float | None) -> None:
        """Ask a server of 2026-07-28 again what it can do, after that has changed."""
        raw = await self.send("server/discover", t.RequestParams(meta=self.meta), timeout=timeout)
        found = t.decode(t.DiscoverResult, raw)
        self.agreement.capabilities = found.capabilities
        self.agreement.instructions = found.instructions
        self.callable = callable_methods(self.agreement)

    # --- requests ---

    def metadata(self, token: RequestId | None, meta: Mapping[str, Any] | None) -> Any:
        """Return `_meta` of one request. Members of the caller never replace those of the protocol (META-1)."""
        members = {**(meta or {}), **self._base}
        if token is not None:
            # The token of a call that becomes a task outlives the request, so it is not the id of the request.
            members.setdefault(t.PROGRESS_TOKEN_KEY, token)
        return Raw(_encode(members)) if members else UNSET

    async def ask(
        self,
        method: str,
        params: t.RequestParams,
        decode: Decode[R],
        clock: CallClock,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> R:
        """Send a request, go through its rounds, and return the complete result.

        `clock` is the time limit of the call that the request belongs to.
        """
        is_repeated = False
        while True:
            try:
                raw = await self._attempt(method, params, clock, on_progress, meta, headers)
            except (TransportError, Timeout) as error:
                raise await self._explain(error, method, params, clock) from None
            except ProtocolError as error:
                if is_repeated:
                    raise
                is_repeated = True
                with clock.leave_out():
                    await self._may_repeat(error)
                continue
            if raw is None:
                raise cancelled(method)
            try:
                result = decode(raw)
                if result.result_type == "complete" or not self.modern:
                    return result
            except (msgspec.DecodeError, RecursionError, ValueError) as error:
                if not self.modern or check_kind(method, raw) == "complete":
                    raise InvalidResponse(f"The server's answer to {method} is broken: {error}") from None
            break
        return await self._run_rounds(method, params, decode, raw, clock, on_progress, meta, headers)

    async def _run_rounds(
        self,
        method: str,
        params: t.RequestParams,
        decode: Decode[R],
        raw: Raw,
        clock: CallClock,
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> R:
        """Answer the questions in `raw`, and return the result that the request ends with."""

        async def send(result: t.InputRequiredResult, answers: Mapping[str, Any]) -> Raw:
            asked = retry_params(cast("t.RoundRequestParams", params), result, answers)
            try:
                answer = await send_round(
                    partial(self._attempt, method, asked, clock, on_progress, meta, headers), clock
                )
            except (TransportError, Timeout) as error:
                raise await self._explain(error, method, params, clock) from None
            if answer is None:
                raise cancelled(method)
            return answer

        return await run_rounds(method, raw, clock, self.answer_all, send, partial(_read_complete, method, decode))

    async def _explain(
        self, error: TransportError | Timeout, method: str, params: t.RequestParams, clock: CallClock
    ) -> TransportError | Timeout:
        """Return the error of a request with what is known about its cause."""
        if isinstance(error, TransportError):
            return await self.lost(error)
        return _naming(params, error if clock.is_first else clock.make_timeout(method))

    def send(self, method: str, params: t.RequestParams, *, timeout: float | None) -> Coroutine[Any, Any, Raw]:
        """Send one request as it is, and return the result as it came."""
        return self._told(method, self.session.request(method, params, timeout))

    async def open_stream(self, params: t.SubscriptionsListenRequestParams, identifier: RequestId) -> Raw | None:
        """Send `subscriptions/listen`, and return when the stream has ended."""
        sent = Raw(t.encode(params)) if params.notifications.extra else params
        return await self.session.request("subscriptions/listen", sent, identifier=identifier)

    async def notify(self, method: str, members: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
        """Send a notification of the program; return False when the connection is gone."""
        # META-6: nothing is known from earlier requests, so that a notification of 2026-07-28 says who sends it.
        whole = self.metadata(None, meta)
        said = dict(members) if whole is UNSET else {**members, "_meta": whole}
        return self.session.notify(method, said or UNSET)

    async def _told(self, method: str, answer: Awaitable[Raw | None]) -> Raw:
        try:
            raw = await answer
        except TransportError as error:
            raise await self.lost(error) from None
        if raw is None:
            raise cancelled(method)
        return raw

    def _attempt(
        self,
        method: str,
        params: t.RequestParams,
        clock: CallClock,
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> Coroutine[Any, Any, Raw | None]:
        timeout = clock.limit(method)
        if on_progress is None and meta is None:
            params.meta = self.meta
            return self.session.request(method, params, timeout, headers=headers)
        # A retry is a request of its own: its token, the id, is new as well.
        identifier = self.session.peer.next_id()
        params.meta = self.metadata(None if on_progress is None else identifier, meta)
        report: OnProgress | None = None
        if on_progress is not None and not (meta and t.PROGRESS_TOKEN_KEY in meta):
            report = self.extend_on_progress(clock, self._reporter(on_progress))
        # Members that no type here knows are written by the codec that keeps them.
        sent = Raw(t.encode(params)) if params.extra else params
        return self.session.request(method, sent, timeout, report, identifier, headers)

    def _reporter(self, on_progress: OnProgress) -> OnProgress:
        def report(params: t.ProgressNotificationParams) -> None:
            self._report(on_progress, params)

        return report

    def extend_on_progress(self, clock: CallClock, report: OnProgress) -> OnProgress:
        """Return a progress callback that also restarts the time limit of a call."""

        def restart(params: t.ProgressNotificationParams) -> None:
            clock.restart()
            request, left = self.session.peer.outgoing.get(params.progress_token), clock.left()
            if request is not None and left is not None:
                self.session.deadlines.allow(request, left)
            report(params)

        return restart

    async def _may_repeat(self, error: ProtocolError) -> None:
        """Raise the error, unless the user has removed its cause."""
        if error.code != URL_ELICITATION_REQUIRED or not await self._visited(error):
            raise error
        # 2025-11-25 client/elicitation: after the user agreed, the request may be sent again, with a new id. Once.

    async def _visited(self, error: ProtocolError) -> bool:
        """Say whether the user agreed to open every URL that the error names."""
        if self.revision != "2025-11-25":
            return False  # No other revision knows this code.
        try:
            data = convert_to(error.data, t.URLElicitationRequiredErrorData)
        except msgspec.ValidationError:
            return False
        if not data.elicitations or len(data.elicitations) > MAX_QUESTIONS:
            return False
        try:
            for params in data.elicitations:
                params.mode = "url"
                answer = await self.answer("elicitation/create", params, self.revision)
                if not isinstance(answer, t.ElicitResult) or answer.action != "accept":
                    return False
        except ProtocolError:
            return False  # An entry without a usable URL, or the client asks nobody to open one.
        return True

    # --- questions ---

    async def answer_all(self, questions: Mapping[str, t.InputRequest]) -> dict[str, Raw]:
        """MRTR-12: obtain all answers together, before the next round."""
        if len(questions) > MAX_QUESTIONS:
            raise InvalidResponse(f"The server asked more than {MAX_QUESTIONS} questions at once")
        answers = await _together({key: self._answer_one(question) for key, question in questions.items()})
        return {key: Raw(t.encode(answer)) for key, answer in answers.items()}

    async def _answer_one(self, question: t.InputRequest) -> t.Wire:
        try:
            return await self.answer(question.method, question.params, self.revision)
        except ProtocolError as error:
            # No error can be sent instead of an answer, so the caller is told of the server's mistake.
            raise InvalidResponse(f"The server asked what it may not ask: {error.message}") from None

    async def answer(self, method: str, params: Any, revision: str) -> t.Wire:
        """Return the answer to one question, in the form of the revision."""
        return shape(await self.answers.answer(method, params, revision), revision)

    # --- what the server sends ---

    async def handle(self, request: Incoming, outlet: Outlet) -> t.Wire:
        """Answer a request of the server, on the revisions that have such requests."""
        try:
            with self.session.answering():
                params = request.params if request.raw is UNSET else with_unknown(request.params, request.raw)
                answer = await self.answer(request.method, params, request.revision)
            named = _for_task(answer, request.params.meta)
            # Members that no type here knows are written by the codec that keeps them.
            return cast("t.Wire", Raw(t.encode(named))) if named.extra else named
        except Rejected as refusal:
            # 2024-11-05 to 2025-11-25 client/sampling: the user said no.
            raise ProtocolError(USER_REJECTED, str(refusal) or "The user refused") from None
        except ProtocolError:
            raise
        except Exception:
            log.exception("the answer to %s failed", request.method)
            raise ProtocolError(INTERNAL_ERROR, "The client could not answer") from None

    def notified(self, notice: Notice, session: Session) -> None:
        method, params = notice.method, notice.params
        if method == "notifications/progress":
            session.progressed(params)
            report = self.reports.get(params.progress_token)
            if report is not None:
                self._report(report, params)
        elif method == "notifications/message":
            if self._on_log is not None:
                self._tell(notice, self._logged)
        elif method == "notifications/subscriptions/acknowledged":
            stream = self._stream(params.meta)
            if stream is not None and notice.raw is not UNSET:
                # With the members that extensions add to the filter.
                whole = t.decode(t.SubscriptionsAcknowledgedNotificationParams, notice.raw)
                stream.acknowledged(whole.notifications)
        elif method == "notifications/elicitation/complete":
            self._tell(notice, self._completed)
        elif method in _CHANGES:
            self._changed(method, params.uri if method == UPDATED else None)
            self._tell(notice, self._announce)
        else:
            self._tell(notice, self._extend)

    def _tell(self, notice: Notice, deliver: Callable[[Notice], None]) -> None:
        """Deliver a notification to the program."""
        deliver(notice)

    def _report(self, on_progress: OnProgress, params: t.ProgressNotificationParams) -> None:
        size = 0 if params.message is UNSET else len(params.message)
        self.callbacks.call(on_progress, params, size=size)

    def _logged(self, notice: Notice) -> None:
        if self._on_log is not None:
            params = notice.params if notice.raw is UNSET else with_unknown(notice.params, notice.raw)
            self.callbacks.call(self._on_log, params, size=0 if notice.raw is UNSET else len(notice.raw))

    def _completed(self, notice: Notice) -> None:
        completed = self.answers.completes(notice.params.elicitation_id)
        if completed is not None:
            self.callbacks.call(completed, notice.params.elicitation_id)

    def _announce(self, notice: Notice) -> None:
        method, params = notice.method, notice.params
        uri = params.uri if method == UPDATED else None
        if not self.modern:
            streams = list(self.streams.values())
            if uri is not None:
                # 1.10.6: the server may name a child of a subscribed resource. A URI that is nobody's child goes to
                # everybody.
                streams = [stream for stream in streams if stream.covers(uri)] or streams
            for stream in streams:
                stream.changed(method, uri, notice.raw)
            return
        listening = self._stream(params.meta)
        if listening is not None:
            listening.changed(method, uri, notice.raw)

    def _extension_request(self, method: str) -> Method | None:
        """Return the row of a request that an extension has; None, because nobody here answers any."""
        return None

    def _extension_notification(self, method: str) -> Method | None:
        """Return the row of an extension's notification that somebody wants. All others are ignored."""
        wanted = method in self._handlers or any(stream.hears_extensions for stream in self.streams.values())
        return extension_row(method) if wanted and method not in _KNOWN else None

    def _extend(self, notice: Notice) -> None:
        """Tell the handlers and the listeners of an extension's notification."""
        self._handlers.call(self.callbacks, notice.method, notice.raw)
        if not self.modern:
            # Servers of that era announce unasked, and do not say for which filter.
            streams = list(self.streams.values())
        else:
            listening = self._stream(notice.params.meta)
            streams = [] if listening is None else [listening]
        for stream in streams:
            if stream.hears_extensions:
                stream.told(notice.method, notice.raw)

    def _stream(self, meta: t.MetaDict | UnsetType) -> ChangeListener | None:
        """STD-8: find the listener by the id of the request that opened the stream."""
        identifier = None if meta is UNSET else meta.get(t.SUBSCRIPTION_ID_KEY)
        # Our ids are integers. True would pass for 1, and "1" is not 1 (SUB-1).
        return self.streams.get(identifier) if type(identifier) is int else None

    def missed(self) -> None:
        """Report everything as changed, because announcements were missed."""
        if not self.modern:
            self._changed(None, None)
            for stream in list(self.streams.values()):
                stream.missed()

    def behind(self, identifier: RequestId) -> Awaitable[None] | None:
        return None

    async def closed_early(self, identifier: RequestId, retry_ms: int | None) -> None:
        return

    def closing(self, session: Session) -> None:
        return


def cancelled(method: str) -> InvalidResponse:
    """Return the error of a request that the server ended without a result."""
    return InvalidResponse(f"The server cancelled {method}, which only its caller may do")


def _naming(params: t.RequestParams, late: Timeout) -> Timeout:
    """Put the name of the tool, prompt or resource into the text of a timeout."""
    named = getattr(params, "name", None) or getattr(params, "uri", None)
    return Timeout(f"{named}: {late}") if named else late


def _for_task(answer: t.Wire, asked: t.RequestMeta | UnsetType) -> t.Wire:
    """2025-11-25 tasks: name the task in the answer to a question that it asked."""
    if asked is not UNSET and asked.related_task is not UNSET:
        named: Any = answer
        meta = {} if named.meta is UNSET else named.meta
        named.meta = {**meta, **related_meta(asked.related_task.task_id)}
    return answer


def _read_complete(method: str, decode: Decode[R], raw: Raw) -> R | None:
    """Return the result of a round; None where the server asks for more."""
    try:
        result = decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if check_kind(method, raw) == "complete":
            raise InvalidResponse(f"The server's answer to {method} is broken: {error}") from None
        return None
    return result if result.result_type == "complete" else None


async def _together(work: Mapping[str, Coroutine[Any, Any, t.Wire]]) -> dict[str, t.Wire]:
    """Return the results of several coroutines. The first failure stops the others and is raised as it is, not in a
    group.
    """
    tasks = {key: asyncio.ensure_future(coroutine) for key, coroutine in work.items()}
    try:
        done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        return {key: task.result() for key, task in tasks.items()}
    finally:
        running = [task for task in tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
