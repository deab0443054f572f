"""What a server says about itself: its identity, its capabilities, the methods of its extensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import MISSING_CLIENT_CAPABILITY, ProtocolError
from toolwire.protocol.methods import Method
from toolwire.protocol.shaping import shape
from toolwire.server.catalog import Catalog
from toolwire.server.extensions import Extension
from toolwire.server.lowlevel import LowLevel


class Offering:
    """The offer of a server, as `protocol.lifecycle` wants it."""

    def __init__(
        self,
        catalog: Catalog,
        implementation: t.Implementation,
        instructions: str | None,
        capabilities: Mapping[str, Any] | None,
    ) -> None:
        self.catalog = catalog
        self.implementation = implementation
        self.instructions: str | UnsetType = UNSET if instructions is None else instructions
        self.extensions: dict[str, Extension] = {}
        self.lowlevel = LowLevel()
        self._extra_capabilities = dict(capabilities or {})
        self._capabilities: dict[str, tuple[int, dict[str, Any]]] = {}
        self._families: set[str] = set()

    def capabilities(self, revision: str) -> dict[str, Any]:
        version = self.catalog.version
        known = self._capabilities.get(revision)
        if known is not None and known[0] == version:
            return known[1]
        declared: dict[str, Any] = {"logging": {}}
        # C12, DIS-1: what is declared works, and a change is always announced; also when the last one was removed.
        if self.catalog.has("tools") or self.lowlevel.active or not self._offers_anything():
            self._families.add("tools")
        if self.catalog.has("resources") or self.catalog.has("templates"):
            self._families.add("resources")
        if self.catalog.has("prompts"):
            self._families.add("prompts")
        if "tools" in self._families:
            declared["tools"] = {"listChanged": True}
        if "resources" in self._families:
            declared["resources"] = {"subscribe": True, "listChanged": True}
        if "prompts" in self._families:
            declared["prompts"] = {"listChanged": True}
        if self.catalog.has_completions():
            declared["completions"] = {}
        if self.extensions:
            declared["extensions"] = {name: each.settings for name, each in self.extensions.items()}
        declared = merge_capabilities(declared, self._extra_capabilities)
        result = shape(
            t.InitializeResult(protocol_version=revision, capabilities=declared, server_info=self.implementation),
            revision,
        ).capabilities
        self._capabilities[revision] = (version, result)
        return result

    def _offers_anything(self) -> bool:
        return any(self.catalog.has(kind) for kind in ("tools", "resources", "templates", "prompts"))

    def refresh(self) -> None:
        """Something besides the catalogue changed what is declared."""
        self.catalog.version += 1

    def extension_method(self, method: str, capabilities: Mapping[str, Any]) -> Method | None:
        for extension in self.extensions.values():
            row = extension.rows.get(method)
            if row is None:
                continue
            if not extension.declared_by(capabilities):
                if row.kind == "notification":
                    return None
                # EXT-2: the client lacks what this method belongs to.
                required: dict[str, Any] = {"extensions": {extension.identifier: {}}}
                raise ProtocolError(
                    MISSING_CLIENT_CAPABILITY,
                    f"{method} belongs to the extension {extension.identifier}, which this request does not declare",
                    {"requiredCapabilities": required},
                )
            return row
        return None


def merge_capabilities(declared: dict[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Two sets of capabilities; the override wins, and None takes one away."""
    merged = dict(declared)
    for name, value in override.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(name), dict):
            merged[name] = merge_capabilities(merged[name], value)
        else:
            merged[name] = dict(value) if isinstance(value, Mapping) else value
    return merged
