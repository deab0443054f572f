"""Methods of extensions: requests and notifications that have no function here.

2026-07-28 basic/versioning, extension negotiation: an extension adds methods and notifications of its own. A request of
such a method is a request like any other: it has the deadline, the rounds, the cancellation and the trace of the
protocol's own. A `tools/call` that is sent this way passes the same checks as `call_tool`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import msgspec
from msgspec import Raw

from toolwire.client.connection import ClientConnection, OnProgress
from toolwire.client.errors import InvalidResponse
from toolwire.client.handlers import check_extension
from toolwire.client.notifications import OnNotification
from toolwire.client.requests import encode_arguments
from toolwire.client.tools import RawResult, adapter_of, type_name
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, ToolwireError
from toolwire.protocol.methods import METHODS, is_method_name, liberally_read
from toolwire.protocol.rounds import result_kind

if TYPE_CHECKING:
    from toolwire.adapters import Adapter

T = TypeVar("T")
F = TypeVar("F", bound=OnNotification)

#: What belongs to the connection, and the function to use instead.
_OF_THE_CONNECTION: Final = {
    "initialize": "connect() sends it",
    "server/discover": "connect() sends it: use client.capabilities, client.server and client.ping()",
    "subscriptions/listen": "use client.listen()",
    "resources/subscribe": "use client.subscribe() or client.listen()",
    "resources/unsubscribe": "use client.unsubscribe()",
    "logging/setLevel": "use client.set_level()",
    "notifications/initialized": "connect() sends it",
    "notifications/cancelled": "cancel the task that awaits the request",
    "notifications/progress": "a client reports progress on nothing that it does",
}
KINDS: Final = {row.name: row.kind for row in METHODS}
_FROM_SERVERS: Final = frozenset(row.name for row in METHODS if row.sender == "server")
_OF_EVERY_RESULT: Final = frozenset({"resultType", "_meta"})
CALL_KINDS: Final = frozenset({"task"})


class RequestOptions(TypedDict, total=False):
    """The options of a request."""

    extension: str | None
    """The extension that the method belongs to. Without it in the server's capabilities nothing is sent."""
    server: str | None
    """The server to send it to, in a client of several, if more than one has the extension."""
    timeout: float | None
    """Seconds that it may take, instead of the client's."""
    on_progress: OnProgress | None
    """Called with what the server reports of it."""
    meta: Mapping[str, Any] | None
    """Goes along as `_meta`, beside what the protocol puts there."""
    headers: Mapping[str, str] | None
    """HTTP headers of this request, where the server is reached by URL."""
    repeatable: bool
    """Whether it may be sent again when the connection broke and it may have run already."""
    result_types: Collection[str]
    """Values of `resultType`, besides `complete`, that the extension gives its results."""


class OpenParams(t.RoundRequestParams, kw_only=True):
    """The params of any method. All their members are in `extra`."""


def check_method(method: str, kind: str) -> None:
    """Raise `ValueError` for a name that cannot be sent, or that has a function of its own."""
    if not isinstance(method, str) or not is_method_name(method):
        raise ValueError(f"{method!r:.200} is not the name of a method: use visible ASCII characters, without spaces")
    # A server may be liberal with names, and the checks of a tool call must not depend on its reading.
    known = liberally_read(method)
    if known != method:
        raise ValueError(f"The protocol spells {method!r} as {known!r}")
    if method in _OF_THE_CONNECTION:
        raise ValueError(f"{method} belongs to the connection: {_OF_THE_CONNECTION[method]}")
    if method in _FROM_SERVERS:
        raise ValueError(f"{method} is sent by servers, not by clients")
    if KINDS.get(method, "notification" if method.startswith("notifications/") else kind) != kind:
        other = "client.notify()" if kind == "request" else "client.request()"
        raise ValueError(f"{method} is no {kind}: use {other}")


def require_extension(connection: ClientConnection, method: str, extension: str | None) -> None:
    if extension is None:
        return
    check_extension(extension)
    if not t.has_capability(connection.agreement.capabilities, f"extensions.{extension}"):
        raise NotSupported(f"The server did not declare the extension {extension}, which {method} belongs to")


def split_params(params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the params as plain JSON, without `_meta`, and `_meta`."""
    members = {} if params is None else msgspec.json.decode(encode_arguments(params))
    if not isinstance(members, dict):
        raise TypeError(f"params are an object, not {type(params).__name__}")
    meta = members.pop("_meta", {})
    if not isinstance(meta, dict):
        raise TypeError("_meta of the params is an object")
    return members, meta


def read_call_params(members: Mapping[str, Any]) -> t.CallToolRequestParams:
    """Return the params of a call with a type, which the checks of a call need. Unknown members stay in `extra`."""
    if not isinstance(members.get("name"), str) or not isinstance(members.get("arguments", {}), dict):
        raise TypeError("the params of tools/call have a name, a text, and arguments, an object")
    return t.decode(t.CallToolRequestParams, msgspec.json.encode(members))


def keep_result(kinds: frozenset[str]) -> Callable[[Raw], Any]:
    """Return a reader that keeps a result as it came. Results of these kinds are as good as complete."""

    def receive(raw: Raw) -> RawResult:
        kind = result_kind(raw)
        return RawResult(raw, "complete" if kind in kinds else kind)

    return receive


def read_value(method: str, raw: Raw, returns: Any) -> Any:
    try:
        if returns is None:
            return msgspec.json.decode(raw)
        if isinstance(returns, type) and issubclass(returns, t.Wire):
            return t.decode(returns, raw)
        return _adapted(adapter_of(returns), raw)
    except (ToolwireError, msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidResponse(f"The server's answer to {method} is no {type_name(returns)}: {error}") from None


def _adapted(reader: Adapter, raw: Raw) -> Any:
    try:
        return reader.decode_output(raw)
    except ToolwireError:
        # A strict type does not know the members that the protocol adds to every result.
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        if members.keys().isdisjoint(_OF_EVERY_RESULT):
            raise
        own = {name: member for name, member in members.items() if name not in _OF_EVERY_RESULT}
        return reader.decode_output(msgspec.json.encode(own))
