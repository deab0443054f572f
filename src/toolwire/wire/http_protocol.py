"""HTTP/1.1 as uvicorn speaks it with httptools, with bounds on what arrives before the application is asked.

uvicorn leaves these to whoever stands in front of it: the size and the number of headers, how long they may take, which
`Host` counts when there are several, and what follows a request that nobody has answered yet.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Final, Literal

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEADER_BYTES: Final = 64 * 1024
HEADER_COUNT: Final = 100
HEADER_SECONDS: Final = 10.0
#: Requests that may wait on a connection for their turn.
PIPELINED: Final = 16
#: How long a connection is read to nowhere, so that a client that is still sending gets to see why it was refused.
LINGER_SECONDS: Final = 2.0

_silent = logging.Logger("toolwire.http.silent", logging.CRITICAL + 1)


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.access_log = False
        self._phase: Literal["idle", "headers", "body"] = "idle"
        # The size of what was received last, of the part of it that was not complete, and of all that is not complete.
        self._received = 0
        self._reading = 0
        self._unfinished = 0
        self._upgrade = False
        self._cause: tuple[int, str] | None = None
        self._refusal: tuple[int, str] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        # The request that the application works on; `cycle` is the one that was read last.
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._unset_keepalive_if_required()
        self._feed(data)
        # What arrives complete, as nearly everything does, never needs a clock.
        if self._unfinished and self._phase != "body" and self._deadline is None and self._refusal is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)

    def _feed(self, data: bytes) -> None:
        self._received = self._reading = len(data)
        body = len(self.cycle.body) if self._phase == "body" else None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            status, text = self._cause or (400, "This is not HTTP/1.1")
            self._refuse(status, text)
            return
        if self._phase == "body":
            self._note_body(body)
        elif self._reading or self._phase == "headers":
            self._note_headers()
        if self._unfinished > HEADER_BYTES:
            self._refuse(431, f"The headers are over the limit of {HEADER_BYTES} bytes")

    def _note_headers(self) -> None:
        """What is held of headers that are not complete, or of what may become some."""
        # Where they began somewhere after another request, counting starts with the next piece.
        self._unfinished += self._reading or 1

    def _note_body(self, before: int | None) -> None:
        """What came within a body and is not part of it: the extensions of chunks, and trailers."""
        if before is not None and len(self.cycle.body) == before and not self.cycle.response_complete:
            self._unfinished += self._reading
        else:
            self._unfinished = 0

    # --- what the parser finds ---

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = "headers"
        self._upgrade = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == "body":
            return  # RFC 9110 section 6.5.1: trailers are not headers; whoever needs none may drop them.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def _check_headers(self) -> None:
        if len(self.headers) > HEADER_COUNT:
            self._stop_parsing(431, f"There are more than {HEADER_COUNT} headers")
        # They are no larger than what they came in, so that there is hardly ever something to add up.
        if self._unfinished + self._received > HEADER_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEADER_BYTES:
                self._stop_parsing(431, f"The headers are over the limit of {HEADER_BYTES} bytes")
        # RFC 9112 section 3.2: none on HTTP/1.1, or more than one, is answered with 400.
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            self._stop_parsing(400, "Send one Host header")

    def on_headers_complete(self) -> None:
        if self._deadline is not None:
            self._disarm()
        self._check_headers()
        if len(self.pipeline) >= PIPELINED:
            self._stop_parsing(400, f"At most {PIPELINED} requests may wait on a connection")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                self._stop_parsing(400, "This is not a proxy")
            self._upgrade = True
            return
        super().on_headers_complete()
        self._phase = "body"
        if not self.pipeline:
            self._running = self.cycle
        else:
            # Go on reading, or the end of the connection would not be noticed while another request is worked on.
            self.flow.resume_reading()

    def on_message_complete(self) -> None:
        self._phase = "idle"
        self._unfinished = self._reading = 0
        if self._upgrade:
            return
        super().on_message_complete()
        if self.cycle.response_complete:
            self._disarm()
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    def on_response_complete(self) -> None:
        self._running = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self._running is not None or self.transport.is_closing():
            return
        if self._refusal is not None:
            self._unset_keepalive_if_required()
            self._send_refusal(*self._refusal)
        elif self._phase == "body" and self._deadline is None:
            # The answer was given before the request was complete, and nobody wants the rest of it.
            self._deadline = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the request as if it had not asked to go on in another protocol (RFC 9110 section 7.8).

        Some clients ask for HTTP/2 that way with every first request; the parser then takes the body for something of
        that other protocol.
        """
        close = any(name == b"connection" and b"close" in value.lower() for name, value in self.headers)
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        hop = (b"connection", b"upgrade")
        lines += [name + b": " + value for name, value in self.headers if name not in hop]
        lines += [b"connection: close"] if close else []
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    # --- refusing ---

    def _stop_parsing(self, status: int, text: str) -> None:
        self._cause = (status, text)
        raise ValueError(text)  # Which the parser turns into an error of its own.

    def _headers_are_late(self) -> None:
        self._deadline = None
        if self._running is not None:
            # The start of a request that has to wait for its turn anyway.
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._headers_are_late)
        elif not self._unfinished:
            self.transport.close()
        else:
            self._refuse(408, "The headers did not arrive in time")

    def _refuse(self, status: int, text: str) -> None:
        """Read nothing more, answer what was asked before, then say this, and close."""
        self._refusal = (status, text)
        self._disarm()
        running = self._running
        if self._phase == "body":
            if self.pipeline:
                self.pipeline.popleft()
            elif self.cycle.response_started:
                self.transport.close()
                return
            else:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                running = None
        if running is None:
            self._send_refusal(status, text)

    def _send_refusal(self, status: int, text: str) -> None:
        if self.transport.is_closing():
            return
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        # A socket that is closed while there is something left to read takes back what it sent last.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._deadline = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- the end of the server ---

    def give_up(self) -> None:
        """Cut the connection; the application sees a client that went away, and nobody complains about it."""
        for cycle in (self._running, self.cycle):
            if cycle is not None:
                cycle.logger = _silent
        self.transport.abort()
