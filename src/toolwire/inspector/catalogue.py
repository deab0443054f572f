"""The lists of the server: short lines for the page, and definitions on request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from toolwire.client import Client, InvalidResponse
from toolwire.client.listing import ListBounds, follow_raw_pages
from toolwire.inspector.skills import definitions_of
from toolwire.protocol.errors import NotSupported, ToolwireError, TransportError

MAX_LISTED: Final = 20_000
#: The bytes of a list whose definitions are broken.
MAX_BYTES: Final = 32 * 1024 * 1024
_DESCRIPTION: Final = 160
_ICON: Final = 16 * 1024

#: For each kind: the method, the member of its result that is the list, and the member that identifies an item.
KINDS: Final = {
    "tools": ("tools/list", "tools", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    "prompts": ("prompts/list", "prompts", "name"),
    "skills": ("skills/list", "skills", "uri"),
    "extensions": ("", "extensions", "name"),
}


class CatalogueListing:
    """One list of the server, or the reason why it cannot be had."""

    def __init__(self) -> None:
        self.offered = True
        self.error: str | None = None
        self.definitions: list[dict[str, Any]] = []

    def describe(self, key: str) -> dict[str, Any]:
        items = [_line(definition, key) for definition in self.definitions]
        return {"offered": self.offered, "error": self.error, "items": items}


class ServerCatalogue:
    """The lists of a server: tools, resources, templates, prompts, skills and extensions."""

    def __init__(self) -> None:
        self.listings: dict[str, CatalogueListing] = {kind: CatalogueListing() for kind in KINDS}

    def describe(self) -> dict[str, Any]:
        return {kind: listing.describe(KINDS[kind][2]) for kind, listing in self.listings.items()}

    def find(self, kind: str, key: str) -> dict[str, Any] | None:
        listing, member = self.listings.get(kind), KINDS.get(kind, ("", "", ""))[2]
        definitions = [] if listing is None else listing.definitions
        return next((each for each in definitions if each.get(member) == key), None)

    async def refresh(self, client: Client, kind: str) -> None:
        """Ask the server for one of its lists."""
        self.listings[kind] = await _list(client, kind)


async def _list(client: Client, kind: str) -> CatalogueListing:
    listing = CatalogueListing()
    typed: dict[str, Callable[[], Awaitable[Any]]] = {
        "tools": partial(client.list_tools, audience=None),
        "resources": client.list_resources,
        "templates": client.list_resource_templates,
        "prompts": client.list_prompts,
    }
    try:
        if kind == "extensions":
            # No request lists them: the server declares them with its capabilities.
            declared = client.capabilities.get("extensions")
            settings = declared if isinstance(declared, dict) else {}
            listing.definitions = [{"name": name, "settings": settings[name]} for name in list(settings)[:MAX_LISTED]]
            listing.offered = bool(settings)
            return listing
        if kind == "skills":
            listing.definitions = definitions_of(await client.skills.list())[:MAX_LISTED]
            return listing
        try:
            listing.definitions = [each.to_dict() for each in (await typed[kind]())[:MAX_LISTED]]
        except InvalidResponse as error:
            if isinstance(error, TransportError):
                raise
            # One definition is broken. The page shows the rest, and the error.
            listing.definitions = await _raw(client, kind)
            listing.error = str(error)
    except NotSupported:
        listing.offered = False
    except ToolwireError as error:
        listing.error = str(error)
    return listing


async def _raw(client: Client, kind: str) -> list[dict[str, Any]]:
    method, member, key = KINDS[kind]
    found: list[dict[str, Any]] = []
    try:
        async for page in follow_raw_pages(client, ListBounds(method, max_bytes=MAX_BYTES), member):
            found += [each for each in page if _is_usable(each, key)]
            if len(found) >= MAX_LISTED:
                break
    except InvalidResponse as error:
        if isinstance(error, TransportError):
            raise
        # The list has too many pages or bytes. Its beginning is shown.
    return found[:MAX_LISTED]


def _is_usable(definition: Any, key: str) -> bool:
    return isinstance(definition, dict) and isinstance(definition.get(key), str)


def _line(definition: dict[str, Any], key: str) -> dict[str, Any]:
    line: dict[str, Any] = {"key": definition[key]}
    for member in ("name", "title", "description"):
        value = definition.get(member)
        if isinstance(value, str) and value:
            line[member] = value[:_DESCRIPTION]
    annotations = definition.get("annotations")
    hints = {} if not isinstance(annotations, dict) else annotations
    line["hints"] = [name for name in ("readOnlyHint", "destructiveHint") if hints.get(name) is True]
    if isinstance(definition.get("refused"), dict):
        line["refused"] = definition["refused"]["reason"]
    icon = _icon(definition.get("icons"))
    if icon is not None:
        line["icon"] = icon
    return line


def _icon(icons: Any) -> str | None:
    """Return the first icon that is inside its definition.

    Fetching one would reveal to its host who looks at the page.
    """
    sources = [each.get("src") for each in icons if isinstance(each, dict)] if isinstance(icons, list) else []
    small = (src for src in sources if isinstance(src, str) and src.startswith("data:image/") and len(src) <= _ICON)
    return next(small, None)
