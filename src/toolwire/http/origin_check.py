"""The check of `Host` and `Origin` that every HTTP request passes before its body is read.

A page in a browser can send requests to every server that its user can reach. The `Origin` header shows that a page
sent them. Where the page's own name was rebound to the address of the server, the `Host` header shows it (2026-07-28
basic/transports/streamable-http, security).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from toolwire.http.responses import HttpRefusal

_LOCAL_ORIGIN: Final = re.compile(r"https?://(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?")


class Guard:
    """The hosts and origins that a server answers to.

    An IP address is always accepted as a `Host`, because nobody can rebind it. A server on a loopback address accepts
    localhost and the names that it was given. A server on any other address accepts every name, unless it was given
    some.

    An origin that may call may also read the answers.
    """

    def __init__(
        self,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        public_url: str | None = None,
        local_pages: bool = False,
    ) -> None:
        """`local_pages`: whether the pages of this machine may call a server on a loopback address."""
        self._local_pages = local_pages
        self._hosts = {host.lower() for host in allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in allowed_origins}
        if public_url is not None:
            parts = urlsplit(public_url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ValueError(f"public_url must be an http or https address, not {public_url!r}")
            # Without the port, because some proxies drop it.
            self._hosts.add(without_port(parts.netloc.lower()))
            self._origins.add(f"{parts.scheme}://{parts.netloc}".lower())

    def check(self, host: str | None, origin: str | None, scheme: str, local_address: str | None) -> HttpRefusal | None:
        """Return why a request is refused; None when it may pass. `local_address`: where the connection arrived."""
        checks_host = bool(self._hosts) or (local_address is not None and is_loopback(local_address))
        if checks_host and not self._is_expected(host):
            return HttpRefusal(
                421, f"The host {(host or '')[:200]!r} is not served here; name it in public_url or allowed_hosts"
            )
        if origin is not None and not self._may_call(origin.lower(), host, scheme, local_address):
            return HttpRefusal(
                403, f"The origin {origin[:200]!r} is not allowed; name it in public_url or add it to allowed_origins"
            )
        return None

    def _is_expected(self, host: str | None) -> bool:
        if host is None:
            return False
        host = host.lower()
        name = without_port(host)
        is_named = not self._hosts.isdisjoint(("*", host, name))
        return is_named or name == "localhost" or _is_address(name)

    def _may_call(self, origin: str, host: str | None, scheme: str, local_address: str | None) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        if host is None or not self._is_expected(host):
            return False  # A page whose name was rebound has the same origin as its Host, and would pass below.
        # Sandboxed pages and files send `null`, which matches no origin.
        return origin == f"{scheme}://{host.lower()}" or (
            # A program that serves a page on this machine could call without a browser. The host has to be local, too:
            # a proxy on this machine passes on requests for other names.
            self._local_pages
            and local_address is not None
            and is_loopback(local_address)
            and _LOCAL_ORIGIN.fullmatch(f"http://{host.lower()}") is not None
            and _LOCAL_ORIGIN.fullmatch(origin) is not None
        )


def without_port(host: str) -> str:
    """Return a host without its port."""
    name, separator, port = host.rpartition(":")
    # In an IPv6 address without a port the last colon is part of the address.
    return name if separator and (port.isdigit() or not port) else host


def _is_address(name: str) -> bool:
    """Return whether a host is an IP address, in the notation of a `Host` header."""
    try:
        _ = IPv6Address(name[1:-1]) if name.startswith("[") and name.endswith("]") else IPv4Address(name)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def is_loopback(address: str) -> bool:
    """Return whether an address belongs to the machine itself."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
