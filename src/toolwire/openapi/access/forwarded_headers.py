"""Forward headers of a caller's request to an API, if the operator names them.

2025-06-18 basic/authorization, access token privilege restriction: the token of a caller is for this server alone. So
the headers that carry it, and cookies, are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from toolwire.base_errors import ServerError
from toolwire.server.call import Call
from toolwire.server.forwarded_headers import find_secret_headers, forwardable, spell_header, take_forwarded

log: logging.Logger = logging.getLogger("toolwire.openapi")


def allowed(names: Iterable[str], *, passthrough: bool = False) -> tuple[str, ...]:
    """Return the names of forwarded headers, in lower case.

    Raises `ServerError` for a header that must not be forwarded.
    """
    found = forwardable(names, "forward_headers=")
    for name in find_secret_headers(found):
        if not passthrough:
            raise ServerError(
                f"forward_headers= cannot have {name!r}: what callers prove themselves with here is not for the API. "
                "Use credentials= instead, or passthrough=True if both are the same service"
            )
        log.warning("the header %s of callers is handed on to the API, which MCP forbids for tokens", name)
    return found


def add_forwarded(call: Call, names: Iterable[str], headers: Mapping[str, str]) -> dict[str, str]:
    """Add the named headers of the caller's request to those of an API request.

    What the operation sends wins. Over standard input, a caller has no headers.
    """
    sent: Mapping[str, str] | None = call.request.headers
    if not sent:
        return dict(headers)
    own = {spell_header(name) for name in headers}
    return {**take_forwarded(sent, (name for name in names if spell_header(name) not in own)), **headers}
