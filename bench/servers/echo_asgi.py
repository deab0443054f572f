"""The limit over HTTP: an ASGI application that answers a POST with JSON and a GET with a stream that says nothing."""

from __future__ import annotations

from typing import Any

from echo_server import answer, decode, encode


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise NotImplementedError  # No lifespan: uvicorn takes this for an answer.
    if scope["method"] == "GET":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    request = decode(body)
    reply = encode({"jsonrpc": "2.0", "id": request.id, "result": answer(request)})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})
