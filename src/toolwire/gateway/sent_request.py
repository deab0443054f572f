"""The request that a server behind a gateway gets: its params, its `_meta` and its headers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.client.relay import RelayConnection, RelayedCall
from toolwire.gateway.back_connections import Conversation
from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    ProtocolError,
    ServerError,
)
from toolwire.protocol.http import DUPLICATE
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.methods import is_unknown_method
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.upstreams import UPSTREAM_KEY, UpstreamPath, upstream_meta
from toolwire.server.call import Call
from toolwire.server.forwarded_headers import find_secret_headers, forwardable, take_forwarded
from toolwire.server.subscriptions import LegacyClient

if TYPE_CHECKING:
    from toolwire.server.kernel import Kernel

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: `_meta` of a request: through how many gateways it came.
HOPS_KEY: Final = "io.toolwire/hops"
#: A request that came through this many gateways runs in a circle.
MAX_HOPS: Final = 8
#: `_meta` of a request to a legacy server: the client behind the gateway, which the handshake does not name.
CLIENT_KEY: Final = "io.toolwire/client"
#: How many different `_meta` of clients a connection keeps in the form that the server gets.
MAX_DESCRIBED: Final = 64
# These members of `_meta` describe one connection, or what this gateway alone has to know.
OF_ONE_CONNECTION: Final = frozenset({*t.MODERN_META_KEYS, t.PROGRESS_TOKEN_KEY, UPSTREAM_KEY})
#: The headers of a trace, which go on to every server (W3C Trace Context). The second means nothing without the first.
_TRACEPARENT: Final = "traceparent"
_TRACESTATE: Final = "tracestate"
#: Members of params that the gateway writes itself.
WRITTEN_HERE: Final = frozenset({"requestState", "inputResponses", "task"})
#: Members of params that nearly all requests about a component have, and no others.
PLAIN_MEMBERS: Final = frozenset({"name", "arguments", "uri"})
_KNOWN: Final = frozenset({*PLAIN_MEMBERS, *WRITTEN_HERE, "_meta", "ref", "argument", "context"})
#: Returns the headers that repeat arguments, as the server's list has them now; None where there are none.
Headers: TypeAlias = Callable[[], Mapping[str, str]] | None
# `_meta` is the same in nearly all requests of a client. It is read once while it is at most this long.
SHORT_META: Final = 2048

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.encode
_NO_META: Final = Raw(b"{}")


class Sent(Struct, eq=False):
    """The params of a client's request, member by member, and its `_meta` as it came."""

    members: dict[str, Any]
    raw_meta: bytes = b"{}"
    task: Raw | None = None
    """The member `task` for a legacy server, which makes a task of the call. A modern server may make one then."""
    can_wait: bool = False
    """Whether somebody here waits for a task that the client cannot take: see `TaskNeeded`."""
    about_task: AboutTask | None = None
    """The task that the request is about; None for a request that is about none."""
    is_plain: bool = False
    """Whether the request has neither state, answers nor task, and crosses as it came."""
    stop_reports: Callable[[], None] | None = None
    """Ends the reports of a legacy server on a task; None where nobody wants them."""

    def ask_for_task(self, task: Raw) -> None:
        """Let the server make a task of the call."""
        self.task, self.is_plain = task, False

    @property
    def meta(self) -> Mapping[str, Raw]:
        """The members of `_meta`."""
        return _read_meta(self.raw_meta) if len(self.raw_meta) <= SHORT_META else _members(self.raw_meta)


class AboutTask(Struct, eq=False):
    """The part of a request about a task of a server that only the gateway knows."""

    conversation: Conversation | None = None
    """The conversation with a legacy server in which the task was made; None where that is not known."""
    waiting: RelayedCall | None = None
    """The callbacks of a request that waits for the end of the task, however long that takes."""


def sent_with(call: Call, method: str) -> Sent:
    """Return what the client sent. A component that another handler uses gets the `_meta` of the handler's request."""
    request = call.request
    if request.raw is UNSET:
        return Sent({})
    members: dict[str, Any] = _members(request.raw)
    raw_meta = bytes(members.pop("_meta", _NO_META))
    if request.method != method or call.outer is not None:
        members = {}
    elif members.keys() <= PLAIN_MEMBERS:
        return Sent(members, raw_meta, is_plain=call.asking is None)
    else:
        is_extension = is_unknown_method(method)
        members = {
            name: value
            for name, value in members.items()
            if name not in WRITTEN_HERE and (is_extension or name in _KNOWN or _letters(name) not in _LETTERS)
        }
    return Sent(members, raw_meta)


def _letters(name: str) -> str:
    return name.replace("_", "").casefold()


# A server that does not mind the case of letters, or takes `request_state` for `requestState`, reads a member with such
# a name in place of the one that was judged here.
_LETTERS: Final = frozenset(map(_letters, _KNOWN))


@lru_cache(maxsize=256)
def _read_meta(raw: bytes) -> Mapping[str, Raw]:
    return _members(raw)


def carried(capabilities: Mapping[str, Any], withheld: Collection[str] = ()) -> dict[str, Any]:
    """Return the capabilities of a client that a gateway can carry, without the extensions that are withheld."""
    kept = {name: value for name, value in capabilities.items() if name not in ("tasks", "extensions")}
    extensions = capabilities.get("extensions")
    if isinstance(extensions, Mapping):
        told = {name: value for name, value in extensions.items() if name not in (t.TASKS_EXTENSION, *withheld)}
        if told:
            kept["extensions"] = told
    return kept


def carried_modern(capabilities: Mapping[str, Any], withheld: Collection[str] = ()) -> dict[str, Any]:
    """Return the same for a modern server. 2026-07-28 has no notification that roots have changed."""
    kept = carried(capabilities, withheld)
    roots = kept.get("roots")
    if isinstance(roots, dict) and "listChanged" in roots:
        kept["roots"] = {name: value for name, value in roots.items() if name != "listChanged"}
    return kept


def with_tasks(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return capabilities with the extension for tasks."""
    extensions = capabilities.get("extensions")
    known = extensions if isinstance(extensions, dict) else {}
    return {**capabilities, "extensions": {**known, t.TASKS_EXTENSION: {}}}


def hops_of(meta: Mapping[str, Raw]) -> int:
    raw = meta.get(HOPS_KEY)
    if raw is None:
        return 0
    try:
        hops = msgspec.json.decode(raw, type=int)
    except msgspec.DecodeError:
        hops = 0
    if hops >= MAX_HOPS:
        raise ProtocolError(INTERNAL_ERROR, f"The request came through {hops} gateways: they lead to each other")
    return max(hops, 0)


def meta_for(
    call: Call,
    connection: RelayConnection,
    sent: Sent,
    progress_token: RequestId | None,
    withheld: Collection[str],
) -> Raw | dict[str, Any]:
    """Return `_meta` of the request to the server.

    That of two modern connections follows from what the client sent, apart from the token. So it is made once.
    """
    is_same = progress_token is None and call.request.revision == MODERN and connection.modern
    takes_tasks = sent.task is not None or sent.about_task is not None
    # The meta of a client is an object, so that no other key ends like this.
    key = sent.raw_meta + b"+" if takes_tasks else sent.raw_meta
    if is_same and (known := connection.described.get(key)) is not None:
        return known
    meta: dict[str, Any] = {key: value for key, value in sent.meta.items() if key not in OF_ONE_CONNECTION}
    meta[HOPS_KEY] = hops_of(sent.meta) + 1
    view = sent.meta.get(UPSTREAM_KEY)
    if call.view_servers:
        meta.update(upstream_meta(UpstreamPath(call.view_servers)))
    elif view is not None and not cast("Kernel", call.host).catalog.has_upstreams:
        meta[UPSTREAM_KEY] = view
    if progress_token is not None:
        meta[t.PROGRESS_TOKEN_KEY] = progress_token
    if connection.modern:
        _describe(call, connection, sent.meta, meta, withheld, takes_tasks=takes_tasks)
    elif call.request.client is not UNSET:
        meta[CLIENT_KEY] = call.request.client
    # Two servers may lead to the upstream of a view on different ways.
    if is_same and view is None and len(sent.raw_meta) <= SHORT_META:
        if len(connection.described) >= MAX_DESCRIBED:
            connection.described.clear()
        connection.described[key] = Raw(_encode(meta))
    return meta


def _describe(
    call: Call,
    connection: RelayConnection,
    given: Mapping[str, Raw],
    meta: dict[str, Any],
    withheld: Collection[str],
    *,
    takes_tasks: bool,
) -> None:
    """Say in `_meta` who asks, and what the client can do, as every request of 2026-07-28 does (META-1)."""
    request = call.request
    meta[t.PROTOCOL_VERSION_KEY] = connection.revision
    capabilities = given.get(t.CLIENT_CAPABILITIES_KEY)
    if (
        capabilities is None
        or b'tasks"' in bytes(capabilities)
        or (withheld and b'"extensions"' in bytes(capabilities))
    ):
        meta[t.CLIENT_CAPABILITIES_KEY] = carried_modern(request.capabilities, withheld)
    else:
        meta[t.CLIENT_CAPABILITIES_KEY] = capabilities
    if takes_tasks:
        meta[t.CLIENT_CAPABILITIES_KEY] = with_tasks(carried_modern(request.capabilities, withheld))
    client = given.get(t.CLIENT_INFO_KEY, request.client)
    if client is not UNSET:
        meta[t.CLIENT_INFO_KEY] = client
    level = request.log_level if request.modern else level_of(call)
    if level is not UNSET:
        # Also to a server that does not declare `logging`: many send log messages all the same.
        meta[t.LOG_LEVEL_KEY] = level


def parameter_headers(call: Call, headers: Headers) -> dict[str, str] | None:
    """Return the headers that repeat arguments, by the server's own list, and those of a trace.

    Any other header stays here. HDR-6 has intermediaries of HTTP forward an unknown `Mcp-Param-*`. A gateway is a
    client of its own, and a header that no tool declares carries a value that no policy has judged.
    The operator may allow other headers (`allowed_headers`).
    """
    sent: Mapping[str, str] | None = call.request.headers
    known = None if headers is None else {name.lower(): value for name, value in headers().items()}
    if not sent or _TRACEPARENT not in sent:
        return known
    return {**_trace_headers(sent), **(known or {})}


def _trace_headers(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a client's trace.

    W3C Trace Context: several `tracestate` are one list, and several `traceparent` are no trace.
    """
    parent, state = sent.get(_TRACEPARENT), sent.get(_TRACESTATE)
    if parent is None or DUPLICATE in parent:
        return {}
    return {_TRACEPARENT: parent} | ({} if state is None else {_TRACESTATE: state.replace(DUPLICATE, ",")})


def forwarded_headers(call: Call, names: Iterable[str]) -> dict[str, str] | None:
    """Return the headers of a client's request that have one of these names, and its trace; None where none are."""
    sent: Mapping[str, str] | None = call.request.headers
    return {**_trace_headers(sent), **take_forwarded(sent, names)} or None if sent else None


def allowed_headers(back: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of headers that an operator allows to go on to a server; raise `ServerError` for others."""
    found = forwardable(names, f"forward_headers= of {back!r}")
    for name in find_secret_headers(found):
        raise ServerError(f"forward_headers= of {back!r} cannot have {name!r}: it is for this server alone")
    return found


def level_of(call: Call) -> Any:
    client = getattr(call.outlet.connection, "state", None)
    return client.level if isinstance(client, LegacyClient) else UNSET


def of_all_connections(raw: Raw | msgspec.UnsetType) -> Raw:
    """Return the params of a notification without the members of `_meta` that describe one connection."""
    if raw is UNSET:
        return Raw(b"{}")
    members = _members(raw)
    meta = members.get("_meta")
    if meta is None:
        return raw
    kept = {key: value for key, value in _members(meta).items() if key not in OF_ONE_CONNECTION}
    own: dict[str, Any] = {name: value for name, value in members.items() if name != "_meta"}
    return Raw(_encode({**own, "_meta": kept} if kept else own))
