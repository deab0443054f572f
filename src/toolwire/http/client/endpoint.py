"""An HTTP endpoint of a server, for a client: its URL, the headers of every request, and the sign-in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeAlias

import msgspec

from toolwire.auth.contract import Auth
from toolwire.http1.pool import IDEMPOTENT, MAX_REDIRECTS, PROOF, Pool, redirect_of
from toolwire.http1.response import CrossedClosing, HttpResponse
from toolwire.http1.url import origin
from toolwire.protocol.errors import OutcomeUnknown, TransportError, Unauthorized, Unreachable
from toolwire.protocol.framing import EVENT_LIMIT
from toolwire.server_texts import ServerTexts
from toolwire.wire.deadlines import Pausable, PersonTime
from toolwire.wire.tapped_channel import Tap

log: logging.Logger = logging.getLogger("toolwire.http")

# The characters of an error text that are shown, and the bytes of an error page that are read.
_SHOWN: Final = 200
ERROR_BODY: Final = 64 * 1024
# How many encoded headers of posts are kept, and how long they may be.
_MANY_HEADS: Final = 256
_SHORT_HEAD: Final = 4_096
#: Statuses of a server that refused the request before it did anything.
TURNED_AWAY: Final = frozenset({429, 503})
#: Statuses of a server that takes no body, no URL or no headers of this length. It is there, and works.
TOO_LONG: Final = frozenset({413, 414, 431})
# Statuses that say that the request was not carried out (RFC 9110 and its extensions). After any other, such as 303 or
# 408, it may have been.
_REFUSED: Final = TURNED_AWAY | {
    *(301, 302, 307, 308),
    *(400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 424, 425, 426),
    *(428, 431, 451),
}


#: A callback that gets the method, the headers and the body of a request, and the head of its response.
OnResponse: TypeAlias = Callable[[str, Mapping[str, str], bytes | None, HttpResponse], None]


class Endpoint:
    """One URL of a server.

    Every request has `headers`. `tap` gets every message in both directions. `on_response` gets every HTTP response,
    whatever its status. `texts` cleans what errors quote of the server.
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
        texts: ServerTexts | None = None,
    ) -> None:
        self.pool = pool
        self.texts: ServerTexts = ServerTexts() if texts is None else texts
        self.url: str = url
        self.limit = limit
        self.tap = tap
        self._on_response = on_response
        self.headers: dict[str, str] = {name.lower(): value for name, value in (headers or {}).items()}
        self.texts.note_settings(headers=self.headers)
        self._auth = auth
        self.may_sign_in: bool = True
        """Whether a refusal leads to a sign-in, for which a person may have to open a browser."""
        self.heads: dict[Hashable, bytes] = {}
        """The encoded headers of posts that `pool.post` sends, by what they belong to."""

    def at(self, url: str) -> Endpoint:
        """Return an endpoint with the same settings at another URL of the same server."""
        return Endpoint(
            self.pool,
            url,
            headers=self.headers,
            auth=self._auth,
            tap=self.tap,
            on_response=self._on_response,
            limit=self.limit,
            texts=self.texts,
        )

    @property
    def name(self) -> str:
        """The name of the server for the log."""
        return self.texts.name or origin(self.url)

    async def send(
        self, method: str, headers: Mapping[str, str], body: bytes | None, clock: Pausable | None = None
    ) -> HttpResponse:
        """Send a request, and send it again after each sign-in; raise `Unauthorized` if signing in does not help.

        `clock` stands still while a person signs in: as long as `auth.person_time` says, or for the whole work of an
        `auth` without it.
        """
        auth, url, redirects = self._auth, self.url, MAX_REDIRECTS
        while True:
            sent = {**self.headers, **headers} if self.headers else headers
            if auth is None:
                response = await self.pool.request(method, url, headers=sent, body=body)
            else:
                with self._signing_in(clock):
                    signed = await auth.headers(method, url)
                self.texts.note_signature(signed)
                sent = {**sent, **signed}
                try:
                    response = await self.pool.request(method, url, headers=sent, body=body, redirects=0)
                except CrossedClosing:
                    if PROOF not in signed or method not in IDEMPOTENT:
                        raise
                    continue  # The pool leaves this to us: the server may have seen the proof, and takes each once.
                target = redirect_of(method, response)
                if target is not None and redirects:
                    # It is another request. The proof of the first one (RFC 9449) has the wrong URL and is spent.
                    response.close()
                    url, redirects = target, redirects - 1
                    continue
            if response.url != self.url and 200 <= response.status < 300:
                self._move(response.url)
            if self._on_response is not None:
                self._on_response(method, sent, body, response)
            if response.status not in (401, 403):
                return response
            said = response.headers
            text = await self._text(response)
            response.close()
            if auth is not None and self.may_sign_in:
                with self._signing_in(clock):
                    if await auth.challenged(method, url, response.status, said):
                        continue
            raise _unauthorized(url, response.status, text, auth is not None)

    def _signing_in(self, clock: Pausable | None) -> AbstractContextManager[None]:
        person: PersonTime | None = getattr(self._auth, "person_time", None)
        return _stopped(clock) if person is None else person.stopping(clock)

    def _move(self, url: str) -> None:
        """Send the next request there directly, without the redirect."""
        self.url = url
        self.heads.clear()

    # --- posts that wait for nothing before they are sent ---

    def head(self, key: Hashable, headers: Mapping[str, str]) -> bytes | None:
        """Return the encoded headers of a post for `pool.post`, and keep them in `heads`.

        None where they differ each time, because of a sign-in, or where somebody watches the answers.
        """
        if self._auth is not None or self._on_response is not None:
            return None
        head = self.pool.head(self.url, {**self.headers, **headers})
        if head is not None and len(head) <= _SHORT_HEAD:
            # A plain dict, not `Expiring`: each request looks here, and when it is full it is cheap to begin anew.
            if len(self.heads) >= _MANY_HEADS:
                self.heads.clear()
            self.heads[key] = head
        return head

    async def settled(self, response: HttpResponse, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Return the answer to a post that was started, as `send` would have returned it."""
        response = await self.pool.follow(response, "POST", {**self.headers, **headers}, body)
        if response.url != self.url and 200 <= response.status < 300:
            self._move(response.url)
        if response.status not in (401, 403):
            return response
        text = await self._text(response)
        response.close()
        raise _unauthorized(self.url, response.status, text, False)

    async def deliver(self, headers: Mapping[str, str], message: bytes, clock: Pausable | None = None) -> None:
        """Post a message that gets no answer in the response; raise the error that keeps it from arriving."""
        if self.tap is not None:
            self.tap("→", message)
        response = await self.send("POST", headers, message, clock)
        try:
            if response.status >= 300:
                raise await self.failure(response)
        finally:
            response.let_go()  # The rest of the response has no meaning.

    # --- what errors say ---

    async def failure(self, response: HttpResponse) -> TransportError:
        """Return the error for an HTTP status without a JSON-RPC message."""
        status = response.status
        text = await self._text(response)
        where = response.header("location") if 300 <= status < 400 else None
        told = f"{origin(response.url)} answered with status {status}"
        if where:
            to = f" to {self.texts.excerpt(where, _SHOWN)}" if self.texts.is_quotable else ""
            told += f", a redirect{to}, which is not followed"
        told += f": {text}" if text else ""
        error: TransportError = Unreachable(told) if status in _REFUSED else OutcomeUnknown(told)
        error.status, error.url = status, response.url
        if status in TURNED_AWAY:
            error.retry_after = response.retry_after
        return error

    async def _text(self, response: HttpResponse) -> str:
        """Return the message in an error response, or the first line of plain text; return "" for a page of markup.

        Servers quote the credentials that they refuse; the text goes to logs and to other programs without them. Where
        an error may not quote at all, the text is logged for debugging alone.
        """
        if response.media_type not in ("text/plain", "application/json"):
            return ""
        try:
            async with asyncio.timeout(2.0):
                body = await response.read(ERROR_BODY)
        except (TransportError, TimeoutError):
            return ""
        sentence = _sentence(body) if response.media_type == "application/json" else None
        line = (sentence or body.decode("utf-8", "replace")).strip().partition("\n")[0]
        text = "".join(char if char.isprintable() else " " for char in self.texts.excerpt(line, _SHOWN))
        if text and not self.texts.is_quotable:
            log.debug("%s answered with status %d: %s", self.name, response.status, text)
            return ""
        return text


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


def _sentence(body: bytes) -> str | None:
    """Return the message of a JSON-RPC error or of an OAuth error (RFC 6749 section 5.2); None without one."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    error = said.get("error")
    sentence = error.get("message") if isinstance(error, dict) else said.get("error_description")
    return sentence if isinstance(sentence, str) else None
