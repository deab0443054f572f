"""`Cache`: the hint that says how long an answer may be kept."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from toolwire.protocol.errors import ServerError


class Cache(Struct, frozen=True):
    """A cache hint: how long, and by whom, an answer may be kept (2026-07-28 server/utilities/caching)."""

    ttl_ms: int = 0
    """How many milliseconds an answer may be kept."""
    scope: Literal["public", "private"] = "private"
    """Whether everybody may keep it, or its caller alone."""

    def __post_init__(self) -> None:
        if type(self.ttl_ms) is not int or self.ttl_ms < 0:
            raise ServerError(f"A cache hint has a whole number of milliseconds, 0 or more, not {self.ttl_ms!r}")
        if self.scope not in ("public", "private"):
            raise ServerError(f"The scope of a cache hint is 'public' or 'private', not {self.scope!r}")
