"""Counts requests, and writes what it counted in the text format of Prometheus."""

from __future__ import annotations

import hmac
import os
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from toolwire.http.responses import TEXT_TYPE, HttpReply, Page
from toolwire.server.call import Call
from toolwire.server.call_target import target_of
from toolwire.server.middleware import Operation
from toolwire.server.observe.outcome import Outcome, of_error, of_result

#: Upper bounds in seconds: a tool may answer from memory, or call a model.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

# The server's author chooses the names, but programs may add any number of components.
_MAX_SERIES: Final = 5000
_OTHER: Final = "(other)"
# This replaces names that not every caller may know.
_RESTRICTED: Final = "(restricted)"

# A page shows numbers that are at most this many seconds old.
_FRESH_SECONDS: Final = 1.0

Gauge: TypeAlias = Callable[[], Mapping[str, float]]
#: Says whether every caller may know a name that a method uses.
IsPublic: TypeAlias = Callable[[str, str], bool]


class _Measure(NamedTuple):
    """A value that is read when the page is asked for."""

    type: str
    text: str
    read: Gauge
    label: str
    names_of: str
    """The method whose names the values of the label are; empty where they are no names."""
    per_process: bool


class Series:
    """Requests of one kind: how often they ended in which way, and how long they took."""

    __slots__ = ("bounds", "buckets", "outcomes", "seconds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds: tuple[float, ...] = bounds
        self.outcomes: dict[str, int] = {}
        self.buckets: list[int] = [0] * (len(bounds) + 1)
        self.seconds: float = 0.0

    def count(self, outcome: str, seconds: float) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds

    def histogram(self, name: str, labels: dict[str, str]) -> Iterator[str]:
        total = 0
        for bound, count in zip((*(f"{each:g}" for each in self.bounds), "+Inf"), self.buckets, strict=True):
            total += count
            yield sample(f"{name}_bucket", labels | {"le": bound}, total)
        yield sample(f"{name}_sum", labels, self.seconds)
        yield sample(f"{name}_count", labels, total)

    def add(self, other: Series) -> None:
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.buckets = [sum(both) for both in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class Metrics:
    """The metrics of a server. `Server(metrics=True)` serves them at `/metrics`.

    `Metrics(token=...)` serves them only to clients that send the token. Without a token the page names only components
    that every caller sees, and counts all others together.

    Each process counts for itself and says so in the label `process`, so that the numbers of several workers behind one
    address add up.
    """

    def __init__(self, *, token: str | None = None, buckets: Sequence[float] = BUCKETS) -> None:
        self._token = None if token is None else f"Bearer {token}".encode()
        self._bounds = tuple(sorted(buckets))
        self._series: dict[tuple[str, str], Series] = {}
        self._refusals: dict[str, int] = {}
        self._measures: dict[str, _Measure] = {}
        self._further: list[Callable[[Mapping[str, str]], Iterator[str]]] = []
        self._readers: list[Callable[[], Awaitable[None]]] = []
        self._fresh_until = -inf
        self._public: Callable[[], IsPublic] | None = None
        self.in_flight: int = 0

    def gauge(
        self, name: str, help: str, read: Gauge, *, label: str = "kind", names_of: str = "", per_process: bool = True
    ) -> None:
        """Add a value that is read when the page is asked for. `read` returns it by label; the label may be empty.

        The values of the label that are names which the method `names_of` uses are hidden like those of requests.
        A value that is the same in every process has no label for the process.
        """
        self._measures[name] = _Measure("gauge", help, read, label, names_of, per_process)

    def counter(self, name: str, help: str, read: Gauge, *, label: str = "kind") -> None:
        """Add a value of this process that only grows; otherwise it is like a gauge."""
        self._measures[name] = _Measure("counter", help, read, label, "", True)

    def read_before(self, read: Callable[[], Awaitable[None]]) -> None:
        """Await `read` before the page is made, at most once in a second."""
        self._readers.append(read)

    def new_series(self) -> Series:
        return Series(self._bounds)

    def add_lines(self, lines: Callable[[Mapping[str, str]], Iterator[str]]) -> None:
        """Add lines that are made when the page is asked for. `lines` gets the labels of the process."""
        self._further.append(lines)

    async def refresh(self) -> None:
        """Read what has to be waited for, such as the numbers of a store. The page does so by itself."""
        now = time.monotonic()
        if now >= self._fresh_until:
            self._fresh_until = now + _FRESH_SECONDS
            for read in self._readers:
                await read()

    def name_only(self, public: Callable[[], IsPublic]) -> None:
        """Set the names that every caller may know. `public()` is called for each page, its result for each name."""
        self._public = public

    async def __call__(self, call: Call, call_next: Operation) -> Any:
        self.in_flight += 1
        started = time.perf_counter()
        try:
            result = await call_next(call)
        except BaseException as error:
            self._count(call, time.perf_counter() - started, of_error(call, error))
            raise
        self._count(call, time.perf_counter() - started, of_result(call, result))
        return result

    def _count(self, call: Call, seconds: float, outcome: Outcome) -> None:
        self.in_flight -= 1
        self._of(call.method, self._name(call)).count(outcome.word, seconds)
        if call.refusal is not None:
            self._refusals[call.refusal] = self._refusals.get(call.refusal, 0) + 1

    def _name(self, call: Call) -> str:
        target = target_of(call)
        if target is None or target.found is None:
            return ""
        component = target.found.component
        # A template has one name, however many addresses it answers to.
        return target.name if component.kind in ("tools", "prompts") else component.key

    def _of(self, method: str, name: str) -> Series:
        key = (method, name)
        if key not in self._series and len(self._series) >= _MAX_SERIES:
            key = (method, _OTHER)
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = self.new_series()
        return found

    # --- showing ---

    def page(self) -> Page:
        """Return the page with the metrics."""
        return Page(self._answer, decides=self._token is not None)

    async def _answer(self, headers: Mapping[str, str]) -> HttpReply:
        if self._token is not None and not _same(headers.get("authorization"), self._token):
            return HttpReply(401, b"The metrics need their token", ((b"www-authenticate", b"Bearer"), *TEXT_TYPE))
        await self.refresh()
        has_permission = self._token is not None
        return HttpReply(
            200,
            self.render(everything=has_permission).encode(),
            ((b"content-type", _CONTENT_TYPE), (b"cache-control", b"no-store")),
        )

    def render(self, *, everything: bool = True) -> str:
        """Return the counts in the format of Prometheus. Without `everything`, names that are not public are hidden."""
        is_public = None if everything or self._public is None else self._public()
        return "".join(f"{line}\n" for line in self._lines(is_public))

    def _shown_series(self, is_public: IsPublic | None) -> Mapping[tuple[str, str], Series]:
        if is_public is None:
            return self._series
        shown: dict[tuple[str, str], Series] = {}
        for (method, name), series in self._series.items():
            if name in ("", _OTHER) or is_public(method, name):
                shown[method, name] = series
            else:
                shown.setdefault((method, _RESTRICTED), self.new_series()).add(series)
        return shown

    def _lines(self, is_public: IsPublic | None) -> Iterator[str]:
        counted = self._shown_series(is_public)
        process = {"process": str(os.getpid())}
        yield from head("toolwire_requests_total", "counter", "Requests, by how they ended.")
        for (method, name), series in counted.items():
            for outcome, count in series.outcomes.items():
                labels = {"method": method, "name": name, "outcome": outcome} | process
                yield sample("toolwire_requests_total", labels, count)
        yield from head("toolwire_request_seconds", "histogram", "How long requests took.")
        for (method, name), series in counted.items():
            yield from series.histogram("toolwire_request_seconds", {"method": method, "name": name} | process)
        yield from head("toolwire_refusals_total", "counter", "Calls that were refused, by the reason.")
        for reason, count in self._refusals.items():
            yield sample("toolwire_refusals_total", {"reason": reason} | process, count)
        yield from head("toolwire_requests_in_flight", "gauge", "Requests that are being handled.")
        yield sample("toolwire_requests_in_flight", process, self.in_flight)
        for name, measure in self._measures.items():
            yield from head(f"toolwire_{name}", measure.type, measure.text)
            for label, value in _shown_values(measure, is_public).items():
                labels = ({measure.label: label} if label else {}) | (process if measure.per_process else {})
                yield sample(f"toolwire_{name}", labels, value)
        for lines in self._further:
            yield from lines(process)


def _shown_values(measure: _Measure, is_public: IsPublic | None) -> Mapping[str, float]:
    values = measure.read()
    if is_public is None or not measure.names_of:
        return values
    shown: dict[str, float] = {}
    for name, value in values.items():
        known = name if not name or is_public(measure.names_of, name) else _RESTRICTED
        shown[known] = shown.get(known, 0) + value
    return shown


def _same(authorization: str | None, expected: bytes) -> bool:
    # Encode any text, so that the comparison never raises.
    return hmac.compare_digest((authorization or "").encode("utf-8", "replace"), expected)


def head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items() if text)
    labelled = f"{name}{{{shown}}}" if shown else name
    return f"{labelled} {value:.9g}" if isinstance(value, float) else f"{labelled} {value}"
