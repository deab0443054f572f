"""Requests of a client: sent on a connection that works, cached where the server allows it, repeated where that is
safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import Raw

from toolwire.client.cache import CACHEABLE, CacheView
from toolwire.client.connection import CEILING_SECONDS, OnProgress
from toolwire.client.reconnect import Connector, may_repeat, pause_after
from toolwire.client.target import Target
from toolwire.protocol import types as t
from toolwire.protocol.errors import HEADER_MISMATCH, INVALID_PARAMS, ProtocolError, TransportError
from toolwire.protocol.surrogates import refusing_surrogates
from toolwire.protocol.trace import check_trace
from toolwire.util.backoff import LONGEST_SECONDS, Backoff
from toolwire.wire.deadlines import CallClock

R = TypeVar("R", bound=t.Result)
Read: TypeAlias = Callable[[Raw], R]

# Errors that a stale cache may have led to.
_SUSPICIOUS: Final = frozenset({INVALID_PARAMS, HEADER_MISMATCH})


def _encode_hook(value: Any) -> Any:
    # Imported here because plain values never need it.
    from toolwire.adapters import encode_hook

    return encode_hook(value)


encode_arguments: Callable[[Any], bytes] = refusing_surrogates(msgspec.json.Encoder(enc_hook=_encode_hook).encode)


def reader(type_: type[R]) -> Read[R]:
    """Return a function that reads results of a type. It keeps members that this library does not know (JSC-5)."""
    return partial(t.decode, type_)


Arguments: TypeAlias = Mapping[str, Any] | None


class CallOptions(TypedDict, total=False):
    """The options of a tool call."""

    timeout: float | None
    """Seconds that it may take, instead of the client's."""
    on_progress: OnProgress | None
    """Called with what the server reports of it."""
    meta: Mapping[str, Any] | None
    """Goes along as `_meta`, beside what the protocol puts there."""
    headers: Mapping[str, str] | None
    """HTTP headers of this request, where the server is reached by URL."""


async def wait_out(error: TransportError, clock: CallClock | None = None) -> None:
    """Give a busy server time to recover.

    Raise the error when less time is left than the pause takes, or when the server asks for a longer pause than a
    client makes.
    """
    if error.status is None:
        return
    pause = pause_after(error, Backoff().after(None))
    left = None if clock is None else clock.left()
    if pause > LONGEST_SECONDS or (left is not None and pause >= left):
        raise error
    await asyncio.sleep(pause)


class RequestSender:
    """Sends the requests of a client: cached where the server allows it, repeated where that is safe."""

    def __init__(
        self,
        target: Target,
        connector: Connector,
        cache: CacheView | None,
        timeout: float | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._target = target
        self.connector = connector
        self.cache = cache
        self.timeout = timeout
        self.on_progress = on_progress

    def start_clock(self, timeout: float | None) -> CallClock:
        """Start the time limit of a call: `timeout`, or that of the client."""
        connection = self.connector.connection
        # Every connection of a client has the same clock.
        source = self.connector.call_time if connection is None else connection.session.deadlines.call_time
        return CallClock(self.timeout if timeout is None else timeout, source, ceiling=CEILING_SECONDS)

    async def ask(
        self,
        method: str,
        params: t.RequestParams,
        decode: Callable[[Raw], R],
        *,
        timeout: float | None = None,
        clock: CallClock | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
        unasked: bool = False,
    ) -> R:
        """Send a request, and return its result.

        `clock`: the time limit of the call that it belongs to, in place of `timeout`. `repeatable`: its sender allows
        that it runs twice. `unasked`: it is sent whatever the server declared.
        """
        if meta is not None:
            check_trace(meta)
        if clock is None:
            clock = self.start_clock(timeout)
        connection = self.connector.connection
        if connection is None or connection.ended:
            connection = await self.connector.usable(clock)
        if method not in connection.callable and not unasked:
            connection.require(method)
        if headers is not None:
            connection.link.require_headers()
        cache = self.cache
        if cache is not None and method in CACHEABLE and headers is None and meta is None:
            kept = cache.get(method, params)
            if kept is not None:
                return decode(kept)
            decode = cache.keeping(method, params, decode)
        report = on_progress or self.on_progress
        try:
            return await connection.ask(method, params, decode, clock, report, meta, headers)
        except ProtocolError as error:
            if cache is not None and error.code in _SUSPICIOUS:
                cache.suspect("tools/list" if method == "tools/call" else method)
            raise
        except TransportError as error:
            if not (self._target.restartable and may_repeat(error, connection, method, params, repeatable)):
                raise
            await wait_out(error, clock)
        connection = await self.connector.recovered(clock)
        if not unasked:
            connection.require(method)
        return await connection.ask(method, params, decode, clock, report, meta, headers)
