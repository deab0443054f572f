"""The bells of tasks: messages which say that the record of a task has changed.

A bell goes to the processes that have to know of a task, and to no other: the one that holds it, the one that accepted
its call, and the watchers that its record names. A process becomes a watcher when a request waits there for a task of
another process. Each process has a topic for the tasks that it holds or accepted, under the name of its lease, and one
for those that it watches. A common topic announces that a task can be taken, and that a damaged one has failed, whose
record does not say any more who has to know. Another one has the bells of tasks that very many processes watch; only
those listen to it.

A lost bell costs time and never a state: a bell carries no state, and its reader reads the record.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol.errors import BAD_JSON, ToolwireError
from toolwire.protocol.tasks import EVERY_PROCESS
from toolwire.stores import Stores
from toolwire.wire.bus_link import BusLink

log: logging.Logger = logging.getLogger("toolwire.tasks")


class Message(Struct, omit_defaults=True):
    """A message to one process: look at this task, or tell its client something."""

    key: str
    method: str = ""
    """The notification for the client that made the task; empty where there is none."""
    params: Raw | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode


class Ringer:
    """Sends bells. `Bells` also hears them."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._link = link_of_processes(stores)
        # The names of this process, which needs no bell of its own: as the one that holds or accepts tasks, and as a
        # watcher. They are empty for a program that runs no tasks.
        self._process = self._watcher = ""

    async def ring(self, key: str, *processes: str) -> None:
        """Send the bells of a changed record to the other processes that have to know of it."""
        others = dict.fromkeys(process for process in processes if process not in ("", self._process, self._watcher))
        if not others:
            return
        try:
            # The holder gets the first bell: it has to know at once. Waiting requests may read a moment later.
            for process in others:
                await self._send(process, Message(key))
        except ToolwireError:
            log.warning("the change of a task could not be announced", exc_info=True)

    async def ring_ready(self, server: str) -> None:
        """Say to all processes of a server that a task waits to be taken."""
        await self._publish_to_all(server, b"")

    async def ring_all(self, server: str, key: str) -> None:
        """Send the bell of a record that did not say which processes have to know: it was damaged."""
        await self._publish_to_all(server, _encode(Message(key)))

    async def _publish_to_all(self, server: str, data: bytes) -> None:
        try:
            await _link_of_all(self._stores, server).publish("", data)
        except ToolwireError:
            # Each process looks now and then by itself.
            log.warning("the change of a task could not be announced", exc_info=True)

    async def _send(self, process: str, message: Message) -> None:
        await self._link.send(process, "", _encode(message))


class Bells(Ringer):
    """The bells of one server, on the loop that it runs on."""

    def __init__(
        self,
        server: str,
        stores: Stores,
        *,
        changed: Callable[[str], None],
        told: Callable[[str, str, Any], None],
        may_take: Callable[[], None],
        missed: Callable[[], None],
    ) -> None:
        """`changed` gets the key of a task that another process has changed.

        `told` gets a notification for the client that made a task: its key, the method and the params. `may_take` is
        called when a task can be taken, and `missed` when messages were lost.
        """
        super().__init__(stores)
        self._changed, self._pass_on, self._may_take, self._on_missed = changed, told, may_take, missed
        self._common = _link_of_all(stores, server)
        self._common.on("", self._ready)
        self._common.on_lost(self._missed)
        self._link.on("", self._told)
        self._link.on_lost(self._missed)
        self._own: list[Callable[[], None]] = []
        self._watched: dict[str, Callable[[], None]] = {}
        # The tasks that requests here wait for, with one event for each request.
        self._waiting: dict[str, set[asyncio.Event]] = {}

    # --- this process ---

    @property
    def process(self) -> str:
        """The name of this process, which hears what is meant for it; empty until `listen` was called."""
        return self._process

    def listen(self, process: str) -> None:
        """Hear what is meant for a process, and for everybody, on the running loop."""
        if self._process == process:
            return
        is_renamed = self._process != ""
        self._leave_own()
        self._process = process
        self._own = [self._link.hear(process), self._common.close]
        self._common.open()
        if is_renamed:
            self._missed()  # Bells under the name before are not heard any more.

    def leave(self) -> None:
        """End all subscriptions. Each waiting request reads its record once more."""
        self.wake_all()
        self.discard()

    def discard(self) -> None:
        """End all subscriptions, also those of a loop that has ended."""
        self._leave_own()
        for unsubscribe in self._watched.values():
            unsubscribe()
        self._process = self._watcher = ""
        self._watched, self._waiting = {}, {}

    def _leave_own(self) -> None:
        for unsubscribe in self._own:
            unsubscribe()
        self._own = []

    def _ready(self, data: bytes) -> None:
        if data:
            self._told(data)
        else:
            self._may_take()

    def _told(self, data: bytes) -> None:
        try:
            message = _decode(data)
        except BAD_JSON:
            return  # Of another version of this library, perhaps.
        if message.method:
            self._pass_on(message.key, message.method, message.params)
        else:
            self.wake(message.key)
            self._changed(message.key)

    # --- one task ---

    def watcher(self) -> str:
        """Return the name of this process as a watcher of tasks, and hear the bells for it from now on."""
        if not self._watcher:
            self._watcher = secrets.token_urlsafe(9)
            self._watch(self._watcher)
        return self._watcher

    def watch_with_everybody(self) -> None:
        """Hear the bells of tasks that very many processes watch."""
        self._watch(EVERY_PROCESS)

    @property
    def watches_with_everybody(self) -> bool:
        return EVERY_PROCESS in self._watched

    def _watch(self, name: str) -> None:
        if name not in self._watched:
            self._watched[name] = self._link.hear(name)

    @contextmanager
    def waiting(self, key: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the record may have changed, as far as this process is told."""
        waiting = self._waiting
        changed = asyncio.Event()
        waiting.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            waiting[key].discard(changed)
            if not waiting[key]:
                del waiting[key]

    def wake(self, key: str) -> None:
        """Wake the requests that wait for a record, so that they read it again."""
        for changed in self._waiting.get(key, ()):
            changed.set()

    def wake_all(self) -> None:
        for key in self._waiting:
            self.wake(key)

    def _missed(self) -> None:
        self.wake_all()
        self._on_missed()

    # --- ringing ---

    async def tell(self, process: str, key: str, method: str, params: bytes) -> None:
        """Have another process tell the client that made a task something."""
        try:
            await self._send(process, Message(key, method, Raw(params)))
        except ToolwireError:
            log.warning("the change of a task could not be announced", exc_info=True)


def link_of_processes(stores: Stores) -> BusLink:
    """Return the link on which each process, each watcher and each worker has a topic of its own."""
    return BusLink(stores.bus, "toolwire:task-process2")


def _link_of_all(stores: Stores, server: str) -> BusLink:
    return BusLink(stores.bus, f"toolwire:tasks-ready2:{server}")
