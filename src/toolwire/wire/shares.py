"""Limits that callers share: one limit for all of them together, and a share of it for each.

A caller is a principal, or the address of a peer. None stands for a caller that no share limits: the process at the
other end of a pipe, or everybody behind an address that says nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from toolwire.protocol.errors import INTERNAL_ERROR, TOO_MANY_CALLS, ProtocolError

Caller: TypeAlias = Hashable | None


def is_distinct(principal: Any) -> bool:
    """Return whether a principal is one caller, and not missing or shared by strangers."""
    return principal is not None and not getattr(principal, "is_shared", False)


def caller_of(principal: Any) -> Caller:
    """Return the caller for a principal of any class; None without a distinct principal."""
    if not is_distinct(principal):
        return None
    try:
        return principal.provider, principal.subject
    except AttributeError:
        return "", str(principal)


class Taken(ProtocolError):
    """The refusal of a request, because its caller holds its whole share (`own`), or nothing is left for anybody.

    Over HTTP it becomes 429 or 503, with `Retry-After`.
    """

    request_id: str | int | None = None

    def __init__(self, amount: int, what: str, seconds: int, *, own: bool) -> None:
        who = "You have" if own else "The server has"
        most = "one caller may have" if own else "it takes"
        text = f"{who} {amount} {what} at once, and {most} no more; try again in {seconds} s"
        code = TOO_MANY_CALLS if own else INTERNAL_ERROR
        super().__init__(code, text, {"retryAfterMs": seconds * 1000})
        self.own = own
        self.seconds = seconds


class Shares:
    """The count of something of which there is `limit`, by caller. One caller gets `share` of it at most.

    `what` names it in refusals, and a caller that is refused should try again after `seconds`.

    A caller is remembered only while it holds something, so there are never more entries than `limit`. Several threads
    may use one object.
    """

    __slots__ = ("_held", "_lock", "_seconds", "_what", "assign", "limit", "own", "total")

    def __init__(self, limit: int, share: float, what: str, *, of: int | None = None, seconds: int = 1) -> None:
        """`of`: the number that the share is a part of, where that is not the limit."""
        self.limit: int = limit
        self.own: int = max(1, int((limit if of is None else of) * share))
        """The amount that one caller may hold."""
        self.total: int = 0
        self.assign: Callable[[], None] = _nothing
        """Calls `assign_to` for what is in the total and belongs to no caller yet, before anybody asks for callers.

        What is held for a moment only, and never makes the limit scarce, is then never counted for its caller.
        """
        self._what = what
        self._seconds = seconds
        self._held: dict[Caller, int] = {}
        self._lock = threading.Lock()

    def take(self, caller: Caller, amount: int = 1) -> None:
        """Count what a caller wants to hold; raise `Taken` when that is too much."""
        if self.total + amount > self.own:
            self.assign()
        with self._lock:
            held = self._held.get(caller, 0) + amount
            if held > self.own or self.total + amount > self.limit:
                self._check(caller, amount)
            self._held[caller] = held
            self.total += amount

    def assign_to(self, caller: Caller) -> None:
        """Count one for a caller that is in the total already."""
        with self._lock:
            self._held[caller] = self._held.get(caller, 0) + 1

    def add(self, caller: Caller, amount: int) -> None:
        """Count what a caller holds in any case, also above its share."""
        with self._lock:
            self._held[caller] = self._held.get(caller, 0) + amount
            self.total += amount

    def check(self, caller: Caller, amount: int = 1) -> None:
        """Raise `Taken` when a caller can have no more. Nothing is counted."""
        if self.total + amount > self.own:  # Below that there is room for anybody.
            self.assign()
            self._check(caller, amount)

    def _check(self, caller: Caller, amount: int) -> None:
        if caller is not None and self._held.get(caller, 0) + amount > self.own:
            raise Taken(self.own, self._what, self._seconds, own=True)
        if self.total + amount > self.limit:
            raise Taken(self.limit, self._what, self._seconds, own=False)

    def has_room(self, caller: Caller, amount: int = 1) -> bool:
        """Return whether a caller could have so much now. Nothing is counted."""
        return self.total + amount <= self.limit and (caller is None or self.held_by(caller) + amount <= self.own)

    def give_back(self, caller: Caller, amount: int = 1) -> None:
        """Stop counting what a caller held."""
        with self._lock:
            self.total -= amount
            left = self._held[caller] - amount
            if left > 0:
                self._held[caller] = left
            else:
                del self._held[caller]

    def full(self) -> set[Caller]:
        """Return the callers that hold their whole share."""
        self.assign()
        with self._lock:
            return {caller for caller, held in self._held.items() if caller is not None and held >= self.own}

    def held_by(self, caller: Caller) -> int:
        """Return how much a caller holds now."""
        self.assign()
        return self._held.get(caller, 0)

    @property
    def callers(self) -> int:
        """Return the number of callers that hold something."""
        self.assign()
        return len(self._held)


def _nothing() -> None:
    """Assign nothing, because everything was counted for its caller at once."""
