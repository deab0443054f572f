"""An HTTP client for tests that talks to an ASGI application in this process.

It can do what real clients do wrong: send slowly, read slowly, go away at any point. Nothing here waits for time to
pass; every wait is for something to arrive.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.patience import patience

from toolwire.protocol.framing import Event, SSEDecoder

Message = dict[str, Any]
BOTH = "application/json, text/event-stream"


class Answer:
    """One HTTP request that is under way, and what has come back so far."""

    def __init__(self, app: Any, scope: Message, body: bytes | None) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        #: Every event so far, those without data included.
        self.events: list[Event] = []
        self.ended = False
        #: Whether the application waits while nobody reads.
        self.stalled = False
        self._decoder = SSEDecoder()
        self._changed = asyncio.Event()
        self._inbound: asyncio.Queue[Message] = asyncio.Queue()
        self._reading = asyncio.Event()
        self._reading.set()
        self._gone = asyncio.Event()
        if body is not None:
            self.send_body(body, more=False)
        self.task = asyncio.ensure_future(self._run(app, scope))

    async def _run(self, app: Any, scope: Message) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self.ended = True
            self._changed.set()

    async def _receive(self) -> Message:
        if self._gone.is_set() and self._inbound.empty():
            return {"type": "http.disconnect"}
        getting = asyncio.ensure_future(self._inbound.get())
        leaving = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({getting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else {"type": "http.disconnect"}
        finally:
            getting.cancel()
            leaving.cancel()

    async def _send(self, message: Message) -> None:
        if not self._reading.is_set():
            self.stalled = True
            self._changed.set()
            waiting = [asyncio.ensure_future(each.wait()) for each in (self._reading, self._gone)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()
            self.stalled = False
        if self._gone.is_set():
            return  # As uvicorn does: what nobody reads is dropped.
        if message["type"] == "http.response.start":
            assert self.status is None, "the response was started twice"
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            assert self.status is not None, "a body before its headers"
            assert not self.ended, "a body after the end"
            body = message.get("body", b"")
            self.body += body
            self.events += [each for each in self._decoder.feed(body) if isinstance(each, Event)]
            if not message.get("more_body"):
                self.ended = True
                self._gone.set()  # ASGI: what is received after the response is a disconnect.
        self._changed.set()

    # --- what a client does ---

    def send_body(self, part: bytes, *, more: bool = True) -> None:
        self._inbound.put_nowait({"type": "http.request", "body": part, "more_body": more})

    def stop_reading(self) -> None:
        self._reading.clear()

    def read_on(self) -> None:
        self._reading.set()

    async def disconnect(self) -> None:
        """Go away, and wait until the application has let go of the request."""
        self._gone.set()
        await self.task

    def vanish(self) -> None:
        """Go away, and wait for nothing."""
        self._gone.set()

    # --- what came back ---

    async def until(self, condition: Any) -> Any:
        while not (found := condition()):
            assert not self.task.done() or self._changed.is_set(), f"it ended: {self.status} {self.body!r}"
            self._changed.clear()
            async with patience("more of a response"):
                await self._changed.wait()
        return found

    async def started(self) -> Answer:
        await self.until(lambda: self.status is not None)
        return self

    async def finished(self) -> Answer:
        """Wait for the end of the response."""
        await self.until(lambda: self.ended)
        return self

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[Any]:
        """The JSON of every event that has data."""
        return [json.loads(event.data) for event in self.events if event.data]

    async def message(self, method: str | None = None, *, id: Any = None) -> Message:
        """The first message of a method, or the answer to a request, once it is there."""

        def find() -> Any:
            for each in self.messages:
                if (method is not None and each.get("method") == method) or (id is not None and each.get("id") == id):
                    return each
            return None

        found: Message = await self.until(find)
        return found

    def answer(self) -> Message:
        """The one response, whether it came as JSON or at the end of a stream."""
        return self.messages[-1] if self.is_stream else self.json()  # type: ignore[no-any-return]

    @property
    def last_event_id(self) -> str:
        return self._decoder.last_event_id

    @property
    def retry(self) -> int | None:
        return self._decoder.retry


class HttpClient:
    """Speaks to an application; `headers` go with every request."""

    def __init__(self, app: Any, *, path: str = "/mcp", headers: Mapping[str, str] | None = None) -> None:
        self.app = app
        self.path = path
        self.headers = dict(headers or {})
        self.principal: Any = None
        self._open: list[Answer] = []

    def start(
        self,
        method: str,
        *,
        body: bytes | None = b"",
        headers: Mapping[str, str | None] | None = None,
        path: str | None = None,
        query: str = "",
        server: tuple[str, int] = ("127.0.0.1", 8000),
        root_path: str = "",
        raw_headers: Iterable[tuple[bytes, bytes]] = (),
        client: tuple[str, int] = ("127.0.0.1", 50000),
    ) -> Answer:
        """Send a request; a header that is None is left out, a body that is None is sent with `send_body`."""
        given: dict[str, str | None] = {"host": "127.0.0.1:8000", **self.headers, **(headers or {})}
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value is not None]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path if path is not None else self.path,
            "root_path": root_path,
            "query_string": query.encode(),
            "headers": [*encoded, *raw_headers],
            "server": server,
            "client": client,
        }
        if self.principal is not None:
            scope["toolwire.principal"] = self.principal
        answer = Answer(self.app, scope, body)
        self._open.append(answer)
        return answer

    def start_post(self, message: Any, headers: Mapping[str, str | None] | None = None, **options: Any) -> Answer:
        """POST a message, or bytes as they are; the answer is still to come."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        common: dict[str, str | None] = {"content-type": "application/json", "accept": BOTH}
        return self.start("POST", body=body, headers={**common, **(headers or {})}, **options)

    async def post(self, message: Any, headers: Mapping[str, str | None] | None = None, **options: Any) -> Answer:
        """POST a message and wait for the whole answer."""
        return await self.start_post(message, headers, **options).finished()

    def start_get(self, headers: Mapping[str, str | None] | None = None, **options: Any) -> Answer:
        return self.start("GET", headers={"accept": "text/event-stream", **(headers or {})}, **options)

    async def get(self, headers: Mapping[str, str | None] | None = None, **options: Any) -> Answer:
        """GET and wait for the headers of the answer."""
        return await self.start_get(headers, **options).started()

    async def delete(self, headers: Mapping[str, str | None] | None = None) -> Answer:
        return await self.start("DELETE", headers=headers).finished()

    async def close(self) -> None:
        """Go away everywhere."""
        for answer in self._open:
            answer.vanish()
        await asyncio.gather(*(answer.task for answer in self._open), return_exceptions=True)


class SessionClient(HttpClient):
    """A legacy client with its session; `at` another application it is the same session at another replica."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self.last_id = 0
        self.revision = ""

    async def initialize(
        self, revision: str = "2025-11-25", capabilities: Message | None = None, **headers: str
    ) -> Answer:
        """Open a session, a new one if there was one before."""
        for name in ("mcp-session-id", "mcp-protocol-version"):
            self.headers.pop(name, None)
        answer = await self.post(initialize_request(revision, capabilities), headers)
        assert answer.status == 200, answer.body
        self.revision = answer.json()["result"]["protocolVersion"]
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.headers["mcp-protocol-version"] = self.revision
        ready = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert ready.status == 202
        return answer

    def at(self, app: Any) -> SessionClient:
        other = SessionClient(app, path=self.path, headers=self.headers)
        other.last_id, other.revision, other.principal = self.last_id + 1000, self.revision, self.principal
        return other

    def request(self, method: str, params: Message | None = None, *, id: Any = None) -> Message:
        if id is None:
            self.last_id += 1
            id = self.last_id
        message: Message = {"jsonrpc": "2.0", "id": id, "method": method}
        return message if params is None else message | {"params": params}

    def start_call(self, tool: str, arguments: Message | None = None, *, id: Any = None, **params: Any) -> Answer:
        given = {"name": tool, "arguments": arguments or {}, **params}
        return self.start_post(self.request("tools/call", given, id=id))

    async def call(self, tool: str, arguments: Message | None = None, **options: Any) -> Message:
        """The whole response to `tools/call`."""
        return (await self.start_call(tool, arguments, **options).finished()).answer()

    async def result(self, method: str, params: Message | None = None) -> Message:
        answer = await self.post(self.request(method, params))
        response = answer.answer()
        assert "result" in response, response
        result: Message = response["result"]
        return result

    async def notify(self, method: str, params: Message | None = None) -> Answer:
        message: Message = {"jsonrpc": "2.0", "method": method}
        return await self.post(message if params is None else message | {"params": params})

    async def respond(self, request: Message, result: Message) -> Answer:
        """Answer a request of the server."""
        return await self.post({"jsonrpc": "2.0", "id": request["id"], "result": result})


def initialize_request(revision: str = "2025-11-25", capabilities: Message | None = None) -> Message:
    identity = {"name": "raw", "version": "0"}
    params = {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": identity}
    return {"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params}


@asynccontextmanager
async def serving(*apps: Any) -> AsyncIterator[list[SessionClient]]:
    """A client for each application; everything is closed and stopped at the end."""
    clients = [SessionClient(app) for app in apps]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()
        for app in apps:
            await app.stop()


async def caught_up(app: Any) -> None:
    """Wait until everything that was published so far has been heard, which it is in order."""
    heard = asyncio.Event()
    link = app.sessions._host.link
    leave = link.on("test", lambda data: heard.set())
    await link.publish("test", b"{}")
    await heard.wait()
    leave()
