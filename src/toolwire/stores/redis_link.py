"""One Redis and the one thread that talks to it, for whoever wants something done there from an event loop.

What is asked for while an answer is awaited is sent together afterwards, so that many small questions cost one round
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
from toolwire.protocol.errors import ServerError
from toolwire.stores.memory import StoreFailed
from toolwire.stores.redis_address import RedisAddress
from toolwire.stores.redis_errors import RedisErrors
from toolwire.stores.redis_pipeline import LONGEST_PAUSE, Connection, Question, Questions, Speaker, Then
from toolwire.stores.redis_scripts import Script

_logger = logging.getLogger("toolwire.stores")

#: How long one wait for messages lasts; between two of them we see whether everything is as we left it.
LISTEN_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 30

#: Sends one command on the connection that waits, and gives its reply.
Ask: TypeAlias = Callable[..., Awaitable[Any]]


class RedisLink:
    """The connections, opened by the first who wants something of them."""

    def __init__(
        self,
        address: RedisAddress,
        prefix: str,
        timeout: float,
        *,
        first: Callable[[], tuple[Script, Sequence[Any], Then]],
        listen: Callable[[Ask], Coroutine[Any, Any, None]],
    ) -> None:
        """`first` is asked before anything else; `listen` runs all the time after that, on a connection of its own, and
        is started again when that is lost."""
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
        self._questions: Questions | None = None
        try:
            self._connect(timeout)
        except (TypeError, ValueError):
            raise ServerError("The address of the store has an option that the client library does not know") from None

    # --- on the event loops ---

    async def ask(self, script: Script, *arguments: Any, then: Then = lambda reply: reply) -> Any:
        """Run a script; `then` makes the result of its reply, in the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._open().add(Question(script, arguments, then, time.monotonic() + self._timeout, loop, future))
        return await future

    def wake(self) -> None:
        """Begin to listen, without wanting anything else."""
        self._open()

    def _open(self) -> Questions:
        with self._lock:
            if self._closed:
                raise StoreFailed("The store is closed")
            if self._process is not None and self._process != os.getpid():
                # Parent and child would read each other's answers.
                raise StoreFailed("The store was in use when the process forked: use it only afterwards")
            if self._thread is None or self._questions is None:
                if self._process is None:
                    atexit.register(self.close)
                self._process = os.getpid()
                self._questions = Questions(asyncio.new_event_loop())
                self._thread = threading.Thread(
                    target=self._run, args=(self._questions,), name="toolwire redis", daemon=True
                )
                self._thread.start()
            return self._questions

    def close(self) -> None:
        """Finish what was asked for, and let go of the connections."""
        with self._lock:
            self._closed = True
            thread, questions = self._thread, self._questions
        if thread is None or questions is None or self._process != os.getpid():
            return
        questions.close()
        thread.join()
        atexit.unregister(self.close)

    # --- in the thread ---

    def _run(self, questions: Questions) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: questions.loop) as runner:
                runner.run(self._serve(questions))
        except Exception as error:
            _logger.exception("the thread of the store %s failed", self._errors.store)
            with self._lock:
                self._thread = None  # The next to come tries anew.
            questions.fail(self._errors.failure(error))

    async def _serve(self, questions: Questions) -> None:
        # Both exist before anything can go wrong, so that both are let go of.
        speaking, waiting = self._connect(self._timeout), self._connect(self._timeout + LISTEN_SECONDS)
        speaker = Speaker(questions, speaking, self._errors, self.prefix, self._timeout, self._first)
        listening = asyncio.create_task(self._hear(waiting, speaker))
        try:
            await speaker.run()
        finally:
            while not listening.done():
                # `wait_for` of Python 3.11, which the library uses, sometimes swallows a cancellation.
                listening.cancel()
                await asyncio.wait({listening}, timeout=0.05)
            await self._let_go(speaking)
            await self._let_go(waiting)

    def _connect(self, timeout: float) -> Connection:
        """A connection that is not open yet."""
        # The library's own repetitions would send again what may have been done.
        never = self._asyncio.retry.Retry(self._client.backoff.NoBackoff(), 0)
        return Connection(
            self._asyncio.ConnectionPool.from_url(
                self._address.url,
                retry=never,
                socket_timeout=timeout,
                socket_connect_timeout=self._timeout,
                health_check_interval=IDLE_SECONDS,
                protocol=2,
            )
        )

    async def _hear(self, connection: Connection, speaker: Speaker) -> None:
        await speaker.begun.wait()
        backoff = Backoff(longest=LONGEST_PAUSE)
        is_lost = False

        async def ask(*command: Any) -> Any:
            nonlocal is_lost
            await connection.ensure()
            await connection.send([command])
            reply = await connection.read()
            if is_lost:
                # Before anybody is told that messages were missed, and wants to know what has changed.
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

    async def _let_go(self, connection: Connection) -> None:
        with contextlib.suppress(OSError, self._errors.base):
            await connection.disconnect()
