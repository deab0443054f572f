"""`Availability`: whether one upstream is reached, and whether its components are listed meanwhile.

connecting  it was not reached yet
ready       its lists were read, and nothing says that it does not work
away        it cannot be reached, does not list its components, or its calls fail

Components of an upstream that is away leave the lists after `GRACE_SECONDS`, unless the operator keeps stale lists.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from toolwire.gateway.upstream_options import UpstreamRules
from toolwire.protocol.upstreams import GatewayMark
from toolwire.server.catalog import Catalog
from toolwire.server_texts import ServerTexts

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: The components of an upstream that is away for this many seconds leave the lists.
GRACE_SECONDS: Final = 5.0

State: TypeAlias = Literal["connecting", "ready", "away"]


class Availability:
    """The state of one upstream, as operators and lists show it."""

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        texts: ServerTexts,
        announce_lists: Callable[[], None],
        find_rules: Callable[[], UpstreamRules],
    ) -> None:
        """`texts` cleans what is shown of the upstream's texts.

        `announce_lists` is called when components leave the lists, or come back.
        """
        self._name = name
        self._texts = texts
        self._catalog = catalog
        self._announce_lists = announce_lists
        self._find_rules = find_rules
        self.state: State = "connecting"
        self.error: str | None = None
        """Why the upstream is away; None in any other state."""
        self.last_change: float | None = None
        """When the components changed last, in seconds since 1970; None before they were known."""
        self.watchers: list[Callable[[], None]] = []
        """Called when the components or the state have changed."""
        self._unlisting: asyncio.TimerHandle | None = None
        self._was_public = False

    @property
    def keeps_stale_lists(self) -> bool:
        """Return whether components stay in lists while the upstream is away."""
        return self._find_rules().keeps_stale_lists

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def is_away(self) -> bool:
        return self.state == "away"

    def note_ready(self) -> bool:
        """Note that the upstream works; return whether it was away."""
        was_away = self.is_away
        if was_away:
            log.warning("the server %r is there now", self._name)
        self.state, self.error = "ready", None
        return was_away

    def note_away(self, why: str | BaseException) -> None:
        """Note that the upstream is away. Its components stay in lists (see `unlist_soon`)."""
        why = self._texts.hide(why) if isinstance(why, str) else self._texts.describe(why)
        if not self.is_away:
            log.warning("the server %r is away: %s", self._name, why)
        self.state, self.error = "away", why

    def note_change(self) -> None:
        """Note that the components have changed."""
        self.last_change = time.time()

    def tell_watchers(self) -> None:
        """Tell the watchers that the components or the state have changed."""
        for watcher in tuple(self.watchers):
            watcher()

    # --- lists ---

    def unlist_soon(self) -> None:
        """Take the components out of the lists after a grace period."""
        if self._unlisting is None and not self.keeps_stale_lists and not self._catalog.is_unlisted:
            self._unlisting = asyncio.get_running_loop().call_later(GRACE_SECONDS, self.unlist)

    def unlist(self) -> None:
        """Leave the components out of lists."""
        self._unlisting = None
        self._set_unlisted(True)

    def list_again(self) -> None:
        """Take the components into lists again."""
        self.cancel_unlisting()
        if self._catalog.is_unlisted:
            self._set_unlisted(False)

    def cancel_unlisting(self) -> None:
        """Cancel the removal of the components from the lists."""
        if self._unlisting is not None:
            self._unlisting.cancel()
        self._unlisting = None

    def show_notes(self, notes: dict[str, list[str]], gateways: list[GatewayMark], *, is_public: bool) -> None:
        """Note missing upstreams and the gateways on the way. `is_public`: lists are for all."""
        catalog = self._catalog
        if (notes, gateways, is_public) != (catalog.notes, catalog.gateways, self._was_public):
            catalog.notes, catalog.gateways, self._was_public = notes, gateways, is_public
            # Clients are not told: the list is the same.
            catalog.changed("notes")

    def _set_unlisted(self, is_unlisted: bool) -> None:
        for catalog in (self._catalog, *self._catalog.family()):
            catalog.is_unlisted = is_unlisted
        self._announce_lists()
