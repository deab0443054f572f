"""Calls of legacy servers that wait for an answer of a modern client.

A legacy server asks in the middle of a call. A modern client can only be asked by ending its request. So the call to
the server is held: the client's request ends with `input_required`, and its next request brings the answers to the call
that is held. A call that asks nothing is never held, and waits for nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import UNSET, Raw

from toolwire.client.relay import RelayConnection
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ToolError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.open_codec import replace_members, with_unknown
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.rounds import LIFETIME, Keys, checked_answer, digest
from toolwire.protocol.shaping import shape
from toolwire.server.call import Call

#: How many seconds a call is held.
HELD_SECONDS: Final = LIFETIME
#: How many calls of one server may be held at a time, and how many of these for one principal.
MAX_HELD: Final = 256
MAX_HELD_FOR_ONE: Final = 32
# Questions that a server asks together arrive within this many seconds.
_SETTLE_SECONDS: Final = 0.01

_RESULTS: Final[dict[str, type[t.Wire]]] = {
    "elicitation/create": t.ElicitResult,
    "sampling/createMessage": t.CreateMessageResult,
    "roots/list": t.ListRootsResult,
}


class _Question(NamedTuple):
    """A question of the server, and the answer that it waits for."""

    request: Incoming
    answer: asyncio.Future[Raw]


class HeldCall:
    """A call to a legacy server, which outlives the request of the client that it was made for."""

    def __init__(self, call: Call, connection: RelayConnection) -> None:
        self.id: str = os.urandom(16).hex()
        self.call: Call | None = call
        """The request of the client that waits now; None between two requests."""
        self.connection = connection
        self.principal: str = ""
        self.round: int = 0
        self.expiry: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Raw] | None = None
        self._keys = Keys()
        self._pending: dict[str, _Question] = {}
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, task: asyncio.Task[Raw]) -> None:
        self._task = task
        task.add_done_callback(self._wake)

    def _wake(self, _: Any = None) -> None:
        if not self._news.done():
            self._news.set_result(None)

    async def ask(self, request: Incoming) -> Raw:
        """Keep a question of the server until the client answers it."""
        asked = digest(request.method, None if request.raw is UNSET else request.raw)
        key = self._keys.choose(request.method, asked, None)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._pending[key] = _Question(request, answer)
        self._wake()
        try:
            return await answer
        finally:
            self._pending.pop(key, None)

    async def outcome(self) -> Raw | None:
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
        return task.result() if task.done() else None

    def questions(self) -> dict[str, t.InputRequest]:
        """Return the open questions as a modern client knows them."""
        return {key: _modern(question.request) for key, question in self._pending.items()}

    def answered(self, call: Call, responses: Mapping[str, Raw]) -> None:
        """Go on for a new request of the client, with its answers. Those that are missing are asked for again."""
        given = {
            key: _legacy(key, question.request.method, responses[key], self.connection.revision)
            for key, question in self._pending.items()
            if key in responses
        }
        self.call = call
        self._news = asyncio.get_running_loop().create_future()
        for key, answer in given.items():
            self._pending.pop(key).answer.set_result(answer)
        if self._pending or (self._task is not None and self._task.done()):
            self._wake()

    async def cancel(self) -> None:
        """Cancel the call at the server."""
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # Nobody waits for it any more.


class HeldCalls:
    """The calls of one server that wait for their clients."""

    def __init__(self) -> None:
        self._held: dict[str, HeldCall] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def check_room(self, principal: str) -> None:
        """Raise `ToolError` when too many calls are held."""
        own = sum(held.principal == principal for held in self._held.values())
        if len(self._held) >= MAX_HELD or own >= MAX_HELD_FOR_ONE:
            raise ToolError("Too many calls wait for answers; answer these first, or try again later")

    def keep(self, held: HeldCall, principal: str) -> None:
        """Hold a call until its client comes back, or its time is over."""
        held.call, held.principal = None, principal
        held.round += 1
        held.expiry = asyncio.get_running_loop().call_later(HELD_SECONDS, self._expire, held.id)
        self._held[held.id] = held

    def take(self, identifier: str) -> HeldCall | None:
        """Return a call to a client that came back; None if it is not held here."""
        held = self._held.pop(identifier, None)
        if held is not None and held.expiry is not None:
            held.expiry.cancel()
        return held

    def _expire(self, identifier: str) -> None:
        held = self._held.pop(identifier, None)
        if held is not None:
            ending = asyncio.get_running_loop().create_task(held.cancel())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Cancel all calls."""
        for identifier in list(self._held):
            held = self.take(identifier)
            if held is not None:
                await held.cancel()


def _modern(request: Incoming) -> t.InputRequest:
    if request.method == "roots/list":
        return t.ListRootsRequest()
    params = request.params if request.raw is UNSET else with_unknown(request.params, request.raw)
    shaped = shape(replace_members(params, meta=UNSET), MODERN)
    return (
        t.ElicitRequest(params=shaped)
        if request.method == "elicitation/create"
        else t.CreateMessageRequest(params=shaped)
    )


def _legacy(key: str, method: str, response: Raw, revision: str) -> Raw:
    """Return the answer of a modern client as the server knows it. Raise -32602 for one that the server cannot get."""
    answer = t.decode(_RESULTS[method], checked_answer(key, method, response))
    try:
        return Raw(t.encode(shape(answer, revision)))
    except ValueError as error:
        raise ProtocolError(INVALID_PARAMS, f"The answer to {key[:100]!r} cannot be handed on: {error}") from None
