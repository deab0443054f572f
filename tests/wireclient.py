"""A raw JSON-RPC client for tests: what it sends is what the test says, what comes back is kept as plain dicts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

from tests.patience import patience

from toolwire import Server
from toolwire.testing.connecting import _in_process

MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
REVISIONS = (*LEGACY, MODERN)
PREFIX = "io.modelcontextprotocol/"

Message = dict[str, Any]


def modern_meta(capabilities: Mapping[str, Any] | None = None, **more: Any) -> Message:
    """The `_meta` of a 2026-07-28 request; keyword names with `_` become the reserved keys, such as `log_level`."""
    meta: Message = {
        f"{PREFIX}protocolVersion": MODERN,
        f"{PREFIX}clientCapabilities": dict(capabilities or {}),
        f"{PREFIX}clientInfo": {"name": "raw", "version": "0"},
    }
    if "log_level" in more:
        meta[f"{PREFIX}logLevel"] = more.pop("log_level")
    if "progress_token" in more:
        meta["progressToken"] = more.pop("progress_token")
    return meta | more


class Line(Protocol):
    """What a client speaks over: a channel of the library, or HTTP requests that look like one."""

    def attach(self, feed: Callable[[bytes], None], ended: Callable[[BaseException | None], None]) -> bool: ...

    def write(self, message: bytes) -> None: ...


class WireClient:
    """One connection. `revision` is set once the connection is opened, and modern requests then carry their `_meta`."""

    def __init__(self, channel: Line) -> None:
        self.channel = channel
        self.revision: str | None = None
        self.capabilities: dict[str, Any] = {}
        #: What the server said to `initialize`.
        self.initialized: Message = {}
        #: Everything that arrived, in order.
        self.received: list[Any] = []
        #: The same as bytes.
        self.lines: list[bytes] = []
        #: The notifications among it.
        self.notifications: list[Message] = []
        #: The requests of the server among it.
        self.requests: list[Message] = []
        #: How to answer the server: method -> function of the params that returns the result, or raises `Refusal`.
        self.answers: dict[str, Callable[[Message], Any]] = {}
        self._last_id = 0
        self._waiting: dict[str | int | None, asyncio.Future[Message]] = {}
        self._arrived = asyncio.Event()
        self.ended = asyncio.Event()
        channel.attach(self._feed, self._end)

    async def open(self, revision: str, capabilities: Mapping[str, Any] | None = None) -> None:
        """Begin to speak a revision."""
        if revision == MODERN:
            self.revision, self.capabilities = revision, dict(capabilities or {})
        else:
            await self.initialize(revision, capabilities)

    # --- sending ---

    def send(self, message: Any) -> None:
        """Send anything: a dict or a list as JSON, bytes or text as they are."""
        if isinstance(message, str):
            message = message.encode()
        self.channel.write(message if isinstance(message, bytes) else json.dumps(message).encode())

    def start(
        self, method: str, params: Message | None = None, *, id: str | int | None = None
    ) -> asyncio.Future[Message]:
        """Send a request; the future has the whole response."""
        if id is None:
            self._last_id += 1
            id = self._last_id
        if self.revision == MODERN:
            params = dict(params or {})
            params["_meta"] = modern_meta(self.capabilities) | params.get("_meta", {})
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else message | {"params": params})
        return future

    async def request(self, method: str, params: Message | None = None, *, id: str | int | None = None) -> Message:
        """Send a request and wait for the whole response."""
        async with patience(f"an answer to {method}"):
            return await self.start(method, params, id=id)

    async def result(self, method: str, params: Message | None = None) -> Message:
        """The result of a request that must succeed."""
        response = await self.request(method, params)
        assert "result" in response, response
        result: Message = response["result"]
        return result

    async def error(self, method: str, params: Message | None = None) -> Message:
        """The error of a request that must fail."""
        response = await self.request(method, params)
        assert "error" in response, response
        error: Message = response["error"]
        return error

    async def call(self, name: str, arguments: Message | None = None, **params: Any) -> Message:
        """The result of `tools/call`."""
        given = {} if arguments is None else {"arguments": arguments}
        return await self.result("tools/call", {"name": name, **given, **params})

    def notify(self, method: str, params: Message | None = None) -> None:
        message: Message = {"jsonrpc": "2.0", "method": method}
        self.send(message if params is None else message | {"params": params})

    async def initialize(
        self, revision: str, capabilities: Mapping[str, Any] | None = None, **client_info: Any
    ) -> Message:
        """The legacy handshake; the result of `initialize`."""
        self.capabilities = dict(capabilities or {})
        identity = {"name": "raw", "version": "0"} | client_info
        params = {"protocolVersion": revision, "capabilities": self.capabilities, "clientInfo": identity}
        self.initialized = await self.result("initialize", params)
        self.revision = self.initialized["protocolVersion"]
        self.notify("notifications/initialized")
        return self.initialized

    # --- receiving ---

    def _end(self, error: BaseException | None) -> None:
        """The server is gone: nothing waits for an answer any more."""
        self.ended.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"the server ended before it answered: {error}"))
                waiting.exception()  # Whoever awaits it sees it; whoever does not, need not.

    def _feed(self, data: bytes) -> None:
        message = json.loads(data)
        self.lines.append(bytes(data))
        self.received.append(message)
        for each in message if isinstance(message, list) else [message]:
            self._take(each)
        self._arrived.set()

    def _take(self, message: Message) -> None:
        if "method" not in message:
            waiting = self._waiting.pop(message.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif "id" in message:
            self.requests.append(message)
            self._answer(message)
        else:
            self.notifications.append(message)

    def _answer(self, request: Message) -> None:
        answer = self.answers.get(request["method"])
        if answer is None:
            return
        try:
            outcome: Message = {"result": answer(request.get("params", {}))}
        except Refusal as refusal:
            outcome = {"error": refusal.error}
        self.send({"jsonrpc": "2.0", "id": request["id"], **outcome})

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something that arrived makes the condition true; what it returned."""
        while not (found := condition()):
            self._arrived.clear()
            async with patience("a message"):
                await self._arrived.wait()
        return found

    def of(self, method: str) -> list[Message]:
        """The params of the notifications of a method so far."""
        return [each.get("params", {}) for each in self.notifications if each["method"] == method]

    async def notified(self, method: str, count: int = 1) -> list[Message]:
        """The params of the notifications of a method, once there are `count`."""
        await self.until(lambda: len(self.of(method)) >= count)
        return self.of(method)


class Refusal(Exception):
    """Raised by an answer to refuse the server's request with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


@asynccontextmanager
async def connect(
    server: Server,
    revision: str | None = None,
    capabilities: Mapping[str, Any] | None = None,
    *,
    principal: Any = None,
    over: Literal["memory", "stdio"] = "memory",
) -> AsyncIterator[WireClient]:
    """A connection to `server`, opened for `revision`, or not opened at all when that is None.

    `over="stdio"` sends the lines of stdio through pipes.
    """
    async with _in_process(server, over, principal) as channel:
        client = WireClient(channel)
        if revision is not None:
            await client.open(revision, capabilities)
        yield client
