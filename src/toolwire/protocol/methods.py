"""The methods of each revision: who may send them, what they carry, and which capability they need.

What a revision does not have is absent from its table, so that no handler has to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol import types as t
from toolwire.protocol.revisions import (
    ALL,
    FROM_2025_03,
    FROM_2025_06,
    FROM_2026_07,
    ONLY_2024_11,
    ONLY_2025_11,
    REVISIONS,
    UNTIL_2025_11,
    Revisions,
    is_modern,
)


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the method table.

    `capability` is what the side that answers a request, or that sends a notification, must have declared, as a path
    for `types.has_capability`. `client_capability` is such a path, too: a client must declare it to send the method, as
    some extensions demand. `name_field` is the member of the params, by its wire name, that `Mcp-Name` repeats.
    """

    name: str
    kind: Literal["request", "notification"]
    sender: Literal["client", "server", "both"]
    params: type[t.Wire]
    result: type[t.Wire] | None = None
    capability: str | None = None
    client_capability: str | None = None
    revisions: frozenset[str] = ALL
    paginated: bool = False
    cacheable: bool = False
    rounds: bool = False
    name_field: str | None = None


def _request(
    name: str,
    params: type[t.Wire],
    result: type[t.Wire],
    *,
    sender: Literal["client", "server", "both"] = "client",
    capability: str | None = None,
    revisions: Revisions = ALL,
    paginated: bool = False,
    cacheable: bool = False,
    rounds: bool = False,
    name_field: str | None = None,
) -> Method:
    return Method(
        name=name,
        kind="request",
        sender=sender,
        params=params,
        result=result,
        capability=capability,
        revisions=revisions,
        paginated=paginated,
        cacheable=cacheable,
        rounds=rounds,
        name_field=name_field,
    )


def _notification(
    name: str,
    params: type[t.Wire],
    *,
    sender: Literal["client", "server", "both"] = "server",
    capability: str | None = None,
    revisions: Revisions = ALL,
) -> Method:
    return Method(
        name=name, kind="notification", sender=sender, params=params, capability=capability, revisions=revisions
    )


_TASKS_EXTENSION = f"extensions.{t.TASKS_EXTENSION}"

# A name that changed its meaning has one row for each meaning.
METHODS: tuple[Method, ...] = (
    # Lifecycle
    _request("initialize", t.InitializeRequestParams, t.InitializeResult, revisions=UNTIL_2025_11),
    _notification("notifications/initialized", t.NotificationParams, sender="client", revisions=UNTIL_2025_11),
    _request("server/discover", t.RequestParams, t.DiscoverResult, revisions=FROM_2026_07, cacheable=True),
    _request("ping", t.RequestParams, t.EmptyResult, sender="both", revisions=UNTIL_2025_11),
    _notification("notifications/cancelled", t.CancelledNotificationParams, sender="both"),
    _notification("notifications/progress", t.ProgressNotificationParams, sender="both", revisions=UNTIL_2025_11),
    _notification("notifications/progress", t.ProgressNotificationParams, sender="server", revisions=FROM_2026_07),
    # Tools
    _request(
        "tools/list", t.PaginatedRequestParams, t.ListToolsResult, capability="tools", paginated=True, cacheable=True
    ),
    _request(
        "tools/call", t.CallToolRequestParams, t.CallToolResult, capability="tools", rounds=True, name_field="name"
    ),
    _notification("notifications/tools/list_changed", t.NotificationParams, capability="tools.listChanged"),
    # Resources
    _request(
        "resources/list",
        t.PaginatedRequestParams,
        t.ListResourcesResult,
        capability="resources",
        paginated=True,
        cacheable=True,
    ),
    _request(
        "resources/templates/list",
        t.PaginatedRequestParams,
        t.ListResourceTemplatesResult,
        capability="resources",
        paginated=True,
        cacheable=True,
    ),
    _request(
        "resources/read",
        t.ReadResourceRequestParams,
        t.ReadResourceResult,
        capability="resources",
        cacheable=True,
        rounds=True,
        name_field="uri",
    ),
    _request(
        "resources/subscribe",
        t.SubscribeRequestParams,
        t.EmptyResult,
        capability="resources.subscribe",
        revisions=UNTIL_2025_11,
    ),
    _request(
        "resources/unsubscribe",
        t.UnsubscribeRequestParams,
        t.EmptyResult,
        capability="resources.subscribe",
        revisions=UNTIL_2025_11,
    ),
    _notification(
        "notifications/resources/updated", t.ResourceUpdatedNotificationParams, capability="resources.subscribe"
    ),
    _notification("notifications/resources/list_changed", t.NotificationParams, capability="resources.listChanged"),
    # Prompts
    _request(
        "prompts/list",
        t.PaginatedRequestParams,
        t.ListPromptsResult,
        capability="prompts",
        paginated=True,
        cacheable=True,
    ),
    _request(
        "prompts/get", t.GetPromptRequestParams, t.GetPromptResult, capability="prompts", rounds=True, name_field="name"
    ),
    _notification("notifications/prompts/list_changed", t.NotificationParams, capability="prompts.listChanged"),
    # Completion: 2024-11-05 has no capability for it (1.9, T-5).
    _request("completion/complete", t.CompleteRequestParams, t.CompleteResult, revisions=ONLY_2024_11),
    _request(
        "completion/complete",
        t.CompleteRequestParams,
        t.CompleteResult,
        capability="completions",
        revisions=FROM_2025_03,
    ),
    # Logging
    _request("logging/setLevel", t.SetLevelRequestParams, t.EmptyResult, capability="logging", revisions=UNTIL_2025_11),
    _notification("notifications/message", t.LoggingMessageNotificationParams, capability="logging"),
    # Subscriptions
    _request(
        "subscriptions/listen", t.SubscriptionsListenRequestParams, t.SubscriptionsListenResult, revisions=FROM_2026_07
    ),
    _notification(
        "notifications/subscriptions/acknowledged",
        t.SubscriptionsAcknowledgedNotificationParams,
        revisions=FROM_2026_07,
    ),
    # What a server asks of a client
    _request(
        "roots/list", t.RequestParams, t.ListRootsResult, sender="server", capability="roots", revisions=UNTIL_2025_11
    ),
    _notification(
        "notifications/roots/list_changed",
        t.NotificationParams,
        sender="client",
        capability="roots.listChanged",
        revisions=UNTIL_2025_11,
    ),
    _request(
        "sampling/createMessage",
        t.CreateMessageRequestParams,
        t.CreateMessageResult,
        sender="server",
        capability="sampling",
        revisions=UNTIL_2025_11,
    ),
    _request(
        "elicitation/create",
        t.ElicitRequestParams,
        t.ElicitResult,
        sender="server",
        capability="elicitation",
        revisions=FROM_2025_06 & UNTIL_2025_11,
    ),
    _notification(
        "notifications/elicitation/complete", t.ElicitationCompleteNotificationParams, revisions=ONLY_2025_11
    ),
    # Tasks of 2025-11-25: either side may run one for the other.
    _request(
        "tasks/get",
        t.TaskRequestParams,
        t.GetTaskResult,
        sender="both",
        capability="tasks",
        revisions=ONLY_2025_11,
    ),
    _request(
        "tasks/result",
        t.TaskRequestParams,
        t.GetTaskPayloadResult,
        sender="both",
        capability="tasks",
        revisions=ONLY_2025_11,
    ),
    _request(
        "tasks/list",
        t.PaginatedRequestParams,
        t.ListTasksResult,
        sender="both",
        capability="tasks.list",
        revisions=ONLY_2025_11,
        paginated=True,
    ),
    _request(
        "tasks/cancel",
        t.TaskRequestParams,
        t.CancelTaskResult,
        sender="both",
        capability="tasks.cancel",
        revisions=ONLY_2025_11,
    ),
    _notification(
        "notifications/tasks/status",
        t.TaskStatusNotificationParams,
        sender="both",
        capability="tasks",
        revisions=ONLY_2025_11,
    ),
    # Tasks of the extension
    _request(
        "tasks/get",
        t.TaskRequestParams,
        t.DetailedTaskResult,
        capability=_TASKS_EXTENSION,
        revisions=FROM_2026_07,
        name_field="taskId",
    ),
    _request(
        "tasks/update",
        t.UpdateTaskRequestParams,
        t.EmptyResult,
        capability=_TASKS_EXTENSION,
        revisions=FROM_2026_07,
        name_field="taskId",
    ),
    _request(
        "tasks/cancel",
        t.TaskRequestParams,
        t.EmptyResult,
        capability=_TASKS_EXTENSION,
        revisions=FROM_2026_07,
        name_field="taskId",
    ),
    _notification("notifications/tasks", t.TaskNotificationParams, capability=_TASKS_EXTENSION, revisions=FROM_2026_07),
)


def _methods_of(revision: str) -> Mapping[str, Method]:
    rows = (row for row in METHODS if revision in row.revisions)
    if not is_modern(revision):
        # Cache hints, rounds and the `Mcp-Name` header came with 2026-07-28.
        rows = (msgspec.structs.replace(row, cacheable=False, rounds=False, name_field=None) for row in rows)
    return MappingProxyType({row.name: row for row in rows})


_METHODS_BY_REVISION = {revision: _methods_of(revision) for revision in REVISIONS}


def methods(revision: str) -> Mapping[str, Method]:
    """The methods of one revision, by name; a method that it does not have is not in the mapping."""
    return _METHODS_BY_REVISION[revision]


# 2026-07-28 basic/transports/streamable-http: the header Mcp-Method repeats the name.
_NAME: Final = lazy_pattern(r"[!-~]{1,200}")
_SLASHES: Final = lazy_pattern("/+")
#: The methods of the extensions that this library serves.
SERVED_EXTENSIONS: Final = frozenset({"skills/list", "skills/get", "resources/directory/read"})
_SPELLED: Final = {name.casefold(): name for name in (*SERVED_EXTENSIONS, *(row.name for row in METHODS))}


#: The notifications that a sender may leave out when its reader is behind. Every revision, basic/utilities/progress: a
#: receiver of a token may send none at all; server/utilities/logging: servers limit the rate of messages.
OPTIONAL_NOTIFICATIONS: Final = frozenset({"notifications/progress", "notifications/message"})


def is_method_name(text: str) -> bool:
    """Say whether a text can be the name of a method: visible ASCII characters, without spaces."""
    return _NAME.fullmatch(text) is not None


def liberally_read(name: str) -> str:
    """Return the known method that a liberal receiver reads in a name; the name itself, if there is none.

    A check of the calls of a method must not depend on how the receiver reads its name.
    """
    return _SPELLED.get(_spelled(name), name)


def is_unknown_method(name: str) -> bool:
    """Say whether a name can only be that of a method that this library does not know."""
    return is_method_name(name) and _spelled(name) not in _SPELLED


def _spelled(name: str) -> str:
    return _SLASHES.sub("/", name.strip("/")).casefold()
