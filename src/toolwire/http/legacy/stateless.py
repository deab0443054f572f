"""Legacy requests without sessions: each stands alone under its version header."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from toolwire.http.app_settings import HasSettings
from toolwire.http.exchange import ExchangeOutlet
from toolwire.http.responses import JSON_TYPE, refuse, respond
from toolwire.http.unsent_answers import UnsentAnswers
from toolwire.http.watch_first_await import watched
from toolwire.http1.asgi_types import HeaderList, Receive, SendMessage
from toolwire.protocol.classifier import Notice
from toolwire.protocol.http import Rejection, classify_legacy, legacy_revision, read_legacy
from toolwire.protocol.jsonrpc import Request, encode_answer, encode_batch
from toolwire.protocol.lifecycle import Declare, Incoming, Offer, ServerLifecycle
from toolwire.wire.answer import encode_failure, encode_stopped
from toolwire.wire.session import Handler, notify_without_session
from toolwire.wire.shares import Caller, Shares

Admit: TypeAlias = Callable[[Sequence[Incoming]], Awaitable[None]]
OfferTo: TypeAlias = Callable[[Any], Offer]


class Stateless:
    """The service for 2024-11-05 to 2025-11-25 that remembers nothing between requests."""

    def __init__(
        self,
        offer_to: OfferTo,
        handler: Handler,
        application: HasSettings,
        admit: Admit,
        declare_to: Callable[[Any], Declare],
        exchanges: Shares,
        unsent: UnsentAnswers,
    ) -> None:
        """`offer_to` returns what is offered to a principal; `admit` raises `InsufficientScope` for calls that the
        caller may not make; `declare_to` returns what makes the answer to `initialize` for a principal.

        `exchanges` counts the requests of the whole application that run, and `unsent` their unread answers."""
        self._offer_to = offer_to
        self._declare_to = declare_to
        self._handler = handler
        self._admit = admit
        self._application = application
        self._exchanges = exchanges
        self._unsent = unsent
        # The calls that run, with the answers that their batch has already; None for a call that is alone.
        self._running: dict[ExchangeOutlet, tuple[list[Incoming], list[bytes] | None]] = {}

    def give_up(self) -> None:
        """Answer all calls that still run with an error: the process ends."""
        for outlet, (calls, ready) in tuple(self._running.items()):
            errors = [encode_stopped(call.id) for call in calls]
            outlet.give_up(errors[0] if ready is None else encode_batch([*ready, *errors]))

    async def post(
        self,
        principal: Any,
        caller: Caller,
        headers: Mapping[str, str],
        body: bytes,
        receive: Receive,
        send: SendMessage,
        extra: HeaderList,
    ) -> None:
        limits = self._application.settings.limits
        message = read_legacy(body, limits.depth, limits.batch)
        if isinstance(message, Rejection):
            raise refuse(message)
        identifier = message.id if isinstance(message, Request) else None
        revision = legacy_revision(headers, identifier)
        if isinstance(revision, Rejection):
            raise refuse(revision)
        lifecycle = ServerLifecycle(self._offer_to(principal), declare=self._declare_to(principal))
        # Nothing is known from earlier requests (2025-03-26 basic/transports, session management: a session is
        # optional), so no `initialize` is the second one.
        if not (isinstance(message, Request) and message.method == "initialize"):
            lifecycle.adopt(revision)
        posted = classify_legacy(message, lifecycle, (), limits.batch)
        if isinstance(posted, Rejection):
            raise refuse(posted)
        for event in posted.events:
            # Answers and cancellations belong to nothing here.
            if isinstance(event, Notice):
                notify_without_session(self._handler, event)
        calls = posted.calls
        for call in calls:
            call.headers, call.principal, call.caller = headers, principal, caller
        if calls:
            await self._admit(calls)
            self._unsent.check(caller)
            self._exchanges.take(caller, len(calls))
            outlet = ExchangeOutlet(receive, send, revision, extra)
            answered = posted.ready if posted.is_batch else None
            self._running[outlet] = calls, answered
            try:
                await self._exchange(calls, answered, outlet)
            finally:
                del self._running[outlet]
                self._exchanges.give_back(caller, len(calls))
                outlet.settle()
        elif posted.ready:
            await respond(send, 200, posted.answer(), (*JSON_TYPE, *extra))
        else:
            await respond(send, 202, b"", extra)

    async def _exchange(self, calls: list[Incoming], ready: list[bytes] | None, outlet: ExchangeOutlet) -> None:
        try:
            if ready is None:
                body = await self._answer(calls[0], outlet, outlet.waits)
            else:
                outlet.waits()
                answers = await asyncio.gather(*(self._answer(call, outlet, _nothing) for call in calls))
                body = encode_batch([*ready, *answers])
        except asyncio.CancelledError:
            # Without a session the client cannot come back for the answer, so nobody works on it any more.
            if await outlet.was_left():
                return
            raise
        await outlet.finish(200, body)

    async def _answer(self, incoming: Incoming, outlet: ExchangeOutlet, when_it_waits: Callable[[], None]) -> bytes:
        most = self._application.settings.limits.result
        try:
            handled = self._handler.handle(incoming, outlet)
            result = await watched(handled, when_it_waits)  # type: ignore[arg-type]
            return outlet.hold(incoming.id, encode_answer(incoming.id, result, most))
        except BaseException as raised:
            failure = encode_failure(incoming, raised, most)
            if failure is None:
                raise
            return outlet.hold(incoming.id, failure)


def _nothing() -> None:
    return
