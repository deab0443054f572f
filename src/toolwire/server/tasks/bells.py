"""The bells of tasks: messages which say that the record of a task has changed.

Each process has a topic. Bells for the process that holds a task, and for the process that accepted its call, go there.
Each task has a topic, too: every process in which a request waits for the task listens to it. All processes listen to
one common topic, which announces that a task can be taken. A lost bell costs time and never a state: a bell carries no
state, and its reader reads the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol.errors import ToolwireError
from toolwire.stores import Stores

log: logging.Logger = logging.getLogger("toolwire.tasks")


class Message(Struct, omit_defaults=True):
    """A message to one process: look at this task, or tell its client something."""

    key: str
    method: str = ""
    """The notification for the client that made the task; empty where there is none."""
    params: Raw | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode


class Hearing(Protocol):
    """The tasks of a server, as far as bells reach them."""

    def changed(self, key: str) -> None:
        """Look at a task that this process follows."""

    def told(self, key: str, method: str, params: Any) -> None:
        """Pass a notification on to the client that made a task."""

    def rung(self, key: str) -> None:
        """Look at a task that somebody in this process waits for."""

    def may_take(self) -> None:
        """Look for tasks that can be taken."""

    def missed(self) -> None:
        """Look at everything: messages were lost."""


class Ringer:
    """Sends bells. `Bells` also hears them."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._process = ""
        """The process that this is, which needs no bell of its own; empty for a program that runs no tasks."""

    async def ring(self, key: str, *processes: str) -> bool:
        """Send the bells of a changed record to the waiting requests and to the other processes.

        Return whether they were sent. The log has the reason why not.
        """
        try:
            # The holder gets the first bell: it has to know at once. Waiting requests may read a moment later.
            for process in dict.fromkeys(processes):
                if process and process != self._process:
                    await self._send(process, Message(key))
            await self._stores.bus.publish(_task_topic(key), b"")
        except ToolwireError:
            log.warning("the change of a task could not be announced", exc_info=True)
            return False
        return True

    async def ring_ready(self, server: str) -> None:
        """Say to all processes of a server that a task waits to be taken."""
        try:
            await self._stores.bus.publish(_ready_topic(server), b"")
        except ToolwireError:
            # Each process looks now and then by itself.
            log.warning("the change of a task could not be announced", exc_info=True)

    async def _send(self, process: str, message: Message) -> None:
        await self._stores.bus.publish(_process_topic(process), _encode(message))


class Bells(Ringer):
    """The bells of one server, on the loop that it runs on."""

    def __init__(self, server: str, stores: Stores, hearing: Hearing) -> None:
        super().__init__(stores)
        self._server = server
        self._hearing = hearing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own: list[Callable[[], None]] = []
        # The tasks that requests here wait for: a function that ends the subscription, and one event per request.
        self._topics: dict[str, Callable[[], None]] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        # Tasks that a listen stream of this process names.
        self._followed: set[str] = set()

    # --- this process ---

    def listen(self, process: str) -> None:
        """Hear what is meant for a process, and for everybody, on the running loop."""
        self._use_loop()
        if self._process == process:
            return
        self._leave_own()
        bus, missed = self._stores.bus, self._missed
        self._process = process
        self._own = [
            bus.subscribe(_process_topic(process), self._told, on_lost=missed),
            bus.subscribe(_ready_topic(self._server), lambda _: self._hearing.may_take(), on_lost=missed),
        ]

    def _use_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self.forget_loop()
            self._loop = loop

    def leave(self) -> None:
        """End all subscriptions. Each waiting request reads its record once more."""
        self.wake_all()
        self.forget_loop()

    def forget_loop(self) -> None:
        """Hear nothing any more, on a loop that has ended."""
        self._leave_own()
        for unsubscribe in self._topics.values():
            unsubscribe()
        self._loop, self._process = None, ""
        self._topics, self._waiting, self._followed = {}, {}, set()

    def _leave_own(self) -> None:
        for unsubscribe in self._own:
            unsubscribe()
        self._own = []

    def _told(self, data: bytes) -> None:
        try:
            message = _decode(data)
        except msgspec.DecodeError:
            return  # Of another version of this library, perhaps.
        if message.method:
            self._hearing.told(message.key, message.method, message.params)
        else:
            self._hearing.changed(message.key)

    # --- one task ---

    @contextmanager
    def watch(self, key: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the record may have changed."""
        self._use_loop()
        waiting = self._waiting
        changed = asyncio.Event()
        waiting.setdefault(key, set()).add(changed)
        self._subscribe(key)
        try:
            yield changed
        finally:
            waiting[key].discard(changed)
            if not waiting[key]:
                del waiting[key]
                self._unsubscribe(key)

    def follow(self, key: str) -> None:
        """Hear of a task for the listen streams of this process, until `follow_only` leaves it out."""
        self._use_loop()
        self._followed.add(key)
        self._subscribe(key)

    def follow_only(self, wanted: Callable[[str], bool]) -> None:
        """Stop hearing of tasks that no listen stream names any more."""
        for key in [each for each in self._followed if not wanted(each)]:
            self._followed.discard(key)
            self._unsubscribe(key)

    def _subscribe(self, key: str) -> None:
        if key not in self._topics:
            heard = lambda _: self._rung(key)  # noqa: E731
            self._topics[key] = self._stores.bus.subscribe(_task_topic(key), heard, on_lost=lambda: self._rung(key))

    def _unsubscribe(self, key: str) -> None:
        if key not in self._waiting and key not in self._followed and key in self._topics:
            self._topics.pop(key)()

    def _rung(self, key: str) -> None:
        self.wake(key)
        if key in self._followed:
            self._hearing.rung(key)

    def wake(self, key: str) -> None:
        """Wake the requests that wait for a record, so that they read it again."""
        for changed in self._waiting.get(key, ()):
            changed.set()

    def wake_all(self) -> None:
        for key in self._waiting:
            self.wake(key)

    def _missed(self) -> None:
        self._hearing.missed()

    # --- ringing ---

    async def ring(self, key: str, *processes: str) -> bool:
        is_rung = await super().ring(key, *processes)
        if not is_rung:
            self._rung(key)
        return is_rung

    async def tell(self, process: str, key: str, method: str, params: bytes) -> None:
        """Have another process tell the client that made a task something."""
        try:
            await self._send(process, Message(key, method, Raw(params)))
        except ToolwireError:
            log.warning("the change of a task could not be announced", exc_info=True)


def _task_topic(key: str) -> str:
    return f"{key}:changed"


def _process_topic(process: str) -> str:
    return f"toolwire:task-process2:{process}"


def _ready_topic(server: str) -> str:
    return f"toolwire:tasks-ready2:{server}"
