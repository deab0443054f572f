"""Legacy sessions over HTTP, from the outside: what is posted, and what comes back on which stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.http.httpclient import Answer, HttpClient, SessionClient, caught_up, initialize_request, serving

from toolwire import Context, Limits, Server
from toolwire.http.asgi import HttpApp
from toolwire.http.legacy import get_stream, post_stream
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores
from toolwire.stores.sqlite import SqliteStores

SESSION_REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
SECRET = "a secret of at least sixteen bytes"
ASKING = {"elicitation": {}, "sampling": {}, "roots": {}}


class Gate:
    """Where handlers report that they got somewhere, and wait to be let on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.finished = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def passes(self) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def make_server(gate: Gate | None = None, **options: Any) -> Server:
    server = Server("almanac", secret=SECRET, **options)
    gate = gate or Gate()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.info("first")
        await ctx.progress(1, total=2)
        return "reported"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", str)
        gate.finished.set()
        return f"{answer.action}: {answer.data}"

    @server.tool
    async def hold(ctx: Context) -> str:
        """Says something, then waits."""
        await ctx.info("holding")
        await gate.passes()
        await ctx.info("going on")
        gate.finished.set()
        return "held"

    @server.tool
    async def silent() -> str:
        """Waits without a word."""
        await gate.passes()
        gate.finished.set()
        return "silence"

    @server.tool
    async def poll(ctx: Context) -> str:
        await ctx.close_stream(retry_ms=70)
        await gate.passes()
        return "polled"

    @server.tool
    async def whoami(ctx: Context) -> dict[str, Any]:
        return {
            "client": None if ctx.client is None else ctx.client.name,
            "capabilities": dict(ctx.client_capabilities),
            "session": ctx.session_id,
            "revision": ctx.revision,
            "principal": ctx.principal,
        }

    @server.tool
    async def large(size: int, ctx: Context) -> str:
        await gate.passes()
        return "x" * size

    @server.resource("note://today")
    async def today() -> str:
        return "sunny"

    @server.prompt
    async def forecast() -> str:
        return "What will it be like?"

    return server


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def app(gate: Gate) -> HttpApp:
    app: HttpApp = make_server(gate).http_app()
    return app


@pytest.fixture
async def client(app: HttpApp) -> AsyncIterator[SessionClient]:
    async with serving(app) as [client]:
        yield client


class Replicas:
    """Two applications of two servers with one secret, whose stores are the same or share a file."""

    def __init__(self, gate: Gate, stores: list[Stores]) -> None:
        self.servers = [make_server(gate, stores=each) for each in stores]
        self.apps: list[HttpApp] = [server.http_app() for server in self.servers]
        self.clients: list[SessionClient] = []


@pytest.fixture(params=["memory", "sqlite"])
async def replicas(gate: Gate, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Replicas]:
    if request.param == "memory":
        stores: list[Stores] = [Stores.memory()] * 2
    else:
        stores = [SqliteStores(tmp_path / "shared.db") for _ in range(2)]
    replicas = Replicas(gate, stores)
    async with serving(*replicas.apps) as clients:
        replicas.clients = clients
        yield replicas
    for each in stores:
        if isinstance(each, SqliteStores):
            each.close()


async def two(replicas: Replicas, revision: str = "2025-11-25", **options: Any) -> tuple[SessionClient, SessionClient]:
    """One session, as seen by a client whose requests reach one replica or the other."""
    here, there = replicas.clients
    await here.initialize(revision, ASKING, **options)
    there.headers, there.revision, there.last_id = here.headers, here.revision, 1000
    await there.result("ping")  # A replica takes part once it has started.
    return here, there


def text_of(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


def nothing_is_left(app: HttpApp) -> bool:
    assert app.sessions is not None
    return len(app.sessions.calls) == 0 and len(app.sessions.streams) == 0


# --- opening and ending ---


@pytest.mark.covers("3.4.5.1", "2.1.6", "3.4.6.4", "3.4.10.5")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
@pytest.mark.parametrize("header", [None, "2025-11-25", "2025-03-26"])
async def test_initialize_opens_a_session(app: HttpApp, revision: str, header: str | None) -> None:
    async with serving(app) as [client]:
        answer = await client.post(initialize_request(revision), {"mcp-protocol-version": header})
        assert answer.status == 200
        assert answer.json()["result"]["protocolVersion"] == revision
        identifier = answer.headers["mcp-session-id"]
        assert len(identifier) <= 512
        assert all(0x21 <= ord(char) <= 0x7E for char in identifier)


@pytest.mark.covers("J92")
async def test_every_session_has_an_id_of_its_own(client: SessionClient) -> None:
    answers = [await client.post(initialize_request()) for _ in range(3)]
    assert len({answer.headers["mcp-session-id"] for answer in answers}) == 3


@pytest.mark.parametrize("capabilities", [{}, ASKING, {"experimental": {"x" * 3000: {"y": [1, 2]}}}])
async def test_an_id_stays_short_and_the_capabilities_are_known(
    client: SessionClient, capabilities: dict[str, Any]
) -> None:
    answer = await client.initialize("2025-11-25", capabilities)
    assert len(answer.headers["mcp-session-id"]) <= 512
    seen = json.loads(text_of(await client.call("whoami")))
    assert seen["capabilities"] == capabilities
    assert seen["client"] == "raw"
    assert seen["session"]
    assert seen["revision"] == "2025-11-25"


@pytest.mark.covers("3.4.5.3", "3.4.10.6")
async def test_a_session_id_is_needed(client: SessionClient) -> None:
    await client.initialize()
    without = {"mcp-session-id": None}
    for answer in (
        await client.post(client.request("tools/list"), without),
        await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, without),
        await client.start_get(without).finished(),
        await client.delete(without),
    ):
        assert answer.status == 400
        assert "Mcp-Session-Id" in answer.json()["error"]["message"]


@pytest.mark.covers("3.4.5.4", "3.4.5.5")
async def test_delete_ends_a_session_its_streams_and_its_calls(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize()
    stream = await client.get()
    call = client.start_call("hold")
    await call.message("notifications/message")
    await gate.reached.wait()
    assert (await client.delete()).status == 200
    await stream.finished()
    await call.finished()
    await gate.cancelled.wait()
    for answer in (
        await client.post(client.request("tools/list")),
        await client.start_get().finished(),
        await client.delete(),
    ):
        assert answer.status == 404
    assert nothing_is_left(app)


async def test_delete_leaves_other_sessions_alone(app: HttpApp, gate: Gate) -> None:
    async with serving(app) as [client]:
        await client.initialize()
        other = client.at(app)
        await other.initialize()
        call = client.start_call("hold")
        await gate.reached.wait()
        await other.delete()
        gate.opened.set()
        await call.finished()
        assert text_of(call.answer()) == "held"


@pytest.mark.covers("3.4.5.4", "3.4.5.6", "T-41")
async def test_ids_that_are_forged_stolen_or_over_look_all_the_same(app: HttpApp) -> None:
    async with serving(app) as [client]:
        client.principal = "alice"
        await client.initialize()
        theirs = client.headers["mcp-session-id"]
        assert (await client.post(client.request("tools/list"))).status == 200
        ended = client.at(app)
        await ended.initialize()
        await ended.delete()
        mallory = client.at(app)
        mallory.principal = "mallory"
        nobody = client.at(app)
        nobody.principal = None
        bodies = set()
        for who, identifier in (
            (client, "no-such-session"),
            (client, theirs[:-2] + ("AA" if theirs[-2:] != "AA" else "BB")),
            (client, "v1." + "A" * 2000),
            (client, ended.headers["mcp-session-id"]),
            (mallory, theirs),
            (nobody, theirs),
        ):
            request = who.request("tools/list", id="same")
            answer = await who.post(request, {"mcp-session-id": identifier})
            assert answer.status == 404
            bodies.add(answer.body)
            assert (await who.start_get({"mcp-session-id": identifier}).finished()).status == 404
            assert (await who.delete({"mcp-session-id": identifier})).status == 404
        assert len(bodies) == 1
        assert (await client.post(client.request("tools/list"))).status == 200


@pytest.mark.covers("3.4.6.3", "3.4.6.4")
@pytest.mark.parametrize("version", ["1999-01-01", "2026-01-01", "nonsense", "", "2025-11-25, 2025-11-25"])
async def test_a_version_that_is_not_supported_is_400(client: SessionClient, version: str) -> None:
    await client.initialize("2025-11-25")
    wrong = {"mcp-protocol-version": version}
    assert (await client.post(client.request("tools/list"), wrong)).status == 400
    assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, wrong)).status == 400
    assert (await client.start_get(wrong).finished()).status == 400
    assert (await client.delete(wrong)).status == 400
    assert (await client.post(client.request("tools/list"))).status == 200


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_version_that_is_supported_but_was_not_negotiated_changes_nothing(
    client: SessionClient, version: str
) -> None:
    await client.initialize("2025-06-18")
    answer = await client.post(client.request("tools/list"), {"mcp-protocol-version": version})
    assert (answer.status, answer.headers["mcp-protocol-version"]) == (200, "2025-06-18")


@pytest.mark.covers("3.4.6.2", "T-36", "3.4.10.7")
async def test_without_a_version_the_session_knows_its_own(client: SessionClient) -> None:
    await client.initialize("2025-06-18")
    del client.headers["mcp-protocol-version"]
    assert json.loads(text_of(await client.call("whoami")))["revision"] == "2025-06-18"


async def test_a_second_initialize_in_a_session_is_refused(client: SessionClient) -> None:
    await client.initialize()
    answer = await client.post(initialize_request())
    assert answer.json()["error"]["code"] == -32600
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    "params", [[], {"protocolVersion": 7, "capabilities": {}}, {"protocolVersion": "2025-06-18", "capabilities": []}]
)
async def test_an_initialize_that_is_refused_leaves_nothing_behind(app: HttpApp, params: Any) -> None:
    async with serving(app) as [client]:
        answer = await client.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert answer.json()["error"]["code"] == -32602
        assert "mcp-session-id" not in answer.headers
        assert app.sessions is not None
        assert len(app.sessions) == 0


async def test_too_many_sessions_are_503_with_a_time_to_come_back() -> None:
    app = make_server(limits=Limits(sessions=2)).http_app()
    async with serving(app) as [client]:
        first = await client.post(initialize_request())
        await client.post(initialize_request())
        refused = await client.post(initialize_request())
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        assert "mcp-session-id" not in refused.headers
        await client.delete({"mcp-session-id": first.headers["mcp-session-id"]})
        assert (await client.post(initialize_request())).status == 200


async def test_a_store_without_room_is_503() -> None:
    stores = Stores(MemoryKV(max_items=1), MemoryLog(), MemoryBus())
    app = make_server(stores=stores).http_app()
    async with serving(app) as [client]:
        refused = await client.post(initialize_request())
        assert refused.status == 503
        assert app.sessions is not None
        assert len(app.sessions) == 0


async def test_a_session_keeps_little_of_what_its_client_says_of_itself() -> None:
    stores = Stores.memory()
    app = make_server(stores=stores).http_app()
    async with serving(app) as [client]:
        request = initialize_request()
        request["params"]["clientInfo"]["description"] = "d" * 64_000
        assert (await client.post(request)).status == 200
        (key,) = await stores.kv.keys("toolwire:session:")
        assert len(await stores.kv.get(key) or b"") < 200
        request["params"]["clientInfo"]["title"] = "t" * 64_000
        answer = (await client.post(request)).json()
        assert answer["error"]["code"] == -32602
        assert "too large to be remembered" in answer["error"]["message"]


async def test_a_session_that_nobody_uses_is_over() -> None:
    now = 0.0
    stores = Stores(MemoryKV(clock=lambda: now), MemoryLog(), MemoryBus())
    app = make_server(stores=stores).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        now += 29 * 60
        assert (await client.post(client.request("tools/list"))).status == 200
        now += 32 * 60
        assert (await client.post(client.request("tools/list"))).status == 404


async def test_a_session_that_is_used_lives_on_until_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    stores = Stores(MemoryKV(clock=lambda: now), MemoryLog(), MemoryBus())
    app = make_server(stores=stores).http_app()
    async with serving(app) as [client]:
        await client.post(b"{}")  # Starts it.
        assert app.sessions is not None
        app.sessions._clock = app.sessions._records._clock = lambda: now
        await client.initialize()
        for _ in range(25):
            now += 28 * 60
            assert (await client.post(client.request("tools/list"))).status == 200
        now += 28 * 60
        assert (await client.post(client.request("tools/list"))).status == 404


async def test_a_replica_that_shares_only_the_key_serves_plain_calls(gate: Gate) -> None:
    apps = [make_server(gate).http_app() for _ in range(2)]
    async with serving(*apps) as [client, _]:
        await client.initialize("2025-06-18", {"sampling": {}, "experimental": {"x": {}}})
        other = client.at(apps[1])
        assert text_of(await other.call("add", {"a": 2, "b": 3})) == "5"
        seen = json.loads(text_of(await other.call("whoami")))
        assert seen["capabilities"] == {"sampling": {}}
        assert seen["client"] is None
        assert await other.result("resources/subscribe", {"uri": "note://today"}) == {}
        assert (await other.delete()).status == 200
        assert (await other.post(other.request("tools/list"))).status == 404


async def test_a_session_costs_a_process_next_to_nothing(app: HttpApp) -> None:
    async with serving(app) as [client]:
        for _ in range(20):
            session = client.at(app)
            await session.initialize()
            await session.call("add", {"a": 1, "b": 1})
        assert nothing_is_left(app)
        assert app.sessions is not None
        assert len(app.sessions) == 20


@pytest.mark.covers("3.4.3.1")
async def test_stateless_gives_no_session() -> None:
    app = make_server().http_app(stateless=True)
    async with serving(app) as [client]:
        answer = await client.post(initialize_request("2025-06-18"))
        assert answer.status == 200
        assert "mcp-session-id" not in answer.headers
        version = {"mcp-protocol-version": "2025-06-18"}
        listed = await client.post(client.request("tools/list"), version)
        assert listed.status == 200
        assert len(listed.json()["result"]["tools"]) > 3
        assert (await client.start_get(version).finished()).status == 405
        assert (await client.delete(version)).status == 405
        call = {"name": "report", "arguments": {}, "_meta": {"progressToken": 1}}
        said = await client.post(client.request("tools/call", call), version)
        assert said.is_stream
        assert text_of(said.answer()) == "reported"


@pytest.mark.parametrize("principal", [None, "alice"])
async def test_stateless_promises_nothing_that_takes_a_connection(principal: str | None) -> None:
    app = make_server().http_app(stateless=True)
    async with serving(app) as [client]:
        client.principal = principal
        opened = await client.post(initialize_request("2025-06-18"))
        assert opened.json()["result"]["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}}
        version = {"mcp-protocol-version": "2025-06-18"}
        for method, params in (
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "note://today"}),
        ):
            refused = await client.post(client.request(method, params), version)
            assert (refused.status, refused.json()["error"]["code"]) == (200, -32601)
        said = await client.post(client.request("tools/call", {"name": "report", "arguments": {}}), version)
        assert not said.is_stream, "log messages are not sent either"


@pytest.mark.covers("3.4.6.2", "3.4.6.5", "2.1.10")
async def test_stateless_takes_a_request_without_a_version_for_2025_03_26() -> None:
    app = make_server().http_app(stateless=True)
    async with serving(app) as [client]:
        seen = json.loads(text_of((await client.post(client.request("tools/call", {"name": "whoami"}))).json()))
        assert seen["revision"] == "2025-03-26"
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = await client.post([client.request("tools/call", call, id=1), note, client.request("ping", id=2)])
        answers = {each["id"]: each for each in answer.json()}
        assert text_of(answers[1]) == "3"
        assert answers[2]["result"] == {}
        assert (await client.post([note])).status == 202
        assert (await client.post([])).status == 400
        [refused] = (await client.post([initialize_request()])).json()
        assert refused["error"]["code"] == -32600
        later = {"mcp-protocol-version": "2025-06-18"}
        assert (await client.post([client.request("ping")], later)).status == 400
        assert (await client.post(b"{", later)).status == 400


@pytest.mark.covers("2.1.7")
@pytest.mark.parametrize("spelling", [b"Mcp-Session-Id", b"MCP-SESSION-ID", b"mcp-session-id"])
async def test_the_session_header_may_be_spelled_in_any_case(client: SessionClient, spelling: bytes) -> None:
    await client.initialize()
    identifier = client.headers.pop("mcp-session-id")
    answer = await client.post(client.request("ping"), raw_headers=[(spelling, identifier.encode())])
    assert answer.status == 200
    twice = [(spelling, identifier.encode())] * 2
    assert (await client.post(client.request("ping"), raw_headers=twice)).status == 404


# --- one POST ---


@pytest.mark.covers("3.4.1.4", "3.4.1.5")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_a_plain_call_is_answered_with_json(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    answer = await client.start_call("add", {"a": 1, "b": 2}).finished()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert text_of(answer.json()) == "3"
    unknown = await client.post(client.request("no/such"))
    assert (unknown.status, unknown.json()["error"]["code"]) == (200, -32601)
    assert await client.result("ping") == {}


@pytest.mark.covers("3.4.1.3", "3.4.10.9")
async def test_notifications_and_answers_are_202_without_a_body(client: SessionClient) -> None:
    await client.initialize()
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/unheard/of"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
        {"jsonrpc": "2.0", "id": 17, "result": {}},
        {"jsonrpc": "2.0", "id": "zzzzzzzz.1", "result": {}},
        {"jsonrpc": "2.0", "id": "nobody", "error": {"code": -1, "message": "no"}},
        {"jsonrpc": "2.0", "error": {"code": -1, "message": "no"}},
    ):
        answer = await client.post(message)
        assert (answer.status, answer.body) == (202, b""), message


@pytest.mark.covers("3.4.1.2")
@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json, text/event-stream", 200),
        ("text/event-stream;q=0.5, APPLICATION/JSON", 200),
        ("*/*", 200),
        (None, 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
    ],
)
async def test_a_request_accepts_both_forms_of_an_answer(
    client: SessionClient, accept: str | None, status: int
) -> None:
    await client.initialize()
    answer = await client.post(client.request("tools/list"), {"accept": accept})
    assert answer.status == status
    opened = await client.post(initialize_request(), {"accept": accept, "mcp-session-id": None})
    assert opened.status == status


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"null", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b"[" * 200 + b"]" * 200, -32600),
    ],
)
async def test_what_is_no_message_is_400(client: SessionClient, app: HttpApp, body: bytes, code: int) -> None:
    await client.initialize()
    answer = await client.post(body)
    assert answer.status == 400
    assert answer.json()["error"]["code"] == code
    assert nothing_is_left(app)


@pytest.mark.covers("3.4.2.1", "3.4.2.2", "1.6.7", "2.1.15", "J32")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_what_a_call_says_comes_on_its_own_stream(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    standalone = await client.get()
    answer = await client.start_call("report", _meta={"progressToken": "t"}).finished()
    assert answer.is_stream
    assert answer.headers["x-accel-buffering"] == "no"
    assert [message.get("method") for message in answer.messages] == [
        "notifications/message",
        "notifications/progress",
        None,
    ]
    assert text_of(answer.answer()) == "reported"
    identifiers = [event.id for event in answer.events]
    assert len(set(identifiers)) == len(identifiers)
    assert len({identifier.partition(".")[0] for identifier in identifiers}) == 1
    assert standalone.messages == []


@pytest.mark.covers("2.1.12", "3.4.4.3", "3.4.4.7", "T-33", "3.4.10.10")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_priming_is_for_2025_11_25_only(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    answer = await client.start_call("report").finished()
    primed = revision == "2025-11-25"
    assert (answer.events[0].data == "" and answer.events[0].id != "") == primed
    assert (answer.retry is not None) == primed
    assert all(event.data for event in answer.events[1:])
    opened = await client.get()
    assert ([event.data for event in opened.events] == [""]) == primed


@pytest.mark.covers("3.4.2.1", "T-42")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_question_goes_out_on_the_stream_and_its_answer_is_posted(client: SessionClient, revision: str) -> None:
    await client.initialize(revision, ASKING)
    call = client.start_call("ask")
    question = await call.message("elicitation/create")
    assert question["params"]["message"] == "Your name?"
    assert (await client.respond(question, {"action": "accept", "content": {"value": "Ada"}})).status == 202
    await call.finished()
    assert text_of(call.answer()) == "accept: Ada"


async def test_an_answer_from_another_session_is_nobodys(client: SessionClient, app: HttpApp) -> None:
    await client.initialize("2025-11-25", ASKING)
    thief = client.at(app)
    await thief.initialize("2025-11-25", ASKING)
    call = client.start_call("ask")
    question = await call.message("elicitation/create")
    assert (await thief.respond(question, {"action": "accept", "content": {"value": "Eve"}})).status == 202
    await client.respond(question, {"action": "decline"})
    await call.finished()
    assert text_of(call.answer()) == "decline: None"


async def test_a_question_that_is_refused_is_a_tools_failure(client: SessionClient) -> None:
    await client.initialize("2025-11-25", ASKING)
    call = client.start_call("ask")
    question = await call.message("elicitation/create")
    error = {"code": -32603, "message": "no screen"}
    assert (await client.post({"jsonrpc": "2.0", "id": question["id"], "error": error})).status == 202
    await call.finished()
    assert call.answer()["result"]["isError"] is True


async def test_an_id_that_is_in_flight_is_not_taken_twice(client: SessionClient, gate: Gate) -> None:
    await client.initialize()
    call = client.start_call("silent", id="one")
    await gate.reached.wait()
    again = await client.start_call("add", {"a": 1, "b": 1}, id="one").finished()
    assert again.json()["error"]["code"] == -32600
    gate.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "silence"


async def test_too_many_calls_at_once_are_429(gate: Gate) -> None:
    app = make_server(gate, limits=Limits(in_flight=1)).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        call = client.start_call("silent")
        await gate.reached.wait()
        refused = await client.start_call("add", {"a": 1, "b": 1}).finished()
        assert refused.status == 429
        assert "retry-after" in refused.headers
        gate.opened.set()
        await call.finished()
        assert (await client.start_call("add", {"a": 1, "b": 1}).finished()).status == 200


async def test_a_slow_reader_holds_the_call_back(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("almanac", secret=SECRET)
    said = 0

    @server.tool
    async def flood(ctx: Context) -> str:
        nonlocal said
        for _ in range(100):
            await ctx.info("x" * 100_000)
            said += 1
        return "done"

    async with serving(server.http_app()) as [client]:
        await client.initialize()
        call = client.start_call("flood")
        call.stop_reading()
        await call.until(lambda: call.stalled)
        for _ in range(200):
            await asyncio.sleep(0)
        assert said < 60
        call.read_on()
        await call.finished()
        assert text_of(call.answer()) == "done"
        assert len(call.messages) == 101


class SlowBus(MemoryBus):
    """A bus that takes messages when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def publish(self, topic: str, data: bytes) -> None:
        self.asked.set()
        await self.go.wait()
        await super().publish(topic, data)


async def test_an_id_is_not_taken_twice_while_a_batch_waits(gate: Gate) -> None:
    bus = SlowBus()
    app = make_server(gate, stores=Stores(MemoryKV(), MemoryLog(), bus)).http_app()
    async with serving(app) as [client]:
        await client.initialize("2025-03-26")
        call = client.request("tools/call", {"name": "silent", "arguments": {}}, id=1)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
        batch = client.start_post([call, cancelled])
        await bus.asked.wait()
        alone = client.start_post(call)
        await gate.reached.wait()
        bus.go.set()
        [refused] = (await batch.finished()).json()
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)
        gate.opened.set()
        assert (await alone.finished()).answer()["result"]["content"][0]["text"] == "silence"
        assert app.sessions is not None
        assert len(app.sessions.calls) == len(app.sessions.streams) == 0


# --- batches ---


@pytest.mark.covers("1.1.1.1", "1.1.1.6", "3.4.1.1", "3.4.10.8")
async def test_a_batch_is_answered_with_an_array(client: SessionClient) -> None:
    await client.initialize("2025-03-26")
    add = {"name": "add", "arguments": {"a": 1, "b": 1}}
    answer = await client.post(
        [
            client.request("tools/call", add, id=1),
            client.request("ping", id=2),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            client.request("no/such", id=3),
            {"jsonrpc": "2.0", "id": 4},
        ]
    )
    assert answer.status == 200
    by_id = {each["id"]: each for each in answer.json()}
    assert sorted(by_id) == [1, 2, 3, 4]
    assert text_of(by_id[1]) == "2"
    assert by_id[2]["result"] == {}
    assert by_id[3]["error"]["code"] == -32601
    assert by_id[4]["error"]["code"] == -32600


async def test_a_batch_that_says_something_becomes_a_stream(client: SessionClient) -> None:
    await client.initialize("2025-03-26")
    answer = await client.post(
        [
            client.request("ping", id=1),
            client.request("tools/call", {"name": "report", "arguments": {}}, id=2),
            client.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 2}}, id=3),
        ]
    )
    assert answer.is_stream
    answers = {each["id"]: each for each in answer.messages if "id" in each}
    assert answers[1]["result"] == {}
    assert text_of(answers[2]) == "reported"
    assert text_of(answers[3]) == "4"


@pytest.mark.covers("1.1.1.4", "1.1.1.2", "1.1.1.3", "1.1.1.7")
async def test_batches_that_have_no_answer_or_are_none(client: SessionClient) -> None:
    await client.initialize("2025-03-26")
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    response = {"jsonrpc": "2.0", "id": 5, "result": {}}
    assert (await client.post([note, note])).status == 202
    assert (await client.post([response, response])).status == 202
    assert (await client.post([])).status == 400
    assert (await client.post([response, client.request("ping")])).status == 400
    assert (await client.post([note] * 101)).status == 400
    [refused] = (await client.post([initialize_request()])).json()
    assert refused["error"]["code"] == -32600
    alone = await client.post([initialize_request()], {"mcp-session-id": None})
    assert alone.status == 400


@pytest.mark.covers("1.1.1.8", "T-6")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_other_revisions_have_no_batches(client: SessionClient, revision: str) -> None:
    await client.initialize(revision)
    answer = await client.post([client.request("ping")])
    assert answer.status == 400
    assert answer.json()["error"]["code"] == -32600


async def test_a_batch_that_is_cancelled_is_still_answered(client: SessionClient, gate: Gate) -> None:
    await client.initialize("2025-03-26")
    batch = client.start_post([client.request("tools/call", {"name": "silent", "arguments": {}}, id="gone")])
    await gate.reached.wait()
    await client.notify("notifications/cancelled", {"requestId": "gone"})
    await batch.finished()
    [answer] = batch.json()
    assert answer["id"] == "gone"
    assert "error" in answer


# --- cancelling and going away ---


@pytest.mark.covers("1.5.7", "T-10")
@pytest.mark.parametrize("tool", ["silent", "hold"])
async def test_a_cancelled_call_stops_and_its_exchange_ends(
    client: SessionClient, app: HttpApp, gate: Gate, tool: str
) -> None:
    await client.initialize()
    call = client.start_call(tool, id=7)
    await gate.reached.wait()
    assert (await client.notify("notifications/cancelled", {"requestId": 7})).status == 202
    await gate.cancelled.wait()
    await call.finished()
    if tool == "hold":
        assert call.is_stream
        assert [each for each in call.messages if "id" in each] == []
    else:
        assert call.status == 200
        assert "error" in call.json()
    assert nothing_is_left(app)


async def test_a_session_cannot_cancel_what_is_not_its_own(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize()
    other = client.at(app)
    await other.initialize()
    call = client.start_call("silent", id=7)
    await gate.reached.wait()
    await other.notify("notifications/cancelled", {"requestId": 7})
    gate.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "silence"


@pytest.mark.covers("1.5.6", "3.4.2.4", "T-10", "2.1.11")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_a_client_that_goes_away_cancels_nothing_and_comes_back_for_the_rest(
    client: SessionClient, app: HttpApp, gate: Gate, revision: str
) -> None:
    await client.initialize(revision)
    call = client.start_call("hold", id=5)
    await call.message("notifications/message")
    await gate.reached.wait()
    seen = call.last_event_id
    await call.disconnect()
    gate.opened.set()
    await gate.finished.wait()
    assert not gate.cancelled.is_set()
    resumed = await client.get({"last-event-id": seen})
    assert resumed.status == 200
    await resumed.finished()
    assert [each["params"]["data"] for each in resumed.messages if "method" in each] == ["going on"]
    assert text_of(resumed.messages[-1]) == "held"
    assert nothing_is_left(app)


async def test_a_stream_that_is_resumed_while_the_call_runs_goes_on_live(client: SessionClient, gate: Gate) -> None:
    await client.initialize()
    call = client.start_call("hold")
    await call.message("notifications/message")
    await gate.reached.wait()
    # The client lost its connection, and the server has not noticed.
    resumed = await client.get({"last-event-id": call.last_event_id})
    await call.finished()
    gate.opened.set()
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "held"
    assert len(call.messages) == 1


async def test_a_connection_that_takes_nothing_does_not_hold_up_its_successor(
    client: SessionClient, gate: Gate
) -> None:
    await client.initialize()
    call = client.start_call("hold")
    await call.message("notifications/message")
    await gate.reached.wait()
    call.stop_reading()
    gate.opened.set()
    await call.until(lambda: call.stalled)
    resumed = await client.get({"last-event-id": call.last_event_id})
    await resumed.finished()
    assert [each["params"]["data"] for each in resumed.messages if "method" in each] == ["going on"]
    assert text_of(resumed.messages[-1]) == "held"


async def test_a_call_that_nobody_can_hear_of_runs_to_its_end(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize()
    call = client.start_call("silent")
    await gate.reached.wait()
    await call.disconnect()
    gate.opened.set()
    await gate.finished.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert nothing_is_left(app)


async def test_a_quiet_call_becomes_a_stream_that_can_be_resumed(
    client: SessionClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_stream, "OPENS_AFTER", 0.0)
    await client.initialize()
    call = client.start_call("silent")
    await call.until(lambda: call.events)
    assert call.events[0].data == ""
    await call.disconnect()
    gate.opened.set()
    resumed = await client.get({"last-event-id": call.last_event_id})
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "silence"


@pytest.mark.covers("2.1.14", "3.4.4.3", "3.4.4.4")
async def test_a_stream_that_is_closed_early_goes_on_by_get(client: SessionClient, gate: Gate) -> None:
    await client.initialize("2025-11-25")
    call = await client.start_call("poll", id=3).finished()
    assert call.is_stream
    assert call.messages == []
    assert call.events[0].data == ""
    assert call.retry == 70
    polled = await client.get({"last-event-id": call.last_event_id})
    gate.opened.set()
    await polled.finished()
    assert polled.messages[-1]["id"] == 3
    assert text_of(polled.messages[-1]) == "polled"


@pytest.mark.covers("3.4.2.3")
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18"])
async def test_earlier_revisions_are_never_closed_early(client: SessionClient, gate: Gate, revision: str) -> None:
    await client.initialize(revision)
    call = client.start_call("poll")
    await gate.reached.wait()
    assert not call.ended
    gate.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "polled"


async def test_a_question_waits_for_a_client_that_comes_back(client: SessionClient) -> None:
    await client.initialize("2025-11-25", ASKING)
    call = client.start_call("ask")
    await call.until(lambda: call.events)
    primed = call.events[0].id
    question = await call.message("elicitation/create")
    await call.disconnect()
    resumed = await client.get({"last-event-id": primed})
    assert await resumed.message("elicitation/create") == question
    await client.respond(question, {"action": "accept", "content": {"value": "Ada"}})
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "accept: Ada"


async def test_an_answer_too_large_to_keep_is_an_error_for_who_comes_late(
    client: SessionClient, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_stream, "OPENS_AFTER", 0.0)
    await client.initialize()
    there, away = (client.start_call("large", {"size": 2_000_000}) for _ in range(2))
    for call in (there, away):
        await call.until(lambda call=call: call.events)
    await away.disconnect()
    gate.opened.set()
    await there.finished()
    assert len(text_of(there.answer())) == 2_000_000
    late = await client.get({"last-event-id": away.last_event_id})
    await late.finished()
    assert late.messages[-1]["error"]["code"] == -32603


# --- resuming what is not there ---


@pytest.mark.covers("3.4.4.1", "3.4.4.2", "3.4.4.9", "T-43")
async def test_event_ids_of_others_resume_nothing(client: SessionClient, app: HttpApp, gate: Gate) -> None:
    await client.initialize()
    mine = await client.start_call("report").finished()
    other = client.at(app)
    await other.initialize()
    theirs = await other.start_call("report").finished()
    stream, _, position = mine.last_event_id.partition(".")
    other_stream, _, other_position = theirs.last_event_id.partition(".")
    for identifier in (
        theirs.last_event_id,
        f"{stream}.{other_position}",
        f"{other_stream}.{position}",
        f"{stream}.",
        f"{stream}.~x",
        f"{stream}.99999999999999999999999",
        f"{stream}",
        "1",
        "x" * 1000,
    ):
        answer = await client.start_get({"last-event-id": identifier}).finished()
        assert answer.status == 400, identifier
    assert nothing_is_left(app)
    again = await client.start_get({"last-event-id": mine.events[0].id}).finished()
    assert again.messages == mine.messages
    nothing_more = await client.start_get({"last-event-id": mine.last_event_id}).finished()
    assert (nothing_more.status, nothing_more.messages) == (200, [])


# --- the session's own stream ---


@pytest.mark.covers("3.4.3.1", "3.4.3.2")
@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_changes_come_on_the_stream_that_a_get_opens(gate: Gate, revision: str) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize(revision)
        stream = await client.get()
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        server.notify_changed("tools")
        await stream.message("notifications/tools/list_changed")
        server.notify_updated("note://today")
        assert await client.result("resources/subscribe", {"uri": "note://today"}) == {}
        server.notify_updated("note://today")
        server.notify_updated("note://tomorrow")
        updated = await stream.message("notifications/resources/updated")
        assert updated["params"] == {"uri": "note://today"}
        assert await client.result("resources/unsubscribe", {"uri": "note://today"}) == {}
        server.notify_updated("note://today")
        server.notify_changed("prompts")
        await stream.message("notifications/prompts/list_changed")
        assert len([each for each in stream.messages if each["method"] == "notifications/resources/updated"]) == 1


async def test_a_get_has_to_accept_a_stream(client: SessionClient) -> None:
    await client.initialize()
    assert (await client.start_get({"accept": "application/json"}).finished()).status == 406


async def test_the_log_level_belongs_to_the_session(gate: Gate) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        stream = await client.get()
        assert await client.result("logging/setLevel", {"level": "error"}) == {}
        assert (await client.start_call("report").finished()).messages[:-1] == []
        server.log("info", "unheard")
        server.log("critical", "heard")
        message = await stream.message("notifications/message")
        assert message["params"]["data"] == "heard"
        assert await client.result("logging/setLevel", {"level": "debug"}) == {}
        assert len((await client.start_call("report").finished()).messages) == 2


@pytest.mark.covers("3.4.3.4", "T-43", "J91")
async def test_nothing_is_said_on_two_streams(gate: Gate) -> None:
    server = make_server(gate)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize()
        first, second = await client.get(), await client.get()
        server.notify_changed("tools")
        await second.message("notifications/tools/list_changed")
        assert first.messages == []
        # The one that had the word goes, and the other takes over.
        await second.disconnect()
        for _ in range(10):
            await asyncio.sleep(0)
        server.notify_changed("prompts")
        await first.message("notifications/prompts/list_changed")


async def test_changes_that_were_not_promised_are_not_told() -> None:
    stores = Stores(MemoryKV(), MemoryLog(), MemoryBus(max_pending=4))
    server = make_server(capabilities={"tools": {"listChanged": False}, "resources": None}, stores=stores)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        stream = await client.get()
        for family in ("tools", "resources", "prompts"):
            server.notify_changed(family)
        await stream.message("notifications/prompts/list_changed")
        for number in range(20):
            server.notify_updated(f"note://{number}")  # So many that some are lost, and everything is told again.
        await stream.until(lambda: len(stream.messages) > 1)
        assert {each["method"] for each in stream.messages} == {"notifications/prompts/list_changed"}


async def test_a_session_has_so_many_streams_and_no_more(gate: Gate) -> None:
    app = make_server(gate, limits=Limits(streams=2)).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        streams = [await client.get() for _ in range(2)]
        refused = await client.start_get().finished()
        assert refused.status == 429
        assert "retry-after" in refused.headers
        await streams[0].disconnect()
        assert (await client.get()).status == 200


@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_the_sessions_own_stream_resumes_too(gate: Gate, revision: str) -> None:
    server = make_server(gate)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize(revision)
        stream = await client.get()
        server.notify_changed("tools")
        await stream.message("notifications/tools/list_changed")
        await stream.disconnect()
        server.notify_changed("prompts")
        resumed = await client.get({"last-event-id": stream.last_event_id})
        await resumed.message("notifications/prompts/list_changed")
        server.notify_changed("resources")
        await resumed.message("notifications/resources/list_changed")
        assert [each["method"].split("/")[1] for each in resumed.messages] == ["prompts", "resources"]


async def test_what_is_said_while_the_connection_takes_nothing_is_there_for_its_successor(gate: Gate) -> None:
    server = make_server(gate)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        server.notify_changed("tools")
        await stream.message("notifications/tools/list_changed")
        stream.stop_reading()
        server.notify_changed("prompts")
        await stream.until(lambda: stream.stalled)
        server.notify_changed("resources")  # Which nobody has written down yet.
        await caught_up(app)
        resumed = await client.get({"last-event-id": stream.last_event_id})
        await resumed.message("notifications/resources/list_changed")
        assert [each["method"].split("/")[1] for each in resumed.messages] == ["prompts", "resources"]


async def test_what_is_not_said_when_a_session_ends_is_never_written(gate: Gate) -> None:
    stores = Stores.memory()
    server = make_server(gate, stores=stores)
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        stream.stop_reading()
        server.notify_changed("prompts")
        await stream.until(lambda: stream.stalled)
        server.notify_changed("resources")
        await caught_up(app)
        assert (await client.delete()).status in (200, 204)
        stream.read_on()
        await stream.finished()
    assert isinstance(stores.log, MemoryLog)
    assert stores.log._streams == {}


async def test_a_stream_that_nobody_comes_back_to_is_given_up(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_stream, "LINGER", 0.0)
    app = make_server(gate).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        await stream.disconnect()
        while not nothing_is_left(app):
            await asyncio.sleep(0)


async def test_an_open_stream_is_kept_alive_and_ends_with_its_session(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get_stream, "KEEP_ALIVE", 0.001)
    stores = Stores.memory()
    app = make_server(gate, stores=stores).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        stream = await client.get()
        await stream.until(lambda: b": keep-alive" in stream.body)
        assert isinstance(stores.kv, MemoryKV)
        for key in [key for key in stores.kv._items if key.startswith("toolwire:session:")]:
            await stores.kv.delete(key)  # As if its time had run out.
        await stream.finished()


async def test_a_busy_session_is_told_of_each_change_once_it_keeps_up(gate: Gate) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        for number in range(20):
            await client.result("resources/subscribe", {"uri": f"note://{number}"})
        stream = await client.get()
        stream.stop_reading()
        for number in range(20):
            server.notify_updated(f"note://{number}")
        await stream.until(lambda: stream.stalled)
        stream.read_on()
        await stream.until(lambda: len(stream.messages) == 20)
        assert {each["params"]["uri"] for each in stream.messages} == {f"note://{number}" for number in range(20)}


async def test_a_bus_that_lost_messages_costs_no_change(gate: Gate) -> None:
    stores = Stores(MemoryKV(), MemoryLog(), MemoryBus(max_pending=4))
    server = make_server(gate, stores=stores)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        await client.result("resources/subscribe", {"uri": "note://today"})
        stream = await client.get()
        server.notify_updated("note://today")
        server.notify_changed("tools")
        for number in range(20):
            server.notify_updated(f"note://{number}")
        await stream.message("notifications/tools/list_changed")
        await stream.message("notifications/resources/updated")
        server.notify_changed("prompts")
        await stream.until(
            lambda: len([each for each in stream.messages if each["method"].endswith("prompts/list_changed")]) >= 1
        )


async def test_many_streams_that_open_at_once_all_get_the_word(gate: Gate) -> None:
    stores = Stores(MemoryKV(), MemoryLog(), MemoryBus(max_pending=8))
    server = make_server(gate, stores=stores)
    async with serving(server.http_app()) as [client]:
        sessions = [client.at(client.app) for _ in range(40)]
        for session in sessions:
            await session.initialize()
        streams = await asyncio.gather(*(session.get() for session in sessions))
        server.notify_changed("tools")
        await asyncio.gather(*(stream.message("notifications/tools/list_changed") for stream in streams))
        for session in sessions:
            await session.close()


async def test_subscriptions_have_a_bound(gate: Gate) -> None:
    app = make_server(gate).http_app()
    async with serving(app) as [client]:
        await client.initialize()
        answer = await client.post(client.request("resources/subscribe", {"uri": "x://" + "y" * 100_000}))
        assert answer.json()["error"]["code"] == -32602


async def test_subscriptions_made_at_once_are_all_remembered(gate: Gate) -> None:
    server = make_server(gate)
    async with serving(server.http_app()) as [client]:
        await client.initialize()
        stream = await client.get()
        await asyncio.gather(
            *(client.result("resources/subscribe", {"uri": f"note://{number}"}) for number in range(8))
        )
        for number in range(8):
            server.notify_updated(f"note://{number}")
        await stream.until(lambda: len(stream.messages) == 8)


# --- two replicas ---


async def test_a_question_is_answered_at_the_other_replica(replicas: Replicas) -> None:
    here, there = await two(replicas)
    call = here.start_call("ask")
    question = await call.message("elicitation/create")
    answer = await there.respond(question, {"action": "accept", "content": {"value": "Ada"}})
    assert answer.status == 202
    await call.finished()
    assert text_of(call.answer()) == "accept: Ada"


async def test_a_refusal_is_handed_on_to_the_other_replica(replicas: Replicas) -> None:
    here, there = await two(replicas)
    call = here.start_call("ask")
    question = await call.message("elicitation/create")
    await there.post({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
    await call.finished()
    assert call.answer()["result"]["isError"] is True


async def test_a_call_is_cancelled_at_the_other_replica(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    call = here.start_call("hold", id="mine")
    await gate.reached.wait()
    assert (await there.notify("notifications/cancelled", {"requestId": "mine"})).status == 202
    await gate.cancelled.wait()
    await call.finished()


async def test_a_stream_at_the_other_replica_hears_everything(replicas: Replicas) -> None:
    here, there = await two(replicas)
    stream = await there.get()
    await here.result("resources/subscribe", {"uri": "note://today"})
    replicas.servers[0].notify_updated("note://today")
    assert (await stream.message("notifications/resources/updated"))["params"] == {"uri": "note://today"}
    replicas.servers[0].notify_changed("tools")
    await stream.message("notifications/tools/list_changed")
    replicas.servers[1].notify_changed("prompts")
    await stream.message("notifications/prompts/list_changed")
    replicas.servers[0].log("error", "smoke")
    await stream.message("notifications/message")


async def test_streams_at_two_replicas_share_the_word(replicas: Replicas) -> None:
    here, there = await two(replicas)
    first, second = await here.get(), await there.get()
    replicas.servers[0].notify_changed("tools")
    await second.message("notifications/tools/list_changed")
    assert first.messages == []
    third = await here.get()
    replicas.servers[1].notify_changed("prompts")
    await third.message("notifications/prompts/list_changed")
    assert len(second.messages) == 1
    assert first.messages == []


async def test_a_call_is_resumed_at_the_other_replica(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    call = here.start_call("hold", id=9)
    await call.message("notifications/message")
    await gate.reached.wait()
    await call.disconnect()
    resumed = await there.get({"last-event-id": call.last_event_id})
    gate.opened.set()
    await resumed.finished()
    assert resumed.messages[-1]["id"] == 9
    assert text_of(resumed.messages[-1]) == "held"


async def test_a_polled_call_is_resumed_at_the_other_replica_before_it_is_done(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    call = await here.start_call("poll").finished()
    resumed = await there.get({"last-event-id": call.last_event_id})
    gate.opened.set()
    await resumed.finished()
    assert text_of(resumed.messages[-1]) == "polled"


async def test_the_sessions_own_stream_moves_to_the_other_replica(replicas: Replicas) -> None:
    here, there = await two(replicas)
    stream = await here.get()
    replicas.servers[0].notify_changed("tools")
    await stream.message("notifications/tools/list_changed")
    await stream.disconnect()
    replicas.servers[1].notify_changed("prompts")
    resumed = await there.get({"last-event-id": stream.last_event_id})
    await resumed.message("notifications/prompts/list_changed")
    replicas.servers[0].notify_changed("resources")
    await resumed.message("notifications/resources/list_changed")
    assert len(resumed.messages) == 2
    assert nothing_is_left(replicas.apps[0])


async def test_the_word_of_a_process_that_crashed_is_taken_over(replicas: Replicas) -> None:
    here, there = await two(replicas)
    await here.result("resources/subscribe", {"uri": "note://today"})
    first, second = await here.get(), await there.get()
    replicas.servers[0].notify_changed("prompts")
    await second.message("notifications/prompts/list_changed")
    alive, crashing = (app.sessions.streams for app in replicas.apps)
    (waiting,) = alive._listeners()
    answered = asyncio.Event()
    alive._link.on("speaker", lambda data: answered.set())
    for _ in range(4):
        # The test gives the beats: a clock would count a busy machine as a crash.
        waiting._beat()
        await answered.wait()
        answered.clear()
    assert first.messages == []  # For as long as the other one is there.
    crashing._gets.clear()  # It hears nothing, and says nothing, and has told nobody.
    crashing.leave()
    waiting._beat()
    waiting._beat()
    await first.message("notifications/tools/list_changed")
    updated = await first.message("notifications/resources/updated")
    assert updated["params"] == {"uri": "note://today"}
    assert len(second.messages) == 1


async def test_delete_counts_at_the_other_replica(replicas: Replicas, gate: Gate) -> None:
    here, there = await two(replicas)
    stream = await there.get()
    call = there.start_call("hold")
    await gate.reached.wait()
    assert (await here.delete()).status == 200
    await stream.finished()
    await call.finished()
    await gate.cancelled.wait()
    assert (await there.post(there.request("tools/list"))).status == 404
    assert (await here.post(here.request("tools/list"))).status == 404
    assert all(nothing_is_left(app) for app in replicas.apps)


async def test_modern_listeners_hear_of_changes_at_the_other_replica(replicas: Replicas) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    client = HttpClient(replicas.apps[0])
    await two(replicas)
    stream = client.start_post(listen, headers)
    await stream.message("notifications/subscriptions/acknowledged")
    replicas.servers[1].notify_changed("tools")
    await stream.message("notifications/tools/list_changed")
    replicas.servers[0].notify_changed("tools")
    await stream.until(lambda: len(stream.messages) == 3)
    await stream.disconnect()


async def test_many_sessions_over_two_replicas_at_once(replicas: Replicas, gate: Gate) -> None:
    gate.opened.set()
    apps, servers = replicas.apps, replicas.servers

    async def one(number: int) -> None:
        here, there = apps[number % 2], apps[(number + 1) % 2]
        client = SessionClient(here)
        try:
            await client.initialize("2025-11-25", ASKING)
            other = client.at(there)
            stream: Answer = await other.get()
            await client.result("resources/subscribe", {"uri": f"note://{number}"})
            call = client.start_call("ask")
            question = await call.message("elicitation/create")
            await other.respond(question, {"action": "accept", "content": {"value": str(number)}})
            await call.finished()
            assert text_of(call.answer()) == f"accept: {number}"
            servers[number % 2].notify_updated(f"note://{number}")
            updated = await stream.message("notifications/resources/updated")
            assert updated["params"]["uri"] == f"note://{number}"
            polled = await client.start_call("poll").finished()
            rest = await other.get({"last-event-id": polled.last_event_id})
            await rest.finished()
            assert text_of(rest.messages[-1]) == "polled"
            assert (await other.delete()).status == 200
            assert (await client.post(client.request("ping"))).status == 404
            await stream.finished()
        finally:
            await client.close()

    await asyncio.gather(*(one(number) for number in range(30)))
    assert all(nothing_is_left(app) for app in apps)


# --- the application around it ---


async def test_draining_ends_open_streams_properly(client: SessionClient, app: HttpApp) -> None:
    await client.initialize()
    stream = await client.get()
    app.drain()
    await stream.finished()
    assert (await client.start_get().finished()).status == 503
    assert text_of(await client.call("add", {"a": 1, "b": 2})) == "3"
    assert (await client.start("GET", path="/readyz").finished()).status == 503
    assert nothing_is_left(app)


async def test_stopping_lets_calls_finish_and_a_session_lives_on(gate: Gate) -> None:
    app = make_server(gate).http_app()
    client = SessionClient(app)
    await client.initialize()
    stream = await client.get()
    call = client.start_call("hold")
    await gate.reached.wait()
    stopping = asyncio.ensure_future(app.stop())
    await stream.finished()
    gate.opened.set()
    await call.finished()
    assert text_of(call.answer()) == "held"
    await stopping
    assert text_of(await client.call("add", {"a": 1, "b": 2})) == "3"
    await app.stop()
    await client.close()


async def test_what_does_not_finish_when_the_application_stops_is_cancelled(gate: Gate) -> None:
    app = make_server(gate, limits=Limits(drain=0.0)).http_app()
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("hold")
    await gate.reached.wait()
    await app.stop()
    await gate.cancelled.wait()
    await call.finished()
    await client.close()


async def test_the_session_header_is_exposed_to_browsers(gate: Gate) -> None:
    app = make_server(gate).http_app(cors=["https://app.example"])
    async with serving(app) as [client]:
        answer = await client.post(initialize_request(), {"origin": "https://app.example"})
        assert answer.status == 200
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
        refused = await client.post(initialize_request(), {"origin": "https://evil.example"})
        assert refused.status == 403
        client.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        assert (await client.start_get({"origin": "https://evil.example"}).finished()).status == 403


async def test_2026_07_28_has_neither_get_nor_sessions(client: SessionClient) -> None:
    await client.initialize()
    answer = await client.start_get({"mcp-protocol-version": "2026-07-28"}).finished()
    assert answer.status == 405
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    modern = await client.post(
        client.request("tools/list", {"_meta": meta}),
        {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"},
    )
    assert modern.status == 200
    assert modern.json()["result"]["resultType"] == "complete"
