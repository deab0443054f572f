"""Whom a request is counted for: its principal, otherwise the address that it comes from.

An address counts as its peer has it, unless that peer is a proxy that was named: then as the proxy says it
(`X-Forwarded-For`, or `Forwarded` of RFC 7239). Anybody can write such a header, so nobody else is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias

from toolwire.http1.asgi_types import Scope
from toolwire.protocol.http import DUPLICATE
from toolwire.wire.shares import Caller, caller_of

Network: TypeAlias = IPv4Network | IPv6Network

#: Proxies in a row that are looked at.
MAX_HOPS: Final = 16
#: What one customer of a provider has of IPv6: all addresses with the same first bits (RFC 6177).
IPV6_BITS: Final = 64
_NAT64: Final = IPv6Network("64:ff9b::/96")


class Callers:
    """Tells callers apart."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        """`trusted_proxies`: addresses and networks such as 10.0.0.0/8; `ValueError` for what is neither."""
        self._trusted: tuple[Network, ...] = tuple(_network(each) for each in trusted_proxies)
        self._is_trusted = lru_cache(maxsize=1024)(self._look_up)

    def of(self, principal: Any, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """The caller of a request; None for one whom no share holds."""
        if principal is not None:
            return caller_of(principal)
        client = scope.get("client")
        if not client:
            return None
        return _elsewhere(self._origin(client[0], headers) if self._trusted else client[0])

    def address(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """The address that a request comes from, as far as callers are told apart by it."""
        client = scope.get("client")
        if not client:
            return None
        return _counted(self._origin(client[0], headers) if self._trusted else client[0])

    def _origin(self, peer: str, headers: Mapping[str, str]) -> str:
        """The last address on the way here that no trusted proxy has."""
        if not self._is_trusted(peer):
            return peer
        said = {self._said(peer, headers[name], read) for name, read in _FORWARDING if name in headers}
        if len(said) < 2:
            return said.pop() if said else peer
        # A proxy adds to one of the headers, and may let the other through as the client wrote it. Whoever sends
        # headers that differ is counted with all others behind this proxy who do so.
        return f"{peer}, unclear"

    def _said(self, peer: str, header: str, read: Callable[[str], str]) -> str:
        """The same as one header has it; `read` finds the address in an element of it."""
        hops = header.replace(DUPLICATE, ",").rsplit(",", MAX_HOPS)[-MAX_HOPS:]
        origin = peer
        while hops and self._is_trusted(origin):
            said = _address_in(read(hops.pop()))
            if said is None:
                break
            origin = said
        return origin

    def _look_up(self, address: str) -> bool:
        found = _parsed(address)
        return found is not None and any(found in network for network in self._trusted)


def _network(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"trusted_proxies= has addresses and networks such as 10.0.0.0/8, not {text!r}") from None


@lru_cache(maxsize=4096)
def _counted(address: str) -> str:
    """What an address is counted as."""
    found = _parsed(address)
    if found is None:
        return address[:100]
    if isinstance(found, IPv6Address) and not found.is_loopback:
        return str(_within(found) or IPv6Network((found, IPV6_BITS), strict=False))
    return str(found)


@lru_cache(maxsize=4096)
def _elsewhere(address: str) -> str | None:
    """What an address is counted as; None for this machine.

    There it is one user, or a proxy that was not named: a share would not tell its callers apart.
    """
    found = _parsed(address)
    return None if found is not None and found.is_loopback else _counted(address)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    inner = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if inner is None else inner


def _within(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address of whoever has an IPv6 address that is made of one; None for any other.

    With 6to4 (RFC 3056) one IPv4 address has 65,536 networks; with NAT64 (RFC 6052) all of them are in one network.
    Nobody is trusted, or taken for this machine, because of such an address: others can make one.
    """
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour


def _address_in(text: str) -> str | None:
    """The address that a proxy wrote down, without the port that some add; None for a name or a blank."""
    text = text.strip(" \t")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return None if _parsed(text) is None else text


def _for_of(element: str) -> str:
    """The `for` of one element of a `Forwarded` header (RFC 7239 section 4)."""
    for pair in element.split(";"):
        name, _, value = pair.partition("=")
        if name.strip(" \t").lower() == "for":
            return value.strip(" \t").strip('"')
    return ""


_FORWARDING: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (("x-forwarded-for", str), ("forwarded", _for_of))
