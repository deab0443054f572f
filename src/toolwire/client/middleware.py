"""Middleware of a client: functions around everything that it sends, and around everything that it is asked or told.

The mirror image of a server's middleware. A client without middleware has plain connections (`connection`), so that it
pays nothing for this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.callbacks import Waiting
from toolwire.client.connection import ClientConnection, Decode, OnProgress
from toolwire.client.errors import Denied, Rejected
from toolwire.client.requests import encode_arguments
from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.methods import methods
from toolwire.protocol.revisions import LATEST_LEGACY
from toolwire.wire.deadlines import CallClock

log: logging.Logger = logging.getLogger("toolwire.client")

R = TypeVar("R", bound=t.Result)

#: How many notifications may wait for the middleware of a connection.
MAX_WAITING: Final = 1_000
_PROGRESS: Final = "notifications/progress"


class ClientContext:
    """A message of a client or of its server on its way through the middleware of the client.

    `params`, `meta`, `headers` and `timeout` may be changed before `call_next(ctx)`.
    """

    __slots__ = (
        "_incoming",
        "_is_notification",
        "_is_timed",
        "_method",
        "_revision",
        "_server",
        "_timeout",
        "headers",
        "meta",
        "params",
    )

    def __init__(
        self,
        method: str,
        params: dict[str, Any],
        *,
        server: str,
        revision: str,
        incoming: bool = False,
        is_notification: bool = False,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._method = method
        self._server = server
        self._revision = revision
        self._incoming = incoming
        self._is_notification = is_notification
        self.params: dict[str, Any] = params
        """The params as they are on the wire, without `_meta`."""
        self.meta: dict[str, Any] = params.pop("_meta", {})
        """`_meta`, without the members that say who sends a request."""
        self.headers: dict[str, str] = dict(headers or {})
        """The HTTP headers that this request has in addition, where the server is reached by URL."""
        self._timeout = timeout
        self._is_timed = False

    @property
    def timeout(self) -> float | None:
        """Seconds that are left for the call. The time that middleware takes does not count.

        A value that is set here counts anew from each `call_next`.
        """
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._timeout = seconds
        self._is_timed = True

    def _limit(self, clock: CallClock) -> None:
        """Give the next request the time limit that a middleware has set, if one has."""
        if self._is_timed:
            clock.reset(self._timeout)

    @property
    def method(self) -> str:
        return self._method

    @property
    def incoming(self) -> bool:
        """True for what the server asks or announces."""
        return self._incoming

    @property
    def is_notification(self) -> bool:
        """True for a message that has no result."""
        return self._is_notification

    @property
    def revision(self) -> str:
        return self._revision

    @property
    def server(self) -> str:
        """The address or the name of the server, which tells the servers of a configuration apart."""
        return self._server

    def __repr__(self) -> str:
        return f"<ClientContext of {self.method}, {'from' if self.incoming else 'to'} {self.server}>"


#: Goes on with the message, and returns the result as it is on the wire; None for a notification.
CallNext: TypeAlias = Callable[[ClientContext], Awaitable[Any]]
ClientMiddleware: TypeAlias = Callable[[ClientContext, CallNext], Awaitable[Any]]


class Around(Struct, frozen=True):
    """The middleware of one client."""

    functions: tuple[ClientMiddleware, ...]
    is_guarded: bool
    """True where calls of tools are approved, counted or recorded before they come here."""

    async def run(self, ctx: ClientContext, end: CallNext) -> Any:
        """Run the chain of middleware, at whose end is `end`. The first function is the outermost."""
        following = end
        for each in reversed(self.functions):
            following = partial(_checked, each, following)
        return await following(ctx)


def around(middleware: Iterable[ClientMiddleware], *, is_guarded: bool) -> Around | None:
    """Return the middleware of a client; None if there is none. Raise `TypeError` for what is no function."""
    functions = tuple(middleware)
    for each in functions:
        if not callable(each):
            raise TypeError(f"a middleware is an async function (ctx, call_next), not {type(each).__name__}")
    return Around(functions, is_guarded) if functions else None


def connection_type(middleware: Iterable[ClientMiddleware], *, is_guarded: bool) -> Callable[..., ClientConnection]:
    """Return what makes the connections of a client with this middleware. Raise `TypeError` for what is no function."""
    found = around(middleware, is_guarded=is_guarded)
    return ClientConnection if found is None else partial(AroundConnection, found)


async def _checked(middleware: ClientMiddleware, following: CallNext, ctx: ClientContext) -> Any:
    """Return the result of one middleware. Raise `TypeError` when it is no result."""
    result = await middleware(ctx, following)
    if ctx.is_notification or isinstance(result, dict):
        return result
    if isinstance(result, t.Wire):
        return result.to_dict()
    name = getattr(middleware, "__qualname__", type(middleware).__qualname__)
    raise TypeError(
        f"the middleware {name} returned {type(result).__name__} for {ctx.method}: it returns what call_next gave it, "
        "or a result of its own, a dict or one out of toolwire.types"
    )


class AroundConnection(ClientConnection):
    """A connection whose messages pass the middleware of the client.

    What belongs to the connection does not: the handshake, checks after a failure, cancellations and acknowledgements.
    What the library itself learns from a notification (a deadline restarts, a cached list is out of date), it learns
    before the middleware runs.
    """

    def __init__(self, around: Around, *arguments: Any) -> None:
        # Before the session, which may deliver messages at once.
        self._around = around
        self._notices: Waiting[tuple[Notice, Callable[[Notice], None]]] = Waiting()
        self._passing: asyncio.Task[None] | None = None
        super().__init__(*arguments)

    def _context(self, method: str, params: Any, **options: Any) -> ClientContext:
        members = _members(params)
        return ClientContext(method, members, server=self.link.label, revision=self.revision, **options)

    # --- what the client sends ---

    async def ask(
        self,
        method: str,
        params: t.RequestParams,
        decode: Decode[R],
        clock: CallClock,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> R:
        ask = super().ask
        params.meta = UNSET
        ctx = self._context(method, params, headers=headers, timeout=clock.begin())
        ctx.meta = dict(meta or {})
        before = _encoded(ctx.params)
        received: _Received[R] | None = None

        async def send(ctx: ClientContext) -> dict[str, Any]:
            nonlocal received
            raw = Raw()

            def read(answer: Raw) -> R:
                nonlocal raw
                raw = answer
                return decode(answer)

            sent = params if _encoded(ctx.params) == before else self._changed_params(ctx, params)
            with clock.count_again():
                ctx._limit(clock)
                result = await ask(method, sent, read, clock, on_progress, ctx.meta, ctx.headers or None)
            received = _Received(msgspec.json.decode(raw), result)
            return received.members

        with clock.leave_out():
            returned = await self._around.run(ctx, send)
        if received is not None and received.is_same(returned):
            return received.result
        try:
            result = decode(Raw(_encoded(returned)))
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise TypeError(f"a middleware returned what is no result of {method}: {error}") from None
        if self.modern and result.result_type != "complete":
            raise TypeError(f"a middleware returned a result of {method} that is not complete")
        return result

    def _changed_params(self, ctx: ClientContext, before: t.RequestParams) -> t.RequestParams:
        """Return the params as the middleware left them."""
        params: t.RequestParams = _as_wire(type(before), ctx.method, ctx.params)
        if isinstance(before, t.CallToolRequestParams) and isinstance(params, t.CallToolRequestParams):
            same = params.name == before.name and _decoded(params.arguments) == _decoded(before.arguments)
            if self._around.is_guarded and not same:
                raise Denied(
                    f"A middleware changed the call of {before.name!r:.200} after it was approved: change arguments in "
                    "approve="
                )
            if self.repeats_arguments and not same:
                # XMH-2: the headers repeat the arguments that are sent.
                old = self.tools.headers(before.name, before.arguments)
                kept = {name: value for name, value in ctx.headers.items() if name not in old}
                ctx.headers = {**kept, **self.tools.headers(params.name, params.arguments)}
        return params

    def send(self, method: str, params: t.RequestParams, *, timeout: float | None) -> Coroutine[Any, Any, Raw]:
        return self._send(method, params, timeout)

    async def _send(self, method: str, params: t.RequestParams, timeout: float | None) -> Raw:
        send = super().send

        async def following(ctx: ClientContext) -> Any:
            sent = _as_wire(type(params), method, _whole(ctx))
            return msgspec.json.decode(await send(method, sent, timeout=ctx.timeout))

        return Raw(_encoded(await self._around.run(self._context(method, params, timeout=timeout), following)))

    async def open_stream(self, params: t.SubscriptionsListenRequestParams, identifier: RequestId) -> Raw | None:
        open_stream, meta = super().open_stream, params.meta
        params.meta = UNSET

        async def following(ctx: ClientContext) -> Any:
            sent = _as_wire(type(params), ctx.method, ctx.params)
            sent.meta = self.metadata(None, ctx.meta) if ctx.meta else meta
            ended = await open_stream(sent, identifier)
            # A server may end a stream without a result.
            return {} if ended is None else msgspec.json.decode(ended)

        return Raw(_encoded(await self._around.run(self._context("subscriptions/listen", params), following)))

    async def notify(self, method: str, members: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
        notify = super().notify
        sent = False

        async def following(ctx: ClientContext) -> None:
            nonlocal sent
            sent = await notify(method, ctx.params, ctx.meta)

        ctx = self._context(method, {**members, "_meta": dict(meta)}, is_notification=True)
        await self._around.run(ctx, following)
        # A notification that the middleware kept was not lost.
        return sent or not self.ended

    # --- what the client is asked ---

    async def answer(self, method: str, params: Any, revision: str) -> t.Wire:
        answer = super().answer

        async def following(ctx: ClientContext) -> dict[str, Any]:
            asked = _as_wire(type(params), method, _whole(ctx)) if isinstance(params, t.Wire) else params
            return (await answer(method, asked, revision)).to_dict()

        try:
            given = await self._around.run(self._context(method, params, incoming=True), following)
        except Rejected:
            if method != "elicitation/create":
                raise
            return t.ElicitResult(action="decline")  # A refusal of an elicitation is a result, never an error (T-50).
        # Both eras ask the same questions. Only the older one has rows for them.
        row = methods(LATEST_LEGACY).get(method)
        answered: t.Wire = _as_wire(t.Result if row is None or row.result is None else row.result, method, given)
        return answered

    # --- what the client is told ---

    def _report(self, on_progress: OnProgress, params: t.ProgressNotificationParams) -> None:
        report = super()._report
        notice = Notice(_PROGRESS, methods(self.revision)[_PROGRESS], params, Raw(t.encode(params)))
        self._tell(notice, lambda notice: report(on_progress, notice.params))

    def _tell(self, notice: Notice, deliver: Callable[[Notice], None]) -> None:
        """Let a notification wait for its turn. All of them pass in the order in which they came."""
        size = 0 if notice.raw is UNSET else len(notice.raw)
        dropped = self._notices.add((notice, deliver), size, MAX_WAITING)
        if dropped:
            log.warning("the middleware is too slow: the oldest notifications are dropped: %d", dropped)
            for stream in list(self.streams.values()):
                stream.missed()
        # Not a single flight: the task belongs to the callbacks, which wait for it when the client closes.
        if self._passing is None or self._passing.done():
            self._passing = self.callbacks.start(self._pass_on())

    async def passed(self, seconds: float) -> None:
        """Wait until the notifications that have come passed the middleware, for some seconds at most."""
        if self._passing is not None:
            await asyncio.wait({self._passing}, timeout=seconds)

    async def _pass_on(self) -> None:
        while self._notices:
            notice, deliver = self._notices.take()
            try:
                await self._around.run(self._notified(notice), partial(self._delivered, notice, deliver))
            except Exception:
                log.exception("a middleware failed with %s", notice.method)

    def _notified(self, notice: Notice) -> ClientContext:
        members = {} if notice.raw is UNSET else msgspec.json.decode(notice.raw)
        return self._context(notice.method, members, incoming=True, is_notification=True)

    async def _delivered(self, notice: Notice, deliver: Callable[[Notice], None], ctx: ClientContext) -> None:
        whole = _whole(ctx)
        params = _as_wire(notice.row.params, notice.method, whole)
        deliver(Notice(notice.method, notice.row, params, Raw(_encoded(whole))))


class _Received(Struct, Generic[R]):
    """A result as it came, as middleware sees it and as the caller wants it."""

    members: dict[str, Any]
    result: R
    encoded: bytes = b""

    def __post_init__(self) -> None:
        self.encoded = _encoded(self.members)

    def is_same(self, returned: Any) -> bool:
        return returned is self.members and _encoded(returned) == self.encoded


def _encoded(members: Mapping[str, Any]) -> bytes:
    return encode_arguments(members)


def _decoded(raw: Raw | UnsetType) -> Any:
    return UNSET if raw is UNSET else msgspec.json.decode(raw)


def _members(params: Any) -> dict[str, Any]:
    if isinstance(params, t.Wire):
        return params.to_dict()
    return dict(params) if isinstance(params, Mapping) else {}


def _whole(ctx: ClientContext) -> dict[str, Any]:
    return {**ctx.params, "_meta": ctx.meta} if ctx.meta else ctx.params


def _as_wire(type_: type[Any], method: str, members: Mapping[str, Any]) -> Any:
    """Return what the middleware left as the wire type that goes on. Members that the type lacks stay with it."""
    try:
        return t.decode(type_, _encoded(members))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise TypeError(f"a middleware left {method} in a form that the protocol does not have: {error}") from None
