"""Asks Redis what the event loops want to know, many questions in one round trip, and tells them how it went.

Every question ends within a bounded time: while Redis is away questions wait for it for a while, then they fail, and as
long as it stays away new ones fail at once. What may have been done is never asked for a second time.
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
from toolwire.stores.redis_scripts import SCRIPTS, Script
from toolwire.stores.thread_jobs import Job, settle_all

_logger = logging.getLogger("toolwire.stores")

MAX_BATCH: Final = 500
LONGEST_PAUSE: Final = 2.0

Then: TypeAlias = Callable[[Any], Any]


class Question(Job):
    """A script to be run; `then` makes the result of its reply. After `due` it is not asked again."""

    __slots__ = ("arguments", "due", "script", "then")

    def __init__(
        self,
        script: Script,
        arguments: Sequence[Any],
        then: Then,
        due: float,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        super().__init__(loop, future)
        self.script: Script = script
        self.arguments: Sequence[Any] = arguments
        self.then: Then = then
        self.due: float = due


class Questions:
    """What waits to be asked: put in from any thread, taken out on the loop of the store."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed: bool = False
        self._lock = threading.Lock()
        self._waiting: list[Question] = []
        self._bell = asyncio.Event()
        self._bell.set()  # There is something to do before the first question.

    def add(self, question: Question) -> None:
        with self._lock:
            if self.closed:
                raise StoreFailed("The store is closed")
            is_first = not self._waiting
            self._waiting.append(question)
        if is_first:
            self._ring()

    def close(self) -> None:
        """Nothing more comes; what is there is to be asked yet."""
        with self._lock:
            self.closed = True
        self._ring()

    def fail(self, error: Exception) -> None:
        """There is nobody to ask them any more."""
        with self._lock:
            self.closed = True
        waiting = self.take()
        for question in waiting:
            question.fail(error)
        settle_all(waiting)

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop has ended, and with it whoever would have listened.
            self.loop.call_soon_threadsafe(self._bell.set)

    def take(self) -> list[Question]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    async def wait(self, seconds: float | None = None) -> None:
        """Return when there is something new, or when the time is up."""
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()


class Connection:
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


class Speaker:
    """`begun` is set when Redis was reached and `first` was answered."""

    def __init__(
        self,
        questions: Questions,
        connection: Connection,
        errors: RedisErrors,
        prefix: bytes,
        timeout: float,
        first: Callable[[], tuple[Script, Sequence[Any], Then]],
    ) -> None:
        self.begun: asyncio.Event = asyncio.Event()
        self._questions = questions
        self._connection = connection
        self._errors = errors
        self._prefix = prefix
        self._timeout = timeout
        self._first = first
        self._knows_scripts = False
        self._backoff = Backoff(longest=LONGEST_PAUSE)
        # Since when, and why, there is no connection, and before when it is not worth trying again.
        self._away_since: float | None = None
        self._trouble: BaseException = AnswerLost()
        self._try_at = 0.0

    async def run(self) -> None:
        """Until the questions are closed."""
        while not self._questions.closed:
            await self._questions.wait()
            await self._answer(self._questions.take())
        # Those that came before it was closed.
        await self._answer(self._questions.take())

    def hope(self) -> None:
        """Redis was reached on another connection: the next question need not wait to find out."""
        self._try_at = 0.0

    async def _answer(self, questions: list[Question]) -> None:
        while questions or not (self.begun.is_set() or self._questions.closed):
            if await self._is_connected():
                questions = await self._exchange(questions[:MAX_BATCH]) + questions[MAX_BATCH:]
                continue
            if not self._is_worth_waiting():
                self._fail(questions, self._trouble)
                questions = []
            await self._questions.wait(max(self._try_at - time.monotonic(), 0.001))
            questions += self._questions.take()

    def _is_worth_waiting(self) -> bool:
        if self._away_since is None or self._questions.closed:
            return False
        waited = time.monotonic() - self._away_since
        return waited < self._timeout and self._errors.is_temporary(self._trouble)

    async def _is_connected(self) -> bool:
        """Connect where needed; what keeps us from it is remembered."""
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
        await self._connection.send([("SCRIPT", "LOAD", script.text) for script in SCRIPTS])
        for _ in SCRIPTS:
            await self._connection.read()
        self._knows_scripts = True

    async def _begin(self) -> None:
        script, arguments, then = self._first()
        await self._connection.send([script.in_full(self._prefix, arguments)])
        then(await self._connection.read())
        self.begun.set()

    async def _exchange(self, questions: list[Question]) -> list[Question]:
        """One round trip; returns what came to nothing and can be asked again."""
        answered: list[Question] = []
        again: list[Question] = []
        try:
            await self._connection.send([each.script.by_name(self._prefix, each.arguments) for each in questions])
            for question in questions:
                (answered if await self._read(question) else again).append(question)
        except (OSError, self._errors.base) as error:
            again += self._give_up(questions[len(answered) + len(again) :], error)
            await self._lose(error)
        settle_all(answered)
        return again

    async def _read(self, question: Question) -> bool:
        """Return whether this was the answer; False where Redis has forgotten the script, and has done nothing."""
        try:
            question.succeed(question.then(await self._connection.read()))
        except self._errors.unknown_script:
            self._knows_scripts = False
            return False
        except self._errors.response as error:
            question.fail(self._errors.failure(error))
        except self._errors.base:
            raise
        except Exception as error:
            # What the reply holds is not ours, and must not keep the others from theirs.
            question.fail(self._errors.failure(error))
        return True

    def _give_up(self, questions: list[Question], error: BaseException) -> list[Question]:
        """Fail what may have been done and what takes too long; the rest can be asked again."""
        now = time.monotonic()
        again = [each for each in questions if each.script.repeatable and each.due > now]
        for question in questions:
            if question not in again:
                is_told = question.script.repeatable or isinstance(error, self._errors.timeout)
                self._fail([question], error if is_told else AnswerLost())
        return again

    def _fail(self, questions: list[Question], error: BaseException) -> None:
        for question in questions:
            question.fail(self._errors.failure(error))
        settle_all(questions)
