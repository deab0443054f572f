"""The capabilities of clients and servers, and the check whether one was declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol.open_codec import Wire

__all__ = [
    "ClientCapabilities",
    "ServerCapabilities",
    "has_capability",
    "is_extension_identifier",
]


class ClientCapabilities(Wire, kw_only=True):
    """The capabilities by name. Messages carry them as a plain dict, because extensions add more."""

    experimental: dict[str, Any] | UnsetType = UNSET
    roots: dict[str, Any] | UnsetType = UNSET
    sampling: dict[str, Any] | UnsetType = UNSET
    elicitation: dict[str, Any] | UnsetType = UNSET
    tasks: dict[str, Any] | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


class ServerCapabilities(Wire, kw_only=True):
    """The capabilities by name. Messages carry them as a plain dict, because extensions add more."""

    experimental: dict[str, Any] | UnsetType = UNSET
    logging: dict[str, Any] | UnsetType = UNSET
    completions: dict[str, Any] | UnsetType = UNSET
    prompts: dict[str, Any] | UnsetType = UNSET
    resources: dict[str, Any] | UnsetType = UNSET
    tools: dict[str, Any] | UnsetType = UNSET
    tasks: dict[str, Any] | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


# 2026-07-28 basic, `_meta`: the grammar of names, with the prefix that extensions must have.
_EXTENSION_IDENTIFIER = lazy_pattern(r"[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z][A-Za-z0-9-]*)+/[A-Za-z0-9][A-Za-z0-9_./-]*")


def is_extension_identifier(name: object) -> bool:
    """Return whether this is the identifier of an extension, such as `com.example/notes`."""
    return isinstance(name, str) and _EXTENSION_IDENTIFIER.fullmatch(name) is not None


def has_capability(capabilities: Mapping[str, Any], path: str) -> bool:
    """Return whether a capability such as `tools`, `resources.subscribe` or `extensions.<id>` was declared.

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
