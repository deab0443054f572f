"""What only a client raises; everything else is in `toolwire.protocol.errors`."""

from __future__ import annotations

from typing import Any

from toolwire.protocol.errors import (
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    InvalidResponse,
    ProtocolError,
    ResourceNotFound,
    ToolwireError,
)

__all__ = [
    "BudgetExceeded",
    "Denied",
    "InvalidResponse",
    "Rejected",
    "ResourceNotFound",
    "ToolChanged",
    "is_resource_not_found",
]


def is_resource_not_found(error: ProtocolError) -> bool:
    """Return whether an error of `resources/read` means that there is no such resource.

    2026-07-28 server/resources: -32602 that names the URI, and -32002 from older servers (RES-3).
    """
    if error.code == INVALID_PARAMS:
        return isinstance(error.data, dict) and isinstance(error.data.get("uri"), str)
    return error.code == RESOURCE_NOT_FOUND


class Rejected(ToolwireError):
    """Raise it in a `sample` or `roots` callback when the user says no.

    Before 2026-07-28 the server is told with code -1. On 2026-07-28 nothing is sent and the call that led to the
    question is given up: this error reaches its caller.
    """


class Denied(ToolwireError):
    """The call was not made: whoever had to approve it did not."""


class BudgetExceeded(ToolwireError):
    """The call was not made: there is nothing left of the budget that it would use."""


class ToolChanged(ToolwireError):
    """The call was not made: the tool is no longer what was pinned. `report` has all that changed."""

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report
