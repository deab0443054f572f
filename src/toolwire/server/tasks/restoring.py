"""Records that the store has lost: the processes that know them write them again.

A failover, or a crash of a store that saves its data every second, loses the last changes. A store that evicts keys
loses any of them. The process that runs a task, or has just ended it, still has its record:

    in this process          in the store                       what is written
    a run                    nothing, or an earlier record      the record of the run, held by this process
    a run                    a record of another process        nothing: the run is stopped
    a recent end             nothing, an open record, damage    the end
    a call that waits        nothing, at two looks              the task, if it is idempotent; else its failure

Each write is a compare-and-set on the record that was read, so that a process that knows more wins.
"""

from __future__ import annotations

import logging
from typing import Final

from toolwire.protocol import tasks as rules
from toolwire.protocol.tasks import Record
from toolwire.server.tasks.running_tasks import Run
from toolwire.server.tasks.task_records import Records, decode_record, id_in, reached
from toolwire.stores import Held, LeaseLost, Place, Stores
from toolwire.wire.process_lease import Lease

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: How often a write is tried again because the record was changed meanwhile.
_ATTEMPTS: Final = 8


class Restoring:
    """Writes records of this process again."""

    def __init__(self, stores: Stores, records: Records, lease: Lease) -> None:
        self._stores = stores
        self._records = records
        self._lease = lease

    async def restore_run(self, run: Run) -> bool:
        """Write the record and place of a running task. Return whether this process holds it."""
        if run.data is None or not run.process or run.process != self._lease.name:
            return False
        if self._records.recent_end(run.key) is not None:
            return False
        kind = self._records.kind(run.key, decode_record(run.key, run.data))
        for _ in range(_ATTEMPTS):
            present = await reached(self._stores.kv.get(run.key))
            stored = None if present is None else decode_record(run.key, present)
            chosen = rules.choose_record(decode_record(run.key, run.data), stored)
            if chosen is None:
                return False
            data = rules.encode(chosen)
            if await self._write(run.key, data, present, chosen, Held(run.process, kind), run.process):
                if data != present:
                    log.warning("the store had lost the last changes of the task %s, which runs here", id_in(run.key))
                run.data = data
                return True
        return False

    async def restore_end(self, key: str, data: bytes, seconds: float) -> bool:
        """Write a lost end, kept for `seconds`. Return whether the store has this end."""
        for _ in range(_ATTEMPTS):
            present = await reached(self._stores.kv.get(key))
            if present == data:
                return True
            if present is not None and _is_over(key, present):
                return False
            written = self._stores.queue.change(key, data, ttl=seconds, expect=present, place=None)
            if await reached(written) is None:
                log.warning("the store had lost the end of the task %s, which ran here", id_in(key))
                return True
        return False

    async def restore_ends(self) -> None:
        """Write all recent ends of this process that the store has lost."""
        for key, data, seconds in self._records.recent_ends():
            if not await self.restore_end(key, data, seconds):
                self._records.drop_recent_end(key)

    async def restore_waiting(self, run: Run) -> Record | None:
        """Write a lost task that was accepted here and waits. Return its record."""
        if run.data is None or run.process:
            return None
        record = decode_record(run.key, run.data)
        rules.lose_waiting(record)
        place = self._records.place(run.key, record)
        if not await self._write(run.key, rules.encode(record), None, record, place):
            return None
        log.warning("the store had lost the task %s, which was accepted here", id_in(run.key))
        return record

    async def _write(
        self, key: str, data: bytes, present: bytes | None, record: Record, place: Place | None, process: str = ""
    ) -> bool:
        ttl = self._records.kept(record)
        change = self._stores.queue.change
        try:
            return await reached(change(key, data, ttl=ttl, expect=present, place=place)) is None
        except LeaseLost:
            # The lease may be lost with the last changes. One that was taken away is not given again.
            if not process or not await reached(self._stores.queue.renew(process, self._lease.seconds)):
                return False
            return await reached(change(key, data, ttl=ttl, expect=present, place=place)) is None


def _is_over(key: str, data: bytes) -> bool:
    """Return whether a stored record is an end; False for a damaged one."""
    try:
        return decode_record(key, data).over
    except rules.Unreadable:
        return False
