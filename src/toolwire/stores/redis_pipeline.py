"""The pipeline to Redis: it runs the scripts that event loops ask for, many in one round trip.

Every script ends within a bounded time. While Redis is away scripts wait for a while, then they fail; as long as it
stays away, new ones fail at once. A script that may have changed something is never sent a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from toolwire.backoff import Backoff
from toolwire.stores.memory import StoreFailed
from toolwire.stores.redis_errors import AnswerLost, RedisErrors
from toolwire.stores.redis_queue_scripts import QUEUE_SCRIPTS
from toolwire.stores.redis_scripts import SCRIPTS, Script
from toolwire.stores.thread_jobs import Job, settle_all

_logger = logging.getLogger("toolwire.stores")

MAX_BATCH: Final = 500
LONGEST_PAUSE: Final = 2.0

Then: TypeAlias = Callable[[Any], Any]


class ScriptCall(Job):
    """A script to run. `then` turns its reply into the result. After `due` it is not sent again."""

    __slots__ = ("arguments", "due", "keys", "script", "then")

    def __init__(
        self,
        script: Script,
        arguments: Sequence[Any],
        keys: Sequence[bytes],
        then: Then,
        due: float,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        super().__init__(loop, future)
        self.script: Script = script
        self.arguments: Sequence[Any] = arguments
        self.keys: Sequence[bytes] = keys
        self.then: Then = then
        self.due: float = due


class ScriptQueue:
    """The scripts that wait to be sent. Any thread adds to it; the loop of the store takes from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed: bool = False
        self._lock = threading.Lock()
        self._waiting: list[ScriptCall] = []
        self._bell = asyncio.Event()
        self._bell.set()  # There is something to do before the first call.

    def add(self, call: ScriptCall) -> None:
        with self._lock:
            if self.closed:
                raise StoreFailed("The store is closed")
            is_first = not self._waiting
            self._waiting.append(call)
        if is_first:
            self._ring()

    def close(self) -> None:
        """Accept no more scripts. Those that wait are still sent."""
        with self._lock:
            self.closed = True
        self._ring()

    def fail(self, error: Exception) -> None:
        """Fail everything that waits, because nobody is left to send it."""
        with self._lock:
            self.closed = True
        waiting = self.take()
        for call in waiting:
            call.fail(error)
        settle_all(waiting)

    def _ring(self) -> None:
        self.call(self._bell.set)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread of the store, from any thread."""
        with contextlib.suppress(RuntimeError):  # The loop has ended, and every waiter with it.
            self.loop.call_soon_threadsafe(function)

    def take(self) -> list[ScriptCall]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    async def wait(self, seconds: float | None = None) -> None:
        """Return when a script was added, or when the time is up."""
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()


class RedisConnection:
    """One connection of the client library, used for one exchange at a time."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._connection = pool.make_connection()

    async def ensure(self) -> None:
        """Connect, unless there is a connection that works."""
        await self._pool.ensure_connection(self._connection)
        await self._connection.check_health()

    async def send(self, commands: Sequence[Sequence[Any]]) -> None:
        await self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)

    async def read(self) -> Any:
        return await self._connection.read_response()

    async def disconnect(self) -> None:
        await self._connection.disconnect()


class RedisPipeline:
    """The connection that scripts are sent on. `begun` is set when Redis was reached and `first` was answered."""

    def __init__(
        self,
        queue: ScriptQueue,
        connection: RedisConnection,
        errors: RedisErrors,
        prefix: bytes,
        timeout: float,
        first: Callable[[], tuple[Script, Sequence[Any], Then]],
    ) -> None:
        self.begun: asyncio.Event = asyncio.Event()
        self._queue = queue
        self._connection = connection
        self._errors = errors
        self._prefix = prefix
        self._timeout = timeout
        self._first = first
        self._knows_scripts = False
        self._backoff = Backoff(longest=LONGEST_PAUSE)
        # Since when there is no connection, why, and when to try again.
        self._away_since: float | None = None
        self._trouble: BaseException = AnswerLost()
        self._try_at = 0.0

    async def run(self) -> None:
        """Send scripts until the queue is closed."""
        while not self._queue.closed:
            await self._queue.wait()
            await self._answer(self._queue.take())
        # Scripts that were added before the queue was closed.
        await self._answer(self._queue.take())

    def hope(self) -> None:
        """Try again at once, because Redis was reached on another connection."""
        self._try_at = 0.0

    async def _answer(self, calls: list[ScriptCall]) -> None:
        while calls or not (self.begun.is_set() or self._queue.closed):
            if await self._is_connected():
                calls = await self._exchange(calls[:MAX_BATCH]) + calls[MAX_BATCH:]
                continue
            if not self._is_worth_waiting():
                self._fail(calls, self._trouble)
                calls = []
            await self._queue.wait(max(self._try_at - time.monotonic(), 0.001))
            calls += self._queue.take()

    def _is_worth_waiting(self) -> bool:
        if self._away_since is None or self._queue.closed:
            return False
        waited = time.monotonic() - self._away_since
        return waited < self._timeout and self._errors.is_temporary(self._trouble)

    async def _is_connected(self) -> bool:
        """Connect where needed, and remember the error if that fails."""
        if time.monotonic() < self._try_at:
            return False
        try:
            await self._connection.ensure()
            if not self._knows_scripts:
                await self._teach()
            if not self.begun.is_set():
                await self._begin()
        except (OSError, self._errors.base) as error:
            await self._lose(error)
            return False
        if self._away_since is not None:
            _logger.warning("the store %s can be used again", self._errors.store)
        self._away_since = None
        self._backoff.reset()
        return True

    async def _lose(self, error: BaseException) -> None:
        with contextlib.suppress(OSError, self._errors.base):
            await self._connection.disconnect()
        if self._away_since is None:
            self._away_since = time.monotonic()
            _logger.error("%s", self._errors.failure(error))
        self._trouble = error
        self._try_at = time.monotonic() + self._backoff.after(None)

    async def _teach(self) -> None:
        scripts = (*SCRIPTS, *QUEUE_SCRIPTS)
        await self._connection.send([("SCRIPT", "LOAD", script.text) for script in scripts])
        for _ in scripts:
            await self._connection.read()
        self._knows_scripts = True

    async def _begin(self) -> None:
        script, arguments, then = self._first()
        await self._connection.send([script.in_full(self._prefix, arguments)])
        then(await self._connection.read())
        self.begun.set()

    async def _exchange(self, calls: list[ScriptCall]) -> list[ScriptCall]:
        """Make one round trip, and return the scripts that did not run and can be sent again."""
        answered: list[ScriptCall] = []
        again: list[ScriptCall] = []
        try:
            await self._connection.send(
                [each.script.by_name(self._prefix, each.arguments, each.keys) for each in calls]
            )
            for call in calls:
                (answered if await self._read(call) else again).append(call)
        except (OSError, self._errors.base) as error:
            again += self._give_up(calls[len(answered) + len(again) :], error)
            await self._lose(error)
        settle_all(answered)
        return again

    async def _read(self, call: ScriptCall) -> bool:
        """Read one reply. Return False where Redis has forgotten the script and did nothing."""
        try:
            call.succeed(call.then(await self._connection.read()))
        except self._errors.unknown_script:
            self._knows_scripts = False
            return False
        except self._errors.response as error:
            call.fail(self._errors.failure(error))
        except self._errors.base:
            raise
        except Exception as error:
            # A reply that cannot be read fails its own script only.
            call.fail(self._errors.failure(error))
        return True

    def _give_up(self, calls: list[ScriptCall], error: BaseException) -> list[ScriptCall]:
        """Fail scripts that may have run or take too long, and return the others, which can be sent again."""
        now = time.monotonic()
        again = [each for each in calls if each.script.repeatable and each.due > now]
        for call in calls:
            if call not in again:
                is_told = call.script.repeatable or isinstance(error, self._errors.timeout)
                self._fail([call], error if is_told else AnswerLost())
        return again

    def _fail(self, calls: list[ScriptCall], error: BaseException) -> None:
        for call in calls:
            call.fail(self._errors.failure(error))
        settle_all(calls)
