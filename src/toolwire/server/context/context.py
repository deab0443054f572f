"""`Context` and `SyncContext`: what handlers and middleware know of their request, and how they speak to the client."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw

from toolwire import adapters
from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.asking import FORMS, ROOTS, SAMPLING, SAMPLING_CONTEXT, SAMPLING_TOOLS, URLS
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError, ToolError
from toolwire.protocol.lifecycle.terms import decoder
from toolwire.protocol.open_codec import read_unknown_later
from toolwire.protocol.revisions import supports
from toolwire.protocol.rounds import Kind
from toolwire.protocol.sampling import check_tool_turns
from toolwire.server.call import CURRENT, Call, OwnServer
from toolwire.server.context.conversation import conversation, preferences
from toolwire.server.context.deprecation import warn_deprecated
from toolwire.server.context.forms import Elicited, check_url, form_of, unmask_answer
from toolwire.server.context.progress import Progress
from toolwire.wire.thread_workers import CancelToken, call_in_loop
from toolwire.wire.threads import hand_over

if TYPE_CHECKING:
    from toolwire.auth.vault.vault import Credential

T = TypeVar("T")


class Context:
    """The request a handler serves. Take it as a parameter annotated `Context`."""

    __slots__ = ("__weakref__", "_call")

    def __init__(self, call: Call) -> None:
        self._call = call

    def __eq__(self, other: object) -> bool:
        """Two contexts are equal when they show the same call."""
        return isinstance(other, Context) and other._call is self._call

    def __hash__(self) -> int:
        return hash(self._call)

    @property
    def _in_thread(self) -> bool:
        """True when a worker thread waits for the answers to questions."""
        return self._call.in_thread

    # --- what is known ---

    @staticmethod
    def current() -> Context:
        """Return the context of the request that is being handled here; `LookupError` where there is none.

        In a worker thread it is a `SyncContext`, whose calls are plain.
        """
        call, loop = CURRENT.get(), asyncio._get_running_loop()
        if loop is None:
            return _context_in_thread(call)
        own = call.own_loop_context
        return own if own is not None and own.is_on(loop) else context_of(call)

    @property
    def request_id(self) -> str | int:
        return self._call.request.id

    @property
    def revision(self) -> str:
        """The protocol revision this request is served under."""
        return self._call.request.revision

    @property
    def client(self) -> t.Implementation | None:
        """The name and version that the client gives: for display and logs, never for decisions (META-5)."""
        return None if self._call.request.client is UNSET else self._call.request.client

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        return self._call.request.capabilities

    @property
    def principal(self) -> Principal | None:
        """The caller, as far as it was verified; None on an unauthenticated transport."""
        return self._call.principal

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request; empty on other transports."""
        return cast("Mapping[str, str]", self._call.request.headers or {})

    @property
    def session_id(self) -> str | None:
        """The id of the legacy session, where there is one."""
        return self._call.session_id

    @property
    def progress_token(self) -> str | int | None:
        return self._call.progress_token

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` that came with the request, as sent."""
        return self._call.meta

    @property
    def cancelled(self) -> bool:
        """Return whether the client cancelled the request. A `def` handler looks here; an `async` one is cancelled."""
        return self._call.cancelled

    @property
    def is_task(self) -> bool:
        """Return whether the call goes on as a task after its request was answered."""
        return self._call.is_task

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1, or more where the call of a task is run again after its process was lost.

        A handler that must not do something twice in another system can look there what the attempt before has done.
        """
        return self._call.attempt

    @property
    def lifespan(self) -> Any:
        """The value that the server's lifespan yielded."""
        return self._call.work.lifespan_values.get(self._call.server)

    @property
    def server(self) -> Any:
        """The server whose component runs; for a mounted one, that server."""
        return self._call.server

    @property
    def method(self) -> str:
        """The method of the request, such as `tools/call`."""
        return self._call.request.method

    @property
    def params(self) -> Any:
        """The typed params of the request, such as `types.CallToolRequestParams`.

        `params.extra` has the members that the type does not know.
        """
        request = self._call.request
        if isinstance(request.raw, Raw):
            read_unknown_later(request.params, request.raw)
        return request.params

    @property
    def state(self) -> dict[str, Any]:
        """A place for middleware, dependencies and the handler to leave things for each other during this call."""
        return self._call.state

    def supports(self, feature: str) -> bool:
        """Return whether this client has a capability, or its revision has a feature of `toolwire.types.supports`.

        Capabilities are `elicitation`, `elicitation.url`, `sampling`, `sampling.tools` and `roots`.
        """
        family = feature.partition(".")[0]
        if family in ("elicitation", "sampling", "roots", "extensions"):
            return self._call.client_can(feature)
        return supports(self._call.request.revision, feature)

    @property
    def client_renders_apps(self) -> bool:
        """Return whether the client shows views (SEP-1865): it declares the extension with the type of views.

        A result has to be complete without its view, because gateways and scripts call tools, too.
        """
        from toolwire.protocol.apps import renders_apps  # Here, because few handlers ask.

        return renders_apps(self._call.request.capabilities)

    async def credential(self, name: str, *, scopes: Iterable[str] = ()) -> Credential:
        """Return the account of the caller at another service, by its name in `credentials=` of the server.

        `headers(method, url)` of it signs one request, `token` is the token alone. `scopes` are needed beside those of
        the settings. Where there is no account yet, the caller is asked to connect one, and the handler ends here.
        """
        from toolwire.server.credentials import credential_for  # Here, because few handlers need it.

        # A mounted server may have credentials of its own. Accounts of callers belong to the server that is called.
        vault = self._call.server.vault_with(name) or self._call.host.server.vault
        return await credential_for(self._call, vault, name, scopes=tuple(scopes))

    # --- reports ---

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> bool:
        """Report progress; False when the client did not ask for it or the value did not rise (PRG-1)."""
        call = self._call
        sent = call.tell_progress(progress, total, message)
        if call.outlet.congested:
            await call.outlet.drain()
        return sent

    report_progress = progress

    def track(self, total: float | None = None) -> Progress:
        """Make an object that reports the progress of this call, from any thread, in code that has no context."""
        made = Progress(self._call, total)
        self._call.work.tracked.add(made)
        return made

    async def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> bool:
        """Send a log message to the client, if it wants messages of this level; return whether it was sent."""
        call, rank = self._call, t.severity(level)
        threshold = call.host.log_threshold(call)
        if call.request.modern and threshold is not None:
            warn_deprecated("Logging to the client")
        if threshold is None or rank < threshold:
            return False
        sent = call.tell_log(level, data, logger)
        if call.outlet.congested:
            await call.outlet.drain()
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
        self._call.require(FORMS)
        schema, unpack = form_of(type)
        params = t.ElicitRequestParams(mode="form", message=message, requested_schema=schema)
        mask = self._call.mask
        unmask = None if mask is None else unmask_answer(schema, mask(params).requested_schema)
        answer = self._decode(
            t.ElicitResult, await self._ask("elicitation/create", params, key, timeout), "elicitation"
        )
        if answer.action != "accept":
            return Elicited(answer.action)
        content = {} if answer.content is UNSET else answer.content
        if unmask is not None and content is not None:
            content = unmask(content)
        try:
            # ELI-10: an answer is validated on receipt.
            return Elicited("accept", unpack(content))
        except adapters.Invalid as error:
            text = f"The answer does not fit the form: {error}"
            if self._call.request.modern and not self.is_task:
                # MRTR-9: the answer is part of the request, and the call has run with it. So it cannot be corrected.
                raise ProtocolError(INVALID_PARAMS, f"{text}; start again without requestState") from None
            raise ToolError(text) from None

    async def elicit_url(
        self, message: str, url: str, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[None]:
        """Ask the user to open a page. "accept" means that the user agreed to open it, not that the user finished."""
        self._call.require(URLS)
        check_url(url)
        identifier = None if self._call.request.modern else os.urandom(16).hex()
        params = t.ElicitRequestParams(
            mode="url", message=message, url=url, elicitation_id=UNSET if identifier is None else identifier
        )
        answer = self._decode(
            t.ElicitResult, await self._ask("elicitation/create", params, key, timeout), "elicitation"
        )
        return Elicited(answer.action, None, identifier)

    async def elicitation_complete(self, id: str | None) -> bool:
        """Tell the client that the user finished a page of `elicit_url`; return False except on 2025-11-25."""
        if id is None or not supports(self._call.request.revision, "elicitation_complete"):
            return False
        params = t.ElicitationCompleteNotificationParams(elicitation_id=id)
        notify = getattr(self._call.outlet.connection, "notify", None)
        return bool(notify and notify("notifications/elicitation/complete", params))

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
        self._call.require(SAMPLING)
        if tools is not None or tool_choice is not None:
            # SMP-1: tools are sent only to a client that declared them.
            self._call.require(SAMPLING_TOOLS)
        if include_context not in (None, "none") and supports(self._call.request.revision, "sampling_tools"):
            # 2025-11-25 client/sampling: from this revision on, `includeContext` needs a capability of its own.
            self._call.require(SAMPLING_CONTEXT)
        if self._call.request.modern:
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
        return cast("t.CreateMessageResult", self._decode(t.CreateMessageResult, raw, "sampling"))

    async def list_roots(self, *, key: str | None = None, timeout: float | None = None) -> list[t.Root]:
        """Return the directories that the client names. They are information, not a boundary."""
        self._call.require(ROOTS)
        if self._call.request.modern:
            warn_deprecated("Roots")
        raw = await self._ask("roots/list", None, key, timeout)
        return cast("list[t.Root]", self._decode(t.ListRootsResult, raw, "roots").roots)

    async def step(self, name: str, function: Callable[[], Any]) -> Any:
        """Run a side effect once, however often the handler is replayed; its result must be a JSON value.

        The returned value has always been through JSON, in every round: a dataclass comes back as a dict, bytes as
        base64 text. Raise `TypeError` for values that JSON lacks: objects, NaN and infinity. What is no Unicode in a
        text, such as the name of a file, becomes U+FFFD, as in results.
        """

        async def run() -> Any:
            value = function()
            return await value if inspect.isawaitable(value) else value

        asking = self._call.asking or await self._call.open_asking()
        return await asking.step(name, run)

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource of this server as the caller would; `ResourceNotFound` when there is none."""
        return await self._call.host.read_for(self._call, uri, self._in_thread)

    async def detach(self) -> None:
        """Make the call a task, where the client accepts tasks.

        Questions after this belong to the task. With `detaches=True` those before it are rounds of the request. Raise
        `ServerError` in a tool without `task=`.
        """
        if self._call.task_run is not None:
            await self._call.task_run.detach()
        elif not self._call.may_be_task:
            raise ServerError("ctx.detach() needs task='optional' or task='required' at the tool that runs")

    async def close_stream(self, *, retry_ms: int | None = None) -> None:
        """Close the HTTP stream of this request, so that the client resumes it later; do nothing elsewhere."""
        await self._call.close_stream(retry_ms)

    # --- inside ---

    async def _ask(self, kind: Kind, params: t.Wire | None, key: str | None, timeout: float | None) -> Raw:
        return await self._call.ask(kind, params, key, timeout, self._in_thread)

    @staticmethod
    def _decode(kind: Any, raw: Raw, what: str) -> Any:
        try:
            return decoder(kind)(raw)
        except (msgspec.DecodeError, RecursionError):
            raise ToolError(f"The client's answer to the {what} request cannot be read") from None


class SyncContext(Context):
    """The context of a `def` handler: the same calls, plain. They hand over to the loop and wait there."""

    __slots__ = ("_loop", "_token")

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(call)
        self._loop = loop
        self._token = CancelToken()
        call.sync_context = self

    @property
    def _in_thread(self) -> bool:
        return True

    @property
    def cancelled(self) -> bool:
        return self._token.cancelled or self._call.cancelled

    @staticmethod
    def current() -> SyncContext:
        """Return the context of the request that is handled in this thread; `LookupError` where there is none."""
        ctx = Context.current()
        if not isinstance(ctx, SyncContext):
            raise LookupError("this is no worker thread: on the loop use Context.current(), and await its calls")
        return ctx

    def _wait_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop of the call and wait for its result in this thread."""
        return call_in_loop(self._loop, work, self._token)

    def progress(  # type: ignore[override]
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> bool:
        if self._call.request.progress_token is UNSET and self._call.task_run is None:
            return False
        return self._wait_for(lambda: Context.progress(self, progress, total, message))

    report_progress = progress  # type: ignore[assignment]

    def track(self, total: float | None = None) -> Progress:
        async def made() -> Progress:
            return Context.track(self, total)

        return self._wait_for(made)

    def credential(self, name: str, *, scopes: Iterable[str] = ()) -> Credential:  # type: ignore[override]
        return self._wait_for(lambda: Context.credential(self, name, scopes=scopes))

    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self._wait_for(lambda: Context.log(self, level, data, logger))

    def debug(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("error", data, logger)

    @overload  # type: ignore[override]
    def elicit(self, message: str, *, key: str | None = None, timeout: float | None = None) -> Elicited[bool]: ...

    @overload
    def elicit(
        self, message: str, type: list[str], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[str]: ...

    @overload
    def elicit(
        self, message: str, type: type[T], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[T]: ...

    @overload
    def elicit(
        self, message: str, type: Any, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[Any]: ...

    def elicit(
        self, message: str, type: Any = bool, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[Any]:
        return self._wait_for(lambda: Context.elicit(self, message, type, key=key, timeout=timeout))

    def elicit_url(  # type: ignore[override]
        self, message: str, url: str, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[None]:
        return self._wait_for(lambda: Context.elicit_url(self, message, url, key=key, timeout=timeout))

    def elicitation_complete(self, id: str | None) -> bool:  # type: ignore[override]
        return self._wait_for(lambda: Context.elicitation_complete(self, id))

    def sample(self, messages: Any, **options: Any) -> t.CreateMessageResult:  # type: ignore[override]
        return self._wait_for(lambda: Context.sample(self, messages, **options))

    def list_roots(  # type: ignore[override]
        self, *, key: str | None = None, timeout: float | None = None
    ) -> list[t.Root]:
        return self._wait_for(lambda: Context.list_roots(self, key=key, timeout=timeout))

    def step(self, name: str, function: Callable[[], Any]) -> Any:
        async def in_thread() -> Any:
            # The step itself may block, so it stays in a thread.
            return await asyncio.to_thread(function)

        return self._wait_for(lambda: Context.step(self, name, in_thread))

    def read_resource(self, uri: str) -> list[t.ResourceContents]:  # type: ignore[override]
        return self._wait_for(lambda: Context.read_resource(self, uri))

    def detach(self) -> None:  # type: ignore[override]
        self._wait_for(lambda: Context.detach(self))

    def close_stream(self, *, retry_ms: int | None = None) -> None:  # type: ignore[override]
        self._wait_for(lambda: Context.close_stream(self, retry_ms=retry_ms))


class MountedContext(Context):
    """The context for the middleware of a mounted server, which knows its components by names without the prefix."""

    __slots__ = ("_params", "_server")

    def __init__(self, call: Call, server: OwnServer, params: Any) -> None:
        super().__init__(call)
        self._server = server
        self._params = params

    @property
    def server(self) -> Any:
        return self._server

    @property
    def params(self) -> Any:
        return self._params


def context_of(call: Call) -> Context:
    """Return a context for handlers and middleware of a call. All contexts of a call show the same state."""
    return Context(call)


def call_of(ctx: Context) -> Call:
    """Return the call that a context shows."""
    return ctx._call


def sync_context_of(call: Call) -> SyncContext:
    """Return a context for code in a worker thread. The caller must end it."""
    return SyncContext(call, asyncio.get_running_loop())


def end_sync_context(ctx: SyncContext) -> None:
    """Tell the thread that its call is over: end what it waits for on the loop, and set `ctx.cancelled`."""
    ctx._token.cancel()
    if ctx._call.sync_context is ctx:
        ctx._call.sync_context = None


def wait_for(ctx: SyncContext, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop for the thread of a context, and wait for it there."""
    return ctx._wait_for(lambda: work)


def _context_in_thread(call: Call) -> Context:
    """Return a context for code in a thread that has none. The context ends with the call."""
    known: SyncContext | None = call.sync_context
    deadline = call.deadline
    if known is not None or deadline is None:
        return known or context_of(call)
    ctx, task = SyncContext(call, deadline.loop), deadline.task
    if task is None or not hand_over(deadline.loop, task.add_done_callback, lambda _: end_sync_context(ctx)):
        end_sync_context(ctx)
    return ctx


def _given(value: Any) -> Any:
    return UNSET if value is None else value


def is_context(annotation: Any) -> bool:
    """Return whether a parameter of this annotation receives the context."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] in ("Context", "SyncContext")
    return isinstance(annotation, type) and issubclass(annotation, Context)


def is_blocking(annotation: Any) -> bool:
    """Return whether a parameter of this annotation receives the context of a `def` handler, and no other."""
    return isinstance(annotation, type) and issubclass(annotation, SyncContext)
