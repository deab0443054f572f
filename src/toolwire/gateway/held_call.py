"""One call to a legacy server that may ask in the middle of it: its questions, its answers, and its result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.client.relay import RelayConnection
from toolwire.gateway.back_messages import Undeclared, check_question
from toolwire.protocol import types as t
from toolwire.protocol.asking import refuse_question
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND, ProtocolError
from toolwire.protocol.jsonrpc import RequestId, encode_request
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.open_codec import replace_members, with_unknown
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.rounds import Keys, checked_answer, digest
from toolwire.protocol.shaping import shape
from toolwire.wire.outlet import Outlet

# Questions that a server asks together arrive within this many seconds.
_SETTLE_SECONDS: Final = 0.01


class _Ending(Struct):
    """The mark of a result that is the error of a tool."""

    is_error: Any = msgspec.field(default=False, name="isError")


_RESULTS: Final[dict[str, type[t.Wire]]] = {
    "elicitation/create": t.ElicitResult,
    "sampling/createMessage": t.CreateMessageResult,
    "roots/list": t.ListRootsResult,
}


class Listener(Protocol):
    """The request of a client that waits for a held call, in this process or in another."""

    @property
    def outlet(self) -> Outlet | None:
        """The connection to that client; None in another process."""

    def report(self, params: t.ProgressNotificationParams) -> None: ...

    def hear(self, notice: Notice) -> None: ...


class Outcome(Struct, eq=False):
    """The news of a call: the result of the server, or its questions for one round."""

    result: Raw | None
    questions: t.InputRequiredResult | None = None
    round: int = 0
    over: HeldCall | None = None
    """The call that is over, and has a record in the store."""


class OpenQuestion(NamedTuple):
    """A question that is not answered: its name for the client, and the server's message."""

    name: str
    message: Raw


class _Question(NamedTuple):
    """A question of the server, and the answer that it waits for."""

    request: Incoming
    answer: asyncio.Future[Raw]


class HeldCall:
    """A call to a legacy server, which outlives the request of the client that it was made for."""

    def __init__(
        self,
        listener: Listener,
        connection: RelayConnection,
        method: str,
        principal: str,
        capabilities: Mapping[str, Any],
    ) -> None:
        """`capabilities` are those that the client declared in its last request."""
        self.id: str = os.urandom(16).hex()
        self.capabilities: Mapping[str, Any] = capabilities
        self.refused: Undeclared | None = None
        """The question of the server that the client may not be asked."""
        self.listener: Listener | None = listener
        """The request of the client that waits now; None between two requests."""
        self.connection = connection
        self.method = method
        self.principal = principal
        self.caller: Hashable = principal
        """Whom the call is counted for. Callers that nobody knows are one principal, and not one caller."""
        self.request: RequestId | None = None
        """The id of the call at the server."""
        self.round: int = 0
        self.expiry: asyncio.TimerHandle | None = None
        self.record: bytes = b""
        """The record of the call in the store."""
        self.exchange: str = ""
        """The exchange that brought the last answers."""
        self.is_taken_over: bool = False
        """Whether another process made the call."""
        self._task: asyncio.Task[Raw] | None = None
        self._keys = Keys()
        self._restored: dict[RequestId, str] = {}
        self._pending: dict[str, _Question] = {}
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, task: asyncio.Task[Raw]) -> None:
        self._task = task
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Raw]) -> None:
        if not task.cancelled():
            task.exception()  # Perhaps nobody waits for the call any more.
        self._wake()

    def restore(self, keys: Mapping[RequestId, str]) -> None:
        """Give questions that were asked in another process the keys that the client knows."""
        self._restored.update(keys)

    async def restored(self) -> None:
        """Wait until these questions are open again. If nobody waits any more, cancel the call."""
        task = self._task
        assert task is not None
        try:
            while self._restored and not task.done():
                await self._news
                if self._restored and not task.done():
                    self._news = asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await self.cancel()
            raise

    def _wake(self) -> None:
        if not self._news.done():
            self._news.set_result(None)

    async def ask(self, request: Incoming) -> Raw:
        """Keep a question of the server until the client answers it."""
        if request.method not in _RESULTS:
            # An input request is one of these, and an extension has none.
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method[:200]}")
        self._check(request)
        asked = digest(request.method, None if request.raw is UNSET else request.raw)
        key = self._restored.pop(request.id, None) or self._keys.choose(request.method, asked, None)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._pending[key] = _Question(request, answer)
        self._wake()
        try:
            return await answer
        finally:
            self._pending.pop(key, None)

    async def news(self) -> Raw | None:
        """Wait for the result; return None when the server asks instead. If nobody waits any more, cancel the call."""
        task = self._task
        assert task is not None
        try:
            await self._news
            if not task.done():
                await asyncio.wait({task}, timeout=_SETTLE_SECONDS)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if not task.done():
            return None
        return task.result() if self.refused is None else self._result_despite(task, self.refused)

    def _check(self, request: Incoming) -> None:
        """Raise the error for the server if its question may not be asked."""
        try:
            check_question(request.method, request.params, self.capabilities, MODERN)
        except Undeclared as error:
            self.refused = error
            raise refuse_question(error.need, self.capabilities) from None

    def _result_despite(self, task: asyncio.Task[Raw], refused: Undeclared) -> Raw:
        """Return the result of a server that was refused a question.

        Raise -32021 if the call failed (CAP-1).
        """
        try:
            result = task.result()
            if msgspec.json.decode(result, type=_Ending).is_error is not True:
                return result
        except (ProtocolError, msgspec.DecodeError):
            pass
        raise refused.as_modern_error() from None

    def questions(self) -> dict[str, t.InputRequest]:
        """Return the open questions as a modern client knows them."""
        return {key: modern_question(question.request, self.capabilities) for key, question in self._pending.items()}

    def open_questions(self) -> list[OpenQuestion]:
        """Return the open questions as the server asked them."""
        asked = ((key, question.request) for key, question in self._pending.items())
        return [OpenQuestion(key, Raw(encode_request(each.id, each.method, each.raw))) for key, each in asked]

    def checked(self, responses: Mapping[str, Raw]) -> dict[str, Raw]:
        """Return the answers as the server knows them. Raise -32602 for one that does not fit its question."""
        return {
            key: legacy_answer(key, question.request.method, responses[key], self.connection.revision)
            for key, question in self._pending.items()
            if key in responses
        }

    def answer(self, listener: Listener, given: Mapping[str, Raw], capabilities: Mapping[str, Any] | None) -> None:
        """Go on for a new request of the client, with its answers. Those that are missing are asked for again.

        META-6: what the client declared in an earlier request does not count any more.
        """
        self.listener = listener
        self.capabilities = self.capabilities if capabilities is None else capabilities
        self._news = asyncio.get_running_loop().create_future()
        for key, answer in given.items():
            question = self._pending.pop(key, None)
            if question is not None and not question.answer.done():  # The server may have taken its question back.
                question.answer.set_result(answer)
        for question in list(self._pending.values()):
            try:
                self._check(question.request)
            except ProtocolError as error:
                self._pending = {key: each for key, each in self._pending.items() if each is not question}
                if not question.answer.done():
                    question.answer.set_exception(error)
        if self._pending or (self._task is not None and self._task.done()):
            self._wake()

    def leave(self) -> None:
        """Leave the call to another process, and let go of it here."""
        self.connection.leave_requests()

    async def cancel(self) -> None:
        """Cancel the call at the server."""
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})


def modern_question(request: Incoming, capabilities: Mapping[str, Any]) -> t.InputRequest:
    """Return the question of a legacy server for a modern client.

    Raise `Undeclared` where it may not be asked.
    """
    params = request.params if request.raw is UNSET else with_unknown(request.params, request.raw)
    params = check_question(request.method, params, capabilities, MODERN)
    if request.method == "roots/list":
        return t.ListRootsRequest()
    shaped = shape(replace_members(params, meta=UNSET), MODERN)
    return (
        t.ElicitRequest(params=shaped)
        if request.method == "elicitation/create"
        else t.CreateMessageRequest(params=shaped)
    )


def legacy_answer(key: str, method: str, response: Raw, revision: str) -> Raw:
    """Return the answer of a modern client as the server knows it. Raise -32602 for one that the server cannot get."""
    answer = t.decode(_RESULTS[method], checked_answer(key, method, response))
    try:
        return Raw(t.encode(shape(answer, revision)))
    except ValueError as error:
        raise ProtocolError(INVALID_PARAMS, f"The answer to {key[:100]!r} cannot be handed on: {error}") from None
