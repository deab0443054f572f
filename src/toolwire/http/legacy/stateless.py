"""Legacy requests without sessions: each stands alone under its version header."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from toolwire.http.app_settings import HasSettings
from toolwire.http.exchange import ExchangeOutlet
from toolwire.http.responses import JSON_TYPE, json_refusal, respond
from toolwire.http.watch_first_await import watched
from toolwire.http1.asgi_types import HeaderList, Receive, SendMessage
from toolwire.protocol.classifier import extension_notice
from toolwire.protocol.errors import INVALID_REQUEST, ProtocolError
from toolwire.protocol.http import VERSION
from toolwire.protocol.jsonrpc import (
    Batch,
    Malformed,
    Message,
    Notification,
    Request,
    decode,
    encode_answer,
    encode_batch,
    encode_error,
    encode_response,
)
from toolwire.protocol.lifecycle import Declare, Incoming, Offer, ServerLifecycle
from toolwire.protocol.revisions import LEGACY
from toolwire.wire.answer import encode_failure, encode_stopped
from toolwire.wire.session import Handler, notify_without_session
from toolwire.wire.shares import Caller

# 3.4.6.2: the revision of a request that names none and has no session that knows it.
ASSUMED: Final = "2025-03-26"


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
    ) -> None:
        """`offer_to` returns what is offered to a principal; `admit` raises `InsufficientScope` for calls that the
        caller may not make; `declare_to` returns what makes the answer to `initialize` for a principal."""
        self._offer_to = offer_to
        self._declare_to = declare_to
        self._handler = handler
        self._admit = admit
        self._application = application
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
        message = decode(body, max_depth=limits.depth, max_batch=limits.batch)
        if isinstance(message, Malformed):
            raise json_refusal(400, message.message, message.id, code=message.code or INVALID_REQUEST)
        revision = headers.get(VERSION, ASSUMED).strip(" \t")
        if revision not in LEGACY:
            raise json_refusal(400, f"Unsupported protocol version {revision[:40]!r}")
        ready: list[bytes] = []
        calls: list[Incoming] = []
        offer = self._offer_to(principal)
        for item in self._batch(message, revision, offer) if isinstance(message, Batch) else [message]:
            self._take(item, revision, offer, isinstance(message, Batch), ready, calls, self._declare_to(principal))
        for call in calls:
            call.headers, call.principal, call.caller = headers, principal, caller
        if calls:
            await self._admit(calls)
            outlet = ExchangeOutlet(receive, send, revision, extra)
            answered = ready if isinstance(message, Batch) else None
            self._running[outlet] = calls, answered
            try:
                await self._exchange(calls, answered, outlet)
            finally:
                del self._running[outlet]
                outlet.settle()
        elif ready:
            answer = encode_batch(ready) if isinstance(message, Batch) else ready[0]
            await respond(send, 200, answer, (*JSON_TYPE, *extra))
        else:
            await respond(send, 202, b"", extra)

    def _batch(self, batch: Batch, revision: str, offer: Offer) -> list[Message]:
        # 3.4.6.5: without a version header, batches have to be accepted, too.
        lifecycle = ServerLifecycle(offer)
        lifecycle.adopt(revision)
        if not lifecycle.batches:
            raise json_refusal(400, "This revision has no JSON-RPC batches: send one message a request")
        if batch.oversized or not batch.items:
            raise json_refusal(
                400, f"A batch has at least 1 message, and at most {self._application.settings.limits.batch}"
            )
        return batch.items

    def _take(
        self,
        item: Message,
        revision: str,
        offer: Offer,
        batch: bool,
        ready: list[bytes],
        calls: list[Incoming],
        declare: Declare,
    ) -> None:
        """Take one message: append its answer to `ready`, or the call that will have one to `calls`.

        The notifications of extensions are passed on. Others are dropped, as answers are: nothing here waits for them.
        """
        if isinstance(item, Malformed) and item.code:
            ready.append(encode_error(item.id, item.code, item.message))
        lifecycle = ServerLifecycle(offer, declare=declare)
        if isinstance(item, Notification):
            lifecycle.adopt(revision)
            notice = extension_notice(item, lifecycle)
            if notice is not None:
                notify_without_session(self._handler, notice)
        if not isinstance(item, Request):
            return
        try:
            if item.method != "initialize":
                lifecycle.adopt(revision)
            elif batch:
                # 2025-03-26 basic/lifecycle: initialize is never part of a batch.
                raise ProtocolError(INVALID_REQUEST, "initialize is not allowed in a batch")
            accepted = lifecycle.accept(item)
        except ProtocolError as error:
            ready.append(encode_error(item.id, error.code, error.message, error.data))
            return
        if isinstance(accepted, Incoming):
            calls.append(accepted)
        else:
            ready.append(encode_response(item.id, accepted))

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
