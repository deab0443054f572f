"""The bridge between a view and its host: JSON-RPC 2.0 over `postMessage`, wire version 2026-01-26.

Pure rules for a host: which messages a view may send, in which order, of which size and how often. The inspector and
the test host put a channel around them. "Clause" in the comments names a section of specification/2026-01-26/apps.mdx
of modelcontextprotocol/ext-apps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.printable import is_printable
from toolwire.protocol.decoders import convert_to
from toolwire.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR

WIRE_VERSION: Final = "2026-01-26"
#: The code of an error for what a host, or its user, does not allow.
DENIED: Final = -32000

#: How many bytes one message of a view may have.
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
#: How many messages a view may send in a second, on average and at once. A view that sends more is stopped.
MAX_MESSAGES_PER_SECOND: Final = 100
MAX_BURST: Final = 500
#: The reasons for which a view is stopped.
FLOOD: Final = f"it sent more than {MAX_MESSAGES_PER_SECOND} messages a second, or as much in longer ones"
TOO_LONG: Final = f"it sent a message of more than {MAX_MESSAGE_BYTES} bytes"

DisplayMode: TypeAlias = Literal["inline", "fullscreen", "pip"]
Id: TypeAlias = str | int


# --- The params of a view ---------------------------------------------------------------------------------------------


class AppInfo(Struct):
    name: str
    version: str = ""
    title: str = ""


class AppCapabilities(Struct, rename="camel"):
    """The part of `appCapabilities` that a host decides by."""

    available_display_modes: list[DisplayMode] | None = None
    tools: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None


class Initialize(Struct, rename="camel"):
    protocol_version: str
    app_info: AppInfo
    app_capabilities: AppCapabilities


class OpenLink(Struct):
    url: str


class DownloadFile(Struct):
    contents: list[dict[str, Any]]


class ViewMessage(Struct):
    role: Literal["user"]
    # The text of the clause has one block, the wire of all hosts a list.
    content: list[dict[str, Any]] | dict[str, Any]

    def blocks(self) -> list[dict[str, Any]]:
        return self.content if isinstance(self.content, list) else [self.content]


class RequestDisplayMode(Struct):
    mode: DisplayMode


class UpdateModelContext(Struct, rename="camel"):
    content: list[dict[str, Any]] | None = None
    structured_content: dict[str, Any] | None = None


class CallTool(Struct):
    name: str
    arguments: dict[str, Any] = {}


class ReadResource(Struct):
    uri: str


class SizeChanged(Struct):
    width: float | None = None
    height: float | None = None


class LogMessage(Struct):
    data: Any
    level: str = "info"
    logger: str | None = None


class Anything(Struct):
    """The params of a message from which a host needs nothing."""


#: The requests that a view sends, each with the type of its params.
REQUESTS: Final[Mapping[str, type[Struct]]] = {
    "ui/initialize": Initialize,
    "ui/open-link": OpenLink,
    "ui/download-file": DownloadFile,
    "ui/message": ViewMessage,
    "ui/request-display-mode": RequestDisplayMode,
    "ui/update-model-context": UpdateModelContext,
    "tools/call": CallTool,
    "tools/list": Anything,
    "resources/read": ReadResource,
    "resources/list": Anything,
    "resources/templates/list": Anything,
    "ping": Anything,
}
#: The notifications that a view sends.
NOTIFICATIONS: Final[Mapping[str, type[Struct]]] = {
    "ui/notifications/initialized": Anything,
    "ui/notifications/size-changed": SizeChanged,
    "ui/notifications/request-teardown": Anything,
    "notifications/message": LogMessage,
}
#: Requests that a host puts before its user.
NEED_CONSENT: Final = frozenset({"ui/open-link", "ui/download-file", "ui/message"})


class ViewRequest(NamedTuple):
    """A request of a view. `params` is of the type that `REQUESTS` names."""

    id: Id
    method: str
    params: Any


class ViewNotification(NamedTuple):
    """A notification of a view. `params` is of the type that `NOTIFICATIONS` names."""

    method: str
    params: Any


class ViewAnswer(NamedTuple):
    """The answer of a view to a request of its host."""

    id: Id
    result: Any
    error: dict[str, Any] | None


class Refusal(NamedTuple):
    """A message that is refused.

    `id` is that of the request to answer; None where there is none.
    """

    id: Id | None
    code: int
    reason: str

    def answer(self) -> dict[str, Any] | None:
        """Return the answer to the view; None for a message that gets none."""
        return None if self.id is None else error_answer(self.id, self.code, self.reason)


Read: TypeAlias = ViewRequest | ViewNotification | ViewAnswer | Refusal


class _Envelope(Struct):
    jsonrpc: Literal["2.0"]
    id: Id | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


_envelope = msgspec.json.Decoder(_Envelope)


def read_message(text: str | bytes) -> Read:
    """Read one message of a view, which may be anything, as JSON."""
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    if size > MAX_MESSAGE_BYTES:
        return Refusal(None, INVALID_REQUEST, f"the message has more than {MAX_MESSAGE_BYTES} bytes")
    try:
        found = _envelope.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return Refusal(None, PARSE_ERROR, "the message is not JSON-RPC 2.0")
    identifier = None if found.id is msgspec.UNSET else found.id
    if found.method is msgspec.UNSET:
        if identifier is None:
            return Refusal(None, INVALID_REQUEST, "the message has neither a method nor an id")
        if found.result is msgspec.UNSET and found.error is msgspec.UNSET:
            return Refusal(None, INVALID_REQUEST, "the message has neither a method nor a result nor an error")
        return ViewAnswer(identifier, found.result, None if found.error is msgspec.UNSET else found.error)
    kinds = NOTIFICATIONS if identifier is None else REQUESTS
    kind = kinds.get(found.method)
    if kind is None:
        return Refusal(identifier, METHOD_NOT_FOUND, f"views have no {found.method[:100]!r}")
    params = {} if found.params is msgspec.UNSET else found.params
    if not isinstance(params, dict):
        return Refusal(identifier, INVALID_PARAMS, f"{found.method}: params is not an object")
    try:
        read = convert_to(params, kind)
    except msgspec.ValidationError as error:
        return Refusal(identifier, INVALID_PARAMS, f"{found.method}: {error}")
    if identifier is None:
        return ViewNotification(found.method, read)
    return ViewRequest(identifier, found.method, read)


# --- Messages of a host -----------------------------------------------------------------------------------------------


def result_answer(identifier: Id, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def error_answer(identifier: Id, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}}


def result_for_view(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a call as views know it.

    Their wire has the results of 2025-11-25. There is no `resultType`, and structured content is an object.
    """
    members = {name: value for name, value in result.items() if name != "resultType"}
    structured = members.get("structuredContent", {})
    if not isinstance(structured, Mapping):
        members["structuredContent"] = {"result": structured}
    return members


def notification(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": dict(params)}


def is_allowed_link(url: str) -> bool:
    """Return whether a host may offer to open a link.

    Only http and https are allowed, without anything that hides the host.
    """
    from urllib.parse import urlsplit

    if len(url) > 8192 or not is_printable(url) or any(each.isspace() or each == "\\" for each in url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        return False


class BridgeState:
    """The order of messages between one view and its host, on the host's side.

    `receive` judges each message of the view. The other methods return the messages of the host, and raise `ValueError`
    for what it must not send now. It has no clock: the caller gives the time, in seconds.
    """

    def __init__(self) -> None:
        self.phase: Literal["new", "initializing", "ready", "closing"] = "new"
        self.app: Initialize | None = None
        """The name, version and capabilities of the view, from its `ui/initialize`; None before that."""
        self.size: SizeChanged | None = None
        """The size that the view reported last; None before the first report."""
        self.stopped: str | None = None
        """Why the view is stopped; None while it is not."""
        self._has_input = False
        self._has_end = False
        self._credit = float(MAX_BURST)
        self._at: float | None = None

    def receive(self, text: str | bytes, now: float) -> Read:
        """Judge one message of the view."""
        if self.stopped is None:
            self._count(now)
        if self.stopped is not None:
            return Refusal(None, DENIED, self.stopped)
        message = read_message(text)
        if isinstance(message, ViewRequest):
            return self._requested(message)
        if isinstance(message, ViewNotification):
            return self._notified(message)
        return message

    def _count(self, now: float) -> None:
        passed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._credit = min(float(MAX_BURST), self._credit + passed * MAX_MESSAGES_PER_SECOND) - 1
        if self._credit < 0:
            self.stopped = FLOOD

    def _requested(self, message: ViewRequest) -> Read:
        if message.method == "ui/initialize":
            if self.phase != "new":
                return Refusal(message.id, INVALID_REQUEST, "the view is initialized already")
            self.phase, self.app = "initializing", message.params
        elif message.method != "ping" and self.phase != "ready":
            return Refusal(message.id, INVALID_REQUEST, f"{message.method} comes after ui/notifications/initialized")
        return message

    def _notified(self, message: ViewNotification) -> Read:
        if message.method == "ui/notifications/initialized":
            if self.phase != "initializing":
                return Refusal(None, INVALID_REQUEST, "initialized comes once, after ui/initialize is answered")
            self.phase = "ready"
        elif message.method == "ui/notifications/size-changed":
            self.size = message.params
        return message

    # Clause "Sandbox proxy": a host sends nothing before `initialized`. Clause "Notifications (Host → View)": the input
    # comes once and before the result, and partial inputs come before it.

    def input_partial(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._check_ready()
        if self._has_input:
            raise ValueError("a partial input comes before the input")
        return notification("ui/notifications/tool-input-partial", {"arguments": dict(arguments)})

    def input(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._check_ready()
        if self._has_input:
            raise ValueError("the input is sent once")
        self._has_input = True
        return notification("ui/notifications/tool-input", {"arguments": dict(arguments)})

    def result(self, result: Mapping[str, Any]) -> dict[str, Any]:
        self._check_end()
        return notification("ui/notifications/tool-result", result)

    def cancelled(self, reason: str | None = None) -> dict[str, Any]:
        self._check_end()
        return notification("ui/notifications/tool-cancelled", {} if reason is None else {"reason": reason})

    def context_changed(self, change: Mapping[str, Any]) -> dict[str, Any]:
        self._check_ready()
        return notification("ui/notifications/host-context-changed", change)

    def teardown(self, identifier: Id, reason: str | None = None) -> dict[str, Any]:
        """Return the request after whose answer the frame goes."""
        self._check_ready()
        self.phase = "closing"
        params = {} if reason is None else {"reason": reason}
        return {"jsonrpc": "2.0", "id": identifier, "method": "ui/resource-teardown", "params": params}

    def _check_ready(self) -> None:
        if self.phase != "ready":
            raise ValueError("a host sends nothing before ui/notifications/initialized, and nothing after teardown")

    def _check_end(self) -> None:
        self._check_ready()
        if not self._has_input:
            raise ValueError("the input comes before the result")
        if self._has_end:
            raise ValueError("a call has one result, or is cancelled")
        self._has_end = True
