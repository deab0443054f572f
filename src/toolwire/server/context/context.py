"""`Context`: what a handler knows of its request, and the ways it can speak to the client while it runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from math import inf, isfinite
from typing import Any, Final, Literal, Protocol, TypeVar, cast, overload
from weakref import WeakSet

import msgspec
from msgspec import UNSET, Raw

from toolwire import adapters
from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, NotSupported, ProtocolError, ToolError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import supports
from toolwire.protocol.rounds import Kind
from toolwire.protocol.sampling import check_tool_turns
from toolwire.server.context.conversation import conversation, preferences
from toolwire.server.context.deprecation import warn_deprecated
from toolwire.server.context.forms import Elicited, check_url, form_of
from toolwire.server.context.progress import Progress
from toolwire.server.input_requests import Asking, sendable
from toolwire.wire.outlet import Outlet
from toolwire.wire.process_workers import ProcessWorkers

T = TypeVar("T")
_ELICIT: Final = msgspec.json.Decoder(t.ElicitResult)
_SAMPLE: Final = msgspec.json.Decoder(t.CreateMessageResult)
_ROOTS: Final = msgspec.json.Decoder(t.ListRootsResult)


class TaskRun(Protocol):
    """A call that is a task, or may become one."""

    policy_timeout: float | None

    @property
    def is_task(self) -> bool: ...

    def report(self, progress: float, total: float | None, message: str | None) -> bool: ...

    async def detach(self, ctx: Context) -> None: ...


class Workers(Protocol):
    """The threads that `def` handlers run in (see `wire.thread_workers`)."""

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...

    def run_for(self, caller: Hashable, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...

    def run_beside(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...


class Host(Protocol):
    """What a context needs of the server that made it."""

    server: Any
    catalog: Any
    access: Any
    lowlevel: Any
    processes: ProcessWorkers
    tracked: WeakSet[Progress]

    @property
    def workers(self) -> Workers: ...

    def context_in_thread(self, ctx: Context) -> Context: ...

    def log_threshold(self, request: Incoming, outlet: Outlet) -> int | None: ...

    async def asking(self, ctx: Context) -> Asking: ...

    async def read_for(self, ctx: Context, uri: str) -> list[t.ResourceContents]: ...

    def new_id(self) -> str: ...

    def elicitation_complete(self, outlet: Outlet, elicitation_id: str) -> bool: ...


class Context:
    """The request a handler serves. Take it as a parameter annotated `Context`."""

    # Defaults of the class, so that a request pays only for what differs from them.
    _asking: Asking | None = None
    _blocking: Context | None = None
    _cancelled: bool = False
    _deadline: Any = None
    _error_id: str | None = None
    _guard: Callable[[float, Coroutine[Any, Any, Any]], tuple[float, Coroutine[Any, Any, Any]]] | None = None
    _last_progress: float | None = None
    _mask: Callable[[Any], Any] | None = None
    _owner: Any = None
    _meta: dict[str, Any] | None = None
    _refusal: str | None = None
    _state: dict[str, Any] | None = None
    _subject: Any = None
    _task: asyncio.Task[Any] | None = None
    _task_run: TaskRun | None = None
    _threaded: bool = False
    _trace: str | None = None
    replay: bool = True
    stack: AsyncExitStack | None = None

    def __init__(self, host: Host, request: Incoming, outlet: Outlet) -> None:
        self._host = host
        self._request = request
        self._outlet = outlet

    # --- what is known ---

    @staticmethod
    def current() -> Context:
        """The context of the request that is being handled here; `LookupError` where there is none.

        In a worker thread it is a `SyncContext`, whose calls are plain.
        """
        ctx = CURRENT.get()
        return ctx if asyncio._get_running_loop() is not None else ctx._host.context_in_thread(ctx)

    @property
    def request_id(self) -> str | int:
        return self._request.id

    @property
    def revision(self) -> str:
        """The protocol revision this request is served under."""
        return self._request.revision

    @property
    def client(self) -> t.Implementation | None:
        """How the client calls itself: for display and logs, never for decisions (META-5)."""
        return None if self._request.client is UNSET else self._request.client

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        return self._request.capabilities

    @property
    def principal(self) -> Principal | None:
        """Who is calling, as far as it was verified; None on an unauthenticated transport."""
        return cast("Principal | None", self._request.principal)

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request; empty on other transports."""
        return cast("Mapping[str, str]", self._request.headers or {})

    @property
    def session_id(self) -> str | None:
        """The id of the legacy session, where there is one."""
        return getattr(self._outlet.connection, "session_id", None)

    @property
    def progress_token(self) -> str | int | None:
        token = self._request.progress_token
        return None if token is UNSET else token

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` that came with the request, as sent."""
        if self._meta is None:
            raw = self._request.raw
            self._meta = {} if raw is UNSET else t.request_meta(raw)
        return self._meta

    @property
    def cancelled(self) -> bool:
        """Return whether the client cancelled the request. A `def` handler looks here; an `async` one is cancelled."""
        return self._cancelled

    @property
    def is_task(self) -> bool:
        """Return whether the call goes on as a task after its request was answered."""
        return self._task_run is not None and self._task_run.is_task

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self.server.lifespan_value

    @property
    def server(self) -> Any:
        """The server whose component runs; for a mounted one, that server."""
        return self._host.server if self._owner is None else self._owner

    @property
    def method(self) -> str:
        """The method of the request, such as `tools/call`."""
        return self._request.method

    @property
    def params(self) -> Any:
        """The typed params of the request, such as `types.CallToolRequestParams`."""
        return self._request.params

    @property
    def state(self) -> dict[str, Any]:
        """A place for middleware, dependencies and the handler to leave things for each other during this call."""
        if self._state is None:
            self._state = {}
        return self._state

    def supports(self, feature: str) -> bool:
        """Return whether this client has a capability, or its revision has a feature of `toolwire.types.supports`.

        Capabilities are `elicitation`, `elicitation.url`, `sampling`, `sampling.tools` and `roots`.
        """
        family = feature.partition(".")[0]
        if family in ("elicitation", "sampling", "roots", "extensions"):
            return self._can(feature)
        return supports(self._request.revision, feature)

    def _can(self, capability: str) -> bool:
        path = "elicitation.form" if capability == "elicitation" else capability
        revision = self._request.revision
        if path.startswith("elicitation") and not supports(revision, "elicitation"):
            return False
        if path == "elicitation.url" and not supports(revision, "url_elicitation"):
            return False
        if path in ("sampling.tools", "sampling.context") and not supports(revision, "sampling_tools"):
            return False
        return t.has_capability(self._request.capabilities, path)

    # --- reports ---

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> bool:
        """Report progress; False when the client did not ask for it or the value did not rise (PRG-1)."""
        sent = self.tell_progress(progress, total, message)
        if self._outlet.congested:
            await self._outlet.drain()
        return sent

    report_progress = progress

    def track(self, total: float | None = None) -> Progress:
        """Make an object that reports the progress of this call, from any thread, in code that has no context."""
        made = Progress(self, total)
        self._host.tracked.add(made)
        return made

    def tell_progress(self, progress: float, total: float | None = None, message: str | None = None) -> bool:
        """Report progress without waiting for a client that is slow to read."""
        token = self._request.progress_token
        if self._mask is not None:
            message = self._mask(message)
        if self._task_run is not None and self._task_run.report(progress, total, message):
            return True
        if self._request.method == "subscriptions/listen":
            return False  # SUB-7
        # JSON has neither NaN nor infinity, and nothing rises above either.
        if token is UNSET or not isfinite(progress):
            return False
        if self._last_progress is not None and progress <= self._last_progress:
            return False
        self._last_progress = progress
        params = t.ProgressNotificationParams(
            progress_token=token,
            progress=progress,
            total=UNSET if total is None or not isfinite(total) else total,
            message=UNSET if message is None else message,
        )
        return self._outlet.notify("notifications/progress", params)

    async def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> bool:
        """Send a log message to the client, if it wants messages of this level; whether it was sent."""
        rank = t.severity(level)
        threshold = self._host.log_threshold(self._request, self._outlet)
        if self._request.modern and threshold is not None:
            warn_deprecated("Logging to the client")
        if threshold is None or rank < threshold:
            return False
        if self._mask is not None:
            data = self._mask(data)
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=UNSET if logger is None else logger)
        sent = self._outlet.notify("notifications/message", params)
        if self._outlet.congested:
            await self._outlet.drain()
        return sent

    async def debug(self, data: Any, logger: str | None = None) -> bool:
        return await self.log("debug", data, logger)

    async def info(self, data: Any, logger: str | None = None) -> bool:
        return await self.log("info", data, logger)

    async def warning(self, data: Any, logger: str | None = None) -> bool:
        return await self.log("warning", data, logger)

    async def error(self, data: Any, logger: str | None = None) -> bool:
        return await self.log("error", data, logger)

    # --- questions ---

    @overload
    async def elicit(self, message: str, *, key: str | None = None, timeout: float | None = None) -> Elicited[bool]: ...

    @overload
    async def elicit(
        self, message: str, type: list[str], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[str]: ...

    @overload
    async def elicit(
        self, message: str, type: type[T], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[T]: ...

    @overload
    async def elicit(
        self, message: str, type: Any, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[Any]: ...

    async def elicit(
        self, message: str, type: Any = bool, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[Any]:
        """Ask the user for a value of a flat type: a primitive, an Enum or Literal, or a record of those.

        A list of texts lets the user choose one of them. A form written by hand, as a JSON Schema of the kind that the
        protocol allows, works too; its value is a dict.

        The user has `timeout` seconds to answer (by default `Limits.state`, ten minutes). On 2026-07-28 a later answer
        is refused; elsewhere, and in a task, `Refused` is raised here.
        """
        self._require("elicitation.form", {"elicitation": {"form": {}}}, "forms (elicitation)")
        schema, unpack = form_of(type)
        params = t.ElicitRequestParams(mode="form", message=message, requested_schema=schema)
        answer = self._decode(_ELICIT, await self._ask("elicitation/create", params, key, timeout), "elicitation")
        if answer.action != "accept":
            return Elicited(answer.action)
        try:
            # ELI-10: an answer is validated on receipt.
            return Elicited("accept", unpack({} if answer.content is UNSET else answer.content))
        except adapters.Invalid as error:
            text = f"The answer does not fit the form: {error}"
            if self._request.modern and not self.is_task:
                # MRTR-9: there the answer is part of the request. The call has run with it, so it cannot be mended.
                raise ProtocolError(INVALID_PARAMS, f"{text}; start again without requestState") from None
            raise ToolError(text) from None

    async def elicit_url(
        self, message: str, url: str, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[None]:
        """Ask the user to open a page; accepting means that they agreed to, not that they finished there."""
        self._require("elicitation.url", {"elicitation": {"url": {}}}, "URL elicitation")
        check_url(url)
        identifier = None if self._request.modern else self._host.new_id()
        params = t.ElicitRequestParams(
            mode="url", message=message, url=url, elicitation_id=UNSET if identifier is None else identifier
        )
        answer = self._decode(_ELICIT, await self._ask("elicitation/create", params, key, timeout), "elicitation")
        return Elicited(answer.action, None, identifier)

    async def elicitation_complete(self, id: str | None) -> bool:
        """Tell the client that the page of `elicit_url` was finished; whether it was told (2025-11-25 only)."""
        if id is None or not supports(self._request.revision, "elicitation_complete"):
            return False
        return self._host.elicitation_complete(self._outlet, id)

    async def sample(
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: t.ModelPreferences | str | Sequence[str] | None = None,
        include_context: str | None = None,
        metadata: dict[str, Any] | None = None,
        tools: Sequence[t.Tool] | None = None,
        tool_choice: Literal["auto", "required", "none"] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> t.CreateMessageResult:
        """Ask the client's model. `messages` is a text, a message, or a list of them.

        `model_preferences` may be the name of a model, or several, best first.
        """
        self._require("sampling", {"sampling": {}}, "sampling")
        if tools is not None or tool_choice is not None:
            # SMP-1: tools are sent only to a client that declared them.
            self._require("sampling.tools", {"sampling": {"tools": {}}}, "sampling with tools")
        if include_context not in (None, "none") and supports(self._request.revision, "sampling_tools"):
            # 2025-11-25 client/sampling: from there on it takes a capability of its own.
            self._require("sampling.context", {"sampling": {"context": {}}}, "sampling with context")
        if self._request.modern:
            warn_deprecated("Sampling")
        turns = conversation(messages)
        check_tool_turns(turns)
        params = t.CreateMessageRequestParams(
            messages=turns,
            max_tokens=max_tokens,
            system_prompt=_given(system_prompt),
            temperature=_given(temperature),
            stop_sequences=UNSET if stop_sequences is None else list(stop_sequences),
            model_preferences=UNSET if model_preferences is None else preferences(model_preferences),
            include_context=_given(include_context),
            metadata=_given(metadata),
            tools=UNSET if tools is None else list(tools),
            tool_choice=UNSET if tool_choice is None else t.ToolChoice(mode=tool_choice),
        )
        raw = await self._ask("sampling/createMessage", params, key, timeout)
        return cast("t.CreateMessageResult", self._decode(_SAMPLE, raw, "sampling"))

    async def list_roots(self, *, key: str | None = None, timeout: float | None = None) -> list[t.Root]:
        """The directories the client lets this server know of. Information, not a boundary that anyone enforces."""
        self._require("roots", {"roots": {}}, "roots")
        if self._request.modern:
            warn_deprecated("Roots")
        raw = await self._ask("roots/list", None, key, timeout)
        return cast("list[t.Root]", self._decode(_ROOTS, raw, "roots").roots)

    async def step(self, name: str, function: Callable[[], Any]) -> Any:
        """Run a side effect once, however often the handler is replayed; its result must be a JSON value.

        What this returns went through JSON, whether or not it was replayed: a dataclass comes back as a dict.
        """

        async def run() -> Any:
            value = function()
            return await value if inspect.isawaitable(value) else value

        asking = self._asking or await self._open_asking()
        return await asking.step(name, run)

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource of this server as the caller would; `ResourceNotFound` when there is none."""
        return await self._host.read_for(self, uri)

    async def detach(self) -> None:
        """Let the call go on as a task, where the client can take one; does nothing elsewhere.

        Questions asked before are rounds of the original call, questions asked afterwards those of the task.
        """
        if self._task_run is not None:
            await self._task_run.detach(self)

    async def close_stream(self, *, retry_ms: int | None = None) -> None:
        """Close the HTTP stream of this request and let the client come back for the rest; nothing elsewhere."""
        close = getattr(self._outlet, "close_stream", None)
        if close is not None:
            await close(retry_ms)

    # --- inside ---

    def _require(self, capability: str, required: dict[str, Any], name: str) -> None:
        if not self._can(capability):
            raise NotSupported(f"The client does not support {name}", required)

    async def _open_asking(self) -> Asking:
        opened = await self._host.asking(self)
        # Another question may have opened the way meanwhile; all of a call go the same way.
        self._asking = self._asking or opened
        return self._asking

    async def _ask(self, kind: Kind, params: t.Wire | None, key: str | None, timeout: float | None) -> Raw:
        if timeout is not None and not 0 < timeout < inf:
            raise ValueError(f"The timeout of a question is a number of seconds above zero, not {timeout!r:.100}")
        if self._mask is not None:
            params = self._mask(params)
        if params is not None:
            params = sendable(params)
        asking = self._asking or await self._open_asking()
        deadline = self._deadline
        if deadline is None:
            return await asking.ask(kind, params, key, self._threaded, timeout)
        # A person may take longer than a tool: the tool's own time stands still while it waits.
        deadline.pause()
        try:
            return await asking.ask(kind, params, key, self._threaded, timeout)
        finally:
            deadline.resume()

    @staticmethod
    def _decode(decoder: msgspec.json.Decoder[Any], raw: Raw, what: str) -> Any:
        try:
            return decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            raise ToolError(f"The client's answer to the {what} request cannot be read") from None


CURRENT: ContextVar[Context] = ContextVar("toolwire_context")


def _given(value: Any) -> Any:
    return UNSET if value is None else value


def is_context(annotation: Any) -> bool:
    """Return whether a parameter of this annotation receives the context."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] in ("Context", "SyncContext")
    return isinstance(annotation, type) and issubclass(annotation, Context)
