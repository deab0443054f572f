"""Views of tools (MCP Apps) in the inspector: their pages on a second origin, and the host's half of the bridge."""

from __future__ import annotations

from toolwire.inspector.views.open_views import PageViews
from toolwire.inspector.views.pages import ViewPages

__all__ = ["PageViews", "ViewPages"]
