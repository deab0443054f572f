"""The records of tasks in the stores, and the bell that rings when one has changed.

A record is the whole truth about its task. A process that changes one sends its key on the bus, and every process that
waits for the task reads the record again. The key begins with the owner, so that a task of another owner is not found
rather than refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.tasks import Record
from toolwire.stores import StoreFull, Stores

log: logging.Logger = logging.getLogger("toolwire.tasks")

T = TypeVar("T")
_ATTEMPTS: Final = 64
#: Records that are read at once.
AT_ONCE: Final = 200


class NoRoom(ProtocolError):
    """The store is full."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "There is no room for this task now; try again later")


class Records:
    """All tasks of one server."""

    def __init__(
        self,
        server: str,
        stores: Stores,
        longest: float,
        heard: Callable[[str], None],
        lost: Callable[[], None],
    ) -> None:
        """Keep records in `stores`; `longest` is how many seconds may pass between two changes of a task that runs."""
        name = digest(server)[:16]
        self.prefix: str = f"toolwire:task:{name}:"
        self._topic = f"toolwire:tasks:{name}"
        self._stores = stores
        self._longest = longest
        self._heard = heard
        self._lost = lost
        # What the running loop hears of changes, and the events of those who wait there for a change of a record.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}

    # --- one record ---

    def key(self, owner: str, identifier: str) -> str:
        return f"{self.prefix}{owner}:{identifier}"

    def new_id(self, now: float) -> str:
        # The time comes first, so that the order of the keys is that of their making; the rest nobody can guess.
        return f"{int(now * 1000):012x}-{secrets.token_urlsafe(18)}"

    async def create(self, key: str, record: Record) -> None:
        """TSK-7: when this returns, everybody can find the task."""
        self.listen()
        await _reached(self._stores.kv.put(key, rules.encode(record), ttl=self._kept(record), if_absent=True))

    def _kept(self, record: Record) -> float:
        """Return how long the store keeps a record from this change on: one that runs, for longer than it may run."""
        return record.ttl_ms / 1000 + (0.0 if record.over else self._longest)

    async def find(self, key: str) -> Record | None:
        data = await _reached(self._stores.kv.get(key))
        return None if data is None else rules.decode(data)

    async def change(self, key: str, edit: Callable[[Record], bool]) -> tuple[Record | None, bool]:
        """Apply an edit to the record as it is now, whatever others do to it meanwhile; the record, and whether it
        changed. None for a task that is no longer there."""
        for _ in range(_ATTEMPTS):
            data = await _reached(self._stores.kv.get(key))
            if data is None:
                return None, False
            record = rules.decode(data)
            if not edit(record):
                return record, False
            record.updated = max(record.updated, time.time())
            changed = self._stores.kv.put(key, rules.encode(record), ttl=self._kept(record), expect=data)
            if await _reached(changed):
                await self._ring(key)
                return record, True
        raise ProtocolError(INTERNAL_ERROR, "Too many changes at once; try again")

    # --- many of them ---

    async def ids(self, owner: str, after: str = "", limit: int = AT_ONCE) -> list[str]:
        """Return the ids of an owner's tasks after one of them, in the order of their making."""
        start = self.key(owner, "")
        found = await _reached(self._stores.kv.keys(start, after=f"{start}{after}", limit=limit))
        return [key.removeprefix(start) for key in found]

    async def each(self) -> list[tuple[str, Record]]:
        """Return every task that is not over, of all owners."""
        found: list[tuple[str, Record]] = []
        after = ""
        while keys := await _reached(self._stores.kv.keys(self.prefix, after=after, limit=AT_ONCE)):
            values = await asyncio.gather(*map(self._readable, keys))
            found += [(key, value) for key, value in zip(keys, values, strict=True) if value and not value.over]
            after = keys[-1]
        return found

    async def _readable(self, key: str) -> Record | None:
        try:
            return await self.find(key)
        except ProtocolError:
            log.warning("the record of a task cannot be read: %s", key)
            return None

    # --- the bell ---

    def listen(self) -> None:
        """Hear of changes from now on, on the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self.forget_loop()
            self._loop = loop
            self._unsubscribe = self._stores.bus.subscribe(self._topic, self._rung, on_lost=self._missed)

    def leave(self) -> None:
        """Hear nothing any more. Those who wait look once more."""
        self._ring_all()
        self.forget_loop()

    def forget_loop(self) -> None:
        """Hear nothing any more, on a loop that has ended."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._loop = self._unsubscribe = None
        self._waiting = {}

    @contextmanager
    def watch(self, key: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the record may have changed."""
        self.listen()
        waiting = self._waiting
        changed = asyncio.Event()
        waiting.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            waiting[key].discard(changed)
            if not waiting[key]:
                del waiting[key]

    async def _ring(self, key: str) -> None:
        try:
            await self._stores.bus.publish(self._topic, key.encode())
        except ToolwireError:
            log.warning("the change of a task could not be announced", exc_info=True)
            self.wake(key)
            self._heard(key)

    def _rung(self, message: bytes) -> None:
        key = message.decode("utf-8", "replace")
        self.wake(key)
        self._heard(key)

    def wake(self, key: str) -> None:
        """Have those who watch a record look at it again."""
        for changed in self._waiting.get(key, ()):
            changed.set()

    def _missed(self) -> None:
        self._ring_all()
        self._lost()

    def _ring_all(self) -> None:
        for key in self._waiting:
            self.wake(key)


async def _reached(operation: Awaitable[T]) -> T:
    """Return the answer of a store; its troubles go to the log, and to no client."""
    try:
        return await operation
    except StoreFull:
        raise NoRoom from None
    except ProtocolError:
        raise
    except ToolwireError as error:
        log.error("the store of the tasks failed: %s", error)
        raise ProtocolError(INTERNAL_ERROR, "The tasks cannot be reached now; try again later") from None
