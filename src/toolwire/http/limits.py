"""What HTTP requests, sessions and streams may cost."""

from __future__ import annotations

from msgspec import Struct


class HttpLimits(Struct, frozen=True, kw_only=True):
    """The limits of one HTTP application."""

    body: int = 4 * 1024 * 1024
    upload: float = 30.0
    """Seconds in which a body must have arrived."""
    uploads: int = 256 * 1024 * 1024
    """Bytes of bodies that did not arrive in one piece, and are being received or worked on in this process."""
    share: float = 0.25
    """How much of what all callers share one caller may have."""
    depth: int = 128
    batch: int = 100
    """Messages in a batch (2025-03-26)."""
    result: int = 16 * 1024 * 1024
    in_flight: int = 256
    """Requests of one session that run at once in this process."""
    exchanges: int = 1000
    """Requests that run at once in this process, not counting those that listen."""
    sessions: int = 10_000
    """Legacy sessions that this process may have opened and that are in use."""
    session_idle: float = 30 * 60.0
    """Seconds after which a session that nobody uses is over."""
    session_age: float = 12 * 3600.0
    """Seconds after which every session is over."""
    streams: int = 8
    """Streams that one session may have open by GET in this process."""
    drain: float = 5.0
    """Seconds that calls in flight get to finish when the application stops."""
