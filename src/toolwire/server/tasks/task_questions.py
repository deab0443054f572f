"""The questions of a task: asked by its record, and answered there by its client, in whichever process that arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, ProtocolError
from toolwire.protocol.rounds import Keys, Kind, Rounds, digest
from toolwire.protocol.shaping import shape
from toolwire.protocol.tasks import Question, Record
from toolwire.server.input_requests import SETTLE_TURNS, Asking, Refused, step_result
from toolwire.server.tasks.task_records import NoRoom, TasksUnreachable
from toolwire.stores import LeaseLost
from toolwire.util.backoff import Backoff

#: The longest pause before a question is written again, when the store does not take it.
_LONGEST_PAUSE: Final = 10.0


class AskingRun(Protocol):
    """The run of a task, as far as its questions need it."""

    revision: str

    async def open(self) -> None: ...

    async def ask(self, questions: dict[str, Question], waiting: Collection[str]) -> Record | None: ...

    async def withdraw(self, name: str) -> None: ...

    def answer_time(self, wanted: float | None) -> float: ...

    def rest(self) -> None: ...

    async def go_on(self) -> None: ...

    def stop(self) -> None: ...


class TaskAsking(Asking):
    """Asks by the record of the task, and waits until an answer is in it. Asking makes a call a task."""

    __slots__ = ("_asked", "_is_ahead", "_keys", "_new", "_run", "_stepping", "_waiting", "_writing", "steps")

    def __init__(self, run: AskingRun) -> None:
        super().__init__()
        self._run = run
        self._keys = Keys()
        self.steps: dict[str, Raw] = {}
        """The results of the steps that were made in rounds of the request."""
        self._waiting: dict[str, tuple[Question, asyncio.Future[Raw]]] = {}
        self._new: dict[str, Question] = {}
        self._writing: asyncio.Task[None] | None = None
        # The questions and steps that have not returned, and whether one of these questions returned before the rest.
        self._asked = self._stepping = 0
        self._is_ahead = False

    def continue_rounds(self, rounds: Rounds) -> None:
        """Take over the steps and the names of questions of the call that became this task."""
        self.steps, self._keys = rounds.steps, rounds.keys

    @property
    def is_waiting(self) -> bool:
        """Return whether a question is open."""
        return bool(self._waiting)

    @property
    def may_run_again(self) -> bool:
        """Return whether the handler is where a round of questions would end it, and run it again from its start.

        It is not once it has an answer while another question is open: what it does with that answer would be repeated.
        """
        return self._asked > 0 and not self._stepping and not self._is_ahead

    async def ask(
        self,
        kind: Kind,
        params: t.Wire | None,
        key: str | None,
        threaded: bool = False,
        timeout: float | None = None,
    ) -> Raw:
        self._asked += 1
        try:
            return await self._ask(kind, params, key, timeout)
        finally:
            self._asked -= 1
            self._is_ahead = self._asked > 0

    async def _ask(self, kind: Kind, params: t.Wire | None, key: str | None, timeout: float | None) -> Raw:
        revision = self._run.revision
        try:
            said = UNSET if params is None else Raw(msgspec.json.encode(shape(params, revision)))
        except ValueError as error:
            raise NotSupported(f"The client cannot be asked this: {error}") from None
        await self._run.open()
        asked = digest(kind, said)
        # TSK-11: a key is never used twice in the life of a task.
        name = self._keys.choose(kind, asked, key)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Raw] = loop.create_future()
        self._waiting[name] = (Question(kind, asked, said), future)
        self._new[name] = self._waiting[name][0]
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write())
        # The slot is for tasks that work, and this one waits for a person.
        self._run.rest()
        try:
            async with asyncio.timeout(self._run.answer_time(timeout)):
                answer = await future
        except asyncio.CancelledError:
            raise  # The handler ends, and needs no slot for that.
        except TimeoutError:
            await self._run.withdraw(name)
            await self._run.go_on()
            raise Refused(f"The client did not answer {kind}") from None
        except Exception:
            await self._run.go_on()
            raise
        finally:
            del self._waiting[name]
            self._new.pop(name, None)
        await self._run.go_on()
        return answer

    async def _write(self) -> None:
        pauses: Backoff | None = None
        while self._new:
            for _ in range(SETTLE_TURNS):
                await asyncio.sleep(0)  # What is asked together is shown together.
            questions, self._new = self._new, {}
            try:
                record = await self._run.ask(questions, self._waiting)
            except LeaseLost:
                self._run.stop()
            except (TasksUnreachable, NoRoom):
                # The handler waits for its answer anyway: it may wait for the store, too.
                unwritten = {each: question for each, question in questions.items() if each in self._waiting}
                self._new = {**unwritten, **self._new}
                pauses = pauses or Backoff(longest=_LONGEST_PAUSE)
                await asyncio.sleep(pauses.after(None))
            except ProtocolError as error:
                for name in questions:
                    self._fail(name, error)
            else:
                if record is not None:
                    self.deliver(record)

    def deliver(self, record: Record) -> None:
        """Hand out the answers that have come."""
        for name, (question, future) in tuple(self._waiting.items()):
            reply = record.answers.get(name)
            if reply is None or future.done():
                continue
            if reply.digest != question.digest:
                self._fail(name, RuntimeError(f"The question {name!r} changed when the task was run again"))
            elif reply.error is not UNSET:
                text = f"The client refused {question.kind}: {reply.error.message}"
                self._fail(name, Refused(text, reply.error.code))
            elif reply.result is not UNSET:
                future.set_result(reply.result)

    def _fail(self, name: str, error: Exception) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_exception(error)

    async def _make_step(self, name: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> bytes:
        done = self.steps.get(name)
        if done is None:
            self._stepping += 1
            try:
                done = self.steps[name] = Raw(step_result(name, await run()))
            finally:
                self._stepping -= 1
        return done
