"""Rounds of a request: answers to the questions of a server, and retries of those that it could not accept."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, Unreachable
from toolwire.protocol.rounds import read_round, repeat_pause
from toolwire.util.backoff import Backoff
from toolwire.wire.deadlines import CallClock

T = TypeVar("T")

#: How many seconds answers are sent again, where their request has no time limit.
REPEAT_SECONDS: Final = 60.0


async def send_round(send: Callable[[], Awaitable[T]], clock: CallClock) -> T:
    """Send the answers of a round. Retry when the server asks for that.

    `clock` is the time limit of the call. When no time is left for a pause, the last error is raised.
    """
    loop, backoff = asyncio.get_running_loop(), Backoff()
    until = loop.time() + REPEAT_SECONDS
    while True:
        error: ProtocolError | Unreachable
        try:
            return await send()
        except ProtocolError as caught:
            error, asked = caught, repeat_pause(caught)
        except Unreachable as caught:
            # 429 and 503: the server refused the request before it did anything.
            error, asked = caught, caught.retry_after
        if asked is None:
            raise error
        pause = max(asked, backoff.after(None))
        left = clock.left()
        if pause >= (until - loop.time() if left is None else left):
            raise error
        await asyncio.sleep(pause)


async def run_rounds(
    method: str,
    raw: Raw,
    clock: CallClock,
    answer: Callable[[Mapping[str, t.InputRequest]], Awaitable[Mapping[str, Any]]],
    send: Callable[[t.InputRequiredResult, Mapping[str, Any]], Awaitable[Raw]],
    read: Callable[[Raw], T | None],
) -> T:
    """Answer questions, and send the request again, until `read` returns a result. `raw` asks the first ones."""
    for number in itertools.count():
        result, questions, pause = read_round(method, raw, number)
        answers: Mapping[str, Any] = {}
        if questions:
            with clock.leave_out():
                answers = await answer(questions)
        else:
            await clock.sleep(pause)
        # MRTR-16: state and answers exist in this frame only.
        raw = await send(result, answers)
        found = read(raw)
        if found is not None:
            return found
    raise AssertionError("The rounds have a limit")
