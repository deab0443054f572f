"""What servers and clients raise, and what a handler may raise, under one public name.

What concerns only the features of a client (`Denied`, `ToolChanged`, …) is in `toolwire.client`.
"""

from __future__ import annotations

from toolwire.protocol.errors import (
    CallRefused,
    InsufficientScope,
    InvalidResponse,
    NotStreamable,
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    ResourceNotFound,
    ServerError,
    Timeout,
    ToolError,
    ToolFailed,
    ToolwireError,
    TransportError,
    Unauthorized,
    Unreachable,
    UrlRequired,
)

__all__ = [
    "CallRefused",
    "InsufficientScope",
    "InvalidResponse",
    "NotStreamable",
    "NotSupported",
    "OutcomeUnknown",
    "ProtocolError",
    "ResourceNotFound",
    "ServerError",
    "Timeout",
    "ToolError",
    "ToolFailed",
    "ToolwireError",
    "TransportError",
    "Unauthorized",
    "Unreachable",
    "UrlRequired",
]
