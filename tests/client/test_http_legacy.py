"""`Client(URL)` before 2026-07-28: handshake, sessions, the server's own stream, resumption, HTTP+SSE."""

from __future__ import annotations

import asyncio
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
    SignsIn,
    endless,
    event,
    initialized,
    on,
    refusal,
    rpc,
    stream,
    text,
    unanswered,
)

from toolwire.client import InvalidResponse
from toolwire.client.http_target import HttpTarget
from toolwire.http.client.channel import POST_SECONDS, SETTLING_SECONDS
from toolwire.protocol.errors import OutcomeUnknown, ProtocolError, Timeout, Unauthorized, Unreachable
from toolwire.testing import elapse

LATEST = "2025-11-25"


def legacy(session: str | None = "s-1", **answers: Any) -> Script:
    return Script(on(**answers), modern=False, session=session)


# --- falling back ---


@pytest.mark.covers("ERA-9", "3.3.1")
@pytest.mark.parametrize(
    "reply",
    [
        Reply(400, {}),
        Reply(404, {"content-type": "text/html"}, b"<html>"),
        Reply(405, {}),
        Reply(406, {}),
        Reply(400, body=rpc(error={"code": -32000, "message": "no session"})),
        Reply(400, body=rpc(error={"code": -32600, "message": "Missing session ID"}, id="server-error")),
        Reply(200, body=rpc(error={"code": -32601, "message": "no"}, id=1)),
        Reply(200, body=rpc(result={"tools": []}, id=1)),
        Reply(200, {"content-type": "text/html"}, b"hello"),
    ],
)
async def test_a_server_from_before_is_found_out(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    script = legacy(server_discover=reply)
    async with script.client() as client:
        assert client.revision == LATEST
        assert (await client.call_tool("x")).text == "ok"
    rpcs = [request.rpc for request in script.requests]
    assert rpcs[:3] == ["server/discover", "initialize", "notifications/initialized"]
    if reply.headers.get("content-type") == "application/json":
        # Nobody needs to hear of an older server that answers as one.
        assert "ignored a message" not in caplog.text


@pytest.mark.covers("ERA-10")
async def test_what_a_server_is_is_asked_once() -> None:
    script = legacy()
    client = script.client()
    for _ in range(2):
        async with client:
            pass
    assert [request.rpc for request in script.requests if request.method == "POST"] == [
        "server/discover",
        *["initialize", "notifications/initialized"] * 2,
    ]


async def test_a_verdict_that_no_longer_holds() -> None:
    old = True

    def answer(request: Request) -> Reply | None:
        if old:
            return initialized(request) if request.rpc == "initialize" else refusal(request, -32000, id=False)
        return refusal(request, -32601, 404) if request.rpc == "initialize" else None

    script = Script(answer)
    client = script.client()
    async with client:
        assert client.revision == LATEST
    old = False
    async with client:
        assert client.revision == "2026-07-28"


# --- sessions ---


@pytest.mark.covers("3.4.5.2", "3.4.6.1", "1.3.2.7", "2.1.8")
async def test_the_session_and_the_version_go_with_everything_but_the_handshake() -> None:
    script = legacy()
    async with script.client() as client:
        await client.call_tool("x")
    handshake = script.of("initialize")[0]
    assert "mcp-session-id" not in handshake.headers
    assert "mcp-protocol-version" not in handshake.headers
    later = script.requests[script.requests.index(handshake) + 1 :]
    assert {request.rpc for request in later} == {"notifications/initialized", "GET", "tools/call", "DELETE"}
    for request in later:
        assert request.headers["mcp-session-id"] == "s-1"
        assert request.headers["mcp-protocol-version"] == LATEST
        assert "mcp-method" not in request.headers


@pytest.mark.parametrize(("revision", "header"), [("2025-03-26", None), ("2025-06-18", "2025-06-18")])
async def test_the_version_header_came_with_2025_06_18(revision: str, header: str | None) -> None:
    script = legacy(initialize=lambda request: initialized(request, revision=revision))
    async with script.client() as client:
        await client.call_tool("x")
    assert script.of("tools/call")[0].headers.get("mcp-protocol-version") == header


async def test_a_server_without_sessions() -> None:
    script = legacy(session=None)
    async with script.client() as client:
        assert (await client.call_tool("x")).text == "ok"
    assert all("mcp-session-id" not in request.headers for request in script.requests)
    assert not script.of("DELETE")


@cases("given", ["", "a b", "é", "x" * 5_000])
async def test_a_session_id_that_may_not_be_sent(given: str) -> None:
    script = legacy(initialize=lambda request: initialized(request, session=given))
    with pytest.raises(InvalidResponse, match="session id"):
        await script.client().connect()


@pytest.mark.covers("3.4.5.4")
@cases(
    "gone",
    [
        Reply(404, {}),
        Reply(404, body=rpc(error={"code": -32600, "message": "Session not found"}, id="server-error")),
        Reply(400, body=rpc(error={"code": -32000, "message": "Bad Request: No valid session ID provided"}, id=None)),
    ],
)
async def test_a_session_that_ended_is_begun_again_for_all_at_once(gone: Reply) -> None:
    given = iter(["s-1", "s-2"])
    script = legacy(
        initialize=lambda request: initialized(request, session=next(given)),
        tools_call=lambda request: gone if request.headers["mcp-session-id"] == "s-1" else None,
    )
    async with script.client() as client:
        results = await asyncio.gather(*[client.call_tool("x") for _ in range(5)])
        assert [each.text for each in results] == ["ok"] * 5
    assert len(script.of("initialize")) == 2
    assert "mcp-session-id" not in script.of("initialize")[1].headers
    assert len(script.of("tools/call")) == 10
    assert [request.headers["mcp-session-id"] for request in script.of("DELETE")] == ["s-2"]


async def test_a_new_session_is_set_up_like_the_one_before() -> None:
    given = iter(["s-1", "s-2"])

    def hello(request: Request) -> Reply:
        reply = initialized(request, session=next(given))
        assert isinstance(reply.body, bytes)
        reply.body = reply.body.replace(b'"tools":', b'"logging":{},"tools":')
        return reply

    script = legacy(
        initialize=hello,
        tools_call=lambda request: Reply(404, {}) if request.headers["mcp-session-id"] == "s-1" else None,
    )
    async with script.client() as client:
        await client.set_level("error")
        await client.subscribe("memo://a")
        await client.call_tool("x")
    second = [request for request in script.requests if request.headers.get("mcp-session-id") == "s-2"]
    assert {"logging/setLevel", "resources/subscribe"} <= {request.rpc for request in second}


async def test_no_end_of_beginning_again() -> None:
    script = legacy(tools_call=Reply(404, {}))
    async with script.client() as client:
        with pytest.raises(Unreachable, match="ended the session"):
            await client.call_tool("x")
    assert len(script.of("initialize")) == 2


# --- what the server asks and says ---


@pytest.mark.parametrize("revision", ["2025-06-18", LATEST])
async def test_questions_on_the_stream_of_a_call_are_answered_by_post(revision: str) -> None:
    answered = asyncio.Event()

    async def call(request: Request) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            yield event(rpc(id="q", method="roots/list"))
            await answered.wait()
            yield event(rpc(id=request.id, result={"content": text("done")}))

        return Reply(headers=STREAM, body=body())

    def answer(request: Request) -> Any:
        if request.rpc == "answer":
            assert request.message["id"] == "q"
            answered.set()
            return Reply(202, {})
        if request.rpc == "initialize":
            return initialized(request, revision=revision)
        return call(request) if request.rpc == "tools/call" else None

    script = Script(answer, modern=False)
    async with script.client(roots=["file:///a"]) as client:
        assert (await client.call_tool("x")).text == "done"
    assert script.of("answer")[0].message["result"]["roots"][0]["uri"] == "file:///a"


class Asking:
    """A server that asks in the middle of a call, and does with the posts of the answer what the test says."""

    def __init__(self, *posts: Any) -> None:
        self._posts = list(posts)
        self.answered = asyncio.Event()
        self.script = Script(self._answer, modern=False)

    def _answer(self, request: Request) -> Any:
        if request.rpc == "tools/call":
            return Reply(headers=STREAM, body=self._call(request))
        if request.rpc not in ("answer", "notifications/cancelled"):
            return None
        if self._posts:
            post = self._posts.pop(0)
            return post(request) if callable(post) else post
        self.answered.set()
        return Reply(202, {})

    async def _call(self, request: Request) -> AsyncIterator[bytes]:
        yield event(rpc(id="q", method="roots/list"))
        await self.answered.wait()
        yield event(rpc(id=request.id, result={"content": text("done")}))


BUSY = Reply(503, {"retry-after": "7"})


async def pass_time(seconds: float) -> None:
    """Let the client read what has arrived, so that its pauses begin, and then let time pass."""
    for _ in range(100):
        await asyncio.sleep(0)
    await elapse(seconds)


@cases("posts", [[BUSY] * 6, [Reply(429, {"retry-after": "1"})], [Reply(500, {})] * 9, [unanswered] * 2])
async def test_answer_is_posted_until_the_server_accepts_it(posts: list[Any]) -> None:
    server = Asking(*posts)
    async with server.script.client(roots=["file:///a"], timeout=3600) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        for number in range(len(posts)):
            await server.script.until("answer", number + 1)
            await pass_time(10.0)
        await server.answered.wait()
        assert (await calling).text == "done"


async def test_retry_after_of_a_refused_answer_is_respected() -> None:
    server = Asking(BUSY)
    async with server.script.client(roots=["file:///a"]) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        await server.script.until("answer")
        await pass_time(6.5)
        assert len(server.script.of("answer")) == 1
        await pass_time(1.0)
        assert (await calling).text == "done"


async def test_requests_do_not_wait_for_an_answer_that_is_repeated() -> None:
    server = Asking(BUSY)
    async with server.script.client(roots=["file:///a"]) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        await server.script.until("answer")
        await client.ping()
        await pass_time(10.0)
        assert (await calling).text == "done"


@cases("status", [400, 403, 404])
async def test_call_ends_with_the_error_that_keeps_its_answer_from_arriving(status: int) -> None:
    server = Asking(Reply(status, {}))
    async with server.script.client(roots=["file:///a"]) as client:
        with pytest.raises(OutcomeUnknown, match=f"answer to a question of tools/call did not arrive.*{status}"):
            await client.call_tool("x")


async def test_answer_is_repeated_no_longer_than_its_call_lasts() -> None:
    server = Asking(*[BUSY] * 100)
    async with server.script.client(roots=["file:///a"]) as client:
        calling = asyncio.create_task(client.call_tool("x", timeout=15))
        await server.script.until("answer")
        await pass_time(15.0)
        with pytest.raises(Timeout):
            await calling
        await server.script.until("notifications/cancelled")
        answers = len(server.script.of("answer"))
        await pass_time(60.0)
        assert len(server.script.of("answer")) == answers


async def test_cancellation_is_posted_until_the_server_accepts_it() -> None:
    server = Asking(Reply(202, {}), *[BUSY] * 3)
    async with server.script.client(roots=["file:///a"]) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        await server.script.until("answer")
        calling.cancel()
        for number in range(4):
            await server.script.until("notifications/cancelled", number + 1)
            await pass_time(10.0)
        await server.answered.wait()


@pytest.mark.covers("1.1.1.5")
async def test_a_batch_in_an_event() -> None:
    def call(request: Request) -> Reply:
        batch = (
            b"["
            + rpc(method="notifications/tools/list_changed")
            + b","
            + rpc(id=request.id, result={"content": text("in a batch")})
            + b"]"
        )
        return stream(event(batch))

    script = legacy(initialize=lambda request: initialized(request, revision="2025-03-26"), tools_call=call)
    async with script.client() as client:
        assert (await client.call_tool("x")).text == "in a batch"


async def test_the_servers_own_stream_is_open_before_the_first_call() -> None:
    heard = asyncio.Event()

    def get(request: Request) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            yield event(rpc(method="notifications/tools/list_changed"))
            await asyncio.Event().wait()

        return Reply(headers=STREAM, body=body())

    script = legacy(GET=get)
    async with script.client() as client, client.listen(tools=True) as changes:
        async for change in changes:
            assert change.kind == "tools"
            heard.set()
            break
        await client.call_tool("x")
    rpcs = [request.rpc for request in script.requests]
    assert rpcs.index("notifications/initialized") < rpcs.index("GET") < rpcs.index("tools/call")


async def test_a_server_that_sends_no_headers_for_its_stream_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.http.client.channel.OPENING_SECONDS", 0.01)

    async def get(request: Request) -> Reply:
        await request.disconnected.wait()
        return Reply(499)

    async with legacy(GET=get).client() as client:
        assert (await client.call_tool("x")).text == "ok"


async def test_the_servers_own_stream_is_not_read_for_ever_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)

    async def get(request: Request) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            yield b":\n" * 1_000
            await request.disconnected.wait()

        return Reply(headers=STREAM, body=body())

    script = legacy(GET=get)
    async with script.client(limit=1_000):
        await script.until("GET", 2)


async def test_a_notification_that_is_never_answered_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    script = legacy(notifications_initialized=unanswered)
    async with script.client() as client:
        calling = asyncio.create_task(client.call_tool("x"))
        posted = await script.until("notifications/initialized")
        await elapse(SETTLING_SECONDS)
        assert (await calling).text == "ok"
        assert not posted.disconnected.is_set()
        await elapse(POST_SECONDS)
        await posted.disconnected.wait()
        await script.until("GET")
    assert "did not confirm a notification" in caplog.text


async def test_a_notification_has_arrived_when_it_is_accepted() -> None:
    """Some servers answer it with a stream that brings nothing and stays open."""
    script = legacy(notifications_initialized=endless)
    async with script.client() as client:
        assert (await client.call_tool("x")).text == "ok"
        await script.of("notifications/initialized")[0].disconnected.wait()


async def test_signing_in_for_a_notification_may_take_its_time() -> None:
    def notified(request: Request) -> Reply:
        return Reply(202 if "authorization" in request.headers else 401, {})

    script = legacy(notifications_initialized=notified)
    async with script.client(auth=SignsIn(10 * POST_SECONDS)) as client:
        await client.call_tool("x")
    assert [request.headers.get("authorization") for request in script.of("notifications/initialized")] == [
        None,
        "Bearer x",
    ]


async def test_the_servers_stream_comes_back_where_it_broke_off() -> None:
    def get(request: Request) -> Reply:
        if len(script.of("GET")) == 1:
            return stream(event(rpc(method="notifications/tools/list_changed"), id="7", retry=1))

        async def body() -> AsyncIterator[bytes]:
            yield event(rpc(method="notifications/tools/list_changed"), id="8")
            await asyncio.Event().wait()

        return Reply(headers=STREAM, body=body())

    script = legacy(GET=get)
    async with script.client():
        again = await script.until("GET", 2)
        assert again.headers["last-event-id"] == "7"
        assert again.headers["mcp-session-id"] == "s-1"


async def test_a_stream_that_returns_without_replay_counts_as_changed() -> None:
    more = asyncio.Event()

    def get(request: Request) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            if len(script.of("GET")) == 1:
                await more.wait()
                return
            await asyncio.Event().wait()

        return Reply(headers=STREAM, body=body())

    script = legacy(GET=get)
    async with script.client() as client, client.listen(tools=True) as changes:
        more.set()
        async for change in changes:
            assert change.kind == "tools"
            break
    assert len(script.of("GET")) == 2


async def test_listener_starts_anew_where_the_server_lost_the_events_of_its_stream() -> None:
    def get(request: Request) -> Reply:
        if len(script.of("GET")) == 1:
            return stream(event(b"", id="7", retry=1))
        if "last-event-id" in request.headers:
            return Reply(400, {})

        async def body() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            await asyncio.Event().wait()

        return Reply(headers=STREAM, body=body())

    script = legacy(GET=get)
    async with script.client() as client, client.listen(tools=True) as changes:
        async for change in changes:
            assert change.kind == "tools", "what was missed is unknown"
            break
    assert [each.headers.get("last-event-id") for each in script.of("GET")] == [None, "7", None]


async def test_listening_survives_the_end_of_a_session() -> None:
    given = iter(["s-1", "s-2"])
    more = asyncio.Event()

    def get(request: Request) -> Reply:
        if request.headers["mcp-session-id"] == "s-1" and len(script.of("GET")) > 1:
            return Reply(404, {})

        async def body() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            if request.headers["mcp-session-id"] == "s-1":
                await more.wait()
                return
            await asyncio.Event().wait()

        return Reply(headers=STREAM, body=body())

    script = legacy(initialize=lambda request: initialized(request, session=next(given)), GET=get)
    async with script.client() as client, client.listen(tools=True) as changes:
        more.set()
        async for change in changes:
            assert change.kind == "tools"
            break
    assert len(script.of("initialize")) == 2


# --- streams taken up again ---


@pytest.mark.covers("T-35", "2.1.13", "3.4.4.10")
async def test_a_stream_is_taken_up_again_after_the_time_the_server_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    def get(request: Request) -> Reply:
        if "last-event-id" not in request.headers:
            return Reply(405, {})
        if request.headers["last-event-id"] == "a":
            return stream(event(rpc(method="notifications/message", params={"level": "info", "data": 1}), id="b"))
        return stream(event(rpc(id=script.of("tools/call")[0].id, result={"content": text("at last")}), id="c"))

    script = legacy(GET=get, tools_call=lambda request: stream(event(b"", id="a", retry=1_234)))
    async with script.client(headers={"authorization": "Bearer x"}) as client:
        monkeypatch.setattr("toolwire.http.client.session.asyncio.sleep", note)
        assert (await client.call_tool("x")).text == "at last"
    assert [seconds for seconds in slept if seconds] == [1.234, 1.234]
    resumed = [request for request in script.of("GET") if "last-event-id" in request.headers]
    assert [request.headers["last-event-id"] for request in resumed] == ["a", "b"]
    for request in resumed:
        assert request.headers["mcp-session-id"] == "s-1"
        assert request.headers["mcp-protocol-version"] == LATEST
        assert request.headers["authorization"] == "Bearer x"
        assert request.headers["accept"] == "text/event-stream"
    assert len(script.of("tools/call")) == 1


async def test_the_stream_of_the_handshake_is_taken_up_again() -> None:
    """In the session that it began, and without the version that is not agreed yet."""

    def get(request: Request) -> Reply:
        if "last-event-id" not in request.headers:
            return Reply(405, {})
        reply = initialized(script.of("initialize")[0])
        assert isinstance(reply.body, bytes)
        return stream(event(reply.body, id="b"))

    script = legacy(GET=get, initialize=stream(event(b"", id="a", retry=0), headers={"mcp-session-id": "s-1"}))
    async with script.client() as client:
        assert client.revision == LATEST
    resumed = script.of("GET")[0]
    assert resumed.headers["mcp-session-id"] == "s-1"
    assert "mcp-protocol-version" not in resumed.headers


async def test_a_stream_that_can_not_be_taken_up_again() -> None:
    script = legacy(tools_call=lambda request: stream(event(b"", id="a", retry=1)))
    async with script.client() as client:
        with pytest.raises(OutcomeUnknown, match="broke off for good"):
            await client.call_tool("x")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_stream_is_taken_up_again_when_the_server_has_room_for_it(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)

    def get(request: Request) -> Reply:
        if "last-event-id" not in request.headers:
            return Reply(405, {})
        resumed.append(request)
        if len(resumed) < 3:
            return Reply(status, {})
        return stream(event(rpc(id=script.of("tools/call")[0].id, result={"content": text("at last")}), id="b"))

    resumed: list[Request] = []
    script = legacy(GET=get, tools_call=lambda request: stream(event(b"", id="a", retry=1)))
    async with script.client() as client:
        assert (await client.call_tool("x")).text == "at last"


async def test_a_stream_without_ids_is_lost() -> None:
    script = legacy(tools_call=lambda request: stream(b": hello\n\n"))
    async with script.client() as client:
        with pytest.raises(OutcomeUnknown, match="before it answered"):
            await client.call_tool("x")
    assert len(script.of("tools/call")) == 1


async def test_a_stream_that_never_brings_anything_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)
    script = legacy(
        GET=lambda request: stream(b": nothing\n\n") if "last-event-id" in request.headers else Reply(405, {}),
        tools_call=lambda request: stream(event(b"", id="a", retry=1)),
    )
    async with script.client() as client:
        with pytest.raises(OutcomeUnknown, match="could not be taken up again"):
            await client.call_tool("x", timeout=20)
    assert len(script.of("GET")) < 10


async def test_giving_up_is_said() -> None:
    async def call(request: Request) -> Reply:
        await request.disconnected.wait()
        return Reply(499)

    script = legacy(tools_call=call)
    async with script.client() as client:
        calling = asyncio.create_task(client.call_tool("x", timeout=5))
        request = await script.until("tools/call")
        await elapse(5)
        with pytest.raises(Timeout):
            await calling
        said = await script.until("notifications/cancelled")
        assert said.message["params"]["requestId"] == request.id


async def test_closing_cancels_what_is_in_flight() -> None:
    script = legacy(tools_call=unanswered)
    async with script.client() as client:
        calling = asyncio.create_task(client.call_tool("x"))
        request = await script.until("tools/call")
    with pytest.raises(OutcomeUnknown):
        await calling
    assert [said.message["params"]["requestId"] for said in script.of("notifications/cancelled")] == [request.id]
    assert script.requests[-1].rpc == "DELETE"


# --- HTTP+SSE ---


def old_server(messages: str = "/messages?sid=1", queue: asyncio.Queue[bytes] | None = None, **answers: Any) -> Script:
    """A server of 2024-11-05: answers come on the stream, whatever is posted; so does what is put into `queue`."""
    queue = queue or asyncio.Queue()

    def answer(request: Request) -> Any:
        if request.method == "GET":

            async def body() -> AsyncIterator[bytes]:
                yield event(messages.encode(), event="endpoint")
                while True:
                    yield await queue.get()

            return Reply(headers=STREAM, body=body())
        if request.path != "/messages":
            return Reply(405, {})
        found = on(**answers)(request)
        if found is not None:
            return found
        if request.rpc == "initialize":
            reply = initialized(request, session=None, revision="2024-11-05")
            queue.put_nowait(event(reply.body))  # type: ignore[arg-type]
        elif request.id is not None:
            queue.put_nowait(event(rpc(id=request.id, result={"content": text("by stream")})))
        return Reply(202, {})

    return Script(answer)


@pytest.mark.covers("3.3.2", "2.1.17", "R1")
async def test_http_and_sse_is_the_last_resort() -> None:
    script = old_server()
    client = script.client()
    async with client:
        assert client.revision == "2024-11-05"
        assert (await client.call_tool("x")).text == "by stream"
    assert [request.rpc for request in script.requests][:3] == ["server/discover", "initialize", "GET"]
    script.requests.clear()
    async with client:  # And is remembered.
        pass
    assert script.requests[0].method == "GET"


@pytest.mark.parametrize("revision", [None, LATEST])
async def test_a_server_that_no_longer_speaks_http_and_sse(revision: str | None) -> None:
    upgraded, before = False, old_server()._answer
    client = Script(lambda request: None if upgraded else before(request), modern=False).client()
    async with client:
        assert client.revision == "2024-11-05"
    upgraded = True
    client._connector._opener.pinned = revision
    async with client:
        assert client.revision == LATEST
    async with client:  # And is remembered.
        assert client.revision == LATEST


async def test_a_server_with_http_and_sse_that_is_busy_is_still_one() -> None:
    busy, usual = False, old_server()._answer
    script = Script(lambda request: Reply(503, {}) if busy else usual(request))
    client = script.client()
    async with client:
        pass
    busy = True
    with pytest.raises(Unreachable, match="503"):
        await client.connect()
    busy = False
    script.requests.clear()
    async with client:
        assert script.requests[0].method == "GET"


def test_what_is_known_of_a_url_is_not_known_of_one_with_another_query() -> None:
    one, other = HttpTarget("https://server.example/mcp"), HttpTarget("https://server.example/mcp?tenant=other")
    one.verdict = "sse"
    try:
        assert (HttpTarget("https://server.example/mcp").verdict, other.verdict) == ("sse", None)
    finally:
        one.verdict = None


@pytest.mark.covers("3.3.4")
async def test_a_refused_handshake_without_a_stream_is_what_it_says() -> None:
    script = legacy(initialize=lambda request: refusal(request, -32602))
    with pytest.raises(Unreachable, match="no \\(code -32602\\)"):
        await script.client().connect()
    assert len(script.of("GET")) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_handshake_for_want_of_credentials(status: int) -> None:
    script = legacy(initialize=Reply(status, {}))
    with pytest.raises(Unauthorized):
        await script.client().connect()
    assert not script.of("GET")


@cases("status", [500, 406, 409])
async def test_other_refusals_do_not_fall_back(status: int) -> None:
    script = legacy(initialize=Reply(status, {}))
    with pytest.raises((Unreachable, OutcomeUnknown)):
        await script.client().connect()
    assert not script.of("GET")


async def test_an_endpoint_of_another_origin_gets_nothing() -> None:
    script = old_server("http://evil.example/messages")
    with pytest.raises(Unreachable):
        await script.client(headers={"authorization": "Bearer secret"}).connect()
    assert all(request.path == "/mcp" for request in script.requests)


async def test_a_message_that_does_not_arrive_ends_the_connection() -> None:
    script = old_server(tools_call=Reply(500, {}))
    async with script.client() as client:
        with pytest.raises(OutcomeUnknown, match="status 500"):
            await client.call_tool("x")
        assert (await client.request("ping")) is not None


async def test_a_server_may_answer_a_post_when_it_has_handled_the_message() -> None:
    """As servers made with the Java SDK do: calls run at once, and what they ask is answered meanwhile."""
    said: asyncio.Queue[bytes] = asyncio.Queue()
    answered = asyncio.Event()
    calls = 0

    async def call(request: Request) -> Reply:
        nonlocal calls
        calls += 1
        if calls == 2:
            said.put_nowait(event(rpc(id="q", method="roots/list")))
        await answered.wait()
        said.put_nowait(event(rpc(id=request.id, result={"content": text("done")})))
        return Reply(200, {})

    def answer(request: Request) -> Reply:
        answered.set()
        return Reply(200, {})

    async with old_server(queue=said, tools_call=call, answer=answer).client(roots=["file:///a"]) as client:
        results = await asyncio.gather(client.call_tool("x"), client.call_tool("y"))
    assert [each.text for each in results] == ["done", "done"]


async def test_a_stream_that_brings_no_events_is_not_read_for_ever() -> None:
    said: asyncio.Queue[bytes] = asyncio.Queue()
    script = old_server(queue=said, tools_call=lambda request: said.put_nowait(b":\n" * 1_000) or Reply(202, {}))
    async with script.client(limit=1_000) as client:
        with pytest.raises(OutcomeUnknown, match="more than 1000 bytes"):
            await client.call_tool("x")


async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    seen: list[str] = []

    async def notified(request: Request) -> Reply:
        for _ in range(5):
            await asyncio.sleep(0)
        seen.extend(each.rpc for each in script.requests)
        return Reply(202, {})

    script = old_server(notifications_initialized=notified)
    async with script.client() as client:
        await asyncio.gather(client.call_tool("x"), client.call_tool("y"))
    assert seen[-1] == "notifications/initialized"


async def test_an_error_is_an_error_on_every_transport() -> None:
    script = legacy(tools_call=lambda request: refusal(request, -32602, 200))
    async with script.client() as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("x")
    assert caught.value.code == -32602
    assert URL.endswith("/mcp")
