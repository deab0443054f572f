"""Watch whether an API describes itself differently than when it was locked.

What is served never changes by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from toolwire.base_errors import ServerError, ToolwireError
from toolwire.loops import in_thread
from toolwire.openapi.description.documents import Limits
from toolwire.openapi.description.fetching import Sources
from toolwire.openapi.lock_file.drift import ApiChange, compare_locks, worst
from toolwire.openapi.lock_file.lock import uri_of
from toolwire.openapi.lock_file.locked_operations import LockedTools
from toolwire.openapi.lock_file.locking import lock_again
from toolwire.openapi.model import digest_of
from toolwire.printable import printable
from toolwire.util.backoff import random_source

log: logging.Logger = logging.getLogger("toolwire.openapi")

#: No API is asked more often, in seconds.
LEAST_SECONDS: Final = 10.0
_SHOWN: Final = 5
# A name of our own, so that a test can let the time pass.
_sleep = asyncio.sleep


class ApiWatch:
    """The comparison of an API with its lock file, again and again."""

    def __init__(self, tools: LockedTools, name: str, seconds: float) -> None:
        if not seconds >= LEAST_SECONDS:
            raise ServerError(f"watch= is a number of seconds, {LEAST_SECONDS:g} or more, not {seconds!r}")
        self._tools = tools
        self._name = printable(name)
        self._seconds = seconds
        self.changes: tuple[ApiChange, ...] = ()
        """The differences that were found last, the worst first."""
        self._error: str | None = None
        self.checks: int = 0
        """How often it was compared."""

    async def run(self) -> None:
        """Compare now and then, until the task is cancelled.

        Replicas that start together do not ask together.
        """
        while True:
            await self.compare_once()
            await _sleep(self._seconds * random_source().uniform(0.9, 1.1))

    async def compare_once(self) -> None:
        """Compare once.

        The outcome is logged if it is another one than before.
        """
        try:
            found = tuple(await in_thread(self._compared, "toolwire-openapi-watch"))
        except (ToolwireError, OSError) as error:
            told = printable(str(error))
            if told != self._error:
                log.warning("the description of %s cannot be compared with its lock file: %s", self._name, told)
            self._error = told
            return
        finally:
            self.checks += 1
        self._error = None
        if found and found != self.changes:
            log.warning(
                "the description of %s has changed since it was locked (%s). What is served stays as it was: look at "
                "it with `toolwire openapi check %s`. %s",
                self._name,
                worst(found),
                self._tools.path,
                printable("; ".join(map(_describe_change, found[:_SHOWN]))),
            )
        self.changes = found

    @property
    def counts(self) -> Mapping[str, float]:
        """Return how many differences of each severity there are."""
        return Counter(each.severity for each in self.changes)

    def _compared(self) -> list[ApiChange]:
        """Return the differences. Documents that are as they were locked are not read any further."""
        if self._are_the_same():
            return []
        lock = self._tools.lock
        return compare_locks(lock, lock_again(self._tools.path, lock).lock)

    def _are_the_same(self) -> bool:
        lock, folder = self._tools.lock, self._tools.folder
        sources = Sources(Limits(), lock.settings.get("reach"), {}, None)
        root = uri_of(lock.source, folder)
        data = {root: sources.named(root).data}
        documents = {uri_of(name, folder): each.digest for name, each in lock.documents.items()}
        overlays = {uri_of(each, folder) for each in lock.overlays}
        for uri, digest in documents.items():
            if uri not in data:
                data[uri] = (sources.named(uri) if uri in overlays else sources.referred(uri)).data
            if digest_of(data[uri]) != digest:
                return False
        return True


def _describe_change(change: ApiChange) -> str:
    about = f"{change.operation}: " if change.operation else ""
    return f"{about}{change.kind}" + (f" ({change.detail})" if change.detail else "")
