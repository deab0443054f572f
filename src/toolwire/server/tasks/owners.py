"""Whom a task belongs to."""

from __future__ import annotations

from toolwire.server.context import Context
from toolwire.server.replay_state import principal_key


def owner_of(ctx: Context) -> str:
    """Whom a task of this request belongs to.

    2025-11-25 tasks, security: to the principal where there is one. What comes without one over HTTP is never listed,
    so it is kept apart from what belongs to whoever started this process.
    """
    return principal_key(ctx.principal) or ("local" if ctx._outlet.is_local else "http")
