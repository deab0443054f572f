"""Responses that are no HTTP, or over a limit: the server would answer so again, and is not asked again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.scripted_http import STREAM, URL, Reply, Request, Script, event, on, rpc, stream
from tests.patience import patience

from toolwire import testing
from toolwire.client import Client, InvalidResponse
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.response import HttpResponse, MalformedResponse
from toolwire.protocol.errors import OutcomeUnknown, ToolwireError
from toolwire.protocol.revisions import MODERN

HUGE = b"HTTP/1.1 200 OK\r\nx: " + b"x" * 5_000_000 + b"\r\n\r\n"
#: Bytes that are no response, and would be sent again.
MALFORMED = pytest.mark.parametrize("sent", [HUGE, b"SSH-2.0-OpenSSH\r\n"], ids=["huge header", "no HTTP"])

pytestmark = pytest.mark.usefixtures("pauses")


@asynccontextmanager
async def serving(script: Script, sent: bytes, is_broken: Callable[[Request], bool]) -> AsyncIterator[str]:
    """Serve a script over a real connection; the responses to broken requests are the bytes `sent`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = first.split(" ")
            request = Request(method, path, headers, body)
            script.requests.append(request)
            script.arrived.set()
            if is_broken(request):
                writer.write(sent)
                await writer.drain()
                return
            answer = script._answer(request)
            reply = (await answer if asyncio.iscoroutine(answer) else answer) or script._usual(request)
            told = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
            writer.write(f"HTTP/1.1 {reply.status} X\r\n{told}connection: close\r\n\r\n".encode())
            if isinstance(reply.body, bytes):
                writer.write(reply.body)
            else:
                async for piece in reply.body:
                    writer.write(piece)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


class BrokenPool(AsgiPool):
    """An application whose responses to some messages are malformed."""

    def __init__(self, script: Script, *rpcs: str) -> None:
        super().__init__(script)
        self._script = script
        self._rpcs = rpcs

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        response = await super().send(method, url, headers, body)
        if Request(method, url, {}, body or b"").rpc in self._rpcs:
            response.close()
            raise MalformedResponse("its headers are over the limit")
        return response


def client_of(script: Script, *rpcs: str, **options: Any) -> Client:
    return Client(HttpTarget(URL, pool=BrokenPool(script, *rpcs)), **options)


@MALFORMED
async def test_stream_is_not_resumed_after_a_malformed_response(sent: bytes) -> None:
    script = Script(on(tools_call=lambda request: stream(event(b"", id="a", retry=0))), modern=False)
    async with (
        serving(script, sent, lambda request: "last-event-id" in request.headers) as url,
        Client(url) as client,
    ):
        with pytest.raises(OutcomeUnknown) as caught:
            await client.call_tool("x")
        assert isinstance(caught.value, InvalidResponse)
    assert len([request for request in script.of("GET") if "last-event-id" in request.headers]) == 1


@MALFORMED
async def test_own_stream_of_a_server_is_not_opened_again_after_a_malformed_response(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(on(), modern=False)
    async with serving(script, sent, lambda request: request.method == "GET") as url, Client(url) as client:
        async with patience("the end of the stream"):
            while "the stream of the server cannot be read" not in caplog.text:
                await asyncio.sleep(0)
        assert (await client.call_tool("x")).text == "ok"
    assert len(script.of("GET")) == 1


@MALFORMED
async def test_lost_server_is_not_sought_after_a_malformed_response(sent: bytes) -> None:
    """HTTP+SSE: the stream is the connection, so each attempt to open it is a GET."""
    ended = asyncio.Event()

    def get(request: Request) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            yield event(b"/messages", event="endpoint")
            # The first one was posted to the other transport.
            answer = script._usual(await script.until("initialize", 2)).body
            assert isinstance(answer, bytes)
            yield event(answer, event="message")
            await ended.wait()

        return Reply(headers=STREAM, body=body())

    def posted(request: Request) -> Reply | None:
        if request.path == "/messages":
            return Reply(202, {})
        return Reply(405, {}) if request.method == "POST" else get(request)

    script = Script(posted, modern=False)

    def is_second(request: Request) -> bool:
        return request.method == "GET" and len(script.of("GET")) > 1

    async with serving(script, sent, is_second) as url, Client(url) as client:
        connection = client._connector.current()
        ended.set()
        await asyncio.wait({connection.reader})
        with pytest.raises(InvalidResponse):
            await client.call_tool("x")
    assert len(script.of("GET")) == 2


@pytest.mark.parametrize("method", ["resources/read", "tools/list"])
async def test_reading_request_is_not_sent_again_after_a_malformed_response(method: str) -> None:
    script = Script(on())
    async with client_of(script, method) as client:
        with pytest.raises(MalformedResponse):
            await (client.list_tools() if method == "tools/list" else client.read_resource("a:b"))
    assert len(script.of(method)) == 1
    assert len(script.of("server/discover")) == 1


async def test_session_is_opened_once_where_the_response_is_malformed() -> None:
    script = Script(on(tools_call=Reply(404, {})), modern=False)
    pool = BrokenPool(script)
    async with Client(HttpTarget(URL, pool=pool)) as client:
        pool._rpcs = ("initialize", "server/discover")
        with pytest.raises(MalformedResponse):
            await client.call_tool("x")
    assert len(script.of("initialize")) == 2


async def test_malformed_response_says_nothing_about_the_revision() -> None:
    script = Script(on(), modern=False)
    with pytest.raises(MalformedResponse):
        await client_of(script, "server/discover").connect()
    assert script.of("initialize") == []


async def test_answer_is_not_posted_again_after_a_malformed_response() -> None:
    asking = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

    def call(request: Request) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            yield event(rpc(id=99, method="elicitation/create", params=asking))
            await request.disconnected.wait()

        return Reply(headers=STREAM, body=body())

    script = Script(on(tools_call=call), modern=False)
    async with client_of(script, "answer", elicit=lambda *_: {}) as client:
        with pytest.raises(OutcomeUnknown, match="did not arrive"):
            await client.call_tool("x")
    assert len(script.of("answer")) == 1


async def test_subscription_is_not_opened_again_after_a_malformed_response() -> None:
    def listen(request: Request) -> Reply:
        meta = {"io.modelcontextprotocol/subscriptionId": request.id}
        accepted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        opening = event(rpc(method="notifications/subscriptions/acknowledged", params=accepted))
        chunked = b"%x\r\n%b\r\n" % (len(opening), opening)
        return Reply(headers={**STREAM, "transfer-encoding": "chunked"}, body=chunked + b"no chunk\r\n")

    script = Script(on(subscriptions_listen=listen))
    async with serving(script, b"", lambda request: False) as url, Client(url) as client:
        with pytest.raises(MalformedResponse):
            async for _ in client.listen(tools=True):
                pass
    assert len(script.of("subscriptions/listen")) == 1


async def test_result_of_a_task_is_not_asked_for_again_after_a_malformed_response() -> None:
    script = Script(on(), modern=False)
    async with client_of(script, "tasks/result") as client:
        client._connector.current().callable |= {"tasks/result", "tasks/get"}
        with pytest.raises(MalformedResponse):
            await client.task("t").wait()
    assert len(script.of("tasks/result")) == 1


async def test_gateway_does_not_read_again_after_a_malformed_response() -> None:
    def listing(request: Request) -> Reply:
        resource = {"uri": "a:b", "name": "b"}
        found = {"resources": [resource], "resourceTemplates": [], "tools": [], "prompts": []}
        value = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **found}
        return Reply(body=rpc(id=request.id, result=value))

    lists = dict.fromkeys(("resources_list", "resources_templates_list", "tools_list", "prompts_list"), listing)
    script = Script(on(**lists))
    target = HttpTarget(URL, pool=BrokenPool(script, "resources/read"))
    gateway = Gateway("front").add("b", target, revision=MODERN)
    async with testing.connect(gateway) as (client, _):
        with pytest.raises(ToolwireError):
            await client.read_resource("a:b")
    assert len(script.of("resources/read")) == 1
