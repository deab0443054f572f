"""Shapes of mounted servers: names, filters, and approved tool definitions."""

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
