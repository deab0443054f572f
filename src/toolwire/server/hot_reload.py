"""Replacing a server by another one while its clients stay connected.

A successor shares the stores and keys of its predecessor, as two replicas of one server do, and takes over the
connections. So a client notices nothing but a change of the lists.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UnsetType

from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change
from toolwire.protocol.lifecycle import Incoming, Offer
from toolwire.protocol.methods import Method
from toolwire.server.catalog import FAMILY, Catalog, changed_files
from toolwire.server.kernel import Kernel
from toolwire.server.list_pages import definitions
from toolwire.server.runtime import Runtime, Work
from toolwire.server.server import Server
from toolwire.server.transports import Serving
from toolwire.stores import Stores
from toolwire.wire.outlet import Outlet

if TYPE_CHECKING:
    from toolwire.server.metrics import Metrics

_LISTEN: Final = "subscriptions/listen"


class Stage(Serving):
    """A server whose definition can be replaced while it runs.

    It is run and served like any server. It offers all three families from the start, because a client that was told
    of no prompts would never ask for the prompts of a successor.
    """

    def __init__(self, first: Server, beside: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """`beside` runs for as long as the stage is used, to watch for successors."""
        super().__init__()
        self._beside = beside
        self._principal: Principal | None = None
        self._show(first)

    def _show(self, server: Server) -> None:
        """Take the properties of a server, which is the current one from now on."""
        self.current: Server = server
        self.name: str = server.name
        self.kernel: Kernel = server.kernel
        self.catalog: Catalog = server.catalog
        self.metrics: Metrics | None = server.metrics
        self._copy_settings(server)
        server.kernel.offer.add_families(FAMILY.values())

    @property
    def local_principal(self) -> Principal | None:
        """The caller on stdio and in memory: that of the current server, unless another one was set here."""
        return self.current.local_principal

    @local_principal.setter
    def local_principal(self, principal: Principal | None) -> None:
        self._principal = self.current.local_principal = principal

    @property
    def stores(self) -> Stores:
        """The stores of the current server."""
        return self.current.stores

    @stores.setter
    def stores(self, stores: Stores) -> None:
        self.current.stores = stores

    def _runtime(self) -> Runtime:
        return cast("Runtime", self.kernel.runtimes.here(lambda: ReplaceableRuntime(self.kernel, self._beside)))

    async def replace(self, successor: Server) -> list[str]:
        """Replace the current server; return the families of components whose lists are different now.

        If the lifespan of the successor cannot be entered, nothing changes and its error is raised here. Running calls
        end in the server where they began.
        """
        before = self.current
        if not successor._stores_are_given:
            # Before its lifespan begins, which may use them.
            successor._use_stores(before.stores)
        runtime = cast("ReplaceableRuntime", self._runtime())
        await runtime.replace(successor.kernel)
        changed = _differences(before, successor)
        updated = changed_files(before.catalog.digests(), successor.catalog.digests())
        # A question that the old server asked may be answered to the new one, as between replicas.
        successor.kernel.questions.sealer = before.kernel.questions.sealer
        successor.kernel.questions.on_replay = before.kernel.questions.on_replay
        if self._principal is not None:
            successor.local_principal = self._principal
        self._show(successor)
        for family in changed:
            successor.kernel.tell(Change(family))
        for uri in updated:
            successor.kernel.tell(Change("updated", uri))
        return changed


class ReplaceableRuntime(Runtime):
    """A runtime whose definition can be replaced: its connections and streams stay."""

    def __init__(self, kernel: Kernel, beside: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """`beside` runs while the runtime is entered."""
        super().__init__(kernel)
        self._beside = beside
        self._watching: asyncio.Task[None] | None = None
        self._running: Counter[Work] = Counter()
        self._call_ended = asyncio.Event()
        self._retiring: set[asyncio.Task[None]] = set()

    def _make_offer(self) -> Offer:
        return _CurrentOffer(self)

    async def enter(self) -> None:
        await super().enter()
        if self._watching is None and self._beside is not None:
            self._watching = self.loop.create_task(self._beside())

    async def _end(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await super()._end()
        # Predecessors may still wait for their tasks.
        if self._retiring:
            await asyncio.wait(self._retiring)

    async def replace(self, kernel: Kernel) -> None:
        """Run another definition from now on. Raise the error of a lifespan that fails, and change nothing then."""
        before, work = self.work, Work(kernel, self.hub, self.loop)
        if self.is_entered:
            await work.enter()
        before.kernel.runtimes.remove(self)
        kernel.runtimes.add(self)
        self.work = work
        before.is_replaced = True
        retiring = self.loop.create_task(self._retire(before))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def _retire(self, work: Work) -> None:
        # Now, so that its tasks have the same time as its calls, and the successor takes those that wait.
        work.drain()
        try:
            async with asyncio.timeout(work.kernel.limits.drain):
                while self._running[work]:
                    self._call_ended.clear()
                    await self._call_ended.wait()
        except TimeoutError:
            pass
        del self._running[work]
        await work.leave()

    def handle(self, request: Incoming, outlet: Outlet) -> Awaitable[Any]:
        if request.method == _LISTEN:
            # Not counted: a listen stream lasts as long as its client, and also gets the changes of successors.
            return super().handle(request, outlet)
        return self._handle_counted(request, outlet)

    async def _handle_counted(self, request: Incoming, outlet: Outlet) -> Any:
        work = self.work
        self._running[work] += 1
        try:
            return await super().handle(request, outlet)
        finally:
            self._running[work] -= 1
            self._call_ended.set()


class _CurrentOffer:
    """The offer of the current definition."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def _current(self) -> Offer:
        return self._runtime.kernel.offer

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


def _differences(before: Server, after: Server) -> list[str]:
    old, new = before.catalog, after.catalog
    return sorted({family for kind, family in FAMILY.items() if definitions(old, kind) != definitions(new, kind)})
