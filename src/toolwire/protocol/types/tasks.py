"""Tasks, in the dialect of 2025-11-25 and in that of the extension io.modelcontextprotocol/tasks."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import Error, MetaDict, NestedResult, RequestParams, ResultMeta
from toolwire.protocol.types.rounds import InputRequest
from toolwire.protocol.types.scalars import TaskStatus

__all__ = [
    "TASKS_EXTENSION",
    "CancelTaskResult",
    "CreateTaskResult",
    "DetailedTask",
    "DetailedTaskResult",
    "GetTaskPayloadResult",
    "GetTaskResult",
    "ListTasksResult",
    "Task",
    "TaskCreatedResult",
    "TaskFields",
    "TaskNotificationParams",
    "TaskRequestParams",
    "TaskStatusNotificationParams",
    "UpdateTaskRequestParams",
]

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"


# --- 2025-11-25 ------------------------------------------------------------------------------------------------------


def _unlimited() -> None:
    """Return the `ttl` of a task that is kept for ever, which is written as null."""


class Task(Wire, kw_only=True):
    """The state of a task (2025-11-25)."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    # Null means unlimited, and must be written (T-28). Some servers leave it out then.
    ttl: int | None = msgspec.field(default_factory=_unlimited)
    status_message: str | UnsetType = UNSET
    poll_interval: int | UnsetType = UNSET


class CreateTaskResult(NestedResult, kw_only=True):
    """The answer to a call that became a task (2025-11-25)."""

    task: Task


class TaskRequestParams(RequestParams, kw_only=True):
    """The params of `tasks/get`, `tasks/result` and `tasks/cancel`, in both dialects."""

    task_id: str


class GetTaskResult(Task, kw_only=True):
    """The result of `tasks/get` (2025-11-25)."""

    meta: ResultMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class CancelTaskResult(Task, kw_only=True):
    """The result of `tasks/cancel` (2025-11-25)."""

    meta: ResultMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class TaskStatusNotificationParams(Task, kw_only=True):
    """The params of `notifications/tasks/status` (2025-11-25)."""

    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class GetTaskPayloadResult(NestedResult, kw_only=True):
    """The result that the request would have had; its members are in `extra`."""


class ListTasksResult(NestedResult, kw_only=True):
    """The result of `tasks/list`: one page (2025-11-25)."""

    tasks: list[Task]
    next_cursor: str | UnsetType | None = UNSET


# --- The extension ---------------------------------------------------------------------------------------------------


class TaskFields(Wire, kw_only=True):
    """The members that every state of a task has (2026-07-28)."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    # Null means unlimited, and must be written.
    ttl_ms: int | None
    status_message: str | UnsetType = UNSET
    poll_interval_ms: int | UnsetType = UNSET


class TaskCreatedResult(TaskFields, kw_only=True, omit_defaults=False):
    """`CreateTaskResult` of the extension: the only result whose type is `task` (TSK-6)."""

    result_type: str | UnsetType = "task"
    meta: ResultMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class DetailedTask(TaskFields, kw_only=True):
    """The state of a task, with its questions, its result or its error (2026-07-28)."""

    input_requests: dict[str, InputRequest] | UnsetType = UNSET
    result: Any = UNSET
    error: Error | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class DetailedTaskResult(DetailedTask, kw_only=True, omit_defaults=False):
    """The result of `tasks/get` in the extension."""

    result_type: str | UnsetType = "complete"


class TaskNotificationParams(DetailedTask, kw_only=True):
    """The params of `notifications/tasks`."""


class UpdateTaskRequestParams(RequestParams, kw_only=True):
    """The params of `tasks/update`: answers to the questions of a task (2026-07-28)."""

    task_id: str
    input_responses: dict[str, Raw]
