"""The pipeline to Redis: it runs the scripts that event loops ask for, many in one round trip.

Every script ends within a bounded time. While Redis is away scripts wait for a while, then they fail; as long as it
stays away, new ones fail at once. A script that may have changed something is never sent a second time. One that Redis
refused, because it is a replica now, loads its data or sends us to another node, has changed nothing: it is sent again
on a new connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from toolwire.stores.memory import StoreFailed
from toolwire.stores.redis_connection import RedisConnection, RedisServers
from toolwire.stores.redis_errors import UNUSABLE, AnswerLost, RedisErrors
from toolwire.stores.redis_queue_scripts import QUEUE_SCRIPTS
from toolwire.stores.redis_scripts import SCRIPTS, Script
from toolwire.stores.thread_jobs import Job, settle_all
from toolwire.util.backoff import Backoff

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
        # The event loops that will ring for those that wait.
        self._ringers: set[asyncio.AbstractEventLoop] = set()
        self._bell = asyncio.Event()
        self._bell.set()  # There is something to do before the first call.

    def add(self, call: ScriptCall) -> None:
        """Add a script, on the event loop that asks for it."""
        with self._lock:
            if self.closed:
                raise StoreFailed("The store is closed")
            self._waiting.append(call)
            is_rung = call.loop in self._ringers
            self._ringers.add(call.loop)
        if not is_rung:
            # After what the loop has to do now: it may add more, which then goes the same way. A bell would hand the
            # interpreter over to the thread at once.
            call.loop.call_soon(self.ring)

    def close(self) -> None:
        """Accept no more scripts. Those that wait are still sent."""
        with self._lock:
            self.closed = True
        self.ring()

    def fail(self, error: Exception) -> None:
        """Fail everything that waits, because nobody is left to send it."""
        with self._lock:
            self.closed = True
        waiting = self.take()
        for call in waiting:
            call.fail(error)
        settle_all(waiting)

    def ring(self) -> None:
        """Wake the one who waits, from any thread."""
        self.call(self._bell.set)

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread of the store, from any thread."""
        with contextlib.suppress(RuntimeError):  # The loop has ended, and every waiter with it.
            self.loop.call_soon_threadsafe(function)

    def take(self) -> list[ScriptCall]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._ringers.clear()
        return waiting

    async def wait(self, seconds: float | None = None) -> None:
        """Return when a script was added, or when the time is up."""
        if seconds is None:
            await self._bell.wait()
        else:
            try:
                async with asyncio.timeout(seconds):
                    await self._bell.wait()
            except TimeoutError:
                return
        self._bell.clear()


class FirstLook(NamedTuple):
    """A script that runs before all others on each new connection."""

    script: Script
    arguments: Sequence[Any]
    keys: Sequence[bytes]
    then: Then


class RedisPipeline:
    """The connection that scripts are sent on. `begun` is set when Redis was reached for the first time."""

    def __init__(
        self,
        queue: ScriptQueue,
        servers: RedisServers,
        errors: RedisErrors,
        prefix: bytes,
        timeout: float,
        meet: Callable[[RedisConnection], list[FirstLook]],
    ) -> None:
        """`meet` is called with each new connection, and returns what runs before the scripts that wait."""
        self.begun: asyncio.Event = asyncio.Event()
        self.connection: RedisConnection | None = None
        self._queue = queue
        self._servers = servers
        self._errors = errors
        self._prefix = prefix
        self._timeout = timeout
        self._meet = meet
        self._knows_scripts = False
        self._backoff = Backoff(longest=LONGEST_PAUSE)
        # Since when Redis cannot be used, why, and when to try again.
        self._away_since: float | None = None
        self._trouble: BaseException = AnswerLost()
        self._try_at = 0.0
        self._is_doubted = False

    async def run(self) -> None:
        """Send scripts until the queue is closed."""
        try:
            while not self._queue.closed:
                await self._queue.wait()
                await self._answer(self._queue.take())
            # Scripts that were added before the queue was closed.
            await self._answer(self._queue.take())
        finally:
            await self._disconnect()

    def hope(self) -> None:
        """Try again at once, because Redis was reached on another connection."""
        self._try_at = 0.0

    def doubt(self) -> None:
        """Connect again, because the server may have become a replica."""
        self._is_doubted = True
        self._queue.ring()

    async def _answer(self, calls: list[ScriptCall]) -> None:
        while calls or ((self._is_doubted or not self.begun.is_set()) and not self._queue.closed):
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
        if self._is_doubted or (self.connection is not None and not await self.connection.is_alive()):
            await self._disconnect()
        try:
            if self.connection is None:
                self.connection = await self._servers.connect(self._timeout)
                self._knows_scripts = False
                await self._look_first(self.connection)
            if not self._knows_scripts:
                await self._teach(self.connection)
        except (OSError, self._errors.base, *UNUSABLE) as error:
            await self._lose(error)
            return False
        self.begun.set()
        return True

    async def _disconnect(self) -> None:
        self._is_doubted = False
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def _lose(self, error: BaseException) -> None:
        await self._disconnect()
        if self._away_since is None:
            self._away_since = time.monotonic()
            _logger.error("%s", self._errors.failure(error))
        self._trouble = error
        self._try_at = time.monotonic() + self._backoff.after(None)

    def _is_back(self) -> None:
        if self._away_since is not None:
            self._away_since = None
            _logger.warning("the store %s can be used again", self._errors.store)
        self._backoff.reset()

    async def _look_first(self, connection: RedisConnection) -> None:
        looks = self._meet(connection)
        if not looks:
            return
        async with connection.limit():
            await connection.send([each.script.in_full(self._prefix, each.arguments, each.keys) for each in looks])
            for look in looks:
                try:
                    look.then(await connection.read())
                except self._errors.response as error:
                    # Who cannot listen can still do the rest. The other connection fails in the same way, and says so.
                    if self._errors.is_refusal(error):
                        raise

    async def _teach(self, connection: RedisConnection) -> None:
        scripts = (*SCRIPTS, *QUEUE_SCRIPTS)
        async with connection.limit():
            await connection.send([("SCRIPT", "LOAD", script.text) for script in scripts])
            for _ in scripts:
                await connection.read()
        self._knows_scripts = True

    async def _exchange(self, calls: list[ScriptCall]) -> list[ScriptCall]:
        """Make one round trip, and return the scripts that did not run and can be sent again."""
        connection = self.connection
        assert connection is not None
        answered: list[ScriptCall] = []
        again: list[ScriptCall] = []
        refusal: BaseException | None = None
        try:
            async with connection.limit():
                if calls:
                    await connection.send_encoded(
                        [each.script.by_name(self._prefix, each.arguments, each.keys) for each in calls]
                    )
                for call in calls:
                    try:
                        (answered if await self._read(connection, call) else again).append(call)
                    except self._errors.base as error:
                        if not self._errors.is_refusal(error):
                            raise
                        refusal = error
                        again.append(call)
        except (OSError, self._errors.base) as error:
            again += self._give_up(calls[len(answered) + len(again) :], error)
            refusal = error
        settle_all(answered)
        if refusal is None:
            self._is_back()
        else:
            await self._lose(refusal)
        return self._in_time(again, refusal)

    async def _read(self, connection: RedisConnection, call: ScriptCall) -> bool:
        """Read one reply. Return False where Redis has forgotten the script and did nothing; raise a refusal."""
        try:
            call.succeed(call.then(await connection.read()))
        except self._errors.unknown_script:
            self._knows_scripts = False
            return False
        except self._errors.response as error:
            if self._errors.is_refusal(error):
                raise
            call.fail(self._errors.failure(error))
        except self._errors.base:
            raise
        except Exception as error:
            # A reply that cannot be read fails its own script only.
            call.fail(self._errors.failure(error))
        return True

    def _in_time(self, calls: list[ScriptCall], refusal: BaseException | None) -> list[ScriptCall]:
        """Fail the scripts whose time is up, and return the others."""
        if refusal is None:
            return calls
        now = time.monotonic()
        self._fail([each for each in calls if each.due <= now], refusal)
        return [each for each in calls if each.due > now]

    def _give_up(self, calls: list[ScriptCall], error: BaseException) -> list[ScriptCall]:
        """Fail scripts that may have run, and return the others, which can be sent again."""
        for call in calls:
            if not call.script.repeatable:
                self._fail([call], error if isinstance(error, self._errors.timeout) else AnswerLost())
        return [each for each in calls if each.script.repeatable]

    def _fail(self, calls: list[ScriptCall], error: BaseException) -> None:
        for call in calls:
            call.fail(self._errors.failure(error))
        settle_all(calls)
