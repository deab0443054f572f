"""The wire types of every revision, as one version-free set.

Each struct is the union of what the five revisions know under that name; `toolwire.protocol.shaping.shape` cuts a
value down to what one revision knows. Attributes are snake_case here and camelCase on the wire, `_meta` is the
attribute `meta`, binary members are `bytes` here and base64 on the wire. An absent optional member is `msgspec.UNSET`;
`None` is null, a value of its own (2026-07-28 server/tools: `structuredContent: null` is data).

There are two ways in and out:

* the fast one, plain `msgspec.json`, drops members it does not know;
* `decode` and `encode` of `toolwire.protocol.open_codec` keep them, at every level.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol.open_codec import UnknownContent, Wire, decode, encode, request_meta

__all__ = [
    "CLIENT_CAPABILITIES_KEY",
    "CLIENT_INFO_KEY",
    "LEVELS",
    "LOG_LEVEL_KEY",
    "MODEL_IMMEDIATE_RESPONSE_KEY",
    "MODERN_META_KEYS",
    "PROGRESS_TOKEN_KEY",
    "PROTOCOL_VERSION_KEY",
    "RELATED_TASK_KEY",
    "SERVER_INFO_KEY",
    "SUBSCRIPTION_ID_KEY",
    "TASKS_EXTENSION",
    "TRACE_KEYS",
    "UNSET",
    "Annotations",
    "AudioContent",
    "Block",
    "CacheableResult",
    "CallToolRequestParams",
    "CallToolResult",
    "CancelTaskResult",
    "CancelledNotificationParams",
    "ClientCapabilities",
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "ContentBlock",
    "CreateMessageRequest",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "CreateTaskResult",
    "DetailedTask",
    "DetailedTaskResult",
    "DiscoverResult",
    "ElicitAction",
    "ElicitRequest",
    "ElicitRequestParams",
    "ElicitResult",
    "ElicitationCompleteNotificationParams",
    "EmbeddedResource",
    "EmptyResult",
    "EnumItems",
    "EnumOption",
    "Error",
    "GetPromptRequestParams",
    "GetPromptResult",
    "GetTaskPayloadResult",
    "GetTaskResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "InitializeRequestParams",
    "InitializeResult",
    "InputRequest",
    "InputRequiredResult",
    "InputResponse",
    "ListPromptsResult",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListRootsRequest",
    "ListRootsResult",
    "ListTasksResult",
    "ListToolsResult",
    "LoggingLevel",
    "LoggingMessageNotificationParams",
    "MetaDict",
    "MissingRequiredClientCapabilityErrorData",
    "ModelHint",
    "ModelPreferences",
    "NestedResult",
    "NotificationParams",
    "PaginatedRequestParams",
    "PrimitiveSchemaDefinition",
    "ProgressNotificationParams",
    "ProgressToken",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "Raw",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "RelatedTaskMetadata",
    "RequestId",
    "RequestMeta",
    "RequestParams",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceMetadata",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedNotificationParams",
    "Result",
    "ResultMeta",
    "Role",
    "Root",
    "RoundRequestParams",
    "SamplingMessage",
    "SamplingMessageContentBlock",
    "ServerCapabilities",
    "SetLevelRequestParams",
    "SubscribeRequestParams",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
    "Task",
    "TaskCreatedResult",
    "TaskFields",
    "TaskMetadata",
    "TaskNotificationParams",
    "TaskRequestParams",
    "TaskStatus",
    "TaskStatusNotificationParams",
    "TaskSupport",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolChoice",
    "ToolExecution",
    "ToolResultContent",
    "ToolUseContent",
    "URLElicitationRequiredErrorData",
    "UnknownContent",
    "UnsetType",
    "UnsubscribeRequestParams",
    "UnsupportedProtocolVersionErrorData",
    "UpdateTaskRequestParams",
    "Wire",
    "decode",
    "encode",
    "has_capability",
    "is_reserved_meta_key",
    "is_valid_meta_key",
    "request_meta",
    "severity",
]


# --- Names reserved in `_meta` --------------------------------------------------------------------------------------

PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"
RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
MODEL_IMMEDIATE_RESPONSE_KEY = "io.modelcontextprotocol/model-immediate-response"
PROGRESS_TOKEN_KEY = "progressToken"
# SEP-414: the only other names without a prefix.
TRACE_KEYS = ("traceparent", "tracestate", "baggage")

# What a peer of an earlier revision must not be shown.
MODERN_META_KEYS = frozenset(
    {
        PROTOCOL_VERSION_KEY,
        CLIENT_CAPABILITIES_KEY,
        CLIENT_INFO_KEY,
        LOG_LEVEL_KEY,
        SERVER_INFO_KEY,
        SUBSCRIPTION_ID_KEY,
    }
)

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_META_KEY = re.compile(
    rf"(?:(?P<prefix>{_LABEL}(?:\.{_LABEL})*)/)?(?P<name>(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?)"
)
_RESERVED_LABELS = frozenset({"mcp", "modelcontextprotocol"})
# 2024-11-05 and 2025-03-26 have no rule for the names in `_meta`.
_WITHOUT_META_RULES = frozenset({"2024-11-05", "2025-03-26"})


def is_valid_meta_key(key: str, revision: str) -> bool:
    """Whether `key` has the form that `revision` demands of a name in `_meta`."""
    return revision in _WITHOUT_META_RULES or _META_KEY.fullmatch(key) is not None


def is_reserved_meta_key(key: str, revision: str) -> bool:
    """Whether the prefix of `key` belongs to the specification in `revision`.

    2025-06-18 keeps every prefix in which `mcp` or `modelcontextprotocol` is followed by one more label; 2025-11-25 and
    later keep those with such a label in second place.
    """
    if revision in _WITHOUT_META_RULES:
        return False
    match = _META_KEY.fullmatch(key)
    if match is None or match["prefix"] is None:
        return False
    labels = match["prefix"].lower().split(".")
    if revision == "2025-06-18":
        return not _RESERVED_LABELS.isdisjoint(labels[:-1])
    return len(labels) > 1 and labels[1] in _RESERVED_LABELS


# --- Scalars ---------------------------------------------------------------------------------------------------------

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


# --- Base ------------------------------------------------------------------------------------------------------------

MetaDict: TypeAlias = dict[str, Any]
# Always a dict when decoded; a server may write one that it has encoded before.
ResultMeta: TypeAlias = dict[str, Any] | Raw


class Icon(Wire):
    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: str | UnsetType = UNSET


class Implementation(Wire):
    """The name card of a client or server: for display and logs, never for decisions (META-5)."""

    name: str
    version: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    website_url: str | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET


class Annotations(Wire, kw_only=True):
    audience: list[str] | UnsetType = UNSET
    priority: float | int | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET


class RelatedTaskMetadata(Wire):
    task_id: str


class RequestMeta(Wire, kw_only=True):
    """`params._meta` of a request; unknown names live in `extra` (see `decode` and `request_meta`)."""

    protocol_version: str | UnsetType = msgspec.field(default=UNSET, name=PROTOCOL_VERSION_KEY)
    client_capabilities: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name=CLIENT_CAPABILITIES_KEY)
    client_info: Implementation | UnsetType = msgspec.field(default=UNSET, name=CLIENT_INFO_KEY)
    log_level: LoggingLevel | UnsetType = msgspec.field(default=UNSET, name=LOG_LEVEL_KEY)
    progress_token: ProgressToken | UnsetType = UNSET
    related_task: RelatedTaskMetadata | UnsetType = msgspec.field(default=UNSET, name=RELATED_TASK_KEY)
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET
    baggage: str | UnsetType = UNSET


class RequestParams(Wire, kw_only=True):
    """The params of a request that has none of its own."""

    meta: RequestMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class NotificationParams(Wire, kw_only=True):
    """The params of a notification that has none of its own."""

    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class Result(Wire, kw_only=True, omit_defaults=False):
    """A result; on its own it is the empty one.

    `omit_defaults` is off so that `resultType` is always written (RPC-4). A result without it is complete (RPC-8), so
    that is the default on the way in.
    """

    result_type: str | UnsetType = "complete"
    meta: ResultMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class NestedResult(Wire, kw_only=True):
    """A result that has no `resultType` in any revision."""

    meta: ResultMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


EmptyResult = Result


class CacheableResult(Result, kw_only=True):
    ttl_ms: int | UnsetType = UNSET
    cache_scope: str | UnsetType = UNSET


class PaginatedRequestParams(RequestParams, kw_only=True):
    cursor: str | UnsetType | None = UNSET


class RoundRequestParams(RequestParams, kw_only=True):
    """The params of a request that may be answered `input_required` and then comes again with the answers."""

    input_responses: dict[str, Raw] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class Error(Wire):
    """The `error` member of a JSON-RPC error response."""

    code: int
    message: str
    data: Any = UNSET


class UnsupportedProtocolVersionErrorData(Wire):
    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityErrorData(Wire):
    required_capabilities: dict[str, Any]


# --- Capabilities ----------------------------------------------------------------------------------------------------


class ClientCapabilities(Wire, kw_only=True):
    """For building a capability object by name; messages carry it as a plain dict, since the set is open."""

    experimental: dict[str, Any] | UnsetType = UNSET
    roots: dict[str, Any] | UnsetType = UNSET
    sampling: dict[str, Any] | UnsetType = UNSET
    elicitation: dict[str, Any] | UnsetType = UNSET
    tasks: dict[str, Any] | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


class ServerCapabilities(Wire, kw_only=True):
    """For building a capability object by name; messages carry it as a plain dict, since the set is open."""

    experimental: dict[str, Any] | UnsetType = UNSET
    logging: dict[str, Any] | UnsetType = UNSET
    completions: dict[str, Any] | UnsetType = UNSET
    prompts: dict[str, Any] | UnsetType = UNSET
    resources: dict[str, Any] | UnsetType = UNSET
    tools: dict[str, Any] | UnsetType = UNSET
    tasks: dict[str, Any] | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


def has_capability(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a capability such as `tools`, `resources.subscribe` or `extensions.<id>` was declared.

    An object declares by its presence, even when empty; a flag such as `listChanged` only when true.
    """
    if path == "elicitation.form":
        # 2025-11-25 client/elicitation: `{}` means forms, `{"url": {}}` alone means no forms.
        modes = capabilities.get("elicitation")
        return isinstance(modes, Mapping) and ("form" in modes or "url" not in modes)
    # An extension identifier has dots of its own.
    names = path.split(".", 1) if path.startswith("extensions.") else path.split(".")
    value: Any = capabilities
    for name in names:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return value is not None and value is not False


# --- Content ---------------------------------------------------------------------------------------------------------


class Block(Wire, kw_only=True):
    annotations: Annotations | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class TextContent(Block, tag_field="type", tag="text"):
    type: ClassVar[Literal["text"]] = "text"

    text: str


class ImageContent(Block, tag_field="type", tag="image"):
    type: ClassVar[Literal["image"]] = "image"

    data: bytes
    mime_type: str


class AudioContent(Block, tag_field="type", tag="audio"):
    type: ClassVar[Literal["audio"]] = "audio"

    data: bytes
    mime_type: str


class ResourceContents(Wire):
    """The contents of a resource: exactly one of `text` and `blob`."""

    uri: str
    text: str | UnsetType = UNSET
    blob: bytes | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class EmbeddedResource(Block, tag_field="type", tag="resource"):
    type: ClassVar[Literal["resource"]] = "resource"

    resource: ResourceContents

    def find_annotations(self) -> Annotations | UnsetType:
        """The annotations of the block, also where a peer has put them inside the resource.

        2025-06-18 and 2025-11-25 server/tools show them there, against their own schema (T-20).
        """
        if self.annotations is UNSET and "annotations" in self.resource.extra:
            return msgspec.convert(self.resource.extra["annotations"], Annotations)
        return self.annotations


class ResourceMetadata(Wire, kw_only=True):
    """What a resource, a template and a link say about themselves beside their address and name."""

    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ResourceLink(ResourceMetadata, tag_field="type", tag="resource_link"):
    type: ClassVar[Literal["resource_link"]] = "resource_link"

    uri: str
    name: str
    size: int | UnsetType = UNSET


class ToolUseContent(Wire, tag_field="type", tag="tool_use"):
    type: ClassVar[Literal["tool_use"]] = "tool_use"

    id: str
    name: str
    input: dict[str, Any]
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ToolResultContent(Wire, tag_field="type", tag="tool_result"):
    type: ClassVar[Literal["tool_result"]] = "tool_result"

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


if TYPE_CHECKING:
    ContentBlock: TypeAlias = (
        TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
    )
    SamplingMessageContentBlock: TypeAlias = (
        TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
    )
else:
    # msgspec builds its decoders from these; `decode` puts unknown blocks in afterwards.
    ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
    SamplingMessageContentBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent


# --- Lifecycle -------------------------------------------------------------------------------------------------------


class InitializeRequestParams(RequestParams, kw_only=True):
    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class InitializeResult(NestedResult, kw_only=True):
    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str | UnsetType = UNSET


class DiscoverResult(CacheableResult, kw_only=True):
    supported_versions: list[str]
    capabilities: dict[str, Any]
    instructions: str | UnsetType = UNSET


class CancelledNotificationParams(NotificationParams, kw_only=True):
    # 2025-11-25 leaves it out of the required members; a cancellation without it is ignored (1.5).
    request_id: RequestId | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ProgressNotificationParams(NotificationParams, kw_only=True):
    progress_token: ProgressToken
    progress: float | int
    total: float | int | UnsetType = UNSET
    message: str | UnsetType = UNSET


# --- Tools -----------------------------------------------------------------------------------------------------------


class ToolAnnotations(Wire, kw_only=True):
    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class ToolExecution(Wire):
    task_support: TaskSupport | UnsetType = UNSET


class Tool(Wire):
    name: str
    input_schema: dict[str, Any]
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    output_schema: dict[str, Any] | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ListToolsResult(CacheableResult, kw_only=True):
    tools: list[Tool]
    next_cursor: str | UnsetType | None = UNSET


class TaskMetadata(Wire):
    """`params.task` of 2025-11-25: the wish to run a request as a task."""

    ttl: int | UnsetType = UNSET


class CallToolRequestParams(RoundRequestParams, kw_only=True):
    name: str
    arguments: Raw | UnsetType = UNSET
    # A `TaskMetadata`, kept as it came: where there are no such tasks it has to be ignored, whatever it is.
    task: Raw | UnsetType = UNSET


class CallToolResult(Result, kw_only=True):
    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool | UnsetType = UNSET


# --- Resources -------------------------------------------------------------------------------------------------------


class Resource(ResourceMetadata):
    uri: str
    name: str
    size: int | UnsetType = UNSET


class ResourceTemplate(ResourceMetadata):
    uri_template: str
    name: str


class ListResourcesResult(CacheableResult, kw_only=True):
    resources: list[Resource]
    next_cursor: str | UnsetType | None = UNSET


class ListResourceTemplatesResult(CacheableResult, kw_only=True):
    resource_templates: list[ResourceTemplate]
    next_cursor: str | UnsetType | None = UNSET


class ReadResourceRequestParams(RoundRequestParams, kw_only=True):
    uri: str


class ReadResourceResult(CacheableResult, kw_only=True):
    contents: list[ResourceContents]


class SubscribeRequestParams(RequestParams, kw_only=True):
    uri: str


class UnsubscribeRequestParams(RequestParams, kw_only=True):
    uri: str


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    uri: str


# --- Prompts ---------------------------------------------------------------------------------------------------------


class PromptArgument(Wire):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(Wire):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class PromptMessage(Wire):
    role: Role
    content: ContentBlock


class ListPromptsResult(CacheableResult, kw_only=True):
    prompts: list[Prompt]
    next_cursor: str | UnsetType | None = UNSET


class GetPromptRequestParams(RoundRequestParams, kw_only=True):
    name: str
    # Every revision: the values are strings; decoded late, so that the error can name the argument.
    arguments: Raw | UnsetType = UNSET


class GetPromptResult(Result, kw_only=True):
    messages: list[PromptMessage]
    description: str | UnsetType = UNSET


# --- Completion ------------------------------------------------------------------------------------------------------


class PromptReference(Wire, tag_field="type", tag="ref/prompt"):
    type: ClassVar[Literal["ref/prompt"]] = "ref/prompt"

    name: str
    title: str | UnsetType = UNSET


class ResourceTemplateReference(Wire, tag_field="type", tag="ref/resource"):
    type: ClassVar[Literal["ref/resource"]] = "ref/resource"

    uri: str


class CompletionArgument(Wire):
    name: str
    value: str


class CompletionContext(Wire):
    arguments: dict[str, str] | UnsetType = UNSET


class CompleteRequestParams(RequestParams, kw_only=True):
    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET


class Completion(Wire):
    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class CompleteResult(Result, kw_only=True):
    completion: Completion


# --- Logging ---------------------------------------------------------------------------------------------------------


class SetLevelRequestParams(RequestParams, kw_only=True):
    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, kw_only=True):
    level: LoggingLevel
    data: Any
    logger: str | UnsetType = UNSET


# --- Subscriptions ---------------------------------------------------------------------------------------------------


class SubscriptionFilter(Wire, kw_only=True):
    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: list[str] | UnsetType = UNSET
    # Added by the tasks extension.
    task_ids: list[str] | UnsetType = UNSET


class SubscriptionsListenRequestParams(RequestParams, kw_only=True):
    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """The graceful end of a subscription; its `meta` carries the subscription id."""


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, kw_only=True):
    notifications: SubscriptionFilter


# --- Roots -----------------------------------------------------------------------------------------------------------


class Root(Wire):
    uri: str
    name: str | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ListRootsResult(NestedResult, kw_only=True):
    roots: list[Root]


# --- Sampling --------------------------------------------------------------------------------------------------------


class ModelHint(Wire):
    name: str | UnsetType = UNSET


class ModelPreferences(Wire, kw_only=True):
    hints: list[ModelHint] | UnsetType = UNSET
    cost_priority: float | int | UnsetType = UNSET
    speed_priority: float | int | UnsetType = UNSET
    intelligence_priority: float | int | UnsetType = UNSET


class ToolChoice(Wire):
    mode: str | UnsetType = UNSET


class SamplingMessage(Wire):
    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class CreateMessageRequestParams(RequestParams, kw_only=True):
    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    include_context: str | UnsetType = UNSET
    temperature: float | int | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    tools: list[Tool] | UnsetType = UNSET
    tool_choice: ToolChoice | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET


class CreateMessageResult(NestedResult, kw_only=True):
    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stop_reason: str | UnsetType = UNSET


# --- Elicitation -----------------------------------------------------------------------------------------------------


class EnumOption(Wire):
    const: str
    title: str


class EnumItems(Wire, kw_only=True):
    """`items` of a multi-select: `enum` without titles, `anyOf` with."""

    type: str | UnsetType = UNSET
    enum: list[str] | UnsetType = UNSET
    any_of: list[EnumOption] | UnsetType = UNSET
    # SEP-1330 wrote `oneOf`; what shipped is `anyOf`. Read both.
    one_of: list[EnumOption] | UnsetType = UNSET


class PrimitiveSchemaDefinition(Wire, kw_only=True):
    """One field of an elicitation form: string, number, boolean, or any of the five enum forms."""

    type: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    default: str | int | float | bool | list[str] | UnsetType = UNSET
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    format: str | UnsetType = UNSET
    minimum: float | int | UnsetType = UNSET
    maximum: float | int | UnsetType = UNSET
    enum: list[str] | UnsetType = UNSET
    enum_names: list[str] | UnsetType = UNSET
    one_of: list[EnumOption] | UnsetType = UNSET
    items: EnumItems | UnsetType = UNSET
    min_items: int | UnsetType = UNSET
    max_items: int | UnsetType = UNSET

    def options(self) -> list[EnumOption] | None:
        """The choices of an enum in any of its forms; None for a field without choices (1.16.2 item 3)."""
        source = self.items if isinstance(self.items, EnumItems) else self
        titled = source.one_of or (source.any_of if isinstance(source, EnumItems) else UNSET)
        if titled:
            return titled
        if not source.enum:
            return None
        names = self.enum_names or source.enum
        return [EnumOption(const, title) for const, title in zip(source.enum, names, strict=False)]


class ElicitRequestParams(RequestParams, kw_only=True):
    """Form mode has `requested_schema`, URL mode has `url`; an absent `mode` means form (ELI-3)."""

    message: str
    mode: str | UnsetType = UNSET
    requested_schema: dict[str, Any] | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET


class ElicitResult(NestedResult, kw_only=True):
    action: ElicitAction
    content: dict[str, Any] | UnsetType | None = UNSET


class ElicitationCompleteNotificationParams(NotificationParams, kw_only=True):
    elicitation_id: str


class URLElicitationRequiredErrorData(Wire):
    elicitations: list[ElicitRequestParams]


# --- Rounds ----------------------------------------------------------------------------------------------------------


class ElicitRequest(Wire, tag_field="method", tag="elicitation/create"):
    method: ClassVar[Literal["elicitation/create"]] = "elicitation/create"

    params: ElicitRequestParams


class CreateMessageRequest(Wire, tag_field="method", tag="sampling/createMessage"):
    method: ClassVar[Literal["sampling/createMessage"]] = "sampling/createMessage"

    params: CreateMessageRequestParams


class ListRootsRequest(Wire, tag_field="method", tag="roots/list"):
    method: ClassVar[Literal["roots/list"]] = "roots/list"

    params: RequestParams | UnsetType = UNSET


InputRequest: TypeAlias = ElicitRequest | CreateMessageRequest | ListRootsRequest
InputResponse: TypeAlias = ElicitResult | CreateMessageResult | ListRootsResult


class InputRequiredResult(Result, kw_only=True):
    """The server needs answers before it can go on; at least one of the two members is there (MRTR-2)."""

    result_type: str | UnsetType = "input_required"
    input_requests: dict[str, InputRequest] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


# --- Tasks of 2025-11-25 ---------------------------------------------------------------------------------------------


class Task(Wire, kw_only=True):
    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    # Null means unlimited, and must be written (T-28).
    ttl: int | None
    status_message: str | UnsetType = UNSET
    poll_interval: int | UnsetType = UNSET


class CreateTaskResult(NestedResult, kw_only=True):
    task: Task


class TaskRequestParams(RequestParams, kw_only=True):
    """The params of `tasks/get`, `tasks/result` and `tasks/cancel`, in both dialects."""

    task_id: str


class GetTaskResult(Task, kw_only=True):
    meta: ResultMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class CancelTaskResult(Task, kw_only=True):
    meta: ResultMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class TaskStatusNotificationParams(Task, kw_only=True):
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class GetTaskPayloadResult(NestedResult, kw_only=True):
    """Whatever the request would have answered; its members are in `extra`."""


class ListTasksResult(NestedResult, kw_only=True):
    tasks: list[Task]
    next_cursor: str | UnsetType | None = UNSET


# --- Tasks of the extension io.modelcontextprotocol/tasks ------------------------------------------------------------


class TaskFields(Wire, kw_only=True):
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
    task_id: str
    input_responses: dict[str, Raw]
