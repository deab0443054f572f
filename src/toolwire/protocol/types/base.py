"""The parts of messages: params, results, errors, and the names of both sides."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.meta import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    RELATED_TASK_KEY,
)
from toolwire.protocol.types.scalars import LoggingLevel, ProgressToken

__all__ = [
    "Annotations",
    "CacheableResult",
    "EmptyResult",
    "Error",
    "Icon",
    "Implementation",
    "MetaDict",
    "MissingRequiredClientCapabilityErrorData",
    "NestedResult",
    "NotificationParams",
    "PaginatedRequestParams",
    "RelatedTaskMetadata",
    "RequestMeta",
    "RequestParams",
    "Result",
    "ResultMeta",
    "RoundRequestParams",
    "TaskMetadata",
    "UnsupportedProtocolVersionErrorData",
]

MetaDict: TypeAlias = dict[str, Any]
# Always a dict when decoded; a server may write one that it has encoded before.
ResultMeta: TypeAlias = dict[str, Any] | Raw


class Icon(Wire):
    """A picture for a server, a client or a component. `src` is a URL or a `data:` URI."""

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
    """Hints for showing a resource or a content block: its audience and its priority."""

    audience: list[str] | UnsetType = UNSET
    priority: float | int | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET


class RelatedTaskMetadata(Wire):
    """The task that a message belongs to (2025-11-25)."""

    task_id: str


class TaskMetadata(Wire):
    """`params.task` of 2025-11-25: the wish to run a request as a task."""

    ttl: int | UnsetType = UNSET


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
    """A result that a client may keep: for how long, and whether for everybody (2026-07-28)."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: str | UnsetType = UNSET


class PaginatedRequestParams(RequestParams, kw_only=True):
    """The params of a list request; `cursor` names the page."""

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
    """The data of the error -32022: the revisions that the server supports."""

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityErrorData(Wire):
    """The data of the error -32021: the capabilities that the client has to declare."""

    required_capabilities: dict[str, Any]
