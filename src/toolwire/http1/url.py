"""The URL of an HTTP request, read once into its parts."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from toolwire.http1 import public_addresses

_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_NAME: Final = re.compile("[0-9A-Za-z._-]+")
# A URL without surprises before its path: no user, no address in brackets, nothing that is encoded.
_PLAIN_ORIGIN: Final = re.compile(r"https?://[0-9A-Za-z._-]+(?::[0-9]{1,5})?(?=/)")
# RFC 3986 section 3.3 and 3.4: what stands in a path or a query as it is; `%` because much is encoded already.
_IN_PATH: Final = "/%:@!$&'()*+,;=~"
_IN_QUERY: Final = _IN_PATH + "?"


class HttpUrl(NamedTuple):
    """The parts of a URL, in the form in which they are used."""

    secure: bool
    #: A name in ASCII, or an address without brackets.
    host: str
    port: int
    #: Path and query.
    target: str
    #: What the user and password in the URL amount to.
    authorization: str | None

    @property
    def authority(self) -> str:
        """Return host and port for the header `Host`, without the scheme's own port."""
        host = self.host.partition("%")[0]
        shown = f"[{host}]" if ":" in host else host
        return shown if self.port == (443 if self.secure else 80) else f"{shown}:{self.port}"


def parse_url(url: str) -> HttpUrl:
    """Return the parts of an `http` or `https` URL; raise ValueError for anything else."""
    parts = urlsplit(url)
    default = _DEFAULT_PORTS.get(parts.scheme)
    if default is None or not parts.hostname:
        raise ValueError("not a URL of http or https")
    port = default if parts.port is None else parts.port
    target = quote(parts.path, safe=_IN_PATH) or "/"
    if parts.query:
        target += "?" + quote(parts.query, safe=_IN_QUERY)
    return HttpUrl(parts.scheme == "https", _host(parts.hostname), port, target, _authorization(parts))


# An application calls few hosts, and the idna codec is slow.
@lru_cache(maxsize=256)
def _host(name: str) -> str:
    if public_addresses.parse(name) is not None:
        return name.replace("%25", "%")  # RFC 6874: so is the sign before a zone written in a URL.
    host = name.encode("idna").decode("ascii")
    if _NAME.fullmatch(host) is None:
        raise ValueError("not the name of a host")
    return host


def _authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(said.encode()).decode("ascii")


def origin(url: str) -> str:
    """Return scheme, host and port of a URL: nothing that could be a secret."""
    plain = _PLAIN_ORIGIN.match(url)
    return _origin(url) if plain is None else _known_origin(plain[0])


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = port_of(parts)
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://[{host}]{shown}" if ":" in host else f"{parts.scheme}://{host}{shown}"


# An application calls few hosts, and many addresses at each.
_known_origin: Final = lru_cache(maxsize=256)(_origin)


def port_of(parts: SplitResult) -> int | None:
    """Return the port that a URL names; None for no port or an impossible one."""
    try:
        return parts.port
    except ValueError:
        return None
