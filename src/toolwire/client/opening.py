"""Opening a connection to a target: how often it is tried, with which revision, over which transport.

2026-07-28 basic/versioning, backward compatibility: ask as a modern client would, fall back once it is clear that the
server is older, and remember what it turned out to be.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from toolwire.client.connection import Changed, Connection, OnLog
from toolwire.client.handlers import Answers
from toolwire.client.negotiation import DiedOnProbe
from toolwire.client.target import START_SECONDS, Target
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotStreamable, ProtocolError, TransportError, Unreachable
from toolwire.protocol.lifecycle import NoCommonRevision
from toolwire.protocol.revisions import LATEST_LEGACY
from toolwire.wire.tapped_channel import Direction, Tap

log: logging.Logger = logging.getLogger("toolwire.client")


class Opener(Struct, eq=False):
    """Makes connections to one target; `take_up` is given each one before anybody else uses it."""

    target: Target
    answers: Answers
    identity: t.Implementation
    on_log: OnLog | None
    changed: Changed
    take_up: Callable[[Connection], Awaitable[None]]
    timeout: float | None
    probe_timeout: float
    pinned: str | None
    tap: Tap | None = None

    async def open(self) -> Connection:
        """An agreed connection."""
        connection = await self._negotiated()
        if self.pinned is None and connection.modern:
            self.target.verdict = None
        elif self.pinned is None and self.target.verdict is None:
            self.target.verdict = "legacy"
        return connection

    async def _negotiated(self) -> Connection:
        verdict = self.target.verdict
        if verdict == "sse" or (verdict is not None and self.pinned is None):
            # ERA-10: what the server turned out to be is remembered, so that a restart does not ask again.
            try:
                return await self._attempt(self.pinned or LATEST_LEGACY)
            except (ProtocolError, TransportError) as error:
                if not _denies(error):
                    raise
                log.info("%s is no longer what it was: %s", self.target.label, error)
                self.target.verdict = None
        try:
            connection = await self._attempt(self.pinned)
            if not connection.agreement.late or not self.target.restartable:
                return connection
            # It was not silent but slow to start, which must not decide what it speaks. This time it is waited for.
            await connection.close()
            return await self._attempt(None, probe=self.timeout or START_SECONDS)
        except DiedOnProbe:
            # 2026-07-28 basic/versioning: a legacy server may exit on what it does not know. Asked once, not twice.
            return await self._attempt(LATEST_LEGACY)
        except NotStreamable as refusal:
            return await self._over_sse(refusal)

    async def _over_sse(self, refusal: NotStreamable) -> Connection:
        """2025-11-25 basic/transports, backwards compatibility: the last resort. Its failure does not count."""
        before, self.target.verdict = self.target.verdict, "sse"
        try:
            return await self._attempt(self.pinned or LATEST_LEGACY)
        except BaseException as error:
            self.target.verdict = before
            if isinstance(error, TransportError):
                raise refusal from None
            raise

    async def _attempt(self, revision: str | None, *, probe: float | None = None) -> Connection:
        link = await self.target.open()
        if self.tap is not None:
            link.tap(_harmless(self.tap))
        connection = Connection(link, self.answers, self.on_log, self.changed)
        try:
            longest = self.probe_timeout if probe is None else probe
            await connection.agree(self.identity, revision, probe=longest, timeout=self.timeout)
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
            why = await link.last_words()
            await connection.close()
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
    """What a client says about itself; `ValueError` for an icon that a server would not show.

    Each revision is sent the members that it knows.
    """
    try:
        shown = [icon if isinstance(icon, t.Icon) else msgspec.convert(icon, t.Icon) for icon in icons]
    except msgspec.ValidationError as error:
        raise ValueError(f"An icon is a mapping such as {{'src': 'https://...'}}: {error}") from None
    for icon in shown:
        # ICN-2: other schemes are not fetched.
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


def _denies(error: ProtocolError | TransportError) -> bool:
    """Return whether the server answers, but speaks something else. A server that is down or busy proves nothing."""
    if isinstance(error, ProtocolError | NotStreamable):
        return True
    return error.status is not None and error.status < 500 and error.status not in (408, 425, 429)


def _harmless(tap: Tap) -> Tap:
    """A tap whose failure is its own: the message goes on to whom it is for."""

    def told(direction: Direction, message: bytes) -> None:
        try:
            tap(direction, message)
        except Exception:
            log.exception("on_message failed")

    return told
