"""The events of a session's streams in the `Log`, under ids that name their stream.

2025-03-26 basic/transports, resumability: an event id is unique among the streams of a session, and what is replayed
belongs to the stream it names. The session is part of the key, so an id of another session names nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from toolwire.backoff import Backoff
from toolwire.protocol.sealing import encode_base64url
from toolwire.stores import Log, Position, StoreFailed, StoreFull
from toolwire.wire.deadlines import in_time

log: logging.Logger = logging.getLogger("toolwire.http")

# What an entry is: a message, the last message of its stream, an end without a message, or an id with nothing to say.
MESSAGE: Final = b"m"
LAST: Final = b"l"
END: Final = b"e"
PRIMING: Final = b"p"

# A single event over this would push everything else, and itself, out of the log.
MAX_ENTRY: Final = 1024 * 1024 - 64
# More than any stream keeps.
MAX_ENTRIES: Final = 4096
PAGE: Final = 64
# Streams that came to their end and are kept for a client that missed it.
MAX_RETIRED: Final = 1000
# What may wait, all together, for a store that fails; each entry counts for at least what a waiting stream takes.
MAX_WAITING: Final = 16 * 1024 * 1024
LEAST_WAITING: Final = 16 * 1024
LONGEST_PAUSE: Final = 5.0

_STREAM: Final = re.compile(r"[pg][A-Za-z0-9_-]{11}")


class LoggedEvent(Struct):
    """One event as it was logged."""

    position: Position
    kind: bytes
    data: bytes


class Resume(Struct):
    """Where a client wants to go on: after `position` of a stream, or from its beginning."""

    stream: str
    position: Position | None

    @property
    def from_post(self) -> bool:
        return self.stream.startswith("p")


def stream_name(kind: Literal["p", "g"], random: Callable[[int], bytes]) -> str:
    """A new stream: `p` for one that answers a POST, `g` for one that a GET opened."""
    return kind + encode_base64url(random(8))


def event_id(stream: str, position: Position | None) -> str:
    # Stores count in integers or in texts; the tilde tells which when the id comes back.
    text = "" if position is None else str(position) if isinstance(position, int) else f"~{position}"
    return f"{stream}.{text}"


def parse_event_id(text: str) -> Resume | None:
    """None for what was never an event id of ours."""
    stream, dot, place = text.partition(".")
    if not dot or len(text) > 200 or not _STREAM.fullmatch(stream):
        return None
    if not place:
        return Resume(stream, None)
    if place.startswith("~"):
        return Resume(stream, place[1:])
    if not place.isascii() or not place.isdigit() or len(place) > 20:
        return None
    return Resume(stream, int(place))


class EventLog:
    """The log as streams see it."""

    def __init__(self, store: Log) -> None:
        self._log = store
        self._retired: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._deleting: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._hurried = asyncio.Event()

    async def append(self, session: str, stream: str, kind: bytes, data: bytes) -> Position:
        return await self._log.append(_key(session, stream), kind + data)

    async def end_later(self, session: str, stream: str, kind: bytes, data: bytes, within: float) -> None:
        """Append the end that the store has failed to take, when it takes it again; raises what it says at last."""
        size = max(len(data), LEAST_WAITING)
        if self._waiting + size > MAX_WAITING:
            raise StoreFull("Too much waits for the store already.")
        until = asyncio.get_running_loop().time() + within
        backoff = Backoff(longest=LONGEST_PAUSE)
        self._waiting += size
        try:
            while True:
                await in_time(backoff.after(None), self._hurried.wait())
                try:
                    # It may have been taken, and only the answer of the store been lost.
                    kept = await self._kept(session, stream)
                    if not kept or kept[-1].kind not in (LAST, END):
                        await self.append(session, stream, kind, data)
                    return
                except StoreFailed:
                    if self._hurried.is_set() or asyncio.get_running_loop().time() >= until:
                        raise
        finally:
            self._waiting -= size

    async def read(self, session: str, resume: Resume, limit: int = PAGE) -> list[LoggedEvent]:
        """What follows; raises `PositionLost`."""
        found = await self._log.read_after(_key(session, resume.stream), resume.position, limit)
        return [LoggedEvent(position, data[:1], data[1:]) for position, data in found]

    async def is_over(self, session: str, resume: Resume) -> bool:
        """Return whether this is the position of a stream's last message, after which nothing ever comes."""
        kept = await self._kept(session, resume.stream)
        return bool(kept) and kept[-1].kind == LAST and kept[-1].position == resume.position

    async def _kept(self, session: str, stream: str) -> list[LoggedEvent]:
        return await self.read(session, Resume(stream, None), MAX_ENTRIES)

    def retire(self, session: str, stream: str, seconds: float) -> None:
        """Nothing more will be appended: forget the stream in a while."""
        loop = asyncio.get_running_loop()
        heapq.heappush(self._retired, (loop.time() + seconds, _key(session, stream)))
        if len(self._retired) > MAX_RETIRED:
            self._forget(heapq.heappop(self._retired)[1])
        self._set_timer()

    def forget(self, session: str, stream: str) -> None:
        """Forget the stream at once."""
        self._forget(_key(session, stream))

    def hurry(self) -> None:
        """What waits for the store is tried once more, at once, and then given up."""
        self._hurried.set()

    async def close(self) -> None:
        """Leave what is still kept to the store's own limits: a client may ask another process for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deleting:
            await asyncio.wait(self._deleting)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._retired and self._retired[0][0] <= now:
            self._forget(heapq.heappop(self._retired)[1])
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._retired:
            self._timer = asyncio.get_running_loop().call_at(self._retired[0][0], self._sweep)

    def _forget(self, key: str) -> None:
        task = asyncio.get_running_loop().create_task(self._delete(key))
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)

    async def _delete(self, key: str) -> None:
        try:
            await self._log.delete(key)
        except Exception:
            log.exception("a stream could not be forgotten")


def _key(session: str, stream: str) -> str:
    return f"toolwire:events:{session}:{stream}"
