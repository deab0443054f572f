"""The methods of the skills extension on a server: `skills/list`, `skills/get`, `resources/directory/read`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple, cast
from weakref import WeakKeyDictionary

from msgspec import UNSET, Raw

from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.cursors import decode_cursor, encode_cursor, page
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError
from toolwire.protocol.revisions import CARRY_EXTENSIONS
from toolwire.protocol.surrogates import encode_readable
from toolwire.server.access import View
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components import Cache
from toolwire.server.context import Context
from toolwire.server.context.context import call_of
from toolwire.server.extensions import Extension
from toolwire.server.kernel import Kernel
from toolwire.server.upstream_views import list_notes, with_upstream
from toolwire.skills.component import SkillComponent
from toolwire.util.expiring import Expiring

#: An entry with 512 files has about 80 KB, so a page is bounded by bytes as well as by entries.
MAX_PAGE_ENTRIES: Final = 100
MAX_PAGE_BYTES: Final = 256 * 1024
#: Orders of skills that are kept: one for each permission set, and the previous ones for clients between two pages.
MAX_ORDERS: Final = 64

NO_SKILL: Final = "No skill is served at this URI"


class SkillsExtension(Extension):
    """The skills extension of one server, which serves the skills of mounted servers, too."""

    def __init__(self, catalog: Catalog, settings: Mapping[str, Any] | None = None, *, is_remote: bool = False) -> None:
        super().__init__(
            t.SKILLS_EXTENSION,
            {"directoryRead": True} if settings is None else settings,
            # Clause "Capability Negotiation": a client calls after it saw the declaration, and declares nothing itself.
            needs_client=False,
            revisions=CARRY_EXTENSIONS,
            # The same clause: the server must declare resources as well.
            families=("resources",),
            catalog=catalog,
            is_shared=True,
            is_remote=is_remote,
        )
        self.page_size: int = MAX_PAGE_ENTRIES
        self._lists: WeakKeyDictionary[Any, _Lists] = WeakKeyDictionary()

    def register(self) -> None:
        """Register the methods."""
        self.method("skills/list", params=t.ListSkillsRequestParams)(self._list)
        self.method("skills/get", params=t.GetSkillRequestParams)(self._get)
        self.method("resources/directory/read", params=t.ReadResourceDirectoryRequestParams)(self._directory)

    # --- skills/list ---

    async def _list(self, params: t.ListSkillsRequestParams, ctx: Context) -> Any:
        call = call_of(ctx)
        kernel: Kernel = cast("Kernel", call.host)
        if kernel.catalog.followers:
            await kernel.methods.follow(call)
        view = kernel.methods.view(call)
        lists = self._lists.get(kernel)
        if lists is None:
            lists = self._lists[kernel] = _Lists(kernel.catalog)
        order, after = lists.start(params.cursor or None, view)
        order.set_notes(list_notes(kernel.catalog, view))
        key = (call.revision, after)
        is_read = kernel.methods.results_are_read or _passes_middleware(kernel.catalog)
        encoded = order.pages.get(key)
        if encoded is not None and not is_read:
            return encoded
        names, following = order.page(after, self.page_size)
        result = t.ListSkillsResult(
            skills=[order.skills[name].entry for name in names],
            next_cursor=UNSET if following is None else encode_cursor("skills", f"{order.digest} {following}"),
            meta=dict(order.notes) or UNSET,
        )
        _hint(result, [order.skills[name].cache for name in names], is_private=view is not None)
        if is_read:
            return result
        encoded = Raw(encode_readable(kernel.results.finish(call.revision, result)))
        # Anybody can invent cursors. Only pages that follow one another from the first page are kept.
        if after in order.ends:
            order.pages[key] = encoded
            order.ends.add(following)
        return encoded

    # --- skills/get ---

    async def _get(self, params: t.GetSkillRequestParams, ctx: Context) -> Any:
        call = call_of(ctx)
        kernel: Kernel = cast("Kernel", call.host)
        found = kernel.catalog.all("skills", kernel.methods.view(call)).get(params.uri)
        if found is None:
            elsewhere = await _unlisted(kernel.catalog, call, params.uri)
            if elsewhere is not None:
                return elsewhere
            # The same for a skill that the caller does not see.
            raise ProtocolError(INVALID_PARAMS, NO_SKILL, {"uri": params.uri[:200]})
        fetched = await cast("SkillComponent", found.component).fetch_entry(call)
        if fetched is not None:
            return fetched
        result = t.GetSkillResult(skill=found.component.entry)
        _hint(result, [found.component.cache], is_private=kernel.methods.depends_on_caller(found))
        return result

    # --- resources/directory/read ---

    async def _directory(self, params: t.ReadResourceDirectoryRequestParams, ctx: Context) -> Any:
        call = call_of(ctx)
        kernel: Kernel = cast("Kernel", call.host)
        uri = params.uri
        view = kernel.methods.view(call)
        skill = kernel.catalog.resource(uri, None if view is None else view.sees)
        children: dict[str, t.Resource] | None = None
        if skill is not None and isinstance(skill.component, SkillComponent):
            answer = await skill.component.read_directory(call, uri)
            if answer is not None:
                return answer
            children = skill.component.children(uri, skill.owner.catalog.skill_set.skills, call.revision)
        if skill is None or children is None:
            raise ProtocolError(INVALID_PARAMS, "No directory is served at this URI", {"uri": uri[:200]})
        try:
            after = None if not params.cursor else decode_cursor(params.cursor, "directory")
        except ValueError:
            raise ProtocolError(INVALID_PARAMS, "Unknown cursor; start again without one") from None
        names, following = page(sorted(children), after, kernel.methods.pages.size)
        result = t.ReadResourceDirectoryResult(
            resources=[children[name] for name in names],
            next_cursor=UNSET if following is None else encode_cursor("directory", following),
        )
        _hint(result, [skill.component.cache], is_private=kernel.methods.depends_on_caller(skill))
        return result


class _Lists:
    """The ordered lists of skills, one for each permission set."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._orders: Expiring[tuple[Hashable, str], _Order] = Expiring(MAX_ORDERS)
        self._current: Expiring[Hashable, tuple[int, _Order]] = Expiring(MAX_ORDERS)

    def start(self, cursor: str | None, view: View | None) -> tuple[_Order, str | None]:
        """Return the list to page through, and the URI after which the page begins.

        A client between two pages stays with the list of its first page, so that all pages are of one generation.
        """
        admitted = None if view is None else view.admitted
        current = self._order(view, admitted)
        if cursor is None:
            return current, None
        try:
            digest, _, after = decode_cursor(cursor, "skills").partition(" ")
        except ValueError:
            raise ProtocolError(INVALID_PARAMS, "Unknown cursor; start again without one") from None
        return self._orders.get((admitted, digest), current), after

    def _order(self, view: View | None, admitted: Hashable) -> _Order:
        version = self._catalog.version
        known = self._current.get(admitted)
        if known is not None and known[0] == version:
            return known[1]
        found = self._catalog.all("skills", view)
        skills = {uri: found[uri] for uri in self._catalog.listed("skills", view) if uri in found}
        order = _Order({uri: _Listed.from_found(each) for uri, each in skills.items() if _skill(each).is_listed})
        kept = self._orders.get((admitted, order.digest))
        if kept is None:
            self._orders.put((admitted, order.digest), order)
        else:
            order = kept
        self._current.put(admitted, (version, order))
        return order


async def _unlisted(catalog: Catalog, call: Call, uri: str) -> Any | None:
    """Fetch an unlisted skill from the upstreams; None if none has it."""
    usable = cast("Kernel", call.host).methods.usable(call)
    for source in dict.fromkeys(catalog.skill_sources(uri, usable)):
        answer = await source.get_skill(call, uri)
        if answer is not None:
            return answer
    return None


class _Listed(NamedTuple):
    """A skill in a list.

    It has no files, because lists outlive the generation of skills that they are made of.
    """

    entry: t.Skill
    encoded_size: int
    fingerprint: str
    cache: Cache | None

    @classmethod
    def from_found(cls, found: Found[Any]) -> _Listed:
        skill = _skill(found)
        entry: t.Skill = with_upstream(skill.entry, found)
        if entry is skill.entry:
            return cls(entry, skill.encoded_size, skill.fingerprint, skill.cache)
        encoded = t.encode(entry)
        return cls(entry, len(encoded), rules.digest_of(encoded), skill.cache)


def _skill(found: Found[Any]) -> SkillComponent:
    return cast("SkillComponent", found.component)


class _Order:
    """The skills that one permission set sees, ordered by URI, and their pages."""

    def __init__(self, skills: dict[str, _Listed]) -> None:
        self.skills = skills
        self.keys: list[str] = sorted(skills)
        parts = [skills[key].fingerprint for key in self.keys]
        # The same in every process that has the same skills, so that any replica can continue a list.
        self.digest: str = rules.digest_of(" ".join(parts).encode())[7:39]
        self.pages: dict[tuple[str, str | None], Raw] = {}
        self.ends: set[str | None] = {None}
        self.notes: Mapping[str, Any] = {}
        """Members of `_meta` of the lists, such as the names of the servers whose skills are missing."""

    def set_notes(self, notes: Mapping[str, Any]) -> None:
        """Say this in `_meta` of the pages from now on."""
        if notes != self.notes:
            self.notes = notes
            self.pages, self.ends = {}, {None}

    def page(self, after: str | None, size: int) -> tuple[list[str], str | None]:
        """Return the URIs of a page, and the last of them if more follow."""
        start = 0 if after is None else bisect_right(self.keys, after)
        end, total = start, 0
        while end < len(self.keys) and end - start < size:
            total += self.skills[self.keys[end]].encoded_size
            if total > MAX_PAGE_BYTES and end > start:
                break
            end += 1
        return self.keys[start:end], self.keys[end - 1] if start < end < len(self.keys) else None


def _passes_middleware(catalog: Catalog) -> bool:
    """Say whether a mounted server has middleware, which may read or change a list."""
    return bool(catalog.mounts) and any(each.owner.kernel.middleware for each in catalog.family())


def _hint(result: Any, caches: list[Cache | None], *, is_private: bool) -> None:
    """Add the cache hint: the shortest of those of the skills."""
    hints = [each or Cache() for each in caches] or [Cache()]
    is_public = not is_private and all(hint.scope == "public" for hint in hints)
    result.ttl_ms = min(hint.ttl_ms for hint in hints)
    result.cache_scope = "public" if is_public else "private"
