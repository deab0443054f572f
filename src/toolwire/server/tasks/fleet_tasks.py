"""The tasks of a whole fleet, for a person who looks after it: from the store alone, without the code of the server.

The operations read the store in pages, and no page is longer than 1000 entries. Values are read only for tasks that
are shown, because the record of a task that is over has its result.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from msgspec import UNSET, Raw

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, ToolwireError, counted
from toolwire.protocol.tasks import Record, StoredCall
from toolwire.redaction import MASK, Redaction
from toolwire.server.limits import Limits
from toolwire.server.tasks import dead_letters, task_records
from toolwire.server.tasks.bells import Ringer
from toolwire.server.tasks.dead_letters import DeadLetter, DeadLetters
from toolwire.server.tasks.replicas import Replica, all_replicas
from toolwire.server.tasks.task_records import (
    AT_ONCE,
    Records,
    by_tool,
    decode_record,
    id_in,
    is_worker,
    kind_of,
    longest_pause,
    owner_in,
    server_of,
)
from toolwire.stores import Counts, Held, Place, Ready, Stores

#: The states of tasks that have a place in the queue. They are shown unless others are asked for.
QUEUED_STATES: Final = ("waiting", "running", "input_required")
#: The other states. A task that is `working` and has no place is driven by the program of the host.
OTHER_STATES: Final = ("working", "completed", "failed", "cancelled")
STATES: Final = (*QUEUED_STATES, *OTHER_STATES)
T = TypeVar("T")
_Entry: TypeAlias = tuple[str, Place | None]
#: Entries of the store that are read at once.
_PAGE: Final = 1000
#: Records that one list reads at most.
_MOST_READ: Final = 10_000


class NoSuchTask(ToolwireError):
    """No task has this id."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"There is no task {identifier[:200]!r}, or it has expired")


class TaskRefused(ToolwireError):
    """The task is in a state in which this cannot be done to it."""


class DamagedTask(TaskRefused):
    """The record of the task cannot be read."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The record of the task {id_in(key)[:200]!r} is damaged. `toolwire tasks cancel` ends the task as failed"
        )
        self.key: str = key


class FleetTask(NamedTuple):
    """A task, as it is in the store."""

    key: str
    record: Record
    place: Place | None

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> str:
        if self.record.over or self.record.status == "input_required":
            return self.record.status
        if isinstance(self.place, Held):
            return "running" if self.record.begun else "waiting"
        return "waiting" if isinstance(self.place, Ready) else "working"

    @property
    def process(self) -> str:
        """Return the process that holds the task; empty where none does."""
        return self.place.process if isinstance(self.place, Held) else ""

    @property
    def kind(self) -> str:
        """Return the kind that processes take the task by."""
        record = self.record
        return kind_of(server_of(self.key), record.tool if record.call is UNSET else record.call.kind)

    def shown(self, now: float) -> dict[str, Any]:
        """Return the task in JSON types, without arguments, answers and results."""
        record = self.record
        return {
            "id": record.id,
            "state": self.state,
            "tool": record.tool,
            "owner": owner_in(self.key),
            "server": server_of(self.key),
            "created": record.created,
            "updated": record.updated,
            "age": max(now - record.created, 0.0),
            "attempt": record.attempt,
            "process": self.process,
            "message": record.message,
            "name": record.name,
            "heartbeat": record.heartbeat or None,
        }


class Listing(NamedTuple):
    """Tasks that were asked for."""

    tasks: list[FleetTask]
    is_cut: bool
    """Whether there are more of them."""


class Fleet(NamedTuple):
    """A fleet in numbers."""

    counts: Counts
    """The kinds are tools, where the tasks of one server are looked at."""
    replicas: list[Replica]
    letters: int
    """Dead letters; 1000 stands for 1000 or more."""


class FleetTasks:
    """The tasks in a store: of all servers that use it, or of one of them."""

    def __init__(self, stores: Stores, server: str | None = None) -> None:
        """Look at the tasks in `stores`, and only at those of `server`, a name, if it is given."""
        self._stores = stores
        self._server = "" if server is None else task_records.short_name(server)

    # --- looking ---

    async def search(
        self, states: Collection[str] = QUEUED_STATES, tool: str | None = None, limit: int = 100
    ) -> Listing:
        """Return at most `limit` tasks: first those in the queue, the oldest first, and then others, the newest first.

        One search reads 10,000 records of either at most.
        """
        candidates, is_cut = await self._candidates(states, tool)
        found: list[FleetTask] = []
        for start in range(0, len(candidates), AT_ONCE):
            tasks = await asyncio.gather(*(self._read(*each) for each in candidates[start : start + AT_ONCE]))
            found += [task for task in tasks if task and task.state in states and tool in (None, task.record.tool)]
            if len(found) > limit:
                return Listing(found[:limit], True)
        return Listing(found, is_cut)

    async def _candidates(self, states: Collection[str], tool: str | None) -> tuple[list[_Entry], bool]:
        """Return the entries whose records have to be read, and whether there are more than one search reads."""
        in_queue, others = _First(oldest=True), _First(oldest=False)
        async for page in self._places():
            if not set(states).isdisjoint(QUEUED_STATES):
                in_queue.add(each for each in page if each[1] is not None and _may_be_of(each[1], tool))
            if not set(states).isdisjoint(OTHER_STATES):
                others.add(each for each in page if each[1] is None)
        return in_queue.entries() + others.entries(), in_queue.is_cut or others.is_cut

    async def _places(self) -> AsyncIterator[list[_Entry]]:
        prefix = task_records.PREFIX + (f"{self._server}:" if self._server else "")
        after = ""
        while page := await self._stores.queue.places(prefix, after=after, limit=_PAGE):
            yield page
            after = page[-1][0]

    async def _read(self, key: str, place: Place | None) -> FleetTask | None:
        data = await self._stores.kv.get(key)
        try:
            return None if data is None else FleetTask(key, decode_record(key, data), place)
        except rules.Unreadable:
            return None

    async def find(self, identifier: str) -> FleetTask:
        """Return a task; raise `NoSuchTask`. The key of a task begins with its owner, so all keys are looked at."""
        async for page in self._places():
            for key, place in page:
                if id_in(key) == identifier:
                    task = await self._read(key, place)
                    if task is not None:
                        return task
                    if await self._stores.kv.get(key) is not None:
                        raise DamagedTask(key)
        raise NoSuchTask(identifier)

    async def letters(self, tool: str | None = None, limit: int = 100) -> tuple[list[DeadLetter], bool]:
        """Return dead letters, the newest task first, and whether there are more of them."""
        found: list[DeadLetter] = []
        for key in sorted(await self._letter_keys(), key=id_in, reverse=True):
            letter = await self._letter(key)
            if letter is not None and tool in (None, letter.tool):
                if len(found) == limit:
                    return found, True
                found.append(letter)
        return found, False

    async def find_letter(self, identifier: str) -> DeadLetter | None:
        key = await self._letter_key(identifier)
        return None if key is None else await self._letter(key)

    async def _letter_key(self, identifier: str) -> str | None:
        return next((key for key in await self._letter_keys() if id_in(key) == identifier), None)

    async def _letter_keys(self) -> list[str]:
        prefix = dead_letters.PREFIX + (f"{self._server}:" if self._server else "")
        found: list[str] = []
        while page := await self._stores.kv.keys(prefix, after=found[-1] if found else "", limit=_PAGE):
            found += page
            if len(page) < _PAGE or len(found) >= _MOST_READ:
                break
        return found

    async def _letter(self, key: str) -> DeadLetter | None:
        data = await self._stores.kv.get(key)
        return None if data is None else dead_letters.decode(data)

    async def replicas(self, server: str = "") -> list[Replica]:
        """Return the replicas that live: a description outlives a process that was killed for some seconds."""
        server = server or self._server
        alive = {process for process, _ in await self._stores.queue.leases()}
        described = await all_replicas(self._stores.kv)
        return [each for each in described if each.process in alive and server in ("", each.server)]

    async def names(self) -> dict[str, Replica]:
        """Return all replicas that described themselves by the names of their leases, for `holder_name`."""
        return {each.process: each for each in await all_replicas(self._stores.kv)}

    async def fleet(self) -> Fleet:
        """Return the numbers of the fleet. This reads no tasks."""
        counts = await self._stores.queue.counts()
        if self._server:
            ready, held = by_tool(self._server, counts.ready), by_tool(self._server, counts.held)
            counts = counts._replace(ready=ready, held=held)
        return Fleet(counts, await self.replicas(), len(await self._letter_keys()))

    async def why_it_waits(self, task: FleetTask) -> str:
        """Return why a task waits; empty for a task that does not."""
        if task.state == "input_required":
            return "the client has not answered"
        if task.state != "waiting":
            return ""
        if is_worker(task.process):
            return "no worker has begun it"
        if isinstance(task.place, Held):
            return "it stays in its process, which has no free slot for it"
        if isinstance(task.place, Ready) and task.place.delay > 0:
            lost = counted(task.record.attempt - 1, "attempt")
            return f"backoff: {lost} lost, and the next begins in {counted(round(task.place.delay, 1), 'second')}"
        replicas = await self.replicas(server_of(task.key))
        able = [each for each in replicas if task.kind in each.kinds]
        if not replicas:
            return "no replica of the server runs"
        if not able:
            return f"no replica has the tool {task.record.tool}, of {counted(len(replicas), 'replica')}"
        if not any(each.has_free_slot for each in able):
            return f"no slot is free in {counted(len(able), 'replica')} with the tool"
        return "a replica has a free slot: the task is about to be taken, or its owner has its share of the slots"

    async def describe(self, identifier: str, *, with_values: bool = False) -> dict[str, Any]:
        """Return all that a person should know of a task or of a dead letter, in JSON types; raise `NoSuchTask`.

        `with_values` adds the values of arguments that are not secret.
        """
        letter = await self.find_letter(identifier)
        try:
            task = await self.find(identifier)
        except NoSuchTask:
            if letter is None:
                raise
            return {**shown_letter(letter, time.time()), **shown_call(letter.call, with_values=with_values)}
        record, call = task.record, task.record.call if letter is None else letter.call
        named = await self.names()
        return {
            **task.shown(time.time()),
            "why": await self.why_it_waits(task),
            "holder": holder_name(task.process, named),
            "begun": None if record.over else record.begun,
            "acceptedBy": holder_name(record.origin, named),
            "progress": record.progress,
            "total": record.total,
            "questions": len(record.questions),
            "ttl": record.ttl_ms / 1000,
            "resultBytes": None if record.result is UNSET else len(record.result),
            "isError": record.is_error,
            "error": None if record.error is UNSET else record.error.message,
            "isDeadLetter": letter is not None,
            **({} if call is UNSET else shown_call(call, with_values=with_values)),
        }

    # --- acting ---

    async def cancel(self, identifier: str) -> FleetTask:
        """Cancel a task, as its client would; raise `TaskRefused` for a task that is over.

        A task whose record is damaged fails.
        """
        try:
            task = await self.find(identifier)
        except DamagedTask as error:
            records = self._records(server_of(error.key))
            ended = await records.end_damaged(error.key, Limits().task_ttl)
            if ended is None:
                raise
            await Ringer(self._stores).ring_all(server_of(error.key), error.key)
            return FleetTask(error.key, ended, None)
        records = self._records(server_of(task.key))
        is_cancelled = False

        def edit(record: Record) -> bool:
            nonlocal is_cancelled
            is_cancelled = rules.cancel(record)
            return is_cancelled

        changed = await records.change(task.key, edit)
        if changed.record is None:
            raise NoSuchTask(identifier)
        if not is_cancelled:
            raise TaskRefused(f"The task {identifier!r} has ended: it is {changed.record.status}")
        await Ringer(self._stores).ring(task.key, changed.process, changed.record.origin, *changed.watchers)
        return FleetTask(task.key, changed.record, None)

    async def send_again(self, identifier: str) -> str:
        """Make a new task of the same owner out of a dead letter, and return its id; raise `TaskRefused`."""
        key = await self._letter_key(identifier)
        letter = None if key is None else await self._letter(key)
        if key is None or letter is None:
            state = (await self.find(identifier)).state
            raise TaskRefused(f"The task {identifier!r} is no dead letter: it is {state}")
        server = key.removeprefix(dead_letters.PREFIX).partition(":")[0]
        letters = DeadLetters(server, self._stores, Limits)
        created = await letters.send_again(identifier, self._records(server, letter.longest))
        if created is None:
            raise TaskRefused(f"The task {identifier!r} is not a dead letter any more: it was sent again a moment ago")
        await Ringer(self._stores).ring_ready(server)
        return created

    def _records(self, server: str, longest: float = 0.0) -> Records:
        return Records(server, self._stores, longest or longest_pause(Limits()))


def holder_name(process: str, replicas: Mapping[str, Replica]) -> str:
    """Return the name of a process for people: its machine and its number."""
    known = replicas.get(process)
    return process.rpartition("/")[0] if known is None else f"{known.host}/{known.pid}"


def shown_letter(letter: DeadLetter, now: float) -> dict[str, Any]:
    """Return a dead letter in JSON types, without its call."""
    return {
        "id": letter.id,
        "state": "dead",
        "tool": letter.tool,
        "owner": letter.owner,
        "died": letter.died,
        "age": max(now - letter.died, 0.0),
        "attempt": letter.attempts,
        "isDeadLetter": True,
    }


def shown_call(call: StoredCall, *, with_values: bool) -> dict[str, Any]:
    """Return a stored call in JSON types: who called, and with which arguments.

    Values of arguments are left out unless they are asked for, and the secret ones of them always are. So are claims.
    Names that no argument of a tool has are left out as values are: the caller chose them.
    """
    principal = None if call.principal is UNSET else _decode_or_none(call.principal, Principal)
    arguments = (_decode_or_none(call.params, dict[str, Any]) or {}).get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    return {
        "caller": None if principal is None else {"subject": principal.subject, "provider": principal.provider},
        "revision": call.revision,
        "idempotent": call.idempotent,
        "arguments": Redaction().arguments(arguments)
        if with_values
        else _names.arguments(dict.fromkeys(arguments, MASK)),
    }


def _decode_or_none(data: Raw, type_: type[T]) -> T | None:
    """Decode a part of a stored call; None for a damaged one."""
    try:
        return decoder_of(type_).decode(data)
    except BAD_JSON:
        return None


# Shows the plain names of arguments, and masks everything else.
_names: Final = Redaction(patterns=[r"(?s)\A(?![\w.$-]{1,64}\Z).+"])


def _may_be_of(place: Place, tool: str | None) -> bool:
    """Return whether a task may be one of a tool. The kind of a tool that a list handler makes up has no name."""
    return tool is None or place.kind.partition(":")[2] in ("", tool)


class _First:
    """The first entries of many: the oldest tasks, or the newest. An id begins with the time of its making."""

    def __init__(self, *, oldest: bool) -> None:
        self._choose = heapq.nsmallest if oldest else heapq.nlargest
        self._entries: list[_Entry] = []
        self.is_cut = False

    def add(self, entries: Iterable[_Entry]) -> None:
        self._entries += entries
        if len(self._entries) > 2 * _MOST_READ:
            self._entries = self.entries()

    def entries(self) -> list[_Entry]:
        self.is_cut = self.is_cut or len(self._entries) > _MOST_READ
        return self._choose(_MOST_READ, self._entries, key=lambda entry: id_in(entry[0]))
