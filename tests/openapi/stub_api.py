"""An API on a real port that records what arrives and answers what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Arrived(NamedTuple):
    """A request as it arrived."""

    method: str
    target: str
    """Path and query, byte for byte."""
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> str:
        return urlsplit(self.target).query

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """An answer. `breaks` ends the connection: before the answer, in the middle of its body, or after garbage."""

    status: int = 200
    body: bytes = b""
    media_type: str | None = "application/json"
    headers: Mapping[str, str] = {}
    breaks: str = ""


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, json.dumps(value).encode(), "application/json", headers)


BREAKS_BEFORE = Reply(breaks="before")
GARBAGE = Reply(breaks="garbage")
BREAKS_INSIDE = Reply(body=b'{"half": ', breaks="inside")
Answering = Callable[[Arrived], Reply | Awaitable[Reply]]


class StubApi:
    """`arrived` has every request. `replies` are given out in turn, and the last one for all that follow."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.replies: list[Reply | Answering] = [json_reply({})]
        self.url = ""

    def answers(self, *replies: Reply | Answering) -> None:
        self.arrived.clear()
        self.replies = list(replies)

    @property
    def last(self) -> Arrived:
        return self.arrived[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (arrived := await _read(reader)) is not None:
                self.arrived.append(arrived)
                answer = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                reply = answer if isinstance(answer, Reply) else answer(arrived)
                if isawaitable(reply):
                    reply = await reply
                if reply.breaks == "garbage":
                    writer.write(b"no HTTP\r\n")
                    await writer.drain()
                if reply.breaks in ("before", "garbage"):
                    break
                writer.write(_written(reply))
                if reply.breaks:
                    break
                await writer.drain()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Arrived | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        assert name.lower() not in headers, "a header came twice"
        headers[name.lower()] = value.strip()
    return Arrived(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def _written(reply: Reply) -> bytes:
    length = len(reply.body) + (100 if reply.breaks else 0)
    lines = [f"HTTP/1.1 {reply.status} Said"]
    if reply.status not in (204, 304):
        lines.append(f"content-length: {length}")
    if reply.media_type is not None:
        lines.append(f"content-type: {reply.media_type}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in reply.headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body


@asynccontextmanager
async def stub_api() -> AsyncIterator[StubApi]:
    api = StubApi()
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(api.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
