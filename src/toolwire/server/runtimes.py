"""The runtimes of one server, of which each event loop has one at most."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from toolwire.server.subscriptions import Hub


class Runs(Protocol):
    """A runtime, as far as its server needs it."""

    hub: Hub
    loop: asyncio.AbstractEventLoop

    @property
    def work(self) -> Any:
        """The `runtime.Work` of the server on its loop."""

    @property
    def is_entered(self) -> bool: ...

    @property
    def is_leaving(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def is_forked(self) -> bool: ...

    def discard(self) -> None: ...


R = TypeVar("R", bound=Runs)


class Runtimes(Generic[R]):
    """The runtimes of one server. Several loops, in several threads, may run the server at once."""

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self._all: tuple[R, ...] = ()
        # Kept in a forked child. Their tasks never end there, and asyncio would warn if they were destroyed.
        self._of_parent: list[R] = []
        self._lock = threading.Lock()

    @property
    def live(self) -> list[R]:
        """The runtimes whose loops have not ended, the oldest first."""
        return [each for each in self._all if not each.is_over]

    @property
    def entered(self) -> list[R]:
        """The runtimes that connections or calls use now, the oldest first."""
        return [each for each in self._all if each.is_entered]

    def here(self, make: Callable[[], R] | None = None) -> R:
        """Return the runtime of the running loop; make it if there is none."""
        loop = asyncio.get_running_loop()
        for each in self._all:
            if each.loop is loop and not each.is_leaving and not each.is_over:
                return each
        with self._lock:
            over = [each for each in self._all if each.is_over]
            self._of_parent += [each for each in over if each.is_forked]
            runtime = (make or self._make)()
            self._all = (*(each for each in self._all if each not in over), runtime)
        for each in over:
            each.discard()
        return runtime

    def add(self, runtime: R) -> None:
        """Add a runtime that ran another server until now."""
        with self._lock:
            self._all = (*self._all, runtime)

    def remove(self, runtime: R) -> None:
        """Remove a runtime that has ended, or runs another server from now on."""
        with self._lock:
            self._all = tuple(each for each in self._all if each is not runtime)
