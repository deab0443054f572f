"""The spelling of names and addresses of components that live at another server.

`toolwire.gateway.addresses` decides which addresses are other ones here, and `toolwire.gateway.uris` rewrites them in
messages. A public name is never taken apart again: the server that it leads to is found by looking the whole name up.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

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


def uri_name(back: str) -> str:
    """Return the name of a server as it stands in an address: a reg-name of RFC 3986, and never part of a template."""
    from urllib.parse import quote

    return quote(back, safe="!'()*")


class Renaming(NamedTuple):
    """The change of one address, or of one template of addresses: the beginning that it had, and the one that it gets.

    The scheme stays: that of a user interface has to be `ui`, and `skill://name/...` is a legal address of a skill.
    """

    before: str
    after: str

    @classmethod
    def of(cls, uri: str, name: str) -> Renaming | None:
        """Return the renaming that puts a name into an address; None for a text without a scheme of its own."""
        scheme, colon, rest = uri.partition(":")
        if not colon or "{" in scheme:
            return None
        if not rest.startswith("//"):
            return cls(f"{scheme}:", f"{scheme}:{name}/")
        # The name takes the place of an empty host: two slashes in a row would be an empty segment of the path.
        slash = "" if rest.startswith("///") else "/"
        return cls(f"{scheme}://", f"{scheme}://{name}{slash}")

    def public(self, uri: str) -> str:
        return self.after + uri[len(self.before) :]

    def inner(self, uri: str) -> str | None:
        """Return the address that a renamed one was made of; None for an address that was not renamed."""
        return self.before + uri[len(self.after) :] if uri.startswith(self.after) else None


def credential_names(back: str) -> tuple[str, str]:
    """Return the names of a server's credentials in the vault: that of calls, and that of lists."""
    return back, f"{back} (lists)"
