"""The offer of a server: its identity, its capabilities, the methods of its extensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.lifecycle import Offer
from toolwire.protocol.methods import Method
from toolwire.protocol.revisions import supports
from toolwire.protocol.shaping import shape
from toolwire.server.catalog import Catalog, Owner, Sees
from toolwire.server.lowlevel import LowLevel

#: The experimental capability of a server that restricts components, but nothing for its local client.
RESTRICTED_KEY: Final = "io.toolwire/restricted"


class ServerOffer:
    """The offer of a server, as `protocol.lifecycle` wants it."""

    def __init__(
        self,
        catalog: Catalog,
        lowlevel: LowLevel,
        implementation: t.Implementation,
        instructions: str | None,
        capabilities: Mapping[str, Any] | None,
    ) -> None:
        self._catalog = catalog
        self._lowlevel = lowlevel
        self.implementation = implementation
        self._instructions = instructions or ""
        self._further_instructions: Sequence[tuple[Owner, str]] = ()
        self._extra_capabilities = dict(capabilities or {})
        self._capabilities: dict[str, tuple[int, dict[str, Any]]] = {}
        self._families: set[str] = set()
        self.mask: Callable[[str], str] = str
        """Masks a text as the policies of the server say."""

    def capabilities(self, revision: str) -> dict[str, Any]:
        version = self._catalog.version
        known = self._capabilities.get(revision)
        if known is not None and known[0] == version:
            return known[1]
        declared: dict[str, Any] = {"logging": {}}
        # C12, DIS-1: a family stays declared when its last component is removed, so that clients are told of changes.
        if self._catalog.has("tools") or self._lowlevel.active or not self._has_anything():
            self._families.add("tools")
        has_listed = self._catalog.has("resources") or self._catalog.has("templates")
        if has_listed or self._catalog.reads_unlisted():
            self._families.add("resources")
        if self._catalog.has("prompts"):
            self._families.add("prompts")
        self._families.update(self._upstream_families())
        offered = self._catalog.all_extensions()
        for each in offered.values():
            self._families.update(each.families)
        if "tools" in self._families:
            declared["tools"] = {"listChanged": True}
        if "resources" in self._families:
            subscribe = {"subscribe": True} if self._announces_updates() else {}
            declared["resources"] = {**subscribe, "listChanged": True}
        if "prompts" in self._families:
            declared["prompts"] = {"listChanged": True}
        if self._catalog.has_completions():
            declared["completions"] = {}
        settings = self._catalog.extension_settings()
        extensions = {name: settings[name] for name, each in offered.items() if revision in each.revisions}
        if self.has_tasks():
            # Each dialect of tasks is declared only on the revisions that know it.
            declared["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            if supports(revision, "tasks_extension"):
                extensions[t.TASKS_EXTENSION] = {}
        if extensions:
            declared["extensions"] = extensions
        declared = {**self._catalog.all_further_capabilities(), **declared}
        declared = merge_capabilities(declared, self._extra_capabilities)
        result = shape(
            t.InitializeResult(protocol_version=revision, capabilities=declared, server_info=self.implementation),
            revision,
        ).capabilities
        self._capabilities[revision] = (version, result)
        return result

    @property
    def has_logging(self) -> bool:
        """Return whether clients get log messages. `capabilities={"logging": None}` switches them off."""
        return self._extra_capabilities.get("logging", UNSET) is not None

    def has_tasks(self) -> bool:
        """Return whether tasks are offered: by a tool that runs as one, or by `Server(tasks=True)`.

        A server that mounts one of these offers them, too.
        """
        if self._catalog.has_own_tasks() or any(
            found.component.task is not None for found in self._catalog.all("tools").values()
        ):
            self._families.add("tasks")
        return "tasks" in self._families

    def _upstream_families(self) -> set[str]:
        """Return the families that upstreams declare, also where their lists are empty."""
        known = (each.upstream_capabilities or {} for each in (self._catalog, *self._catalog.family()))
        return {family for each in known for family in ("tools", "resources", "prompts") if family in each}

    def _announces_updates(self) -> bool:
        """Return whether resources of this process, or an upstream, may announce updates."""
        catalogs = (self._catalog, *self._catalog.family())
        upstreams = [
            each.upstream_capabilities for each in catalogs if each.follower is not None and each.audience is None
        ]
        if not upstreams or any(each.follower is None and (each.resources or each.templates) for each in catalogs):
            return True
        return any(each is None or t.has_capability(each, "resources.subscribe") for each in upstreams)

    def _has_anything(self) -> bool:
        return any(self._catalog.has(kind) for kind in ("tools", "resources", "templates", "prompts"))

    def add_families(self, families: Iterable[str]) -> None:
        """Declare families of components, also those that are empty."""
        self._families.update(families)
        self.refresh()

    @property
    def instructions(self) -> str | UnsetType:
        """The instructions of the server, and those of the servers behind it."""
        return (
            "\n\n".join(filter(None, (self._instructions, *(text for _, text in self._further_instructions)))) or UNSET
        )

    # --- what one caller may know ---

    @property
    def has_remote_parts(self) -> bool:
        """Return whether capabilities or instructions of mounted servers are part of the offer."""
        catalog = self._catalog
        return bool(self._further_instructions or catalog.all_extensions() or catalog.all_further_capabilities())

    def seen_capabilities(self, capabilities: dict[str, Any], sees: Sees) -> dict[str, Any]:
        """Return capabilities of this offer without those of servers that a caller may not know of."""
        seen = dict(capabilities)
        extensions = seen.get("extensions")
        if isinstance(extensions, dict):
            overridden = self._extra_capabilities.get("extensions")
            overridden = overridden if isinstance(overridden, Mapping) else {}
            offered, known = self._catalog.extension_settings(), self._catalog.seen_extension_settings(sees)
            kept = {
                name: known.get(name, settings) if settings == offered.get(name) else settings
                for name, settings in extensions.items()
                if name in known or name not in offered or name in overridden
            }
            seen["extensions"] = kept
            if not kept:
                del seen["extensions"]
        offered, known = self._catalog.all_further_capabilities(), self._catalog.all_further_capabilities(sees)
        for name in offered.keys() & seen.keys():
            if offered[name] != known.get(name):
                merged = merge_capabilities({name: known[name]} if name in known else {}, self._extra_capabilities)
                seen.pop(name)
                seen.update({name: merged[name]} if name in merged else {})
        return seen

    def seen_instructions(self, sees: Sees) -> str | UnsetType:
        """Return the instructions of the server, and of those behind it that a caller may know of."""
        further = (text for owner, text in self._further_instructions if self._catalog.sees_server(owner, sees))
        return "\n\n".join(filter(None, (self._instructions, *further))) or UNSET

    @property
    def extra_capabilities(self) -> Mapping[str, Any]:
        """The capabilities that do not follow from the components."""
        return self._extra_capabilities

    def override(self, capabilities: Mapping[str, Any] | None) -> None:
        """Tell clients these capabilities besides those that follow from the components, from now on."""
        self._extra_capabilities = dict(capabilities or {})
        self._capabilities.clear()
        self.refresh()

    def tell_instructions(self, instructions: str) -> None:
        """Tell clients these instructions of the server from now on."""
        self._instructions = instructions

    def tell_further_instructions(self, instructions: Sequence[tuple[Owner, str]]) -> None:
        """Tell clients these instructions of mounted servers, too, from now on."""
        self._further_instructions = instructions

    def refresh(self) -> None:
        """Compute the capabilities again, because something besides the catalogue changed."""
        self._catalog.version += 1

    def extension_method(self, method: str) -> Method | None:
        rows = (extension.rows.get(method) for extension in self._catalog.all_extensions().values())
        known = next((row for row in rows if row is not None), None)
        if known is not None:
            return known
        unknown = self._catalog.unknown_methods(method)
        return unknown[0].component.row(method) if unknown else None

    def repeat(self, text: str) -> str:
        return self.mask(text)


class ReducedOffer:
    """The same offer, without some of its capabilities."""

    def __init__(self, offer: Offer, reduce: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._offer = offer
        self._reduce = reduce
        self._full: dict[str, Any] = {}
        self._reduced: dict[str, Any] = {}

    @property
    def implementation(self) -> t.Implementation:
        return self._offer.implementation

    @property
    def instructions(self) -> str | UnsetType:
        return self._offer.instructions

    def capabilities(self, revision: str) -> dict[str, Any]:
        full = self._offer.capabilities(revision)
        if full is not self._full:
            self._full, self._reduced = full, self._reduce(full)
        return self._reduced

    def extension_method(self, method: str) -> Method | None:
        return self._offer.extension_method(method)

    def repeat(self, text: str) -> str:
        return self._offer.repeat(text)


def mark_restricted(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Say that the server restricts components, to a local client that is restricted in nothing.

    A gateway that starts the server as a command stands for many callers, and has to know that.
    """
    return merge_capabilities(capabilities, {"experimental": {RESTRICTED_KEY: {}}})


def is_marked_restricted(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a server says that it restricts components, but nothing for this client."""
    experimental = capabilities.get("experimental")
    return isinstance(experimental, Mapping) and RESTRICTED_KEY in experimental


def for_anybody(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the capabilities for a caller over HTTP without a distinct principal.

    J81, 2025-11-25 tasks, security: callers that the server cannot tell apart must not see each other's tasks.
    """
    return _without(capabilities, "tasks", "list")


def for_one_request(capabilities: dict[str, Any], needing_client: Iterable[str] = ()) -> dict[str, Any]:
    """Return the capabilities for a legacy client without a connection.

    They leave out everything that needs memory between two requests, or messages in between. `needing_client` are the
    extensions that need a client that declares them: nobody remembers what such a client declared.
    """
    kept = {name: value for name, value in capabilities.items() if name != "logging"}
    kept = _without(kept, "extensions", *needing_client)
    if not kept.get("extensions", True):
        del kept["extensions"]
    for family in ("tools", "resources", "prompts"):
        kept = _without(kept, family, "subscribe", "listChanged")
    return kept


def _without(capabilities: dict[str, Any], family: str, *names: str) -> dict[str, Any]:
    declared = capabilities.get(family)
    if not isinstance(declared, dict):
        return capabilities
    return {**capabilities, family: {name: value for name, value in declared.items() if name not in names}}


def merge_capabilities(declared: dict[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sets of capabilities; the override wins, and None takes one away, at any depth."""
    merged = dict(declared)
    for name, value in override.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            before = merged.get(name)
            merged[name] = merge_capabilities(before if isinstance(before, dict) else {}, value)
        else:
            merged[name] = value
    return merged
