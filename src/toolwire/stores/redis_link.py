"""One Redis and the thread that talks to it on behalf of event loops.

Scripts that are asked for while a reply is awaited are sent together afterwards, so that many small ones cost one round
trip. A second connection waits for messages.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from toolwire.backoff import Backoff
from toolwire.extras import require
from toolwire.protocol.errors import ServerError, ToolwireError
from toolwire.stores.memory import StoreFailed
from toolwire.stores.redis_address import RedisAddress
from toolwire.stores.redis_errors import RedisErrors
from toolwire.stores.redis_pipeline import LONGEST_PAUSE, RedisConnection, RedisPipeline, ScriptCall, ScriptQueue, Then
from toolwire.stores.redis_scripts import Script
from toolwire.stores.thread_jobs import call_guarded

_logger = logging.getLogger("toolwire.stores")

#: How long one wait for messages lasts. After each one the bus compares its number with that of Redis.
LISTEN_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 30

#: A function that sends one command on the second connection, and returns its reply.
Ask: TypeAlias = Callable[..., Awaitable[Any]]


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

    def __init__(
        self,
        address: RedisAddress,
        prefix: str,
        timeout: float,
        *,
        first: Callable[[], tuple[Script, Sequence[Any], Then]],
        listen: Callable[[Ask], Coroutine[Any, Any, None]],
    ) -> None:
        """Prepare the connections and open none.

        `first` names the script that runs before all others. `listen` runs after that on a connection of its own, and
        is started again when that connection is lost.
        """
        self.prefix: bytes = b"{" + prefix.encode() + b"}"
        self._client = require("redis", extra="redis", what="A store on Redis")
        self._asyncio = require("redis.asyncio", extra="redis", what="A store on Redis")
        self._errors = RedisErrors(self._client, address, prefix, timeout)
        self._address = address
        self._timeout = timeout
        self._first = first
        self._listen = listen
        self._lock = threading.Lock()
        self._closed = False
        self._process: int | None = None
        self._thread: threading.Thread | None = None
        self._queue: ScriptQueue | None = None
        self._ended = threading.Event()
        self._repeated: dict[_Repeated, None] = {}
        try:
            self._connect(timeout)
        except (TypeError, ValueError):
            raise ServerError("The address of the store has an option that the client library does not know") from None

    # --- on the event loops ---

    async def ask(
        self, script: Script, *arguments: Any, keys: Sequence[bytes] = (), then: Then = lambda reply: reply
    ) -> Any:
        """Run a script; `keys` are added to its own. `then` turns its reply into the result, in the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._open().add(ScriptCall(script, arguments, keys, then, time.monotonic() + self._timeout, loop, future))
        return await future

    def wake(self) -> None:
        """Start to listen, without running a script."""
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
            _logger.exception("the thread of the store %s failed", self._errors.store)
            with self._lock:
                self._thread = None  # The next to come tries anew.
            queue.fail(self._errors.failure(error))
            if self._repeated and not self._ended.wait(LONGEST_PAUSE):
                # Nobody may come with a script meanwhile: the event loops can be blocked.
                with contextlib.suppress(StoreFailed):
                    self._open()

    async def _serve(self, queue: ScriptQueue) -> None:
        # Both exist before anything can fail, so that both are closed.
        speaking, waiting = self._connect(self._timeout), self._connect(self._timeout + LISTEN_SECONDS)
        speaker = RedisPipeline(queue, speaking, self._errors, self.prefix, self._timeout, self._first)
        listening = asyncio.create_task(self._hear(waiting, speaker))
        for repeated in tuple(self._repeated):
            self._begin(repeated)
        try:
            await speaker.run()
        finally:
            while not listening.done():
                # `wait_for` of Python 3.11, which the library uses, sometimes swallows a cancellation.
                listening.cancel()
                await asyncio.wait({listening}, timeout=0.05)
            await self._let_go(speaking)
            await self._let_go(waiting)

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

    def _connect(self, timeout: float) -> RedisConnection:
        """Make a connection that is not open yet."""
        # The library's own retries would send again a script that may have run.
        never = self._asyncio.retry.Retry(self._client.backoff.NoBackoff(), 0)
        return RedisConnection(
            self._asyncio.ConnectionPool.from_url(
                self._address.url,
                retry=never,
                socket_timeout=timeout,
                socket_connect_timeout=self._timeout,
                health_check_interval=IDLE_SECONDS,
                protocol=2,
            )
        )

    async def _hear(self, connection: RedisConnection, speaker: RedisPipeline) -> None:
        await speaker.begun.wait()
        backoff = Backoff(longest=LONGEST_PAUSE)
        is_lost = False

        async def ask(*command: Any) -> Any:
            nonlocal is_lost
            await connection.ensure()
            await connection.send([command])
            reply = await connection.read()
            if is_lost:
                # Before subscribers learn that messages were missed, and read the store again.
                is_lost = False
                speaker.hope()
            return reply

        is_said = False
        while True:
            began = time.monotonic()
            try:
                await self._listen(ask)
            except Exception as error:
                if time.monotonic() - began > LONGEST_PAUSE:
                    is_said = False
                    backoff.reset()
                if not is_said:
                    _logger.warning("the store %s is not heard: %s", self._errors.store, self._errors.reason(error))
                is_lost = is_said = True
                await self._let_go(connection)
            await asyncio.sleep(backoff.after(None))

    async def _let_go(self, connection: RedisConnection) -> None:
        with contextlib.suppress(OSError, self._errors.base):
            await connection.disconnect()
