"""One HTTP endpoint as a client reaches it: its URL, the headers that always go along, and who signs in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec

from toolwire.auth.contract import Auth
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse
from toolwire.http1.url import origin
from toolwire.protocol.errors import OutcomeUnknown, TransportError, Unauthorized, Unreachable
from toolwire.protocol.framing import EVENT_LIMIT
from toolwire.wire.deadlines import Pausable
from toolwire.wire.tapped_channel import Tap

# What is shown of the text of an error page, and how much of one is read at all.
_SHOWN: Final = 200
ERROR_BODY: Final = 64 * 1024
# Statuses that say the request was turned away before anything was done.
_TURNED_AWAY: Final = frozenset({429, 503})


#: Is given the method, the headers and the body of a request, and the head of its answer.
OnResponse: TypeAlias = Callable[[str, Mapping[str, str], bytes | None, HttpResponse], None]


class Endpoint:
    """One URL of a server.

    `headers` go along with every request; `tap` is shown every message that passes, and `on_response` every answer
    of HTTP, whatever its status.
    """

    def __init__(
        self,
        pool: Pool,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        tap: Tap | None = None,
        on_response: OnResponse | None = None,
        limit: int = EVENT_LIMIT,
    ) -> None:
        self.pool = pool
        self.url: str = url
        self.limit = limit
        self.tap = tap
        self._on_response = on_response
        self.headers: dict[str, str] = {name.lower(): value for name, value in (headers or {}).items()}
        self._auth = auth

    def at(self, url: str) -> Endpoint:
        """The same at another URL of the same server."""
        return Endpoint(
            self.pool,
            url,
            headers=self.headers,
            auth=self._auth,
            tap=self.tap,
            on_response=self._on_response,
            limit=self.limit,
        )

    async def send(
        self, method: str, headers: Mapping[str, str], body: bytes | None, clock: Pausable | None = None
    ) -> HttpResponse:
        """One request, repeated for as long as signing in helps; `Unauthorized` when it does not.

        Signing in may take a person's time, so meanwhile `clock` stands still.
        """
        auth = self._auth
        while True:
            sent = {**self.headers, **headers}
            if auth is not None:
                with _stopped(clock):
                    sent.update(await auth.headers(method, self.url))
            response = await self.pool.request(method, self.url, headers=sent, body=body)
            if response.url != self.url and 200 <= response.status < 300:
                self.url = response.url  # Where it was redirected to once, it need not be every time.
            if self._on_response is not None:
                self._on_response(method, sent, body, response)
            if response.status not in (401, 403):
                return response
            said = response.headers
            text = await _text(response)
            response.close()
            if auth is not None:
                with _stopped(clock):
                    if await auth.challenged(method, self.url, response.status, said):
                        continue
            raise _unauthorized(self.url, response.status, text, auth is not None)

    async def deliver(self, headers: Mapping[str, str], message: bytes, clock: Pausable | None = None) -> None:
        """Post a message that is not answered here; raises what keeps it from arriving."""
        if self.tap is not None:
            self.tap("→", message)
        response = await self.send("POST", headers, message, clock)
        try:
            if response.status >= 300:
                raise await failure(response)
        finally:
            response.let_go()  # Whatever still follows says nothing.


@contextmanager
def _stopped(clock: Pausable | None) -> Iterator[None]:
    if clock is None:
        yield
        return
    clock.pause()
    try:
        yield
    finally:
        clock.resume()


def _unauthorized(url: str, status: int, text: str, tried: bool) -> Unauthorized:
    in_python = "" if tried else "give the client credentials with auth= or headers="
    said = f": {text}" if text else ""
    error = Unauthorized(f"{origin(url)} refused with status {status}{said}", in_python)
    error.status, error.url = status, url
    return error


async def failure(response: HttpResponse) -> TransportError:
    """The error that an HTTP status without a JSON-RPC message stands for."""
    status = response.status
    text = await _text(response)
    where = response.header("location") if 300 <= status < 400 else None
    told = f"{origin(response.url)} answered with status {status}"
    told += f", a redirect to {where[:_SHOWN]}, which is not followed" if where else ""
    told += f": {text}" if text else ""
    lost = status >= 500 and status not in _TURNED_AWAY
    error: TransportError = OutcomeUnknown(told) if lost else Unreachable(told)
    error.status, error.url = status, response.url
    if status in _TURNED_AWAY:
        error.retry_after = _seconds(response.header("retry-after") or "")
    return error


def _seconds(later: str) -> float | None:
    """RFC 9110, Retry-After: a number of seconds, or a date; None for anything else."""
    if later.isascii() and later.isdigit():
        return float(later)
    # Imported here because hardly anybody says it with a date.
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(later).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


async def _text(response: HttpResponse) -> str:
    """Return the sentence of an error answer, or its first line if it is plain text; nothing for a page of markup."""
    if response.media_type not in ("text/plain", "application/json"):
        return ""
    try:
        async with asyncio.timeout(2.0):
            body = await response.read(ERROR_BODY)
    except (TransportError, TimeoutError):
        return ""
    sentence = _sentence(body) if response.media_type == "application/json" else None
    line = (sentence or body.decode("utf-8", "replace")).strip().partition("\n")[0]
    return "".join(char if char.isprintable() else " " for char in line)[:_SHOWN]


def _sentence(body: bytes) -> str | None:
    """Return the text for people in an error of JSON-RPC or of OAuth (RFC 6749 section 5.2)."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    error = said.get("error")
    sentence = error.get("message") if isinstance(error, dict) else said.get("error_description")
    return sentence if isinstance(sentence, str) else None
