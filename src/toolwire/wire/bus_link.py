"""One topic that all processes of a server listen to: what is said there, everyone hears, in one order.

That order is what makes it useful. Who may speak on a stream is settled by messages on the same topic as what is to be
said, so all processes agree on it without asking each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from toolwire.backoff import Backoff
from toolwire.protocol.errors import ToolwireError
from toolwire.stores import Bus

log: logging.Logger = logging.getLogger("toolwire.wire")

MAX_WAITING: Final = 1024
LONGEST_PAUSE: Final = 5.0
#: Says that messages were never sent: everybody should look at everything again.
_LOST: Final = "lost"


class BusLink:
    """A process's place on the topic. Messages have a kind; their content is bytes."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self._handlers: dict[str, list[Callable[[bytes], None]]] = {}
        self._on_lost: list[Callable[[], None]] = []
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._waiting: deque[bytes] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._making_up: asyncio.Task[None] | None = None

    def on(self, kind: str, handler: Callable[[bytes], None]) -> Callable[[], None]:
        """Call `handler` for every message of a kind, our own included; returns what ends it."""
        handlers = self._handlers.setdefault(kind, [])
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def on_lost(self, handler: Callable[[], None]) -> Callable[[], None]:
        """Call `handler` when messages were missed; returns what ends it."""
        self._on_lost.append(handler)
        return lambda: self._on_lost.remove(handler)

    def open(self) -> None:
        """Listen on the running loop; each `open` wants its `close`."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._users = 0  # The loop of those is gone.
            self._leave()
            self._loop = loop
            self._unsubscribe = self._bus.subscribe(self._topic, self._heard, on_lost=self._lost)
        self._users += 1

    def close(self) -> None:
        self._users -= 1
        if self._users <= 0:
            self._leave()

    def _leave(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._making_up is not None and self._loop is not None and not self._loop.is_closed():
            self._making_up.cancel()
        self._unsubscribe = self._loop = self._pump = self._making_up = None
        self._waiting.clear()

    async def publish(self, kind: str, data: bytes) -> None:
        """Returns when the message is on its way: whatever is published afterwards comes later."""
        await self._bus.publish(self._topic, _message(kind, data))

    def post(self, kind: str, data: bytes) -> None:
        """Publish from any thread, without waiting; such messages keep their order among themselves."""
        loop = self._loop
        if loop is None:
            return
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is loop:
            self._queue(_message(kind, data))
            return
        with contextlib.suppress(RuntimeError):  # The loop was closed meanwhile, and with it everyone who listened.
            loop.call_soon_threadsafe(self._queue, _message(kind, data))

    def _queue(self, message: bytes) -> None:
        if self._loop is None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            log.warning("the bus is too slow: a message to the other processes was dropped")
            self._make_up()
        self._waiting.append(message)
        self._start_pump()

    def _start_pump(self) -> None:
        if self._pump is None and self._loop is not None and self._waiting:
            self._pump = self._loop.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                await self._bus.publish(self._topic, self._waiting.popleft())
        except ToolwireError as error:
            log.error("publishing to the other processes failed: %s", error)
            self._make_up()
        except Exception:
            log.exception("publishing to the other processes failed")
        finally:
            self._pump = None

    def _make_up(self) -> None:
        """What was not sent cannot be sent later, out of its order; but that it is missing can be said."""
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
        kind, _, data = message.partition(b" ")
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
    return kind.encode() + b" " + data
