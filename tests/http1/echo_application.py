"""An ASGI application and a server of it on our own server connection, for whatever speaks HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from toolwire.http1.server_connection import protocol_for

LARGE = 3_000_000
PIECES = 20


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer `/echo` with what was received, `/stream` in pieces, `/large` with much, `/empty` with nothing."""
    if scope["type"] != "http":
        return
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    path = scope["path"]
    if path == "/echo":
        told = {"method": scope["method"], "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        await answer(send, 200, json.dumps(told).encode(), b"application/json")
    elif path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        for number in range(PIECES):
            await send({"type": "http.response.body", "body": b"piece %d\n" % number, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})
    elif path == "/large":
        await answer(send, 200, b"x" * LARGE, b"text/plain")
    elif path == "/empty":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
    else:
        await answer(send, 404, b"nothing here", b"text/plain")


async def answer(send: Any, status: int, body: bytes, kind: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(http: Any = None) -> AsyncIterator[str]:
    """Serve the application; on another implementation of HTTP where one is given."""
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=0,
        http=http or protocol_for(asyncio.get_running_loop()),
        ws="none",
        lifespan="off",
        log_config=None,
        loop="none",
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    with contextlib.suppress(AttributeError):
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    running = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running
