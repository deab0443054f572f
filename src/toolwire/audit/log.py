"""`AuditLog`: queues records without delaying a call; a thread writes them.

A sink that is slow, blocks or fails holds up no call. What it has not taken yet waits here, in a queue of bounded
length; when that is full, calls are refused before they run, or, where the log is not required, counted as lost.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Final

from toolwire.audit.chain import AuditChain, audit_key, encode
from toolwire.audit.following import ChainFollower, Seen
from toolwire.audit.sinks import Sink, Target, sink_for
from toolwire.protocol.errors import ServerError
from toolwire.redaction import Redaction

log: logging.Logger = logging.getLogger("toolwire.audit")

KEY_VARIABLE: Final = "TOOLWIRE_AUDIT_KEY"
_BATCH: Final = 1000
# Waited after the first line, so that those that follow share one waking of the thread and one write.
_PAUSE: Final = 0.01
_RETRY: Final = 1.0
# How often a writer notes in its own chain how far the other chains have come.
_LOOK_EVERY: Final = 5.0


class AuditLog:
    """A record of every call: `AuditLog("audit.jsonl", key=...)`. Check it with `toolwire audit verify audit.jsonl`."""

    def __init__(
        self,
        target: Target,
        *,
        key: str | bytes | None = None,
        anchor: Target | None = None,
        anchor_every: int = 1000,
        redact: Iterable[str] = (),
        mask: Iterable[str | re.Pattern[str]] = (),
        required: bool = True,
        queue: int = 10_000,
        max_arguments: int = 8192,
    ) -> None:
        """`key` signs the lines; by default it is `TOOLWIRE_AUDIT_KEY`. Use it for nothing else.

        `anchor` is a second place. It gets the current position when a chain begins, after every `anchor_every` lines
        and at the end: a person who can cut the log but not reach that place is found out. `redact` names arguments
        that no line shows, and `mask` patterns, on top of what the policies of the server say. Arguments of more than
        `max_arguments` bytes are left out. With `required`, no call runs that could not be recorded.
        """
        given = key if key is not None else os.environ.get(KEY_VARIABLE)
        if not given:
            raise ServerError(f"An audit log needs a key of its own: AuditLog(key=...) or {KEY_VARIABLE}")
        try:
            self._key = audit_key(given)
            # The log itself, and behind it the anchor, if there is one.
            self._sinks = [sink_for(each) for each in (target, anchor) if each is not None]
        except (ValueError, TypeError) as error:
            raise ServerError(str(error)) from None
        if queue < 1 or anchor_every < 1:
            raise ServerError("queue= and anchor_every= of an audit log are at least 1")
        self.redaction: Redaction = Redaction(redact, mask)
        self.required = required
        self.max_arguments = max_arguments
        self._limit = queue
        self._anchor_every = anchor_every
        self._lock = threading.Lock()
        self._process = 0
        self._writer: _Writer | None = None
        self._chain: AuditChain | None = None
        self._follower: ChainFollower | None = None
        self._about: dict[str, Any] = {}
        self._lost = 0

    def describe(self, **about: Any) -> None:
        """Return the description of the writer for the first line of a chain."""
        self._about = about

    @property
    def ready(self) -> bool:
        """Return whether there is room for the record of one more call."""
        writer = self._writer
        return writer is None or self._process != os.getpid() or writer.lines.qsize() < self._limit

    def record(self, entry: Mapping[str, Any]) -> None:
        """Add a line about a call.

        Never raises: the call has already been made.
        """
        if self._process != os.getpid():
            self._start_anew()
        with self._lock:
            if not self.required and not self.ready:
                self._lost += 1
                return
            self._open()
            if self._lost:
                lost, self._lost = self._lost, 0
                self._write("lost", {"time": now(), "calls": lost})
            try:
                self._write("call", entry)
            except Exception:
                log.exception("a record could not be written as JSON")
                # Numbered all the same: that there was a call is not lost.
                self._write("call", {"time": now(), "unreadable": True})

    def shown(self, arguments: Callable[[], Any], size: int, redaction: Redaction | None = None) -> Any:
        """Return the arguments as a line shows them; `size` is their JSON in bytes."""
        if size > self.max_arguments:
            return {"omitted": size}
        return (redaction or self.redaction).arguments(arguments())

    def close(self, timeout: float = 5.0) -> bool:
        """Write the final line and wait until all lines have arrived.

        Returns whether they have. A later record opens a new chain.
        """
        if self._process != os.getpid():
            return True  # Nothing was recorded here.
        with self._lock:
            writer, chain = self._writer, self._chain
            if writer is None or chain is None:
                return True
        seen = self._read_other_chains()
        with self._lock:
            if self._chain is not chain:
                return True  # Another thread has closed it meanwhile.
            end: dict[str, Any] = {"time": now()}
            if self._lost:
                end["lost"] = self._lost
            if seen:
                end["seen"] = seen
            self._write("end", end)
            self._mark(chain, writer)
            follower, self._follower = self._follower, None
            self._writer = self._chain = None
            self._lost = 0
        if follower is not None:
            follower.close()
        return writer.finish(timeout)

    def _read_other_chains(self) -> Seen:
        """Read how far the other chains in the same file have grown."""
        follower = self._follower
        try:
            return {} if follower is None else follower.read_new_lines()
        except OSError:
            return {}  # The writer says what is wrong with the file.

    def _note_others(self, chain: AuditChain) -> None:
        """Record the positions of other processes' chains, so that none can be removed unnoticed."""
        seen = self._read_other_chains()
        with self._lock:
            if seen and self._chain is chain:
                self._write("seen", {"time": now(), "seen": seen})

    def _start_anew(self) -> None:
        """Reset after a fork: this process gets its own thread and its own chain."""
        self._lock = threading.Lock()
        self._writer = self._chain = self._follower = None
        self._lost = 0
        for sink in self._sinks:
            sink.reset()
        self._process = os.getpid()

    def _open(self) -> None:
        if self._chain is None:
            self._chain = chain = AuditChain(self._key, secrets.token_hex(8))
            self._writer = _Writer(self._sinks, lambda: self._note_others(chain))
            try:
                self._follower = self._sinks[0].follow(chain.id)
            except OSError:
                self._follower = None  # The writer says what is wrong with the file.
            after = None if self._follower is None else self._follower.last
            self._write("open", {"time": now(), "process": os.getpid(), **self._about, "after": after})
            # From now on the anchor knows of the chain, however few lines it gets.
            self._mark(chain, self._writer)

    def _write(self, kind: str, entry: Mapping[str, Any]) -> None:
        chain, writer = self._chain, self._writer
        assert chain is not None and writer is not None
        writer.lines.put((self._sinks[0], chain.line(kind, entry)))
        if chain.count % self._anchor_every == 0:
            self._mark(chain, writer)

    def _mark(self, chain: AuditChain, writer: _Writer) -> None:
        for anchor in self._sinks[1:]:
            writer.lines.put((anchor, encode(chain.anchor()._asdict() | {"time": now()})))


class _Writer:
    """The thread of one chain, which writes lines in batches and retries until delivered."""

    def __init__(self, sinks: list[Sink], note_others: Callable[[], None]) -> None:
        self._note_others = note_others
        self._looked = time.monotonic()
        # Each line with the sink it is for; None at the end.
        self.lines: SimpleQueue[tuple[Sink, bytes] | None] = SimpleQueue()
        self._sinks = sinks
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="toolwire-audit", daemon=True)
        self._thread.start()

    def finish(self, timeout: float) -> bool:
        self.lines.put(None)
        self._closing.set()
        self._thread.join(timeout)
        written = not self._thread.is_alive() and not any(sink.waiting for sink in self._sinks)
        if not written:
            log.error("the audit log could not be finished within %g seconds: its last lines are not written", timeout)
        return written

    def _work(self) -> None:
        while self._receive_batch():
            self._deliver()
            if time.monotonic() - self._looked >= _LOOK_EVERY:
                self._looked = time.monotonic()
                self._note_others()
        self._deliver()
        for sink in self._sinks:
            sink.close()

    def _receive_batch(self) -> bool:
        """Wait for lines and hand them to their sinks; False after the last one."""
        taken = [self.lines.get()]
        if taken[0] is not None:
            self._closing.wait(_PAUSE)
        while len(taken) < _BATCH:
            try:
                taken.append(self.lines.get_nowait())
            except Empty:
                break
        for item in taken:
            if item is None:
                return False
            sink, line = item
            sink.waiting.append(line)
        return True

    def _deliver(self) -> None:
        failed = False
        while not self._flush(failed):
            failed = True
            if self._closing.is_set():
                return
            self._closing.wait(_RETRY)
        if failed:
            log.warning("the audit log can be written again")

    def _flush(self, failed_before: bool) -> bool:
        try:
            # The log before its anchor, which must not know of lines that never were.
            for sink in self._sinks:
                with sink.lock:
                    sink.flush()
        except Exception as error:
            if not failed_before:
                # Only its kind: what it says may quote the line.
                log.error("the audit log cannot be written, and will be tried again: %s", type(error).__name__)
            return False
        return True


def now() -> str:
    """The time, as a record shows it."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1_000_000:03d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
