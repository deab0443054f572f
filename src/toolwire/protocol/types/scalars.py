"""Identifiers and words that stand for themselves: ids, tokens, roles, levels, states."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = [
    "LEVELS",
    "ElicitAction",
    "LoggingLevel",
    "ProgressToken",
    "RequestId",
    "Role",
    "TaskStatus",
    "TaskSupport",
    "severity",
]

RequestId: TypeAlias = str | int
ProgressToken: TypeAlias = str | int
Role: TypeAlias = Literal["user", "assistant"]
LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]
ElicitAction: TypeAlias = Literal["accept", "decline", "cancel"]

# RFC 5424, from the least to the most severe.
LEVELS: tuple[LoggingLevel, ...] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_SEVERITY = {level: rank for rank, level in enumerate(LEVELS)}


def severity(level: LoggingLevel) -> int:
    """The rank of a level, 0 for `debug`; an unknown level is a `ValueError`."""
    try:
        return _SEVERITY[level]
    except KeyError:
        raise ValueError(f"unknown logging level {level!r}; use one of {', '.join(LEVELS)}") from None
