"""`connect`: a client of a server in a test, with a record of every message.

It speaks any revision over any transport.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.auth.contract import Auth
from toolwire.client import Client, Elicitation, Sampling
from toolwire.client.connection import OnLog, OnProgress
from toolwire.client.handlers import ElicitCallback, Roots, SampleCallback
from toolwire.client.http_target import HttpTarget
from toolwire.client.middleware import ClientMiddleware
from toolwire.client.targets import TargetLike
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.framing import EVENT_LIMIT
from toolwire.wire.channel import Channel, memory_pair
from toolwire.wire.stdio import StdioChannel
from toolwire.wire.subprocess import ProcessChannel
from toolwire.wire.tapped_channel import Direction, TappedChannel
from toolwire.wire.tracebacks import TracebackLog

Over: TypeAlias = Literal["memory", "stdio", "http", "sse", "port"]


class Wire:
    """The messages of a connection in order, as the client saw them.

    "→" went to the server, "←" came from it.
    """

    def __init__(self) -> None:
        self.messages: list[tuple[Direction, dict[str, Any]]] = []
        self._watchers: list[tuple[Callable[[Direction, dict[str, Any]], bool], asyncio.Future[dict[str, Any]]]] = []

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [message for direction, message in self.messages if direction == "→"]

    @property
    def received(self) -> list[dict[str, Any]]:
        return [message for direction, message in self.messages if direction == "←"]

    async def until(self, matches: Callable[[Direction, dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message, past or future, for which `matches(direction, message)` is true."""
        for direction, message in self.messages:
            if matches(direction, message):
                return message
        found: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._watchers.append((matches, found))
        return await found

    def record(self, direction: Direction, data: bytes) -> None:
        try:
            decoded = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            decoded = {"unreadable": data.decode("utf-8", "replace")}
        # A batch of 2025-03-26 counts as its messages.
        for message in decoded if isinstance(decoded, list) else [decoded]:
            self.messages.append((direction, message))
            for matches, found in self._watchers:
                if not found.done() and matches(direction, message):
                    found.set_result(message)


class Serves(Protocol):
    """The part of a server object that `connect` needs."""

    async def serve(self, channel: Channel, *, principal: Any = None) -> None: ...

    def http_app(self, *, sse: bool = ..., auth: Any = ...) -> Any: ...


@asynccontextmanager
async def connect(
    server: Serves | str | os.PathLike[str],
    *,
    revision: str | None = None,
    over: Over = "memory",
    principal: Any = None,
    auth: str | Auth | None = None,
    elicit: Elicitation | ElicitCallback | None = None,
    sample: Sampling | SampleCallback | None = None,
    roots: Roots | None = None,
    extensions: Mapping[str, Mapping[str, Any]] | None = None,
    on_log: OnLog | None = None,
    on_progress: OnProgress | None = None,
    timeout: float | UnsetType | None = UNSET,
    middleware: Iterable[ClientMiddleware] = (),
) -> AsyncIterator[tuple[Client, Wire]]:
    """Connect a client to `server`; yield the client and the record of the messages.

    * `over="memory"` hands messages over directly.
    * `over="stdio"` sends them through pipes, in this process for a server object, to a process of its own for the path
      of a server file.
    * `over="http"` sends real HTTP requests to the server's application, in this process and without a socket;
      `over="sse"` does so with the transport of 2024-11-05, and `over="port"` on a port of this machine.

    `principal` is the caller that the server sees, without any token. `auth` is the token that the client sends over
    HTTP; the server's own `auth=` verifies it. The other arguments are those of `Client`.
    """
    wire = Wire()
    async with _target(server, over, principal, auth, wire) as target:
        client = Client(
            target,
            revision=revision,
            elicit=elicit,
            sample=sample,
            roots=roots,
            extensions=extensions,
            on_log=on_log,
            on_progress=on_progress,
            timeout=timeout,
            middleware=middleware,
        )
        async with client:
            yield client, wire


@asynccontextmanager
async def _target(
    server: Serves | str | os.PathLike[str], over: Over, principal: Any, auth: str | Auth | None, wire: Wire
) -> AsyncIterator[TargetLike]:
    if over not in get_args(Over):
        raise ValueError(f"over= is one of {', '.join(get_args(Over))}, not {over!r}")
    if auth is not None and (over in ("memory", "stdio") or principal is not None):
        raise ValueError(
            'auth= is a token that is sent over HTTP: use it with over="http", "sse" or "port", without principal='
        )
    if isinstance(server, str | os.PathLike):
        if over != "stdio" or principal is not None:
            raise ValueError('a server file runs as a process of its own: use over="stdio", without principal=')
        tracebacks = TracebackLog(logging.getLogger("toolwire.client"), Path(server).name)
        process = await ProcessChannel.spawn([sys.executable, os.fspath(server)], on_stderr=tracebacks.add)
        try:
            yield TappedChannel(process, wire.record)
        finally:
            await process.close()
    elif over in ("memory", "stdio"):
        async with _in_process(server, over, principal) as channel:
            yield TappedChannel(channel, wire.record)
    elif over == "port":
        async with _on_port(server, principal) as url:
            yield HttpTarget(url, auth=auth, tap=wire.record)
    else:
        async with _application(server, principal, sse=over == "sse") as pool:
            path = "/sse" if over == "sse" else "/mcp"
            yield HttpTarget(f"http://localhost{path}", auth=auth, pool=pool, tap=wire.record)


@asynccontextmanager
async def _in_process(server: Serves, over: Over, principal: Any) -> AsyncIterator[Channel]:
    with ExitStack() as descriptors:
        ours, theirs, hang_up = _memory() if over == "memory" else _pipes(descriptors)
        serving = asyncio.get_running_loop().create_task(_serve(server, theirs, principal))
        try:
            yield ours
        finally:
            await ours.close()
            hang_up()
            # An exception of the server is raised in the test.
            await serving


@asynccontextmanager
async def _application(server: Serves, principal: Any, *, sse: bool) -> AsyncIterator[AsgiPool]:
    app = _http_app(server, principal, sse=sse)
    pool = AsgiPool(app, _scope_of(principal))
    try:
        yield pool
    finally:
        app.drain()
        await pool.close()
        await app.stop()


@asynccontextmanager
async def _on_port(server: Serves, principal: Any) -> AsyncIterator[str]:
    from toolwire.http import serving as http_server

    http_server.check_installed()
    sockets = http_server.listen("127.0.0.1", 0, public=False)
    ready = asyncio.Event()
    serving = http_server.HttpServer(_WithPrincipal(_http_app(server, principal), principal), sockets, drain=1.0)
    task = asyncio.get_running_loop().create_task(serving.serve(ready.set))
    try:
        await asyncio.wait({task, waiting := asyncio.ensure_future(ready.wait())}, return_when="FIRST_COMPLETED")
        waiting.cancel()
        yield http_server.url_of(sockets, "127.0.0.1", "/mcp")
    finally:
        serving.stop()
        await task


def _http_app(server: Serves, principal: Any, *, sse: bool = False) -> Any:
    # A caller who is given as principal= needs no token.
    return server.http_app(sse=sse) if principal is None else server.http_app(sse=sse, auth=None)


def _scope_of(principal: Any) -> dict[str, Any]:
    return {} if principal is None else {"toolwire.principal": principal}


class _WithPrincipal:
    """An application that takes every request for one of the same principal."""

    def __init__(self, application: Any, principal: Any) -> None:
        self._application = application
        self._extra = _scope_of(principal)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._application({**scope, **self._extra}, receive, send)

    def drain(self) -> None:
        self._application.drain()

    def give_up(self) -> None:
        self._application.give_up()


async def _serve(server: Serves, channel: Channel, principal: Any) -> None:
    try:
        await server.serve(channel, principal=principal)
    finally:
        await channel.close()


def _memory() -> tuple[Channel, Channel, Callable[[], None]]:
    ours, theirs = memory_pair()
    return ours, theirs, lambda: None


def _pipes(descriptors: ExitStack) -> tuple[Channel, Channel, Callable[[], None]]:
    """Make two channels over two pipes, and a function that ends the server's input.

    A channel never closes the descriptors that it was given.
    """
    requests_out, requests_in = os.pipe()
    answers_out, answers_in = os.pipe()
    for descriptor in (requests_out, answers_out, answers_in):
        descriptors.callback(os.close, descriptor)
    ours = StdioChannel(answers_out, requests_in, limit=EVENT_LIMIT)
    return ours, StdioChannel(requests_out, answers_in), lambda: os.close(requests_in)
