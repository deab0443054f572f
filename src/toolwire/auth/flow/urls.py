"""URLs that servers name: syntax, which resource covers which server, and reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from toolwire.auth.errors import SignInFailed, quoted
from toolwire.http1.url import origin, parse_url

MAX_URL: Final = 4_096
_SCHEMES: Final = ("http", "https")


def split_url(url: str, what: str) -> SplitResult:
    """Split an absolute http or https URL; raise `SignInFailed` for anything else."""
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise SignInFailed(f"{what} is not a URL that can be used: {quoted(url)}")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _SCHEMES and parse_url(url).port != 0
    except ValueError:
        usable = False
    # People and some parsers take a user name before the host for the host.
    if not usable or "@" in parts.netloc:
        raise SignInFailed(f"{what} is not an http or https URL that can be used: {quoted(url)}")
    return parts


def host_of(parts: SplitResult) -> str:
    return (parts.hostname or "").rstrip(".")


def origin_of(parts: SplitResult) -> str:
    return origin(parts.geturl())


def same_origin(url: str, other: str) -> bool:
    """Return whether two URLs have one origin; raise `SignInFailed` for an unusable URL."""
    return origin_of(split_url(url, "The URL")) == origin_of(split_url(other, "The URL"))


def origin_url(url: str) -> str:
    """Return scheme, host and port of a URL, without a slash at the end."""
    parts = split_url(url, "The server's URL")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def canonical_resource(url: str) -> str:
    """Return the URI of a server in the form of RFC 8707.

    Scheme and host are in lower case, without a fragment and a bare slash.
    """
    parts = split_url(url, "The server's URL")
    return urlunsplit((parts.scheme, parts.netloc.lower(), "" if parts.path == "/" else parts.path, parts.query, ""))


def without_query(url: str) -> str:
    parts = split_url(url, "The server's URL")
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path or "/", "", ""))


def covers(resource: str, url: str) -> bool:
    """Return whether the metadata of `resource` covers the server at `url`.

    It does with the same origin, and the same path or one above it.
    """
    theirs, ours = split_url(resource, "The resource"), split_url(url, "The server's URL")
    if origin_of(theirs) != origin_of(ours) or theirs.fragment or (theirs.query and theirs.query != ours.query):
        return False
    above, path = theirs.path.rstrip("/") + "/", ours.path.rstrip("/") + "/"
    return path.startswith(above)


def checked_issuers(accepted: Mapping[str, str]) -> Mapping[str, str]:
    """Return `accept_issuer=`; raise ValueError for what are no URLs of issuers."""
    if not isinstance(accepted, Mapping):
        raise ValueError("accept_issuer= is a mapping of the issuer that is named to the one in its metadata")
    for issuer in (*accepted, *accepted.values()):
        if not isinstance(issuer, str) or not issuer.startswith(("https://", "http://")):
            raise ValueError(f"accept_issuer= names issuers by their URLs, not {issuer!r:.100}")
    return dict(accepted)


def well_known(url: str, name: str, *, path: bool = True) -> str:
    """Return the well-known URL of a name, which stands between host and path.

    RFC 8414 section 3, RFC 9728 section 3.1.
    """
    parts = split_url(url, "The URL")
    return f"{parts.scheme}://{parts.netloc}/.well-known/{name}" + (parts.path.rstrip("/") if path else "")


def is_loopback_host(host: str) -> bool:
    """Return whether a name means this machine by definition. Other names are not resolved."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Zone(Enum):
    """The addresses to which a URL may lead once its host is resolved."""

    #: Any address, because the user named the host.
    NAMED = "named"
    #: This machine.
    LOOPBACK = "loopback"
    #: Public addresses only.
    PUBLIC = "public"


class Reach:
    """The URLs that a client may fetch because a server named them.

    See 2026-07-28 security best practices, SSRF.

    Allowed are https URLs at public addresses. Plain http and loopback are allowed only if the server itself is on
    loopback. The server's own origin, which the user named, and `trusted_hosts` may be at any address. `server_url` is
    None where the user named no server.
    """

    def __init__(self, server_url: str | None, trusted_hosts: Collection[str] = ()) -> None:
        parts = None if server_url is None else split_url(server_url, "The server's URL")
        self.local: bool = parts is not None and is_loopback_host(host_of(parts))
        self._own = None if parts is None else origin_of(parts)
        self._trusted_hosts = {host.lower().rstrip(".") for host in trusted_hosts}

    def zone(self, url: str, what: str) -> Zone:
        """Return the zone of this URL; raise `SignInFailed` if it must not be fetched."""
        parts = split_url(url, what)
        host = host_of(parts)
        loopback = is_loopback_host(host)
        if parts.scheme != "https" and not (self.local and loopback):
            raise SignInFailed(f"{what} has to be https: {quoted(url)}")
        if origin_of(parts) == self._own or host in self._trusted_hosts:
            return Zone.NAMED
        if loopback and not self.local:
            raise SignInFailed(f"{what} is on this machine and the server is not: {quoted(url)}")
        return Zone.LOOPBACK if loopback else Zone.PUBLIC
