"""The messages between the client and the server with their times, within a bound."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.http1.response import HttpResponse
from toolwire.inspector.redaction import mask_headers, mask_url
from toolwire.util.expiring import Expiring
from toolwire.wire.tapped_channel import Direction

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_WAITING: Final = 10_000
#: Messages that may still get an answer of HTTP.
MAX_POSTED: Final = 200
PREVIEW: Final = 400

Kind: TypeAlias = Literal["request", "notification", "result", "error", "http", "unreadable"]


class WireEntry(Struct, kw_only=True):
    """One message, or (`http`) an answer of HTTP that carries none.

    `subject` is what the request is about: the name of a tool or prompt, a URI, the id of a task. `took` is the time
    from the request that it answers (`answers`, its number) to this. `http` is the exchange that carried it. `back` is
    the server behind a gateway that the gateway sent it to, or got it from, for the request `id` of a client.
    """

    number: int
    at: float
    direction: Direction
    kind: Kind
    size: int
    text: bytes
    method: str | None = None
    subject: str | None = None
    id: Any = None
    answers: int | None = None
    took: float | None = None
    http: dict[str, Any] | None = None
    back: str | None = None

    def summary(self) -> dict[str, Any]:
        """Return what a list shows of an entry.

        The whole text is fetched when the user opens it.
        """
        preview = self.text[: PREVIEW * 4].decode("utf-8", "replace")[:PREVIEW]
        members = {name: getattr(self, name) for name in _SHOWN}
        return {**members, "preview": preview}


_SHOWN: Final = ("number", "at", "direction", "kind", "size", "method", "subject", "id", "answers", "took", "back")


class _About(Struct):
    name: Any = None
    uri: Any = None
    task_id: Any = msgspec.field(default=None, name="taskId")
    ref: Any = None


class _Envelope(Struct):
    id: Any = UNSET
    method: Any = UNSET
    params: Raw | msgspec.UnsetType = UNSET
    result: Raw | msgspec.UnsetType = UNSET
    error: Raw | msgspec.UnsetType = UNSET


_encode = msgspec.json.Encoder(enc_hook=str).encode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_about = msgspec.json.Decoder(_About).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode


class WireLog:
    """The newest messages; `on_entry` is called with each of them."""

    def __init__(
        self,
        on_entry: Callable[[WireEntry], None],
        *,
        entries: int = MAX_ENTRIES,
        total: int = MAX_BYTES,
    ) -> None:
        self._on_entry = on_entry
        self._entries: deque[WireEntry] = deque()
        self._max_entries = entries
        self._max_bytes = total
        self._bytes = 0
        self._next = 1
        self._waiting: Expiring[tuple[Direction, Any], WireEntry] = Expiring(MAX_WAITING)
        #: What was sent lately, by its bytes, until HTTP answers.
        self._posted: Expiring[bytes, WireEntry] = Expiring(MAX_POSTED)
        #: Whether messages travel in exchanges of HTTP, for which `responded` is called.
        self.over_http = False

    def __iter__(self) -> Iterator[WireEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, number: int) -> WireEntry | None:
        if not self._entries:
            return None
        index = number - self._entries[0].number
        return self._entries[index] if 0 <= index < len(self._entries) else None

    def forget(self) -> None:
        """Forget the messages, but not which requests wait for an answer."""
        self._entries.clear()
        self._bytes = 0

    def record(self, direction: Direction, data: bytes) -> None:
        """Take one message, or a batch of 2025-03-26."""
        if data[:1] == b"[":
            try:
                parts = _decode_batch(data)
            except (msgspec.DecodeError, RecursionError):
                parts = []
            for part in parts:
                self._record(direction, bytes(part))
            if parts:
                return
        self._record(direction, bytes(data))

    def responded(
        self, given: Collection[str], method: str, sent: Mapping[str, str], body: bytes | None, response: HttpResponse
    ) -> None:
        """Record the head of an HTTP answer, without its secrets.

        The user gave the headers that `given` names.

        It belongs to the message that the request carried. A refusal, and an answer to a request that carried no
        message (a stream that opens, a session that ends), is an entry of its own.
        """
        exchange = {
            "request": f"{method} {mask_url(response.url)}",
            "status": response.status,
            "sent": mask_headers(sent, given),
            "headers": mask_headers(response.headers, given),
        }
        carried = None if body is None else self._posted.get(body)
        if carried is not None:
            carried.http = exchange
        if body is not None and carried is not None and response.status < 400:
            self._posted.pop(body)
            return
        text = msgspec.json.encode(exchange)
        entry = WireEntry(number=self._next, at=time.time(), direction="←", kind="http", size=len(text), text=text)
        self._next += 1
        entry.id, entry.method = response.status, method
        if carried is not None:
            self._answer(entry, carried)
        self._store(entry)
        self._on_entry(entry)

    def sent_on(self, back: str, id: Any, method: str, subject: str | None, params: Mapping[str, Any]) -> WireEntry:
        """Record what a gateway sends to an upstream for the request `id` of a client."""
        text = _encode(params)
        entry = WireEntry(
            number=self._next, at=time.time(), direction="→", kind="request", size=len(text), text=text, back=back
        )
        self._next += 1
        entry.id, entry.method = id, method[:200]
        entry.subject = None if subject is None else subject[:200]
        self._add_entry(entry)
        return entry

    def came_back(self, asked: WireEntry, answer: Any, *, is_error: bool) -> None:
        """Take what the server behind a gateway answered."""
        text = _encode(answer)
        entry = WireEntry(
            number=self._next, at=time.time(), direction="←", kind="error" if is_error else "result", size=0, text=text
        )
        self._next += 1
        entry.size, entry.id, entry.back = len(text), asked.id, asked.back
        self._answer(entry, asked)
        self._add_entry(entry)

    def _add_entry(self, entry: WireEntry) -> None:
        if entry.size > self._max_bytes:
            entry.text = entry.text[:PREVIEW]
        self._store(entry)
        self._on_entry(entry)

    def exchange_of(self, entry: WireEntry) -> dict[str, Any] | None:
        """Return the HTTP exchange that carried a message, or the request it answers."""
        asked = None if entry.answers is None else self.find(entry.answers)
        return entry.http or (None if asked is None else asked.http)

    def _record(self, direction: Direction, data: bytes) -> None:
        entry = WireEntry(
            number=self._next, at=time.time(), direction=direction, kind="unreadable", size=len(data), text=data
        )
        self._next += 1
        try:
            envelope = _decode_envelope(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            envelope = None
        if envelope is not None:
            self._classify(entry, envelope)
        if direction == "→" and self.over_http:
            self._posted.put(data, entry)
        self._add_entry(entry)

    def _classify(self, entry: WireEntry, envelope: _Envelope) -> None:
        # The id is only shown and compared here, so any id that can be a key will do.
        identifier = envelope.id if isinstance(envelope.id, int | str | float) else None
        entry.id = identifier
        if isinstance(envelope.method, str):
            entry.method = envelope.method[:200]
            entry.subject = _subject(envelope.params)
            entry.kind = "notification" if envelope.id is UNSET else "request"
            if entry.kind == "request":
                self._waiting.put((entry.direction, identifier), entry)
        elif envelope.result is not UNSET or envelope.error is not UNSET:
            entry.kind = "error" if envelope.result is UNSET else "result"
            asked = self._waiting.pop(("→" if entry.direction == "←" else "←", identifier))
            if asked is not None:
                self._answer(entry, asked)

    def _answer(self, entry: WireEntry, asked: WireEntry) -> None:
        entry.method, entry.subject = asked.method, asked.subject
        entry.answers, entry.took = asked.number, entry.at - asked.at

    def _store(self, entry: WireEntry) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.text)
        while len(self._entries) > 1 and (len(self._entries) > self._max_entries or self._bytes > self._max_bytes):
            self._bytes -= len(self._entries.popleft().text)


def _subject(params: Raw | msgspec.UnsetType) -> str | None:
    """Say what a request is about, as far as its parameters do."""
    if params is UNSET:
        return None
    try:
        about = _decode_about(params)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    named = about.ref if isinstance(about.ref, dict) else {}
    found = (about.name, about.uri, about.task_id, named.get("name"), named.get("uri"))
    return next((each[:200] for each in found if isinstance(each, str)), None)
