"""The bus on Redis: one stream of messages for each topic.

A process reads the streams of the topics that it has subscribers for, so its work does not grow with what other
processes tell each other. Redis stores a message only while some process listens to its topic.

Each message is stored first, under a number. Each process hands the stored messages out in their order, as the bus in
memory does. The numbers of a topic have no gaps, so a process that lost its connection finds what it missed, or learns
that it missed more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from toolwire.protocol.errors import counted
from toolwire.stores import redis_scripts as scripts
from toolwire.stores.memory import MemoryBus, StoreFailed
from toolwire.stores.names import encode_name
from toolwire.stores.redis_link import LISTEN_SECONDS, Ask, RedisLink
from toolwire.stores.redis_pipeline import FirstLook

_logger = logging.getLogger("toolwire.stores")

#: How many topics one script looks at.
_AT_ONCE: Final = 100


class _Heard:
    """A topic that this process listens to."""

    __slots__ = ("is_doubted", "keys", "name", "seen")

    def __init__(self, name: str) -> None:
        encoded = encode_name(name)
        self.name = name
        self.keys = (b"bus-topic:" + encoded, b"bus:" + encoded)
        #: The number of the last message that was handed out; None before the first look.
        self.seen: int | None = None
        #: Whether messages may have been missed before the first look.
        self.is_doubted = False

    def looked(self, future: asyncio.Future[Any]) -> None:
        """Take note of a first look that failed: messages that others sent meanwhile were not kept."""
        if not future.cancelled() and future.exception() is not None and self.seen is None:
            self.is_doubted = True


class RedisBus(MemoryBus):
    """A bus on Redis, with a stream of messages for each topic."""

    def __init__(self, link: RedisLink, *, max_subscribers: int, max_pending: int) -> None:
        super().__init__(max_subscribers=max_subscribers, max_pending=max_pending)
        self._link = link
        self._heard: dict[str, _Heard] = {}
        self._bell_of_process: bytes | None = None
        # Those who wait until the bell is heard.
        self._checks: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def _bell(self) -> bytes:
        """The key of the stream by which this process wakes its own listener. Forked processes have different ones."""
        if self._bell_of_process is None:
            self._bell_of_process = b"bus-bell:" + os.urandom(9).hex().encode()
        return self._bell_of_process

    async def publish(self, topic: str, data: bytes) -> None:
        encoded, data = encode_name(topic), bytes(data)
        await self._link.ask(
            scripts.PUBLISH,
            data,
            keys=(b"bus-topic:" + encoded, b"bus:" + encoded),
            # Handed out before anybody hears that it is done: who subscribes afterwards does not get it.
            then=lambda number: self._published(topic, number, data),
        )

    def subscribe(
        self, topic: str, callback: Callable[[bytes], None], *, on_lost: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        self._link.wake()
        leave = super().subscribe(topic, callback, on_lost=on_lost)
        with self._lock:
            heard = None if topic in self._heard else self._heard.setdefault(topic, _Heard(topic))
        if heard is not None:
            try:
                # Sent before whatever this process asks for afterwards, so that no answer to that is missed.
                script, arguments, keys, then = self._look([heard])
                self._link.start(script, *arguments, keys=keys, then=then).add_done_callback(heard.looked)
            except BaseException:
                leave()
                raise
        return leave

    def _remove(self, topic: str, subscriber: Any) -> None:
        super()._remove(topic, subscriber)
        with self._lock:
            if topic not in self._topics:
                self._heard.pop(topic, None)

    async def hear(self) -> None:
        """Return when a message has come over the connection that messages come by. Raise `StoreFailed`."""
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        check = (loop, heard)
        with self._lock:
            self._checks.append(check)
        try:
            is_rung, *_ = await self._link.ask(scripts.LOOK, 1, keys=(self._bell,))
            if is_rung:
                async with asyncio.timeout(self._link.timeout):
                    await heard.wait()
        except TimeoutError:
            deafness = self._link.deafness
            reason = (
                f"no message came within {counted(self._link.timeout, 'second')}"
                if deafness is None
                else f"it is not heard: {self._link.errors.reason(deafness)}"
            )
            raise self._link.errors.failed(reason, temporary=True) from None
        finally:
            with self._lock:
                if check in self._checks:
                    self._checks.remove(check)

    # --- looking at the numbers ---

    def _look(self, topics: Sequence[_Heard]) -> FirstLook:
        """Return the script that compares the numbers of topics with those of Redis, without ringing the bell."""
        seen = [heard.seen for heard in topics]
        return FirstLook(
            scripts.LOOK,
            [0, *("" if number is None else number for number in seen)],
            [self._bell, *(key for heard in topics for key in heard.keys)],
            lambda reply: self._looked(topics, seen, reply),
        )

    def _listened_to(self) -> list[_Heard]:
        with self._lock:
            return list(self._heard.values())

    # --- in the thread of the link ---

    def first_looks(self) -> list[FirstLook]:
        """Return the looks that run before all other scripts. From then on no message is missed."""
        return [self._look(topics) for topics in _pages(self._listened_to())]

    def server_changed(self) -> None:
        """Doubt all numbers: a new primary may give those again that the old one gave to messages that are lost."""
        for heard in self._listened_to():
            heard.seen, heard.is_doubted = None, True

    def _looked(self, topics: Sequence[_Heard], asked: Sequence[int | None], reply: Any) -> None:
        """Take the reply to a look; `asked` are the numbers that it was sent with."""
        has_begun = False
        for heard, number, (last, *messages) in zip(topics, asked, reply[1:], strict=True):
            if self._heard.get(heard.name) is not heard:
                continue  # Nobody listens to it any more.
            newest = int(last)
            if number is None:
                has_begun = has_begun or heard.seen is None
                self._begin(heard, newest)
            elif heard.seen is not None:
                self._take(heard, messages)
                if newest < number or (heard.seen < newest and not messages):
                    # Redis lost its data, or no longer has the messages that follow.
                    heard.seen = newest
                    self._tell_lost(heard.name)
        if has_begun:
            # The connection that waits for messages has to wait for those of the new topics, too.
            with contextlib.suppress(StoreFailed):
                self._link.start(scripts.LOOK, 1, keys=(self._bell,)).add_done_callback(_ignore)

    def _begin(self, heard: _Heard, newest: int) -> None:
        if heard.seen is None:
            heard.seen = newest
            if heard.is_doubted:
                heard.is_doubted = False
                self._tell_lost(heard.name)

    def _take(self, heard: _Heard, messages: Sequence[tuple[bytes, Sequence[bytes]]]) -> None:
        for identifier, fields in messages:
            number = int(identifier.partition(b"-")[0])
            if heard.seen is None or number <= heard.seen or self._heard.get(heard.name) is not heard:
                continue
            if number != heard.seen + 1:
                self._tell_lost(heard.name)
            heard.seen = number
            try:
                _, data, _, _ = fields
            except ValueError:
                _logger.warning("a message on the bus that nobody of us sent is passed over")
            else:
                self._hand_out(heard.name, data, None)

    def _published(self, topic: str, number: int, data: bytes) -> None:
        """Hand out a message of this process. Where messages of others come before it, all are read together."""
        heard = self._heard.get(topic)
        if heard is not None and heard.seen == number - 1:
            heard.seen = number
            self._hand_out(topic, data, None)

    async def listen(self, ask: Ask) -> None:
        """Hand out what other processes send."""
        prefix = self._link.prefix + b":"
        rung = b"0"
        look_at = -inf
        while True:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + LISTEN_SECONDS
                for look in self.first_looks():
                    look.then(await ask(*look.script.in_full(self._link.prefix, look.arguments, look.keys)))
            topics = {prefix + heard.keys[1]: heard for heard in self._listened_to() if heard.seen is not None}
            places = [f"{heard.seen}-0" for heard in topics.values()]
            bell = prefix + self._bell
            wait = int(LISTEN_SECONDS * 1000)
            found = await ask("XREAD", "COUNT", 1000, "BLOCK", wait, "STREAMS", bell, *topics, rung, *places)
            self._link.deafness = None
            for key, messages in found or ():
                if key == bell:
                    rung = messages[-1][0]
                    self._answer_checks()
                else:
                    self._take(topics[key], messages)

    def _answer_checks(self) -> None:
        with self._lock:
            checks, self._checks = self._checks, []
        for loop, heard in checks:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard.set)


def _pages(topics: Sequence[_Heard]) -> list[Sequence[_Heard]]:
    return [topics[start : start + _AT_ONCE] for start in range(0, len(topics), _AT_ONCE)]


def _ignore(future: asyncio.Future[Any]) -> None:
    """Look at the error of a script that nobody waits for. Without this, asyncio would report it."""
    if not future.cancelled():
        future.exception()
