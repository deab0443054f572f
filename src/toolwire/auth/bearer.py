"""The credentials of a request: a bearer or DPoP token (RFC 6750, RFC 9449)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from toolwire.protocol.http import DUPLICATE

Scheme: TypeAlias = Literal["bearer", "dpop"]

_CREDENTIALS: Final = re.compile(r"([A-Za-z]+) +([A-Za-z0-9\-._~+/]+=*)", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*", re.ASCII)
_SCHEME: Final = re.compile(r"(?:bearer|dpop)(?:\s|$)", re.IGNORECASE | re.ASCII)
_IN_QUERY: Final = re.compile(r"(?:^|&)(?:access_token|authorization|bearer)=", re.IGNORECASE | re.ASCII)


class RequestCredentials(Struct, frozen=True):
    """A token as it was sent. Its representation does not show it."""

    scheme: Scheme
    token: str
    header: str = "authorization"
    """The header that it came in, in lower case."""

    def __repr__(self) -> str:
        return f"RequestCredentials({self.scheme!r})"


class MalformedCredentials(Exception):
    """The error for malformed credentials. Its text says what is wrong."""


def credentials(headers: Mapping[str, str], key_headers: Iterable[str] = ()) -> RequestCredentials | None:
    """Return the credentials of a request; None if it has none of a known kind.

    Raises `MalformedCredentials`.

    `key_headers` are the names, in lower case, of headers that contain only a key.
    """
    value = headers.get("authorization")
    if key_headers and (keys := [(name, headers[name]) for name in key_headers if name in headers]):
        if len(keys) > 1 or value is not None:
            raise MalformedCredentials("Send one key or token, in one header")
        name, key = keys[0]
        if _TOKEN.fullmatch(key) is None:
            raise MalformedCredentials(f"The header {name} is malformed: send it once, with the key alone")
        return RequestCredentials("bearer", key, name)
    if value is None:
        return None
    if DUPLICATE in value:
        # If two programs read different headers, they see two different callers.
        raise MalformedCredentials("One Authorization header, please")
    found = _CREDENTIALS.fullmatch(value)
    scheme = "" if found is None else found[1].lower()
    if found is not None and scheme in ("bearer", "dpop"):
        return RequestCredentials(scheme, found[2])  # type: ignore[arg-type]
    if _SCHEME.match(value.lstrip()):
        raise MalformedCredentials("The Authorization header is malformed: send `Bearer`, one space and the token")
    return None


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a request; None if the header is missing or malformed.

    The names of the headers may be in any case.
    """
    sent = [value for name, value in headers.items() if name.lower() == "authorization"]
    try:
        found = credentials({"authorization": DUPLICATE.join(sent)}) if sent else None
    except MalformedCredentials:
        return None
    return found.token if found is not None and found.scheme == "bearer" else None


def check_query(query: bytes) -> None:
    """2026-07-28 basic/authorization, token requirements: refuse a token in the query string, which logs would keep."""
    if query and _IN_QUERY.search(query.decode("latin-1")):
        raise MalformedCredentials(
            "Send the token in the Authorization header, never in the address; and replace it, it was seen"
        )
