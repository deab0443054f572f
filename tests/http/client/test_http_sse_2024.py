"""How a client opens HTTP+SSE: the stream names where to post, in time, and somewhere that can be posted to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tests.cases import cases
from tests.client.scripted_http import STREAM, URL, Reply, Request, Script, SignsIn, endless, event, stream, unanswered

from toolwire.http.client import http_sse_2024
from toolwire.http.client.endpoint import Endpoint
from toolwire.http.client.http_sse_2024 import ENDPOINT_SECONDS, SseClientChannel
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import NotStreamable, Unreachable
from toolwire.testing import elapse


def channel(script: Script, **options: Any) -> SseClientChannel:
    return SseClientChannel(Endpoint(AsgiPool(script), URL, **options))


@pytest.mark.parametrize("answer", [unanswered, endless])
async def test_a_server_that_names_no_endpoint_is_not_waited_for(answer: Any) -> None:
    script = Script(answer)
    connecting = asyncio.create_task(channel(script).connect())
    await script.until("GET")
    await elapse(ENDPOINT_SECONDS)
    with pytest.raises(Unreachable, match="did not name an endpoint"):
        await connecting


@pytest.mark.parametrize("answer", [unanswered, endless])
async def test_time_limit_of_a_client_includes_the_wait_for_an_endpoint(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sse_2024, "ENDPOINT_SECONDS", 10_000)
    script = Script(lambda request: answer(request) if request.method == "GET" else Reply(405, {}))
    connecting = asyncio.create_task(script.client(timeout=5).connect())
    await script.until("GET")
    await elapse(5)
    async with asyncio.timeout(20):
        with pytest.raises(NotStreamable):
            await connecting


async def test_signing_in_may_take_longer() -> None:
    async def answer(request: Request) -> Reply:
        if "authorization" not in request.headers:
            return Reply(401, {})

        async def body() -> AsyncIterator[bytes]:
            yield event(b"/messages", event="endpoint")
            await request.disconnected.wait()

        return Reply(headers=STREAM, body=body())

    opened = channel(Script(answer), auth=SignsIn(10 * ENDPOINT_SECONDS))
    await opened.connect()
    await elapse(ENDPOINT_SECONDS)  # There is no hurry any more.
    assert opened.is_connected
    await opened.close()


@cases(
    ("named", "told"),
    [
        (b"http://[", "that is no URL"),
        (b"http://elsewhere.example/", "of another origin"),
        (None, "ended its stream at once"),
    ],
)
async def test_an_endpoint_that_can_not_be_posted_to(named: bytes | None, told: str) -> None:
    reply = stream() if named is None else stream(event(named, event="endpoint"))
    with pytest.raises(Unreachable, match=told):
        await channel(Script(lambda request: reply)).connect()


async def test_credentials_that_fail_in_their_own_way() -> None:
    class Fails:
        async def headers(self, method: str, url: str) -> Mapping[str, str]:
            raise RuntimeError("no keychain")

        async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
            return False

    with pytest.raises(RuntimeError, match="no keychain"):
        await channel(Script(lambda request: None), auth=Fails()).connect()
