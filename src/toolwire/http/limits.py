"""The limits of HTTP requests, sessions and streams."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from toolwire.util.numbers import BYTES, COUNT, COUNT_OR_NONE, SECONDS, SECONDS_OR_NONE, Allowed, check_fields


class HttpLimits(Struct, frozen=True, kw_only=True):
    """The limits of one HTTP application.

    A server sets them from its own `Limits`. They are written again because this layer lies below that of the server;
    a test compares their defaults.
    """

    body: int = 4 * 1024 * 1024
    upload: float = 30.0
    """Seconds in which a body must have arrived."""
    uploads: int = 256 * 1024 * 1024
    """Bytes of bodies that did not arrive in one piece, from their arrival to the answer, in this process."""
    share: float = 0.25
    """The part of every shared limit that one caller may use."""
    depth: int = 128
    batch: int = 100
    """Messages in a batch (2025-03-26)."""
    result: int = 16 * 1024 * 1024
    in_flight: int = 256
    """Requests of one session that run at once in this process."""
    exchanges: int = 1000
    """Requests that run at once in this process, not counting those that listen."""
    sessions: int = 10_000
    """Legacy sessions in use that this process has opened."""
    session_idle: float = 30 * 60.0
    """Seconds without use after which a session is over."""
    session_age: float = 12 * 3600.0
    """Seconds after which every session is over."""
    streams: int = 8
    """Streams of its own that one session may have open by GET in this process. Resumed answers are not counted."""
    drain: float = 5.0
    """Seconds that running calls get to finish when the application stops."""

    def __post_init__(self) -> None:
        check_fields("HttpLimits", _ALLOWED, self)


_ALLOWED: Final[dict[str, Allowed]] = {
    **dict.fromkeys(("body", "uploads", "result"), BYTES),
    **dict.fromkeys(("depth", "in_flight", "exchanges", "sessions"), COUNT),
    **dict.fromkeys(("batch", "streams"), COUNT_OR_NONE),
    **dict.fromkeys(("upload", "session_idle", "session_age"), SECONDS),
    "drain": SECONDS_OR_NONE,
    "share": Allowed(0, 1, is_above=True),
}
