"""A session drives one `Peer` over one `Channel`: one task for each request, waiters for our own requests, the end.

The reader never waits for a handler. Requests that may not start yet are kept in a bounded backlog. Only when that is
full, reading pauses: the transport holds a flood back, while answers and cancellations still get through.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec import UNSET, Raw, Struct

from toolwire.loops import task_starter
from toolwire.protocol import types as t
from toolwire.protocol.classifier import Cancel, Garbage, Notice, Send
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    OutcomeUnknown,
    ProtocolError,
    Timeout,
    ToolwireError,
    Unreachable,
    counted,
)
from toolwire.protocol.framing import Oversized
from toolwire.protocol.jsonrpc import RequestId, encode_notification
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle
from toolwire.protocol.methods import OPTIONAL_NOTIFICATIONS
from toolwire.protocol.peer import Answer, Event, Peer
from toolwire.protocol.shaping import shape
from toolwire.wire.answer import encode_failure
from toolwire.wire.channel import Channel, Feed, Sender
from toolwire.wire.deadlines import Deadlines
from toolwire.wire.outlet import Outlet
from toolwire.wire.shares import Caller

if TYPE_CHECKING:
    from toolwire.server_texts import ServerTexts

log: logging.Logger = logging.getLogger("toolwire.wire")

IN_FLIGHT = 256
BACKLOG = 1024
MAX_RESULT = 16 * 1024 * 1024
#: How many seconds pass between two lines of the log about messages that are ignored.
IGNORED_SECONDS: Final = 60.0
_NO_PARAMS = t.RequestParams()


OnProgress: TypeAlias = Callable[[t.ProgressNotificationParams], None]


class Handler(Protocol):
    """The part that answers requests: a server, or a client that its server asks."""

    def handle(self, request: Incoming, outlet: Outlet) -> Awaitable[Any]: ...

    def notified(self, notice: Notice, session: Session) -> None: ...

    def closing(self, session: Session) -> None:
        """End everything that waits for a connection, which is about to close."""


def notify_without_session(handler: Handler, notice: Notice) -> None:
    """Pass on a notification that came without a connection: in an HTTP request of its own."""
    try:
        handler.notified(notice, _NO_SESSION)  # type: ignore[arg-type]
    except Exception:
        log.exception("the handler of a notification failed")


class _NoSession:
    """The session of such a notification, as far as a handler of notifications uses it."""

    def progressed(self, params: Any) -> None:
        """Ignore progress: questions over HTTP carry no progress token."""


_NO_SESSION = _NoSession()


class ClientHandler(Handler, Protocol):
    """The handler of a client, which may miss notifications of its server."""

    def missed(self) -> None:
        """Take note that notifications may have been lost."""

    def behind(self, identifier: RequestId) -> Awaitable[None] | None:
        """Return an awaitable until the reader of notifications catches up; None if it has."""

    async def closed_early(self, identifier: RequestId, retry_ms: int | None) -> None:
        """Take note that the server closed the stream of a request, which is resumed after this.

        `retry_ms` is how long the server wants its client to wait first, if it said so.
        """


class ConnectionOutlet(Struct, eq=False):
    """The `Outlet` of a request on a connection, where everything shares one channel, and the task that serves it."""

    connection: Session
    revision: str
    open: bool = True
    task: asyncio.Task[None] | None = None
    # Whether the client has to read notifications before the answer is sent.
    follows: bool = False

    @property
    def is_local(self) -> bool:
        return self.connection.channel.is_local

    @property
    def answered(self) -> asyncio.Future[Any] | None:
        # The task writes the answer in its last step. An eager task runs before `task` is set.
        return self.task or asyncio.current_task()

    @property
    def congested(self) -> bool:
        return self.connection.channel.congested

    @property
    def full(self) -> bool:
        return self.connection.channel.full

    async def drain(self) -> None:
        await self.connection.channel.drain()

    def notify(self, method: str, params: t.Wire) -> bool:
        """Send a notification about this request; return False once the request is settled (PRG-2, STD-10)."""
        if not self.open:
            return False
        self.follows = self.connection.paced
        return self.connection.notify(method, shape(params, self.revision))

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw:
        # Empty params are left out (`roots/list`).
        said = UNSET if params == _NO_PARAMS else shape(params, self.revision)
        answer = await self.connection.request(method, said, timeout=timeout)
        assert answer is not None
        return answer


class RelayedOutlet(ConnectionOutlet):
    """The `Outlet` of a request that another server of this process sends on for a client over HTTP."""

    @property
    def is_local(self) -> bool:
        return False


class Pending(Struct, eq=False):
    """A request of ours that waits for its answer, and its time (`deadlines.Timed`)."""

    future: asyncio.Future[Raw | None]
    identifier: RequestId
    method: str
    on_progress: OnProgress | None = None
    seconds: float | None = None
    expires: float = math.inf
    ceiling: float = math.inf
    pauses: int = 0
    left: float = math.inf

    def resolve(self, result: Raw | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Session:
    """One connection, from its first message to its last."""

    def __init__(
        self,
        channel: Channel,
        peer: Peer,
        handler: Handler,
        *,
        in_flight: int = IN_FLIGHT,
        max_result: int = MAX_RESULT,
        ceiling: float = math.inf,
        principal: Any = None,
        caller: Caller = None,
        texts: ServerTexts | None = None,
        peer_name: str = "",
    ) -> None:
        """`caller`: whose share of the limits the requests of this connection count in.

        `texts` cleans what the log and errors quote of the other side, where that is a server, and `peer_name` is its
        name for the log.
        """
        self.channel = channel
        self.peer = peer
        self.handler = handler
        self.principal = principal
        self.caller = caller
        self.state: Any = None
        self.error: BaseException | None = None
        self.ignored: str = ""
        """Why the first line that is not a message was ignored; "" without one."""
        self.peer_name: str = peer_name
        """The name of the other side for the log; empty where it has none."""
        self._texts = texts
        self._ignored_count = 0
        self._next_ignored_line = -math.inf
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._in_flight = in_flight
        self._max_result = max_result
        self.serving: dict[RequestId, ConnectionOutlet] = {}
        self._backlog: deque[Incoming] = deque()
        self._room: asyncio.Event | None = None  # Set only while reading is paused.
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self.deadlines: Deadlines = Deadlines(self.loop, peer.outgoing.values, self._expire, ceiling)
        """The time limits of the requests that this side has sent."""
        self._closed = False
        self._hurried: asyncio.Future[None] = self.loop.create_future()
        self._revision_told = not isinstance(peer.lifecycle, ServerLifecycle)  # A client tells its channel by itself.
        self._has_routes = type(channel).route is not Channel.route
        self.paced: bool = type(channel).taken is not Channel.taken
        self._tells_principals = type(channel).principal is not Channel.principal
        self._senders = channel.senders
        self._start_task = task_starter(self.loop)
        self._routes: dict[RequestId, Feed] = {}
        # At the end, because messages that have arrived already are delivered at once.
        self._attached = channel.attach(self.feed, self._on_ended)

    # --- reading ---

    async def run(self) -> None:
        """Read until the other side disconnects, or `end` is called."""
        if self._attached:
            await self._ended
            return
        pump = self.loop.create_task(self._pump())
        try:
            await self._ended
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _pump(self) -> None:
        error: BaseException | None = None
        try:
            while (message := await self.channel.read()) is not None:
                self.feed(message)
                if self._room is not None:
                    await self._room.wait()
        except asyncio.CancelledError:
            raise
        except Exception as caught:  # A transport that breaks is one way to end.
            error = caught
        self._on_ended(error)

    def _on_ended(self, error: BaseException | None) -> None:
        if self.error is None:
            self.error = error
        # No answer can come any more, so nobody must wait for one.
        self._fail_outgoing()
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail_outgoing(self) -> None:
        outgoing = self.peer.outgoing.copy()
        self.peer.outgoing.clear()
        for identifier, waiter in outgoing.items():
            if self._closed:
                # CAN-2: the other side stops what nobody waits for, instead of finishing it before it lets go.
                self._tell_cancelled(identifier, waiter.method, "The connection is closing")
            waiter.resolve(None, OutcomeUnknown(f"The connection ended before {waiter.method} was answered"))

    def feed(self, message: bytes, about: RequestId | None = None) -> None:
        """Take one frame; `about` is the request of ours that it answers, where the transport knows that."""
        for event in self.peer.oversized() if type(message) is Oversized else self.peer.receive(message, about):
            kind = type(event)
            if kind is Incoming:
                self._admit(event)  # type: ignore[arg-type]
            elif kind is Answer:
                error = event.error  # type: ignore[union-attr]
                if error is not None and self._texts is not None:
                    error = self._texts.clean(error)
                event.waiter.resolve(event.result, error)  # type: ignore[union-attr]
            else:
                self._take(event)

    def _take(self, event: Event) -> None:
        kind = type(event)
        if kind is Send:
            self._tell_revision()
            self._write(event.data)  # type: ignore[union-attr]
        elif kind is Notice:
            try:
                self.handler.notified(event, self)  # type: ignore[arg-type]
            except Exception:
                log.exception("the handler of a notification failed")
        elif kind is Cancel:
            self._cancel(event)  # type: ignore[arg-type]
        elif kind is Garbage:
            self._ignore(event)  # type: ignore[arg-type]

    def _ignore(self, garbage: Garbage) -> None:
        """Log why a message is ignored, at most once in `IGNORED_SECONDS`: some servers print to standard output."""
        hide = str if self._texts is None else self._texts.hide
        self.ignored = self.ignored or garbage.describe(hide)
        self._ignored_count += 1
        now = self.loop.time()
        if now < self._next_ignored_line:
            return
        self._next_ignored_line = now + IGNORED_SECONDS
        count, self._ignored_count = self._ignored_count, 0
        name = f"{self.peer_name}: " if self.peer_name else ""
        what = "a message" if count == 1 else f"{count} messages, the last one"
        if self._texts is None or self._texts.is_quotable:
            log.warning("%signored %s: %s", name, what, garbage.describe(hide))
        else:
            log.warning("%signored %s: it breaks the protocol", name, what)
            log.debug("%signored %s: %s", name, what, garbage.describe(hide))

    # --- requests of the other side ---

    def _tell_revision(self) -> None:
        """Tell the channel the revision, which is known with the answer to `initialize`."""
        revision = self.peer.lifecycle.revision
        if revision is not None and not self._revision_told:
            self._revision_told = True
            self.channel.negotiated(revision)

    def _admit(self, request: Incoming) -> None:
        if self._tells_principals and (sender := self.channel.principal) is not None:
            # STL-7: where the transport authenticates each message, its sender counts and not that of the connection.
            request.principal = sender
        else:
            request.principal = self.principal
        if self._senders is not None:
            self._name_sender(request, self._senders.get(request.id))
        if self.caller is not None:
            request.caller = self.caller
        if self._has_routes:
            self._routes[request.id] = self.channel.route()
        if self._closed:
            self._send(self.peer.refuse(request.id, ProtocolError(INTERNAL_ERROR, "The server is shutting down")))
        elif not self._backlog and len(self.serving) < self._in_flight:
            self._start(request)
        elif len(self._backlog) < 2 * BACKLOG:
            self._backlog.append(request)
            if len(self._backlog) >= BACKLOG:
                self._hold_back()
        else:
            # Reading cannot pause while we wait for answers, so the request is refused.
            self._send(self.peer.refuse(request.id, ProtocolError(INTERNAL_ERROR, "Too many requests; try again")))

    def _name_sender(self, request: Incoming, sender: Sender | None) -> None:
        """Let a request of another server's client count for that client."""
        if sender is None:
            return
        if sender.principal is not None or not sender.is_local:
            request.principal = sender.principal
        request.caller = sender.caller

    def _choose_outlet(self, identifier: RequestId) -> type[ConnectionOutlet]:
        sender = None if self._senders is None else self._senders.get(identifier)
        return ConnectionOutlet if sender is None or sender.is_local else RelayedOutlet

    def _hold_back(self) -> None:
        """Pause reading until there is room, unless we wait for an answer, which could then never arrive."""
        if self._room is None and not self.peer.outgoing:
            self._room = asyncio.Event()
            self.channel.pause()

    def _read_on(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
            self.channel.resume()

    def _start(self, request: Incoming) -> None:
        make_outlet = ConnectionOutlet if self._senders is None else self._choose_outlet(request.id)
        outlet = self.serving[request.id] = make_outlet(self, request.revision)
        outlet.task = self._start_task(self._serve(request, outlet), name=request.method)

    async def _serve(self, request: Incoming, outlet: ConnectionOutlet) -> None:
        identifier = request.id
        try:
            if self.channel.congested:
                await self.channel.drain()  # Nothing new is started for a reader that is behind.
            result = await self.handler.handle(request, outlet)
            # A request that was cancelled is settled already, and its id may be in use again.
            data = self.peer.respond(identifier, result, self._max_result) if outlet.open else None
        except BaseException as raised:
            failure = encode_failure(
                request, raised, self._max_result, may_be_cancelled=self._closed or not outlet.open
            )
            data = self.peer.settle(identifier, failure) if outlet.open else None
        outlet.open = False
        if outlet.follows and data is not None:
            try:
                await self.channel.taken()
            except asyncio.CancelledError:
                data = None  # The connection ends, and nobody waits for the answer.
        # A task holds its context variables, and they hold this outlet. Without this a ring would be left behind.
        outlet.task = None
        route = None
        if self.serving.get(identifier) is outlet:
            del self.serving[identifier]
            if self._has_routes:
                route = self._routes.pop(identifier, None)
        if data is not None:
            self._write(data, route)
        if self._backlog:
            self._start_next()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Let one more request run meanwhile, because the current one only listens and does no work."""
        self._in_flight += 1
        self._start_next()
        try:
            yield
        finally:
            self._in_flight -= 1

    def _start_next(self) -> None:
        while self._backlog and len(self.serving) < self._in_flight:
            self._start(self._backlog.popleft())
        if len(self._backlog) < BACKLOG // 2:
            self._read_on()

    def _cancel(self, event: Cancel) -> None:
        self._send(self.peer.drop(event.id))
        self._routes.pop(event.id, None)
        outlet = self.serving.pop(event.id, None)
        if outlet is None:
            self._backlog = deque(request for request in self._backlog if request.id != event.id)
            return
        outlet.open = False  # STD-10: nothing more is sent for this request, whatever the handler still does.
        if outlet.task is not None:
            outlet.task.cancel()
        self._start_next()  # A task that has not begun yet does not do this at its end.

    # --- requests of ours ---

    async def request(
        self,
        method: str,
        params: Any,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        identifier: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw | None:
        """Send a request and return its result; None when the other side ended it without one.

        `headers` are for transports that have headers.
        """
        if self._closed or self._ended.done():
            raise Unreachable("The connection is closed")
        if identifier is None:
            identifier = self.peer.next_id()
        future: asyncio.Future[Raw | None] = asyncio.Future(loop=self.loop)
        pending = Pending(future, identifier, method, on_progress, timeout)
        if timeout is not None:
            self.deadlines.start(pending)
        channel = self.channel
        try:
            channel.write(self.peer.request(identifier, method, params, pending))
            if self._room is not None:
                self._read_on()  # Otherwise the answer could not arrive.
            if channel.congested:
                await channel.drain()
            return await future
        except BaseException as error:
            if self.peer.forget(identifier) and not isinstance(error, Unreachable):
                self._tell_cancelled(identifier, method, "The caller gave up")
            raise

    def forward(
        self, method: str, params: Raw | Mapping[str, Any], timeout: float | None, identifier: RequestId
    ) -> Coroutine[Any, Any, Raw | None]:
        """Send a request for somebody else, without reports of progress; see `request`."""
        return self.request(method, params, timeout, None, identifier)

    def progressed(self, params: t.ProgressNotificationParams) -> None:
        """Pass progress to its request. Our progress tokens are our request ids.

        Only a request with `on_progress` has sent its token. Progress of others has no effect on their time either.
        """
        pending = self.peer.outgoing.get(params.progress_token)
        if pending is None or pending.on_progress is None:
            return
        self.deadlines.restart(pending)
        pending.on_progress(params)

    def answering(self) -> AbstractContextManager[None]:
        """Let no deadline pass while a question of the other side is answered: a person may take longer than a call."""
        return self.deadlines.held()

    def _expire(self, pending: Pending) -> None:
        self.give_up(pending, self._too_late(pending), "The deadline passed")

    def give_up(self, request: Any, error: BaseException, reason: str) -> None:
        """End a request in flight, an entry of `peer.outgoing`, with an error. Cancel it remotely."""
        if self.peer.forget(request.identifier):
            self._tell_cancelled(request.identifier, request.method, reason)
        request.resolve(None, error)

    def _too_late(self, request: Pending | Any) -> Timeout:
        seconds = self.deadlines.allowance(request)
        return Timeout(f"{request.method} was not answered within {counted(seconds, 'second')}")

    def _tell_cancelled(self, identifier: RequestId, method: str, reason: str) -> None:
        if method == "initialize":
            return  # 1.3.1.6: initialize is never cancelled.
        params = t.CancelledNotificationParams(request_id=identifier, reason=reason)
        self._write(encode_notification("notifications/cancelled", params))

    # --- writing ---

    def notify(self, method: str, params: Any) -> bool:
        """Send a notification; False if the connection is closed or its reader is behind."""
        if not self.channel.admits(method in OPTIONAL_NOTIFICATIONS):
            return False
        return self._write(encode_notification(method, params))

    def _send(self, data: bytes | None) -> None:
        if data is not None:
            self._write(data)

    def _write(self, data: bytes, route: Feed | None = None) -> bool:
        try:
            (route or self.channel.write)(data)
        except ToolwireError:
            return False  # The other side is gone. The end of input reports that, too.
        return True

    # --- the end ---

    @property
    def over(self) -> bool:
        """Return whether nothing more can be sent. `run` may not have returned yet."""
        return self._closed or self._ended.done()

    def end(self) -> None:
        """Make `run` return as if the input had ended."""
        if not self._ended.done():
            self._ended.set_result(None)

    def hurry(self) -> None:
        """Make `run` return, and give running requests no more time, even if `close` has given them some."""
        if not self._hurried.done():
            self._hurried.set_result(None)
        self.end()

    async def finished(self) -> None:
        """Wait until no request of ours is in flight, where requests outlive the connection."""

    async def close(self, grace: float = 0.0) -> None:
        """Let running requests finish within `grace` seconds, cancel the others, flush and close the channel."""
        if self._closed:
            return
        self._closed = True
        self.end()
        try:
            self.handler.closing(self)
        except Exception:
            log.exception("closing a connection failed")
        if not self.channel.is_connected:
            self._backlog.clear()  # Nobody could get the answers of requests that have not begun.
        try:
            await self._finish(grace)
        finally:  # Also when the task that waits here is cancelled.
            self._backlog.clear()
            tasks = self._running()
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)  # A handler that ignores its cancellation is left behind.
        self._fail_outgoing()
        self.deadlines.close()
        await self.channel.close()

    async def _finish(self, grace: float) -> None:
        """Wait for running requests and for those in the backlog, which an input that ends early leaves behind."""
        deadline = self.loop.time() + grace
        hurried = self._hurried
        while not hurried.done() and (tasks := self._running()) and (left := deadline - self.loop.time()) > 0:
            await asyncio.wait((*tasks, hurried), timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _running(self) -> list[asyncio.Task[None]]:
        current = asyncio.current_task()
        tasks = [outlet.task for outlet in self.serving.values()]
        return [task for task in tasks if task is not None and task is not current]
