"""The fleet: replicas of one server, with real servers and applications in simulated processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from tests.simulation.ledger import Ledger
from tests.simulation.network import Exchange, Network
from tests.simulation.store_model import StoreClient, StoreServer
from tests.simulation.world import Process, World

from toolwire import Context, Limits, Server, SyncContext
from toolwire.http.asgi import HttpApp
from toolwire.server.context import Elicited

REPLICAS: Final = 3
#: Few tasks run at once, so that others wait for a slot where the library lets them.
TASKS_RUNNING: Final = 3
#: How long a task waits to be started; for one whose tool no process has, a minute more.
TASK_WAIT: Final = 60.0
#: Resources that clients subscribe to. They are many, so that a later change does not hide that one was not told.
URIS: Final = tuple(f"counter://{number}" for number in range(12))
#: The versions of all of them.
ALL: Final = "counter://all"
#: As `HttpServer` has it: how long requests get when a replica stops, and how long their clean-up.
DRAIN: Final = 5.0
CLEAN_UP: Final = 1.0
SECRET: Final = "the same on every replica of the simulation"
#: One message of the tool that says much. Several thousand of them are more than a replica may hold in memory.
LARGE: Final = 32 * 1024


class Replica:
    """One process of the fleet."""

    def __init__(self, fleet: Fleet, number: int, generation: int) -> None:
        self.fleet = fleet
        self.number = number
        self.version = fleet.version
        # A replica that is started again is on the same machine as before.
        self.process = Process(fleet.world, f"replica-{number}.{generation}", f"machine-{number}")
        self.client = StoreClient(fleet.store, self.process)
        self.accepts = False
        self.stopped = math.inf
        """When it was told to stop."""
        self.app: HttpApp | None = None
        self.server: Server | None = None
        self._requests: dict[asyncio.Task[None], None] = {}
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self.fleet.ledger.enter("starting", self, self.process)
        self.fleet.world.note(f"{self.process.name} starts")
        self.process.start(self._live())

    async def _live(self) -> None:
        """Serve from the start to the end, as `HttpServer` does."""
        try:
            self.server = make_server(self)
            self.app = self.server.http_app()
            async with self._lifespan(self.app):
                self.fleet.ledger.leave("starting", self)
                self.accepts = True
                self.fleet.world.note("serves")
                await self._stopping.wait()
                await self._drain(self.app)
        except _NotStarted:
            self.fleet.world.note("did not start")
        self.fleet.ledger.leave("starting", self)
        self.fleet.gone(self)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: HttpApp) -> AsyncIterator[None]:
        said: asyncio.Queue[str] = asyncio.Queue()
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def receive() -> dict[str, Any]:
            return {"type": await said.get()}

        async def send(message: Any) -> None:
            heard.put_nowait(message["type"])

        running = asyncio.get_running_loop().create_task(app({"type": "lifespan"}, receive, send))
        said.put_nowait("lifespan.startup")
        if await heard.get() != "lifespan.startup.complete":
            raise _NotStarted
        yield
        said.put_nowait("lifespan.shutdown")
        await running

    async def _drain(self, app: HttpApp) -> None:
        if not await self._finished(app, DRAIN):
            for exchange in [each for each in self.fleet.network.open if each.replica is self]:
                exchange.cut()
            if not await self._finished(app, CLEAN_UP):
                for task in tuple(self._requests):
                    task.cancel()
                await self._finished(app, CLEAN_UP)

    async def _finished(self, app: HttpApp, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._requests:
                    app.drain()
                    await asyncio.wait(tuple(self._requests), timeout=0.1)
        return not self._requests

    def serve(self, exchange: Exchange) -> None:
        """Serve a request that arrives, in the process of the replica."""
        if not self.accepts or self.app is None:
            exchange.cut()
            return
        exchange.opened()
        task = asyncio.get_running_loop().create_task(self._serve(exchange, self.app))
        self._requests[task] = None
        task.add_done_callback(lambda _: self._requests.pop(task, None))

    async def _serve(self, exchange: Exchange, app: HttpApp) -> None:
        try:
            await app(exchange.scope(), exchange.receive, exchange.send)
        except Exception as error:
            self.fleet.ledger.broken("uncaught", f"the application raised {type(error).__name__}: {error}")
        finally:
            exchange.served()

    # --- faults ---

    def kill(self) -> None:
        """End the process at once. Nothing of it runs any more, and the network closes its connections."""
        if self.process.dead:
            return
        self.fleet.world.note(f"{self.process.name} is killed")
        self.accepts = False
        self.process.kill()
        self.client.kill()
        self.fleet.gone(self)

    def stop(self) -> None:
        """Send SIGTERM: accept no more connections, drain, and leave."""
        if self.accepts:
            self.fleet.world.note(f"{self.process.name} is told to stop")
            self.accepts = False
            self.stopped = self.fleet.world.now
            self.fleet.ledger.enter("draining", self, self.process)
            # Others take over what it cannot end in time.
            self.fleet.ledger.troubles.append((self.process, self.stopped, math.inf))
            self.fleet.world.send(self.fleet.world.now, self.process, self._stopping.set)


class _NotStarted(Exception):
    pass


class Fleet:
    """All replicas that live, their store and their network."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self.world = world
        self.ledger = ledger
        self.store = StoreServer(world)
        self.store.observer = lambda process, job: ledger.observe(process, job, self.store.peek)
        ledger.store_is_away = lambda: self.store.away
        self.replicas: list[Replica] = []
        self.network = Network(world, self.replicas)
        self.wanted = REPLICAS
        """How many replicas there should be."""
        self.version = 1
        """The version of replicas that start now. Each has another list of tools."""
        self.lists_told = False
        """Whether the last replica of an older version has left in order, and so has told of its list of tools."""
        self._old_killed = -math.inf
        """When a replica of an older version was killed. Clients may have read its list until then."""
        self._generations = 0

    def upgrade(self, first: Replica) -> None:
        """Replace the replicas one after the other by those of a new version."""
        self.version += 1
        self.lists_told = False
        self.world.note(f"the fleet is upgraded to version {self.version}")
        self.ledger.enter("upgrading", self)
        first.stop()
        self.world.after(1.0, self._go_on_upgrading)

    def _go_on_upgrading(self) -> None:
        old = [each for each in self.replicas if each.version < self.version]
        if not old:
            self.ledger.leave("upgrading", self)
            return
        if all(each.accepts for each in self.replicas) and len(self.replicas) >= self.wanted:
            old[0].stop()
        self.world.after(1.0, self._go_on_upgrading)

    def start(self, number: int) -> Replica:
        self._generations += 1
        replica = Replica(self, number, self._generations)
        self.replicas.append(replica)
        replica.start()
        return replica

    def gone(self, replica: Replica) -> None:
        """Take note that a process has ended; one that is wanted is started again after a while."""
        if replica not in self.replicas:
            return
        self.replicas.remove(replica)
        replica.accepts = False
        if replica.version < self.version:
            if replica.process.dead:
                self._old_killed = self.world.now
            if not any(each.version < self.version for each in self.replicas):
                # A replica announces its lists after it was told to stop. A client may read those of another one later.
                is_last = not replica.process.dead and replica.stopped > self._old_killed
                self.lists_told = is_last and self.store.served_since(replica.stopped)
        ledger = self.ledger
        for state in ("starting", "draining"):
            ledger.leave(state, replica)
        for state in ledger.states.values():
            for key in [key for key, process in state.items() if process is replica.process]:
                del state[key]
        if not replica.process.dead:
            self.world.note(f"{replica.process.name} has ended")
            replica.process.kill()
            replica.client.kill()
        for work in ledger.work.values():
            if work.begun and work.begun[-1].process is replica.process and work.begun[-1].ended is None and work.task:
                ledger.enter("orphaned", work.nonce)
        self.network.cut(replica)
        if len(self.replicas) < self.wanted:
            self.world.after(self.world.random.uniform(0.5, 20.0), lambda: self._restart(replica.number))

    def _restart(self, number: int) -> None:
        if len(self.replicas) < self.wanted:
            self.start(number)


def make_server(replica: Replica) -> Server:
    """Make the server, with tools for everything that the rules are about."""
    fleet, process = replica.fleet, replica.process
    ledger, world = fleet.ledger, fleet.world
    limits = Limits(
        task_window=0.1,
        tasks_running=TASKS_RUNNING,
        share=1.0,
        drain=DRAIN,
        drain_tasks=DRAIN,
        task_ttl=300.0,
        task_wait=TASK_WAIT,
    )
    server = Server("simulated", stores=replica.client.stores(), secret=SECRET, limits=limits)

    def answer(nonce: str, ctx: Context) -> str:
        principal = ctx.principal
        return f"{nonce} for {'nobody' if principal is None else principal.subject}"

    def check_name(nonce: str, given: Elicited[str]) -> None:
        if given.data is not None and given.data != f"name of {nonce}":
            ledger.broken("wrong caller", f"{nonce} was answered {given.data!r}")

    @server.tool
    async def echo(nonce: str, ctx: Context) -> str:
        """Answer at once."""
        ledger.begin(nonce, process, once=False).ended = world.now
        return answer(nonce, ctx)

    @server.tool
    async def hold(nonce: str, seconds: float, ctx: Context) -> str:
        """Answer after some seconds."""
        with _running(ledger, nonce, process, "call"):
            await asyncio.sleep(seconds)
        return answer(nonce, ctx)

    @server.tool
    def hold_thread(nonce: str, seconds: float, ctx: SyncContext) -> str:
        """Answer after some seconds, from a thread."""
        with _running(ledger, nonce, process, "call"):
            _sleep(seconds, ctx)
        return answer(nonce, ctx)

    @server.tool
    async def count(nonce: str, steps: int, seconds: float, ctx: Context) -> str:
        """Send numbered messages."""
        with _running(ledger, nonce, process, "call"):
            for number in range(1, steps + 1):
                await ctx.info({"nonce": nonce, "number": number})
                await asyncio.sleep(seconds)
        return answer(nonce, ctx)

    @server.tool
    async def flood(nonce: str, steps: int, ctx: Context) -> str:
        """Send large messages, as fast as they are taken."""
        with _running(ledger, nonce, process, "call"):
            for _ in range(steps):
                await ctx.info("x" * LARGE)
                await asyncio.sleep(0)
        return answer(nonce, ctx)

    @server.tool
    async def ask(nonce: str, ctx: Context) -> str:
        """Ask the client for its name."""
        with _running(ledger, nonce, process, "call"):
            given = await ctx.elicit(f"name of {nonce}?", str, timeout=60)
        check_name(nonce, given)
        return answer(nonce, ctx)

    @server.tool
    async def touch(nonce: str, uri: str, ctx: Context) -> str:
        """Make a new version of a resource."""
        ledger.begin(nonce, process, once=False).ended = world.now
        versions[uri] = versions.get(uri, 0) + 1
        ledger.told.setdefault(uri, []).append((world.now, versions[uri], process))
        server.notify_updated(uri)
        return answer(nonce, ctx)

    async def work(nonce: str, seconds: float, steps: int, asks: bool, ctx: Context, once: bool) -> str:
        with _running(ledger, nonce, process, "working", once=once) as beginning:
            for number in range(steps):
                await ctx.progress(number, steps, f"step {number}")
                await asyncio.sleep(seconds / steps)
            if asks:
                beginning.asks = True
                check_name(nonce, await ctx.elicit(f"name of {nonce}?", str, key="name", timeout=240))
                beginning.asks = False
        return answer(nonce, ctx)

    @server.tool(task="required")
    async def once(nonce: str, seconds: float, steps: int, asks: bool, ctx: Context) -> str:
        """Work as a task that must not run twice."""
        return await work(nonce, seconds, steps, asks, ctx, once=True)

    @server.tool(task="optional", annotations={"idempotentHint": True})
    async def again(nonce: str, seconds: float, steps: int, asks: bool, ctx: Context) -> str:
        """Work as a task that may run again."""
        return await work(nonce, seconds, steps, asks, ctx, once=False)

    @server.tool(name=tool_of_version(replica.version))
    async def version() -> int:
        """Return the version of this replica."""
        return replica.version

    @server.tool(task="optional", annotations={"idempotentHint": True})
    def threaded(nonce: str, seconds: float, steps: int, asks: bool, ctx: SyncContext) -> str:
        """Work in a thread, as a task that may run again."""
        with _running(ledger, nonce, process, "working"):
            for number in range(steps):
                ctx.progress(number, steps, f"step {number}")
                _sleep(seconds / steps, ctx)
            if asks:
                check_name(nonce, ctx.elicit(f"name of {nonce}?", str, key="name", timeout=240))
        return answer(nonce, ctx)

    if replica.version == 1:

        @server.tool(task="optional", annotations={"idempotentHint": True})
        async def retired(nonce: str, seconds: float, steps: int, asks: bool, ctx: Context) -> str:
            """Work as a task that the next version does not have."""
            return await work(nonce, seconds, steps, asks, ctx, once=False)
    else:

        @server.tool(task="optional", annotations={"idempotentHint": True})
        async def added(nonce: str, seconds: float, steps: int, asks: bool, ctx: Context) -> str:
            """Work as a task that the first version does not have."""
            return await work(nonce, seconds, steps, asks, ctx, once=False)

    versions = fleet.ledger.versions
    for uri in (*URIS, ALL):
        _resource(server, uri, versions)
    return server


def _sleep(seconds: float, ctx: SyncContext) -> None:
    """Sleep in a thread, and look now and then whether anybody still wants the call. Nobody can stop a thread."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not ctx.cancelled:
        time.sleep(min(left, 5.0))


def tool_of_version(version: int) -> str:
    """Return the name of the tool that only one version has."""
    return f"version_{version}"


def _resource(server: Server, uri: str, versions: dict[str, int]) -> None:
    @server.resource(uri)
    async def read() -> str:
        return json.dumps(versions if uri == ALL else {uri: versions.get(uri, 0)})


@contextlib.contextmanager
def _running(ledger: Ledger, nonce: str, process: Process, state: str, *, once: bool = False) -> Any:
    """Note that a handler runs, and how it ends."""
    beginning = ledger.begin(nonce, process, once=once)
    ledger.leave("orphaned", nonce)
    ledger.enter(state, nonce, process)
    try:
        yield beginning
        beginning.has_outcome = not process.dead
    finally:
        if not process.dead:
            beginning.ended = ledger.world.now
            ledger.leave(state, nonce)
            if state == "working" and ledger.work[nonce].task:
                ledger.enter("ending", nonce, process)


class LogLines(logging.Handler):
    """What the library logs, beside the lines of the simulation."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.aside(f"{record.levelname.lower()} {record.name}: {self.format(record)}")
