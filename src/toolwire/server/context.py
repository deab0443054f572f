"""`Context`: what a handler knows of its request, and the ways it can speak to the client while it runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw

from toolwire import adapters, schemas
from toolwire.content import Message, to_blocks
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, NotSupported, ProtocolError, ToolError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import MODERN, supports
from toolwire.protocol.rounds import Kind
from toolwire.server.asking import Asking
from toolwire.wire.process_workers import ProcessWorkers
from toolwire.wire.session import Outlet
from toolwire.wire.workers import CancelToken, ThreadWorkers

log: logging.Logger = logging.getLogger("toolwire.server")

T = TypeVar("T")
Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

_ELICIT: Final = msgspec.json.Decoder(t.ElicitResult)
_SAMPLE: Final = msgspec.json.Decoder(t.CreateMessageResult)
_ROOTS: Final = msgspec.json.Decoder(t.ListRootsResult)


class Elicited(Generic[T]):
    """What the user did with a question: accepted it with `data`, declined it, or dismissed it."""

    __slots__ = ("action", "data", "id")

    def __init__(self, action: str, data: T | None = None, id: str | None = None) -> None:
        self.action: str = action
        self.data: T | None = data
        self.id: str | None = id

    @property
    def accepted(self) -> bool:
        return self.action == "accept"

    @property
    def declined(self) -> bool:
        return self.action == "decline"

    @property
    def cancelled(self) -> bool:
        return self.action == "cancel"

    def __repr__(self) -> str:
        return f"Elicited({self.action!r}, {self.data!r})"


class TaskRun(Protocol):
    """A call that is a task, or may become one."""

    @property
    def is_task(self) -> bool: ...

    def report(self, progress: float, total: float | None, message: str | None) -> bool: ...

    async def detach(self, ctx: Context) -> None: ...


class Host(Protocol):
    """What a context needs of the server that made it."""

    server: Any
    catalog: Any
    access: Any
    workers: ThreadWorkers

    def processes(self) -> ProcessWorkers: ...

    def log_threshold(self, request: Incoming, outlet: Outlet) -> int | None: ...

    async def asking(self, ctx: Context) -> Asking: ...

    async def read_for(self, ctx: Context, uri: str) -> list[t.ResourceContents]: ...

    def new_id(self) -> str: ...

    def elicitation_complete(self, outlet: Outlet, elicitation_id: str) -> bool: ...


class Context:
    """The request a handler serves. Take it as a parameter annotated `Context`."""

    # Defaults of the class, so that a request pays only for what differs from them.
    _asking: Asking | None = None
    _cancelled: bool = False
    _deadline: Any = None
    _error_id: str | None = None
    _guard: Callable[[float, Coroutine[Any, Any, Any]], tuple[float, Coroutine[Any, Any, Any]]] | None = None
    _last_progress: float | None = None
    _mask: Callable[[Any], Any] | None = None
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
        self._owner: Any = host.server

    # --- what is known ---

    @staticmethod
    def current() -> Context:
        """The context of the request that is being handled here; `LookupError` where there is none."""
        return CURRENT.get()

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
    def principal(self) -> Any:
        """Who is calling, as far as it was verified; None on an unauthenticated transport."""
        return self._request.principal

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
        """Whether the client no longer wants the answer. A `def` handler looks here; an `async` one is cancelled."""
        return self._cancelled

    @property
    def is_task(self) -> bool:
        """Whether the call goes on as a task after its request was answered."""
        return self._task_run is not None and self._task_run.is_task

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self._owner.lifespan_value

    @property
    def server(self) -> Any:
        """The server whose component runs; for a mounted one, that server."""
        return self._owner

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
        """Whether this client can be asked: `elicitation`, `elicitation.url`, `sampling`, `sampling.tools`, `roots`;
        or whether its revision has a feature of `toolwire.types.supports`."""
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
        token = self._request.progress_token
        if self._task_run is not None and self._task_run.report(progress, total, message):
            return True
        if self._request.method == "subscriptions/listen":
            return False  # SUB-7
        if token is UNSET or (self._last_progress is not None and progress <= self._last_progress):
            return False
        if self._mask is not None:
            message = self._mask(message)
        self._last_progress = progress
        params = t.ProgressNotificationParams(
            progress_token=token,
            progress=progress,
            total=UNSET if total is None else total,
            message=UNSET if message is None else message,
        )
        sent = self._outlet.notify("notifications/progress", params)
        if self._outlet.congested:
            await self._outlet.drain()
        return sent

    report_progress = progress

    async def log(self, level: Level, data: Any, logger: str | None = None) -> bool:
        """Send a log message to the client, if it wants messages of this level; whether it was sent."""
        rank = t.severity(level)
        threshold = self._host.log_threshold(self._request, self._outlet)
        if self._request.modern and threshold is not None:
            _warn_deprecated("Logging to the client")
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

    async def elicit(self, message: str, type: Any = bool, *, key: str | None = None) -> Elicited[Any]:
        """Ask the user for a value of a flat type: a primitive, an Enum or Literal, or a record of those.

        A form written by hand, as a JSON Schema of the kind that the protocol allows, works too; its value is a dict.
        """
        self._require("elicitation.form", {"elicitation": {"form": {}}}, "forms (elicitation)")
        schema, unpack = _form_of(type)
        params = t.ElicitRequestParams(mode="form", message=message, requested_schema=schema)
        answer = self._decode(_ELICIT, await self._ask("elicitation/create", params, key), "elicitation")
        if answer.action != "accept":
            return Elicited(answer.action)
        try:
            # ELI-10: an answer is validated on receipt.
            return Elicited("accept", unpack({} if answer.content is UNSET else answer.content))
        except adapters.Invalid as error:
            text = f"The answer does not fit the form: {error}"
            if self._request.modern and not self.is_task:
                # MRTR-9: there the answer is part of the request.
                raise ProtocolError(INVALID_PARAMS, text) from None
            raise ToolError(text) from None

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Elicited[None]:
        """Ask the user to open a page; accepting means that they agreed to, not that they finished there."""
        self._require("elicitation.url", {"elicitation": {"url": {}}}, "URL elicitation")
        check_url(url)
        identifier = None if self._request.modern else self._host.new_id()
        params = t.ElicitRequestParams(
            mode="url", message=message, url=url, elicitation_id=UNSET if identifier is None else identifier
        )
        answer = self._decode(_ELICIT, await self._ask("elicitation/create", params, key), "elicitation")
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
        model_preferences: t.ModelPreferences | None = None,
        include_context: str | None = None,
        metadata: dict[str, Any] | None = None,
        tools: Sequence[t.Tool] | None = None,
        tool_choice: Literal["auto", "required", "none"] | None = None,
        key: str | None = None,
    ) -> t.CreateMessageResult:
        """Ask the client's model. `messages` is a text, a message, or a list of them."""
        self._require("sampling", {"sampling": {}}, "sampling")
        if tools is not None or tool_choice is not None:
            # SMP-1: tools are sent only to a client that declared them.
            self._require("sampling.tools", {"sampling": {"tools": {}}}, "sampling with tools")
        if include_context not in (None, "none") and supports(self._request.revision, "sampling_tools"):
            # 2025-11-25 client/sampling: from there on it takes a capability of its own.
            self._require("sampling.context", {"sampling": {"context": {}}}, "sampling with context")
        if self._request.modern:
            _warn_deprecated("Sampling")
        conversation = _conversation(messages)
        _check_tool_turns(conversation)
        params = t.CreateMessageRequestParams(
            messages=conversation,
            max_tokens=max_tokens,
            system_prompt=_given(system_prompt),
            temperature=_given(temperature),
            stop_sequences=UNSET if stop_sequences is None else list(stop_sequences),
            model_preferences=_given(model_preferences),
            include_context=_given(include_context),
            metadata=_given(metadata),
            tools=UNSET if tools is None else list(tools),
            tool_choice=UNSET if tool_choice is None else t.ToolChoice(mode=tool_choice),
        )
        raw = await self._ask("sampling/createMessage", params, key)
        return cast("t.CreateMessageResult", self._decode(_SAMPLE, raw, "sampling"))

    async def list_roots(self, *, key: str | None = None) -> list[t.Root]:
        """The directories the client lets this server know of. Information, not a boundary that anyone enforces."""
        self._require("roots", {"roots": {}}, "roots")
        if self._request.modern:
            _warn_deprecated("Roots")
        raw = await self._ask("roots/list", None, key)
        return cast("list[t.Root]", self._decode(_ROOTS, raw, "roots").roots)

    async def step(self, name: str, function: Callable[[], Any]) -> Any:
        """Run a side effect once, however often the handler is replayed; its result must be a JSON value."""

        async def run() -> Any:
            value = function()
            return await value if inspect.isawaitable(value) else value

        asking = self._asking or await self._open_asking()
        return await asking.step(name, run)

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource of this server as the caller would."""
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

    async def _ask(self, kind: Kind, params: t.Wire | None, key: str | None) -> Raw:
        if self._mask is not None:
            params = self._mask(params)
        asking = self._asking or await self._open_asking()
        deadline = self._deadline
        if deadline is None:
            return await asking.ask(kind, params, key, self._threaded)
        # A person may take longer than a tool: the tool's own time stands still while it waits.
        deadline.pause()
        try:
            return await asking.ask(kind, params, key, self._threaded)
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


def _form(type: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    _check_no_secrets(adapters.adapter(type).schema("input"))
    return adapters.elicitation_schema(type)


_known_form = lru_cache(maxsize=256)(_form)


def _form_of(type: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    if isinstance(type, dict):
        return _written_form(msgspec.json.encode(type))
    # An annotation may hold anything, also what no cache can keep.
    return _known_form(type) if _hashes(type) else _form(type)


@lru_cache(maxsize=256)
def _written_form(encoded: bytes) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    schema = msgspec.json.decode(encoded)
    members = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(members, dict):
        raise TypeError('A form written by hand is a JSON Schema with "type": "object" and "properties"')
    _check_no_secrets(schema)
    validator = schemas.compile(schema, what="the form")
    defaults = {name: member["default"] for name, member in members.items() if "default" in member}

    def unpack(content: Any) -> Any:
        value = {**defaults, **(content or {})}
        problems = validator.check(value)
        if problems:
            raise adapters.Invalid(problems)
        return value

    return schema, unpack


def _hashes(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


_SECRETS: Final = re.compile(
    r"(^|_)(pass_?(word|wd|phrase|code)|(api|private|secret|access)_?keys?|(access|refresh|auth|bearer|api|id)_?token"
    r"|client_?secret|credentials?|(credit_?)?card_?number|cvv|cvc|iban)($|_)|^(token|secret|otp)$"
)


def _check_no_secrets(schema: dict[str, Any]) -> None:
    """ELI-1, MRTR-11: what a form collects passes through the client, and the model may see it."""
    members = schema.get("properties") or {"value": schema}
    for name, member in members.items():
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()
        if _SECRETS.search(words) or (isinstance(member, dict) and member.get("format") == "password"):
            raise ValueError(
                f"A form must not ask for a secret such as {name!r}: send the user to a page with elicit_url"
            )


def check_url(url: str) -> None:
    # ELI-8: what the user is asked to open is an ordinary web address.
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"A page to open must have an http or https address, not {url[:100]!r}")
    if "@" in url.split("/", 3)[2]:
        raise ValueError("A page to open must not carry a user name or password in its address")


def _conversation(messages: Any) -> list[t.SamplingMessage]:
    items = messages if isinstance(messages, list | tuple) else [messages]
    return [_sampling_message(item) for item in items]


def _sampling_message(item: Any) -> t.SamplingMessage:
    if isinstance(item, t.SamplingMessage):
        return item
    if isinstance(item, str):
        return t.SamplingMessage(role="user", content=t.TextContent(item))
    if isinstance(item, Message):
        message = item.to_wire()
        return t.SamplingMessage(role=message.role, content=cast("Any", message.content))
    blocks = to_blocks(item)
    if blocks is None:
        raise TypeError(f"A sampling message is a text, a content block or a Message, not {type(item).__name__}")
    return t.SamplingMessage(role="user", content=cast("Any", blocks[0] if len(blocks) == 1 else blocks))


def _check_tool_turns(messages: list[t.SamplingMessage]) -> None:
    """SMP-2: every tool use is answered, by the very next message, which holds nothing but results."""
    open_ids: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, t.ToolResultContent)}
        uses = {block.id for block in blocks if isinstance(block, t.ToolUseContent)}
        if (results and message.role != "user") or (uses and message.role != "assistant"):
            raise ValueError("The assistant uses tools, and the user's message holds their results")
        if results and len(results) != len(blocks):
            raise ValueError("A message with tool results holds nothing but tool results")
        if results != open_ids:
            raise ValueError("Every tool use must be answered by the next message, and nothing else")
        open_ids = uses
    if open_ids:
        raise ValueError("The last tool use has no result")


_warned: set[str] = set()


def _warn_deprecated(feature: str) -> None:
    """SEP-2577: roots, sampling and logging are deprecated since 2026-07-28; said once a process."""
    if feature in _warned:
        return
    _warned.add(feature)
    # The warning belongs to the line that asked: the default filters show it only for the user's own code.
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("toolwire."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(
        f"{feature} is deprecated since protocol revision {MODERN} and may be removed from 2027-07-28 on",
        DeprecationWarning,
        stacklevel=depth,
    )


_R = TypeVar("_R")


class SyncContext(Context):
    """The context of a `def` handler: the same calls, plain. They hand over to the loop and wait there."""

    _call: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
    _origin: Context
    _token: CancelToken

    def adopt(self, ctx: Context) -> None:
        """Share what another context of the same request has gathered, and what is still to come of its questions."""
        self._origin = ctx
        self._threaded = True
        self._asking = ctx._asking
        self._deadline = ctx._deadline
        self._last_progress = ctx._last_progress
        self._mask = ctx._mask
        self._owner = ctx._owner
        self._state = ctx.state
        self._task_run = ctx._task_run
        self.replay: bool = ctx.replay

    async def _open_asking(self) -> Asking:
        self._asking = self._origin._asking or await self._origin._open_asking()
        return self._asking

    def progress(  # type: ignore[override]
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> bool:
        if self._request.progress_token is UNSET and self._task_run is None:
            return False
        return cast(bool, self._call(lambda: Context.progress(self, progress, total, message)))

    report_progress = progress  # type: ignore[assignment]

    def log(self, level: Level, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return cast(bool, self._call(lambda: Context.log(self, level, data, logger)))

    def debug(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("error", data, logger)

    def elicit(self, message: str, type: Any = bool, *, key: str | None = None) -> Elicited[Any]:  # type: ignore[override]
        return cast("Elicited[Any]", self._call(lambda: Context.elicit(self, message, type, key=key)))

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Elicited[None]:  # type: ignore[override]
        return cast("Elicited[None]", self._call(lambda: Context.elicit_url(self, message, url, key=key)))

    def elicitation_complete(self, id: str | None) -> bool:  # type: ignore[override]
        return cast(bool, self._call(lambda: Context.elicitation_complete(self, id)))

    def sample(self, messages: Any, **options: Any) -> t.CreateMessageResult:  # type: ignore[override]
        return cast("t.CreateMessageResult", self._call(lambda: Context.sample(self, messages, **options)))

    def list_roots(self, *, key: str | None = None) -> list[t.Root]:  # type: ignore[override]
        return cast("list[t.Root]", self._call(lambda: Context.list_roots(self, key=key)))

    def step(self, name: str, function: Callable[[], Any]) -> Any:
        async def in_thread() -> Any:
            # The step itself may block, so it stays in a thread.
            return await asyncio.to_thread(function)

        return self._call(lambda: Context.step(self, name, in_thread))

    def read_resource(self, uri: str) -> list[t.ResourceContents]:  # type: ignore[override]
        return cast("list[t.ResourceContents]", self._call(lambda: Context.read_resource(self, uri)))

    def detach(self) -> None:  # type: ignore[override]
        self._call(lambda: Context.detach(self))

    def close_stream(self, *, retry_ms: int | None = None) -> None:  # type: ignore[override]
        self._call(lambda: Context.close_stream(self, retry_ms=retry_ms))


def is_context(annotation: Any) -> bool:
    """Whether a parameter of this annotation receives the context."""
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] in ("Context", "SyncContext")
    return isinstance(annotation, type) and issubclass(annotation, Context)
