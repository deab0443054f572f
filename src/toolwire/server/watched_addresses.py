"""The addresses of resources that HTTP sessions subscribed to, for whichever process serves the sessions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator


class WatchedAddresses:
    """Addresses by the callers who subscribed to them. Where there are too many, who has the most loses the oldest.

    Not `Expiring`: one caller with many addresses would evict those of all others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._callers: dict[Hashable, dict[str, None]] = {}

    def add(self, caller: Hashable, uri: str) -> None:
        own = self._callers.setdefault(caller, {})
        self._count -= len(own)
        own.pop(uri, None)
        own[uri] = None
        self._count += len(own)
        if self._count > self._most:
            self._forget_one()

    def _forget_one(self) -> None:
        caller = max(self._callers, key=lambda each: len(self._callers[each]))
        own = self._callers[caller]
        del own[next(iter(own))]
        self._count -= 1
        if not own:
            del self._callers[caller]

    def __iter__(self) -> Iterator[str]:
        return (uri for own in self._callers.values() for uri in own)
