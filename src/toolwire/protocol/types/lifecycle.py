"""The beginning of a connection or exchange, and what may be said of any request: progress and cancellation."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from toolwire.protocol.types.base import (
    CacheableResult,
    Implementation,
    NestedResult,
    NotificationParams,
    RequestParams,
)
from toolwire.protocol.types.scalars import ProgressToken, RequestId

__all__ = [
    "CancelledNotificationParams",
    "DiscoverResult",
    "InitializeRequestParams",
    "InitializeResult",
    "ProgressNotificationParams",
]


class InitializeRequestParams(RequestParams, kw_only=True):
    """The params of `initialize`, before 2026-07-28."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class InitializeResult(NestedResult, kw_only=True):
    """The result of `initialize`, before 2026-07-28."""

    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str | UnsetType = UNSET


class DiscoverResult(CacheableResult, kw_only=True):
    """The result of `server/discover` (2026-07-28)."""

    supported_versions: list[str]
    capabilities: dict[str, Any]
    instructions: str | UnsetType = UNSET


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """The params of `notifications/cancelled`."""

    # 2025-11-25 leaves it out of the required members; a cancellation without it is ignored (1.5).
    request_id: RequestId | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ProgressNotificationParams(NotificationParams, kw_only=True):
    """The params of `notifications/progress`."""

    progress_token: ProgressToken
    progress: float | int
    total: float | int | UnsetType = UNSET
    message: str | UnsetType = UNSET
