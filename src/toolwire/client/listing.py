"""Lists of a server: page by page, or all pages within limits that no honest server reaches."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol, TypeVar

from msgspec import UNSET, Raw, UnsetType

from toolwire.client.errors import InvalidResponse
from toolwire.client.requests import Read, RequestSender, reader
from toolwire.client.tools import one_of_each, with_valid_headers
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


class TaskPage(t.Result, kw_only=True):
    """One page of `tasks/list` (2025-11-25)."""

    tasks: list[t.Task]
    next_cursor: str | UnsetType | None = UNSET


#: How the pages of each list are read, and the entries of a page.
_LISTS: Final[dict[str, tuple[Read[Any], Callable[[Any], list[Any]]]]] = {
    "tools/list": (read_tools, lambda page: page.tools),
    "resources/list": (read_resources, lambda page: page.resources),
    "resources/templates/list": (read_templates, lambda page: page.resource_templates),
    "prompts/list": (read_prompts, lambda page: page.prompts),
    "tasks/list": (reader(TaskPage), lambda page: page.tasks),
}


class Lists:
    """Reads the lists of a server, whole or page by page."""

    def __init__(self, sender: RequestSender) -> None:
        self._sender = sender

    async def read(self, method: str, timeout: float | None) -> list[Any]:
        """Return all entries of a list."""
        read, entries = _LISTS[method]
        return [entry async for page in self.pages(method, read, timeout, entries) for entry in entries(page)]

    async def read_page(self, method: str, cursor: str | None, timeout: float | None) -> Any:
        """Return one page of a list as the server has it."""
        return await self._sender.ask(method, _page(cursor), _LISTS[method][0], timeout=timeout)

    async def pages(
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
        clock = self._sender.start_clock(timeout)
        while True:
            page = await self._sender.ask(method, _page(cursor), bounds.measuring(read), clock=clock)
            bounds.count(len(entries(page)))
            yield page
            cursor = _next_cursor(page)
            if cursor is None:
                return
            if bounds.is_repeated(cursor):
                log.warning("the server repeated a cursor; the listing ends here")
                return

    def remove_unusable(self, page: R) -> R:
        """Take the tools out of a page that this client cannot call."""
        if isinstance(page, t.ListToolsResult):
            page.tools = one_of_each(page.tools)
            if self._sender.connector.current().repeats_arguments:
                page.tools = with_valid_headers(page.tools)
        return page


class Listing(Protocol):
    """A client that lists."""

    @property
    def _lists(self) -> Lists: ...


async def follow_pages(client: Listing, bounds: ListBounds) -> AsyncIterator[tuple[list[Any], Any]]:
    """Yield the entries and the `_meta` of every page of a list, within the client's time limit."""
    read, entries = _LISTS[bounds.method]
    async for page in client._lists.pages(bounds.method, read, None, entries, bounds):
        usable = client._lists.remove_unusable(page)
        yield entries(usable), usable.meta


async def follow_raw_pages(client: Listing, bounds: ListBounds, member: str) -> AsyncIterator[list[Any]]:
    """Yield the entries of every page of a list as the server sent them, broken ones too."""

    def entries(page: _AnyPage) -> list[Any]:
        found = page.extra.get(member)
        return found if isinstance(found, list) else []

    async for page in client._lists.pages(bounds.method, _read_any, None, entries, bounds):
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
