"""The tools, resources, templates and prompts of a server, fetched page by page up to a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct

from toolwire.protocol import types as t
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import METHOD_NOT_FOUND, NotSupported, ProtocolError

if TYPE_CHECKING:
    from toolwire.client import Client

# No honest server has more. The limit keeps a hostile one from filling the memory.
MOST: Final = 10_000
# The servers behind a gateway that are named as missing, and how long such a name may be.
_MISSING: Final = 20
_NAME: Final = 100
KINDS: Final = ("tools", "resources", "templates", "prompts")


class Offered(Struct):
    """The components of a server, by kind; `cut` names the kinds that had more than `MOST`.

    `missing` are the servers behind a gateway whose components are missing.
    """

    tools: list[t.Tool] = []
    resources: list[t.Resource] = []
    templates: list[t.ResourceTemplate] = []
    prompts: list[t.Prompt] = []
    cut: list[str] = []
    missing: list[str] = []


async def fetch(client: Client, kinds: tuple[str, ...] = KINDS) -> Offered:
    found = Offered()
    pages: dict[str, tuple[Callable[[str | None], Awaitable[Any]], str]] = {
        "tools": (client.list_tools_page, "tools"),
        "resources": (client.list_resources_page, "resources"),
        "templates": (client.list_resource_templates_page, "resource_templates"),
        "prompts": (client.list_prompts_page, "prompts"),
    }
    for kind in kinds:
        page, member = pages[kind]
        entries, complete = await _all(page, member, found.missing)
        setattr(found, kind, entries)
        if not complete:
            found.cut.append(kind)
    return found


async def find_tool(client: Client, name: str) -> tuple[t.Tool | None, Offered]:
    """Return the tool of that name, if there is one, and all tools."""
    found = await fetch(client, ("tools",))
    return next((tool for tool in found.tools if tool.name == name), None), found


async def _all(page: Callable[[str | None], Awaitable[Any]], member: str, missing: list[str]) -> tuple[list[Any], bool]:
    entries: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        try:
            answer = await page(cursor)
        except NotSupported:
            return [], True  # The server did not declare this kind, so it has none.
        except ProtocolError as error:
            # Some servers declare `resources` and do not know the method for templates.
            if error.code == METHOD_NOT_FOUND:
                return entries, True
            raise
        entries += getattr(answer, member)
        told = answer.meta.get(MISSING_KEY) if isinstance(answer.meta, dict) else None
        if isinstance(told, list):
            names = [each[:_NAME] for each in told[:_MISSING] if isinstance(each, str)]
            missing[:] = list(dict.fromkeys((*missing, *names)))[:_MISSING]
        cursor = None if answer.next_cursor is UNSET else answer.next_cursor
        if cursor is None or cursor in seen:
            return entries[:MOST], len(entries) <= MOST
        seen.add(cursor)
        # A page may be empty, so the number of pages counts as well.
        if len(entries) > MOST or len(seen) > MOST:
            return entries[:MOST], False
