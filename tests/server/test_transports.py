"""Servers that run: over a transport, in a program of the user's own, and in memory."""

from __future__ import annotations

import asyncio
import inspect
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests.cases import cases
from tests.runtimes import clients_of
from tests.wireclient import WireClient, connect, modern_meta

from toolwire import Context, Server, Tool
from toolwire.protocol.errors import ServerError
from toolwire.server import run_http
from toolwire.stores.redis import RedisStores
from toolwire.transports import Channel, memory_pair


async def ping_tool() -> str:
    return "pong"


async def hear(_: Any) -> None:
    return


class Lines(Channel):
    """A transport of a user's own: three methods, fed from another thread."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[bytes | None] = queue.Queue()
        self.outbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.closed = threading.Event()

    async def read(self) -> bytes | None:
        return await asyncio.to_thread(self.inbox.get)

    def write(self, message: bytes) -> None:
        self.outbox.put(json.loads(message))

    async def close(self) -> None:
        self.inbox.put(None)
        self.closed.set()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self.inbox.put(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        return self.outbox.get(timeout=10)


class Switchboard(Channel):
    """A transport that serves several users over one line, each with a way back of their own."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()
        self.answers: dict[str, asyncio.Queue[dict[str, Any]]] = {"ann": asyncio.Queue(), "bo": asyncio.Queue()}
        self.revision: str | None = None
        self._caller: str | None = None

    async def read(self) -> bytes | None:
        call = await self.calls.get()
        if call is None:
            return None
        self._caller, message = call
        return json.dumps({"jsonrpc": "2.0", **message}).encode()

    def write(self, message: bytes) -> None:
        raise AssertionError("every answer has a route")

    async def close(self) -> None:
        return

    @property
    def principal(self) -> Any:
        return self._caller

    def route(self) -> Callable[[bytes], None]:
        answers = self.answers[str(self._caller)]
        return lambda message: answers.put_nowait(json.loads(message))

    def negotiated(self, revision: str) -> None:
        self.revision = revision


# --- Running ---


@pytest.mark.covers("J88", "STL-7")
async def test_a_transport_knows_the_sender_of_each_message_and_the_way_back() -> None:
    server = Server("s")
    gate = asyncio.Event()

    @server.tool
    async def who(ctx: Context, wait: bool = False) -> str:
        if wait:
            await gate.wait()
        return str(ctx.principal)

    board = Switchboard()
    serving = asyncio.create_task(server.serve(board))
    for user, identifier, wait in (("ann", 1, True), ("bo", 2, False)):
        params = {"name": "who", "arguments": {"wait": wait}, "_meta": modern_meta()}
        board.calls.put_nowait((user, {"id": identifier, "method": "tools/call", "params": params}))
    late = await board.answers["bo"].get()
    assert (late["id"], late["result"]["content"][0]["text"]) == (2, "bo")
    gate.set()
    first = await board.answers["ann"].get()
    assert (first["id"], first["result"]["content"][0]["text"]) == (1, "ann")
    board.calls.put_nowait(None)
    await serving


@pytest.mark.covers("J88")
async def test_a_transport_is_told_the_revision() -> None:
    ours, theirs = memory_pair()
    told: list[str] = []
    theirs.negotiated = told.append  # type: ignore[method-assign]
    serving = asyncio.create_task(Server("s").serve(theirs))
    client = WireClient(ours)
    await client.initialize("2025-06-18")
    await client.result("ping")
    await client.error("nope")
    assert told == ["2025-06-18"]
    await ours.close()
    await serving


@pytest.fixture
def running() -> Any:
    server, channel, outcome = Server("s", tools=ping_tool), Lines(), queue.Queue()  # type: ignore[var-annotated]

    def run() -> None:
        try:
            outcome.put(server.run(channel))
        except BaseException as error:
            outcome.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    channel.send("ping")
    yield server, channel, outcome
    channel.inbox.put(None)
    thread.join(10)


@pytest.mark.covers("J3", "J7", "J88")
def test_running_blocks_until_the_input_ends(running: Any) -> None:
    server, channel, outcome = running
    assert server.active
    answer = channel.send("tools/call", name="ping_tool", _meta=modern_meta())
    assert answer["result"]["content"] == [{"type": "text", "text": "pong"}]
    assert outcome.empty()
    channel.inbox.put(None)
    assert outcome.get(timeout=10) is None
    assert not server.active
    assert channel.closed.is_set()


@pytest.mark.covers("J3")
def test_a_running_server_is_not_started_again(running: Any) -> None:
    server, _, _ = running
    with pytest.raises(ServerError, match="The server 's' is already running"):
        server.start(Lines())


@pytest.mark.covers("J4")
def test_stopping_from_another_thread(running: Any) -> None:
    server, _, outcome = running
    server.stop()
    assert outcome.get(timeout=10) is None
    assert not server.active
    with pytest.raises(ServerError, match="The server 's' is not running"):
        server.stop()


@pytest.mark.covers("J3")
def test_a_stopped_server_can_be_started_again() -> None:
    server = Server("s", tools=ping_tool)
    for _ in range(2):
        channel = Lines()
        channel.inbox.put(None)
        server.run(channel)
    assert not server.active


@pytest.mark.covers("J4")
def test_a_server_that_never_ran_cannot_be_stopped() -> None:
    with pytest.raises(ServerError, match="not running"):
        Server("s").stop()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"transport": "carrier-pigeon"}, "'carrier-pigeon' is not a transport"),
        ({"transport": "stdio", "colour": "red"}, "run\\(\\) has no option 'colour'"),
    ],
)
def test_mistakes_when_running(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        Server("s").run(**options)


@cases("transport", ["stdio", "http", "sse", Lines()], ids=["stdio", "http", "sse", "channel"])
async def test_a_loop_that_runs_already_takes_what_can_be_awaited(transport: Any) -> None:
    # Warnings are errors: nothing is left behind that was never awaited.
    with pytest.raises(ServerError, match=r"await serve_stdio\(\) or serve\(channel\), or hand http_app\(\) to"):
        Server("s").run(transport)


def test_what_a_type_checker_lets_through_is_what_running_over_http_takes() -> None:
    from toolwire.server.run_http import HttpOptions, Options

    assert set(HttpOptions.__annotations__) == set(Options.__struct_fields__)


def test_application_takes_the_options_of_running_with_their_defaults() -> None:
    from toolwire.http.asgi import HttpApp
    from toolwire.server.http_options import APP_OPTIONS
    from toolwire.server.run_http import Options

    parameters = inspect.signature(Server.http_app).parameters
    assert parameters.keys() - {"self", "auth"} == {*APP_OPTIONS, "cors"}
    for name in (*APP_OPTIONS, "cors"):
        assert parameters[name].default == getattr(Options(), name), name
    for name in ("path", "stateless", "sse"):
        assert inspect.signature(HttpApp).parameters[name].default == getattr(Options(), name), name


@cases(
    ("make", "text"),
    [
        (lambda: Server(""), "A server needs a name"),
        (lambda: Server(3), "A server needs a name"),  # type: ignore[arg-type]
        (lambda: Server("s", page_size=0), "page_size must be at least 1 .got 0."),
        (lambda: Server("s", capabilities=["tools"]), "capabilities= is a mapping"),  # type: ignore[arg-type]
        (lambda: Server("s", completions={"city": ["Oslo"]}), r"are \(prompt or template, argument\), not 'city'"),  # type: ignore[dict-item]
        (lambda: Server("s", middleware=3), r"A middleware is an async function \(ctx, call_next\), not int"),  # type: ignore[arg-type]
        (lambda: Server("s", tools="ping"), "A handler is a function, not str"),  # type: ignore[arg-type]
        (lambda: Server("s").mount(3), "Only a Server, a URL, a command or a server file can be mounted, not int"),  # type: ignore[arg-type]
        (lambda: Server("s").mount("nowhere.py"), "The server cannot be mounted: There is no server file 'nowhere.py'"),
        (lambda: Server("s").on_notification("x/y", hear), r"on_notification\(\) takes a plain function"),
        (lambda: Server("s").subscribe("a://b", partial(hear)), r"subscribe\(\) takes a plain function"),
        (lambda: Server("s").extension("org.example/x").notification("x/y")(hear), "x/y takes a plain function"),
        (lambda: Server("s").tool(timeout=0)(ping_tool), "timeout must be above 0 .got 0."),
    ],
)
def test_mistakes_are_named_when_a_server_is_made(make: Any, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        make()


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_a_thread_adds_while_a_list_is_made_is_in_the_next_one() -> None:
    class Interrupting:
        """A view during whose making other threads have their turn."""

        admitted = "everybody"

        def sees(self, found: Any) -> bool:
            if waiting:
                in_a_thread(partial(server.add, Tool(ping_tool, name=waiting.pop())))
            return True

        def lists(self, found: Any) -> bool:
            return True

        def added(self, kind: str) -> dict[str, Any]:
            return {}

    waiting = ["late", "later"]
    server = Server("s", tools=[ping_tool, Tool(ping_tool, name="second")])
    assert sorted(server.catalog.all("tools", Interrupting())) == ["ping_tool", "second"]
    assert sorted(server.catalog.all("tools", Interrupting())) == ["late", "later", "ping_tool", "second"]


def test_what_a_thread_adds_while_restrictions_are_looked_up_is_restricted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("s", tools=ping_tool)
    access = server.kernel.access
    scopes, waiting = access.scopes, [Tool(ping_tool, name="secret", scopes="admin")]

    def interrupted(found: Any) -> frozenset[str]:
        if waiting:
            in_a_thread(partial(server.add, waiting.pop()))
        return scopes(found)

    monkeypatch.setattr(access, "scopes", interrupted)
    access.view_of(None)
    assert access.active


@pytest.mark.covers("S20", "J5")
async def test_components_come_and_go_from_any_thread() -> None:
    server = Server("s", tools=ping_tool)
    async with connect(server, "2025-06-18") as client:
        await client.result("ping")
        await asyncio.to_thread(server.add, Tool(ping_tool, name="late"))
        await client.notified("notifications/tools/list_changed")
        assert len((await client.result("tools/list"))["tools"]) == 2
        await asyncio.to_thread(server.remove, "late")
        await client.notified("notifications/tools/list_changed", 2)


# --- Without a transport ---


@pytest.mark.covers("J8")
async def test_text_in_text_out_on_the_current_revision() -> None:
    server = Server("s", tools=ping_tool)
    request = {"jsonrpc": "2.0", "id": "a", "method": "tools/call"}
    answer = await server.process(json.dumps(request | {"params": {"name": "ping_tool", "_meta": modern_meta()}}))
    assert answer is not None
    assert json.loads(answer)["id"] == "a"
    assert json.loads(answer)["result"]["content"] == [{"type": "text", "text": "pong"}]


@pytest.mark.covers("J8")
async def test_text_in_text_out_with_a_handshake() -> None:
    server = Server("s", tools=ping_tool)

    async def say(message: dict[str, Any]) -> Any:
        answer = await server.process(json.dumps({"jsonrpc": "2.0", **message}).encode())
        return None if answer is None else json.loads(answer)

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    assert (await say({"id": 1, "method": "initialize", "params": hello}))["result"]["protocolVersion"] == "2025-06-18"
    assert await say({"method": "notifications/initialized"}) is None
    assert (await say({"id": 2, "method": "ping"})) == {"jsonrpc": "2.0", "id": 2, "result": {}}
    assert (await say({"id": 3, "method": "tools/list"}))["result"]["tools"][0]["name"] == "ping_tool"
    assert (await say({"id": 4, "method": "nope"}))["error"]["code"] == -32601


@pytest.mark.covers("J8")
@cases(("text", "code"), [("{nonsense", -32700), ("[]", -32600), ('{"jsonrpc":"2.0","id":1}', -32600)])
async def test_what_is_no_message_is_answered_with_an_error(text: str, code: int) -> None:
    answer = await Server("s").process(text)
    assert answer is not None
    assert json.loads(answer)["error"]["code"] == code


@pytest.mark.covers("J8")
async def test_texts_processed_at_once_get_their_own_answers() -> None:
    server = Server("s")
    gate = asyncio.Event()

    @server.tool
    async def wait(name: str) -> str:
        if name == "slow":
            await gate.wait()
        return name

    async def say(identifier: int, name: str) -> Any:
        params = {"name": "wait", "arguments": {"name": name}, "_meta": modern_meta()}
        message = {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}
        return json.loads(await server.process(json.dumps(message)) or "null")

    slow = asyncio.create_task(say(1, "slow"))
    quick = await asyncio.create_task(say(2, "quick"))
    assert (quick["id"], quick["result"]["content"][0]["text"]) == (2, "quick")
    gate.set()
    late = await slow
    assert (late["id"], late["result"]["content"][0]["text"]) == (1, "slow")


def legacy_text(identifier: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})


HELLO = legacy_text(
    0,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={"elicitation": {}},
    clientInfo={"name": "x", "version": "1"},
)


async def test_texts_are_answered_and_nothing_else_is_kept() -> None:
    server = Server("s")

    @server.tool
    async def report(ctx: Context) -> str:
        return str(await ctx.info("not an answer"))

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Sure?", bool))

    await server.process(HELLO)
    async with asyncio.timeout(10):
        answers = [
            json.loads(await server.process(legacy_text(number, "tools/call", name=name)) or "null")
            for number, name in enumerate(("report", "ask"), 1)
        ]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[0]["result"]["content"][0]["text"] == "False"
    # Whoever asks learns at once that there is no way, instead of waiting for an answer.
    assert answers[1]["result"]["isError"]


def test_texts_keep_no_loop_but_the_last() -> None:
    server = Server("s", tools=ping_tool)

    async def hello() -> int:
        await server.process(HELLO)
        return len(clients_of(server))

    assert [asyncio.run(hello()) for _ in range(3)] == [1, 1, 1]
    assert clients_of(server) == {}
    assert len(server.kernel.runtimes._all) == 1


def test_texts_share_one_lifespan_which_ends_with_the_loop() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[int]:
        events.append("in")
        try:
            yield len(events)
        finally:
            events.append("out")

    server = Server("s", lifespan=lifespan)

    @server.tool
    def look(ctx: Context) -> int:
        return int(ctx.lifespan)

    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "_meta": modern_meta()}}

    async def main() -> None:
        for _ in range(2):
            answer = json.loads(await server.process(json.dumps(request)) or "null")
            assert answer["result"]["structuredContent"] == len(events)

    asyncio.run(main())
    assert events == ["in", "out"]
    asyncio.run(main())
    assert events == ["in", "out", "in", "out"]


async def test_local_calls_ask_nobody() -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", bool)).accepted)

    @server.tool
    async def report(ctx: Context) -> str:
        return f"{await ctx.progress(1)} {await ctx.info('x')} {ctx.principal} {ctx.session_id}"

    assert (await server.call_tool("report")).text == "False False None None"
    with pytest.raises(Exception, match="does not support forms"):
        await server.call_tool("ask")


@pytest.mark.parametrize(
    ("stores", "secret", "is_warned"),
    [
        (RedisStores("redis://127.0.0.1:1"), None, True),
        (RedisStores("redis://127.0.0.1:1"), "s" * 32, False),
        (None, None, False),
    ],
    ids=["shared", "shared with a secret", "in memory"],
)
def test_shared_stores_without_a_shared_secret_are_warned_of(
    caplog: pytest.LogCaptureFixture, stores: RedisStores | None, secret: str | None, is_warned: bool
) -> None:
    run_http._warn_of_keys(Server("s", stores=stores, secret=secret))
    assert ("set TOOLWIRE_SECRET to the same value on every machine" in caplog.text) is is_warned
