"""Runs the handlers of components: under a deadline, with their questions, and with an answer when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.revisions import MODERN
from toolwire.server.call import Call
from toolwire.server.catalog import Found
from toolwire.server.components import Component
from toolwire.server.failures import Failures, of_handler
from toolwire.server.input_requests import Replay
from toolwire.server.replay_state import Questions, asked


class HandlerRunner:
    """Runs handlers; those without a timeout of their own get `seconds`."""

    def __init__(self, questions: Questions, failures: Failures, seconds: float) -> None:
        self._questions = questions
        self._failures = failures
        self._seconds = seconds

    async def take_up(self, call: Call) -> t.InputRequiredResult | None:
        """Use up the answers that a request brings. Return the questions that are left, before which nothing runs."""
        request = call.request
        if request.revision != MODERN or (call.asking is None and request.params.request_state is UNSET):
            return None
        await self._questions.take_up(call)
        # A middleware may have asked a question and swallowed the cancellation. Then the handler must not run now.
        return await self._questions.input_required(call) if asked(call) else None

    async def failed(self, call: Call, component: Component, name: str, error: BaseException) -> Any:
        """Return the answer for a handler that failed, and had no deadline."""
        try:
            failure = of_handler(call, component, None, error)
            if failure is None:
                raise error
            return await self._failures.answer(call, failure, _what(component, name))
        finally:
            failure = None
            del error

    async def run(self, call: Call, found: Found[Any], name: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a handler under its deadline. If it ended because of an open question, return `input_required`."""
        component: Component = found.component
        call.owner = found.owner
        if not component.replay:
            call.replay = False
        request = call.request
        if (
            request.revision == MODERN
            and (call.asking is not None or request.params.request_state is not UNSET)
            and not component.owns_state(call)
        ):
            try:
                unanswered = await self.take_up(call)
            except BaseException:
                coroutine.close()
                raise
            if unanswered is not None:
                coroutine.close()
                return unanswered
        seconds = component.timeout if component.timeout is not None else self._seconds
        if call.guard is not None:
            seconds, coroutine = call.guard(seconds, coroutine)
        handlers = call.work.handlers
        # The runtime knows its loop. Asking asyncio for the running loop is a system call on Python 3.11.
        deadline = call.deadline = handlers.start(seconds, asyncio.current_task(handlers.loop))
        failure: Exception | None = None
        try:
            result = await coroutine
        except BaseException as error:
            if asked(call):
                # The handler was unwound because of its question. Whatever it raised then does not matter.
                return await self._questions.input_required(call)
            failure = of_handler(call, component, deadline, error)
            if failure is None:
                raise
        finally:
            handlers.deadlines.discard(deadline)
            deadline.task = None
            asking = call.asking
            if type(asking) is Replay:
                if not asking.unwinding:
                    asking.forget()
                asking.task = call.task
        if failure is not None:
            try:
                return await self._failures.answer(call, failure, _what(component, name))
            finally:
                failure = None  # Its traceback has this frame: a cycle that keeps the call in memory.
        return result if asking is None or not asked(call) else await self._questions.input_required(call)


def _what(component: Component, name: str) -> str:
    return f"the {component.noun} {name[:200]}"
