"""Names and addresses of components that live at another server.

A public name is never taken apart again: the server that it leads to is found by looking the whole name up.
"""

from __future__ import annotations

import hashlib
from typing import Final

#: The longest name of a tool or prompt that the clients of all vendors take.
MAX_NAME: Final = 64
# The digest in a name that was cut: 10 characters of base 36, as long as 51 bits.
_DIGEST: Final = 10
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def bounded_name(name: str, room: int) -> str:
    """Return a name of at most `room` characters. One that is cut keeps its end, behind a digest of the whole."""
    if len(name) <= room:
        return name
    number = int.from_bytes(hashlib.sha256(name.encode(errors="surrogatepass")).digest()[:8])
    digits = ""
    for _ in range(_DIGEST):
        number, digit = divmod(number, 36)
        digits += _DIGITS[digit]
    kept = max(room - _DIGEST - 1, 0)
    return f"{digits}_{name[-kept:]}" if kept else digits


def named_uri(uri: str, back: str) -> str:
    """Return an address, or a template of addresses, that carries the name of its server. The scheme stays."""
    scheme, colon, rest = uri.partition(":")
    if rest.startswith("//"):
        return f"{scheme}://{back}/{rest[2:]}"
    return f"{scheme}{colon}{back}/{rest}"


def plain_uri(uri: str, back: str) -> str | None:
    """Return the address that `named_uri` was made of; None for one that does not carry the name of the server."""
    scheme, colon, rest = uri.partition(":")
    for start, before in ((f"//{back}/", "//"), (f"{back}/", "")):
        if rest.startswith(start):
            return f"{scheme}{colon}{before}{rest[len(start) :]}"
    return None
