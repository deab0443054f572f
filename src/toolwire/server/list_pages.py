"""Pages of lists, encoded once for each revision until the catalogue changes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Raw

from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.surrogates import encode_readable
from toolwire.server.catalog import FAMILY, Catalog, Found, Seen
from toolwire.server.upstream_views import servers_on, with_upstream

log: logging.Logger = logging.getLogger("toolwire.server")

#: Pages that are kept.
MAX_PAGES: Final = 1024
#: How many bytes of an answer are not for the entries of its page, where entries are left out. Of small answers a part.
_AROUND: Final = 64 * 1024
_AROUND_PART: Final = 4
#: How many bytes of an answer are not for its page: they have the id of the request.
_ENVELOPE: Final = 256
#: How many bytes the name of a component, and that of its upstream, may add to its entry.
_AROUND_ENTRY: Final = 512

#: Names of components, with what they are.
Entries: TypeAlias = list[tuple[str, Found[Any]]]


class Pages:
    """The pages that were asked for, as they go on the wire."""

    def __init__(self, catalog: Catalog, find_size: Callable[[], int], find_limit: Callable[[], int]) -> None:
        """`find_size` returns how many entries a page has, and `find_limit` how many bytes an answer may have."""
        self._find_size = find_size
        self._find_limit = find_limit
        self._catalog = catalog
        self._warned: set[tuple[str, str]] = set()
        # How large entries are, for one version of the catalogue.
        self._sizes: tuple[int, dict[tuple[Any, str], int]] = (-1, {})
        # The pages of one version of the catalogue. None marks a page whose cursor was given out but not used yet.
        self._encoded: tuple[int, dict[tuple[str, str, str | None, Any], Raw | None]] = (-1, {})

    @property
    def size(self) -> int:
        return self._find_size()

    @property
    def kept(self) -> int:
        """Return how many pages are kept."""
        return sum(encoded is not None for encoded in self._encoded[1].values())

    def get(
        self,
        kind: str,
        revision: str,
        cursor: str | None,
        result: Callable[[list[Any], str | None, list[str]], Any],
        view: Seen | None = None,
    ) -> Raw:
        """Return a page as a caller sees it; `result` makes the answer out of what `page` returns."""
        version = self._catalog.version
        known, pages = self._encoded
        if known != version:
            _, pages = self._encoded = (version, {})
        admitted = None if view is None else view.admitted
        key = (kind, revision, cursor, admitted)
        encoded = pages.get(key)
        if encoded is None:
            entries, following = self._catalog.page(kind, cursor, self.size, view)
            encoded = Raw(encode_readable(result(_entries(entries, revision, kind), following, [])))
            if self._is_too_large(encoded):
                fitting, left_out = self._fitting(entries, revision)
                if left_out:
                    self._warn(kind, left_out)
                    items = _entries(fitting, revision, kind)
                    encoded = Raw(encode_readable(result(items, following, list(left_out))))
            # Anybody can invent cursors, and so get any number of overlapping pages. Only pages that follow one another
            # from the first page are kept.
            if cursor is None or key in pages:
                # A plain dict, not `Expiring`: each list looks here, and when it is full it is cheap to begin anew.
                if len(pages) >= MAX_PAGES:
                    pages.clear()
                pages[key] = encoded
                if following is not None:
                    pages.setdefault((kind, revision, following, admitted), None)
        return encoded

    def page(
        self,
        kind: str,
        revision: str,
        cursor: str | None,
        result: Callable[[list[Any], str | None, list[str]], Any],
        view: Seen | None = None,
    ) -> tuple[list[Any], str | None, list[str]]:
        """Return the entries of a page, the cursor of the next, and the upstreams that there is no room for.

        `result` makes the answer, for its size alone.
        """
        entries, following = self._catalog.page(kind, cursor, self.size, view)
        items = _entries(entries, revision, kind)
        if self._catalog.followers:
            fitting, left_out = self._fitting(entries, revision)
            # First the estimate: an answer is encoded here only to be measured.
            if left_out and self._is_too_large(encode_readable(result(items, following, []))):
                self._warn(kind, left_out)
                return _entries(fitting, revision, kind), following, list(left_out)
        return items, following, []

    def _is_too_large(self, encoded: bytes | Raw) -> bool:
        limit = self._find_limit()
        return memoryview(encoded).nbytes > limit - min(_ENVELOPE, limit // _AROUND_PART)

    def _fitting(self, entries: Entries, revision: str) -> tuple[Entries, dict[str, int]]:
        """Return entries that fit into an answer, and the sizes of upstreams left out, the largest first."""
        owners = [next(iter(servers_on(found.way)), "") for _, found in entries]
        sizes: Counter[str] = Counter()
        for owner, (_, found) in zip(owners, entries, strict=True):
            sizes[owner] += self._size_of(found.component, revision)
        limit = self._find_limit()
        room = limit - min(_AROUND, limit // _AROUND_PART) - sizes.pop("", 0)
        left_out: dict[str, int] = {}
        while sizes and sizes.total() > room:
            name, size = sizes.most_common(1)[0]
            left_out[name] = size
            del sizes[name]
        return [each for owner, each in zip(owners, entries, strict=True) if owner not in left_out], left_out

    def _warn(self, kind: str, left_out: dict[str, int]) -> None:
        """Say once in the log which upstreams are left out."""
        for name, size in left_out.items():
            if (kind, name) not in self._warned:
                self._warned.add((kind, name))
                log.warning("the %s of %r are left out of a list: they are too large, with %d bytes", kind, name, size)

    def _size_of(self, component: Any, revision: str) -> int:
        """Return how many bytes an entry has at most, with its name and its upstream."""
        version = self._catalog.version
        if self._sizes[0] != version:
            self._sizes = (version, {})
        sizes = self._sizes[1]
        known = sizes.get((component, revision))
        if known is None:
            known = sizes[component, revision] = len(encode_readable(component.wire(revision))) + _AROUND_ENTRY
        return known


def _entries(entries: Entries, revision: str, kind: str) -> list[Any]:
    return [_entry(found, revision, kind, name) for name, found in entries]


def _entry(found: Found[Any], revision: str, kind: str, name: str) -> Any:
    definition = found.component.wire(revision)
    if kind in ("tools", "prompts") and definition.name != name:
        definition = replace_members(definition, name=name)
    return with_upstream(definition, found)


def definitions(catalog: Catalog, kind: str) -> list[bytes]:
    """Return all entries of a list, to be compared with those of another catalogue."""
    return [encode_readable([name, found.component.wire(MODERN)]) for name, found in sorted(catalog.all(kind).items())]


def list_digests(catalog: Catalog) -> dict[str, str]:
    """Return a digest of the lists of each family. It is the same in every process that has the same lists."""
    import hashlib

    digests = {family: hashlib.sha256() for family in FAMILY.values()}
    for kind, family in FAMILY.items():
        for definition in definitions(catalog, kind):
            digests[family].update(b"%d %b" % (len(definition), definition))
    return {family: digest.hexdigest()[:32] for family, digest in digests.items()}
