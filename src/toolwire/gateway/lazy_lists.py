"""`LazyLists`: the lists of an upstream that starts when it is used.

asleep   there is no connection; the stores have the lists of its last run
waking   it starts, and calls wait until its lists were read
awake    it is followed as any other upstream, until it was idle for a while

Calls wait for the lists because policies, pins and masks judge the definitions that the upstream has now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolwire.client.connection import ClientConnection, callable_methods
from toolwire.gateway.list_follower import FollowSettings
from toolwire.gateway.remote_lists import KnownServer, RemoteLists
from toolwire.gateway.shared_lists import ListsOwner, SharedLists
from toolwire.gateway.stored_lists import ListStore
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.lifecycle.negotiation import Agreement
from toolwire.protocol.revisions import is_modern
from toolwire.protocol.rounds import digest
from toolwire.server.call import Call
from toolwire.stores import KV

if TYPE_CHECKING:
    from toolwire.server.catalog import Found
    from toolwire.server.kernel import Kernel


class SleepingServer(Struct, frozen=True):
    """The capabilities of an upstream that is not connected, from its last run."""

    agreement: Agreement

    @property
    def revision(self) -> str:
        return self.agreement.revision

    @property
    def modern(self) -> bool:
        return is_modern(self.agreement.revision)

    @property
    def callable(self) -> frozenset[str]:
        """The methods whose capability the upstream declared."""
        return callable_methods(self.agreement)


class _Tasks:
    """The tasks of one upstream: its start, its stop, and the watch for idleness."""

    def __init__(self) -> None:
        self.beginning: asyncio.Task[None] | None = None
        self.stopping: asyncio.Task[None] | None = None
        self.watching: asyncio.Task[None] | None = None

    async def cancel(self) -> None:
        """Cancel the tasks, and wait for their end."""
        tasks = (self.beginning, self.stopping, self.watching)
        self.beginning = self.stopping = self.watching = None
        for task in tasks:
            if task is not None:
                task.cancel()
                await asyncio.wait({task})


class LazyLists(SharedLists):
    """Offers the lists of an upstream that starts when it is used."""

    load_caller_lists: Callable[[Call], Awaitable[None] | None] | None = None
    """Set while calls wait for the start of the upstream."""

    def __init__(self, address: str, idle_seconds: float, owner: ListsOwner, settings: FollowSettings) -> None:
        """`address` is that of the upstream: another program or URL has other lists."""
        super().__init__(owner, settings)
        self._idle_seconds = idle_seconds
        self.store: ListStore = ListStore(self._find_kv, partial(self._make_key, address), self.log)
        self._tasks = _Tasks()
        self._sleeping: SleepingServer | None = None
        """Set while the upstream is asleep or waking."""
        self._is_asleep = False
        self._woken_at = 0.0

    def _find_kv(self) -> KV:
        hosts = self.catalog.hosts()
        return (hosts[0] if hosts else self.catalog).owner.kernel.stores.kv

    def _make_key(self, address: str) -> str:
        revision = self.back_connections.revision or ""
        return f"toolwire:lists:{self.catalog.host_name}:{digest(self.name, address, revision)}"

    @property
    def known_connection(self) -> KnownServer | None:
        return super().known_connection or self._sleeping

    @property
    def is_asleep(self) -> bool:
        """Return whether there is no connection, and the lists are those of the last run."""
        return self._is_asleep

    # --- beginning and end ---

    def _start_following(self) -> None:
        self._tasks.beginning = self._run(self._begin())

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=f"gateway {self.name}")

    async def _begin(self) -> None:
        """Offer the lists of the last run; start the upstream where there are none."""
        stored = await self.store.read()
        if stored is None:
            self.wake()
            return
        agreement, lists = stored
        self._sleeping = SleepingServer(agreement)
        try:
            self.check_connection(self._sleeping)
            self.check_lists(lists)
        except ToolwireError:
            self._sleeping = None
            self.wake()  # It says itself what is wrong.
            return
        self._is_asleep = True
        self.follower.offer_stored(lists)
        self._note_ready()
        self._load_when_called()

    async def stop(self) -> None:
        self._is_asleep = False
        await self._tasks.cancel()
        self._sleeping = None
        await self.store.wait_for_writes()
        await super().stop()

    def retire(self) -> None:
        if self._tasks.watching is not None:
            self._tasks.watching.cancel()
        super().retire()

    async def wait_until_known(self) -> None:
        if self._tasks.beginning is not None:
            # Its follower is not started before.
            await asyncio.wait({self._tasks.beginning})
        await super().wait_until_known()

    # --- asleep and awake ---

    def note_opening(self) -> None:
        """Follow the upstream from now on: a request opens its connection."""
        if self._is_asleep:
            self.wake()

    def wake(self) -> None:
        """Start the upstream, and follow its lists."""
        self._is_asleep = False
        self._woken_at = monotonic()
        if self._tasks.stopping is not None and not self._tasks.stopping.done():
            self._tasks.stopping.add_done_callback(lambda _: self._follow())
        else:
            self._follow()

    def _follow(self) -> None:
        if self.owner.lifecycle.is_retired or self._is_asleep:
            return
        self.follower.start()
        if self._tasks.watching is None or self._tasks.watching.done():
            self._tasks.watching = asyncio.get_running_loop().create_task(
                self._stop_when_idle(), name=f"gateway {self.name}"
            )

    def publish_lists(self, lists: RemoteLists, connection: ClientConnection) -> bool:
        self._sleeping = None
        has_changed = super().publish_lists(lists, connection)
        self._stop_loading()
        self.store.write_soon(connection.agreement, lists)
        return has_changed

    def note_lost(self, error: ToolwireError) -> None:
        self._sleeping = None
        super().note_lost(error)
        self._stop_loading()

    async def _stop_when_idle(self) -> None:
        """Stop the upstream once nothing has used it for a while."""
        while True:
            await asyncio.sleep(self._idle_seconds / 4)
            if self._may_sleep():
                break
        connection = super().known_connection
        assert connection is not None
        self._sleeping = SleepingServer(connection.agreement)
        self._is_asleep = True
        self._load_when_called()
        self._tasks.stopping = asyncio.get_running_loop().create_task(
            self._stop_upstream(), name=f"gateway {self.name}"
        )

    async def _stop_upstream(self) -> None:
        await self.follower.stop()
        self.back_connections.leave_shared()

    def _may_sleep(self) -> bool:
        """Return whether the upstream is idle, and no client has anything open there."""
        connections, owner = self.back_connections, self.owner
        shared = connections.shared.connection
        since = monotonic() - self._idle_seconds
        if shared is None or shared.ended or self.follower.lists is None or not self.is_ready:
            return False
        if self._woken_at > since or connections.last_ended > since or connections.is_busy:
            return False
        is_open = connections.conversations or len(self.conversations) or self.watched_uris()
        is_used = owner.relay.held.count or owner.relay.asked or owner.components.tool_tasks.is_used
        return self.store.has_lists and not is_open and not is_used

    # --- calls ---

    def _load_when_called(self) -> None:
        self.load_caller_lists = self._load
        self.hosts.compose()

    def _stop_loading(self) -> None:
        """Let calls pass at once: the lists are those that the upstream has now."""
        if self.load_caller_lists == self._load:
            self.load_caller_lists = self.conversations.take_up_session if self.hosts.are_replicated else None
            self.hosts.compose()

    def _load(self, call: Call) -> Awaitable[None] | None:
        """Return what a call waits for that starts this upstream."""
        taken_up = self.conversations.take_up_session(call) if self.hosts.are_replicated else None
        return self._start_for(taken_up) if taken_up is not None or self._is_meant(call) else None

    async def _start_for(self, taken_up: Awaitable[None] | None) -> None:
        if self._is_asleep:
            self.wake()
        if self._tasks.stopping is not None:
            await asyncio.wait({self._tasks.stopping})
        with suppress(TimeoutError):
            async with asyncio.timeout(self.follower.patience):
                await self.follower.first.wait()
        if taken_up is not None:
            await taken_up

    def _is_meant(self, call: Call) -> bool:
        """Return whether a call names a component here that its caller may use."""
        find = _FIND.get(call.method)
        if find is None:
            return False
        kernel: Kernel = call.host  # type: ignore[assignment]
        found = find(kernel, call, kernel.methods.usable(call))
        return found is not None and found.owner is self.catalog.owner

    # --- lists ---

    def freshen(self) -> Awaitable[None] | None:
        if self._is_asleep:
            self.follower.kept += 1
            return None
        return super().freshen()

    def look_again(self, call: Call) -> Awaitable[Any] | None:
        return None if self._is_asleep else super().look_again(call)

    def watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        if self._is_asleep and any(self.components.has_resource(uri) for uri in uris):
            self.wake()
        return super().watch(uris)


def _find_tool(kernel: Kernel, call: Call, sees: Any) -> Found[Any] | None:
    return kernel.catalog.tool(call.params.name, sees)


def _find_prompt(kernel: Kernel, call: Call, sees: Any) -> Found[Any] | None:
    return kernel.catalog.prompt(call.params.name, sees)


def _find_resource(kernel: Kernel, call: Call, sees: Any) -> Found[Any] | None:
    uri = call.params.uri
    if (found := kernel.catalog.resource(uri, sees)) is not None:
        return found
    matched = kernel.catalog.template(uri, sees)
    return None if matched is None else matched[0]


def _find_completed(kernel: Kernel, call: Call, sees: Any) -> Found[Any] | None:
    reference = call.params.ref
    if getattr(reference, "name", None) is not None:
        return kernel.catalog.prompt(reference.name, sees)
    found = kernel.catalog.template(reference.uri, sees)
    return None if found is None else found[0]


_FIND: Final[dict[str, Callable[[Kernel, Call, Any], Found[Any] | None]]] = {
    "tools/call": _find_tool,
    "prompts/get": _find_prompt,
    "resources/read": _find_resource,
    "resources/subscribe": _find_resource,
    "completion/complete": _find_completed,
}
