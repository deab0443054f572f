"""The URL of an HTTP request, read once into its parts."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from toolwire.http1 import public_addresses

_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_NAME: Final = re.compile("[0-9A-Za-z._-]+")
# RFC 6874: what stands in the zone of an address.
_ZONE: Final = re.compile("[0-9A-Za-z._~-]+")
# What follows a user: one name, or one address in brackets, and a port. Other parsers read anything else in other ways.
_PLACE: Final = re.compile(r"(?:\[[^\[\]@\\]+\]|[^\[\]@:\\]+)(?::[0-9]*)?")
# A URL without surprises before its path: no user, no address in brackets, nothing that is encoded.
_PLAIN_ORIGIN: Final = re.compile(r"https?://[0-9A-Za-z._-]+(?::[0-9]{1,5})?(?=/)")
# RFC 3986 section 3.3 and 3.4: what stands in a path or a query as it is; `%` because much is encoded already.
_IN_PATH: Final = "/%:@!$&'()*+,;=~"
_IN_QUERY: Final = _IN_PATH + "?"
_NO_URL: Final = "not a URL of http or https"


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
    parts = _split(url)
    if not parts.hostname:
        raise ValueError(_NO_URL)
    port = _port(parts)
    target = quote(parts.path, safe=_IN_PATH) or "/"
    if parts.query:
        target += "?" + quote(parts.query, safe=_IN_QUERY)
    return HttpUrl(parts.scheme == "https", _host(parts.hostname), port, target, _authorization(parts))


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # Brackets without an address between them, or, since Python 3.14, not around the whole host.
        raise ValueError(_NO_URL) from None


def _port(parts: SplitResult) -> int:
    """Return the port; raise ValueError for an unsupported or ambiguous scheme, host or port."""
    default = _DEFAULT_PORTS.get(parts.scheme)
    user, _, place = parts.netloc.rpartition("@")
    if default is None or "\\" in user or _PLACE.fullmatch(place) is None:
        raise ValueError(_NO_URL)
    return default if parts.port is None else parts.port


# An application calls few hosts, and the idna codec is slow.
@lru_cache(maxsize=256)
def _host(name: str) -> str:
    address = public_addresses.parse(name)
    if address is not None:
        written, sign, zone = name.partition("%")
        zone = zone.removeprefix("25")  # RFC 6874: so is the sign before a zone written in a URL.
        if sign and (_ZONE.fullmatch(zone) is None or address.version == 4):
            raise ValueError("not the address of a host")
        return f"{written}%{zone}" if sign else written
    host = name.encode("idna").decode("ascii").lower()
    if _NAME.fullmatch(host) is None or not (name.isascii() or _is_same_name(name, host)):
        raise ValueError("not the name of a host")
    return host


def _is_same_name(name: str, host: str) -> bool:
    """Return whether IDNA 2008 and IDNA 2003 read a name the same way.

    IDNA 2003 wrote it in ASCII: there `ß` was `ss`.
    """
    return unicodedata.normalize("NFKC", name).replace("\u3002", ".").lower() == host.encode("ascii").decode("idna")


def _authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(said.encode()).decode("ascii")


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, in one spelling, and nothing secret.

    The text for a URL that cannot be requested is the origin of no URL that can.
    """
    plain = _PLAIN_ORIGIN.match(url)
    return _origin(url) if plain is None else _known_origin(plain[0])


def _origin(url: str) -> str:
    try:
        parts = _split(url)
    except ValueError:
        return "?://"
    try:
        port = _port(parts)
        host = _canonical_host(parts.hostname or "")
    except ValueError:
        return f"{parts.scheme}://{parts.hostname or ''}{':?' if parts.scheme in _DEFAULT_PORTS else ''}"
    return f"{parts.scheme}://{host}" if port == _DEFAULT_PORTS[parts.scheme] else f"{parts.scheme}://{host}:{port}"


def _canonical_host(name: str) -> str:
    """Return the one spelling of a host; raise ValueError for what is none.

    A dot at the end stays: where search domains are in use, `tools.` and `tools` are two machines.
    """
    host = _host(name)
    address = public_addresses.parse(host)
    if not isinstance(address, IPv6Address):
        return host
    # Python writes an address with another one inside differently in 3.13 and later.
    written = address.compressed if address.ipv4_mapped is None else f"::ffff:{address.ipv4_mapped}"
    _, sign, zone = host.partition("%")
    return f"[{written}%25{zone}]" if sign else f"[{written}]"


# An application calls few hosts, and many addresses at each.
_known_origin: Final = lru_cache(maxsize=256)(_origin)


def port_of(parts: SplitResult) -> int | None:
    """Return the port that a URL names; None for no port or an impossible one."""
    try:
        return parts.port
    except ValueError:
        return None
