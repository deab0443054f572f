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
Page = TypeVar("Page", t.ListToolsResult, t.ListResourcesResult, t.ListResourceTemplatesResult, t.ListPromptsResult)


read_tools: Read[t.ListToolsResult] = reader(t.ListToolsResult)
read_resources: Read[t.ListResourcesResult] = reader(t.ListResourcesResult)
read_templates: Read[t.ListResourceTemplatesResult] = reader(t.ListResourceTemplatesResult)
read_prompts: Read[t.ListPromptsResult] = reader(t.ListPromptsResult)


class Lists(Requests):
    """The part of a client that lists."""

    async def list_resources(self, *, timeout: float | None = None) -> list[t.Resource]:
        pages = self._pages("resources/list", read_resources, timeout, lambda page: page.resources)
        return [resource async for page in pages for resource in page]

    async def list_resources_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListResourcesResult:
        return await self._ask("resources/list", _page(cursor), read_resources, timeout=timeout)

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[t.ResourceTemplate]:
        pages = self._pages("resources/templates/list", read_templates, timeout, lambda page: page.resource_templates)
        return [template async for page in pages for template in page]

    async def list_resource_templates_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListResourceTemplatesResult:
        return await self._ask("resources/templates/list", _page(cursor), read_templates, timeout=timeout)

    async def list_prompts(self, *, timeout: float | None = None) -> list[t.Prompt]:
        pages = self._pages("prompts/list", read_prompts, timeout, lambda page: page.prompts)
        return [prompt async for page in pages for prompt in page]

    async def list_prompts_page(
        self, cursor: str | None = None, *, timeout: float | None = None
    ) -> t.ListPromptsResult:
        return await self._ask("prompts/list", _page(cursor), read_prompts, timeout=timeout)

    async def _all_tools(self, timeout: float | None) -> list[t.Tool]:
        pages = self._pages("tools/list", read_tools, timeout, lambda page: page.tools)
        return [tool async for page in pages for tool in page]

    async def _tools_page(self, cursor: str | None, timeout: float | None) -> t.ListToolsResult:
        return await self._ask("tools/list", _page(cursor), read_tools, timeout=timeout)

    async def _pages(
        self, method: str, read: Read[Page], timeout: float | None, entries: Callable[[Page], list[Any]]
    ) -> AsyncIterator[list[Any]]:
        """Yield the entries of every page. Only an absent cursor ends a list, "" is a cursor like any other (PAG-1)."""
        bounds = ListBounds(method)
        cursor: str | None = None
        clock = self._clock(timeout)
        while True:
            page = await self._ask(method, _page(cursor), bounds.measuring(read), clock=clock)
            found = entries(page)
            bounds.count(len(found))
            yield found
            cursor = None if page.next_cursor is UNSET else page.next_cursor
            if cursor is None:
                return
            if bounds.is_repeated(cursor):
                log.warning("the server repeated a cursor; the listing ends here")
                return


def _page(cursor: str | None) -> t.PaginatedRequestParams:
    return t.PaginatedRequestParams(cursor=UNSET if cursor is None else cursor)


class ListBounds:
    """A count of the pages, entries and bytes of one list."""

    def __init__(self, method: str, *, max_bytes: int | None = None) -> None:
        self._method = method
        self._max_bytes = MAX_BYTES if max_bytes is None else max_bytes
        self._pages = self._entries = self._bytes = 0
        self._cursors: set[str] = set()

    def measuring(self, read: Read[R]) -> Read[R]:
        def measured(raw: Raw) -> R:
            self.add_bytes(memoryview(raw).nbytes)
            return read(raw)

        return measured

    def add_bytes(self, size: int) -> None:
        self._bytes += size
        self._check(self._bytes, self._max_bytes, "bytes")

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
            raise InvalidResponse(f"{self._method} gave more than {limit} {what}")
