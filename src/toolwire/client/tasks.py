"""Tasks of a server as a client sees them, the same on both revisions that have them.

On 2025-11-25 a client asks for a task, and `tasks/result` waits for its outcome while the server asks its questions by
requests. On 2026-07-28 the server decides, and `tasks/get` carries status, questions and outcome. A handle needs no
more than the id: another process can continue with it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Protocol, TypedDict, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.connection import ClientConnection, OnProgress
from toolwire.client.errors import InvalidResponse
from toolwire.client.handlers import Accept, Cancel, Decline
from toolwire.client.repeated_rounds import send_round
from toolwire.client.requests import RequestSender
from toolwire.client.tools import decode_result, decode_typed
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import (
    INVALID_PARAMS,
    NotSupported,
    ProtocolError,
    Timeout,
    ToolwireError,
    TransportError,
)
from toolwire.protocol.revisions import supports
from toolwire.protocol.tasks import PROGRESS_KEY, TERMINAL
from toolwire.util.backoff import FIRST_SECONDS
from toolwire.wire.deadlines import CallClock

R = TypeVar("R")
T = TypeVar("T")

# Seconds between two polls of a task: by default, at least, and at most.
_POLL: Final = 1.0
_SHORTEST_POLL: Final = FIRST_SECONDS
_LONGEST_POLL: Final = 60.0
_MOST: Final = 1e300
#: How many seconds the server may take to cancel a task whose caller has given up.
CANCEL_SECONDS: Final = 5.0


class TaskCancelled(ToolwireError):
    """The task was cancelled, so it has no result."""


class TaskState(Struct, frozen=True):
    """A task at one moment."""

    id: str
    status: t.TaskStatus
    message: str | None
    created_at: str
    updated_at: str
    ttl: float | None
    """Seconds that the server keeps it from its creation on; None for ever."""
    poll_interval: float
    """Seconds to wait before looking again."""
    progress: float | None = None
    """How far it is, where the server says so in numbers (2026-07-28: servers made with Toolwire do)."""
    total: float | None = None
    questions: Mapping[str, t.InputRequest] = {}
    """What it asks, by key (2026-07-28; on 2025-11-25 questions come as requests while `wait()` runs)."""
    result: Raw | UnsetType = UNSET
    error: t.Error | UnsetType = UNSET

    result_type: ClassVar[str] = "complete"

    @property
    def over(self) -> bool:
        return self.status in TERMINAL


class WaitOptions(TypedDict, total=False):
    """The options of a wait for a task."""

    timeout: float | None
    """How many seconds at most."""
    on_progress: OnProgress | None
    """Is told how far it has come."""


class Caller(Protocol):
    """The calls of tools of a client, as a handle needs them."""

    @property
    def sender(self) -> RequestSender: ...

    async def learn_tools(self, clock: CallClock) -> None: ...

    def make_value(self, name: str | None, result: t.CallToolResult, returns: Any) -> Any: ...


class TaskHandle:
    """One task. Keep `id`, and `tool` if results are to be checked, to continue elsewhere with `client.task(id)`."""

    def __init__(self, client: Caller, identifier: str, tool: str | None = None) -> None:
        self.id = identifier
        self.tool = tool
        self._calls = client
        self._sender = client.sender
        self._answered: set[str] = set()
        self._inline: Raw | None = None
        self._stop_reports: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id!r}>"

    async def status(self, *, timeout: float | None = None) -> TaskState:
        """Ask for the state of the task now."""
        if self._inline is not None:
            return TaskState(self.id, "completed", None, "", "", None, 0.0, result=self._inline)
        clock = self._sender.start_clock(timeout)
        connection = await self._sender.connector.usable(clock)
        decode = _decode_detailed if connection.modern else _decode_core
        state: TaskState = await self._request("tasks/get", t.TaskRequestParams(task_id=self.id), decode, clock=clock)
        if state.over:
            self._reported()
        return state

    async def updates(self) -> AsyncIterator[TaskState]:
        """Yield the state of the task now and whenever it has changed, until it is over."""
        last: TaskState | None = None
        while last is None or not last.over:
            state = await self.status()
            # A longer ttl is no change of the task.
            seen = msgspec.structs.replace(state, ttl=None)
            if seen != last:
                last = seen
                yield state
            if not state.over:
                await asyncio.sleep(state.poll_interval)

    @overload
    async def wait(self, *, returns: None = None, **options: Unpack[WaitOptions]) -> ToolResult: ...
    @overload
    async def wait(self, *, returns: type[T], **options: Unpack[WaitOptions]) -> T: ...
    @overload
    async def wait(self, *, returns: Any, **options: Unpack[WaitOptions]) -> Any: ...
    async def wait(
        self, *, returns: Any = None, timeout: float | None = None, on_progress: OnProgress | None = None
    ) -> Any:
        """Return the result that `call_tool` would have returned. The client's callbacks answer questions meanwhile.

        Raise what the call would have raised, `TaskCancelled` when it was cancelled, and `Timeout` when `timeout`
        seconds have passed. The task itself continues then.
        """
        clock = self._sender.start_clock(math.inf if timeout is None else timeout)
        return await self._wait(clock, on_progress, returns)

    async def _wait(self, clock: CallClock, on_progress: OnProgress | None, returns: Any) -> Any:
        """Return the result within the time limit of a call."""
        try:
            raw = await self._outcome(clock, on_progress)
        except Timeout:
            raise Timeout(f"The task {self.id} was not done in time") from None
        decode = decode_result if returns is None else decode_typed
        try:
            result = decode(raw)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise InvalidResponse(f"The result of the task is broken: {error}") from None
        if result.structured_content is not UNSET:
            await self._calls.learn_tools(clock)
        return self._calls.make_value(self.tool, result, returns)

    async def cancel(self, *, timeout: float | None = None) -> None:
        """Ask the server to stop the task. This does nothing for a task that is over."""
        if self._inline is not None:
            return
        try:
            # TSK-15, 2025-11-25 cancellation: never by notifications/cancelled.
            params = t.TaskRequestParams(task_id=self.id)
            await self._request("tasks/cancel", params, _decode_nothing, timeout=timeout)
        except ProtocolError as error:
            # 2025-11-25 refuses to cancel what is over.
            if error.code != INVALID_PARAMS or not (await self.status()).over:
                raise

    async def provide_input(self, answers: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Answer `TaskState.questions` by hand: with content, `Accept`, `Decline`, `Cancel` or a wire result."""
        clock = self._sender.start_clock(timeout)
        connection = await self._sender.connector.usable(clock)
        if not connection.modern:
            raise NotSupported("On 2025-11-25 questions come as requests while wait() runs, to the client's callbacks")
        responses = {key: Raw(msgspec.json.encode(_answer(answer))) for key, answer in answers.items()}
        params = t.UpdateTaskRequestParams(task_id=self.id, input_responses=responses)
        await self._request("tasks/update", params, _decode_nothing, clock=clock)
        self._answered.update(answers)

    async def _request(
        self,
        method: str,
        params: t.TaskRequestParams | t.UpdateTaskRequestParams,
        decode: Callable[[Raw], Any],
        **options: Any,
    ) -> Any:
        """Send a request about this task. Raise `InvalidResponse` for an answer about another one."""

        def decode_own(raw: Raw) -> Any:
            check_task_id(method, self.id, raw)
            return decode(raw)

        return await self._sender.ask(method, params, decode_own, **options)

    # --- waiting ---

    async def _outcome(self, clock: CallClock, on_progress: OnProgress | None) -> Raw:
        if self._inline is not None:
            return self._inline
        connection = await self._sender.connector.usable(clock)
        if connection.modern:
            return await self._polled(clock, on_progress)
        while True:
            try:
                return await self._fetched(clock)
            except TransportError as error:
                if isinstance(error, InvalidResponse):
                    raise
                # The request was lost, not the task: any other process of the server knows it too.
                state = await self._status(clock)
                if state.over:
                    return await self._fetched(clock)
                # A proxy may cut the request every time.
                await clock.sleep(state.poll_interval)

    async def _status(self, clock: CallClock) -> TaskState:
        """Ask for the state within the time limit of a call, and within that of a request."""
        usual, left = self._sender.timeout, clock.rest("tasks/get")
        return await self.status(timeout=left if usual is None else min(usual, left))

    async def _fetched(self, clock: CallClock) -> Raw:
        """2025-11-25: wait for the result with one long request, during which the server asks its questions."""
        params = t.TaskRequestParams(task_id=self.id)
        state: TaskState | None = None

        async def look() -> TaskState:
            nonlocal state
            state = await self._status(clock)
            return state

        try:
            fetched = await fetch_outcome(
                lambda: send_round(lambda: self._request("tasks/result", params, _keep, clock=clock), clock),
                look,
                lambda seen: clock.sleep(seen.poll_interval),
            )
            raw: Raw = fetched.raw
        except ProtocolError:
            if state is not None and state.status == "cancelled":
                raise TaskCancelled(f"The task {self.id} was cancelled") from None
            raise
        finally:
            self._reported()
        return raw

    async def _polled(self, clock: CallClock, on_progress: OnProgress | None) -> Raw:
        """2026-07-28: look at the task, answer its questions, and look again."""
        report = on_progress if on_progress is None or isinstance(on_progress, Rising) else Rising(on_progress)
        said: Any = None
        while True:
            # A process that lacks the tool of the task says when to ask again.
            state = await send_round(lambda: self._status(clock), clock)
            if state.over:
                return _result_of(state)
            says = (state.message, state.progress, state.total)
            if report is not None and says != said:
                said = says
                if await self._report(report, state):
                    clock.restart()
            if state.status == "input_required":
                await self._answer(state.questions, clock)
            await clock.sleep(state.poll_interval)

    async def _answer(self, questions: Mapping[str, t.InputRequest], clock: CallClock) -> None:
        """TSK-13: answer each question once, however often it is seen."""
        fresh = {key: question for key, question in questions.items() if key not in self._answered}
        if not fresh:
            return
        connection = await self._sender.connector.usable(clock)
        with clock.leave_out():
            responses = await connection.answer_all(fresh)
        params = t.UpdateTaskRequestParams(task_id=self.id, input_responses=responses)
        await self._request("tasks/update", params, _decode_nothing, clock=clock)
        self._answered.update(fresh)

    async def _report(self, report: Rising, state: TaskState) -> bool:
        """Report the progress of the task; return whether there is any."""
        if state.message is None and state.progress is None:
            return False
        # The extension has no progress. A new message without numbers counts as one step.
        params = t.ProgressNotificationParams(
            progress_token=self.id,
            progress=report.last + 1 if state.progress is None else state.progress,
            total=UNSET if state.total is None else state.total,
            message=UNSET if state.message is None else state.message,
        )
        if not report.rises(params):
            return False
        (await self._sender.connector.usable()).callbacks.call(report, params)
        return True

    def _reported(self) -> None:
        """2025-11-25: stop reporting progress, because the task is over."""
        if self._stop_reports is not None:
            self._stop_reports()
            self._stop_reports = None


class SeenTask(Protocol):
    """The part of a task's state that a wait for its outcome needs."""

    @property
    def status(self) -> t.TaskStatus: ...


S = TypeVar("S", bound=SeenTask)


async def fetch_outcome(
    fetch: Callable[[], Awaitable[R]], look: Callable[[], Awaitable[S]], pause: Callable[[S], Awaitable[None]]
) -> R:
    """Return the outcome of a task of 2025-11-25. `fetch` sends `tasks/result`, and `look` sends `tasks/get`.

    2025-11-25 basic/utilities/tasks, result retrieval: the server has to wait for the end of the task. One that answers
    with an error before the end is asked again after it.
    """
    while True:
        try:
            return await fetch()
        except ProtocolError as error:
            state = await look()
            # It may have ended a moment ago. -32602 says that the request was wrong, or too early; other errors are
            # those of the call.
            is_early = state.status == "completed" or (state.status == "failed" and error.code == INVALID_PARAMS)
            if not is_early and state.status != "working":
                raise
        while state.status == "working":
            await pause(state)
            state = await look()
        if state.status in TERMINAL:
            return await fetch()


class Rising:
    """The progress callback of one call. It remembers how far the call was when it became a task."""

    def __init__(self, callback: OnProgress) -> None:
        self.__wrapped__ = callback
        self.last: float = 0.0

    def rises(self, params: t.ProgressNotificationParams) -> bool:
        return params.progress > self.last

    def __call__(self, params: t.ProgressNotificationParams) -> Any:
        self.last = max(self.last, params.progress)
        return self.__wrapped__(params)


async def start_task(
    calls: Caller,
    connection: ClientConnection,
    params: t.CallToolRequestParams,
    ttl: float | None,
    on_progress: OnProgress | None,
    meta: Mapping[str, Any] | None,
    **options: Any,
) -> TaskHandle:
    """Call a tool as a task, in the form of the connection's revision. The server may still answer at once."""
    stop: Callable[[], None] | None = None
    if supports(connection.revision, "core_tasks"):
        if not t.has_capability(connection.agreement.capabilities, "tasks.requests.tools.call"):
            raise NotSupported("The server did not declare that tools can run as tasks")
        wish = t.TaskMetadata(ttl=UNSET if ttl is None else int(ttl * 1000))
        params.task = Raw(msgspec.json.encode(wish))
        if on_progress is not None:
            meta, stop = _with_token(connection, on_progress, meta)
            on_progress = None
    elif not supports(connection.revision, "tasks_extension"):
        raise NotSupported(f"There are no tasks on {connection.revision}, which the server speaks")
    try:
        decode: Callable[[Raw], Any] = _decode_started
        started: _Started = await calls.sender.ask(
            "tools/call", params, decode, on_progress=on_progress, meta=meta, **options
        )
    except BaseException:
        if stop is not None:
            stop()
        raise
    handle = TaskHandle(calls, started.id, params.name)
    handle._stop_reports = stop
    if not started.id:
        handle._inline = started.raw
        handle._reported()
    return handle


def _with_token(
    connection: ClientConnection, on_progress: OnProgress, meta: Mapping[str, Any] | None
) -> tuple[dict[str, Any], Callable[[], None]]:
    """Add a progress token that remains valid after the answer to the call (T-12)."""
    token = f"task-{connection.session.peer.next_id()}"
    connection.reports[token] = on_progress
    return {**(meta or {}), t.PROGRESS_TOKEN_KEY: token}, lambda: _discard(connection.reports.pop(token, None))


def _discard(_: object) -> None:
    return


async def drive(handle: TaskHandle, clock: CallClock, on_progress: OnProgress | None, returns: Any) -> Any:
    """Wait for the result of a task on behalf of a caller. Cancel the task when the caller gives up."""
    try:
        return await handle._wait(clock, on_progress, returns)
    except (Timeout, asyncio.CancelledError):
        connection = handle._sender.connector.connection
        if connection is not None:
            # Beside the caller, who has waited long enough.
            connection.callbacks.start(_cancel_quietly(handle))
        raise


async def _cancel_quietly(handle: TaskHandle) -> None:
    try:
        await handle.cancel(timeout=CANCEL_SECONDS)
    except ToolwireError:
        pass  # It will expire.


# --- reading what servers say ----------------------------------------------------------------------------------------


class _TaskName(Struct, rename="camel"):
    task_id: str = ""


class _Answer(_TaskName, rename="camel"):
    result_type: str = "complete"
    task: _TaskName | UnsetType = UNSET


class _Started(Struct):
    """The answer to a call that may be a task, on either revision."""

    id: str
    result_type: str
    raw: Raw


def _decode_started(raw: Raw) -> _Started:
    answer = decoder_of(_Answer).decode(raw)
    identifier = answer.task_id if answer.task is UNSET else answer.task.task_id
    # A task completes the request as a result does.
    kind = "complete" if identifier and answer.result_type == "task" else answer.result_type
    return _Started(identifier, kind, raw.copy())


class _Kept(Struct):
    """A result as it came."""

    result_type: ClassVar[str] = "complete"

    raw: Raw


class _Named(Struct):
    task_id: Any = msgspec.field(name="taskId", default=UNSET)
    meta: Any = msgspec.field(name="_meta", default=UNSET)


def check_task_id(method: str, identifier: str, raw: Raw) -> None:
    """Raise `ValidationError` for an answer that names another task than the request did.

    An answer without a name passes: on 2026-07-28, those to `tasks/update` and `tasks/cancel` are empty.
    """
    named = decoder_of(_Named).decode(raw)
    found = named.task_id
    if method == "tasks/result":
        # 2025-11-25 tasks: the result belongs to a call, and names its task in `_meta`.
        related = named.meta.get(t.RELATED_TASK_KEY, UNSET) if isinstance(named.meta, dict) else UNSET
        found = related.get("taskId") if isinstance(related, dict) else related
    if found is not UNSET and found != identifier:
        raise msgspec.ValidationError(f"its taskId is {repr(found)[:100]}, and {identifier!r} was asked for")


class _Detailed(t.DetailedTaskResult, kw_only=True):
    result: Raw | UnsetType = UNSET


def _keep(raw: Raw) -> Any:
    return _Kept(raw.copy())


def _decode_nothing(raw: Raw) -> Any:
    return t.decode(t.EmptyResult, raw)


def _decode_core(raw: Raw) -> TaskState:
    return state_of(decoder_of(t.GetTaskResult).decode(raw))


def state_of(task: t.Task) -> TaskState:
    """Return the state of a task of 2025-11-25."""
    return TaskState(**_common(task, task.ttl, task.poll_interval))


def _decode_detailed(raw: Raw) -> TaskState:
    task = decoder_of(_Detailed).decode(raw)
    return TaskState(
        **_common(task, task.ttl_ms, task.poll_interval_ms),
        questions={} if task.input_requests is UNSET else task.input_requests,
        # A view into the message would keep the whole message in memory.
        result=UNSET if task.result is UNSET else task.result.copy(),
        error=task.error,
        **_numbers(task.meta),
    )


def _numbers(meta: Any) -> dict[str, Any]:
    """Return how far a task is, if the server says so in numbers."""
    told = meta.get(PROGRESS_KEY) if isinstance(meta, dict) else None
    if not isinstance(told, dict):
        return {}
    numbers: dict[str, Any] = {name: told.get(name) for name in ("progress", "total")}
    return {
        name: float(value)
        for name, value in numbers.items()
        if type(value) in (int, float) and -_MOST <= value <= _MOST
    }


def _common(task: t.Task | t.TaskFields, ttl: int | None, poll: int | UnsetType) -> dict[str, Any]:
    return {
        "id": task.task_id,
        "status": task.status,
        "message": None if task.status_message is UNSET else task.status_message,
        "created_at": task.created_at,
        "updated_at": task.last_updated_at,
        "ttl": None if ttl is None else ttl / 1000,
        "poll_interval": poll_seconds(poll),
    }


def poll_seconds(milliseconds: int | UnsetType) -> float:
    """Return the seconds between two polls of a task, within our bounds."""
    return _POLL if milliseconds is UNSET else min(max(milliseconds / 1000, _SHORTEST_POLL), _LONGEST_POLL)


def _result_of(state: TaskState) -> Raw:
    if state.status == "cancelled":
        raise TaskCancelled(f"The task {state.id} was cancelled")
    if state.error is not UNSET:
        raise ProtocolError(state.error.code, state.error.message, state.error.data)
    if state.result is UNSET:
        raise InvalidResponse(f"The task {state.id} is {state.status} and has neither a result nor an error")
    return state.result


def _answer(answer: Any) -> t.Wire:
    if isinstance(answer, t.Wire):
        return answer
    if isinstance(answer, Decline):
        return t.ElicitResult(action="decline")
    if isinstance(answer, Cancel):
        return t.ElicitResult(action="cancel")
    content = answer.content if isinstance(answer, Accept) else msgspec.to_builtins(answer)
    if content is not None and not isinstance(content, dict):
        raise TypeError(f"an answer is the content of the form, Accept(), Decline() or Cancel(), not {answer!r}")
    return t.ElicitResult(action="accept", content=UNSET if content is None else content)
