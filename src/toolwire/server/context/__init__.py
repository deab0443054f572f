"""`Context`: what a handler knows of its request, and the ways it can speak to the client while it runs."""

from __future__ import annotations

from toolwire.server.context.context import CURRENT, Context, is_context
from toolwire.server.context.forms import Elicited, check_url
from toolwire.server.context.progress import Progress
from toolwire.server.context.sync_context import SyncContext, is_blocking

__all__ = ["CURRENT", "Context", "Elicited", "Progress", "SyncContext", "check_url", "is_blocking", "is_context"]
