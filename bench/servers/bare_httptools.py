"""The limit of HTTP in Python: a protocol on uvloop that reads requests with httptools and answers all of them alike.

It parses the request line, the headers and the body, and writes one answer of the same size as that of a tool. It reads
no JSON, makes no task and keeps no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
import uvloop
from echo_server import encode

RESULT = {"content": [{"type": "text", "text": "2"}], "structuredContent": {"result": 2}}
BODY = encode({"jsonrpc": "2.0", "id": 1, "result": RESULT})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class Connection(asyncio.Protocol):
    """One connection; httptools calls its methods `on_…` while it parses."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # That of uvloop is no subclass of it.
        self.parser = httptools.HttpRequestParser(self)
        self.begin()

    def begin(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.begin()
        self.transport.write(self.answer)


def serve(path: str, ready: Callable[[str], None], body: bytes = BODY) -> None:
    answer = HEAD % len(body) + body

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(answer), "127.0.0.1", 0, backlog=2048)
        ready(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}")
        await server.serve_forever()

    uvloop.run(main())
