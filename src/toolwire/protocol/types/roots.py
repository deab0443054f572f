"""Roots: the directories that a client lets its server know of."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import MetaDict, NestedResult

__all__ = [
    "ListRootsResult",
    "Root",
]


class Root(Wire):
    """A directory that the client lets its server know of, as a `file://` URI."""

    uri: str
    name: str | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ListRootsResult(NestedResult, kw_only=True):
    """The answer of a client to `roots/list`."""

    roots: list[Root]
