"""Resources and templates: how they are listed and read, and subscriptions to one of them before 2026-07-28."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from toolwire.protocol.types.base import CacheableResult, NotificationParams, RequestParams, RoundRequestParams
from toolwire.protocol.types.content import ResourceContents, ResourceMetadata

__all__ = [
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "Resource",
    "ResourceTemplate",
    "ResourceUpdatedNotificationParams",
    "SubscribeRequestParams",
    "UnsubscribeRequestParams",
]


class Resource(ResourceMetadata):
    """The definition of a resource."""

    uri: str
    name: str
    size: int | UnsetType = UNSET


class ResourceTemplate(ResourceMetadata):
    """The definition of a resource template."""

    uri_template: str
    name: str


class ListResourcesResult(CacheableResult, kw_only=True):
    """The result of `resources/list`: one page."""

    resources: list[Resource]
    next_cursor: str | UnsetType | None = UNSET


class ListResourceTemplatesResult(CacheableResult, kw_only=True):
    """The result of `resources/templates/list`: one page."""

    resource_templates: list[ResourceTemplate]
    next_cursor: str | UnsetType | None = UNSET


class ReadResourceRequestParams(RoundRequestParams, kw_only=True):
    """The params of `resources/read`."""

    uri: str


class ReadResourceResult(CacheableResult, kw_only=True):
    """The result of `resources/read`."""

    contents: list[ResourceContents]


class SubscribeRequestParams(RequestParams, kw_only=True):
    """The params of `resources/subscribe`, before 2026-07-28."""

    uri: str


class UnsubscribeRequestParams(RequestParams, kw_only=True):
    """The params of `resources/unsubscribe`, before 2026-07-28."""

    uri: str


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    """The params of `notifications/resources/updated`."""

    uri: str
