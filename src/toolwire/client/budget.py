"""Budgets: how many calls a client may still make, and how long they may take together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from toolwire.client.errors import BudgetExceeded
from toolwire.protocol.errors import counted
from toolwire.util.numbers import COUNT_OR_NONE, SECONDS_OR_NONE, check_number


class Budget:
    """Limits on the calls that a program makes for a model: `Budget(calls=20, seconds=120, tools={"send_mail": 1})`.

    `seconds` is the time that all calls take together, and a call gets no more of it than is left. `reset()` begins
    anew.
    """

    def __init__(
        self,
        *,
        calls: int | None = None,
        seconds: float | None = None,
        tools: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if calls is not None:
            check_number("Budget", "calls", calls, COUNT_OR_NONE)
        if seconds is not None:
            check_number("Budget", "seconds", seconds, SECONDS_OR_NONE)
        for name, count in (tools or {}).items():
            check_number("Budget", f"tools[{name!r}]", count, COUNT_OR_NONE)
        self._calls = calls
        self._seconds = seconds
        self._tools = dict(tools or {})
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Begin anew. Calls that run now count when they end."""
        self.calls: int = 0
        self.seconds: float = 0.0
        self._by_tool: dict[str, int] = {}

    @property
    def calls_left(self) -> int | None:
        return None if self._calls is None else max(0, self._calls - self.calls)

    @property
    def seconds_left(self) -> float | None:
        return None if self._seconds is None else max(0.0, self._seconds - self.seconds)

    def hold(self, name: str) -> Spending:
        """Count a call that may be made, or raise `BudgetExceeded`. Until it begins it can be given back."""
        limit, made = self._tools.get(name), self._by_tool.get(name, 0)
        if limit is not None and made >= limit:
            raise BudgetExceeded(f"The budget for {name} is used up: {counted(limit, 'call')}")
        if self.calls_left == 0:
            raise BudgetExceeded(f"The budget is used up: {counted(self._calls or 0, 'call')}")
        if self.seconds_left == 0:
            raise BudgetExceeded(f"The budget is used up: {counted(self._seconds or 0.0, 'second')}")
        self.calls += 1
        if limit is not None:
            self._by_tool[name] = made + 1
        return Spending(self, self._by_tool, name, self._clock)

    def spend(self, name: str) -> Callable[[], None]:
        """Count a call that is about to be made, or raise `BudgetExceeded`. Call the result when the call ends."""
        held = self.hold(name)
        held.begin()
        return held.end

    def counts_in(self, counted: dict[str, int]) -> bool:
        """Say whether these counts are the current ones, and not those from before a `reset()`."""
        return self._by_tool is counted

    def timeout(self, wanted: float | None) -> float | None:
        """Return the time that a call may take: what it asks for, at most what is left."""
        left = self.seconds_left
        if left is None:
            return wanted
        return left if wanted is None else min(wanted, left)


class Spending:
    """One call of a budget. It is held while somebody decides about it, and then begins or is given back."""

    def __init__(self, budget: Budget, counted_in: dict[str, int], name: str, clock: Callable[[], float]) -> None:
        self._budget = budget
        # The counts at the time of `hold()`: after `reset()` there is nothing to give back.
        self._counted_in = counted_in
        self._name = name
        self._clock = clock
        self._started = 0.0

    def begin(self) -> None:
        """Start to count the time of the call."""
        self._started = self._clock()

    def end(self) -> None:
        # A clock that was set back must not return time to the budget.
        self._budget.seconds += max(0.0, self._clock() - self._started)

    def give_back(self) -> None:
        """Take the call out of the counts, because it was not made."""
        if self._budget.counts_in(self._counted_in):
            self._budget.calls -= 1
            if self._name in self._counted_in:
                self._counted_in[self._name] -= 1
