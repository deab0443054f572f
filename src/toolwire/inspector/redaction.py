"""Secrets are replaced before anything is shown, exported or copied.

A secret is recognised by the name of its header or member, or because the user of the inspector gave it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

MASK: Final = "••••"

_SEPARATORS: Final = re.compile("[-_ ]")
# Compared without separators and in lower case, as whole names: `progressToken` and `nextCursor` are not secrets.
_SECRET_MEMBERS: Final = frozenset(
    {
        "accesskey",
        "accesstoken",
        "apikey",
        "apitoken",
        "assertion",
        "authorization",
        "authtoken",
        "bearertoken",
        "clientassertion",
        "clientsecret",
        "codeverifier",
        "cookie",
        "credentials",
        "idtoken",
        "passphrase",
        "passwd",
        "password",
        "pin",
        "privatekey",
        "refreshtoken",
        "registrationaccesstoken",
        "secret",
        "secretkey",
        "sessiontoken",
        "setcookie",
        "subjecttoken",
        "token",
    }
)
# Names that are secrets only in a message of OAuth.
_SECRET_IN_OAUTH: Final = frozenset({"code", "state"})
_SECRET_HEADER: Final = re.compile("auth|cookie|token|secret|key|password|session|signature|dpop", re.IGNORECASE)
_PUBLIC_HEADERS: Final = frozenset({"www-authenticate", "proxy-authenticate", "dpop-nonce"})
#: Shorter values of the user's are not searched for in texts: they stand everywhere.
_SHORTEST: Final = 6


def mask(value: str) -> str:
    """Replace a secret by its length.

    An empty or a cut secret is a common mistake.
    """
    return f"{MASK} ({len(value)} characters)"


def mask_headers(headers: Mapping[str, str], given: Collection[str] = ()) -> dict[str, str]:
    """Replace the values of secret headers, and of the headers in `given`."""
    secret = {name.lower() for name in given}
    return {
        name: _mask_header(value) if name.lower() in secret or _is_secret_header(name) else value
        for name, value in headers.items()
    }


def _is_secret_header(name: str) -> bool:
    return name.lower() not in _PUBLIC_HEADERS and _SECRET_HEADER.search(name) is not None


def _mask_header(value: str) -> str:
    scheme, space, credentials = value.partition(" ")
    # RFC 9110 section 11.4: a scheme, then what is secret.
    return f"{scheme} {mask(credentials)}" if space and scheme in ("Bearer", "Basic", "DPoP") else mask(value)


def mask_members(value: Any, *, is_oauth: bool = False, texts: Callable[[str], str] | None = None) -> Any:
    """Copy a JSON value without its secrets; `texts` sees every other text."""
    if isinstance(value, dict):
        return {
            name: mask(member)
            if isinstance(member, str) and _is_secret_member(name, is_oauth)
            else mask_members(member, is_oauth=is_oauth, texts=texts)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [mask_members(item, is_oauth=is_oauth, texts=texts) for item in value]
    return texts(value) if texts is not None and isinstance(value, str) else value


def _is_secret_member(name: str, is_oauth: bool) -> bool:
    bare = _SEPARATORS.sub("", name).lower()
    return bare in _SECRET_MEMBERS or (is_oauth and bare in _SECRET_IN_OAUTH)


def mask_form(body: bytes) -> dict[str, str]:
    """Read a form, or the query of a URL, without its secrets."""
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: mask(value) if _is_secret_member(name, is_oauth=True) else value for name, value in pairs}


def mask_url(url: str) -> str:
    """Replace the secrets in the query of a URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if not parts.query:
        return url
    return urlunsplit(parts._replace(query=urlencode(mask_form(parts.query.encode()), safe=f"{MASK}() ")))


def hide(secrets: Collection[str]) -> Callable[[str], str]:
    """Make a function that replaces these values wherever they stand in a text."""
    known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
    if not known:
        return str
    pattern = re.compile("|".join(map(re.escape, known)))
    return lambda text: pattern.sub(MASK, text)
