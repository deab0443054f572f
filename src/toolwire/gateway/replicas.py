"""The processes of a gateway that share its stores, as far as they hold calls for each other's clients.

A held call belongs to the process that made it. Its record in the store names this process. Another process to which
the client comes back sends the answers there over the bus. The process that holds the call puts the outcome into the
store, because a result may be large, and sends word of it. Messages of a bus may be lost. So the answers are sent again
until they are confirmed, and the store is looked at again and again.

The record changes hands by comparing: of two processes that both want to go on with a call, one does. A process whose
lease is lost holds nothing (see `toolwire.wire.process_lease`). If the server keeps the events of its streams, another
process goes on with the call then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.relay import Resumption
from toolwire.gateway.held_call import HeldCall, Listener, OpenQuestion, Outcome
from toolwire.http.legacy.process_watch import LEASE_SECONDS, ProcessWatch
from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, INTERNAL_ERROR, ProtocolError, ToolError, ToolwireError
from toolwire.protocol.methods import methods
from toolwire.protocol.revisions import LATEST_LEGACY
from toolwire.server.limits import Limits
from toolwire.stores import MemoryKV, StoreFailed, Stores
from toolwire.stores.queue import NO_QUEUE
from toolwire.util.expiring import Expiring
from toolwire.wire.bus_link import BusLink
from toolwire.wire.process_lease import Lease
from toolwire.wire.shares import StorageBudget

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many seconds an outcome waits in the store for the process that asked for it.
OUTCOME_SECONDS: Final = 60.0
#: Questions with more bytes than this are not put into the store: without their process, the call cannot go on.
MAX_QUESTIONS_BYTES: Final = 64 * 1024
#: How many exchanges are remembered after their end, so that a message which comes twice does nothing.
MAX_REMEMBERED: Final = 1024
#: How many calls that are over have a record, so that an answer which comes again is told apart from one too late.
MAX_OVER: Final = 10_000
# The seconds before the first look at a process that does not answer, and the longest pause between two looks.
_FIRST_LOOK: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

_PROGRESS: Final = "notifications/progress"


class Record(Struct, array_like=True):
    """The record of a held call in the store."""

    holder: str
    lease: str
    """The lease of the process that holds the call; empty where the stores have none."""
    round: int
    taken: str
    """The exchange that brings the answers of this round; empty while nobody has answered."""
    after: str
    """The exchange that brought the answers of the round before; empty in the first round."""
    resumption: Resumption | None
    questions: list[OpenQuestion]


class Answers(Struct):
    """The answers of a client, on their way to the process that holds the call."""

    held: str
    round: int
    principal: str
    responses: dict[str, Raw]
    exchange: str
    process: str
    """The process that waits."""
    wants_progress: bool
    wants_logs: bool
    capabilities: dict[str, Any] | None = None
    """What the client declared; None from a process of an earlier release."""


class _Told(Struct):
    """A notification of the server for the client that waits in another process."""

    exchange: str
    method: str
    params: Raw


class _Reply(Struct, omit_defaults=True):
    """An outcome in the store."""

    result: Raw | UnsetType = UNSET
    questions: Raw | UnsetType = UNSET
    round: int = 0
    failure: str | UnsetType = UNSET
    """The text of an error that names the server."""
    number: int | UnsetType = UNSET
    """The code of an error of the server, or of one that the client made."""
    message: str = ""
    data: Any = UNSET


class _Waiting(Struct, eq=False):
    """A client that waits in this process for a call that another process holds."""

    listener: Listener
    taken: bool = False
    news: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class HolderGone(Exception):
    """The process that holds a call has ended. `record` is what the store says of the call now, if it does."""

    def __init__(self, record: Record | None) -> None:
        super().__init__("the process that held the call has ended")
        self.record = record


Serve: TypeAlias = Callable[["Replica", Answers, Listener], Coroutine[Any, Any, Outcome]]


class Replica:
    """This process among those that share a store, for the calls of one server."""

    def __init__(
        self, stores: Stores, topic: str, serve: Serve, seconds: Callable[[], float], share: float = Limits().share
    ) -> None:
        """`serve` goes on with a call that is held here. `seconds` returns for how long a call is held.

        `share` is the part of the records of ended calls that one caller may have.
        """
        self.seconds = seconds
        self._over = StorageBudget(MAX_OVER, share, "calls answered")
        self.name: str = os.urandom(12).hex()
        self._kv = stores.kv
        self._is_shared = not isinstance(stores.kv, MemoryKV)
        self._link = BusLink(stores.bus, topic)
        self._has_leases = stores.queue is not NO_QUEUE
        self._lease = Lease(stores, LEASE_SECONDS, self._lease_lost)
        self._watch = ProcessWatch(stores.queue, time.monotonic)
        self._serve = serve
        self._leave: list[Callable[[], None]] = []
        self._waiting: dict[str, _Waiting] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._served: Expiring[str, None] = Expiring(MAX_REMEMBERED)

    # --- beginning and end ---

    def open(self) -> None:
        """Listen to the other processes, if this process does not yet."""
        if self._leave:
            return
        self._link.open()
        self._leave = [
            self._link.on("answers", self._on_answers),
            self._link.on("taken", self._on_taken),
            self._link.on("outcome", self._on_outcome),
            self._link.on("told", self._on_told),
            self._link.on("cancel", self._on_cancel),
            self._link.hear(self.name),
            self._link.close,
        ]

    async def close(self) -> None:
        """End the calls that go on here for others, and stop listening."""
        for task in list(self._serving.values()):
            task.cancel()
            await asyncio.wait({task})
        for leave in self._leave:
            leave()
        self._leave = []
        await self._lease.release()

    def _lease_lost(self) -> None:
        log.error("this process lost its lease: other processes may go on with the calls that it holds")

    # --- records ---

    async def note(self, held: HeldCall) -> None:
        """Write down that a call is held here. Raise `ToolwireError` where the store does not take it."""
        self.open()
        assert held.request is not None
        resumption = held.connection.resumption(held.request, held.method)
        questions = held.open_questions() if resumption is not None else []
        if sum(len(bytes(each.message)) for each in questions) > MAX_QUESTIONS_BYTES:
            resumption, questions = None, []
        lease = await self._lease.held() if self._has_leases else ""
        record = Record(self.name, lease, held.round, "", held.exchange, resumption, questions)
        if not await self._change(held, record):
            raise ToolError("Another process of this server has gone on with the call")

    async def take(self, held: HeldCall, exchange: str) -> bool:
        """Mark a round as answered; return False when another process has gone on with the call."""
        held.exchange = exchange
        return await self._change(held, msgspec.structs.replace(_decode_record(held.record), taken=exchange))

    async def take_over(self, held: HeldCall, record: Record, exchange: str) -> bool:
        """Become the process that holds a call; return False when another one was faster."""
        self.open()
        held.exchange = exchange
        lease = await self._lease.held() if self._has_leases else ""
        changed = _encode(msgspec.structs.replace(record, holder=self.name, lease=lease, taken=exchange))
        expect = _encode(record)
        if not await self._kv.put(_record_key(held.id), changed, ttl=self._record_seconds, expect=expect):
            return False
        held.record, held.is_taken_over = changed, True
        return True

    @property
    def _record_seconds(self) -> float:
        """The seconds that the record of a call lives after its last change. It outlives the call."""
        return 2 * self.seconds()

    async def _change(self, held: HeldCall, record: Record) -> bool:
        key, data = _record_key(held.id), _encode(record)
        expect = held.record or None
        if expect is not None and await self._kv.put(key, data, ttl=self._record_seconds, expect=expect):
            held.record = data
            return True
        # The first record of a call; or the store has lost the last one.
        if not await self._kv.put(key, data, ttl=self._record_seconds, if_absent=True):
            return False
        held.record = data
        return True

    def outlives(self, held: HeldCall) -> bool:
        """Return whether another process can go on with a call when this one ends."""
        return self._is_shared and bool(held.record) and _decode_record(held.record).resumption is not None

    async def end_record(self, held: HeldCall) -> None:
        """Take note that a call is over whose questions were answered: another answer is one too many."""
        if not held.record:
            return
        # The process that held it before may come back, and would take a missing record for a lost one.
        if not (held.is_taken_over or self._over.admit(held.caller, 1, self._record_seconds)):
            await self.remove_record(held)
            return
        record, held.record = held.record, b""
        over = _encode(Record("", "", held.round + 1, "", "", None, []))
        try:
            # Unless another process has gone on with the call, whose record it is then.
            await self._kv.put(_record_key(held.id), over, ttl=self._record_seconds, expect=record)
        except ToolwireError as error:
            log.warning("the record of a held call could not be changed: %s", error)

    async def remove_record(self, held: HeldCall) -> None:
        """Remove the record of a call that nobody goes on with."""
        if not held.record:
            return
        held.record, key = b"", _record_key(held.id)
        try:
            await self._kv.delete(key)
        except ToolwireError as error:
            log.warning("the record of a held call could not be removed: %s", error)

    async def record(self, identifier: str) -> Record | None:
        """Return the record of a call; None if no process holds it."""
        data = await self._kv.get(_record_key(identifier))
        try:
            return None if data is None else _decode_record(data)
        except BAD_JSON:
            log.warning("the record of a held call is damaged, so the call counts as lost")
            return None

    # --- a call that another process holds ---

    async def ask(self, answers: Answers, record: Record, listener: Listener) -> Outcome:
        """Have the process that holds a call go on with it. Raise `HolderGone` where it has ended."""
        self.open()
        waiting = self._waiting[answers.exchange] = _Waiting(listener)
        message, pause = _encode(answers), _FIRST_LOOK
        try:
            await self._link.send(record.holder, "answers", message)
            while True:
                try:
                    async with asyncio.timeout(pause):
                        await waiting.news.wait()
                except TimeoutError:
                    pause = min(2 * pause, _LONGEST_PAUSE)
                try:
                    reply = await self._reply(answers.exchange)
                    is_gone = reply is None and await self._is_gone(record)
                    if is_gone:
                        reply = await self._reply(answers.exchange)  # The last thing that it did.
                    elif reply is None and not waiting.taken:
                        await self._link.send(record.holder, "answers", message)
                except StoreFailed as error:
                    # The process that holds the call goes on with it meanwhile.
                    log.debug("the store did not say how a held call ended, and is asked again: %s", error)
                    continue
                if reply is not None:
                    return _outcome(reply)
                if is_gone:
                    raise HolderGone(await self.record(answers.held))
        except asyncio.CancelledError:
            self._link.post_to(record.holder, "cancel", answers.exchange.encode())
            raise
        finally:
            del self._waiting[answers.exchange]

    async def _reply(self, exchange: str) -> _Reply | None:
        data = await self._kv.get(_outcome_key(exchange))
        if data is None:
            return None
        await self._kv.delete(_outcome_key(exchange))
        return _decode_reply(data)

    async def _is_gone(self, record: Record) -> bool:
        return bool(record.lease) and record.lease in await self._watch.gone({record.lease})

    def _on_taken(self, data: bytes) -> None:
        waiting = self._waiting.get(data.decode())
        if waiting is not None:
            waiting.taken = True

    def _on_outcome(self, data: bytes) -> None:
        waiting = self._waiting.get(data.decode())
        if waiting is not None:
            waiting.news.set()

    def _on_told(self, data: bytes) -> None:
        told = _decode_told(data)
        waiting = self._waiting.get(told.exchange)
        if waiting is None:
            return
        if told.method == _PROGRESS:
            waiting.listener.report(t.decode(t.ProgressNotificationParams, told.params))
            return
        row = methods(LATEST_LEGACY)[told.method]
        waiting.listener.hear(Notice(told.method, row, t.decode(row.params, told.params), told.params))

    # --- a call that is held here, for a client of another process ---

    def _on_answers(self, data: bytes) -> None:
        answers = _decode_answers(data)
        exchange = answers.exchange
        self._link.post_to(answers.process, "taken", exchange.encode())
        if exchange in self._served:
            self._link.post_to(answers.process, "outcome", exchange.encode())
        elif exchange not in self._serving:
            task = asyncio.get_running_loop().create_task(self._go_on(answers))
            self._serving[exchange] = task
            task.add_done_callback(lambda _: self._end(exchange))

    def _end(self, exchange: str) -> None:
        self._serving.pop(exchange, None)
        self._served.put(exchange, None)

    async def _go_on(self, answers: Answers) -> None:
        listener = _ListenerElsewhere(self._link, answers)
        over: HeldCall | None = None
        try:
            outcome = await self._serve(self, answers, listener)
            reply, over = _replied(outcome), outcome.over
        except ProtocolError as error:
            reply = _Reply(number=error.code, message=error.message, data=UNSET if error.data is None else error.data)
        except ToolError as error:
            reply = _Reply(failure=str(error))
        except Exception:
            log.exception("a held call could not go on")
            reply = _Reply(number=INTERNAL_ERROR, message="The call could not go on")
        try:
            await self._kv.put(_outcome_key(answers.exchange), _encode(reply), ttl=OUTCOME_SECONDS, if_absent=True)
        except ToolwireError as error:
            log.error("the outcome of a held call could not be handed over: %s", error)
            lost = _Reply(failure="The result could not be handed over; the request may have been carried out")
            with contextlib.suppress(ToolwireError):
                await self._kv.put(_outcome_key(answers.exchange), _encode(lost), ttl=OUTCOME_SECONDS, if_absent=True)
        self._link.post_to(answers.process, "outcome", answers.exchange.encode())
        if over is not None:
            # Not before: if this process ends in between, the one that waits goes on with the call.
            await self.end_record(over)

    def _on_cancel(self, data: bytes) -> None:
        task = self._serving.get(data.decode())
        if task is not None:
            task.cancel()


class _ListenerElsewhere:
    """A client that waits in another process."""

    outlet = None

    def __init__(self, link: BusLink, answers: Answers) -> None:
        self._link = link
        self._answers = answers

    def report(self, params: t.ProgressNotificationParams) -> None:
        if self._answers.wants_progress:
            self._tell(_PROGRESS, Raw(t.encode(params)))

    def hear(self, notice: Notice) -> None:
        if self._answers.wants_logs and notice.raw is not UNSET:
            self._tell(notice.method, notice.raw)

    def _tell(self, method: str, params: Raw) -> None:
        answers = self._answers
        self._link.post_to(answers.process, "told", _encode(_Told(answers.exchange, method, params)))


def new_exchange() -> str:
    """Return the name of one request of a client that brings answers."""
    return os.urandom(12).hex()


def _replied(outcome: Outcome) -> _Reply:
    if outcome.questions is not None:
        return _Reply(questions=Raw(t.encode(outcome.questions)), round=outcome.round)
    return _Reply(result=Raw(b"{}") if outcome.result is None else outcome.result)


def _outcome(reply: _Reply) -> Outcome:
    if reply.number is not UNSET:
        raise ProtocolError(reply.number, reply.message, None if reply.data is UNSET else reply.data)
    if reply.failure is not UNSET:
        raise ToolError(reply.failure)
    if reply.questions is not UNSET:
        return Outcome(None, t.decode(t.InputRequiredResult, reply.questions), reply.round)
    return Outcome(None if reply.result is UNSET else reply.result)


def _record_key(identifier: str) -> str:
    return f"toolwire:held:{identifier}"


def _outcome_key(exchange: str) -> str:
    return f"toolwire:held:outcome:{exchange}"


_encode = msgspec.json.encode
_decode_record = decoder_of(Record).decode
_decode_answers = msgspec.json.Decoder(Answers).decode
_decode_told = msgspec.json.Decoder(_Told).decode
_decode_reply = msgspec.json.Decoder(_Reply).decode
