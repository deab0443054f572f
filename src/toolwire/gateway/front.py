"""`Front`: what a gateway serves: its settings, and its upstreams and APIs in their order.

A front never changes. A server that is added, removed or replaced, and a changed file, make another one, and `Fronts`
swaps it for the one before in one step: what both have stays as it is, with its connections. What the new one does not
have is offered no longer, and is gone when its calls, held questions and tasks have ended. These keep what they had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct, structs

from toolwire.gateway.remote_components import RemotePrompt, RemoteTool
from toolwire.gateway.upstream import Upstream
from toolwire.gateway.upstream_options import UpstreamRules
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Catalog, Found, Mount
from toolwire.server.components import Component
from toolwire.server.described_api import DescribedApi
from toolwire.server.server import Server
from toolwire.server.settings import Settings
from toolwire.server.shaping import Shape

#: How many servers that were taken away may have calls, questions or tasks left. The first one goes then.
MAX_LEAVING: Final = 32


class IncludedApi(NamedTuple):
    """An API behind a gateway."""

    name: str
    api: DescribedApi
    prefix: str
    shape: Shape | None


Entry: TypeAlias = Upstream | IncludedApi


class GatewaySettings(Settings, frozen=True, kw_only=True, eq=False):
    """The options of a gateway that may change while it runs."""

    is_strict: bool
    """Whether a list in which components are missing is an error."""
    rules: UpstreamRules


class Front(Struct, frozen=True):
    """Settings, upstreams and APIs of a gateway."""

    settings: GatewaySettings
    entries: Mapping[str, Entry] = MappingProxyType({})
    """The upstreams and APIs, by name. The first one keeps a name that two of them have."""

    def with_settings(self, settings: GatewaySettings) -> Front:
        """Return a front that has other settings."""
        return structs.replace(self, settings=settings)

    def with_entries(self, *entries: Entry) -> Front:
        """Return a front that has these, too. One takes the place of the entry that has its name."""
        return self._having({**self.entries, **{each.name: each for each in entries}})

    def without(self, *names: str) -> Front:
        """Return a front that has no entries with these names."""
        return self._having({name: each for name, each in self.entries.items() if name not in names})

    def in_order(self, names: Iterable[str]) -> Front:
        """Return a front whose entries are in this order. Others come after them."""
        order = dict.fromkeys((*names, *self.entries))
        return self._having({name: self.entries[name] for name in order if name in self.entries})

    def _having(self, entries: dict[str, Entry]) -> Front:
        return structs.replace(self, entries=MappingProxyType(entries))

    @property
    def upstreams(self) -> dict[str, Upstream]:
        """The entries that are no APIs."""
        return {name: each for name, each in self.entries.items() if isinstance(each, Upstream)}


class _Leaving(NamedTuple):
    """An upstream that was taken away, and has calls, questions or tasks left."""

    upstream: Upstream
    offered: Mapping[str, Mapping[str, Found[Any]]]
    """Its tools and prompts as clients knew them, by kind and name."""


class Fronts:
    """The front of one gateway, and what is left of the fronts before it."""

    def __init__(
        self,
        gateway: Server,
        settings: GatewaySettings,
        apply_settings: Callable[[GatewaySettings], None],
        note_change: Callable[[], None],
        note_gone: Callable[[str], None],
    ) -> None:
        """
        * `apply_settings`: has everything that begins from now on use the settings of a front. It raises `ServerError`,
          and changes nothing, for settings that cannot be used.
        * `note_change`: is called when the front, or an upstream that is offered, has changed.
        * `note_gone`: is called with the name of each upstream that was taken away, when nothing is left of it.
        """
        self.front: Front = Front(settings)
        self._gateway = gateway
        self._apply_settings = apply_settings
        self._note_change = note_change
        self._note_gone = note_gone
        self._leaving: list[_Leaving] = []

    @property
    def leaving(self) -> tuple[str, ...]:
        """The upstreams that were taken away or replaced, and have calls, questions or tasks left."""
        return tuple(each.upstream.name for each in self._leaving)

    def find_mount(self, name: str) -> Mount:
        """Return the mount of an entry."""
        return self._mount_of(self.front.entries[name])

    def _catalog_of(self, entry: Entry) -> Catalog:
        if isinstance(entry, Upstream):
            return entry.catalog
        catalog: Catalog = self._gateway.included_apis.catalog(entry.api)
        return catalog

    def _mount_of(self, entry: Entry) -> Mount:
        catalog = self._catalog_of(entry)
        return next(mount for mount in self._gateway.catalog.mounts if mount.catalog is catalog)

    def connect(self, upstream: Upstream, prefix: str, shape: Shape | None, *, is_marked: bool) -> None:
        """Mount an upstream, so that it connects while the gateway runs. `is_marked`: lists name the upstream."""
        upstream.availability.watchers.append(self._note_change)
        self._gateway.mount_catalog(prefix, upstream.catalog, shape, upstream.name if is_marked else None)

    def disconnect(self, upstream: Upstream) -> None:
        """Take away an upstream that was never offered."""
        upstream.retire()
        self._gateway.unmount(upstream)

    # --- swapping ---

    def swap(self, front: Front) -> None:
        """Serve a front in place of the one before. Nothing can begin in between.

        Raise `ServerError`, and change nothing, for settings that cannot be used.
        """
        before = self.front
        if front.settings is not before.settings:
            self._apply_settings(front.settings)
        self.front = front
        self._gateway.catalog.is_strict = front.settings.is_strict
        is_moved = list(front.entries)[: len(before.entries)] != list(before.entries)
        for name, entry in front.entries.items():
            known = before.entries.get(name)
            if known is entry:
                continue
            if known is not None:
                is_moved = True
                self._take_away(known, entry)
            self._offer(entry)
        for name, entry in before.entries.items():
            if name not in front.entries:
                self._take_away(entry)
        if is_moved:
            self._gateway.catalog.arrange([self._catalog_of(each) for each in front.entries.values()])
        if front.settings.rules != before.settings.rules:
            for upstream in front.upstreams.values():
                upstream.apply_rules()
        self._note_change()

    def _offer(self, entry: Entry) -> None:
        if isinstance(entry, IncludedApi):
            try:
                self._gateway.included_apis.add(entry.api, entry.prefix, entry.shape, entry.name)
            except BaseException:
                self.front = self.front.without(entry.name)
                raise
            return
        for leaving in self._leaving_of(entry.name):
            entry.relay.add_earlier(leaving.upstream.relay)
        if entry.lifecycle.is_held_back:
            entry.offer()

    def _leaving_of(self, name: str) -> list[_Leaving]:
        return [each for each in self._leaving if each.upstream.name == name]

    def _take_away(self, entry: Entry, successor: Entry | None = None) -> None:
        if isinstance(entry, IncludedApi):
            self._gateway.exclude(entry.api)
        else:
            self._retire(entry, successor if isinstance(successor, Upstream) else None)

    def _retire(self, upstream: Upstream, successor: Upstream | None) -> None:
        """Offer the components of an upstream no longer. It goes when its calls, questions and tasks have ended."""
        mount = self._mount_of(upstream)
        offered = {kind: dict(mount.merged(kind, None, ())) for kind in ("tools", "prompts")}
        upstream.retire()
        loop = self._gateway.loop
        if loop is None:
            self._gateway.unmount(upstream)
            self._note_gone(upstream.name)
            return
        upstream.relay.asked.leave(self._gateway.kernel, None if successor is None else successor.relay.asked)
        if successor is not None and successor.relay.key == upstream.relay.key:
            upstream.back_connections.leave_sessions()
        for earlier in self._leaving_of(upstream.name):
            upstream.relay.add_earlier(earlier.upstream.relay)
        leaving = _Leaving(upstream, offered)
        self._leaving.append(leaving)
        self._gateway.catalog.find_unlisted = self._find_component_of_leaving
        upstream.lifecycle.leaving = loop.create_task(upstream.used())
        upstream.lifecycle.leaving.add_done_callback(lambda _: self._end_leaving(leaving))
        for each in self._leaving[:-MAX_LEAVING]:
            if each.upstream.lifecycle.leaving is not None:
                each.upstream.lifecycle.leaving.cancel()

    def _end_leaving(self, leaving: _Leaving) -> None:
        self._leaving.remove(leaving)
        upstream = leaving.upstream
        later = [each.upstream for each in self._leaving_of(upstream.name)]
        if (offered := self.front.upstreams.get(upstream.name)) is not None:
            later.append(offered)
        for each in later:
            each.relay.drop_earlier(upstream.relay)
        catalog = self._gateway.catalog
        # The gateway of a client has put its own in the place.
        if not self._leaving and catalog.find_unlisted == self._find_component_of_leaving:
            catalog.find_unlisted = None
        if not self._leaving_of(upstream.name):
            self._note_gone(upstream.name)
        self._gateway.unmount(upstream)

    def _find_component_of_leaving(self, kind: str, name: str) -> Found[Any] | None:
        """Find a tool or prompt of an upstream that was taken away, for a request that answers its questions."""
        call = CURRENT.get()
        # The one that was taken away last knows those before it.
        for leaving in reversed(self._leaving):
            found: Found[Any] | None = leaving.offered[kind].get(name)
            if found is not None and leaving.upstream.relay.owns_state(call):
                return found if self._is_usable_now(call, leaving.upstream.name, found) else None
        return None

    def _is_usable_now(self, call: Call, name: str, found: Found[Any]) -> bool:
        """Return whether a caller may still use a component of an upstream that was taken away.

        The restrictions of the upstream that has its name now hold: those of the same component there, whatever its
        name is; those of the whole upstream if that does not offer the component.
        """
        upstream = self.front.upstreams.get(name)
        if upstream is None:
            return True
        mount, component, access = self.find_mount(name), found.component, self._gateway.kernel.access
        own = _own_name(component)
        there = (each.component for _, each in mount.merged(component.kind, None, ()))
        same = [each for each in there if _own_name(each) == own] or [component]
        caller = call.principal, call.outlet.is_local
        return any(access.admits(*caller, Found(each, upstream, (mount,))) for each in same)


def _own_name(component: Component) -> str:
    """Return the name that an upstream gives a tool or a prompt."""
    while component.original is not None:
        component = component.original
    return component.remote.name if isinstance(component, RemoteTool | RemotePrompt) else component.key
