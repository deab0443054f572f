"""The methods of both dialects: `tasks/get`, `result`, `list` and `cancel` of 2025-11-25, and `tasks/get`, `update` and
`cancel` of the extension."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from math import inf
from typing import Any, Final

from msgspec import UNSET

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.cursors import decode_cursor, encode_cursor
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NotSupported,
    ProtocolError,
    Timeout,
    TransportError,
    counted,
)
from toolwire.protocol.tasks import Question, Record
from toolwire.server.call import Call
from toolwire.server.catalog import Found
from toolwire.server.components import ToolBase
from toolwire.server.tasks.callers import counted_caller, owner_of, task_of
from toolwire.server.tasks.following import FILTER
from toolwire.server.tasks.manager import TaskManager
from toolwire.server.tasks.task_records import TasksUnreachable

log: logging.Logger = logging.getLogger("toolwire.tasks")

MAX_PAGE: Final = 100
#: Begins the cursors of tasks behind this server. No id begins like this.
_ELSEWHERE: Final = "+"
_LONGEST_ID: Final = 200
#: How long a request waits before it looks at a task again without having been told of a change.
_LOOK_SECONDS: Final = 30.0
#: The same, where the store could not take note that somebody waits.
_UNTOLD_SECONDS: Final = 1.0


class TaskMethods:
    """Answers the requests about tasks."""

    def __init__(self, tasks: TaskManager, page_size: Callable[[], int]) -> None:
        self._tasks = tasks
        self._page_size = page_size
        self._elsewhere = tasks.elsewhere
        # How many results each connection, or session, waits for.
        self._waiting: Counter[Any] = Counter()
        # Questions that a waiting `tasks/result` is asking right now.
        self._asking: set[tuple[str, str]] = set()
        self._core: dict[str, Callable[[Call], Awaitable[Any]]] = {
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/list": self._list,
            "tasks/cancel": self._cancel,
        }
        self._extension: dict[str, Callable[[Call], Awaitable[Any]]] = {
            "tasks/get": self._get_detailed,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel_softly,
        }

    @property
    def manager(self) -> TaskManager:
        return self._tasks

    @property
    def running(self) -> int:
        """Return how many tasks run in this process."""
        return self._tasks.running

    def tool_called(self, call: Call, found: Found[ToolBase]) -> Awaitable[Any]:
        return self._tasks.acceptance.tool_called(call, found)

    async def ready(self) -> None:
        await self._tasks.ready()

    async def stop(self) -> None:
        await self._tasks.stop()

    def drain(self, seconds: float = inf) -> None:
        self._tasks.drain(seconds)

    def discard(self, *, is_forked: bool) -> None:
        self._tasks.discard(is_forked=is_forked)

    async def handle(self, call: Call) -> Any:
        if call.request.modern and not rules.is_declared(call.request.capabilities):
            raise rules.missing_extension(f"{call.method} belongs to tasks")
        foreign = None if call.method == "tasks/list" else self._elsewhere.find(call, call.params.task_id)
        if foreign is not None:
            with self._counted(call) if call.method == "tasks/result" else nullcontext():
                return await self._elsewhere.answer(call, foreign)
        await self._tasks.ready()
        if not call.request.modern:
            return await self._core[call.method](call)
        return self._tasks.signed(await self._extension[call.method](call))

    def _key(self, call: Call) -> str:
        if len(call.params.task_id) > _LONGEST_ID:
            raise rules.unknown_task()
        return self._tasks.records.key(owner_of(call), call.params.task_id)

    async def _find(self, call: Call) -> Record:
        record = await self._tasks.records.find(self._key(call))
        if record is None:
            raise self._tasks.records.error_for_missing()
        await self._tasks.permissions.check(call, task_of(record))
        return record

    async def _change(self, call: Call, edit: Callable[[Record], bool]) -> Record:
        """Change a task that the caller may use."""
        permissions = self._tasks.permissions
        if permissions.needs_list:
            await self._find(call)

        def edit_usable(record: Record) -> bool:
            if not permissions.needs_list:
                permissions.check_now(call, task_of(record))
            return edit(record)

        record = await self._tasks.change(self._key(call), edit_usable)
        if record is None:
            raise self._tasks.records.error_for_missing()
        return record

    async def _usable(self, call: Call, identifiers: list[str]) -> list[Record]:
        """Return the tasks of the caller that it may use now."""
        owner = owner_of(call)
        found = await asyncio.gather(*(self._find_readable(owner, each) for each in identifiers))
        records = [record for record in found if record is not None]
        permissions = await self._tasks.permissions.of(call, [task_of(record) for record in records])
        return [record for record, each in zip(records, permissions, strict=True) if each == "usable"]

    async def _find_readable(self, owner: str, identifier: str) -> Record | None:
        """Return a task; None for a damaged record, which must not fail the whole list."""
        key = self._tasks.records.key(owner, identifier)
        try:
            return await self._tasks.records.find(key)
        except rules.Unreadable:
            log.warning("a task is left out of a list: its record cannot be read: %s", key)
            return None

    # --- 2025-11-25 ---

    async def _get(self, call: Call) -> t.GetTaskResult:
        record = self._tasks.permissions.mask(call, await self._find(call))
        return rules.core_task(record, t.GetTaskResult, time.time())

    async def _cancel(self, call: Call) -> t.CancelTaskResult:
        cancelled = False

        def edit(record: Record) -> bool:
            nonlocal cancelled
            cancelled = rules.cancel(record)
            return cancelled

        record = await self._change(call, edit)
        if not cancelled:
            raise rules.already_over()
        return rules.core_task(self._tasks.permissions.mask(call, record), t.CancelTaskResult, time.time())

    async def _list(self, call: Call) -> t.ListTasksResult:
        try:
            after = "" if not isinstance(call.params.cursor, str) else decode_cursor(call.params.cursor, "tasks")
        except ValueError as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from None
        own: list[t.Task] = []
        if not after.startswith(_ELSEWHERE):
            size = min(self._page_size(), MAX_PAGE)
            ids = await self._tasks.records.ids(owner_of(call), after, size + 1)
            now, mask = time.time(), self._tasks.permissions.mask
            own = [rules.core_task(mask(call, record), t.Task, now) for record in await self._usable(call, ids[:size])]
            if len(ids) > size:
                return t.ListTasksResult(tasks=own, next_cursor=encode_cursor("tasks", ids[size - 1]))
            after = ""
        # Those behind this server come after all others.
        tasks, last = await self._elsewhere.page(call, after.removeprefix(_ELSEWHERE), self._page_size())
        following = UNSET if last is None else encode_cursor("tasks", _ELSEWHERE + last)
        return t.ListTasksResult(tasks=[*own, *tasks], next_cursor=following)

    async def _result(self, call: Call) -> Any:
        """Wait for the end of a task. Meanwhile its questions are asked here, where the client is sure to listen."""
        key = self._key(call)
        relays: dict[str, asyncio.Task[None]] = {}
        following = self._tasks.following
        with self._counted(call), self._tasks.bells.waiting(key) as bell:
            try:
                while True:
                    bell.clear()
                    record = await following.watch(key, await self._find(call))
                    if record is None:
                        raise self._tasks.records.error_for_missing()
                    record = self._tasks.permissions.mask(call, record)
                    if record.over:
                        return rules.payload(self._tasks.ends.in_words_of(call.revision, record))
                    self._ask(call, key, record, relays)
                    await _rings(bell, _LOOK_SECONDS if following.is_told(record) else _UNTOLD_SECONDS)
            finally:
                for relay in relays.values():
                    relay.cancel()

    @contextmanager
    def _counted(self, call: Call) -> Iterator[None]:
        """J75: let waiting requests use at most half of the requests in flight of a connection."""
        who = call.session_id or call.outlet.connection
        if who is None:
            yield  # Where each request stands alone, no others have to get through.
            return
        if self._waiting[who] >= max(1, self._tasks.limits.in_flight // 2):
            raise ProtocolError(INTERNAL_ERROR, "Too many results are waited for here: poll with tasks/get instead")
        self._waiting[who] += 1
        try:
            yield
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who]

    def _ask(self, call: Call, key: str, record: Record, relays: dict[str, asyncio.Task[None]]) -> None:
        for name, relay in tuple(relays.items()):
            if name not in record.questions:
                relay.cancel()  # Answered elsewhere; the client is told that nobody waits for its answer.
                del relays[name]
        for name, question in record.questions.items():
            if name not in relays and (key, name) not in self._asking:
                # 2025-11-25 tasks, input required: a client that sees the status calls `tasks/result`.
                self._asking.add((key, name))
                relays[name] = asyncio.create_task(self._relay(call, key, record, name, question))

    async def _relay(self, call: Call, key: str, record: Record, name: str, question: Question) -> None:
        """Ask one question of a task, and put the answer into its record."""
        params: Any = rules.related_params(question, record.id)
        try:
            edit = await self._answer(call, question, params, name, self._tasks.answer_time(record.ttl_ms))
            # This change wakes the waiter for the result, which cancels questions that are answered.
            await asyncio.shield(self._tasks.in_background(self._keep_answer(key, name, edit)))
        except (Timeout, TransportError, NotSupported):
            pass  # The client is gone or cannot be asked here: the question stays open for another.
        finally:
            self._asking.discard((key, name))
            self._tasks.bells.wake(key)

    async def _answer(
        self, call: Call, question: Question, params: Any, name: str, seconds: float
    ) -> Callable[[Record], bool]:
        """Ask, and return what the answer, or the refusal, changes in the record."""
        try:
            answer = await call.outlet.request(question.kind, params, timeout=seconds)
            self._check_room(call, len(answer))
        except ProtocolError as error:
            refusal = error
            return lambda record: rules.take_refusal(record, name, refusal)
        unmask = self._tasks.permissions.unmask
        return lambda record: rules.take_answers(record, unmask(call, record, {name: answer}))

    def _check_room(self, call: Call, size: int) -> None:
        """Raise `Taken` for answers that do not fit into the caller's share of the store."""
        self._tasks.kept.check(counted_caller(call.request.caller), size)

    async def _keep_answer(self, key: str, name: str, edit: Callable[[Record], bool]) -> None:
        try:
            await self._tasks.change(key, edit)
        except TasksUnreachable:
            pass  # The question is asked again.
        except ProtocolError as error:
            refusal = error
            await self._tasks.change(key, lambda record: rules.take_refusal(record, name, refusal))

    # --- the extension ---

    async def _get_detailed(self, call: Call) -> t.DetailedTaskResult:
        masked = self._tasks.permissions.mask(call, await self._find(call))
        record = self._tasks.ends.in_words_of(call.revision, masked)
        return rules.detailed_task(record, t.DetailedTaskResult, time.time())

    async def _update(self, call: Call) -> t.Result:
        responses = call.params.input_responses
        self._check_room(call, sum(map(len, responses.values())))
        unmask = self._tasks.permissions.unmask
        return await self._acknowledged(
            call, lambda record: rules.take_answers(record, unmask(call, record, responses))
        )

    async def _cancel_softly(self, call: Call) -> t.Result:
        return await self._acknowledged(call, rules.cancel)

    async def _acknowledged(self, call: Call, edit: Callable[[Record], bool]) -> t.Result:
        # TSK-14: an empty answer, also where there was nothing left to change.
        await self._change(call, edit)
        return t.Result()

    # --- listening ---

    @asynccontextmanager
    async def listening(self, call: Call, wanted: list[str]) -> AsyncIterator[dict[str, Any]]:
        """Yield the tasks that a listen stream may hear of: those of its own principal (TSK-18) that it may use."""
        if not rules.is_declared(call.request.capabilities):
            raise rules.missing_extension("taskIds belong to tasks")
        if len(wanted) > self._tasks.limits.uris:
            raise ProtocolError(
                INVALID_PARAMS, f"At most {counted(self._tasks.limits.uris, 'task')} can be listened to at once"
            )
        await self._tasks.ready()
        owner, following = owner_of(call), self._tasks.following
        usable = {record.id: record for record in await self._usable(call, wanted)}
        listening = [following.listen(self._tasks.records.key(owner, each), record) for each, record in usable.items()]
        await asyncio.gather(*listening)
        async with self._elsewhere.listening(call, [each for each in wanted if each not in usable]) as heard:
            known = {*usable, *heard}
            yield {FILTER: [each for each in wanted if each in known]}


async def _rings(bell: asyncio.Event, seconds: float) -> None:
    """Wait for a change; look again after a while, since the store may have lost the record."""
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        pass
