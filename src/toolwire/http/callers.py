"""The caller that a request is counted for: its principal, otherwise the address that it comes from.

The address is that of the peer. Only where the peer is a trusted proxy, it is the address that the proxy names in
`X-Forwarded-For`, or in `Forwarded` of RFC 7239: anybody else could write anything there. A proxy writes one of both
into each request, and may pass the other on as the client wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias

from toolwire.http1.asgi_types import Scope
from toolwire.protocol.http import DUPLICATE
from toolwire.util.expiring import Expiring
from toolwire.wire.shares import Caller, caller_of, is_distinct

Network: TypeAlias = IPv4Network | IPv6Network

#: How many proxies in a row are looked at.
MAX_HOPS: Final = 16
#: How many proxies are remembered that write `Forwarded`.
MAX_PROXIES: Final = 1024
#: One customer of a provider has all IPv6 addresses with the same first bits (RFC 6177).
IPV6_BITS: Final = 64
_NAT64: Final = IPv6Network("64:ff9b::/96")


class Callers:
    """The rule that tells callers apart."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        """`trusted_proxies`: addresses and networks such as 10.0.0.0/8; `ValueError` for anything else."""
        self._trusted: tuple[Network, ...] = tuple(_network(each) for each in trusted_proxies)
        self._is_trusted = lru_cache(maxsize=1024)(self._look_up)
        # The proxies that sent a request without X-Forwarded-For.
        self._writing_forwarded: Expiring[str, None] = Expiring(MAX_PROXIES)

    def of(self, principal: Any, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """Return the caller of a request; None for one that no share limits."""
        if is_distinct(principal):
            return caller_of(principal)
        client = scope.get("client")
        if not client:
            return None
        return _elsewhere(self._origin(client[0], headers) if self._trusted else client[0])

    def address(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """Return the address that a request comes from, in the form in which callers are told apart."""
        client = scope.get("client")
        if not client:
            return None
        return _counted(self._origin(client[0], headers) if self._trusted else client[0])

    def _origin(self, peer: str, headers: Mapping[str, str]) -> str:
        """Return the last address on the way here that is not a trusted proxy."""
        if not self._is_trusted(peer):
            return peer
        plain, forwarded = headers.get("x-forwarded-for"), headers.get("forwarded")
        if forwarded is None:
            return peer if plain is None else self._said(peer, plain, str)
        origin = self._said(peer, forwarded, _for_of)
        if plain is None:
            if peer not in self._writing_forwarded:
                self._writing_forwarded.put(peer, None)
            return origin
        believed = self._said(peer, plain, str)
        if believed == origin or peer not in self._writing_forwarded:
            return believed
        # This proxy does not write X-Forwarded-For into each request, so that the client may have written it. All
        # clients behind this proxy whose headers differ are counted as one.
        return f"{peer}, unclear"

    def _said(self, peer: str, header: str, read: Callable[[str], str]) -> str:
        """Return that address according to one header; `read` finds the address in one element."""
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
    """Return the text under which an address is counted."""
    found = _parsed(address)
    if found is None:
        return address[:100]
    if isinstance(found, IPv6Address) and not found.is_loopback:
        return str(_within(found) or IPv6Network((found, IPV6_BITS), strict=False))
    return str(found)


@lru_cache(maxsize=4096)
def _elsewhere(address: str) -> str | None:
    """Return the text under which an address is counted; None for this machine.

    On this machine there is one user, or a proxy that was not named, whose callers a share could not tell apart.
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
    """Return the IPv4 address that an IPv6 address contains; None where it contains none.

    With 6to4 (RFC 3056) one IPv4 address has 65,536 networks. With NAT64 (RFC 6052) all of them are in one network.
    The contained address is used for counting only, never for trust, because anybody can make such an address.
    """
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour


def _address_in(text: str) -> str | None:
    """Return the address that a proxy wrote, without the port that some add; None for a name or a blank."""
    text = text.strip(" \t")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return None if _parsed(text) is None else text


def _for_of(element: str) -> str:
    """Return the `for` of one element of a `Forwarded` header (RFC 7239 section 4)."""
    for pair in element.split(";"):
        name, _, value = pair.partition("=")
        if name.strip(" \t").lower() == "for":
            return value.strip(" \t").strip('"')
    return ""
