"""The tools, resources, templates and prompts of a server, fetched page by page up to a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct

from toolwire.protocol import types as t
from toolwire.protocol.errors import METHOD_NOT_FOUND, NotSupported, ProtocolError

if TYPE_CHECKING:
    from toolwire.client import Client

# No honest server has more. The limit keeps a hostile one from filling the memory.
MOST: Final = 10_000
KINDS: Final = ("tools", "resources", "templates", "prompts")


class Offered(Struct):
    """The components of a server, by kind; `cut` names the kinds that had more than `MOST`."""

    tools: list[t.Tool] = []
    resources: list[t.Resource] = []
    templates: list[t.ResourceTemplate] = []
    prompts: list[t.Prompt] = []
    cut: list[str] = []


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
        entries, complete = await _all(page, member)
        setattr(found, kind, entries)
        if not complete:
            found.cut.append(kind)
    return found


async def find_tool(client: Client, name: str) -> tuple[t.Tool | None, list[str]]:
    """Return the tool of that name, if there is one, and the names of all tools."""
    tools = (await fetch(client, ("tools",))).tools
    return next((tool for tool in tools if tool.name == name), None), [tool.name for tool in tools]


async def _all(page: Callable[[str | None], Awaitable[Any]], member: str) -> tuple[list[Any], bool]:
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
        cursor = None if answer.next_cursor is UNSET else answer.next_cursor
        if cursor is None or cursor in seen:
            return entries[:MOST], len(entries) <= MOST
        seen.add(cursor)
        # A page may be empty, so the number of pages counts as well.
        if len(entries) > MOST or len(seen) > MOST:
            return entries[:MOST], False
