"""Tasks of legacy servers that wait for an answer of a modern client.

A legacy server asks the questions of a task only while a `tasks/result` waits. A modern client reads them in
`tasks/get` and answers them with `tasks/update`, and each of these requests may reach another process. So one process
waits at the server and keeps the questions in the store, where the others read them. Answers reach it by the bus.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from toolwire.gateway.back_messages import Undeclared, check_question
from toolwire.gateway.held_call import legacy_answer, modern_question
from toolwire.gateway.held_calls import check_room, not_now
from toolwire.gateway.relaying import Answer
from toolwire.protocol import types as t
from toolwire.protocol.asking import refuse_question
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, ProtocolError, ToolwireError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.rounds import LIFETIME, Keys, checked_answer, digest
from toolwire.protocol.tasks import MAX_QUESTIONS, too_many_questions
from toolwire.stores import Stores
from toolwire.wire.bus_link import BusLink

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: The process that waits for a task gets answers under this name, on a link of the task.
_ANSWERS: Final = "answers"
#: How many seconds a question of a task may need to arrive.
QUESTION_SECONDS: Final = 0.1
#: How many seconds the store keeps questions whose process does not renew them, and after how many it does.
KEPT_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 5.0

_encode = msgspec.json.encode
_decode_answers = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_questions = decoder_of(dict[str, t.InputRequest]).decode


class WaitingTask:
    """A `tasks/result` that waits at a legacy server, and the questions that came meanwhile."""

    def __init__(self, owner: str, key: str, stores: Stores, revision: str, capabilities: Mapping[str, Any]) -> None:
        """`key` names the task in the store. `revision` is that of the server.

        `capabilities` are those of the client: the server gets an error for any other question.
        """
        self.owner = owner
        self.key = key
        self.request: asyncio.Task[Answer] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self.news: asyncio.Event = asyncio.Event()
        """Set while there is a question, and when the request has ended."""
        self._stores = stores
        self._revision = revision
        self._capabilities = capabilities
        self._keys = Keys()
        self._open: dict[str, tuple[Incoming, asyncio.Future[Raw]]] = {}
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.request is None or self.request.done()

    async def ask(self, request: Incoming) -> Raw:
        """Keep a question of the server until the client answers it."""
        if len(self._open) >= MAX_QUESTIONS:
            raise too_many_questions()
        try:
            check_question(request.method, request.params, self._capabilities, MODERN)
        except Undeclared as error:
            raise refuse_question(error.need, self._capabilities) from None
        asked = digest(request.method, None if request.raw is UNSET else request.raw)
        key = self._keys.choose(request.method, asked, None)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._open[key] = (request, answer)
        self.news.set()
        self._changed.set()
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())
        try:
            return await answer
        finally:
            self._open.pop(key, None)
            self._changed.set()

    def questions(self) -> dict[str, t.InputRequest]:
        """Return the open questions as a modern client knows them."""
        return {key: modern_question(request, self._capabilities) for key, (request, _) in self._open.items()}

    def answered(self, responses: Mapping[str, Raw]) -> None:
        """Pass answers on to the server. TSK-12: answers to questions that are not open are passed over."""
        given = {
            key: legacy_answer(key, request.method, responses[key], self._revision)
            for key, (request, _) in self._open.items()
            if key in responses
        }
        for key, answer in given.items():
            _, waiting = self._open.pop(key)
            if not waiting.done():  # The server may have taken its question back.
                waiting.set_result(answer)
        if not self._open:
            self.news.clear()

    async def soon(self) -> None:
        """Wait a moment for a question."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUESTION_SECONDS):
                await self.news.wait()

    async def _keep(self) -> None:
        """Show the open questions to the other processes, for as long as there are any."""
        kv, link = self._stores.kv, BusLink(self._stores.bus, self.key)
        link.on("", self._heard)
        unsubscribe = link.hear(_ANSWERS)
        try:
            while self._open:
                self._changed.clear()
                asked = {key: question.to_dict() for key, question in self.questions().items()}
                await kv.put(self.key, _encode(asked), ttl=KEPT_SECONDS)
                with suppress(TimeoutError):
                    async with asyncio.timeout(RENEW_SECONDS):
                        await self._changed.wait()
        except ToolwireError as error:
            log.warning("the questions of a task are shown by this process only: %s", error)
        finally:
            self._keeper = None
            unsubscribe()
            with suppress(ToolwireError):
                await kv.delete(self.key)

    def _heard(self, data: bytes) -> None:
        """Take answers that a client gave another process, which has checked them."""
        try:
            self.answered(_decode_answers(data))
        except (ProtocolError, *BAD_JSON) as error:
            log.warning("answers to a task were passed on and cannot be used: %s", error)

    def stop(self) -> None:
        for handle in (self.expiry, self.request, self._keeper):
            if handle is not None:
                handle.cancel()


class WaitingTasks:
    """The tasks of one legacy server that this process waits for."""

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingTask] = {}

    def get(self, key: str) -> WaitingTask | None:
        """Return a task that is waited for. It is waited for as long as somebody asks for it now and then."""
        waiting = self._waiting.get(key)
        if waiting is None or waiting.is_over:
            return None
        self._renew(waiting)
        return waiting

    def begin(self, waiting: WaitingTask, request: Coroutine[Any, Any, Answer]) -> None:
        try:
            check_room([each.owner for each in self._waiting.values()], waiting.owner)
        except BaseException:
            request.close()
            raise
        self._waiting[waiting.key] = waiting
        waiting.request = asyncio.get_running_loop().create_task(request)
        waiting.request.add_done_callback(lambda _: self._ended(waiting))
        self._renew(waiting)

    def _renew(self, waiting: WaitingTask) -> None:
        if waiting.expiry is not None:
            waiting.expiry.cancel()
        waiting.expiry = asyncio.get_running_loop().call_later(LIFETIME, waiting.stop)

    def _ended(self, waiting: WaitingTask) -> None:
        self._forget(waiting)
        if waiting.expiry is not None:
            waiting.expiry.cancel()
        waiting.news.set()
        if waiting.request is not None and not waiting.request.cancelled():
            waiting.request.exception()  # The next `tasks/get` asks for the outcome.

    def drop(self, waiting: WaitingTask) -> None:
        """Wait for a task no longer."""
        self._forget(waiting)
        waiting.stop()

    def _forget(self, waiting: WaitingTask) -> None:
        if self._waiting.get(waiting.key) is waiting:
            del self._waiting[waiting.key]

    async def close(self) -> None:
        """Wait for no task any longer."""
        requests = [each.request for each in self._waiting.values() if each.request is not None]
        for waiting in tuple(self._waiting.values()):
            self.drop(waiting)
        if requests:
            await asyncio.wait(requests)


async def questions_elsewhere(stores: Stores, key: str) -> dict[str, t.InputRequest]:
    """Return the questions of a task that another process waits for."""
    try:
        kept = await stores.kv.get(key)
        return {} if kept is None else _decode_questions(kept)
    except (ToolwireError, *BAD_JSON) as error:
        # What JSON breaks a rule may be that of the server, which asked.
        why = error if isinstance(error, ToolwireError) else type(error).__name__
        log.warning("the questions of a task cannot be read: %s", why)
        return {}


async def answer_elsewhere(
    stores: Stores, key: str, questions: Mapping[str, t.InputRequest], responses: Mapping[str, Raw]
) -> None:
    """Send answers to the process that waits for a task. Raise -32602 for one that does not fit its question."""
    given = {
        name: checked_answer(name, question.method, responses[name])
        for name, question in questions.items()
        if name in responses
    }
    if not given:
        return
    try:
        await BusLink(stores.bus, key).send(_ANSWERS, "", _encode(given))
    except ToolwireError as error:
        raise not_now(error) from None
