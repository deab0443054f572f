"""The errors that only a client raises. All others are in `toolwire.protocol.errors`."""

from __future__ import annotations

from typing import Any

from toolwire.protocol.errors import (
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    InvalidResponse,
    ProtocolError,
    ResourceNotFound,
    ToolwireError,
    find_data_member,
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
    """Say whether an error of `resources/read` means that there is no such resource.

    2026-07-28 server/resources: -32602 that names the URI, and -32002 from older servers (RES-3).
    """
    if error.code == INVALID_PARAMS:
        return find_data_member(error, "uri", str) is not None
    return error.code == RESOURCE_NOT_FOUND


class Rejected(ToolwireError):
    """The error that a `sample` or `roots` callback raises when the user says no.

    Before 2026-07-28 the server gets the code -1. On 2026-07-28 nothing is sent: the call that led to the question ends
    with this error.
    """


class Denied(ToolwireError):
    """The call was not made, because it was not approved."""


class BudgetExceeded(ToolwireError):
    """The call was not made, because its budget is used up."""


class ToolChanged(ToolwireError):
    """The call was not made, because the tool is not what was pinned. `report` has all that changed."""

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report
