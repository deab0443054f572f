"""Owners of tasks."""

from __future__ import annotations

from toolwire.protocol.rounds import digest
from toolwire.server.call import Call
from toolwire.server.replay_state import principal_key
from toolwire.wire.shares import Caller


def owner_of(call: Call) -> str:
    """Return the owner of a task that this request makes.

    2025-11-25 tasks, security: to the principal where there is one. What comes without one over HTTP is never listed,
    so it is kept apart from the tasks of the user who started this process.
    """
    return principal_key(call.principal) or ("local" if call.outlet.is_local else "http")


def counted_caller(caller: Caller) -> Caller:
    """Return the caller that a slot is counted for: an address by a digest, which may be kept in the store."""
    return digest(caller) if isinstance(caller, str) else caller


def line_of(caller: Caller) -> str:
    """Return the line that the tasks of a counted caller stand in, in the queue; empty for a caller without a share.

    It is the owner for a principal (see `caller_of`). Callers without a principal are one owner, and have a line each.
    """
    if isinstance(caller, tuple):
        return digest(str(caller[0]), str(caller[1]))
    return caller if isinstance(caller, str) else ""
