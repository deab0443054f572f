"""Modern exchanges through the ASGI application, and the application around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from tests.http.httpclient import Answer, HttpClient, SessionClient, initialize_request
from tests.http.modernclient import ModernClient, text_of
from tests.wireclient import LEGACY, MODERN, PREFIX, modern_meta

from toolwire import Context, Limits, Server, Tool
from toolwire.auth import ApiKeys
from toolwire.http import exchange as http_outlet
from toolwire.http import serving as http_server
from toolwire.http.asgi import HttpApp
from toolwire.protocol.errors import ServerError
from toolwire.server.header_arguments import Header

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")


class Stage:
    """Where handlers report what becomes of them, and wait to be let on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.starts = 0
        self.stops = 0

    async def passes(self) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def make_server(stage: Stage | None = None, **options: Any) -> Server:
    server = Server("almanac", secret="a secret of at least sixteen bytes", **options)
    stage = stage or Stage()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def report(ctx: Context, text: str = "reported") -> str:
        await ctx.info("first")
        await ctx.progress(1, total=2)
        return text

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.info("about to ask")
        answer = await ctx.elicit("Your name?", str)
        return f"{answer.action}: {answer.data}"

    @server.tool
    async def hold(ctx: Context) -> str:
        """Says something, then waits."""
        await ctx.info("holding")
        await stage.passes()
        await ctx.info("going on")
        return "held"

    @server.tool
    async def silent() -> str:
        """Waits without a word."""
        await stage.passes()
        return "silence"

    @server.tool
    async def fail() -> str:
        raise ValueError("broken")

    @server.tool
    async def route(region: Annotated[str, Header("Region")], count: Annotated[int, Header("Count")] = 0) -> str:
        return f"{region} {count}"

    @server.tool
    async def whoami(ctx: Context, after: int = 0) -> str:
        for _ in range(after):
            await asyncio.sleep(0)
        return f"{ctx.principal} {ctx.session_id} {ctx.revision}"

    @server.resource("memo://ü")
    async def memo() -> str:
        return "dear"

    return server


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def server(stage: Stage) -> Server:
    return make_server(stage)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[ModernClient]:
    app: HttpApp = server.http_app()
    client = ModernClient(app)
    yield client
    await client.close()
    await app.stop()


def error_of(answer: Answer) -> tuple[int | None, int]:
    return answer.status, answer.answer()["error"]["code"]


# --- one request, one answer ------------------------------------------------------------------------------------------


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
        patch.setattr(app._endpoint.handler, "handle", handle)
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


# --- the eras at one address ------------------------------------------------------------------------------------------


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


# --- headers that repeat the body -------------------------------------------------------------------------------------


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


# --- subscriptions ----------------------------------------------------------------------------------------------------


async def test_a_listener_is_told_what_it_asked_for_until_it_goes(client: ModernClient, server: Server) -> None:
    stream = await client.listen(id="L", toolsListChanged=True)
    assert stream.is_stream
    server.notify_changed("prompts")
    server.notify_changed("tools")
    changed = await stream.message("notifications/tools/list_changed")
    assert changed["params"]["_meta"] == {f"{PREFIX}subscriptionId": "L"}
    assert len(stream.messages) == 2
    await stream.disconnect()
    assert len(server.kernel.hub.streams) == 0


@pytest.mark.covers("SSE-5")
async def test_a_quiet_listener_hears_comments(client: ModernClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_outlet, "KEEP_ALIVE", 0.001)
    stream = await client.listen(toolsListChanged=True)
    await stream.until(lambda: stream.body.count(b": keep-alive") >= 2)
    assert len(stream.events) == 1


# --- earlier revisions without a session ------------------------------------------------------------------------------


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


# --- the application: where it is, and its life -----------------------------------------------------------------------


class Router:
    """As small as a router can be. Hosts differ in whether they leave the prefix in the path."""

    def __init__(self, prefix: str, app: Any, *, cuts: bool) -> None:
        self.prefix, self.app, self.cuts = prefix, app, cuts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        assert path == self.prefix or path.startswith(self.prefix + "/")
        inner = dict(scope, root_path=scope.get("root_path", "") + self.prefix)
        if self.cuts:
            inner["path"] = path[len(self.prefix) :]
        await self.app(inner, receive, send)


@pytest.mark.parametrize("cuts", [True, False])
@pytest.mark.parametrize(
    ("prefixes", "path"),
    [
        ((), "/mcp"),
        ((), "/mcp/"),
        (("/tools",), "/tools/mcp"),
        (("/tools",), "/tools/mcp/"),
        (("/tools",), "/tools"),
        (("/tools",), "/tools/"),
        (("/mcp",), "/mcp"),
        (("/mcp",), "/mcp/"),
        (("/mcp",), "/mcp/mcp"),
        (("/m",), "/m/mcp"),
        (("/a/b",), "/a/b/mcp"),
    ],
)
async def test_it_is_found_under_any_prefix(server: Server, prefixes: tuple[str, ...], path: str, cuts: bool) -> None:
    app = server.http_app()
    outer: Any = app
    for prefix in prefixes:
        outer = Router(prefix, outer, cuts=cuts)
    client = ModernClient(outer, path=path)
    answer = await client.call("echo", {"text": "here"})
    assert answer.status == 200
    assert text_of(answer.json()) == "here"
    session = SessionClient(outer, path=path)
    await session.initialize()
    assert (await session.get()).status == 200
    assert (await session.delete()).status == 200
    await session.close()
    await app.stop()


@pytest.mark.parametrize("path", ["/", "", "/mcpx", "/mcp/x", "/x/mcp", "/MCP"])
async def test_elsewhere_is_404_and_says_where(server: Server, path: str) -> None:
    app = server.http_app()
    answer = await HttpClient(app, path=path).post(initialize_request())
    assert answer.status == 404
    assert b"/mcp" in answer.body
    assert app.sessions is None


@pytest.mark.covers("J90", "HTTP-3")
def test_where_it_is_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[str, int, bool]] = []
    paths: list[str] = []
    http_app = Server.http_app

    def listen(host: str, port: int, *, public: bool) -> Any:
        bound.append((host, port, public))
        raise ServerError("not now")

    def made(server: Server, **options: Any) -> HttpApp:
        paths.append(options["path"])
        return http_app(server, **options)

    monkeypatch.setattr(http_server, "listen", listen)
    monkeypatch.setattr(Server, "http_app", made)
    for options in ({}, {"host": "127.0.0.2", "port": 9000, "path": "/tools"}):
        with pytest.raises(ServerError, match="not now"):
            make_server().run("http", **options)
    assert bound == [("127.0.0.1", 8000, False), ("127.0.0.2", 9000, False)]
    assert paths == ["/mcp", "/tools"]


@pytest.mark.covers("J90")
@pytest.mark.parametrize("path", ["/", "/api/v1/mcp", "/mcp/"])
async def test_the_path_can_be_chosen(server: Server, path: str) -> None:
    app = server.http_app(path=path)
    assert (await ModernClient(app, path=path).call("echo", {"text": ""})).status == 200
    assert (await ModernClient(app, path="/elsewhere").call("echo", {"text": ""})).status == 404
    await app.stop()


async def lived(app: HttpApp) -> tuple[asyncio.Queue[Any], asyncio.Queue[Any], asyncio.Task[None]]:
    """The lifespan of an application, as a host leads it."""
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    outbox: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(app({"type": "lifespan"}, inbox.get, outbox.put))
    inbox.put_nowait({"type": "lifespan.startup"})
    return inbox, outbox, task


def counting(stage: Stage, **options: Any) -> Server:
    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        stage.starts += 1
        yield
        stage.stops += 1

    return make_server(stage, lifespan=lifespan, **options)


async def test_it_starts_and_stops_with_the_host_several_times(stage: Stage) -> None:
    app = counting(stage).http_app()
    client = ModernClient(app)
    for round in range(1, 4):
        inbox, outbox, task = await lived(app)
        assert (await outbox.get())["type"] == "lifespan.startup.complete"
        assert (stage.starts, stage.stops) == (round, round - 1)
        assert (await client.start("GET", path="/readyz").finished()).status == 200
        session = SessionClient(app)
        await session.initialize()
        stream, listener = await session.get(), await client.listen(toolsListChanged=True)
        assert (await client.call("echo", {"text": ""})).status == 200
        inbox.put_nowait({"type": "lifespan.shutdown"})
        await stream.finished()
        await listener.finished()
        assert (await outbox.get())["type"] == "lifespan.shutdown.complete"
        await task
        assert stage.stops == round
        assert app.sessions is None
        assert (await client.start("GET", path="/readyz").finished()).status == 503


async def test_it_starts_itself_with_the_first_request_and_only_once(stage: Stage) -> None:
    app = counting(stage).http_app()
    client = ModernClient(app)
    for round in range(1, 4):
        answers = await asyncio.gather(*(client.call("echo", {"text": ""}) for _ in range(5)))
        assert [answer.status for answer in answers] == [200] * 5
        assert stage.starts == round
        await app.stop()
        assert stage.stops == round


def test_it_serves_one_event_loop_after_the_other() -> None:
    app = make_server().http_app()

    async def once() -> int | None:
        return (await ModernClient(app).call("echo", {"text": ""})).status

    assert [asyncio.run(once()) for _ in range(3)] == [200] * 3


async def test_a_start_that_fails_is_told_to_the_host_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    broken = True

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        if broken:
            raise RuntimeError("no database: secret-host")
        yield

    app = make_server(lifespan=lifespan).http_app()
    _, outbox, task = await lived(app)
    failed = await outbox.get()
    assert failed["type"] == "lifespan.startup.failed"
    assert "secret-host" not in failed["message"]
    await task
    broken = False
    assert (await ModernClient(app).call("echo", {"text": ""})).status == 200
    await app.stop()


async def test_a_request_that_is_cancelled_when_all_is_up_leaves_it_up(stage: Stage) -> None:
    app = counting(stage).http_app()
    request = ModernClient(app).start_call("echo", {"text": ""}).task
    while app._started is None or not app._started.done():
        await asyncio.sleep(0)
    request.cancel()
    await asyncio.wait({request})
    assert request.cancelled()
    sessions = app.sessions
    assert (await ModernClient(app).call("echo", {"text": ""})).status == 200
    assert app.sessions is sessions
    await app.stop()
    assert (stage.starts, stage.stops) == (1, 1)


async def test_a_websocket_is_closed(server: Server) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await server.http_app()({"type": "websocket"}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_alive_and_ready_cost_nothing_and_need_no_host(server: Server, method: str) -> None:
    app = server.http_app()
    client = HttpClient(app)
    for path in ("/livez", "/readyz"):
        answer = await client.start(method, path=path, headers={"host": "10.0.0.7"}).finished()
        assert (answer.status, answer.body) == (200, b"ok")
    assert app.sessions is None, "asking does not start the server"
    app.drain()
    assert (await client.start(method, path="/livez").finished()).status == 200
    assert (await client.start(method, path="/readyz").finished()).status == 503


# --- browsers ---------------------------------------------------------------------------------------------------------


async def preflight(app: HttpApp, origin: str, *asked: str) -> Answer:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": ", ".join(asked),
    }
    return await HttpClient(app).start("OPTIONS", headers=headers).finished()


@pytest.mark.parametrize("option", ["allowed_origins", "cors"])
async def test_a_browser_may_ask_first(server: Server, option: str) -> None:
    app = server.http_app(**{option: ["https://app.example"]})
    answer = await preflight(app, "https://app.example", "content-type", "mcp-method")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert answer.headers["vary"] == "Origin"
    assert {"POST", "GET", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    protocol = ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id")
    for name in ("content-type", "authorization", "dpop", *protocol):
        assert name in allowed
    assert app.sessions is None
    # The answer to the request itself can be read, too.
    client = ModernClient(app, headers={"origin": "https://app.example"})
    told = await client.call("echo", {"text": ""})
    assert told.headers["access-control-allow-origin"] == "https://app.example"
    assert "MCP-Protocol-Version" in told.headers["access-control-expose-headers"]
    refused = await client.post(b"{", {"content-type": "text/plain"})
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (415, "https://app.example")
    await app.stop()


@pytest.mark.parametrize("option", ["cors", "allowed_hosts", "allowed_origins"])
async def test_names_come_in_a_list_that_is_read_once(server: Server, option: str) -> None:
    with pytest.raises(ServerError, match=rf"^{option}= is a list: write \['app.example'\]$"):
        server.http_app(**{option: "app.example"})
    app = server.http_app(cors=(each for each in ["https://app.example"]))
    answer = await preflight(app, "https://app.example", "content-type")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "https://app.example")


async def test_a_browser_may_send_the_parameter_headers_it_asks_for(server: Server) -> None:
    app = server.http_app(cors=["*"])
    answer = await preflight(app, "https://any.example", "Mcp-Param-Region", "x-evil", "mcp-param-a b", "mcp-param-")
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert "mcp-param-region" in allowed
    assert not {"x-evil", "mcp-param-a b", "mcp-param-"} & set(allowed)


async def test_other_browsers_may_not(server: Server) -> None:
    for app in (server.http_app(cors=["https://app.example"]), server.http_app()):
        answer = await preflight(app, "https://evil.example", "content-type")
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "http://localhost:3000"])
async def test_the_pages_of_this_machine_may_call(server: Server, origin: str) -> None:
    app = server.http_app()
    answer = await preflight(app, origin, "content-type")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, origin)
    told = await ModernClient(app, headers={"origin": origin}).call("echo", {"text": "hello"})
    assert (told.status, told.headers["access-control-allow-origin"]) == (200, origin)
    await app.stop()


async def test_a_browser_may_send_a_key_in_its_header(server: Server) -> None:
    auth = ApiKeys({"a-key-of-alice": "alice"}, header="X-API-Key")
    app = server.http_app(allowed_origins=["https://app.example"], auth=auth)
    answer = await preflight(app, "https://app.example", "x-api-key")
    assert "x-api-key" in answer.headers["access-control-allow-headers"].split(", ")
    assert "x-api-key" not in (await preflight(server.http_app(), "http://localhost:3000", "x-api-key")).headers[
        "access-control-allow-headers"
    ].split(", ")


# --- what a client takes ----------------------------------------------------------------------------------------------


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


# --- what goes by GET -------------------------------------------------------------------------------------------------


@pytest.mark.covers("E42", "J91", "E38", "E39", "E41")
async def test_every_session_is_told_by_its_own_stream(server: Server) -> None:
    app = server.http_app()
    sessions = [SessionClient(app) for _ in range(2)]
    streams = []
    for session in sessions:
        await session.initialize()
        streams.append(await session.get())
    await sessions[0].result("resources/subscribe", {"uri": "memo://ü"})
    server.notify_updated("memo://ü")
    server.add(_late())
    server.log("error", "smoke")
    for stream in streams:
        await stream.message("notifications/tools/list_changed")
        await stream.message("notifications/message")
    counts = [[each["method"] for each in stream.messages] for stream in streams]
    assert counts[0].count("notifications/resources/updated") == 1
    assert "notifications/resources/updated" not in counts[1]
    for methods in counts:
        assert methods.count("notifications/tools/list_changed") == 1
        assert methods.count("notifications/message") == 1
    assert all(event.id for stream in streams for event in stream.events)
    for session in sessions:
        await session.close()
    await app.stop()


def _late() -> Any:
    async def late() -> str:
        return "late"

    return Tool(late)


async def test_limits_of_listeners_hold_over_http() -> None:
    app = make_server(limits=Limits(listeners=2)).http_app()
    client = ModernClient(app)
    streams = [await client.listen(id=number, toolsListChanged=True) for number in range(2)]
    refused = await client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=3)
    assert "error" in refused.answer()
    await streams[0].disconnect()
    await client.listen(id=4, toolsListChanged=True)
    await client.close()
    await app.stop()
