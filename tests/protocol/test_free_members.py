"""The place of a member in its message decides whether it is the protocol's or the author's."""

from __future__ import annotations

from typing import Any

from tests.cases import cases

from toolwire.protocol import types as t
from toolwire.protocol.free_members import (
    find_error_type,
    find_notification_type,
    find_result_type,
    rewrite_members,
)

X = "AAAA"


def rewrite(value: Any) -> Any:
    """Write `-` for each text, `0` for each number, and `-name` for each name."""
    if isinstance(value, dict):
        return {f"-{name}": rewrite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rewrite(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return "-" if isinstance(value, str) else 0


IMAGE = {"type": "image", "data": X, "mimeType": "image/png"}
TIME = "2026-07-28T10:00:00Z"
TASK = {"taskId": X, "status": "working", "createdAt": TIME, "lastUpdatedAt": TIME}

CASES: list[tuple[type[t.Wire], dict[str, Any], dict[str, Any]]] = [
    # Base64 is kept in its block, and nowhere else.
    (t.CallToolResult, {"content": [IMAGE]}, {"content": [{**IMAGE, "mimeType": "-"}]}),
    (
        t.CallToolResult,
        {"content": [{"type": "text", "text": X, "data": X}], "structuredContent": IMAGE},
        {
            "content": [{"-data": "-", "type": "text", "text": "-"}],
            "structuredContent": {"-type": "-", "-data": "-", "-mimeType": "-"},
        },
    ),
    (
        t.CallToolResult,
        {"content": [{"type": "resource", "resource": {"uri": X, "blob": X}}]},
        {"content": [{"type": "resource", "resource": {"uri": "-", "blob": X}}]},
    ),
    (t.CallToolResult, {"content": [{"type": "new", "data": X}]}, {"content": [{"-type": "-", "-data": "-"}]}),
    # The size of a link is a number of the protocol; a number in `_meta` is not.
    (
        t.CallToolResult,
        {"content": [{"type": "resource_link", "uri": X, "name": X, "size": 7, "_meta": {"n": 7}}], "isError": False},
        {
            "content": [{"type": "resource_link", "uri": "-", "name": "-", "size": 7, "_meta": {"-n": 0}}],
            "isError": False,
        },
    ),
    # Members that a result does not have are the author's, whatever they are called.
    (
        t.CallToolResult,
        {"content": [], "taskId": X, "requestState": X, "blob": X},
        {"-taskId": "-", "-requestState": "-", "-blob": "-", "content": []},
    ),
    (
        t.InputRequiredResult,
        {"resultType": "input_required", "requestState": X},
        {
            "resultType": "input_required",
            "requestState": X,
        },
    ),
    (
        t.InputRequiredResult,
        {
            "inputRequests": {
                X: {
                    "method": "elicitation/create",
                    "params": {
                        "message": X,
                        "mode": "form",
                        "requestedSchema": {
                            "type": "object",
                            "properties": {X: {"type": "string", "maxLength": 16, "title": X, "default": 7}},
                            "required": [X],
                        },
                    },
                }
            }
        },
        {
            "inputRequests": {
                X: {
                    "method": "elicitation/create",
                    "params": {
                        "message": "-",
                        "mode": "form",
                        "requestedSchema": {
                            "-required": ["-"],
                            "type": "object",
                            "properties": {"-AAAA": {"type": "string", "maxLength": 16, "title": "-", "default": 0}},
                        },
                    },
                }
            }
        },
    ),
    (
        t.CreateMessageRequestParams,
        {"messages": [{"role": "user", "content": IMAGE}, {"role": "user", "content": [IMAGE]}], "maxTokens": 9},
        {
            "messages": [
                {"role": "user", "content": {**IMAGE, "mimeType": "-"}},
                {"role": "user", "content": [{**IMAGE, "mimeType": "-"}]},
            ],
            "maxTokens": 9,
        },
    ),
    # Words of the protocol are kept in their place alone, and nothing else is kept there.
    (
        t.ListToolsResult,
        {"resultType": "complete", "cacheScope": "private"},
        {"resultType": "complete", "cacheScope": "private"},
    ),
    (
        t.ListToolsResult,
        {"resultType": X, "cacheScope": "form", "tools": []},
        {"resultType": "-", "cacheScope": "-", "tools": []},
    ),
    (t.CallToolResult, {"content": [], "mode": "form"}, {"content": [], "-mode": "-"}),
    (t.ElicitRequestParams, {"mode": "url", "message": X}, {"mode": "url", "message": "-"}),
    (t.ElicitRequestParams, {"mode": X, "message": X}, {"mode": "-", "message": "-"}),
    (
        t.CreateMessageRequestParams,
        {"messages": [], "includeContext": "thisServer", "toolChoice": {"mode": "auto"}},
        {"messages": [], "includeContext": "thisServer", "toolChoice": {"mode": "auto"}},
    ),
    (
        t.CreateMessageRequestParams,
        {"messages": [], "includeContext": [X], "toolChoice": {"mode": X}},
        {"messages": [], "includeContext": ["-"], "toolChoice": {"mode": "-"}},
    ),
    # Both dialects of tasks.
    (t.CreateTaskResult, {"task": {**TASK, "ttl": 9}}, {"task": {**TASK, "ttl": 9}}),
    (
        t.GetTaskResult,
        {**TASK, "ttl": None, "statusMessage": X},
        {**TASK, "ttl": None, "statusMessage": "-"},
    ),
    (
        t.DetailedTaskResult,
        {**TASK, "ttlMs": 9, "result": {"content": [IMAGE], "structuredContent": {"taskId": X, "status": X}}},
        {
            **TASK,
            "ttlMs": 9,
            "result": {
                "content": [{**IMAGE, "mimeType": "-"}],
                "structuredContent": {"-taskId": "-", "-status": "-"},
            },
        },
    ),
    (
        t.DetailedTaskResult,
        {"error": {"code": 5, "message": X, "data": 5}},
        {
            "error": {"code": 5, "message": "-", "data": 0},
        },
    ),
    (t.GetTaskPayloadResult, {"content": [IMAGE]}, {"content": [{**IMAGE, "mimeType": "-"}]}),
    # Ids in `_meta` are kept in the messages that the protocol gives them to.
    (
        t.GetTaskPayloadResult,
        {"_meta": {t.RELATED_TASK_KEY: {"taskId": X, "note": X}, "progressToken": 7, "taskId": X}},
        {"_meta": {"-taskId": "-", "-progressToken": 0, t.RELATED_TASK_KEY: {"taskId": X, "-note": "-"}}},
    ),
    (
        t.ElicitRequestParams,
        {"message": X, "_meta": {"progressToken": X}},
        {"message": "-", "_meta": {"progressToken": X}},
    ),
    (t.NotificationParams, {"_meta": {t.SUBSCRIPTION_ID_KEY: X}}, {"_meta": {t.SUBSCRIPTION_ID_KEY: X}}),
    (
        t.CallToolResult,
        {"_meta": {"progressToken": X, t.SUBSCRIPTION_ID_KEY: X, t.RELATED_TASK_KEY: {"taskId": X}}, "content": []},
        {
            "_meta": {
                "-progressToken": "-",
                f"-{t.SUBSCRIPTION_ID_KEY}": "-",
                f"-{t.RELATED_TASK_KEY}": {"-taskId": "-"},
            },
            "content": [],
        },
    ),
    # A time is kept, and any other text in its place is not.
    *(
        (
            t.CallToolResult,
            {"content": [{**IMAGE, "annotations": {"lastModified": text, "priority": 0.5}}]},
            {"content": [{**IMAGE, "mimeType": "-", "annotations": {"lastModified": after, "priority": 0}}]},
        )
        for text, after in (("2026-07-28T10:00:00Z", "2026-07-28T10:00:00Z"), (X, "-"), (f"2026-07-28{X}", "-"))
    ),
    *(
        (type_, {**TASK, "ttlMs": 1, name: X}, {**TASK, "ttlMs": 1, name: "-"})
        for type_ in (t.DetailedTaskResult, t.TaskCreatedResult, t.TaskNotificationParams)
        for name in ("createdAt", "lastUpdatedAt")
    ),
    (
        t.LoggingMessageNotificationParams,
        {"level": "info", "data": {"data": X, "type": X, "mimeType": X}, "logger": X},
        {"level": "info", "data": {"-data": "-", "-type": "-", "-mimeType": "-"}, "logger": "-"},
    ),
    (
        t.ProgressNotificationParams,
        {"progressToken": X, "progress": 7, "total": 8.5, "message": X},
        {"progressToken": X, "progress": 7, "total": 8.5, "message": "-"},
    ),
    (
        t.CompleteResult,
        {"completion": {"values": [X], "total": 7, "hasMore": True}},
        {"completion": {"values": ["-"], "total": 7, "hasMore": True}},
    ),
    (
        t.GetPromptResult,
        {"messages": [{"role": "user", "content": IMAGE}], "description": X},
        {"messages": [{"role": "user", "content": {**IMAGE, "mimeType": "-"}}], "description": "-"},
    ),
    (
        t.ReadResourceResult,
        {"contents": [{"uri": X, "blob": X}], "ttlMs": 9, "blob": X},
        {
            "-blob": "-",
            "contents": [{"uri": "-", "blob": X}],
            "ttlMs": 9,
        },
    ),
]


@cases(("type_", "message", "expected"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_only_members_of_the_author_are_rewritten(
    type_: type[t.Wire], message: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert rewrite_members(type_, message, rewrite) == expected


@cases(
    ("method", "members", "type_"),
    [
        ("tools/call", {"content": []}, t.CallToolResult),
        ("tools/call", {"content": [], "task": {"taskId": X}}, t.CallToolResult),
        ("tools/call", {"task": {"taskId": X}}, t.CreateTaskResult),
        ("tools/call", {"resultType": "task", "taskId": X}, t.TaskCreatedResult),
        ("prompts/get", {"resultType": "input_required"}, t.InputRequiredResult),
        ("tasks/get", {"ttl": 9}, t.GetTaskResult),
        ("tasks/get", {"ttlMs": 9}, t.DetailedTaskResult),
        ("tasks/result", {}, t.GetTaskPayloadResult),
        ("vendor/method", {"content": []}, t.Result),
        ("vendor/method", None, t.Result),
    ],
)
def test_the_type_of_a_result_follows_from_its_method(method: str, members: Any, type_: type[t.Wire]) -> None:
    assert find_result_type(method, members) is type_


def test_errors_and_notifications_have_types() -> None:
    assert find_error_type(-32042) is t.URLElicitationRequiredErrorData
    assert find_error_type(-5) is None
    assert find_notification_type("notifications/message") is t.LoggingMessageNotificationParams
    assert find_notification_type("notifications/vendor") is t.NotificationParams
