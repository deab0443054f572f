"""The connection of a client: opened when it is first needed, and opened again after it was lost.

2026-07-28 basic/versioning, backward compatibility: the client asks as a modern client would, falls back once it is
clear that the server is older, and remembers the kind of server.

A call whose outcome is unknown may have run. Only requests that change nothing, or nothing more the second time, are
repeated, and once (2026-07-28 basic/transports/streamable-http: a broken stream loses its request).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from toolwire.base_errors import UnsendableRequest
from toolwire.client.connection import Changed, ClientConnection, OnLog
from toolwire.client.handlers import Answers
from toolwire.client.negotiation import DiedOnProbe
from toolwire.client.notifications import NotificationHandlers
from toolwire.client.target import NO_VERDICT, Target
from toolwire.protocol import types as t
from toolwire.protocol.decoders import convert_to
from toolwire.protocol.errors import (
    InvalidResponse,
    NotStreamable,
    OutcomeUnknown,
    ProtocolError,
    TransportError,
    Unreachable,
)
from toolwire.protocol.lifecycle.negotiation import NoCommonRevision
from toolwire.protocol.revisions import LATEST_LEGACY
from toolwire.util.backoff import LONGEST_SECONDS, Backoff
from toolwire.util.single_flight import SingleFlight
from toolwire.wire.deadlines import CallClock, StoppableClock
from toolwire.wire.tapped_channel import Direction, Tap

log: logging.Logger = logging.getLogger("toolwire.client")

#: How often the client tries to reach a server again before a call fails. This takes about six seconds.
ATTEMPTS: Final = 6
#: Requests that only read, by definition of the protocol.
READING: Final = frozenset(
    {
        "server/discover",
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
    }
)


#: What opens a connection.
Opening: TypeAlias = Callable[[], Coroutine[Any, Any, ClientConnection]]


class Connector:
    """The one connection of a client. However many tasks need it at once, it is opened, or opened again, once."""

    def __init__(self, opener: Opener, *, is_patient: bool = False) -> None:
        """`is_patient`: a server that is busy when the client connects is waited for."""
        self.connection: ClientConnection | None = None
        self._opener = opener
        self._open_first = opener.open_when_free if is_patient else opener.open
        self._target = opener.target
        self._opening = SingleFlight[ClientConnection]()
        self._recovering = SingleFlight[ClientConnection]()
        self._retiring: dict[asyncio.Task[None], ClientConnection] = {}

    @property
    def connected(self) -> bool:
        return self.connection is not None and not self.connection.ended

    @property
    def attempts(self) -> int:
        """The number of attempts to reach a server again that somebody else restarts."""
        return ATTEMPTS if self._target.comes_back else 0

    async def live(self) -> ClientConnection:
        """Return a connection that works; open one if there is none."""
        connection = self.connection
        if connection is not None and not connection.ended:
            return connection
        return await self._opened(self._open_first)

    async def _opened(self, opening: Opening) -> ClientConnection:
        return _read_result(await self._opening.join(partial(self._open, opening)))

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        await self._recovering.stop()
        await self._opening.stop()
        if self.connection is not None:  # It was opened a moment before.
            connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()
        for task, retiring in list(self._retiring.items()):
            await retiring.close()
            await asyncio.wait({task})

    def current(self) -> ClientConnection:
        if self.connection is None:
            raise Unreachable("The client is not connected: use `async with Client(...)` or `await client.connect()`")
        return self.connection

    @property
    def call_time(self) -> StoppableClock:
        """The clock of calls, which stands still while a person answers or signs in, on any connection."""
        return self._opener.call_time

    async def usable(self, clock: CallClock | None = None) -> ClientConnection:
        """Return the current connection, or a new one if it was lost (STD-12)."""
        connection = self.current()
        if not connection.ended:
            return connection
        return await self.recovered(clock)

    async def recovered(self, clock: CallClock | None = None) -> ClientConnection:
        """Return a connection that works after one that did not. Wait for a server that is coming back.

        `clock` is the time limit of the call that needs it. A recovery that takes longer continues for the next call.
        """
        connection = self.current()
        if not self._target.restartable:
            raise await connection.lost(Unreachable("The connection ended"))
        recovering = await self._recovering.join(self._recover, wait=None if clock is None else clock.wait)
        if not recovering.done():
            raise Unreachable(f"{self._target.label} did not come back in time")
        return _read_result(recovering)

    async def _open(self, opening: Opening) -> ClientConnection:
        before = self.connection
        if before is not None:
            await self._replace(before)
        connection = await opening()
        if before is not None:
            # The definitions are valid until the tools are listed again.
            connection.tools = before.tools
        self.connection = connection
        if before is not None:
            self._opener.changed(None, None)
        return connection

    async def _replace(self, before: ClientConnection) -> None:
        if before.link.duplex:
            await before.close()
            return
        # Other requests may still read their answers there.
        retiring = asyncio.get_running_loop().create_task(before.retire())
        self._retiring[retiring] = before
        retiring.add_done_callback(self._retired)

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.pop(task, None)

    async def _recover(self) -> ClientConnection:
        backoff = Backoff(self.attempts)
        while True:
            try:
                return await self._present()
            except TransportError as error:
                if isinstance(error, InvalidResponse) or (isinstance(error, Unreachable) and not is_passing(error)):
                    raise
                pause = backoff.next()
                if pause is None or (pause := pause_after(error, pause)) > LONGEST_SECONDS:
                    raise
                log.info("%s is not back yet: %s", self._target.label, error)
                await asyncio.sleep(pause)

    async def _present(self) -> ClientConnection:
        """Return the connection, once the server has shown that it is there."""
        connection = self.connection
        if connection is not None and not connection.ended:
            try:
                await connection.check()
                return connection
            except Unreachable:
                # The server has ended the session, so a new one is opened.
                if not connection.session.over:
                    raise
                await asyncio.wait({connection.reader})
        log.warning("connected to %s again", self._target.label)
        # The recovery does the waiting.
        return await self._opened(self._opener.open)


def _read_result(task: asyncio.Task[ClientConnection]) -> ClientConnection:
    if task.cancelled():
        raise Unreachable("The client was closed while it connected")
    return task.result()


# --- Opening ----------------------------------------------------------------------------------------------------------


class Opener(Struct, eq=False):
    """The opener of connections to one target. `take_up` sees each connection before anybody else uses it."""

    target: Target
    answers: Answers
    identity: t.Implementation
    on_log: OnLog | None
    changed: Changed
    take_up: Callable[[ClientConnection], Awaitable[None]]
    timeout: float | None
    probe_timeout: float
    pinned: str | None
    handlers: NotificationHandlers
    tap: Tap | None = None
    make_connection: Callable[..., ClientConnection] = ClientConnection
    tries_sse: bool = True
    """Whether a server without Streamable HTTP may have HTTP+SSE."""
    _call_time: StoppableClock | None = None

    @property
    def call_time(self) -> StoppableClock:
        """The clock of calls on all connections that are opened here."""
        loop = asyncio.get_running_loop()
        if self._call_time is None or self._call_time.loop is not loop:
            self._call_time = StoppableClock(loop)
        return self._call_time

    async def open(self) -> ClientConnection:
        """Open a connection and agree on a revision."""
        return await self._open_within(CallClock(self.timeout, self.call_time))

    async def open_when_free(self) -> ClientConnection:
        """Open a connection; retry while the server is busy, within the time limit."""
        clock, backoff = CallClock(self.timeout, self.call_time), Backoff(ATTEMPTS)
        while True:
            try:
                return await self._open_within(clock)
            except Unreachable as error:
                pause, left = backoff.next(), clock.left()
                if error.retry_after is None or pause is None:
                    raise
                pause = pause_after(error, pause)
                if pause > LONGEST_SECONDS or (left is not None and pause >= left):
                    raise
                log.info("%s is busy: %s", self.target.label, error)
            await asyncio.sleep(pause)

    async def _open_within(self, clock: CallClock) -> ClientConnection:
        try:
            connection = await self._negotiated(clock)
        except (TransportError, InvalidResponse) as error:
            self.target.explain(error)
            raise
        if self.pinned is None and connection.modern:
            self.target.verdict = None
        elif self.pinned is None and self.target.verdict is None:
            self.target.verdict = "legacy"
        return connection

    async def _negotiated(self, clock: CallClock) -> ClientConnection:
        verdict = self.target.verdict
        if verdict == "sse" or (verdict is not None and self.pinned is None):
            # ERA-10: the client remembers the kind of server, so that it does not ask again after a restart.
            try:
                return await self._attempt(self.pinned or LATEST_LEGACY, clock)
            except (ProtocolError, TransportError) as error:
                if not denies_revision(error):
                    raise
                log.info("%s is no longer what it was: %s", self.target.label, error)
                self.target.verdict = None
        try:
            connection = await self._attempt(self.pinned, clock)
            if not connection.agreement.late or not self.target.restartable:
                return connection
            # The server was not silent but slow to start. That must not decide the revision, so wait for its answer.
            await connection.close()
            return await self._attempt(None, clock, is_modern_only=True)
        except DiedOnProbe:
            # 2026-07-28 basic/versioning: a legacy server may exit on an unknown request. Do not send it again.
            return await self._attempt(LATEST_LEGACY, clock)
        except NotStreamable as refusal:
            if not self.tries_sse:
                raise
            return await self._over_sse(refusal, clock)

    async def _over_sse(self, refusal: NotStreamable, clock: CallClock) -> ClientConnection:
        """2025-11-25 basic/transports, backwards compatibility: try HTTP+SSE last. If it fails, raise the earlier
        refusal.
        """
        before, self.target.verdict = self.target.verdict, "sse"
        try:
            return await self._attempt(self.pinned or LATEST_LEGACY, clock)
        except BaseException as error:
            self.target.verdict = before
            # A server that is busy has said nothing about its kind.
            if isinstance(error, TransportError) and error.retry_after is None:
                raise refusal from None
            raise

    async def _attempt(
        self, revision: str | None, clock: CallClock, *, is_modern_only: bool = False
    ) -> ClientConnection:
        link = await self.target.open()
        if self.tap is not None:
            link.tap(_harmless(self.tap))
        try:
            await link.connect(clock.left())
        except BaseException:
            await link.close()
            raise
        connection = self.make_connection(link, self.answers, self.on_log, self.changed, self.handlers)
        connection.session.deadlines.call_time = self.call_time
        try:
            await connection.agree(
                self.identity, revision, probe=self.probe_timeout, clock=clock, is_modern_only=is_modern_only
            )
            if self.pinned is not None and connection.revision != self.pinned:
                raise NoCommonRevision(
                    f"The server answered {connection.revision} instead of {self.pinned}", [connection.revision]
                )
            await self.take_up(connection)
        except DiedOnProbe:
            why = await link.last_words()
            await connection.close()
            if revision is None and self.target.restartable:
                raise
            raise Unreachable(why) from None
        except TransportError:
            if not link.duplex:
                await connection.close()
                raise
            why, fault = await link.last_words(), link.fault
            await connection.close()
            if isinstance(fault, InvalidResponse):
                raise fault from None
            raise Unreachable(why) from None
        except BaseException:
            await connection.close()
            raise
        return connection


def name_card(
    name: str,
    version: str,
    title: str | None,
    description: str | None,
    website_url: str | None,
    icons: Iterable[t.Icon | Mapping[str, Any]],
) -> t.Implementation:
    """Return what a client says about itself. Raise `ValueError` for an icon that a server would not show.

    Each revision is sent the members that it knows.
    """
    try:
        shown = [icon if isinstance(icon, t.Icon) else convert_to(icon, t.Icon) for icon in icons]
    except msgspec.ValidationError as error:
        raise ValueError(f"An icon is a mapping such as {{'src': 'https://...'}}: {error}") from None
    for icon in shown:
        # ICN-2: servers fetch no other schemes.
        if not icon.src.startswith(("https://", "http://", "data:")):
            raise ValueError(f"An icon is an http, https or data address, not {icon.src[:60]!r}")
    return t.Implementation(
        name,
        version,
        title=title or UNSET,
        description=description or UNSET,
        website_url=website_url or UNSET,
        icons=shown or UNSET,
    )


def denies_revision(error: ProtocolError | TransportError) -> bool:
    """Say whether an error shows that the server does not speak a revision. One that is down or busy shows nothing."""
    if isinstance(error, ProtocolError | NotStreamable):
        return True
    return error.status is not None and error.status < 500 and error.status not in NO_VERDICT


def _harmless(tap: Tap) -> Tap:
    """Return the tap in a form that logs its failures, so that the message goes on."""

    def told(direction: Direction, message: bytes) -> None:
        try:
            tap(direction, message)
        except Exception:
            log.exception("on_message failed")

    return told


# --- Repeating --------------------------------------------------------------------------------------------------------


def may_repeat(
    error: TransportError, connection: ClientConnection, method: str, params: t.RequestParams, repeatable: bool = False
) -> bool:
    """Say whether a request that failed with `error` may be sent again. `repeatable`: its sender allows it."""
    if isinstance(error, Unreachable):
        # The request never reached the server, or the server refused it before it did anything.
        return is_passing(error)
    if not isinstance(error, OutcomeUnknown) or isinstance(error, InvalidResponse):
        return False
    if method == "tools/call" and isinstance(params, t.CallToolRequestParams):
        return connection.tools.is_repeatable(params.name)
    return repeatable or method in READING


def is_passing(error: Unreachable) -> bool:
    """Say whether a server that was not reached may be reached a moment later: it is down, or busy (429, 503)."""
    return not isinstance(error, UnsendableRequest) and (error.status is None or error.status in (429, 503))


def pause_after(error: TransportError, pause: float) -> float:
    """Return how long to leave a server alone: at least as long as it asked for."""
    return pause if error.retry_after is None else max(pause, error.retry_after)
