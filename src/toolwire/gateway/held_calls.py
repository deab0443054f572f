"""Calls of legacy servers that wait for an answer of a modern client.

A legacy server asks in the middle of a call. A modern client can only be asked by ending its request. So the call to
the server is held: the client's request ends with `input_required`, and its next request brings the answers to the call
that is held. A call that asks nothing is never held, and waits for nothing.

The next request may come to another process of the gateway (see `toolwire.gateway.replicas`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from toolwire.client.connection import OnProgress
from toolwire.client.relay import OnNotice, RelayConnection, RelayedCall, Resumption
from toolwire.gateway.held_call import HeldCall, Listener, Outcome
from toolwire.gateway.replicas import Answers, HolderGone, Replica, new_exchange
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ToolError, ToolwireError, TransportError
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.rounds import answers_refused, invalid_state, used_state
from toolwire.server.call import Host
from toolwire.wire.outlet import Outlet

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: The text for a client whose call was at a server when the connection ended.
LOST: Final = "the connection to it was lost"
#: How many calls of one server one process may hold at a time, and how many of these for one caller.
MAX_HELD: Final = 256
MAX_HELD_FOR_ONE: Final = 32

#: Opens a connection on which a call of another process goes on.
TakeUp = Callable[[Resumption], Coroutine[Any, Any, RelayConnection]]


class AnsweredRound(Struct, eq=False):
    """A request of a client that brings answers to the questions of one round."""

    held: str
    round: int
    principal: str
    responses: Mapping[str, Raw]
    listener: Listener
    wants_progress: bool
    wants_logs: bool
    capabilities: Mapping[str, Any] | None
    """What the client declared in this request; None where another process did not say so."""
    take_up: TakeUp | None = None
    """Opens a connection for the client, where the process that holds the call has ended."""


class HeldCalls:
    """The calls of one server that wait for their clients."""

    def __init__(self, back: str, timeout: float | None, log: UpstreamLog) -> None:
        """`timeout` limits a request to the server, and `log` gets what it says of calls that are lost."""
        self._back = back
        self._log = log
        self._timeout = timeout
        self._held: dict[str, HeldCall] = {}
        # Those whose records are being written. They count, so that no burst passes the bounds.
        self._reserved: set[HeldCall] = set()
        self._replicas: dict[Host, Replica] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def replica(self, host: Host) -> Replica:
        """Return this process among those that share the stores of a server."""
        replica = self._replicas.get(host)
        if replica is None:
            topic = f"toolwire:{host.server.name}:held:{self._back}"
            replica = self._replicas[host] = Replica(
                host.stores,
                topic,
                self._answer_for_process,
                lambda: host.settings.limits.state,
                host.settings.limits.share,
            )
        return replica

    @property
    def count(self) -> int:
        """The number of calls that wait for their clients."""
        return len(self._held)

    def __contains__(self, identifier: str | None) -> bool:
        return identifier in self._held

    # --- holding ---

    async def outcome(self, held: HeldCall, replica: Replica) -> Outcome:
        """Wait for the result of a call. If the server asks instead, hold the call, and return the questions."""
        try:
            result = await held.news()
        except BaseException:
            await replica.end_record(held)
            raise
        if result is not None:
            return Outcome(result, over=held)
        try:
            self._check_room(held.caller)
            asked = held.questions()
            held.round += 1
            with self._place_for(held):
                await replica.note(held)
                self._keep(held, replica)
        except (ToolwireError, ValueError):
            await held.cancel()
            await replica.end_record(held)
            raise
        return Outcome(None, t.InputRequiredResult(input_requests=asked), held.round)

    def _check_room(self, caller: Hashable) -> None:
        check_room([held.caller for held in chain(self._held.values(), self._reserved)], caller)

    @contextmanager
    def _place_for(self, held: HeldCall) -> Iterator[None]:
        """Count a call as held, though it is not held yet."""
        self._reserved.add(held)
        try:
            yield
        finally:
            self._reserved.discard(held)

    def _keep(self, held: HeldCall, replica: Replica) -> None:
        """Hold a call until its client comes back, or its time is over."""
        held.listener = None
        held.expiry = asyncio.get_running_loop().call_later(replica.seconds(), self._expire, held, replica)
        self._held[held.id] = held

    def _take(self, held: HeldCall) -> None:
        del self._held[held.id]
        if held.expiry is not None:
            held.expiry.cancel()

    def _expire(self, held: HeldCall, replica: Replica) -> None:
        self._take(held)
        ending = asyncio.get_running_loop().create_task(self._end(held, replica))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end(self, held: HeldCall, replica: Replica) -> None:
        """Cancel a call at the server, unless another process has gone on with it."""
        try:
            is_own = await replica.take(held, new_exchange())
        except ToolwireError as error:
            log.warning("the record of a held call cannot be read: %s", error)
            is_own = True
        if is_own:
            await held.cancel()
            await replica.remove_record(held)

    # --- going on ---

    async def answer(self, host: Host, answered: AnsweredRound) -> Outcome:
        """Go on with a call that the client answers, wherever it is held."""
        replica = self.replica(host)
        outcome = await self._answer(replica, new_exchange(), answered)
        if outcome.over is not None:
            await replica.end_record(outcome.over)
        return outcome

    async def _answer(self, replica: Replica, exchange: str, answered: AnsweredRound) -> Outcome:
        if answered.held in self._held:
            return await self._answer_here(replica, exchange, answered)
        try:
            record = await replica.record(answered.held)
            if record is None:
                raise ToolError(self._failure("the call that asked is not held any more"))
            if record.round != answered.round or record.taken or record.holder == replica.name:
                raise used_state()
            answers = Answers(
                answered.held,
                answered.round,
                answered.principal,
                dict(answered.responses),
                exchange,
                replica.name,
                answered.wants_progress,
                answered.wants_logs,
                None if answered.capabilities is None else dict(answered.capabilities),
            )
            return await replica.ask(answers, record, answered.listener)
        except HolderGone as gone:
            return await self._take_over(replica, exchange, answered, gone)

    async def _answer_for_process(self, replica: Replica, answers: Answers, listener: Listener) -> Outcome:
        answered = AnsweredRound(
            answers.held,
            answers.round,
            answers.principal,
            answers.responses,
            listener,
            answers.wants_progress,
            answers.wants_logs,
            answers.capabilities,
        )
        if answers.held not in self._held:
            raise ToolError(self._failure("the call that asked is not held any more"))
        return await self._answer_here(replica, answers.exchange, answered)

    async def _answer_here(self, replica: Replica, exchange: str, answered: AnsweredRound) -> Outcome:
        held = self._held[answered.held]
        if held.principal != answered.principal:
            raise invalid_state()
        if held.round != answered.round:
            raise used_state()
        given = held.checked(answered.responses)  # The client may correct its answers.
        self._take(held)
        with self._place_for(held):
            try:
                is_own = await replica.take(held, exchange)
            except BaseException as error:
                self._keep(held, replica)
                if isinstance(error, ToolwireError):
                    raise not_now(error) from None
                raise
        if not is_own:
            raise used_state()
        held.answer(answered.listener, given, answered.capabilities)
        return await self._awaited(held, replica)

    async def _awaited(self, held: HeldCall, replica: Replica) -> Outcome:
        try:
            return await self.outcome(held, replica)
        except TransportError as error:
            # It has begun, so that it is not sent again.
            raise self._lost(error) from None

    async def _take_over(self, replica: Replica, exchange: str, answered: AnsweredRound, gone: HolderGone) -> Outcome:
        """Go on with a call whose process has ended, on the stream of the server's events."""
        record = gone.record
        if record is None:
            raise ToolError(self._failure(str(gone)))
        # The process may have ended after the server asked again, and before it said so.
        has_asked_again = record.after == exchange and record.round == answered.round + 1
        if not has_asked_again and (record.round != answered.round or record.taken not in ("", exchange)):
            raise used_state()
        resumption = record.resumption
        if resumption is None or answered.take_up is None:
            raise ToolError(self._failure(str(gone)))
        try:
            connection = await answered.take_up(resumption)
        except ToolwireError as error:
            raise self._lost(error) from None
        held = HeldCall(
            answered.listener, connection, resumption.method, answered.principal, answered.capabilities or {}
        )
        held.id, held.round, held.request = answered.held, record.round, resumption.request
        if not await replica.take_over(held, record, exchange):
            connection.leave_session()
            await connection.close()
            raise used_state()
        self._log.info("a call goes on whose process has ended")
        messages = [bytes(question.message) for question in record.questions]
        held.restore({_id_of(question.message): question.name for question in record.questions})
        relayed = relayed_for(held, answered.wants_progress)
        work = connection.resume(resumption, messages, relayed, timeout=self._timeout)
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._leave(connection))
        held.begin(task)
        await held.restored()
        try:
            given = {} if has_asked_again else held.checked(answered.responses)
        except ProtocolError:
            given = {}  # They are asked for again.
        held.answer(answered.listener, given, answered.capabilities)
        return await self._awaited(held, replica)

    def _leave(self, connection: RelayConnection) -> None:
        connection.leave_session()
        ending = asyncio.get_running_loop().create_task(connection.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _lost(self, error: ToolwireError) -> ToolError:
        """Return the error for a client that cannot be told more: the text may have been written by the server."""
        self._log.warning("%s", error)
        return ToolError(self._failure(LOST))

    def _failure(self, text: str) -> str:
        return f"The server {self._back!r} behind this one failed: {text}; the request may have been carried out"

    # --- the end ---

    async def close(self) -> None:
        """Leave the calls to other processes where that is possible, and cancel the others."""
        for replica in self._replicas.values():
            for held in list(self._held.values()):
                if replica.outlives(held):
                    self._take(held)
                    held.leave()
        for held in list(self._held.values()):
            self._take(held)
            await held.cancel()
        for replica in self._replicas.values():
            await replica.close()
        self._replicas.clear()
        if self._ending:
            await asyncio.wait(self._ending)


def check_room(held: Collection[Hashable], caller: Hashable) -> None:
    """Raise `ToolError` where too many calls are held. `held` has the caller of each."""
    if len(held) >= MAX_HELD or sum(each == caller for each in held) >= MAX_HELD_FOR_ONE:
        raise ToolError("Too many calls wait for answers; answer these first, or try again later")


class _HeldRelay(RelayedCall):
    """A relayed call whose client may change from one round to the next."""

    def __init__(self, held: HeldCall, on_progress: OnProgress | None, on_notice: OnNotice) -> None:
        super().__init__(held.ask, on_progress, on_notice, on_extension=on_notice)
        self._held = held

    @property
    def outlet(self) -> Outlet | None:
        return None if self._held.listener is None else self._held.listener.outlet


def relayed_for(held: HeldCall, wants_progress: bool) -> RelayedCall:
    """Return what hands on messages to the request of the client that waits for a held call, if there is one."""

    def report(params: t.ProgressNotificationParams) -> None:
        if held.listener is not None:
            held.listener.report(params)

    def hear(notice: Any) -> None:
        if held.listener is not None:
            held.listener.hear(notice)

    return _HeldRelay(held, report if wants_progress else None, hear)


class _WithId(Struct):
    id: RequestId


_decode_id = msgspec.json.Decoder(_WithId).decode


def _id_of(message: Raw) -> RequestId:
    return _decode_id(message).id


def not_now(error: ToolwireError) -> ProtocolError:
    """Return the answer to a client whose answers cannot be passed on, because the store failed."""
    log.error("a call could not go on with its answers: the store failed: %s", error)
    return answers_refused()
