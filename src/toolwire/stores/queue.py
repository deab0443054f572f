"""`Queue`: who runs a task now. It is an index over records in the `KV`, and changes together with them.

The record of a task is a value in the `KV`, and the one truth of its state. The queue knows the *place* of the task: it
is ready to be taken, a process holds it, or it has no place because it is over or the host drives it. The queue knows
nothing of MCP: a record is bytes; a kind, an owner and a process are texts.

A process holds tasks as long as it has a *lease*, which it renews. All times are those of the store's clock. The store
never takes a lease away by itself: a process that watches the others calls `bury`, after it has seen for the whole
length of a lease, by its own clock, that the lease was not renewed. So neither an outage of the store nor a clock that
jumps ends the lease of a process that lives.

Each operation is one atomic step, and can be repeated when its answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, NoReturn, Protocol, TypeAlias

from toolwire.protocol.errors import ServerError, ToolwireError
from toolwire.stores.memory import StoreFull
from toolwire.stores.numbers import check_limit, check_seconds, check_ttl

#: How many tasks whose delay is over one `take` adds to the lines.
MOST_DUE: Final = 1000
#: How many leases one answer has.
MOST_LEASES: Final = 1000
#: How many delayed tasks are counted where counting each of them takes a step.
MOST_DELAYED: Final = 10_000
#: How long the names of processes without a lease are remembered, in seconds, and how many of them.
BURIED_SECONDS: Final = 24 * 3600.0
MOST_BURIED: Final = 10_000


class LeaseLost(ToolwireError):
    """The process does not hold the task, or its lease was taken away: what it wanted to write is refused."""


class QueueFull(StoreFull):
    """Too many tasks wait to be taken."""


class Ready(NamedTuple):
    """The place of a task that waits to be taken."""

    kind: str
    """Tasks are taken by kind: for a server, the tool."""
    owner: str
    """Owners take turns within a kind."""
    delay: float = 0.0
    """Seconds before the task may be taken."""


class Held(NamedTuple):
    """The place of a task that a process runs, or is about to run."""

    process: str
    kind: str = ""
    """The kind that the task is counted under; empty: the kind that it had before."""


Place: TypeAlias = Ready | Held


class Task(NamedTuple):
    """A task as the queue hands it out."""

    key: str
    value: bytes
    """The record."""
    process: str = ""
    """The process that holds the task; empty where it is ready."""


class Counts(NamedTuple):
    """Numbers of a queue, for metrics and for people."""

    ready: Mapping[str, int]
    """Tasks that wait to be taken, by kind; those with a delay are among them."""
    held: Mapping[str, int]
    """Tasks that a process holds, by kind."""
    delayed: int
    """Tasks whose delay is not over. A store may stop counting at 10,000."""
    orphans: int
    """Tasks held by processes without a lease."""
    oldest: float
    """For how many seconds the oldest ready task could have been taken; 0 without one."""
    leases: int
    """Processes that have a lease."""


def check_change(ttl: float | None, place: Place | None, most_ready: int | None) -> None:
    """Raise `ValueError` for numbers with which no record can be written."""
    check_ttl(ttl)
    if isinstance(place, Ready):
        check_seconds(place.delay, "a delay")
    if most_ready is not None:
        check_limit(most_ready)


class Queue(Protocol):
    """Tasks that wait for a process, and tasks that a process holds."""

    async def change(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None,
        expect: bytes | None,
        place: Place | None,
        holder: str = "",
        orphan_of: str = "",
        most_ready: int | None = None,
    ) -> bytes | None:
        """Write a record and its place in one step. Return None when it is written, else the record that is there now
        (b"" for none).

        `expect` is the record that has to be there; None: there has to be none. A value that is there already, byte for
        byte, and is not `expect` counts as written, whatever has happened to its place since. So a step is repeated
        after a lost answer, as long as each record differs from the one before.

        `holder` is the process that has to hold the task and to have a lease. `orphan_of` is the process that has to
        hold the task and to have none. `Held` needs a lease of its process. Raise `LeaseLost` otherwise.

        A task that is ready keeps its place in line when it is changed to the same kind and owner.
        `most_ready` is how many tasks may be ready with this one. Raise `QueueFull`, and `StoreFull` where the `KV` has
        no room. A change to a value that is no longer is never refused for want of room, even by a Redis that is full.
        """

    async def take(
        self,
        process: str,
        kinds: Collection[str],
        most: int,
        *,
        passing_over: Collection[str] = (),
    ) -> list[Task]:
        """Move at most `most` ready tasks of these kinds to the process, and return them.

        Kinds take turns, and owners within a kind; the tasks of an owner come in the order in which they became ready.
        The owners in `passing_over` keep their tasks and their turn. Raise `LeaseLost` for a process without a lease.

        A `take` whose answer was lost may have moved tasks: `held` shows them.
        """

    async def held(self, process: str, *, after: str = "", limit: int = 1000) -> tuple[int, list[str]]:
        """Return how many tasks a process holds, and at most `limit` of their keys that come after `after`, in the
        order of their UTF-8 bytes.

        With a limit of 0, the answer is as short for a million tasks as for one.
        """

    async def renew(self, process: str, lease: float) -> bool:
        """Give the process a lease of so many seconds, or renew it. Return False when it was taken away for good."""

    async def release(self, process: str) -> None:
        """End the lease of a process for good. Tasks that it still holds become orphans."""

    async def stale(self) -> list[tuple[str, int]]:
        """Return the processes whose lease was not renewed for its length, each with the number of its last renewal.

        At most 1000 are returned, those with the oldest renewal first.
        """

    async def leases(self, prefix: str = "") -> list[tuple[str, int]]:
        """Return the processes that have a lease and whose name begins so, each with the number of its last renewal.

        At most 1000 are returned, in the order of their names.
        """

    async def bury(self, process: str, renewal: int) -> bool:
        """Take a lease away if this is still its last renewal. Return whether the process has no lease now."""

    async def orphans(self, limit: int) -> list[Task]:
        """Return at most `limit` tasks held by processes that have no lease, in the order of processes and keys."""

    async def waiting(self, longer_than: float, limit: int) -> list[Task]:
        """Return at most `limit` tasks that could have been taken for so many seconds, the oldest first."""

    async def place(self, key: str) -> Place | None:
        """Return the place of a task; of one with a delay, with what is left of it."""

    async def places(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, Place | None]]:
        """Return the keys that `KV.keys` returns, each with the place of its task; None for a value without a place.

        No value is read, so that a person can look through a store that is full of results.
        """

    async def counts(self) -> Counts:
        """Return numbers that the store keeps: this takes as long for a million tasks as for one.

        A task whose record was deleted through the `KV`, or got a shorter time there, may be counted until its time
        ends.
        """

    async def has_gaps(self) -> bool:
        """Return whether the index lacks a part, as far as a quick check shows."""

    async def rebuild(self, after: str = "", limit: int = 200) -> str:
        """Rebuild the index for at most `limit` values after `after`. Return the next `after`.

        "" means that all values are done. Lost places stay lost: the writer of the records knows them, and writes them
        again by `change`. A store that cannot lose a part of its index does nothing, and returns "".
        """

    def keep(self, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        """Renew the lease every third of its length, in the thread of the store, until the returned function is called.

        The event loop may be blocked meanwhile. `lost` is called once, in any thread, when the lease was taken away.
        """


class NoQueue:
    """The queue of stores that were made from a `KV` of another kind, without a queue.

    Places in the memory of this process would be lost with it, and a task would stay "working" for nobody. So tasks are
    refused instead.
    """

    async def change(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def take(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def held(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def renew(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def release(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def stale(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def leases(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def bury(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def orphans(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def waiting(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def place(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def places(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def counts(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def has_gaps(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    async def rebuild(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()

    def keep(self, *given: object, **named: object) -> NoReturn:
        raise _no_queue()


def _no_queue() -> ServerError:
    return ServerError("These stores have no queue, which tasks need: make them as Stores(kv, log, bus, queue)")


#: The queue of `Stores` that were given none.
NO_QUEUE: Final[NoQueue] = NoQueue()


def lease_lost() -> LeaseLost:
    return LeaseLost("The process does not hold this task, or has no lease any more.")


def queue_full() -> QueueFull:
    return QueueFull("Too many tasks wait to be taken.")


def judge(
    present: bytes | None,
    place_now: Place | None,
    value: bytes,
    expect: bytes | None,
    place: Place | None,
    holder: str,
    orphan_of: str,
    has_lease: Callable[[str], bool],
) -> tuple[bool, bytes | None]:
    """Return whether `Queue.change` has to write, and what it answers if not. Raise `LeaseLost`."""
    if present is None and expect is not None:
        return False, b""
    if present == value and (value != expect or is_same_place(place_now, place)):
        return False, None
    holding = place_now.process if isinstance(place_now, Held) else ""
    if holder and not (holding == holder and has_lease(holder)):
        raise lease_lost()
    if orphan_of and not (holding == orphan_of and not has_lease(orphan_of)):
        raise lease_lost()
    if present != expect:
        return False, present
    if isinstance(place, Held) and not has_lease(place.process):
        raise lease_lost()
    return True, None


def is_same_place(now: Place | None, wanted: Place | None) -> bool:
    """Return whether a task is where it is wanted. A delay does not matter: it was given when the task became ready."""
    if isinstance(now, Held) and isinstance(wanted, Held):
        return now.process == wanted.process and wanted.kind in ("", now.kind)
    if isinstance(now, Ready) and isinstance(wanted, Ready):
        return now[:2] == wanted[:2]
    return now is wanted
