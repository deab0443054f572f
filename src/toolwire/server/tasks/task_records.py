"""The records of tasks in the stores, and the bell that rings when one has changed.

A record is the whole truth about its task. Whoever changes one says so on the bus, with nothing but its key; whoever
cares, in whichever process, reads the record again. The key begins with the owner, so that a task of somebody else is
not found rather than refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.tasks import Record
from toolwire.stores import StoreFull, Stores
from toolwire.wire.threads import call_on

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
        self._ears: dict[asyncio.AbstractEventLoop, _Ear] = {}

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
        """Ids of an owner's tasks after one of them, in the order of their making."""
        start = self.key(owner, "")
        found = await _reached(self._stores.kv.keys(start, after=f"{start}{after}", limit=limit))
        return [key.removeprefix(start) for key in found]

    async def each(self) -> list[tuple[str, Record]]:
        """Every task that is not over, whoever owns it."""
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

    def listen(self) -> _Ear:
        """Hear of changes from now on, on this loop; each that the server is used on has an ear of its own."""
        loop = asyncio.get_running_loop()
        ear = self._ears.get(loop)
        if ear is None:
            for ended in [each for each in tuple(self._ears) if each.is_closed()]:
                self._leave(ended)
            ear = _Ear()
            rung, missed = partial(self._rung, ear), partial(self._missed, ear)
            ear.leave = self._stores.bus.subscribe(self._topic, rung, on_lost=missed)
            self._ears[loop] = ear
        return ear

    def leave_loop(self) -> None:
        """Hear nothing any more on this loop; who waits here looks once more."""
        self._leave(asyncio.get_running_loop())

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        ear = self._ears.pop(loop, None)
        if ear is not None:
            ear.leave()
            call_on(loop, ear.ring_all)

    @contextmanager
    def watch(self, key: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the record may have changed."""
        ear = self.listen()
        bell = ear.add(key)
        try:
            yield bell
        finally:
            ear.remove(key, bell)

    async def _ring(self, key: str) -> None:
        try:
            await self._stores.bus.publish(self._topic, key.encode())
        except ToolwireError:
            log.warning("the change of a task could not be announced", exc_info=True)
            self.wake(key)
            self._heard(key)

    def _rung(self, ear: _Ear, message: bytes) -> None:
        key = message.decode("utf-8", "replace")
        ear.ring(key)
        self._heard(key)

    def wake(self, key: str) -> None:
        """Have those who watch a record, on whichever loop, look at it again."""
        for loop, ear in tuple(self._ears.items()):
            call_on(loop, ear.ring, key)

    def _missed(self, ear: _Ear) -> None:
        ear.ring_all()
        self._lost()


class _Ear:
    """Hears of changes on one loop, and rings the bells of those who wait there."""

    def __init__(self) -> None:
        self._bells: dict[str, set[asyncio.Event]] = {}
        self.leave: Callable[[], None] = lambda: None

    def add(self, key: str) -> asyncio.Event:
        bell = asyncio.Event()
        self._bells.setdefault(key, set()).add(bell)
        return bell

    def remove(self, key: str, bell: asyncio.Event) -> None:
        bells = self._bells[key]
        bells.discard(bell)
        if not bells:
            del self._bells[key]

    def ring(self, key: str) -> None:
        for bell in self._bells.get(key, ()):
            bell.set()

    def ring_all(self) -> None:
        for key in self._bells:
            self.ring(key)


async def _reached(operation: Awaitable[T]) -> T:
    """What a store answers; its troubles are its own, and told to nobody outside."""
    try:
        return await operation
    except StoreFull:
        raise NoRoom from None
    except ProtocolError:
        raise
    except ToolwireError as error:
        log.error("the store of the tasks failed: %s", error)
        raise ProtocolError(INTERNAL_ERROR, "The tasks cannot be reached now; try again later") from None
