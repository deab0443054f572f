"""The ends of tasks at upstreams, for the observers of the calls that made the tasks.

The client may never ask for the end, so the gateway looks by itself: at once when anything says that a task is over,
and else less and less often. Without observers nobody looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, ProtocolError, ToolwireError
from toolwire.protocol.tasks import TERMINAL

#: How many seconds pass before the first look, and at most between two looks, unless the server asks for longer pauses.
FIRST_LOOK_SECONDS: Final = 1.0
LONGEST_LOOK_SECONDS: Final = 60.0

K = TypeVar("K")


class SeenTask(NamedTuple):
    """The state of a task at one moment."""

    status: str
    poll_seconds: float
    ttl: int | None
    """For how many milliseconds the server knows the task; None for any time."""
    error: ProtocolError | None = None


class _Watched:
    """One task, and the futures that get its end."""

    def __init__(self) -> None:
        self.look_now = asyncio.Event()
        self.ends: list[asyncio.Future[Any]] = []

    @property
    def open_ends(self) -> list[asyncio.Future[Any]]:
        return [end for end in self.ends if not end.done()]


class TaskEnds(Generic[K]):
    """The tasks of one upstream whose ends are waited for."""

    def __init__(self, log: UpstreamLog, most: int, most_seconds: float) -> None:
        """Wait for no more than `most` ends at a time. Give a task up that cannot be seen for `most_seconds`."""
        self._log = log
        self._most = most
        self._most_seconds = most_seconds
        self._watched: dict[K, _Watched] = {}
        self._ends: set[asyncio.Future[Any]] = set()
        self._watchers: set[asyncio.Task[None]] = set()
        self._has_warned = False

    def is_watched(self, key: K) -> bool:
        return key in self._watched

    def look_now(self, key: K) -> None:
        """Look at a task at once, because something said that it is over."""
        if (watched := self._watched.get(key)) is not None:
            watched.look_now.set()

    def watch(self, key: K, look: Callable[[], Awaitable[SeenTask]]) -> asyncio.Future[Any]:
        """Return a future that gets the end of a task as a call of this server would have ended."""
        end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if len(self._ends) >= self._most:
            if not self._has_warned:
                self._has_warned = True
                self._log.warning("more than %d tasks run. The ends of others are not recorded", self._most)
            end.set_exception(OutcomeUnknown("Too many tasks run. The end of this one is not waited for"))
            return end
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
        watched = self._watched.get(key)
        # A server that joins equal calls gives several of them one task.
        if watched is None:
            watched = self._watched[key] = _Watched()
            watcher = asyncio.get_running_loop().create_task(self._watch(key, watched, look))
            self._watchers.add(watcher)
            watcher.add_done_callback(partial(self._finish, key, watched))
        watched.ends.append(end)
        return end

    async def close(self) -> None:
        """Look no more. What waits for an end hears that it is not known."""
        for watched in self._watched.values():
            _fail(watched.open_ends, _stopped())
        watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.cancel()
        if watchers:
            await asyncio.wait(watchers)
            await asyncio.sleep(0)  # So that the observers have heard it.

    async def _watch(self, key: K, watched: _Watched, look: Callable[[], Awaitable[SeenTask]]) -> None:
        clock = asyncio.get_running_loop().time
        seen_at, pause, longest = clock(), FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS
        while watched.open_ends:
            with suppress(TimeoutError):
                await asyncio.wait_for(watched.look_now.wait(), pause)
            watched.look_now.clear()
            pause = min(pause * 2, longest)
            try:
                seen = await look()
            except ProtocolError as error:
                _fail(watched.open_ends, error)  # The server does not know the task any more.
            except (ToolwireError, msgspec.DecodeError) as error:
                if clock() - seen_at > self._most_seconds:
                    _fail(watched.open_ends, error)
            else:
                for end in watched.open_ends:
                    _set_end(end, seen)
                seen_at = clock()
                if seen.ttl is not None:
                    # Look again before the server forgets the task.
                    longest = min(LONGEST_LOOK_SECONDS, seen.ttl / 4000)
                pause = max(seen.poll_seconds, min(pause, longest))
        self._remove_watched(key, watched)

    def _remove_watched(self, key: K, watched: _Watched) -> None:
        if self._watched.get(key) is watched:
            del self._watched[key]

    def _finish(self, key: K, watched: _Watched, watcher: asyncio.Task[None]) -> None:
        """End what still waits after a watcher was cancelled, maybe before it began, or failed."""
        self._watchers.discard(watcher)
        self._remove_watched(key, watched)
        failure = None if watcher.cancelled() else watcher.exception()
        if failure is not None:
            self._log.exception("the end of a task cannot be looked for", failure)
        _fail(watched.open_ends, failure or _stopped())


def _stopped() -> OutcomeUnknown:
    return OutcomeUnknown("The gateway stopped before the end of the task")


def _fail(ends: list[asyncio.Future[Any]], error: BaseException) -> None:
    for end in ends:
        end.set_exception(error)


def _set_end(end: asyncio.Future[Any], seen: SeenTask) -> None:
    if seen.status == "cancelled":
        end.cancel()
    elif seen.error is not None:
        end.set_exception(seen.error)
    elif seen.status in TERMINAL:
        end.set_result(t.CallToolResult(content=[], is_error=seen.status == "failed"))
