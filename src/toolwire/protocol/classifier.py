"""The decision about one message: refuse it, answer it at once, or run it.

It is the same over every transport.

A channel judges each of its messages by `classify_message`, on either side. `protocol.http` has `classify` for one POST
of 2026-07-28, and `classify_legacy` for one POST of an earlier revision, in a session or without one. What is decided
here depends on the message, the lifecycle and the requests in flight, and on nothing else.

| the message | the outcome |
|---|---|
| a request that may be served | `Incoming` |
| a request that is refused, or that the protocol answers itself | `Send` |
| a notification that has an effect | `Notice`, or `Cancel` |
| a notification without one, known or not | None |
| an answer | the answer: the side that asked looks for its request |
| what cannot be read | `Send`, or `Garbage` where nothing waits for an error |
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_REQUEST, ProtocolError, counted
from toolwire.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    PlainRequest,
    PlainResponse,
    Request,
    RequestId,
    Response,
    encode_error,
    encode_response,
)
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle, Unanswerable
from toolwire.protocol.methods import Method

if TYPE_CHECKING:
    from toolwire.protocol.lifecycle.client import ClientLifecycle


class Send(Struct):
    """Bytes that are owed to the other side at once."""

    data: bytes


class Cancel(Struct):
    """The other side no longer wants an answer to its request."""

    id: RequestId
    reason: str | None = None


class Notice(Struct):
    """A notification with its typed params."""

    method: str
    row: Method
    params: Any
    raw: Raw | msgspec.UnsetType
    about: RequestId | None = None
    """The request of ours in whose answer stream it came; None where the transport has one stream for all."""
    capabilities: Mapping[str, Any] | None = None
    """What a client declared when it connected."""

    @property
    def declared(self) -> Mapping[str, Any]:
        """The capabilities of the client that sent it: those in `_meta`, or of its connection."""
        own = t.request_meta(self.raw).get(t.CLIENT_CAPABILITIES_KEY) if self.raw is not UNSET else None
        return own if isinstance(own, dict) else self.capabilities or {}


class Garbage(Struct):
    """Input that cannot be read as a message and gets no answer; for the log."""

    reason: str
    data: bytes = b""
    """What arrived, where the log shows how it begins."""

    def describe(self, hide: Callable[[str], str] = str) -> str:
        """Return the reason, and the beginning of what arrived, in plain ASCII on one line.

        `hide` masks what the log may not show. It gets more of the text than is shown, so that nothing is cut before.
        """
        if not self.data:
            return hide(self.reason)
        text = hide(self.data[:_SEARCHED].decode(errors="replace"))
        return f"{hide(self.reason)}: {text[:_QUOTED]!a}{'…' if len(text) > _QUOTED else ''}"


# How much of an unreadable line the log shows, and in how much of it secrets are searched.
_QUOTED: Final = 100
_SEARCHED: Final = 8 * 1024
CANCELLED: Final = "notifications/cancelled"

Lifecycle: TypeAlias = "ServerLifecycle | ClientLifecycle"
Verdict: TypeAlias = Incoming | Send | Cancel | Notice | Garbage | Response | ErrorResponse | None


def classify_message(message: Message, lifecycle: Lifecycle, in_flight: Container[RequestId]) -> Verdict:
    """Judge one message.

    `in_flight` has the ids of the requests of its sender that have no answer yet.
    """
    return _JUDGES[type(message)](message, lifecycle, in_flight)


def classify_request(
    request: Request, lifecycle: Lifecycle, in_flight: Container[RequestId]
) -> Incoming | Send | Garbage:
    """Judge a request."""
    if request.id in in_flight:
        # RPC-2: an id differs from every other request that its sender has outstanding. This comes first: an error
        # about anything else would be taken for the answer to the request that runs.
        return refuse_used_id(request.id)
    try:
        accepted = lifecycle.accept(request)
    except ProtocolError as error:
        return Send(encode_error(request.id, error.code, error.message, error.data))
    except Unanswerable:
        return Garbage(f"the server sent the request {request.method[:200]!r}, which this revision forbids")
    return accepted if type(accepted) is Incoming else Send(encode_response(request.id, accepted))


def refuse_used_id(identifier: RequestId) -> Send:
    """Refuse a request whose id is that of another one in flight."""
    return Send(encode_error(identifier, INVALID_REQUEST, "A request with this id is still in flight"))


def _judge_notification(
    notification: Notification, lifecycle: Lifecycle, in_flight: Container[RequestId]
) -> Notice | Cancel | None:
    # RPC-3: a notification is never answered, not even with an error.
    known = lifecycle.notice(notification.method, notification.params)
    if known is None:
        return None
    row, params = known
    if notification.method == CANCELLED:
        # CAN-2, 1.5.4: a cancellation that names no request is passed over in silence.
        if params.request_id is UNSET:
            return None
        return Cancel(params.request_id, None if params.reason is UNSET else params.reason)
    notice = Notice(notification.method, row, params, notification.params)
    if isinstance(lifecycle, ServerLifecycle):
        notice.capabilities = lifecycle.capabilities
    return notice


def extension_notice(notification: Notification, lifecycle: ServerLifecycle) -> Notice | None:
    """Judge a notification where those of extensions alone have something to act on."""
    known = lifecycle.extension_notice(notification.method, notification.params)
    if known is None:
        return None
    return Notice(notification.method, *known, notification.params, None, lifecycle.capabilities)


def _judge_malformed(message: Malformed, lifecycle: Lifecycle, in_flight: Container[RequestId]) -> Send | Garbage:
    # ERR-3: an answer is never answered with an error. What a server sends is never answered either: most often it is
    # a line that it printed.
    if message.code == 0 or not isinstance(lifecycle, ServerLifecycle):
        return Garbage(message.message)
    return Send(encode_error(message.id, message.code, message.message))


def _return_answer(
    message: Response | ErrorResponse, lifecycle: Lifecycle, in_flight: Container[RequestId]
) -> Response | ErrorResponse:
    return message


_JUDGES: Final[Mapping[type[Any], Callable[[Any, Any, Container[RequestId]], Verdict]]] = {
    PlainRequest: classify_request,
    Request: classify_request,
    Notification: _judge_notification,
    Malformed: _judge_malformed,
    Response: _return_answer,
    PlainResponse: _return_answer,
    ErrorResponse: _return_answer,
}


def open_batch(batch: Batch, lifecycle: Lifecycle, most: int) -> list[Message]:
    """Return the messages of a batch; raise `ProtocolError` to refuse it whole.

    `most`: how many messages a batch may have.
    """
    if not lifecycle.batches:
        # 2025-06-18 changelog: batches are gone; 2024-11-05 never had them.
        raise ProtocolError(INVALID_REQUEST, "This revision has no JSON-RPC batches: send one message at a time")
    if batch.oversized:
        raise ProtocolError(INVALID_REQUEST, f"A batch has at most {counted(most, 'message')}")
    if not batch.items:
        # 1.1.1.7: JSON-RPC 2.0, batch, has this rule.
        raise ProtocolError(INVALID_REQUEST, "A batch has at least one message")
    return [
        # 2025-03-26 basic/lifecycle: initialize is never part of a batch.
        Malformed(INVALID_REQUEST, "initialize is not allowed in a batch", each.id)
        if type(each) is Request and each.method == "initialize"
        else each
        for each in batch.items
    ]
