"""The server object: making it, running it, stopping it, talking to it without a transport, what it declares."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests.wireclient import LEGACY, MODERN, REVISIONS, WireClient, connect, modern_meta

from toolwire import Context, Limits, Prompt, Resource, ResourceTemplate, Server, Tool, testing, types
from toolwire.client import sync
from toolwire.protocol.errors import ServerError
from toolwire.server.lifespan import Life
from toolwire.transports import Channel, memory_pair

ICON = {"src": "https://example.net/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "light"}


async def ping_tool() -> str:
    return "pong"


async def hear(_: Any) -> None:
    return


# --- Making one ---


@pytest.mark.covers("J1", "J58")
async def test_a_name_is_enough() -> None:
    server = Server("almanac")
    async with connect(server) as client:
        result = await client.initialize("2025-11-25")
    assert result["serverInfo"] == {"name": "almanac", "version": "1.0.0"}
    assert result["protocolVersion"] == "2025-11-25"
    assert "instructions" not in result
    assert (server.tools, server.resources, server.templates, server.prompts) == ([], [], [], [])


@pytest.mark.covers("J1", "J58", "S9")
async def test_everything_in_one_call(tmp_path: Any) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "found.py").write_text("def found() -> str:\n    return 'found'\n")
    server = Server(
        "almanac",
        version="2.1",
        title="Almanac",
        description="Days and tides.",
        icons=[ICON],
        website_url="https://almanac.example",
        instructions="Dates are UTC.",
        capabilities={"experimental": {"x": {}}},
        tools=[ping_tool],
        resources=[Resource("note://a", content="x")],
        templates=[ResourceTemplate("note://{id}")],
        prompts=[Prompt.text("x", name="p")],
        directory=tmp_path,
    )
    async with connect(server) as client:
        result = await client.initialize("2025-11-25")
    assert result["serverInfo"]["version"] == "2.1"
    assert result["instructions"] == "Dates are UTC."
    assert result["capabilities"]["experimental"] == {"x": {}}
    assert [tool.name for tool in server.tools] == ["found", "ping_tool"]
    assert (len(server.resources), len(server.templates), len(server.prompts)) == (1, 1, 1)


@pytest.mark.covers("J2")
@pytest.mark.parametrize(
    ("chosen", "count"),
    [(lambda items: items[0], 1), (lambda items: items[:1], 1), (list, 2), (tuple, 2), (lambda items: None, 0)],
)
def test_one_component_several_or_none(chosen: Callable[[list[Any]], Any], count: int) -> None:
    server = Server(
        "s",
        tools=chosen([Tool(ping_tool, name=name) for name in ("one", "two")]),
        resources=chosen([Resource(f"note://{name}", content="x") for name in ("one", "two")]),
        templates=chosen([ResourceTemplate(f"note://{name}/{{id}}") for name in ("one", "two")]),
        prompts=chosen([Prompt.text("x", name=name) for name in ("one", "two")]),
    )
    assert [len(each) for each in (server.tools, server.resources, server.templates, server.prompts)] == [count] * 4


def test_components_may_come_from_any_iterable() -> None:
    server = Server(
        "s", tools=(Tool(ping_tool, name=name) for name in "ab"), prompts=iter([Prompt.text("x", name="p")])
    )
    assert [tool.name for tool in server.tools] == ["a", "b"]
    assert len(server.prompts) == 1


@pytest.mark.covers("J5")
async def test_adding_chains() -> None:
    server = Server("s")
    assert (
        server.add(Tool(ping_tool))
        .add(Resource("note://a", content="x"))
        .add(ResourceTemplate("note://{id}"))
        .add(Prompt.text("x", name="p"))
        .remove("p")
        is server
    )
    assert (len(server.tools), len(server.resources), len(server.templates), len(server.prompts)) == (1, 1, 1, 0)


@pytest.mark.covers("J6")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_server_shows_what_it_is_made_of_and_who_is_there(revision: str) -> None:
    server = Server(
        "s",
        version="3",
        title="T",
        instructions="Be brief.",
        resources=Resource("note://a", content="x"),
        templates=ResourceTemplate("note://{id}/text", lambda id: id),
        prompts=Prompt.text("x", name="p"),
        limits=Limits(tool=7),
    )
    started, go = asyncio.Event(), asyncio.Event()

    @server.tool(task="optional")
    async def wait(ctx: Context) -> None:
        progress = ctx.track(total=4)
        progress.advance(3)
        started.set()
        await go.wait()

    assert (server.name, server.version, server.limits.tool, server.active) == ("s", "3", 7, False)
    assert (server.identity.title, server.instructions) == ("T", "Be brief.")
    assert server.capabilities(revision)["resources"] == {"subscribe": True, "listChanged": True}
    shown = [server.tools, server.resources, server.templates, server.prompts]
    assert [[each.key for each in kind] for kind in shown] == [["wait"], ["note://a"], ["note://{id}/text"], ["p"]]
    assert repr(server) == "Server('s', version='3')"
    assert callable(server.tasks.create)
    assert (server.connections, server.subscriptions, server.progress) == ([], {}, [])
    server.subscribe("note://a", print)
    async with connect(server, revision) as client:
        if revision == MODERN:
            listening = client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://a"]}})
            await client.notified("notifications/subscriptions/acknowledged")
        else:
            await client.result("resources/subscribe", {"uri": "note://a"})
        call = client.start("tools/call", {"name": "wait"}, id="w")
        await started.wait()
        (connection,) = server.connections
        assert connection.transport.is_connected
        assert "w" in connection.requests
        assert connection.revision == (None if revision == MODERN else revision)
        assert connection.subscriptions == (set() if revision == MODERN else {"note://a"})
        assert (connection.client is None) is (revision == MODERN)
        assert server.subscriptions == {"note://a": 2}
        (progress,) = server.progress
        assert (progress.request_id, progress.done, progress.total) == ("w", 3, 4)
        del progress
        go.set()
        await call
        assert "w" not in connection.requests
        if revision == MODERN:
            listening.cancel()
    assert (server.connections, server.subscriptions) == ([], {"note://a": 1})


@pytest.mark.covers("J6", "J3")
async def test_the_server_shows_the_transport_that_it_was_given() -> None:
    server = Server("s", tools=ping_tool)
    ours, theirs = memory_pair()
    serving = asyncio.create_task(server.serve(theirs))
    client = WireClient(ours)
    await client.initialize("2025-11-25", name="seen")
    (connection,) = server.connections
    assert connection.transport is theirs
    assert connection.client is not None
    assert connection.client.name == "seen"
    await ours.close()
    await serving


@pytest.mark.covers("J9", "J17")
@pytest.mark.parametrize("revision", LEGACY)
async def test_identity_of_the_server_by_revision(revision: str) -> None:
    server = Server("s", title="T", description="D", icons=ICON, website_url="https://x.example")
    async with connect(server) as client:
        identity = (await client.initialize(revision))["serverInfo"]
    full = {"name": "s", "version": "1.0.0", "title": "T", "description": "D", "icons": [ICON]}
    full["websiteUrl"] = "https://x.example"
    known = {
        "2024-11-05": ["name", "version"],
        "2025-03-26": ["name", "version"],
        "2025-06-18": ["name", "version", "title"],
        "2025-11-25": list(full),
    }
    assert identity == {key: full[key] for key in known[revision]}


@pytest.mark.covers("J9", "META-8")
async def test_identity_on_the_current_revision_is_in_every_result() -> None:
    server = Server("s", title="T", description="D", icons=ICON, tools=ping_tool)
    async with connect(server, MODERN) as client:
        for method in ("server/discover", "tools/list"):
            identity = (await client.result(method))["_meta"]["io.modelcontextprotocol/serverInfo"]
            assert identity == {"name": "s", "version": "1.0.0", "title": "T", "description": "D", "icons": [ICON]}


@pytest.mark.covers("J9", "J59")
async def test_the_identity_and_capabilities_of_the_client_reach_the_handler() -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> None:
        seen.append((ctx.client, dict(ctx.client_capabilities)))

    capabilities = {"experimental": {"x": {"y": 1}}, "roots": {"listChanged": True}, "sampling": {}, "later": {"a": 1}}
    async with connect(Server("s", tools=look)) as client:
        await client.initialize("2025-11-25", capabilities, title="Raw", description="By hand.")
        await client.call("look")
    identity, declared = seen[0]
    assert (identity.name, identity.title, identity.description) == ("raw", "Raw", "By hand.")
    assert declared == capabilities


@pytest.mark.covers("T-1")
@pytest.mark.parametrize(
    ("asked", "answered"),
    [(each, each) for each in LEGACY]
    + [("1999-01-01", "2025-11-25"), ("2099-01-01", "2025-11-25"), ("", "2025-11-25")],
)
async def test_versions_are_negotiated(asked: str, answered: str) -> None:
    async with connect(Server("s")) as client:
        assert (await client.initialize(asked))["protocolVersion"] == answered


# --- Capabilities ---


@pytest.mark.covers("J64", "DIS-1")
async def test_the_default_set() -> None:
    async with connect(Server("s"), MODERN) as client:
        assert (await client.result("server/discover"))["capabilities"] == {
            "logging": {},
            "tools": {"listChanged": True},
        }


@pytest.mark.covers("J64")
async def test_overrides_win_and_none_takes_away() -> None:
    server = Server(
        "s",
        tools=ping_tool,
        resources=Resource("note://a", content="x"),
        capabilities={
            "tools": {"listChanged": False},
            "resources": {"subscribe": False},
            "logging": None,
            "experimental": {"a": {}},
        },
    )
    async with connect(server) as client:
        assert (await client.initialize("2025-11-25"))["capabilities"] == {
            "tools": {"listChanged": False},
            "resources": {"subscribe": False, "listChanged": True},
            "experimental": {"a": {}},
        }


@pytest.mark.covers("J64", "J65")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_none_never_reaches_the_wire_however_deep(revision: str) -> None:
    override = {
        "tools": {"listChanged": None},
        "experimental": {"a": {"limit": None, "deep": {"gone": None, "kept": 0}}, "b": None},
        "prompts": {"listChanged": None},
    }
    async with connect(Server("s", tools=ping_tool, capabilities=override)) as client:
        if revision == MODERN:
            await client.open(revision)
            declared = (await client.result("server/discover"))["capabilities"]
        else:
            declared = (await client.initialize(revision))["capabilities"]
    assert declared == {
        "logging": {},
        "tools": {},
        "prompts": {},
        "experimental": {"a": {"deep": {"kept": 0}}},
    }


@pytest.mark.covers("DIS-1", "1.8.1")
@pytest.mark.parametrize("revision", LEGACY)
async def test_a_method_behind_a_capability_that_is_not_there_is_not_found(revision: str) -> None:
    server = Server("s", tools=ping_tool, capabilities={"logging": None})
    async with connect(server, revision) as client:
        for method, params in [
            ("resources/list", {}),
            ("resources/read", {"uri": "note://a"}),
            ("prompts/list", {}),
            ("prompts/get", {"name": "p"}),
            ("logging/setLevel", {"level": "info"}),
        ]:
            assert (await client.error(method, params))["code"] == -32601, method


@pytest.mark.covers("DIS-1", "VER-3")
async def test_what_is_declared_on_the_current_revision_works_and_the_rest_does_not() -> None:
    methods = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}
    full = Server("f", tools=ping_tool, resources=Resource("n://a", content=1), prompts=Prompt.text("x", name="p"))
    for server in (Server("e"), full, Server("r", resources=Resource("n://a", content=1))):
        async with connect(server, MODERN) as client:
            declared = (await client.result("server/discover"))["capabilities"]
            for capability, method in methods.items():
                response = await client.request(method)
                assert ("result" in response) is (capability in declared), (server, method)
                assert capability in declared or response["error"]["code"] == -32601


@pytest.mark.covers("STL-6")
async def test_lists_are_the_same_on_every_connection() -> None:
    server = Server("s", tools=ping_tool, prompts=Prompt.text("x", name="p"))
    async with connect(server, MODERN) as one, connect(server, MODERN) as other:
        await one.call("ping_tool")
        assert await one.result("tools/list") == await other.result("tools/list")
        assert await one.result("prompts/list") == await other.result("prompts/list")


@pytest.mark.covers("STL-1", "STL-2", "STL-4")
async def test_state_under_a_handle_outlives_the_connection() -> None:
    server = Server("s")

    @server.tool
    async def put(handle: str, value: str, ctx: Context) -> None:
        await ctx.server.stores.kv.put(f"cart:{handle}", value.encode())

    @server.tool
    async def get(handle: str, ctx: Context) -> str:
        return (await ctx.server.stores.kv.get(f"cart:{handle}") or b"empty").decode()

    async with connect(server, MODERN) as client:
        await client.call("put", {"handle": "a", "value": "apples"})
        assert (await client.call("get", {"handle": "b"}))["content"][0]["text"] == "empty"
    async with connect(server, "2025-06-18") as client:
        assert (await client.call("get", {"handle": "a"}))["content"][0]["text"] == "apples"


@pytest.mark.covers("STL-3")
async def test_requests_of_unrelated_conversations_interleave() -> None:
    server = Server("s")
    gates: dict[str, asyncio.Event] = {}

    @server.tool
    async def wait(name: str, ctx: Context) -> str:
        ctx.state["name"] = name
        gates[name] = asyncio.Event()
        await gates[name].wait()
        return str(ctx.state["name"])

    async with connect(server, MODERN) as client:
        first = client.start("tools/call", {"name": "wait", "arguments": {"name": "a"}})
        second = client.start("tools/call", {"name": "wait", "arguments": {"name": "b"}})
        await client.result("server/discover")
        while len(gates) < 2:
            await asyncio.sleep(0)
        gates["b"].set()
        assert (await second)["result"]["content"][0]["text"] == "b"
        assert not first.done()
        gates["a"].set()
        assert (await first)["result"]["content"][0]["text"] == "a"


# --- Running ---


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


@pytest.mark.parametrize("transport", ["stdio", "http", "sse", Lines()], ids=["stdio", "http", "sse", "channel"])
async def test_a_loop_that_runs_already_takes_what_can_be_awaited(transport: Any) -> None:
    # Warnings are errors: nothing is left behind that was never awaited.
    with pytest.raises(ServerError, match=r"await serve_stdio\(\) or serve\(channel\), or hand http_app\(\) to"):
        Server("s").run(transport)


def test_what_a_type_checker_lets_through_is_what_running_over_http_takes() -> None:
    from toolwire.server.run_http import HttpOptions, Options

    assert set(HttpOptions.__annotations__) == set(Options.__struct_fields__)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Server(""), "A server needs a name"),
        (lambda: Server(3), "A server needs a name"),  # type: ignore[arg-type]
        (lambda: Server("s", page_size=0), "page_size= is at least 1"),
        (lambda: Server("s", capabilities=["tools"]), "capabilities= is a mapping"),  # type: ignore[arg-type]
        (lambda: Server("s", completions={"city": ["Oslo"]}), r"are \(prompt or template, argument\), not 'city'"),  # type: ignore[dict-item]
        (lambda: Server("s", middleware=3), r"A middleware is an async function \(ctx, call_next\), not int"),  # type: ignore[arg-type]
        (lambda: Server("s", tools="ping"), "A handler is a function, not str"),  # type: ignore[arg-type]
        (lambda: Server("s").mount(3), "Only a Server can be mounted, not int"),  # type: ignore[arg-type]
        (lambda: Server("s").on_notification("x/y", hear), r"on_notification\(\) takes a plain function"),
        (lambda: Server("s").subscribe("a://b", partial(hear)), r"subscribe\(\) takes a plain function"),
        (lambda: Server("s").extension("org.example/x").notification("x/y")(hear), "x/y takes a plain function"),
        (lambda: Server("s").tool(timeout=0)(ping_tool), "timeout is a number of seconds above zero, not 0"),
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
@pytest.mark.parametrize(
    ("text", "code"), [("{nonsense", -32700), ("[]", -32600), ('{"jsonrpc":"2.0","id":1}', -32600)]
)
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


def test_texts_on_two_loops_are_two_connections() -> None:
    server = Server("s", tools=ping_tool)
    turns = threading.Barrier(2, timeout=10)

    def talk() -> list[str]:
        async def main() -> list[str]:
            await server.process(HELLO)
            turns.wait()
            answer = json.loads(await server.process(legacy_text(1, "tools/call", name="ping_tool")) or "null")
            turns.wait()
            return [block["text"] for block in answer["result"]["content"]]

        return asyncio.run(main())

    with ThreadPoolExecutor(2) as threads:
        assert [each.result(10) for each in [threads.submit(talk), threads.submit(talk)]] == [["pong"], ["pong"]]


def test_texts_keep_no_loop_but_the_last() -> None:
    server = Server("s", tools=ping_tool)
    for _ in range(3):
        asyncio.run(server.process(HELLO))
    assert len(server.kernel.hub.clients) == 1


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


# --- Lifespan ---


@pytest.mark.covers("S9")
async def test_the_lifespan_is_entered_once_for_all_connections() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        events.append(f"enter {server.name}")
        yield "value"
        events.append("leave")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    async with connect(server, MODERN) as one, connect(server, "2025-06-18") as other:
        assert (await one.call("look"))["content"][0]["text"] == "value"
        assert (await other.call("look"))["content"][0]["text"] == "value"
        assert events == ["enter s"]
    assert events == ["enter s", "leave"]


async def test_the_lifespan_is_shared_by_loops_and_left_when_the_last_of_them_is_done() -> None:
    log: list[str] = []
    entered, release = threading.Event(), threading.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        log.append("up")
        yield "shared"
        log.append("down")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    def elsewhere() -> str:
        with sync.Client(server) as client:
            entered.set()
            release.wait(10)
            return client.call_tool("look").text

    async with connect(server, MODERN):
        there = asyncio.create_task(asyncio.to_thread(elsewhere))
        await asyncio.to_thread(entered.wait, 10)
    assert log == ["up"]
    release.set()
    assert await there == "shared"
    assert log == ["up", "down"]


def test_the_lifespan_outlives_the_blocking_client_that_came_first() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        log.append("up")
        threads.append(threading.current_thread())
        beside = asyncio.create_task(asyncio.Event().wait())
        yield "shared"
        log.append(f"down, {beside.done()}")
        beside.cancel()

    threads: list[threading.Thread] = []
    server = Server("s", lifespan=lifespan)

    @server.tool
    def look(ctx: Context) -> str:
        return f"{ctx.lifespan} {log}"

    first, second = sync.Client(server).connect(), sync.Client(server).connect()
    first.close()
    assert second.call_tool("look").text == "shared ['up']"
    second.close()
    assert log == ["up", "down, False"]
    threads[0].join(10)
    assert not threads[0].is_alive()


async def test_the_lifespan_moves_to_another_loop_when_its_own_ends() -> None:
    log: list[str] = []
    names: dict[asyncio.AbstractEventLoop, str] = {}
    taken, busy, ended = threading.Event(), threading.Event(), threading.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        name = names[asyncio.get_running_loop()]
        log.append(f"{name} up")
        try:
            yield name
        finally:
            log.append(f"{name} down")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    @server.tool
    def work(ctx: Context) -> str:
        busy.set()
        ended.wait(10)
        return str(ctx.lifespan)

    def first() -> None:
        async def main() -> None:
            names[asyncio.get_running_loop()] = "first"
            async with connect(server, MODERN) as client:
                await client.call("look")
                taken.set()
                await asyncio.to_thread(busy.wait, 10)

        asyncio.run(main())
        ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    await asyncio.to_thread(taken.wait, 10)
    names[asyncio.get_running_loop()] = "second"
    async with connect(server, MODERN) as client:
        assert (await client.call("look"))["content"][0]["text"] == "first"
        assert (await client.call("work"))["content"][0]["text"] == "second"
        assert log == ["first up", "second up", "first down"]
    assert log == ["first up", "second up", "first down", "second down"]
    thread.join()


async def test_a_lifespan_that_cannot_move_is_entered_by_the_next_who_comes(caplog: pytest.LogCaptureFixture) -> None:
    taken, here = threading.Event(), threading.Event()
    troubles: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        if troubles:
            raise RuntimeError(troubles.pop())
        yield "up"

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    async def elsewhere() -> None:
        async with connect(server, MODERN) as client:
            await client.call("look")
            taken.set()
            await asyncio.to_thread(here.wait, 10)
            troubles.append("no database")

    there = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await asyncio.to_thread(taken.wait, 10)
    async with connect(server, MODERN) as first:
        await first.call("look")
        here.set()
        await there
        assert "no database" in caplog.text
        async with connect(server, MODERN) as client:
            assert (await client.call("look"))["content"][0]["text"] == "up"
    assert server._life.holders == 0


async def test_what_was_held_on_a_loop_that_is_gone_keeps_no_lifespan_alive() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        log.append("down")

    server = Server("s", lifespan=lifespan, tools=ping_tool)
    async with connect(server, MODERN) as client:
        await client.call("ping_tool")
        await asyncio.to_thread(lambda: asyncio.run(server.process(HELLO)))
        assert server._life.holders == 2
    assert log == ["down"]


def test_leaving_where_nothing_was_entered_does_no_harm() -> None:
    life = Life(Server("s"))
    asyncio.run(life.enter())

    async def again() -> None:
        await life.exit()
        async with life.held():
            pass

    asyncio.run(again())


async def test_a_lifespan_that_fails_fails_serving() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    server = Server("s", lifespan=lifespan, tools=ping_tool)
    _, theirs = memory_pair()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no database"):
            await server.serve(theirs)
    with pytest.raises(RuntimeError, match="no database"):
        await server.call_tool("ping_tool")


# --- Protocol helpers ---


@pytest.mark.covers("J54", "J55")
def test_versions_and_features_can_be_asked_for() -> None:
    assert [each for each in types.REVISIONS if types.is_supported(each)] == list(REVISIONS)
    assert not types.is_supported("2023-01-01")
    assert types.supports("2025-06-18", "resource_links")
    assert not types.supports("2025-03-26", "resource_links")


@pytest.mark.covers("J63", "R9")
async def test_an_error_of_a_handlers_own() -> None:
    from toolwire import ProtocolError

    server = Server("s")

    @server.tool
    async def refuse() -> None:
        raise ProtocolError(-31999, "Out of paper", {"tray": 2})

    async with connect(server, MODERN) as client:
        error = await client.error("tools/call", {"name": "refuse"})
    assert error == {"code": -31999, "message": "Out of paper", "data": {"tray": 2}}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_client_and_the_server_go_together(revision: str) -> None:
    async with testing.connect(Server("s", tools=ping_tool), revision=revision) as (client, _):
        assert (await client.call_tool("ping_tool")).text == "pong"
