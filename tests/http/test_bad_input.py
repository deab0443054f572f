"""What clients do wrong over HTTP: each wrong has its status, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases
from tests.http.httpclient import Answer, HttpClient, SessionClient, initialize_request
from tests.http.modernclient import ModernClient, text_of
from tests.runtimes import streams_of
from tests.wireclient import MODERN, PREFIX, modern_meta

from toolwire import Context, Limits, Server
from toolwire.http.asgi import HttpApp
from toolwire.server.header_arguments import Header
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")

BODY_LIMIT = 20_000
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class Place:
    """A server with everything in it that a request could leave behind."""

    def __init__(self, **options: Any) -> None:
        self.now = 1000.0
        self.kv, self.log = MemoryKV(clock=lambda: self.now), MemoryLog()
        self.server = Server(
            "almanac",
            secret="a secret of at least sixteen bytes",
            limits=Limits(line=BODY_LIMIT, listeners=1000),
            stores=Stores(self.kv, self.log, MemoryBus()),
        )
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.calls = 0
        self._add_tools()
        self.app: HttpApp = self.server.http_app(**options)
        self.modern = ModernClient(self.app)
        self.plain = HttpClient(self.app)
        self.session = SessionClient(self.app)

    def _add_tools(self) -> None:
        @self.server.tool
        async def echo(text: str = "") -> str:
            self.calls += 1
            return text

        @self.server.tool
        async def route(region: Annotated[str, Header("Region")]) -> str:
            self.calls += 1
            return region

        @self.server.tool
        async def hold(ctx: Context) -> str:
            await ctx.info("holding")
            self.reached.set()
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "held"

        @self.server.prompt
        def greet() -> str:
            return "hello"

        @self.server.resource("memo://today")
        async def today() -> str:
            return "sunny"

    async def start(self) -> Place:
        """Open a session, so that there is something to be mistaken for."""
        await self.session.initialize()
        return self

    def traces(self) -> dict[str, Any]:
        sessions = self.app.sessions
        assert sessions is not None
        return {
            "sessions": len(sessions),
            "calls": len(sessions.calls),
            "streams": len(sessions.streams),
            "listeners": len(streams_of(self.server)),
            "records": sorted(self.kv._items),
            "events": sorted(self.log._streams),
            "tool calls": self.calls,
        }

    async def stop(self) -> None:
        for client in (self.modern, self.plain, self.session):
            await client.close()
        await self.app.stop()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = await Place().start()
    before, tasks = place.traces(), others()
    yield place
    # Every test of this file is about something that is refused, abandoned, or ended.
    assert place.traces() == before | {"tool calls": place.calls}
    await settled(tasks)
    await place.stop()


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def settled(before: set[asyncio.Task[Any]]) -> None:
    """Wait until no task is left that was not there before; a task that stays fails the test by its time limit."""
    async with asyncio.timeout(10):
        while others() - before:
            await asyncio.wait(others() - before)


def code_of(answer: Answer) -> int:
    code: int = answer.json()["error"]["code"]
    return code


# --- method, type, Accept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "TRACE", "OPTIONS", "CONNECT", "post", "BREW"])
async def test_other_methods_are_405(place: Place, method: str) -> None:
    answer = await place.plain.start(method).finished()
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_left_on_2026_07_28(place: Place, method: str) -> None:
    answer = await place.plain.start(method, headers={"mcp-protocol-version": MODERN}).finished()
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@cases("method", ["GET", "DELETE", "PUT"])
async def test_without_sessions_only_post_is_left(method: str) -> None:
    place = Place(stateless=True)
    answer = await place.plain.start(method).finished()
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.covers("3.4.10.3")
@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", "json"],
)
async def test_another_content_type_is_415(place: Place, content_type: str | None) -> None:
    headers = {"content-type": content_type}
    assert (await place.modern.call("echo", headers=headers)).status == 415
    assert (await place.session.post(PING, headers)).status == 415
    assert (await place.plain.post(initialize_request(), headers)).status == 415


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"]
)
async def test_parameters_and_case_of_the_content_type_do_not_matter(place: Place, content_type: str) -> None:
    assert (await place.modern.call("echo", headers={"content-type": content_type})).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, identity"])
async def test_a_compressed_body_is_415(place: Place, encoding: str) -> None:
    body = gzip.compress(json.dumps(PING).encode())
    for client in (place.plain, place.session):
        answer = await client.post(body, {"content-encoding": encoding})
        assert answer.status == 415
        assert answer.headers["accept-encoding"] == "identity"


async def test_a_body_that_says_it_is_not_compressed_is_read(place: Place) -> None:
    assert (await place.session.post(PING, {"content-encoding": "Identity"})).status == 200


@pytest.mark.covers("3.4.10.3")
@pytest.mark.parametrize("accept", ["text/html", "image/*", "text/html, application/xml;q=0.9"])
async def test_an_accept_that_fits_no_answer_is_406(place: Place, accept: str) -> None:
    headers = {"accept": accept}
    assert (await place.modern.call("echo", headers=headers)).status == 406
    assert (await place.session.post(PING, headers)).status == 406
    assert (await place.plain.post(initialize_request(), headers)).status == 406
    assert (await place.session.start_get(headers).finished()).status == 406


# --- the body -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [str(BODY_LIMIT + 1), "9" * 30])
async def test_a_body_that_announces_too_much_is_413_and_not_read(place: Place, length: str) -> None:
    headers = {"content-type": "application/json", "content-length": length}
    answer = await place.plain.start("POST", body=None, headers=headers).finished()
    assert answer.status == 413
    assert str(BODY_LIMIT).encode() in answer.body


@pytest.mark.parametrize("parts", [1, 3, 50])
async def test_a_body_that_becomes_too_long_is_413(place: Place, parts: int) -> None:
    call = place.plain.start("POST", body=None, headers={"content-type": "application/json"})
    for _ in range(parts):
        call.send_body(b" " * (BODY_LIMIT // parts + 1))
    await call.finished()
    assert call.status == 413


async def test_a_body_of_just_the_limit_is_read(place: Place) -> None:
    body = json.dumps(PING).encode()
    assert (await place.session.post(body.ljust(BODY_LIMIT))).status == 200
    assert (await place.session.post(body.ljust(BODY_LIMIT + 1))).status == 413


@pytest.mark.covers("3.4.10.4")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        json.dumps(PING).encode()[:-1],
        b"\xff",
        b'{"jsonrpc":"2.0","id":1,"method":"p\xefng"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
        json.dumps(PING).encode("utf-16"),
        b"\x00" * 10,
        b"jsonrpc=2.0&id=1&method=ping",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
    ],
)
async def test_a_body_that_is_cut_off_or_no_utf_8_is_400(place: Place, body: bytes) -> None:
    for client, headers in (
        (place.plain, {"mcp-protocol-version": MODERN, "mcp-method": "ping"}),
        (place.session, {}),
        (place.plain, {}),
        (place.plain, {"mcp-protocol-version": "2025-11-25"}),
    ):
        answer = await client.post(body, headers)
        assert answer.status == 400
        assert code_of(answer) == -32700
        assert answer.json().get("id") is None


@pytest.mark.parametrize(
    "message",
    [
        [],
        [{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}],
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}},
        {"jsonrpc": "1.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": {}, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        None,
        7,
    ],
)
async def test_what_is_no_modern_request_is_400(place: Place, message: Any) -> None:
    answer = await place.plain.post(message, {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"})
    assert (answer.status, code_of(answer)) == (400, -32600)


async def test_a_body_nested_too_deeply_is_400(place: Place) -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 5000 + b"]" * 5000 + b"}"
    for client, headers in ((place.plain, {"mcp-protocol-version": MODERN}), (place.session, {}), (place.plain, {})):
        assert (await client.post(deep, headers)).status == 400


def impatient(place: Place) -> None:
    settings = place.app.settings
    limits = msgspec.structs.replace(settings.limits, upload=0.01)
    place.app.apply_settings(msgspec.structs.replace(settings, limits=limits))


@pytest.mark.parametrize("sent", [b"", b'{"jsonrpc"'])
async def test_a_body_that_does_not_come_is_408(place: Place, sent: bytes) -> None:
    impatient(place)
    upload = place.plain.start("POST", body=None, headers={"content-type": "application/json"})
    if sent:
        upload.send_body(sent)
    await upload.finished()
    assert upload.status == 408


async def test_a_host_is_not_left_with_a_cancellation(place: Place) -> None:
    impatient(place)
    left: list[int] = []

    async def host(scope: Any, receive: Any, send: Any) -> None:
        await place.app(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None
        left.append(task.cancelling())

    upload = HttpClient(host).start("POST", body=None, headers={"content-type": "application/json"})
    await upload.task
    assert (upload.status, left) == (408, [0])


async def test_a_body_that_drips_is_408(place: Place) -> None:
    impatient(place)
    upload = place.plain.start("POST", body=None, headers={"content-type": "application/json"})
    while upload.status is None:
        upload.send_body(b" ")
        await asyncio.sleep(0)
    await upload.finished()
    assert upload.status == 408


async def test_a_body_in_many_pieces_is_one_body(place: Place) -> None:
    upload = place.plain.start("POST", body=None, headers={"content-type": "application/json", **place.session.headers})
    for byte in json.dumps(PING).encode():
        upload.send_body(bytes([byte]))
    upload.send_body(b"", more=False)
    await upload.finished()
    assert (upload.status, upload.json()["result"]) == (200, {})


# --- headers against the body -------------------------------------------------------------------------------

CALLS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("tools/call", {"name": "echo", "arguments": {}}, {}),
    ("tools/call", {"name": "route", "arguments": {"region": "eu"}}, {"mcp-param-region": "eu"}),
    ("prompts/get", {"name": "greet"}, {}),
    ("resources/read", {"uri": "memo://today"}, {}),
    ("tools/list", {}, {}),
]
DISAGREEMENTS: list[tuple[str, str | None]] = [
    ("mcp-protocol-version", None),
    ("mcp-protocol-version", "2025-11-25"),
    ("mcp-protocol-version", "2026-07-29"),
    ("mcp-protocol-version", "2026-07-28, 2026-07-28"),
    ("mcp-protocol-version", ""),
    ("mcp-method", None),
    ("mcp-method", ""),
    ("mcp-method", "server/discover"),
    ("mcp-method", "TOOLS/CALL"),
    ("mcp-name", None),
    ("mcp-name", ""),
    ("mcp-name", "other"),
    ("mcp-name", "=?base64?!?="),
    ("mcp-name", "n\u00e4me"),
    ("mcp-param-region", None),
    ("mcp-param-region", "us"),
    ("mcp-param-region", "=?base64?ZXU?="),
    ("mcp-param-region", "\x01eu"),
]


@pytest.mark.covers("HDR-4", "XMH-5", "XMH-6")
@pytest.mark.parametrize(("name", "value"), DISAGREEMENTS)
async def test_a_header_that_disagrees_is_400_and_nothing_is_called(place: Place, name: str, value: str | None) -> None:
    checked = 0
    for method, params, headers in CALLS:
        sent = {**place.modern.headers_of(method, params), **headers}
        if name not in sent:
            continue
        answer = await place.modern.request(method, params, id="seven", headers={**headers, name: value})
        assert (answer.status, code_of(answer), answer.json()["id"]) == (400, -32020, "seven")
        checked += 1
    assert checked
    assert place.calls == 0


@pytest.mark.covers("HDR-4")
@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region"])
async def test_a_header_that_comes_twice_is_400(place: Place, name: str) -> None:
    method, params, headers = CALLS[1]
    value = {**place.modern.headers_of(method, params), **headers}[name]
    assert value is not None
    answer = await place.modern.request(method, params, headers=headers, raw_headers=[(name.encode(), value.encode())])
    assert (answer.status, code_of(answer)) == (400, -32020)
    assert place.calls == 0


@pytest.mark.covers("XMH-5")
async def test_a_parameter_header_without_its_argument_is_400(place: Place) -> None:
    answer = await place.modern.call("route", {}, headers={"mcp-param-region": "eu"})
    assert (answer.status, code_of(answer)) == (400, -32020)


@pytest.mark.parametrize(
    "meta",
    [{}, {f"{PREFIX}protocolVersion": MODERN}, {f"{PREFIX}protocolVersion": 5}, [], "x", {f"{PREFIX}clientInfo": 1}],
)
async def test_metadata_that_is_incomplete_is_400(place: Place, meta: Any) -> None:
    answer = await place.modern.call("echo", meta=meta)
    assert (answer.status, code_of(answer)) == (400, -32602)


async def test_a_version_nobody_speaks_is_400_and_says_which_are_spoken(place: Place) -> None:
    meta = modern_meta() | {f"{PREFIX}protocolVersion": "2031-01-01"}
    answer = await place.modern.call("echo", meta=meta, headers={"mcp-protocol-version": "2031-01-01"})
    assert (answer.status, code_of(answer)) == (400, -32022)
    assert MODERN in answer.json()["error"]["data"]["supported"]


@pytest.mark.parametrize("method", ["no/such", "initialize", "ping", "logging/setLevel", "resources/subscribe"])
async def test_a_method_that_is_not_there_is_404(place: Place, method: str) -> None:
    answer = await place.modern.request(method)
    assert (answer.status, code_of(answer)) == (404, -32601)


async def test_a_capability_that_is_missing_is_400() -> None:
    place = await Place().start()

    @place.server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Name?", str))

    answer = await place.modern.call("ask")
    assert (answer.status, code_of(answer)) == (400, -32021)
    assert "elicitation" in answer.json()["error"]["data"]["requiredCapabilities"]
    await place.stop()


# --- sessions -----------------------------------------------------------------------------------------------


@pytest.mark.covers("J92", "3.4.10.6")
async def test_a_session_id_that_is_not_ones_own_is_404_and_makes_nothing(place: Place) -> None:
    mine = place.session.headers["mcp-session-id"]
    flipped = mine[:20] + ("A" if mine[20] != "A" else "B") + mine[21:]
    for identifier in ("", "unknown", flipped, mine + "A", mine[:-1], "\x7f\x01", "a b", "\u00e9", "x" * 60_000):
        for method in ("GET", "DELETE"):
            answer = await place.session.start(method, headers={"mcp-session-id": identifier}).finished()
            assert answer.status == 404
        answer = await place.session.post(PING, {"mcp-session-id": identifier})
        assert (answer.status, answer.json()["id"]) == (404, 1)
    stolen = place.session.at(place.app)
    stolen.principal = "mallory"
    assert (await stolen.post(PING)).status == 404
    assert (await stolen.delete()).status == 404
    assert (await place.session.post(PING)).status == 200


@pytest.mark.covers("3.4.10.6", "3.4.5.4")
async def test_a_session_that_was_idle_too_long_is_404() -> None:
    place = await Place().start()
    place.now += 3 * 3600
    assert (await place.session.post(PING)).status == 404
    assert (await place.session.start_get().finished()).status == 404
    assert (await place.session.delete()).status == 404
    assert place.traces() | {"records": []} == {
        "sessions": 0,
        "calls": 0,
        "streams": 0,
        "listeners": 0,
        "records": [],
        "events": [],
        "tool calls": 0,
    }
    await place.stop()


@pytest.mark.covers("3.4.10.7", "3.4.6.3")
@pytest.mark.parametrize("version", ["", "2025-06-19", "1999-01-01", "2025-11-25, 2025-11-25", "\u00e9"])
async def test_a_version_that_is_not_supported_is_400(place: Place, version: str) -> None:
    headers = {"mcp-protocol-version": version}
    assert (await place.session.post(PING, headers)).status == 400
    assert (await place.session.start_get(headers).finished()).status == 400
    assert (await place.session.delete(headers)).status == 400


@pytest.mark.covers("3.4.10.8")
async def test_an_array_is_400_where_there_are_no_batches(place: Place) -> None:
    answer = await place.session.post([PING])
    assert (answer.status, code_of(answer)) == (400, -32600)


async def test_an_event_of_another_session_or_stream_resumes_nothing() -> None:
    place = await Place().start()
    mine = await place.session.start_call("hold", id=1).started()
    await place.reached.wait()
    await mine.until(lambda: mine.last_event_id)
    other = place.session.at(place.app)
    await other.initialize()
    before = place.traces()
    for identifier in (mine.last_event_id, mine.last_event_id[:-1], "1", "\u00e9", "x" * 5000, "../../etc"):
        answer = await other.start_get({"last-event-id": identifier}).finished()
        assert answer.status == 400
        assert code_of(answer) == -32600
    assert place.traces() == before
    place.opened.set()
    await mine.finished()
    assert text_of(mine.answer()) == "held"
    await other.close()
    await place.stop()


# --- clients that vanish ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b'{"jsonrpc"'])
async def test_a_client_that_vanishes_while_it_sends(place: Place, sent: bytes) -> None:
    for headers in ({}, place.session.headers, {"mcp-protocol-version": MODERN, "mcp-method": "tools/call"}):
        upload = place.plain.start("POST", body=None, headers={"content-type": "application/json", **headers})
        if sent:
            upload.send_body(sent)
        await upload.disconnect()
        assert upload.status is None


@pytest.mark.covers("HTTP-11")
@pytest.mark.parametrize("log_level", ["info", None])
async def test_a_modern_client_that_vanishes_during_its_call(place: Place, log_level: str | None) -> None:
    meta = modern_meta(log_level=log_level) if log_level else modern_meta()
    call = place.modern.start_call("hold", meta=meta)
    await place.reached.wait()
    await call.disconnect()
    assert place.cancelled.is_set()


async def test_a_modern_client_that_vanishes_while_it_listens(place: Place) -> None:
    stream = await place.modern.listen(toolsListChanged=True)
    assert len(streams_of(place.server)) == 1
    await stream.disconnect()


async def test_a_modern_client_that_vanishes_without_reading(place: Place) -> None:
    stream = await place.modern.listen(toolsListChanged=True)
    stream.stop_reading()
    place.server.notify_changed("tools")
    await stream.until(lambda: stream.stalled)
    await stream.disconnect()


async def test_a_legacy_client_that_vanishes_for_good_leaves_only_what_it_may_come_back_for() -> None:
    place = await Place().start()
    before = others()
    call = place.session.start_call("hold", id=1)
    stream = await place.session.get()
    await place.reached.wait()
    await call.until(lambda: call.events)
    await call.disconnect()
    await stream.disconnect()
    assert not place.cancelled.is_set()
    place.opened.set()
    await place.session.delete()
    await settled(before)
    left = place.traces()
    assert (left["sessions"], left["calls"], left["streams"], left["listeners"]) == (0, 0, 0, 0)
    await place.stop()


async def test_many_idle_streams_are_kept_told_and_cleared_away(place: Place) -> None:
    before = others()
    sessions = [SessionClient(place.app) for _ in range(150)]
    for session in sessions:
        await session.initialize()
    streams = [*await asyncio.gather(*(session.get() for session in sessions))]
    streams += await asyncio.gather(*(place.modern.listen(id=n, toolsListChanged=True) for n in range(150)))
    place.server.notify_changed("tools")
    await asyncio.gather(*(stream.message("notifications/tools/list_changed") for stream in streams))
    assert (await place.modern.call("echo")).status == 200
    for session in sessions:
        assert (await session.delete()).status == 200
    await asyncio.gather(*(stream.finished() for stream in streams[:150]))
    for stream in streams[150:]:
        await stream.disconnect()
    await settled(before)


# --- whatever else ------------------------------------------------------------------------------------------

header_values = st.sampled_from(
    [None, MODERN, "2025-11-25", "2025-03-26", "", "tools/list", "x", "a\tb", "\u00ff", "=?base64?eA==?="]
)
header_names = st.sampled_from(["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "1.0"])},
    optional={
        "id": st.none() | st.integers() | st.text(max_size=3) | json_values,
        "method": st.sampled_from(["tools/list", "ping", "no/such", "notifications/cancelled", "tools/call"]),
        "params": json_values | st.just({"_meta": modern_meta()}),
        "result": json_values,
    },
)


@given(
    st.sampled_from(["POST", "POST", "POST", "DELETE", "PUT"]),
    st.dictionaries(header_names, header_values),
    st.binary(max_size=60) | messages.map(lambda each: json.dumps(each).encode()),
)
def test_whatever_comes_has_a_status_and_leaves_nothing(
    method: str, headers: dict[str, str | None], body: bytes
) -> None:
    async def once() -> None:
        place = Place()
        given = {"content-type": "application/json", "accept": "*/*", **headers}
        answer = await place.plain.start(method, body=body, headers=given).finished()
        assert answer.status in (200, 202, 400, 404, 405)
        if answer.status == 200:
            assert "id" in answer.json()
        if place.app.sessions is not None:
            left = place.traces()
            assert left["records"] in ([], ["toolwire:http:home"])
            assert [left[each] for each in ("sessions", "calls", "streams", "listeners", "events")] == [0, 0, 0, 0, []]
        await place.stop()

    asyncio.run(once())


# --- too much at once ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"stateless": True}])
async def test_too_many_requests_at_once_are_503_with_a_time_to_come_back(options: dict[str, Any]) -> None:
    server = Server("busy", limits=Limits(exchanges=2))
    opened, running = asyncio.Event(), asyncio.Semaphore(0)

    @server.tool
    async def hold() -> str:
        running.release()
        await opened.wait()
        return "held"

    app = server.http_app(**options)
    client, plain = ModernClient(app), HttpClient(app)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hold"}}
    legacy = {"mcp-protocol-version": "2025-11-25"}
    held = [client.start_call("hold"), plain.start_post(call, legacy) if options else client.start_call("hold")]
    for _ in held:
        await running.acquire()
    refused = [await client.call("hold")]
    if options:
        refused.append(await plain.post(call, legacy))
    for answer in refused:
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "2 requests" in answer.json()["error"]["message"]
    listening = await client.listen(toolsListChanged=True)  # Which has a limit of its own.
    await listening.disconnect()
    opened.set()
    for each in held:
        assert (await each.finished()).status == 200
    assert (await client.call("hold")).status == 200
    await client.close()
    await plain.close()
    await app.stop()
