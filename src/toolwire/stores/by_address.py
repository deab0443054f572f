"""Stores by their address, as it stands in a setting: a file, a Redis, or a store of another distribution."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol.errors import ServerError
from toolwire.stores.stores import Stores

#: The environment variable that a server without `stores=` reads.
STORES_VARIABLE: Final = "TOOLWIRE_STORES"
#: The environment variable with the limits of stores that are given by an address.
LIMITS_VARIABLE: Final = "TOOLWIRE_STORES_LIMITS"

# A single letter is a drive of Windows.
_BROKEN_SCHEME: Final = lazy_pattern(r"\s*([a-z][a-z0-9+.-]+)\s*[:;]", re.IGNORECASE)


def stores_of_environment() -> Stores | None:
    address = os.environ.get(STORES_VARIABLE)
    return open_stores(address) if address else None


def open_stores(address: str | os.PathLike[str]) -> Stores:
    """Return the stores at an address: a Redis, a store of another distribution, or a SQLite file.

    A Redis has `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `rediss+sentinel://`. Any other scheme is
    looked up in the entry points of the group `toolwire.stores`. An address without a scheme is the path of a file.

    Limits come from TOOLWIRE_STORES_LIMITS, such as `max_items=200000,max_bytes=256MiB`. Those in the address of a
    Redis win over them. Nothing is opened yet. Raise `ServerError`, which repeats no password, for an address that is
    wrong.
    """
    text = os.fspath(address)
    limits: dict[str, Any] = _limits_of_environment()
    if not is_file(text):
        scheme = text.partition("://")[0]
        from toolwire.stores.redis_address import SCHEME_FORM, SCHEMES, read_address

        scheme = scheme.lower()
        if scheme not in SCHEMES and SCHEME_FORM.fullmatch(scheme):
            # Imported here because it looks through the installed distributions.
            from toolwire.stores.installed import open_installed

            return open_installed(scheme, text, limits, SCHEMES)
        from toolwire.stores.redis import RedisStores

        in_address = read_address(text).limits
        return RedisStores(text, **{name: limit for name, limit in limits.items() if name not in in_address})
    from toolwire.stores.sqlite import SqliteStores

    return SqliteStores(text, **limits)


def is_file(address: str) -> bool:
    """Return whether an address is the path of a SQLite file.

    Raise `ServerError` for one whose `://` is mistyped: as the name of a file it would be shown with its password.
    """
    if "://" in address:
        return False
    if (scheme := broken_scheme(address)) is None:
        return True
    raise ServerError(
        f"The address of the store begins with {scheme} without a ://. Write it as {scheme}://…, or a path as ./…"
    )


def broken_scheme(address: str) -> str | None:
    """Return the scheme of an address whose `://` is mistyped; None for a path or a URL."""
    begin = _BROKEN_SCHEME.match(address)
    if begin is None or "://" in address:
        return None
    # Imported here because few paths begin like an address.
    from importlib.metadata import entry_points

    from toolwire.stores.installed import GROUP
    from toolwire.stores.redis_address import SCHEMES

    scheme = begin[1].lower()
    return scheme if scheme in SCHEMES or entry_points(group=GROUP, name=scheme) else None


def _limits_of_environment() -> dict[str, int]:
    text = os.environ.get(LIMITS_VARIABLE, "")
    if not text.strip():
        return {}
    # Imported here because few servers set limits.
    from toolwire.stores.limits import read_limits

    pairs = (entry.partition("=") for entry in text.split(",") if entry.strip())
    return read_limits(((name.strip(), value.strip()) for name, _, value in pairs), LIMITS_VARIABLE)
