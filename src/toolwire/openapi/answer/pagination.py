"""Pages of lists: the arguments for the next page, and whether there is one.

The names of parameters and members are compared without case and punctuation, because APIs agree on little else.
Nothing is followed by itself. The next call is a hint in the result. With `max_items` the pages are followed inside one
call, up to that number of items.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit

import msgspec
from msgspec import Struct

from toolwire.openapi.access.signing import OutgoingRequest
from toolwire.openapi.answer.left_out import OmittedParts
from toolwire.openapi.calling import ApiExchange
from toolwire.openapi.model import ToolDefinition
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolError

#: How many pages are followed inside one call.
MAX_PAGES: Final = 100

_PAGE: Final = frozenset({"page", "pagenumber", "pageno", "pagenum", "pageindex", "currentpage"})
_OFFSET: Final = frozenset({"offset", "skip", "start", "startindex", "startat", "pageoffset", "firstresult"})
_CURSOR: Final = frozenset(
    {
        "after",
        "aftercursor",
        "continuation",
        "continuationtoken",
        "continue",
        "cursor",
        "marker",
        "nextcursor",
        "nextpagetoken",
        "nexttoken",
        "page",
        "pageafter",
        "pagecursor",
        "pagetoken",
        "scrollid",
        "startafter",
        "startingafter",
    }
)
_LIMIT: Final = frozenset(
    {
        "count",
        "first",
        "limit",
        "maxresults",
        "maxrecords",
        "pagelimit",
        "pagesize",
        "perpage",
        "resultsperpage",
        "rows",
        "size",
        "take",
        "top",
    }
)
# Members of an answer.
_NEXT_URL: Final = frozenset({"next", "nextlink", "odatanextlink", "nexturl", "nexthref", "nextpage", "nextpageurl"})
_NEXT_CURSOR: Final = frozenset(
    {
        "after",
        "continuationtoken",
        "continue",
        "cursor",
        "endcursor",
        "next",
        "nextcursor",
        "nextmarker",
        "nextpage",
        "nextpagecursor",
        "nextpagetoken",
        "nexttoken",
        "scrollid",
    }
)
_HAS_MORE: Final = frozenset({"hasmore", "hasnext", "hasnextpage", "istruncated", "more", "moreavailable", "truncated"})
_IS_LAST: Final = frozenset({"islast", "islastpage", "last", "lastpage", "done", "complete"})
_TOTAL_PAGES: Final = frozenset({"lastpage", "numpages", "pagecount", "pages", "totalpages"})
_TOTAL: Final = frozenset(
    {"numfound", "total", "totalcount", "totalelements", "totalitems", "totalresults", "totalsize"}
)
_NEXT_NUMBER: Final = frozenset({"nextoffset", "nextpage", "nextpagenumber", "nextstart"})
# Members that hold the members above.
_AROUND: Final = frozenset(
    {
        "cursors",
        "links",
        "meta",
        "metadata",
        "page",
        "pageinfo",
        "paging",
        "pagination",
        "responsemetadata",
        "searchmetadata",
    }
)
_ITEMS: Final = (
    "items",
    "data",
    "results",
    "value",
    "values",
    "records",
    "entries",
    "content",
    "rows",
    "objects",
    "elements",
    "hits",
    "nodes",
    "list",
)
_ITEMS_AROUND: Final = frozenset({"data", "embedded", "hits", "response", "result", "results"})
# Members that describe one page, and not the list.
_ABOUT_PAGES: Final = frozenset().union(
    *(
        _PAGE,
        _OFFSET,
        _CURSOR,
        _LIMIT,
        _NEXT_URL,
        _NEXT_CURSOR,
        _HAS_MORE,
        _IS_LAST,
        _TOTAL_PAGES,
        _TOTAL,
        _NEXT_NUMBER,
    ),
    ("hasprev", "hasprevious", "hasprevpage", "haspreviouspage", "prev", "prevcursor", "prevpage", "previous"),
    ("previouscursor", "previouspage", "self", "startcursor"),
)
_MERGED_DEPTH: Final = 16
# RFC 8288 section 3. A parameter may be quoted or not, and `rel` may name several relations.
_LINK: Final = re.compile(r"<([^<>]*)>((?:\s*;\s*[\w*!#$&+.^`|~-]+(?:\s*=\s*(?:\"[^\"]*\"|[^\s;,\"]*))?)*)")
_REL: Final = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]*))", re.IGNORECASE)
# No header of pages is longer.
_MAX_LINK: Final = 16_384
_MAX_NAME: Final = 40
_OTHERS: Final = re.compile(r"[^a-z0-9]")


def _plain(name: str) -> str:
    """Return a name without case and punctuation; empty for a very long one."""
    return _known_plain(name) if len(name) <= _MAX_NAME else ""


@lru_cache(maxsize=1024)
def _known_plain(name: str) -> str:
    return _OTHERS.sub("", name.lower())


class NextPage(Struct, frozen=True):
    """The page behind the one that came."""

    arguments: Mapping[str, Any] | None = None
    """The arguments that differ from those of this call; None where the arguments of the tool cannot say it."""
    url: str | None = None
    """Its address, where the API names it."""
    is_certain: bool = True
    """Whether the API says that there is one."""


class PageItems(NamedTuple):
    """The list in an answer, and the way to it."""

    way: tuple[str, ...]
    values: list[Any]


class Pagination(Struct, frozen=True):
    """The arguments with which one operation is paged."""

    page: str | None = None
    offset: str | None = None
    cursor: str | None = None
    limit: str | None = None
    query: Mapping[str, str] = {}
    """The arguments by the names of their query parameters."""
    schemas: Mapping[str, Any] = {}

    @classmethod
    def from_definition(cls, definition: ToolDefinition) -> Pagination:
        """Find the paging arguments of a tool."""
        schemas = definition.input_schema.get("properties", {})
        numbers = {_plain(each.name): each.name for each in definition.arguments if _is_number(schemas, each.name)}
        texts = {_plain(each.name): each.name for each in definition.arguments if each.name not in numbers.values()}

        def named(names: frozenset[str], among: Mapping[str, str]) -> str | None:
            return next((argument for plain, argument in among.items() if plain in names), None)

        return cls(
            page=named(_PAGE, numbers),
            offset=named(_OFFSET, numbers),
            cursor=named(_CURSOR, texts) or named(_CURSOR - _PAGE, numbers),
            limit=named(_LIMIT, numbers),
            query={
                each.parameter.name: each.name
                for each in definition.arguments
                if each.parameter is not None and each.parameter.location == "query"
            },
            schemas=schemas,
        )

    def next_page(self, arguments: Mapping[str, Any], value: Any, link: str | None, url: str) -> NextPage | None:
        """Return the next page that an answer promises; None where there is none.

        `link` is the header `Link`, and `url` is the address of the request.
        """
        following = next_link(link, url) or _next_url(value, url)
        if following is not None:
            return NextPage(self._arguments_of(following, url), following)
        found = items_in(value)
        if found is None or not found.values:
            # An empty page is the last one, unless a cursor says otherwise.
            return self._by_cursor(value, None)
        return self._by_cursor(value, found.values) or self._by_number(arguments, value, found.values)

    # --- addresses ---

    def _arguments_of(self, following: str, url: str) -> dict[str, Any] | None:
        """Return the arguments that lead to an address.

        None where more than known arguments differ.
        """
        there, here = urlsplit(following), urlsplit(url)
        if (there.scheme, there.netloc, there.path) != (here.scheme, here.netloc, here.path):
            return None
        sent = parse_qsl(here.query, keep_blank_values=True)
        changed = [pair for pair in parse_qsl(there.query, keep_blank_values=True) if pair not in sent]
        names = [name for name, _ in changed]
        if not changed or len(set(names)) < len(names) or any(name not in self.query for name in names):
            return None
        return {self.query[name]: self._typed(self.query[name], text) for name, text in changed}

    def _typed(self, argument: str, text: str) -> Any:
        is_number = _is_number(self.schemas, argument) and text.isascii() and text.isdecimal() and len(text) < 16
        return int(text) if is_number else text

    # --- cursors ---

    def _by_cursor(self, value: Any, items: list[Any] | None) -> NextPage | None:
        if self.cursor is None or _says_more(value) is False:
            return None
        for member in _members(value, _NEXT_CURSOR):
            if (isinstance(member, str) and member) or (type(member) is int and member):
                typed = self._typed(self.cursor, member) if isinstance(member, str) else str(member)
                return NextPage({self.cursor: typed})
        last = items[-1] if items else None
        if _says_more(value) and isinstance(last, dict) and isinstance(last.get("id"), str | int):
            return NextPage({self.cursor: last["id"]})
        return None

    # --- numbers ---

    def _by_number(self, arguments: Mapping[str, Any], value: Any, items: list[Any]) -> NextPage | None:
        argument = self.page or self.offset
        if argument is None:
            return None
        is_page = self.page is not None
        first = self._first(argument, is_page)
        current = arguments.get(argument, first)
        if type(current) is not int:
            return None
        limit = None if self.limit is None else arguments.get(self.limit, self._default(self.limit))
        size = limit if type(limit) is int and limit > 0 else None
        more = _says_more(value)
        if more is None:
            before = (current - first) * (size or len(items)) if is_page else current
            more = _is_before_the_end(value, current - first + 1 if is_page else None, before + len(items))
        if more is None and size is not None:
            more = len(items) >= size
        if more is False:
            return None
        told = next((each for each in _members(value, _NEXT_NUMBER) if type(each) is int and each > current), None)
        following = told or (current + 1 if is_page else current + len(items))
        return NextPage({argument: following}, is_certain=more is True)

    def _first(self, argument: str, is_page: bool) -> int:
        """Return the number of the first page: one, unless the schema says zero."""
        default = self._default(argument)
        schema = self.schemas.get(argument)
        is_from_zero = not is_page or (isinstance(schema, dict) and schema.get("minimum") == 0)
        return default if default is not None else 0 if is_from_zero else 1

    def _default(self, argument: str) -> int | None:
        schema = self.schemas.get(argument)
        default = schema.get("default") if isinstance(schema, dict) else None
        return default if type(default) is int else None


def _is_number(schemas: Mapping[str, Any], name: str) -> bool:
    schema = schemas.get(name)
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind in ("integer", "number") or (isinstance(kind, list) and ("integer" in kind or "number" in kind))


# --- what an answer says ----------------------------------------------------------------------------------------------


def next_link(header: str | None, url: str) -> str | None:
    """Return the address of the `next` link in a `Link` header (RFC 8288), or None."""
    if header is None or "next" not in header:
        return None
    for link in _LINK.finditer(header[:_MAX_LINK]):
        rel = _REL.search(link[2])
        if rel is not None and "next" in (rel[1] or rel[2] or "").lower().split():
            return join_link(url, link[1])
    return None


def join_link(url: str, reference: str) -> str | None:
    """Return the HTTP URL of a link in an answer; None for any other link."""
    try:
        joined = urljoin(url, reference.strip())
        return joined if urlsplit(joined).scheme in ("http", "https") else None
    except ValueError:
        return None


def _next_url(value: Any, url: str) -> str | None:
    for member in _members(value, _NEXT_URL):
        if isinstance(member, dict):
            member = member.get("href") or member.get("url")
        if isinstance(member, str) and member.startswith(("http://", "https://", "/", "?")):
            return join_link(url, member)
    return None


def _members(value: Any, names: frozenset[str]) -> Iterator[Any]:
    """Yield the members with these names, in the answer and its objects about pages."""
    if not isinstance(value, dict):
        return
    inner: list[Any] = [value]
    for _ in range(3):
        following: list[Any] = []
        for each in inner:
            for name, member in each.items():
                plain = _plain(name)
                if plain in names and member is not None:
                    yield member
                if plain in _AROUND and isinstance(member, dict):
                    following.append(member)
        inner = following


def _says_more(value: Any) -> bool | None:
    """Return whether the API says that more follows; None where it says nothing."""
    for member in _members(value, _HAS_MORE):
        if isinstance(member, bool):
            return member
    for member in _members(value, _IS_LAST):
        if isinstance(member, bool):
            return not member
    return None


def _is_before_the_end(value: Any, pages: int | None, seen: int) -> bool | None:
    """Return whether more follows, by the totals of an answer; None without totals."""
    for member in _members(value, _TOTAL_PAGES) if pages is not None else ():
        if type(member) is int and pages is not None:
            return pages < member
    totals = [member for member in _members(value, _TOTAL) if type(member) is int]
    return seen < max(totals) if totals else None


def total_in(value: Any) -> int | None:
    """Return how many items there are altogether, where an answer says it."""
    totals = [member for member in _members(value, _TOTAL) if type(member) is int and member >= 0]
    return max(totals) if totals else None


def items_in(value: Any, depth: int = 0) -> PageItems | None:
    """Return the list of an answer; None without one, or with several candidates."""
    if isinstance(value, list):
        return PageItems((), value)
    if not isinstance(value, dict) or depth > 2:
        return None
    lists = {name: member for name, member in value.items() if isinstance(member, list)}
    for wanted in _ITEMS:
        for name, member in lists.items():
            if _plain(name) == wanted:
                return PageItems((name,), member)
    if len(lists) == 1:
        return next(PageItems((name,), member) for name, member in lists.items())
    for name, member in value.items():
        if _plain(name) in _ITEMS_AROUND and (found := items_in(member, depth + 1)) is not None:
            return PageItems((name, *found.way), found.values)
    return None


def with_items(value: Any, way: tuple[str, ...], values: list[Any]) -> Any:
    """Return an answer with other items in its list."""
    if not way:
        return values
    return {**value, way[0]: with_items(value[way[0]], way[1:], values)}


def hint(following: NextPage, tool: str) -> t.TextContent:
    """Say how the model gets the next page."""
    if following.arguments is None:
        # The address itself may hold a credential of the API, so it is not shown.
        return t.TextContent(
            f"[There are more items than this page has. No argument of {tool} leads to the next page.]"
        )
    more = "There are more items." if following.is_certain else "There may be more items."
    given = msgspec.json.encode(following.arguments).decode(errors="replace")
    return t.TextContent(f"[{more} The next page: call {tool} with the same arguments and {given}.]")


# --- following --------------------------------------------------------------------------------------------------------


class FollowedPages(NamedTuple):
    """The items of several pages in one answer."""

    value: Any
    """The last page, with the items of all pages, and with what earlier pages have beside them."""
    following: NextPage | None
    stopped: str | None
    """Why it ended, where neither the pages nor the number of items did."""
    left_out: OmittedParts
    """The members of earlier pages that the last page has with another value."""


def merge_pages(
    before: Any, page: Any, way: tuple[str, ...], left_out: OmittedParts, path: tuple[str, ...] = ()
) -> Any:
    """Return a page with the members of the pages before it that it lacks.

    Lists are joined and objects merged. `way` leads to the items, which the caller joins. Members about pages, such as
    a cursor, are those of the last page. `left_out` gets any other member that has two values.
    """
    if not isinstance(before, dict) or not isinstance(page, dict):
        return page
    is_about_pages = not path or bool(way) or _plain(path[-1]) in _AROUND
    merged = dict(page)
    for name, member in before.items():
        plain = _plain(name)
        here = (*path, name)
        if way and name == way[0]:
            merged[name] = merge_pages(member, page.get(name), way[1:], left_out, here)
        elif is_about_pages and plain in _ABOUT_PAGES and not isinstance(member, list | dict):
            continue
        elif name not in page:
            if not (is_about_pages and plain in _ABOUT_PAGES | _AROUND):
                merged[name] = member
        elif page[name] == member:
            continue
        elif isinstance(member, list) and isinstance(page[name], list):
            merged[name] = [*member, *page[name]]
        elif isinstance(member, dict) and isinstance(page[name], dict) and len(path) < _MERGED_DEPTH:
            merged[name] = merge_pages(member, page[name], (), left_out, here)
        else:
            left_out.add(here)
    return merged


async def follow(
    exchange: ApiExchange, pagination: Pagination, value: Any, following: NextPage, max_items: int, max_bytes: int
) -> FollowedPages:
    """Fetch the next pages, each as progress, up to `max_items` items.

    A page is taken as a whole or not at all, so that the next call begins behind the last item.
    """
    call = exchange.call
    found = items_in(value)
    collected = [] if found is None else list(found.values)
    arguments = exchange.arguments
    seen: set[bytes] = set()
    size = longest = 0.0
    left_out = OmittedParts()

    def end(following: NextPage | None, stopped: str | None) -> FollowedPages:
        return FollowedPages(
            value if found is None else with_items(value, found.way, collected), following, stopped, left_out
        )

    ahead: NextPage | None = following
    while found is not None and ahead is not None and len(collected) + len(found.values) <= max_items:
        key = msgspec.json.encode((ahead.url, ahead.arguments))
        if key in seen or len(seen) >= MAX_PAGES:
            return end(None, "the pages do not end")
        seen.add(key)
        spare = call.spare_time
        if spare is not None and spare <= longest:
            return end(ahead, "the time of the call is nearly over")
        if ahead.arguments is not None:
            arguments = {**arguments, **ahead.arguments}
            request = exchange.build(arguments)
        elif ahead.url is not None and exchange.operation.method == "GET":
            request = OutgoingRequest(method="GET", url=ahead.url, headers=dict(exchange.build(arguments).headers))
        else:
            break
        began = monotonic()
        page, data, failure = await _page(exchange, request, spare, max_bytes)
        longest = max(longest, monotonic() - began)
        more = items_in(page)
        if failure is not None or more is None or more.way != found.way:
            return end(ahead, failure or "the next page has no list")
        collected += more.values
        value, found, size = merge_pages(value, page, found.way, left_out), more, size + len(data)
        call.tell_progress(len(collected), total_in(page), f"{len(collected)} items")
        ahead = pagination.next_page(arguments, page, exchange.answer.header("link"), exchange.request.url)
        if size > max_bytes:
            return end(ahead, f"the pages have {max_bytes:,} bytes")
    return end(ahead, None)


async def _page(
    exchange: ApiExchange, request: OutgoingRequest, spare: float | None, max_bytes: int
) -> tuple[Any, bytes, str | None]:
    """Get a page: its value, its bytes, and why there is none."""
    try:
        async with asyncio.timeout(spare):
            answer = await exchange.send(request)
            data, is_whole = await exchange.read(max_bytes)
    except (ToolError, TimeoutError) as error:
        return None, b"", "the time of the call is nearly over" if isinstance(error, TimeoutError) else str(error)
    if answer.status != 200:
        return None, b"", f"the next page was answered with {answer.status}"
    try:
        return msgspec.json.decode(data), data, None if is_whole else f"the next page has more than {max_bytes:,} bytes"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, b"", "the next page is not JSON, or is too large"
