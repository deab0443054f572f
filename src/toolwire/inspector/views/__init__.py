"""Views of tools (MCP Apps) in the inspector, on an origin of their own."""

from __future__ import annotations

from toolwire.inspector.views.open_views import PageViews
from toolwire.inspector.views.pages import ViewPages

__all__ = ["PageViews", "ViewPages"]
