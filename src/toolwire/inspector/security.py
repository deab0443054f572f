"""The checks of every request: only the page itself, on this machine, is served.

The page can call tools on behalf of its user. So every operation carries a random token that no other page knows, and
comes from this machine and this page. Only the files of the page need no token.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from toolwire.http.origin_check import Guard, is_loopback
from toolwire.http.responses import HttpRefusal
from toolwire.http1.asgi_types import HeaderList

TOKEN_HEADER: Final = "x-toolwire-token"

_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    # Pictures and sounds of a server are inside its messages. The page fetches nothing from the network.
    "img-src 'self' data: blob:",
    "media-src data: blob:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    # No text becomes markup, even by mistake.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def page_headers(views: str | None) -> HeaderList:
    """Return the headers of every answer.

    `views` is the origin of the frames of views; None where none are served. A permission is delegated to that origin
    alone, and there only to a frame that the user allowed it (`allow`).
    """
    delegated = "" if views is None else f'"{views}"'
    headers = {
        "content-security-policy": "; ".join((*_POLICY, f"frame-src blob: {views or ''}".rstrip())),
        "permissions-policy": f"camera=({delegated}), microphone=({delegated}), geolocation=({delegated}), "
        f"clipboard-write=({' '.join(filter(None, ('self', delegated)))})",
        **_HEADERS,
    }
    return tuple((name.encode(), value.encode()) for name, value in headers.items())


class AccessCheck:
    """The checks of a request; each raises `HttpRefusal`."""

    def __init__(self, token: str | None = None) -> None:
        self.token: str = token or secrets.token_urlsafe(32)
        self._guard = Guard()

    def check_source(self, headers: Mapping[str, str], local_address: str | None, remote_address: str | None) -> None:
        """Check the machine, the Host (DNS rebinding shows there) and the Origin."""
        for address in (local_address, remote_address):
            if address is None or not is_loopback(address):
                raise HttpRefusal(403, "The inspector is for this machine only")
        refusal = self._guard.check(headers.get("host"), headers.get("origin"), "http", local_address)
        if refusal is not None:
            raise HttpRefusal(refusal.status, "The inspector answers only its own page, at the address it printed")

    def check_token(self, headers: Mapping[str, str]) -> None:
        given = headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode("latin-1", "replace"), self.token.encode()):
            raise HttpRefusal(401, "Open the address that the inspector printed: it carries the token")
