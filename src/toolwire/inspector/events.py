"""The events that every open page is sent, one line of JSON each.

Nobody waits for a page that reads too slowly. The events that it missed are dropped, and it is told to ask for a new
snapshot.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

MAX_QUEUED: Final = 8 * 1024 * 1024
_LOST: Final = b'{"type":"lost"}\n'
_encode = msgspec.json.Encoder(enc_hook=str).encode


class EventReader:
    """The events that one page has not read yet."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._lost = False
        self._wake = asyncio.Event()
        self._ended = False

    def put(self, line: bytes) -> None:
        if self._size + len(line) > MAX_QUEUED:
            self._lines, self._size, self._lost = [], 0, True
        self._lines.append(line)
        self._size += len(line)
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    async def take(self) -> bytes | None:
        """Wait for events and return them; None after the last one."""
        while not self._lines and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        if not self._lines:
            return None
        lines, lost = self._lines, self._lost
        self._lines, self._size, self._lost = [], 0, False
        return (_LOST if lost else b"") + b"".join(lines)


class Events:
    """The pages that are open, and the way to tell all of them something."""

    def __init__(self) -> None:
        self._readers: set[EventReader] = set()
        self._ended = False

    def open(self) -> EventReader:
        reader = EventReader()
        if self._ended:
            reader.end()
        self._readers.add(reader)
        return reader

    def close(self, reader: EventReader) -> None:
        self._readers.discard(reader)

    def tell(self, type: str, **members: Any) -> None:
        if self._readers:
            line = _encode({"type": type, **members}) + b"\n"
            for reader in self._readers:
                reader.put(line)

    def end(self) -> None:
        """End the stream of every page, also of those that open later."""
        self._ended = True
        for reader in self._readers:
            reader.end()
