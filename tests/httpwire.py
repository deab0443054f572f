"""The raw client of wireclient.py over HTTP: every message is a POST, and what comes back is heard in one place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.http.httpclient import Answer
from tests.http.modernclient import ModernClient
from tests.wireclient import MODERN, Message, WireClient


class HttpLine:
    """An application in this process, as the one line that a `WireClient` speaks over."""

    def __init__(self, app: Any, *, headers: Mapping[str, str] | None = None, principal: Any = None) -> None:
        self.http = ModernClient(app, headers=headers)
        self.http.principal = principal
        #: What came on each stream: on that of the GET request, and on those of the POST requests of a method.
        self.streams: dict[str, list[Message]] = {}
        #: The answer to every POST.
        self.answers: list[Answer] = []
        self._readers: list[asyncio.Task[None]] = []

    def attach(self, feed: Callable[[bytes], None], ended: Callable[[BaseException | None], None]) -> bool:
        self._feed, self._ended = feed, ended
        return True

    def write(self, message: bytes) -> None:
        sent = json.loads(message)
        self.answers.append(self.http.start_post(message, self._headers(sent)))
        self._readers.append(asyncio.create_task(self._read(sent.get("method", "answer"), self.answers[-1])))

    def _headers(self, message: Message) -> Mapping[str, str | None]:
        meta = message.get("params", {}).get("_meta", {})
        is_modern = "io.modelcontextprotocol/protocolVersion" in meta
        return self.http.headers_of(message["method"], message["params"]) if is_modern else {}

    async def listen(self) -> None:
        """Have a session's own stream, once everything that was sent is taken."""
        await asyncio.gather(*self._readers)
        self._readers.append(asyncio.create_task(self._read("GET", await self.http.get())))

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self.http.close()

    async def _read(self, origin: str, answer: Answer) -> None:
        await answer.started()
        if "mcp-session-id" in answer.headers:
            self.http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        if answer.is_stream:
            await self._read_stream(origin, answer)
            return
        await answer.finished()
        if answer.headers.get("content-type") == "application/json":
            self._take(origin, answer.json(), answer)
        elif answer.body:
            self._ended(ConnectionError(f"{origin} was answered with {answer.status}: {answer.body!r}"))

    async def _read_stream(self, origin: str, answer: Answer) -> None:
        taken = self.streams.setdefault(origin, [])
        count = 0
        while fresh := await self._more(answer, count):
            count += len(fresh)
            taken.extend(fresh)
            for message in fresh:
                self._take(origin, message, answer)

    async def _more(self, answer: Answer, count: int) -> list[Message]:
        """What came on a stream after the first `count` messages; nothing at its end."""
        await answer.until(lambda: len(answer.messages) > count or answer.ended)
        return answer.messages[count:]

    def _take(self, origin: str, message: Message, answer: Answer) -> None:
        if message.get("id") is None and "method" not in message:
            self._ended(ConnectionError(f"{origin} was answered with {answer.status}: {message}"))
            return
        if origin == "initialize" and "result" in message:
            self.http.headers["mcp-protocol-version"] = message["result"]["protocolVersion"]
        self._feed(json.dumps(message).encode())


@asynccontextmanager
async def connect_http(
    app: Any,
    revision: str,
    capabilities: Mapping[str, Any] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    principal: Any = None,
) -> AsyncIterator[WireClient]:
    """A client of an application; one of an earlier revision has its session and the stream of that."""
    line = HttpLine(app, headers=headers, principal=principal)
    client = WireClient(line)
    try:
        await client.open(revision, capabilities)
        if revision != MODERN:
            await line.listen()
        yield client
    finally:
        await line.close()
