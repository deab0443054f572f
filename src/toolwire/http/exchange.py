"""The answer of one HTTP exchange: a single JSON object, or an event stream from the first notification on."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextvars import Context
from functools import lru_cache
from typing import Any, Final

from msgspec import Raw

from toolwire.http.unsent_answers import PIECE_BYTES, PacedSend, UnsentAnswers
from toolwire.http1.asgi_types import Direct, Receive, SendMessage
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported
from toolwire.protocol.framing import encode_comment, encode_event
from toolwire.protocol.jsonrpc import RequestId, encode_notification
from toolwire.protocol.methods import OPTIONAL_NOTIFICATIONS
from toolwire.protocol.shaping import shape
from toolwire.util.out_queue import OutQueue
from toolwire.wire.answer import encode_stopped
from toolwire.wire.deadlines import Timeouts, in_time, timeouts
from toolwire.wire.shares import Caller, Shares

KEEP_ALIVE: Final = 15.0
#: How many seconds an exchange waits before it is looked at. Nearly all of them end before that.
LOOK_SECONDS: Final = 0.25
_JSON: Final = (b"content-type", b"application/json")
STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    # SSE-4: a proxy that buffers would hold everything back until the end.
    (b"x-accel-buffering", b"no"),
)


@lru_cache(maxsize=16)
def version_header(revision: str) -> tuple[bytes, bytes]:
    """Return the header that names the revision of an answer."""
    return (b"mcp-protocol-version", revision.encode())


@lru_cache(maxsize=64)
def _answer_headers(extra: tuple[tuple[bytes, bytes], ...], revision: str) -> tuple[tuple[bytes, bytes], ...]:
    return (_JSON, *extra, version_header(revision))


async def _receive_end() -> MutableMapping[str, Any]:
    return {"type": "http.disconnect"}


async def _send_nowhere(message: MutableMapping[str, Any]) -> None:
    """Drop what comes after the end of an exchange."""


class WaitingExchanges:
    """The exchanges of one loop whose handlers wait.

    Nearly all of them wait for milliseconds, so that beginning and ending to wait must be cheap. An exchange that
    begins is an entry in `fresh`, and one in the total of the shares. Those that are still there after `LOOK_SECONDS`
    are counted for their callers, and their silence is timed. When the shares become scarce, that happens at once.
    """

    __slots__ = ("_loop", "_since", "fresh", "is_looking", "lasting", "shares", "silences")

    def __init__(self, loop: asyncio.AbstractEventLoop, shares: Shares) -> None:
        self._loop = loop
        self._since = 0.0
        self.fresh: set[ExchangeOutlet] = set()
        self.lasting: set[ExchangeOutlet] = set()
        self.is_looking: bool = False
        """Whether a look at `fresh` is planned."""
        self.shares: Shares = shares
        self.silences: Timeouts = timeouts(loop, KEEP_ALIVE)
        shares.assign = self.look

    def look_later(self) -> None:
        self.is_looking = True
        # No exchange of the next look began earlier. So the silence of some is taken for a little longer than it is.
        self._since = self._loop.time()
        self._loop.call_later(LOOK_SECONDS, self._ring, context=Context())

    def _ring(self) -> None:
        self.is_looking = False
        self.look()

    def look(self) -> None:
        """Count and time the exchanges that still wait."""
        fresh = tuple(self.fresh)
        self.fresh.clear()
        for outlet in fresh:
            outlet.keeps_waiting(self._since)

    def give_up(self) -> None:
        """Answer all exchanges that wait with an error: the process ends."""
        for outlet in (*self.fresh, *self.lasting):
            if outlet.identifier is not None:
                outlet.give_up(encode_stopped(outlet.identifier))


class ExchangeOutlet:
    """The `Outlet` of an HTTP request. It sends nothing before there is a notification or an answer."""

    connection: Any = None
    is_local: bool = False

    # Defaults of the class, because most exchanges are one answer and touch none of them.
    disconnected: bool = False
    _queue: OutQueue | None = None
    _open: bool = True
    _streaming: bool = False
    _wake: asyncio.Event | None = None
    _pump: asyncio.Task[None] | None = None
    _watch: asyncio.Task[None] | None = None
    _task: asyncio.Task[Any] | None = None
    _silence: Timeouts | None = None
    _is_assigned: bool = False
    _is_broken_off: bool = False
    _is_given_up: bool = False
    _last_words: asyncio.Task[None] | None = None
    _answered: asyncio.Future[None] | None = None
    is_unsettled: bool = False
    """Whether `settle` has something to do."""

    def __init__(
        self,
        receive: Receive,
        send: SendMessage,
        revision: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        direct: Direct | None = None,
        only_stream: bool = False,
        waiting: WaitingExchanges | None = None,
        caller: Caller = None,
        unsent: UnsentAnswers | None = None,
        identifier: RequestId | None = None,
    ) -> None:
        """`only_stream`: the client accepts the answer as an event, and not as a JSON object. `waiting` counts the
        exchange for its caller when its handler waits for the first time. A handler that never waits is not counted,
        because nothing else runs on the loop meanwhile. `unsent` counts a large answer until it is sent; without it,
        `send` counts."""
        self._receive = receive
        self._send = send
        self._only_stream = only_stream
        self._waiting = waiting
        self._caller = caller
        self._unsent = unsent
        self._direct = direct
        self._revision = revision
        self._headers = headers
        self.identifier: RequestId | None = identifier

    # --- what a handler uses ---

    @property
    def answered(self) -> asyncio.Future[None]:
        if self._answered is None:
            self._answered = asyncio.get_running_loop().create_future()
            self.is_unsettled = True
        return self._answered

    @property
    def congested(self) -> bool:
        return self._queue is not None and self._queue.congested

    @property
    def full(self) -> bool:
        return self._queue is not None and self._queue.full

    @property
    def begun(self) -> bool:
        """Return whether a stream was begun, so that the status is sent already."""
        return self._pump is not None or self._is_given_up

    async def drain(self) -> None:
        if self._queue is not None and self._open:
            await self._queue.drain()

    def notify(self, method: str, params: t.Wire) -> bool:
        if not self._open or self.disconnected:
            return False
        queue = self._queue
        if queue is None:
            queue = self._queue = OutQueue()
        elif not queue.admits(method in OPTIONAL_NOTIFICATIONS):
            return False
        queue.put(encode_event(encode_notification(method, shape(params, self._revision))))
        self._start_pump()
        assert self._wake is not None
        self._wake.set()
        return True

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw:
        raise NotSupported("This connection has no way to ask the client")

    # --- what the application uses ---

    def waits(self) -> None:
        """Count the exchange, watch for a disconnect and send keep-alives from now on, because the handler waits."""
        self.is_unsettled = True
        waiting, direct = self._waiting, self._direct
        if waiting is not None:
            waiting.fresh.add(self)
            waiting.shares.total += 1
            if not waiting.is_looking:
                waiting.look_later()
        if direct is not None:
            direct.on_lost = self._lost
        else:
            loop = asyncio.get_running_loop()
            self._task = asyncio.current_task(loop)
            self._watch = loop.create_task(self._watch_disconnect())
        if waiting is None:
            self._time_silence(timeouts(asyncio.get_running_loop(), KEEP_ALIVE))

    def keeps_waiting(self, since: float) -> None:
        """Count the exchange for its caller, and time its silence, because the handler has waited for a while."""
        assert self._waiting is not None
        self._waiting.shares.assign_to(self._caller)
        self._is_assigned = True
        self._waiting.lasting.add(self)
        if self._open:
            if self._direct is not None:
                self._direct.watch()
            self._time_silence(self._waiting.silences, since)

    def _time_silence(self, silences: Timeouts, since: float | None = None) -> None:
        self._silence = silences
        silences.start(self._start_pump, since)

    def settle(self) -> None:
        """Stop counting the exchange, which is over, and let go of its task."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)
        if isinstance(self._send, PacedSend):
            self._send.release()
        waiting = self._waiting
        if self._is_assigned:
            assert waiting is not None
            waiting.shares.give_back(self._caller)
            waiting.lasting.discard(self)
            self._is_assigned = False
        elif waiting is not None and self in waiting.fresh:
            waiting.fresh.discard(self)
            waiting.shares.total -= 1
        # The contexts of these tasks have the call, and the call has this outlet: a cycle that keeps the answer.
        self._task = self._pump = None
        # So have those of a host that knows its task.
        self._receive, self._send = _receive_end, _send_nowhere

    async def _watch_disconnect(self) -> None:
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            return  # A task keeps the error that cancels it, and so the frames of the host, which may have the task.
        self._lost()

    def _lost(self) -> None:
        # HTTP-11: a client that closes the stream cancels its request.
        if self._open:
            self._lose_handler()

    def _lose_handler(self) -> None:
        """Cancel the handler, whose answer can no longer be sent."""
        self.disconnected = True
        self._open = False
        task = self._task if self._direct is None else self._direct.task
        if task is not None:
            task.cancel()

    def break_off(self) -> None:
        """End the stream without an answer, as a connection that breaks does: its client may ask again."""
        if self._open:
            self._is_broken_off = True
            self._lost()

    def give_up(self, body: bytes) -> None:
        """Answer at once with an error, and cancel the handler. Its own answer is dropped.

        The status is 200, as for the errors of handlers: a proxy may repeat a request after 503, and this one may have
        run.
        """
        if not self._open:
            return
        self._is_given_up = self.is_unsettled = True
        if not self.answer(200, body):
            self._last_words = asyncio.get_running_loop().create_task(self._finish(200, body))
        self._lose_handler()

    def _start_pump(self) -> None:
        if self._pump is None:
            self.is_unsettled = True
            self._wake = asyncio.Event()
            self._pump = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        assert self._wake is not None
        try:
            await self._start_stream()
            while True:
                # Before the looks, so that nothing that comes after them is missed: an event may come with the end.
                self._wake.clear()
                if self._queue:
                    data = self._queue.take_all()
                    await self._body(data)
                    self._queue.remove(len(data))
                elif not self._open:
                    return
                elif not await in_time(KEEP_ALIVE, self._wake.wait()):
                    await self._body(encode_comment("keep-alive"))
        except asyncio.CancelledError:
            pass  # As in _watch_disconnect.
        finally:
            if self._queue is not None:
                self._queue.close()

    async def _start_stream(self) -> None:
        if not self._streaming:
            self._streaming = True
            headers = [*STREAM_HEADERS, *self._headers, version_header(self._revision)]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _body(self, data: bytes, more: bool = True) -> None:
        if len(data) > PIECE_BYTES:
            self._pace()
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _pace(self) -> None:
        if self._unsent is not None:
            task = self._task if self._direct is None else self._direct.task
            self._send, self._unsent = PacedSend(self._send, self._unsent, self._caller, task), None

    def hold(self, identifier: RequestId, body: bytes) -> bytes:
        """Count an answer until it is sent; return it, or an error in its place where it has to be dropped."""
        if len(body) > PIECE_BYTES:
            self._pace()
            self.is_unsettled = True
            if isinstance(self._send, PacedSend):
                return self._send.hold(identifier, body)
        return body

    def answer(self, status: int, body: bytes) -> bool:
        """Answer with one JSON object at once; return False where `finish` has to be awaited."""
        if self._direct is None or self._pump is not None or self._only_stream or len(body) > PIECE_BYTES:
            return False
        self._open = False
        if self._silence is not None:
            self._silence.stop(self._start_pump)
        return self._direct.answer(status, _answer_headers(self._headers, self._revision), body)

    async def finish(self, status: int, body: bytes) -> None:
        """Send the answer: as the last event of a stream that was begun, otherwise as one JSON object."""
        if self._is_given_up:
            await self.abandon()  # The handler did not heed its cancellation.
        else:
            await self._finish(status, body)

    async def _finish(self, status: int, body: bytes) -> None:
        if self._only_stream and status == 200:
            self._start_pump()
        self._open = False
        self._stop_watching()
        if self._pump is not None:
            assert self._wake is not None
            self._wake.set()
            await self._pump
            await self._body(encode_event(body), more=False)
            return
        headers = [*_answer_headers(self._headers, self._revision), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._body(body, more=False)

    async def abandon(self) -> None:
        """Send nothing more, because the client has disconnected or gets another answer."""
        self._open = False
        self._stop_watching()
        if self._last_words is not None:
            await asyncio.wait({self._last_words})
        elif self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def was_left(self) -> bool:
        """Give up after a cancellation; return whether the end of the stream was the reason, so that all is done."""
        await self.abandon()
        task = asyncio.current_task()
        if not self.disconnected or task is None:
            return False
        task.uncancel()
        if self._is_broken_off:
            await self._start_stream()
            await self._body(b"", more=False)
        return True

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None  # The cancelled task keeps its frame, and so this outlet.
        if self._silence is not None:
            self._silence.stop(self._start_pump)
