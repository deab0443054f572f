"""The streams of legacy HTTP sessions that this process carries, and how processes agree on the owner of a session.

The record of the session names the owner. A stream becomes the owner by a compare-and-set, which numbers the owners,
and then publishes a claim with its number on the one topic that every process hears in the same order, with all
notifications. So all processes change the owner between the same two notifications, and a claim that comes late, after
one with a higher number, changes nothing. A stream that is opened or resumed also claims its name, so that the
connection that had it gives it up. `get_stream` says what an owner, a claim, a handover, a lease and a heartbeat are.

A stream claims a session when it is opened, when the owner has given the session up, when the lease of the owner's
process is gone, and when the record and the claims contradict each other at two heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from toolwire.http.legacy.event_log import LONGEST_PAUSE, EventLog, Resume, stream_name
from toolwire.http.legacy.get_stream import GetStream, ResumedStream, SessionStream
from toolwire.http.legacy.post_stream import KEPT_FOR_RETURN, PostStream
from toolwire.http.legacy.process_watch import LEASE_SECONDS, ProcessWatch
from toolwire.http.legacy.session_records import SessionRecord, SessionRecords, StreamOwner
from toolwire.http.legacy.session_token import SessionToken
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, Logged, Notified, Published
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import ProtocolError, ToolwireError
from toolwire.protocol.jsonrpc import encode_notification
from toolwire.protocol.sealing import encode_base64url
from toolwire.stores import StoreFailed, StoreFull, Stores
from toolwire.stores.queue import NO_QUEUE
from toolwire.util.backoff import Backoff
from toolwire.wire.bus_link import BusLink
from toolwire.wire.deadlines import in_time
from toolwire.wire.process_lease import Lease

log: logging.Logger = logging.getLogger("toolwire.http")

# How long a claim may take to come back. After that the bus is out of order, and a notification on two streams is the
# lesser evil.
CLAIM_SECONDS: Final = 5.0
# How long the last messages of calls may take to be sent when the application stops.
FLUSH_SECONDS: Final = 1.0

# The answers to requests that no process works on any more.
_PROCESS_GONE: Final = "The server lost contact with the process that ran this request; the request may have run"
_ANSWER_LOST: Final = "The answer to this request is lost: the store did not take it; the request has run"


class _Claim(Struct):
    session: str
    stream: str
    """The name of the stream."""
    by: str
    """Its id, which is that of one connection."""
    process: str
    number: int = 0
    """The number of the owner; 0 for a stream that answers a POST, and from a process of an earlier release."""
    lease: str = ""


class _Released(Struct):
    session: str
    by: str


class _OwnerAsked(Struct):
    """A question of an earlier release: does the owner of a session live?"""

    session: str
    by: str
    """The process that asks."""


class _OwnerKnown(Struct):
    session: str


class _HandedOver(Struct):
    session: str
    to: str


class _WriterAsked(Struct):
    """A question to a process: does it still write a stream?"""

    process: str
    session: str
    stream: str
    by: str
    """The process that asks."""


class _WriterKnown(Struct):
    """The answer to a question for the writer of a stream."""

    session: str
    stream: str
    writes: bool


class _Wake(Struct):
    session: str
    stream: str


class _State(Struct):
    session: str
    level: t.LoggingLevel
    uris: list[str]


class SessionStreams:
    """All streams of this process."""

    def __init__(
        self,
        process: str,
        link: BusLink,
        stores: Stores,
        records: SessionRecords,
        random: Callable[[int], bytes],
        abandoned_leases: list[str] | None = None,
    ) -> None:
        """`process` is the name of this process, which no other has. For `abandoned_leases` see `Lease`."""
        self.process: str = process
        self.events: EventLog = EventLog(stores.log)
        self._lease = Lease(stores, LEASE_SECONDS, self._on_lease_lost, abandoned_leases)
        self._has_leases = stores.queue is not NO_QUEUE
        self._watch = ProcessWatch(stores.queue, asyncio.get_running_loop().time)
        self._watching: asyncio.Task[None] | None = None
        self._claims: set[asyncio.Task[None]] = set()
        self._given_up: deque[SessionStream] = deque()  # The owners that gave up, and whose records have to say so.
        self._noting: asyncio.Task[None] | None = None
        self._is_joined = asyncio.Event()  # Set when another stream waits for a process.
        self._link = link
        self._records = records
        self._random = random
        self._posts: dict[tuple[str, str], PostStream] = {}
        self._gets: dict[str, list[GetStream]] = {}
        self._is_closed = False
        self._missed = False
        self._catching_up: asyncio.Task[None] | None = None
        self._leave = [
            link.on("claim", self._on_claim),
            link.on("released", self._on_released),
            link.on("owner?", self._on_owner_asked),
            link.on("handed", self._on_handed_over),
            link.on("writer?", self._on_writer_asked),
            link.on("writer", self._on_writer_known),
            link.on("wake", self._on_wake),
            link.on("state", self._on_state),
            link.on("change", self._on_change),
            link.on("log", self._on_log),
            link.on("say", self._on_notify),
            link.on_lost(self._on_lost),
        ]

    # --- opening ---

    def new_name(self) -> str:
        return stream_name("p", self._random)

    def add(self, stream: PostStream) -> None:
        self._posts[stream.session, stream.name] = stream

    def count(self, session: str, *, resumed: bool) -> int:
        """Return how many connections carry streams of a session by GET: resumed answers, or its own streams."""
        streams = self._gets.get(session, ())
        return sum(1 for each in streams if isinstance(each, ResumedStream) == resumed and not _is_leased(each))

    def __len__(self) -> int:
        return len(self._posts) + sum(map(len, self._gets.values()))

    async def resume(self, token: SessionToken, resume: Resume) -> GetStream:
        """Go on with a stream that answers a POST."""
        stream = ResumedStream(self, self._new_id(), token, resume)
        self._add(stream)
        try:
            await self._claim(stream)
            await stream.begin()
        except BaseException:
            self._remove(stream)
            raise
        if stream.waits_for(self.process):
            self._watch_writers()
        elif stream.header is not None:
            self.check_writer(stream)
        return stream

    async def listen(
        self,
        token: SessionToken,
        resume: Resume | None,
        hears: Callable[[Change], bool],
        promised: Mapping[str, Any],
        declared: frozenset[str],
    ) -> SessionStream | None:
        """Open a stream of the session's own, or go on with one; None when the session ended meanwhile."""
        place = resume or Resume(stream_name("g", self._random), None)
        stream = SessionStream(self, self._new_id(), token, place, hears, promised, declared)
        self._add(stream)
        try:
            claimed = stream.claimed
            assert claimed is not None
            try:
                _, listened = await self._record_claim(stream)
            except ProtocolError:
                listened = True  # The session has ended, which the record says below.
            await self._claim(stream)
            if not await in_time(CLAIM_SECONDS, claimed):
                stream.owns = stream.claim_heard = True
            await stream.look_for_events()
            # Read after the claim: this process hears of whatever changes from now on.
            record = await self._records.find(token)
            if record is None:
                self._remove(stream)
                return None
            await stream.begin(record.level, frozenset(record.uris), is_first=resume is None and not listened)
        except BaseException:
            self._remove(stream)
            self._note_end(stream)
            raise
        if not stream.owns:
            self._watch_owners()
        return stream

    async def _record_claim(
        self, stream: SessionStream, may_claim: Callable[[StreamOwner | None], bool] = lambda _: True
    ) -> tuple[bool, bool]:
        """Record a stream as the owner of its session, if `may_claim` allows that.

        Return whether it did, and whether the session had a stream of its own before. The stream has a number
        afterwards, also where the store has no room.
        """
        known = 0 if stream.newest is None else stream.newest.number
        lease = await self.lease()
        owner, listened = await self._records.claim(
            stream.token, StreamOwner(known, stream.id, self.process, lease), may_claim
        )
        if owner is not None:
            stream.number = owner.number
        return owner is not None, listened

    def _new_id(self) -> str:
        return encode_base64url(self._random(8))

    async def _claim(self, stream: GetStream) -> None:
        await self._link.publish("claim", self._claim_of(stream))

    def _claim_of(self, stream: GetStream) -> bytes:
        claim = _Claim(stream.token.id, stream.name, stream.id, self.process)
        if isinstance(stream, SessionStream):
            claim.number, claim.lease = stream.number, self._lease.name
        return _encode(claim)

    def _start_claim(self, stream: SessionStream, may_claim: Callable[[StreamOwner | None], bool]) -> None:
        """Start to claim the session of an open stream, if the record allows that."""
        task = asyncio.get_running_loop().create_task(self._claim_again(stream, may_claim))
        self._claims.add(task)
        task.add_done_callback(self._claims.discard)

    async def _claim_again(self, stream: SessionStream, may_claim: Callable[[StreamOwner | None], bool]) -> None:
        try:
            may, _ = await self._record_claim(stream, may_claim)
            if not may:
                return
            if stream.attached:
                await self._claim(stream)
            else:
                self._note_end(stream)
        except ToolwireError as error:
            # The next heartbeat tries again.
            log.error("a stream could not become the owner of its session: %s", error)

    def _add(self, stream: GetStream) -> None:
        self._gets.setdefault(stream.token.id, []).append(stream)

    def _remove(self, stream: GetStream) -> bool:
        streams = self._gets.get(stream.token.id, [])
        if stream not in streams:
            return False
        streams.remove(stream)
        if not streams:
            del self._gets[stream.token.id]
        return True

    # --- what streams report ---

    def woken(self, session: str, stream: str, carrier: str) -> None:
        if carrier:
            self._link.post_to(carrier, "wake", _encode(_Wake(session, stream)))

    def over(self, stream: PostStream) -> None:
        self._posts.pop((stream.session, stream.name), None)

    async def alive(self, stream: GetStream) -> bool:
        record = await self._records.find(stream.token)
        if record is not None and isinstance(stream, SessionStream) and stream.attached and stream.claimed is None:
            self._compare(stream, record.owner)
        return record is not None

    def _compare(self, stream: SessionStream, recorded: StreamOwner | None) -> None:
        """Compare the record of a session with the claims; claim it at the second doubt."""
        # A claim that is recorded may not have come yet.
        doubted, stream.has_doubt = stream.has_doubt, not self._is_as_recorded(stream, recorded)
        if stream.has_doubt and doubted:
            stream.has_doubt = False
            self._start_claim(stream, lambda owner: owner == recorded)
        elif recorded is not None and not stream.has_doubt and not stream.owns:
            if stream.newest is None or stream.newest.number <= recorded.number:
                stream.newest, stream.newest_name = recorded, ""
            self._watch_owners()

    def _is_as_recorded(self, stream: SessionStream, recorded: StreamOwner | None) -> bool:
        if recorded is not None and recorded.stream == stream.id:
            return stream.owns
        if recorded is None or stream.owns:
            return False
        if recorded.process == self.process:
            return any(each.id == recorded.stream for each in self._gets.get(stream.token.id, ()))
        return bool(recorded.lease)  # Without one, nothing says whether its process lives.

    def disconnected(self, stream: GetStream) -> None:
        if not isinstance(stream, SessionStream):
            self._remove(stream)
        elif stream.owns and stream.has_event_id and not self._is_closed:
            # The client may come back, unless another of its streams is there to become the owner.
            stream.keep_lease(lambda: self._drop(stream))
            self._release(stream)
        else:
            self._drop(stream)

    def check_writer(self, stream: ResumedStream) -> None:
        """Ask the process that wrote a stream whether it still does; answer for this process, if it does not."""
        assert stream.header is not None
        if stream.waits_for(self.process):
            question = _WriterAsked(stream.header.process, stream.token.id, stream.name, self.process)
            self._link.post_to(stream.header.process, "writer?", _encode(question))
        elif (stream.token.id, stream.name) not in self._posts:
            stream.writer_ended(_ANSWER_LOST)

    # --- leases ---

    async def lease(self) -> str:
        return self._lease.name or (await self._lease.held() if self._has_leases else "")

    def _on_lease_lost(self) -> None:
        log.error("this process lost its lease: other processes may have answered its calls with an error")
        for post in self._posts.values():
            post.repeat_header()

    def discard(self) -> None:
        """Let the lease end, because the event loop of the streams has ended."""
        self._lease.abandon()

    def _watch_writers(self) -> None:
        """Look at the leases of other processes while streams here depend on them."""
        self._is_joined.set()
        if self._watching is None and self._has_leases:
            self._watching = asyncio.get_running_loop().create_task(self._keep_watching())

    def _watch_owners(self) -> None:
        """Look at the leases of owners with those of writers; nothing waits for them as a client does."""
        if self._watching is None:
            self._watch_writers()

    async def _keep_watching(self) -> None:
        try:
            while waiting := self._dependent():
                self._is_joined.clear()
                try:
                    await self._look_at_writers(waiting)
                except ToolwireError as error:
                    log.error("the processes that write streams could not be looked at: %s", error)
                await in_time(self._watch.interval, self._is_joined.wait())
        finally:
            self._watching = None

    def _dependent(self) -> list[ResumedStream | SessionStream]:
        """Return the streams whose writer, or whose session's owner, is another process."""
        resumed = [stream for stream in self._resumed() if stream.waits_for(self.process)]
        return [*resumed, *(each for each in self._session_streams() if each.attached and self._lease_of(each))]

    def _lease_of(self, stream: ResumedStream | SessionStream) -> str:
        """Return the lease of the process that a stream depends on; empty for none."""
        if isinstance(stream, ResumedStream):
            return "" if stream.header is None else stream.header.lease
        newest = stream.newest
        return "" if newest is None or stream.owns or newest.process == self.process else newest.lease

    async def _look_at_writers(self, waiting: Sequence[ResumedStream | SessionStream]) -> None:
        """Answer for the processes that are gone, and claim the sessions that they owned."""
        gone = await self._watch.gone({self._lease_of(stream) for stream in waiting} - {""})
        for stream in waiting:
            lease = self._lease_of(stream)
            if lease not in gone:
                continue
            if isinstance(stream, ResumedStream):
                stream.writer_ended(_PROCESS_GONE)
            else:
                self._claim_from(stream, lease)

    def _claim_from(self, stream: SessionStream, lease: str) -> None:
        """Claim a session from an owner whose process is gone."""
        self._start_claim(stream, lambda owner: owner is None or owner.lease == lease)

    def hand_over(self, stream: SessionStream, to: str) -> None:
        self._link.post("handed", _encode(_HandedOver(stream.token.id, to)))

    def closed(self, stream: GetStream) -> None:
        self._remove(stream)
        if isinstance(stream, SessionStream):
            if stream.has_event_id and not stream.taken:
                self.events.retire(stream.token.id, stream.name, KEPT_FOR_RETURN)
            owned = stream.owns
            stream.give_up()
            if owned:
                self._release(stream)
            else:
                self._note_end(stream)

    def _release(self, stream: SessionStream) -> None:
        """Let another stream of the session become the owner."""
        self._post_release(stream)
        self._note_end(stream)

    def _post_release(self, stream: SessionStream) -> None:
        self._link.post("released", _encode(_Released(stream.token.id, stream.id)))

    def _note_end(self, stream: SessionStream) -> None:
        """Have the record name a stream no more, even if the stream never owned anything."""
        if not stream.number:
            return
        self._given_up.append(stream)
        if self._noting is None:
            self._noting = asyncio.get_running_loop().create_task(self._note_given_up())

    async def _note_given_up(self) -> None:
        """Record which streams gave up their sessions; try again while the store fails."""
        backoff = Backoff(longest=LONGEST_PAUSE)
        try:
            while self._given_up:
                stream = self._given_up.popleft()
                try:
                    if await self._records.give_up(stream.token, stream.id):
                        self._post_release(stream)
                except (StoreFailed, StoreFull):
                    self._given_up.append(stream)
                    await asyncio.sleep(backoff.after(None))
                except ProtocolError:
                    pass  # The session has ended.
        finally:
            self._noting = None

    def _drop(self, stream: GetStream, taken: bool = False) -> None:
        """Stop writing for a client that is not connected."""
        assert isinstance(stream, SessionStream)
        owned = stream.owns
        stream.give_up()
        if self._remove(stream) and not taken:
            if stream.has_event_id:
                self.events.retire(stream.token.id, stream.name, KEPT_FOR_RETURN)
            if owned:
                self._release(stream)
            else:
                self._note_end(stream)

    # --- what processes hear of each other ---

    def _on_claim(self, data: bytes) -> None:
        claim = _decode_claim(data)
        post = self._posts.get((claim.session, claim.stream))
        if post is not None:
            post.taken(claim.process)
        for stream in tuple(self._gets.get(claim.session, ())):
            if isinstance(stream, SessionStream) and claim.stream.startswith("g"):
                self._change_owner(stream, claim)
            elif stream.id == claim.by:
                stream.claim_heard = True
            elif stream.claim_heard and stream.name == claim.stream:
                self._give_up(stream, claim)

    def _change_owner(self, stream: SessionStream, claim: _Claim) -> None:
        """Have a stream become the owner of its session, yield, or ignore a late claim."""
        is_own = stream.id == claim.by
        heard = stream.claim_heard or is_own
        stream.claim_heard = heard
        newest = stream.newest
        # Where the record was lost, numbers begin anew with 1, and an earlier release has none: then the order of the
        # topic decides, in which claims that come before the stream's own are older.
        is_late = newest is not None and 1 < claim.number < newest.number
        if not is_late:
            number = claim.number or (0 if newest is None else newest.number)
            stream.newest = StreamOwner(number, claim.by, claim.process, claim.lease)
            stream.newest_name, stream.has_doubt = claim.stream, False
        if is_own:
            _become_owner(stream, owns=not is_late)
            if is_late and newest is not None and stream.newest_name == stream.name:
                self._give_up(stream, _Claim(claim.session, stream.name, newest.stream, newest.process))
        elif not is_late and (heard or 0 < stream.number < claim.number):
            if stream.name == claim.stream:
                self._give_up(stream, claim)
            else:
                stream.yield_to(claim.by, claim.stream)
                if _is_leased(stream):
                    self._drop(stream)
                elif claim.lease:
                    self._watch_owners()

    def _give_up(self, stream: GetStream, claim: _Claim) -> None:
        """Leave a stream to another connection, which goes on with it."""
        stream.taken, stream.carrier = True, claim.process
        if isinstance(stream, SessionStream):
            stream.yield_to(claim.by, claim.stream)
        if _is_leased(stream):
            self._drop(stream, taken=True)
        else:
            stream.end()

    def _on_released(self, data: bytes) -> None:
        released = _decode_released(data)
        for stream in self._streams_of(released.session):
            if stream.attached and stream.id != released.by:
                self._start_claim(stream, lambda owner: owner is None or owner.stream in ("", released.by))
                return

    def _on_owner_asked(self, data: bytes) -> None:
        asked = _decode_owner_asked(data)
        if any(stream.owns for stream in self._streams_of(asked.session)):
            self._link.post_to(asked.by, "owner", _encode(_OwnerKnown(asked.session)))

    def _on_handed_over(self, data: bytes) -> None:
        handed = _decode_handed(data)
        for stream in self._streams_of(handed.session):
            if stream.id == handed.to:
                stream.handed_over()

    def _on_writer_asked(self, data: bytes) -> None:
        asked = _decode_writer_asked(data)
        if asked.process == self.process:
            known = _WriterKnown(asked.session, asked.stream, (asked.session, asked.stream) in self._posts)
            self._link.post_to(asked.by, "writer", _encode(known))

    def _on_writer_known(self, data: bytes) -> None:
        known = _decode_writer_known(data)
        for stream in self._gets.get(known.session, ()):
            if stream.name == known.stream and isinstance(stream, ResumedStream) and not known.writes:
                # The end of the stream, if there is one, was logged before this answer.
                stream.writer_ended(_ANSWER_LOST)

    def _on_wake(self, data: bytes) -> None:
        wake = _decode_wake(data)
        for stream in self._gets.get(wake.session, ()):
            if stream.name == wake.stream:
                stream.wake()

    def _on_state(self, data: bytes) -> None:
        state = _decode_state(data)
        for stream in self._streams_of(state.session):
            stream.level, stream.uris, stream.state_told = state.level, frozenset(state.uris), True

    def _on_change(self, data: bytes) -> None:
        change = _decode_published(data).change
        for stream in self._session_streams():
            stream.changed(change)

    def _on_log(self, data: bytes) -> None:
        logged = _decode_logged(data)
        message = encode_notification("notifications/message", logged.params)
        for stream in self._streams_of(logged.session) if logged.session else self._session_streams():
            stream.logged(logged.level, message)

    def _on_notify(self, data: bytes) -> None:
        notified = _decode_notified(data)
        for stream in self._streams_of(notified.session):
            stream.notify(bytes(notified.message))

    def _on_lost(self) -> None:
        """Look at everything again after messages were missed, and tell clients to do the same."""
        # The store may have failed over, and so have lost who writes a stream.
        for post in self._posts.values():
            post.repeat_header()
        self._missed = True
        if self._catching_up is None:
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())

    async def _catch_up(self) -> None:
        backoff = Backoff(longest=LONGEST_PAUSE)
        try:
            while self._missed:
                self._missed = False
                try:
                    await self._look_at_all()
                except (StoreFailed, StoreFull):
                    log.exception("catching up with the other processes failed")
                    # Nobody else tells the clients, so it is tried until the store can be reached.
                    self._missed = True
                    await asyncio.sleep(backoff.after(None))
        except Exception:
            log.exception("catching up with the other processes failed")
        finally:
            self._catching_up = None

    async def _look_at_all(self) -> None:
        for streams in tuple(self._gets.values()):
            for stream in tuple(streams):
                await self._look_again(stream)
                # One claim at a time: all at once would be too many for the bus again.
                await asyncio.sleep(0)

    async def _look_again(self, stream: GetStream) -> None:
        record = await self._records.find(stream.token)
        if record is None:
            stream.end()
            return
        stream.wake()
        if not isinstance(stream, SessionStream):
            stream.claim_heard = True  # It may be among the messages that were missed.
            return
        stream.level, stream.uris = record.level, frozenset(record.uris)
        if stream.owns or stream.claimed is not None:
            await self._claim(stream)
        stream.changed_everything()

    def _streams_of(self, session: str) -> list[SessionStream]:
        return [stream for stream in self._gets.get(session, ()) if isinstance(stream, SessionStream)]

    def _resumed(self) -> list[ResumedStream]:
        return [each for streams in self._gets.values() for each in streams if isinstance(each, ResumedStream)]

    def _session_streams(self) -> Iterator[SessionStream]:
        for streams in tuple(self._gets.values()):
            for stream in tuple(streams):
                if isinstance(stream, SessionStream):
                    yield stream

    # --- what sessions do ---

    def notify(self, session: str, message: bytes) -> None:
        """Write a notification on the session's own stream, if it has one in any process."""
        self._link.post("say", _encode(Notified(session, Raw(message))))

    async def tell_state(self, session: str, record: SessionRecord) -> None:
        """Tell all processes the new state before the answer leaves, so that whatever follows finds it everywhere."""
        await self._link.publish("state", _encode(_State(session, record.level, record.uris)))

    def end(self, session: str) -> None:
        """End the streams of a session that is over."""
        for stream in tuple(self._gets.get(session, ())):
            self._remove(stream)
            if isinstance(stream, SessionStream):
                stream.discard()
                self.events.forget(session, stream.name)
            stream.end()

    def drain(self) -> None:
        """End every connection by GET. Another process can go on with what they carried.

        Until then, or until `close`, the owners of sessions go on writing for their clients.
        """
        for streams in tuple(self._gets.values()):
            for stream in tuple(streams):
                if isinstance(stream, SessionStream) and stream.owns and stream.has_event_id:
                    stream.linger()
                else:
                    stream.end()

    def leave(self) -> None:
        """Stop listening to the other processes."""
        for leave in self._leave:
            leave()
        self._leave.clear()

    async def close(self) -> None:
        """End everything that this process carries."""
        self._is_closed = True
        self.leave()
        self.drain()
        for task in (self._catching_up, self._watching, *self._claims):
            if task is not None:
                task.cancel()
        self.events.hurry()
        last = [stream.finished() for stream in self._posts.values()]
        for stream in self._session_streams():
            last.append(stream.written())
            if _is_leased(stream):
                self._drop(stream)
        ends = [asyncio.ensure_future(each) for each in last]
        if self._noting is not None:
            ends.append(self._noting)
        if ends:
            await asyncio.wait(ends, timeout=FLUSH_SECONDS)
        if self._noting is not None:
            self._noting.cancel()
        await self.events.close()
        # Last: what is not answered by now is answered by others.
        await self._lease.release()


def _is_leased(stream: GetStream) -> bool:
    return isinstance(stream, SessionStream) and stream.lease is not None


def _become_owner(stream: SessionStream, *, owns: bool) -> None:
    """Have a stream whose claim came begin to write, unless it `owns` nothing."""
    owned = stream.owns
    stream.owns = owns
    if stream.claimed is None:
        if owns and not owned:
            stream.await_handover()
    elif not stream.claimed.done():
        stream.claimed.set_result(None)


_encode = msgspec.json.encode
_decode_claim = msgspec.json.Decoder(_Claim).decode
_decode_released = msgspec.json.Decoder(_Released).decode
_decode_owner_asked = msgspec.json.Decoder(_OwnerAsked).decode
_decode_handed = msgspec.json.Decoder(_HandedOver).decode
_decode_writer_asked = msgspec.json.Decoder(_WriterAsked).decode
_decode_writer_known = msgspec.json.Decoder(_WriterKnown).decode
_decode_wake = msgspec.json.Decoder(_Wake).decode
_decode_notified = decoder_of(Notified).decode
_decode_state = msgspec.json.Decoder(_State).decode
_decode_published = decoder_of(Published).decode
_decode_logged = decoder_of(Logged).decode
