"""Incremental codecs between a byte stream and messages: newline-terminated lines, and server-sent events.

Both are pure: bytes in, messages out, in any chunking, with bounded memory.
"""

from __future__ import annotations

import codecs
from typing import Final

import msgspec

# The limits of a body or a line, and of what a client takes (design: `Limits`).
LINE_LIMIT: Final = 4 * 1024 * 1024
EVENT_LIMIT: Final = 64 * 1024 * 1024


class Oversized(bytes):
    """Stands for a line that was longer than the limit; its content is gone.

    It is an empty message, so an owner that does not look for it answers with a parse error like for any other text
    that is not JSON.
    """

    __slots__ = ()


class LineDecoder:
    """Splits a byte stream into lines (2026-07-28 basic/transports/stdio: one message a line, no newline inside).

    A carriage return before the newline and lines of white space are forgiven.
    """

    __slots__ = ("_discarding", "_limit", "_unfinished")

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        # Grows in place: adding bytes objects at every chunk would be quadratic.
        self._unfinished = bytearray()
        self._discarding = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; give the lines that they complete, without newline, blank ones left out."""
        if b"\n" not in chunk:
            return self._extend(chunk)
        pieces = chunk.split(b"\n")
        rest = pieces.pop()
        messages: list[bytes] = []
        if self._discarding:
            # The newline that ends the oversized line; it was reported when it passed the limit.
            self._discarding = False
            del pieces[0]
        elif self._unfinished:
            self._unfinished += pieces[0]
            pieces[0] = bytes(self._unfinished)
            self._unfinished.clear()
        limit = self._limit
        for line in pieces:
            if len(line) > limit and len(line.removesuffix(b"\r")) > limit:
                messages.append(Oversized())
            elif line:
                if line[-1] == 13:  # carriage return
                    line = line[:-1]
                    if not line:
                        continue
                if line[0] <= 32 and not line.strip():
                    continue
                messages.append(line)
        if rest:
            messages += self._extend(rest)
        return messages

    def finish(self) -> list[bytes]:
        """The stream has ended: what follows the last newline is a line too."""
        return self.feed(b"\n") if self._unfinished else []

    def _extend(self, piece: bytes) -> list[bytes]:
        if self._discarding or not piece:
            return []
        self._unfinished += piece
        size = len(self._unfinished)
        # One byte more than the limit may still turn out to be the carriage return.
        if size <= self._limit or (size == self._limit + 1 and piece[-1] == 13):
            return []
        self._unfinished.clear()
        self._discarding = True
        return [Oversized()]


class Event(msgspec.Struct, frozen=True):
    """One server-sent event as dispatched: `id` is the last event id seen so far on the stream."""

    data: str
    event: str = "message"
    id: str = ""
    retry: int | None = None


class OversizedEvent(msgspec.Struct, frozen=True):
    """Stands for an event that was longer than the limit; its content is gone."""

    id: str = ""


class SSEDecoder:
    """Parses an event stream by the rules of the HTML standard, section 9.2.6.

    `last_event_id` and `retry` hold what a reconnecting client needs, also when they came in a block without data.
    """

    __slots__ = ("_data", "_event", "_id", "_limit", "_lines", "_oversized", "_start", "last_event_id", "retry")

    def __init__(self, limit: int = EVENT_LIMIT, last_event_id: str = "") -> None:
        self._limit = limit
        self._lines = _AnyNewline(limit)
        self._start = True
        self._data = bytearray()
        self._event = ""
        self._id = last_event_id
        self._oversized = False
        self.last_event_id: str = last_event_id
        self.retry: int | None = None

    def feed(self, chunk: bytes) -> list[Event | OversizedEvent]:
        """Take the next bytes; give the events that they complete. An unfinished last event is never given."""
        events: list[Event | OversizedEvent] = []
        for line in self._lines.feed(chunk):
            if self._start:
                self._start = False
                line = line.removeprefix(codecs.BOM_UTF8) if line is not None else None
            if line is None:
                self._oversized = True
            elif line:
                self._field(line)
            else:
                self._dispatch(events)
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            if len(self._data) + len(value) > self._limit:
                self._oversized = True
                self._data.clear()
            if not self._oversized:
                self._data += value + b"\n"
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= 18:
            self.retry = int(value)
        # Everything else, comments (an empty name) included, is ignored.

    def _dispatch(self, events: list[Event | OversizedEvent]) -> None:
        self.last_event_id = self._id
        if self._oversized:
            events.append(OversizedEvent(self._id))
        elif self._data:
            # A bare `data:` is an event with empty data; only a block without any data line is none.
            data = self._data[:-1].decode("utf-8", "replace")
            events.append(Event(data, self._event or "message", self._id, self.retry))
        self._data.clear()
        self._event = ""
        self._oversized = False


class _AnyNewline:
    """Lines that end in CR, LF or CRLF, also when a chunk ends between the two; None for one over the limit."""

    __slots__ = ("_after_cr", "_discarding", "_limit", "_unfinished")

    def __init__(self, limit: int) -> None:
        # Room for the field name in front of a value of exactly the limit.
        self._limit = limit + len(b"data: ") + len(codecs.BOM_UTF8)
        self._unfinished = bytearray()
        self._after_cr = False
        self._discarding = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        if self._after_cr and chunk[:1] == b"\n":  # the second half of a CRLF
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *complete, rest = chunk.split(b"\n")
        lines = [self._complete(piece) for piece in complete]
        self._extend(rest)
        return lines

    def _complete(self, piece: bytes) -> bytes | None:
        if not (self._unfinished or self._discarding):
            return piece if len(piece) <= self._limit else None
        self._extend(piece)
        line = None if self._discarding else bytes(self._unfinished)
        self._unfinished.clear()
        self._discarding = False
        return line

    def _extend(self, piece: bytes) -> None:
        if not self._discarding:
            self._unfinished += piece
            if len(self._unfinished) > self._limit:
                self._unfinished.clear()
                self._discarding = True


def encode_event(data: bytes, *, event: str | None = None, id: str | None = None, retry: int | None = None) -> bytes:
    """One event, ready to be written. `data` may hold newlines: each of its lines gets a field of its own."""
    lines: list[bytes] = []
    if event is not None:
        lines.append(b"event: " + _one_line("event", event))
    if id is not None:
        lines.append(b"id: " + _one_line("id", id))
    if retry is not None:
        lines.append(b"retry: %d" % retry)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\n" in data:
        lines += [b"data: " + line for line in data.split(b"\n")]
    else:
        lines.append(b"data: " + data)
    return b"\n".join(lines) + b"\n\n"


def encode_comment(text: str = "") -> bytes:
    """A comment: keeps a quiet stream alive, and no reader sees it."""
    return b": " + _one_line("comment", text) + b"\n\n"


def _one_line(field: str, value: str) -> bytes:
    if "\n" in value or "\r" in value or (field == "id" and "\0" in value):
        raise ValueError(f"the {field} of an event may not contain a line break or a null character")
    return value.encode()
