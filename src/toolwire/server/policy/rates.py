"""Rates over a moving window, and quotas over a fixed one, counted with the `limits` library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from toolwire.extras import require
from toolwire.protocol.errors import CallRefused, ServerError

if TYPE_CHECKING:
    from limits import RateLimitItem

    from toolwire.server.policy.rate_counters import CounterMemory

# A moving window stores the time of each call. So this bounds the memory that one caller can use.
_MAX_MOVING: Final = 10_000

_NO_TIME: Final = re.compile(r"(?:/|per)\s*0+\s*[a-z]", re.IGNORECASE)

Kind: TypeAlias = Literal["rate", "quota"]


class Rate(Struct, frozen=True):
    """A number of calls in a time: `Rate("60/minute")`, or `Rate("5/second;1000/hour", per="everyone")`."""

    calls: str
    """How many calls in which time."""
    per: Literal["caller", "everyone"] = "caller"
    """Whether each caller is counted, or all callers together."""
    shared: bool = False
    """Counted by all processes together, in the server's stores, instead of by each for itself."""


Rates: TypeAlias = str | Rate | Sequence[str | Rate]


class Counted(NamedTuple):
    """One rate or quota, ready to count.

    `place` is the server or the component that it is for. `subject` is what a refusal names instead of the component:
    "this server", say.
    """

    kind: Kind
    item: RateLimitItem
    per_caller: bool
    place: str
    shared: bool = False
    subject: str = ""


def compile_rates(kind: Kind, given: Rates, place: str, subject: str = "") -> list[Counted]:
    """Read rates; `ServerError` for what is none."""
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    rates = [each if isinstance(each, Rate) else Rate(each) for each in several]
    return [counted for rate in rates for counted in _read(kind, rate, place, subject)]


def _read(kind: Kind, rate: Rate, place: str, subject: str) -> Iterable[Counted]:
    limits = require("limits", extra="policy", what=f"{kind}= of a Policy")
    if rate.per not in ("caller", "everyone"):
        raise ServerError(f"A rate is per 'caller' or per 'everyone', not {rate.per!r}")
    try:
        items = limits.parse_many(rate.calls)
        if _NO_TIME.search(rate.calls):
            raise ValueError  # The library reads "5 per 0 hours" as "5 per hour".
    except (ValueError, TypeError):
        raise ServerError(f"{rate.calls!r} is not a rate: write it as '60/minute' or '5 per 2 hours'") from None
    for item in items:
        if item.amount < 1 or item.get_expiry() < 1:
            raise ServerError(f"{rate.calls!r} is not a rate: it allows nothing")
        if kind == "rate" and item.amount > _MAX_MOVING:
            raise ServerError(f"A rate has at most {_MAX_MOVING} calls; {rate.calls!r} is for quota=")
        yield Counted(kind, item, rate.per == "caller", place, rate.shared, subject)


class Counters:
    """Counts the calls of one server, in the memory of this process."""

    def __init__(self, memory: CounterMemory) -> None:
        strategies = require("limits.strategies", extra="policy", what="A rate or a quota")
        self._memory = memory
        self._strategies: dict[Kind, Any] = {
            "rate": strategies.MovingWindowRateLimiter(memory),
            "quota": strategies.FixedWindowRateLimiter(memory),
        }

    def take(self, counted: Sequence[Counted], caller: str, name: str) -> None:
        """Count a call against all of them, or raise `CallRefused` and count it against none."""
        # Several limits are tested before any is counted. A single limit tests and counts in one step.
        if len(counted) > 1:
            self._each(counted, caller, name, "test")
        self._each(counted, caller, name, "hit")

    def _each(self, counted: Sequence[Counted], caller: str, name: str, act: Literal["test", "hit"]) -> None:
        for each in counted:
            identity = (each.place, caller if each.per_caller else "")
            if not getattr(self._strategies[each.kind], act)(each.item, *identity):
                raise self._refusal(each, identity, name)

    def _refusal(self, counted: Counted, identity: tuple[str, str], name: str) -> CallRefused:
        reset = self._strategies[counted.kind].get_window_stats(counted.item, *identity).reset_time
        return refusal(counted, name, min(reset - self._memory.now(), counted.item.get_expiry()))


def refusal(counted: Counted, name: str, seconds: float) -> CallRefused:
    """Return the refusal for a caller who has to wait."""
    seconds = max(seconds, 0.001)
    whose = "for you" if counted.per_caller else "for all callers together"
    # A model that reads the name of one tool would try another one.
    subject = counted.subject.format(name=name) or name
    return CallRefused(
        f"Too many calls: {subject} allows {_in_calls(counted.item)} {whose}. Try again in {in_words(seconds)}.",
        reason=counted.kind,
        retry_after=seconds,
    )


def _in_calls(item: RateLimitItem) -> str:
    """Return a rate as text: "2 calls a minute", "5 calls in 2 days"."""
    calls, unit = f"{item.amount} call{'s' if item.amount > 1 else ''}", item.GRANULARITY.name
    if item.multiples > 1:
        return f"{calls} in {item.multiples} {unit}s"
    return f"{calls} {'an' if unit == 'hour' else 'a'} {unit}"


def in_words(seconds: float) -> str:
    """Return a time to wait as text, rounded up, so that a caller who waits that long has waited long enough."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return f"{-(-seconds // size):.0f} {unit}s"
    whole = max(1, int(-(-seconds // 1)))
    return f"{whole} second{'s' if whole > 1 else ''}"
