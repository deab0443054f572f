"""Answers of reads that may be used again (RFC 9111), each for its caller alone.

The key of an answer is made of the caller and of the whole signed request. So another caller never gets it, nor the
same caller with another account. Writes are never answered from here, and forget the answers of their address.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from msgspec import Struct

from toolwire.http1.response import HttpResponse
from toolwire.openapi.calling import ApiExchange
from toolwire.redaction import repr_without
from toolwire.server.components.cache import Cache
from toolwire.server.replay_state import principal_key
from toolwire.util.expiring import Expiring

#: How many answers are kept, how many bytes they have together, and how many one of them.
MAX_ANSWERS: Final = 1_000
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_ANSWER: Final = 512 * 1024
#: How many seconds an answer is used at most without asking, whatever the API says.
MAX_AGE: Final = 86_400.0
# Headers that differ from call to call and change no answer.
_CHANGING: Final = frozenset(
    {"traceparent", "tracestate", "baggage", "x-request-id", "if-none-match", "if-modified-since"}
)
# RFC 9111 section 4.2.2 lists more statuses. Any other status is not a result here.
_STORABLE: Final = frozenset({200, 203})
_DIRECTIVE: Final = re.compile(r'([a-z-]+)(?:\s*=\s*(?:"([^"]*)"|([^\s,]*)))?')


def directives(header: str | None) -> dict[str, str]:
    """Return the directives of a `Cache-Control` by their names in lower case."""
    found = _DIRECTIVE.finditer((header or "")[:2_000].lower())
    return {each[1]: each[2] or each[3] or "" for each in found}


def fresh_seconds(headers: Mapping[str, str], now: float) -> float:
    """Return for how many seconds an answer is fresh (RFC 9111 section 4.2.1).

    Nothing is guessed.
    """
    said = directives(headers.get("cache-control"))
    if "no-cache" in said or "no-store" in said:
        return 0.0
    # The cache is that of one caller, so `s-maxage` is not for it.
    lifetime = _number(said.get("max-age"))
    if lifetime is None:
        expires = _date(headers.get("expires"))
        lifetime = None if expires is None else expires - (_date(headers.get("date")) or now)
    return 0.0 if lifetime is None else min(max(lifetime - (_number(headers.get("age")) or 0.0), 0.0), MAX_AGE)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 12 else None


def _date(text: str | None) -> float | None:
    if text is None:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0  # RFC 9111 section 5.3: an invalid date is in the past.


def _may_be_kept(headers: Mapping[str, str], seconds: float) -> bool:
    """Return whether an answer can be of use later."""
    can_be_asked = "etag" in headers or "last-modified" in headers
    is_never_alike = "*" in headers.get("vary", "")
    is_forbidden = "no-store" in directives(headers.get("cache-control"))
    return (seconds > 0 or can_be_asked) and not is_never_alike and not is_forbidden


class _Stored(Struct):
    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    until: float
    """When it has to be asked for again, by the clock of the cache."""

    def __repr__(self) -> str:
        return repr_without(self, "headers", "body")


class KeptAnswer(HttpResponse):
    """An answer from the cache."""

    def __init__(self, stored: _Stored, seconds: float) -> None:
        """`seconds` is how long it may still be used without asking."""
        self.seconds: float = seconds
        self.url: str = stored.url
        self.status: int = stored.status
        self._headers = stored.headers
        self._body = stored.body

    def header(self, name: str) -> str | None:
        return self._headers.get(name.lower())

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    def whole(self, limit: int) -> bytes | None:
        return self._body if len(self._body) <= limit else None

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Do nothing: there is no connection."""


class ResponseCache:
    """The answers of one API, in memory; the least recently used go first."""

    def __init__(
        self,
        *,
        max_answers: int = MAX_ANSWERS,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        # A stale answer is kept too, because the API may confirm it.
        self._answers: Expiring[bytes, _Stored] = Expiring(
            max_answers, max_weight=max_bytes, weigh=lambda stored: len(stored.body)
        )

    def fresh(self, exchange: ApiExchange) -> HttpResponse | None:
        """Return an answer that is still fresh; None where there is none.

        Where there is one that is too old for that, the signed request is made conditional.
        """
        if not self._answers:
            return None
        key = _key(exchange)
        stored = self._answers.use(key)
        if stored is None:
            return None
        if (seconds := stored.until - self._clock()) > 0:
            return KeptAnswer(stored, seconds)
        # RFC 9110 section 13.1: the entity tag is the better validator of the two.
        if (tag := stored.headers.get("etag")) is not None:
            exchange.signed.headers["if-none-match"] = tag
        elif (modified := stored.headers.get("last-modified")) is not None:
            exchange.signed.headers["if-modified-since"] = modified
        return None

    def confirmed(self, exchange: ApiExchange) -> HttpResponse | None:
        """Return the answer that a 304 stands for; None where it is no longer there."""
        stored = self._answers.get(_key(exchange))
        if stored is None:
            return None
        # RFC 9111 section 3.2: the new headers replace the old ones, apart from those about the body.
        told = exchange.answer.headers.items()
        stored.headers.update({name: value for name, value in told if not name.startswith("content-")})
        seconds = fresh_seconds(stored.headers, time.time())
        stored.until = self._clock() + seconds
        return KeptAnswer(stored, seconds)

    def store(self, exchange: ApiExchange, body: bytes) -> None:
        """Keep an answer, if it may be used again and there is room for it."""
        response, request = exchange.answer, exchange.signed
        if isinstance(response, KeptAnswer) or request.method != "GET" or response.status not in _STORABLE:
            return
        headers = response.headers
        seconds = fresh_seconds(headers, time.time())
        is_kept = len(body) <= MAX_ANSWER and _may_be_kept(headers, seconds)
        if not is_kept and not self._answers:
            return
        key = _key(exchange)
        if not is_kept:
            self._answers.pop(key)
            return
        url = exchange.request.url
        self._answers.put(key, _Stored(url, response.status, dict(headers), body, self._clock() + seconds))

    def forget(self, url: str) -> None:
        """Remove the answers of an address for all callers, after a write (RFC 9111 4.4)."""
        address = url.partition("?")[0]
        for key in [key for key, stored in self._answers.items() if stored.url.partition("?")[0] == address]:
            self._answers.pop(key)


def cache_hint(exchange: ApiExchange) -> Cache:
    """Return how long, and by whom, clients may keep the answer.

    Nothing is guessed.
    """
    answer = exchange.answer
    # What a redirect, several pages or an operation that went on led to is more than one answer.
    if exchange.request.url != exchange.address or answer.status not in _STORABLE:
        return Cache()
    headers = answer.headers
    seconds = answer.seconds if isinstance(answer, KeptAnswer) else fresh_seconds(headers, time.time())
    is_for_all = exchange.call.principal is None and "public" in directives(headers.get("cache-control"))
    # An answer that differs by headers of the request may differ by those of a caller.
    return Cache(int(seconds * 1000), "public" if is_for_all and "vary" not in headers else "private")


def _key(exchange: ApiExchange) -> bytes:
    """Return the cache key of a request.

    It has all headers of the request, so that `Vary` needs no check.
    """
    request = exchange.signed
    digest = hashlib.sha256((principal_key(exchange.call.principal) or "").encode())
    digest.update(f"\0{request.method}\0{request.url}".encode(errors="replace"))
    for name in sorted(request.headers.keys() - _CHANGING):
        digest.update(f"\0{name}\0{request.headers[name]}".encode(errors="replace"))
    return digest.digest()
