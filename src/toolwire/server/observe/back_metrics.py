"""Metrics of the servers behind a server: requests to each, their times, and whose components are missing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from toolwire.protocol.cursors import MISSING_KEY
from toolwire.server.call import Call
from toolwire.server.hops import BackFigures, Hop
from toolwire.server.metrics import Metrics, Series, head, sample
from toolwire.server.observe.audit import ObservedServer


class BackMetrics:
    """The hops of one process, by the server that they went to and the method."""

    def __init__(self, server: ObservedServer) -> None:
        self._catalog = server.catalog
        self._series: dict[tuple[str, str], Series] = {}
        self._in_flight: Counter[str] = Counter()

    def add_to(self, metrics: Metrics) -> None:
        self._new_series = metrics.new_series
        metrics.add_lines(self._lines)

    def observe(self, call: Call, hop: Hop) -> Callable[[], None]:
        """Count a hop. The names of servers are those of the operator, and methods are those of the protocol."""
        started = time.perf_counter()
        self._in_flight[hop.back] += 1

        def ended() -> None:
            self._in_flight[hop.back] -= 1
            series = self._series.get((hop.back, hop.method))
            if series is None:
                series = self._series[hop.back, hop.method] = self._new_series()
            series.count(hop.ending, time.perf_counter() - started)

        return ended

    def _lines(self, process: Mapping[str, str]) -> Iterator[str]:
        backs = [each for each in self._catalog.family() if each.follower is not None and each.audience is None]
        if not backs and not self._series:
            return
        name = "toolwire_back_requests_total"
        yield from head(name, "counter", "Requests to servers behind this one, by how they ended.")
        for (back, method), series in self._series.items():
            for ending, count in series.outcomes.items():
                yield sample(name, {"back": back, "method": method, "outcome": ending, **process}, count)
        name = "toolwire_back_request_seconds"
        yield from head(name, "histogram", "How long servers behind this one took to answer.")
        for (back, method), series in self._series.items():
            yield from series.histogram(name, {"back": back, "method": method, **process})
        name = "toolwire_back_requests_in_flight"
        yield from head(name, "gauge", "Requests to servers behind this one that wait for an answer.")
        for each in backs:
            yield sample(name, {"back": each.owner.name, **process}, self._in_flight[each.owner.name])
        name = "toolwire_back_missing"
        yield from head(name, "gauge", "1 while components of a server behind this one are missing in lists.")
        for each in backs:
            yield sample(name, {"back": each.owner.name, **process}, int(MISSING_KEY in each.notes))
        yield from _figures({each.owner.name: each.follower.figures() for each in backs if each.follower}, process)


_BREAKER: Final = ("closed", "half-open", "open")


def _figures(backs: Mapping[str, BackFigures], process: Mapping[str, str]) -> Iterator[str]:
    """Write the states of servers."""
    name = "toolwire_back_breaker"
    yield from head(name, "gauge", "1 for the state of the breaker of a server behind this one, 0 for the others.")
    for back, figures in backs.items():
        for state in _BREAKER:
            yield sample(name, {"back": back, "state": state, **process}, int(figures.breaker == state))
    name = "toolwire_back_waiting"
    yield from head(name, "gauge", "Calls that wait until others have ended at a server behind this one.")
    for back, figures in backs.items():
        yield sample(name, {"back": back, **process}, figures.waiting)
    name = "toolwire_back_connections"
    yield from head(name, "gauge", "Connections to a server behind this one; for a command, its processes.")
    for back, figures in backs.items():
        yield sample(name, {"back": back, "transport": figures.transport, **process}, figures.connections)
    name = "toolwire_back_lists_total"
    yield from head(name, "counter", "Lists of a server behind this one: answered from memory, or read there.")
    for back, figures in backs.items():
        yield sample(name, {"back": back, "source": "memory", **process}, figures.lists_kept)
        yield sample(name, {"back": back, "source": "server", **process}, figures.lists_read)
    name = "toolwire_back_url_up"
    yield from head(name, "gauge", "1 while an address of a server behind this one works.")
    for back, figures in backs.items():
        for url, works in figures.urls.items():
            yield sample(name, {"back": back, "url": url, **process}, int(works))
