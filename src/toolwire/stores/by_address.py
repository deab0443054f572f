"""Stores by their address, as it stands in a setting: a file, or a Redis."""

from __future__ import annotations

import os
from typing import Final

from toolwire.stores.stores import Stores

#: The environment variable that a server without `stores=` reads.
STORES_VARIABLE: Final = "TOOLWIRE_STORES"


def stores_of_environment() -> Stores | None:
    address = os.environ.get(STORES_VARIABLE)
    return open_stores(address) if address else None


def open_stores(address: str | os.PathLike[str]) -> Stores:
    """Return the stores at an address: `redis://`, `rediss://` or `unix://` for a Redis, the path of a SQLite file
    otherwise.

    Nothing is opened yet. Raise `ServerError`, which repeats no password, for an address that is wrong.
    """
    text = os.fspath(address)
    if "://" in text:
        from toolwire.stores.redis import RedisStores

        return RedisStores(text)
    from toolwire.stores.sqlite import SqliteStores

    return SqliteStores(text)
