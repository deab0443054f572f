"""Log messages for the client, and which of them it wants."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from toolwire.protocol.types.base import NotificationParams, RequestParams
from toolwire.protocol.types.scalars import LoggingLevel

__all__ = [
    "LoggingMessageNotificationParams",
    "SetLevelRequestParams",
]


class SetLevelRequestParams(RequestParams, kw_only=True):
    """The params of `logging/setLevel`, before 2026-07-28."""

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, kw_only=True):
    """The params of `notifications/message`."""

    level: LoggingLevel
    data: Any
    logger: str | UnsetType = UNSET
