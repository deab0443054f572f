"""Tasks of a server behind a gateway, in the dialect of each client.

The record of a task stays at the server. The gateway gives the task a sealed name, and sends every request about it to
the server. 2025-11-25 has `tasks/result`, which waits for the outcome while the server asks its questions by requests.
2026-07-28 has both in `tasks/get`. Where the two sides differ, one is made out of the other here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.client.listen import Subscription
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection, RelayedCall
from toolwire.client.tasks import check_task_id, fetch_outcome, poll_seconds
from toolwire.gateway.back_connections import Conversation
from toolwire.gateway.back_messages import Undeclared, answer_legacy, ask_client, check_questions, reporting_task
from toolwire.gateway.relaying import Answer, TaskNeeded, members_of, unknown_extensions, with_allowed_questions
from toolwire.gateway.remote_components import Home, RemoteTool, handed_on
from toolwire.gateway.sent_request import AboutTask, Sent, sent_with
from toolwire.gateway.task_dialects import (
    as_core,
    created_task,
    created_under,
    inlined,
    members_sent,
    modern_fields,
    related_answers,
    with_related,
    without_connection,
    without_related,
    without_ttl,
)
from toolwire.gateway.task_ends import SeenTask, TaskEnds
from toolwire.gateway.waiting_tasks import WaitingTask, WaitingTasks, answer_elsewhere, questions_elsewhere
from toolwire.protocol import types as t
from toolwire.protocol.decoders import convert_to, decoder_of
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    InvalidResponse,
    NotSupported,
    ProtocolError,
    ToolError,
    ToolwireError,
)
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.rounds import digest
from toolwire.protocol.shaping import shape
from toolwire.protocol.tasks import (
    MAX_QUESTIONS,
    PROGRESS_KEY,
    TERMINAL,
    Verdict,
    already_over,
    was_cancelled,
)
from toolwire.server.binding.results import OpenResult
from toolwire.server.call import Call
from toolwire.server.foreign_tasks import Check, ForeignTask, TaskElsewhere, TaskHost
from toolwire.server.input_requests import Refused
from toolwire.server.tasks.callers import owner_of
from toolwire.server.tasks.tasks_elsewhere import mark_of, sealed_name
from toolwire.util.expiring import Expiring

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many tasks of one server a gateway remembers more about than their names say.
MAX_REMEMBERED: Final = 10_000
#: How many tasks of one modern server are followed for legacy clients, who are told of their status.
MAX_FOLLOWED: Final = 256
#: How many seconds a task without a ttl is remembered, and its connection stays open for it, without a request.
MAX_KEPT_SECONDS: Final = 86_400.0
# How often a question of a task that waits for an answer is looked for.
_LOOKS: Final = 10
#: How many seconds the server has to acknowledge that it tells of tasks.
LISTEN_SECONDS: Final = 10.0

_OVER: Final = tuple(Raw(msgspec.json.encode(status)) for status in sorted(TERMINAL))

_encode = msgspec.json.encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
W = TypeVar("W", bound=t.Wire)


class RemoteTask(NamedTuple):
    """A task, and the tool that was called, where the tool is still there."""

    id: str
    tool: RemoteTool | None = None
    made: str = ""
    """The mark of its making: see `ForeignTask`."""
    check: Check | None = None
    """Raises once the caller may not use the task; None where the client knows of no task."""


class _Own(NamedTuple):
    """A task of one owner, apart from others to which the server gave the same id."""

    owner: str
    made: str
    id: str


def _own(call: Call, task: RemoteTask) -> _Own:
    return _Own(owner_of(call), task.made, task.id)


class _Detailed(t.DetailedTaskResult, kw_only=True):
    """A task of a modern server. Its result stays as it came."""

    result: Raw | UnsetType = UNSET
    input_requests: Any = UNSET


class _Told(t.TaskFields, kw_only=True):
    """A notification of a task, as far as a 2025-11-25 client can be told of it."""

    result: Any = UNSET
    meta: Any = msgspec.field(default=UNSET, name="_meta")


class _Made(NamedTuple):
    """The making of a task of a legacy server."""

    conversation: Conversation
    ttl: float


class _Telling(NamedTuple):
    """The ways in which a legacy server tells of a task."""

    connection: RelayConnection
    stop_reports: Callable[[], None] | None


class RemoteTasks:
    """The tasks of one server."""

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._relay = home.relay
        self.mark: str = mark_of(name)
        # The conversations with a legacy server in which tasks were made. A server that is a process knows a task there
        # and nowhere else.
        self._conversations: Expiring[_Own, _Made] = Expiring(MAX_REMEMBERED, sweeps=True)
        self._waiting = WaitingTasks()
        # The tasks of a legacy server whose legacy clients are told of them.
        self._told: Expiring[_Own, _Telling] = Expiring(MAX_REMEMBERED, on_evict=_stop, sweeps=True)
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._ends: TaskEnds[_Own] = TaskEnds(self._relay.log, MAX_REMEMBERED, MAX_KEPT_SECONDS)
        # Set when a task that is followed has changed.
        self._news: dict[str, asyncio.Event] = {}
        self._background: set[asyncio.Task[Any]] = set()
        # The tasks that were made here and whose results nobody has got.
        self._unread: Expiring[str, None] = Expiring(MAX_REMEMBERED, sweeps=True)

    @property
    def is_used(self) -> bool:
        """Return whether a client may ask for the result of a task that was made here."""
        return bool(self._unread or self._background)

    def knows(self, task: ForeignTask) -> bool:
        """Return whether a task was made here, and its result was not got."""
        return task.id in self._unread

    async def stop_watching(self) -> None:
        """Say of the ends that observers wait for that they are not known."""
        await self._ends.close()

    async def close(self) -> None:
        """Stop waiting and following."""
        await self._waiting.close()
        await self._ends.close()
        running = {*self._background, *self._followers.values()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for memory in (self._conversations, self._told, self._unread):
            memory.clear()

    # --- calls ---

    async def call(
        self,
        call: Call,
        tool: RemoteTool,
        sent: Sent,
        headers: Callable[[], Mapping[str, str]],
        way: Verdict,
        host: TaskHost,
    ) -> Any:
        """Call a tool as the client asked for it: as a call, as a task, or as the server likes."""
        try:
            if way == "call":
                result = await self._call_without_task(call, tool, sent, headers)
            else:
                result = await self._call_with_task(call, tool, sent, headers, way, host)
            await self._home.links.wait_for_writes()
            return result
        except InvalidResponse as error:
            raise self._relay.failed(error, call) from None

    async def _call_with_task(
        self,
        call: Call,
        tool: RemoteTool,
        sent: Sent,
        headers: Callable[[], Mapping[str, str]],
        way: Verdict,
        host: TaskHost,
    ) -> Any:
        legacy = not call.request.modern
        sent.ask_for_task(call.params.task if legacy else Raw(b"{}"))
        try:
            answer = await self._relay.send(call, "tools/call", sent, headers)
            created = created_task(answer)
            if created is None:
                result = tool.outcome(call, answer)
                # A modern server decides by itself. A 2025-11-25 client gets the task that it asked for.
                return await host.ended(call, result) if legacy else result
            task = self._made(call, created, answer.connection, tool)
            name = self._named(call, task, await host.accept(call))
            await host.keep(call, name)
            call.task_elsewhere = TaskElsewhere(name, lambda: self._watch_end(call, task))
            if legacy:
                self._tell_client(call, name, task, answer.connection, sent)
                if isinstance(created, t.TaskCreatedResult):
                    return t.CreateTaskResult(task=as_core(created, name, t.Task))
                return created_under(answer, name)
            if answer.connection.modern:
                return created_under(answer, name)
            assert isinstance(created, t.Task)
            return await self._within(call, task, created, name, host.window if way == "may" else 0.0)
        finally:
            if sent.stop_reports is not None:
                sent.stop_reports()

    async def _call_without_task(
        self, call: Call, tool: RemoteTool, sent: Sent, headers: Callable[[], Mapping[str, str]]
    ) -> Any:
        """Call a tool for a client that cannot take a task. If the tool only runs as one, wait for its result here."""
        # A modern client is told which extension it lacks, as the server itself tells it (TSK-4).
        in_process = call.outer is not None or getattr(call.outlet, "in_process", False)
        sent.can_wait = in_process or not call.request.modern
        if tool.task != "required" and not (tool.needs_task and sent.can_wait):
            try:
                return tool.outcome(call, await self._relay.send(call, "tools/call", sent, headers))
            except TaskNeeded:
                tool.needs_task = True
        sent.ask_for_task(Raw(b"{}"))
        answer = await self._relay.send(call, "tools/call", sent, headers)
        created = created_task(answer)
        if created is None:
            return tool.outcome(call, answer)
        task = self._made(call, created, answer.connection, tool)
        try:
            result = await self._awaited(call, task, None)
            self._forget(call, task)
            return result
        except ProtocolError:
            raise
        except BaseException:
            self._in_background(self._cancel_quietly(call, task))
            raise
        finally:
            if sent.stop_reports is not None:
                sent.stop_reports()

    def _named(self, call: Call, task: RemoteTask, judged: str) -> str:
        """Return the name by which the client knows a task. `judged` is the mark of what was decided."""
        try:
            return sealed_name(call, ForeignTask(task.id, call.params.name, self.mark, task.made, judged))
        except ValueError as error:
            self._in_background(self._cancel_quietly(call, task))
            raise InvalidResponse(str(error)) from None

    async def _within(self, call: Call, task: RemoteTask, created: t.Task, name: str, seconds: float) -> Any:
        """Return the result of a task of a legacy server if it comes soon, and otherwise the task."""
        if seconds > 0:
            waiting = await self._wait(call, task)
            assert waiting.request is not None
            asking = asyncio.ensure_future(waiting.news.wait())
            try:
                await asyncio.wait({waiting.request, asking}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._in_background(self._cancel_quietly(call, task))
                raise
            finally:
                asking.cancel()
            if waiting.request.done():
                self._forget(call, task)
                call.task_elsewhere = None
                return self._result(call, task, without_related(waiting.request.result()))
            if not waiting.questions():
                self._waiting.drop(waiting)
        return t.TaskCreatedResult(**modern_fields(created, name))

    # --- requests about tasks ---

    async def answer(self, call: Call, foreign: ForeignTask, tool: Any, check: Check) -> Any:
        """Answer a request about a task, in the dialect of its client."""
        while tool is not None and tool.original is not None:
            tool = tool.original
        task = RemoteTask(foreign.id, tool if isinstance(tool, RemoteTool) else None, foreign.made, check)
        try:
            is_modern = await self._relay.is_modern(call)
            other = self._modern_from_legacy if call.request.modern else self._legacy_from_modern
            result = await (self._pass if call.request.modern == is_modern else other)(call, task)
            await self._home.links.wait_for_writes()
            return result
        except (ToolError, NotSupported) as error:
            if isinstance(error, Undeclared) and call.request.modern:
                raise error.as_modern_error() from None
            raise ProtocolError(INTERNAL_ERROR, str(error)) from None
        except InvalidResponse as error:
            raise ProtocolError(INTERNAL_ERROR, str(self._relay.failed(error, call))) from None

    async def state(self, call: Call, foreign: ForeignTask, name: str) -> t.Task:
        """Return a task as 2025-11-25 knows it."""
        task = RemoteTask(foreign.id, made=foreign.made)
        if await self._relay.is_modern(call):
            return as_core(await self._detailed(call, task), name, t.Task)
        state = await self._core(call, task)
        state.task_id = name
        return state

    async def _pass(self, call: Call, task: RemoteTask) -> Any:
        """Pass a request on to a server that speaks the dialect of the client."""
        about = self._about(call, task)
        if call.method == "tasks/result":
            about.waiting = RelayedCall(self._asking(call, task), task=task.id)
        answer = await self._send(call, call.method, task, about, members_sent(call))
        if call.method == "tasks/result":
            self._stop_telling(_own(call, task))
            self._unread.pop(task.id)
            return with_related(self._result(call, task, answer), call.params.task_id)
        raw = Raw(_encode(answer.members)) if answer.members is not None else answer.raw
        members: dict[str, Any] = dict(members_of(self._home.uris.in_result(raw) if self._home.uris.active else raw))
        if call.request.modern:
            members = dict(with_allowed_questions(call, members, unknown_extensions(answer.connection)))
        if "taskId" in members:
            members["taskId"] = call.params.task_id
        if members.get("status") in _OVER:
            self._stop_telling(_own(call, task))
        if "result" in members or call.method == "tasks/cancel":
            self._unread.pop(task.id)
        if "result" in members:
            members["result"] = self._inlined(call, task, members["result"], answer.connection)
        return without_connection(members)

    async def _modern_from_legacy(self, call: Call, task: RemoteTask) -> Any:
        if call.method == "tasks/update":
            await self._update_legacy(call, task)
            return t.Result()
        if call.method == "tasks/cancel":
            try:
                await self._send(call, "tasks/cancel", task)
            except ProtocolError:
                # TSK-14: the client gets an empty answer, also where the task is over.
                if (await self._core(call, task)).status not in TERMINAL:
                    raise
            return t.Result()
        return t.DetailedTaskResult(**await self._details(call, task, call.params.task_id))

    async def _legacy_from_modern(self, call: Call, task: RemoteTask) -> Any:
        name = call.params.task_id
        if call.method == "tasks/result":
            return with_related(shape(await self._awaited(call, task, name), call.revision), name)
        state = await self._detailed(call, task)
        if call.method == "tasks/get":
            return as_core(state, name, t.GetTaskResult)
        if state.status in TERMINAL:
            raise already_over()
        await self._send(call, "tasks/cancel", task)
        return as_core(await self._detailed(call, task), name, t.CancelTaskResult)

    # --- a legacy server and a modern client ---

    async def _details(self, call: Call, task: RemoteTask, name: str) -> dict[str, Any]:
        """Return the members of a task of a legacy server as the extension has them (TSK-10)."""
        state = await self._core(call, task)
        questions: dict[str, t.InputRequest] = {}
        looks = 0
        while state.status == "input_required" and not questions and looks < _LOOKS:
            questions = await self._asked(call, task)
            if not questions:
                # It is about to arrive, or the last one was answered a moment ago.
                state = await self._core(call, task)
                looks += 1
        fields = modern_fields(state, name)
        if questions:
            fields["input_requests"] = questions
        elif state.status == "input_required":
            fields["status"] = "working"  # There is nothing that this client could answer now.
        elif state.status in ("completed", "failed"):
            fields.update(await self._outcome(call, task))
        return fields

    async def _outcome(self, call: Call, task: RemoteTask) -> dict[str, Any]:
        """Return the outcome of a task that is over. 2025-11-25 calls a task failed that has the error of a tool."""
        self._unread.pop(task.id)
        try:
            answer = without_related(await self._send(call, "tasks/result", task))
        except ProtocolError as error:
            failure = t.Error(code=error.code, message=error.message, data=error.data)
            return {"status": "failed", "error": failure}
        return {"status": "completed", "result": inlined(self._result(call, task, answer))}

    async def _asked(self, call: Call, task: RemoteTask) -> dict[str, t.InputRequest]:
        """Return the open questions of a task. One process waits for them at the server."""
        key = self._key(call, task)
        if self._waiting.get(key) is None and (asked := await questions_elsewhere(call.host.stores, key)):
            return _allowed(call, asked)
        waiting = await self._wait(call, task)
        await waiting.soon()
        return _allowed(call, waiting.questions())

    async def _wait(self, call: Call, task: RemoteTask) -> WaitingTask:
        """Have a `tasks/result` wait at the server, which asks its questions only there."""
        key = self._key(call, task)
        waiting = self._waiting.get(key)
        if waiting is None:
            connection = await (await self._relay.connector(call)).live()
            waiting = WaitingTask(owner_of(call), key, call.host.stores, connection.revision, call.request.capabilities)
            self._waiting.begin(waiting, self._fetch(call, task, related_answers(waiting.ask, task.id)))
        return waiting

    async def _fetch(self, call: Call, task: RemoteTask, ask: Callable[[Incoming], Awaitable[Raw]]) -> Answer:
        """Wait for the outcome of a task of a legacy server, which asks its questions meanwhile."""

        def fetch() -> Awaitable[Answer]:
            about = self._about(call, task)
            about.waiting = RelayedCall(ask, task=task.id)
            return self._send(call, "tasks/result", task, about)

        return await fetch_outcome(
            fetch,
            lambda: self._core(call, task),
            lambda state: asyncio.sleep(poll_seconds(state.poll_interval)),
        )

    def _key(self, call: Call, task: RemoteTask) -> str:
        """Return the name of a task in the store."""
        return f"toolwire:{call.host.server.name}:task:{digest(self.mark, *_own(call, task))}"

    async def _update_legacy(self, call: Call, task: RemoteTask) -> None:
        responses = call.params.input_responses
        stores, key = call.host.stores, self._key(call, task)
        if self._waiting.get(key) is None and (asked := await questions_elsewhere(stores, key)):
            await answer_elsewhere(stores, key, asked, responses)
            return
        waiting = await self._wait(call, task)
        await waiting.soon()
        request = waiting.request
        if request is not None and request.done() and not request.cancelled() and request.exception() is not None:
            # The task is over, or unknown. What the server says about it decides.
            await self._core(call, task)
        waiting.answered(responses)

    # --- a modern server and a client that waits ---

    async def _awaited(self, call: Call, task: RemoteTask, name: str | None) -> Any:
        """Wait for the end of a task, and return its result. `name` is None where the client knows of no task."""
        if not await self._relay.is_modern(call):
            return self._result(call, task, without_related(await self._fetch(call, task, self._asking(call, task))))
        asking: dict[str, asyncio.Task[None]] = {}
        said: Any = None
        try:
            while True:
                answer = await self._send(call, "tasks/get", task)
                state = self._decoded(_Detailed, answer.raw)
                if state.status in TERMINAL:
                    return self._ended(call, task, state, answer.connection)
                if name is None and (says := (state.status_message, _numbers(state))) != said:
                    said = says
                    _report(call, state)
                for key, question in self._questions(state, answer.raw).items():
                    if key not in asking and len(asking) < MAX_QUESTIONS:
                        asking[key] = asyncio.ensure_future(self._ask(call, task, name, key, question))
                await self._pause(task, state, [each for each in asking.values() if not each.done()])
                for each in asking.values():
                    if each.done():
                        each.result()
        finally:
            for each in asking.values():
                each.cancel()

    def _questions(self, state: t.DetailedTask, raw: Raw) -> Mapping[str, t.InputRequest]:
        if state.status != "input_required":
            return {}
        # With the members that no type here knows.
        asked = _whole(t.DetailedTaskResult, self._home.uris.in_result(raw) if self._home.uris.active else raw)
        questions = asked.input_requests
        return {} if questions is UNSET else questions

    async def _pause(self, task: RemoteTask, state: t.DetailedTask, asking: list[asyncio.Task[None]]) -> None:
        """Wait until the task may have changed."""
        news = self._news.get(task.id)
        hearing = [] if news is None else [asyncio.ensure_future(news.wait())]
        waits: list[asyncio.Future[Any]] = [*asking, *hearing]
        seconds = poll_seconds(state.poll_interval_ms)
        try:
            if waits:
                await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(seconds)
        finally:
            for each in hearing:
                each.cancel()
        if news is not None:
            news.clear()

    async def _ask(self, call: Call, task: RemoteTask, name: str | None, key: str, question: Any) -> None:
        """Ask the client one question of a task by a request, and pass the answer on."""
        if task.check is not None:
            task.check()
        try:
            answer = await ask_client(call, question.method, question.params, name)
        except (Refused, NotSupported):
            if question.method != "elicitation/create":
                raise
            # The extension has no refusals. A user who was not asked has cancelled.
            answer = Raw(b'{"action":"cancel"}')
        members = {each: value for each, value in _members(answer).items() if each != "_meta"}
        await self._send(call, "tasks/update", task, more={"inputResponses": {key: members}})

    def _ended(self, call: Call, task: RemoteTask, state: t.DetailedTask, connection: RelayConnection) -> Any:
        self._unread.pop(task.id)
        if state.status == "cancelled":
            raise was_cancelled()
        if state.error is not UNSET:
            raise ProtocolError(state.error.code, state.error.message, state.error.data)
        raw = Raw(b"{}") if state.result is UNSET else state.result
        return self._result(call, task, Answer(raw, members_of(raw), connection))

    def _watch_end(self, call: Call, task: RemoteTask) -> asyncio.Future[Any]:
        """Return a future that gets the end of a task, whether or not its client asks for it."""
        # A copy: what becomes of its requests says nothing of the call.
        watching = call.judged_by(call.judgement)
        return self._ends.watch(_own(call, task), lambda: self._seen(watching, task))

    async def _seen(self, call: Call, task: RemoteTask) -> SeenTask:
        """Look whether a task is over, and how it ended."""
        if await self._relay.is_modern(call):
            state = await self._detailed(call, task)
            core = as_core(state, task.id, t.Task)
            error = None if state.error is UNSET else ProtocolError(state.error.code, state.error.message)
            status = "failed" if error is not None else core.status
            return SeenTask(status, poll_seconds(core.poll_interval), core.ttl, error)
        told = await self._core(call, task)
        error = None
        if told.status == "failed":
            try:
                # 2025-11-25 has the error there. Results are not read for nothing.
                await self._send(call, "tasks/result", task)
            except ProtocolError as failure:
                error = failure
        return SeenTask(told.status, poll_seconds(told.poll_interval), told.ttl, error)

    # --- telling clients of changes ---

    def _tell_client(self, call: Call, name: str, task: RemoteTask, connection: RelayConnection, sent: Sent) -> None:
        """2025-11-25 tasks, status notification: tell the client of a task what the server tells of it."""
        notify = getattr(call.outlet.connection, "notify", None)
        if notify is None:
            return

        own = _own(call, task)

        def report_state(state: t.TaskStatusNotificationParams) -> bool:
            if state.status in TERMINAL:
                self._ends.look_now(own)
                self._stop_telling(own)
            self._told.renew(own)
            if call.may_tell is not None and not call.may_tell():
                return True  # It may hear of the task again when its tool is back.
            state.task_id = name
            told = state if call.mask is None else call.mask(state)
            return bool(notify("notifications/tasks/status", shape(told, call.revision)))

        if not connection.modern:
            connection.on_task_status[task.id] = report_state
            made = self._conversations.renew(own)
            self._told.put(own, _Telling(connection, sent.stop_reports), self._kept_seconds(made))
            sent.stop_reports = None
        elif len(self._followers) < MAX_FOLLOWED:
            following = asyncio.ensure_future(self._follow(call, task.id, report_state, reporting_task(call)))
            self._followers[task.id] = following
            self._news[task.id] = asyncio.Event()
            following.add_done_callback(lambda _: self._unfollow(task.id))

    def _stop_telling(self, own: _Own) -> None:
        """Stop telling of a task of a legacy server: it is over."""
        telling = self._told.pop(own)
        if telling is not None:
            _stop(own, telling)

    def _unfollow(self, task: str) -> None:
        self._followers.pop(task, None)
        news = self._news.pop(task, None)
        if news is not None:
            news.set()

    async def _follow(
        self,
        call: Call,
        task: str,
        report_state: Callable[[t.TaskStatusNotificationParams], bool],
        report: Callable[[t.ProgressNotificationParams], None],
    ) -> None:
        """Hear of one task of a modern server, and tell its legacy client."""
        announced = "working"
        try:
            async with aclosing(self._states(call, task)) as states:
                async for state in states:
                    self._news[task].set()
                    numbers = _numbers(state)
                    if numbers is not None and state.status not in TERMINAL:
                        message = state.status_message
                        report(t.ProgressNotificationParams(progress_token=0, message=message, **numbers))
                    core = as_core(state, task, t.TaskStatusNotificationParams)
                    if core.status != announced:
                        announced = core.status
                        if not report_state(core):
                            return  # The client is gone.
                    if core.status in TERMINAL:
                        return
        except (ToolwireError, msgspec.ValidationError) as error:
            self._relay.log.debug("it does not tell of its task: %s", error)

    async def _states(self, call: Call, task: str) -> AsyncGenerator[t.TaskFields, None]:
        """Yield the state of a task of a modern server now, and whenever the server tells of it."""
        wanted = t.SubscriptionFilter(task_ids=[task])
        connector = await self._relay.connector(call)
        async with Subscription(
            connector, wanted, LISTEN_SECONDS, sender=self._relay.owner.find_sender(call)
        ) as subscription:
            # The task may have changed before the server began to tell of it.
            yield await self._detailed(call, RemoteTask(task))
            async for change in subscription:
                if change.params is None:
                    yield await self._detailed(call, RemoteTask(task))
                else:
                    yield convert_to(dict(change.params), _Told)

    @asynccontextmanager
    async def listening(
        self,
        call: Call,
        tasks: Mapping[str, ForeignTask],
        calls: Mapping[str, Call],
        notify: Callable[[str, Mapping[str, Any]], None],
    ) -> AsyncIterator[list[str]]:
        """Have changes of tasks told, by their names. Yield the names of the tasks that are there."""
        if not await self._relay.is_modern(call):
            named = {name: RemoteTask(task.id, made=task.made) for name, task in tasks.items()}
            found = {name: await self._known_details(calls[name], task, name) for name, task in named.items()}
            known = {name: state for name, state in found.items() if state is not None}
            work = [self._poll(calls[name], named[name], state, notify) for name, state in known.items()]
            async with _running(work):
                yield list(known)
            return
        names = {task.id: name for name, task in tasks.items()}
        wanted = t.SubscriptionFilter(task_ids=list(names))
        connector = await self._relay.connector(call)
        async with Subscription(
            connector, wanted, LISTEN_SECONDS, sender=self._relay.owner.find_sender(call)
        ) as subscription:
            accepted = subscription.accepted
            known_ids = [] if accepted is None or accepted.task_ids is UNSET else accepted.task_ids
            async with _running([self._hear(calls, connector, subscription, names, notify)]):
                yield [names[each] for each in known_ids if each in names]

    async def _hear(
        self,
        calls: Mapping[str, Call],
        connector: Connector,
        subscription: Subscription,
        names: Mapping[str, str],
        notify: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        async for change in subscription:
            if change.params is None:
                # Changes may have been missed.
                for each, name in names.items():
                    with suppress(ToolwireError):
                        answer = await self._send(calls[name], "tasks/get", RemoteTask(each))
                        notify(name, self._notification(calls[name], connector, msgspec.json.decode(answer.raw), name))
                continue
            named = names.get(change.params.get("taskId", ""))
            if named is not None:
                news = self._notification(calls[named], connector, dict(change.params), named)
                await self._home.links.wait_for_writes()
                notify(named, news)

    def _notification(self, call: Call, connector: Connector, members: dict[str, Any], name: str) -> dict[str, Any]:
        members["taskId"] = name
        members.pop("resultType", None)
        connection = connector.connection
        try:
            asked = Raw(_encode(members.get("inputRequests", {})))
            extensions = () if connection is None else unknown_extensions(connection)
            with_allowed_questions(call, {"inputRequests": asked}, extensions)
        except (Undeclared, InvalidResponse):
            # The listener did not declare that it can answer; `tasks/get` says what it lacks.
            members.pop("inputRequests", None)
        if "result" in members and isinstance(connection, RelayConnection):
            inlined = self._inlined(call, RemoteTask(""), Raw(_encode(members["result"])), connection)
            members["result"] = msgspec.json.decode(inlined)
        meta = {key: value for key, value in members.get("_meta", {}).items() if key not in t.MODERN_META_KEYS}
        members.pop("_meta", None)
        return {**members, "_meta": meta} if meta else members

    async def _known_details(self, call: Call, task: RemoteTask, name: str) -> dict[str, Any] | None:
        try:
            return await self._details(call, task, name)
        except ProtocolError:
            return None

    async def _poll(
        self, call: Call, task: RemoteTask, state: dict[str, Any], notify: Callable[[str, Mapping[str, Any]], None]
    ) -> None:
        """Look at a task of a legacy server now and then: its notifications reach only the client that made it."""
        name = state["task_id"]
        while state["status"] not in TERMINAL:
            await asyncio.sleep(poll_seconds(state["poll_interval_ms"]))
            try:
                newest = await self._known_details(call, task, name)
            except ToolwireError:
                continue  # The server is away.
            if newest is None:
                return  # The task has expired.
            is_new, state = without_ttl(newest) != without_ttl(state), newest
            if is_new:
                notify(name, msgspec.json.decode(t.encode(t.TaskNotificationParams(**state))))

    # --- one request ---

    def _about(self, call: Call, task: RemoteTask) -> AboutTask:
        made = self._used(_own(call, task))
        return AboutTask(None if made is None else made.conversation)

    async def _send(
        self,
        call: Call,
        method: str,
        task: RemoteTask,
        about: AboutTask | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> Answer:
        sent = sent_with(call, "")
        sent.members = {**(more or {}), "taskId": task.id}
        sent.about_task = about or self._about(call, task)
        own = _own(call, task)
        made = self._used(own)
        answer = await self._relay.send(call, method, sent)
        if made is not None:
            # A request that waits for the end of the task may take longer than a task is remembered.
            self._remember(own, made)
        if self._ends.is_watched(own) and (method == "tasks/result" or members_of(answer.raw).get("status") in _OVER):
            self._ends.look_now(own)
        try:
            check_task_id(method, task.id, answer.raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidResponse(f"The answer to {method} is broken: {error}") from None
        return answer

    async def _core(self, call: Call, task: RemoteTask) -> t.GetTaskResult:
        return self._decoded(t.GetTaskResult, (await self._send(call, "tasks/get", task)).raw)

    async def _detailed(self, call: Call, task: RemoteTask) -> _Detailed:
        return self._decoded(_Detailed, (await self._send(call, "tasks/get", task)).raw)

    def _decoded(self, type_: type[W], raw: Raw) -> W:
        try:
            return decoder_of(type_).decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidResponse(f"The task cannot be read: {error}") from None

    async def _cancel_quietly(self, call: Call, task: RemoteTask) -> None:
        with suppress(ToolwireError):
            await self._send(call, "tasks/cancel", task)
        self._forget(call, task)

    def _in_background(self, work: Any) -> None:
        running = asyncio.ensure_future(work)
        self._background.add(running)
        running.add_done_callback(self._background.discard)

    def _made(
        self, call: Call, created: t.Task | t.TaskCreatedResult, connection: RelayConnection, tool: RemoteTool
    ) -> RemoteTask:
        """Return a task that the server has made.

        Remember in which conversation with a legacy server that was, and keep the conversation as long as the task.
        """
        milliseconds = created.ttl if isinstance(created, t.Task) else created.ttl_ms
        ttl = MAX_KEPT_SECONDS if not isinstance(milliseconds, int) else min(milliseconds / 1000, MAX_KEPT_SECONDS)
        self._unread.put(created.task_id, None, ttl)
        conversation = None if connection.modern else self._relay.connections.conversation(connection)
        if conversation is None or not isinstance(created, t.Task):
            return RemoteTask(created.task_id, tool)
        task = RemoteTask(created.task_id, tool, os.urandom(6).hex())
        self._remember(_own(call, task), _Made(conversation, ttl))
        return task

    def _remember(self, own: _Own, made: _Made) -> None:
        self._conversations.put(own, made, self._kept_seconds(made))
        self._relay.connections.keep(made.conversation, made.ttl)

    def _kept_seconds(self, made: _Made | None) -> float:
        """Return how long a task of a legacy server is remembered after the last request about it.

        2025-11-25 tasks, ttl: the server may delete the task then. Many keep it until it is over, and their connection
        stays open for a while, so that the task may be there as long as the connection.
        """
        return max(0.0 if made is None else made.ttl, self._relay.connections.idle_seconds)

    def _used(self, own: _Own) -> _Made | None:
        """Remember a task for as long again, and return how it was made, where a legacy server did."""
        self._unread.renew(own.id)
        self._told.renew(own)
        made = self._conversations.renew(own)
        if made is not None:
            self._relay.connections.keep(made.conversation, made.ttl)
        return made

    def _forget(self, call: Call, task: RemoteTask) -> None:
        """Remember nothing of a task that no client knows."""
        own = _own(call, task)
        self._stop_telling(own)
        self._conversations.pop(own)
        self._unread.pop(task.id)

    # --- results ---

    def _asking(self, call: Call, task: RemoteTask) -> Callable[[Incoming], Any]:
        """Return what asks a legacy client the questions of a task of a legacy server."""
        name = call.params.task_id if call.method == "tasks/result" else None

        async def ask(request: Incoming) -> Raw:
            if task.check is not None:
                task.check()
            return await answer_legacy(call, request, name)

        return related_answers(ask, task.id)

    def _result(self, call: Call, task: RemoteTask, answer: Answer) -> Any:
        """Return the result of a task in the form in which the kernel finishes it."""
        if task.tool is not None:
            return task.tool.outcome(call, answer)
        return handed_on(call, answer, OpenResult, self._home)

    def _inlined(self, call: Call, task: RemoteTask, raw: Raw, connection: RelayConnection) -> Raw:
        return inlined(self._result(call, task, Answer(raw, members_of(raw), connection)))


# --- small parts -----------------------------------------------------------------------------------------------------


def _stop(own: _Own, telling: _Telling) -> None:
    telling.connection.on_task_status.pop(own.id, None)
    if telling.stop_reports is not None:
        telling.stop_reports()


def _allowed(call: Call, questions: Mapping[str, t.InputRequest]) -> dict[str, t.InputRequest]:
    """Return the questions of a task that the client of this request declared to answer."""
    allowed = {}
    for key, question in questions.items():
        with suppress(Undeclared, InvalidResponse):
            allowed.update(check_questions({key: question}, call))
    return allowed


def _numbers(state: Any) -> dict[str, Any] | None:
    """Return how far a task is, where the server says so in numbers."""
    told = state.meta.get(PROGRESS_KEY) if isinstance(state.meta, dict) else None
    if not isinstance(told, dict):
        return None
    numbers = {name: told[name] for name in ("progress", "total") if type(told.get(name)) in (int, float)}
    return numbers if "progress" in numbers else None


def _report(call: Call, state: t.DetailedTask) -> None:
    """Report the status of a task as the progress of a call. A new message without numbers counts as one step."""
    numbers = _numbers(state) or {"progress": (call.last_progress or 0.0) + 1}
    message = None if state.status_message is UNSET else state.status_message
    if message is not None or "total" in numbers:
        call.tell_progress(numbers["progress"], numbers.get("total"), message)


@asynccontextmanager
async def _running(work: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run coroutines until the block ends."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _whole(type_: type[W], raw: Raw) -> W:
    try:
        return t.decode(type_, raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidResponse(f"The questions cannot be read: {error}") from None
