"""Reading and checking the head of an HTTP request, before its body is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from toolwire.http.responses import HttpRefusal
from toolwire.http1.asgi_types import HeaderList, Scope
from toolwire.protocol.http import DUPLICATE, METHOD, NAME, PARAMETER, SESSION, VERSION

_BROWSERS_MAY_SEND: Final = (
    "Authorization",
    "DPoP",
    "Content-Type",
    "Accept",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Session-Id",
    "Last-Event-ID",
)
_PARAMETER_HEADER: Final = re.compile(re.escape(PARAMETER) + "[!#$%&'*+.^_`|~0-9a-z-]{1,100}")


def preflight(headers: Mapping[str, str], more: Iterable[str] = ()) -> HeaderList:
    """Return the headers that answer a preflight request.

    A browser may send every header of the protocol, those in `more`, and the parameter headers that it asks for.
    """
    asked = headers.get("access-control-request-headers", "").lower().split(",")[:100]
    parameters = [name for name in map(str.strip, asked) if _PARAMETER_HEADER.fullmatch(name)]
    return (
        (b"access-control-allow-methods", b"POST, GET, DELETE"),
        (b"access-control-allow-headers", ", ".join([*_BROWSERS_MAY_SEND, *more, *parameters]).encode()),
        (b"access-control-max-age", b"600"),
    )


class _Names(dict[bytes, str]):
    """The names of headers as texts: usual ones are looked up, others are decoded."""

    def __missing__(self, raw: bytes) -> str:
        return raw.decode("latin-1").lower()


_NAMES: Final = _Names(
    (name.encode(), name)
    for name in (
        *("host", "origin", "user-agent", "accept", "accept-encoding", "connection", "authorization"),
        *("content-type", "content-length", VERSION, METHOD, NAME, SESSION),
    )
)


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by their lower-case names. The values of a repeated header are joined by `DUPLICATE`."""
    raw: Sequence[tuple[bytes, bytes]] = scope["headers"]
    names = _NAMES
    headers = {names[name]: value.decode("latin-1") for name, value in raw}
    if len(headers) != len(raw):
        headers = {}
        for raw_name, raw_value in raw:
            name, value = names[raw_name], raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}{DUPLICATE}{value}" if name in headers else value
    return headers


def path_of(scope: Scope) -> str:
    """Return the path below the prefix under which the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    root = root.rstrip("/")
    # Some hosts leave the prefix in the path, some cut it off.
    return path[len(root) :] if root and (path == root or path.startswith(root + "/")) else path


def check_media(headers: Mapping[str, str]) -> bool:
    """Raise `HttpRefusal` when the body is not JSON, or when the client accepts neither JSON nor an event stream.

    Return whether the client accepts nothing but an event stream.
    """
    content_type = headers.get("content-type", "")
    if content_type != "application/json" and content_type.partition(";")[0].strip().lower() != "application/json":
        raise HttpRefusal(415, "Send application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "Send the body without a content encoding", ((b"accept-encoding", b"identity"),))
    accepted = headers.get("accept", "*/*").lower()
    if "application/json" in accepted or "*/*" in accepted or "application/*" in accepted:
        return False
    if "text/event-stream" not in accepted and "text/*" not in accepted:
        raise HttpRefusal(406, "Accept application/json and text/event-stream")
    return True
