"""A cache of verified tokens by their digest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from toolwire.auth.principal import Principal
from toolwire.util.expiring import Expiring

#: A revoked token may be accepted for at most this many seconds longer.
LONGEST: Final = 60.0
#: Tokens that are kept; the oldest goes when there are more.
CAPACITY: Final = 4096


class Remembered:
    """Principals by the digest of their token; None for a token that was refused.

    Safe to use from several threads, each of which may run a loop of its own.
    """

    def __init__(
        self, seconds: float = LONGEST, *, capacity: int = CAPACITY, clock: Callable[[], float] = time.time
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._known: Expiring[bytes, tuple[Principal | None]] = Expiring(capacity, clock=clock)
        self._lock = threading.Lock()

    def get(self, token: str) -> tuple[bytes, bool, Principal | None]:
        """Return the digest of a token, whether it is known, and its principal."""
        digest = sha256(token.encode()).digest()
        known = self._known.get(digest)
        return (digest, False, None) if known is None else (digest, True, known[0])

    def put(self, digest: bytes, principal: Principal | None, until: float | None = None) -> None:
        """Cache a principal for the configured time, but not beyond `until`.

        `until` is the end of the token itself.
        """
        seconds = self._seconds if until is None else min(self._seconds, until - self._clock())
        with self._lock:
            self._known.put(digest, (principal,), seconds)

    def __len__(self) -> int:
        return len(self._known)
