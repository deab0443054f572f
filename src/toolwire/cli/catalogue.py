"""Fetch the components of a server page by page, up to a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolwire.client.listing import ListBounds, follow_pages
from toolwire.protocol import types as t
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import METHOD_NOT_FOUND, NotSupported, ProtocolError

if TYPE_CHECKING:
    from toolwire.client import Client

# No honest server has more. The limits keep a hostile one from filling the memory.
MOST: Final = 10_000
#: The bytes of all lists that a command fetches.
MAX_BYTES: Final = 32 * 1024 * 1024
# The servers behind a gateway that are named as missing, and how long such a name may be.
_MISSING: Final = 20
_NAME: Final = 100
_METHODS: Final = {
    "tools": "tools/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
    "prompts": "prompts/list",
}
KINDS: Final = tuple(_METHODS)


class Offered(Struct):
    """The components of a server, by kind.

    `cut` names the kinds that had more than `MOST`. `missing` are the servers behind a gateway whose components are
    missing.
    """

    tools: list[t.Tool] = []
    resources: list[t.Resource] = []
    templates: list[t.ResourceTemplate] = []
    prompts: list[t.Prompt] = []
    cut: list[str] = []
    missing: list[str] = []


async def fetch(client: Client, kinds: tuple[str, ...] = KINDS) -> Offered:
    """Fetch the lists of a server, within `MAX_BYTES` for all of them."""
    found = Offered()
    left = MAX_BYTES
    for kind in kinds:
        bounds = ListBounds(_METHODS[kind], max_bytes=left)
        entries, complete = await _fetch_list(client, bounds, found.missing)
        left -= bounds.bytes
        setattr(found, kind, entries)
        if not complete:
            found.cut.append(kind)
    return found


async def find_tool(client: Client, name: str) -> tuple[t.Tool | None, Offered]:
    """Return the tool of that name, if there is one, and all tools."""
    found = await fetch(client, ("tools",))
    return next((tool for tool in found.tools if tool.name == name), None), found


async def _fetch_list(client: Client, bounds: ListBounds, missing: list[str]) -> tuple[list[Any], bool]:
    """Return the entries of a list, and whether they are all of them."""
    entries: list[Any] = []
    try:
        async for page, meta in follow_pages(client, bounds):
            entries += page
            _note_missing(meta, missing)
            if len(entries) > MOST:
                break
    except NotSupported:
        return [], True  # The server did not declare this kind, so it has none.
    except ProtocolError as error:
        # Some servers declare `resources` and do not know the method for templates.
        if error.code != METHOD_NOT_FOUND:
            raise
    return entries[:MOST], len(entries) <= MOST


def _note_missing(meta: Any, missing: list[str]) -> None:
    """Add the servers that a gateway reports as missing."""
    reported = meta.get(MISSING_KEY) if isinstance(meta, dict) else None
    if isinstance(reported, list):
        names = [each[:_NAME] for each in reported[:_MISSING] if isinstance(each, str)]
        missing[:] = list(dict.fromkeys((*missing, *names)))[:_MISSING]
