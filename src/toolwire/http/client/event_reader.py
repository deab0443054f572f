"""A reader for the events of a stream, with a limit for bytes that contain no event."""

from __future__ import annotations

from toolwire.http1.response import TooLarge
from toolwire.protocol.framing import EVENT_LIMIT, Event, OversizedEvent, SSEDecoder


class EventReader(SSEDecoder):
    """A decoder that raises `TooLarge` when more bytes arrive without a blank line than one event may have."""

    __slots__ = ("_unfinished_bytes",)

    def __init__(self, limit: int = EVENT_LIMIT, last_event_id: str = "") -> None:
        super().__init__(limit, last_event_id)
        self._unfinished_bytes = 0

    def feed(self, chunk: bytes) -> list[Event | OversizedEvent]:
        self._unfinished_bytes += len(chunk)
        events = super().feed(chunk)
        if self._unfinished_bytes > self._limit:
            raise TooLarge(f"An event of the stream has more than {self._limit} bytes")
        return events

    def _dispatch(self, events: list[Event | OversizedEvent]) -> None:
        # A blank line ends comments, too: a stream may consist of them for weeks.
        self._unfinished_bytes = 0
        super()._dispatch(events)
