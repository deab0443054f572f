"""Stores by their address, for those who write it into a setting: a file, or a Redis."""

from __future__ import annotations

import os
from typing import Final

from toolwire.stores.memory import Stores

#: What a server that is given no stores looks at.
STORES_VARIABLE: Final = "TOOLWIRE_STORES"


def stores_of_environment() -> Stores | None:
    address = os.environ.get(STORES_VARIABLE)
    return open_stores(address) if address else None


def open_stores(address: str | os.PathLike[str]) -> Stores:
    """`redis://`, `rediss://` or `unix://` for a Redis; everything else is the path of a SQLite file.

    Nothing is opened yet. `ServerError`, which repeats no password, for an address that is none.
    """
    text = os.fspath(address)
    if "://" in text:
        from toolwire.stores.redis import RedisStores

        return RedisStores(text)
    from toolwire.stores.sqlite import SqliteStores

    return SqliteStores(text)
