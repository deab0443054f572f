"""One open view: the host's half of the bridge, its log, and its failures.

The page moves the messages between the frame and this object, and decides nothing. `toolwire.apps.bridge` judges each
message of the view.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from toolwire._version import __version__
from toolwire.apps import bridge
from toolwire.apps.bridge import (
    DENIED,
    BridgeState,
    DisplayMode,
    Refusal,
    ViewAnswer,
    ViewNotification,
    ViewRequest,
)
from toolwire.apps.profiles import NO_INSETS, HostProfile, initialize_result, openai_globals
from toolwire.apps.styles import STYLES
from toolwire.inspector.calls import PageCall
from toolwire.inspector.events import Events
from toolwire.inspector.excerpt import Excerpt
from toolwire.inspector.views.reading import ViewSource
from toolwire.inspector.views.settings import ViewSettings
from toolwire.inspector.wire_log import WireEntry, WireLog
from toolwire.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, ToolwireError

#: Seconds after which a view that is not initialized is reported.
INITIALIZE_SECONDS: Final = 4.0
#: Seconds that a view gets to answer `ui/resource-teardown`.
TEARDOWN_SECONDS: Final = 1.5
MAX_LOG: Final = 2_000
MAX_LOG_BYTES: Final = 8 * 1024 * 1024
MAX_FINDINGS: Final = 200
MAX_MESSAGES: Final = 50
#: After so many refusals in a row, a view may ask the person nothing more.
MAX_REFUSALS: Final = 5
#: How many requests of one view may wait for an answer.
MAX_WAITING: Final = 32
#: How many bytes may wait for the page to hand them to the view.
MAX_OUTBOX_BYTES: Final = 64 * 1024 * 1024
#: How large the result of a call may be for a view.
MAX_RESULT_BYTES: Final = 32 * 1024 * 1024
_TEXT: Final = 2_000
#: The levels of log messages that are findings. All messages are in the log of the bridge.
_GRAVE: Final = frozenset({"warning", "error", "critical", "alert", "emergency"})

State: TypeAlias = Literal["loading", "initializing", "ready", "closing", "closed", "stopped"]
FindingKind: TypeAlias = Literal["policy", "refused", "console", "log", "remark", "problem", "stopped"]
Handler: TypeAlias = Callable[[Any], Awaitable[Any]]

_encode = msgspec.json.Encoder(enc_hook=str).encode


class ViewServer(Protocol):
    """The server of a view, and its user, as a view can reach them."""

    async def tools(self) -> list[dict[str, Any]]:
        """Return the tools that the view may call."""

    async def is_destructive(self, tool: str) -> bool:
        """Return whether a tool that the view may call has `destructiveHint`."""

    async def resources(self) -> list[dict[str, Any]]:
        """Return the resources of the server."""

    async def templates(self) -> list[dict[str, Any]]:
        """Return the resource templates of the server."""

    def start(self, method: str, params: Mapping[str, Any]) -> PageCall:
        """Send a request of the view to the server, in the log of the calls."""

    async def consent(self, kind: str, params: Mapping[str, Any]) -> bool:
        """Ask the person whether the view may do something."""


class RequestDenied(Exception):
    """A request of a view is not allowed."""

    def __init__(self, reason: str, code: int = DENIED) -> None:
        super().__init__(reason)
        self.code = code


class OpenView:
    """A view that the page shows."""

    def __init__(
        self,
        identifier: str,
        source: ViewSource,
        call: PageCall,
        tool: Mapping[str, Any],
        profile: HostProfile,
        settings: ViewSettings,
        granted: Mapping[str, str],
        server: ViewServer,
        events: Events,
        closed: Callable[[OpenView], None],
    ) -> None:
        self.identifier = identifier
        self.source = source
        self.call = call
        self.tool = tool
        self.profile = profile
        self.settings: ViewSettings = settings
        self.granted = granted
        """The permissions that a person allowed, each with its name in Permissions-Policy."""
        self.state: State = "loading"
        self.problem: str | None = None
        """Why the view shows nothing, or was stopped."""
        self.bridge: BridgeState = BridgeState()
        self.log: WireLog = WireLog(self._recorded, entries=MAX_LOG, total=MAX_LOG_BYTES)
        self.findings: deque[dict[str, Any]] = deque(maxlen=MAX_FINDINGS)
        self.model_context: dict[str, Any] | None = None
        """The content of the last `ui/update-model-context`, which replaces the earlier ones."""
        self.messages: deque[dict[str, Any]] = deque(maxlen=MAX_MESSAGES)
        """The messages that the view added to the conversation, and that a person let through."""
        self._server = server
        self._events = events
        self._closed = closed
        self._loaded = {"sandbox": 0, "page": 0}
        self._outbox: list[Raw] = []
        self._outbox_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._asks = False
        self.refusals: int = 0
        """How many questions of the view the person refused since the last one that was allowed."""
        self._teardown: asyncio.Future[None] | None = None
        self._handlers: dict[str, Handler] = {
            "ui/open-link": self._open_link,
            "ui/download-file": self._download,
            "ui/message": self._message,
            "ui/request-display-mode": self._display_mode,
            "ui/update-model-context": self._update_context,
            "tools/call": self._call_tool,
            "tools/list": self._list_tools,
            "resources/read": self._read_resource,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "ping": self._ping,
        }
        self._late = asyncio.get_running_loop().call_later(INITIALIZE_SECONDS, self.report_late)
        for remark in source.remarks:
            self.find("remark", remark)
        for member, reason in source.policy.refused:
            self.find("refused", f"_meta.ui.csp: {member} is left out: {reason}")

    @property
    def is_open(self) -> bool:
        return self.state not in ("closed", "stopped")

    def describe(self) -> dict[str, Any]:
        """Return the view for the page, without its log, findings, and model context."""
        size = self.bridge.size
        app = self.bridge.app
        return {
            "id": self.identifier,
            "uri": self.source.uri,
            "tool": self.call.subject,
            "call": self.call.identifier,
            "state": self.state,
            "problem": self.problem,
            "profile": self.profile.name,
            "hidden": self.profile.hides_until_ready and self.state in ("loading", "initializing"),
            "app": None if app is None else Excerpt(msgspec.to_builtins(app.app_info)).value,
            "modes": list(self._modes()),
            "settings": msgspec.to_builtins(self.settings),
            "size": None if size is None else {"width": size.width, "height": size.height},
            "policy": self.source.policy.header,
            "permissions": list(self.source.permissions),
            "granted": list(self.granted),
            "border": self.source.prefers_border,
        }

    # --- messages of the view ---

    def receive(self, texts: list[str]) -> None:
        """Take messages of the view, in their order."""
        now = time.monotonic()
        for text in texts:
            if not self.is_open:
                return
            self.log.record("←", text.encode("utf-8", "replace"))
            self._act(self.bridge.receive(text, now))
            if self.bridge.stopped is not None:
                self.stop(self.bridge.stopped)

    def _act(self, read: bridge.Read) -> None:
        if isinstance(read, Refusal):
            self.find("refused", read.reason)
            answer = read.answer()
            if answer is not None:
                self._send(answer)
        elif isinstance(read, ViewNotification):
            self._notified(read)
        elif isinstance(read, ViewAnswer):
            if self._teardown is not None and not self._teardown.done():
                self._teardown.set_result(None)
        elif read.method == "ui/initialize":
            self._send(bridge.result_answer(read.id, self._initialize(read.params)))
        elif len(self._tasks) >= MAX_WAITING:
            self._refuse(read, RequestDenied(f"{MAX_WAITING} requests of the view wait for an answer already"))
        else:
            self._start(self._answer(read))

    def _notified(self, notification: ViewNotification) -> None:
        method, params = notification
        if method == "ui/notifications/initialized":
            self._become_ready()
        elif method == "ui/notifications/size-changed":
            self._tell()
        elif method == "ui/notifications/request-teardown":
            self._start(self.close("The view asked for it"))
        elif method == "notifications/message" and params.level in _GRAVE:
            self.find("log", f"{params.level[:20]}: {_short(params.data)}")

    async def _answer(self, request: ViewRequest) -> None:
        try:
            result = await self._handlers[request.method](request.params)
        except RequestDenied as denied:
            self._refuse(request, denied)
        except ToolwireError as error:
            self._refuse(request, RequestDenied(str(error), getattr(error, "code", INTERNAL_ERROR)))
        else:
            if self.is_open:
                self._send(bridge.result_answer(request.id, result))

    def _refuse(self, request: ViewRequest, denied: RequestDenied) -> None:
        self.find("refused", f"{request.method}: {denied}")
        if self.is_open:
            self._send(bridge.error_answer(request.id, denied.code, str(denied)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the handshake, and the call that the view shows ---

    def _initialize(self, params: bridge.Initialize) -> dict[str, Any]:
        self._become("initializing")
        if params.protocol_version != bridge.WIRE_VERSION:
            said = params.protocol_version[:40]
            self.find("remark", f"The view speaks {said!r}, and the host answers with {bridge.WIRE_VERSION!r}")
        context = {
            **self.settings.to_wire(),
            "toolInfo": {"tool": dict(self.tool)},
            "styles": {"variables": dict(STYLES)},
            "availableDisplayModes": list(self._modes()),
            "userAgent": f"toolwire-inspector/{__version__}",
            "safeAreaInsets": dict(NO_INSETS),
        }
        permissions: dict[str, Any] = {name: {} for name in self.granted}
        return initialize_result(self.profile, context, csp=self.source.policy.granted, permissions=permissions)

    def _become_ready(self) -> None:
        self._late.cancel()
        if self.problem is not None and self.is_open:
            self.problem = None
        self._become("ready")
        self._send(self.bridge.input(self._arguments()))
        self._start(self._await_call())

    def _arguments(self) -> dict[str, Any]:
        arguments = msgspec.json.decode(self.call.params).get("arguments")
        return arguments if isinstance(arguments, dict) else {}

    def globals(self) -> dict[str, Any]:
        """Return the values of `window.openai` for a page that starts now."""
        result = {} if self.call.result is None else _result(self.call)
        return openai_globals(self.settings.to_wire(), self._arguments(), result)

    async def _await_call(self) -> None:
        """Send the end of the call, now or when it comes."""
        await self.call.ended()
        if self.state != "ready":
            return
        call = self.call
        if call.result is None:
            why = "cancelled" if call.error is None else str(call.error.get("message", ""))[:_TEXT]
            self._send(self.bridge.cancelled(why))
        elif len(call.result) > MAX_RESULT_BYTES:
            self.find("problem", f"The result has more than {MAX_RESULT_BYTES} bytes, so the view does not get it")
            self._send(self.bridge.cancelled("the result is too large"))
        else:
            self._send(self.bridge.result(_result(call)))

    def loaded(self, what: str) -> None:
        """Record that the browser asked for the sandbox page or the view's page."""
        self._loaded[what] += 1
        if what == "page" and self._loaded[what] == 2:
            self.stop("it loaded its page a second time")

    def report_late(self) -> None:
        """Say why the view is not initialized."""
        if self.state not in ("loading", "initializing"):
            return
        self.problem = f"The view is not initialized after {INITIALIZE_SECONDS:g} seconds. {self._why_late()}"
        if self.profile.hides_until_ready:
            self.problem += f" {self.profile.label} keeps it hidden until then."
        self.find("problem", self.problem)
        self._tell()

    def _why_late(self) -> str:
        if not self._loaded["sandbox"]:
            return "The browser did not ask for its frame. The browser has to resolve names below localhost."
        if not self._loaded["page"]:
            return "The browser did not ask for its page."
        # What the policy blocked is often the cause of an error that arrives earlier than the report.
        failed = [*self._texts("policy"), *self._texts("console")]
        because = f" This happened before: {failed[0]}" if failed else ""
        if self.bridge.phase == "new":
            refused = self._texts("refused")
            if any(entry.direction == "←" for entry in self.log) and refused:
                return f"Its messages were refused: {refused[0]}"
            return f"Its page did not send ui/initialize.{because}"
        return f"It sent ui/initialize, and not ui/notifications/initialized after the answer.{because}"

    def _texts(self, kind: FindingKind) -> list[str]:
        return [each["text"] for each in self.findings if each["kind"] == kind]

    # --- what a view asks of the server ---

    async def _call_tool(self, params: bridge.CallTool) -> Any:
        if await self._server.is_destructive(params.name):
            await self._consent("tools/call", {"name": params.name, "arguments": Excerpt(params.arguments).value})
        # The client refuses what is not for views, so that a call which is refused is in the log as well.
        return await self._forward("tools/call", {"name": params.name, "arguments": params.arguments})

    async def _read_resource(self, params: bridge.ReadResource) -> Any:
        return await self._forward("resources/read", {"uri": params.uri})

    async def _forward(self, method: str, params: Mapping[str, Any]) -> Any:
        call = self._server.start(method, params)
        try:
            await call.ended()
        finally:
            # A view that was closed waits for nothing, and what the call asks the person is withdrawn with it.
            call.cancel()
        if call.result is None:
            error = call.error or {"message": "The call was cancelled"}
            raise RequestDenied(str(error.get("message", ""))[:_TEXT], error.get("code", DENIED))
        if len(call.result) > MAX_RESULT_BYTES:
            raise RequestDenied(f"the result has more than {MAX_RESULT_BYTES} bytes")
        return _result(call)

    async def _list_tools(self, _: Any) -> Any:
        return {"tools": await self._server.tools()}

    async def _list_resources(self, _: Any) -> Any:
        return {"resources": await self._server.resources()}

    async def _list_templates(self, _: Any) -> Any:
        return {"resourceTemplates": await self._server.templates()}

    async def _ping(self, _: Any) -> Any:
        return {}

    # --- what a view asks of the person ---

    async def _open_link(self, params: bridge.OpenLink) -> Any:
        if not bridge.is_allowed_link(params.url):
            raise RequestDenied(f"only http and https links are opened, unlike {params.url[:200]!r}")
        await self._consent("ui/open-link", {"url": params.url})
        return {}

    async def _download(self, params: bridge.DownloadFile) -> Any:
        files = [_file(each) for each in params.contents]
        if not files or None in files:
            raise RequestDenied(
                "a file is an embedded resource with a text or a blob, or a link to http or https", INVALID_PARAMS
            )
        await self._consent("ui/download-file", {"files": files})
        return {}

    async def _message(self, params: bridge.ViewMessage) -> Any:
        message = {"role": "user", "content": params.blocks()}
        await self._consent("ui/message", Excerpt(message).value)
        self.messages.append(message)
        self._tell_model()
        return {}

    async def _consent(self, method: str, params: Mapping[str, Any]) -> None:
        if self._asks:
            # Otherwise a view could bury the page under questions.
            raise RequestDenied("a question of the view waits for an answer already")
        if self.refusals >= MAX_REFUSALS:
            raise RequestDenied(f"the user refused {MAX_REFUSALS} times, so it may not ask until it is shown anew")
        self._asks = True
        try:
            allowed = await self._server.consent(method, {"view": self.source.uri, **params})
        finally:
            self._asks = False
        self.refusals = 0 if allowed else self.refusals + 1
        if not allowed:
            raise RequestDenied("the user did not allow it")

    async def _update_context(self, params: bridge.UpdateModelContext) -> Any:
        # Clause "ui/update-model-context": each one takes the place of the one before.
        given = {"content": params.content, "structuredContent": params.structured_content}
        self.model_context = {name: value for name, value in given.items() if value is not None}
        self._tell_model()
        return {}

    # --- the context ---

    def _modes(self) -> tuple[DisplayMode, ...]:
        """Return the display modes that the host and the view have."""
        app = self.bridge.app
        own = None if app is None else app.app_capabilities.available_display_modes
        if own is None:
            return self.profile.display_modes
        return tuple(each for each in self.profile.display_modes if each in own or each == "inline")

    async def _display_mode(self, params: bridge.RequestDisplayMode) -> Any:
        if params.mode in self._modes():
            self.change(msgspec.structs.replace(self.settings, display_mode=params.mode))
        return {"mode": self.settings.display_mode}

    def change(self, settings: ViewSettings) -> None:
        """Give the view another context."""
        if settings.display_mode not in self._modes():
            settings = msgspec.structs.replace(settings, display_mode=self.settings.display_mode)
        change = settings.changed_from(self.settings)
        self.settings = settings
        if change and self.state == "ready":
            self._send(self.bridge.context_changed(change))
        self._tell()

    # --- the end ---

    async def close(self, reason: str) -> None:
        """Let the view end its work, then close it."""
        if self.state == "ready":
            self._become("closing")
            self._teardown = asyncio.get_running_loop().create_future()
            self._send(self.bridge.teardown("teardown", reason))
            await asyncio.wait({self._teardown}, timeout=TEARDOWN_SECONDS)
            if not self._teardown.done():
                self.find("remark", f"The view did not answer ui/resource-teardown within {TEARDOWN_SECONDS:g} seconds")
        self.drop()

    def drop(self) -> None:
        """Close the view without asking it."""
        if self.is_open:
            self._end("closed")

    def stop(self, reason: str) -> None:
        """Close the view at once, because of what it did."""
        if not self.is_open:
            return
        self.problem = f"The view {self.source.uri} was stopped: {reason}"
        self.bridge.stopped = self.bridge.stopped or reason
        self.find("stopped", self.problem)
        self._end("stopped")

    def _end(self, state: State) -> None:
        self._late.cancel()
        self._outbox, self._outbox_bytes = [], 0
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        self._closed(self)
        self._become(state)

    # --- messages for the view, and events for the page ---

    def _send(self, message: Mapping[str, Any]) -> None:
        text = _encode(message)
        self.log.record("→", text)
        self._outbox.append(Raw(text))
        self._outbox_bytes += len(text)
        if self._outbox_bytes > MAX_OUTBOX_BYTES:
            self.stop("the page does not take the messages for it")
            return
        self._events.tell("view-outbox", view=self.identifier)

    def pop_messages(self) -> list[Raw]:
        """Return and remove the waiting messages for the view."""
        taken, self._outbox, self._outbox_bytes = self._outbox, [], 0
        return taken

    def find(self, kind: FindingKind, text: str) -> None:
        """Note something that the people who write the view should know."""
        finding = {"at": time.time(), "kind": kind, "text": text[:_TEXT]}
        self.findings.append(finding)
        self._events.tell("view-finding", view=self.identifier, finding=finding)

    def _become(self, state: State) -> None:
        self.state = state
        self._tell()

    def _tell(self) -> None:
        self._events.tell("view", view=self.describe())

    def _tell_model(self) -> None:
        """Tell the page what a model would get."""
        context = None if self.model_context is None else Excerpt(self.model_context).value
        messages = [Excerpt(each).value for each in self.messages]
        self._events.tell("view-model", view=self.identifier, model={"context": context, "messages": messages})

    def _recorded(self, entry: WireEntry) -> None:
        self._events.tell("view-message", view=self.identifier, message=entry.summary())


def _result(call: PageCall) -> Any:
    """Return the result of a call as a view gets it."""
    return bridge.result_for_view(msgspec.json.decode(call.result or b"{}"))


def _file(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a file that a view wants to save, for the page; None if invalid."""
    if block.get("type") == "resource_link":
        uri = block.get("uri")
        is_link = isinstance(uri, str) and bridge.is_allowed_link(uri)
        return {"name": str(block.get("name") or uri)[:200], "url": uri} if is_link else None
    resource = block.get("resource")
    if block.get("type") != "resource" or not isinstance(resource, Mapping):
        return None
    members = {name: resource[name] for name in ("text", "blob") if isinstance(resource.get(name), str)}
    if len(members) != 1:
        return None
    name = str(resource.get("uri", "")).rstrip("/").rpartition("/")[2][:200]
    return {"name": name, "mimeType": str(resource.get("mimeType", ""))[:100], **members}


def _short(data: Any) -> str:
    return data if isinstance(data, str) else _encode(data)[:_TEXT].decode("utf-8", "replace")
