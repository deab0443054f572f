"""The streams of legacy HTTP sessions that this process carries, and how processes agree on who says what.

All of it is decided on the one topic that every process hears in the same order: a stream that is opened or resumed
claims its name and the session's word there; whoever had them before lets go when it hears the claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from toolwire.http.legacy.event_log import EventLog, Resume, stream_name
from toolwire.http.legacy.get_stream import GetStream, Listener
from toolwire.http.legacy.post_stream import KEPT_FOR_RETURN, PostStream
from toolwire.http.legacy.session_records import SessionRecord, SessionRecords
from toolwire.http.legacy.session_token import SessionToken
from toolwire.protocol import types as t
from toolwire.protocol.changes import Logged, Published, everything
from toolwire.protocol.jsonrpc import encode_notification
from toolwire.protocol.sealing import encode_base64url
from toolwire.stores import Log
from toolwire.wire.bus_link import BusLink

log: logging.Logger = logging.getLogger("toolwire.http")

# How long a claim may take to come back; the bus is out of order then, and a stream that says too much the lesser evil.
CLAIM_TIME: Final = 5.0
# How long the last words of calls may take when the application stops.
FLUSH_TIME: Final = 1.0


class _Claim(Struct):
    session: str
    stream: str
    by: str


class _Released(Struct):
    session: str
    by: str


class _Session(Struct):
    session: str


class _Wake(Struct):
    session: str
    stream: str


class _Said(Struct):
    session: str
    message: Raw


class _State(Struct):
    session: str
    level: t.LoggingLevel
    uris: list[str]


class SessionStreams:
    """All streams of this process."""

    def __init__(self, link: BusLink, store: Log, records: SessionRecords, random: Callable[[int], bytes]) -> None:
        self.events: EventLog = EventLog(store)
        self._link = link
        self._records = records
        self._random = random
        self._posts: dict[tuple[str, str], PostStream] = {}
        self._gets: dict[str, list[GetStream]] = {}
        self._missed = False
        self._catching_up: asyncio.Task[None] | None = None
        self._leave = [
            link.on("claim", self._on_claim),
            link.on("released", self._on_released),
            link.on("speaker?", self._on_doubt),
            link.on("speaker", self._on_speaker),
            link.on("wake", self._on_wake),
            link.on("state", self._on_state),
            link.on("change", self._on_change),
            link.on("log", self._on_log),
            link.on("say", self._on_say),
            link.on_lost(self._on_lost),
        ]

    # --- opening ---

    def new_name(self) -> str:
        return stream_name("p", self._random)

    def add(self, stream: PostStream) -> None:
        self._posts[stream.session, stream.name] = stream

    def count(self, session: str) -> int:
        """Connections that carry streams of a session by GET."""
        return sum(1 for stream in self._gets.get(session, ()) if not _lingers(stream))

    def __len__(self) -> int:
        return len(self._posts) + sum(map(len, self._gets.values()))

    async def resume(self, token: SessionToken, resume: Resume) -> GetStream:
        """Go on with a stream that answers a POST."""
        stream = GetStream(self, self._new_id(), token, resume)
        self._add(stream)
        try:
            await self._claim(stream)
            if await self.events.is_over(token.id, resume):
                stream.end()
        except BaseException:
            self._remove(stream)
            raise
        return stream

    async def listen(
        self, token: SessionToken, resume: Resume | None, hears: Callable[[str], bool], promised: Mapping[str, Any]
    ) -> Listener | None:
        """Open the session's own stream, or go on with it; None when the session ended meanwhile."""
        place = resume or Resume(stream_name("g", self._random), None)
        listener = Listener(self, self._new_id(), token, place, hears, promised)
        self._add(listener)
        try:
            assert listener.claimed is not None
            await self._claim(listener)
            try:
                async with asyncio.timeout(CLAIM_TIME):
                    await listener.claimed
            except TimeoutError:
                listener.speaks = True
            # Read after the claim: whatever changes from now on is heard.
            record = await self._records.find(token)
            if record is None:
                self._remove(listener)
                return None
            await listener.settle(record.level, frozenset(record.uris))
        except BaseException:
            self._remove(listener)
            raise
        return listener

    def _new_id(self) -> str:
        return encode_base64url(self._random(8))

    async def _claim(self, stream: GetStream) -> None:
        await self._link.publish("claim", _encode(_Claim(stream.token.id, stream.name, stream.id)))

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

    def woken(self, session: str, stream: str) -> None:
        self._link.post("wake", _encode(_Wake(session, stream)))

    def over(self, stream: PostStream) -> None:
        self._posts.pop((stream.session, stream.name), None)

    async def alive(self, token: SessionToken) -> bool:
        return await self._records.find(token) is not None

    def disconnected(self, stream: GetStream) -> None:
        if isinstance(stream, Listener):
            if stream.speaks and stream.named:
                # For a client that comes back, unless another of its streams is there to take over.
                stream.linger(lambda: self._drop(stream))
                self._link.post("released", _encode(_Released(stream.token.id, stream.id)))
            else:
                self._drop(stream)
        else:
            self._remove(stream)

    def doubts(self, listener: Listener) -> None:
        """Ask for the one that has the word. If nobody has answered until the next time, its process is gone."""
        session = listener.token.id
        if listener.doubtful:
            listener.missed = True
            self._link.post("claim", _encode(_Claim(session, listener.name, listener.id)))
        else:
            listener.doubtful = True
            self._link.post("speaker?", _encode(_Session(session)))

    def closed(self, stream: GetStream) -> None:
        self._remove(stream)
        if isinstance(stream, Listener) and stream.named and not stream.taken:
            self.events.retire(stream.token.id, stream.name, KEPT_FOR_RETURN)

    def _drop(self, listener: Listener, taken: bool = False) -> None:
        """Stop writing for a client that is not there."""
        spoke = listener.speaks
        listener.let_go()
        if self._remove(listener) and not taken:
            if listener.named:
                self.events.retire(listener.token.id, listener.name, KEPT_FOR_RETURN)
            if spoke:
                self._link.post("released", _encode(_Released(listener.token.id, listener.id)))

    # --- what is heard ---

    def _on_claim(self, data: bytes) -> None:
        claim = _decode_claim(data)
        post = self._posts.get((claim.session, claim.stream))
        if post is not None:
            post.taken()
        for stream in tuple(self._gets.get(claim.session, ())):
            if isinstance(stream, Listener):
                stream.doubtful = False
            if stream.id == claim.by:
                _has_the_word(stream)
            elif stream.name == claim.stream:
                self._give_up(stream)
            elif isinstance(stream, Listener) and claim.stream.startswith("g"):
                if _lingers(stream):
                    stream.speaks = False
                    self._drop(stream)
                stream.speaks = False

    def _give_up(self, stream: GetStream) -> None:
        """Another connection goes on with this stream."""
        stream.taken = True
        if isinstance(stream, Listener) and _lingers(stream):
            self._drop(stream, taken=True)
        else:
            if isinstance(stream, Listener):
                stream.speaks = False
            stream.end()

    def _on_released(self, data: bytes) -> None:
        released = _decode_released(data)
        for stream in self._gets.get(released.session, ()):
            if isinstance(stream, Listener) and stream.attached and stream.id != released.by:
                self._link.post("claim", _encode(_Claim(released.session, stream.name, stream.id)))
                return

    def _on_doubt(self, data: bytes) -> None:
        session = _decode_session(data).session
        if any(listener.speaks for listener in self._listeners_of(session)):
            self._link.post("speaker", _encode(_Session(session)))

    def _on_speaker(self, data: bytes) -> None:
        for listener in self._listeners_of(_decode_session(data).session):
            listener.doubtful = False

    def _on_wake(self, data: bytes) -> None:
        wake = _decode_wake(data)
        for stream in self._gets.get(wake.session, ()):
            if stream.name == wake.stream:
                stream.wake()

    def _on_state(self, data: bytes) -> None:
        state = _decode_state(data)
        for listener in self._listeners_of(state.session):
            listener.level, listener.uris, listener.told = state.level, frozenset(state.uris), True

    def _on_change(self, data: bytes) -> None:
        change = _decode_published(data).change
        for listener in self._listeners():
            listener.changed(change)

    def _on_log(self, data: bytes) -> None:
        logged = _decode_logged(data)
        message = encode_notification("notifications/message", logged.params)
        for listener in self._listeners_of(logged.session) if logged.session else self._listeners():
            listener.logged(logged.level, message)

    def _on_say(self, data: bytes) -> None:
        said = _decode_said(data)
        for listener in self._listeners_of(said.session):
            listener.say(bytes(said.message))

    def _on_lost(self) -> None:
        """Messages were missed: look at everything again, and tell clients to do the same."""
        self._missed = True
        if self._catching_up is None:
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            while self._missed:
                self._missed = False
                for streams in tuple(self._gets.values()):
                    for stream in tuple(streams):
                        await self._look_again(stream)
                        # One claim at a time: all at once they would be too many for the bus again.
                        await asyncio.sleep(0)
        except Exception:
            log.exception("catching up with the other processes failed")
        finally:
            self._catching_up = None

    async def _look_again(self, stream: GetStream) -> None:
        record = await self._records.find(stream.token)
        if record is None:
            stream.end()
            return
        stream.wake()
        if not isinstance(stream, Listener):
            return
        stream.level, stream.uris = record.level, frozenset(record.uris)
        if stream.speaks or stream.claimed is not None:
            await self._claim(stream)
        _tell_everything(stream)

    def _listeners_of(self, session: str) -> list[Listener]:
        return [stream for stream in self._gets.get(session, ()) if isinstance(stream, Listener)]

    def _listeners(self) -> Iterator[Listener]:
        for streams in tuple(self._gets.values()):
            for stream in tuple(streams):
                if isinstance(stream, Listener):
                    yield stream

    # --- what the session does ---

    def say(self, session: str, message: bytes) -> None:
        """Say something on the session's own stream, if it has one anywhere."""
        self._link.post("say", _encode(_Said(session, Raw(message))))

    async def tell_state(self, session: str, record: SessionRecord) -> None:
        """Before the answer leaves: what is published after it finds the new state everywhere."""
        await self._link.publish("state", _encode(_State(session, record.level, record.uris)))

    def end(self, session: str) -> None:
        """The session is over, and so are its streams."""
        for stream in tuple(self._gets.get(session, ())):
            self._remove(stream)
            if isinstance(stream, Listener):
                stream.fall_silent()
                self.events.forget(session, stream.name)
            stream.end()

    def drain(self) -> None:
        """End every connection by GET; what they carried can be resumed elsewhere."""
        for streams in tuple(self._gets.values()):
            for stream in tuple(streams):
                if isinstance(stream, Listener) and stream.lingering is not None:
                    self._drop(stream)
                else:
                    stream.end()

    def leave(self) -> None:
        """Listen no more to the other processes."""
        for leave in self._leave:
            leave()
        self._leave.clear()

    async def close(self) -> None:
        """Everything here comes to its end."""
        self.leave()
        self.drain()
        if self._catching_up is not None:
            self._catching_up.cancel()
        self.events.hurry()
        posts = [asyncio.ensure_future(stream.finished()) for stream in self._posts.values()]
        if posts:
            await asyncio.wait(posts, timeout=FLUSH_TIME)
        await self.events.close()


def _lingers(stream: GetStream) -> bool:
    return isinstance(stream, Listener) and stream.lingering is not None


def _has_the_word(stream: GetStream) -> None:
    if isinstance(stream, Listener):
        stream.speaks = True
        if stream.claimed is not None and not stream.claimed.done():
            stream.claimed.set_result(None)
        if stream.missed:
            stream.missed = False
            _tell_everything(stream)


def _tell_everything(listener: Listener) -> None:
    for change in everything(listener.uris):
        listener.changed(change)


_encode = msgspec.json.encode
_decode_claim = msgspec.json.Decoder(_Claim).decode
_decode_released = msgspec.json.Decoder(_Released).decode
_decode_session = msgspec.json.Decoder(_Session).decode
_decode_wake = msgspec.json.Decoder(_Wake).decode
_decode_said = msgspec.json.Decoder(_Said).decode
_decode_state = msgspec.json.Decoder(_State).decode
_decode_published = msgspec.json.Decoder(Published).decode
_decode_logged = msgspec.json.Decoder(Logged).decode
