"""Metrics of the tasks of a fleet, read from its store when somebody asks for them.

The store keeps these numbers, so that reading them takes as long for a million tasks as for one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from toolwire.protocol.errors import ToolwireError
from toolwire.server.metrics import Metrics
from toolwire.server.observe.audit import ObservedServer
from toolwire.server.tasks.task_records import by_tool, short_name
from toolwire.stores import Counts

#: Seconds after which the page is answered without the numbers of a store that does not answer.
STORE_SECONDS: Final = 2.0


class FleetMetrics:
    """The numbers of the store as they were read last; none while the store does not answer."""

    def __init__(self, server: ObservedServer) -> None:
        self._server = server
        self._counts: Counts | None = None
        self._lag: float | None = None

    def add_to(self, metrics: Metrics) -> None:
        metrics.read_before(self.read)
        metrics.gauge(
            "tasks_queued",
            "Tasks of the whole fleet that wait to be taken.",
            partial(self._by_tool, "ready"),
            label="tool",
            names_of="tools/call",
            per_process=False,
        )
        metrics.gauge(
            "tasks_running",
            "Tasks of the whole fleet that a process holds.",
            partial(self._by_tool, "held"),
            label="tool",
            names_of="tools/call",
            per_process=False,
        )
        for name, text, member in (
            ("tasks_oldest_seconds", "How long the oldest task in the store could have been taken.", "oldest"),
            ("tasks_delayed", "Tasks in the store that wait for their next attempt.", "delayed"),
            ("tasks_orphaned", "Tasks in the store whose process is gone.", "orphans"),
            ("leases", "Leases of processes in the store.", "leases"),
        ):
            metrics.gauge(name, text, partial(self._number, member), per_process=False)
        for name, text, member in (
            ("tasks_retried_total", "Tasks that this process put back after their process was lost.", "retried"),
            ("tasks_dead_total", "Tasks that this process gave up after their last attempt.", "dead"),
            ("leases_lost_total", "Leases that this process took away or lost.", "leases_lost"),
        ):
            metrics.counter(name, text, partial(self._happened, member))
        metrics.gauge(
            "store_evicts", "1 where the store may evict keys that are in use.", partial(self._evictions, "evicts")
        )
        metrics.counter(
            "store_evicted_keys_total",
            "Keys that the store evicted while this process watched.",
            partial(self._evictions, "keys"),
        )
        metrics.gauge("bus_lag_seconds", "How long a message of the bus took to be heard.", self._lags)

    async def read(self) -> None:
        """Read the numbers. A store that does not answer in time leaves none."""
        await asyncio.gather(self._count(), self._hear())

    async def _count(self) -> None:
        self._counts = None
        if self._server.kernel.offer.has_tasks():
            try:
                async with asyncio.timeout(STORE_SECONDS):
                    self._counts = await self._server.kernel.stores.queue.counts()
            except (ToolwireError, TimeoutError):
                pass  # The store says in the log what is wrong.

    async def _hear(self) -> None:
        self._lag, began = None, time.perf_counter()
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._server.kernel.stores.hear()
        except (ToolwireError, TimeoutError):
            return
        self._lag = time.perf_counter() - began

    def _by_tool(self, member: str) -> dict[str, float]:
        if self._counts is None:
            return {}
        tools = self._server.catalog.all("tools").items()
        none: dict[str, float] = {name: 0 for name, found in tools if found.component.task is not None}
        counted: Mapping[str, int] = getattr(self._counts, member)
        return none | by_tool(short_name(self._server.kernel.offer.implementation.name), counted)

    def _number(self, member: str) -> dict[str, float]:
        return {} if self._counts is None else {"": getattr(self._counts, member)}

    def _happened(self, member: str) -> dict[str, float]:
        counts = self._server.kernel.task_counts
        return {} if counts is None else {"": getattr(counts, member)}

    def _evictions(self, member: str) -> dict[str, float]:
        seen = self._server.kernel.stores.evictions()
        return {} if seen is None else {"": float(getattr(seen, member))}

    def _lags(self) -> dict[str, float]:
        return {} if self._lag is None else {"": self._lag}
