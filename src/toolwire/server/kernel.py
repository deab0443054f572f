"""One function behind every transport: `handle(request, outlet) -> result`.

The kernel looks up the operation of a method and runs it inside the middleware. It turns exceptions of handlers into
answers that the protocol allows, and shapes the result for the revision. Handlers do not see the era of a request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw, UnsetType, structs

from toolwire.protocol import types as t
from toolwire.protocol.changes import LIST_CHANGED, Change
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import (
    InsufficientScope,
    ProtocolError,
    ResourceNotFound,
    ToolwireError,
    UrlRequired,
)
from toolwire.protocol.jsonrpc import encode_notification
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.sealing import Sealer
from toolwire.server.access import Access
from toolwire.server.asked_pages import AskedPages
from toolwire.server.call import CURRENT, Call, LoopParts
from toolwire.server.call_target import CallTarget, find_target, target_of, target_of_read
from toolwire.server.catalog import Catalog, Found, Owner, Way
from toolwire.server.components import ResourceTemplate, ToolBase
from toolwire.server.failures import Failures
from toolwire.server.handler_runner import HandlerRunner
from toolwire.server.hops import HopObserver
from toolwire.server.input_requests import Asking
from toolwire.server.judgements import Judgement
from toolwire.server.kept_judgements import KeptJudgements
from toolwire.server.limits import Limits
from toolwire.server.lowlevel import LowLevel
from toolwire.server.methods import LISTEN, Methods
from toolwire.server.middleware import (
    Middleware,
    Observer,
    Operation,
    check_middleware,
    with_middleware,
    with_observers,
)
from toolwire.server.mounted_middleware import around_mounted
from toolwire.server.named_uris import NamedUris
from toolwire.server.offer import ServerOffer
from toolwire.server.replay_state import Questions, asked
from toolwire.server.results import Results
from toolwire.server.runtimes import Runs, Runtimes
from toolwire.server.settings import Settings
from toolwire.server.subscriptions import Hub, LegacyClient, Relay
from toolwire.server.upstream_views import UpstreamViews
from toolwire.stores import Stores
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session

if TYPE_CHECKING:
    from toolwire.audit.log import AuditLog
    from toolwire.server.policy import Policy
    from toolwire.server.policy.enforcement import Enforcer
    from toolwire.server.tasks.host_tasks import HostTasks
    from toolwire.server.tasks.parts import TaskCounts
    from toolwire.server.tool_search import ToolSearch

log: logging.Logger = logging.getLogger("toolwire.server")


class Kernel:
    """The definition of a server, compiled, and the one function that answers requests.

    It belongs to no event loop: a `Runtime` has what runs on one.
    """

    def __init__(
        self,
        server: Owner,
        catalog: Catalog,
        settings: Settings,
        *,
        stores: Stores,
        sealer: Sealer,
        signer: Sealer,
        make_runtime: Callable[[], Runs],
    ) -> None:
        identity, limits = settings.identity, settings.limits
        self.server = server
        self.catalog = catalog
        self.signer = signer
        self.settings: Settings = settings
        """What requests that begin now read. A call keeps the object that it began with."""
        self.stores: Stores = stores
        self.lowlevel: LowLevel = LowLevel(server)
        self.offer: ServerOffer = ServerOffer(
            catalog, self.lowlevel, identity, settings.instructions, settings.capabilities
        )
        self.access: Access = Access(catalog, settings.find_effective(), limits.uris)
        self.judgements: KeptJudgements = KeptJudgements(identity.name, signer, lambda: self.stores)
        self.questions: Questions = Questions(identity.name, sealer, stores, limits.share)
        self.failures: Failures = Failures(self.questions, limits.tool)
        self.runner: HandlerRunner = HandlerRunner(self.questions, self.failures, limits.tool)
        self.results: Results = Results(identity)
        self.runtimes: Runtimes[Any] = Runtimes(make_runtime)
        self.abandoned_leases: list[str] = []
        """The leases of runtimes whose loops ended before they were left. The next runtime ends them."""
        self.callbacks: dict[str, list[Callable[[str], Any]]] = {}
        """The functions of `Server.subscribe`, by their addresses."""
        self.remark: str = ""
        """The text of `/readyz` besides "ok"."""
        self.lifespans: dict[Any, Any] = {}
        """The `Lifespans` that have entered the lifespan of this server, each with the value that it yielded."""
        self._origin = os.urandom(6).hex()
        self.named_uris: NamedUris = NamedUris()
        """The URIs that servers behind this one named."""
        self.asked_pages: AskedPages = AskedPages(identity.name)
        """The ids of the pages that servers behind this one wanted opened."""
        catalog.announce = self._announce
        catalog.mount_listeners.append(self._mounts_changed)
        self.methods: Methods = Methods(self)
        self.upstream_views: UpstreamViews = UpstreamViews(catalog, self.access, lambda: self.lowlevel.active)
        self.audit: AuditLog | None = None
        self.notice_callbacks: dict[str, list[Callable[[Any], Any]]] = {}
        self._task_counts: TaskCounts | None = None
        self._hosted_tasks: HostTasks | None = None
        self._tool_search: ToolSearch | None = None
        self.middleware: list[Middleware] = []
        self.enforcer: Enforcer | None = None
        """The observer that applies policies to calls; None while there is no policy."""
        self._late_enforcer: Enforcer | None = None
        self._observers: list[Observer] = []
        self.hop_observers: list[HopObserver] = []
        """Called around every request of a call to a server behind this one."""
        self._names_are_checked = False
        self._chain: Operation | None = None
        self._entry: Operation | None = None
        self._is_watched = False
        self._around_mounted = False
        self._operations: dict[str, Operation] = self.methods.operations
        self._extended: Operation = self.methods.call_extension

    @property
    def hosted_tasks(self) -> HostTasks:
        """The tasks whose work the program does, on whatever loop it asks for them (`Server.tasks`)."""
        if self._hosted_tasks is None:
            # Imported here because most servers have no tasks.
            from toolwire.server.tasks.host_tasks import HostTasks

            self._hosted_tasks = HostTasks(self)
        return self._hosted_tasks

    @property
    def tool_search(self) -> ToolSearch:
        if self._tool_search is None:
            # Imported here because most servers have no search.
            from toolwire.server.tool_search import ToolSearch

            self._tool_search = ToolSearch(self)
        return self._tool_search

    @property
    def has_list_handler(self) -> bool:
        """Return whether a function of the user lists the tools, instead of the catalogue."""
        return self.lowlevel.lists

    @property
    def sealer(self) -> Sealer:
        return self.questions.sealer

    @property
    def limits(self) -> Limits:
        """The limits of what begins now."""
        return self.settings.limits

    def use_stores(self, stores: Stores) -> None:
        """Use other stores from now on. Call this before anything is served."""
        self.stores = self.questions.stores = stores

    def introduce(self, implementation: t.Implementation) -> None:
        """Tell clients this name and version of the server from now on."""
        self.offer.implementation = implementation
        self.results.introduce(implementation)

    @property
    def signature(self) -> bytes:
        return self.results.signature

    @property
    def results_are_read(self) -> bool:
        return self._is_watched or self._around_mounted

    @property
    def observers(self) -> Sequence[Observer]:
        return tuple(self._observers)

    @property
    def needing_client(self) -> list[str]:
        """The extensions that need a client that declares them."""
        return [name for name, each in self.catalog.all_extensions().items() if each.needs_client]

    @property
    def task_counts(self) -> TaskCounts | None:
        """Return what happened to tasks since this process started; None where there are no tasks."""
        return self._task_counts

    @property
    def tasks_running(self) -> int:
        return sum(each.work.tasks_running for each in self.runtimes.live)

    def count_tasks(self) -> TaskCounts:
        """Return the counts of what happens to tasks, which all runtimes of the server share."""
        if self._task_counts is None:
            from toolwire.server.tasks.parts import TaskCounts

            self._task_counts = TaskCounts()
        return self._task_counts

    def check_names(self) -> None:
        """Warn once of rules for unknown names."""
        if not self._names_are_checked:
            self._names_are_checked = True
            # Imported here because it is needed once, and not by those who only build a server.
            from toolwire.server.rule_names import warn_of_unknown_names

            warn_of_unknown_names(self.server)

    # --- changes and messages, from any thread ---

    def tell(self, change: Change) -> None:
        """Tell the clients of all runtimes, the other processes, and callbacks, of a change."""
        for runtime in self.runtimes.live:
            runtime.hub.tell_here(change)
        if (relay := self.find_relay()) is not None:
            relay.changed(change)
        if change.kind == "updated":
            for callback in tuple(self.callbacks.get(change.uri, ())):
                try:
                    callback(change.uri)
                except Exception:
                    log.exception("a callback for %s failed", change.uri)

    def log(self, params: t.LoggingMessageNotificationParams, session: str | None = None) -> None:
        """Send a log message to all legacy connections, or to the one HTTP session with this id."""
        if session is None:
            for runtime in self.runtimes.live:
                runtime.hub.log_here(params)
        if (relay := self.find_relay()) is not None:
            relay.logged(params, session or "")

    def say(self, session: str, method: str, params: t.Wire) -> None:
        """Send a notification to one legacy HTTP session, whichever process has its stream."""
        if (relay := self.find_relay()) is not None:
            relay.said(session, encode_notification(method, params))

    @property
    def hubs(self) -> list[Hub]:
        """The hubs of all runtimes: who is told of changes on each loop."""
        return [each.hub for each in self.runtimes.live]

    @property
    def origin(self) -> str:
        """The name of this process in its messages to the other processes of the server. A forked child has another."""
        return f"{self._origin}-{os.getpid()}"

    def find_relay(self) -> Relay | None:
        """Return the way to the other processes. One is enough: those of all runtimes lead to one topic."""
        relays = (each.hub.relay for each in self.runtimes.live)
        return next((each for each in relays if each is not None and each.is_open), None)

    def _mounts_changed(self) -> None:
        for runtime in self.runtimes.entered:
            runtime.mounts_changed()

    def _announce(self, family: str, for_sure: bool) -> None:
        """Tell clients that a list changed: at once if that is sure, otherwise if the list is another one soon."""
        if for_sure and family in LIST_CHANGED:
            self.tell(Change(family))
        # While the server does not run, nobody has read a list.
        for runtime in self.runtimes.entered:
            runtime.work.list_changes.note(family, for_sure)

    # --- the one function ---

    def use(self, middleware: Middleware) -> None:
        """Add a middleware inside the existing ones."""
        check_middleware(middleware)
        # The user's code may read or change a list, so lists are passed to it as objects and not as encoded bytes.
        self.methods.results_are_read = True
        self.middleware.append(middleware)
        self.compose()

    def use_no_more(self, middleware: Middleware) -> None:
        self.middleware.remove(middleware)
        self.compose()

    def enforce(self, enforcer: Enforcer) -> None:
        """Apply policies to calls, outside of all middleware: a refused call runs none, and every answer is masked."""
        self.enforcer = enforcer
        self.offer.mask = enforcer.mask_text
        self.compose()

    def observe(self, observer: Observer) -> None:
        """Add an observer of requests and their answers, outside of policies and middleware."""
        self._observers.append(observer)
        self.compose()

    def observe_no_more(self, observer: Observer) -> None:
        self._observers.remove(observer)
        self.compose()

    def compose(self) -> None:
        """Build the chain around operations. Call this again when middleware changes, here or in a mounted server."""
        chain = with_middleware(self.middleware, self._operate) if self.middleware else None
        if self.enforcer is not None:
            chain = with_observers([self.enforcer], chain or self._operate)
        self._chain = chain
        self._is_watched = chain is not None or bool(self._observers)
        self._entry = with_observers(self._observers, self._admitted) if self._is_watched else None
        if any(each.load_caller_lists is not None for each in self.catalog.followers):
            self._entry = _after_loading(self.catalog, self.upstream_views, self._entry or self._admitted)
        self._around_mounted = any(each.owner.kernel.middleware for each in self.catalog.family())
        self._operations, self._extended = around_mounted(
            self.catalog, self.methods.operations, self.methods.call_extension, self._guarded
        )

    async def handle(self, request: Incoming, outlet: Outlet, work: LoopParts) -> Any:
        """Answer a request. `work` is what the server has on the running loop."""
        call = Call(self, request, outlet, work)
        CURRENT.set(call)
        if self.settings.search is not None and request.method == "tools/call":
            inner = await self.tool_search.find_inner(call)
            if inner is not None:
                return await self.tool_search.call_inner(inner, call)
        if self.catalog.has_upstreams and self.upstream_views.resolve(call) and self._entry is None:
            raise cast("ProtocolError", call.denial)
        if self._entry is None:
            if self.access.active:
                self.access.admit(request, outlet)
            result = await (self._operations.get(request.method) or self._extended)(call)
            return self.results.finish(request.revision, result, is_open=False)
        return self.results.finish(request.revision, await self._entry(call))

    async def find_meant(self, call: Call) -> Incoming:
        """Return the request that `handle` answers for one: with the tool that `call_tool` or a view means."""
        request = call.request
        is_search = self.settings.search is not None and request.method == "tools/call"
        if not is_search and not (self.catalog.has_upstreams and request.method in ("tools/call", "resources/read")):
            return request
        before = CURRENT.set(call)
        try:
            if is_search:
                request = await self.tool_search.find_inner(call) or request
            # A view is judged later, and its request is not changed here.
            call.request = structs.replace(request, params=structs.replace(request.params))
            await self.load_caller_lists(call)
            self.upstream_views.resolve(call)
        except ToolwireError:
            return request  # It fails again when it is answered.
        finally:
            CURRENT.reset(before)
        return call.request

    async def record_refusal(self, call: Call, error: InsufficientScope) -> None:
        """Have observers and metrics count a call that was refused before its answer began. Nothing of it runs."""
        call.denial, call.refusal = error, "scope"
        CURRENT.set(call)
        with suppress(InsufficientScope):
            await with_observers(self._observers, self._admitted)(call)

    async def load_caller_lists(self, call: Call) -> None:
        """Load the lists of servers elsewhere that differ between callers."""
        await _load_caller_lists(self.catalog, call)

    async def _admitted(self, call: Call) -> Any:
        """Refuse a caller who lacks a scope before any middleware runs; observers see the refusal."""
        if call.denial is not None:
            raise call.denial
        if self.access.active:
            try:
                self.access.admit(call.request, call.outlet)
            except InsufficientScope:
                call.refusal = "scope"
                raise
        return await (self._operate(call) if self._chain is None else self._guarded(call, self._chain))

    async def _guarded(self, call: Call, chain: Operation) -> Any:
        """Run middleware, and return the answer when it asks the client a question or raises."""
        call.task = asyncio.current_task()
        try:
            return await chain(call)
        except ProtocolError as error:
            return await self.failures.answer(call, error, "the request")
        except asyncio.CancelledError:
            if asked(call):
                return await self.questions.input_required(call)
            raise
        except Exception as error:
            if asked(call) and not isinstance(error, UrlRequired):
                return await self.questions.input_required(call)
            return await self.failures.answer(call, error, "the request")

    async def _operate(self, call: Call) -> Any:
        target = call.target
        if target is not None:
            if target.replaced is not None:
                # Where middleware calls on once more, what the policies around it judged is what was replaced then.
                target = call.target = target.replaced
            if target.version != self.catalog.version and (now := self._find_replacement(call, target)) is not None:
                return await self._operate_on(call, now)
        return await self._operations.get(call.method, self._extended)(call)

    def _find_replacement(self, call: Call, judged: CallTarget) -> CallTarget | None:
        """Return the target that a call has now, where it became another one since policies judged it.

        Policies may have waited long, such as for an approval.
        """
        if self.enforcer is None or judged.version is None:
            return None
        now = self.find_target(call)
        is_other = now is not None and now.found is not None and now.name == judged.name and not now.is_same(judged)
        return now if is_other else None

    async def _operate_on(self, call: Call, target: CallTarget) -> Any:
        """Run a call on a target other than the one that policies judged, under those of the target.

        The call stays the same object, so that records have what becomes of it.
        """
        judged: CallTarget | None = call.target
        target.replaced, call.target = None if judged is None else judged.replaced or judged, target
        if self.enforcer is None:
            return await self._run_operation(call)
        return await self.enforcer.run_inside(judged, call, target, self._run_operation)

    async def _run_operation(self, call: Call) -> Any:
        return await self._operations.get(call.method, self._extended)(call)

    async def call_found(self, call: Call, found: Found[Any]) -> Any:
        """Call a tool that became known after the policies of the call were looked up, under those of the tool."""
        params = call.request.params
        if self.access.active:
            self.access.admit(call.request, call.outlet)
        return await self._operate_on(call, CallTarget("tools/call", params.name, params, found))

    # --- connections ---

    def notified(self, notice: Notice, session: Session) -> None:
        """Hand a notification of a client to extensions, upstreams and callbacks."""
        for extension in self.catalog.all_extensions().values():
            handler = extension.notifications.get(notice.method)
            if handler is not None:
                handler(notice.params)
        ways = self.catalog.unknown_methods(notice.method, declared=notice.declared)
        for found in ways:
            # No answer says whether a server knows it, so that all those get it that are equally likely to.
            if found.component.likelihood(notice.method) == ways[0].component.likelihood(notice.method):
                found.component.notified(notice, session)
        for callback in self.notice_callbacks.get(notice.method, ()):
            callback(notice.params)

    # --- for calls ---

    async def open_asking(self, call: Call) -> Asking:
        return await self.questions.asking(call)

    async def seal_state(self, call: Call, payload: bytes, context: bytes) -> str:
        return await self.questions.sealed(call, payload, context, call.settings.limits.state)

    async def open_state(self, text: str, context: bytes) -> bytes:
        return await self.questions.unsealed(text, context)

    def find_target(self, call: Call) -> CallTarget | None:
        target = find_target(self.access, self.catalog, call)
        if target is not None:
            target.version = self.catalog.version
        return target

    def judgement_of(self, call: Call) -> Judgement:
        # The handler of an outer call shows the result of this one.
        calls: list[Call] = []
        each: Call | None = call
        while each is not None:
            calls.append(each)
            each = each.outer
        targets = [target_of(each) for each in calls]
        return self.access.judgement(each.found for each in targets if each is not None and each.found is not None)

    def judge(self, call: Call, found: Found[Any]) -> Judgement:
        """Return what holds for a call of a component now, to be kept with what the call makes."""
        is_tool = isinstance(found.component, ToolBase)
        judgement = self.access.judgement([found], found if is_tool else None)
        if self.enforcer is None:
            return judgement
        masks, result = self.enforcer.judge(call, found)
        return structs.replace(judgement, masks=masks, result=result)

    def judge_earlier(self, call: Call, found: Found[Any] | None) -> Judgement | None:
        """Return what holds for a call of a version that kept no judgements: every mask that exists.

        None stands for a component that is not known, and for masks that depend on callers.
        """
        # Imported here because what earlier versions made is soon over.
        from toolwire.server.policy.enforcement import masks_of_all, pattern_of

        masks = masks_of_all(self.catalog)
        if found is None or masks is None:
            return None
        judgement = self.judge(call, found)
        return structs.replace(judgement, masks=tuple(dict.fromkeys((*judgement.masks, *map(pattern_of, masks)))))

    def judge_result(self, call: Call) -> Judgement | None:
        """Return what holds for the result of a call, and of those around it, to be kept with the result.

        None stands for a call that runs no component.
        """
        if call.judgement is not None:
            return call.judgement
        target = target_of(call)
        if target is None or target.found is None:
            return None
        judgement = self.judgement_of(call)
        each: Call | None = call
        while each is not None:
            if (target := target_of(each)) is not None and target.found is not None:
                found = self.judge(each, target.found)
                masks = tuple(dict.fromkeys((*judgement.masks, *found.masks)))
                judgement = structs.replace(judgement, masks=masks)
            each = each.outer
        return judgement

    def enforce_late(self, judgement: Judgement | None) -> tuple[Enforcer | None, Policy | None]:
        """Return what applies policies to a call that was accepted before, and the policy that was kept with it."""
        if judgement is None or (not judgement.masks and judgement.result is None):
            return self.enforcer, None
        # Imported here because servers without policies keep none.
        from toolwire.server.policy.enforcement import Enforcer, kept_policy

        if self._late_enforcer is None:
            self._late_enforcer = Enforcer(cast("Any", self.server))
        return self.enforcer or self._late_enforcer, kept_policy(judgement)

    async def find_judgement(self, call: Call, found: Found[Any] | None, mark: str) -> Judgement | None:
        """Return the judgement with a mark; None for one that is not known. `found` is the component as it is now."""
        if found is not None and self.judgements.mark_of(now := self.judge(call, found)) == mark:
            return now
        return await self.judgements.find(mark)

    def check_judgement(self, call: Call, judgement: Judgement, way: Way | None = None) -> None:
        target = target_of(call)
        if way is None:
            way = () if target is None or target.found is None else target.found.way
        permission = self.access.permission(call.principal, call.outlet.is_local, judgement, way)
        if permission == "hidden":
            raise ResourceNotFound()
        if permission == "refused":
            needed = frozenset[str]().union(*(each.scopes for each in judgement.scopes))
            raise InsufficientScope(needed, call.request_id)

    async def read_for(self, call: Call, uri: str, in_thread: bool) -> list[t.ResourceContents]:
        """Read a resource for a handler. The caller of the handler needs the permission to read it."""
        view = self.methods.view(call)
        if view is not None:
            self.access.check_read(call.request, call.outlet, uri)
        target = target_of_read(self.access, uri, view)
        if target.found is None:
            raise ResourceNotFound(f"There is no resource {uri[:200]}")
        inner = call.nested(target.found.owner, target, in_thread)
        # Where questions are rounds, both calls share the rounds of one request.
        inner.asking = await call.open_asking() if call.request.row.rounds else None
        enforcer = self.enforcer
        result = await (
            _read(inner) if enforcer is None else enforcer.run_inside(target_of(call), inner, target, _read)
        )
        return cast("list[t.ResourceContents]", result.contents)

    def sees_tool(self, call: Call, name: str) -> bool:
        """Return whether the caller of a handler sees another tool of the handler's server, and may call it."""
        found = self._sibling(call, name).found
        return found is not None and (
            self.methods.view(call) is None or self.access.permits_call(call.request, call.outlet, found)
        )

    async def call_tool_for(self, call: Call, name: str, arguments: Raw) -> t.CallToolResult | None:
        """Call another tool of the handler's server for its caller, under the scopes and policies of that tool.

        Return None where the caller sees no such tool.
        """
        target = self._sibling(call, name, arguments)
        if target.found is None:
            return None
        has_view = self.methods.view(call) is not None
        if has_view and not self.access.permits_call(call.request, call.outlet, target.found):
            raise InsufficientScope(self.access.scopes(target.found), call.request.id)
        tool = target.found.component
        inner = call.nested(target.found.owner, target, call.in_thread)
        inner.asking = await call.open_asking() if call.request.row.rounds else None
        # The result of the tool is that of the call. So the call is a task where the tool may be one.
        inner.may_be_task = tool.task is not None
        inner.task_run = call.task_run if inner.may_be_task else None
        if tool.timeout is not None and call.deadline is not None:
            call.deadline.allow(min(tool.timeout, call.deadline.time_left))
        enforcer = self.enforcer
        result = await (
            _call_tool(inner) if enforcer is None else enforcer.run_inside(target_of(call), inner, target, _call_tool)
        )
        return cast("t.CallToolResult", result)

    def _sibling(self, call: Call, name: str, arguments: Raw | UnsetType = UNSET) -> CallTarget:
        """Return a tool by its name at the server whose component a call runs, as the caller sees it."""
        running = target_of(call)
        way = () if running is None or running.found is None else running.found.way
        for mount in reversed(way):
            name = mount.public_name("tools", name)
        view = self.methods.view(call)
        sees = None if view is None else view.sees
        # Another server may have a tool of this name, too. So the way leads through the mount of the handler's server.
        found = way[0].tool(name, sees, ()) if way else self.catalog.tool(name, sees)
        if found is not None and found.way != way:
            found = None
        return CallTarget("tools/call", name, t.CallToolRequestParams(name=name, arguments=arguments), found)

    def is_for_everybody(self, call: Call) -> bool:
        """Return whether the component of a call is the same for every caller."""
        target = target_of(call)
        return target is not None and target.found is not None and not self.methods.depends_on_caller(target.found)

    def log_threshold(self, call: Call) -> int | None:
        """Return the least severe level that the client wants; None for no messages at all."""
        request = call.request
        if not self.offer.has_logging:
            return None  # 2025-06-18 basic/lifecycle: only what was negotiated is used.
        if request.modern:
            # LOG-1: only a request that asks for messages gets them; SUB-7: never on a listen stream.
            if request.log_level is UNSET or request.method == LISTEN:
                return None
            return t.severity(request.log_level)
        client = getattr(call.outlet.connection, "state", None)
        # Where there is no connection, log messages were not promised.
        return t.severity(client.level) if isinstance(client, LegacyClient) else None


def _after_loading(catalog: Catalog, views: UpstreamViews, entry: Operation) -> Operation:
    """Return an operation before which servers elsewhere learn of the caller, because each caller has other components.

    Policies and scopes are those of a component, so that it has to be known before they are looked up.
    """

    async def run(call: Call) -> Any:
        if await _load_caller_lists(catalog, call):
            views.resolve(call)
        return await entry(call)

    return run


async def _load_caller_lists(catalog: Catalog, call: Call) -> bool:
    """Load the lists of servers elsewhere that differ between callers. Return whether that took time."""
    loading = (each.load_caller_lists for each in catalog.followers)
    waits = [wait for load in loading if load is not None and (wait := load(call)) is not None]
    if waits:
        await asyncio.gather(*waits)
    return bool(waits)


async def _call_tool(call: Call) -> t.CallToolResult:
    """Call the tool of a call, without any check."""
    target: CallTarget = call.target
    assert target.found is not None
    result: t.CallToolResult = await target.found.component.call(call, target.params.arguments)
    return result


async def _read(call: Call) -> t.ReadResourceResult:
    """Read the resource of a call, without any check."""
    target: CallTarget = call.target
    assert target.found is not None
    component, uri = target.found.component, target.params.uri
    is_template = isinstance(component, ResourceTemplate)
    contents = await (component.read(call, uri, target.variables) if is_template else component.read(call, uri))
    return t.ReadResourceResult(contents=contents)
