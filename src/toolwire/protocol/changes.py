"""Changes that a server announces: a list changed, or a resource has new contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from msgspec import UNSET, Raw, Struct

from toolwire.protocol import types as t

LIST_CHANGED: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
UPDATED: Final = "notifications/resources/updated"


class FrozenParams(dict[str, Any]):
    """Params of an extension's notification, fit to be part of a change that is compared by identity."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Change(Struct, frozen=True):
    """Something that happened: a family's list changed, a resource was updated, or an extension published."""

    kind: str
    uri: str = ""
    method: str = ""
    params: Any = None
    extension: str = ""
    """The extension whose notification legacy clients get unasked; empty for one that only listen streams get."""
    needs_client: bool = False
    """Whether legacy clients get it only if they declare that extension."""
    owner: str = ""
    """The only principal whose resource was updated; empty where the resource is the same for all of them."""
    server: str = ""
    """The name of the server whose resource was updated; empty where it is not known."""
    mark: str = ""
    """The mark of the catalogue of that server, which two servers of one name have not in common."""
    session: str = ""
    """The only legacy HTTP session that is told; empty for all clients."""


def covers(subscribed: Set[str], uri: str) -> bool:
    """Return whether a subscription is for this resource, or for one that contains it (1.10.6)."""
    if uri in subscribed:
        return True
    return any(uri.startswith(one if one.endswith("/") else one + "/") for one in subscribed)


def everything(subscribed: Set[str]) -> Iterator[Change]:
    """Return the changes that tell a client to read everything again, because nobody knows which ones it missed."""
    for family in LIST_CHANGED:
        yield Change(family)
    for uri in subscribed:
        yield Change("updated", uri)


def updated_params(change: Change, meta: Mapping[str, Any] | None = None) -> Any:
    """Make the params of an update: its address, what the host adds to it, and `meta` over the host's own `_meta`."""
    if change.params is None:
        return t.ResourceUpdatedNotificationParams(uri=change.uri, meta=UNSET if meta is None else dict(meta))
    params = {**change.params, "uri": change.uri}
    if meta is not None:
        own = params.get("_meta")
        params["_meta"] = {**(own if isinstance(own, dict) else {}), **meta}
    return params


def legacy_notification(
    change: Change, subscribed: Set[str], promised: Mapping[str, Any], declared: Set[str]
) -> tuple[str, Any] | None:
    """Return the notification of a change for a legacy client, or None.

    A legacy client hears of the lists whose changes the server's capabilities promise, and of what it subscribed to.
    It has no `subscriptions/listen`, so an extension says of its notifications whether it gets all of them or none.
    `declared` are the extensions that the client declares.
    """
    if change.method:
        name = change.extension
        agreed = name and t.has_capability(promised, f"extensions.{name}")
        return (change.method, change.params) if agreed and (name in declared or not change.needs_client) else None
    if change.kind == "updated":
        if not covers(subscribed, change.uri):
            return None
        return UPDATED, updated_params(change)
    # 2025-06-18 basic/lifecycle: only what was negotiated is used.
    return (LIST_CHANGED[change.kind], UNSET) if t.has_capability(promised, f"{change.kind}.listChanged") else None


def declared_extensions(capabilities: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the extensions that a client declares."""
    declared = capabilities.get("extensions")
    return frozenset(declared) if isinstance(declared, Mapping) else frozenset()


class Published(Struct, omit_defaults=True):
    """A change on its way to the other processes of a server, with the hub it comes from."""

    origin: str
    change: Change


class Notified(Struct):
    """A notification for one legacy session, on its way to the process that has the stream of the session."""

    session: str
    message: Raw


class Logged(Struct):
    """A log message on its way to the other processes of a server."""

    level: t.LoggingLevel
    params: Raw
    session: str = ""
    """The session that it is for; empty for all."""
