"""Headers of a caller's request that may go on to another server, if the operator names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from toolwire.base_errors import ServerError
from toolwire.protocol.errors import INVALID_REQUEST, ProtocolError
from toolwire.protocol.http import DUPLICATE

# Headers that are for this server, or for one connection, and never go on.
_NEVER: Final = frozenset(
    (
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "dpop",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "origin",
        "proxy-authorization",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_NEVER_BEGINNINGS: Final = ("mcp-", "proxy-", "sec-")
#: Headers by which callers prove who they are. 2025-06-18 basic/authorization: a token is for this server alone.
SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "x-api-key"})
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)


def spell_header(name: str) -> str:
    """Return the name of a header in the one spelling that is compared.

    CGI and WSGI read `-` and `_` alike, so that both are one header for every decision.
    """
    return name.lower().replace("_", "-")


def find_secret_headers(names: Iterable[str]) -> list[str]:
    """Return the names of headers that carry what callers prove themselves with."""
    return [name for name in names if spell_header(name) in SECRET_HEADERS]


def forwardable(names: Iterable[str], option: str) -> tuple[str, ...]:
    """Return the names of headers in lower case. Raise `ServerError` for one that never goes on.

    `option` names the setting in error texts. The caller of this function decides about secret headers.
    """
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ServerError(f"{option} has names of headers, not {name!r}")
        if spell_header(name) in _NEVER or spell_header(name).startswith(_NEVER_BEGINNINGS):
            raise ServerError(f"{option} cannot have {name!r}: it is for this server alone")
    return tuple(dict.fromkeys(name.lower() for name in found))


def take_forwarded(sent: Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str]:
    """Return the headers of a client's request that have one of these names.

    Raise `ProtocolError` for one that was sent more than once: the next server may read another one than this server.
    """
    found = {name: sent[name] for name in names if name in sent} if sent else {}
    for name, value in found.items():
        if DUPLICATE in value:
            raise ProtocolError(INVALID_REQUEST, f"The header {name} was sent more than once")
    return found
