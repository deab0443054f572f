"""Streams that a server ends at once: the server does not decide how often the client comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.cases import cases
from tests.client.scripted_http import STREAM, Reply, Request, Script, event, on, rpc, stream, text

from toolwire.protocol.errors import OutcomeUnknown
from toolwire.util.backoff import FIRST_SECONDS

#: Pauses are at least this long once a server has ended a few streams in a row.
LATER = 4 * FIRST_SECONDS
STREAMS = 12
RETRIES = pytest.mark.parametrize("retry", [None, 0, 1])


def check_growth(pauses: list[float], retry: int | None) -> None:
    assert pauses[0] >= (FIRST_SECONDS / 2 if retry is None else FIRST_SECONDS)
    assert min(pauses[3 : STREAMS - 1]) >= LATER
    # A server that ends its streams on purpose is not left alone for long.
    assert max(pauses[: STREAMS - 1]) <= 2 * LATER


@RETRIES
async def test_own_stream_of_a_server_is_not_opened_without_a_pause(pauses: list[float], retry: int | None) -> None:
    changed = rpc(method="notifications/tools/list_changed")
    script = Script(on(GET=lambda request: stream(event(changed, id="1", retry=retry))), modern=False)
    async with script.client():
        await script.until("GET", STREAMS)
    check_growth(pauses, retry)


@RETRIES
async def test_stream_of_a_request_is_not_resumed_without_a_pause(pauses: list[float], retry: int | None) -> None:
    def get(request: Request) -> Reply:
        if "last-event-id" not in request.headers:
            return Reply(405, {})
        resumed.append(request)
        if len(resumed) < STREAMS:
            return stream(event(b"", id=str(len(resumed)), retry=retry))
        return stream(event(rpc(id=script.of("tools/call")[0].id, result={"content": text("at last")}), id="z"))

    resumed: list[Request] = []
    answers = on(GET=get, tools_call=lambda request: stream(event(b"", id="a", retry=retry)))
    script = Script(answers, modern=False)
    async with script.client() as client:
        assert (await client.call_tool("x")).text == "at last"
    check_growth(pauses, retry)


async def test_subscription_is_not_opened_again_without_a_pause(pauses: list[float]) -> None:
    def listen(request: Request) -> Reply:
        meta = {"io.modelcontextprotocol/subscriptionId": request.id}

        async def body() -> AsyncIterator[bytes]:
            accepted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            yield event(rpc(method="notifications/subscriptions/acknowledged", params=accepted))
            yield event(rpc(method="notifications/tools/list_changed", params={"_meta": meta}))

        return Reply(headers=STREAM, body=body())

    script = Script(on(subscriptions_listen=listen))
    async with script.client() as client:
        async for _ in client.listen(tools=True):
            if len(script.of("subscriptions/listen")) == STREAMS:
                break
    assert min(pauses[3 : STREAMS - 1]) >= LATER


async def test_stream_that_lasted_is_opened_again_soon(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now, ahead = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: now() + ahead)

    def get(request: Request) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            nonlocal ahead
            yield b": hello\n\n"
            for _ in range(50):
                await asyncio.sleep(0)
            ahead += 60
            yield event(rpc(method="notifications/tools/list_changed"), id="1", retry=0)

        return Reply(headers=STREAM, body=body())

    script = Script(on(GET=get), modern=False)
    async with script.client():
        await script.until("GET", STREAMS)
    assert pauses[: STREAMS - 1] == [FIRST_SECONDS] * (STREAMS - 1)


@pytest.mark.parametrize("status", [429, 503])
async def test_own_stream_of_a_busy_server_is_opened_when_the_server_asks(status: int, pauses: list[float]) -> None:
    def get(request: Request) -> Reply:
        return Reply(status, {"retry-after": "8"})

    script = Script(on(GET=get), modern=False)
    async with asyncio.timeout(20), script.client():
        await script.until("GET", 3)
    assert pauses.count(8.0) >= 2


async def test_stream_of_a_request_is_resumed_when_a_busy_server_asks(pauses: list[float]) -> None:
    def get(request: Request) -> Reply:
        if "last-event-id" not in request.headers:
            return Reply(405, {})
        resumed.append(request)
        if len(resumed) < 3:
            return Reply(503, {"retry-after": "8"})
        return stream(event(rpc(id=script.of("tools/call")[0].id, result={"content": text("at last")}), id="z"))

    resumed: list[Request] = []
    script = Script(on(GET=get, tools_call=lambda request: stream(event(b"", id="a"))), modern=False)
    async with asyncio.timeout(20), script.client() as client:
        assert (await client.call_tool("x")).text == "at last"
    assert pauses.count(8.0) == 2


async def test_subscription_at_a_busy_server_is_opened_when_the_server_asks(pauses: list[float]) -> None:
    def listen(request: Request) -> Reply:
        meta = {"io.modelcontextprotocol/subscriptionId": request.id}
        if len(script.of("subscriptions/listen")) == 2:
            return Reply(503, {"retry-after": "8"})

        accepted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        changed = rpc(method="notifications/tools/list_changed", params={"_meta": meta})
        return stream(event(rpc(method="notifications/subscriptions/acknowledged", params=accepted)), event(changed))

    script = Script(on(subscriptions_listen=listen))
    async with asyncio.timeout(20), script.client() as client:
        async for _ in client.listen(tools=True):
            if len(script.of("subscriptions/listen")) == 3:
                break
    assert 8.0 in pauses


@cases("status", [303, 304, 408, 409, 499, 500])
async def test_outcome_is_unknown_after_a_status_that_proves_no_refusal(status: int) -> None:
    script = Script(on(tools_call=lambda request: Reply(status, {})))
    async with script.client() as client:
        with pytest.raises(OutcomeUnknown, match=f"status {status}"):
            await client.call_tool("x")
