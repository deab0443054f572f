"""A gateway between clients and servers that we did not write, in each pair of eras.

Every row has somebody else's library on one end, some on both. In the first half it is the client, and the server
behind is ours, so that every message and header is seen. In the second half it is the server. Tasks have a file of
their own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Raw
from tests.client.fake import FakeServer
from tests.gateway.backs import Recorded
from tests.golden.fixture import make_server
from tests.interop import peers
from tests.interop.serve_http import Waits
from tests.interop.test_foreign_clients import (
    AUTO,
    CLIENT,
    SDK,
    Client,
    Report,
    check_answers,
    check_calls,
    check_reading,
    check_reports,
    since,
)
from tests.interop.test_foreign_http_servers import package, running
from tests.ports import free_port

from toolwire import Client as Ours
from toolwire import Context, Server
from toolwire.client import Accept, Elicitation, Sampling
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.gateway.sent_request import CLIENT_KEY
from toolwire.http import serving
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ResourceNotFound
from toolwire.protocol.revisions import MODERN
from toolwire.server.binding import Header

# Starting a client takes seconds, and on a busy machine many.
pytestmark = [
    pytest.mark.timeout(180),
    # 2026-07-28 has deprecated sampling, roots and log messages, and servers still use them.
    pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning"),
]

LEGACY = "2025-11-25"

# --- Clients in front -------------------------------------------------------------------------------------------------

SCENARIOS = ("tools", "reading", "reports", "asking", "crossing", "changes")
# There is no method for the subscriptions of 2026-07-28 in this library.
WITHOUT_CHANGES = SCENARIOS[:-1]
CLIENTS = (
    Client("mcp-2.3.0", MODERN, "http", SCENARIOS, AUTO),
    Client("fastmcp-4.1.2", MODERN, "http", WITHOUT_CHANGES, AUTO),
    Client("node-client-2", MODERN, "http", SCENARIOS, CLIENT | AUTO),
    Client("mcp-1.30.0", LEGACY, "http", SCENARIOS),
    Client("node-sdk-1", LEGACY, "http", SCENARIOS, SDK),
    Client("mcp-1.22.0", "2025-06-18", "http", SCENARIOS),
)


class Headers:
    """An application that takes note of the headers of requests and answers of another one."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.requests: list[dict[str, str]] = []
        self.answers: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.answers.append(_texts(message["headers"]))
            await send(message)

        if scope["type"] == "http":
            self.requests.append(_texts(scope["headers"]))
        await self._application(scope, receive, noting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._application, name)

    def sessions(self) -> set[str]:
        """Return the sessions that the answers told of."""
        return {each["mcp-session-id"] for each in self.answers if "mcp-session-id" in each}


def _texts(headers: Any) -> dict[str, str]:
    return {name.decode().lower(): value.decode() for name, value in headers}


def back_server() -> Server:
    """Make the server of the golden transcripts, with tools for what only a gateway has to translate."""
    server = make_server()
    # A client whose cancellation does not arrive is never answered again.
    server.use(Waits())

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Sign in", "https://example.com/in")).action

    @server.tool
    async def think(ctx: Context) -> str:
        weather = t.Tool(name="weather", input_schema={"type": "object"})
        return str((await ctx.sample("How is it?", tools=[weather], tool_choice="required")).text)

    @server.tool
    async def place(region: Annotated[str, Header("Region")]) -> str:
        return region

    @server.tool
    async def session(ctx: Context) -> str:
        return str(ctx.session_id)

    return server


ERRORS: dict[str, tuple[int, Any]] = {
    "error_32020": (-32020, None),
    "error_32021": (-32021, {"requiredCapabilities": {"sampling": {}}}),
    "error_32022": (-32022, {"supported": ["1999-01-01"], "requested": MODERN}),
    "error_32042": (
        -32042,
        {"elicitations": [{"mode": "url", "elicitationId": "7", "url": "https://example.com/pay", "message": "Pay"}]},
    ),
}
#: What no type here knows, or what a proxy may forget.
ODD: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "x", "_meta": {"com.example/a": 1}},
        {"type": "resource", "resource": {"uri": "odd://a", "mimeType": "text/x-odd", "text": "y"}},
    ],
    "structuredContent": {"n": "not a number"},
    "_meta": {"com.example/b": 2},
}


def raw_server() -> FakeServer:
    """Make a server whose tools answer with errors, and with a result that is not what the tool declared."""
    tools: list[dict[str, Any]] = [{"name": name, "inputSchema": {"type": "object"}} for name in (*ERRORS, "odd")]

    def listed(request: Any, outlet: Any) -> Raw:
        modern = {"resultType": "complete", "ttlMs": 5000, "cacheScope": "public"} if request.modern else {}
        return Raw(msgspec.json.encode({"tools": tools, **modern}))

    def called(request: Any, outlet: Any) -> Raw:
        if request.params.name == "odd":
            return Raw(msgspec.json.encode({**ODD, **({"resultType": "complete"} if request.modern else {})}))
        code, data = ERRORS[request.params.name]
        raise ProtocolError(code, "wrong", data)

    return FakeServer({"tools/list": listed, "tools/call": called}, capabilities={"tools": {}})


class Scene:
    """A gateway at an address, and what goes on before and behind it."""

    def __init__(self, front: Headers, behind: Headers, recorded: Recorded, address: str) -> None:
        self.front = front
        self.behind = behind
        self.recorded = recorded
        self.address = address

    def calls(self, tool: str) -> list[dict[str, Any]]:
        """Return the params of the calls of a tool that the gateway made."""
        return [each["params"] for each in self.recorded.sent("tools/call") if each["params"]["name"] == tool]


@asynccontextmanager
async def scene(back: str) -> AsyncIterator[Scene]:
    recorded = Recorded()
    app = back_server().http_app()
    behind = Headers(app)
    pool = AsgiPool(behind)
    gateway = Gateway("front")
    gateway.add("b", HttpTarget("http://localhost/mcp", pool=pool, tap=recorded.record), prefix="", revision=back)
    gateway.add("raw", raw_server(), revision=back)
    front = Headers(gateway.http_app())
    async with on_port(front) as address:
        yield Scene(front, behind, recorded, address)
    app.drain()
    await pool.close()
    await app.stop()


@asynccontextmanager
async def on_port(application: Any) -> AsyncIterator[str]:
    """Serve an application in this loop; yield its address."""
    sockets = serving.listen("127.0.0.1", 0, public=False)
    server = serving.HttpServer(application, sockets, drain=1.0)
    ready = asyncio.Event()
    task = asyncio.create_task(server.serve(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield serving.url_of(sockets, "127.0.0.1", "/mcp")
    finally:
        server.stop()
        await task


@pytest.mark.parametrize("back", [MODERN, LEGACY])
@pytest.mark.parametrize("client", CLIENTS, ids=[f"{each.name}-{each.revision}" for each in CLIENTS])
async def test_a_client_in_front(client: Client, back: str) -> None:
    async with scene(back) as played:
        report = await asyncio.to_thread(client.play_with, [played.address], ",".join(client.scenarios))
    opened = report["tools"]
    assert (opened["revision"], opened["server"], opened["instructions"]) == (
        client.revision,
        "front",
        "b: Call anything.",
    )
    check_calls(client, report["tools"]["calls"], back)
    check_reading(client, report["reading"])
    check_reports(client, report["reports"])
    check_answers(client, report["asking"])
    check_pages_and_models(client, report["crossing"])
    check_errors(client, report["crossing"])
    check_members(client, report["crossing"], back)
    check_identity(client, played, back)
    check_reports_behind(client, played, back)
    check_headers(client, played, back)
    if "changes" in report:
        check_changes(report["changes"])


def check_pages_and_models(client: Client, report: Report) -> None:
    """A page to open is never an empty form, and a model gets its tools; a client that knows neither is not asked."""
    if since(client, LEGACY):
        assert report["asked_urls"][0] == ["Sign in", "https://example.com/in"]
        assert report["visit"]["text"] == "accept"
        assert report["asked_tools"] == [["weather"], "required"]
        assert report["think"]["text"] == "It is."
    else:
        assert not {"asked_urls", "asked_user", "asked_tools"} & report.keys()
        assert report["visit"]["error"] and "URL" in report["visit"]["text"]
        assert report["think"]["error"] and "tools" in report["think"]["text"]


def check_errors(client: Client, report: Report) -> None:
    # Between the gateway and the server behind: the client did nothing wrong, and is told who did.
    for name in ("error_32020", "error_32022"):
        assert report[name]["error"] and "'raw'" in report[name]["text"]
    if is_modern(client):
        # This library knows itself that there is no ping, and says so in a word instead of a number.
        assert report["pong"]["code"] == ("METHOD_NOT_SUPPORTED_BY_PROTOCOL_VERSION" if client.is_node else -32601)
        assert report["error_32021"]["code"] == -32021
        assert report["missing"]["code"] == -32602
    else:
        assert report["pong"] == "answered"
        assert report["error_32021"]["error"] and "'raw'" in report["error_32021"]["text"]
        assert report["missing"]["code"] == -32002
    if client.revision == LEGACY:
        assert report["error_32042"]["code"] == -32042
    else:
        assert report["error_32042"]["error"] and "https://example.com/pay" in report["error_32042"]["text"]
    if is_modern(client):
        # It is asked to open the page where it can be asked.
        assert ["Pay", "https://example.com/pay"] in report["asked_urls"]


def check_members(client: Client, report: Report, back: str) -> None:
    """What no type knows crosses; what describes one connection or one era does not."""
    odd = report["odd"]
    meta = odd.pop("_meta")
    assert meta.pop(t.SERVER_INFO_KEY, None) == ({"name": "front", "version": "1.0.0"} if is_modern(client) else None)
    assert {**odd, "_meta": meta} == ODD | ({"resultType": "complete"} if says_result_type(client) else {})
    page = {name: value for name, value in report["page"].items() if name not in ("_meta", "resultType")}
    assert page == ({"ttlMs": 0, "cacheScope": "private"} if is_modern(client) else {})
    assert ("resultType" in report["page"]) == says_result_type(client)
    assert report["place"]["text"] == "eu"


def is_modern(client: Client) -> bool:
    return client.revision == MODERN


def says_result_type(client: Client) -> bool:
    """Return whether the client shows this member to its user, and got one."""
    return is_modern(client) and not client.is_node


def check_identity(client: Client, played: Scene, back: str) -> None:
    """The server behind learns who asks and what that client can do, and nothing that is not so."""
    meta = played.calls("echo")[0]["_meta"]
    name = "drive-node" if client.is_node else "mcp"
    expected = {"roots", "sampling", "elicitation"}
    if back == MODERN:
        assert meta[t.CLIENT_INFO_KEY]["name"] == name
        assert meta[t.PROTOCOL_VERSION_KEY] == MODERN
        assert meta[t.CLIENT_CAPABILITIES_KEY].keys() == expected
        # 2026-07-28 has no notification that the roots changed.
        assert is_modern(client) or "listChanged" not in meta[t.CLIENT_CAPABILITIES_KEY]["roots"]
        assert not played.recorded.sent("initialize")
    else:
        assert meta[CLIENT_KEY]["name"] == name
        assert t.MODERN_META_KEYS.isdisjoint(meta)
        opened = [each["params"] for each in played.recorded.sent("initialize")]
        assert {each["clientInfo"]["name"] for each in opened} == {"toolwire-gateway"}
        # Some requests of a modern client cannot be asked anything. Lists are read as a client with everything.
        declared = [each["capabilities"].keys() - {"extensions", "tasks"} for each in opened]
        assert all(each in (expected, set()) for each in declared)
        assert any(each["capabilities"].keys() == expected for each in opened)
        assert not played.recorded.sent("server/discover")


def check_reports_behind(client: Client, played: Scene, back: str) -> None:
    tokens = [call["_meta"].get(t.PROGRESS_TOKEN_KEY) for call in (*played.calls("count"), *played.calls("pace"))]
    assert "counting" not in tokens and "pacing" not in tokens
    if back == MODERN:
        levels = [call["_meta"][t.LOG_LEVEL_KEY] for call in played.calls("chatter")]
        assert levels == ["info", "error"]
    else:
        # The level is that of the connection, so that it is the lowest that a call wanted.
        assert played.recorded.sent("logging/setLevel")
        assert played.recorded.sent("notifications/cancelled")


def check_headers(client: Client, played: Scene, back: str) -> None:
    placed = [each for each in played.behind.requests if each.get("mcp-name") == "place"]
    named = [each for each in played.behind.requests if any(name.startswith("mcp-param-") for name in each)]
    if back == MODERN:
        assert [each["mcp-param-region"] for each in placed] == ["eu"]
        assert placed[0]["mcp-method"] == "tools/call"
        assert {each["mcp-protocol-version"] for each in played.behind.requests} == {MODERN}
        assert not played.behind.sessions()
    else:
        assert not placed and not named
        assert played.behind.sessions()
    # A session of the server behind is nobody else's.
    assert played.front.sessions().isdisjoint(played.behind.sessions())
    assert bool(played.front.sessions()) == (not is_modern(client))


def check_changes(report: Report) -> None:
    assert report["updated"] == ["note://today"]
    families = ("prompts", "resources", "tools")
    assert sorted(report["changed"]) == [f"notifications/{family}/list_changed" for family in families]
    assert report["sprout"]["text"] == "sprouted"


# --- Servers behind ---------------------------------------------------------------------------------------------------

ASKING = ("confirm", "visit", "think", "roots")


@dataclass(frozen=True)
class Behind:
    """A server that we did not write, the revision that is spoken with it, and what its library can do there."""

    library: str
    revision: str
    asks: tuple[str, ...] = ASKING
    """Its tools that ask. Not every library can ask everything on 2026-07-28."""
    logs: bool = True
    over: str = "http"

    @property
    def name(self) -> str:
        """The name that the server gives itself."""
        return "foreign" if self.library.startswith("node") else "features"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        """Yield what a gateway connects to."""
        port = free_port()
        if self.library.startswith("node"):
            command = [str(peers.needed_node()), str(peers.node_script("serve_behind.mjs")), self.over, str(port)]
        else:
            script = peers.SCRIPTS / "serve_behind.py"
            command = [str(peers.needed(self.library).python), str(script), str(port)]
        if self.over == "stdio":
            yield command
            return
        async with running(command, port):
            yield f"http://127.0.0.1:{port}/mcp"


BEHIND = (
    # Without a session, this package cannot ask clients of the older revisions over HTTP.
    Behind("node-server-2", MODERN, over="stdio"),
    Behind("node-server-2", LEGACY, over="stdio"),
    Behind("node-server-2", MODERN),
    Behind("mcp-2.3.0", MODERN, ("confirm", "think", "roots"), logs=False),
    Behind("mcp-2.3.0", LEGACY),
    Behind("mcp-1.30.0", LEGACY),
    Behind("fastmcp-4.1.2", MODERN, ()),
    Behind("fastmcp-4.1.2", LEGACY),
)


def gateway_before(target: Any, revision: str) -> Gateway:
    """Make a gateway before one server, which may take its time to start."""
    return Gateway("front").add("b", target, prefix="", revision=revision, list_timeout=60)


def client_of(gateway: Gateway, revision: str, **options: Any) -> Ours:
    return Ours(gateway, revision=revision, probe_timeout=60, **options)


class Person:
    """A client of ours in front of a gateway, and what it was asked and told."""

    def __init__(self, gateway: Gateway, revision: str) -> None:
        self.asked: list[Any] = []
        self.logs: list[Any] = []
        self.client = client_of(
            gateway,
            revision,
            elicit=Elicitation(self._form, url=self._page),
            sample=Sampling(self._model, tools=True),
            roots=["file:///work"],
            on_log=lambda message: self.logs.append(message.data),
        )

    async def _form(self, message: str, params: t.ElicitRequestParams) -> dict[str, Any]:
        self.asked.append(message)
        return {"ok": True}

    async def _page(self, message: str, params: t.ElicitRequestParams) -> Accept:
        self.asked.append((message, params.url))
        return Accept()

    async def _model(self, params: t.CreateMessageRequestParams) -> str:
        choice = params.tool_choice
        assert isinstance(choice, t.ToolChoice)
        self.asked.append(([tool.name for tool in params.tools or []], choice.mode))
        return "It is."


QUESTIONS = {
    "confirm": ("sure?", "accept True"),
    "visit": (("Sign in", "https://example.com/in"), "accept"),
    "think": ((["weather"], "required"), "It is."),
    "roots": (None, "file:///work"),
}


@pytest.mark.parametrize("behind", BEHIND, ids=[f"{each.library}-{each.over}-{each.revision}" for each in BEHIND])
async def test_a_server_behind(behind: Behind) -> None:
    async with behind.running() as target:
        gateway = gateway_before(target, behind.revision)
        for front in (MODERN, LEGACY):
            person = Person(gateway, front)
            async with person.client as client:
                assert (gateway.backs["b"].revision, client.revision) == (behind.revision, front)
                await check_questions(person, behind)
                await check_what_is_said_meanwhile(person, behind)
                await check_results(client, behind, front)
            async with client_of(gateway, front) as bare:
                await check_that_a_bare_client_is_not_asked(bare, behind, front)


async def check_questions(person: Person, behind: Behind) -> None:
    for name in behind.asks:
        question, answer = QUESTIONS[name]
        assert (await person.client.call_tool(name)).text == answer
        if question is not None:
            assert person.asked.pop() == question
    if behind.library.startswith("node"):
        # Two questions in one round, and a state that has to come back as it was.
        assert (await person.client.call_tool("both")).text == "accept True, file:///work"
    assert not person.asked or person.asked == ["sure?"]


async def check_what_is_said_meanwhile(person: Person, behind: Behind) -> None:
    progress: list[float] = []
    await person.client.call_tool("slow", on_progress=lambda report: progress.append(report.progress))
    assert progress == [1, 2, 3]
    assert (await person.client.call_tool("talk")).text == "talked"
    if behind.logs:
        assert "hello from the server" in str(person.logs)
    if behind.library.startswith("node"):
        return
    begun = asyncio.Event()
    waiting = asyncio.create_task(person.client.call_tool("wait", on_progress=lambda report: begun.set()))
    await begun.wait()
    waiting.cancel()
    await asyncio.wait([waiting])


async def check_results(client: Ours, behind: Behind, front: str) -> None:
    names = (await client.call_tool("names")).structured
    # Python servers wrap what is no object on every revision.
    bare = behind.library.startswith("node") and front == behind.revision == MODERN
    assert names == (["Oslo", "Paris"] if bare else {"result": ["Oslo", "Paris"]})
    assert (await client.read_resource("memo://text"))[0].text == "words"
    with pytest.raises(ResourceNotFound) as missing:
        await client.read_resource("nothing://here")
    assert missing.value.code == (-32602 if front == MODERN else -32002)
    if behind.library.startswith("node"):
        assert client.instructions == "b: Ask away."
        mirrored = "eu" if behind.over == "http" else "undefined"
        assert (await client.call_tool("place", {"region": "eu"})).text == f"eu {mirrored}"
        await check_a_page_to_pay(client, behind, front)
        return
    assert (await client.call_tool("point", {"x": 3})).structured == {"x": 3, "y": 0}
    assert (await client.call_tool("fail")).is_error
    assert (await client.get_prompt("greet", {"who": "Ada"})).messages[0].content == t.TextContent("hello Ada")
    told = json.loads((await client.call_tool("client")).text)
    assert told["capabilities"].keys() == {"roots", "sampling", "elicitation"}
    assert told["clientInfo"]["name"] == ("toolwire" if behind.revision == MODERN else "toolwire-gateway")


async def check_a_page_to_pay(client: Ours, behind: Behind, front: str) -> None:
    """-32042 is an error of 2025-11-25 only; a modern client is asked to open the page."""
    try:
        result = await client.call_tool("pay")
    except ProtocolError as error:
        # On 2026-07-28 this package takes it for a mistake in the server.
        assert behind.revision == MODERN or (front, error.code) == (LEGACY, -32042)
    else:
        assert (front, behind.revision) == (MODERN, LEGACY)
        assert "https://example.com/pay" in result.text


async def check_that_a_bare_client_is_not_asked(client: Ours, behind: Behind, front: str) -> None:
    """What the client did not declare is not asked: an error of its revision, or a text about it."""
    for name in behind.asks:
        try:
            result = await client.call_tool(name)
        except ProtocolError as error:
            assert front == MODERN or error.code != -32021
        else:
            assert result.is_error


@pytest.mark.parametrize("library", ["mcp-2.3.0", "mcp-1.30.0", "fastmcp-4.1.2"])
@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_conversations_and_changes_of_a_legacy_server(library: str, front: str) -> None:
    """Each conversation has a session of its own, and what changes in one of them is told to everybody."""
    async with Behind(library, LEGACY).running() as target:
        gateway = gateway_before(target, LEGACY)
        async with client_of(gateway, front) as one, client_of(gateway, front) as two:
            assert [await one.call_tool("visits", returns=int) for _ in range(2)] == [1, 2]
            assert await two.call_tool("visits", returns=int) == 1
            async with two.listen(tools=True) as changes:
                assert not (await one.call_tool("grow")).is_error
                assert (await anext(aiter(changes))).kind == "tools"
            assert (await two.call_tool("sprout")).text == "sprouted"


# These libraries answer both eras, and ask only in a session of the older one.
BOTH = (
    ("mcp-2.3.0", ("ask", "opinion", "folders")),
    ("fastmcp-4.1.2", ("ask", "opinion", "folders")),
)


@pytest.mark.parametrize(("library", "asks"), BOTH)
@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize("front", ["2025-06-18", LEGACY])
async def test_a_server_of_both_eras_asks_a_legacy_client(
    library: str, asks: tuple[str, ...], over: str, front: str
) -> None:
    command = [str(peers.needed(library).python), str(peers.SCRIPTS / "serve_features.py")]
    async with Behind(library, MODERN).running() as url:
        gateway = Gateway("front").add("b", command if over == "stdio" else url, prefix="", list_timeout=60)
        client = client_of(
            gateway,
            front,
            elicit=lambda message, params: {"ok": True},
            sample=lambda params: "It is.",
            roots=["file:///work"],
        )
        async with client:
            assert gateway.backs["b"].revision == MODERN
            answers = [(await client.call_tool(name)).text for name in asks]
            assert answers == ["accept True", "It is.", "file:///work"]
            assert not (await client.call_tool("point", {"x": 3})).is_error


@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_the_everything_server_behind(front: str) -> None:
    """It lists a tool only if its client can do what the tool needs, and asks for roots before the first call."""
    entered = {"name": "Ada", "check": True}
    urls: list[Any] = []

    async def page(message: str, params: t.ElicitRequestParams) -> Accept:
        urls.append(params.url)
        return Accept()

    gateway = gateway_before([str(peers.needed_node()), package("server-everything"), "stdio"], LEGACY)
    client = client_of(
        gateway,
        front,
        elicit=Elicitation(lambda message, params: entered, url=page),
        sample=lambda params: "It is.",
        roots=["file:///work"],
    )
    async with client:
        assert (await client.call_tool("get-sum", {"a": 1, "b": 2})).text.endswith("3.")
        assert "Ada" in (await client.call_tool("trigger-elicitation-request")).text
        assert "It is." in (await client.call_tool("trigger-sampling-request", {"prompt": "x"})).text
        assert "file:///work" in (await client.call_tool("get-roots-list")).text
        visit = {"url": "https://example.com/in"}
        assert not (await client.call_tool("trigger-url-elicitation", visit)).is_error
        assert urls == ["https://example.com/in"]
        structured = (await client.call_tool("get-structured-content", {"location": "Chicago"})).structured
        assert structured.keys() == {"temperature", "conditions", "humidity"}
        steps: list[Any] = []
        long = {"duration": 0.2, "steps": 2}
        await client.call_tool("trigger-long-running-operation", long, on_progress=steps.append)
        assert len(steps) == 2


# --- Both ends --------------------------------------------------------------------------------------------------------

PAIRS = (
    (Client("mcp-2.3.0", MODERN, "stdio", environment=AUTO), Behind("mcp-1.30.0", LEGACY)),
    (Client("node-client-2", MODERN, "http", environment=CLIENT | AUTO), Behind("fastmcp-4.1.2", LEGACY)),
    (Client("mcp-1.30.0", LEGACY, "http"), Behind("node-server-2", MODERN, over="stdio")),
    (Client("node-sdk-1", LEGACY, "stdio", environment=SDK), Behind("mcp-2.3.0", MODERN, BEHIND[3].asks)),
)


@pytest.mark.parametrize(
    ("client", "behind"), PAIRS, ids=[f"{client.name}-{behind.library}" for client, behind in PAIRS]
)
async def test_nothing_of_ours_at_either_end(client: Client, behind: Behind, tmp_path: Path) -> None:
    """`toolwire gateway FILE` as a process, over stdio and HTTP."""
    async with behind.running() as target:
        entry = {"url": target} if isinstance(target, str) else {"command": target[0], "args": target[1:]}
        servers = {"back": {**entry, "prefix": "", "revision": behind.revision, "list_timeout": 60}}
        file = tmp_path / "gateway.json"
        file.write_text(json.dumps({"mcpServers": servers, "gateway": {"name": "front"}}), encoding="utf-8")
        command = [sys.executable, "-m", "toolwire", "gateway", str(file)]
        if client.over == "stdio":
            report = await asyncio.to_thread(client.play_with, [*command, "--transport", "stdio"], "questions")
        else:
            port = free_port()
            async with running([*command, "--port", str(port)], port):
                address = f"http://127.0.0.1:{port}/mcp"
                report = await asyncio.to_thread(client.play_with, [address], "questions")
    assert (report["revision"], report["server"]) == (client.revision, "front")
    for name in behind.asks:
        assert report[name]["text"] == QUESTIONS[name][1]


BRIDGED = (
    (Client("node-client-2", MODERN, "stdio", environment=CLIENT | AUTO), Behind("mcp-2.3.0", MODERN, BEHIND[3].asks)),
    (Client("mcp-2.3.0", MODERN, "stdio", environment=AUTO), Behind("fastmcp-4.1.2", LEGACY)),
    (Client("node-sdk-1", LEGACY, "stdio", environment=SDK), Behind("node-server-2", MODERN)),
    (Client("mcp-1.30.0", LEGACY, "stdio"), Behind("mcp-1.30.0", LEGACY)),
)


@pytest.mark.parametrize(
    ("client", "behind"), BRIDGED, ids=[f"{client.name}-{behind.library}" for client, behind in BRIDGED]
)
async def test_a_client_that_only_starts_commands_before_a_server_at_a_url(client: Client, behind: Behind) -> None:
    """`toolwire bridge URL` as a process."""
    async with behind.running() as url:
        command = [sys.executable, "-m", "toolwire", "bridge", url, "--revision", behind.revision]
        report = await asyncio.to_thread(client.play_with, command, "questions")
    # The client sees the name of the server, and not that of the bridge.
    assert (report["revision"], report["server"]) == (client.revision, behind.name)
    for name in behind.asks:
        assert report[name]["text"] == QUESTIONS[name][1]
