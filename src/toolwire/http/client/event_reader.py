"""A reader for the events of a stream, with a limit for bytes that contain no event."""

from __future__ import annotations

from toolwire.http1.response import TooLarge
from toolwire.protocol.framing import EVENT_LIMIT, Event, OversizedEvent, SSEDecoder


class EventReader(SSEDecoder):
    """A decoder that raises `TooLarge` when more bytes arrive without an event than one event may have."""

    __slots__ = ("_without_event",)

    def __init__(self, limit: int = EVENT_LIMIT, last_event_id: str = "") -> None:
        super().__init__(limit, last_event_id)
        self._without_event = 0

    def feed(self, chunk: bytes) -> list[Event | OversizedEvent]:
        events = super().feed(chunk)
        self._without_event = 0 if events else self._without_event + len(chunk)
        if self._without_event > self._limit:
            raise TooLarge(f"An event of the stream has more than {self._limit} bytes")
        return events
