"""Replacing a server by another one while its clients stay connected.

A successor shares the stores and keys of its predecessor, as two replicas of one server do, and takes over the
connections. So a client notices nothing but a change of the lists.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from msgspec import UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.changes import Change
from toolwire.protocol.lifecycle import Incoming, Offer
from toolwire.protocol.methods import Method
from toolwire.protocol.peer import Notice
from toolwire.server.access import Access
from toolwire.server.catalog import FAMILY, Catalog, changed_files
from toolwire.server.kernel import Kernel
from toolwire.server.lifespan import Held
from toolwire.server.list_pages import definitions
from toolwire.server.replay_state import Questions
from toolwire.server.server import Server
from toolwire.server.settings import Settings
from toolwire.server.subscriptions import Hub
from toolwire.server.transports import Serving
from toolwire.server.upstream_views import UpstreamViews
from toolwire.stores import Stores
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session

if TYPE_CHECKING:
    from toolwire.server.metrics import Metrics

_LISTEN: Final = "subscriptions/listen"


class Stage(Serving):
    """A server that passes every request on to its current server, which can be replaced while it runs.

    It is run and served like any server. It offers all three families from the start, because a client that was told
    of no prompts would never ask for the prompts of a successor.
    """

    def __init__(self, first: Server, beside: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """`beside` runs for as long as the stage is used, to watch for successors."""
        super().__init__()
        self.beside = beside
        self.kernel: StageKernel = StageKernel(self)
        self._life: _Lifespans = _Lifespans(self)
        self._retiring: set[asyncio.Task[None]] = set()
        self.local_principal = first.local_principal
        self._show(first)

    def _show(self, server: Server) -> None:
        """Take the properties of a server, which is the current one from now on."""
        self.current: Server = server
        self.name: str = server.name
        self.catalog: Catalog = server.catalog
        self.metrics: Metrics | None = server.metrics
        self._copy_settings(server)
        server.kernel.offer.add_families(FAMILY.values())

    @property
    def stores(self) -> Stores:
        """The stores of the current server."""
        return self.current.stores

    @stores.setter
    def stores(self, stores: Stores) -> None:
        self.current.stores = stores

    async def replace(self, successor: Server) -> list[str]:
        """Replace the current server; return the families of components whose lists are different now.

        If the lifespan of the successor cannot be entered, nothing changes and its error is raised here. Running calls
        end in the server where they began.
        """
        before = self.current
        if not successor._stores_are_given:
            # Before its lifespan begins, which may use them.
            successor._use_stores(before.stores)
        await self._life.move(before, successor)
        changed = _differences(before, successor)
        updated = changed_files(before.catalog.digests(), successor.catalog.digests())
        _take_over(before, successor)
        if self.local_principal is before.local_principal:
            self.local_principal = successor.local_principal
        self._show(successor)
        retiring = asyncio.get_running_loop().create_task(self._retire(before))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)
        for family in changed:
            successor.kernel.hub.tell(Change(family))
        for uri in updated:
            successor.kernel.hub.tell(Change("updated", uri))
        return changed

    async def _retire(self, server: Server) -> None:
        # Now, so that its tasks have the same time as its calls, and the successor takes those that wait.
        server.kernel.drain()
        await self.kernel.finished(server.kernel, server.limits.drain)
        await self._life.leave(server)


class _Lifespans(Held):
    """The lifespan of the current server: entered by the first connection, left after the last."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._holders = 0
        self._entered: dict[Server, Held] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._beside: asyncio.Task[None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._stage.current._life.loop

    def check_loop(self) -> None:
        self._stage.current._life.check_loop()

    async def enter(self) -> None:
        self.check_loop()
        self._holders += 1
        try:
            await self._enter(self._stage.current)
        except BaseException:
            self._holders -= 1
            raise
        if self._beside is None and self._stage.beside is not None:
            self._beside = asyncio.get_running_loop().create_task(self._stage.beside())

    async def exit(self) -> None:
        self._holders -= 1
        if not self._holders:
            beside, self._beside = self._beside, None
            if beside is not None:
                beside.cancel()
                await asyncio.wait({beside})
            for server in list(self._entered):
                await self.leave(server)
            # Predecessors may still wait for their tasks.
            if self._leaving:
                await asyncio.wait(self._leaving)

    async def move(self, before: Server, successor: Server) -> None:
        if before in self._entered:
            await self._enter(successor)

    async def leave(self, server: Server) -> None:
        life = self._entered.pop(server, None)
        if life is not None:
            leaving = asyncio.get_running_loop().create_task(life.exit())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)

    async def _enter(self, server: Server) -> None:
        if server not in self._entered:
            await server._life.enter()
            self._entered[server] = server._life


class StageKernel:
    """The kernel of a stage, as its connections see it. It passes requests to the kernel of the current server."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._running: Counter[Kernel] = Counter()
        self._ended = asyncio.Event()
        self.offer: Offer = _StageOffer(stage)

    @property
    def access(self) -> Access:
        return self._stage.current.kernel.access

    @property
    def needing_client(self) -> list[str]:
        return self._stage.current.kernel.needing_client

    @property
    def hub(self) -> Hub:
        return self._stage.current.kernel.hub

    @property
    def questions(self) -> Questions:
        return self._stage.current.kernel.questions

    @property
    def upstream_views(self) -> UpstreamViews:
        return self._stage.current.kernel.upstream_views

    def notified(self, notice: Notice, session: Session) -> None:
        self._stage.current.kernel.notified(notice, session)

    def opened(self, session: Session) -> None:
        self._stage.current.kernel.opened(session)

    def closing(self, session: Session) -> None:
        self._stage.current.kernel.closing(session)

    def drain(self) -> None:
        self._stage.current.kernel.drain()

    @property
    def settings(self) -> Settings:
        return self._stage.current.kernel.settings

    def use_stores(self, stores: Stores) -> None:
        self._stage.current.kernel.use_stores(stores)

    async def handle(self, request: Incoming, outlet: Outlet) -> Any:
        kernel = self._stage.current.kernel
        if request.method == _LISTEN:
            # Not counted: a listen stream lasts as long as its client, and also gets the changes of successors.
            return await kernel.handle(request, outlet)
        self._running[kernel] += 1
        try:
            return await kernel.handle(request, outlet)
        finally:
            self._running[kernel] -= 1
            self._ended.set()

    async def finished(self, kernel: Kernel, seconds: float) -> None:
        """Wait until all calls of a kernel have ended, but at most some seconds."""
        try:
            async with asyncio.timeout(seconds):
                while self._running[kernel]:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            pass
        del self._running[kernel]


class _StageOffer:
    """The offer of the current server."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def _current(self) -> Offer:
        return self._stage.current.kernel.offer

    @property
    def implementation(self) -> t.Implementation:
        return self._current.implementation

    @property
    def instructions(self) -> str | UnsetType:
        return self._current.instructions

    def capabilities(self, revision: str) -> dict[str, Any]:
        return self._current.capabilities(revision)

    def extension_method(self, method: str) -> Method | None:
        return self._current.extension_method(method)

    def repeat(self, text: str) -> str:
        return self._current.repeat(text)


def _take_over(predecessor: Server, successor: Server) -> None:
    before, kernel = predecessor.kernel, successor.kernel
    # The connections belong to the new server now. Announcements of the old one reach nobody.
    before.hub.callbacks = kernel.hub.callbacks
    kernel.hub, before.hub = before.hub, Hub(before.limits)
    # A question that the old server asked may be answered to the new one, as between replicas.
    kernel.questions.sealer = before.questions.sealer
    kernel.questions.on_replay = before.questions.on_replay


def _differences(before: Server, after: Server) -> list[str]:
    old, new = before.catalog, after.catalog
    return sorted({family for kind, family in FAMILY.items() if definitions(old, kind) != definitions(new, kind)})
