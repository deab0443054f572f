"""One function behind every transport: `handle(request, outlet) -> result`.

Looks up the operation of a method, runs it under the middleware, turns what a handler raises into what the wire allows,
and shapes the result for the revision of the request. The era of a request is invisible to handlers.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    METHOD_NOT_FOUND,
    InsufficientScope,
    ProtocolError,
    ResourceNotFound,
    UrlRequired,
)
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.peer import Notice
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.sealing import Sealer
from toolwire.protocol.shaping import shape
from toolwire.server.access import Access
from toolwire.server.call_target import subject_of_read
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components import Cache, Component, ResourceTemplate
from toolwire.server.context import CURRENT, Context, Progress
from toolwire.server.executors import context_in_thread
from toolwire.server.failures import Failures, of_handler
from toolwire.server.handler_deadline import RunningHandlers
from toolwire.server.input_requests import Asking, Replay
from toolwire.server.limits import Limits
from toolwire.server.methods import LISTEN, Operations
from toolwire.server.middleware import Middleware, Next, answering, checked, compose
from toolwire.server.mounted_middleware import around_mounted
from toolwire.server.replay_state import Questions, asked
from toolwire.server.subscriptions import LegacyClient
from toolwire.stores import Stores
from toolwire.wire.outlet import Outlet
from toolwire.wire.process_workers import ProcessWorkers
from toolwire.wire.session import Session
from toolwire.wire.thread_workers import ThreadWorkers

if TYPE_CHECKING:
    from toolwire.audit.log import AuditLog
    from toolwire.server.ping import Pinging
    from toolwire.server.tasks.methods import TaskMethods


class Kernel(Operations):
    """The server behind its transports."""

    def __init__(
        self,
        server: Any,
        catalog: Catalog,
        implementation: t.Implementation,
        *,
        instructions: str | None,
        capabilities: Mapping[str, Any] | None,
        limits: Limits,
        stores: Stores,
        sealer: Sealer,
        page_size: int,
        cache: Cache,
        debug: bool,
    ) -> None:
        self.questions: Questions = Questions(implementation.name, sealer, stores, limits)
        super().__init__(
            catalog,
            implementation,
            instructions,
            capabilities,
            access=Access(
                catalog,
                server.policy.effective_scopes if server.policy and server.policy.implies else None,
                limits.uris,
            ),
            failures=Failures(self.questions, limits.tool, debug),
            limits=limits,
            page_size=page_size,
            cache=cache,
        )
        self.server = server
        self.stores = stores
        self.workers: ThreadWorkers = ThreadWorkers(limits.threads, limits.queue, limits.share)
        self.processes: ProcessWorkers = ProcessWorkers(queue=limits.queue, share=limits.share)
        self.tracked: WeakSet[Progress] = WeakSet()
        self.audit: AuditLog | None = None
        self._pings: dict[Session, Pinging] = {}
        self._tasks: TaskMethods | None = None
        self._making_tasks = threading.Lock()
        # Of the loop that a handler ran on last; nearly always there is only one.
        self._handlers: RunningHandlers | None = None
        self._middleware: list[Middleware] = []
        self._observers: list[Middleware] = []
        self._names_are_checked = False
        self._chain: Next | None = None
        self._entry: Next | None = None
        # META-8: every modern result names its server; encoded once.
        self._server_info = {t.SERVER_INFO_KEY: shape(implementation, MODERN)}
        self._result_meta = Raw(msgspec.json.encode(self._server_info))
        self._operations: dict[str, Next] = self._own_operations

    @property
    def tasks(self) -> TaskMethods:
        if self._tasks is None:
            # Imported here because most servers have no tasks.
            from toolwire.server.tasks.manager import Tasks
            from toolwire.server.tasks.methods import TaskMethods

            with self._making_tasks:
                # Once, although several loops may come at the same time.
                if self._tasks is None:
                    self._tasks = TaskMethods(Tasks(self))
        return self._tasks

    @property
    def tasks_running(self) -> int:
        return 0 if self._tasks is None else self._tasks.running

    async def start(self) -> None:
        """Take up what an earlier process left behind, and say what is wrong with the rules."""
        if not self._names_are_checked:
            self._names_are_checked = True
            # Imported here because it is needed once, and not by those who only build a server.
            from toolwire.server.rule_names import warn_of_unknown_names

            warn_of_unknown_names(self.server)
        if self._offers_tasks():
            await self.tasks.ready()

    async def stop(self) -> None:
        """Let go of what runs beside the loop; the next call starts it anew."""
        await self.leave_loop()
        if self._tasks is not None:
            await self._tasks.stop()
        if self._handlers is not None:
            self._handlers.close()
            self._handlers = None
        self.hub.end_streams()
        limits = self.limits
        workers, self.workers = self.workers, ThreadWorkers(limits.threads, limits.queue, limits.share)
        workers.shutdown()
        if self.audit is not None:
            # In a thread, because where the log goes may not answer.
            await asyncio.to_thread(self.audit.close)

    async def leave_loop(self) -> None:
        """Let go of what belongs to the running loop alone."""
        if self._tasks is not None:
            await self._tasks.leave_loop()
        await self.processes.close()

    # --- the one function ---

    def use(self, middleware: Middleware, *, outermost: bool = False) -> None:
        # Somebody else's may look into a list, or change it; ours lets it pass as it goes on the wire.
        self._results_are_read = self._results_are_read or not outermost
        self._middleware.insert(0 if outermost else len(self._middleware), checked(middleware))
        self.compose()

    def use_no_more(self, middleware: Middleware) -> None:
        self._middleware.remove(middleware)
        self.compose()

    def observe(self, observer: Middleware) -> None:
        """Add what watches requests and the answers to them, from outside of all middleware."""
        self._observers.append(observer)
        self.compose()

    def compose(self) -> None:
        """Put together what runs around operations; anew when that changes, here or in what is mounted here."""
        middleware = [answering(each) for each in self._middleware]
        self._chain = compose(middleware, self._operate) if middleware else None
        watched = self._chain is not None or self._observers
        self._entry = compose(self._observers, self._admitted) if watched else None
        self._operations = around_mounted(self.catalog, self._own_operations, self._guarded)

    @property
    def own_middleware(self) -> list[Middleware]:
        """All but what enforces policies, which a server that mounts this one does itself."""
        return [each for each in self._middleware if each is not self.server.enforcer]

    async def handle(self, request: Incoming, outlet: Outlet) -> Any:
        ctx = Context(self, request, outlet)
        CURRENT.set(ctx)
        if self._entry is None:
            if self.access.active:
                self.access.admit(request, outlet)
            result = await (self._operations.get(request.method) or self._extended)(ctx)
        else:
            result = await self._entry(ctx)
        return self.finish(request.revision, result)

    async def _admitted(self, ctx: Context) -> Any:
        """Refuse who may not do this, before a middleware says a word; whoever watches sees the refusal."""
        if self.access.active:
            try:
                self.access.admit(ctx._request, ctx._outlet)
            except InsufficientScope:
                ctx._refusal = "scope"
                raise
        return await (self._operate(ctx) if self._chain is None else self._guarded(ctx, self._chain))

    def finish(self, revision: str, result: Any) -> Any:
        """Shape a result for its revision; a modern one says which server it is from."""
        if isinstance(result, t.Result):
            if revision == MODERN:
                if result.meta is UNSET:
                    result.meta = self._result_meta
                elif isinstance(result.meta, dict):
                    result.meta = {**self._server_info, **result.meta}
                if type(result) is t.CallToolResult:
                    result.result_type = "complete"
                    return result  # There is nothing in it that 2026-07-28 does not know.
            elif type(result) is t.CallToolResult:
                # What a middleware keeps may have been an answer to either era; and shaping would make a copy for this.
                result.result_type = UNSET
                if result.meta is self._result_meta:
                    result.meta = UNSET
            return shape(result, revision)
        if isinstance(result, dict) and revision == MODERN:
            return {"resultType": "complete", **result, "_meta": {**self._server_info, **result.get("_meta", {})}}
        return result

    async def _guarded(self, ctx: Context, chain: Next) -> Any:
        """What is answered where a middleware asks, or fails."""
        ctx._task = asyncio.current_task()
        try:
            return await chain(ctx)
        except ProtocolError as error:
            return await self.failures.answer(ctx, error, "the request")
        except asyncio.CancelledError:
            if asked(ctx):
                return await self.questions.input_required(ctx)
            raise
        except Exception as error:
            if asked(ctx) and not isinstance(error, UrlRequired):
                return await self.questions.input_required(ctx)
            return await self.failures.answer(ctx, error, "the request")

    async def _operate(self, ctx: Context) -> Any:
        return await self._operations.get(ctx.method, self._extended)(ctx)

    async def _extended(self, ctx: Context) -> Any:
        for extension in self.extensions.values():
            if ctx.method in extension.handlers:
                try:
                    return await self.failures.in_time(ctx, extension.handle(ctx), ctx.method)
                except Exception as error:
                    return await self.failures.answer(ctx, error, ctx.method)
        raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {ctx.method}")

    # --- connections ---

    def notified(self, notice: Notice, session: Session) -> None:
        if notice.method == "notifications/progress":
            session.progressed(notice.params)
        for extension in self.extensions.values():
            handler = extension.handlers.get(notice.method)
            if handler is not None:
                handler(notice.params)
        for callback in self.server._notice_callbacks.get(notice.method, ()):
            callback(notice.params)

    def opened(self, session: Session) -> None:
        client = LegacyClient(session, lambda uri: self.access.session_hears(session, uri))
        self.hub.clients[session] = session.state = client
        if self.limits.ping:
            # Imported here because most servers send no pings.
            from toolwire.server.ping import Pinging

            self._pings[session] = Pinging(session, self.limits.ping)

    def closing(self, session: Session) -> None:
        self.hub.clients.pop(session, None)
        if self._pings and (pinging := self._pings.pop(session, None)) is not None:
            pinging.stop()
        self.hub.end_streams(session)

    # --- running a component ---

    async def _run(self, ctx: Context, found: Found[Any], name: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a handler under its deadline; unwinding it for an answer ends as `input_required`."""
        component: Component = found.component
        ctx._owner = found.owner
        if not component.replay:
            ctx.replay = False
        request = ctx._request
        if request.revision == MODERN and (ctx._asking is not None or request.params.request_state is not UNSET):
            try:
                await self.questions.take_up(ctx)
            except BaseException:
                coroutine.close()
                raise
            if asked(ctx):
                # A middleware asked, and kept its unwinding to itself: the handler has no business running.
                coroutine.close()
                return await self.questions.input_required(ctx)
        seconds = component.timeout if component.timeout is not None else self.limits.tool
        if ctx._guard is not None:
            seconds, coroutine = ctx._guard(seconds, coroutine)
        connection = ctx._outlet.connection
        # To ask for the running loop is a system call on Python 3.11, and a session knows its own.
        loop = connection.loop if type(connection) is Session else asyncio.get_running_loop()
        handlers = self._handlers
        if handlers is None or handlers.loop is not loop:
            handlers = self._handlers = RunningHandlers(loop)
        deadline = ctx._deadline = handlers.start(seconds, asyncio.current_task(loop))
        failure: Exception | None = None
        try:
            result = await coroutine
        except BaseException as error:
            if asked(ctx):
                # Unwinding passes through the handler as an exception; what it made of that does not matter.
                return await self.questions.input_required(ctx)
            failure = of_handler(ctx, component, deadline, error)
        finally:
            handlers.deadlines.discard(deadline)
            deadline.task = None
            asking = ctx._asking
            if type(asking) is Replay:
                if not asking.unwinding:
                    asking.forget()
                asking.task = ctx._task
        if failure is not None:
            return await self.failures.answer(ctx, failure, f"the {component.noun} {name[:200]}")
        return result if asking is None or not asked(ctx) else await self.questions.input_required(ctx)

    # --- for handlers ---

    async def asking(self, ctx: Context) -> Asking:
        return await self.questions.asking(ctx)

    def new_id(self) -> str:
        return secrets.token_urlsafe(16)

    def elicitation_complete(self, outlet: Outlet, elicitation_id: str) -> bool:
        params = t.ElicitationCompleteNotificationParams(elicitation_id=elicitation_id)
        notify = getattr(outlet.connection, "notify", None)
        return bool(notify and notify("notifications/elicitation/complete", params))

    async def read_for(self, ctx: Context, uri: str) -> list[t.ResourceContents]:
        """Read for a handler, on behalf of its caller: a tool is no way around what the caller may read."""
        view = self._view(ctx)
        if view is not None:
            self.access.check_read(ctx._request, ctx._outlet, uri)
        subject = subject_of_read(self.access, uri, view)
        if subject.found is None:
            raise ResourceNotFound(f"There is no resource {uri[:200]}")
        inner = Context(self, ctx._request, ctx._outlet)
        inner.replay, inner._deadline, inner._state = ctx.replay, ctx._deadline, ctx.state
        inner._threaded, inner._mask = ctx._threaded, ctx._mask
        if ctx._request.row.rounds:
            inner._asking = ctx._asking or await ctx._open_asking()
        inner._owner, inner._subject = subject.found.owner, subject
        enforcer = self.server.enforcer
        result = await (_read(inner) if enforcer is None else enforcer.read_inside(ctx, inner, subject, _read))
        return cast("list[t.ResourceContents]", result.contents)

    def context_in_thread(self, ctx: Context) -> Context:
        return context_in_thread(ctx)

    def log_threshold(self, request: Incoming, outlet: Outlet) -> int | None:
        """The least severe level the client of a request wants; None for no messages at all."""
        if not self.offers_logging:
            return None  # 2025-06-18 basic/lifecycle: only what was negotiated is used.
        if request.modern:
            # LOG-1: only a request that asks for messages gets them; SUB-7: never on a listen stream.
            if request.log_level is UNSET or request.method == LISTEN:
                return None
            return t.severity(request.log_level)
        client = getattr(outlet.connection, "state", None)
        # Where there is no connection, log messages were not promised.
        return t.severity(client.level) if isinstance(client, LegacyClient) else None


async def _read(ctx: Context) -> t.ReadResourceResult:
    """Read what the subject of a context names, with no check of its own."""
    subject = ctx._subject
    component, uri = subject.found.component, subject.params.uri
    is_template = isinstance(component, ResourceTemplate)
    contents = await (component.read(ctx, uri, subject.variables) if is_template else component.read(ctx, uri))
    return t.ReadResourceResult(contents=contents)
