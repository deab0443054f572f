"""Requests to providers: small JSON answers, within a time, without redirects.

A key server that redirects is not the one that was configured. Each fetch has a connection of its own, so that there is
nothing to close when a server stops; the callers cache the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from toolwire.auth.verify.verifier import Unavailable
from toolwire.http.origin_check import is_loopback
from toolwire.http1.public_addresses import Vet, is_public
from toolwire.protocol.errors import ServerError, Timeout, TransportError, counted
from toolwire.redaction import repr_without

MAX_BYTES: Final = 512 * 1024
SECONDS: Final = 5.0


class ProviderAnswer(Struct):
    """A response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return repr_without(self, "headers", "body")

    def json(self) -> dict[str, Any]:
        """Return the body as an object; raise `Unavailable` if it is not one."""
        try:
            return _read_object(self.body)
        except (ValueError, RecursionError):
            raise Unavailable("A provider answered with something that is not a JSON object") from None


_read_object = msgspec.json.Decoder(dict[str, Any]).decode


async def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    json: Any = None,
    seconds: float = SECONDS,
) -> ProviderAnswer:
    """Send a request to a provider.

    Raises `Unavailable` if it cannot be reached, is slow, or sends too much.
    """
    sent = {"accept": "application/json", **(headers or {})}
    body: bytes | None = None
    if form is not None:
        body, sent["content-type"] = urlencode(form).encode(), "application/x-www-form-urlencoded"
    elif json is not None:
        body, sent["content-type"] = msgspec.json.encode(json), "application/json"
    return await _fetch(method, url, sent, body, seconds)


async def fetch_from_anywhere(url: str) -> ProviderAnswer:
    """Fetch a document at an address that a remote party chose.

    Only public addresses are allowed.
    """
    return await _fetch("GET", url, {"accept": "application/json"}, None, SECONDS, is_public)


async def _fetch(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float, vet: Vet | None = None
) -> ProviderAnswer:
    # Imported here because it loads the HTTP client, which most servers with a verifier never use.
    from toolwire.http1 import fetch as http1

    host = urlsplit(url).hostname
    try:
        response, answer = await http1.fetch(
            method, url, headers=headers, body=body, max_bytes=MAX_BYTES, seconds=seconds, vet=vet
        )
    except Timeout:
        raise Unavailable(f"{host} did not answer within {counted(seconds, 'second')}") from None
    except TransportError as error:
        raise Unavailable(f"{host} could not be asked: {error}") from None
    return ProviderAnswer(response.status, response.headers, answer)


def checked_url(url: str, what: str) -> str:
    """Return an https address, or an http address on this machine; refuse any other.

    OAuth 2.1 section 1.5.
    """
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        is_safe = is_safe and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        is_safe = False
    if not is_safe:
        raise ServerError(f"The {what} is an https address, not {url!r}")
    return url
