"""Dead letters: tasks that were begun as often as is allowed and took their process down, or lost it, every time.

A dead letter keeps the call with its arguments, so that it can be sent again. The letters of a server are bounded by
number and by age.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol import tasks as rules
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.tasks import Record, StoredCall
from toolwire.server.limits import Limits
from toolwire.server.tasks.task_records import (
    Records,
    TasksUnreachable,
    id_in,
    longest_pause,
    owner_in,
    reached,
    server_of,
)
from toolwire.stores import Stores

log: logging.Logger = logging.getLogger("toolwire.tasks")

PREFIX: Final = "toolwire:dead-task2:"
_AT_ONCE: Final = 1000


class DeadLetter(Struct, frozen=True):
    """A task that was given up, with everything that is needed to send it again."""

    id: str
    """The id of the task."""
    owner: str
    """Whom the task belonged to."""
    tool: str
    attempts: int
    died: float
    """When it was given up, in seconds since 1970 by the clock of the machine that did it."""
    ttl_ms: int
    poll_ms: int
    call: StoredCall
    longest: float = 0.0
    """How many seconds may pass between two changes of the task, by the limits of its server; 0: not known."""
    judgement: Raw | UnsetType = UNSET
    """What was decided when its call was accepted; unset in letters of earlier versions."""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = decoder_of(DeadLetter).decode


def decode(data: bytes) -> DeadLetter | None:
    """Read a letter; None for one of another version of this library, perhaps."""
    try:
        data.decode()  # The decoder does not look into the call.
        return _decode(data)
    except BAD_JSON:
        return None


class DeadLetters:
    """The dead letters of one server. `server` is its short name, as in the keys of its tasks."""

    def __init__(self, server: str, stores: Stores, find_limits: Callable[[], Limits]) -> None:
        self._prefix = f"{PREFIX}{server}:"
        self._stores = stores
        self._find_limits = find_limits

    @property
    def limits(self) -> Limits:
        """The limits of a letter that is kept or listed now."""
        return self._find_limits()

    async def keep(self, key: str, record: Record) -> None:
        """Keep the call of a task that is about to be given up. Keeping it twice is keeping it once."""
        assert record.call is not UNSET
        letter = DeadLetter(
            record.id,
            owner_in(key),
            record.tool,
            record.attempt,
            time.time(),
            record.ttl_ms,
            record.poll_ms,
            record.call,
            longest_pause(self.limits),
            record.judgement,
        )
        prefix, kv, most = f"{PREFIX}{server_of(key)}:", self._stores.kv, self.limits.tasks_dead
        if most <= 0:
            return
        try:
            name, seconds = f"{prefix}{id_in(key)}", self.limits.task_dead_ttl
            if await kv.put(name, _encode(letter), ttl=seconds, if_absent=True):
                # The ids begin with the time of their making, so that the first key is the oldest letter.
                kept = await kv.keys(prefix, limit=most + _AT_ONCE)
                for oldest in kept[: max(len(kept) - most, 0)]:
                    await kv.delete(oldest)
        except ToolwireError as error:
            log.error("a dead letter could not be kept: %s", error)

    async def all(self) -> list[DeadLetter]:
        """Return the letters, the oldest task first."""
        keys = await reached(self._stores.kv.keys(self._prefix, limit=max(self.limits.tasks_dead, _AT_ONCE)))
        found = [await self.find(key.removeprefix(self._prefix)) for key in keys]
        return [letter for letter in found if letter is not None]

    async def find(self, identifier: str) -> DeadLetter | None:
        data = await reached(self._stores.kv.get(self._prefix + identifier))
        return None if data is None else decode(data)

    async def send_again(self, identifier: str, records: Records) -> str | None:
        """Make a new task of the same owner out of a letter, and return its id; None when there is no such letter.

        The id follows from the letter. So two people who send it at the same moment make one task, and so does a person
        who sends it again after a lost answer.
        """
        letter = await self.find(identifier)
        if letter is None:
            return None
        now = time.time()
        record = rules.new_record(
            records.new_id(letter.died, digest("sent again", letter.id)),
            now,
            letter.ttl_ms,
            letter.poll_ms,
            tool=letter.tool,
            message=rules.WAITING,
            call=letter.call,
            judgement=letter.judgement,
        )
        rules.leave_room(record)
        key = records.key(letter.owner, record.id)
        is_created = await records.find(key) is None
        if is_created:
            try:
                await records.create(key, record)
            except TasksUnreachable:
                if await records.find(key) is None:
                    raise
                is_created = False  # Another process sent it at the same moment.
        is_deleted = await reached(self._stores.kv.delete(self._prefix + identifier))
        return record.id if is_created or is_deleted else None
