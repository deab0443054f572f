"""Shapes of mounted servers: what comes through, in which form, and which definitions of tools were approved."""

from __future__ import annotations

from toolwire.server.shaping import (
    ArgumentShape,
    PromptShape,
    Quarantined,
    ResourceShape,
    Shape,
    ToolPins,
    ToolShape,
)

__all__ = [
    "ArgumentShape",
    "PromptShape",
    "Quarantined",
    "ResourceShape",
    "Shape",
    "ToolPins",
    "ToolShape",
]
