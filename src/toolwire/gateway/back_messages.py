"""Messages of a server behind a gateway while a call is in flight: progress, log messages, notifications, questions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.client.connection import MAX_QUESTIONS
from toolwire.client.relay import OnClose, OnNotice, OnRequest, RelayConnection, RelayedCall
from toolwire.gateway.sent_request import Sent, level_of, of_all_connections
from toolwire.gateway.uris import UriNames
from toolwire.protocol import types as t
from toolwire.protocol.asking import QUESTIONS, Need, find_missing, refuse_question, wants_context
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    InvalidResponse,
    NotSupported,
    ProtocolError,
)
from toolwire.protocol.free_members import find_notification_type
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.lifecycle.terms import decode_params
from toolwire.protocol.methods import is_unknown_method
from toolwire.protocol.open_codec import replace_members, with_unknown
from toolwire.protocol.rounds import Kind, Round
from toolwire.protocol.shaping import shape
from toolwire.server.call import Call
from toolwire.server.context.forms import check_url
from toolwire.server.input_requests import Refused
from toolwire.server.subscriptions import USUAL_LEVEL
from toolwire.wire.deadlines import CallClock
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session
from toolwire.wire.shares import Caller

if TYPE_CHECKING:
    from toolwire.server.kernel import Kernel

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode


async def set_level(call: Call, connection: RelayConnection) -> None:
    """Have a legacy server send the log messages that this call wants. The level is that of the connection.

    The lowest level that any call wanted holds, and each call gets the messages that it wants.
    """
    wanted = call.request.log_level if call.request.modern else level_of(call)
    # A client that set no level has the usual one.
    if wanted is UNSET or (wanted == USUAL_LEVEL and "logging/setLevel" not in connection.callable):
        return
    await connection.lower_level(wanted)


def reporting(call: Call) -> Callable[[t.ProgressNotificationParams], None]:
    def report(params: t.ProgressNotificationParams) -> None:
        total = None if params.total is UNSET else params.total
        call.tell_progress(params.progress, total, None if params.message is UNSET else params.message)

    return report


def discard_report(reports: dict[RequestId, Any], token: RequestId) -> None:
    reports.pop(token, None)


def reporting_task(call: Call) -> Callable[[t.ProgressNotificationParams], None]:
    """Return what hands on the progress of a task: to the connection of the client, because its call has ended."""
    token, notify = call.progress_token, getattr(call.outlet.connection, "notify", None)

    def report(params: t.ProgressNotificationParams) -> None:
        is_new = call.last_progress is None or params.progress > call.last_progress
        if notify is None or token is None or call.request.modern or not is_new:
            return  # TSK-17: a modern client reads the status message.
        if call.may_tell is not None and not call.may_tell():
            return
        call.last_progress = params.progress  # PRG-1
        told = replace_members(params, progress_token=token, meta=UNSET)
        notify("notifications/progress", shape(told if call.mask is None else call.mask(told), call.revision))

    return report


def telling(call: Call) -> Callable[[Notice], None] | None:
    """Return what hands on log messages and the like; None for a call that wants none."""
    if call.request.modern and call.request.log_level is UNSET:
        return None

    def hand_on(notice: Notice) -> None:
        if notice.method != "notifications/message":
            _hand_on(call, notice)
            return
        threshold = call.host.log_threshold(call)
        if threshold is None or t.severity(notice.params.level) < threshold:
            return
        if call.mask is None:
            call.outlet.notify(notice.method, cast("t.Wire", of_all_connections(notice.raw)))
        else:
            params: t.LoggingMessageNotificationParams = notice.params
            call.tell_log(params.level, params.data, None if params.logger is UNSET else params.logger)

    return hand_on


def extending(call: Call) -> Callable[[Notice], None] | None:
    """Return what hands on notifications of extensions; None for a client that declares none."""
    if "extensions" not in call.request.capabilities or call.outer is not None:
        return None

    def hand_on(notice: Notice) -> None:
        call.outlet.notify(_masked_method(call, notice), _masked(call, notice))

    return hand_on


def _masked_method(call: Call, notice: Notice) -> str:
    return notice.method if call.mask is None else cast("str", call.mask(notice.method))


def _masked(call: Call, notice: Notice) -> Any:
    """Return the params of a notification for the client, without what the policies of the call mask."""
    params = of_all_connections(notice.raw)
    return params if call.mask is None else call.mask(params, find_notification_type(notice.method))


class ClientOfCall(RelayedCall):
    """The client's side of a relayed request.

    Messages are rare, so that nothing is made for them before one comes.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def outlet(self) -> Outlet:
        return self._call.outlet

    @property
    def caller(self) -> Caller:
        return cast("Caller", self._call.request.caller)

    @property
    def on_notice(self) -> OnNotice | None:
        return telling(self._call)

    @property
    def on_close(self) -> OnClose:
        return self._call.close_stream

    @property
    def on_extension(self) -> OnNotice | None:
        return extending(self._call)


def with_public_addresses(ask: OnRequest, uris: UriNames) -> OnRequest:
    """Return what answers the questions of a legacy server, which may show resources to the client."""

    async def answer(request: Incoming) -> Any:
        if request.raw is not UNSET:
            raw = uris.in_result(request.raw)
            request = msgspec.structs.replace(request, raw=raw, params=decode_params(request.row, raw))
        return await ask(request)

    return answer


class WaitingHere:
    """A client that waits in this process for a call that may be held."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def outlet(self) -> Outlet:
        return self._call.outlet

    def report(self, params: t.ProgressNotificationParams) -> None:
        reporting(self._call)(params)

    def hear(self, notice: Notice) -> None:
        hand_on = extending(self._call) if is_unknown_method(notice.method) else telling(self._call)
        if hand_on is not None:
            hand_on(notice)


def telling_client(call: Call, connection: RelayConnection) -> Callable[[Notice], None] | None:
    """Return what hands on notifications that come when no call is in flight; None for a client without connection."""
    if call.request.modern:
        return None
    connection.client_level = level_of(call)

    def hand_on(notice: Notice) -> None:
        level = connection.client_level  # That of now: the client may have set another one since its call.
        is_log = notice.method == "notifications/message"
        if not is_log or (level is not UNSET and t.severity(notice.params.level) >= t.severity(level)):
            _hand_on(call, notice)

    return hand_on


def remember_page(call: Call, identifier: str | UnsetType) -> None:
    """Remember that a server asked a client to open a page, so that it may say when that is done."""
    if identifier is not UNSET:
        cast("Kernel", call.host).asked_pages.add(call, identifier)


def _hand_on(call: Call, notice: Notice) -> None:
    notify = getattr(call.outlet.connection, "notify", None)
    if notify is None or call.request.modern:
        return
    hand_on = partial(notify, _masked_method(call, notice), _masked(call, notice))
    if notice.method == "notifications/elicitation/complete":
        # Not for the page of another server, or that of another client.
        cast("Kernel", call.host).asked_pages.tell_if_asked(call, notice.params.elicitation_id, hand_on)
    else:
        hand_on()


def answering(
    call: Call, find_extensions: Callable[[], Collection[str]]
) -> Callable[[Incoming], Awaitable[Any]] | None:
    """Return what answers the questions of a legacy server; None where the client cannot be asked meanwhile.

    `find_extensions` returns those of the server.
    """
    if call.request.modern:
        return None

    async def answer(request: Incoming) -> Any:
        return await answer_legacy(call, request, extensions=find_extensions())

    return answer


def asking_between_calls(
    call: Call, find_extensions: Callable[[], Collection[str]]
) -> Callable[[Incoming], Awaitable[Any]] | None:
    """Return what answers questions between calls; None for a client without a lasting connection."""
    return answering(call, find_extensions) if isinstance(call.outlet.connection, Session) else None


async def answer_legacy(
    call: Call, request: Incoming, task: str | None = None, extensions: Collection[str] = ()
) -> Raw:
    """Ask the client of a call what a legacy server asks.

    Raise the error that the server gets instead of an answer.
    """
    params = request.params if request.raw is UNSET else with_unknown(request.params, request.raw)
    try:
        return await ask_client(call, request.method, params, task, extensions)
    except Refused as refusal:
        if refusal.error is not None:
            raise refusal.error from None
        raise ProtocolError(INTERNAL_ERROR, str(refusal)) from None
    except Undeclared as error:
        raise refuse_question(error.need, call.request.capabilities) from None
    except NotSupported as error:
        raise ProtocolError(INVALID_PARAMS, str(error)) from None


class Undeclared(NotSupported):
    """A question that the client did not declare a capability for."""

    def __init__(self, need: Need) -> None:
        super().__init__(need.missing, need.required)
        self.need = need

    def as_modern_error(self) -> ProtocolError:
        """Return -32021 with the missing capability (CAP-1)."""
        return ProtocolError(MISSING_CLIENT_CAPABILITY, str(self), {"requiredCapabilities": self.required})


def check_question(method: str, params: Any, capabilities: Mapping[str, Any], revision: str) -> Any:
    """Return the params of a question for a client.

    Raise `Undeclared` where the client may not be asked, -32601 for what is no question, and -32602 for a page that no
    user can open.

    Every question of a server behind the gateway passes here before a client sees it, in every pair of revisions. Only
    those of an extension do not (see `is_of_extension`).
    """
    if method not in QUESTIONS:
        raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method[:200]}")
    if method == "elicitation/create" and params.mode == "url" and not is_usable_page(params):
        raise ProtocolError(INVALID_PARAMS, "The page that the user should open has no http or https address")
    need = find_missing(method, params, capabilities, revision)
    if need is not None:
        raise Undeclared(need)
    if wants_context(method, params, capabilities, revision):
        # The client could not say that it knows the member, and may ignore it: the question is asked without.
        return replace_members(params, include_context=UNSET)
    return params


def is_usable_page(params: t.ElicitRequestParams) -> bool:
    """Return whether a user can open the page of a question: it is an ordinary web address."""
    if params.url is UNSET:
        return False
    try:
        check_url(params.url)
    except ValueError:
        return False
    return True


def check_questions(questions: Mapping[str, t.InputRequest], call: Call) -> dict[str, t.InputRequest]:
    """Return the questions of one round for the client of a call.

    Raise `Undeclared` where one may not be asked, and `InvalidResponse` for one that makes no sense.
    """
    capabilities, revision = call.request.capabilities, call.revision
    checked = {}
    for key, question in questions.items():
        try:
            params = check_question(question.method, question.params, capabilities, revision)
        except ProtocolError as error:
            raise InvalidResponse(error.message) from None
        checked[key] = question if params is question.params else msgspec.structs.replace(question, params=params)
    return checked


def is_of_extension(method: str, capabilities: Mapping[str, Any], extensions: Collection[str]) -> bool:
    """Return whether a question of an unknown kind may be asked: the client declares an extension of the server."""
    return is_unknown_method(method) and any(
        t.has_capability(capabilities, f"extensions.{each}") for each in extensions
    )


async def ask_client(
    call: Call, method: str, params: Any, task: str | None = None, extensions: Collection[str] = ()
) -> Raw:
    """Ask the client of a call, and return its answer as it came. `task` is the task that asks, as the client knows it.

    `extensions` are those of the server. 2025-11-25 tasks: a question of a task names the task.
    """
    if not is_of_extension(method, call.request.capabilities, extensions):
        params = check_question(method, params, call.request.capabilities, call.revision)
    meta: Any = UNSET
    if task is not None:
        meta = t.RequestMeta(related_task=t.RelatedTaskMetadata(task_id=task))
    if method == "roots/list":
        return await call.ask("roots/list", None if meta is UNSET else t.RequestParams(meta=meta), None, None, False)
    if params.meta is not UNSET or meta is not UNSET:
        # The token and the task in it are those of the connection to the server.
        params = replace_members(params, meta=meta)
    if not call.request.modern:
        if method == "elicitation/create" and params.mode == "url" and params.elicitation_id is UNSET:
            # 2025-11-25 client/elicitation: a URL has an id there.
            params = replace_members(params, elicitation_id=os.urandom(16).hex())
        if method == "elicitation/create":
            remember_page(call, params.elicitation_id)
        if call.mask is None:
            try:
                params = Raw(t.encode(shape(params, call.revision)))
            except ValueError as error:
                raise NotSupported(f"The client cannot be asked this: {error}") from None
    return await call.ask(cast("Kind", method), params, None, None, False)


async def answered_round(call: Call, sent: Sent, asked: Round, clock: CallClock) -> dict[str, Any]:
    """Return the params for the next round: the same request, with the answers of the client (MRTR-12 to MRTR-14)."""
    members = dict(sent.members)
    if asked.result.request_state is not UNSET:
        members["requestState"] = asked.result.request_state
    questions = asked.questions
    if not questions:
        await clock.sleep(asked.pause)
        return members
    if len(questions) > MAX_QUESTIONS:
        raise InvalidResponse(f"The server asked more than {MAX_QUESTIONS} questions at once")
    questions = check_questions(questions, call)  # Before the first one is asked.
    async with asyncio.TaskGroup() as together:
        tasks = {
            key: together.create_task(ask_client(call, question.method, question.params))
            for key, question in questions.items()
        }
    members["inputResponses"] = {key: _without_meta(task.result()) for key, task in tasks.items()}
    return members


def _without_meta(answer: Raw) -> Raw:
    if b'"_meta"' not in bytes(answer):
        return answer
    return Raw(_encode({name: value for name, value in _members(answer).items() if name != "_meta"}))
