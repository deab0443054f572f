"""A model of the store that the replicas share: Redis, as the library sees it over its connections.

The state is that of the stores in memory, which `test_store_model.py` compares with a real Redis. Each operation is
applied in one step, on the machine of the store and by its clock. What happens on the way there and back follows
`RedisPipeline` and `RedisBus`: operations of one process keep their order; while the store is away they wait for a
while and then fail; an operation that only reads is sent again when its answer is lost, one that changes something is
not.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import math
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, TypeAlias

from tests.simulation.world import Process, StoreProcess, World

from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, StoreFailed, StoreFull, Stores

TIMEOUT: Final = 5.0
LONGEST_PAUSE: Final = 2.0
BUS_SECONDS: Final = 60.0
BUS_MESSAGES: Final = 10_000
FIRST_POSITION: Final = 1_000_000
#: Operations that change nothing, and so are sent again when their answer is lost.
READING: Final = frozenset(
    {
        "get",
        "keys",
        "read_after",
        "stale",
        "leases",
        "orphans",
        "waiting",
        "place",
        "places",
        "counts",
        "look",
        "has_gaps",
    }
)
#: Operations that a Redis without memory refuses, besides those that the store in memory refuses by itself.
GROWING: Final = frozenset({"append", "publish"})

_LOCK: Final = type(threading.Lock())

#: Looks at an operation before it is applied, and returns what looks at it afterwards.
Observer: TypeAlias = "Callable[[Process, Job], Callable[[], None] | None]"


class Message:
    """A message of the bus."""

    def __init__(self, number: int, topic: str, data: bytes, sent: float) -> None:
        self.number = number
        self.topic = topic
        self.data = data
        self.sent = sent


class StoreServer:
    """The state of the store, on its own machine."""

    def __init__(self, world: World, **limits: Any) -> None:
        """`limits` have the names of `RedisStores`."""
        self.world = world
        self.process = StoreProcess(world, "store")
        self.stores = _in_memory(self.process.wall, **limits)
        kv: Any = self.stores.kv
        self.max_bytes: int = kv.max_bytes
        """The limit that every client is configured with, also while the store is full."""
        self.clients: list[StoreClient] = []
        self.slow_until = 0.0
        self._outages = 0
        self._came_back = self._emptied = 0.0
        self.observer: Observer | None = None
        self._full: dict[str, Any] = {}
        self._full_times: list[list[float]] = []
        """When it had no room: from, and until."""
        self.primary = 0
        """Which of its replicas answers."""
        self._last = int(self.process.wall() * 1e6)
        self._messages: deque[Message] = deque()
        self.random = random.Random(f"{world.seed}/store")

    # --- operations, in the process of the store ---

    def apply(self, client: StoreClient, job: Job) -> None:
        """Run an operation, and keep its outcome in the job."""
        told = None
        if self.observer is not None:
            told = self.observer(client.process, job)
        try:
            job.error, job.result = None, self._run(job)
        except Exception as error:
            job.error = error
        if told is not None:
            told()

    def _run(self, job: Job) -> Any:
        if self._full and job.method in GROWING:
            raise StoreFull("The Redis of the store has no memory left: raise its maxmemory.")
        if job.part == "bus":
            return self._publish(*job.args) if job.method == "publish" else self._look(*job.args)
        return self.run(job.part, job.method, *job.args, **job.options)

    def run(self, part: str, method: str, *args: Any, **options: Any) -> Any:
        """Run an operation of a store in memory, which never waits."""
        operation = getattr(getattr(self.stores, part), method)(*args, **options)
        try:
            operation.send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError(f"the store in memory waits in {method}")

    def peek(self, key: str) -> bytes | None:
        """Read a value as the simulation."""
        with self.world.inside(self.process):
            value: bytes | None = self.run("kv", "get", key)
        return value

    def names(self, prefix: str) -> list[str]:
        with self.world.inside(self.process):
            found: list[str] = self.run("kv", "keys", prefix, limit=100_000)
        return found

    def _publish(self, seen: int, topic: str, data: bytes) -> tuple[int, list[Message]]:
        now = self.process.wall()
        self._last += 1
        self._messages.append(Message(self._last, topic, data, now))
        while len(self._messages) > BUS_MESSAGES or self._messages[0].sent <= now - BUS_SECONDS:
            self._messages.popleft()
        for client in self.clients:
            client.hear_soon()
        return self._look(seen)

    def _look(self, seen: int | None) -> tuple[int, list[Message]]:
        """Return the number of the last message, and the messages after one."""
        if seen is None:
            return self._last, []
        return self._last, [each for each in self._messages if each.number > seen]

    # --- faults ---

    @property
    def away(self) -> bool:
        return self._outages > 0

    def served_since(self, moment: float) -> bool:
        """Return whether it has taken and answered everything in time since a moment."""
        return not self.away and not self._full and moment > max(self._came_back, self.slow_until, self._emptied)

    def was_full_from(self, moment: float, until: float) -> bool:
        """Return whether it had no room at a moment, and none again before another one."""
        return any(begin <= moment and until <= end for begin, end in self._full_times)

    def go_away(self, seconds: float) -> None:
        """Answer nobody for some time, and lose the answers that are on their way."""
        self._outages += 1
        for client in self.clients:
            client.cut()
        self.world.after(seconds, self._come_back)

    def _come_back(self) -> None:
        self._outages -= 1
        self._came_back = self.world.now
        for client in self.clients if not self.away else ():
            client.reconnect_soon()

    def fill(self, seconds: float) -> None:
        """Have no room for some time: what grows is refused."""
        if self._full:
            return
        kv: Any = self.stores.kv
        self._full = {name: getattr(kv, name) for name in ("max_items", "max_bytes")}
        self._full_times.append([self.world.now, math.inf])
        for name in self._full:
            setattr(kv, name, 0)
        self.world.after(seconds, self._empty)

    def _empty(self) -> None:
        self._emptied = self._full_times[-1][1] = self.world.now
        for name, value in self._full.items():
            setattr(self.stores.kv, name, value)
        self._full = {}

    def fail_over(self, lag: float, seconds: float, done: Callable[[], None]) -> None:
        """Let a replica of the store take its place that is behind by `lag`: what was written since is lost."""
        state = self._snapshot()

        def take_over() -> None:
            self.go_away(seconds)
            self._restore(state)
            self.primary += 1
            done()

        self.world.after(lag, take_over)

    def _snapshot(self) -> dict[str, Any]:
        parts = {each.name: getattr(self.stores, each.name) for each in fields(Stores) if each.name != "bus"}
        memo = {id(part): part for part in parts.values()}
        state: dict[str, Any] = {}
        for name, part in parts.items():
            state[name] = {
                key: copy.deepcopy(value, dict(memo))
                for key, value in vars(part).items()
                if not isinstance(value, _LOCK) and not callable(value) and key not in ("max_items", "max_bytes")
            }
        state["bus"] = (self._last, copy.copy(self._messages))
        return state

    def _restore(self, state: dict[str, Any]) -> None:
        for name, values in state.items():
            if name == "bus":
                self._last, self._messages = values
            else:
                vars(getattr(self.stores, name)).update(values)


def _in_memory(
    clock: Callable[[], float],
    *,
    max_items: int = 100_000,
    max_bytes: int = 64 * 1024 * 1024,
    max_events: int = 256,
    max_stream_bytes: int = 1024 * 1024,
    max_streams: int = 10_000,
    max_log_bytes: int = 256 * 1024 * 1024,
) -> Stores:
    """Make stores in memory, by the clock of the store; a `MemoryKV` gets its queue where there are queues."""
    log = MemoryLog(
        max_events=max_events,
        max_bytes=max_stream_bytes,
        max_streams=max_streams,
        max_total_bytes=max_log_bytes,
        first_position=FIRST_POSITION,
    )
    return Stores(MemoryKV(max_items=max_items, max_bytes=max_bytes, clock=clock), log, MemoryBus())


class Job:
    """One operation on its way."""

    def __init__(self, part: str, method: str, args: tuple[Any, ...], options: dict[str, Any], due: float) -> None:
        self.part = part
        self.method = method
        self.args = args
        self.options = options
        self.due = due
        self.result: Any = None
        self.error: Exception | None = None
        self.is_over = False
        self.settle: Callable[[], Any] = lambda: None

    @property
    def reads(self) -> bool:
        return self.method in READING


class StoreClient:
    """The connections of one process to the store, kept by a thread of their own.

    `thread` goes on while the loop of the process is blocked, and stops with the process.
    """

    def __init__(self, server: StoreServer, process: Process) -> None:
        self.server = server
        self.process = process
        self.thread = Process(server.world, f"{process.name}+")
        self.thread.pid = process.pid
        self.lost_answers = 0
        """How many of the next answers are lost on their way."""
        self._world = server.world
        self._random = server.random
        self._waiting: list[Job] = []
        self._sent: dict[Job, None] = {}
        self._away_since: float | None = None
        self._primary = server.primary
        self._is_doubted = False
        """Whether numbers of messages mean nothing any more, because another primary gives them now."""
        self._attempts = 0
        self._arrives_there = self._arrives_here = 0.0
        self._connection = 0
        self._seen: int | None = None
        self._hears = False
        self._hearing = False
        self._heard: list[tuple[str, Callable[[bytes], None], Callable[[], None] | None, Any]] = []
        server.clients.append(self)

    def stores(self) -> Stores:
        """Make the stores that the code of the process uses."""
        parts: dict[str, Any] = {"kv": RemoteKV(self, "kv"), "log": Remote(self, "log"), "bus": RemoteBus(self)}
        parts["queue"] = RemoteQueue(self, "queue")
        return Stores(*(parts[each.name] for each in fields(Stores)))

    def kill(self) -> None:
        self.thread.kill()
        self.server.clients.remove(self)

    # --- operations ---

    async def ask(self, part: str, method: str, *args: Any, **options: Any) -> Any:
        """Run an operation in the store, from the running loop."""
        if self._seen is None and method != "look":
            # The first look comes before everything else.
            await self.ask("bus", "look", None)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        job = Job(part, method, args, options, self._world.now + TIMEOUT)
        job.settle = lambda: loop.call_soon_threadsafe(_settle, future, job)
        self._add(job)
        return await future

    def _add(self, job: Job) -> None:
        now = self._world.now
        if self._away_since is not None and now - self._away_since > TIMEOUT:
            self._over(job, StoreFailed("The store cannot be used: it is not reached"))
        elif self.server.away:
            self._wait(job)
        else:
            self._send(job)

    def _wait(self, job: Job) -> None:
        """Keep an operation for the store's return, as long as that is worth while."""
        if self._away_since is None:
            self._away_since = self._world.now
            self._attempts = 0
        self._waiting.append(job)
        self._world.at(job.due, lambda: self._give_up(job))

    def _give_up(self, job: Job) -> None:
        if not job.is_over and job in self._waiting:
            self._waiting.remove(job)
            self._over(job, StoreFailed("The store cannot be used: it is not reached"))

    def _send(self, job: Job) -> None:
        self._sent[job] = None
        self._arrives_there = max(self._arrives_there, self._world.now + self._latency())
        connection = self._connection
        self._world.send(self._arrives_there, self.server.process, self._arrive, job, connection)
        self._world.at(job.due, lambda: self._time_out(job))

    def _arrive(self, job: Job, connection: int) -> None:
        if connection != self._connection:
            # It was still on its way when the connection broke. It may be run all the same, and nobody hears of it.
            if not self.server.away and self._random.random() < 0.5:
                self.server.apply(self, copy.copy(job))
            return
        self.server.apply(self, job)
        if self.lost_answers > 0:
            self.lost_answers -= 1
            self.cut()
            self.reconnect_soon()
            return
        self._arrives_here = max(self._arrives_here, self._world.now + self._latency())
        self._world.at(self._arrives_here, lambda: self._answered(job, connection))

    def _answered(self, job: Job, connection: int) -> None:
        if connection == self._connection and not job.is_over:
            self._away_since = None
            self._attempts = 0
            self._sent.pop(job, None)
            if job.part == "bus" and job.error is None:
                self._take(job.args[0], *job.result)
                job.result = None
            self._over(job, job.error)

    def _time_out(self, job: Job) -> None:
        if not job.is_over and job in self._sent:
            self.cut()
            self.reconnect_soon()

    def cut(self) -> None:
        """Lose both connections. What may have run fails; what only reads is sent again."""
        self._connection += 1
        self._hearing = False
        sent, self._sent = self._sent, {}
        for job in sent:
            if job.reads and job.due > self._world.now:
                self._wait(job)
            else:
                self._over(job, StoreFailed("The store cannot be used: nobody knows whether the change was made"))
        if self._away_since is None:
            self._away_since = self._world.now

    def reconnect_soon(self) -> None:
        """Try again after a pause that grows."""
        self._attempts += 1
        pause = min(0.1 * 2.0**self._attempts, LONGEST_PAUSE) * self._random.uniform(0.5, 1.0)
        self._world.send(self._world.now + pause, self.thread, self._reconnect)

    def _reconnect(self) -> None:
        if self.server.away:
            return  # It tells us when it is back.
        self._away_since = None
        if self._primary != self.server.primary:
            self._primary, self._is_doubted = self.server.primary, True
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            if job.due > self._world.now:
                self._send(job)
            else:
                self._over(job, StoreFailed("The store cannot be used: it did not answer"))
        if self._seen is not None:
            self.hear_soon()

    def _over(self, job: Job, error: Exception | None) -> None:
        if not job.is_over:
            job.is_over = True
            job.error = error
            # The thread hands the outcome over; a process that is paused or killed gets none now.
            self._world.send(self._world.now, self.thread, job.settle)

    def _latency(self) -> float:
        if self._world.now < self.server.slow_until:
            return self._random.choice((0.01, 0.3, 2.0, 6.0)) * self._random.uniform(0.5, 1.0)
        return self._random.uniform(0.0001, 0.003)

    # --- the bus ---

    def hear_soon(self) -> None:
        """Read what others have sent, on the connection that listens."""
        if not self._hearing and self._seen is not None and not self.server.away:
            self._hearing = True
            connection = self._connection
            self._world.send(self._world.now + self._latency(), self.thread, self._hear, connection)

    def _hear(self, connection: int) -> None:
        if connection != self._connection or self.server.away:
            return
        self._hearing = False
        self._take(self._seen, *self.server._look(self._seen))

    def _take(self, seen: int | None, newest: int, messages: list[Message]) -> None:
        if self._seen is None or seen is None:
            self._seen = newest
            return
        if self._is_doubted:
            self._is_doubted = False
            self._seen = newest
            self._tell_lost()
            return
        for message in messages:
            if message.number <= self._seen:
                continue
            if message.number != self._seen + 1:
                self._tell_lost()
            self._seen = message.number
            for topic, callback, _, context in tuple(self._heard):
                if topic == message.topic:
                    self.process.loop.call_soon_threadsafe(callback, message.data, context=context)
        if newest < seen or (newest > self._seen and not messages):
            self._seen = newest
            self._tell_lost()

    def _tell_lost(self) -> None:
        for _, _, on_lost, context in tuple(self._heard):
            if on_lost is not None:
                self.process.loop.call_soon_threadsafe(on_lost, context=context)

    def subscribe(
        self, topic: str, callback: Callable[[bytes], None], on_lost: Callable[[], None] | None
    ) -> Callable[[], None]:
        active = True

        def deliver(message: bytes) -> None:
            if active:
                callback(message)

        def lost() -> None:
            if active and on_lost is not None:
                on_lost()

        entry = (topic, deliver, lost, contextvars.copy_context())
        self._heard.append(entry)

        def leave() -> None:
            nonlocal active
            if active:
                active = False
                self._heard.remove(entry)

        return leave


def _settle(future: asyncio.Future[Any], job: Job) -> None:
    if future.done():
        return
    if job.error is not None:
        future.set_exception(job.error)
    else:
        future.set_result(job.result)


class Remote:
    """One of the stores, as a process sees it: each method is an operation of the server."""

    def __init__(self, client: StoreClient, part: str) -> None:
        self.client = client
        self._part = part

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_") or not hasattr(getattr(self.client.server.stores, self._part), method):
            raise AttributeError(method)
        return lambda *args, **options: self.client.ask(self._part, method, *args, **options)


class RemoteKV(Remote):
    #: A store that several machines share has a name, which it keeps when it loses its content.
    name = "redis:simulated"

    @property
    def max_bytes(self) -> int:
        return self.client.server.max_bytes


class RemoteBus:
    def __init__(self, client: StoreClient) -> None:
        self._client = client

    async def publish(self, topic: str, data: bytes) -> None:
        client = self._client
        if client._seen is None:
            await client.ask("bus", "look", None)
        await client.ask("bus", "publish", client._seen, topic, bytes(data))

    def subscribe(
        self, topic: str, callback: Callable[[bytes], None], *, on_lost: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        return self._client.subscribe(topic, callback, on_lost)


class RemoteQueue(Remote):
    """The queue, whose leases are renewed by the thread of the store."""

    def keep(self, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        return self.renewing(self.client.thread, process, lease, lost)

    def renewing(self, thread: Process, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        """Renew a lease in a thread, until it is lost or the function that this returns is called."""
        kept = True

        async def renew() -> None:
            while kept:
                await asyncio.sleep(lease / 3)
                try:
                    alive = not kept or await self.client.ask("queue", "renew", process, lease)
                except StoreFailed:
                    continue
                if not alive:
                    lost()
                    return

        thread.start(renew())

        def stop() -> None:
            nonlocal kept
            kept = False

        return stop
