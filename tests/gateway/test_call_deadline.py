"""One time limit for a call through a gateway: rounds, second attempts, and what happens between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.client.test_rounds import question, required
from tests.client.test_shared_deadline import LIMIT, OBJECTS, STEP, slowly, think, tools, turn

from toolwire import testing
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.testing import elapse

LEGACY = "2025-11-25"
LATE = "tools/call was not answered within 15 seconds, in all its requests together"


def gateway_to(call: Callable[..., Any], **options: Any) -> Gateway:
    """Return a gateway before a server with the tool `run`, whose calls `call` answers."""
    listed = tools(t.Tool(name="run", input_schema=OBJECTS))
    server = FakeServer({"tools/call": call, "tools/list": lambda request, outlet: listed}, capabilities={"tools": {}})
    return Gateway("front").add("b", server, timeout=LIMIT, **options)


async def test_rounds_behind_a_gateway_share_the_limit() -> None:
    gateway = gateway_to(slowly(required("s", a=question()), text("late")), revision=MODERN)
    async with testing.connect(gateway, revision=LEGACY, elicit=lambda *_: {"x": "y"}) as (client, _):
        failed = await client.call_tool("b_run")
        assert failed.is_error and "'b'" in failed.text and LATE in failed.text


async def test_rounds_behind_a_gateway_leave_out_the_time_of_a_person() -> None:
    answers = iter([required("s", a=question()), required("s", b=question()), text("in time")])
    gateway = gateway_to(lambda request, outlet: next(answers), revision=MODERN)
    async with testing.connect(gateway, revision=LEGACY, elicit=think, timeout=None) as (client, _):
        assert (await client.call_tool("b_run")).text == "in time"


async def test_pause_between_rounds_behind_a_gateway_ends_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.protocol.rounds._FIRST_PAUSE", 100 * LIMIT)
    monkeypatch.setattr("toolwire.protocol.rounds._LONGEST_PAUSE", 100 * LIMIT)
    sent = asyncio.Event()

    def call(request: Any, outlet: Any) -> Any:
        sent.set()
        return required("s")

    async with testing.connect(gateway_to(call, revision=MODERN), revision=LEGACY, timeout=None) as (client, _):
        calling = asyncio.ensure_future(client.call_tool("b_run"))
        await sent.wait()
        await turn()
        await elapse(LIMIT)
        failed = await asyncio.wait_for(calling, 10)
        assert failed.is_error and LATE in failed.text


async def test_repeated_round_behind_a_gateway_gets_what_is_left() -> None:
    later = ProtocolError(-32603, "try again later", {"retryAfterMs": 10})
    sent: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            return required("s", a=question())
        await elapse(STEP)
        if len(sent) == 2:
            raise later
        return text("late")

    async with testing.connect(gateway_to(call, revision=MODERN), revision=LEGACY, elicit=lambda *_: {"x": "y"}) as (
        client,
        _,
    ):
        assert LATE in (await client.call_tool("b_run")).text
    assert len(sent) == 3


async def test_progress_behind_a_gateway_gives_the_whole_limit_again() -> None:
    sent: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            await elapse(STEP)
            return required("s", a=question())
        for step in (1, 2):
            token = request.params.meta.progress_token
            outlet.notify("notifications/progress", t.ProgressNotificationParams(progress_token=token, progress=step))
            await turn()
            await elapse(STEP)
        return text("in time")

    gateway = gateway_to(call, revision=MODERN)
    options: dict[str, Any] = {"elicit": lambda *_: {"x": "y"}, "timeout": None}
    async with testing.connect(gateway, revision=LEGACY, **options) as (client, _):
        # Seven seconds are left for the second round, unless there is progress.
        assert (await client.call_tool("b_run", on_progress=lambda params: None)).text == "in time"


@cases("is_second", [False, True])
@cases("front", [MODERN, LEGACY])
async def test_second_attempt_of_a_gateway_gets_what_is_left(front: str, is_second: bool) -> None:
    """A call of the modern era that follows another one is sent on a shorter way."""
    calls: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        calls.append(request)
        if len(calls) == 1 and is_second:
            return text("at once")
        await elapse(STEP)
        if len(calls) < 2 + is_second:
            raise ProtocolError(-32020, "other headers")
        return text("late")

    async with testing.connect(gateway_to(call, revision=MODERN), revision=front) as (client, _):
        if is_second:
            assert (await client.call_tool("b_run")).text == "at once"
        failed = await client.call_tool("b_run")
        assert failed.is_error and LATE in failed.text
    assert len(calls) == 2 + is_second


@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_list_between_two_attempts_of_a_gateway_counts(front: str) -> None:
    calls: list[Any] = []
    has_returned: list[bool] = []
    listed = asyncio.Event()

    async def listing(request: Any, outlet: Any) -> Any:
        if calls and not has_returned:
            await elapse(STEP)
            await turn()
            has_returned.append(calling.done())
            listed.set()
        return tools(t.Tool(name="run", input_schema=OBJECTS))

    async def call(request: Any, outlet: Any) -> Any:
        calls.append(request)
        await elapse(STEP)
        raise ProtocolError(-32020, "other headers")

    server = FakeServer({"tools/call": call, "tools/list": listing}, capabilities={"tools": {}})
    gateway = Gateway("front").add("b", server, revision=MODERN, timeout=LIMIT)
    async with testing.connect(gateway, revision=front) as (client, _):
        calling = asyncio.ensure_future(client.call_tool("b_run"))
        assert (await calling).is_error
        await listed.wait()
        assert has_returned == [True]
    # No time was left for a second attempt.
    assert len(calls) == 1
