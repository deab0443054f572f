"""The messages between processes: one topic that all of them listen to, and one for each process.

All processes hear the messages of the common topic in one order. The order matters. Claims for a stream are messages on
the same topic as the notifications for it, so all processes agree on the owner of the stream at every notification,
without asking each other. A message that one process is meant to hear goes to the topic of that process, so that the
others have no work with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from toolwire.protocol.errors import ToolwireError
from toolwire.stores import Bus
from toolwire.util.backoff import Backoff
from toolwire.util.out_queue import OutBound
from toolwire.wire.threads import call_on

log: logging.Logger = logging.getLogger("toolwire.wire")

MAX_WAITING: Final = 1024
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
LONGEST_PAUSE: Final = 5.0
#: The kind of a message that says that others were never sent: every process should look at everything again.
_LOST: Final = "lost"


class BusLink:
    """The topics, as one process uses them. A message has a kind and a content of bytes.

    The kind is a word of ASCII letters. It may be empty, for content that begins with no letter.
    """

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self._handlers: dict[str, list[Callable[[bytes], None]]] = {}
        self._on_lost: list[Callable[[], None]] = []
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._waiting_size = OutBound(limit=MAX_WAITING_BYTES)
        self._pump: asyncio.Task[None] | None = None
        self._making_up: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether messages are sent and heard now."""
        return self._loop is not None

    def on(self, kind: str, handler: Callable[[bytes], None]) -> Callable[[], None]:
        """Call `handler` for every message of a kind, our own included; return a function that ends this."""
        handlers = self._handlers.setdefault(kind, [])
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def on_lost(self, handler: Callable[[], None]) -> Callable[[], None]:
        """Call `handler` when messages were missed; return a function that ends this."""
        self._on_lost.append(handler)
        return lambda: self._on_lost.remove(handler)

    def open(self) -> None:
        """Listen on the running loop. Each `open` needs a `close`."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._users = 0  # Earlier users were on a loop that is gone.
            self.leave()
            self._loop = loop
            self._unsubscribe = self._bus.subscribe(self._topic, self._heard, on_lost=self._lost)
        self._users += 1

    def hear(self, process: str) -> Callable[[], None]:
        """Hear the messages to a process of this name, on the running loop; return a function that ends this."""
        return self._bus.subscribe(self._topic_of(process), self._heard, on_lost=self._lost)

    def _topic_of(self, process: str) -> str:
        return f"{self._topic}:{process}"

    def close(self) -> None:
        self._users -= 1
        if self._users <= 0:
            self.leave()

    def leave(self) -> None:
        """Stop listening, whoever still uses the link, and drop what waits to be sent."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._making_up is not None and self._loop is not None and not self._loop.is_closed():
            self._making_up.cancel()
        self._unsubscribe = self._loop = self._pump = self._making_up = None
        while self._waiting:
            self._pop_message()

    async def publish(self, kind: str, data: bytes) -> None:
        """Publish a message, and return when it is on its way: messages that are published afterwards come later."""
        await self._bus.publish(self._topic, _message(kind, data))

    async def send(self, process: str, kind: str, data: bytes) -> None:
        """Publish a message that only one process hears, and return when it is on its way."""
        await self._bus.publish(self._topic_of(process), _message(kind, data))

    def post(self, kind: str, data: bytes) -> None:
        """Publish a message without waiting, from any thread. Such messages keep their order among themselves."""
        self._post(self._topic, kind, data)

    def post_to(self, process: str, kind: str, data: bytes) -> None:
        """Publish a message that only one process hears, without waiting, from any thread."""
        self._post(self._topic_of(process), kind, data)

    def _post(self, topic: str, kind: str, data: bytes) -> None:
        loop = self._loop
        if loop is not None:
            call_on(loop, self._queue, topic, _message(kind, data))

    async def flushed(self) -> None:
        """Wait until everything that was posted so far is on its way, or could not be sent."""
        await asyncio.sleep(0)  # Only then what another thread has posted is queued here.
        while self._pump is not None:
            await asyncio.wait({self._pump})

    def deliver(self, kind: str, data: bytes) -> None:
        """Handle a message in this process alone, as if it had been heard."""
        self._heard(_message(kind, data))

    def _queue(self, topic: str, message: bytes) -> None:
        if self._loop is None:
            return
        while self._waiting and (len(self._waiting) >= MAX_WAITING or not self._waiting_size.has_room(len(message))):
            self._pop_message()
            log.warning("the bus is too slow: a message to the other processes was dropped")
            self._make_up()
        self._waiting.append((topic, message))
        self._waiting_size.add(len(message))
        self._start_pump()

    def _start_pump(self) -> None:
        if self._pump is None and self._loop is not None and self._waiting:
            self._pump = self._loop.create_task(self._send())

    def _pop_message(self) -> tuple[str, bytes]:
        topic, message = self._waiting.popleft()
        self._waiting_size.remove(len(message))
        return topic, message

    async def _send(self) -> None:
        try:
            while self._waiting:
                await self._bus.publish(*self._pop_message())
        except ToolwireError as error:
            log.error("publishing to the other processes failed: %s", error)
            self._make_up()
        except Exception:
            log.exception("publishing to the other processes failed")
        finally:
            self._pump = None

    def _make_up(self) -> None:
        """Tell all processes that a message is missing. Sent later, it would be out of order."""
        if self._making_up is None and self._loop is not None:
            self._making_up = self._loop.create_task(self._tell_lost())

    async def _tell_lost(self) -> None:
        backoff = Backoff(longest=LONGEST_PAUSE)
        while True:
            await asyncio.sleep(backoff.after(None))
            with contextlib.suppress(ToolwireError):
                await self.publish(_LOST, b"")
                break
        self._making_up = None
        self._start_pump()

    def _heard(self, message: bytes) -> None:
        kind, _, data = message.partition(b" ") if message[:1].isalpha() else (b"", b"", message)
        if kind == _LOST.encode():
            self._lost()
        for handler in tuple(self._handlers.get(kind.decode("ascii", "replace"), ())):
            try:
                handler(data)
            except Exception:
                log.exception("a message of another process could not be handled")

    def _lost(self) -> None:
        for handler in tuple(self._on_lost):
            handler()


def _message(kind: str, data: bytes) -> bytes:
    return kind.encode() + b" " + data if kind else data
