"""`subscriptions/listen`: one stream of changes, from its acknowledgement to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, counted
from toolwire.server.call import Call
from toolwire.server.extensions import Extension
from toolwire.server.limits import Limits
from toolwire.server.subscriptions import Hub, Stream
from toolwire.wire.session import Session


async def listen(
    call: Call,
    hub: Hub,
    limits: Limits,
    declared: Mapping[str, Any],
    extensions: Iterable[Extension],
    more: Mapping[str, Any],
    hears: Callable[[str], bool],
) -> t.SubscriptionsListenResult:
    """Keep a stream open until either side ends it. `more` is what else was asked for and is honoured."""
    caller = call.request.caller
    hub.shares.take(caller)
    try:
        return await _listen(call, hub, limits, declared, extensions, more, hears)
    finally:
        hub.shares.give_back(caller)


async def _listen(
    call: Call,
    hub: Hub,
    limits: Limits,
    declared: Mapping[str, Any],
    extensions: Iterable[Extension],
    more: Mapping[str, Any],
    hears: Callable[[str], bool],
) -> t.SubscriptionsListenResult:
    stream = Stream(call, _accepted(call.params.notifications, limits, declared), hears)
    stream.extra = {**_extension_filters(call, extensions), **more}
    stream.acknowledge()
    hub.streams.add(stream)
    connection = call.outlet.connection
    # `Limits.listeners` bounds the streams; what else a connection asks for must not wait for their end.
    aside = connection.set_aside() if isinstance(connection, Session) else nullcontext()
    try:
        with aside:
            await stream.ended
    finally:
        hub.streams.discard(stream)
    # 2026-07-28 basic/patterns/cancellation: on stdio the end is announced by this notification too.
    notify = getattr(connection, "notify", None)
    if notify is not None:
        gone = t.CancelledNotificationParams(request_id=call.request_id, reason="The subscription ended")
        asyncio.get_running_loop().call_soon(notify, "notifications/cancelled", gone)
    return t.SubscriptionsListenResult(meta={t.SUBSCRIPTION_ID_KEY: call.request_id})


def _accepted(wanted: t.SubscriptionFilter, limits: Limits, declared: Mapping[str, Any]) -> t.SubscriptionFilter:
    """SUB-3: what is acknowledged is what is honoured."""
    uris = wanted.resource_subscriptions
    if uris is not UNSET and len(uris) > limits.uris:
        raise ProtocolError(INVALID_PARAMS, f"At most {counted(limits.uris, 'resource')} can be subscribed to at once")
    return t.SubscriptionFilter(
        tools_list_changed=_honoured(wanted.tools_list_changed, declared, "tools.listChanged"),
        prompts_list_changed=_honoured(wanted.prompts_list_changed, declared, "prompts.listChanged"),
        resources_list_changed=_honoured(wanted.resources_list_changed, declared, "resources.listChanged"),
        resource_subscriptions=uris if t.has_capability(declared, "resources.subscribe") else UNSET,
    )


def _honoured(wanted: bool | UnsetType, declared: Mapping[str, Any], capability: str) -> bool | UnsetType:
    return True if wanted is True and t.has_capability(declared, capability) else UNSET


def _extension_filters(call: Call, extensions: Iterable[Extension]) -> dict[str, Any]:
    filters = {
        name: accept
        for extension in extensions
        if extension.filters and extension.declared_by(call.request.capabilities)
        for name, accept in extension.filters.items()
    }
    if not filters:
        return {}
    asked = msgspec.json.decode(cast(Raw, call.request.raw)).get("notifications", {})
    accepted = {name: accept(asked[name]) for name, accept in filters.items() if name in asked}
    return {name: value for name, value in accepted.items() if value is not None}
