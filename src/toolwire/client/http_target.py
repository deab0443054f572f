"""A server that is reached by URL: the transport that it speaks there, and what the client remembers of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from copy import copy
from typing import Final
from urllib.parse import SplitResult, urlsplit

from toolwire.auth.contract import Auth, as_auth
from toolwire.client.target import (
    NO_VERDICT,
    START_SECONDS,
    Link,
    Target,
    Verdict,
    fingerprint,
    valid_kind,
)
from toolwire.http.client.endpoint import Endpoint, OnResponse
from toolwire.http.client.http_sse_2024 import SseClientChannel
from toolwire.http.client.session import SPARE, HttpSession
from toolwire.http1.pool import CONNECTIONS, HttpPool, Pool
from toolwire.http1.response import MalformedResponse
from toolwire.http1.url import parse_url
from toolwire.printable import is_printable
from toolwire.protocol.errors import InvalidResponse, ProtocolError, TransportError
from toolwire.protocol.framing import EVENT_LIMIT
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.lifecycle.negotiation import Ask, Outcome
from toolwire.server_texts import ServerTexts
from toolwire.util.expiring import Expiring
from toolwire.wire.session import ClientHandler, Session
from toolwire.wire.tapped_channel import Tap

# ERA-10: the kind of server at each endpoint, for all clients of this process. Modern servers are not listed.
_MAX_VERDICTS: Final = 1_000
_verdicts: Expiring[str, Verdict] = Expiring(_MAX_VERDICTS)
# How long a server may take to say what it is. After half of that the older handshake is tried beside the question.
SILENCE_SECONDS: Final = 30.0
# Statuses of a web server that has no such address, or knows no POST there.
_NO_SERVER: Final = frozenset({404, 405, 410, 501})


def split_server_url(url: str) -> SplitResult:
    """Split the URL of a server; raise `ValueError` for one that cannot be requested."""
    try:
        if not is_printable(url):  # Python's parser leaves line breaks out without a word.
            raise ValueError
        parse_url(url)
        return urlsplit(url)
    except ValueError:
        told = "it starts with http:// or https://, a host and at most a port, without control characters"
        raise ValueError(f"{url[:200]!r} is not the URL of a server: {told}") from None


class HttpTarget(Target):
    transport = "http"
    restartable = True
    comes_back = True

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: str | Auth | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        pool: Pool | None = None,
        tap: Tap | None = None,
        on_response: OnResponse | None = None,
        limit: int = EVENT_LIMIT,
    ) -> None:
        parts = split_server_url(url)
        if parts.username is not None or parts.password is not None:
            raise ValueError("Credentials do not belong into the URL: use auth= or headers=")
        self.label: str = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._url = url
        self._headers = dict(headers or {})
        self._auth = as_auth(auth, url)
        self._tls = tls
        self._proxy = proxy
        self._pool = pool
        self._tap = tap
        self._on_response = on_response
        self._limit = limit
        self._connections = CONNECTIONS
        self._texts = ServerTexts()
        self._texts.note_settings(headers=self._headers, url=url)

        # With a pool of the user's own, a URL need not mean the same server elsewhere.
        self._verdicts = _verdicts if pool is None else Expiring[str, Verdict](_MAX_VERDICTS)

    @property
    def url(self) -> str:
        return self._url

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses that requests are sent to: one, unless the server has several."""
        return (self._url,)

    def signed_by(self, auth: Auth) -> HttpTarget:
        """Return the same place, with requests that another object signs."""
        signed = copy(self)
        signed._auth = auth
        return signed

    def without_quotes(self) -> HttpTarget:
        """Return the same place, whose errors say nothing that the server said."""
        quiet = copy(self)
        quiet._texts = self.texts.without_quotes()
        return quiet

    def with_places(self, calls: int) -> HttpTarget:
        """Return the same place, with connections for so many calls at once."""
        if self._pool is not None:
            return self
        larger = copy(self)
        larger._connections = calls + SPARE
        return larger

    @property
    def verdict(self) -> str | None:
        return valid_kind(self._verdicts.get(self._url))

    @verdict.setter
    def verdict(self, verdict: str | None) -> None:
        if verdict is None:
            self._verdicts.pop(self._url)
        else:
            self._verdicts.put(self._url, Verdict(verdict))

    @property
    def identity(self) -> object:
        return self._url if self._pool is None else self

    @property
    def address(self) -> str:
        query = urlsplit(self._url).query
        return f"{self.label}?{fingerprint(query)}" if query else self.label

    async def open(self) -> Link:
        pool = self._pool or HttpPool(tls=self._tls, proxy=self._proxy, connections=self._connections)
        endpoint = Endpoint(
            pool,
            self._url,
            headers=self._headers,
            auth=self._auth,
            tap=self._tap,
            on_response=self._on_response,
            limit=self._limit,
            texts=self.texts,
        )
        owned = None if self._pool is not None else pool
        if self.verdict != "sse":
            return _HttpLink(endpoint, self.label, owned)
        return _SseLink(SseClientChannel(endpoint), self.label, self.texts, owned)

    def explain(self, error: TransportError | InvalidResponse) -> None:
        if error.status is None or (isinstance(error, TransportError) and error.status not in _NO_SERVER):
            return
        text = str(error)
        if not text.startswith("No MCP server at "):
            path = urlsplit(self._url).path
            hint = "" if path.endswith("/mcp") or "/mcp" in text else ". The path of a server is usually /mcp"
            error.args = (f"No MCP server at {self.label}: {text}{hint}", *error.args[1:])


class _SseLink(Link):
    carries_headers = False

    def __init__(self, channel: SseClientChannel, label: str, texts: ServerTexts, pool: Pool | None) -> None:
        super().__init__(channel, label, texts)
        self._sse = channel
        self._pool = pool

    async def connect(self, seconds: float | None) -> None:
        await self._sse.connect(seconds)

    async def close(self) -> None:
        await self.channel.close()
        if self._pool is not None:
            await self._pool.close()

    @property
    def fault(self) -> TransportError | None:
        return self._sse.error

    async def last_words(self) -> str:
        return str(self._sse.error or f"{self.label} ended the stream")


class _HttpLink(Link):
    """A link with a connection for each request, so that a failure in one ends no other."""

    duplex = False
    carries_headers = True

    def __init__(self, endpoint: Endpoint, label: str, pool: Pool | None) -> None:
        self._endpoint = endpoint
        self._pool = pool
        self.label = label
        self.texts = endpoint.texts

    def tap(self, tap: Tap) -> None:
        self._endpoint.tap = tap

    def session(self, lifecycle: ClientLifecycle, handler: ClientHandler, ceiling: float) -> Session:
        session = HttpSession(self._endpoint, lifecycle, handler, ceiling, self.name)
        self.channel = session.channel
        return session

    async def close(self) -> None:
        await self.channel.close()
        if self._pool is not None:
            await self._pool.close()

    async def probe(self, session: Session, ask: Ask, seconds: float, timeout: float | None) -> Outcome:
        """2026-07-28 basic/versioning, HTTP: take a status without a modern error for an older server.

        Failures of the network or the server are outages. They say nothing about the revision. Neither does a refusal
        of the caller (401, 403): the server behind it may be modern. Some older servers never answer a method that
        they do not know. So after a while `initialize` is sent, and the question stays open: its answer still counts.
        """
        longest = max(seconds, SILENCE_SECONDS)
        longest = longest if timeout is None else min(longest, timeout)
        self._probe = session.peer.next_id()
        asking = asyncio.ensure_future(self._ask(session, ask, START_SECONDS + longest))

        def is_signing_in() -> bool:
            question = session.peer.outgoing.get(self._probe)
            return question is not None and question.pauses

        if await self._await_answer(session, asking, longest / 2, is_signing_in):
            return asking.result()
        self._leave_open(asking)
        return None

    async def _ask(self, session: Session, ask: Ask, timeout: float) -> Outcome:
        try:
            return await session.request(ask.method, ask.params, timeout, identifier=self._probe)
        except ProtocolError as error:
            return error
        except MalformedResponse:
            raise  # It says nothing about the revision.
        except InvalidResponse:
            return None
        except TransportError as error:
            if error.status is not None and 400 <= error.status < 500 and error.status not in NO_VERDICT:
                return None
            raise
