"""Sending: credentials, repeated requests, redirects, and what a lost connection means.

A read may be sent again. A write is sent once, unless the operator names the header of a key under which the API runs a
request once: then one key is made for each call, and every attempt carries it. A description cannot permit that.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Final
from uuid import UUID

from toolwire.http1.pool import REDIRECTS, REDIRECTS_ANY_METHOD, Pool, target_of
from toolwire.http1.response import HttpResponse
from toolwire.http1.url import origin
from toolwire.openapi.access.signing import OutgoingRequest, SignedRequest, Signer
from toolwire.openapi.calling import ApiExchange, CalledOperation
from toolwire.openapi.request.api_rate import ApiRate, seconds_left
from toolwire.printable import printable
from toolwire.protocol.errors import InvalidResponse, OutcomeUnknown, ToolError, TransportError, Unreachable
from toolwire.server.call import Call
from toolwire.server.forwarded_headers import spell_header
from toolwire.util.backoff import Backoff

log: logging.Logger = logging.getLogger("toolwire.openapi")

#: How often a request is sent again after its connection was lost, how often after the API asked to wait, and how many
#: redirects are followed.
MAX_LOST: Final = 2
MAX_WAITS: Final = 3
MAX_REDIRECTS: Final = 5
# A name of our own, so that a test can let the time pass.
_sleep = asyncio.sleep
_REFUSED: Final = (401, 403)
_BUSY: Final = (429, 503)
_CONDITIONS: Final = frozenset({"if-none-match", "if-modified-since"})


class WriteOutcomeUnknown(ToolError, OutcomeUnknown):
    """The connection was lost after a write was sent: it may have been carried out."""


class Sender:
    """Sends the requests of one operation.

    * `pool`: returns the pool that carries requests now; a server that stops and starts again has another one.
    * `home`: the origin of its server. Credentials are sent there and nowhere else.
    * `origins`: where else its reads may lead, in the form of `http1.url.origin`.
    * `idempotency_header`: the header of the key under which the API runs a write once. `repeats_writes`: the operator
      named it, so that a write with the key may be sent again.
    * `rate`: how many requests the API gets.
    """

    def __init__(
        self,
        operation: CalledOperation,
        pool: Callable[[], Pool],
        home: str,
        origins: frozenset[str],
        *,
        signer: Signer | None = None,
        idempotency_header: str | None = None,
        repeats_writes: bool = False,
        rate: ApiRate | None = None,
    ) -> None:
        self._operation = operation
        self._pool = pool
        self._home = home
        self._origins = origins | {home}
        self._signer = signer
        self._rate = rate
        self._repeats_writes = repeats_writes
        self._key_header = None if idempotency_header is None or operation.is_read else idempotency_header.lower()

    async def sign(self, exchange: ApiExchange) -> None:
        request = exchange.request
        self._check(request.url)
        exchange.credentials, exchange.signed = None, request
        if origin(request.url) != self._home:
            return  # Credentials are for the server of the operation alone.
        key = self._key_header if request.method == self._operation.method else None
        if key is not None and spell_header(key) not in map(spell_header, request.headers):
            request.headers[key] = _key(exchange.call)
        if self._signer is not None:
            exchange.credentials = await self._signer.sign(exchange.call, request)
            exchange.signed = self._sent_home(exchange.credentials.request)

    async def send(self, exchange: ApiExchange, *, is_read: bool) -> None:
        may_repeat = is_read or (self._repeats_writes and self._key_header in exchange.request.headers)
        losses = Backoff(MAX_LOST)
        waits = redirects = 0
        has_left = False
        while True:
            request = exchange.signed
            if self._rate is not None:
                await self._rate.wait(exchange.call)
            try:
                # Not `http1.fetch`, which reads a whole document: here requests are signed, repeated and streamed.
                response = await self._pool().send(request.method, request.url, request.headers, request.body)
            except TransportError as error:
                # What could not be reached has not begun. An answer that cannot be read would come again.
                is_loss = not isinstance(error, InvalidResponse) and (may_repeat or isinstance(error, Unreachable))
                pause = losses.next() if is_loss else None
                if pause is None or pause >= seconds_left(exchange.call):
                    raise self._failure(error, is_read) from error
                await _sleep(pause)
                self._use(exchange, None if exchange.credentials is None else exchange.credentials.repeated())
                continue
            exchange.response = response
            status = response.status
            if status < 300:
                return
            if status in _REFUSED and exchange.credentials is not None:
                if not await self._signed_again(exchange, response):
                    return
            elif status in _BUSY and may_repeat and waits < MAX_WAITS:
                pause = response.retry_after
                if pause is None or pause >= seconds_left(exchange.call):
                    return
                waits += 1
                response.let_go()
                await _sleep(pause)
                self._use(exchange, None if exchange.credentials is None else exchange.credentials.repeated())
            elif status in REDIRECTS and is_read and redirects < MAX_REDIRECTS:
                target = target_of(request.method, response)
                if target is None:
                    return
                redirects += 1
                response.let_go()
                has_left = has_left or origin(target) != origin(request.url)
                await self._redirect(exchange, status, target, has_left)
            else:
                return

    async def _signed_again(self, exchange: ApiExchange, response: HttpResponse) -> bool:
        """Replace the credentials that the API refused; return whether there are new ones.

        A refused request was not carried out, so that this holds for writes too.
        """
        assert exchange.credentials is not None
        again = await exchange.credentials.again(response.status, response.headers)
        if again is None:
            return False
        response.let_go()
        self._use(exchange, again)
        return True

    def _use(self, exchange: ApiExchange, signed: SignedRequest | None) -> None:
        """Send a request with these credentials the next time; None leaves it as it is."""
        if signed is not None:
            exchange.credentials, exchange.signed = signed, self._sent_home(signed.request)

    async def _redirect(self, exchange: ApiExchange, status: int, target: str, has_left: bool) -> None:
        """Follow a redirect.

        What came from arguments stays in the origin it is for, like credentials. `has_left`: a redirect left that
        origin. One that leads back is the choice of another server, and gets neither.
        """
        before = exchange.request
        # A condition is about the address that it was made for.
        headers = {name: value for name, value in before.headers.items() if name not in _CONDITIONS}
        body = before.body if status in REDIRECTS_ANY_METHOD else None
        if has_left:
            headers, body = {"accept": before.headers.get("accept", "*/*")}, None
        exchange.request = OutgoingRequest(method=before.method, url=target, headers=headers, body=body)
        if has_left:
            self._check(target)
            exchange.credentials, exchange.signed = None, exchange.request
        else:
            await self.sign(exchange)

    def _check(self, url: str) -> None:
        found = origin(url)
        if found not in self._origins:
            raise ToolError(f"{self._operation.name} leads to {printable(found)}, where this API may not be called")

    def _sent_home(self, signed: OutgoingRequest) -> OutgoingRequest:
        """Check that signing did not change where a request goes."""
        if origin(signed.url) != self._home:
            raise ToolError(f"{self._operation.name} was not sent: its credentials lead to another origin")
        return signed

    def _failure(self, error: TransportError, is_read: bool) -> ToolError:
        name = self._operation.name
        log.warning("%s failed: %s", printable(name), printable(str(error)))
        if not isinstance(error, OutcomeUnknown):
            return ToolError(f"{name} failed: the API cannot be reached now. Try again later.")
        if is_read and isinstance(error, InvalidResponse):
            return ToolError(f"{name} failed: the answer of the API cannot be read.")
        if is_read:
            return ToolError(f"{name} failed: the connection to the API was lost. Try again.")
        return WriteOutcomeUnknown(
            f"The outcome of {name} is unknown: the connection to the API was lost after the request was sent. "
            "It may have been carried out. Look before you call it again."
        )


def _key(call: Call) -> str:
    """Make the idempotency key of a call.

    The attempts of a task share one, also in another process.
    """
    if call.task_run is not None and call.is_task:
        import hashlib

        return _as_uuid(hashlib.sha256(call.task_run.id.encode()).digest()[:16])
    return _as_uuid(os.urandom(16))


def _as_uuid(data: bytes) -> str:
    """Return a key in the form that APIs ask for most often."""
    return str(UUID(bytes=data, version=4))
