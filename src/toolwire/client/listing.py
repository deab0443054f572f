"""Lists of a server: page by page, or all pages within limits that no honest server reaches."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from msgspec import UNSET, Raw

from toolwire.client.errors import InvalidResponse
from toolwire.client.requests import Read, Requests, reader
from toolwire.protocol import types as t

log: logging.Logger = logging.getLogger("toolwire.client")

#: A list with more pages, entries or bytes than this is an error.
MAX_PAGES: Final = 1_000
MAX_ENTRIES: Final = 50_000
MAX_BYTES: Final = 256 * 1024 * 1024

R = TypeVar("R", bound=t.Result)

read_tools: Read[t.ListToolsResult] = reader(t.ListToolsResult)
read_resources: Read[t.ListResourcesResult] = reader(t.ListResourcesResult)
read_templates: Read[t.ListResourceTemplatesResult] = reader(t.ListResourceTemplatesResult)
read_prompts: Read[t.ListPromptsResult] = reader(t.ListPromptsResult)


#: How the pages of each list are read, and the entries of a page.
_LISTS: Final[dict[str, tuple[Read[Any], Callable[[Any], list[Any]]]]] = {
    "tools/list": (read_tools, lambda page: page.tools),
    "resources/list": (read_resources, lambda page: page.resources),
    "resources/templates/list": (read_templates, lambda page: page.resource_templates),
    "prompts/list": (read_prompts, lambda page: page.prompts),
}


class Lists(Requests):
    """The part of a client that lists."""

    async def list_resources(self, *, timeout: float | None = None) -> list[t.Resource]:
        return await self._all("resources/list", timeout)

    async def list_resources_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListResourcesResult:
        return await self._ask("resources/list", _page(cursor), read_resources, timeout=timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[t.ResourceTemplate]:
        return await self._all("resources/templates/list", timeout)

    async def list_resource_templates_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListResourceTemplatesResult:
        return await self._ask("resources/templates/list", _page(cursor), read_templates, timeout=timeout)

    async def list_prompts(self, *, timeout: float | None = None) -> list[t.Prompt]:
        return await self._all("prompts/list", timeout)

    async def list_prompts_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListPromptsResult:
        return await self._ask("prompts/list", _page(cursor), read_prompts, timeout=timeout)

    async def _all_tools(self, timeout: float | None) -> list[t.Tool]:
        return await self._all("tools/list", timeout)

    async def _tools_page(self, cursor: str | None, timeout: float | None) -> t.ListToolsResult:
        return await self._ask("tools/list", _page(cursor), read_tools, timeout=timeout)

    async def _all(self, method: str, timeout: float | None) -> list[Any]:
        read, entries = _LISTS[method]
        return [entry async for page in self._pages(method, read, timeout, entries) for entry in entries(page)]

    async def _pages(
        self,
        method: str,
        read: Read[R],
        timeout: float | None,
        entries: Callable[[R], list[Any]],
        bounds: ListBounds | None = None,
    ) -> AsyncIterator[R]:
        """Yield every page of a list, within its bounds and one time limit.

        Only an absent cursor ends a list, "" is a cursor like any other (PAG-1).
        """
        bounds = ListBounds(method) if bounds is None else bounds
        cursor: str | None = None
        clock = self._clock(timeout)
        while True:
            page = await self._ask(method, _page(cursor), bounds.measuring(read), clock=clock)
            bounds.count(len(entries(page)))
            yield page
            cursor = _next_cursor(page)
            if cursor is None:
                return
            if bounds.is_repeated(cursor):
                log.warning("the server repeated a cursor; the listing ends here")
                return

    def _clean_page(self, page: R) -> R:
        """Return a page without the entries that this client cannot use."""
        return page


async def follow_pages(client: Lists, bounds: ListBounds) -> AsyncIterator[tuple[list[Any], Any]]:
    """Yield the entries and the `_meta` of every page of a list, within the client's time limit."""
    read, entries = _LISTS[bounds.method]
    async for page in client._pages(bounds.method, read, None, entries, bounds):
        usable = client._clean_page(page)
        yield entries(usable), usable.meta


async def follow_raw_pages(client: Lists, bounds: ListBounds, member: str) -> AsyncIterator[list[Any]]:
    """Yield the entries of every page of a list as the server sent them, broken ones too."""

    def entries(page: _AnyPage) -> list[Any]:
        found = page.extra.get(member)
        return found if isinstance(found, list) else []

    async for page in client._pages(bounds.method, _read_any, None, entries, bounds):
        yield entries(page)


class _AnyPage(t.Result, kw_only=True):
    """A page whose members may have any form."""

    next_cursor: Any = UNSET


_read_any: Final[Read[_AnyPage]] = reader(_AnyPage)


def _next_cursor(page: Any) -> str | None:
    return page.next_cursor if isinstance(page.next_cursor, str) else None


def _page(cursor: str | None) -> t.PaginatedRequestParams:
    return t.PaginatedRequestParams(cursor=UNSET if cursor is None else cursor)


class ListBounds:
    """A count of the pages, entries and bytes of one list."""

    def __init__(self, method: str, *, max_bytes: int | None = None) -> None:
        self.method: str = method
        self._max_bytes = MAX_BYTES if max_bytes is None else max_bytes
        self._pages = self._entries = 0
        self.bytes: int = 0
        self._cursors: set[str] = set()

    def measuring(self, read: Read[R]) -> Read[R]:
        def measured(raw: Raw) -> R:
            self.add_bytes(memoryview(raw).nbytes)
            return read(raw)

        return measured

    def add_bytes(self, size: int) -> None:
        self.bytes += size
        self._check(self.bytes, self._max_bytes, "bytes")

    def count(self, entries: int) -> None:
        self._pages += 1
        self._entries += entries
        self._check(self._entries, MAX_ENTRIES, "entries")

    def is_repeated(self, cursor: str) -> bool:
        self._check(self._pages + 1, MAX_PAGES, "pages")
        repeated = cursor in self._cursors
        self._cursors.add(cursor)
        return repeated

    def _check(self, reached: int, limit: int, what: str) -> None:
        if reached > limit:
            raise InvalidResponse(f"{self.method} gave more than {limit} {what}")
