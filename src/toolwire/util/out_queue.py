"""Outgoing queues that are bounded in bytes.

```
size <= high      everything is queued
size >  high      congested: optional notifications are dropped, producers wait in `drain`
size >  limit     full: no notification is queued; the call that sends them ends with an error
```

Answers and questions are always queued: each has a size limit of its own, and so does their number.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

log: logging.Logger = logging.getLogger("toolwire.wire")

#: Above this many bytes a reader is behind: producers wait, and optional notifications are dropped.
CONGESTED: Final = 1024 * 1024
#: Above this many bytes no notification is queued.
FULL: Final = 4 * CONGESTED


class OutBound:
    """Counts the bytes that wait for one reader, against two bounds.

    The bytes themselves are kept by its user.
    """

    __slots__ = ("_progress", "closed", "dropped", "high", "limit", "size")

    def __init__(self, high: int = CONGESTED, limit: int = FULL) -> None:
        self.high: int = high
        self.limit: int = limit
        self.size: int = 0
        self.dropped: int = 0
        """The number of notifications that were not queued."""
        self.closed: bool = False
        self._progress: asyncio.Event | None = None

    @property
    def congested(self) -> bool:
        return self.size > self.high

    @property
    def full(self) -> bool:
        return self.size > self.limit

    def admits(self, optional: bool) -> bool:
        """Return whether a notification may be queued; count it as dropped if not."""
        if self.size <= (self.high if optional else self.limit):
            return True
        if not self.dropped:
            log.debug("notifications are dropped: %d bytes wait for a reader that is behind", self.size)
        self.dropped += 1
        return False

    def has_room(self, size: int) -> bool:
        """Return whether so many more bytes stay within the limit."""
        return self.size + size <= self.limit

    def add(self, size: int) -> None:
        self.size += size

    def remove(self, size: int) -> None:
        """Count bytes that were sent, and wake the producers that wait."""
        self.size -= size
        self.wake()

    def wake(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def close(self) -> None:
        """Let all waiting producers continue, because nothing more is sent."""
        self.closed = True
        self.wake()

    async def drain(self) -> None:
        """Wait until the reader has caught up, or nothing more is sent."""
        while self.congested and not self.closed:
            await self.progress()

    async def flush(self) -> None:
        """Wait until everything is sent, or nothing more is sent."""
        while self.size and not self.closed:
            await self.progress()

    async def progress(self) -> None:
        """Wait until bytes are sent."""
        self._progress = self._progress or asyncio.Event()
        await self._progress.wait()


class OutQueue(OutBound):
    """The messages that wait for one reader, in their order."""

    __slots__ = ("messages",)
    size: int

    def __init__(self, high: int = CONGESTED, limit: int = FULL) -> None:
        super().__init__(high, limit)
        self.messages: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self.messages)

    def put(self, message: bytes) -> None:
        self.messages.append(message)
        self.size += len(message)

    def pop(self) -> bytes:
        """Return the oldest message, which counts no more."""
        message = self.messages.popleft()
        self.remove(len(message))
        return message

    def take_all(self) -> bytes:
        """Return all messages as one text. They count until `remove` says that they were sent."""
        data = b"".join(self.messages)
        self.messages.clear()
        return data

    def clear(self) -> None:
        """Drop all messages, and let producers continue."""
        self.messages.clear()
        self.size = 0
        self.wake()
