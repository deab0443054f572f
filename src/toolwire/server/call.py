"""`Call`: the state of one request while the server handles it.

The server works on calls. A `Context` is the view of a call that handlers and middleware get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from copy import copy
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, cast
from weakref import WeakSet

from msgspec import UNSET, Raw

from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.asking import Need, can_be_asked
from toolwire.protocol.errors import NotSupported, ProtocolError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.rounds import Kind
from toolwire.protocol.sealing import Sealer
from toolwire.server.handler_deadline import Deadline, RunningHandlers
from toolwire.server.input_requests import Asking, sendable
from toolwire.stores import Stores
from toolwire.wire.outlet import Outlet

if TYPE_CHECKING:
    from toolwire.auth.vault.vault import Vault
    from toolwire.server.context.progress import Progress
    from toolwire.server.judgements import Judgement
    from toolwire.server.settings import Settings
    from toolwire.wire.process_workers import ProcessWorkers

# How many seconds of its time a handler keeps for its answer.
_ANSWERING: Final = 2.0

#: A function that changes how a handler runs. It takes a time limit and a coroutine, and returns those to use instead.
Guard: TypeAlias = Callable[[float, Coroutine[Any, Any, Any]], tuple[float, Coroutine[Any, Any, Any]]]


class Workers(Protocol):
    """The threads that `def` handlers run in (see `wire.thread_workers`)."""

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...

    def run_for(self, caller: Hashable, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...

    def run_beside(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...


class Mask(Protocol):
    """Masks a message or a part of it. `type_` is the wire type of JSON."""

    def __call__(self, value: Any, type_: type[t.Wire] | None = None) -> Any: ...


class AcceptedTask(Protocol):
    """A task that a call became, as far as the observers of the call need it."""

    id: str

    def when_over(self, tell: Callable[[asyncio.Future[Any]], None]) -> None: ...


class TaskRun(AcceptedTask, Protocol):
    """A call that is a task of this server, or may become one."""

    attempt: int
    policy_timeout: float | None

    @property
    def is_task(self) -> bool: ...

    @property
    def asking(self) -> Asking | None:
        """The way in which the handler asks; None while it asks in the way of an ordinary call."""

    def report(self, progress: float, total: float | None, message: str | None) -> bool: ...

    async def detach(self) -> None: ...


class OwnServer(Protocol):
    """The server whose component a call runs."""

    name: str

    @property
    def vault(self) -> Vault:
        """The credentials of the server."""

    def vault_with(self, credential: str) -> Vault | None:
        """Return the vault of the server if it has a credential of this name."""


class LoopParts(Protocol):
    """The parts of a server on the event loop of a call (`runtime.Work`), as far as a call needs them."""

    @property
    def handlers(self) -> RunningHandlers: ...

    @property
    def hub(self) -> Any: ...

    @property
    def lifespan_values(self) -> Mapping[Any, Any]:
        """The values of the lifespans, by their servers."""

    @property
    def processes(self) -> ProcessWorkers: ...

    @property
    def tasks(self) -> Any: ...

    @property
    def tracked(self) -> WeakSet[Progress]: ...

    @property
    def workers(self) -> Workers: ...


class Host(Protocol):
    """The kernel, as far as a call needs it."""

    @property
    def server(self) -> OwnServer: ...

    @property
    def stores(self) -> Stores: ...

    @property
    def signature(self) -> bytes:
        """The name of the server as modern results have it in `_meta`, in JSON (META-8)."""

    @property
    def sealer(self) -> Sealer:
        """Seals what clients keep for the server."""

    @property
    def signer(self) -> Sealer:
        """Seals names, which clients may read and compare: the same name is the same text every time."""

    @property
    def results_are_read(self) -> bool:
        """Return whether an observer, a policy or a middleware may look at results."""

    @property
    def hop_observers(self) -> Sequence[Callable[[Call, Any], Callable[[], None]]]:
        """Return what watches the requests to servers behind this one."""

    @property
    def settings(self) -> Settings:
        """Return the options that a call which begins now keeps."""

    async def open_asking(self, call: Call) -> Asking: ...

    async def seal_state(self, call: Call, payload: bytes, context: bytes) -> str:
        """Return the text by which a client brings a payload back, in a `requestState`."""

    async def open_state(self, text: str, context: bytes) -> bytes:
        """Return the payload of such a text. Raise -32602 for any other text."""

    def find_target(self, call: Call) -> object | None: ...

    def is_for_everybody(self, call: Call) -> bool:
        """Return whether the component of a call is the same for every caller."""

    def log_threshold(self, call: Call) -> int | None: ...

    def judgement_of(self, call: Call) -> Judgement:
        """Return the demands that the caller fulfilled for the component of a call, and of those around it."""

    def check_judgement(self, call: Call, judgement: Judgement) -> None:
        """Raise unless the caller of a read fulfills the demands that were stored with a result."""

    async def read_for(self, call: Call, uri: str, in_thread: bool) -> list[t.ResourceContents]: ...

    def sees_tool(self, call: Call, name: str) -> bool:
        """Return whether the caller of a handler sees another tool of the handler's server, and may call it."""

    async def call_tool_for(self, call: Call, name: str, arguments: Raw) -> t.CallToolResult | None:
        """Call another tool of the handler's server for its caller; return None where the caller sees no such tool."""


class Call:
    """The state of one request while the server handles it."""

    # The defaults are those of the class, so that a request pays only for what differs from them.
    api_requests: list[dict[str, Any]] | None = None
    """The requests to an API that the call made, as the audit line names them."""
    asking: Asking | None = None
    """The way in which the handler asks the client; None before the first question."""
    cache_hint: Any = None
    """The `Cache` of this answer, where it is known only after reading; None for the hint of the component."""
    cancelled: bool = False
    """Whether the handler was cancelled, or ran out of time."""
    denial: ProtocolError | None = None
    """The error for a view that leaves its upstream."""
    deadline: Deadline | None = None
    """The time that the handler has, while it runs."""
    error_id: str | None = None
    """The id under which an internal error was logged."""
    guard: Guard | None = None
    """The `Guard` that policies put around the handler."""
    in_thread: bool = False
    """Whether a worker thread waits for this call, as for a resource that a `def` handler reads."""
    last_progress: float | None = None
    judgement: Judgement | None = None
    """What was decided about the call whose outcome this request gets; None for a new call."""
    may_be_task: bool = False
    """Whether the tool of the call has `task=`."""
    mask: Mask | None = None
    """The function by which policies mask everything that is sent to the client."""
    own_loop_context: Any = None
    """The `OwnLoopContext` of an `async` handler that runs in a worker thread."""
    outer: Call | None = None
    """The call whose handler uses the component of this one."""
    may_tell: Callable[[], bool] | None = None
    """Whether the client may still hear of the task of an upstream that the call became; None for a call."""
    owner: OwnServer | None = None
    """The mounted server whose component runs; None for the server that was called."""
    refusal: str | None = None
    """Why the call was refused, in one word."""
    release: Callable[[Any], Any] | None = None
    """Checks and masks the outcome of a task, which leaves after its request was answered."""
    replay: bool = True
    """Whether the handler may be run again from the top with the answers to its questions."""
    stack: AsyncExitStack | None = None
    """The stack that cleans up after the dependencies of the handler."""
    sync_context: Any = None
    """The `SyncContext` of this call, while a worker thread uses it."""
    target: Any = None
    """The `CallTarget`; `target_of` looks for it when somebody wants it."""
    task: asyncio.Task[Any] | None = None
    """The asyncio task that runs the middleware."""
    task_elsewhere: AcceptedTask | None = None
    """The task of an upstream that the call became, or one that a gateway made of its end."""
    task_run: TaskRun | None = None
    trace: str | None = None
    """The id of the OpenTelemetry trace."""
    view_servers: tuple[str, ...] | None = None
    """The servers from here to the upstream of a view that makes the request; None for any other request."""
    workers: Workers | None = None
    """The threads for this call; None for those of the server."""
    _meta: dict[str, Any] | None = None
    _state: dict[str, Any] | None = None

    def __init__(self, host: Host, request: Incoming, outlet: Outlet, work: LoopParts) -> None:
        self.host = host
        self.work = work
        self.settings: Settings = host.settings
        self.request = request
        self.outlet = outlet

    def nested(self, owner: OwnServer, target: object, in_thread: bool) -> Self:
        """Return the call of a component that the handler of this call uses, on behalf of the same caller."""
        inner = copy(self)
        inner.outer, inner.owner, inner.target, inner.in_thread = self, owner, target, in_thread
        inner.sync_context = inner.own_loop_context = inner.guard = inner.release = inner.stack = inner.task_run = None
        inner.may_be_task, inner.judgement, inner.view_servers = False, None, None
        # Both calls share one state.
        inner._state = self.state
        return inner

    def judged_by(self, judgement: Judgement | None) -> Self:
        """Return a copy of the call for an outcome about which something was decided before."""
        other = copy(self)
        other.judgement = judgement
        return other

    # --- what is known ---

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def params(self) -> Any:
        return self.request.params

    @property
    def revision(self) -> str:
        return self.request.revision

    @property
    def request_id(self) -> str | int:
        return self.request.id

    @property
    def principal(self) -> Principal | None:
        return cast("Principal | None", self.request.principal)

    @property
    def session_id(self) -> str | None:
        return getattr(self.outlet.connection, "session_id", None)

    @property
    def progress_token(self) -> str | int | None:
        token = self.request.progress_token
        return None if token is UNSET else token

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` that came with the request, as sent."""
        if self._meta is None:
            raw = self.request.raw
            self._meta = {} if raw is UNSET else t.request_meta(raw)
        return self._meta

    @property
    def state(self) -> dict[str, Any]:
        """The place where middleware, dependencies and the handler leave things for each other."""
        if self._state is None:
            self._state = {}
        return self._state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._state = state

    @property
    def server(self) -> OwnServer:
        """The server whose component runs; for a mounted one, that server."""
        return self.host.server if self.owner is None else self.owner

    @property
    def is_task(self) -> bool:
        """Return whether the call goes on as a task after its request was answered."""
        return self.task_run is not None and self.task_run.is_task

    @property
    def attempt(self) -> int:
        """The number of the attempt: above one where a task is run again after its process was lost."""
        return 1 if self.task_run is None else self.task_run.attempt

    @property
    def spare_time(self) -> float | None:
        """Return how many seconds a handler may wait and still answer with what it has; None for any time."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline.time_left - min(_ANSWERING, deadline.seconds / 10))

    def client_can(self, capability: str) -> bool:
        """Return whether the client declared a capability that its revision has."""
        return can_be_asked(self.request.capabilities, self.request.revision, capability)

    def require(self, need: Need) -> None:
        """Raise `NotSupported` when the client lacks a capability."""
        if not self.client_can(need.capability):
            raise NotSupported(need.missing, need.required)

    # --- reports ---

    def tell_progress(self, progress: float, total: float | None = None, message: str | None = None) -> bool:
        """Report progress without waiting for a client that is slow to read; say whether it was sent."""
        token = self.request.progress_token
        if self.mask is not None:
            message = self.mask(message)
        if self.outer is not None:
            return self.outer.tell_progress(progress, total, message)  # PRG-1: both calls report on one token.
        if self.task_run is not None and self.task_run.report(progress, total, message):
            return True
        if self.request.method == "subscriptions/listen":
            return False  # SUB-7
        # JSON has neither NaN nor infinity.
        if token is UNSET or not isfinite(progress):
            return False
        if self.last_progress is not None and progress <= self.last_progress:
            return False  # PRG-1
        self.last_progress = progress
        params = t.ProgressNotificationParams(
            progress_token=token,
            progress=progress,
            total=UNSET if total is None or not isfinite(total) else total,
            message=UNSET if message is None else message,
        )
        return self.outlet.notify("notifications/progress", params)

    def tell_log(self, level: t.LoggingLevel, data: Any, logger: str | None) -> bool:
        """Send a log message that the client wants; say whether it was sent."""
        if self.mask is not None:
            data, logger = self.mask(data), self.mask(logger)
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=UNSET if logger is None else logger)
        return self.outlet.notify("notifications/message", params)

    async def close_stream(self, retry_ms: int | None) -> None:
        """Close the HTTP stream of this request, so that the client resumes it later; do nothing elsewhere."""
        close = getattr(self.outlet, "close_stream", None)
        if close is not None:
            await close(retry_ms)

    # --- questions ---

    async def open_asking(self) -> Asking:
        """Return the way in which this call asks the client; all its questions go the same way."""
        if self.asking is None:
            opened = await self.host.open_asking(self)
            # Another question may have opened the way meanwhile.
            self.asking = self.asking or opened
        return self.asking

    async def ask(
        self, kind: Kind, params: t.Wire | None, key: str | None, timeout: float | None, in_thread: bool
    ) -> Raw:
        """Ask the client and return its answer. `in_thread`: a worker thread waits for it."""
        if timeout is not None and not 0 < timeout < inf:
            raise ValueError(f"The timeout of a question is a number of seconds above zero, not {timeout!r:.100}")
        if self.mask is not None:
            params = self.mask(params)
        if params is not None:
            params = sendable(params)
        asking = self.asking or await self.open_asking()
        deadline = self.deadline
        if deadline is None:
            return await asking.ask(kind, params, key, in_thread, timeout)
        # A person may take longer than a tool, so the time of the tool stands still while it waits.
        deadline.pause()
        try:
            return await asking.ask(kind, params, key, in_thread, timeout)
        finally:
            deadline.resume()


CURRENT: ContextVar[Call] = ContextVar("toolwire_call")
