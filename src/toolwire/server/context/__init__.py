"""`Context`: what a handler knows of its request, and the ways it can speak to the client while it runs."""

from __future__ import annotations

from toolwire.server.context.context import (
    Context,
    MountedContext,
    SyncContext,
    call_of,
    context_of,
    end_sync_context,
    is_blocking,
    is_context,
    sync_context_of,
    wait_for,
)
from toolwire.server.context.forms import Elicited, check_url
from toolwire.server.context.progress import Progress

__all__ = [
    "Context",
    "Elicited",
    "MountedContext",
    "Progress",
    "SyncContext",
    "call_of",
    "check_url",
    "context_of",
    "end_sync_context",
    "is_blocking",
    "is_context",
    "sync_context_of",
    "wait_for",
]
