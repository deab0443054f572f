"""The events for every open page, one line of JSON each.

The inspector does not wait for a page that reads too slowly. The events that it missed are dropped, and it has to ask
for a new snapshot.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from toolwire.util.out_queue import OutQueue

MAX_QUEUED: Final = 8 * 1024 * 1024
_LOST: Final = b'{"type":"lost"}\n'
_encode = msgspec.json.Encoder(enc_hook=str).encode


class PageEventReader:
    """The events that one page has not read yet."""

    def __init__(self, page: str = "") -> None:
        """`page` is the name that the page gave itself."""
        self.page = page
        self._lines = OutQueue(limit=MAX_QUEUED)
        self._lost = False
        self._wake = asyncio.Event()
        self._ended = False

    def put(self, line: bytes) -> None:
        if not self._lines.has_room(len(line)):
            self._lines.clear()
            self._lost = True
        self._lines.put(line)
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    async def read(self) -> bytes | None:
        """Wait for events and return them; None after the last one."""
        while not self._lines and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        if not self._lines:
            return None
        lines, lost = self._lines.take_all(), self._lost
        self._lines.remove(len(lines))
        self._lost = False
        return (_LOST if lost else b"") + lines


class Events:
    """The pages that are open, and the way to tell all of them something."""

    def __init__(self) -> None:
        self._readers: set[PageEventReader] = set()
        self._ended = False

    def open(self, page: str = "") -> PageEventReader:
        reader = PageEventReader(page)
        if self._ended:
            reader.end()
        self._readers.add(reader)
        return reader

    def close(self, reader: PageEventReader) -> None:
        self._readers.discard(reader)

    def is_read_by(self, page: str) -> bool:
        """Return whether this page reads the events now."""
        return any(reader.page == page for reader in self._readers)

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
