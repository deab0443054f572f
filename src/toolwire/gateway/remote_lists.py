"""The lists of another server: read to their last page, within bounds, and what the server says about them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType, json

from toolwire.client.connection import ClientConnection
from toolwire.client.listing import ListBounds, read_prompts, read_resources, read_templates, read_tools
from toolwire.client.requests import Read, reader
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol import types as t
from toolwire.protocol.apps import audiences, is_view, without_view
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import METHOD_NOT_FOUND, ProtocolError
from toolwire.protocol.lifecycle.negotiation import Agreement
from toolwire.protocol.open_codec import exact_meta, meta_of, replace_members, replace_meta
from toolwire.protocol.rounds import digest
from toolwire.protocol.upstreams import UPSTREAM_KEY, GatewayMark, read_marks, read_upstream
from toolwire.wire.deadlines import CallClock

#: Lists are read again after this many seconds, however long the other server lets others keep them.
LONGEST_SECONDS: Final = 86_400.0
#: A list is read up to this many pages and bytes.
MAX_PAGES: Final = 64
MAX_BYTES: Final = 32 * 1024 * 1024
#: How many entries that cannot be offered are named.
MAX_LEFT_OUT: Final = 100
#: How many names of missing servers are taken from another server.
MAX_NOTES: Final = 100
#: How long the names of servers are that lead back here, as they are logged.
MAX_WAY: Final = 200

#: The families of lists that clients are notified of.
FAMILIES: Final = ("tools", "prompts", "resources")

Item = TypeVar("Item")


class KnownServer(Protocol):
    """A server as its connection, or an earlier one, has shown it."""

    @property
    def agreement(self) -> Agreement:
        """Return the revision and the capabilities that both sides agreed on."""

    @property
    def modern(self) -> bool:
        """Return whether the revision has no sessions."""

    @property
    def callable(self) -> frozenset[str]:
        """Return the methods whose capability the server declared."""


class RemoteLists:
    """The lists of another server, as it sent them."""

    def __init__(self) -> None:
        self.tools: list[t.Tool] = []
        self.prompts: list[t.Prompt] = []
        self.skill_entries: list[Raw] = []
        self.skills: list[t.Skill] = []
        """Those of the entries that keep the rules."""
        self.resources: list[t.Resource] = []
        self.templates: list[t.ResourceTemplate] = []
        self.is_partial: bool = False
        self.missing: list[str] = []
        """The servers behind the other server whose components are missing."""
        self.gateways: list[GatewayMark] = []
        """The marks of the gateways that the lists came through."""
        self.ttl: float | None = None
        """For how many seconds the lists count as fresh; None where the server does not say it."""
        self.is_public: bool = True
        self.left_out: dict[str, str] = {}
        """Why entries cannot be offered, by their names."""
        self.size: int = 0
        """How many bytes were read."""
        self._digest: str | None = None

    def leave_out_circles(self, marks: Collection[str]) -> bool:
        """Leave out what came through a server with one of these marks; return whether that is everything.

        A mark shows who brought it. An upstream of the other server may have copied one that it saw in a list, and
        the entries of the others are not to suffer from that.
        """
        circles = {each.servers for each in self.gateways if each.text in marks}
        if () in circles:
            return True
        if not circles:
            return False

        def is_kept(entry: Any) -> bool:
            return not _is_behind(read_upstream(meta_of(entry)).servers, circles)

        for family in ("tools", "prompts", "resources", "templates", "skills"):
            setattr(self, family, list(filter(is_kept, getattr(self, family))))
        kept = {each.uri for each in self.skills}
        self.skill_entries = [each for each in self.skill_entries if _read_uri(each) in kept]
        self.gateways = [each for each in self.gateways if not _is_behind(each.servers, circles)]
        names = ["/".join(each) for each in circles]
        self.missing = [each for each in self.missing if not any(f"{each}/".startswith(f"{name}/") for name in names)]
        for name in sorted(names)[: MAX_LEFT_OUT - len(self.left_out)]:
            self.left_out[f"{name[:MAX_WAY]}/*"] = "it leads back to this server: the gateways form a circle"
        return False

    def family(self, family: str) -> list[bytes]:
        """Return the JSON of all entries of a family."""
        if family == "resources":
            entries: list[Any] = [*self.resources, *self.templates]
            return [*(t.encode(each) for each in entries), *(bytes(each) for each in self.skill_entries)]
        return [t.encode(each) for each in getattr(self, family)]

    def digest(self) -> str:
        """Return a text that is the same for lists with the same entries."""
        if self._digest is None:
            entries = [[each.decode() for each in self.family(family)] for family in FAMILIES]
            self._digest = digest(json.encode([len(self.resources), entries]).decode())
        return self._digest


class _SkillPage(t.CacheableResult, kw_only=True):
    """One page of `skills/list`. Each entry is read by itself, so that a broken one does not take the others away."""

    skills: list[Raw]
    next_cursor: str | UnsetType | None = UNSET


_read_skills: Final[Read[_SkillPage]] = reader(_SkillPage)


def _read_usable(member: str, type_: type[Any], read: Read[Any], left_out: dict[str, str]) -> Read[Any]:
    """Return a function that reads a page without its broken entries, which it adds to `left_out`."""

    def read_page(raw: Raw) -> Any:
        try:
            return read(raw)
        except (msgspec.DecodeError, ValueError):
            members = _decode_members(raw)
            entries = _decode_entries(members.get(member, b""))
            usable = []
            for number, entry in enumerate(entries):
                try:
                    t.decode(type_, entry)
                except (msgspec.DecodeError, ValueError) as error:
                    if len(left_out) < MAX_LEFT_OUT:
                        left_out[_name_of(entry) or f"{member}[{number}]"] = str(error)
                else:
                    usable.append(entry)
            return read(Raw(msgspec.json.encode({**members, member: usable})))

    return read_page


def _name_of(entry: Raw) -> str:
    try:
        name = _decode_members(entry).get("name", b"")
        return msgspec.json.decode(name, type=str)[:200]
    except msgspec.DecodeError:
        return ""


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_entries = msgspec.json.Decoder(list[Raw]).decode


class _Addressed(msgspec.Struct):
    uri: str


_decode_addressed = msgspec.json.Decoder(_Addressed).decode


async def read_lists(
    log: UpstreamLog,
    connection: ClientConnection,
    before: RemoteLists | None,
    timeout: float | None,
    views: bool = True,
) -> RemoteLists:
    """Read all lists of a server. One that cannot be read is the one in `before`. `views`: views stay in them."""
    before = before or RemoteLists()
    lists = RemoteLists()

    async def read(
        method: str,
        reader: Read[Any],
        entries: Callable[[Any], list[Item]],
        known: list[Item],
        usable: tuple[str, type[Any]] | None = None,
    ) -> list[Item]:
        if usable is not None:
            reader = _read_usable(*usable, reader, lists.left_out)
        try:
            bounds = ListBounds(method, max_bytes=MAX_BYTES)
            found, whole, pages = await _all_pages(log, connection, reader, entries, timeout, bounds)
        except ProtocolError as error:
            if error.code == METHOD_NOT_FOUND:
                # Many servers declare a capability and do not know all methods of it.
                log.debug("it does not know %s", method)
                return []
            log.warning("%s failed: %s", method, error)
            lists.is_partial = True
            return known
        lists.size += bounds.bytes
        meta = pages[0].meta if isinstance(pages[0].meta, dict) else {}
        lists.is_partial = lists.is_partial or not whole
        for page in pages if connection.modern else ():
            ttl = 0.0 if page.ttl_ms is UNSET else min(page.ttl_ms / 1000, LONGEST_SECONDS)
            lists.ttl = ttl if lists.ttl is None else min(lists.ttl, ttl)
            lists.is_public = lists.is_public and page.cache_scope == "public"
        lists.missing = list(dict.fromkeys((*lists.missing, *_texts(meta.get(MISSING_KEY)))))
        lists.gateways = list(dict.fromkeys((*lists.gateways, *read_marks(meta))))
        return found

    if "tools/list" in connection.callable:
        tools = ("tools", t.Tool)
        lists.tools = await read("tools/list", read_tools, lambda page: page.tools, before.tools, tools)
    if "prompts/list" in connection.callable:
        prompts = ("prompts", t.Prompt)
        lists.prompts = await read("prompts/list", read_prompts, lambda page: page.prompts, before.prompts, prompts)
    if "resources/list" in connection.callable:
        resources, templates = ("resources", t.Resource), ("resourceTemplates", t.ResourceTemplate)
        lists.resources = await read(
            "resources/list", read_resources, lambda page: page.resources, before.resources, resources
        )
        lists.templates = await read(
            "resources/templates/list",
            read_templates,
            lambda page: page.resource_templates,
            before.templates,
            templates,
        )
    if t.has_capability(connection.agreement.capabilities, f"extensions.{t.SKILLS_EXTENSION}"):
        from toolwire.gateway.remote_skills import read_entries

        lists.skill_entries = await read("skills/list", _read_skills, lambda page: page.skills, before.skill_entries)
        lists.skills = read_entries(log, lists.skill_entries)
    if not lists.gateways:
        # Only a gateway has upstreams. Nothing else says which one a component belongs to.
        lists.tools = [_without_upstream(each) for each in lists.tools]
        lists.resources = [_without_upstream(each) for each in lists.resources]
        lists.templates = [_without_upstream(each) for each in lists.templates]
        lists.prompts = [_without_upstream(each) for each in lists.prompts]
        lists.skills = [_without_upstream(each) for each in lists.skills]
    return lists if views else _without_views(lists)


def _without_upstream(entry: Item) -> Item:
    """Return an entry of a list without the upstream that it names."""
    wire = cast("t.Wire", entry)
    meta = meta_of(wire)
    if UPSTREAM_KEY not in meta:
        return entry
    return cast("Item", replace_meta(wire, {key: value for key, value in meta.items() if key != UPSTREAM_KEY}))


def _is_behind(servers: tuple[str, ...], ways: Collection[tuple[str, ...]]) -> bool:
    """Return whether one of the ways is the beginning of that over these servers."""
    return any(servers[:length] in ways for length in range(1, len(servers) + 1))


def _read_uri(entry: Raw) -> str | None:
    try:
        return _decode_addressed(entry).uri
    except (msgspec.DecodeError, ValueError):
        return None


def _without_views(lists: RemoteLists) -> RemoteLists:
    """Take the views out of lists, and the tools that are for views alone."""
    lists.tools = [
        replace_members(each, meta=without_view(exact_meta(each)) or UNSET) if isinstance(each.meta, dict) else each
        for each in lists.tools
        if "model" in audiences(each.meta)
    ]
    lists.resources = [each for each in lists.resources if not is_view(each.uri)]
    lists.templates = [each for each in lists.templates if not is_view(each.uri_template)]
    return lists


async def _all_pages(
    log: UpstreamLog,
    connection: ClientConnection,
    read: Read[Any],
    entries: Callable[[Any], list[Item]],
    timeout: float | None,
    bounds: ListBounds,
) -> tuple[list[Item], bool, list[Any]]:
    """Return the entries of a list, whether they are all of them, and its pages."""
    found: list[Item] = []
    cursor: Any = UNSET
    pages: list[Any] = []
    clock = CallClock(timeout, connection.session.deadlines.call_time)
    for _ in range(MAX_PAGES):
        params = t.PaginatedRequestParams(cursor=cursor)
        page = await connection.ask(bounds.method, params, bounds.measuring(read), clock)
        listed = entries(page)
        bounds.count(len(listed))
        found.extend(listed)
        pages.append(page)
        cursor = page.next_cursor
        if cursor is UNSET or cursor is None or bounds.is_repeated(cursor):
            return found, True, pages
    log.warning("%s has more than %d pages; the rest is left out", bounds.method, MAX_PAGES)
    return found, False, pages


def _texts(value: Any) -> list[str]:
    """Return the texts in a member of `_meta` that another server wrote."""
    return [each[:200] for each in value[:MAX_NOTES] if isinstance(each, str)] if isinstance(value, list) else []
