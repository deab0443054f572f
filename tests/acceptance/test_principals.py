"""What belongs to one principal, tried with the credentials of another and of nobody: every method, every handle.

Handles are everything that a server hands out and takes back: session ids, event ids, the addresses of streams, the
state of questions, cursors, request ids, questions that wait for an answer. A method that is added to the tables is
tried here without anybody thinking of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cases import cases
from tests.http.httpclient import Answer, HttpClient, Message, SessionClient
from tests.http.modernclient import ModernClient
from tests.httpwire import connect_http
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import ABLE, begin, dialects, reaches
from tests.wireclient import MODERN, modern_meta

from toolwire import Context, Server
from toolwire.auth import ApiKeys
from toolwire.protocol.errors import INVALID_PARAMS
from toolwire.protocol.methods import methods
from toolwire.protocol.revisions import LEGACY

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")

ALICE, BOB = {"authorization": "Bearer alices-key-123"}, {"authorization": "Bearer bobs-key-45678"}
KEYS = ApiKeys({"alices-key-123": "alice", "bobs-key-45678": "bob"})
SECRET = "alice's secret"
# Nobody in particular, somebody with a key that is wrong, and somebody who tries another way in.
NOBODY: list[dict[str, str]] = [
    {},
    {"authorization": "Bearer wrong-key-0000"},
    {"authorization": "Basic YWxpY2U6YWxpY2U="},
    {"cookie": "authorization=Bearer alices-key-123", "x-api-key": "alices-key-123"},
]


class Stage:
    """What handlers report, and what they wait for."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()


def make_server(stage: Stage, **options: Any) -> Server:
    server = Server("s", auth=KEYS, secret="a secret of at least sixteen bytes", page_size=1, **options)

    @server.tool
    async def ask(ctx: Context) -> str:
        stage.calls.append(ctx.principal.subject)
        kept = await ctx.step("secret", lambda: SECRET)
        answer = await ctx.elicit("Go on?", bool)
        return f"{kept} {answer.data}"

    @server.tool
    async def hold(ctx: Context) -> str:
        await ctx.info("holding")
        stage.reached.set()
        try:
            await stage.opened.wait()
        except asyncio.CancelledError:
            stage.cancelled.set()
            raise
        return SECRET

    @server.resource("note://mine")
    async def note(ctx: Context) -> str:
        return SECRET

    @server.prompt
    def brief() -> str:
        return SECRET

    return server


@asynccontextmanager
async def serving(stage: Stage | None = None, **options: Any) -> AsyncIterator[Any]:
    app = make_server(stage or Stage()).http_app(sse=True, **options)
    try:
        yield app
    finally:
        await app.stop()


# --- nobody, every method ---

PARAMS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "ask", "arguments": {}},
    "resources/read": {"uri": "note://mine"},
    "resources/subscribe": {"uri": "note://mine"},
    "prompts/get": {"name": "brief"},
    "subscriptions/listen": {"notifications": {"toolsListChanged": True}},
}
REQUESTS = [
    (revision, method)
    for revision in (*LEGACY, MODERN)
    for method, row in methods(revision).items()
    if row.kind in ("request", "notification")
]


@pytest.mark.covers("6.1.3", "6.1.12", "R15", "HTTP-4")
@cases("revision", (*LEGACY, MODERN))
async def test_nobody_gets_anything_by_any_method(revision: str) -> None:
    stage = Stage()
    async with serving(stage) as app:
        alice = SessionClient(app, headers=ALICE)
        await alice.initialize()
        for method in [method for each, method in REQUESTS if each == revision]:
            for credentials in NOBODY:
                # With and without the session of somebody who is known.
                for session in ({}, {"mcp-session-id": alice.headers["mcp-session-id"]}):
                    answer = await send(app, revision, method, {**credentials, **session})
                    # An address that has sent many unknown keys gets 429.
                    assert answer.status in ((401, 429) if credentials else (401,)), (method, credentials)
                    assert SECRET.encode() not in answer.body
                    assert "mcp-session-id" not in answer.headers
        assert stage.calls == []
        await alice.close()


async def send(app: Any, revision: str, method: str, headers: dict[str, str]) -> Answer:
    params = dict(PARAMS.get(method, {}))
    if revision == MODERN:
        client = ModernClient(app, headers=headers)
        return await client.post(
            {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": modern_meta()}},
            {"mcp-protocol-version": MODERN, "mcp-method": method},
        )
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await HttpClient(app, headers={**headers, "mcp-protocol-version": revision}).post(message)


@cases("path", ["/mcp", "/mcp/", "/sse", "/messages", "/messages?session=x"])
@cases("method", ["GET", "POST", "DELETE", "PUT", "HEAD"])
async def test_nobody_gets_anything_by_any_verb_or_path(path: str, method: str) -> None:
    async with serving() as app:
        path, _, query = path.partition("?")
        for credentials in NOBODY:
            answer = await HttpClient(app, headers=credentials, path=path).start(method, query=query).finished()
            assert answer.status in (401, 405), (method, path)
            assert answer.status == 401 or path in ("/sse", "/messages")


# --- somebody else, every handle ---


@pytest.mark.covers("6.1.12")
async def test_a_session_is_not_there_for_others() -> None:
    stage = Stage()
    async with serving(stage) as app:
        alice, bob = SessionClient(app, headers=ALICE), HttpClient(app)
        await alice.initialize()
        stolen = {**BOB, "mcp-session-id": alice.headers["mcp-session-id"]}
        for method in [method for revision, method in REQUESTS if revision == "2025-11-25" and method != "initialize"]:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": PARAMS.get(method, {})}
            assert (await bob.post(message, stolen)).status == 404, method
        assert (await bob.start_get(stolen).finished()).status == 404
        assert (await bob.delete(stolen)).status == 404
        assert stage.calls == []
        # It was not ended either.
        assert await alice.result("ping") == {}
        await alice.close()


async def test_events_of_a_session_are_not_there_for_others() -> None:
    stage = Stage()
    async with serving(stage) as app:
        alice, bob = SessionClient(app, headers=ALICE), SessionClient(app, headers=BOB)
        await alice.initialize()
        await bob.initialize()
        call = alice.start_call("hold")
        await stage.reached.wait()
        event = await call.until(lambda: call.last_event_id)
        stage.opened.set()
        await call.finished()
        assert (await bob.start_get({"last-event-id": event}).finished()).status == 400
        # Alice can have the rest of it.
        resumed = alice.start_get({"last-event-id": event})
        assert (await resumed.message(id=alice.last_id))["result"]["content"][0]["text"] == SECRET
        await alice.close()
        await bob.close()


@pytest.mark.covers("6.1.12", "ELI-7")
@pytest.mark.parametrize("form", ["the state", "a state that is stored"])
async def test_the_state_of_a_question_is_not_there_for_others(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == "a state that is stored":
        from toolwire.server import replay_state as questions

        monkeypatch.setattr(questions, "MAX_SEALED", 1)
    stage = Stage()
    async with serving(stage) as app:
        alice, bob = ModernClient(app, headers=ALICE), ModernClient(app, headers=BOB)
        meta = modern_meta({"elicitation": {}})
        asked = (await alice.call("ask", meta=meta)).json()["result"]
        state, (key,) = asked["requestState"], asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": True}}}
        params = {"name": "ask", "arguments": {}, "requestState": state, "inputResponses": answers}
        assert stage.calls == ["alice"]
        stolen = await bob.request("tools/call", params, meta=meta)
        assert stolen.json()["error"]["code"] == INVALID_PARAMS
        assert SECRET.encode() not in stolen.body
        assert stage.calls == ["alice"]
        for credentials in NOBODY:
            assert (await ModernClient(app, headers=credentials).request("tools/call", params, meta=meta)).status == 401
        # It is still good for whom it belongs to.
        own = await alice.request("tools/call", params, meta=meta)
        assert own.json()["result"]["content"][0]["text"] == f"{SECRET} True"


@pytest.mark.covers("ELI-7", "1.16.3.7")
async def test_a_question_is_not_answered_by_others() -> None:
    stage = Stage()
    async with serving(stage) as app:
        alice, bob = SessionClient(app, headers=ALICE), SessionClient(app, headers=BOB)
        for client in (alice, bob):
            await client.initialize(capabilities={"elicitation": {}})
        call = alice.start_call("ask")
        question = await call.message("elicitation/create")
        forged = {"action": "accept", "content": {"value": False}}
        await bob.respond(question, forged)
        stolen = HttpClient(app, headers={**bob.headers, "mcp-session-id": alice.headers["mcp-session-id"]})
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": forged}
        assert (await stolen.post(answer)).status == 404
        await alice.respond(question, {"action": "accept", "content": {"value": True}})
        await call.finished()
        assert call.answer()["result"]["content"][0]["text"] == f"{SECRET} True"
        await alice.close()
        await bob.close()


async def test_a_call_is_not_cancelled_by_others() -> None:
    stage = Stage()
    async with serving(stage) as app:
        alice, bob = SessionClient(app, headers=ALICE), SessionClient(app, headers=BOB)
        await alice.initialize()
        await bob.initialize()
        call = alice.start_call("hold", id=7)
        await stage.reached.wait()
        assert (await bob.notify("notifications/cancelled", {"requestId": 7})).status == 202
        modern = ModernClient(app, headers=BOB)
        await modern.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        stage.opened.set()
        await call.finished()
        assert call.answer()["result"]["content"][0]["text"] == SECRET
        assert not stage.cancelled.is_set()
        await alice.close()
        await bob.close()


async def test_an_id_that_others_use_is_no_id_of_mine() -> None:
    """Request ids are chosen by clients, so two of them may choose the same."""
    stage = Stage()
    async with serving(stage) as app:
        clients = [SessionClient(app, headers=each) for each in (ALICE, BOB)]
        for client in clients:
            await client.initialize()
        calls = [client.start_call("hold", id="same") for client in clients]
        await stage.reached.wait()
        stage.opened.set()
        for call in calls:
            await call.finished()
            assert call.answer()["id"] == "same"
        for client in clients:
            await client.close()


async def test_the_address_of_a_stream_of_2024_is_not_there_for_others() -> None:
    async with serving() as app:
        alice = HttpClient(app, headers=ALICE)
        stream = await alice.start_get(path="/sse").started()
        (first, *_) = await stream.until(lambda: stream.events)
        path, _, query = first.data.partition("?")
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await HttpClient(app, headers=BOB).post(message, path=path, query=query)).status == 404
        for credentials in NOBODY:
            assert (await HttpClient(app, headers=credentials).post(message, path=path, query=query)).status == 401
        assert len(stream.events) == 1
        await stream.disconnect()


@pytest.mark.covers("6.1.12", "TSK-18")
@dialects
async def test_a_task_is_not_there_for_others(revision: str) -> None:
    held = Held(auth=KEYS)
    app = held.server.http_app()
    async with (
        connect_http(app, revision, ABLE, headers=ALICE) as alice,
        connect_http(app, revision, ABLE, headers=BOB) as bob,
    ):
        task = await begin(alice, "hold")
        methods_of_tasks = [method for each, method in REQUESTS if each == revision and method.startswith("tasks/")]
        for method in methods_of_tasks:
            stolen = await bob.request(method, {"taskId": task, "inputResponses": {}})
            missing = await bob.request(method, {"taskId": "never-was", "inputResponses": {}})
            assert told(stolen) == told(missing), method
            for credentials in NOBODY:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"taskId": task}}
                assert (await HttpClient(app, headers=credentials).post(message)).status == 401
        # It runs on, and belongs to whom it belonged to.
        held.go.set()
        await reaches(alice, task, "completed")
    await app.stop()


def told(response: Message) -> Any:
    """An answer, whatever the id of its request."""
    return {name: value for name, value in response.items() if name != "id"}


async def test_a_token_of_the_same_name_from_another_issuer_is_another_principal() -> None:
    from toolwire.auth import Principal

    keys = ApiKeys({"key-of-issuer-1": Principal("alice", "one"), "key-of-issuer-2": Principal("alice", "two")})
    server = make_server(Stage())
    app = server.http_app(auth=keys)
    try:
        first = SessionClient(app, headers={"authorization": "Bearer key-of-issuer-1"})
        await first.initialize()
        stolen = {"authorization": "Bearer key-of-issuer-2", "mcp-session-id": first.headers["mcp-session-id"]}
        assert (await HttpClient(app).post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, stolen)).status == 404
        await first.close()
    finally:
        await app.stop()


async def test_a_new_token_of_the_same_principal_goes_on() -> None:
    """Tokens are renewed while sessions live."""
    from toolwire.auth import Principal

    same = Principal("alice", "one")
    server = make_server(Stage())
    app = server.http_app(auth=ApiKeys({"the-first-token": same, "the-second-token": same}))
    try:
        client = SessionClient(app, headers={"authorization": "Bearer the-first-token"})
        await client.initialize()
        client.headers["authorization"] = "Bearer the-second-token"
        assert await client.result("ping") == {}
        await client.close()
    finally:
        await app.stop()
