"""Targets, the choice of the revision, and the life of a connection."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.client.fake import FakeServer, text

from toolwire import Server, testing
from toolwire.client import Client
from toolwire.client.target import Link, Target
from toolwire.client.targets import CommandTarget, Options, ServerTarget, resolve
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Timeout, Unreachable
from toolwire.protocol.lifecycle import NoCommonRevision
from toolwire.protocol.revisions import LEGACY, MODERN, REVISIONS
from toolwire.testing import elapse
from toolwire.wire.channel import MemoryChannel, memory_pair

HELLO = {"tools/call": lambda request, outlet: text("hello")}


def write(folder: Path, body: str, name: str = "server.py") -> str:
    path = folder / name
    path.write_text(body, encoding="utf-8")
    return str(path)


# What the scripted processes below share: read lines, answer by a function, note what arrived.
LINES = """
import json, os, sys
def answer(id, result):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\\n")
    sys.stdout.flush()
def fail(id, code, message="no", **data):
    error = {"code": code, "message": message, **({"data": data} if data else {})}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}) + "\\n")
    sys.stdout.flush()
def initialized(id, version="2025-06-18"):
    answer(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
def messages():
    for line in sys.stdin:
        yield json.loads(line)
"""


class Scripted:
    """The far end of a channel, played by the test."""

    def __init__(self) -> None:
        self.ours, self.theirs = memory_pair()

    async def next(self) -> dict[str, Any]:
        data = await self.theirs.read()
        assert data is not None
        message: dict[str, Any] = msgspec.json.decode(data)
        return message

    def send(self, message: dict[str, Any]) -> None:
        self.theirs.write(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    def answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        self.send({"id": request["id"], "result": result})

    def refuse(self, request: dict[str, Any], code: int, **data: Any) -> None:
        self.send({"id": request["id"], "error": {"code": code, "message": "no", **({"data": data} if data else {})}})


DISCOVERED = {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {}, "ttlMs": 0}
INITIALIZED = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}


# --- targets ---


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("ftp://example.com/mcp", "not the URL of a server"),
        ("http:///mcp", "not the URL of a server"),
        ("http://user:secret@example.com/mcp", "do not belong into the URL"),
        ({"mcpServers": {}}, "names no server"),
        ("server.rb", "neither .py nor .js"),
        ("missing.py", "no server file"),
        (42, "A client takes a URL"),
        ([], "A client takes a URL"),
        (FakeServer, "A client takes a URL"),
    ],
)
def test_a_target_that_is_none_says_what_is_supported(target: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        Client(target)


def test_a_file_is_run_by_its_interpreter(tmp_path: Path) -> None:
    python, script = write(tmp_path, "", "a.py"), write(tmp_path, "", "a.js")
    found = [resolve(python), resolve(script), resolve(Path(python)), resolve(["run", "it"])]
    assert all(isinstance(target, CommandTarget) for target in found)
    commands = [target.command for target in found if isinstance(target, CommandTarget)]
    assert commands == [[sys.executable, python], ["node", script], [sys.executable, python], ["run", "it"]]


def test_the_address_tells_servers_apart_that_look_alike(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    files = [write(tmp_path / name, "", "server.py") for name in ("one", "two")]
    targets = [
        *map(resolve, files),
        *(resolve(["python", file]) for file in files),
        *(resolve(["python", "server.py"], Options(cwd=tmp_path / name)) for name in ("one", "two")),
        resolve(["npx", "server"]),
        resolve(["npx", "server", "--key=secret"]),
        *(resolve(f"https://example.com/mcp{query}") for query in ("", "?tenant=a", "?key=secret")),
    ]
    addresses = [target.address for target in targets]
    assert len(set(addresses)) == len(addresses)
    assert "secret" not in "".join(addresses)


def test_the_address_is_the_same_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "", "server.py")
    targets = [resolve(file), resolve(["python", file]), resolve(["npx", "server"])]
    addresses = [target.address for target in targets]
    assert addresses[0] == str(Path(file).resolve())
    monkeypatch.chdir(tmp_path)
    targets = [resolve("server.py"), resolve(["python", "server.py"]), resolve(["npx", "server"])]
    assert [target.address for target in targets] == addresses


def test_process_options_need_a_process() -> None:
    with pytest.raises(ValueError, match="env= is not for a server in this process"):
        Client(FakeServer(), env={"A": "1"})


def test_an_unknown_revision_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown revision"):
        Client(FakeServer(), revision="2025-01-01")


# --- negotiation ---


@pytest.mark.covers("R1", "1.3.1.3", "ERA-6")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_revision_can_be_pinned(revision: str) -> None:
    server = FakeServer(HELLO, instructions="Be kind.")
    async with testing.connect(server, revision=revision) as (client, wire):
        assert client.revision == revision
        assert client.server is not None
        assert (client.server.name, client.instructions) == ("fake", "Be kind.")
        assert client.capabilities["tools"] == {"listChanged": True}
        assert (await client.call_tool("hello")).text == "hello"
        opening = [message["method"] for message in wire.sent]
    if revision == MODERN:
        assert opening == ["server/discover", "tools/call"]
    else:
        assert opening == ["initialize", "notifications/initialized", "tools/call"]


@pytest.mark.covers("1.3.1.1", "1.3.2.1", "ERA-7")
@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32000, 7])
async def test_any_other_error_to_the_probe_is_a_legacy_server(code: int) -> None:
    far = Scripted()
    async with asyncio.timeout(5):
        connecting = asyncio.ensure_future(Client(far.ours, name="me", version="3").connect())
        probe = await far.next()
        assert probe["method"] == "server/discover"
        far.refuse(probe, code)
        opening = await far.next()
        assert opening["method"] == "initialize"
        assert opening["params"]["protocolVersion"] == "2025-11-25"
        assert opening["params"]["clientInfo"] == {"name": "me", "version": "3"}
        far.answer(opening, INITIALIZED)
        client = await connecting
        assert client.revision == "2025-06-18"
        assert await far.next() == {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await client.close()


@pytest.mark.covers("J9")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_client_says_who_it_is_as_far_as_the_revision_goes(
    revision: str, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer(HELLO)
    seen: list[Any] = []
    whole: dict[str, Any] = {
        "name": "me",
        "version": "3",
        "title": "Me",
        "description": "Asks a lot.",
        "websiteUrl": "https://me.example",
        "icons": [{"src": "https://me.example/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    }
    known = {"2024-11-05": 2, "2025-03-26": 2, "2025-06-18": 3}.get(revision, 6)
    target: Any = server
    if grouped:
        targets = {name: ServerTarget(server) for name in "ab"}
        monkeypatch.setattr("toolwire.client.config.read_config", lambda config, **_: targets)
        target = {"mcpServers": {}}
    client = Client(
        target,
        name="me",
        version="3",
        title="Me",
        description="Asks a lot.",
        website_url="https://me.example",
        icons=(icon for icon in whole["icons"]),
        revision=revision,
        on_message=None if grouped else lambda way, message: seen.append((way, msgspec.json.decode(message))),
    )
    async with client:
        assert client.connected
    told = [session.peer.lifecycle.client for session in server.sessions]
    if revision == MODERN:
        told = [request.client for request in server.requests if request.method == "server/discover"]
    assert [one.to_dict() for one in told] == [dict(list(whole.items())[:known])] * (2 if grouped else 1)
    if not grouped:
        params = next(message["params"] for way, message in seen if way == "→")
        sent = params["_meta"]["io.modelcontextprotocol/clientInfo"] if revision == MODERN else params["clientInfo"]
        assert sent == dict(list(whole.items())[:known])


@pytest.mark.parametrize("icon", [{"src": "javascript:alert(1)"}, {"src": "file:///etc/passwd"}, {}, 7])
def test_an_icon_that_nobody_would_show_is_refused(icon: Any) -> None:
    with pytest.raises(ValueError, match="An icon is"):
        Client(FakeServer(), icons=[icon])


@pytest.mark.covers("ERA-7", "1.3.1.4")
async def test_silence_is_a_legacy_server_and_nothing_but_initialize_follows() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours, probe_timeout=0.01).connect())
    probe = await far.next()
    opening = await far.next()
    assert opening["method"] == "initialize"
    far.answer(opening, INITIALIZED)
    client = await connecting
    far.answer(probe, DISCOVERED)  # Too late, and ignored.
    assert client.revision == "2025-06-18"
    await client.close()


async def test_a_silent_server_is_asked_no_longer_than_the_client_waits() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours, timeout=1).connect())
    await far.next()
    await elapse(1)
    assert (await far.next())["method"] == "initialize"
    await elapse(1)
    with pytest.raises(Timeout):
        async with asyncio.timeout(10):
            await connecting


@pytest.mark.covers("ERA-10")
async def test_a_modern_server_that_starts_slowly_is_asked_again() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours, probe_timeout=0.01).connect())
    await far.next()
    opening = await far.next()
    assert opening["method"] == "initialize"
    far.refuse(opening, -32022, supported=[MODERN], requested="initialize")
    again = await far.next()
    assert again["method"] == "server/discover"
    far.answer(again, DISCOVERED)
    client = await connecting
    assert client.revision == MODERN
    await client.close()


class Starting(MemoryChannel):
    """A channel to a server that does not read yet."""

    left: int | None = 100

    @property
    def unread(self) -> int | None:
        return self.left


def starting() -> tuple[Scripted, Starting]:
    far, ours = Scripted(), Starting()
    ours._peer, far.theirs._peer = far.theirs, ours
    far.ours = ours
    return far, ours


@pytest.mark.covers("ERA-7", "ERA-10")
async def test_a_server_that_has_not_read_the_question_is_still_starting() -> None:
    far, channel = starting()
    connecting = asyncio.ensure_future(Client(channel).connect())
    probe = await far.next()
    for _ in range(5):
        await elapse(8)
    channel.left = 0
    far.answer(probe, DISCOVERED)
    client = await connecting
    assert client.revision == MODERN
    await client.close()


async def test_a_server_that_reads_and_says_nothing_is_a_legacy_server() -> None:
    far, channel = starting()
    connecting = asyncio.ensure_future(Client(channel).connect())
    await far.next()
    await elapse(20)
    channel.left = 0
    await elapse(6)
    opening = await far.next()
    assert opening["method"] == "initialize"
    far.answer(opening, INITIALIZED)
    await (await connecting).close()


async def test_a_server_that_never_reads_is_given_up() -> None:
    _, channel = starting()
    connecting = asyncio.ensure_future(Client(channel, timeout=60).connect())
    await asyncio.sleep(0)
    await elapse(70)
    with pytest.raises(Timeout, match="did not answer server/discover in time"):
        await connecting


class Restarted(Target):
    """A server that can be started again and again."""

    label = "the server"
    restartable = True

    def __init__(self) -> None:
        self.starts: list[Scripted] = []

    async def open(self) -> Link:
        self.starts.append(Scripted())
        return Link(self.starts[-1].ours, self.label)


@pytest.mark.covers("ERA-10")
@pytest.mark.parametrize("restartable", [True, False])
async def test_a_server_that_said_too_late_what_it_speaks_is_asked_from_the_start(restartable: bool) -> None:
    target = Restarted()
    target.restartable = restartable  # type: ignore[misc]
    client = Client(target)
    connecting = asyncio.ensure_future(client.connect())
    await asyncio.sleep(0)
    while not target.starts:
        await asyncio.sleep(0)
    far = target.starts[0]
    probe = await far.next()
    await elapse(6)
    opening = await far.next()
    assert opening["method"] == "initialize"
    far.answer(probe, DISCOVERED)
    far.answer(opening, INITIALIZED)
    if restartable:
        while len(target.starts) < 2:
            await asyncio.sleep(0)
        again = await target.starts[1].next()
        assert again["method"] == "server/discover"
        # By now it is known what it speaks, so that it may take its time.
        await elapse(30)
        target.starts[1].answer(again, DISCOVERED)
    await connecting
    assert client.revision == (MODERN if restartable else "2025-06-18")
    assert len(target.starts) == (2 if restartable else 1)
    await client.close()


@pytest.mark.covers("VER-2")
async def test_an_unsupported_version_is_retried_once() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours).connect())
    far.refuse(await far.next(), -32022, supported=[MODERN], requested=MODERN)
    second = await far.next()
    assert second["method"] == "server/discover"
    far.refuse(second, -32022, supported=[MODERN], requested=MODERN)
    with pytest.raises(NoCommonRevision):
        await connecting


@pytest.mark.covers("1.3.2.3", "T-2", "1.3.2.4")
async def test_a_version_that_nobody_here_speaks_ends_the_connection() -> None:
    far = Scripted()
    client = Client(far.ours, revision="2025-11-25")
    connecting = asyncio.ensure_future(client.connect())
    far.answer(await far.next(), {**INITIALIZED, "protocolVersion": "2031-01-01"})
    with pytest.raises(NoCommonRevision, match="2031-01-01"):
        await connecting
    assert not client.connected
    assert await far.theirs.read() is None


async def test_a_pinned_revision_is_not_exchanged_for_another() -> None:
    server = FakeServer(revisions=("2024-11-05",))
    with pytest.raises(NoCommonRevision, match="2024-11-05 instead of 2025-06-18"):
        await Client(server, revision="2025-06-18").connect()


@pytest.mark.covers("ERA-8")
async def test_a_modern_only_client_probes_and_refuses_a_legacy_server() -> None:
    server = FakeServer(HELLO, revisions=LEGACY)
    with pytest.raises(NoCommonRevision):
        await Client(server, revision=MODERN).connect()
    assert set(server.methods()) <= {"server/discover"}


@pytest.mark.covers("1.3.1.6", "T-9")
async def test_initialize_is_not_cancelled_when_it_takes_too_long() -> None:
    far = Scripted()
    with pytest.raises(Timeout, match="initialize"):
        await Client(far.ours, revision="2025-11-25", timeout=0.01).connect()
    assert (await far.next())["method"] == "initialize"
    assert await far.theirs.read() is None


@pytest.mark.covers("T-3")
async def test_a_ping_of_the_server_is_answered_before_the_handshake_is_over() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours, revision="2025-06-18").connect())
    opening = await far.next()
    far.send({"id": "p", "method": "ping"})
    assert await far.next() == {"jsonrpc": "2.0", "id": "p", "result": {}}
    far.answer(opening, INITIALIZED)
    await (await connecting).close()


@pytest.mark.covers("STD-6", "RPC-6")
async def test_a_modern_client_answers_no_request() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours, roots=["/tmp"]).connect())
    far.answer(await far.next(), DISCOVERED)
    client = await connecting
    far.send({"id": 1, "method": "roots/list"})
    far.send({"id": 2, "method": "ping"})
    asking = asyncio.ensure_future(client.ping())
    request = await far.next()
    assert request["method"] == "server/discover"  # The next thing sent is ours, not an answer.
    far.answer(request, DISCOVERED)
    await asking
    await client.close()


# --- connect and close ---


async def test_connect_and_close_in_any_order_and_from_any_task() -> None:
    client = Client(FakeServer(HELLO))
    await client.close()
    await asyncio.gather(client.connect(), client.connect(), client.connect())
    assert client.connected
    assert len(client._target._server.sessions) == 1  # type: ignore[attr-defined]
    await asyncio.create_task(client.close())
    await client.close()
    assert not client.connected
    with pytest.raises(Unreachable, match="not connected"):
        await client.call_tool("hello")
    async with client:
        assert (await client.call_tool("hello")).text == "hello"
    assert "not connected" in repr(client)


async def test_closing_cancels_what_is_in_flight_instead_of_waiting_for_it() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    server = Server("slow")

    @server.tool
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Future()
        finally:
            ended.set()

    client = await Client(server).connect()
    call = asyncio.ensure_future(client.call_tool("wait"))
    await begun.wait()
    await client.close()
    assert ended.is_set()
    with pytest.raises(OutcomeUnknown, match=r"^The connection ended before tools/call was answered$"):
        await call


async def test_closing_while_connecting_ends_the_attempt() -> None:
    far = Scripted()
    client = Client(far.ours)
    connecting = asyncio.ensure_future(client.connect())
    await far.next()
    await client.close()
    with pytest.raises(Unreachable, match="closed while it connected"):
        await connecting
    assert await far.theirs.read() is None


async def test_a_cancelled_connect_lets_go_of_the_server() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours).connect())
    await far.next()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert await far.theirs.read() is None


async def test_errors_are_never_in_a_group() -> None:
    class Broken(FakeServer):
        async def serve(self, channel: Any, *, principal: Any = None) -> None:
            raise RuntimeError("wires crossed")

    with pytest.raises(Unreachable, match="'fake' stopped serving: wires crossed"):
        async with Client(Broken()):
            pass


async def test_a_call_in_flight_at_the_end_has_an_unknown_outcome() -> None:
    async def leave(request: Any, outlet: Any) -> Any:
        server.session.end()
        await asyncio.Event().wait()

    server = FakeServer({"tools/call": leave})
    async with Client(server) as client:
        with pytest.raises(OutcomeUnknown, match="tools/call"):
            await client.call_tool("x")
        # Not restartable: a second call says so, and nothing hangs.
        with pytest.raises(Unreachable):
            await client.call_tool("x")


@pytest.mark.covers("1.3.2.6", "T-4")
@pytest.mark.parametrize("revision", ["2024-11-05", MODERN])
async def test_nothing_is_sent_that_the_server_did_not_offer(revision: str) -> None:
    server = FakeServer(capabilities={"tools": {}})
    async with testing.connect(server, revision=revision) as (client, wire):
        before = len(wire.sent)
        for attempt in (
            client.list_prompts(),
            client.get_prompt("x"),
            client.read_resource("a:b"),
            client.set_level("info"),
            client.subscribe("a:b"),
        ):
            with pytest.raises(NotSupported):
                await attempt
        assert len(wire.sent) == before
        with pytest.raises(ProtocolError):  # An empty object declares: this one is sent.
            await client.list_tools()


# --- processes ---


async def test_a_server_file_runs_over_stdio(tmp_path: Path) -> None:
    server = write(
        tmp_path,
        LINES
        + """
sys.stderr.write("ERROR: only chatter\\n")
for message in messages():
    if message["method"] == "initialize":
        initialized(message["id"])
    elif message["method"] == "tools/call":
        answer(message["id"], {"content": [{"type": "text", "text": os.environ["GREETING"]}]})
    elif "id" in message:
        fail(message["id"], -32601)
""",
    )
    async with Client(server, env={"GREETING": "hi"}) as client:
        assert (await client.call_tool("x")).text == "hi"
    assert not client.connected


@pytest.mark.covers("STD-5", "2.1.3")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_talkative_stderr_is_no_failure(revision: str, tmp_path: Path) -> None:
    server = write(
        tmp_path,
        LINES
        + """
for message in messages():
    sys.stderr.write("Traceback (most recent call last): fatal error\\n" * 5000)
    sys.stderr.flush()
    if message["method"] == "initialize":
        initialized(message["id"], message["params"]["protocolVersion"])
    elif message["method"] == "server/discover":
        known = ["2026-07-28"]
        answer(message["id"], {"resultType": "complete", "supportedVersions": known, "capabilities": {}, "ttlMs": 0})
    elif "id" in message:
        answer(message["id"], {})
""",
    )
    async with Client(server, revision=revision) as client:
        await client.ping()


@pytest.mark.covers("STL-5")
async def test_one_process_serves_every_conversation(tmp_path: Path) -> None:
    server = write(
        tmp_path,
        """
import os
from toolwire import Server
server = Server("one")
@server.tool
async def process() -> int:
    return os.getpid()
server.run()
""",
    )

    async def conversation(client: Client) -> set[int]:
        await client.list_tools()
        with pytest.raises(ProtocolError):
            await client.call_tool("no-such-tool")
        return {await client.call_tool("process", returns=int) for _ in range(5)}

    async with Client(server) as client:
        first = await asyncio.create_task(conversation(client))
        # Each conversation is a task of its own; one is given up in the middle.
        given_up = asyncio.create_task(client.call_tool("process"))
        given_up.cancel()
        await asyncio.wait({given_up})
        others = await asyncio.gather(*(conversation(client) for _ in range(3)))
        assert len(first) == 1
        assert others == [first] * 3


async def test_a_server_that_dies_at_once_says_why(tmp_path: Path) -> None:
    server = write(tmp_path, "import sys; sys.stderr.write('no database\\n\\n'); sys.exit(3)")
    with pytest.raises(Unreachable, match=r"^server\.py exited with code 3: no database$"):
        await Client(server).connect()


@pytest.mark.covers("ERA-10", "ERA-7")
async def test_a_server_that_dies_of_the_probe_is_started_again_without_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = write(
        tmp_path,
        LINES
        + f"""
for message in messages():
    with open({str(log)!r}, "a") as notes:
        notes.write(message["method"] + "\\n")
    if message["method"] == "initialize":
        initialized(message["id"])
    elif message["method"] == "server/discover":
        sys.exit(1)
    elif message["method"] == "tools/call":
        os._exit(7)
""",
    )
    async with Client(server) as client:
        assert client.revision == "2025-06-18"
        with pytest.raises(OutcomeUnknown, match="exited with code 7"):
            await client.call_tool("x")
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("x")
    opened = ["initialize", "notifications/initialized", "tools/call"]
    assert log.read_text().split() == ["server/discover", *opened, *opened]


@pytest.mark.covers("STD-12")
async def test_a_crashed_process_is_started_again_by_the_next_call(tmp_path: Path) -> None:
    server = write(
        tmp_path,
        LINES
        + """
for message in messages():
    if message["method"] == "initialize":
        initialized(message["id"])
    elif message["method"] == "tools/call" and message["params"]["name"] == "crash":
        sys.stderr.write("segmentation dream\\n")
        sys.stderr.flush()
        os._exit(1)
    elif message["method"] == "tools/call":
        answer(message["id"], {"content": []})
""",
    )
    async with Client(server, revision="2025-06-18") as client:
        with pytest.raises(OutcomeUnknown, match=r"server\.py exited with code 1: segmentation dream; .*tools/call"):
            await client.call_tool("crash")
        assert (await client.call_tool("fine")).content == []


@pytest.mark.covers("1.10.11")
async def test_what_was_set_is_set_again_after_a_restart(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = write(
        tmp_path,
        LINES
        + f"""
for message in messages():
    with open({str(log)!r}, "a") as notes:
        notes.write(message["method"] + "\\n")
    if message["method"] == "initialize":
        capabilities = {{"tools": {{}}, "logging": {{}}, "resources": {{"subscribe": True}}}}
        info = {{"name": "s", "version": "1"}}
        answer(message["id"], {{"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}})
    elif message["method"] == "tools/call":
        os._exit(0)
    elif message["method"] == "resources/subscribe" and message["params"]["uri"] == "gone:":
        fail(message["id"], -32002)
    elif "id" in message:
        answer(message["id"], {{}})
""",
    )
    async with Client(server, revision="2025-06-18") as client:
        await client.set_level("error")
        await client.subscribe("memo://a")
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("x")
        await client.ping()
        # What cannot be had again does not stand in the way.
        client._subscribed["gone:"] = None
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("x")
        await client.ping()
    opened = ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"]
    assert log.read_text().split() == [
        *opened,
        "tools/call",
        *opened,
        "ping",
        "tools/call",
        *opened,
        "resources/subscribe",
        "ping",
    ]


@pytest.mark.covers("ERA-10")
async def test_a_server_that_changed_its_era_is_probed_again(tmp_path: Path) -> None:
    mark = tmp_path / "upgraded"
    server = write(
        tmp_path,
        LINES
        + f"""
modern = os.path.exists({str(mark)!r})
for message in messages():
    if message["method"] == "initialize":
        fail(message["id"], -32022, supported=["2026-07-28"]) if modern else initialized(message["id"])
    elif message["method"] == "server/discover":
        found = {{"supportedVersions": ["2026-07-28"], "capabilities": {{"tools": {{}}}}}}
        answer(message["id"], found) if modern else fail(message["id"], -32601)
    elif message["method"] == "tools/call":
        open({str(mark)!r}, "w").close()
        os._exit(0)
""",
    )
    async with Client(server) as client:
        assert client.revision == "2025-06-18"
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("upgrade")
        await client.ping()
        assert client.revision == MODERN


async def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(Unreachable, match="no-such-command"):
        await Client(["no-such-command"]).connect()


async def test_a_channel_that_can_only_be_read() -> None:
    """A transport of the user's own implements three methods."""

    class Plain(MemoryChannel):
        def attach(self, feed: Any, ended: Any) -> bool:
            return False

    ours, theirs = Plain(), MemoryChannel()
    ours._peer, theirs._peer = theirs, ours
    serving = asyncio.ensure_future(FakeServer(HELLO).serve(theirs))
    async with Client(ours) as client:
        assert (await client.call_tool("hello")).text == "hello"
    await serving


def test_the_name_card_is_that_of_the_program() -> None:
    assert Client(FakeServer(), name="me", title="Me")._keeper._opener.identity == t.Implementation(
        "me", Client(FakeServer())._keeper._opener.identity.version, title="Me"
    )


async def test_a_file_that_starts_no_server_is_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "idle.py"
    file.write_text(
        "import asyncio\nfrom toolwire import Server\nserver = Server('idle')\nasyncio.run(asyncio.sleep(0))\n"
    )
    with pytest.raises(Unreachable, match=r"idle\.py exited with code 0: does it start its server"):
        await Client(file).connect()


DEFINES = "from toolwire import Server\nserver = Server('found')\n"
STARTS = f"{DEFINES}server.run()\n"
GUARDED = f"{DEFINES}if __name__ == '__main__':\n    server.run()\n"
WITH_MAIN = f"{DEFINES}def main() -> None:\n    server.run()\n"
# Programs of several files: what `main.py` says, the other files, and what is named to the client.
PROGRAMS: dict[str, tuple[str, dict[str, str], str]] = {
    "from a package": ("from pkg import server", {"pkg/__init__.py": DEFINES}, "main.py"),
    "from a package that passes it on": (
        "from pkg import server",
        {"pkg/__init__.py": "from .made import server", "pkg/made.py": GUARDED},
        "main.py",
    ),
    "from a module of a package": (
        "from pkg.made import server",
        {"pkg/__init__.py": "", "pkg/made.py": DEFINES},
        "main.py",
    ),
    "from a folder that is no package": ("from pkg.made import server", {"pkg/made.py": DEFINES}, "main.py"),
    "from a neighbour": ("from made import server as mcp", {"made.py": DEFINES}, "main.py"),
    "through a circle": ("from a import server", {"a.py": f"{DEFINES}import b", "b.py": "import a"}, "main.py"),
    "an attribute": ("import made\nserver = made.server", {"made.py": DEFINES}, "main.py"),
    "by a name": ("from made import server as one, other", {"made.py": f"{DEFINES}other = Server('b')"}, "main.py:one"),
    "started by the import": ("import made", {"made.py": STARTS}, "main.py"),
    "started by a function": ("from made import main\nmain()", {"made.py": WITH_MAIN}, "main.py"),
    "started by the main program": ("from made import server\nserver.run()", {"made.py": DEFINES}, "main.py"),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("absolute", [True, False], ids=["from the root on", "from its folder"])
async def test_a_server_that_another_file_defines_is_run(tmp_path: Path, program: str, absolute: bool) -> None:
    main, files, target = PROGRAMS[program]
    for name, code in {**files, "main.py": f"{main}\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    client = Client(str(tmp_path / target)) if absolute else Client(target, cwd=tmp_path)
    async with client:
        assert client.server is not None
        assert client.server.name == "found"


async def test_two_servers_of_one_file_are_two_addresses(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(f"{DEFINES}other = Server('other')\n")
    one, other = (resolve(f"{file}:{name}") for name in ("server", "other"))
    assert one.address != other.address
    with pytest.raises(ValueError, match=r"There is no server file 'gone\.py'"):
        resolve("gone.py:server")


async def test_a_file_that_starts_nothing_is_told_how_to_name_its_server(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import importlib\nserver = importlib.import_module('made').server\n")
    (tmp_path / "made.py").write_text(DEFINES)
    with pytest.raises(Unreachable, match=r"name it: main\.py:server$"):
        await Client(tmp_path / "main.py").connect()
    async with Client(f"{tmp_path / 'main.py'}:server") as client:
        assert await client.list_tools() == []


async def test_a_file_that_only_defines_a_server_is_run(tmp_path: Path) -> None:
    file = tmp_path / "defined.py"
    file.write_text(
        "import subprocess\nimport toolwire as wired\nserver = wired.Server('defined')\n"
        "@server.tool\ndef list_files() -> str:\n    return str(subprocess.run(['ls']))\n"
    )
    async with Client(file) as client:
        assert client.server is not None
        assert client.server.name == "defined"
    async with Client("defined.py", cwd=tmp_path) as client:
        assert [tool.name for tool in await client.list_tools()] == ["list_files"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\ndef broken(:\n", r"SyntaxError: invalid syntax \(broken\.py, line 2\)$"),
        ("from toolwire import Server\nserver = Server('x')\n\n@server.tool\ndef f(*many): ...\n",
         r"\*many cannot be described; name each parameter \(broken\.py, line 4\)$"),
    ],
)  # fmt: skip
async def test_a_file_that_is_broken_names_the_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(Unreachable, match=rf"^broken\.py exited with code 1: .*{says}"):
        await Client(file).connect()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (
            "node:internal:301\n  throw new X();\n  ^\n\nError [ERR_X]: Cannot find package 'y' imported from z\n"
            "    at a (b:1) {\n  code: 'ERR_X'\n}\n\nNode.js v24.19.0\n",
            r"Error \[ERR_X\]: Cannot find package 'y' imported from z$",
        ),
        ("npm error 404 no package\nnpm error A complete log of this run is in: /x\n", "npm error 404 no package$"),
    ],
)  # fmt: skip
async def test_what_node_and_npm_add_is_passed_over(written: str, says: str) -> None:
    script = f"import sys; sys.stderr.write({written!r}); sys.exit(1)"
    with pytest.raises(Unreachable, match=f"exited with code 1: {says}"):
        await Client([sys.executable, "-c", script]).connect()
