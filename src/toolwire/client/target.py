"""Targets and links: the place of a server, and an open way to it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import inf
from time import monotonic
from typing import Any, Final

from toolwire.protocol import types as t
from toolwire.protocol.errors import InvalidResponse, NotSupported, ProtocolError, Timeout, TransportError
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.lifecycle.client import ClientLifecycle
from toolwire.protocol.lifecycle.negotiation import Ask, Outcome
from toolwire.protocol.peer import Peer
from toolwire.server_texts import ServerTexts
from toolwire.wire.channel import Channel, Sender
from toolwire.wire.session import ClientHandler, Session
from toolwire.wire.tapped_channel import Tap, TappedChannel

#: How long a server may take to start where requests have no timeout.
START_SECONDS: Final = 120.0
# How often to check whether a starting server has read the question.
_LOOK_SECONDS: Final = 0.2


class Link:
    """An open way to a server, with everything that closes together with it.

    `duplex`: it is one connection, which works or fails as a whole. `carries_headers`: each request has headers of its
    own.
    """

    duplex = True
    carries_headers = False
    senders: dict[RequestId, Sender] | None = None
    """The clients of requests that are sent for others, for a server of this process; None for any other server."""
    # The id of the question for the revision that got no answer in time.
    _probe: RequestId = 0
    _late: asyncio.Task[Any] | None = None

    def __init__(self, channel: Channel, label: str, texts: ServerTexts | None = None) -> None:
        """`texts` cleans what the log and errors quote of the server."""
        self.channel: Channel = channel
        self.label = label
        self.texts: ServerTexts = ServerTexts() if texts is None else texts

    def tap(self, tap: Tap) -> None:
        """Show every message that passes from now on."""
        self.channel = TappedChannel(self.channel, tap)

    async def connect(self, seconds: float | None) -> None:
        """Wait until messages can be sent, for so many seconds at most; None for as long as the transport allows."""

    def advise_silence(self) -> str:
        """Return advice about a server that does not answer; "" if there is none."""
        return ""

    def require_headers(self) -> None:
        """Raise `NotSupported` where requests have no headers of their own."""
        if not self.carries_headers:
            raise NotSupported(f"headers= is for servers reached by HTTP, and {self.label} is not")

    def session(self, lifecycle: ClientLifecycle, handler: ClientHandler, ceiling: float) -> Session:
        """Return the session that requests are sent by. Progress extends a deadline by at most `ceiling` seconds."""
        return Session(self.channel, Peer(lifecycle), handler, ceiling=ceiling, texts=self.texts, peer_name=self.name)

    @property
    def name(self) -> str:
        """The name of the server for the log."""
        return self.texts.name or self.label

    async def probe(self, session: Session, ask: Ask, seconds: float, timeout: float | None) -> Outcome:
        """Ask for the revision, for a limited time. Silence is an answer (ERA-7), so no cancellation follows it.

        A server that waits for `initialize` would take the notification for one more violation. The question gets at
        most half of the `timeout` seconds for connecting, so that `initialize` has the other half. A server that has
        not read the question yet is still starting: its time begins when it has read it.
        """
        self._probe = session.peer.next_id()
        asking = asyncio.ensure_future(session.request(ask.method, ask.params, identifier=self._probe))
        longest = START_SECONDS if timeout is None else timeout
        seconds = min(seconds, longest / 2)
        if not await self._await_answer(session, asking, seconds, lambda: bool(self.channel.unread), longest):
            if self.channel.unread:
                await self._stop_asking(session, asking)
                raise Timeout("The server did not read what it was asked")
            self._leave_open(asking)
            return None
        outcome: Outcome = asking.result()
        return outcome

    async def _await_answer(
        self,
        session: Session,
        asking: asyncio.Task[Any],
        seconds: float,
        is_paused: Callable[[], bool],
        longest: float = inf,
    ) -> bool:
        """Wait some seconds for the answer to a question. Return whether it came.

        The time starts anew whenever `is_paused` is true, and ends after `longest` seconds in any case.
        """
        loop = asyncio.get_running_loop()
        last, silent_at = loop.time() + longest, loop.time() + seconds
        try:
            while not asking.done() and (left := min(silent_at, last) - loop.time()) > 0:
                await asyncio.wait({asking}, timeout=min(left, _LOOK_SECONDS))
                if not asking.done() and is_paused():
                    silent_at = loop.time() + seconds
        except BaseException:
            await self._stop_asking(session, asking)
            raise
        return asking.done()

    def _leave_open(self, asking: asyncio.Task[Any]) -> None:
        """Keep a question open after its time, so that a late answer still counts."""
        asking.add_done_callback(_retrieve_outcome)
        self._late = asking

    @property
    def has_open_question(self) -> bool:
        """Return whether a question is kept open after its time."""
        return self._late is not None

    async def await_late(self, session: Session, seconds: float | None) -> Outcome:
        """Return the answer to a question that was kept open; raise `Timeout` without one."""
        asking, self._late = self._late, None
        assert asking is not None
        try:
            await asyncio.wait({asking}, timeout=None if seconds is None else max(0.0, seconds))
        finally:
            if not asking.done():
                await self._stop_asking(session, asking)
        if asking.cancelled():
            raise Timeout("The server did not answer while the client connected")
        outcome: Outcome = asking.result()
        return outcome

    async def heard_late(self, session: Session, seconds: float = 0.0) -> Outcome:
        """Return a late answer to a question, after waiting some seconds; None without one."""
        asking, self._late = self._late, None
        if asking is None:
            return None
        if seconds:
            await asyncio.wait({asking}, timeout=seconds)
        if not asking.done():
            await self._stop_asking(session, asking)
            return None
        if (error := asking.exception()) is not None:
            return error if isinstance(error, ProtocolError) else None
        answer: Outcome = asking.result()
        return answer

    async def _stop_asking(self, session: Session, asking: asyncio.Task[Any]) -> None:
        session.peer.forget(self._probe)
        asking.cancel()
        await asyncio.wait({asking})

    async def close(self) -> None:
        await self.channel.close()

    @property
    def fault(self) -> TransportError | None:
        """The error that ended the connection; None where that is not known."""
        return None

    async def last_words(self) -> str:
        """Say why the connection ended, as far as that is known."""
        return f"The connection to {self.label} ended"


def _retrieve_outcome(asking: asyncio.Task[Any]) -> None:
    """Retrieve the outcome of a question, because asyncio warns of one that is never retrieved."""
    if not asking.cancelled():
        asking.exception()


#: How many seconds the kind of a server is remembered. After that the client asks again: a server that was upgraded
#: still answers `initialize`, so that a verdict without an end would keep it on the old revision for ever.
VERDICT_SECONDS: Final = 600.0
#: The statuses below 500 that say nothing about the kind of a server: it is busy, or it refuses the caller.
NO_VERDICT: Final = frozenset({401, 403, 408, 425, 429})


class Verdict:
    """The kind of server that a target turned out to be, and when that was found."""

    __slots__ = ("_found", "kind")

    def __init__(self, kind: str) -> None:
        self.kind: str = kind
        self._found = monotonic()

    @property
    def is_valid(self) -> bool:
        return monotonic() - self._found < VERDICT_SECONDS


def valid_kind(verdict: Verdict | None) -> str | None:
    """Return the kind of server that a verdict names; None if there is none, or if it is too old."""
    return verdict.kind if verdict is not None and verdict.is_valid else None


class Target(ABC):
    """The place of a server.

    `restartable`: opening it again may help. `comes_back`: somebody else restarts it, so that it is worth waiting for.
    `verdict`: the kind of server that it turned out to be, unless it speaks 2026-07-28 (ERA-10). `transport` is
    `stdio`, `http`, or `memory` for a server in this process.
    """

    label: str
    transport: str = "memory"
    restartable = False
    comes_back = False
    _verdict: Verdict | None = None
    _texts: ServerTexts | None = None

    @property
    def texts(self) -> ServerTexts:
        """The texts of the server for logs and errors, which all places made of this one share."""
        if self._texts is None:
            self._texts = ServerTexts()
        return self._texts

    def explain(self, error: TransportError | InvalidResponse) -> None:
        """Add to the text of an error of connecting what a person should look at."""
        return

    @property
    def verdict(self) -> str | None:
        return valid_kind(self._verdict)

    @verdict.setter
    def verdict(self, verdict: str | None) -> None:
        self._verdict = None if verdict is None else Verdict(verdict)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that a client of it has to run on; None where any will do."""
        return None

    @property
    def identity(self) -> object:
        """The key of this server in a cache: it differs from that of every other server."""
        return self

    @property
    def address(self) -> str:
        """The key of this server in a file, for which `label` may be too short."""
        return self.label

    @abstractmethod
    async def open(self) -> Link: ...

    @property
    def missing(self) -> Mapping[str, str]:
        """The servers that are away, each with the reason, where this is a place of several servers."""
        return {}

    # A view knows the tools and resources of its own server, under the names that they have there (SEP-1865).

    def server_of(self, tool: str) -> str | None:
        """Return the name of the server that has a tool; None where no server has it."""
        return self.label

    def own_name(self, tool: str) -> str:
        """Return the name that a tool has at its server."""
        return tool

    def tool_at(self, server: str, own_name: str) -> str:
        """Return the name under which a program calls a tool of one server."""
        return own_name

    def address_at(self, server: str, uri: str) -> str:
        """Return the address that a resource has at its server: `uri`, unless it has another address here."""
        return uri

    def pinned(self, name: str, tool: t.Tool | None) -> tuple[str, str, t.Tool | None]:
        """Return the address of the server that has a tool, and the name and the definition that it has there."""
        return self.address, name, tool

    def pinned_lists(self, tools: list[t.Tool]) -> Mapping[str, list[t.Tool]]:
        """Return the tools that were listed, as their servers define them, by the address of the server."""
        return {self.address: tools}


def fingerprint(*texts: str) -> str:
    """Return a hash that stands for texts that may hold secrets."""
    # Imported here because few targets need it.
    import hashlib

    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:32]
