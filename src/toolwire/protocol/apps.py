"""The rules of apps (SEP-1865, `io.modelcontextprotocol/ui`): `_meta` of tools and views, MIME type, audiences.

A server writes `_meta` with these functions, and a client, a gateway and a host read it with them. "Clause" in the
comments names a section of specification/2026-01-26/apps.mdx of modelcontextprotocol/ext-apps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import UNSET

if TYPE_CHECKING:
    from toolwire.protocol.types import Tool

UI_EXTENSION: Final = "io.modelcontextprotocol/ui"
#: The MIME type of a view.
APP_MIME_TYPE: Final = "text/html;profile=mcp-app"
#: The extension as a client declares it that shows views: `Client(server, extensions=RENDERS_APPS)`.
RENDERS_APPS: Final[Mapping[str, Mapping[str, Any]]] = {UI_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}}
#: The scheme of the addresses of views.
SCHEME: Final = "ui://"
#: The key under which hosts looked for the address of a view before it moved into `ui`. Hosts still look at both.
FLAT_KEY: Final = "ui/resourceUri"
#: The key under which ChatGPT looked for it.
OPENAI_KEY: Final = "openai/outputTemplate"
#: The key for the name of a tool at its own server, or the one that a shape gives it. Mounts and gateways put prefixes
#: before names, and a view that calls the other tools of its server finds the prefix by this.
NAME_KEY: Final = "io.toolwire/name"
#: All keys of `_meta` by which hosts find a view and its rules, and views their tools.
VIEW_KEYS: Final = ("ui", FLAT_KEY, OPENAI_KEY, NAME_KEY)

Audience: TypeAlias = Literal["model", "app"]
AUDIENCES: Final[tuple[Audience, ...]] = ("model", "app")


def tool_meta(name: str, uri: str, visibility: Iterable[Audience], *, openai: bool = False) -> dict[str, Any]:
    """Return the members of `_meta` that connect a tool with a view."""
    meta: dict[str, Any] = {"ui": {"resourceUri": uri, "visibility": list(visibility)}, FLAT_KEY: uri, NAME_KEY: name}
    return {**meta, OPENAI_KEY: uri} if openai else meta


def ui_of(meta: Any) -> Mapping[str, Any]:
    """Return the member `ui` of `_meta`; an empty mapping where there is none."""
    ui = meta.get("ui") if isinstance(meta, Mapping) else None
    return ui if isinstance(ui, Mapping) else {}


def view_address(meta: Any) -> str | None:
    """Return the address of the view that the `_meta` of a tool names."""
    nested = ui_of(meta).get("resourceUri")
    found = nested if isinstance(nested, str) else meta.get(FLAT_KEY) if isinstance(meta, Mapping) else None
    return found if isinstance(found, str) and found.startswith(SCHEME) else None


def without_view(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return `_meta` without the members by which hosts find a view and its rules."""
    return {key: value for key, value in meta.items() if key not in VIEW_KEYS}


def is_view(uri: str) -> bool:
    """Return whether a URI is that of a view, whatever the case of its scheme."""
    return uri[: len(SCHEME)].lower() == SCHEME


def audiences(meta: Any) -> frozenset[str]:
    """Return the audiences of a tool. Clause "Tool Visibility": without `visibility`, it is for models and apps.

    A text counts as a list of one. Any other form hides the tool from both, since its server meant to limit it.
    """
    named = ui_of(meta).get("visibility")
    if named is None:
        return frozenset(AUDIENCES)
    listed = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    return frozenset(each for each in listed if each in AUDIENCES)


def has_destructive_hint(tool: Tool) -> bool:
    """Return whether a tool says that it may destroy something: hosts ask before a view calls it."""
    return tool.annotations is not UNSET and tool.annotations.destructive_hint is True


def is_app_type(mime_type: Any) -> bool:
    """Return whether a MIME type is that of a view: letter case, spaces and the order of parameters do not count."""
    if not isinstance(mime_type, str) or len(mime_type) > 200:
        return False
    kind, *parameters = (part.strip().lower() for part in mime_type.split(";"))
    pairs = {tuple(each.partition("=")[::2]) for each in parameters}
    return kind == "text/html" and any(
        name.strip() == "profile" and value.strip().strip('"') == "mcp-app" for name, value in pairs
    )


def renders_apps(capabilities: Mapping[str, Any]) -> bool:
    """Return whether a client with these capabilities shows views of the type that servers have."""
    extensions = capabilities.get("extensions")
    settings = extensions.get(UI_EXTENSION) if isinstance(extensions, Mapping) else None
    kinds = settings.get("mimeTypes") if isinstance(settings, Mapping) else None
    return isinstance(kinds, list) and any(map(is_app_type, kinds))


def declares_apps(capabilities: Mapping[str, Any]) -> bool:
    """Return whether capabilities name the extension, whatever its settings are."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and isinstance(extensions.get(UI_EXTENSION), Mapping)
