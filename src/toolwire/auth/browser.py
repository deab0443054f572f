"""Browsers on the pages of a server: cookies, forms, page layout and sign-in."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable
from urllib.parse import parse_qsl

from toolwire.auth.principal import Principal
from toolwire.auth.resource import ASKER
from toolwire.auth.verify.provider_limits import Throttled
from toolwire.auth.verify.verifier import Asker
from toolwire.http1.asgi_types import HeaderList, Scope
from toolwire.protocol.http import DUPLICATE
from toolwire.protocol.sealing import encode_base64url

_BYTES: Final = 32
_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch
#: Headers of an answer that must not be kept, and whose address must not reach the next page.
NO_STORE: Final[HeaderList] = ((b"cache-control", b"no-store"), (b"referrer-policy", b"no-referrer"))

#: The page loads nothing and runs nothing, and no other page can put it into a frame. Its address stays here; with
#: `no-referrer`, browsers would hide the origin of its forms from this server, too.
PAGE_HEADERS: Final[HeaderList] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)

_FRAME: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 3rem auto; padding: 0 1rem; }}
dt {{ font-weight: 600; }} dd {{ margin: 0 0 .75rem; overflow-wrap: anywhere; }}
.warning {{ border-left: .25rem solid #b45309; padding-left: .75rem; }}
button {{ font: inherit; padding: .5rem 1.25rem; margin-right: .75rem; }}
</style></head><body>
<h1>{title}</h1>
{body}
</body></html>
"""

PageResponse: TypeAlias = tuple[int, bytes, HeaderList]


class BadPage(Exception):
    """A problem that is shown on a page, because no redirect is safe."""


class SignInBegun(NamedTuple):
    """A sign-in that has begun in a browser."""

    url: str
    """The address that the browser is sent to."""
    state: str
    """The parameter that identifies the answer."""
    memory: str
    """The text that is needed when the answer comes. It is secret."""

    def __repr__(self) -> str:
        return "SignInBegun(...)"


class SignedIn(NamedTuple):
    """A user who has signed in, and the token that proves it."""

    principal: Principal
    proof: str
    """The token with which `identify_again` finds the user again. It is secret."""

    def __repr__(self) -> str:
        return f"SignedIn({self.principal!r})"


@runtime_checkable
class BrowserSignIn(Protocol):
    """Identifies the user of a browser with the authorization that the server's callers use."""

    callback: str
    """The path that the browser comes back to."""

    async def begin_sign_in(self, provider: str) -> SignInBegun:
        """Begin a sign-in. Raise `SignInFailed` or `Unavailable`.

        `provider` is that of the principal who is expected; empty where anybody may come.
        """

    async def end_sign_in(self, memory: str, parameters: Mapping[str, str]) -> SignedIn:
        """Return the user. Raise `SignInFailed`, `InvalidToken` or `Unavailable`."""

    async def identify_again(self, proof: str) -> Principal:
        """Return the user of a proof, as callers are judged now. Raise `InvalidToken` or `Unavailable`."""


class BrowserCookie:
    """A cookie with a random value, whose digest binds a page to its browser."""

    def __init__(self, name: str, public_url: str, seconds: float) -> None:
        # No other host can set a cookie with this prefix, nor can plain http. So it is not used on plain http.
        self._is_secure = public_url.startswith("https://")
        self._name = f"__Host-{name}" if self._is_secure else name
        self._seconds = seconds

    def read_value(self, headers: Mapping[str, str]) -> str | None:
        """Return the value that a browser sent; None if it has no valid cookie."""
        pairs = headers.get("cookie", "").replace(DUPLICATE, ";").split(";")
        values = [value for name, _, value in (pair.strip().partition("=") for pair in pairs) if name == self._name]
        return values[0] if len(values) == 1 and _VALUE(values[0]) else None

    def given(self, headers: Mapping[str, str]) -> tuple[str, tuple[bytes, bytes]]:
        """Return the value of a browser, perhaps a new one, and its Set-Cookie header.

        A value stays the same, so that several pages in one browser do not disturb each other.
        """
        value = self.read_value(headers) or secrets.token_urlsafe(_BYTES)
        secure = "; Secure" if self._is_secure else ""
        # Lax, since a provider sends the user back from another site.
        cookie = f"{self._name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={int(self._seconds)}{secure}"
        return value, (b"set-cookie", cookie.encode())


def form_of(encoded: bytes) -> dict[str, str]:
    """Parse the parameters of a form; empty if one comes twice (OAuth 2.1 section 3.1)."""
    try:
        pairs = parse_qsl(encoded.decode("ascii"), keep_blank_values=True, max_num_fields=40)
    except ValueError:
        return {}
    names = [name for name, _ in pairs]
    return {} if len(set(names)) != len(names) else dict(pairs)


def digest(text: str) -> str:
    """Return SHA-256 as base64url text.

    For a code verifier this is the S256 challenge (RFC 7636 section 4.2).
    """
    return encode_base64url(sha256(text.encode()).digest())


def page(title: str, body: str) -> bytes:
    """Make a page of its title and its HTML."""
    return _FRAME.format(title=escape(title), body=body).encode()


def error_page(text: str) -> bytes:
    """Make the page that shows a problem to the user."""
    body = f"<p>{escape(text)}</p><p>Close this page, and start again from the application.</p>"
    return page("This did not work", body)


def wait_page(error: Throttled) -> PageResponse:
    """Return the answer to a browser at an address that has to wait."""
    later = (b"retry-after", b"%d" % max(1, math.ceil(error.retry_after)))
    return 429, error_page("There were too many attempts. Try again in a minute"), (*PAGE_HEADERS, later)


def count_sign_in(scope: Scope) -> None:
    """Count a sign-in that a stranger begins; raise `Throttled` after too many of one address.

    Each may take room in the store, and a request to the provider.
    """
    asker: Asker | None = scope.get(ASKER)
    if asker is not None:
        asker.check()
        asker.count_in_vain()
