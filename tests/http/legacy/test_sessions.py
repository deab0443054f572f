"""Legacy sessions over HTTP: how they begin and end, and the application around them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.cases import cases
from tests.http.httpclient import SessionClient, initialize_request, serving
from tests.http.legacy.session_server import ASKING, SESSION_REVISIONS, Gate, make_server, nothing_is_left, text_of

from toolwire import Limits
from toolwire.http.asgi import HttpApp
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores

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


class NamedKV(MemoryKV):
    """A store that keeps its name when it loses its content."""

    name = "redis:notes"


@pytest.mark.covers("FLT-23")
@cases("make_kv", [NamedKV, MemoryKV])
@cases("is_ended", [True, False])
async def test_a_store_with_a_name_ends_its_sessions_when_it_is_emptied(make_kv: Any, is_ended: bool) -> None:
    """A process that starts afterwards agrees with those that have run all the time."""
    kv = make_kv()
    apps = [make_server(stores=Stores(kv, MemoryLog(), MemoryBus())).http_app() for _ in range(2)]
    async with serving(*apps) as [running, _]:
        await running.initialize()
        session = running.headers["mcp-session-id"]
        if is_ended:
            assert (await running.delete()).status == 200
        for key in await kv.keys(""):
            await kv.delete(key)
        started = running.at(apps[1])
        statuses = {(await each.post(each.request("tools/list"))).status for each in (running, started)}
        assert statuses == ({404} if make_kv is NamedKV else {404, 200})
        # A session that is opened now is known to both, and ends for both.
        await started.initialize()
        assert started.headers["mcp-session-id"] != session
        again = started.at(apps[0])
        assert (await again.post(again.request("tools/list"))).status == 200
        assert (await again.delete()).status == 200
        assert {(await each.post(each.request("tools/list"))).status for each in (again, started)} == {404}


async def test_sessions_of_the_version_before_end_as_well() -> None:
    kv = NamedKV()
    await kv.put("toolwire:http:home", b"8 random")
    apps = [make_server(stores=Stores(kv, MemoryLog(), MemoryBus())).http_app() for _ in range(2)]
    async with serving(*apps) as [client, _]:
        await client.post(b"{}")  # Starts it.
        assert apps[0].sessions is not None
        apps[0].sessions._records.home = b"8 random"
        await client.initialize()
        other = client.at(apps[1])
        assert (await other.post(other.request("tools/list"))).status == 200
        assert (await client.delete()).status == 200
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


# --- the application around it ---


async def test_draining_ends_open_streams_properly(client: SessionClient, app: HttpApp) -> None:
    await client.initialize()
    stream = await client.get()
    app.drain()
    await stream.finished()
    assert (await client.start_get().finished()).status == 503
    assert text_of(await client.call("add", {"a": 1, "b": 2})) == "3"
    assert (await client.start("GET", path="/readyz").finished()).status == 503
    # What happens until the process ends is written down for a client that comes back elsewhere.
    sessions = app.sessions
    assert sessions is not None
    assert (len(sessions.calls), len(sessions.streams)) == (0, 1)
    await app.stop()
    assert (len(sessions.calls), len(sessions.streams)) == (0, 0)


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
