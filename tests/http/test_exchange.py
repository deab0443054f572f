"""Modern exchanges through the ASGI application, beside requests of the earlier revisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.http.almanac import Stage
from tests.http.httpclient import Answer, HttpClient, SessionClient, initialize_request
from tests.http.modernclient import ModernClient, text_of
from tests.runtimes import streams_of
from tests.wireclient import LEGACY, MODERN, PREFIX, modern_meta

from toolwire import Server
from toolwire.http import exchange as http_outlet
from toolwire.http.asgi import HttpApp
from toolwire.http.exchange import ExchangeOutlet, WaitingExchanges
from toolwire.testing import elapse
from toolwire.wire.shares import Shares, Taken

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")


@pytest.fixture
async def client(server: Server) -> AsyncIterator[ModernClient]:
    app: HttpApp = server.http_app()
    client = ModernClient(app)
    yield client
    await client.close()
    await app.stop()


def error_of(answer: Answer) -> tuple[int | None, int]:
    return answer.status, answer.answer()["error"]["code"]


# --- one request, one answer ---


@pytest.mark.covers("HTTP-1", "HTTP-9")
async def test_a_request_is_posted_and_answered_with_one_json_object(client: ModernClient) -> None:
    answer = await client.call("echo", {"text": "hello"}, id="seven")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.json()["id"] == "seven"
    assert text_of(answer.json()) == "hello"
    assert answer.json()["result"]["resultType"] == "complete"


@pytest.mark.covers("SSE-1", "SSE-3", "SSE-4", "J32", "E40")
async def test_what_a_request_says_comes_before_its_answer_on_its_own_stream(client: ModernClient) -> None:
    meta = modern_meta(log_level="info", progress_token="mine")
    other = client.start_call("silent", id=2, meta=modern_meta(log_level="info", progress_token="other"))
    answer = await client.call("report", meta=meta)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-cache"
    said, progress, result = answer.messages
    assert said["method"] == "notifications/message"
    assert (progress["method"], progress["params"]["progressToken"]) == ("notifications/progress", "mine")
    assert text_of(result) == "reported"
    assert (other.status, other.body) == (None, b"")


@pytest.mark.covers("SSE-1", "HTTP-9")
async def test_nothing_is_said_to_who_did_not_ask_for_it(client: ModernClient) -> None:
    answer = await client.call("report")
    assert not answer.is_stream
    assert text_of(answer.json()) == "reported"


async def test_a_modern_stream_has_no_event_ids_and_no_retry(client: ModernClient) -> None:
    answer = await client.call("report", meta=modern_meta(log_level="info"))
    assert len(answer.events) == 2
    assert (answer.last_event_id, answer.retry) == ("", None)


@pytest.mark.covers("SSE-2", "SSE-3")
async def test_questions_are_part_of_the_answer_and_nothing_follows_it(client: ModernClient) -> None:
    meta = modern_meta({"elicitation": {}}, log_level="info")
    answer = await client.call("ask", meta=meta)
    said, result = answer.messages
    assert said["method"] == "notifications/message"
    assert result["result"]["resultType"] == "input_required"
    assert not any("id" in each and "method" in each for each in answer.messages)
    [question] = result["result"]["inputRequests"]
    again = await client.request(
        "tools/call",
        {
            "name": "ask",
            "arguments": {},
            "inputResponses": {question: {"action": "accept", "content": {"value": "Ada"}}},
            "requestState": result["result"]["requestState"],
        },
        id=2,
        meta=meta,
    )
    assert text_of(again.answer()) == "accept: Ada"


@pytest.mark.covers("SSE-5")
async def test_silence_is_filled_with_comments(
    client: ModernClient, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_outlet, "KEEP_ALIVE", 0.001)
    call = client.start_call("silent")
    await call.until(lambda: call.body.count(b": keep-alive") >= 2)
    assert call.events == []
    stage.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "silence"


@pytest.mark.covers("SSE-5")
@pytest.mark.parametrize("first", [0.0, http_outlet.LOOK_SECONDS * 1.5], ids=["at once", "after a look"])
async def test_a_stream_begins_after_fifteen_seconds_of_silence(
    client: ModernClient, stage: Stage, first: float
) -> None:
    """An exchange is timed when it has waited for a while. Its time began before that."""
    await client.call("echo", {"text": "the server has started"})
    call = client.start_call("silent")
    await stage.reached.wait()
    await elapse(first)
    await elapse(http_outlet.KEEP_ALIVE - http_outlet.LOOK_SECONDS - 1 - first)
    assert call.status is None
    await elapse(1 + http_outlet.LOOK_SECONDS)
    await call.until(lambda: call.status == 200)
    stage.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "silence"


async def test_exchanges_that_wait_are_counted_for_their_callers_when_the_shares_become_scarce() -> None:
    shares = Shares(8, 0.5, "requests in work")
    waiting = WaitingExchanges(asyncio.get_running_loop(), shares)
    outlets = [_waiting(waiting, caller) for caller in ("ann", "ann", "ann", "bob")]
    assert (shares.total, len(waiting.fresh)) == (4, 4)
    shares.check("ann")  # She has three of the four that she may have.
    assert (shares.total, len(waiting.fresh)) == (4, 0)
    outlets.append(_waiting(waiting, "ann"))
    for refused in (lambda: shares.check("ann"), lambda: shares.take("ann")):
        with pytest.raises(Taken, match="You have 4 requests in work"):
            refused()
    assert (shares.held_by("ann"), shares.held_by("bob")) == (4, 1)
    outlets.append(_waiting(waiting, "bob"))
    for outlet in outlets:
        for _ in range(2):
            outlet.settle()
    assert (shares.total, shares.callers, len(waiting.fresh)) == (0, 0, 0)


async def test_a_wait_that_has_ended_is_neither_counted_nor_timed() -> None:
    shares = Shares(8, 0.5, "requests in work")
    waiting = WaitingExchanges(asyncio.get_running_loop(), shares)
    short, long = _waiting(waiting, "ann"), _waiting(waiting, "bob")
    short.settle()
    await elapse(http_outlet.LOOK_SECONDS)
    assert (shares.total, shares.callers) == (1, 1)
    await elapse(http_outlet.KEEP_ALIVE)
    assert (short.begun, long.begun) == (False, True)
    await long.abandon()
    long.settle()
    assert shares.total == 0


def _waiting(waiting: WaitingExchanges, caller: str) -> ExchangeOutlet:
    async def nothing(*_: Any) -> Any:
        await asyncio.Event().wait()

    direct: Any = SimpleNamespace(task=None, on_lost=None, watch=lambda: None)
    outlet = ExchangeOutlet(nothing, nothing, MODERN, (), direct, False, waiting, caller)
    outlet.waits()
    return outlet


async def test_an_answer_right_after_a_message_does_not_wait(client: ModernClient, stage: Stage) -> None:
    call = client.start_call("hold", meta=modern_meta(log_level="info"))
    await call.until(lambda: call.messages)
    stage.opened.set()
    await call.finished()
    holding, going_on, result = call.messages
    assert (holding["params"]["data"], going_on["params"]["data"]) == ("holding", "going on")
    assert text_of(result) == "held"
    assert b"keep-alive" not in call.body


@pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError, KeyError])
@pytest.mark.parametrize("way", ["modern", "stateless", "session"])
async def test_whatever_is_raised_behind_http_ends_one_request_only(
    way: str, raised: type[BaseException], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: HttpApp = server.http_app(stateless=way == "stateless")
    client = ModernClient(app)
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    if way == "session":
        opened = await client.start_post(initialize_request("2025-11-25"), headers).finished()
        headers["mcp-session-id"] = opened.headers["mcp-session-id"]

    async def handle(request: Any, outlet: Any) -> Any:
        raise raised

    def ask(number: int) -> Answer:
        if way == "modern":
            return client.start_request("tools/list", id=number)
        return client.start_post({"jsonrpc": "2.0", "id": number, "method": "tools/list"}, headers)

    with monkeypatch.context() as patch:
        patch.setattr(app.runtime().host.handler, "handle", handle)
        answer = await ask(1).finished()
    assert (answer.status, answer.answer()["error"]["message"]) == (200, "Internal error")
    assert "result" in (await ask(2).finished()).answer()
    await client.close()
    await app.stop()


async def test_a_failing_tool_is_a_result_on_200(client: ModernClient) -> None:
    answer = await client.call("fail")
    assert answer.status == 200
    assert answer.json()["result"]["isError"] is True


@pytest.mark.covers("HTTP-8")
async def test_notifications_are_202_and_cancel_nothing(client: ModernClient, stage: Stage) -> None:
    call = client.start_call("silent", id=7)
    await stage.reached.wait()
    for method in ("notifications/cancelled", "notifications/unheard/of"):
        note = {"jsonrpc": "2.0", "method": method, "params": {"requestId": 7}}
        answer = await client.post(note, {"mcp-protocol-version": MODERN})
        assert (answer.status, answer.body) == (202, b"")
    stage.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "silence"
    assert not stage.cancelled.is_set()


@pytest.mark.covers("HTTP-11")
@pytest.mark.parametrize("tool", ["silent", "hold"])
async def test_a_client_that_goes_away_cancels_its_request(client: ModernClient, stage: Stage, tool: str) -> None:
    call = client.start_call(tool, meta=modern_meta(log_level="info"))
    await stage.reached.wait()
    before = call.body
    await call.disconnect()
    assert stage.cancelled.is_set()
    assert call.body == before


@pytest.mark.covers("J56")
async def test_answers_say_their_revision(client: ModernClient) -> None:
    assert (await client.call("echo", {"text": ""})).headers["mcp-protocol-version"] == MODERN
    streamed = await client.call("report", meta=modern_meta(log_level="info"))
    assert streamed.headers["mcp-protocol-version"] == MODERN
    for revision in LEGACY[1:]:
        session = SessionClient(client.app)
        opened = await session.initialize(revision)
        assert opened.headers["mcp-protocol-version"] == revision
        for tool in ("echo", "report"):
            answer = await session.start_call(tool, {"text": ""}).finished()
            assert answer.is_stream == (tool == "report")
            assert answer.headers["mcp-protocol-version"] == revision
        stream = await session.get()
        assert stream.headers["mcp-protocol-version"] == revision
        await session.close()


@pytest.mark.covers("J93")
async def test_requests_at_once_keep_their_own_answer_and_principal(server: Server) -> None:
    app = server.http_app()
    clients = []
    for number in range(20):
        client = ModernClient(app)
        client.principal = f"user-{number}"
        clients.append(client)
    # The first to ask is the last to be answered.
    calls = [each.start_call("whoami", {"after": 40 - 2 * n}, id=n) for n, each in enumerate(clients)]
    for number, call in enumerate(calls):
        await call.finished()
        assert call.json()["id"] == number
        assert text_of(call.json()) == f"user-{number} None {MODERN}"
    await app.stop()


# --- the eras at one address ---


@pytest.mark.covers("ERA-2")
async def test_the_header_alone_makes_a_request_modern(client: ModernClient) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    answer = await client.post(message, {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"})
    assert error_of(answer) == (400, -32602)
    unknown = await client.post(message, {"mcp-protocol-version": "2031-01-01", "mcp-method": "tools/list"})
    assert error_of(unknown) == (400, -32602)


@pytest.mark.covers("ERA-3", "HDR-5")
async def test_metadata_alone_makes_a_request_modern_and_then_the_header_is_missing(client: ModernClient) -> None:
    answer = await client.request("tools/list", headers={"mcp-protocol-version": None})
    assert error_of(answer) == (400, -32020)
    assert answer.json()["id"] == 1


@pytest.mark.covers("ERA-4")
async def test_an_initialize_in_modern_terms_is_told_what_is_spoken_here(client: ModernClient) -> None:
    answer = await client.post(initialize_request(), {"mcp-protocol-version": "2031-01-01", "mcp-method": "initialize"})
    assert error_of(answer) == (400, -32022)
    error = answer.json()["error"]
    assert MODERN in error["message"]
    assert MODERN in error["data"]["supported"]
    assert "mcp-session-id" not in answer.headers
    assert error_of(await client.request("initialize", {"protocolVersion": MODERN})) == (404, -32601)


@pytest.mark.covers("ERA-5")
async def test_modern_requests_have_no_session_and_resume_nothing(client: ModernClient) -> None:
    session = SessionClient(client.app)
    await session.initialize()
    for identifier in (session.headers["mcp-session-id"], "nonsense"):
        answer = await client.call(
            "whoami", headers={"mcp-session-id": identifier, "last-event-id": "1"}, meta=modern_meta()
        )
        assert answer.status == 200
        assert "mcp-session-id" not in answer.headers
        assert text_of(answer.json()) == f"None None {MODERN}"
    await session.close()


async def test_both_eras_are_served_at_once(client: ModernClient) -> None:
    session = SessionClient(client.app)
    await session.initialize("2025-06-18")
    modern, legacy = await asyncio.gather(client.call("echo", {"text": "new"}), session.call("echo", {"text": "old"}))
    assert (text_of(modern.json()), text_of(legacy)) == ("new", "old")
    assert "resultType" not in legacy["result"]
    await session.close()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_modern_client_has_only_post(client: ModernClient, method: str) -> None:
    answer = await client.start(method, headers={"mcp-protocol-version": MODERN}).finished()
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]


# --- headers that repeat the body ---


@pytest.mark.covers("HDR-1")
async def test_header_names_in_any_case_and_values_exactly(client: ModernClient) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}
    spelled = [(b"MCP-Protocol-Version", MODERN.encode()), (b"MCP-METHOD", b" tools/list\t")]
    assert (await client.post(message, raw_headers=spelled)).status == 200
    wrong = [(b"mcp-protocol-version", MODERN.encode()), (b"mcp-method", b"Tools/List")]
    assert error_of(await client.post(message, raw_headers=wrong)) == (400, -32020)


@pytest.mark.covers("HDR-3")
async def test_a_name_that_is_not_ascii_arrives_encoded(client: ModernClient) -> None:
    answer = await client.request("resources/read", {"uri": "memo://ü"})
    assert answer.status == 200
    assert answer.json()["result"]["contents"][0]["text"] == "dear"
    plain = await client.request("resources/read", {"uri": "memo://ü"}, headers={"mcp-name": "memo://ü"})
    assert error_of(plain) == (400, -32020)


@pytest.mark.covers("XMH-5", "HDR-4")
async def test_an_annotated_argument_is_repeated_in_its_header(client: ModernClient) -> None:
    given = {"region": "eu", "count": 42}
    right = await client.call("route", given, headers={"mcp-param-region": "eu", "mcp-param-count": "42"})
    assert text_of(right.json()) == "eu 42"
    for headers in (
        {"mcp-param-region": "eu"},
        {"mcp-param-region": "us", "mcp-param-count": "42"},
        {"mcp-param-region": "eu", "mcp-param-count": "41"},
    ):
        refused = await client.call("route", given, id="seven", headers=headers)
        assert error_of(refused) == (400, -32020)
        assert refused.json()["id"] == "seven"


@pytest.mark.covers("HDR-7")
async def test_what_a_header_says_is_never_what_counts(client: ModernClient) -> None:
    claims = {"mcp-param-principal": "root", "toolwire.principal": "root", "mcp-param-unknown": "x"}
    answer = await client.call("whoami", headers=claims)
    assert text_of(answer.json()) == f"None None {MODERN}"


# --- subscriptions ---


async def test_a_listener_is_told_what_it_asked_for_until_it_goes(client: ModernClient, server: Server) -> None:
    stream = await client.listen(id="L", toolsListChanged=True)
    assert stream.is_stream
    server.notify_changed("prompts")
    server.notify_changed("tools")
    changed = await stream.message("notifications/tools/list_changed")
    assert changed["params"]["_meta"] == {f"{PREFIX}subscriptionId": "L"}
    assert len(stream.messages) == 2
    await stream.disconnect()
    assert len(streams_of(server)) == 0


@pytest.mark.covers("SSE-5")
async def test_a_quiet_listener_hears_comments(client: ModernClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_outlet, "KEEP_ALIVE", 0.001)
    stream = await client.listen(toolsListChanged=True)
    await stream.until(lambda: stream.body.count(b": keep-alive") >= 2)
    assert len(stream.events) == 1


# --- earlier revisions without a session ---


@pytest.mark.covers("3.4.4.5", "T-34")
async def test_where_no_events_are_kept_streams_are_not_primed(server: Server) -> None:
    app = server.http_app(stateless=True)
    client = HttpClient(app)
    params = {"name": "report", "arguments": {}, "_meta": {"progressToken": 1}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await client.post(call, {"mcp-protocol-version": "2025-11-25"})
    assert answer.is_stream
    assert all(event.data for event in answer.events)
    assert (answer.last_event_id, answer.retry) == ("", None)
    await app.stop()


@pytest.mark.covers("3.4.4.8")
async def test_what_the_server_agreed_to_decides_about_priming(client: ModernClient) -> None:
    session = SessionClient(client.app)
    opened = await session.initialize("2031-01-01")
    assert (opened.headers["content-type"], session.revision) == ("application/json", "2025-11-25")
    assert (await session.start_call("report").finished()).events[0].data == ""
    await session.close()


@pytest.mark.covers("3.4.3.3")
async def test_either_side_may_close_the_sessions_stream(client: ModernClient, server: Server) -> None:
    session = SessionClient(client.app)
    await session.initialize("2025-11-25")
    first = await session.get()
    assert first.retry is not None
    await first.disconnect()
    second = await session.get()
    client.app.drain()
    await second.finished()
    assert session.headers["mcp-session-id"]
    assert text_of(await session.call("echo", {"text": "on"})) == "on"
    await session.close()


# --- what a client takes ---


@pytest.mark.parametrize("accept", ["text/event-stream", "text/*", "text/event-stream;q=0.5"])
async def test_an_answer_to_a_client_that_takes_streams_only_is_an_event(server: Server, accept: str) -> None:
    app = server.http_app()
    client = ModernClient(app)
    answer = await client.call("echo", {"text": "hello"}, headers={"accept": accept})
    assert (answer.status, answer.is_stream) == (200, True)
    assert text_of(answer.answer()) == "hello"
    # An error that has a status of its own is told by it.
    unknown = await client.request("no/such", headers={"accept": accept})
    assert (unknown.status, unknown.json()["error"]["code"]) == (404, -32601)
    for both in ("application/json, text/event-stream", "*/*", "application/json"):
        assert not (await client.call("echo", {"text": "hello"}, headers={"accept": both})).is_stream
    assert (await client.call("echo", {"text": "hello"}, headers={"accept": "text/html"})).status == 406
    await app.stop()
