"""Connections of a program that stands between clients and a server: each request is sent for somebody else.

A relayed request has its own `_meta`, its own callbacks, and its own answers to the server's questions. Its params and
its result are JSON that nobody here reads. The program decides what both say (see `toolwire.gateway`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from math import inf
from time import monotonic
from typing import Any, Final, TypeAlias, cast

from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.connection import ClientConnection, OnProgress, cancelled
from toolwire.client.handlers import Answers
from toolwire.client.notifications import NotificationHandlers, extension_row
from toolwire.client.reconnect import Opener
from toolwire.client.target import Target
from toolwire.http.client.session import HttpSession
from toolwire.protocol import types as t
from toolwire.protocol.apps import UI_EXTENSION
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ProtocolError,
    Timeout,
    ToolwireError,
    TransportError,
    Unreachable,
)
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.lifecycle.negotiation import Agreement
from toolwire.protocol.methods import Method, is_unknown_method
from toolwire.protocol.shaping import shape
from toolwire.wire.channel import Sender
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session
from toolwire.wire.shares import Caller

log: logging.Logger = logging.getLogger("toolwire.client")

#: Answers a question of the server: the request as it came in, the result as it goes out.
OnRequest: TypeAlias = Callable[[Incoming], Awaitable[Any]]
#: Gets a notification that belongs to a call, or to nobody's call.
OnNotice: TypeAlias = Callable[[Notice], None]
#: Hears that the server closed the stream of a call, and wants the client back after some milliseconds.
OnClose: TypeAlias = Callable[[int | None], Awaitable[None]]

#: How many seconds a question of the server may wait for the first call of its connection, and how many for the next
#: call, where the client can only be asked during a call.
FIRST_CALL_SECONDS: Final = 1.0
NEXT_CALL_SECONDS: Final = 30.0
#: How many seconds the first call waits for a question of the server: for the answer to a ping, which comes after it,
#: for a server that asks a moment later, for one that is known to ask; and for the answer of the client.
PING_SECONDS: Final = 1.0
LATE_QUESTION_SECONDS: Final = 0.05
EXPECTED_QUESTION_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 10.0
#: How many seconds a server has to make use of new roots: it looks at the folders before it allows them.
USE_SECONDS: Final = 0.05
#: How many seconds a server has to take over a log level.
LEVEL_SECONDS: Final = 10.0

# The ids of a process that uses the session of another one begin above this, and below 2**53.
_FIRST_ID: Final = 1 << 32

_ANY_QUESTION: Final[dict[str, Any]] = {"elicitation": {}, "sampling": {}, "roots": {}}

# These notifications belong to a call, or to the client behind the connection. The connection handles all others.
_HANDED_ON: Final = frozenset({"notifications/message", "notifications/elicitation/complete"})


#: The extensions that this library knows. Their methods and notifications are known by their names.
KNOWN_EXTENSIONS: Final = frozenset({t.TASKS_EXTENSION, t.SKILLS_EXTENSION, UI_EXTENSION})


class Resumption(Struct, array_like=True):
    """The place at which another process can go on with a request of a legacy server."""

    session: str | None
    revision: str
    request: RequestId
    method: str
    position: str
    """The last event id of the stream in which the answer comes."""
    address: str = ""
    """The address of the session, if the server has several."""


class RelayedCall:
    """The client's side of one relayed request. What is None is not wanted."""

    # Defaults of the class, because most calls are answered without any other message.
    on_request: OnRequest | None = None
    on_progress: OnProgress | None = None
    questions: set[asyncio.Task[Any]] | None = None
    """The tasks that answer questions of the server. They end with the call."""
    is_over: bool = False
    _sender: Sender | None = None
    task: str | None = None
    """The task of a 2025-11-25 server that the request waits for. Only the questions of this task belong to it."""

    def __init__(
        self,
        on_request: OnRequest | None = None,
        on_progress: OnProgress | None = None,
        on_notice: OnNotice | None = None,
        on_close: OnClose | None = None,
        on_extension: OnNotice | None = None,
        task: str | None = None,
        outlet: Outlet | None = None,
        caller: Caller = None,
    ) -> None:
        """`on_extension` gets the notifications of extensions, which this library does not know."""
        self.on_request = on_request
        self.on_progress = on_progress
        self._on_notice = on_notice
        self._on_close = on_close
        self._on_extension = on_extension
        self.task = task
        self._outlet = outlet
        self._caller = caller

    def send_as(self, sender: Sender | None) -> None:
        """Name the client of the request, for a server of this process."""
        self._sender = sender

    @property
    def sender(self) -> Sender | None:
        """The client of the request, for a server of this process; None for the gateway itself."""
        return self._sender

    @property
    def caller(self) -> Caller:
        """The caller that the request counts for; None for one without a share."""
        return self._caller

    @property
    def outlet(self) -> Outlet | None:
        """The connection to the client that gets the notifications; None where none is known."""
        return self._outlet

    @property
    def on_notice(self) -> OnNotice | None:
        return self._on_notice

    @property
    def on_close(self) -> OnClose | None:
        return self._on_close

    @property
    def on_extension(self) -> OnNotice | None:
        return self._on_extension


class DeclaredCapabilities(Answers):
    """The capabilities of another client. Its questions are answered by the call that they belong to."""

    def __init__(self, capabilities: Mapping[str, Any]) -> None:
        super().__init__()
        self._given = dict(capabilities)
        self._shaped: dict[str, dict[str, Any]] = {}

    def capabilities(self, revision: str) -> dict[str, Any]:
        declared = self._shaped.get(revision)
        if declared is None:
            opening = t.InitializeRequestParams(
                protocol_version=revision, capabilities=self._given, client_info=t.Implementation("", "")
            )
            declared = self._shaped[revision] = shape(opening, revision).capabilities
        return declared


class RelayConnection(ClientConnection):
    """A connection that requests of other clients are sent on."""

    answers_itself: bool = False
    """Whether the connection answers the questions of the server, and not the client of a call."""
    is_pooled: bool = False
    """Whether calls of all clients share a connection to a legacy server."""

    is_joined: bool = False
    """True where other processes use the session at the server, too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls: dict[RequestId, RelayedCall] = {}
        """The relayed requests in flight, the oldest first."""
        self.on_notice: OnNotice | None = None
        """Gets the notifications that belong to no call in flight."""
        self.on_request: OnRequest | None = None
        """Answers the questions that belong to no call in flight."""
        self.ended_at: float = -inf
        """When the last relayed request ended, by the monotonic clock."""
        self.newest_call: Any = None
        """The newest call of a client on a legacy connection, which belongs to one conversation."""
        self.on_task_status: dict[str, Callable[[t.TaskStatusNotificationParams], Any]] = {}
        """Gets the status of tasks that were made on this connection, by their ids."""
        self._used = asyncio.Event()
        self._is_used = False
        self.level: t.LoggingLevel | None = None
        """The log level that was set on this connection."""
        self.client_level: t.LoggingLevel | UnsetType = UNSET
        """The log level of the client of a legacy connection, for messages between its calls."""
        self._may_ask_first = False
        """Whether the server may ask something before it should get the next call."""
        self._beginning: asyncio.Task[None] | None = None
        self._conversation_questions: set[asyncio.Task[Any]] = set()
        """The questions that belong to no call, but to the client of this connection."""
        self._question_came = asyncio.Event()
        self._next_call = asyncio.Event()
        self._asks_for_roots: bool = False
        """Whether the server has asked for roots outside of a call."""
        self._may_keep_roots: bool | None = None
        """Whether a server that asked in a call caches the roots; None if unknown."""
        self._roots: bytes | None = None
        """The roots that the server got last."""
        self._has_new_roots = False
        self.described: dict[bytes, Raw] = {}
        """`_meta` of requests to a modern server, by `_meta` of the client's requests. Users of it keep it short."""
        self._unused: asyncio.Event | None = None
        self.senders: dict[RequestId, Sender] | None = self.link.senders

    def _accepted(self, revision: str) -> dict[str, Any]:
        # The client of a call judges its questions, by what it declared itself.
        return self.answers.capabilities(revision) if self.answers_itself else _ANY_QUESTION

    async def agree(self, *arguments: Any, **options: Any) -> None:
        await super().agree(*arguments, **options)
        if not (self.modern or self.answers_itself):
            # A server may ask for roots when it is initialized, and serve its first call by what it gets.
            self._may_ask_first = "roots" in self.answers.capabilities(self.revision)

    async def lower_level(self, level: t.LoggingLevel) -> None:
        """Lower the log level of a legacy server to this one."""
        if self.modern or (self.level is not None and t.severity(self.level) <= t.severity(level)):
            return
        self.level = level
        asking = self._ask_level(level)
        if "logging/setLevel" in self.callable:
            await asking
            return
        # Some servers send log messages without declaring it. A server that may not know the request is not waited for.
        task = asyncio.get_running_loop().create_task(_ignore_failure(asking))
        self.callbacks.tasks.add(task)
        task.add_done_callback(self.callbacks.tasks.discard)
        await asyncio.sleep(0)  # It is sent before the call that follows.

    async def _ask_level(self, level: t.LoggingLevel) -> None:
        try:
            await self.send("logging/setLevel", t.SetLevelRequestParams(level=level), timeout=LEVEL_SECONDS)
        except (ProtocolError, Timeout) as error:
            # Many servers declare log messages and do not know the method. The call itself has nothing to do with it.
            log.debug("logging/setLevel was refused: %s", error)

    @property
    def reads_roots(self) -> bool:
        """Return whether the server may ask for roots when it hears that they changed."""
        return self._asks_for_roots or self._may_keep_roots is True

    def tell_roots_changed(self) -> None:
        """Tell a legacy server that the roots of its client have changed.

        The next call waits until it has asked.
        """
        declared = self.answers.capabilities(self.revision)
        if not self.modern and not self.ended and t.has_capability(declared, "roots.listChanged"):
            self.session.notify("notifications/roots/list_changed", UNSET)
            self._may_ask_first = True
            self._question_came.clear()

    def describe(self, capabilities: Mapping[str, Any]) -> Raw:
        """Return `_meta` of a request to a modern server that declares these capabilities."""
        return Raw(t.encode({**self._identity, t.CLIENT_CAPABILITIES_KEY: dict(capabilities)}))

    def next_id(self) -> RequestId:
        """Return the id of the next request. It is also its progress token."""
        return self.session.peer.next_id()

    async def relay(
        self,
        identifier: RequestId,
        method: str,
        params: Raw | Mapping[str, Any],
        call: RelayedCall,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw:
        """Send a request of somebody else, and return the result as it came.

        Cancelling the task that waits here cancels the request at the server, in the way of its revision.
        """
        self.calls[identifier] = call
        if self.senders is not None and (sender := call.sender) is not None:
            self.senders[identifier] = sender
        if not self._is_used:
            self._is_used = True
            self._used.set()
        session = self.session
        try:
            if self._may_ask_first:
                await self._wait_for_questions()
            if call.on_progress is None and not headers:
                raw = await session.forward(method, params, timeout, identifier)
            else:
                raw = await session.request(method, params, timeout, call.on_progress, identifier, headers)
        except TransportError as error:
            raise await self.lost(error) from None
        finally:
            self._end(identifier, call)
        if raw is None:
            raise cancelled(method)
        return raw

    async def _wait_for_questions(self) -> None:
        """Wait until the server has the answers to its first questions, for a bounded time.

        Calls that run answer these questions, this one among them.
        """
        self._next_call.set()
        if self._beginning is None:
            self._beginning = asyncio.get_running_loop().create_task(self._answer_first())
        await asyncio.wait({self._beginning})  # A cancelled call leaves it running, because another may wait, too.

    async def _answer_first(self) -> None:
        try:
            while self._may_ask_first and not self.ended:
                self._may_ask_first = False
                with suppress(ToolwireError):
                    # Most servers ask because of an earlier message before they answer this one.
                    await self.session.request("ping", t.RequestParams(), PING_SECONDS)
                try:
                    async with asyncio.timeout(
                        EXPECTED_QUESTION_SECONDS if self._asks_for_roots else LATE_QUESTION_SECONDS
                    ):
                        await self._question_came.wait()
                except TimeoutError:
                    self._asks_for_roots = False
                    if self._may_keep_roots:
                        self._may_keep_roots = False  # It asks in each call that needs them.
                with suppress(TimeoutError):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        while self._conversation_questions:
                            await asyncio.wait(self._conversation_questions)
                if self._has_new_roots:
                    self._has_new_roots = False
                    await asyncio.sleep(USE_SECONDS)
        finally:
            self._beginning = None

    def _end(self, identifier: RequestId, call: RelayedCall) -> None:
        del self.calls[identifier]
        self.ended_at = monotonic()
        if self.senders is not None:
            self.senders.pop(identifier, None)
        call.is_over = True
        if call.questions is not None:
            for question in call.questions:
                question.cancel()
        if self._unused is not None and not self.calls:
            self._unused.set()

    # --- requests that go on in another process ---

    def resumption(self, identifier: RequestId, method: str) -> Resumption | None:
        """Return where another process can go on with a request in flight; None where the server does not allow it."""
        session = self.session
        if not isinstance(session, HttpSession) or not (position := session.position(identifier)):
            return None
        return Resumption(session.channel.session_id, self.revision, identifier, method, position, self.link.label)

    @property
    def session_id(self) -> str | None:
        """The id of the session at the server; None where it has none."""
        return self.session.channel.session_id if isinstance(self.session, HttpSession) else None

    def take_up(
        self, client: t.Implementation, agreement: Agreement, session_id: str | None, *, listens: bool = True
    ) -> None:
        """Use a session that another process opened. Raise `Unreachable` where the server has no such sessions.

        `listens`: the stream for messages that belong to no request is opened, too.
        """
        session = self.session
        if not isinstance(session, HttpSession):
            raise Unreachable("its transport has no sessions that another process could use")
        session.channel.begin(session_id)
        session.channel.listens = listens
        # Another process counts from 1. RPC-2: ids differ within a session.
        session.peer.next_id = count(int.from_bytes(os.urandom(6)) + _FIRST_ID).__next__
        self.agreed(client, agreement)
        # The other process has posted `notifications/initialized`.
        session.channel.begin_listening()

    async def resume(
        self, resumption: Resumption, questions: Sequence[bytes], call: RelayedCall, *, timeout: float | None = None
    ) -> Raw:
        """Wait for the result of a request that another process sent. `questions` are those that are open."""
        identifier, session = resumption.request, cast("HttpSession", self.session)
        self.calls[identifier] = call
        self._used.set()
        try:
            answer = session.follow(
                identifier, resumption.method, resumption.position, questions, timeout, call.on_progress
            )
            return await self._told(resumption.method, answer)
        finally:
            self._end(identifier, call)

    def leave_requests(self) -> None:
        """Leave the session and the requests in flight to another process, when this connection is closed."""
        if isinstance(self.session, HttpSession):
            self.session.leaves_requests = True
        self.leave_session()

    async def retire(self) -> None:
        """Close the connection after its requests in flight. A session of other processes stays."""
        await self.session.finished()
        if self.is_joined:
            self.leave_session()
        await self.close()

    def leave_session(self) -> None:
        """Leave the session at the server to others, when this connection is closed."""
        if isinstance(self.session, HttpSession):
            self.session.channel.forget_session()

    # --- the end of use ---

    async def unused(self) -> None:
        """Wait until no relayed request is in flight."""
        if self.calls:
            if self._unused is None or self._unused.is_set():
                self._unused = asyncio.Event()
            await self._unused.wait()

    @property
    def is_used(self) -> bool:
        """Return whether a request was relayed on it, ever."""
        return self._used.is_set()

    def concerned(
        self,
        about: RequestId | None,
        wants: Callable[[RelayedCall], Any] = lambda call: call.on_notice,
        task: str | None = None,
    ) -> RelayedCall | None:
        """Return the call that a message of the server belongs to; None if there is none.

        Over HTTP the stream on which it came says which one. On a connection with one stream nothing does. The calls of
        a legacy connection are all made for the same conversation: there it is taken for the newest call. Those of a
        modern one may be made for anybody: there it has to be the only call that wants such messages.
        """
        if about is not None:
            return self.calls.get(about)
        if not self.modern:
            # 2025-11-25 tasks: the messages of a task name it.
            return next((call for call in reversed(self.calls.values()) if call.task == task), None)
        wanting = [call for call in self.calls.values() if wants(call) is not None]
        return wanting[0] if len(wanting) == 1 else None

    async def handle(self, request: Incoming, outlet: Outlet) -> t.Wire:
        """Have the client answer a question: that of a call, or of the whole connection.

        No call is named by a `roots/list` on the connection's own stream, nor by what comes before the first call.
        """
        task = asyncio.current_task()
        assert task is not None
        begins = self._beginning is not None or not self._used.is_set()
        is_unnamed = request.about is None and _related_task(request) is None
        is_of_conversation = is_unnamed and (begins or request.method == "roots/list")
        if is_of_conversation:
            self._conversation_questions.add(task)
            self._question_came.set()
            self._may_ask_first = self._may_ask_first or not self.calls
            if request.method == "roots/list":
                if begins or not self.calls:
                    self._asks_for_roots = True
                elif self._may_keep_roots is None:
                    self._may_keep_roots = True
        try:
            return await self._handle(request, task, is_of_conversation=is_of_conversation)
        finally:
            self._conversation_questions.discard(task)

    async def _handle(self, request: Incoming, task: asyncio.Task[Any], *, is_of_conversation: bool) -> t.Wire:
        while True:
            if not self._used.is_set():
                await self._wait_for_call(FIRST_CALL_SECONDS)
            elif is_of_conversation and not self.calls and self.on_request is None:
                await self._wait_for_call(NEXT_CALL_SECONDS)
            call = self.concerned(request.about, task=_related_task(request)) or RelayedCall(self.on_request)
            try:
                answer = await self._answered(request, call)
                if is_of_conversation and isinstance(answer, Raw) and bytes(answer) != self._roots:
                    self._roots, self._has_new_roots = bytes(answer), True
                return answer
            except asyncio.CancelledError:
                # The call that the question was taken to belong to has ended. It may belong to another one, or to none.
                is_left = bool(self.calls) or is_of_conversation
                if not call.is_over or request.about is not None or not is_left or self.ended:
                    raise
                task.uncancel()

    async def _wait_for_call(self, seconds: float) -> None:
        self._next_call.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await (self._next_call if self._used.is_set() else self._used).wait()

    async def _answered(self, request: Incoming, call: RelayedCall) -> t.Wire:
        if call.on_request is None:
            raise ProtocolError(METHOD_NOT_FOUND, f"No call is in flight that {request.method[:200]} could belong to")
        task = asyncio.current_task()
        assert task is not None
        call.questions = questions = call.questions or set()
        questions.add(task)
        try:
            with self.session.answering():
                return cast("t.Wire", await call.on_request(request))
        except ProtocolError:
            raise
        except Exception:
            log.exception("the answer to %s failed", request.method)
            raise ProtocolError(INTERNAL_ERROR, "The client could not answer") from None
        finally:
            questions.discard(task)

    def _extension_notification(self, method: str) -> Method | None:
        return extension_row(method) if is_unknown_method(method) else None

    def _extension_request(self, method: str) -> Method | None:
        is_taken = is_unknown_method(method)
        return Method(name=method, kind="request", sender="server", params=t.RequestParams) if is_taken else None

    def notified(self, notice: Notice, session: Session) -> None:
        if notice.method == "notifications/tasks/status":
            on_status = self.on_task_status.get(notice.params.task_id)
            if on_status is not None:
                on_status(notice.params)
            return
        if notice.method not in _HANDED_ON:
            if is_unknown_method(notice.method) and not _is_of_subscription(notice):
                self._extended(notice)
            else:
                super().notified(notice, session)
            return
        call = self.concerned(notice.about)
        told = self.on_notice if call is None or call.on_notice is None else call.on_notice
        if told is not None:
            told(notice)

    async def closed_early(self, identifier: RequestId, retry_ms: int | None) -> None:
        call = self.calls.get(identifier)
        if call is not None and call.on_close is not None:
            await call.on_close(retry_ms)

    def _extended(self, notice: Notice) -> None:
        """Hand on a notification that an extension of the server has. A server without one has no such methods."""
        agreement = getattr(self, "agreement", None)  # A server may send before the handshake has ended.
        declared = None if agreement is None else agreement.capabilities.get("extensions")
        if not isinstance(declared, dict) or KNOWN_EXTENSIONS.issuperset(declared):
            return
        call = self.concerned(notice.about, lambda call: call.on_extension)
        receive = self.on_notice if call is None else call.on_extension
        if receive is None:
            return
        receive(notice)
        if call is not None and call.outlet is not None and call.outlet.full:
            self._end_unread(call)

    def behind(self, identifier: RequestId) -> Awaitable[None] | None:
        call = self.calls.get(identifier)
        if call is None or call.outlet is None or not call.outlet.congested:
            return None
        return call.outlet.drain()

    def _end_unread(self, call: RelayedCall) -> None:
        """End a call whose client leaves too many notifications unread."""
        error = ProtocolError(INTERNAL_ERROR, "The call was ended: its client has left too many notifications unread")
        for identifier, each in self.calls.items():
            request = self.session.peer.outgoing.get(identifier)
            if each is call and request is not None:
                self.session.give_up(request, error, "Its notifications are not read")
                return


async def _ignore_failure(work: Awaitable[None]) -> None:
    with suppress(ToolwireError):
        await work


def _is_of_subscription(notice: Notice) -> bool:
    meta = notice.params.meta
    return meta is not UNSET and t.SUBSCRIPTION_ID_KEY in meta


def _related_task(request: Incoming) -> str | None:
    """Return the task that a question of the server names; None where it names none."""
    meta = request.params.meta
    return None if meta is UNSET or meta.related_task is UNSET else meta.related_task.task_id


class RelayOpener(Opener):
    """The opener of relaying connections to one target."""

    known: tuple[Agreement, str] | None = None
    """The session of another process that the next connection uses; None for a new session."""

    async def open(self) -> ClientConnection:
        known, self.known = self.known, None
        if known is None:
            return await super().open()
        connection = RelayConnection(await self.target.open(), self.answers, None, self.changed, self.handlers)
        try:
            connection.take_up(self.identity, *known)
        except Unreachable:
            await connection.close()
            return await super().open()
        return connection


def relay_opener(
    target: Target,
    identity: t.Implementation,
    capabilities: Mapping[str, Any],
    *,
    changed: Callable[[str | None, str | None], None],
    timeout: float | None,
    probe_timeout: float,
    revision: str | None,
    kind: type[RelayOpener] = RelayOpener,
) -> RelayOpener:
    """Return the opener of relaying connections to a target, on which these capabilities are declared."""

    async def take_up(connection: ClientConnection) -> None:
        """Set up nothing: every request brings along what it needs."""

    return kind(
        target,
        DeclaredCapabilities(capabilities),
        identity,
        None,
        changed,
        take_up,
        timeout,
        probe_timeout,
        revision,
        NotificationHandlers(),
        make_connection=RelayConnection,
    )
