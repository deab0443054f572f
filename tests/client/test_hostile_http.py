"""Servers that mean harm, or know no better, over HTTP: each gets its typed error, in bounded time and memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cases import cases
from tests.client.scripted_http import (
    STREAM,
    URL,
    Reply,
    Request,
    Script,
    event,
    initialized,
    on,
    result,
    rpc,
    stream,
    text,
)

from toolwire.client import Client, InvalidResponse
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import OutcomeUnknown, Timeout, ToolwireError, Unreachable
from toolwire.protocol.revisions import MODERN

ONE_TOOL = {"name": "x", "inputSchema": {"type": "object"}}


def listing(*tools: Any, **members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "tools": list(tools), "ttlMs": 0, "cacheScope": "private", **members}


# --- connections ---


async def test_the_opening_is_repeated_where_a_kept_connection_turns_out_to_be_closed() -> None:
    heard: list[str] = []

    async def read(reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
        request = Request("POST", "/", {}, await reader.readexactly(length))
        heard.append(request.rpc)
        return request

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request, and closes when there comes another."""
        try:
            asked = await read(reader)
            reply = initialized(asked) if asked.rpc == "initialize" else Reply(405)
            assert isinstance(reply.body, bytes)
            head = f"HTTP/1.1 {reply.status} X\r\ncontent-type: application/json\r\ncontent-length: {len(reply.body)}"
            writer.write(head.encode() + b"\r\n\r\n" + reply.body)
            await read(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    async with Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        assert client.revision == "2025-11-25"
    assert heard[:3] == ["server/discover", "initialize", "initialize"]
    server.close()


# --- answers ---


@cases("body", [b"\xff\xfe", b"null", b"[[[[", b'"text"', b"{}", b'{"jsonrpc":"1.0","id":2,"result":{}}'])
@cases("streamed", [True, False])
async def test_garbage(body: bytes, streamed: bool) -> None:
    reply = Reply(headers=STREAM, body=b"data: " + body + b"\n\n") if streamed else Reply(body=body)
    async with Script(on(tools_call=reply)).client() as client:
        with pytest.raises((InvalidResponse, OutcomeUnknown)):
            await client.call_tool("x")
        assert client.connected


@cases("identifier", [999, "2", None, -1])
async def test_the_answer_to_something_else(identifier: Any) -> None:
    reply = Reply(body=rpc(id=identifier, result={"resultType": "complete", "content": text("stolen")}))
    async with Script(on(tools_call=reply)).client() as client:
        with pytest.raises(InvalidResponse, match="something else than an answer"):
            await client.call_tool("x")


async def test_an_answer_to_a_call_on_the_stream_of_another() -> None:
    """It is nobody's answer: each call is answered where it was asked."""
    both, robbed = asyncio.Event(), asyncio.Event()

    async def call(request: Request) -> Reply:
        other = request.id + 1 if request.message["params"]["name"] == "thief" else request.id - 1
        if len(script.of("tools/call")) == 2:
            both.set()
        await both.wait()
        if request.message["params"]["name"] == "thief":
            stolen = rpc(id=other, result={"resultType": "complete", "content": text("stolen")})
            return stream(event(stolen), event(rpc(id=request.id, result={"resultType": "complete", "content": []})))
        await robbed.wait()
        return result(request, content=text("mine"))

    script = Script(on(tools_call=call))
    async with script.client() as client:
        thief, honest = (asyncio.create_task(client.call_tool(name)) for name in ("thief", "honest"))
        await thief
        robbed.set()
        assert (await honest).text == "mine"


async def test_the_same_answer_twice() -> None:
    def call(request: Request) -> Reply:
        first = rpc(id=request.id, result={"resultType": "complete", "content": text("first")})
        second = rpc(id=request.id, result={"resultType": "complete", "content": text("second")})
        return stream(event(first) + event(second), event(second))

    async with Script(on(tools_call=call)).client() as client:
        assert [(await client.call_tool("x")).text for _ in range(3)] == ["first"] * 3


async def test_nothing_at_all() -> None:
    async def silence(request: Request) -> Reply:
        await request.disconnected.wait()
        return Reply(499)

    async with Script(on(tools_call=silence)).client() as client:
        with pytest.raises(Timeout):
            await client.call_tool("x", timeout=0.05)


async def test_a_result_that_does_not_fit_the_tools_own_schema() -> None:
    shown = {
        **ONE_TOOL,
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
    script = Script(
        on(
            tools_list=lambda request: result(request, **listing(shown)),
            tools_call=lambda request: result(request, content=[], structuredContent={"n": "many"}),
        )
    )
    async with script.client() as client:
        await client.list_tools()
        for _ in range(2):
            with pytest.raises(InvalidResponse, match="does not fit the tool's output schema"):
                await client.call_tool("x")
    assert len(script.of("tools/list")) == 2, "the list is confirmed once"


async def test_a_result_that_fits_a_newer_schema_than_the_listed_one() -> None:
    """The server was replaced while the client may use the cached list for a minute."""
    kinds = iter(("integer", "string"))

    def listed(request: Any) -> Any:
        schema = {"type": "object", "properties": {"n": {"type": next(kinds)}}, "required": ["n"]}
        return result(request, **listing({**ONE_TOOL, "outputSchema": schema}, ttlMs=60_000))

    script = Script(
        on(
            tools_list=listed,
            tools_call=lambda request: result(request, content=[], structuredContent={"n": "many"}),
        )
    )
    async with script.client() as client:
        await client.list_tools()
        assert (await client.call_tool("x")).structured == {"n": "many"}


# --- without end ---


async def endless(piece: bytes) -> AsyncIterator[bytes]:
    while True:
        yield piece
        await asyncio.sleep(0)


@cases(
    "piece",
    [
        b": still here\n\n",
        b"data\n\n",
        event(rpc(method="notifications/message", params={"level": "info", "data": "x"})),
        event(rpc(method="notifications/progress", params={"progressToken": "another", "progress": 1})),
        event(rpc(id="q", method="sampling/createMessage", params={})),
        event(b"not json"),
    ],
)
async def test_a_stream_without_end_ends_with_the_deadline(piece: bytes) -> None:
    script = Script(on(tools_call=lambda request: Reply(headers=STREAM, body=endless(piece))))
    async with script.client() as client:
        tracemalloc.start()
        try:
            with pytest.raises(Timeout):
                await client.call_tool("x", timeout=0.3)
            assert tracemalloc.get_traced_memory()[1] < 50_000_000
        finally:
            tracemalloc.stop()


async def test_progress_without_end_has_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.connection.CEILING_SECONDS", 0.3)

    def call(request: Request) -> Reply:
        token = request.message["params"]["_meta"]["progressToken"]
        piece = event(rpc(method="notifications/progress", params={"progressToken": token, "progress": 1}))
        return Reply(headers=STREAM, body=endless(piece))

    async with Script(on(tools_call=call)).client() as client:
        with pytest.raises(Timeout):
            await client.call_tool("x", timeout=0.1, on_progress=lambda params: None)


@pytest.mark.parametrize("headers", [{"content-type": "application/json"}, STREAM])
async def test_a_body_without_end_is_cut_off(headers: dict[str, str]) -> None:
    script = Script(on(tools_call=lambda request: Reply(headers=headers, body=endless(b"data: x" * 1_000))))
    async with script.client(limit=1_000_000) as client:
        with pytest.raises(InvalidResponse, match="more than 1000000 bytes"):
            await client.call_tool("x", timeout=30)


async def test_questions_without_end_are_refused_within_bounds() -> None:
    async def questions(request: Request) -> AsyncIterator[bytes]:
        for number in range(20_000):
            yield event(rpc(id=number, method="sampling/createMessage", params={}))
        yield event(rpc(id=request.id, result={"content": text("done")}))

    async def answer(request: Request) -> Reply | None:
        if request.rpc == "answer":
            await request.disconnected.wait()
        if request.rpc == "tools/call":
            return Reply(headers=STREAM, body=questions(request))
        return initialized(request) if request.rpc == "initialize" else None

    script = Script(answer, modern=False)
    client = script.client()
    async with client:
        assert (await client.call_tool("x", timeout=30)).text == "done"
        assert len(script.of("answer")) < 5


# --- listings ---


async def test_a_hundred_thousand_tools() -> None:
    tools = [{**ONE_TOOL, "name": f"tool{number}"} for number in range(100_000)]
    whole = rpc(id=2, result=listing(*tools))
    script = Script(on(tools_list=lambda request: Reply(body=whole)))
    async with script.client(revision=MODERN) as client:
        with pytest.raises(InvalidResponse, match="tools/list gave more than 50000 entries"):
            await client.list_tools()


@pytest.mark.parametrize(("pages", "says"), [(["0"], None), ([], "more than 20 pages")])
async def test_pages_without_end(pages: list[str], says: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.listing.MAX_PAGES", 20)

    def tools(request: Request) -> Reply:
        cursor = pages[0] if pages else str(len(script.of("tools/list")))
        return result(request, **listing(ONE_TOOL, nextCursor=cursor))

    script = Script(on(tools_list=tools))
    async with script.client() as client:
        if says is None:
            assert len(await client.list_tools()) == 1
            assert len(script.of("tools/list")) == 2
        else:
            with pytest.raises(InvalidResponse, match=says):
                await client.list_tools()


async def test_a_listing_of_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.listing.MAX_BYTES", 10_000)
    fat = {**ONE_TOOL, "description": "x" * 3_000}

    def tools(request: Request) -> Reply:
        return result(request, **listing(fat, nextCursor=str(len(script.of("tools/list")))))

    script = Script(on(tools_list=tools))
    async with script.client() as client:
        with pytest.raises(InvalidResponse, match="more than 10000 bytes"):
            await client.list_tools()
    assert len(script.of("tools/list")) == 4


# --- elsewhere ---


@cases("status", [301, 302, 303, 307, 308])
@cases("location", ["http://169.254.169.254/latest/meta-data", "https://evil.example/mcp", "file:///etc"])
async def test_nobody_is_sent_elsewhere(status: int, location: str) -> None:
    script = Script(on(tools_call=Reply(status, {"location": location})))
    async with script.client(headers={"authorization": "Bearer secret"}) as client:
        # 303 is the answer to a request that was carried out (RFC 9110 section 15.4.4).
        with pytest.raises(OutcomeUnknown if status == 303 else Unreachable, match="which is not followed"):
            await client.call_tool("x")
    assert {request.headers["host"] for request in script.requests} == {"server.example"}


@cases("reply", [Reply(500, {}), Reply(200, body=b"{"), Reply(302, {"location": "http://10.0.0.1/"})])
async def test_no_group_of_exceptions_reaches_a_caller(reply: Reply) -> None:
    """Many calls fail at once, and each gets the one error that is its own."""
    async with Script(on(tools_call=reply)).client() as client:
        outcomes = await asyncio.gather(*[client.call_tool("x") for _ in range(10)], return_exceptions=True)
    assert all(isinstance(outcome, ToolwireError) for outcome in outcomes)
    assert not any(isinstance(outcome, BaseExceptionGroup) for outcome in outcomes)
    assert not any("cancel scope" in str(outcome) for outcome in outcomes)


async def test_raw_bytes_that_are_no_http() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises((OutcomeUnknown, Unreachable)):
        await Client(f"http://127.0.0.1:{port}/mcp").connect()
    server.close()


# --- errors that quote credentials ---


class NewTokens:
    """A sign-in with another token for each request."""

    def __init__(self) -> None:
        self.count = 0

    async def headers(self, method: str, url: str) -> dict[str, str]:
        self.count += 1
        return {"authorization": f"Bearer secret-{self.count}"}

    async def challenged(self, method: str, url: str, status: int, headers: Any) -> bool:
        return False


@cases("status", [401, 500])
async def test_error_does_not_quote_the_token_of_its_own_request(status: int) -> None:
    held: list[asyncio.Event] = []

    async def answer(request: Request) -> Reply | None:
        if request.rpc != "tools/call":
            return None
        quoted = request.headers["authorization"]
        held.append(asyncio.Event())
        if len(held) == 1:
            await held[0].wait()  # The other request has its token by then.
        else:
            held[0].set()
        return Reply(status, headers={"content-type": "text/plain"}, body=f"{quoted} has expired".encode())

    sign_in = NewTokens()
    async with Client(HttpTarget(URL, pool=AsgiPool(Script(answer)), auth=sign_in)) as client:
        errors = await asyncio.gather(client.call_tool("x"), client.call_tool("x"), return_exceptions=True)
    assert len(held) == 2
    for error in errors:
        assert isinstance(error, ToolwireError) and "has expired" in str(error), error
        assert "secret-" not in str(error)
