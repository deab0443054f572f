"""Public addresses: the only ones allowed for a URL that a remote party chose.

A server that names a URL must not make its client reach into the client's own network, so what a name resolves to is
judged just before connecting, never the name itself.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Vet: TypeAlias = Callable[[Address], bool]

# Networks whose addresses end with an IPv4 address: translated (RFC 6052, RFC 8215, RFC 2765) and compatible (RFC 4291
# section 2.5.5.1). The unspecified address and that of the loopback are in the last one too, and lead to 0.0.0.0/8.
_ENDING_WITH_IPV4: Final = (
    IPv6Network("64:ff9b::/96"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("::ffff:0:0:0/96"),
    IPv6Network("::/96"),
)


def parse(text: str) -> Address | None:
    """Parse an IP address without its zone; None for anything else, such as a name."""
    try:
        return ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Return whether an address is on the public Internet.

    An IPv4 address inside an IPv6 address is checked, too.
    """
    if isinstance(address, IPv6Address):
        inner = _inside(address)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False  # RFC 3879 took fec0::/10 out of use; routers may still know it as private.
    return address.is_global and not address.is_multicast


def _inside(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _ENDING_WITH_IPV4):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
