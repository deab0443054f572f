"""The events of a session's streams in the `Log`, under ids that name their stream.

2025-03-26 basic/transports, resumability: an event id is unique among the streams of a session, and only the events of
the stream that it names are replayed. The session is part of the key, so an id of another session names nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
from collections.abc import Callable
from contextvars import Context
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolwire.protocol.errors import BAD_JSON
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.sealing import encode_base64url
from toolwire.stores import Log, Position, StoreFailed, StoreFull
from toolwire.util.backoff import Backoff
from toolwire.wire.deadlines import in_time

log: logging.Logger = logging.getLogger("toolwire.http")

# The kinds of events: a message, the last message of its stream, an end without a message, or an id without a message.
# The first event of a stream is of the last kind. If the stream answers a POST, it holds a `StreamHeader`.
MESSAGE: Final = b"m"
LAST: Final = b"l"
END: Final = b"e"
PRIMING: Final = b"p"

# A header is written again after so many events, before the log drops the one that was written last.
HEADER_EVERY: Final = 128
MAX_HEADER: Final = 16 * 1024
# A single event over this size would push everything else, or itself, out of the log. A header fits beside it.
MAX_ENTRY: Final = 1024 * 1024 - MAX_HEADER - 64
# More events than any stream keeps.
MAX_ENTRIES: Final = 4096
PAGE: Final = 64
# Streams that have ended and are kept for a client that missed the end.
MAX_RETIRED: Final = 1000
# How many bytes may wait in all for a store that fails. Each event counts for at least what a waiting stream takes.
MAX_WAITING: Final = 16 * 1024 * 1024
LEAST_WAITING: Final = 16 * 1024
LONGEST_PAUSE: Final = 5.0

_STREAM: Final = re.compile(r"([pg][A-Za-z0-9_-]{11})(?:\+([1-9][0-9]{0,4}))?")


class LoggedEvent(Struct):
    """One event as it was logged."""

    position: Position
    kind: bytes
    data: bytes

    @property
    def is_end(self) -> bool:
        return self.kind in (LAST, END)


class StreamHeader(Struct):
    """A stream that answers a POST, as other processes have to know it: who writes it, and the requests to answer."""

    process: str
    requests: list[RequestId]
    lease: str = ""
    """The lease of the process; empty where the stores have no leases."""


class Resume(Struct):
    """The place where a client wants to go on: after `position` of a stream, or from its beginning."""

    stream: str
    position: Position | None
    ahead: int = 0
    """The messages after the position that the client has already. They were sent before they were logged."""

    @property
    def from_post(self) -> bool:
        return self.stream.startswith("p")


class _Answer(Struct):
    """The members of a message that tell an answer from a question or a notification."""

    id: RequestId | None = None
    method: str | UnsetType = UNSET


encode_header: Callable[[object], bytes] = msgspec.json.encode
_decode_header = msgspec.json.Decoder(StreamHeader).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode


def stream_name(kind: Literal["p", "g"], random: Callable[[int], bytes]) -> str:
    """Make the name of a new stream: `p` for one that answers a POST, `g` for one that a GET opened."""
    return kind + encode_base64url(random(8))


def event_id(stream: str, position: Position | None, ahead: int = 0) -> str:
    """Make the id of the event at a position, or of a message that comes so many messages after it."""
    # A store counts in integers or in texts. The tilde marks a text when the id comes back.
    text = "" if position is None else str(position) if isinstance(position, int) else f"~{position}"
    return f"{stream}+{ahead}.{text}" if ahead else f"{stream}.{text}"


def parse_event_id(text: str) -> Resume | None:
    """Read an event id; return None for one that this library never wrote."""
    named, dot, place = text.partition(".")
    found = _STREAM.fullmatch(named)
    if not dot or len(text) > 200 or found is None:
        return None
    stream, ahead = found[1], int(found[2] or 0)
    if not place:
        return Resume(stream, None, ahead)
    if place.startswith("~"):
        return Resume(stream, place[1:], ahead)
    if not place.isascii() or not place.isdigit() or len(place) > 20:
        return None
    return Resume(stream, int(place), ahead)


def up_to_end(events: list[LoggedEvent]) -> list[LoggedEvent]:
    """Return the events up to the first that ends the stream.

    A process that was taken for gone may still write. The order of the log decides which end counts.
    """
    for index, event in enumerate(events):
        if event.is_end:
            return events[: index + 1]
    return events


def header_of(events: list[LoggedEvent]) -> StreamHeader | None:
    """Return the header of a stream; None where the log has none, because the store lost it."""
    for event in reversed(events):
        if event.kind == PRIMING and event.data:
            try:
                return _decode_header(event.data)
            except BAD_JSON:
                return None
    return None


def unanswered(header: StreamHeader, events: list[LoggedEvent]) -> list[RequestId]:
    """Return the requests of a stream whose answers are not among its events."""
    answered = [_decode_answer(event.data) for event in events if event.kind in (MESSAGE, LAST)]
    ids = {answer.id for answer in answered if answer.method is UNSET}
    return [request for request in header.requests if request not in ids]


def answered_request(message: bytes) -> RequestId | None:
    """Return the id of the request that a message answers; None for a question or a notification."""
    answer = _decode_answer(message)
    return answer.id if answer.method is UNSET else None


class EventLog:
    """The log as streams see it."""

    def __init__(self, store: Log) -> None:
        self._log = store
        self._retired: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._deleting: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._hurried = asyncio.Event()

    async def append(self, session: str, stream: str, kind: bytes, data: bytes) -> Position:
        return await self._log.append(_key(session, stream), kind + data)

    async def append_again(
        self, session: str, stream: str, after: Position | None, kind: bytes, data: bytes
    ) -> Position:
        """Append an event that the store failed to take. `after` is the position of the event before it."""
        # The store may have taken it the first time, and only its answer was lost.
        kept = await self.kept(session, stream)
        last = kept[-1] if kept else None
        if last is not None and (last.is_end or _is_taken(last, after, kind, data)):
            return last.position
        return await self.append(session, stream, kind, data)

    async def append_later(
        self, session: str, stream: str, after: Position | None, kind: bytes, data: bytes, within: float
    ) -> Position:
        """Append an event that the store failed to take, as soon as it can; raise its last error after some time."""
        size = max(len(data), LEAST_WAITING)
        if self._waiting + size > MAX_WAITING:
            raise StoreFull("Too much waits for the store already.")
        until = asyncio.get_running_loop().time() + within
        backoff = Backoff(longest=LONGEST_PAUSE)
        self._waiting += size
        try:
            while True:
                await in_time(backoff.after(None), self._hurried.wait())
                try:
                    return await self.append_again(session, stream, after, kind, data)
                except (StoreFailed, StoreFull):
                    if self._hurried.is_set() or asyncio.get_running_loop().time() >= until:
                        raise
        finally:
            self._waiting -= size

    async def read(self, session: str, resume: Resume, limit: int = PAGE) -> list[LoggedEvent]:
        """Return the events after a position; raise `PositionLost` when the log has dropped some of them."""
        found = await self._log.read_after(_key(session, resume.stream), resume.position, limit)
        return [LoggedEvent(position, data[:1], data[1:]) for position, data in found]

    async def kept(self, session: str, stream: str) -> list[LoggedEvent]:
        """Return all events of a stream that the log still has, up to the first that ends the stream."""
        return up_to_end(await self.read(session, Resume(stream, None), MAX_ENTRIES))

    def retire(self, session: str, stream: str, seconds: float) -> None:
        """Delete a stream after some seconds, because nothing more will be appended."""
        loop = asyncio.get_running_loop()
        heapq.heappush(self._retired, (loop.time() + seconds, _key(session, stream)))
        if len(self._retired) > MAX_RETIRED:
            self._forget(heapq.heappop(self._retired)[1])
        self._set_timer()

    def forget(self, session: str, stream: str) -> None:
        """Delete a stream at once."""
        self._forget(_key(session, stream))

    def hurry(self) -> None:
        """Try what waits for the store once more, at once, and then give it up."""
        self._hurried.set()

    async def close(self) -> None:
        """Stop deleting. The store's own limits delete the rest, because a client may ask another process for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deleting:
            await asyncio.wait(self._deleting)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._retired and self._retired[0][0] <= now:
            self._forget(heapq.heappop(self._retired)[1])
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._retired:
            self._timer = asyncio.get_running_loop().call_at(self._retired[0][0], self._sweep, context=Context())

    def _forget(self, key: str) -> None:
        task = asyncio.get_running_loop().create_task(self._delete(key))
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)

    async def _delete(self, key: str) -> None:
        try:
            await self._log.delete(key)
        except Exception:
            log.exception("a stream could not be forgotten")


def _is_taken(last: LoggedEvent, after: Position | None, kind: bytes, data: bytes) -> bool:
    """Return whether the last event is the one that was to be appended after another."""
    return last.position != after and last.kind == kind and last.data == data


def _key(session: str, stream: str) -> str:
    return f"toolwire:events:{session}:{stream}"
