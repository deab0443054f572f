"""The client side of one HTTP/1.1 connection, one request at a time.

The parser is httptools.

The answer is handed over when its headers are there, and its body piece by piece; a reader that is behind holds the
server back. A caller that gives up closes the connection, which is how the other side learns of it. Headers are bounded
in size and number, and so are the bytes between the pieces of a body.
"""

from __future__ import annotations

import asyncio
import os
import select
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import httptools

from toolwire.base_errors import OutcomeUnknown
from toolwire.http1.response import Lost, MalformedResponse, StartedResponse, joined
from toolwire.http1.unpacking import Unpacker
from toolwire.http1.url import origin

HEADER_BYTES: Final = 64 * 1024
HEADER_COUNT: Final = 200
#: How much is read at once; little, because every open stream keeps a buffer of that size. Without one of our own,
#: asyncio makes 256 KiB for every piece that arrives, which takes longer than reading it.
READ_BYTES: Final = 16 * 1024
#: How much of a body is held for its reader.
HELD_BYTES: Final = 256 * 1024
# How long the end of an answer may take of which nothing but the end is wanted, and how long it may be.
END_SECONDS: Final = 0.5
END_BYTES: Final = 4_096
_NO_LENGTH: Final = frozenset({204, 304})
# Other clients take these from a server, too; neither makes it unclear where an answer ends.
_LENIENCIES: Final = {"lenient_optional_cr_before_lf": True, "lenient_spaces_after_chunk_size": True}


def _readability(fd: int) -> Callable[[], bool]:
    """Return a function that says whether a socket has unread bytes or has ended."""
    if sys.platform == "win32":
        return lambda: bool(select.select([fd], [], [], 0)[0])
    watched = select.poll()
    watched.register(fd, select.POLLIN)
    return lambda: bool(watched.poll(0))


class _UsualHead(NamedTuple):
    """The parsed head of an answer and the length of its body."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    by_name: Mapping[bytes, bytes]
    length: int
    is_message: bool
    """Whether the answer is a success, and no stream of events."""

    def __repr__(self) -> str:
        return f"_UsualHead({self.status}, {self.length} bytes)"


# The heads of answers in one piece, by their bytes. A server sends the same again and again, until its clock moves.
_usual_heads: Final[dict[bytes, _UsualHead]] = {}
_MANY_HEADS: Final = 256
_SHORT_HEAD: Final = 2_048
_NEVER_USUAL: Final = frozenset({b"transfer-encoding", b"content-encoding"})


class HttpConnection(asyncio.BufferedProtocol):
    """A client connection to `to`, which runs one request at a time.

    It calls `idle` when it can be used again, and `gone` when it has closed.
    """

    __slots__ = (
        "_alarm",
        "_began",
        "_buffer",
        "_complete",
        "_end_bytes",
        "_expects_usual",
        "_gone",
        "_headers",
        "_idle",
        "_interim",
        "_keep_alive",
        "_loop",
        "_method",
        "_parser",
        "_paused",
        "_readable",
        "_response",
        "_unfinished",
        "_until_close",
        "idle_since",
        "lost",
        "to",
        "transport",
        "used",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        to: Any,
        idle: Callable[[HttpConnection], None],
        gone: Callable[[HttpConnection], None],
    ) -> None:
        self.to: Any = to
        self.transport: asyncio.Transport
        self.lost: bool = False
        self.used: bool = False
        self.idle_since: float = 0.0
        self._loop = loop
        self._idle = idle
        self._gone = gone
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_LENIENCIES)
        self._buffer = memoryview(bytearray(READ_BYTES))
        # The answer that is being read, and who waits for its headers.
        self._response: StreamedResponse | None = None
        self._began: asyncio.Future[bytes | None] | None = None
        self._method = ""
        self._headers: list[tuple[bytes, bytes]] = []
        self._interim = False
        self._complete = False
        self._keep_alive = False
        self._until_close = False
        # Bytes that have come and belong to no body: headers, trailers, what is around chunks.
        self._unfinished = 0
        # Whether the answer most likely has a head that was read before, and nothing of it has come yet.
        self._expects_usual = False
        self._paused = False
        self._alarm: asyncio.TimerHandle | None = None
        self._end_bytes = 0

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._readable = _readability(transport.get_extra_info("socket").fileno())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._until_close and exc is None and self._response is not None:
            self._response.end()
            self._response = None
        self.lost = True
        self._fail("it was closed by the server" if exc is None else reason(exc))
        self._parser = None  # It holds on to this object.
        self._gone(self)

    def is_usable(self) -> bool:
        """Return whether a request can be sent.

        Bytes between answers mean the end of the connection.
        """
        return self._response is None and not self.transport.is_closing() and not self._readable()

    def abort(self, why: str = "it was closed", *, malformed: bool = False) -> None:
        """Cut the connection, and tell the requests that wait on it why.

        `malformed`: the server sent bytes that are not an answer, and would do so again.
        """
        self._fail(why, malformed)
        self.transport.abort()

    def _fail(self, why: str, malformed: bool = False) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        response, self._response = self._response, None
        began, self._began = self._began, None
        if response is not None:
            response.break_off(why, malformed)
        if began is not None and not began.done():
            silent = not (self._unfinished or self._headers or self._interim)
            began.set_exception(Lost(why, silent, malformed))

    # --- one exchange ---

    def start(self, method: str, url: str, request: bytes, *, is_usual: bool = False) -> StreamedResponse:
        """Send a request.

        The headers of the answer have arrived when its `began` is done.

        `is_usual`: there are many of this kind, so that the answer most likely looks like earlier ones.
        """
        began = self._loop.create_future()
        self._response = response = StreamedResponse(self, url, began)
        self._began = began
        self.used = True
        self._method = method
        self._unfinished = 0
        self._headers = []
        self._expects_usual = is_usual
        self.transport.write(request)
        return response

    async def exchange(self, method: str, url: str, request: bytes) -> StreamedResponse:
        """Send a request. Return the answer when its headers are there."""
        response = self.start(method, url, request)
        try:
            await response.began
        except asyncio.CancelledError:
            response.close()
            raise
        return response

    def _finish_response(self) -> None:
        """Finish the request: end its response and make the connection usable again."""
        response, self._response = self._response, None
        self._complete = False
        self.read_on()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if response is not None:
            response.end()
        self._go_on()

    def _go_on(self) -> None:
        """Wait for the next request, or close."""
        # An answer that came before all of the request was sent leaves a rest that is of no use.
        if self._keep_alive and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._idle(self)
        else:
            self.transport.abort()  # Closing would wait until the server has read the rest, or ended TLS as well.

    def await_end(self) -> None:
        """Read and discard the rest of an answer, if it is short and comes soon."""
        if self._response is not None and self._alarm is None:
            self._end_bytes = END_BYTES
            self._alarm = self._loop.call_later(END_SECONDS, self.abort)
            self.read_on()

    # --- what arrives ---

    def hold_back(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._parser is None:
            return
        is_first = False
        if self._expects_usual:
            # Nothing of the answer has come before this.
            self._expects_usual = False
            if self._is_usual(nbytes):
                return
            is_first = True
        self._unfinished += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What follows a complete answer is not part of it.
            if self._complete:
                self._keep_alive = False
            else:
                self.abort(f"it is not HTTP/1.1 ({error.__context__ or error})", malformed=True)
        if self._complete:
            if is_first and self._keep_alive:
                self._remember(nbytes)
            self._finish_response()
        elif self._unfinished > HEADER_BYTES:
            self.abort(_TOO_LONG, malformed=True)

    def _is_usual(self, nbytes: int) -> bool:
        """Read an answer from the cache of heads. Return False where it is not there.

        The same bytes mean the same, so that the parser need not see them again.
        """
        head, _, body = bytes(self._buffer[:nbytes]).partition(b"\r\n\r\n")
        known = _usual_heads.get(head)
        response, began = self._response, self._began
        if known is None or len(body) != known.length or response is None or began is None:
            return False
        response.status, response.fields, response.by_name, _, is_message = known
        response.set_whole_body(body)
        self._response = self._began = None
        self._keep_alive = True
        if not began.done():
            began.set_result(body if is_message else None)
        self._go_on()
        return True

    def _remember(self, nbytes: int) -> None:
        """Cache the head of an answer that came in one piece without a fault."""
        head, _, body = bytes(self._buffer[:nbytes]).partition(b"\r\n\r\n")
        response = self._response
        if response is None or len(head) > _SHORT_HEAD or not _NEVER_USUAL.isdisjoint(response.by_name):
            return
        if response.by_name.get(b"content-length") == b"%d" % len(body):
            # A plain dict, not `Expiring`: each answer looks here, and when it is full it is cheap to begin anew.
            if len(_usual_heads) >= _MANY_HEADS:
                _usual_heads.clear()
            is_message = 200 <= response.status < 300 and response.media_type != "text/event-stream"
            _usual_heads[head] = _UsualHead(response.status, response.fields, response.by_name, len(body), is_message)

    def on_message_begin(self) -> None:
        if self._response is None or self._complete:
            raise ValueError("an answer without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        # RFC 9110 section 6.5.1: trailers are not headers; a recipient that needs none may drop them.
        if self._began is not None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        response, began, headers = self._response, self._began, self._headers
        if response is None or began is None:
            return
        status: int = self._parser.get_status_code()
        if status < 100 or not self._parser.get_http_version().startswith("1."):
            raise ValueError("a status line of another protocol")
        if self._unfinished > HEADER_BYTES or len(headers) > HEADER_COUNT:
            self._check_size(headers)
        if status < 200:
            # RFC 9110 section 15.2: another answer follows. How many there are is bounded with the size of headers.
            self._headers = []
            self._interim = True
            return
        self._interim = False
        self._unfinished = 0
        self._keep_alive = self._parser.should_keep_alive()
        by_name = dict(reversed(headers))
        if by_name.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise ValueError("a transfer encoding that was not asked for")
        self._until_close = not (
            self._keep_alive or status in _NO_LENGTH or b"content-length" in by_name or b"transfer-encoding" in by_name
        )
        response.begin(status, headers, by_name)
        if self._method == "HEAD":
            # The parser does not know what was asked, and would wait for the body that the headers announce.
            self._keep_alive = False
            self._complete = True
        self._began = None
        if not began.done():
            began.set_result(None)

    def _check_size(self, headers: list[tuple[bytes, bytes]]) -> None:
        if sum(len(name) + len(value) for name, value in headers) > HEADER_BYTES:
            raise ValueError(_TOO_LONG)
        if len(headers) > HEADER_COUNT:
            raise ValueError(f"there are more than {HEADER_COUNT} headers")

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        if self._alarm is not None:
            self._end_bytes -= len(body)
            if self._end_bytes < 0:
                self.abort()
        elif self._response is not None:
            self._response.feed(body)

    def on_message_complete(self) -> None:
        # RFC 9112 section 6.3: what follows an answer to CONNECT is the tunnel, whatever its headers say.
        if not self._interim and self._method != "CONNECT":
            self._complete = True


class StreamedResponse(StartedResponse):
    """An answer whose body is still arriving."""

    # Defaults of the class, because most answers are one piece and touch few of them.
    status: int = 0
    fields: Sequence[tuple[bytes, bytes]] = ()
    by_name: Mapping[bytes, bytes] = {}
    _held: int = 0
    _whole: bool = False
    _error: str | None = None
    _is_malformed: bool = False
    _wake: asyncio.Future[None] | None = None
    _unpacker: Unpacker | None = None

    def __init__(self, connection: HttpConnection, url: str, began: asyncio.Future[bytes | None]) -> None:
        self.url: str = url
        self.began: asyncio.Future[bytes | None] = began
        self._connection = connection
        self._pieces: list[bytes] = []

    # --- what the connection tells ---

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], by_name: Mapping[bytes, bytes]) -> None:
        self.status = status
        self.fields = headers
        self.by_name = by_name
        encoding = by_name.get(b"content-encoding")
        if encoding is not None and (named := encoding.decode("latin-1").strip().lower()) not in ("", "identity"):
            self._unpacker = Unpacker(named)

    def set_whole_body(self, body: bytes) -> None:
        """Set a body that has arrived completely."""
        self._pieces = [body]
        self._held = len(body)
        self._whole = True

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > HELD_BYTES:
            self._connection.hold_back()
        if self._wake is not None:
            self._wake_reader()

    def end(self) -> None:
        self._whole = True
        if self._wake is not None:
            self._wake_reader()

    def break_off(self, why: str, malformed: bool = False) -> None:
        self._error = why
        self._is_malformed = malformed
        if self._wake is not None:
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- what the reader asks ---

    def header(self, name: str) -> str | None:
        value = self.by_name.get(name.lower().encode("latin-1"))
        return None if value is None else value.decode("latin-1")

    @property
    def media_type(self) -> str:
        return media_type(self.by_name.get(b"content-type", b""))

    @property
    def headers(self) -> Mapping[str, str]:
        return joined((name.decode("latin-1"), value.decode("latin-1")) for name, value in self.fields)

    async def chunks(self) -> AsyncIterator[bytes]:
        unpacker = self._unpacker
        while piece := await self._next():
            if unpacker is None:
                yield piece
                continue
            try:
                for part in unpacker.feed(piece):
                    yield part
                    await asyncio.sleep(0)  # All parts of a small piece may be more than the loop can stand still for.
            except ValueError as error:
                self.close()
                raise self._broken(str(error), malformed=True) from None
        if unpacker is not None and not unpacker.complete:
            raise self._broken("its end is missing", malformed=True)

    async def _next(self) -> bytes:
        """Return the bytes that arrived and were not taken yet; none at the end."""
        while not self._pieces:
            if self._whole:
                return b""
            if self._error is not None:
                raise self._broken(self._error, malformed=self._is_malformed)
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        return self._pop_body()

    def _pop_body(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        self._held = 0
        if not self._whole:
            self._connection.read_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def whole(self, limit: int) -> bytes | None:
        # The usual answer is small, and all of it came with its headers.
        if self._whole and self._unpacker is None and self._held <= limit and len(self._pieces) == 1:
            return self._pieces.pop()
        return None

    async def read(self, limit: int) -> bytes:
        body = self.whole(limit)
        return await super().read(limit) if body is None else body

    def give_up(self, error: BaseException) -> bool:
        if self.began.done():
            return False
        self.began.set_exception(error)
        self.close()
        return True

    def _broken(self, why: str, *, malformed: bool) -> OutcomeUnknown:
        told = f"The answer of {origin(self.url)} broke off: {why}"
        return MalformedResponse(told) if malformed else OutcomeUnknown(told)

    def close(self) -> None:
        # A whole answer has given its connection back already.
        if not self._whole and self._error is None:
            self._connection.abort()

    def let_go(self) -> None:
        if not self._whole and self._error is None:
            self._connection.await_end()


@lru_cache(maxsize=64)
def media_type(content_type: bytes) -> str:
    """Return a content type without its parameters, in lower case."""
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


_TOO_LONG: Final = f"its headers are over the limit of {HEADER_BYTES} bytes"


# What OpenSSL, old and new, makes of an answer in plain HTTP.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def reason(error: BaseException) -> str:
    """Return why a connection failed, in words for a person."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return "TLS failed: what answers there speaks none; is it http:// instead of https://?"
        return f"TLS failed: {(error.reason or 'unknown reason').replace('_', ' ').lower()}"
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    text = getattr(error, "strerror", None) or str(error)
    return str(text)[:200] or type(error).__name__
