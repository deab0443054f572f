"""The revisions of the protocol: which exist, what each can do, which methods it has and which members it knows.

Everything here is a table, read through a handful of functions. A revision is an opaque name out of `REVISIONS`; names
are looked up, never compared as strings (VER-5). What a revision does not have is absent from its tables, so that no
handler has to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import UNSET

from toolwire.protocol import types as t

T = TypeVar("T")

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
MODERN = "2026-07-28"
LEGACY = REVISIONS[:-1]
LATEST_LEGACY = "2025-11-25"

_RANK = {revision: rank for rank, revision in enumerate(REVISIONS)}


def is_supported(version: object) -> bool:
    """Whether `version` names a revision that this library speaks."""
    return isinstance(version, str) and version in _RANK


def is_modern(revision: str) -> bool:
    """Whether `revision` belongs to the era of exchanges: no handshake, no session."""
    return revision == MODERN


def at_least(revision: str, other: str) -> bool:
    """Whether `revision` is `other` or came after it; False when either is unknown."""
    return revision in _RANK and other in _RANK and _RANK[revision] >= _RANK[other]


# --- Sets of revisions, for the tables below -------------------------------------------------------------------------

Revisions: TypeAlias = frozenset[str]

_ALL: Revisions = frozenset(REVISIONS)
_LEGACY: Revisions = frozenset(LEGACY)
_MODERN: Revisions = frozenset({MODERN})
_FROM_2025_03: Revisions = frozenset(REVISIONS[1:])
_FROM_2025_06: Revisions = frozenset(REVISIONS[2:])
_FROM_2025_11: Revisions = frozenset(REVISIONS[3:])
_ONLY_2024_11: Revisions = frozenset({"2024-11-05"})
_ONLY_2025_03: Revisions = frozenset({"2025-03-26"})
_ONLY_2025_06: Revisions = frozenset({"2025-06-18"})
_ONLY_2025_11: Revisions = frozenset({"2025-11-25"})
_UNTIL_2025_03: Revisions = frozenset(REVISIONS[:2])
_UNTIL_2025_06: Revisions = frozenset(REVISIONS[:3])
_HTTP_SESSIONS: Revisions = _FROM_2025_03 & _LEGACY

# --- Features --------------------------------------------------------------------------------------------------------

FEATURES: Mapping[str, Revisions] = MappingProxyType(
    {
        # Messages and lifecycle
        "batching": _ONLY_2025_03,
        "handshake": _LEGACY,
        "per_request_metadata": _MODERN,
        "discover": _MODERN,
        "ping": _LEGACY,
        "server_requests": _LEGACY,
        "client_progress": _LEGACY,
        "result_type": _MODERN,
        "input_required": _MODERN,
        "cache_hints": _MODERN,
        "extensions": _MODERN,
        "trace_context": _MODERN,
        "timeouts": _FROM_2025_03,
        "strict_capabilities": _FROM_2025_06,
        "meta_key_rules": _FROM_2025_06,
        "meta_on_definitions": _FROM_2025_06,
        "titles": _FROM_2025_06,
        "icons": _FROM_2025_11,
        "implementation_description": _FROM_2025_11,
        "json_schema_2020_12": _FROM_2025_11,
        "error_without_id": _FROM_2025_11,
        "optional_cancel_request_id": _ONLY_2025_11,
        "specification_error_codes": _MODERN,
        # Transports
        "stdio": _ALL,
        "utf8_required": _FROM_2025_03,
        "stderr_is_not_failure": _FROM_2025_11,
        "http_sse": _LEGACY,
        "streamable_http": _FROM_2025_03,
        "sessions": _HTTP_SESSIONS,
        "get_stream": _HTTP_SESSIONS,
        "resumability": _HTTP_SESSIONS,
        "sse_priming": _ONLY_2025_11,
        "sse_retry": _ONLY_2025_11,
        "early_stream_close": _ONLY_2025_11,
        "event_id_names_stream": _ONLY_2025_11,
        "sse_fallback_on_any_4xx": _ONLY_2025_03 | _ONLY_2025_06,
        "protocol_version_header": _FROM_2025_06,
        "protocol_version_header_on_auth_metadata": _ONLY_2025_03,
        "default_version_without_header": _FROM_2025_06 & _LEGACY,
        "standard_headers": _MODERN,
        "parameter_headers": _MODERN,
        "unknown_method_is_404": _MODERN,
        "disconnect_cancels": _MODERN,
        "origin_check": _ALL,
        "origin_403": _FROM_2025_11,
        # Authorization
        "authorization": _FROM_2025_03,
        "protected_resource_metadata": _FROM_2025_06,
        "resource_indicators": _FROM_2025_06,
        "oidc_discovery": _FROM_2025_11,
        "client_id_metadata_documents": _FROM_2025_11,
        "incremental_scope_consent": _FROM_2025_11,
        "issuer_validation": _MODERN,
        # Tools, resources, prompts, completion, logging
        "tool_annotations": _FROM_2025_03,
        "structured_output": _FROM_2025_06,
        "any_structured_content": _MODERN,
        "tool_name_guidance": _FROM_2025_11,
        "argument_errors_are_results": _FROM_2025_11,
        "audio": _FROM_2025_03,
        "resource_links": _FROM_2025_06,
        "last_modified": _FROM_2025_06,
        "resource_subscribe": _LEGACY,
        "resource_not_found_code": _LEGACY,
        "listen": _MODERN,
        "completions_capability": _FROM_2025_03,
        "completion_context": _FROM_2025_06,
        "progress_message": _FROM_2025_03,
        "logging": _ALL,
        "logging_set_level": _LEGACY,
        "per_request_log_level": _MODERN,
        # What a server may ask of a client
        "roots": _ALL,
        "roots_list_changed": _LEGACY,
        "sampling": _ALL,
        "sampling_audio": _FROM_2025_03,
        "sampling_content_arrays": _FROM_2025_11,
        "sampling_tools": _FROM_2025_11,
        "include_context": _ALL,
        "elicitation": _FROM_2025_06,
        "elicitation_mode": _FROM_2025_11,
        "url_elicitation": _FROM_2025_11,
        "url_elicitation_required_error": _ONLY_2025_11,
        "elicitation_complete": _ONLY_2025_11,
        "enum_names": _FROM_2025_06,
        "titled_enums": _FROM_2025_11,
        "multi_select_enums": _FROM_2025_11,
        "elicitation_defaults": _FROM_2025_11,
        # Tasks
        "tasks": _FROM_2025_11,
        "core_tasks": _ONLY_2025_11,
        "tasks_extension": _MODERN,
    }
)


def supports(version: str, feature: str) -> bool:
    """Whether a revision has a feature; False for an unknown revision, `ValueError` for an unknown feature."""
    try:
        return version in FEATURES[feature]
    except KeyError:
        raise ValueError(_unknown_feature(feature)) from None


def _unknown_feature(feature: str) -> str:
    # Imported here because only a misspelt name needs it.
    from difflib import get_close_matches

    nearest = get_close_matches(feature, FEATURES, n=1, cutoff=0.0)
    return f"unknown feature {feature!r}; did you mean {nearest[0]!r}?"


# --- Methods ---------------------------------------------------------------------------------------------------------


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the method table.

    `capability` is what the side that answers a request, or that sends a notification, must have declared, as a path
    for `types.has_capability`. `name_field` is the member of the params, by its wire name, that `Mcp-Name` repeats.
    """

    name: str
    kind: Literal["request", "notification"]
    sender: Literal["client", "server", "both"]
    params: type[t.Wire]
    result: type[t.Wire] | None = None
    capability: str | None = None
    revisions: frozenset[str] = _ALL
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
    revisions: Revisions = _ALL,
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
    revisions: Revisions = _ALL,
) -> Method:
    return Method(
        name=name, kind="notification", sender=sender, params=params, capability=capability, revisions=revisions
    )


_TASKS_EXTENSION = f"extensions.{t.TASKS_EXTENSION}"

# A name that changed its meaning has one row for each meaning.
METHODS: tuple[Method, ...] = (
    # Lifecycle
    _request("initialize", t.InitializeRequestParams, t.InitializeResult, revisions=_LEGACY),
    _notification("notifications/initialized", t.NotificationParams, sender="client", revisions=_LEGACY),
    _request("server/discover", t.RequestParams, t.DiscoverResult, revisions=_MODERN, cacheable=True),
    _request("ping", t.RequestParams, t.EmptyResult, sender="both", revisions=_LEGACY),
    _notification("notifications/cancelled", t.CancelledNotificationParams, sender="both"),
    _notification("notifications/progress", t.ProgressNotificationParams, sender="both", revisions=_LEGACY),
    _notification("notifications/progress", t.ProgressNotificationParams, sender="server", revisions=_MODERN),
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
        revisions=_LEGACY,
    ),
    _request(
        "resources/unsubscribe",
        t.UnsubscribeRequestParams,
        t.EmptyResult,
        capability="resources.subscribe",
        revisions=_LEGACY,
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
    _request("completion/complete", t.CompleteRequestParams, t.CompleteResult, revisions=_ONLY_2024_11),
    _request(
        "completion/complete",
        t.CompleteRequestParams,
        t.CompleteResult,
        capability="completions",
        revisions=_FROM_2025_03,
    ),
    # Logging
    _request("logging/setLevel", t.SetLevelRequestParams, t.EmptyResult, capability="logging", revisions=_LEGACY),
    _notification("notifications/message", t.LoggingMessageNotificationParams, capability="logging"),
    # Subscriptions
    _request(
        "subscriptions/listen", t.SubscriptionsListenRequestParams, t.SubscriptionsListenResult, revisions=_MODERN
    ),
    _notification(
        "notifications/subscriptions/acknowledged",
        t.SubscriptionsAcknowledgedNotificationParams,
        revisions=_MODERN,
    ),
    # What a server asks of a client
    _request("roots/list", t.RequestParams, t.ListRootsResult, sender="server", capability="roots", revisions=_LEGACY),
    _notification(
        "notifications/roots/list_changed",
        t.NotificationParams,
        sender="client",
        capability="roots.listChanged",
        revisions=_LEGACY,
    ),
    _request(
        "sampling/createMessage",
        t.CreateMessageRequestParams,
        t.CreateMessageResult,
        sender="server",
        capability="sampling",
        revisions=_LEGACY,
    ),
    _request(
        "elicitation/create",
        t.ElicitRequestParams,
        t.ElicitResult,
        sender="server",
        capability="elicitation",
        revisions=_FROM_2025_06 & _LEGACY,
    ),
    _notification(
        "notifications/elicitation/complete", t.ElicitationCompleteNotificationParams, revisions=_ONLY_2025_11
    ),
    # Tasks of 2025-11-25: either side may run one for the other.
    _request(
        "tasks/get",
        t.TaskRequestParams,
        t.GetTaskResult,
        sender="both",
        capability="tasks",
        revisions=_ONLY_2025_11,
    ),
    _request(
        "tasks/result",
        t.TaskRequestParams,
        t.GetTaskPayloadResult,
        sender="both",
        capability="tasks",
        revisions=_ONLY_2025_11,
    ),
    _request(
        "tasks/list",
        t.PaginatedRequestParams,
        t.ListTasksResult,
        sender="both",
        capability="tasks.list",
        revisions=_ONLY_2025_11,
        paginated=True,
    ),
    _request(
        "tasks/cancel",
        t.TaskRequestParams,
        t.CancelTaskResult,
        sender="both",
        capability="tasks.cancel",
        revisions=_ONLY_2025_11,
    ),
    _notification(
        "notifications/tasks/status",
        t.TaskStatusNotificationParams,
        sender="both",
        capability="tasks",
        revisions=_ONLY_2025_11,
    ),
    # Tasks of the extension
    _request(
        "tasks/get",
        t.TaskRequestParams,
        t.DetailedTaskResult,
        capability=_TASKS_EXTENSION,
        revisions=_MODERN,
        name_field="taskId",
    ),
    _request(
        "tasks/update",
        t.UpdateTaskRequestParams,
        t.EmptyResult,
        capability=_TASKS_EXTENSION,
        revisions=_MODERN,
        name_field="taskId",
    ),
    _request(
        "tasks/cancel",
        t.TaskRequestParams,
        t.EmptyResult,
        capability=_TASKS_EXTENSION,
        revisions=_MODERN,
        name_field="taskId",
    ),
    _notification("notifications/tasks", t.TaskNotificationParams, capability=_TASKS_EXTENSION, revisions=_MODERN),
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


# --- Members ---------------------------------------------------------------------------------------------------------

# Members that not every revision knows; whatever is not listed, all of them know. A rule holds for subclasses too.
MEMBERS: Mapping[type[t.Wire], Mapping[str, Revisions]] = MappingProxyType(
    {
        t.Implementation: {
            "title": _FROM_2025_06,
            "description": _FROM_2025_11,
            "website_url": _FROM_2025_11,
            "icons": _FROM_2025_11,
        },
        t.Annotations: {"last_modified": _FROM_2025_06},
        t.RequestMeta: {
            "protocol_version": _MODERN,
            "client_capabilities": _MODERN,
            "client_info": _MODERN,
            "log_level": _MODERN,
            "related_task": _ONLY_2025_11,
        },
        t.Result: {"result_type": _MODERN},
        t.CacheableResult: {"ttl_ms": _MODERN, "cache_scope": _MODERN},
        t.RoundRequestParams: {"input_responses": _MODERN, "request_state": _MODERN},
        t.ClientCapabilities: {
            "elicitation": _FROM_2025_06,
            "tasks": _ONLY_2025_11,
            "extensions": _MODERN,
        },
        t.ServerCapabilities: {
            "completions": _FROM_2025_03,
            "tasks": _ONLY_2025_11,
            "extensions": _MODERN,
        },
        t.Block: {"meta": _FROM_2025_06},
        t.ResourceContents: {"meta": _FROM_2025_06},
        t.ResourceMetadata: {"title": _FROM_2025_06, "icons": _FROM_2025_11, "meta": _FROM_2025_06},
        t.ProgressNotificationParams: {"message": _FROM_2025_03},
        t.Tool: {
            "annotations": _FROM_2025_03,
            "title": _FROM_2025_06,
            "output_schema": _FROM_2025_06,
            "meta": _FROM_2025_06,
            "icons": _FROM_2025_11,
            "execution": _ONLY_2025_11,
        },
        t.CallToolRequestParams: {"task": _ONLY_2025_11},
        t.CallToolResult: {"structured_content": _FROM_2025_06},
        t.PromptArgument: {"title": _FROM_2025_06},
        t.Prompt: {"title": _FROM_2025_06, "meta": _FROM_2025_06, "icons": _FROM_2025_11},
        t.PromptReference: {"title": _FROM_2025_06},
        t.CompleteRequestParams: {"context": _FROM_2025_06},
        t.Root: {"meta": _FROM_2025_06},
        t.ListRootsResult: {"meta": _LEGACY},
        t.SamplingMessage: {"meta": _FROM_2025_11},
        t.CreateMessageRequestParams: {
            "tools": _FROM_2025_11,
            "tool_choice": _FROM_2025_11,
            "task": _ONLY_2025_11,
            "meta": _LEGACY,
        },
        t.PrimitiveSchemaDefinition: {
            "one_of": _FROM_2025_11,
            "items": _FROM_2025_11,
            "min_items": _FROM_2025_11,
            "max_items": _FROM_2025_11,
        },
        t.ElicitRequestParams: {
            "mode": _FROM_2025_11,
            "url": _FROM_2025_11,
            "elicitation_id": _ONLY_2025_11,
            "task": _ONLY_2025_11,
            "meta": _LEGACY,
        },
        t.ElicitResult: {"meta": _LEGACY},
    }
)

# Members of the open capability objects that not every revision knows; unknown ones always pass (CAP-3).
_CLIENT_CAPABILITIES: Mapping[str, Revisions] = {
    "elicitation": _FROM_2025_06,
    "elicitation.form": _FROM_2025_11,
    "elicitation.url": _FROM_2025_11,
    "sampling.tools": _FROM_2025_11,
    "sampling.context": _FROM_2025_11,
    "roots.listChanged": _LEGACY,
    "tasks": _ONLY_2025_11,
    "extensions": _MODERN,
}
_SERVER_CAPABILITIES: Mapping[str, Revisions] = {
    "completions": _FROM_2025_03,
    "tasks": _ONLY_2025_11,
    "extensions": _MODERN,
}


def knows(type_: type[t.Wire], member: str, revision: str) -> bool:
    """Whether `revision` knows the member (by its attribute name) of a wire type."""
    return all(
        revision in rules[member] for base, rules in MEMBERS.items() if issubclass(type_, base) and member in rules
    )


# --- Shape -----------------------------------------------------------------------------------------------------------


def shape(value: T, revision: str) -> T:
    """`value` as a peer of `revision` knows it: the same object if that is nothing new, else a copy.

    Members that the revision does not know are left out, at every level; content it does not know becomes text. What
    can not be said at all in that revision is a `ValueError`. Raw JSON passes untouched.
    """
    if not isinstance(value, t.Wire):
        return value
    plan = _plan(type(value), revision)
    return value if plan is None else cast("T", plan(value))


_Convert: TypeAlias = Callable[[Any], Any]
_Steps: TypeAlias = tuple[tuple[str, _Convert], ...]


@lru_cache(maxsize=2048)
def _plan(type_: type[t.Wire], revision: str) -> _Convert | None:
    """How to shape a value of `type_`; None when there is nothing to do for it or anything it can hold."""
    if revision not in _RANK:
        raise ValueError(f"unknown revision {revision!r}; use one of {', '.join(REVISIONS)}")
    substitute = _substitute(type_, revision)
    if substitute is not None:
        return lambda value: shape(substitute(value), revision)
    adapt = _adapt(type_, revision)
    defaults = _defaults(type_, revision)
    steps = _steps(type_, revision)
    if adapt is None and not defaults and not steps:
        return None

    def apply(value: t.Wire) -> t.Wire:
        if adapt is not None:
            value = adapt(value)
        changes = {attribute: default for attribute, default in defaults if getattr(value, attribute) is UNSET}
        for attribute, convert in steps:
            old = getattr(value, attribute)
            if old is not UNSET:
                new = convert(old)
                if new is not old:
                    changes[attribute] = new
        return _changed(value, changes) if changes else value

    return apply


def _changed(value: t.Wire, changes: Mapping[str, Any]) -> t.Wire:
    """A copy with other members; unlike `msgspec.structs.replace` it keeps the members that the type does not know."""
    copy = cast("t.Wire", value.__copy__())  # type: ignore[attr-defined]
    copy.__dict__.update(value.__dict__)
    for attribute, member in changes.items():
        setattr(copy, attribute, member)
    return copy


def _steps(type_: type[t.Wire], revision: str) -> _Steps:
    steps: list[tuple[str, _Convert]] = []
    hints = get_type_hints(type_)
    for attribute in type_.__struct_fields__:
        if not knows(type_, attribute, revision):
            steps.append((attribute, _left_out))
            continue
        convert = _member_conversion(type_, attribute, hints[attribute], revision)
        if convert is not None:
            steps.append((attribute, convert))
    return tuple(steps)


def _left_out(_: Any) -> Any:
    return UNSET


def _member_conversion(type_: type[t.Wire], attribute: str, hint: Any, revision: str) -> _Convert | None:
    if attribute in ("capabilities", "client_capabilities"):
        return _capability_conversion(type_, revision)
    if attribute == "content" and issubclass(type_, t.SamplingMessage | t.CreateMessageResult):
        return _sampling_content(revision)
    if attribute == "meta":
        return _meta_conversion(type_, revision)
    if any(_plan(inner, revision) is not None for inner in _wire_types(hint)):
        return lambda member: _shape_inside(member, revision)
    return None


def _wire_types(hint: Any) -> list[type[t.Wire]]:
    """The wire types that an annotation mentions."""
    if isinstance(hint, type) and issubclass(hint, t.Wire):
        return [hint]
    return [found for argument in get_args(hint) for found in _wire_types(argument)]


def _shape_inside(member: Any, revision: str) -> Any:
    """The same for a member that is a wire value, or a list or dict of them."""
    if isinstance(member, list):
        keyed: Iterable[tuple[Any, Any]] = enumerate(member)
    elif isinstance(member, dict):
        keyed = member.items()
    else:
        return shape(member, revision)
    changes = [(key, new) for key, old in keyed if (new := shape(old, revision)) is not old]
    if not changes:
        return member
    copy = member.copy()
    for key, new in changes:
        copy[key] = new
    return copy


def _defaults(type_: type[t.Wire], revision: str) -> tuple[tuple[str, Any], ...]:
    """What the revision requires and a value that came from an older peer lacks."""
    if is_modern(revision) and issubclass(type_, t.CacheableResult):
        # CCH-1, with the values that promise nothing.
        return (("ttl_ms", 0), ("cache_scope", "private"))
    return ()


# `_meta` of messages


def _meta_conversion(type_: type[t.Wire], revision: str) -> _Convert | None:
    if issubclass(type_, t.RequestParams):
        return lambda meta: _request_meta(meta, revision)
    # Definitions and content blocks never carry the keys of 2026-07-28, so only messages are searched for them.
    is_message = issubclass(type_, t.Result | t.NestedResult | t.NotificationParams)
    return None if is_modern(revision) or not is_message else _without_modern_keys


def _request_meta(meta: Any, revision: str) -> Any:
    shaped = shape(meta, revision)
    if shaped is meta or shaped.extra or any(getattr(shaped, name) is not UNSET for name in shaped.__struct_fields__):
        return shaped
    return UNSET


def _without_modern_keys(meta: Any) -> Any:
    if not isinstance(meta, dict) or t.MODERN_META_KEYS.isdisjoint(meta):
        return meta
    return {key: item for key, item in meta.items() if key not in t.MODERN_META_KEYS} or UNSET


# Capability objects


def _capability_conversion(type_: type[t.Wire], revision: str) -> _Convert | None:
    from_client = issubclass(type_, t.RequestMeta | t.InitializeRequestParams)
    table = _CLIENT_CAPABILITIES if from_client else _SERVER_CAPABILITIES
    unknown = tuple(path for path, known in table.items() if revision not in known)
    return (lambda capabilities: _without_paths(capabilities, unknown)) if unknown else None


def _without_paths(capabilities: Any, paths: tuple[str, ...]) -> Any:
    if not isinstance(capabilities, dict):
        return capabilities
    result = capabilities
    if "elicitation.form" in paths and not t.has_capability(capabilities, "elicitation.form"):
        # 2025-06-18 knows only forms: a client that shows none has to stay silent (T-21).
        paths = (*paths, "elicitation")
    for path in paths:
        name, _, inner = path.partition(".")
        if not inner and name in result:
            result = {key: item for key, item in result.items() if key != name}
        elif inner and isinstance(result.get(name), dict) and inner in result[name]:
            result = {**result, name: {key: item for key, item in result[name].items() if key != inner}}
    return result


# Content that older revisions do not know


def _substitute(type_: type[t.Wire], revision: str) -> _Convert | None:
    if type_ is t.AudioContent and revision in _ONLY_2024_11:
        return _audio_as_text
    if type_ is t.ResourceLink and revision in _UNTIL_2025_03:
        return _link_as_text
    if type_ in (t.ToolUseContent, t.ToolResultContent) and revision in _UNTIL_2025_06:
        return _no_sampling_tools
    if type_ is t.InputRequiredResult and not is_modern(revision):
        return _no_rounds
    return None


def _audio_as_text(block: t.AudioContent) -> t.TextContent:
    return t.TextContent(f"[audio, {block.mime_type}, {len(block.data)} bytes]", annotations=block.annotations)


def _link_as_text(link: t.ResourceLink) -> t.TextContent:
    label = link.title if isinstance(link.title, str) else link.name
    return t.TextContent(f"{label}: {link.uri}", annotations=link.annotations)


def _no_sampling_tools(block: Any) -> Any:
    raise ValueError(f"a {block.type} block can not be sent to a peer of this revision: sampling has no tools there")


def _no_rounds(_: Any) -> Any:
    raise ValueError("an input_required result can not be sent before 2026-07-28: ask by a request there")


def _sampling_content(revision: str) -> _Convert:
    def one_block(content: Any) -> Any:
        if isinstance(content, list):
            if len(content) != 1:
                raise ValueError(f"sampling content has to be a single block on {revision}, got {len(content)} blocks")
            content = content[0]
        return shape(content, revision)

    # SEP-1577: arrays must not reach older revisions.
    return one_block if revision in _UNTIL_2025_06 else lambda content: _shape_inside(content, revision)


# Members that move to another place


def _adapt(type_: type[t.Wire], revision: str) -> _Convert | None:
    if type_ is t.Tool and revision in _ONLY_2025_03:
        return _title_as_annotation
    if type_ is t.ElicitRequestParams and revision in _ONLY_2025_06:
        return _elicitation_for_2025_06
    return None


def _title_as_annotation(tool: t.Tool) -> t.Wire:
    """2025-03-26 shows a tool by `annotations.title`."""
    if tool.title is UNSET:
        return tool
    annotations = tool.annotations if isinstance(tool.annotations, t.ToolAnnotations) else t.ToolAnnotations()
    if annotations.title is not UNSET:
        return tool
    return _changed(tool, {"annotations": _changed(annotations, {"title": tool.title})})


def _elicitation_for_2025_06(params: t.ElicitRequestParams) -> t.Wire:
    if params.mode == "url":
        raise ValueError("URL elicitation does not exist on 2025-06-18")
    if not isinstance(params.requested_schema, dict):
        return params
    schema = {key: item for key, item in params.requested_schema.items() if key != "$schema"}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        schema["properties"] = {name: _field_for_2025_06(name, field) for name, field in properties.items()}
    return params if schema == params.requested_schema else _changed(params, {"requested_schema": schema})


def _field_for_2025_06(name: str, field: Any) -> Any:
    """One property of a form in the words of 2025-06-18 (1.16.2 item 8)."""
    if not isinstance(field, dict):
        return field
    if field.get("type") == "array":
        raise ValueError(f"the form field {name!r} offers several choices, which 2025-06-18 can not express")
    older = {key: item for key, item in field.items() if key != "oneOf"}
    if field.get("type") != "boolean":
        older.pop("default", None)
    if "oneOf" in field:
        options = msgspec.convert(field["oneOf"], list[t.EnumOption])
        older["enum"] = [option.const for option in options]
        older["enumNames"] = [option.title for option in options]
    return older
