"""What happens, told to every page that is open: one line of JSON an event.

A page that reads too slowly is not waited for. What it missed is dropped, and it is told to ask for everything anew.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

MAX_QUEUED: Final = 8 * 1024 * 1024
_LOST: Final = b'{"type":"lost"}\n'
_encode = msgspec.json.Encoder(enc_hook=str).encode


class EventReader:
    """One page."""

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
        """Everything that has happened since; None when nothing more will."""
        while not self._lines and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        if not self._lines:
            return None
        lines, lost = self._lines, self._lost
        self._lines, self._size, self._lost = [], 0, False
        return (_LOST if lost else b"") + b"".join(lines)


class Events:
    """Who reads, and what they are told."""

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
        """Every page comes to its end, now and those that open later."""
        self._ended = True
        for reader in self._readers:
            reader.end()
