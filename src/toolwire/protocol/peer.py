"""One end of a connection, for either role: ids, what is in flight both ways, batches, cancellation.

Frames go in, events come out; what is to be sent comes back as bytes. The driver owns the tasks, the peer owns the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Raw, Struct

from toolwire.protocol.classifier import (
    Cancel,
    Garbage,
    Notice,
    Send,
    classify_message,
    classify_request,
    open_batch,
)
from toolwire.protocol.errors import INVALID_REQUEST, InvalidResponse, ProtocolError, ToolwireError, judge_outcome
from toolwire.protocol.jsonrpc import (
    EXPECT_REQUESTS,
    EXPECT_RESPONSES,
    MAX_BATCH,
    MAX_DEPTH,
    Batch,
    ErrorResponse,
    Malformed,
    PlainRequest,
    PlainResponse,
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
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle

if TYPE_CHECKING:
    from toolwire.protocol.lifecycle.client import ClientLifecycle


class Answer(Struct, gc=False):
    """The outcome of a request of ours, for the waiter it was sent with."""

    waiter: Any
    result: Raw | None
    error: ToolwireError | None = None


Event: TypeAlias = Incoming | Send | Cancel | Notice | Answer | Garbage


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
        if kind is PlainRequest and about is None:
            # Nearly everything that a server is sent.
            verdict = classify_request(message, self.lifecycle, self.incoming)
            if type(verdict) is Incoming:
                self.incoming.add(verdict.id)
            return (verdict,)
        if (kind is PlainResponse or kind is Response) and (about is None or message.id == about):
            # Nearly everything that a client is sent. CAN-3: an answer that nobody waits for any more is dropped.
            waiter = self.outgoing.pop(message.id, None)
            return () if waiter is None else (Answer(waiter, message.result),)
        if kind is Batch:
            return self._batch(message)
        if about is not None and isinstance(message, Response | ErrorResponse) and not _concerns(message, about):
            return (Garbage("an answer to another request"),)
        event = self._judge(message)
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

    def _judge(self, message: Any) -> Event | None:
        """Judge one message, and note what it changes."""
        if type(message) is Malformed and message.code == 0 and message.id in self.outgoing:
            # ERR-3: nobody sent this as an error.
            return self._failed(message.id, InvalidResponse(message.message))
        verdict = classify_message(message, self.lifecycle, self.incoming)
        kind = type(verdict)
        if kind is Incoming:
            self.incoming.add(verdict.id)  # type: ignore[union-attr, arg-type]
        elif kind is Cancel:
            return self._cancelled(verdict)  # type: ignore[arg-type]
        elif isinstance(verdict, Response):
            return self._answered(verdict.id, verdict.result)
        elif isinstance(verdict, ErrorResponse):
            return self._error(verdict)
        return verdict  # type: ignore[return-value]

    def _cancelled(self, cancel: Cancel) -> Event | None:
        # CAN-2, 1.5.4: cancellations of unknown or finished requests are passed over in silence.
        if cancel.id in self.incoming:
            return cancel
        if not self._serves and cancel.id in self.outgoing:
            # 2026-07-28 basic/patterns/cancellation: a server ends a subscription with this notification.
            return self._answered(cancel.id, None)
        return None

    def _answered(self, identifier: RequestId, result: Raw | None) -> Event | None:
        # CAN-3: an answer that nobody waits for any more is dropped.
        waiter = self.outgoing.pop(identifier, None)
        return None if waiter is None else Answer(waiter, result)

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

    def _batch(self, batch: Batch) -> list[Event]:
        try:
            items = open_batch(batch, self.lifecycle, self._max_batch)
        except ProtocolError as error:
            if not self._serves:
                return [Garbage(error.message)]
            return [Send(encode_error(None, error.code, error.message))]
        events: list[Event] = []
        group = _Group(set(), [])
        for message in items:
            event = self._judge(message)
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
