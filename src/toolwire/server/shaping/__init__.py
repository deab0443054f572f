"""Shapes: what a server lets through of a server that it mounts, and in which form."""

from __future__ import annotations

from toolwire.server.shaping.mount import ShapedMount
from toolwire.server.shaping.pins import Quarantined, ToolPins
from toolwire.server.shaping.shapes import ArgumentShape, PromptShape, ResourceShape, Shape, ToolShape

__all__ = [
    "ArgumentShape",
    "PromptShape",
    "Quarantined",
    "ResourceShape",
    "Shape",
    "ShapedMount",
    "ToolPins",
    "ToolShape",
]
