"""One end of a connection, for either role: ids, what is in flight both ways, batches, cancellation.

Frames go in, events come out; what is to be sent comes back as bytes. The driver owns the tasks, the peer owns the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    INVALID_REQUEST,
    InvalidResponse,
    ProtocolError,
    ToolwireError,
    counted,
    judge_outcome,
)
from toolwire.protocol.jsonrpc import (
    EXPECT_REQUESTS,
    EXPECT_RESPONSES,
    MAX_BATCH,
    MAX_DEPTH,
    Batch,
    ErrorResponse,
    Malformed,
    Notification,
    PlainRequest,
    PlainResponse,
    Request,
    RequestId,
    Response,
    decode,
    encode_answer,
    encode_batch,
    encode_error,
    encode_notification,
    encode_request,
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


def extension_notice(notification: Notification, lifecycle: ServerLifecycle) -> Notice | None:
    """The notification, if it is one of an extension that the server acts on."""
    known = lifecycle.extension_notice(notification.method, notification.params)
    if known is None:
        return None
    return Notice(notification.method, *known, notification.params, None, lifecycle.capabilities)


class Answer(Struct, gc=False):
    """The outcome of a request of ours, for the waiter it was sent with."""

    waiter: Any
    result: Raw | None
    error: ToolwireError | None = None


class Garbage(Struct):
    """Something that is no message and gets no answer; for the log."""

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


Event: TypeAlias = Incoming | Send | Cancel | Notice | Answer | Garbage

_CANCELLED: Final = "notifications/cancelled"
# How much of a line that is no message the log shows, and in how much of it secrets are looked for.
_QUOTED: Final = 100
_SEARCHED: Final = 8 * 1024


class _Group(Struct):
    """The answers still to come for one batch, and those that are ready."""

    waiting: set[RequestId]
    ready: list[bytes]


def _concerns(answer: Any, about: RequestId) -> bool:
    """Return whether an answer belongs to a request. An answer without a readable id does, if it came back for it.

    Our ids are integers. An error under a text, such as "server-error", is how some servers say that they read none.
    """
    if answer.id is None or (isinstance(answer, ErrorResponse) and not isinstance(answer.id, int)):
        answer.id = about
    return bool(answer.id == about)


class Peer:
    """The state of one connection."""

    def __init__(
        self,
        lifecycle: ServerLifecycle | ClientLifecycle,
        *,
        max_depth: int = MAX_DEPTH,
        max_batch: int = MAX_BATCH,
    ) -> None:
        self.lifecycle = lifecycle
        self.incoming: set[RequestId] = set()
        self.outgoing: dict[RequestId, Any] = {}
        self._serves = isinstance(lifecycle, ServerLifecycle)
        self._groups: dict[RequestId, _Group] = {}
        # The id of the next request of ours.
        self.next_id: Callable[[], int] = count(1).__next__
        self._max_depth = max_depth
        self._max_batch = max_batch
        self._expected: Any = EXPECT_REQUESTS if self._serves else EXPECT_RESPONSES

    # --- what arrives ---

    def receive(self, data: bytes, about: RequestId | None = None) -> Sequence[Event]:
        """The events of one frame; `about` is the request of ours that it came back for, where that is known."""
        message: Any = decode(data, self._max_depth, self._max_batch, self._expected)
        kind = type(message)
        if kind is PlainResponse and (about is None or message.id == about):
            # Nearly everything that a client is sent.
            waiter = self.outgoing.pop(message.id, None)
            return () if waiter is None else (Answer(waiter, message.result),)
        if kind is Batch:
            return self._batch(message)
        if about is not None and isinstance(message, Response | ErrorResponse) and not _concerns(message, about):
            return (Garbage("an answer to another request"),)
        event = _TAKEN[kind](self, message)
        if kind is Malformed and type(event) is Garbage and message.code and not self._serves:
            # Most often a line that a server printed: its author has to know which.
            event.data = data
        if about is not None and (type(event) is Incoming or type(event) is Notice):
            event.about = about
        return () if event is None else (event,)

    def result_of(self, data: bytes, about: RequestId) -> Raw | None:
        """The result in a frame that is the plain answer to a request of ours; None for a frame that `receive` reads.

        The request stays with those that wait.
        """
        message: Any = decode(data, self._max_depth, self._max_batch, self._expected)
        return message.result if type(message) is PlainResponse and message.id == about else None

    def oversized(self) -> Sequence[Event]:
        """The events of a frame that was too long to be read."""
        text = "The message is over the size limit"
        if self._serves:
            return [Send(encode_error(None, INVALID_REQUEST, text))]
        if len(self.outgoing) == 1:
            # With one request outstanding there is no doubt whose answer it was.
            answer = self._failed(next(iter(self.outgoing)), InvalidResponse(text))
            return [] if answer is None else [answer]
        return [Garbage(text)]

    def _request(self, request: Request) -> Event | None:
        if request.id in self.incoming:
            # RPC-2: an id differs from every other request that its sender has outstanding.
            return Send(encode_error(request.id, INVALID_REQUEST, "A request with this id is still in flight"))
        try:
            accepted = self.lifecycle.accept(request)
        except ProtocolError as error:
            return Send(encode_error(request.id, error.code, error.message, error.data))
        except Unanswerable:
            return Garbage(f"the server sent the request {request.method[:200]!r}, which this revision forbids")
        if type(accepted) is not Incoming:
            return Send(encode_response(request.id, accepted))
        self.incoming.add(request.id)
        return accepted

    def _notification(self, notification: Notification) -> Event | None:
        # RPC-3: a notification is never answered, not even with an error.
        known = self.lifecycle.notice(notification.method, notification.params)
        if known is None:
            return None
        row, params = known
        if notification.method == _CANCELLED:
            return self._cancelled(params)
        notice = Notice(notification.method, row, params, notification.params)
        if isinstance(self.lifecycle, ServerLifecycle):
            notice.capabilities = self.lifecycle.capabilities
        return notice

    def _cancelled(self, params: t.CancelledNotificationParams) -> Event | None:
        # CAN-2, 1.5.4: unknown, finished or malformed cancellations are passed over in silence.
        identifier = params.request_id
        if identifier is UNSET:
            return None
        reason = None if params.reason is UNSET else params.reason
        if identifier in self.incoming:
            return Cancel(identifier, reason)
        if not self._serves and identifier in self.outgoing:
            # 2026-07-28 basic/patterns/cancellation: a server ends a subscription with this notification.
            return Answer(self.outgoing.pop(identifier), None)
        return None

    def _response(self, response: Response) -> Event | None:
        # CAN-3: an answer that nobody waits for any more is dropped.
        waiter = self.outgoing.pop(response.id, None)
        return None if waiter is None else Answer(waiter, response.result)

    def _failed(self, identifier: RequestId, error: ToolwireError) -> Event | None:
        waiter = self.outgoing.pop(identifier, None)
        return None if waiter is None else Answer(waiter, None, error)

    def _error(self, response: ErrorResponse) -> Event | None:
        error = judge_outcome(response.error.to_exception())
        if response.id is not None:
            return self._failed(response.id, error)
        if len(self.outgoing) == 1:
            # The other side could not read an id. With one request outstanding there is no doubt whose it was.
            return self._failed(next(iter(self.outgoing)), error)
        return Garbage(f"the other side reports {error}")

    def _malformed(self, message: Malformed) -> Event | None:
        if message.id is not None and message.id in self.outgoing and message.code == 0:
            # ERR-3: nobody sent this as an error.
            return self._failed(message.id, InvalidResponse(message.message))
        if message.code == 0 or not self._serves:
            return Garbage(message.message)
        return Send(encode_error(message.id, message.code, message.message))

    def _batch(self, batch: Batch) -> list[Event]:
        if not self.lifecycle.batches:
            # 2025-06-18 changelog: batches are gone; 2024-11-05 never had them.
            return self._refuse_batch("This revision has no JSON-RPC batches: send one message at a time")
        if batch.oversized:
            return self._refuse_batch(f"A batch has at most {counted(self._max_batch, 'message')}")
        if not batch.items:
            return self._refuse_batch("A batch has at least one message")
        events: list[Event] = []
        group = _Group(set(), [])
        for message in batch.items:
            if type(message) is Request and message.method == "initialize":
                # 2025-03-26 basic/lifecycle: initialize is never part of a batch.
                message = Malformed(INVALID_REQUEST, "initialize is not allowed in a batch", message.id)
            event = _TAKEN[type(message)](self, message)
            if type(event) is Incoming:
                group.waiting.add(event.id)
                self._groups[event.id] = group
                events.append(event)
            elif type(event) is Send:
                group.ready.append(event.data)
            elif event is not None:
                events.append(event)
        if not group.waiting and group.ready:
            events.append(Send(encode_batch(group.ready)))
        return events

    def _refuse_batch(self, message: str) -> list[Event]:
        if not self._serves:
            return [Garbage(message)]
        return [Send(encode_error(None, INVALID_REQUEST, message))]

    # --- what leaves ---

    def respond(self, identifier: RequestId, result: Any, limit: int | None = None) -> bytes | None:
        """The answer to a request, or an error if it is over `limit` bytes; None when nothing is to be sent now."""
        if identifier not in self.incoming:
            return None  # STD-10: nothing more for a request that was cancelled.
        data = encode_response(identifier, result) if limit is None else encode_answer(identifier, result, limit)
        if self._groups:
            return self._settle(identifier, data)
        self.incoming.discard(identifier)
        return data

    def refuse(self, identifier: RequestId, error: ProtocolError) -> bytes | None:
        """An error as the answer to a request; None as in `respond`."""
        if identifier not in self.incoming:
            return None
        return self._settle(identifier, encode_error(identifier, error.code, error.message, error.data))

    def drop(self, identifier: RequestId) -> bytes | None:
        """Forget a cancelled request; the bytes are a batch that waited for nothing else."""
        return self.settle(identifier, None)

    def settle(self, identifier: RequestId, data: bytes | None) -> bytes | None:
        """Take the encoded answer to a request, None for one that gets no answer; return what is to be sent now."""
        if identifier not in self.incoming:
            return None
        return self._settle(identifier, data)

    def _settle(self, identifier: RequestId, data: bytes | None) -> bytes | None:
        self.incoming.discard(identifier)
        if not self._groups or (group := self._groups.pop(identifier, None)) is None:
            return data
        group.waiting.discard(identifier)
        if data is not None:
            group.ready.append(data)
        return encode_batch(group.ready) if group.ready and not group.waiting else None

    def request(self, identifier: RequestId, method: str, params: Any, waiter: Any) -> bytes:
        """A request of ours; `waiter` comes back with its answer."""
        data = encode_request(identifier, method, params)  # What cannot be encoded never left, so nobody waits for it.
        self.outgoing[identifier] = waiter
        return data

    def forget(self, identifier: RequestId) -> bool:
        """Stop waiting for an answer; whether there was one to wait for."""
        return self.outgoing.pop(identifier, None) is not None

    @staticmethod
    def notify(method: str, params: Any = UNSET) -> bytes:
        return encode_notification(method, params)


# How each kind of message becomes an event.
_TAKEN: Final[Mapping[type[Any], Callable[[Peer, Any], Event | None]]] = {
    PlainRequest: Peer._request,
    PlainResponse: Peer._response,
    Request: Peer._request,
    Response: Peer._response,
    Notification: Peer._notification,
    ErrorResponse: Peer._error,
    Malformed: Peer._malformed,
}
