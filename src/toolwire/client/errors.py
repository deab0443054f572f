"""What only a client raises; everything else is in `toolwire.protocol.errors`."""

from __future__ import annotations

from toolwire.protocol.errors import ToolwireError


class InvalidResponse(ToolwireError):
    """The server answered, but not with what the protocol or the tool's own schema allows (RPC-7, OUT-2)."""


class Rejected(ToolwireError):
    """Raise it in a `sample` or `roots` callback when the user says no.

    Before 2026-07-28 the server is told with code -1. On 2026-07-28 nothing is sent and the call that led to the
    question is given up: this error reaches its caller.
    """
