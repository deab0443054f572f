"""Toolwire: Model Context Protocol servers and clients for every revision of the protocol.

Names are resolved on first use, so that importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire import testing as testing
    from toolwire import types as types
    from toolwire._version import __version__ as __version__
    from toolwire.client import Client as Client
    from toolwire.content import Audio as Audio
    from toolwire.content import File as File
    from toolwire.content import Image as Image
    from toolwire.content import Message as Message
    from toolwire.content import ResourceLink as ResourceLink
    from toolwire.content import Text as Text
    from toolwire.content import ToolResult as ToolResult
    from toolwire.gateway import Gateway as Gateway
    from toolwire.protocol.errors import ProtocolError as ProtocolError
    from toolwire.protocol.errors import ToolError as ToolError
    from toolwire.server.component_directory import scan as scan
    from toolwire.server.components import Argument as Argument
    from toolwire.server.components import Prompt as Prompt
    from toolwire.server.components import Resource as Resource
    from toolwire.server.components import ResourceTemplate as ResourceTemplate
    from toolwire.server.components import Tool as Tool
    from toolwire.server.context import Context as Context
    from toolwire.server.context import Progress as Progress
    from toolwire.server.context import SyncContext as SyncContext
    from toolwire.server.dependencies import Depends as Depends
    from toolwire.server.header_arguments import Header as Header
    from toolwire.server.limits import Limits as Limits
    from toolwire.server.middleware import Middleware as Middleware
    from toolwire.server.policy import Policy as Policy
    from toolwire.server.server import Server as Server
    from toolwire.server.tasks.own_tasks import Tasks as Tasks

_HOMES = {
    "Argument": "toolwire.server.components",
    "Audio": "toolwire.content",
    "Client": "toolwire.client",
    "Context": "toolwire.server.context",
    "Depends": "toolwire.server.dependencies",
    "File": "toolwire.content",
    "Gateway": "toolwire.gateway",
    "Header": "toolwire.server.header_arguments",
    "Image": "toolwire.content",
    "Limits": "toolwire.server.limits",
    "Message": "toolwire.content",
    "Middleware": "toolwire.server.middleware",
    "Policy": "toolwire.server.policy",
    "Progress": "toolwire.server.context",
    "Prompt": "toolwire.server.components",
    "ProtocolError": "toolwire.protocol.errors",
    "Resource": "toolwire.server.components",
    "ResourceLink": "toolwire.content",
    "ResourceTemplate": "toolwire.server.components",
    "Server": "toolwire.server.server",
    "SyncContext": "toolwire.server.context",
    "Tasks": "toolwire.server.tasks.own_tasks",
    "Text": "toolwire.content",
    "Tool": "toolwire.server.components",
    "ToolError": "toolwire.protocol.errors",
    "ToolResult": "toolwire.content",
    "__version__": "toolwire._version",
    "scan": "toolwire.server.component_directory",
    "testing": "",
    "types": "",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolwire' has no attribute {name!r}")
    value = getattr(import_module(home), name) if home else import_module(f"toolwire.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
