"""The ASGI application: where it is, its life, browsers, and what goes by GET."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.http.almanac import Stage, make_server
from tests.http.httpclient import Answer, HttpClient, SessionClient, initialize_request
from tests.http.modernclient import ModernClient, text_of

from toolwire import Limits, Server, Tool
from toolwire.auth import ApiKeys
from toolwire.http import serving as http_server
from toolwire.http.asgi import HttpApp
from toolwire.protocol.errors import ServerError

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since protocol revision")


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


# --- the application: where it is, and its life ---


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
    while app._latest is None or app._latest.started is None or not app._latest.started.done():
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


async def preflight(app: HttpApp, origin: str, *asked: str) -> Answer:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": ", ".join(asked),
    }
    return await HttpClient(app).start("OPTIONS", headers=headers).finished()


# --- browsers ---


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


# --- what goes by GET ---


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
