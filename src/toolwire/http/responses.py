"""Plain HTTP answers over ASGI, and the refusals among them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from toolwire.http1.asgi_types import HeaderList, SendMessage
from toolwire.protocol.errors import INVALID_REQUEST
from toolwire.protocol.http import Rejection
from toolwire.protocol.jsonrpc import RequestId, encode_error

ANYBODY: Final[HeaderList] = ((b"access-control-allow-origin", b"*"),)
"""With this header the page of any site may read the answer."""
JSON_TYPE: Final[HeaderList] = ((b"content-type", b"application/json"),)
TEXT_TYPE: Final[HeaderList] = ((b"content-type", b"text/plain; charset=utf-8"),)


class HttpReply(NamedTuple):
    """A whole HTTP answer."""

    status: int
    body: bytes
    headers: HeaderList


class Page(NamedTuple):
    """A page beside the endpoint."""

    answer: Callable[[Mapping[str, str]], Awaitable[HttpReply]]
    """Makes the answer from the headers of a GET."""
    decides: bool
    """Whether the page itself decides who may see it, instead of the gate."""


class HttpRefusal(Exception):
    """The refusal of an HTTP request: a status and a body. Raised while a request is checked."""

    def __init__(self, status: int, body: str | bytes, headers: HeaderList = ()) -> None:
        super().__init__(status)
        self.status = status
        # A text is for people who look at the traffic. Bytes are a JSON-RPC error.
        self.type: HeaderList = TEXT_TYPE if isinstance(body, str) else JSON_TYPE
        self.body: bytes = body.encode() if isinstance(body, str) else body
        self.headers = headers


def json_refusal(
    status: int,
    message: str,
    identifier: RequestId | None = None,
    headers: HeaderList = (),
    *,
    code: int = INVALID_REQUEST,
) -> HttpRefusal:
    """Make a refusal whose body is a JSON-RPC error (2025-11-25 basic/transports: it may be one without an id)."""
    return HttpRefusal(status, encode_error(identifier, code, message), headers)


def refuse(rejection: Rejection) -> HttpRefusal:
    """Make the refusal of a POST that the protocol rejects."""
    return HttpRefusal(rejection.status, rejection.body)


async def respond(send: SendMessage, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Send a whole answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
