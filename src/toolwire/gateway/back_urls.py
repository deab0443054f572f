"""Several addresses of one server behind a gateway.

The first one that works is used. A modern server keeps nothing for its clients, so that requests go to another address
when one fails. The session of a legacy server lives at one address: it stays there, and new sessions go elsewhere. No
request is sent to a second address that may have been carried out at the first one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Final, cast

from toolwire.auth.contract import Auth
from toolwire.client.connection import ClientConnection
from toolwire.client.http_target import HttpTarget
from toolwire.client.relay import RelayOpener
from toolwire.client.target import Link
from toolwire.gateway.back_health import is_failure
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.http1.pool import Pool
from toolwire.protocol.errors import ToolwireError, Unreachable
from toolwire.protocol.lifecycle.negotiation import Agreement
from toolwire.server_texts import ServerTexts
from toolwire.util.backoff import Backoff

#: How many requests in a row fail at an address that can be reached, before another one is used.
FAILURES: Final = 3
#: How many seconds an address is left alone at first, and at most.
PAUSE_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
#: How many addresses one server may have.
MAX_URLS: Final = 16


class _Url:
    """One address of a server."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.failures = 0
        self.error: str | None = None
        """Why it is not used; None while it works."""
        self.tried_at = 0.0
        """When it is tried again, while it does not work."""
        self.pauses = Backoff(first=PAUSE_SECONDS, longest=LONGEST_SECONDS)


class UrlStates:
    """The addresses of a server in the order of preference, and which of them work. `clock` tells the time."""

    def __init__(
        self, labels: Sequence[str], clock: Callable[[], float] | None = None, texts: ServerTexts | None = None
    ) -> None:
        """`texts` cleans what errors quote of the server."""
        self._clock = clock or _loop_time
        self.log: UpstreamLog = UpstreamLog(texts or ServerTexts())
        self._known = {label: _Url(label) for label in labels}
        self.changed: Callable[[], None] | None = None
        """Is called when an address stops to work, or works again."""

    @property
    def errors(self) -> Mapping[str, str | None]:
        """The addresses, each with the reason why it is not used; None for those that work."""
        return {label: each.error for label, each in self._known.items()}

    def works(self, label: str) -> bool:
        known = self._known.get(label)
        return known is not None and known.error is None

    def order(self) -> list[str]:
        """Return the addresses to try: those that work; if none does, the one that was left alone longest."""
        working = [label for label, each in self._known.items() if each.error is None]
        return working or [min(self._known.values(), key=lambda each: each.tried_at).label]

    def next_try(self) -> tuple[str, float] | None:
        """Return an address that does not work, and in how many seconds it is tried again; None if all work."""
        waiting = [each for each in self._known.values() if each.error is not None]
        if not waiting:
            return None
        first = min(waiting, key=lambda each: each.tried_at)
        return first.label, max(0.0, first.tried_at - self._clock())

    def failed(self, label: str, error: ToolwireError, *, for_sure: bool = False) -> None:
        """Take note that a request failed at an address. One that cannot be reached is not used any more.

        `for_sure`: the request was one that every server answers.
        """
        known = self._known.get(label)
        if known is None:
            return
        known.failures += 1
        is_reached = not for_sure and not isinstance(error, Unreachable)
        if known.error is None and is_reached and known.failures < FAILURES:
            return
        asked = getattr(error, "retry_after", None) or 0.0
        if known.error is None:
            self.log.warning("the address %s does not work: %s", label, error)
        known.error = self.log.texts.describe(error)
        known.tried_at = self._clock() + max(known.pauses.after(None), min(asked, LONGEST_SECONDS))
        self._tell()

    def worked(self, label: str) -> None:
        """Take note that an address works."""
        known = self._known[label]
        known.failures = 0
        if known.error is not None:
            self.log.warning("the address %s works again", label)
            known.error = None
            known.pauses.reset()
            self._tell()

    def forgive(self) -> None:
        """Begin to count failures in a row again, because a request ended well."""
        for each in self._known.values():
            if each.error is None:
                each.failures = 0

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed()


class SeveralUrls(HttpTarget):
    """A server that is reached by several URLs, with the same credentials."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        auth: str | Auth | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        pool: Pool | None = None,
    ) -> None:
        super().__init__(urls[0], headers=headers, auth=auth, tls=tls, proxy=proxy, pool=pool)
        self._places = {
            place.label: place
            for place in (HttpTarget(url, headers=headers, auth=auth, tls=tls, proxy=proxy, pool=pool) for url in urls)
        }
        if len(self._places) < len(urls) or len(urls) > MAX_URLS:
            raise ValueError(f"urls= are at most {MAX_URLS} different addresses")
        for place in self._places.values():
            self.texts.note_settings(url=place.url)
            place._texts = self.texts
        self.states: UrlStates = UrlStates(list(self._places), texts=self.texts)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(place.url for place in self._places.values())

    def signed_by(self, auth: Auth) -> SeveralUrls:
        signed = copy(self)
        signed._places = {label: place.signed_by(auth) for label, place in self._places.items()}
        return signed

    def without_quotes(self) -> SeveralUrls:
        quiet = copy(self)
        quiet._texts = self.texts.without_quotes()
        quiet._places = {label: copy(place) for label, place in self._places.items()}
        for place in quiet._places.values():
            place._texts = quiet._texts
        quiet.states.log = UpstreamLog(quiet._texts)
        return quiet

    def with_places(self, calls: int) -> SeveralUrls:
        larger = copy(self)
        larger._places = {label: place.with_places(calls) for label, place in self._places.items()}
        return larger

    def at(self, label: str) -> HttpTarget | None:
        """Return the place of the server at one address."""
        return self._places.get(label)

    def to_try(self) -> list[HttpTarget]:
        return [self._places[label] for label in self.states.order()]

    async def open(self) -> Link:
        return await self.to_try()[0].open()


class FailoverOpener(RelayOpener):
    """The opener of connections to a server with several addresses: at the first one that works."""

    known: tuple[Agreement, str] | None = None
    session_at: str = ""
    """The address at which `known` is a session."""

    async def open(self) -> ClientConnection:
        target = cast("SeveralUrls", self.target)
        known = self.known
        self.known = None
        home = target.at(self.session_at)
        if known is not None and home is not None and target.states.works(self.session_at):
            return await self.single(home, known).open()
        failure: ToolwireError | None = None
        for place in target.to_try():
            try:
                connection = await self.single(place).open()
            except ToolwireError as error:
                if not is_failure(error):
                    raise
                target.states.failed(place.label, error)
                failure = error
            else:
                target.states.worked(place.label)
                return connection
        assert failure is not None
        raise failure

    def single(self, place: HttpTarget, known: tuple[Agreement, str] | None = None) -> RelayOpener:
        """Return the opener of connections to one address."""
        settings = {each: getattr(self, each) for each in RelayOpener.__struct_fields__}
        return RelayOpener(**{**settings, "target": place, "known": known})


class Returning:
    """Tries addresses again that did not work, so that the preferred one is used when it is back.

    `opener` opens connections, and `moved` is called when an address works again.
    """

    def __init__(self, opener: FailoverOpener, moved: Callable[[], None]) -> None:
        self._target = target = cast("SeveralUrls", opener.target)
        self._opener = opener
        self._moved = moved
        self._next: asyncio.TimerHandle | None = None
        self._trying: asyncio.Task[None] | None = None
        target.states.changed = self.plan

    def plan(self) -> None:
        """Plan the next attempt, where an address does not work."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        upcoming = self._target.states.next_try()
        if upcoming is not None and (self._trying is None or self._trying.done()):
            label, seconds = upcoming
            self._next = asyncio.get_running_loop().call_later(seconds, self._begin, label)

    def _begin(self, label: str) -> None:
        self._next = None
        self._trying = asyncio.get_running_loop().create_task(self._try(label))
        self._trying.add_done_callback(self._tried)

    def _tried(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.plan()

    async def _try(self, label: str) -> None:
        place = self._target.at(label)
        assert place is not None
        try:
            connection = await self._opener.single(place).open()
        except ToolwireError as error:
            if is_failure(error):
                self._target.states.failed(label, error)
                return
        else:
            await connection.close()
        self._target.states.worked(label)
        self._moved()

    async def stop(self) -> None:
        """Try no more."""
        self._target.states.changed = None
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.wait({self._trying})
        if self._next is not None:
            self._next.cancel()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
