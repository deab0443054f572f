"""The server side of one HTTP/1.1 connection: a protocol class that uvicorn runs.

The parser is httptools.

It replaces uvicorn's own class for two reasons. Uvicorn relies on a proxy to bound the size, the number and the time of
headers, to choose among several `Host` headers, and to hold back pipelined requests. And its class takes more time for
a request than all the rest of this server.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import MutableMapping
from contextvars import Context
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

import httptools

from toolwire.http1.asgi_types import DIRECT
from toolwire.http1.request_cycle import STATUS_LINES, RequestCycle
from toolwire.loops import task_starter

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

HEADER_BYTES: Final = 64 * 1024
HEADER_COUNT: Final = 100
HEADER_SECONDS: Final = 10.0
#: Requests that may wait on a connection for their turn.
PIPELINED: Final = 16
#: How long a connection is read to nowhere, so that a client that is still sending gets to see why it was refused.
LINGER_SECONDS: Final = 2.0
#: How much of what waits to be sent a client takes at least, and in which time.
STALL_BYTES: Final = 16 * 1024
STALL_SECONDS: Final = 30.0
#: How much is read at once into a buffer of our own.
READ_BYTES: Final = 256 * 1024

_VERSIONS: Final = frozenset({"1.0", "1.1"})
_METHODS: Final = {name.encode(): name for name in ("POST", "GET", "DELETE", "OPTIONS", "HEAD")}


class HttpProtocol(asyncio.Protocol):
    """One connection.

    It answers requests one after the other, in the order in which they came.
    """

    __slots__ = (
        "_alarm",
        "_app_state",
        "_application",
        "_blank",
        "_cause",
        "_cycle",
        "_dated",
        "_due",
        "_fresh",
        "_headers",
        "_keep_alive",
        "_parser",
        "_phase",
        "_reads",
        "_received",
        "_refusal",
        "_rings",
        "_running",
        "_stall",
        "_start_task",
        "_state",
        "_unfinished",
        "_upgrade",
        "_url",
        "_waiting",
        "default_headers",
        "loop",
        "transport",
        "writable",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._application: Any = config.loaded_app
        self._keep_alive: float = config.timeout_keep_alive
        self._state = server_state
        self._app_state = app_state
        self.loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self._start_task = task_starter(self.loop)
        self._parser: Any = _new_parser(self)
        self.transport: asyncio.Transport
        self.default_headers: bytes = b""
        self.writable: asyncio.Event | None = None
        self._reads = True
        self._dated: Any = None
        # What is being read.
        self._phase: Literal["idle", "headers", "body"] = "idle"
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._upgrade = False
        # The size of what was received last, of the part of it that was not complete, and of all that is not complete.
        self._received = 0
        self._fresh = 0
        self._unfinished = 0
        # The request that was read last, the one that the application works on, and those that wait for their turn.
        self._cycle: RequestCycle | None = None
        self._running: RequestCycle | None = None
        self._waiting: deque[tuple[RequestCycle, MutableMapping[str, Any]]] = deque()
        self._cause: tuple[int, str] | None = None
        self._refusal: tuple[int, str] | None = None
        # When the connection is over unless something happens, and when that is looked at next.
        self._due = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._rings = math.inf
        self._stall: asyncio.TimerHandle | None = None

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._blank = _blank_scope(transport)
        self._expect_within(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._parser = None  # It holds on to this object.
        self._waiting.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._stall is not None:
            self._stall.cancel()
        running, self._running, self._cycle = self._running, None, None  # They hold on to it, too.
        if running is not None:
            running.lose()
        self.resume_writing()

    def pause_writing(self) -> None:
        self.writable = self.writable or asyncio.Event()
        self._watch_unsent()

    def resume_writing(self) -> None:
        if self.writable is not None:
            self.writable.set()
            self.writable = None
        if self._stall is not None and not self.transport.is_closing():
            self._stall.cancel()
            self._stall = None

    def pause_reading(self) -> None:
        if self._reads:
            self._reads = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reads and not self.transport.is_closing():
            self._reads = True
            self.transport.resume_reading()

    # --- the end of the server ---

    def shutdown(self) -> None:
        """Close as soon as every request is answered."""
        if self._running is None or self._cycle is None:
            self.close()
        else:
            self._cycle.keep_alive = False

    def close(self) -> None:
        """Close when everything is sent, or the client takes nothing."""
        self.transport.close()
        self._watch_unsent()

    def give_up(self) -> None:
        """Cut the connection. The application sees a client that went away."""
        self.transport.abort()

    # --- what arrives ---

    def data_received(self, data: bytes | memoryview) -> None:
        if self._refusal is not None:
            return
        self._received = self._fresh = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(bytes(data[upgrade.args[0] :]))
            return
        except httptools.HttpParserError:
            self._refuse(*(self._cause or (400, "This is not HTTP/1.1")))
        # What arrives complete, as nearly everything does, is neither added up nor timed.
        if self._fresh and self._refusal is None:
            self._note_unfinished()

    def _note_unfinished(self) -> None:
        """Count the buffered bytes of headers, and refuse too many."""
        if not self._unfinished and self._phase != "body" and self._running is None:
            self._expect_within(min(HEADER_SECONDS, self._due - self.loop.time()))
        self._unfinished += self._fresh
        if self._unfinished > HEADER_BYTES:
            self._refuse(431, f"The headers are over the limit of {HEADER_BYTES} bytes")

    def on_message_begin(self) -> None:
        self._phase = "headers"
        self._url = b""
        self._headers = []
        self._upgrade = False
        # Where they begin somewhere after another request, counting starts with the next piece.
        self._fresh = self._fresh or 1

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        version: str = parser.get_http_version()
        headers = dict(self._headers)
        self._check_headers(headers, version)
        if len(self._waiting) >= PIPELINED:
            self._stop_parsing(400, f"At most {PIPELINED} requests may wait on a connection")
        method: bytes = parser.get_method()
        if parser.should_upgrade():
            if method == b"CONNECT":
                self._stop_parsing(400, "This is not a proxy")
            self._upgrade = True
            return
        is_old = version == "1.0"
        keep_alive = not is_old and parser.should_keep_alive()
        # RFC 9110 section 10.1.1: HTTP/1.0 does not know it.
        awaits_continue = not is_old and headers.get(b"expect", b"").lower() == b"100-continue"
        cycle = RequestCycle(self, keep_alive, awaits_continue, method == b"HEAD", not is_old)
        scope = self._scope(_METHODS.get(method) or method.decode("ascii"), version, cycle)
        # RFC 9110 section 6.5.1: trailers are not headers; a recipient that needs none may drop them.
        self._headers = []
        self._cycle = cycle
        self._phase = "body"
        self._fresh = self._unfinished = 0
        self._due = math.inf
        if self._running is None:
            self._start(cycle, scope)
        else:
            self._waiting.append((cycle, scope))

    def _check_headers(self, by_name: dict[bytes, bytes], version: str) -> None:
        headers = self._headers
        if len(headers) > HEADER_COUNT:
            self._stop_parsing(431, f"There are more than {HEADER_COUNT} headers")
        # They are no larger than what they came in, so that there is hardly ever something to add up.
        if self._unfinished + self._received > HEADER_BYTES:
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in headers)
            if size > HEADER_BYTES:
                self._stop_parsing(431, f"The headers are over the limit of {HEADER_BYTES} bytes")
        # RFC 9112 section 3.2: none on HTTP/1.1, or more than one, is answered with 400.
        if b"host" not in by_name:
            hosts = int(version != "1.1")
        else:
            hosts = 1 if len(by_name) == len(headers) else [name for name, _ in headers].count(b"host")
        if hosts != 1:
            self._stop_parsing(400, "Send one Host header")
        if version not in _VERSIONS:
            self._stop_parsing(505, "Speak HTTP/1.1")
        if b"transfer-encoding" in by_name:
            self._check_coding(version)

    def _check_coding(self, version: str) -> None:
        codings = [value.strip(b" \t").lower() for name, value in self._headers if name == b"transfer-encoding"]
        if version == "1.0":
            # RFC 9112 section 6.1: HTTP/1.0 has none, so a proxy in front may have read another body.
            self._stop_parsing(400, "HTTP/1.0 has no Transfer-Encoding")
        if codings != [b"chunked"]:
            # RFC 9112 section 6.1: 501 for a coding that the server does not understand.
            self._stop_parsing(501, "The only Transfer-Encoding here is chunked")

    def _scope(self, method: str, version: str, cycle: RequestCycle) -> MutableMapping[str, Any]:
        url = self._url
        path, raw_path, query = _known_parts(url) if len(url) < 256 else _parts(url)
        # Copied and changed, which is faster than made anew.
        scope = self._blank.copy()
        scope["http_version"] = version
        scope["method"] = method
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["query_string"] = query
        scope["headers"] = self._headers
        scope["state"] = self._app_state.copy()
        scope[DIRECT] = cycle
        return scope

    def on_body(self, body: bytes) -> None:
        self._fresh = self._unfinished = 0
        if self._cycle is not None:
            self._cycle.feed(body)

    def on_message_complete(self) -> None:
        self._phase = "idle"
        self._fresh = self._unfinished = 0
        if self._upgrade or self._cycle is None:
            return
        self._cycle.end()
        if self._running is None:
            self._expect_within(self._keep_alive)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its `Upgrade` header (RFC 9110 section 7.8).

        Some clients ask for HTTP/2 that way with every first request; the parser then takes the body for something of
        that other protocol.
        """
        close = any(name == b"connection" and b"close" in value.lower() for name, value in self._headers)
        version = self._parser.get_http_version().encode()
        lines = [self._parser.get_method() + b" " + self._url + b" HTTP/" + version]
        hop = (b"connection", b"upgrade")
        lines += [name + b": " + value for name, value in self._headers if name not in hop]
        lines += [b"connection: close"] if close else []
        self._parser = _new_parser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    # --- one request after the other ---

    def _start(self, cycle: RequestCycle, scope: MutableMapping[str, Any]) -> None:
        self._running = cycle
        state = self._state
        if state.default_headers is not self._dated:
            # A new list whenever the date has changed.
            self._dated = state.default_headers
            self.default_headers = b"".join(b"%b: %b\r\n" % header for header in self._dated)
        cycle.task = task = self._start_task(cycle.run(self._application, scope, state.tasks))
        state.tasks.add(task)

    def answered(self) -> None:
        self._running = None
        self._state.total_requests += 1
        if self.transport.is_closing():
            return
        if not self._reads:
            self.resume_reading()
        if self._waiting:
            self._start(*self._waiting.popleft())
        elif self._refusal is not None:
            self._send_refusal(*self._refusal)
        elif self._phase == "body":
            # The answer was given before the request was complete, and the rest of it is not needed.
            self._expect_within(LINGER_SECONDS)
        else:
            self._expect_within(HEADER_SECONDS if self._unfinished else self._keep_alive)

    # --- time ---

    def _expect_within(self, seconds: float) -> None:
        """Set a time limit for the next event.

        An earlier alarm stays: when it rings, it sets itself again.
        """
        self._due = due = self.loop.time() + seconds
        if due < self._rings:
            if self._alarm is not None:
                self._alarm.cancel()
            self._rings = due
            self._alarm = self.loop.call_at(due, self._ring, context=Context())

    def _ring(self) -> None:
        self._alarm = None
        self._rings = math.inf
        left = self._due - self.loop.time()
        if left > 0:
            self._expect_within(left)
        elif self._unfinished and self._refusal is None and self._phase != "body":
            self._refuse(408, "The headers did not arrive in time")
        else:
            self.close()

    def _watch_unsent(self) -> None:
        """Limit how long bytes wait to be sent.

        An answer that the client does not read costs memory.
        """
        if self._stall is None and (unsent := self.transport.get_write_buffer_size()):
            self._stall = self.loop.call_later(STALL_SECONDS, self._abort_if_stalled, unsent, context=Context())

    def _abort_if_stalled(self, before: int) -> None:
        self._stall = None
        if self.transport.get_write_buffer_size() > before - STALL_BYTES:
            self.transport.abort()
        else:
            self._watch_unsent()

    # --- refusing ---

    def _stop_parsing(self, status: int, text: str) -> None:
        self._cause = (status, text)
        raise ValueError(text)  # Which the parser turns into an error of its own.

    def _refuse(self, status: int, text: str) -> None:
        """Read nothing more, answer the earlier requests, then send this answer, and close."""
        self._refusal = (status, text)
        cycle = self._cycle
        if self._phase == "body" and cycle is not None:
            if self._waiting:
                self._waiting.pop()
            elif cycle.started:
                self.close()
                return
            else:
                cycle.lose()
                self._running = None
        if self._running is None:
            self._send_refusal(status, text)

    def _send_refusal(self, status: int, text: str) -> None:
        if self.transport.is_closing():
            return
        body = text.encode()
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINES[status] + head + body)
        # A socket that is closed while there is something left to read takes back what it sent last.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._expect_within(LINGER_SECONDS)


class BufferedHttpProtocol(HttpProtocol, asyncio.BufferedProtocol):
    """`HttpProtocol` with a shared buffer, for the selector loop of asyncio.

    That loop otherwise makes 256 KiB anew for every piece that arrives.

    All connections of a thread share one buffer: what is read is parsed before anybody else reads.
    """

    __slots__ = ("_buffer",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._buffer = _thread_buffer()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._buffer[:nbytes])


def protocol_for(loop: asyncio.AbstractEventLoop) -> type[HttpProtocol]:
    """Return the protocol class that is fast on a loop.

    Loops such as uvloop's have a buffer themselves.
    """
    return BufferedHttpProtocol if isinstance(loop, asyncio.SelectorEventLoop) else HttpProtocol


_of_thread: Final = threading.local()


def _thread_buffer() -> memoryview:
    try:
        buffer: memoryview = _of_thread.buffer
    except AttributeError:
        buffer = _of_thread.buffer = memoryview(bytearray(READ_BYTES))
    return buffer


def _new_parser(protocol: HttpProtocol) -> Any:
    parser = httptools.HttpRequestParser(protocol)
    # What follows a request that closes the connection is not its error.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _parts(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path, the path as it was sent, and the query."""
    if url[:1] == b"/" and b"#" not in url:
        raw_path, _, query = url.partition(b"?")
    else:
        parsed = httptools.parse_url(url)
        raw_path, query = parsed.path, parsed.query or b""
    return unquote(raw_path.decode("ascii")), raw_path, query


_known_parts: Final = lru_cache(maxsize=64)(_parts)


def _blank_scope(transport: asyncio.Transport) -> dict[str, Any]:
    """Make the part of the ASGI scope that all requests of a connection share."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "",
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "path": "",
        "raw_path": b"",
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": _address(transport.get_extra_info("peername")),
        "server": _address(transport.get_extra_info("sockname")),
        "state": {},
        DIRECT: None,
    }


def _address(name: Any) -> tuple[str, int] | None:
    """Return the address of a socket; a socket in the file system has none."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple | list) and len(name) >= 2 else None
