"""Notices that files changed, by looking at them now and then.

A look follows symbolic links, so that a file which another one takes the place of is noticed however that is done: an
editor that renames, or a link that is swapped, as Kubernetes does with the files of a ConfigMap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

#: How many seconds pass between two looks.
LOOK_SECONDS: Final = 0.25
#: Files count as written when they have not changed for this many seconds.
QUIET_SECONDS: Final = 0.1
#: Files that are written all the time are read after this many seconds.
LONGEST_SECONDS: Final = 2.0

Stamp: TypeAlias = tuple[object, ...] | None


class FileWatch:
    """The files that are watched, as they were at the last look."""

    def __init__(self, stamp: Callable[[Path], Stamp] | None = None) -> None:
        """`stamp` returns what changes with a file, or with a folder; by default `stamp_of`."""
        self._stamp = stamp_of if stamp is None else stamp
        self._stamps: dict[Path, Stamp] = {}
        self._is_hurried = False
        self._waiting: asyncio.Future[None] | None = None

    def look_at(self, paths: Iterable[Path]) -> None:
        """Watch these files from now on. Those that were watched before keep the look that was taken of them."""
        self._stamps = {path: self._stamps.get(path) or self._stamp(path) for path in paths}

    def look_again(self, paths: Iterable[Path]) -> None:
        """Watch these files too. A change before this look does not count."""
        self._stamps = {path: self._stamp(path) for path in {*self._stamps, *paths}}

    def hurry(self) -> None:
        """Have `changed` return now."""
        self._is_hurried = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def changed(self, longest: float | None = None) -> None:
        """Wait until a file is another one, and for a moment no file changes any more; `longest` seconds at most."""
        loop = asyncio.get_running_loop()
        end = None if longest is None else loop.time() + longest
        while not self._differs():
            await self._pause(LOOK_SECONDS)
            if self._is_hurried or (end is not None and loop.time() >= end):
                break
        last = loop.time() + LONGEST_SECONDS
        while True:
            self._stamps = {path: self._stamp(path) for path in self._stamps}
            await asyncio.sleep(QUIET_SECONDS)
            if not self._differs() or loop.time() >= last:
                self._is_hurried = False
                return

    def _differs(self) -> bool:
        return any(self._stamp(path) != stamp for path, stamp in self._stamps.items())

    async def _pause(self, seconds: float) -> None:
        # Made anew each time: a process that was forked has another event loop.
        self._waiting = asyncio.get_running_loop().create_future()
        if not self._is_hurried:
            await asyncio.wait({self._waiting}, timeout=seconds)


def stamp_of(path: Path | str) -> Stamp:
    """Return what tells a file from another one in its place; None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
