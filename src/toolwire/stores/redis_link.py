"""One Redis and the thread that talks to it on behalf of event loops.

Scripts that are asked for while a reply is awaited are sent together afterwards, so that many small ones cost one round
trip. A second connection waits for messages, at the same server.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any, Final, Protocol, TypeAlias

from toolwire.extras import require
from toolwire.protocol.errors import ToolwireError
from toolwire.stores.memory import Evictions, StoreFailed
from toolwire.stores.redis_address import RedisAddress
from toolwire.stores.redis_connection import RedisConnection, RedisServers
from toolwire.stores.redis_errors import RedisErrors
from toolwire.stores.redis_eviction import REPORT_COMMANDS, REPORT_SECONDS, join_report
from toolwire.stores.redis_pipeline import LONGEST_PAUSE, FirstLook, RedisPipeline, ScriptCall, ScriptQueue, Then
from toolwire.stores.redis_scripts import Script
from toolwire.stores.thread_jobs import call_guarded
from toolwire.util.backoff import Backoff

_logger = logging.getLogger("toolwire.stores")

#: How long one wait for messages lasts. After each one the bus compares its numbers with those of Redis.
LISTEN_SECONDS: Final = 5.0
#: How long after another process of Redis began to answer its last writes may be missing: the process that runs a task
#: connects again within two seconds, and writes its record again.
_RESTORE_SECONDS: Final = 3.0

#: A function that sends one command on the second connection, and returns its reply.
Ask: TypeAlias = Callable[..., Awaitable[Any]]


class Listener(Protocol):
    """The part of a store that waits for messages. Its methods run in the thread of the link."""

    def first_looks(self) -> list[FirstLook]:
        """Return the scripts that run before all others on a new connection."""

    def server_changed(self) -> None:
        """Take note that another process of Redis answers than before. It may lack the last changes."""

    async def listen(self, ask: Ask) -> None:
        """Wait for messages on a connection of its own, until the connection is lost."""


class _Repeated:
    """A script that is run at intervals. Its answer says whether it is to be run again."""

    __slots__ = ("arguments", "ended", "script", "seconds", "task")

    def __init__(
        self, script: Script, arguments: Callable[[], Sequence[Any]], seconds: float, ended: Callable[[], None]
    ) -> None:
        self.script = script
        self.arguments = arguments
        self.seconds = seconds
        self.ended = ended
        self.task: asyncio.Task[None] | None = None


class RedisLink:
    """The connections to one Redis, opened at the first use."""

    def __init__(self, address: RedisAddress, prefix: str, timeout: float, listener: Callable[[], Listener]) -> None:
        """Prepare the connections and open none."""
        self.prefix: bytes = b"{" + prefix.encode() + b"}"
        self.timeout: float = timeout
        client = require("redis", extra="redis", what="A store on Redis")
        self.errors: RedisErrors = RedisErrors(client, address, prefix, timeout)
        self.deafness: BaseException | None = None
        """Why no messages are heard now. The listener clears it when it hears again."""
        self.changed_at: float = -inf
        """When another process of Redis began to answer, by the monotonic clock."""
        self._servers = RedisServers(address, self.prefix, self.errors, timeout)
        self._listener = listener
        self._met: bytes | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._process: int | None = None
        self._thread: threading.Thread | None = None
        self._queue: ScriptQueue | None = None
        self._ended = threading.Event()
        self._repeated: dict[_Repeated, None] = {}

    # --- on the event loops ---

    async def ask(
        self, script: Script, *arguments: Any, keys: Sequence[bytes] = (), then: Then = lambda reply: reply
    ) -> Any:
        """Run a script.

        `keys` follow those of the script, without the prefix. `then` turns the reply into the result, in the thread.
        """
        return await self.start(script, *arguments, keys=keys, then=then)

    def start(
        self, script: Script, *arguments: Any, keys: Sequence[bytes] = (), then: Then = lambda reply: reply
    ) -> asyncio.Future[Any]:
        """Run a script as `ask` does, and return the future of the result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        due = time.monotonic() + self.timeout
        self._open().add(ScriptCall(script, arguments, keys, then, due, loop, future))
        return future

    def wake(self) -> None:
        """Start to listen, without running a script. Raise `StoreFailed` when the store is closed."""
        self._open()

    def repeat(
        self, script: Script, arguments: Callable[[], Sequence[Any]], seconds: float, ended: Callable[[], None]
    ) -> Callable[[], None]:
        """Run a script at once and then at intervals, until the returned function is called or it answers 0.

        In the latter case call `ended`, in the thread. While Redis is away the script is tried more often.
        """
        repeated = _Repeated(script, arguments, seconds, ended)
        with self._lock:
            self._repeated[repeated] = None
        self._open().call(lambda: self._begin(repeated))

        def stop() -> None:
            with self._lock:
                self._repeated.pop(repeated, None)
                queue = self._queue
            if queue is not None and repeated.task is not None:
                queue.call(repeated.task.cancel)

        return stop

    def _open(self) -> ScriptQueue:
        with self._lock:
            if self._closed:
                raise StoreFailed("The store is closed")
            if self._process is not None and self._process != os.getpid():
                # Parent and child would read each other's replies.
                raise StoreFailed("The store was in use when the process forked: use it only afterwards")
            if self._thread is None or self._queue is None:
                if self._process is None:
                    atexit.register(self.close)
                self._process = os.getpid()
                self._queue = ScriptQueue(asyncio.new_event_loop())
                self._thread = threading.Thread(
                    target=self._run, args=(self._queue,), name="toolwire redis", daemon=True
                )
                self._thread.start()
            return self._queue

    def close(self) -> None:
        """Finish the scripts that were asked for, and close the connections."""
        self._ended.set()
        with self._lock:
            self._closed = True
            thread, queue = self._thread, self._queue
        if thread is None or queue is None or self._process != os.getpid():
            return
        queue.close()
        thread.join()
        atexit.unregister(self.close)

    # --- in the thread ---

    def _run(self, queue: ScriptQueue) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: queue.loop) as runner:
                runner.run(self._serve(queue))
        except Exception as error:
            _logger.exception("the thread of the store %s failed", self.errors.store)
            with self._lock:
                self._thread = None  # The next to come tries anew.
            queue.fail(self.errors.failure(error))
            if self._repeated and not self._ended.wait(LONGEST_PAUSE):
                # Nobody may come with a script meanwhile: the event loops can be blocked.
                with contextlib.suppress(StoreFailed):
                    self._open()

    async def _serve(self, queue: ScriptQueue) -> None:
        pipeline = RedisPipeline(queue, self._servers, self.errors, self.prefix, self.timeout, self._meet)
        listening = asyncio.create_task(self._hear(pipeline))
        for repeated in tuple(self._repeated):
            self._begin(repeated)
        try:
            await pipeline.run()
        finally:
            while not listening.done():
                # `wait_for` of Python 3.11, which the library uses, sometimes swallows a cancellation.
                listening.cancel()
                await asyncio.wait({listening}, timeout=0.05)

    def _begin(self, repeated: _Repeated) -> None:
        """Run a script at intervals from now on, in a task of the running loop."""
        loop = asyncio.get_running_loop()
        if repeated in self._repeated and (repeated.task is None or repeated.task.get_loop() is not loop):
            repeated.task = loop.create_task(self._repeat(repeated))

    async def _repeat(self, repeated: _Repeated) -> None:
        while True:
            pause = repeated.seconds
            try:
                goes_on = await self.ask(repeated.script, *repeated.arguments())
            except ToolwireError:
                # The pipeline has said why.
                goes_on, pause = True, min(pause, LONGEST_PAUSE)
            if not goes_on:
                with self._lock:
                    self._repeated.pop(repeated, None)
                call_guarded(repeated.ended)
                return
            await asyncio.sleep(pause)

    @property
    def may_lack_writes(self) -> bool:
        """True while processes may be about to write again what a failover has lost."""
        return time.monotonic() < self.changed_at + _RESTORE_SECONDS

    @property
    def evictions(self) -> Evictions:
        """Return the keys that Redis evicts, as far as this process knows."""
        return self._servers.eviction.seen

    def _meet(self, connection: RedisConnection) -> list[FirstLook]:
        """Take note of the server of a new connection, and return what to run there first."""
        listener = self._listener()
        if self._met is not None and (not connection.server or connection.server != self._met):
            if connection.server:
                _logger.warning(
                    "another process of Redis answers for the store %s: it may lack the last changes", self.errors.store
                )
            self.changed_at = time.monotonic()
            listener.server_changed()
        self._met = connection.server
        return listener.first_looks()

    async def _report(self, ask: Ask) -> None:
        replies: list[Any] = []
        for command in REPORT_COMMANDS:
            with contextlib.suppress(self.errors.response):
                replies.append(await ask(*command))
        report = join_report(replies)
        if report is not None:
            self._servers.eviction.note(report)

    async def _hear(self, pipeline: RedisPipeline) -> None:
        await pipeline.begun.wait()
        backoff = Backoff(longest=LONGEST_PAUSE)
        connection: RedisConnection | None = None
        is_said = False

        async def ask(*command: Any) -> Any:
            nonlocal connection
            if connection is None or not await connection.is_alive():
                connection = await self._servers.connect(self.timeout + LISTEN_SECONDS)
                # Before subscribers learn that messages were missed, and read the store again.
                pipeline.hope()
            speaking = pipeline.connection
            if speaking is not None and speaking.server != connection.server:
                # One of the two is no longer the primary.
                pipeline.doubt()
                raise self.errors.connection("two servers took changes")
            async with connection.limit():
                await connection.send([command])
                return await connection.read()

        report_at = time.monotonic() + REPORT_SECONDS

        async def watched(*command: Any) -> Any:
            """Send a command, and now and then ask whether Redis has evicted keys."""
            nonlocal report_at
            if time.monotonic() >= report_at:
                report_at = time.monotonic() + REPORT_SECONDS
                await self._report(ask)
            return await ask(*command)

        try:
            while True:
                began = time.monotonic()
                try:
                    await self._listener().listen(watched)
                except Exception as error:
                    if time.monotonic() - began > LONGEST_PAUSE:
                        is_said = False
                        backoff.reset()
                    if not is_said:
                        _logger.warning("the store %s is not heard: %s", self.errors.store, self.errors.reason(error))
                    is_said = True
                    self.deafness = error
                    if self.errors.is_refusal(error):
                        pipeline.doubt()
                    if connection is not None:
                        await connection.close()
                await asyncio.sleep(backoff.after(None))
        finally:
            if connection is not None:
                await connection.close()
