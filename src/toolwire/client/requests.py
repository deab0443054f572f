"""Requests of a client: sent on a connection that works, kept where the server allows it, repeated where it is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw

from toolwire.backoff import LONGEST_SECONDS, Backoff
from toolwire.client.cache import CACHEABLE, CacheView
from toolwire.client.connection import OnProgress
from toolwire.client.reconnect import Keeper, may_repeat, pause_after
from toolwire.client.target import Target
from toolwire.protocol import types as t
from toolwire.protocol.errors import HEADER_MISMATCH, INVALID_PARAMS, ProtocolError, TransportError, Unreachable
from toolwire.protocol.trace import check_trace

R = TypeVar("R", bound=t.Result)
Read: TypeAlias = Callable[[Raw], R]

# Errors that what is kept of a server may have led to.
_SUSPICIOUS: Final = frozenset({INVALID_PARAMS, HEADER_MISMATCH})


def _encode_hook(value: Any) -> Any:
    # Imported here because plain values never need it.
    from toolwire.adapters import encode_hook

    return encode_hook(value)


encode_arguments: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=_encode_hook).encode


def reader(type_: type[R]) -> Read[R]:
    """Reads results of a type in the open-world way: what they say beyond what we know is kept (JSC-5)."""
    return partial(t.decode, type_)


_read_discover = reader(t.DiscoverResult)
_read_empty = reader(t.EmptyResult)

Arguments: TypeAlias = Mapping[str, Any] | None


class CallOptions(TypedDict, total=False):
    """What a call of a tool can be told beside its arguments."""

    timeout: float | None
    """Seconds that it may take, instead of the client's."""
    on_progress: OnProgress | None
    """Called with what the server reports of it."""
    meta: Mapping[str, Any] | None
    """Goes along as `_meta`, beside what the protocol puts there."""
    headers: Mapping[str, str] | None
    """HTTP headers of this request, where the server is reached by URL."""


async def _waited(error: TransportError, deadline: float | None) -> float | None:
    """Leave a server that is busy alone for a while, and tell what is left of the deadline; raises when that is less.

    One that wants to be left alone for longer than anybody waits is not asked again.
    """
    if error.status is None:
        return deadline
    pause = pause_after(error, Backoff().after(None))
    if pause > LONGEST_SECONDS or (deadline is not None and pause >= deadline):
        raise error
    await asyncio.sleep(pause)
    return None if deadline is None else deadline - pause


class Asking:
    """The part of a client that sends requests."""

    _target: Target
    _keeper: Keeper
    _cache: CacheView | None
    _timeout: float | None
    _on_progress: OnProgress | None

    async def _ask(
        self,
        method: str,
        params: t.RequestParams,
        decode: Callable[[Raw], R],
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> R:
        if meta is not None:
            check_trace(meta)
        connection = self._keeper.connection
        if connection is None or connection.ended:
            connection = await self._keeper.usable()
        if method not in connection.callable:
            connection.require(method)
        if headers is not None:
            connection.link.require_headers()
        cache = self._cache
        if cache is not None and method in CACHEABLE and headers is None and meta is None:
            kept = cache.get(method, params)
            if kept is not None:
                return decode(kept)
            decode = cache.keeping(method, params, decode)
        deadline = self._timeout if timeout is None else timeout
        report = on_progress or self._on_progress
        try:
            return await connection.ask(method, params, decode, deadline, report, meta, headers)
        except ProtocolError as error:
            if cache is not None and error.code in _SUSPICIOUS:
                cache.suspect("tools/list" if method == "tools/call" else method)
            raise
        except TransportError as error:
            if not (self._target.restartable and may_repeat(error, connection, method, params)):
                raise
            deadline = await _waited(error, deadline)
        connection = await self._keeper.recovered(deadline)
        connection.require(method)
        return await connection.ask(method, params, decode, deadline, report, meta, headers)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Send any request and return its result as it came; nothing is checked. For what has no method here."""
        connection = await self._keeper.usable()
        identifier = connection.session.peer.next_id()
        given = dict(params or {})
        meta = connection.metadata(None if on_progress is None else identifier, given.pop("_meta", None))
        raw = await connection.send(
            method,
            # Encoded here, so that what has no JSON form fails before anything is sent.
            Raw(encode_arguments(given if meta is UNSET else {**given, "_meta": meta})),
            timeout=self._timeout if timeout is None else timeout,
            on_progress=on_progress,
            identifier=identifier,
        )
        return cast("dict[str, Any]", msgspec.json.decode(raw))

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification. On 2026-07-28 a client has none to send but cancellations, which calls send."""
        connection = await self._keeper.usable()
        if not connection.session.notify(method, UNSET if params is None else params):
            raise await connection.lost(Unreachable("The connection is closed"))

    async def ping(self, *, timeout: float | None = None) -> None:
        """Ask for a sign of life; where there is no `ping` any more, by `server/discover`."""
        connection = await self._keeper.usable()
        if connection.modern:
            await self._ask("server/discover", t.RequestParams(), _read_discover, timeout=timeout)
        else:
            await self._ask("ping", t.RequestParams(), _read_empty, timeout=timeout)
