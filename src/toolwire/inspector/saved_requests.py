"""Requests that a user saved under a name, for each server.

They are in a file of the user's and not in the browser. The port of the page, and with it the browser's storage, is
another one each time; and any program that listens on the same port later could read that storage.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct

from toolwire.auth.client.storage import MemoryStorage, Storage, load, lock, save
from toolwire.inspector.catalogue import KINDS

MAX_SAVED: Final = 100
MAX_NAME: Final = 100
MAX_PARAMS: Final = 64 * 1024
#: What a storage reads back of one value, with some room.
MAX_TOTAL: Final = 900 * 1024


class SavedRequest(Struct, frozen=True):
    """Saved parameters under a name.

    `kind` and `key` say what they are for, as in the page's lists.
    """

    name: str
    kind: str
    key: str
    params: dict[str, Any]
    saved: float


_decode = msgspec.json.Decoder(list[SavedRequest]).decode


class SavedRequests:
    """The saved requests of one server, which `server` names."""

    def __init__(self, server: str = "", storage: Storage | None = None) -> None:
        self._key = f"saved requests of {server}"
        self._storage: Storage = MemoryStorage() if storage is None else storage

    async def all(self) -> list[SavedRequest]:
        """Read them; a broken or unreadable file counts as none."""
        try:
            text = await load(self._storage, self._key)
            return [] if text is None else _decode(text)
        except (OSError, ValueError, RecursionError):
            return []

    async def add(self, asked: dict[str, Any]) -> None:
        """Save a request under its name, or replace the older one.

        Raises `ValueError` when there are too many, or when it is too large. `asked` has `name`, `kind`, `key` and
        `params`.
        """
        name = " ".join(str(asked["name"]).split())
        if not 0 < len(name) <= MAX_NAME:
            raise ValueError(f"A saved request has a name of at most {MAX_NAME} characters")
        if asked["kind"] not in KINDS:
            raise ValueError(f"A saved request is for one of {', '.join(KINDS)}")
        request = SavedRequest(name, asked["kind"], str(asked["key"]), dict(asked["params"]), time.time())
        if len(msgspec.json.encode(request)) > MAX_PARAMS:
            raise ValueError(f"The request is over {MAX_PARAMS} bytes, too large to be saved")
        async with self._locked():
            kept = [each for each in await self.all() if not _is_same(each, request)]
            if len(kept) >= MAX_SAVED:
                raise ValueError(f"{MAX_SAVED} requests are saved already: remove one first")
            await self._write([*kept, request])

    async def remove(self, asked: dict[str, Any]) -> None:
        gone = (str(asked["name"]), str(asked["kind"]), str(asked["key"]))
        async with self._locked():
            await self._write([each for each in await self.all() if (each.name, each.kind, each.key) != gone])

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Let no other inspector change the saved requests between reading and writing."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(lock(self._storage, self._key))
            except OSError as error:
                raise _not_saved(error) from None
            yield

    async def _write(self, requests: list[SavedRequest]) -> None:
        text = msgspec.json.encode(requests)
        if len(text) > MAX_TOTAL:
            raise ValueError(f"The saved requests would be over {MAX_TOTAL} bytes: remove some first")
        try:
            await save(self._storage, self._key, text.decode())
        except OSError as error:
            raise _not_saved(error) from None


def _not_saved(error: OSError) -> ValueError:
    return ValueError(f"The request could not be saved: {error.strerror or error}")


def _is_same(one: SavedRequest, other: SavedRequest) -> bool:
    return (one.name, one.kind, one.key) == (other.name, other.kind, other.key)
