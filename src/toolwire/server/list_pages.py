"""Pages of lists, encoded once for each revision until the catalogue changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw

from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.surrogates import encode_readable
from toolwire.server.catalog import FAMILY, Catalog, Found, Seen
from toolwire.server.upstream_views import with_upstream

#: Pages that are kept.
MAX_PAGES: Final = 1024


class Pages:
    """The pages that were asked for, as they go on the wire."""

    def __init__(self, catalog: Catalog, size: int) -> None:
        self.size = size
        self._catalog = catalog
        # The pages of one version of the catalogue. None marks a page whose cursor was given out but not used yet.
        self._encoded: tuple[int, dict[tuple[str, str, str | None, Any], Raw | None]] = (-1, {})

    @property
    def kept(self) -> int:
        """Return how many pages are kept."""
        return sum(encoded is not None for encoded in self._encoded[1].values())

    def get(
        self,
        kind: str,
        revision: str,
        cursor: str | None,
        result: Callable[[list[Any], str | None], Any],
        view: Seen | None = None,
    ) -> Raw:
        """Return a page as a caller sees it; `result` makes the answer out of its entries and the next cursor."""
        version = self._catalog.version
        known, pages = self._encoded
        if known != version:
            _, pages = self._encoded = (version, {})
        admitted = None if view is None else view.admitted
        key = (kind, revision, cursor, admitted)
        encoded = pages.get(key)
        if encoded is None:
            items, following = self.page(kind, revision, cursor, view)
            encoded = Raw(encode_readable(result(items, following)))
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
        self, kind: str, revision: str, cursor: str | None, view: Seen | None = None
    ) -> tuple[list[Any], str | None]:
        """Return the entries of a page as a caller sees it, and the cursor of the next."""
        entries, following = self._catalog.page(kind, cursor, self.size, view)
        return [_entry(found, revision, kind, name) for name, found in entries], following


def _entry(found: Found[Any], revision: str, kind: str, name: str) -> Any:
    definition = found.component.wire(revision)
    if kind in ("tools", "prompts") and definition.name != name:
        definition = replace_members(definition, name=name)
    return definition if kind == "prompts" else with_upstream(definition, found)


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
