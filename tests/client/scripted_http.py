"""A scripted HTTP server for the client's tests: every request is kept, and answered by a function of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from toolwire.client import Client
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.testing import elapse

Message = dict[str, Any]
URL = "http://server.example/mcp"
JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream"}


class Request:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.message: Message = msgspec.json.decode(body) if body else {}
        self.disconnected = asyncio.Event()

    @property
    def rpc(self) -> str:
        """The method of the message, or of HTTP where there is none."""
        return str(self.message.get("method", "answer" if self.message else self.method))

    @property
    def id(self) -> Any:
        return self.message.get("id")


class Reply:
    def __init__(
        self, status: int = 200, headers: Mapping[str, str] = JSON, body: bytes | AsyncIterator[bytes] = b""
    ) -> None:
        self.status = status
        self.headers = dict(headers)
        self.body = body


def result(request: Request, /, **members: Any) -> Reply:
    """A result of 2026-07-28; members that are None are left out."""
    value = {"resultType": "complete", **members}
    return Reply(body=rpc(id=request.id, result={key: member for key, member in value.items() if member is not None}))


def refusal(request: Request, code: int, status: int = 400, *, id: bool = True, **data: Any) -> Reply:
    error = {"code": code, "message": "no", **({"data": data} if data else {})}
    return Reply(status, body=rpc(error=error, **({"id": request.id} if id else {})))


def rpc(**members: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **members})


def event(data: bytes, *, id: str = "", retry: int | None = None, event: str = "") -> bytes:
    lines = [
        f"id: {id}" if id else "",
        f"retry: {retry}" if retry is not None else "",
        f"event: {event}" if event else "",
    ]
    return "\n".join([*filter(None, lines), f"data: {data.decode()}", "", ""]).encode()


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def stream(*pieces: bytes, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(headers={**STREAM, **(headers or {})}, body=chunks(*pieces))


async def unanswered(request: Request) -> Reply:
    """For as long as anybody waits."""
    await request.disconnected.wait()
    return Reply(499)


async def endless(request: Request) -> Reply:
    """A stream that brings nothing, for as long as anybody reads."""

    async def body() -> AsyncIterator[bytes]:
        await request.disconnected.wait()
        yield b""

    return Reply(headers=STREAM, body=body())


def text(said: str) -> list[Message]:
    return [{"type": "text", "text": said}]


DISCOVERED: Message = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "logging": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}


def initialized(request: Request, *, session: str | None = "s-1", revision: str = "2025-11-25") -> Reply:
    value = {
        "protocolVersion": revision,
        "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}},
        "serverInfo": {"name": "old", "version": "1"},
    }
    given = {} if session is None else {"mcp-session-id": session}
    return Reply(headers={**JSON, **given}, body=rpc(id=request.id, result=value))


Answer = Callable[[Request], Reply | Awaitable[Reply | None] | None]


def on(**answers: Any) -> Answer:
    """Answer what `answers` names, by the method with underscores for slashes; leave the rest."""

    def answer(request: Request) -> Any:
        found = answers.get(request.rpc.replace("/", "_"))
        return found(request) if callable(found) else found

    return answer


class SignsIn:
    """Somebody who takes so long to sign in when asked to."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._token = ""

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return {"authorization": self._token} if self._token else {}

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
        await elapse(self._seconds)
        self._token = "Bearer x"
        return True


class Script:
    """`answer` is asked first; what it leaves (None) is answered as a small server of its era does."""

    def __init__(self, answer: Answer, *, modern: bool = True, session: str | None = "s-1") -> None:
        self.requests: list[Request] = []
        self.arrived = asyncio.Event()
        self._answer = answer
        self._modern = modern
        self._session = session

    def of(self, rpc: str) -> list[Request]:
        return [request for request in self.requests if request.rpc == rpc]

    async def until(self, rpc: str, count: int = 1) -> Request:
        while len(found := self.of(rpc)) < count:
            self.arrived.clear()
            await self.arrived.wait()
        return found[count - 1]

    def client(self, url: str = URL, **options: Any) -> Client:
        target = {name: options.pop(name) for name in ("headers", "auth", "limit") if name in options}
        return Client(HttpTarget(url, pool=AsgiPool(self), **target), **options)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        first = await receive()
        request = Request(scope["method"], scope["path"], headers, first.get("body", b""))
        self.requests.append(request)
        self.arrived.set()
        task = asyncio.current_task()
        watching = asyncio.ensure_future(self._watch(request, receive, task))
        try:
            answer = self._answer(request)
            reply = await answer if asyncio.iscoroutine(answer) else answer
            await self._send(reply or self._usual(request), send)
        finally:
            watching.cancel()

    async def _watch(self, request: Request, receive: Any, task: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        request.disconnected.set()
        await asyncio.sleep(0)
        task.cancel()

    async def _send(self, reply: Reply, send: Any) -> None:
        headers = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if isinstance(reply.body, bytes):
            await send({"type": "http.response.body", "body": reply.body})
            return
        async for piece in reply.body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _usual(self, request: Request) -> Reply:
        if request.method == "DELETE":
            return Reply(204, {})
        if request.method == "GET":
            return Reply(405, {})
        if "id" not in request.message or request.rpc == "answer":
            return Reply(202, {})
        if self._modern:
            return result(request, **(DISCOVERED if request.rpc == "server/discover" else {"content": text("ok")}))
        if request.rpc == "server/discover":
            return refusal(request, -32000, id=False)
        if request.rpc == "initialize":
            return initialized(request, session=self._session)
        return Reply(body=rpc(id=request.id, result={} if request.rpc == "ping" else {"content": text("ok")}))
