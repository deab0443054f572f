"""Components of a server: tools, resources, resource templates and prompts.

A component has its metadata in the form of the wire, and a runner that was compiled when the component was made. No
request looks at the function again.
"""

from __future__ import annotations

from toolwire.server.components.base import Component, checked_policy, icons_of
from toolwire.server.components.cache import Cache
from toolwire.server.components.options import Icons, Options
from toolwire.server.components.prompts import Prompt
from toolwire.server.components.resources import Resource, ResourceTemplate
from toolwire.server.components.tools import Argument, Tool, ToolBase, error_result, failed_result

__all__ = [
    "Argument",
    "Cache",
    "Component",
    "Icons",
    "Options",
    "Prompt",
    "Resource",
    "ResourceTemplate",
    "Tool",
    "ToolBase",
    "checked_policy",
    "error_result",
    "failed_result",
    "icons_of",
]
