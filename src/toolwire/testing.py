"""Help for tests of servers: a connected client, and a record of everything that was said.

```python
async with testing.connect(server, revision="2025-11-25") as (client, wire):
    await client.call_tool("add", {"a": 1, "b": 2})
    assert wire.sent[-1]["method"] == "tools/call"
```
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec

from toolwire.client import Client, Elicitation, Sampling
from toolwire.client.connect import TargetLike
from toolwire.client.connection import OnLog, OnProgress
from toolwire.client.handlers import ElicitCallback, Roots, SampleCallback
from toolwire.client.http_target import HttpTarget
from toolwire.protocol.framing import EVENT_LIMIT
from toolwire.wire.asgi_pool import AsgiPool
from toolwire.wire.channel import Channel, memory_pair
from toolwire.wire.stdio import StdioChannel
from toolwire.wire.subprocess import ProcessChannel
from toolwire.wire.tapped import Direction, TappedChannel

__all__ = ["Wire", "connect"]


class Serves(Protocol):
    """A server object, as far as a test needs it."""

    async def serve(self, channel: Channel, *, principal: Any = None) -> None: ...

    def http_app(self, *, sse: bool = False) -> Any: ...


class Wire:
    """Every message of a connection, in order, as the client saw it: "→" went to the server, "←" came from it."""

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
        """The first message, past or future, for which `matches(direction, message)` is true."""
        for direction, message in self.messages:
            if matches(direction, message):
                return message
        found: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._watchers.append((matches, found))
        return await found

    def record(self, direction: Direction, data: bytes) -> None:
        try:
            decoded = msgspec.json.decode(data)
        except msgspec.DecodeError:
            decoded = {"unreadable": data.decode("utf-8", "replace")}
        # A batch of 2025-03-26 is its messages.
        for message in decoded if isinstance(decoded, list) else [decoded]:
            self.messages.append((direction, message))
            for matches, found in self._watchers:
                if not found.done() and matches(direction, message):
                    found.set_result(message)


Over: TypeAlias = Literal["memory", "stdio", "http", "sse", "port"]


@contextmanager
def replaced(server: Any, functions: Mapping[Any, Any]) -> Iterator[None]:
    """Within the block, others make what handlers depend on: `testing.replaced(server, {connect: fake_connect})`.

    The other function is a dependency like any: it may be `async`, yield its value, take the context and dependencies
    of its own. What the replaced one depends on is not made. `LookupError` for a function that nothing depends on.
    """
    components = [*server.tools, *server.resources, *server.templates, *server.prompts]
    try:
        for function, other in functions.items():
            if not [each for each in components if each.replace_dependencies({function: other})]:
                raise LookupError(f"no component of {server!r} depends on {function!r}")
        for each in components:
            each.replace_dependencies(functions)
        yield
    finally:
        for each in components:
            each.replace_dependencies({})


@asynccontextmanager
async def connect(
    server: Serves | str | os.PathLike[str],
    *,
    revision: str | None = None,
    over: Over = "memory",
    principal: Any = None,
    elicit: Elicitation | ElicitCallback | None = None,
    sample: Sampling | SampleCallback | None = None,
    roots: Roots | None = None,
    on_log: OnLog | None = None,
    on_progress: OnProgress | None = None,
    timeout: float | None = 60.0,
) -> AsyncIterator[tuple[Client, Wire]]:
    """A client of `server`, connected, and the record of what they say.

    * `over="memory"` hands messages over directly.
    * `over="stdio"` sends them through pipes, in this process for a server object, to a process of its own for the path
      of a server file.
    * `over="http"` sends real HTTP requests to the server's application, in this process and without a socket;
      `over="sse"` does so with the transport of 2024-11-05, and `over="port"` on a port of this machine.

    `principal` is who the server takes the client for. The rest is as in `Client`.
    """
    wire = Wire()
    async with _target(server, over, principal, wire) as target:
        client = Client(
            target,
            revision=revision,
            elicit=elicit,
            sample=sample,
            roots=roots,
            on_log=on_log,
            on_progress=on_progress,
            timeout=timeout,
        )
        async with client:
            yield client, wire


@asynccontextmanager
async def _target(
    server: Serves | str | os.PathLike[str], over: Over, principal: Any, wire: Wire
) -> AsyncIterator[TargetLike]:
    if over not in get_args(Over):
        raise ValueError(f"over= is one of {', '.join(get_args(Over))}, not {over!r}")
    if isinstance(server, str | os.PathLike):
        if over != "stdio" or principal is not None:
            raise ValueError('a server file is a process of its own: use over="stdio", without principal=')
        process = await ProcessChannel.spawn([sys.executable, os.fspath(server)])
        try:
            yield TappedChannel(process, wire.record)
        finally:
            await process.close()
    elif over in ("memory", "stdio"):
        async with _in_process(server, over, principal) as channel:
            yield TappedChannel(channel, wire.record)
    elif over == "port":
        async with _on_port(server, principal) as url:
            yield HttpTarget(url, tap=wire.record)
    else:
        async with _application(server, principal, sse=over == "sse") as pool:
            path = "/sse" if over == "sse" else "/mcp"
            yield HttpTarget(f"http://localhost{path}", pool=pool, tap=wire.record)


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
            # What the server raised is the test's to know.
            await serving


@asynccontextmanager
async def _application(server: Serves, principal: Any, *, sse: bool) -> AsyncIterator[AsgiPool]:
    app = server.http_app(sse=sse)
    pool = AsgiPool(app, _scope_of(principal))
    try:
        yield pool
    finally:
        app.drain()
        await pool.close()
        await app.stop()


@asynccontextmanager
async def _on_port(server: Serves, principal: Any) -> AsyncIterator[str]:
    from toolwire.wire import http_server

    sockets = http_server.listen("127.0.0.1", 0, public=False)
    ready = asyncio.Event()
    serving = http_server.HttpServer(_Known(server.http_app(), principal), sockets, drain=1.0)
    task = asyncio.get_running_loop().create_task(serving.serve(ready.set))
    try:
        await asyncio.wait({task, waiting := asyncio.ensure_future(ready.wait())}, return_when="FIRST_COMPLETED")
        waiting.cancel()
        yield http_server.url_of(sockets, "127.0.0.1", "/mcp")
    finally:
        serving.stop()
        await task


def _scope_of(principal: Any) -> dict[str, Any]:
    return {} if principal is None else {"toolwire.principal": principal}


class _Known:
    """An application whose every request comes from the same principal."""

    def __init__(self, application: Any, principal: Any) -> None:
        self._application = application
        self._extra = _scope_of(principal)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._application({**scope, **self._extra}, receive, send)

    def drain(self) -> None:
        self._application.drain()


async def _serve(server: Serves, channel: Channel, principal: Any) -> None:
    try:
        await server.serve(channel, principal=principal)
    finally:
        await channel.close()


def _memory() -> tuple[Channel, Channel, Callable[[], None]]:
    ours, theirs = memory_pair()
    return ours, theirs, lambda: None


def _pipes(descriptors: ExitStack) -> tuple[Channel, Channel, Callable[[], None]]:
    """Two channels over two pipes, and how to end the server's input: a channel never closes what it was given."""
    requests_out, requests_in = os.pipe()
    answers_out, answers_in = os.pipe()
    for descriptor in (requests_out, answers_out, answers_in):
        descriptors.callback(os.close, descriptor)
    ours = StdioChannel(answers_out, requests_in, limit=EVENT_LIMIT)
    return ours, StdioChannel(requests_out, answers_in), lambda: os.close(requests_in)
