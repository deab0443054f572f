"""Owners of tasks."""

from __future__ import annotations

from toolwire.server.call import Call
from toolwire.server.replay_state import principal_key


def owner_of(call: Call) -> str:
    """Return the owner of a task that this request makes.

    2025-11-25 tasks, security: to the principal where there is one. What comes without one over HTTP is never listed,
    so it is kept apart from the tasks of the user who started this process.
    """
    return principal_key(call.principal) or ("local" if call.outlet.is_local else "http")
