"""`ViewHost`: a host's half of the bridge, for one view and its server.

The rules stand in `bridge.py`. Here they meet a client: calls of the view reach its own server alone, under
the approvals and budgets of the client. A driver owns the view itself, in Python or in a browser: it hands over each
message of the view by `receive`, and is given those of the host.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.apps import bridge
from toolwire.apps.bridge import BridgeState, Refusal, ViewAnswer, ViewRequest
from toolwire.apps.checks import FoundView, speaks_handshake
from toolwire.apps.content_security_policy import PERMISSIONS, HostPolicy
from toolwire.apps.profiles import PLAIN, HostProfile, HostSettings, initialize_result
from toolwire.client import Client
from toolwire.client.apps import View
from toolwire.client.errors import Denied
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, NotSupported, ProtocolError, ToolwireError, counted

#: How many seconds a view has to initialize, and to answer to a teardown.
PATIENCE: Final = 5.0
#: How many requests of a view may run at once.
MAX_RUNNING: Final = 64
#: How many bytes of messages are kept of one view.
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024

#: Decides whether a link is opened, a file saved or a message sent. It sees the request, and may be `async`.
Consent: TypeAlias = Callable[[ViewRequest], bool | Awaitable[bool]]


class ViewCall(Struct):
    """A call of a tool by a view."""

    name: str
    arguments: dict[str, Any]
    result: ToolResult | None = None
    refused: str | None = None
    """Why the call was refused, or failed; None if it has a result."""


async def find_view(client: Client, view: View) -> FoundView:
    """Return a view with its list entry and contents, for the checks of hosts."""
    contents = await client.read_resource(view.uri)
    try:
        listed = {each.uri: each for each in await client.list_resources()}
    except NotSupported:
        listed = {}
    return FoundView(view.uri, contents, listed.get(view.uri))


class ViewHost:
    """The host of one view."""

    def __init__(
        self,
        shown: View,
        view: FoundView,
        send: Callable[[dict[str, Any]], None],
        *,
        settings: HostSettings,
        profile: HostProfile = PLAIN,
        consent: Consent | None = None,
        endpoint: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.tool: t.Tool = shown.tool
        self.view: FoundView = view
        self.profile: HostProfile = profile
        self.policy: HostPolicy = profile.policy(profile.csp_of(view.ui, view.meta))
        """The Content-Security-Policy of the view."""
        self.context: dict[str, Any] = settings.context(shown.tool, profile)
        """The `hostContext` as it is now."""
        self.state: BridgeState = BridgeState()
        self.log: list[tuple[str, dict[str, Any]]] = []
        """All messages: "→" went to the view, "←" came from it."""
        self.calls: list[ViewCall] = []
        self.messages: list[list[dict[str, Any]]] = []
        self.links: list[str] = []
        self.downloads: list[list[dict[str, Any]]] = []
        self.model_context: dict[str, Any] | None = None
        self.sizes: list[bridge.SizeChanged] = []
        self.logs: list[bridge.LogMessage] = []
        self.refusals: list[Refusal] = []
        """The messages of the view that were not let through."""
        self.wants_teardown: bool = False
        """Whether the view asked to be closed."""
        self.failure: Exception | None = None
        """An exception of the callback for consent, or of the host itself."""
        self._shown = shown
        self._send_out = send
        self._consent = consent
        self._asks = False
        self.patience: float = patience
        self.arguments: Mapping[str, Any] = {}
        """The arguments of the call that the view shows."""
        self._partial: Sequence[Mapping[str, Any]] = ()
        self._end: Callable[[], dict[str, Any]] | None = None
        self._kept = 0
        self._running: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._settled: asyncio.Future[None] = self._loop.create_future()
        self._torn_down: asyncio.Future[ViewAnswer] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self.endpoint: str | None = endpoint
        """The public address of the server, where it is known."""

    # --- life ---

    def start(self) -> None:
        """Start the time within which the view has to initialize."""
        if (why := self.profile.refuses(self.view.ui, self.endpoint)) is not None:
            self.stop(why)
        else:
            self._timer = self._loop.call_later(self.patience, self._give_up)

    def _give_up(self) -> None:
        if self.state.phase == "new":
            known = "" if speaks_handshake(self.view.html) else "; its page has no text of the handshake"
            why = f"the view did not send ui/initialize within {self.patience:g} seconds{known}"
        else:
            why = f"the view did not send ui/notifications/initialized within {self.patience:g} seconds"
        self.stop(f"{why}: a view that does not speak the handshake is never shown")

    def stop(self, reason: str) -> None:
        """Stop the view: nothing that it sends counts any more."""
        if self.state.stopped is None:
            self.state.stopped = reason
        self._end_waiting()
        self._ended.set()
        for task in self._running:
            task.cancel()

    @property
    def stopped(self) -> str | None:
        """Why the view is stopped; None while it is not."""
        return self.state.stopped

    def _end_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._settled.done():
            self._settled.set_result(None)

    async def settled(self) -> None:
        """Wait until the view is initialized, or stopped."""
        await asyncio.shield(self._settled)

    async def ended(self) -> None:
        """Wait until the view is stopped, or closed."""
        await self._ended.wait()

    async def tear_down(self, reason: str | None = None) -> ViewAnswer | None:
        """Ask the view to end, and return its answer; None without one in time."""
        if self.state.phase != "ready" or self.stopped is not None:
            return None
        self._send(self.state.teardown("teardown", reason))
        try:
            async with asyncio.timeout(self.patience):
                return await asyncio.shield(self._torn_down)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """End everything that runs for the view."""
        self._end_waiting()
        self._ended.set()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # --- the call that the view shows ---

    def show(self, arguments: Mapping[str, Any], result: ToolResult, partial: Sequence[Mapping[str, Any]] = ()) -> None:
        """Give the view the call that it shows, once it is initialized.

        `partial` are arguments as they would arrive while a model writes them, which come before all of them.
        """
        self.arguments, self._partial = arguments, partial
        self._end = lambda: self.state.result(bridge.result_for_view(result.to_wire().to_dict()))
        self._deliver()

    def show_cancelled(
        self, arguments: Mapping[str, Any], reason: str, partial: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Tell the view, once it is initialized, that its call was cancelled."""
        self.arguments, self._partial = arguments, partial
        self._end = lambda: self.state.cancelled(reason)
        self._deliver()

    def _deliver(self) -> None:
        if self.state.phase == "ready" and self.stopped is None and self._end is not None:
            for each in self._partial:
                self._send(self.state.input_partial(each))
            self._send(self.state.input(self.arguments))
            self._send(self._end())

    def change_context(self, change: Mapping[str, Any]) -> None:
        """Change members of the `hostContext`, and tell the view."""
        self.context.update(change)
        self._send(self.state.context_changed(change))

    # --- messages ---

    def _send(self, message: dict[str, Any]) -> None:
        self.log.append(("→", message))
        self._send_out(message)

    def receive(self, text: str | bytes) -> None:
        """Take one message of the view, which may be anything."""
        self._kept += len(text)
        read = self.state.receive(text, self._loop.time())
        if self.stopped is None and self._kept > MAX_KEPT_BYTES:
            self.stop(f"it sent more than {MAX_KEPT_BYTES} bytes")
        if self.stopped is not None:
            self.stop(self.stopped)
            return
        self.log.append(("←", _as_logged(text)))
        if isinstance(read, Refusal):
            self.refusals.append(read)
            if (answer := read.answer()) is not None:
                self._send(answer)
        elif isinstance(read, ViewAnswer):
            if self.state.phase == "closing" and not self._torn_down.done():
                self._torn_down.set_result(read)
        elif isinstance(read, ViewRequest):
            self._start(read)
        else:
            self._notified(read.method, read.params)

    def _notified(self, method: str, params: Any) -> None:
        if method == "ui/notifications/initialized":
            self._end_waiting()
            self._deliver()
        elif method == "ui/notifications/size-changed":
            self.sizes.append(params)
        elif method == "ui/notifications/request-teardown":
            self.wants_teardown = True
        else:
            self.logs.append(params)

    def _start(self, request: ViewRequest) -> None:
        if request.method == "ui/initialize":
            # At once: `initialized` may be the next message, and nothing is sent to the view before this answer.
            self._send(bridge.result_answer(request.id, self._initialized()))
            return
        if len(self._running) >= MAX_RUNNING:
            self._refuse(request, f"{counted(MAX_RUNNING, 'request')} of the view run already: wait for their answers")
            return
        task = self._loop.create_task(self._answer(request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _refuse(self, request: ViewRequest, reason: str, code: int = bridge.DENIED) -> None:
        refusal = Refusal(request.id, code, reason)
        self.refusals.append(refusal)
        self._send(bridge.error_answer(request.id, code, reason))

    async def _answer(self, request: ViewRequest) -> None:
        try:
            result = await self._result(request)
        except Denied as denied:
            self._refuse(request, str(denied))
        except ProtocolError as error:
            self._send(bridge.error_answer(request.id, error.code, error.message))
        except ToolwireError as error:
            self._send(bridge.error_answer(request.id, INTERNAL_ERROR, str(error)))
        except Exception as error:
            self.failure = error
            self.stop(f"{request.method} failed in the host: {type(error).__name__}")
        else:
            self._send(bridge.result_answer(request.id, result))
            if request.method == "ui/request-display-mode" and result["mode"] != self.context["displayMode"]:
                self.change_context({"displayMode": result["mode"]})

    async def _result(self, request: ViewRequest) -> dict[str, Any]:
        params, apps = request.params, self._shown.apps
        match request.method:
            case "tools/call":
                return await self._call(request)
            case "tools/list":
                return {"tools": _plain(await apps.tools_for_view(self._shown))}
            case "resources/read":
                return {"contents": _plain(await apps.read_from_view(self._shown, params.uri))}
            case "resources/list":
                return {"resources": _plain(await apps.resources_for_view(self._shown))}
            case "resources/templates/list":
                return {"resourceTemplates": _plain(await apps.templates_for_view(self._shown))}
            case "ui/open-link":
                if not bridge.is_allowed_link(params.url):
                    raise Denied("only http and https links are opened")
                await self._ask_consent(request)
                self.links.append(params.url)
            case "ui/download-file":
                await self._ask_consent(request)
                self.downloads.append(params.contents)
            case "ui/message":
                await self._ask_consent(request)
                self.messages.append(params.blocks())
            case "ui/update-model-context":
                # Clause "ui/update-model-context": each one replaces the one before.
                self.model_context = {"content": params.content, "structuredContent": params.structured_content}
            case "ui/request-display-mode":
                return {"mode": params.mode if self._can_show(params.mode) else self.context["displayMode"]}
        return {}  # `ping`, and everything that was done above.

    def _initialized(self) -> dict[str, Any]:
        granted = self.view.ui.get("permissions")
        permissions: dict[str, Any] = {
            name: {} for name in PERMISSIONS if isinstance(granted, Mapping) and name in granted
        }
        return initialize_result(self.profile, self.context, csp=self.policy.granted, permissions=permissions)

    def _can_show(self, mode: str) -> bool:
        app = self.state.app
        declared = app.app_capabilities.available_display_modes if app is not None else None
        # Clause "Display Modes": a host switches to no mode that the view did not declare.
        return mode in self.context["availableDisplayModes"] and (declared is None or mode in declared)

    async def _ask_consent(self, request: ViewRequest) -> None:
        if self._consent is None:
            return
        if self._asks:
            # A view that could ask again and again would bury the user under questions.
            raise Denied("a question of the view waits for an answer already")
        self._asks = True
        try:
            said = self._consent(request)
            if inspect.isawaitable(said):
                said = await said
        finally:
            self._asks = False
        if said is not True:
            raise Denied(f"the user did not allow {request.method}")

    # --- the server of the view ---

    async def _call(self, request: ViewRequest) -> dict[str, Any]:
        params, apps = request.params, self._shown.apps
        call = ViewCall(params.name, params.arguments)
        self.calls.append(call)
        try:
            if await apps.is_destructive(self._shown, params.name):
                await self._ask_consent(request)
            call.result = await apps.call_from_view(self._shown, params.name, params.arguments)
        except ToolwireError as error:
            call.refused = str(error)
            raise
        return bridge.result_for_view(call.result.to_wire().to_dict())


def _plain(entries: Iterable[t.Wire]) -> list[dict[str, Any]]:
    return [each.to_dict() for each in entries]


def _as_logged(text: str | bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        decoded = None
    return decoded if isinstance(decoded, dict) else {"unreadable": str(text)[:1000]}
