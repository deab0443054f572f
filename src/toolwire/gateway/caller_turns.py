"""Bounds of the queues in which calls wait for a connection of one upstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from toolwire.http.client.turns import QueueBounds
from toolwire.protocol.errors import CallRefused
from toolwire.wire.shares import Caller

#: The caller of requests that the gateway sends for itself: lists and listen streams.
GATEWAY: Final = ("gateway",)


def bound_queues(length: int, seconds: float) -> Callable[[Caller], QueueBounds | None]:
    """Return the bounds of each caller: `length` calls for `seconds`.

    The gateway's own requests, and callers without a share, may wait in any number.
    """
    of_caller, of_nobody = QueueBounds(length, seconds, refuse_busy), QueueBounds(None, None, refuse_busy)

    def find_bounds(caller: Caller) -> QueueBounds | None:
        if caller is GATEWAY:
            return None
        return of_nobody if caller is None else of_caller

    return find_bounds


def refuse_busy() -> CallRefused:
    """Make the refusal of a call for which an upstream has no connection in time."""
    return CallRefused(
        "Too many calls are in flight to the server behind this one; try again later",
        reason="concurrency",
        retry_after=1.0,
    )
