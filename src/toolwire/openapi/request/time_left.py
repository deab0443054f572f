"""The time that a call of an API has left."""

from __future__ import annotations

from math import inf

from toolwire.server.call import Call


def seconds_left(call: Call) -> float:
    """Return how many seconds the handler of a call has left."""
    return inf if call.deadline is None else call.deadline.time_left
