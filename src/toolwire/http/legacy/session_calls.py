"""The calls of legacy HTTP sessions that run in this process, and the questions they ask their clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.http.app_settings import AdmitAgain, AppSettings, HasSettings
from toolwire.http.legacy.post_stream import PostStream
from toolwire.http.legacy.session_records import BackSession, SessionRecord
from toolwire.http.legacy.session_token import SessionToken
from toolwire.http.responses import HttpRefusal
from toolwire.http.watch_first_await import watched
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_REQUEST, ProtocolError, Timeout, Unreachable, counted
from toolwire.protocol.jsonrpc import (
    ErrorResponse,
    RequestId,
    Response,
    encode_answer,
    encode_notification,
    encode_request,
)
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.methods import OPTIONAL_NOTIFICATIONS
from toolwire.protocol.shaping import shape
from toolwire.wire.answer import encode_failure, encode_stopped
from toolwire.wire.session import Handler, Pending


class Remember(Protocol):
    """A function that stores what a call changed of its session."""

    async def __call__(self, token: SessionToken, change: StateChange) -> None: ...


class Edit(Protocol):
    """A function that changes the record of a session, and returns it."""

    async def __call__(self, token: SessionToken, edit: Callable[[SessionRecord], None]) -> SessionRecord: ...


class StateChange(Struct):
    """The changes that a call made to the log level and the subscriptions."""

    level: t.LoggingLevel | None
    added: set[str]
    removed: set[str]

    def apply(self, record: SessionRecord) -> None:
        if self.level is not None:
            record.level = self.level
        record.uris = [*(uri for uri in record.uris if uri not in self.removed | self.added), *sorted(self.added)]


class SessionConnection:
    """The session of a call, as its handler sees it."""

    __slots__ = ("_edit", "_make_state", "_say", "_state", "_stream", "loop", "record", "token")

    def __init__(
        self,
        token: SessionToken,
        record: SessionRecord,
        stream: PostStream,
        say: Callable[[str, bytes], None],
        make_state: Callable[[Any], Any],
        edit: Edit,
    ) -> None:
        self.token: SessionToken = token
        self.record: SessionRecord = record
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._stream = stream
        self._say = say
        self._make_state = make_state
        self._edit = edit
        self._state: Any = None

    @property
    def session_id(self) -> str:
        return self.token.id

    @property
    def state(self) -> Any:
        """Return the log level and the subscriptions. A call may change this object."""
        if self._state is None:
            self._state = self._make_state(self)
            self._state.level = self.record.level
            self._state.uris = set(self.record.uris)
        return self._state

    def change(self) -> StateChange | None:
        """Return what the call changed; None for nothing."""
        state = self._state
        if state is None:
            return None
        before = set(self.record.uris)
        level = None if state.level == self.record.level else state.level
        if level is None and before == state.uris:
            return None
        return StateChange(level, state.uris - before, before - state.uris)

    async def join(self, key: str, opened: BackSession, replaces: BackSession | None) -> BackSession:
        """Note that this session has one at a server behind this one, whose key this is, in place of `replaces`.

        Return the session that all processes use from now on: another one may have opened one meanwhile.
        """

        def edit(record: SessionRecord) -> None:
            if record.backs.get(key) == replaces:
                record.backs = {**record.backs, key: opened}

        self.record.backs = (await self._edit(self.token, edit)).backs
        return self.record.backs.get(key, opened)

    async def note_lists(self, key: str, lists: str) -> None:
        """Note which lists this session has at a server behind this one. Empty text: they are the shared ones."""

        def edit(record: SessionRecord) -> None:
            held = record.backs.get(key)
            if held is not None and held.lists != lists:
                record.backs = {**record.backs, key: replace(held, lists=lists)}

        self.record.backs = (await self._edit(self.token, edit)).backs

    def notify(self, method: str, params: Any) -> bool:
        """Send a notification on the stream of the call while that is open, and on the session's own stream after."""
        message = encode_notification(method, shape(params, self.token.revision))
        if not self._stream.admits(method in OPTIONAL_NOTIFICATIONS):
            return False
        if not self._stream.put(message):
            self._say(self.token.id, message)
        return True

    def progressed(self, params: t.ProgressNotificationParams) -> None:
        """Ignore progress: our questions carry no progress token."""


class SessionCall:
    """One request of a session while it is handled: the `Outlet` of its handler."""

    __slots__ = ("_calls", "cancelled", "connection", "incoming", "open", "stream", "task")

    def __init__(
        self, calls: SessionCalls, incoming: Incoming, stream: PostStream, connection: SessionConnection
    ) -> None:
        self.incoming: Incoming = incoming
        self.stream: PostStream = stream
        self.connection: SessionConnection = connection
        self.open: bool = True
        self.cancelled: bool = False
        self.task: asyncio.Task[None] | None = None
        self._calls = calls

    @property
    def is_local(self) -> bool:
        return False

    @property
    def answered(self) -> asyncio.Future[None]:
        return self.stream.done

    @property
    def congested(self) -> bool:
        return self.stream.congested

    @property
    def full(self) -> bool:
        return self.stream.full

    async def drain(self) -> None:
        await self.stream.drain()

    def notify(self, method: str, params: t.Wire) -> bool:
        # 3.4.9: messages that a request causes go onto the stream of its own POST.
        if not self.open or not self.stream.admits(method in OPTIONAL_NOTIFICATIONS):
            return False
        return self.stream.put(encode_notification(method, shape(params, self.incoming.revision)))

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw:
        return await self._calls.ask(self, method, shape(params, self.incoming.revision), timeout)

    async def close_stream(self, retry_ms: int | None) -> None:
        await self.stream.close_early(retry_ms)


class SessionCalls:
    """All calls of this process. `name` is unique among all processes, and part of the ids of its questions."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        make_state: Callable[[Any], Any],
        remember: Remember,
        edit: Edit,
        say: Callable[[str, bytes], None],
        application: HasSettings,
    ) -> None:
        self.name = name
        self._handler = handler
        self._make_state = make_state
        self._remember = remember
        self._edit = edit
        self._say = say
        self._application = application
        self._running: dict[str, dict[RequestId, SessionCall]] = {}
        self._asked: dict[tuple[str, RequestId], Pending] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return sum(map(len, self._running.values()))

    def of(self, session: str) -> dict[RequestId, SessionCall]:
        """Return the calls of a session that run here."""
        return self._running.get(session, _NO_CALLS)

    # --- running ---

    def start(
        self,
        incoming: Incoming,
        stream: PostStream,
        token: SessionToken,
        record: SessionRecord,
        settings: AppSettings,
        admit_again: AdmitAgain,
    ) -> asyncio.Task[None]:
        """Start handling a call that these settings have let in, in a task of its own."""
        connection = SessionConnection(token, record, stream, self._say, self._make_state, self._edit)
        call = SessionCall(self, incoming, stream, connection)
        stream.expect(incoming.id)
        self._running.setdefault(token.id, {})[incoming.id] = call
        # In a task of its own, because the call goes on when the HTTP request ends.
        call.task = task = asyncio.get_running_loop().create_task(self._serve(call, settings, admit_again))
        return task

    async def _serve(self, call: SessionCall, settings: AppSettings, admit_again: AdmitAgain) -> None:
        incoming, most = call.incoming, settings.limits.result
        data: bytes | None
        try:
            if settings is not self._application.settings:
                incoming.principal, incoming.headers = await _admit_again(admit_again)
            handled = self._handler.handle(incoming, call)
            result = await watched(handled, call.stream.waits)  # type: ignore[arg-type]
            change = call.connection.change()
            if change is not None:
                await self._remember(call.connection.token, change)
            data = encode_answer(incoming.id, result, most)
        except BaseException as raised:
            data = encode_failure(incoming, raised, most)
        self._settle(call, data)
        call.task = None  # The context of the task has the call: a ring, which costs a collection.

    def _settle(self, call: SessionCall, data: bytes | None) -> None:
        if call.cancelled:
            return
        call.open = False
        session, identifier = call.connection.token.id, call.incoming.id
        calls = self._running[session]
        del calls[identifier]
        if not calls:
            del self._running[session]
        call.stream.settle(identifier, data)

    def cancel(self, session: str, identifier: RequestId) -> bool:
        """Cancel a call whose client no longer wants an answer; return whether it runs here."""
        call = self.of(session).get(identifier)
        if call is None:
            return False
        self._cancel(call, None)
        return True

    def _cancel(self, call: SessionCall, answer: bytes | None) -> None:
        # Settled at once, so that nothing more is sent for this request, whatever the handler still does.
        self._settle(call, answer)
        call.cancelled = True
        if call.task is not None:
            call.task.cancel()

    def end(self, session: str) -> None:
        """Cancel the calls of a session that is over."""
        for identifier in tuple(self.of(session)):
            self.cancel(session, identifier)

    async def finish(self, grace: float) -> None:
        """Give running calls some seconds to finish, and give up those that do not."""
        tasks = [call.task for calls in self._running.values() for call in calls.values() if call.task is not None]
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        self.give_up()
        late = [task for task in tasks if not task.done()]
        if late:
            await asyncio.wait(late, timeout=1.0)  # A handler that ignores its cancellation is left behind.

    def give_up(self) -> None:
        """Cancel the running calls, because the process ends, and answer each with an error: its client waits."""
        for calls in tuple(self._running.values()):
            for identifier, call in tuple(calls.items()):
                self._cancel(call, encode_stopped(identifier))

    # --- asking ---

    async def ask(self, call: SessionCall, method: str, params: Any, timeout: float | None) -> Raw:
        """Ask the client on the stream of a call. The client may post the answer to any process."""
        loop = asyncio.get_running_loop()
        self._last_id += 1
        identifier = f"{self.name}.{self._last_id}"
        key = (call.connection.token.id, identifier)
        pending = Pending(loop.create_future(), identifier, method)
        if not call.open or not call.stream.put(encode_request(identifier, method, params)):
            raise Unreachable("The client is gone")
        self._asked[key] = pending
        try:
            async with asyncio.timeout(timeout):
                answer = await pending.future
        except TimeoutError:
            self._cancel_question(call, identifier, "The deadline passed")
            raise Timeout(f"{method} was not answered within {counted(timeout or 0.0, 'second')}") from None
        except asyncio.CancelledError:
            self._cancel_question(call, identifier, "The caller gave up")
            raise
        finally:
            del self._asked[key]
        assert answer is not None
        return answer

    def _cancel_question(self, call: SessionCall, identifier: RequestId, reason: str) -> None:
        params = t.CancelledNotificationParams(request_id=identifier, reason=reason)
        call.notify("notifications/cancelled", params)

    def answered(self, session: str, message: Response | ErrorResponse) -> bool:
        """Pass an answer to the call that asked; return whether a call of this process did."""
        if message.id is None:
            return False
        pending = self._asked.get((session, message.id))
        if pending is None:
            return False
        if isinstance(message, Response):
            pending.resolve(message.result, None)
        else:
            pending.resolve(None, message.error.to_exception())
        return True


_NO_CALLS: Final[dict[RequestId, SessionCall]] = {}


async def _admit_again(admit: AdmitAgain) -> tuple[Any, dict[str, str]]:
    """Let in a call whose answer may have begun. Raise -32600 if it is let in no longer."""
    try:
        return await admit()
    except HttpRefusal:
        raise ProtocolError(INVALID_REQUEST, "This caller is let in no longer") from None
