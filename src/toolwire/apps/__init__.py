"""Apps: interactive views of tools, served as pages over MCP (SEP-1865, `io.modelcontextprotocol/ui`)."""

from __future__ import annotations

from toolwire.apps.bundle import PageError
from toolwire.apps.content_security_policy import Csp, allow_attribute, host_policy
from toolwire.apps.page import Page, view_library
from toolwire.apps.served import App, claude_domain
from toolwire.protocol.apps import RENDERS_APPS

__all__ = [
    "RENDERS_APPS",
    "App",
    "Csp",
    "Page",
    "PageError",
    "allow_attribute",
    "claude_domain",
    "host_policy",
    "view_library",
]
