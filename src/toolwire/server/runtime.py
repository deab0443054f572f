"""`Runtime`: everything of a server that belongs to one event loop.

A `Server` is a definition and belongs to no loop. A runtime is made when a loop first uses the server, and is thrown
away when its last user has gone, or when its loop has ended. Several loops may each run the same server at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import InsufficientScope
from toolwire.protocol.lifecycle import SUPPORTED, Declare, Incoming, Offer, ServerLifecycle
from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.peer import Peer
from toolwire.protocol.sealing import Sealer
from toolwire.server.bus_relay import BusRelay
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Owner
from toolwire.server.context import Progress
from toolwire.server.handler_deadline import RunningHandlers
from toolwire.server.in_process import Direct, Nowhere
from toolwire.server.kernel import Kernel
from toolwire.server.lifespan import Lifespans
from toolwire.server.list_changes import ListChanges
from toolwire.server.offer import ReducedOffer, for_anybody, for_one_request, mark_restricted
from toolwire.server.replay_state import principal_key
from toolwire.server.subscriptions import Hub, LegacyClient
from toolwire.stores import Stores
from toolwire.wire.bus_link import BusLink
from toolwire.wire.channel import Channel
from toolwire.wire.deadlines import in_time
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Handler, Session
from toolwire.wire.shares import Caller, is_distinct
from toolwire.wire.thread_workers import ThreadWorkers
from toolwire.wire.threads import call_on

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from toolwire.http.legacy.session_records import BackSession
    from toolwire.server.ping import Pinging
    from toolwire.server.tasks.methods import TaskMethods
    from toolwire.wire.process_workers import ProcessWorkers

#: How long messages to the other processes may take to leave when the application stops.
FLUSH_SECONDS: Final = 1.0

HeaderPaths: TypeAlias = "Callable[[str], Mapping[str, tuple[str, ...]]]"


class Work:
    """The parts of one definition on one loop: lifespans, deadlines, threads, processes, tasks.

    It is apart from `Runtime` because a reload replaces it, while connections and streams stay. The lifespans are left
    in the task that entered them.
    """

    def __init__(self, kernel: Kernel, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        limits = kernel.limits
        self.kernel = kernel
        self.hub = hub
        self.loop = loop
        self.handlers: RunningHandlers = RunningHandlers(loop)
        self.workers: ThreadWorkers = ThreadWorkers(limits.threads, limits.queue, limits.share)
        self.tracked: WeakSet[Progress] = WeakSet()
        self.list_changes: ListChanges = ListChanges(kernel.catalog, loop, self._tell)
        self.lifespan_values: dict[Owner, Any] = {}
        self.is_replaced: bool = False
        """Whether another definition has the connections and streams of the loop now."""
        self._lifespans = Lifespans(loop, self.lifespan_values)
        self._processes: ProcessWorkers | None = None
        self._tasks: TaskMethods | None = None
        self._life: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()
        self._changed = asyncio.Event()
        self._left = asyncio.Event()

    @property
    def processes(self) -> ProcessWorkers:
        """The processes that handlers with `executor="process"` run in, made for the first of them."""
        if self._processes is None:
            from toolwire.wire.process_workers import ProcessWorkers

            self._processes = ProcessWorkers(queue=self.kernel.limits.queue, share=self.kernel.limits.share)
        return self._processes

    @property
    def tasks(self) -> TaskMethods:
        """The tasks of the server on this loop, made at the first use."""
        if self._tasks is None:
            # Imported here because most servers have no tasks.
            from toolwire.server.tasks.manager import TaskManager
            from toolwire.server.tasks.methods import TaskMethods

            methods = self.kernel.methods
            self._tasks = TaskMethods(TaskManager(self.kernel, self), lambda: methods.pages.size)
        return self._tasks

    @property
    def tasks_running(self) -> int:
        return 0 if self._tasks is None else self._tasks.running

    @property
    def is_left(self) -> bool:
        """Return whether the lifespans were left, or could not be entered."""
        return self._left.is_set()

    async def enter(self) -> None:
        """Enter the lifespans, or wait until they are entered. Raise the error of a lifespan that fails."""
        if self._life is None:
            self._life = self.loop.create_task(self._live())
        await self._entered.wait()
        if self._failure is not None:
            raise self._failure

    async def leave(self) -> None:
        """Leave the lifespans. Raise the error of a lifespan that fails at its end."""
        self.begin_to_leave()
        if self._life is not None:
            await self._left.wait()
        if self._failure is not None:
            raise self._failure

    def begin_to_leave(self) -> None:
        self._leave.set()
        self._changed.set()

    def mounts_changed(self) -> None:
        """Enter the lifespans of servers that were mounted meanwhile, and leave those of servers removed."""
        call_on(self.loop, self._changed.set)

    def drain(self, seconds: float = inf) -> None:
        """Take no more tasks, because the end is near. Those that run have so many seconds at most."""
        if self._tasks is not None:
            self._tasks.drain(seconds)

    def discard(self, *, is_forked: bool) -> None:
        """End what outlives the loop, which has ended. `is_forked`: the loop is that of the parent process."""
        self._lifespans.discard()
        if self._tasks is not None:
            self._tasks.discard(is_forked=is_forked)
        if self._processes is not None:
            self._processes.discard(is_forked=is_forked)
        if not is_forked:
            self.workers.shutdown()

    async def _live(self) -> None:
        try:
            async with self._lifespans:
                await self._begin()
                self._entered.set()
                try:
                    while not self._leave.is_set():
                        await self._changed.wait()
                        self._changed.clear()
                        await self._lifespans.follow(self._servers())
                except asyncio.CancelledError:
                    # The loop ends. The lifespans are left in the usual way: if the cancellation reached them, the code
                    # after their `yield` would not run.
                    if (task := asyncio.current_task()) is not None:
                        task.uncancel()
                await self._lifespans.leave_others(self._servers())
                await self._end()
        except BaseException as error:
            # Everyone who enters raises this error, or the last one who leaves.
            self._failure = error
            if self._entered.is_set() and not isinstance(error, Exception):
                raise
        finally:
            self._entered.set()
            self._left.set()

    def _servers(self) -> list[Owner]:
        catalog = self.kernel.catalog
        return [catalog.owner, *(each.owner for each in catalog.family())]

    async def _begin(self) -> None:
        for server in self._servers():
            await self._lifespans.enter(server)
        for follower in self.kernel.catalog.awaited:
            # All have begun, so that waiting for one is waiting for all.
            await follower.wait_until_known()
        self.kernel.check_names()
        if self.kernel.offer.has_tasks():
            await self.tasks.ready()
        self.list_changes.begin()

    async def _end(self) -> None:
        self.list_changes.end()
        catalog = self.kernel.catalog
        # Before the audit log, in which the ends of tasks are lines, has its last line. Servers that were taken away
        # may have tasks left, too.
        for tasks in dict.fromkeys(each.foreign_tasks for each in (catalog, *catalog.family())):
            if tasks is not None:
                await tasks.stop_watching()
        if self._tasks is not None:
            await self._tasks.stop()
        if self._processes is not None:
            await self._processes.close()
        self.handlers.close()
        if not self.is_replaced:
            self.hub.end_streams()
        self.workers.shutdown()
        audit = self.kernel.audit
        if audit is not None and not self.kernel.runtimes.entered:
            # In a thread, because the target of the log may not answer.
            await asyncio.to_thread(audit.close)

    def _tell(self, change: Change) -> None:
        """Tell the clients of this loop of a change. The other processes hear of it from the first runtime."""
        self.hub.tell_here(change)
        relay = self.hub.relay
        if relay is not None and relay is self.kernel.find_relay():
            relay.changed(change)


class Runtime:
    """A server on one event loop: its connections, streams, subscriptions, and links to other processes.

    Its first user enters the lifespans of the server and of those mounted in it, and the last one leaves them. HTTP
    applications see the server as this object.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.name: str = kernel.server.name
        self.hub: Hub = Hub(kernel.limits)
        self.work: Work = Work(kernel, self.hub, self.loop)
        self.offer: Offer = self._make_offer()
        self.handler: Handler = self
        self.sealer: Sealer = kernel.questions.sealer
        self.holders: int = 0
        """The number of connections and calls that keep the lifespans entered."""
        self.is_leaving: bool = False
        """Whether the last user has left, so that there can be no other one."""
        self._anonymous = ReducedOffer(self.offer, for_anybody)
        self._alone = ReducedOffer(self.offer, self._for_one_request)
        self._anonymous_alone = ReducedOffer(self._anonymous, self._for_one_request)
        self._process = os.getpid()
        self._pings: dict[Session, Pinging] = {}
        self._link: BusLink | None = None
        self._direct: Direct | None = None

    def _make_offer(self) -> Offer:
        return self.kernel.offer

    # --- the life of it ---

    @property
    def kernel(self) -> Kernel:
        """The definition that runs here."""
        return self.work.kernel

    @property
    def is_entered(self) -> bool:
        """Return whether connections or calls use it."""
        return self.holders > 0 and not self.is_over

    @property
    def is_over(self) -> bool:
        """Return whether it was left, or its loop has ended. In a forked child, every loop has ended."""
        return self.work.is_left or self.loop.is_closed() or self.is_forked

    @property
    def is_forked(self) -> bool:
        """Return whether it belongs to the parent of this process."""
        return self._process != os.getpid()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the lifespans entered for the time of a block."""
        await self.enter()
        try:
            yield
        finally:
            await self.exit()

    async def enter(self) -> None:
        """Enter the lifespans, or wait until they are entered. Raise the error of a lifespan that fails."""
        self.holders += 1
        try:
            await self.work.enter()
        except BaseException:
            self._let_go()
            raise

    async def exit(self) -> None:
        """Leave the lifespans, if nothing else needs them. Raise the error of a lifespan that fails."""
        if self.loop is not asyncio._get_running_loop() or not self.holders:
            return  # It was entered on a loop that has ended, and so have the lifespans.
        self._let_go()
        if not self.holders:
            await self._end()

    async def _end(self) -> None:
        try:
            await self.work.leave()
        finally:
            self.kernel.runtimes.remove(self)

    def _let_go(self) -> None:
        self.holders -= 1
        if not self.holders:
            self.is_leaving = True
            self.work.begin_to_leave()

    def mounts_changed(self) -> None:
        """Enter the lifespans of servers that were mounted meanwhile, and leave those of servers removed."""
        self.work.mounts_changed()

    def drain(self) -> None:
        """Begin nothing that takes long: the server is about to stop."""
        self.hub.end_streams()
        self.work.drain()

    def discard(self) -> None:
        """End what outlives the loop, which has ended before the runtime was left."""
        self.work.discard(is_forked=self.is_forked)
        if self._link is not None:
            self._link.leave()

    # --- requests ---

    def handle(self, request: Incoming, outlet: Outlet) -> Awaitable[Any]:
        work = self.work
        return work.kernel.handle(request, outlet, work)

    async def process(self, message: bytes) -> str | None:
        """Take one message of the connection that `Server.process` has on this loop; return the answer."""
        if self._direct is None:
            self._direct = Direct(self, self.open_local_session)
        return await self._direct.process(message)

    # --- connections ---

    async def serve(
        self,
        channel: Channel,
        principal: Principal | None,
        revisions: Sequence[str],
        caller: Caller,
        handler: Handler | None = None,
    ) -> None:
        """Serve one connection until it ends."""
        async with self.held():
            await channel.connect()
            session = self._open_session(channel, principal, revisions, caller, handler)
            try:
                await session.run()
            finally:
                await session.close(self.kernel.limits.drain)

    def open_local_session(self, channel: Channel) -> Session:
        """Open the connection of a client in this process, or at standard input and output."""
        return self._open_session(channel, self.kernel.settings.local_principal)

    def _open_session(
        self,
        channel: Channel,
        principal: Principal | None = None,
        revisions: Sequence[str] = SUPPORTED,
        caller: Caller = None,
        handler: Handler | None = None,
    ) -> Session:
        limits = self.kernel.limits
        declare = self._mark_restricted if principal is None and channel.is_local else self.declare_to(principal)
        session = Session(
            channel,
            Peer(ServerLifecycle(self.offer, revisions, declare), max_depth=limits.depth, max_batch=limits.batch),
            handler or self,
            in_flight=limits.in_flight,
            max_result=limits.result,
            principal=principal,
            caller=caller,
        )
        self.hub.clients[session] = session.state = LegacyClient(session, self._hears(session))
        if limits.ping:
            # Imported here because most servers send no pings.
            from toolwire.server.ping import Pinging

            self._pings[session] = Pinging(session, limits.ping)
        return session

    def _hears(self, session: Session) -> Callable[[Change], bool]:
        return lambda change: self.kernel.access.session_hears(session, change)

    def _mark_restricted(self, answer: t.InitializeResult) -> t.InitializeResult:
        if not self.kernel.access.restricts:
            return answer
        return replace_members(answer, capabilities=mark_restricted(answer.capabilities))

    def notified(self, notice: Notice, session: Session) -> None:
        if notice.method == "notifications/progress":
            session.progressed(notice.params)
        elif notice.method == "notifications/roots/list_changed":
            self.hub.tell_roots_changed(session)
        self.kernel.notified(notice, session)

    def closing(self, session: Session) -> None:
        self.hub.end_connection(session)
        client = self.hub.clients.pop(session, None)
        if client is not None and client.uris:
            self.hub.watching_changed()
        if self._pings and (pinging := self._pings.pop(session, None)) is not None:
            pinging.stop()
        self.hub.end_streams(session)

    # --- HTTP applications ---

    async def start(self) -> None:
        """Enter the lifespans for an HTTP application, and listen to the other processes."""
        await self.enter()
        self.link.open()
        await self._announce_lists()

    async def stop(self) -> None:
        """Leave the lifespans after an HTTP application, when its messages to the other processes are sent."""
        self.drain()
        # The last changes that were told here are for the clients of other processes, too.
        await in_time(FLUSH_SECONDS, self.link.flushed())
        await self._announce_lists()
        self.link.close()
        await self.exit()

    async def _announce_lists(self) -> None:
        relay = self.hub.relay
        if relay is not None:
            await relay.announce_lists()

    @property
    def link(self) -> BusLink:
        """The one link of this loop to the other processes, however many applications it has."""
        if self._link is None:
            kernel = self.kernel
            self._link = BusLink(kernel.stores.bus, f"toolwire:{self.name}:all")
            self.hub.relay = BusRelay(self.hub, self._link, self._find_catalog, kernel.origin)
        return self._link

    def _find_catalog(self) -> Catalog:
        return self.kernel.catalog

    @property
    def stores(self) -> Stores:
        return self.kernel.stores

    @property
    def abandoned_leases(self) -> list[str]:
        return self.kernel.abandoned_leases

    @property
    def is_strict(self) -> bool:
        return self.kernel.catalog.is_strict

    @property
    def remark(self) -> str:
        return self.kernel.remark

    def missing(self) -> list[str]:
        """Return the servers behind this one whose components are missing."""
        catalog = self.kernel.catalog
        return catalog.missing() if catalog.followers else []

    def left_out(self) -> list[str]:
        """Return the components of servers behind this one that cannot be offered."""
        catalog = self.kernel.catalog
        return catalog.find_left_out() if catalog.followers else []

    def offer_to(self, principal: Principal | None) -> Offer:
        return self.offer if is_distinct(principal) else self._anonymous

    def offer_alone_to(self, principal: Principal | None) -> Offer:
        return self._alone if is_distinct(principal) else self._anonymous_alone

    def declare_to(self, principal: Principal | None) -> Declare:
        def declare(answer: t.InitializeResult) -> t.InitializeResult:
            access, offer = self.kernel.access, self.kernel.offer
            if not access.restricts:
                return answer
            sees = access.view_of(principal).sees
            capabilities = offer.seen_capabilities(answer.capabilities, sees)
            return replace_members(answer, capabilities=capabilities, instructions=offer.seen_instructions(sees))

        return declare

    def _for_one_request(self, capabilities: dict[str, Any]) -> dict[str, Any]:
        return for_one_request(capabilities, self.kernel.needing_client)

    def header_paths_for(self, principal: Principal | None) -> HeaderPaths:
        """Return a function that finds the header parameters of those tools that a principal sees."""
        kernel = self.work.kernel
        if not kernel.access.active:
            return self._header_paths
        sees = kernel.access.view_of(principal).sees

        def visible_paths(tool: str) -> Mapping[str, tuple[str, ...]]:
            found = kernel.catalog.tool(tool, sees) or kernel.upstream_views.find_unlisted(tool, sees)
            return {} if found is None else found.component.headers

        return visible_paths

    def _header_paths(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        kernel = self.work.kernel
        own = kernel.catalog.tools.get(tool)
        if own is not None:
            return own.headers
        if not kernel.catalog.repeats_arguments:
            return {}
        found = kernel.catalog.tool(tool) or kernel.upstream_views.find_unlisted(tool, None)
        return {} if found is None else found.component.headers

    def client_state(self, connection: Any) -> LegacyClient:
        return LegacyClient(connection)

    def principal_key(self, principal: Principal | None) -> str:
        return principal_key(principal)

    def hearing(self, principal: Principal | None) -> Callable[[Change], bool]:
        return lambda change: self.kernel.access.may_hear(principal, change)

    def has_moved(self, backs: Mapping[str, BackSession]) -> bool:
        return any(key not in self.hub.backs and held.server in self.hub.back_names for key, held in backs.items())

    def roots_changed(self, session: str) -> None:
        self.hub.tell_roots_changed(session)

    def session_ended(self, session: str) -> None:
        self.hub.end_session(session)

    async def admit(self, calls: Sequence[Incoming]) -> None:
        """Raise `InsufficientScope` when the caller lacks what the calls need."""
        kernel = self.kernel
        if not kernel.access.active:
            return
        meant = [await kernel.find_meant(self._call_before_stream(call)) for call in calls]
        try:
            kernel.access.admit_all(meant)
        except InsufficientScope:
            for call in meant:
                if (needed := kernel.access.needed(call)) is not None:
                    await kernel.record_refusal(self._call_before_stream(call), InsufficientScope(needed, call.id))
            raise

    def _call_before_stream(self, request: Incoming) -> Call:
        return Call(self.kernel, request, Nowhere(is_local=False), self.work)
