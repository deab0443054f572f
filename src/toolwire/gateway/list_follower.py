"""`ListFollower`: reads the lists of one upstream for one account, and follows their changes.

closed        no connection is kept; what was read last is known
connecting    there is no connection, or its lists were not read yet
polling       lists are read again when they are old, because the upstream does not announce all changes
following     the upstream announces every change of its lists
unreachable   the last attempt failed; the next one follows after a pause

`start` keeps a follower running until `stop`. A follower with `persists=False` runs only while its lists are in use:
it closes when its connection ends, unless clients are subscribed to resources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from enum import Enum
from math import inf
from typing import Any, Final, Protocol

from msgspec import UNSET, Struct

from toolwire.client.connection import ClientConnection
from toolwire.client.listen import Subscription
from toolwire.client.reconnect import Connector
from toolwire.client.target import VERDICT_SECONDS
from toolwire.gateway.list_pace import ListPace
from toolwire.gateway.remote_lists import RemoteLists, read_lists
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol import types as t
from toolwire.protocol.changes import covers
from toolwire.protocol.errors import InvalidResponse, ProtocolError, ServerError, Timeout, ToolwireError, TransportError
from toolwire.util.backoff import Backoff

#: How many seconds a list waits for an upstream. Late parts are announced as changes.
LIST_SECONDS: Final = 4.0
#: How many seconds an upstream may take to acknowledge a subscription. Its lists follow, within `LIST_SECONDS`.
SUBSCRIBE_SECONDS: Final = 1.5
#: How many seconds pass before lists are read again whose changes the upstream does not announce.
FRESH_SECONDS: Final = 300.0
#: Lists that may not be kept, and whose changes are not announced, are read once in this many seconds.
LEAST_SECONDS: Final = 1.0
#: How many seconds a list waits for a reading that was announced.
ANNOUNCED_SECONDS: Final = 2.0
#: How often, in seconds, a call of a tool that is not listed has the lists read again.
UNLISTED_SECONDS: Final = 1.0
#: An upstream that is followed for this many seconds counts as one that works.
WORKS_SECONDS: Final = 5.0
#: How many seconds pass before a legacy upstream that is reached by HTTP is asked again whether it is modern now.
ERA_SECONDS: Final = VERDICT_SECONDS
#: How many seconds pass before an upstream that refused a subscription is asked again. After a timeout or an error of
#: the transport, the pauses double from the first to the second.
LISTEN_SECONDS: Final = 30.0
FIRST_LISTEN_SECONDS: Final = 0.5


class FollowState(Enum):
    """The state of a follower. The docstring of the module says what each means."""

    CLOSED = "closed"
    CONNECTING = "connecting"
    POLLING = "polling"
    FOLLOWING = "following"
    UNREACHABLE = "unreachable"


class Followed(Protocol):
    """The upstream of a follower, and the user of its lists."""

    name: str
    log: UpstreamLog

    async def open_connection(self) -> ClientConnection:
        """Return the connection for lists; open it if it is not open."""

    def find_connector(self) -> Connector | None:
        """Return what keeps the connection for lists; None where there is none now."""

    def leave_address(self, error: ToolwireError, connection: ClientConnection) -> bool:
        """Note a failed reading; return whether the next one goes to another address."""

    def check_connection(self, connection: ClientConnection) -> None:
        """Raise `NotSupported` for an upstream that cannot be used."""

    def check_lists(self, lists: RemoteLists) -> None:
        """Raise `Unreachable` for lists that cannot be used; leave out entries that cannot."""

    @property
    def is_ready(self) -> bool:
        """Return whether lists are shown, so that a reading is not urgent."""

    @property
    def shows_views(self) -> bool:
        """Return whether views stay in the lists."""

    def publish_lists(self, lists: RemoteLists, connection: ClientConnection) -> bool:
        """Use lists that were just read; return whether they differ from the ones before."""

    def note_lost(self, error: ToolwireError) -> None:
        """Note that the upstream cannot be followed now."""

    def watched_uris(self) -> list[str]:
        """Return the URIs, as the upstream has them, that clients are subscribed to."""

    def announce_update(self, uri: str, params: Any) -> None:
        """Announce that a resource has new contents. `uri` is the one that the upstream has."""


class UpdateSubscriptions:
    """The resources whose updates an upstream announces, and the clients that wait for that."""

    def __init__(self) -> None:
        self.followed: set[str] = set()
        """The URIs, as the upstream has them."""
        self.may_have_missed: bool = False
        """Whether updates may have come while there was no subscription."""
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        """The number of clients that wait."""
        return len(self._waiting)

    def wait(self) -> asyncio.Future[None]:
        """Return what is done when the upstream was asked for the newest subscriptions, or after `LIST_SECONDS`."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        loop.call_later(LIST_SECONDS, _release, waiting)
        return waiting

    def release(self, count: int) -> None:
        """Let the first clients go on."""
        for each in self._waiting[:count]:
            _release(each)
        del self._waiting[:count]

    def end(self) -> None:
        """Note that the upstream announces nothing any more."""
        self.followed = set()
        self.release(len(self._waiting))


class FollowSettings(Struct, frozen=True, kw_only=True):
    """Options of a follower of the lists of an upstream."""

    timeout: float | None
    """How many seconds a request for a page may take."""
    patience: float = LIST_SECONDS
    """Seconds that a list waits for a reading."""
    is_pinned: bool = True
    """Whether the era of the upstream is not asked for again."""
    persists: bool = True
    """Whether it is followed until `stop`, and not only while its lists are in use."""
    waits: bool = False
    """Whether a list waits for a reading that was announced, or, where nothing is announced, each time for one."""
    hears_lists: bool = True
    """Whether the subscription is for changes of lists; otherwise these are announced by another way."""


class ListFollower:
    """Reads and follows the lists of one upstream for one account.

    All ways to a reading end in `_begin_reading`, so that requests which come meanwhile share one:

    way            begins when                             an error is
    -------------  --------------------------------------  ---------------------------------------
    read_again     the upstream announced a change         logged
    freshen        a client asks for a list that is old    logged, and the follower connects again
    look_again     a client calls a tool that is unlisted  logged, and the follower connects again
    ensure_read    an account or a session needs lists     logged, and the follower connects again
    reread_lists   a call failed                           raised, and the follower connects again
    refresh        the follower itself reads               raised
    """

    def __init__(
        self,
        upstream: Followed,
        settings: FollowSettings,
    ) -> None:
        self._upstream = upstream
        self.settings: FollowSettings = settings
        self.state: FollowState = FollowState.CLOSED
        self.lists: RemoteLists | None = None
        """The lists that were read last; None before the first reading."""
        self.read_at: float = -inf
        """When they were read, by the clock of the loop; minus infinity where they have to be read again."""
        self.readings: int = 0
        """How often the lists were read."""
        self.kept: int = 0
        """How often a list was shown without a new reading."""
        self.updates: UpdateSubscriptions = UpdateSubscriptions()
        self.first: asyncio.Event = asyncio.Event()
        """Set when the lists were read, or could not be."""
        self._wanted: asyncio.Event = asyncio.Event()
        self._asked_for: asyncio.Event = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_outdated = False
        self._is_announced = False
        """Whether the upstream announced a change that was not read yet."""
        self._pace = ListPace()
        self._begins_at = -inf
        """When the reading that was announced begins, after its pause."""
        self._interruption: ToolwireError | bool = False
        """Why the connection is left: an error, or True for another address."""
        self._listen_at = inf
        """When an upstream that refused a subscription is asked again."""
        self._listen_pauses = Backoff(first=FIRST_LISTEN_SECONDS, longest=LISTEN_SECONDS)

    @property
    def patience(self) -> float:
        """Seconds that a list waits for a reading."""
        return self.settings.patience

    @property
    def seconds_until_reading(self) -> float:
        """Seconds that the next reading has to wait: large lists that change all the time are read seldom."""
        return self._pace.seconds_until_next(asyncio.get_running_loop().time())

    # --- beginning and end ---

    def start(self) -> None:
        """Connect, and follow the lists until `stop`."""
        if self._running is None or self._running.done():
            self.first, self._wanted, self._asked_for = asyncio.Event(), asyncio.Event(), asyncio.Event()
            self.state = FollowState.CONNECTING
            name = f"gateway {self._upstream.name}"
            self._running = asyncio.get_running_loop().create_task(self._run(), name=name)

    def offer_stored(self, lists: RemoteLists) -> None:
        """Offer the lists of an earlier run of the upstream, until it is followed."""
        self.lists = lists
        self.first.set()

    def cancel(self) -> list[asyncio.Task[None]]:
        """Stop following; return the tasks that are about to end."""
        tasks = [task for task in (self._running, self._reading) if task is not None and not task.done()]
        self.state = FollowState.CLOSED
        for task in tasks:
            task.cancel()
        return tasks

    async def stop(self) -> None:
        """Stop following, and wait for the end of it."""
        for task in self.cancel():
            await asyncio.wait({task})
        self._running = self._reading = None

    @property
    def is_running(self) -> bool:
        """Return whether the upstream is followed, or is about to be."""
        return self._running is not None and not self._running.done()

    @property
    def announces_all(self) -> bool:
        """Return whether the upstream announces all changes of its lists now."""
        return self.state is FollowState.FOLLOWING

    def follow_elsewhere(self) -> None:
        """Follow the upstream at another address."""
        self._interruption = True
        self._wanted.set()

    def hurry(self) -> None:
        """End the pause before the next attempt, because a client asks for a list."""
        self._asked_for.set()

    def renew_subscription(self) -> None:
        """Compare the subscription with what clients want now."""
        self._wanted.set()

    def watch(self, new: Iterable[str]) -> asyncio.Future[None] | None:
        """Follow the resources that clients are subscribed to now; return what the client of new ones waits for.

        A client gets every update after the answer to its subscription, so that the upstream is asked before.
        """
        self._wanted.set()
        return None if self.updates.followed.issuperset(new) else self.updates.wait()

    # --- following ---

    async def _run(self) -> None:
        """Keep the lists up to date, whatever happens to the upstream."""
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        while True:
            began, self._interruption = loop.time(), False
            try:
                connection = await self._upstream.open_connection()
                await self._follow(connection)
                self.state = FollowState.CONNECTING
            except ToolwireError as error:
                self.state = FollowState.CONNECTING
                # Otherwise only a stream ended, as streams do. The upstream is lost if it cannot be followed again.
                if loop.time() - began < WORKS_SECONDS or not isinstance(error, TransportError):
                    self._note_unreachable(error)
            except Exception as error:
                self._upstream.log.exception("following the server failed", error)
                self._note_unreachable(ServerError(f"an error in this server: {type(error).__name__}"))
            if not self.settings.persists and not self._upstream.watched_uris():
                self.state = FollowState.CLOSED
                return
            if loop.time() - began >= WORKS_SECONDS:
                backoff.reset()
            await self._pause(backoff.after(None))

    def _note_unreachable(self, error: ToolwireError) -> None:
        self.state = FollowState.UNREACHABLE
        self._upstream.note_lost(error)
        self.first.set()

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt. A client that asks for a list makes it come sooner."""
        self._asked_for.clear()
        await asyncio.sleep(min(seconds, LEAST_SECONDS))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds - LEAST_SECONDS):
                await self._asked_for.wait()

    async def _follow(self, connection: ClientConnection) -> None:
        """Read the lists, and follow changes until the connection ends or the lists have to be read again.

        The lists are read when the subscription is open, so that no change in between is missed. They are read before,
        too, if the upstream does not take a subscription at first.
        """
        self._upstream.check_connection(connection)
        hearing: asyncio.Task[None] | None = None
        subscription: Subscription | None = None
        heard: t.SubscriptionFilter | None = None
        is_outdated = True
        updates = self.updates
        loop = asyncio.get_running_loop()
        ask_again = loop.time() + ERA_SECONDS if self._may_be_upgraded(connection) else inf
        try:
            while not connection.ended:
                self._wanted.clear()
                waiting = updates.waiting
                wanted = filter_for(connection, self._upstream.watched_uris(), self.settings.hears_lists)
                if hearing is None or wanted != heard:
                    following = await self._subscribe(wanted)
                    if following is not None or wanted is None:
                        is_outdated = is_outdated or (hearing is None and following is not None)
                        # The new subscription is open before the old one ends.
                        if hearing is not None and subscription is not None:
                            await _stop(hearing)
                            await subscription.close()
                        subscription, heard = following, wanted
                        hearing = None if following is None else asyncio.ensure_future(self._hear(following))
                    elif wanted.resource_subscriptions:
                        updates.may_have_missed = True
                updates.followed = set() if heard is None else set(heard.resource_subscriptions or ())
                updates.release(waiting)
                if updates.may_have_missed and updates.followed:
                    updates.may_have_missed = False
                    for uri in updates.followed:
                        self._upstream.announce_update(uri, None)
                if is_outdated:
                    await self.refresh()
                    is_outdated = False
                announces = hearing is not None and announces_everything(connection)
                self.state = FollowState.FOLLOWING if announces else FollowState.POLLING
                if not await self._wait(connection, hearing, ask_again - loop.time()):
                    return
                if loop.time() >= ask_again:
                    # The next connection asks for the revision first. No call uses this one.
                    connector = self._upstream.find_connector()
                    if connector is not None:
                        await connector.close()
        finally:
            updates.end()
            if hearing is not None:
                await _stop(hearing)
            if subscription is not None:
                await subscription.close()

    async def _subscribe(self, wanted: t.SubscriptionFilter | None) -> Subscription | None:
        """Open a subscription; return None where there is nothing to subscribe to, or the upstream refuses."""
        self._listen_at = inf
        connector = self._upstream.find_connector()
        if wanted is None or connector is None:
            return None
        subscription = Subscription(connector, wanted, SUBSCRIBE_SECONDS, heals=False)
        try:
            await subscription.__aenter__()
        except (ProtocolError, Timeout, InvalidResponse, TransportError) as error:
            if self.state is not FollowState.UNREACHABLE:  # One line is enough for an upstream that is unreachable.
                self._upstream.log.warning("it does not tell of its changes: %s", error)
            # An upstream that is gone shows when its lists are read.
            is_refusal = isinstance(error, ProtocolError | InvalidResponse)
            asked = min(getattr(error, "retry_after", None) or 0.0, LISTEN_SECONDS)
            pause = LISTEN_SECONDS if is_refusal else max(self._listen_pauses.after(None), asked)
            self._listen_at = asyncio.get_running_loop().time() + pause
            return None
        self._listen_pauses.reset()
        return subscription

    def _may_be_upgraded(self, connection: ClientConnection) -> bool:
        """Return whether the upstream may have been replaced by a modern one, which still serves the old revision."""
        return not connection.modern and not connection.link.duplex and not self.settings.is_pinned

    async def _wait(self, connection: ClientConnection, hearing: asyncio.Task[None] | None, longest: float) -> bool:
        """Wait for new subscriptions. Return False to reconnect."""
        wanting = asyncio.ensure_future(self._wanted.wait())
        waits: set[asyncio.Future[Any]] = {wanting, connection.reader}
        if hearing is not None:
            waits.add(hearing)
        listen_in = self._listen_at - asyncio.get_running_loop().time()
        polls = self.settings.persists and not self.announces_all
        seconds = min(longest, FRESH_SECONDS if polls else inf, listen_in)
        try:
            done, _ = await asyncio.wait(
                waits, timeout=None if seconds == inf else max(seconds, 0.0), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            await _stop(wanting)
        if hearing is not None and hearing in done:
            hearing.result()
            return False  # The upstream ended the stream. Everything is read again.
        if isinstance(self._interruption, ToolwireError):
            raise self._interruption
        if self._interruption:
            return False
        if not done and polls:
            await self.refresh()
        return True

    async def _hear(self, subscription: Subscription) -> None:
        async for change in subscription:
            if change.kind == "resource" and change.uri is not None:
                if covers(self.updates.followed, change.uri):
                    self._upstream.announce_update(change.uri, change.params)
            elif self._pace.seconds_until_next(asyncio.get_running_loop().time()) > LEAST_SECONDS:
                self.read_again()  # Updates of resources do not wait behind large lists.
            else:
                await self.refresh()

    # --- reading ---

    def is_fresh(self) -> bool:
        """Return whether the lists need not be read again before they are shown."""
        if self.lists is None or self.read_at == -inf:
            return False
        if self.announces_all:
            return True
        ttl = self.lists.ttl
        longest = FRESH_SECONDS if ttl is None else max(ttl, LEAST_SECONDS)
        return asyncio.get_running_loop().time() - self.read_at < longest

    def freshen(self) -> Awaitable[None] | None:
        """Read lists again that are older than the upstream allows; return what a client waits for.

        A client waits for a reading that was announced. It waits for no other one where the upstream announces all
        changes, unless the lists may not be kept at all.
        """
        if self.settings.waits:
            is_outdated = self._is_announced or self._is_too_old()
            return self.wait_for(self.begin_rereading()) if is_outdated else None
        self.kept += 1
        ttl = None if self.lists is None else self.lists.ttl
        if self._reading is not None and not self._reading.done():
            return self._wait_for_announced(self._reading)
        if ttl is None:
            return None
        age = asyncio.get_running_loop().time() - self.read_at
        if age < max(ttl, LEAST_SECONDS):
            return None
        reading = self.begin_rereading()
        if self.announces_all and ttl:
            return None
        self.kept -= 1
        return self.wait_for(reading)

    def _is_too_old(self) -> bool:
        ttl = (self.lists and self.lists.ttl) or 0.0
        return not self.announces_all and asyncio.get_running_loop().time() - self.read_at >= ttl

    def note_announcement(self) -> None:
        """Note that the upstream announced a change of its lists. The next list waits for it."""
        self._is_announced = True

    async def wait_for(self, reading: asyncio.Task[None], longest: float = inf) -> None:
        """Wait for a reading, for as long as lists wait."""
        await asyncio.wait({reading}, timeout=min(self.patience, longest))

    def _wait_for_announced(self, reading: asyncio.Task[None]) -> Awaitable[None] | None:
        """Return what waits for a reading; None for one of large lists, which begins after a long pause."""
        is_late = self._begins_at - asyncio.get_running_loop().time() > ANNOUNCED_SECONDS
        return None if is_late else self.wait_for(reading, ANNOUNCED_SECONDS)

    def look_again(self) -> Awaitable[None] | None:
        """Read the lists for a call of a tool that is not listed; None where they were read a moment ago."""
        if self._reading is not None and not self._reading.done():
            return self._wait_for_announced(self._reading)
        if self.lists is None or asyncio.get_running_loop().time() - self.read_at < UNLISTED_SECONDS:
            return None
        return self.wait_for(self.begin_rereading(), ANNOUNCED_SECONDS)

    async def ensure_read(self) -> None:
        """Read the lists now, for a client that waits for them for a while."""
        if self.is_running and self.first.is_set():
            await self.wait_for(self.begin_rereading())
            return
        self.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                await self.first.wait()

    def mark_stale(self) -> None:
        """Have the lists read again before they are shown."""
        self.read_at = -inf
        self._is_outdated = True

    async def reread_lists(self) -> None:
        """Read the lists again, because something went wrong that outdated lists, or a dead server, may explain."""
        try:
            await self.refresh()
        except ToolwireError as error:
            self._interruption = error
            self._wanted.set()
            raise

    def begin_rereading(self) -> asyncio.Task[None]:
        """Read the lists again, in a task that raises nothing."""
        return asyncio.get_running_loop().create_task(self._reread())

    async def _reread(self) -> None:
        try:
            await self.reread_lists()
        except ToolwireError as error:
            self._upstream.log.debug("the lists could not be read again: %s", error)

    async def refresh(self) -> None:
        """Read the lists again. Requests that come meanwhile are served together by one more reading."""
        reading = self._begin_reading()
        await asyncio.wait({reading})
        if not reading.cancelled():
            reading.result()

    def read_again(self) -> None:
        """Read the lists again soon, if the upstream is followed."""
        if self.state is not FollowState.CLOSED:
            self._begin_reading().add_done_callback(self._note_failure)

    def _begin_reading(self) -> asyncio.Task[None]:
        if self._reading is not None and not self._reading.done():
            self._is_outdated = True
        else:
            self._reading = asyncio.ensure_future(self._read())
        return self._reading

    def _note_failure(self, reading: asyncio.Future[None]) -> None:
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self._upstream.log.debug("the lists could not be read again: %s", error)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        self._is_announced = False
        size = 0
        for _ in range(2):
            # Lists that are missing are read at once, however large they are.
            if pause := self._pace.seconds_until_next(loop.time(), is_urgent=not self._upstream.is_ready):
                self._begins_at = loop.time() + pause
                await asyncio.sleep(pause)
            self._pace.begin(loop.time())
            self._is_outdated = False
            lists, connection = await self._read_somewhere()
            size += lists.size
            self.readings += 1
            if not self._is_outdated:
                break
        else:
            # It changes all the time. What it listed last is offered meanwhile.
            loop.call_soon(self.read_again)
        self._upstream.check_lists(lists)
        self.lists = lists
        self.read_at = loop.time()
        self.first.set()
        has_changed = self._upstream.publish_lists(lists, connection)
        self._pace.end(loop.time(), size, has_changed=has_changed)

    async def _read_somewhere(self) -> tuple[RemoteLists, ClientConnection]:
        """Read the lists, at another address if the first one fails."""
        while True:
            connection = await self._upstream.open_connection()
            try:
                views = self._upstream.shows_views
                timeout = self.settings.timeout
                lists = await read_lists(self._upstream.log, connection, self.lists, timeout, views)
            except ToolwireError as error:
                if not self._upstream.leave_address(error, connection):
                    raise
            else:
                return lists, connection


def filter_for(connection: ClientConnection, watched: list[str], hears_lists: bool) -> t.SubscriptionFilter | None:
    """Return what to subscribe to: changes of the lists, and the resources that clients subscribed to."""
    declared = connection.agreement.capabilities
    uris = watched if t.has_capability(declared, "resources.subscribe") else []
    kinds = ("tools", "prompts", "resources")
    flags = [hears_lists and t.has_capability(declared, f"{kind}.listChanged") for kind in kinds]
    if not uris and not any(flags):
        return None
    tools, prompts, resources = (flag or UNSET for flag in flags)
    return t.SubscriptionFilter(
        tools_list_changed=tools,
        prompts_list_changed=prompts,
        resources_list_changed=resources,
        resource_subscriptions=uris or UNSET,
    )


def announces_everything(connection: ClientConnection) -> bool:
    """Return whether an upstream declares that it announces changes of all its lists."""
    declared = connection.agreement.capabilities
    return all(
        t.has_capability(declared, f"{kind}.listChanged")
        for kind in ("tools", "prompts", "resources")
        if t.has_capability(declared, kind)
    )


def _release(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def _stop(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
