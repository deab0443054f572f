"""The client's side of Streamable HTTP in both eras: each request is a POST; the answer is JSON or a stream.

On 2026-07-28 a client cancels a request by closing the response, and a stream that breaks off is lost. Before that, a
request outlives its connection: a notification cancels it, and the client resumes a stream with event ids by GET.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from msgspec import Raw, Struct

from toolwire.http.client.channel import EVENT_STREAM, LONGEST_ASKED, HttpChannel
from toolwire.http.client.endpoint import ERROR_BODY, TURNED_AWAY, Endpoint
from toolwire.http.client.event_reader import EventReader
from toolwire.http.client.turns import RequestTurns
from toolwire.http1.response import CrossedClosing, HttpResponse, Lost, StartedResponse, TooLarge
from toolwire.protocol.errors import (
    InvalidResponse,
    NotStreamable,
    OutcomeUnknown,
    Timeout,
    TransportError,
    Unreachable,
)
from toolwire.protocol.framing import OversizedEvent
from toolwire.protocol.http import SESSION, repeated_name, standard_headers
from toolwire.protocol.jsonrpc import RequestId, encode_request
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.peer import Peer
from toolwire.util.backoff import Backoff
from toolwire.wire.session import ClientHandler, OnProgress, Session
from toolwire.wire.shares import Shares

log: logging.Logger = logging.getLogger("toolwire.http")

#: The number of times in a row that a stream is resumed without bringing an event.
MAX_RESUMES: Final = 5
# 2025-11-25 basic/transports, backwards compatibility: these statuses of `initialize` mean an older transport.
_OLD_TRANSPORT: Final = frozenset({400, 404, 405})
# Requests that may be sent twice, because nothing has begun yet.
_OPENING: Final = frozenset({"server/discover", "initialize"})
# Connections that no call uses: one for notifications and answers, one for the server's own stream, one for a health
# check. Without the first two, a server that asks a question before it answers would wait for ever, because our answer
# would wait for a connection. Without the third, many slow calls would look like a server that is down.
SPARE: Final = 3
# Requests that find out whether the server works. Where all turns are taken, one of them at a time needs none.
_CHECKS: Final = frozenset({"server/discover", "ping"})


class Exchange(Struct, eq=False):
    """A request of ours while its answer is read, in the task of the caller.

    Inside `with exchange:`, `interrupt` can stop that task.
    """

    _session: HttpSession
    identifier: RequestId
    method: str
    seconds: float | None
    on_progress: OnProgress | None
    done: bool = False
    result: Raw | None = None
    error: BaseException | None = None
    expires: float = math.inf
    ceiling: float = math.inf
    pauses: int = 0
    left: float = math.inf
    reader: EventReader | None = None
    """Reads the stream of the answer; None before it is there."""
    response: StartedResponse | None = None
    """The answer that is waited for, outside of `with exchange:`."""
    has_own_place: bool = False
    """Whether it has the connection for health checks, and no turn."""
    refuse_unsent: Callable[[], BaseException] | None = None
    """Makes the error of a request whose time is over before its turn; None for `Timeout`."""
    _task: asyncio.Task[Any] | None = None
    _cancelling: int = 0
    _interruption: BaseException | None = None

    def __repr__(self) -> str:
        return object.__repr__(self)  # The result stays out of logs.

    def __enter__(self) -> None:
        if self._interruption is not None:
            raise self._interruption
        task = self._task = asyncio.current_task(self._session.loop)
        self._cancelling = 0 if task is None else task.cancelling()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        why = self._interruption
        # As in `asyncio.timeout`: `interrupt` stopped the task, unless somebody else cancelled it, too.
        if why is not None and task is not None and task.uncancel() <= self._cancelling and kind is CancelledError:
            raise why from None

    def interrupt(self, error: BaseException) -> bool:
        """Stop the task that reads the answer, with this error; return False if there is nothing to stop."""
        if self.done or self._interruption is not None or (self._task is None and self.response is None):
            return False
        if self.refuse_unsent is not None and isinstance(error, Timeout):
            error = self.refuse_unsent()
        self.seconds, self.expires = None, math.inf
        self._interruption = error
        if self._task is not None:
            self._task.cancel()
        elif self.response is not None:
            self.response.give_up(error)
        return True

    def resolve(self, result: Raw | None, error: BaseException | None) -> None:
        self.done, self.result, self.error = True, result, error

    # --- questions of the server in the stream of the answer (`channel.Asking`) ---

    @property
    def in_flight(self) -> bool:
        return not self.done and self._session.peer.outgoing.get(self.identifier) is self

    def fail(self, error: BaseException) -> None:
        self._session.give_up(self, error, "The answer to a question was lost")

    # --- the clock, which stands still during a sign-in ---

    def pause(self) -> None:
        self._session.deadlines.pause(self)

    def resume(self) -> None:
        self._session.deadlines.resume(self)


class HttpSession(Session):
    """A `Session` that sends each request as an `Exchange`, and everything else through its `HttpChannel`."""

    channel: HttpChannel

    def __init__(
        self, endpoint: Endpoint, lifecycle: ClientLifecycle, handler: ClientHandler, ceiling: float, name: str = ""
    ) -> None:
        """`name` stands for the server in the log."""
        channel = HttpChannel(endpoint, handler.missed)
        super().__init__(channel, Peer(lifecycle), handler, ceiling=ceiling, texts=endpoint.texts, peer_name=name)
        self._endpoint = endpoint
        self._closed_early = handler.closed_early
        self._behind = handler.behind
        # Set when nothing is in flight any more; None while nobody waits for that.
        self._idle: asyncio.Event | None = None
        self.leaves_requests: bool = False
        """Whether requests that end here go on in another process, so that the server is not told to cancel them."""
        at_once = endpoint.pool.at_once
        self.places: int | None = None if at_once is None else max(1, at_once - SPARE)
        """How many requests are sent at once; None for any number."""
        limit = sys.maxsize if self.places is None else self.places
        self.turns: RequestTurns = RequestTurns(Shares(limit, 1.0, "requests"))
        self._check_turns = RequestTurns(Shares(1, 1.0, "checks"))

    async def finished(self) -> None:
        """Wait until nothing is in flight."""
        while self.peer.outgoing:
            self._idle = self._idle or asyncio.Event()
            self._idle.clear()
            await self._idle.wait()

    def _fail_outgoing(self) -> None:
        # An exchange has its own connection and notices its end. Only closing the session ends all exchanges.
        if self._closed:
            for exchange in list(self.peer.outgoing.values()):
                if exchange.interrupt(OutcomeUnknown(f"The client was closed before {exchange.method} was answered")):
                    self._tell_given_up(exchange, "The connection is closing")

    async def request(
        self,
        method: str,
        params: Any,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        identifier: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw | None:
        if self._ended.done() or self._closed:
            raise Unreachable("The connection is closed")
        if identifier is None:
            identifier = self.peer.next_id()
        exchange = Exchange(self, identifier, method, timeout, on_progress)
        sent = self._headers(method, params)
        if headers:
            sent.update(headers)
            self._endpoint.texts.note_request(headers)
        body = self.peer.request(identifier, method, params, exchange)
        if timeout is not None:
            self.deadlines.start(exchange)
        turns = self.turns
        try:
            with exchange:
                if not turns.take():
                    turns = await self._wait_for_turn(exchange)
                try:
                    await self._exchange(exchange, sent, body)
                finally:
                    turns.give_back(identifier)
        except CancelledError:
            self._tell_given_up(exchange, "The caller gave up")
            raise
        finally:
            self.peer.forget(identifier)
            if self._idle is not None and not self.peer.outgoing:
                self._idle.set()
        if exchange.error is not None:
            raise exchange.error
        return exchange.result

    async def _wait_for_turn(self, exchange: Exchange) -> RequestTurns:
        """Wait for a turn; return the turns that it is given back to."""
        turns = self.turns
        if exchange.method in _CHECKS:
            exchange.has_own_place = True
            turns = self._check_turns
            if turns.take():
                return turns
        await turns.wait(exchange)
        return turns

    def _headers(self, method: str, params: Any) -> dict[str, str]:
        headers = self.channel.request_headers(method)
        if self.channel.modern or method == "server/discover":
            headers.update(standard_headers(method, params))
        return headers

    async def forward(
        self, method: str, params: Raw | Mapping[str, Any], timeout: float | None, identifier: RequestId
    ) -> Raw | None:
        channel, endpoint, response = self.channel, self._endpoint, None
        if channel.modern and endpoint.tap is None and not (channel.unsettled or self._closed or self._ended.done()):
            key = (method, repeated_name(method, params))
            head = endpoint.heads.get(key) or endpoint.head(key, self._headers(method, params))
            if head is not None and self.turns.take():
                body = encode_request(identifier, method, params)
                response = endpoint.pool.post(endpoint.url, head, body)
                if response is None:
                    self.turns.give_back(identifier)
        if response is None:
            return await self.request(method, params, timeout, None, identifier)
        exchange = Exchange(self, identifier, method, timeout, None, response=response)
        self.peer.outgoing[identifier] = exchange
        if timeout is not None:
            self.deadlines.start(exchange)
        try:
            answer = await response.began
            if answer is None or len(answer) > endpoint.limit:
                answer = self._whole(response)
            if answer is not None:
                result = self.peer.result_of(answer, identifier)
                if result is not None:
                    return result
                self._single(exchange, response, answer)
            else:
                with exchange:
                    settled = await endpoint.settled(response, self._headers(method, params), body)
                    await self._read(exchange, settled, in_session=False)
        except Lost as lost:
            raise lost.outcome(response.url, reused=True) from None
        except BaseException:
            # HTTP-12: the closed connection cancels the request.
            response.close()
            raise
        finally:
            self.turns.give_back(identifier)
            self.peer.forget(identifier)
            if self._idle is not None and not self.peer.outgoing:
                self._idle.set()
        if exchange.error is not None:
            raise exchange.error
        return exchange.result

    async def follow(
        self,
        identifier: RequestId,
        method: str,
        last_event_id: str,
        messages: Sequence[bytes],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Raw | None:
        """Wait for the answer to a request that another process sent in this session, on the rest of its stream.

        `messages` came before `last_event_id`. They are taken once more when the stream is there.
        """
        exchange = Exchange(self, identifier, method, timeout, on_progress)
        if timeout is not None:
            self.deadlines.start(exchange)
        self.peer.outgoing[identifier] = exchange
        try:
            with exchange:
                response = await self._resume(exchange, last_event_id, None, Backoff(MAX_RESUMES))
                for message in messages:
                    self._accept(exchange, message)
                await self._follow(exchange, response, last_event_id)
        except CancelledError:
            self._tell_given_up(exchange, "The caller gave up")
            raise
        finally:
            self.peer.forget(identifier)
            if self._idle is not None and not self.peer.outgoing:
                self._idle.set()
        if exchange.error is not None:
            raise exchange.error
        return exchange.result

    def position(self, identifier: RequestId) -> str:
        """Return the last event id in the stream of a request; empty where the stream cannot be resumed."""
        exchange: Exchange | None = self.peer.outgoing.get(identifier)
        reader = None if exchange is None or self.channel.modern else exchange.reader
        return "" if reader is None else reader.last_event_id

    def _tell_given_up(self, exchange: Exchange, reason: str) -> None:
        # HTTP-12: on 2026-07-28 the closed connection cancels. Before, a disconnect cancels nothing (1.5.1).
        if not self.channel.modern and self.channel.revision is not None and not self.leaves_requests:
            self._tell_cancelled(exchange.identifier, exchange.method, reason)

    def give_up(self, request: Any, error: BaseException, reason: str) -> None:
        if request.interrupt(error):
            self._tell_given_up(request, reason)

    # --- one exchange ---

    async def _exchange(self, exchange: Exchange, headers: Mapping[str, str], body: bytes) -> None:
        channel = self.channel
        if channel.unsettled:
            await channel.settled()  # Messages that were sent before this request arrive before it.
        if self._endpoint.tap is not None:
            self._endpoint.tap("→", body)
        try:
            response = await self._endpoint.send("POST", headers, body, exchange)
        except CrossedClosing:
            if exchange.method not in _OPENING:
                raise
            response = await self._endpoint.send("POST", headers, body, exchange)
        answer = self._whole(response)
        if answer is None:
            await self._read(exchange, response, in_session=SESSION in headers)
        else:
            self._begin(exchange, response)
            self._single(exchange, response, answer)

    def _whole(self, response: HttpResponse) -> bytes | None:
        """Return an answer that is one message and there already; None where `_read` has to be awaited."""
        if not 200 <= response.status < 300 or response.media_type == EVENT_STREAM:
            return None
        return response.whole(self._endpoint.limit)

    async def _read(self, exchange: Exchange, response: HttpResponse, *, in_session: bool) -> None:
        """Read an answer as it arrives: a stream, one message, or a refusal."""
        is_answer = 200 <= response.status < 300
        if is_answer and response.media_type == EVENT_STREAM:
            await self._follow(exchange, response)
            return
        try:
            if is_answer:
                self._begin(exchange, response)
                self._single(exchange, response, await response.read(self._endpoint.limit))
            else:
                await self._refused(exchange, response, in_session)
        finally:
            _release(exchange, response)

    def _begin(self, exchange: Exchange, response: HttpResponse) -> None:
        if exchange.method == "initialize":
            self.channel.begin(response.header(SESSION))

    def _single(self, exchange: Exchange, response: HttpResponse, answer: bytes) -> None:
        """Take an answer that is one message."""
        self._accept(exchange, answer)
        if not exchange.done:
            what = "nothing" if not answer else "something else than an answer to it"
            broken = InvalidResponse(f"The server answered {exchange.method} with {what} (status {response.status})")
            broken.status = response.status
            raise broken

    async def _refused(self, exchange: Exchange, response: HttpResponse, in_session: bool) -> None:
        """Raise or keep the error of a refused request: the one in the body, or else that of the status (HTTP-13)."""
        if in_session and response.status == 404:
            # 2025-03-26 basic/transports, session management: start over without the id. Nothing was done here.
            raise self._session_gone()
        try:
            body = await response.read(ERROR_BODY) if response.media_type == "application/json" else b""
        except TooLarge:
            body = b""
        if body:
            self._accept(exchange, body)
        if exchange.done and in_session and response.status == 400 and "session" in str(exchange.error).lower():
            # Servers made after the official TypeScript example answer 400 for a session that is gone.
            raise self._session_gone()
        if exchange.method == "initialize" and response.status in _OLD_TRANSPORT:
            refusal = NotStreamable(str(exchange.error or await self._endpoint.failure(response)))
            refusal.status, refusal.url = response.status, response.url
            raise refusal
        # A busy server says when to come back, also with a message in the body.
        if not exchange.done or (response.status in TURNED_AWAY and response.retry_after is not None):
            raise await self._endpoint.failure(response)

    def _session_gone(self) -> Unreachable:
        self.channel.forget_session()
        self.end()
        return Unreachable("The server has ended the session")

    # --- streams ---

    async def _follow(self, exchange: Exchange, response: HttpResponse, last_event_id: str = "") -> None:
        """Read a stream up to the answer, and resume it when it breaks off, if that is possible."""
        backoff = Backoff(MAX_RESUMES)
        retry: int | None = None
        while True:
            decoder = exchange.reader = EventReader(self._endpoint.limit, last_event_id)
            broken: TransportError | None = None
            opened_at = self.loop.time()
            try:
                self._begin(exchange, response)
                await self._read_events(exchange, response, decoder, backoff)
            except OutcomeUnknown as error:
                if isinstance(error, InvalidResponse):
                    raise
                broken = error
            finally:
                _release(exchange, response)
            if exchange.done:
                return
            last_event_id = decoder.last_event_id
            retry = retry if decoder.retry is None else decoder.retry
            backoff.settle(self.loop.time() - opened_at)
            if self.channel.modern or not last_event_id:
                # SSE-7: a stream of 2026-07-28 that broke off cannot be resumed.
                raise broken or OutcomeUnknown(f"The server ended its stream before it answered {exchange.method}")
            if broken is None:
                await self._closed_early(exchange.identifier, retry)
            response = await self._resume(exchange, last_event_id, retry, backoff)

    async def _read_events(
        self, exchange: Exchange, response: HttpResponse, decoder: EventReader, backoff: Backoff
    ) -> None:
        """Read the messages of a stream, up to the answer or the end."""
        async for chunk in response.chunks():
            for each in decoder.feed(chunk):
                backoff.ease()
                if isinstance(each, OversizedEvent):
                    raise TooLarge(f"An event of the answer has more than {self._endpoint.limit} bytes")
                if each.data and each.event == "message":
                    self._accept(exchange, each.data.encode())
                    if exchange.done:
                        return
            if (behind := self._behind(exchange.identifier)) is not None:
                await behind  # Meanwhile the server notices that nothing is read from this stream.

    async def _resume(
        self, exchange: Exchange, last_event_id: str, retry: int | None, backoff: Backoff
    ) -> HttpResponse:
        """Resume a stream by GET with the last event id, after the time that the server named.

        2025-11-25 basic/transports, resumability.
        """
        asked = 0.0
        while True:
            if backoff.exhausted:
                raise OutcomeUnknown(f"The stream of {exchange.method} broke off and could not be taken up again")
            await asyncio.sleep(max(backoff.after(retry), asked))
            asked = 0.0
            headers = self.channel.resume_headers(exchange.method, last_event_id)
            try:
                response = await self._endpoint.send("GET", headers, None, exchange)
            except TransportError as error:
                if isinstance(error, InvalidResponse):
                    raise
                log.debug("a stream could not be taken up again yet: %s", error)
                continue
            if response.status == 200 and response.media_type == EVENT_STREAM:
                return response
            response.close()
            # 429 passes, as all statuses from 500 on do.
            if response.status < 500 and response.status != 429:
                if response.status == 404 and SESSION in headers:
                    self._session_gone()
                # 3.4.4.9: the answer cannot come any more, so the request ends.
                raise OutcomeUnknown(f"The stream of {exchange.method} broke off for good (status {response.status})")
            asked = min(response.retry_after or 0.0, LONGEST_ASKED)

    def _accept(self, exchange: Exchange, data: bytes) -> None:
        if self._endpoint.tap is not None:
            self._endpoint.tap("←", data)
        self.channel.asking = exchange
        try:
            self.feed(data, exchange.identifier)
        finally:
            self.channel.asking = None


def _release(exchange: Exchange, response: HttpResponse) -> None:
    """Let a response go after its answer, when only its end can follow; before the answer, close it to cancel."""
    if exchange.done:
        response.let_go()
    else:
        response.close()
