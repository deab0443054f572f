"""Answers that are streams of items: server-sent events, JSON lines, JSON text sequences.

Each item is progress of the call. The result is the list of the items, up to a number, a size and a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from toolwire.http1.response import HttpResponse
from toolwire.openapi.answer.large_answers import AnswerLimits
from toolwire.printable import printable
from toolwire.protocol.framing import Event, SSEDecoder
from toolwire.server.call import Call

#: How many items are collected, where the settings of the operation say nothing.
MAX_ITEMS: Final = 1_000
# How much of an item is the message of a progress.
_SHOWN: Final = 200
# What some APIs write at the end of their events.
_END: Final = "[DONE]"


class ItemDecoder(Protocol):
    """A reader of one kind of stream."""

    def feed(self, chunk: bytes) -> list[Any]:
        """Take the next bytes; return the items that they complete."""

    def end(self) -> list[Any]:
        """Return what the end of the stream completes."""


class _Events:
    """Server-sent events.

    The data of an event is JSON where it can be read as such.
    """

    def __init__(self, limit: int, whole_events: bool) -> None:
        """`whole_events`: an item is an event with its fields (`itemSchema` of OpenAPI 3.2)."""
        self._decoder = SSEDecoder(limit)
        self._whole = whole_events

    def feed(self, chunk: bytes) -> list[Any]:
        events = [each for each in self._decoder.feed(chunk) if isinstance(each, Event)]
        if self._whole:
            return [_fields(each) for each in events]
        return [_value(each.data.encode(errors="replace")) for each in events if each.data and each.data != _END]

    def end(self) -> list[Any]:
        return []  # HTML 9.2.6: an event without its blank line is thrown away.


def _fields(event: Event) -> dict[str, Any]:
    made: dict[str, Any] = {"data": event.data}
    if event.event != "message":
        made["event"] = event.event
    if event.id:
        made["id"] = event.id
    if event.retry is not None:
        made["retry"] = event.retry
    return made


class _Separated:
    """JSON texts with one byte before or behind each of them."""

    def __init__(self, separator: bytes) -> None:
        self._separator = separator
        # A text may come in many chunks, so they are joined once.
        self._unfinished: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Any]:
        first, *others = chunk.split(self._separator)
        self._unfinished.append(first)
        if not others:
            return []
        whole = [b"".join(self._unfinished), *others[:-1]]
        self._unfinished = others[-1:]
        return [_value(text) for each in whole if (text := each.strip())]

    def end(self) -> list[Any]:
        text = b"".join(self._unfinished).strip()
        return [_value(text)] if text else []


def _value(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode(errors="replace")


def _decoder(media_type: str, limit: int, whole_events: bool) -> ItemDecoder:
    if media_type == "text/event-stream":
        return _Events(limit, whole_events)
    # RFC 7464: in a sequence, each text has a record separator before it.
    return _Separated(b"\x1e" if media_type.endswith("json-seq") else b"\n")


class StreamedItems(NamedTuple):
    """The items of a stream."""

    values: list[Any]
    size: int
    """How many bytes were read."""
    stopped: str | None
    """Why the reading stopped before the end; None where it did not."""


async def read_items(
    call: Call,
    response: HttpResponse,
    limits: AnswerLimits,
    *,
    max_items: int | None = None,
    whole_events: bool = False,
) -> StreamedItems:
    """Read a stream and report each item as progress.

    Returns all items up to the limits.
    """
    decoder = _decoder(response.media_type, limits.max_bytes, whole_events)
    most = MAX_ITEMS if max_items is None else max_items
    values: list[Any] = []
    size = 0
    stopped: str | None = None
    async for chunk in _in_time(call, response):
        if chunk is None:
            stopped = "its time was over"
            break
        size += len(chunk)
        for value in decoder.feed(chunk):
            _report(call, values, value)
            if len(values) >= most:
                break
        if len(values) >= most:
            stopped = f"it has {most:,} items or more"
            break
        if size > limits.max_bytes:
            stopped = f"it has more than {limits.max_bytes:,} bytes"
            break
    else:
        for value in decoder.end():
            _report(call, values, value)
    response.close()
    return StreamedItems(values, size, stopped)


def _report(call: Call, values: list[Any], value: Any) -> None:
    values.append(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode(errors="replace")
    call.tell_progress(len(values), None, printable(text[:_SHOWN]))


async def _in_time(call: Call, response: HttpResponse) -> AsyncIterator[bytes | None]:
    """Yield the chunks of a body, and None when the call's time is nearly over."""
    chunks = response.chunks()
    following: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(chunks, None))
            # The time of a call grows when it becomes a task, so it is looked at again and again.
            done, _ = await asyncio.wait({following}, timeout=call.spare_time)
            if done:
                chunk, following = following.result(), None
                if chunk is None:
                    return
                yield chunk
            elif call.spare_time == 0.0:
                yield None
                return
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
