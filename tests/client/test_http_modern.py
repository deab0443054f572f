"""`Client(URL)` on 2026-07-28: each request is a POST of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.cases import cases
from tests.client.scripted_http import (
    DISCOVERED,
    URL,
    Reply,
    Request,
    Script,
    event,
    initialized,
    on,
    refusal,
    result,
    rpc,
    stream,
    text,
    unanswered,
)

from toolwire.client import Change, InvalidResponse, Pins, ToolChanged
from toolwire.client.http_target import SILENCE_SECONDS
from toolwire.client.negotiation import LATE_SECONDS
from toolwire.client.reconnect import ATTEMPTS
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Timeout, Unauthorized, Unreachable
from toolwire.protocol.lifecycle.negotiation import NoCommonRevision
from toolwire.testing import elapse
from toolwire.util.backoff import SETTLED_SECONDS
from toolwire.wire.deadlines import LOOK_EVERY

MODERN = "2026-07-28"


@pytest.mark.covers("HTTP-5", "HTTP-6", "HTTP-7", "ERA-6")
async def test_every_request_is_a_post_with_its_headers() -> None:
    script = Script(lambda request: None)
    async with script.client() as client:
        assert client.revision == MODERN
        assert (await client.call_tool("add", {"a": 1})).text == "ok"
    assert [request.rpc for request in script.requests] == ["server/discover", "tools/call"]
    for request in script.requests:
        assert request.method == "POST"
        assert request.headers["content-type"] == "application/json"
        assert {kind.strip() for kind in request.headers["accept"].split(",")} == {
            "application/json",
            "text/event-stream",
        }
        assert request.headers["mcp-protocol-version"] == MODERN
        assert request.headers["mcp-method"] == request.rpc
        assert request.message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN
        assert "mcp-session-id" not in request.headers
    assert script.requests[1].headers["mcp-name"] == "add"
    assert "mcp-name" not in script.requests[0].headers


@pytest.mark.parametrize(("timeout", "longest"), [(2, 2), (60, SILENCE_SECONDS)])
async def test_request_times_out_when_server_is_silent(timeout: float, longest: float) -> None:
    script = Script(unanswered)
    connecting = asyncio.create_task(script.client(timeout=timeout, probe_timeout=1).connect())
    await script.until("server/discover")
    await elapse(longest / 2)
    await script.until("initialize")
    await elapse(LOOK_EVERY)
    await elapse(timeout)
    await elapse(LATE_SECONDS)
    with pytest.raises(Timeout, match="initialize"):
        async with asyncio.timeout(10):
            await connecting


async def test_older_handshake_is_tried_when_server_is_silent_about_its_revision() -> None:
    script = Script(on(server_discover=unanswered), modern=False)
    connecting = asyncio.create_task(script.client().connect())
    probe = await script.until("server/discover")
    await elapse(SILENCE_SECONDS / 2)
    async with asyncio.timeout(10):
        client = await connecting
    assert client.revision == "2025-11-25"
    await probe.disconnected.wait()
    await client.close()
    assert not script.of("notifications/cancelled")


@pytest.mark.parametrize("dual", [False, True])
async def test_slow_modern_server_is_not_taken_for_an_older_one(dual: bool) -> None:
    ready = asyncio.Event()

    async def slow(request: Request) -> Reply:
        await ready.wait()
        return result(request, **DISCOVERED)

    async def old(request: Request) -> Reply:
        ready.set()
        await asyncio.sleep(0)
        return initialized(request) if dual else Reply(404, {})

    script = Script(on(server_discover=slow, initialize=old))
    connecting = asyncio.create_task(script.client().connect())
    await script.until("server/discover")
    await elapse(SILENCE_SECONDS / 2)
    async with asyncio.timeout(10):
        client = await connecting
    assert client.revision == MODERN
    await client.close()


@pytest.mark.covers("HDR-2")
@cases(
    ("name", "header"),
    [
        ("plain name", "plain name"),
        ("naïve", "=?base64?bmHDr3Zl?="),
        (" x", "=?base64?IHg=?="),
        ("a\tb", "=?base64?YQli?="),
    ],
)
async def test_names_that_are_no_plain_text_are_encoded(name: str, header: str) -> None:
    script = Script(on(prompts_get=lambda request: result(request, messages=[])))
    async with script.client() as client:
        await client.call_tool(name)
        await client.get_prompt(name)
        await client.request("tools/call", {"name": name})
    assert [request.headers["mcp-name"] for request in script.requests[1:]] == [header] * 3


async def test_uris_go_as_they_are() -> None:
    script = Script(on(resources_read=lambda request: result(request, contents=[], ttlMs=0, cacheScope="private")))
    async with script.client() as client:
        await client.read_resource("file:///a%20b?x=1&y=2")
    assert script.requests[-1].headers["mcp-name"] == "file:///a%20b?x=1&y=2"


async def test_a_session_id_means_nothing_here() -> None:
    script = Script(
        lambda request: Reply(
            headers={"content-type": "application/json", "mcp-session-id": "x"},
            body=rpc(id=request.id, result={"resultType": "complete", **DISCOVERED, "content": text("ok")}),
        )
    )
    async with script.client() as client:
        await client.call_tool("x")
    assert "mcp-session-id" not in script.requests[-1].headers
    assert not script.of("DELETE")


# --- answers ---


@pytest.mark.covers("HTTP-10", "SSE-6")
async def test_an_answer_may_be_a_stream() -> None:
    def call(request: Request) -> Reply:
        token = request.message["params"]["_meta"]["progressToken"]
        progress = rpc(method="notifications/progress", params={"progressToken": token, "progress": 1})
        answer = event(rpc(id=request.id, result={"resultType": "complete", "content": text("streamed")}))
        whole = b": ping\n\n" + event(progress) + b"event: other\ndata: {}\n\n:\n\n" + answer
        return stream(*(whole[i : i + 7] for i in range(0, len(whole), 7)))

    seen: list[float] = []
    script = Script(on(tools_call=call))
    async with script.client() as client:
        got = await client.call_tool("x", on_progress=lambda params: seen.append(params.progress))
    assert (got.text, seen) == ("streamed", [1])


@pytest.mark.covers("HTTP-13")
@cases("with_id", [True, False])
@cases(("status", "code"), [(404, -32601), (400, -32602), (400, -32021), (500, -32603), (200, 7)])
async def test_the_error_in_the_body_counts(status: int, code: int, with_id: bool) -> None:
    script = Script(on(tools_call=lambda request: refusal(request, code, status, id=with_id, why="x")))
    async with script.client() as client:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("x")
        assert (caught.value.code, caught.value.data) == (code, {"why": "x"})
        assert client.connected


@cases(
    ("reply", "error"),
    [
        (Reply(202, {}), InvalidResponse),
        (Reply(200, {"content-type": "text/html"}, b"<html>"), InvalidResponse),
        (Reply(200, body=b"{"), InvalidResponse),
        (Reply(200, body=b"[]"), InvalidResponse),
        (Reply(200, body=rpc(id=999, result={})), InvalidResponse),
        (Reply(200, body=rpc(method="notifications/message", params={})), InvalidResponse),
        (Reply(404, {"content-type": "text/html"}, b"<html>secret"), Unreachable),
        (Reply(413, {"content-type": "text/plain"}, b"too big"), Unreachable),
        (Reply(500, {}), OutcomeUnknown),
        (Reply(502, {}), OutcomeUnknown),
        (Reply(307, {"location": "http://169.254.169.254/"}), Unreachable),
        (Reply(400, body=b"[" * 1000), Unreachable),
    ],
)
async def test_answers_that_are_none(reply: Reply, error: type[Exception]) -> None:
    script = Script(on(tools_call=reply))
    async with script.client() as client:
        with pytest.raises(error) as caught:
            await client.call_tool("x")
        assert "secret" not in str(caught.value)
        if isinstance(caught.value, Unreachable | OutcomeUnknown):
            assert (caught.value.status, caught.value.url) == (reply.status, URL)


async def test_an_error_quotes_no_cookie_and_no_header_of_one_call() -> None:
    secrets = ("value-of-the-cookie", "token-of-one-call")
    replies = (
        Reply(307, {"location": f"http://127.0.0.1:9/{'/'.join(secrets)}"}),
        Reply(500, {"content-type": "text/plain"}, " ".join(secrets).encode()),
    )
    script = Script(on(tools_call=lambda request: replies[len(script.of("tools/call")) - 1]))
    async with script.client(headers={"Cookie": f"lang=de; sid={secrets[0]}"}) as client:
        for error in (Unreachable, OutcomeUnknown):
            with pytest.raises(error) as caught:
                await client.call_tool("x", headers={"X-User-Token": secrets[1]})
            assert not any(secret in str(caught.value) for secret in secrets)


@pytest.mark.covers("SSE-7")
@pytest.mark.parametrize("ids", [False, True])
async def test_a_stream_that_breaks_off_is_not_taken_up(ids: bool) -> None:
    script = Script(on(tools_call=lambda request: stream(event(b"", id="e1" if ids else ""))))
    async with script.client() as client:
        with pytest.raises(OutcomeUnknown, match="before it answered tools/call"):
            await client.call_tool("x")
    assert len(script.of("tools/call")) == 1
    assert not script.of("GET")


@pytest.mark.parametrize("reply", [Reply(body=b"x" * 5_000), stream(b"data: " + b"x" * 5_000 + b"\n\n")])
async def test_the_outcome_of_a_call_is_unknown_when_its_answer_is_over_the_limit(reply: Reply) -> None:
    script = Script(on(tools_call=reply))
    async with script.client(limit=1_000) as client:
        with pytest.raises(OutcomeUnknown, match="more than 1000 bytes") as raised:
            await client.call_tool("x")
    assert isinstance(raised.value, InvalidResponse)
    assert len(script.of("tools/call")) == 1


@pytest.mark.parametrize("reply", [Reply(body=b"x" * 5_000), stream(b"data: " + b"x" * 5_000 + b"\n\n")])
async def test_a_read_is_sent_once_when_its_answer_is_over_the_limit(reply: Reply) -> None:
    script = Script(on(resources_read=reply))
    async with script.client(limit=1_000) as client:
        with pytest.raises(OutcomeUnknown, match="more than 1000 bytes"):
            await client.read_resource("file:///x")
    assert len(script.of("resources/read")) == 1


# --- cancelling ---


async def forever(request: Request) -> Reply:
    async def body() -> AsyncIterator[bytes]:
        yield b": waiting\n\n"
        await asyncio.Event().wait()

    return Reply(headers={"content-type": "text/event-stream"}, body=body())


@pytest.mark.covers("HTTP-12")
@pytest.mark.parametrize("streams", [True, False])
async def test_cancelling_closes_the_connection_and_says_nothing(streams: bool) -> None:
    async def silent(request: Request) -> Reply:
        await request.disconnected.wait()
        return Reply(499)

    script = Script(on(tools_call=forever if streams else silent))
    async with script.client() as client:
        calling = asyncio.ensure_future(client.call_tool("x"))
        request = await script.until("tools/call")
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await request.disconnected.wait()
    assert not script.of("notifications/cancelled")


async def test_a_deadline_closes_the_connection() -> None:
    script = Script(on(tools_call=forever))
    async with script.client() as client:
        calling = asyncio.create_task(client.call_tool("x", timeout=5))
        request = await script.until("tools/call")
        await elapse(5)
        with pytest.raises(Timeout, match="x: tools/call was not answered within 5 seconds"):
            await calling
        await request.disconnected.wait()


async def test_progress_restarts_the_clock() -> None:
    told = asyncio.Event()

    async def call(request: Request) -> Reply:
        token = request.message["params"]["_meta"]["progressToken"]

        async def body() -> AsyncIterator[bytes]:
            for step in range(4):
                params = {"progressToken": token, "progress": step}
                yield event(rpc(method="notifications/progress", params=params))
                await told.wait()
                told.clear()
                await elapse(3)
            yield event(rpc(id=request.id, result={"resultType": "complete", "content": text("late")}))

        return Reply(headers={"content-type": "text/event-stream"}, body=body())

    async with Script(on(tools_call=call)).client() as client:
        assert (await client.call_tool("x", on_progress=lambda params: told.set(), timeout=5)).text == "late"


# --- negotiation ---


async def test_a_probe_that_must_be_repeated() -> None:
    probes: list[Request] = []

    def probe(request: Request) -> Reply | None:
        probes.append(request)
        return refusal(request, -32022, supported=[MODERN]) if len(probes) == 1 else None

    async with Script(on(server_discover=probe)).client() as client:
        assert client.revision == MODERN
    assert len(probes) == 2


@pytest.mark.covers("ERA-9")
@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_modern_error_is_no_reason_to_fall_back(code: int) -> None:
    script = Script(on(server_discover=lambda request: refusal(request, code)))
    with pytest.raises(ProtocolError):
        await script.client().connect()
    assert not script.of("initialize")


@cases("status", [500, 502, 503])
async def test_an_outage_is_no_verdict(status: int) -> None:
    script = Script(on(server_discover=Reply(status, {})))
    with pytest.raises((Unreachable, OutcomeUnknown), match=f"status {status}"):
        await script.client().connect()
    assert [request.rpc for request in script.requests] == ["server/discover"]


@pytest.mark.covers("3.3.3", "T-38")
@pytest.mark.parametrize("status", [401, 403])
async def test_missing_credentials_are_no_verdict(status: int) -> None:
    script = Script(on(server_discover=Reply(status, {"content-type": "text/plain"}, b"who are you?")))
    with pytest.raises(Unauthorized, match="who are you") as caught:
        await script.client().connect()
    assert caught.value.status == status
    assert "auth=" in str(caught.value)
    assert [request.rpc for request in script.requests] == ["server/discover"]


@cases(
    ("body", "told"),
    [
        (rpc(error={"code": 403, "message": "This needs\x1b the scopes write", "data": {}}, id=1), "needs  the scopes"),
        (
            b'{"error": "invalid_token", "error_description": "The token is not valid here"}',
            "The token is not valid here",
        ),
        (b'{"detail": "no"}', '{"detail": "no"}'),
        (b'{"error": {"message": 7}}', '{"error": {"message": 7}}'),
        (b"[7]", "[7]"),
        (b"[" * 5000, "[[[["),
        (b'{"error": "\xff', '{"error": "'),
    ],
)
async def test_of_a_refusal_the_sentence_is_told(body: bytes, told: str) -> None:
    script = Script(on(tools_call=Reply(403, body=body)))
    async with script.client(auth="t") as client:
        with pytest.raises(Unauthorized) as caught:
            await client.call_tool("x")
    assert str(caught.value).startswith("http://server.example refused with status 403: ")
    assert told in str(caught.value)
    assert "jsonrpc" not in str(caught.value)


async def test_a_pinned_revision_does_not_fall_back() -> None:
    script = Script(lambda request: None, modern=False)
    with pytest.raises(NoCommonRevision):
        await script.client(revision=MODERN).connect()
    assert not script.of("initialize")


# --- headers ---


async def test_headers_of_the_client_and_of_a_call() -> None:
    script = Script(lambda request: None)
    async with script.client(headers={"X-Tenant": "a", "X-Plan": "free"}) as client:
        await client.call_tool("x", headers={"x-tenant": "b"})
        await client.call_tool("x")
    assert [request.headers["x-tenant"] for request in script.requests] == ["a", "b", "a"]
    assert {request.headers["x-plan"] for request in script.requests} == {"free"}


async def test_headers_need_http() -> None:
    from tests.client.fake import FakeServer

    from toolwire.client import Client

    async with Client(FakeServer()) as client:
        with pytest.raises(NotSupported, match="headers="):
            await client.call_tool("x", headers={"a": "b"})
    with pytest.raises(ValueError, match="headers= is not for"):
        Client(FakeServer(), headers={"a": "b"})


def tool(name: str, **properties: object) -> dict[str, object]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def marked(token: object, type: object = "string", **members: object) -> dict[str, object]:
    return {"type": type, "x-mcp-header": token, **members}


def listing(*tools: object) -> object:
    return lambda request: result(request, tools=list(tools), ttlMs=0, cacheScope="private")


@pytest.mark.covers("XMH-2", "XMH-3", "XMH-4")
async def test_marked_arguments_are_repeated_in_headers() -> None:
    nested = {"type": "object", "properties": {"deep": marked("Deep", "integer")}}
    shown = tool("x", region=marked("Region"), flag=marked("Flag", "boolean"), nested=nested, other={"type": "string"})
    script = Script(on(tools_list=listing(shown)))
    async with script.client() as client:
        await client.call_tool("x", {"region": "eu"})
        await client.list_tools()
        arguments = {"region": "naïve", "flag": False, "nested": {"deep": -7}, "other": "o"}
        await client.call_tool("x", arguments)
        await client.call_tool("x", {"region": "", "flag": None})
        await client.call_tool("x")

    def sent(request: Request) -> dict[str, str]:
        return {name: value for name, value in request.headers.items() if name.startswith("mcp-param-")}

    unknown, full, sparse, none = [sent(request) for request in script.of("tools/call")]
    assert unknown == none == {}  # What was never listed is not known to be marked.
    assert full == {"mcp-param-region": "=?base64?bmHDr3Zl?=", "mcp-param-flag": "false", "mcp-param-deep": "-7"}
    assert sparse == {"mcp-param-region": ""}


@pytest.mark.covers("XMH-1")
async def test_tools_with_wrong_marks_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    wrong = [
        tool("empty", a=marked("")),
        tool("space", a=marked("a b")),
        tool("colon", a=marked("a:")),
        tool("accent", a=marked("é")),
        tool("twice", a=marked("Same"), b=marked("same")),
        tool("number", a=marked("N", "number")),
        tool("union", a=marked("N", ["string", "null"])),
        tool("object", a=marked("O", "object")),
        tool("inside", a={"type": "array", "items": marked("I")}),
    ]
    script = Script(on(tools_list=listing(*wrong, tool("good", a=marked("A")))))
    async with script.client() as client:
        assert [each.name for each in await client.list_tools()] == ["good"]
        assert [each.name for each in (await client.list_tools_page()).tools] == ["good"]
    assert "'twice'" in caplog.text


@pytest.mark.covers("XMH-7")
async def test_a_mismatch_lists_the_tools_again_and_tries_once_more() -> None:
    def call(request: Request) -> Reply | None:
        return None if request.headers.get("mcp-param-region") == "eu" else refusal(request, -32020)

    script = Script(on(tools_list=listing(tool("x", region=marked("Region"))), tools_call=call))
    async with script.client() as client:
        assert (await client.call_tool("x", {"region": "eu"})).text == "ok"
        with pytest.raises(ProtocolError):
            await client.call_tool("x", {"region": "us"})
    rpcs = [request.rpc for request in script.requests[1:]]
    assert rpcs == ["tools/call", "tools/list", "tools/call", "tools/call", "tools/list", "tools/call"]


async def test_a_tool_that_a_mismatch_shows_to_have_changed_is_not_called() -> None:
    listings = [listing(tool("x", region=marked("Region"))), listing(tool("x", region=marked("Area")))]
    script = Script(
        on(tools_list=lambda request: listings.pop(0)(request), tools_call=lambda request: refusal(request, -32020))
    )
    async with script.client(pins=Pins()) as client:
        with pytest.raises(ToolChanged, match="inputSchema was"):
            await client.call_tool("x", {"region": "eu"})
    assert len(script.of("tools/call")) == 1


# --- signing in ---


class Signer:
    def __init__(self) -> None:
        self.token = "old"
        self.challenges: list[tuple[int, str]] = []

    async def headers(self, method: str, url: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    async def challenged(self, method: str, url: str, status: int, headers: dict[str, str]) -> bool:
        self.challenges.append((status, headers.get("www-authenticate", "")))
        self.token = "new"
        await elapse(10)
        return len(self.challenges) < 2


async def test_who_signs_in_is_asked_before_and_told_after() -> None:
    def answer(request: Request) -> Reply | None:
        if request.headers["authorization"] != "Bearer new":
            return Reply(401, {"www-authenticate": 'Bearer scope="a"'})
        return None

    signer = Signer()
    script = Script(answer)
    # Signing in takes longer than a call may: its clock stands still meanwhile.
    async with script.client(auth=signer) as client:
        signer.token = "old"
        signer.challenges.clear()
        await client.call_tool("x", timeout=5)
    assert signer.challenges == [(401, 'Bearer scope="a"')]


async def test_closing_while_somebody_signs_in() -> None:
    begun = asyncio.Event()

    class Slow(Signer):
        async def challenged(self, method: str, url: str, status: int, headers: dict[str, str]) -> bool:
            begun.set()
            await asyncio.Event().wait()
            return True

    refused = False
    script = Script(lambda request: Reply(401, {}) if refused else None)
    client = script.client(auth=Slow())
    await client.connect()
    refused = True
    calling = asyncio.ensure_future(client.call_tool("x"))
    await begun.wait()
    await client.close()
    with pytest.raises(OutcomeUnknown, match="was closed"):
        await calling


async def test_signing_in_that_does_not_help() -> None:
    script = Script(lambda request: Reply(401, {}))
    with pytest.raises(Unauthorized, match="status 401"):
        await script.client(auth=Signer()).connect()
    assert len(script.requests) == 2


async def test_a_bearer_token() -> None:
    script = Script(lambda request: None)
    async with script.client(auth="abc"):
        pass
    assert script.requests[0].headers["authorization"] == "Bearer abc"


# --- listening ---


async def test_listening_is_a_stream_of_its_own() -> None:
    more = asyncio.Event()

    def listen(request: Request) -> Reply:
        meta = {"io.modelcontextprotocol/subscriptionId": request.id}

        async def body() -> AsyncIterator[bytes]:
            accepted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            yield event(rpc(method="notifications/subscriptions/acknowledged", params=accepted))
            await more.wait()
            yield event(rpc(method="notifications/tools/list_changed", params={"_meta": meta}))
            yield event(rpc(id=request.id, result={"resultType": "complete", "_meta": meta}))

        return Reply(headers={"content-type": "text/event-stream"}, body=body())

    script = Script(on(subscriptions_listen=listen))
    async with script.client() as client, client.listen(tools=True) as changes:
        more.set()
        assert [change.kind async for change in changes] == ["tools"]


def cut(after: Callable[[int], Awaitable[Any]]) -> Script:
    """A server whose streams are quiet, and end without a result after what `after` waits for, for the nth of them."""
    opened = 0

    def listen(request: Request) -> Reply:
        nonlocal opened
        opened += 1
        accepted = {
            "notifications": {"toolsListChanged": True},
            "_meta": {"io.modelcontextprotocol/subscriptionId": request.id},
        }

        async def body(nth: int) -> AsyncIterator[bytes]:
            yield event(rpc(method="notifications/subscriptions/acknowledged", params=accepted))
            await after(nth)

        return Reply(headers={"content-type": "text/event-stream"}, body=body(opened))

    return Script(on(subscriptions_listen=listen))


async def test_a_quiet_stream_that_is_cut_now_and_then_is_opened_again_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)
    script = cut(lambda nth: elapse(SETTLED_SECONDS) if nth <= 20 else asyncio.Event().wait())
    async with script.client() as client:
        changes = aiter(client.listen(tools=True))
        for _ in range(20):
            assert await anext(changes) == Change("tools"), "what was missed"
        await changes.aclose()  # type: ignore[attr-defined]


async def test_a_stream_that_is_cut_at_once_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.util.backoff.FIRST_SECONDS", 0.0)
    script = cut(lambda nth: asyncio.sleep(0))
    async with script.client() as client:
        with pytest.raises(OutcomeUnknown):
            async for _ in client.listen(tools=True):
                pass
    assert len(script.of("subscriptions/listen")) == 2 + ATTEMPTS


async def test_who_stops_listening_closes_the_stream() -> None:
    def listen(request: Request) -> Reply:
        meta = {"io.modelcontextprotocol/subscriptionId": request.id}

        async def body() -> AsyncIterator[bytes]:
            accepted = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            yield event(rpc(method="notifications/subscriptions/acknowledged", params=accepted))
            await asyncio.Event().wait()

        return Reply(headers={"content-type": "text/event-stream"}, body=body())

    script = Script(on(subscriptions_listen=listen))
    async with script.client() as client:
        async with client.listen(tools=True):
            pass
        await (await script.until("subscriptions/listen")).disconnected.wait()
