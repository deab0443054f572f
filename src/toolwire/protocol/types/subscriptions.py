"""`subscriptions/listen` of 2026-07-28: what a client wants to be told of."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import NotificationParams, RequestParams, Result

__all__ = [
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
]


class SubscriptionFilter(Wire, kw_only=True):
    """The changes that a client wants to be told of."""

    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: list[str] | UnsetType = UNSET
    # Added by the tasks extension.
    task_ids: list[str] | UnsetType = UNSET


class SubscriptionsListenRequestParams(RequestParams, kw_only=True):
    """The params of `subscriptions/listen`."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """The graceful end of a subscription; its `meta` carries the subscription id."""


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, kw_only=True):
    """The params of `notifications/subscriptions/acknowledged`: what the server tells of."""

    notifications: SubscriptionFilter
