"""Tells the clients of one event loop that the lists of the server changed.

A change of the server itself is told at once, by its kernel. The lists of upstreams are read again whenever they may
have changed. Then clients are told once for all that comes together, and only if the merged list differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from toolwire.protocol.changes import LIST_CHANGED, Change
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.surrogates import encode_readable
from toolwire.server.catalog import FAMILY, Catalog
from toolwire.server.components import Component
from toolwire.wire.threads import call_on

#: Changes within this time are told as one.
TOGETHER_SECONDS: Final = 0.05


class ListChanges:
    """The lists that clients were told of last, and the changes since then."""

    def __init__(self, catalog: Catalog, loop: asyncio.AbstractEventLoop, tell: Callable[[Change], None]) -> None:
        """`tell` tells the clients of the loop, and the other processes, of a change."""
        self._catalog = catalog
        self._loop = loop
        self._tell = tell
        self._told: dict[str, dict[str, Component]] = {}
        self._changed: dict[str, bool] = {}
        """The families that changed since then; True where clients have to be told if the list differs."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Remember the lists with which the server starts, if a change elsewhere may leave them as they are."""
        if self._catalog.followers or self._catalog.is_shaped:
            self._told = {family: self._listed(family) for family in LIST_CHANGED}

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._changed.clear()
        self._told.clear()

    def note(self, family: str, is_told: bool) -> None:
        """Tell clients of a change if the list is another one soon. `is_told`: they know of the change already."""
        if family in LIST_CHANGED and (self._told or not is_told):
            call_on(self._loop, self._compare_soon, family, is_told)

    def _compare_soon(self, family: str, is_told: bool) -> None:
        self._changed[family] = self._changed.get(family, False) or not is_told
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._compare)

    def _compare(self) -> None:
        self._timer = None
        changed, self._changed = self._changed, {}
        for family, is_suspected in changed.items():
            listed = self._listed(family)
            before = self._told.get(family)
            differs = not _are_same(listed, self._own(family) if before is None else before)
            self._told[family] = listed
            if is_suspected and differs:
                self._tell(Change(family))

    def _listed(self, family: str) -> dict[str, Component]:
        return {f"{kind} {name}": each for kind in _kinds(family) for name, each in self._catalog.listed(kind).items()}

    def _own(self, family: str) -> dict[str, Component]:
        """Return the list without components that live elsewhere: the one before the first such server was mounted."""
        local = self._catalog.local()
        own: dict[str, Component] = {}
        for kind in _kinds(family):
            found = self._catalog.all(kind)
            for name, each in self._catalog.listed(kind).items():
                if found[name].owner.catalog in local:
                    own[f"{kind} {name}"] = each
        return own


def _are_same(listed: dict[str, Component], before: dict[str, Component]) -> bool:
    """Return whether two lists look the same to clients. Another object may stand for the same component."""
    if listed.keys() != before.keys():
        return False
    return all(each is before[name] or _look_same(each, before[name]) for name, each in listed.items())


def _look_same(one: Component, other: Component) -> bool:
    seen_by = (one.scopes, one.visible_to, one.tags) == (other.scopes, other.visible_to, other.tags)
    return seen_by and encode_readable(one.wire(MODERN)) == encode_readable(other.wire(MODERN))


def _kinds(family: str) -> list[str]:
    return [kind for kind, of in FAMILY.items() if of == family]
