"""Methods of extensions: requests and notifications that have no function here.

2026-07-28 basic/versioning, extension negotiation: an extension adds methods and notifications of its own. A request of
such a method is a request like any other: it has the deadline, the rounds, the cancellation and the trace of the
protocol's own. A `tools/call` that is sent this way passes the same checks as `call_tool`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, overload

import msgspec
from msgspec import Raw

from toolwire.client.connection import ClientConnection, OnProgress, result_kind
from toolwire.client.errors import InvalidResponse
from toolwire.client.handlers import check_extension
from toolwire.client.notifications import NotificationHandlers, OnNotification
from toolwire.client.requests import encode_arguments
from toolwire.client.resources import Reading
from toolwire.client.tools import RawResult, adapter_of, type_name
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, ToolwireError, Unreachable
from toolwire.protocol.methods import METHODS, is_method_name, liberally_read
from toolwire.wire.deadlines import CallClock

if TYPE_CHECKING:
    from toolwire.adapters import Adapter

T = TypeVar("T")
F = TypeVar("F", bound=OnNotification)

#: A function that sends a call with these params, within this time limit, with these headers.
SendCall: TypeAlias = Callable[[t.CallToolRequestParams, CallClock, Mapping[str, str] | None], Awaitable[RawResult]]

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
_KINDS: Final = {row.name: row.kind for row in METHODS}
_FROM_SERVERS: Final = frozenset(row.name for row in METHODS if row.sender == "server")
_OF_EVERY_RESULT: Final = frozenset({"resultType", "_meta"})
_CALL_KINDS: Final = frozenset({"task"})


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


class Extending(Reading):
    """The part of a client that sends requests and notifications of any method, and hears those of extensions."""

    _handlers: NotificationHandlers
    _members: Mapping[str, Extending]

    @overload
    def request(
        self, method: str, params: Any = None, *, returns: None = None, **options: Unpack[RequestOptions]
    ) -> Coroutine[Any, Any, dict[str, Any]]: ...
    @overload
    def request(
        self, method: str, params: Any = None, *, returns: type[T], **options: Unpack[RequestOptions]
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def request(
        self, method: str, params: Any = None, *, returns: Any, **options: Unpack[RequestOptions]
    ) -> Coroutine[Any, Any, Any]: ...
    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        returns: Any = None,
        extension: str | None = None,
        server: str | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
        result_types: Collection[str] = (),
    ) -> Any:
        """Send a request of any method, such as one of an extension, and return its result.

        `params` is a mapping, a dataclass or a model. The result is a value of the type `returns`; without it a dict,
        with every member as it came. `extension` names the extension that the method belongs to: a server that does not
        declare it raises `NotSupported` before anything is sent. When the connection breaks, a request that may have
        run is sent again only if it is `repeatable`. A method of the protocol is sent whether or not the server
        declared its capability: some servers answer all the same. A client of several servers sends a method to the one
        that declares its extension, or to `server`.
        """
        _check_method(method, "request")
        clock = self._clock(timeout)
        connection = await self._connector.usable(clock)
        member = self._member_for(method, extension, server)
        if member is not None:
            return await member.request(
                method,
                params,
                returns=returns,
                timeout=clock.rest(method),
                on_progress=on_progress,
                meta=meta,
                headers=headers,
                repeatable=repeatable,
                result_types=result_types,
            )
        _require_extension(connection, method, extension)
        members, own = _members(params)
        kinds = _CALL_KINDS | {*result_types} if method == "tools/call" else frozenset(result_types)
        decode = _receiving(kinds)
        # Never None, so that the answer of a cache does not stand in for what was to be sent.
        sent_meta = {**own, **(meta or {})}

        def send(params: t.RequestParams, clock: CallClock, headers: Mapping[str, str] | None) -> Awaitable[RawResult]:
            return self._ask(
                method,
                params,
                decode,
                clock=clock,
                on_progress=on_progress,
                meta=sent_meta,
                headers=headers,
                repeatable=repeatable,
                unasked=True,
            )

        if method == "tools/call":
            result = await self._called(_call_params(members), clock, headers, send)
        else:
            open_params = OpenParams()
            open_params.extra.update(members)
            result = await send(open_params, clock, headers)
        return _value(method, result.raw, returns)

    def _member_for(self, method: str, extension: str | None, server: str | None) -> Extending | None:
        """Return the client of the server that a method of an extension goes to.

        Return None where there is one server, and for a method of the protocol, whose params decide. Raise
        `NotSupported` where it is not clear.
        """
        if server is not None and method in _KINDS:
            raise ValueError(f"server= is for methods of extensions, and {method} is one of the protocol")
        if not self._members:
            if server is not None:
                raise ValueError(f"server= is for a client of several servers, and {self._target.label} is one")
            return None
        if method in _KINDS:
            return None
        names = ", ".join(self._members)
        if server is not None:
            if server not in self._members:
                raise ValueError(f"There is no server {server!r:.100}: the servers are {names}")
            return self._members[server]
        if extension is None:
            raise NotSupported(f"{method} could go to any of the servers {names}: say extension= or server=")
        check_extension(extension)
        having = [name for name, member in self._members.items() if extension in member._declared_extensions()]
        if not having:
            raise NotSupported(f"The servers {names} did not declare the extension {extension}, which {method} needs")
        if len(having) > 1:
            both = ", ".join(having)
            raise NotSupported(f"{both} have the extension {extension}: say with server= which one is meant")
        return self._members[having[0]]

    def _declared_extensions(self) -> dict[str, Any]:
        """Return the extensions that the server declared; none while it is away."""
        connection = self._connector.connection
        declared = None if connection is None else connection.agreement.capabilities.get("extensions")
        return declared if isinstance(declared, dict) else {}

    @abstractmethod
    async def _called(
        self,
        params: t.CallToolRequestParams,
        clock: CallClock,
        headers: Mapping[str, str] | None,
        send: SendCall,
    ) -> RawResult:
        """Make a call of a tool with the checks that every call passes."""

    async def notify(
        self, method: str, params: Any = None, *, extension: str | None = None, server: str | None = None
    ) -> None:
        """Send a notification, such as one of an extension. The server does not answer it.

        `extension` and `server` say where it belongs, as in `request`.
        """
        _check_method(method, "notification")
        connection = await self._connector.usable()
        member = self._member_for(method, extension, server)
        if member is not None:
            await member.notify(method, params)
            return
        _require_extension(connection, method, extension)
        members, own = _members(params)
        if not await connection.notify(method, members, own):
            raise await connection.lost(Unreachable("The connection is closed"))

    @overload
    def on_notification(self, method: str, handler: F, *, params: Any = None) -> F: ...
    @overload
    def on_notification(self, method: str, handler: None = None, *, params: Any = None) -> Callable[[F], F]: ...
    def on_notification(self, method: str, handler: Any = None, *, params: Any = None) -> Any:
        """Call a function with the params of every notification of this method, such as one of an extension.

        They are a dict; with `params=T` a value of that type. The handler may be `async`, and is then called again once
        it is done: if a thousand wait, or 16 MiB, the oldest are dropped. It may be added at any time, also before
        `connect()`. Without a handler it is a decorator: `@client.on_notification("notifications/notes/changed")`.
        """
        if handler is None:
            return partial(self.on_notification, method, params=params)
        self._handlers.add(method, handler, params)
        return handler


def _check_method(method: str, kind: str) -> None:
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
    if _KINDS.get(method, "notification" if method.startswith("notifications/") else kind) != kind:
        other = "client.notify()" if kind == "request" else "client.request()"
        raise ValueError(f"{method} is no {kind}: use {other}")


def _require_extension(connection: ClientConnection, method: str, extension: str | None) -> None:
    if extension is None:
        return
    check_extension(extension)
    if not t.has_capability(connection.agreement.capabilities, f"extensions.{extension}"):
        raise NotSupported(f"The server did not declare the extension {extension}, which {method} belongs to")


def _members(params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the params as plain JSON, without `_meta`, and `_meta`."""
    members = {} if params is None else msgspec.json.decode(encode_arguments(params))
    if not isinstance(members, dict):
        raise TypeError(f"params are an object, not {type(params).__name__}")
    meta = members.pop("_meta", {})
    if not isinstance(meta, dict):
        raise TypeError("_meta of the params is an object")
    return members, meta


def _call_params(members: Mapping[str, Any]) -> t.CallToolRequestParams:
    """Return the params of a call with a type, which the checks of a call need. Unknown members stay in `extra`."""
    if not isinstance(members.get("name"), str) or not isinstance(members.get("arguments", {}), dict):
        raise TypeError("the params of tools/call have a name, a text, and arguments, an object")
    return t.decode(t.CallToolRequestParams, msgspec.json.encode(members))


def _receiving(kinds: frozenset[str]) -> Callable[[Raw], Any]:
    """Return a reader that keeps a result as it came. Results of these kinds are as good as complete."""

    def receive(raw: Raw) -> RawResult:
        kind = result_kind(raw)
        return RawResult(raw, "complete" if kind in kinds else kind)

    return receive


def _value(method: str, raw: Raw, returns: Any) -> Any:
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
