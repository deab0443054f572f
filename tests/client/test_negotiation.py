"""The choice of the revision when a client connects."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.client.scripted import Scripted

from toolwire import Server, testing
from toolwire.client import Client
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import VERDICT_SECONDS, Link, Target
from toolwire.client.targets import ServerTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, Timeout
from toolwire.protocol.lifecycle.negotiation import NoCommonRevision
from toolwire.protocol.revisions import LEGACY, MODERN, REVISIONS
from toolwire.testing import elapse
from toolwire.wire.channel import MemoryChannel

HELLO = {"tools/call": lambda request, outlet: text("hello")}


DISCOVERED = {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {}, "ttlMs": 0}


INITIALIZED = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}


@pytest.mark.covers("R1", "1.3.1.3", "ERA-6")
@cases("revision", REVISIONS)
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
@cases("code", [-32601, -32602, -32600, -32603, -32000, 7])
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


@pytest.mark.parametrize("over", ["memory", "stdio"])
async def test_internal_error_of_a_modern_server_is_what_the_client_reports(over: Literal["memory", "stdio"]) -> None:
    server = Server("broken")

    @server.use
    async def check(ctx: Any, call_next: Any) -> Any:
        raise ValueError("the cause")

    with pytest.raises(ProtocolError, match=r"^Internal error in the request \(error id [0-9a-f]{12}\)") as caught:
        async with testing.connect(server, over=over):
            pass
    assert caught.value.code == INTERNAL_ERROR


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


@cases("icon", [{"src": "javascript:alert(1)"}, {"src": "file:///etc/passwd"}, {}, 7])
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


async def test_probe_and_handshake_share_the_timeout_of_the_client() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours, timeout=10, probe_timeout=60).connect())
    await far.next()
    await elapse(5)
    assert (await far.next())["method"] == "initialize"
    await elapse(5)
    await until_done(connecting)
    with pytest.raises(Timeout, match="initialize"):
        connecting.result()


@pytest.mark.parametrize("revision", [None, MODERN])
async def test_connecting_over_http_ends_with_the_timeout_when_server_is_silent(revision: str | None) -> None:
    pool = SilentPool()
    client = Client(HttpTarget("http://localhost/mcp", pool=pool), timeout=10, revision=revision)
    connecting = asyncio.ensure_future(client.connect())
    await pool.asked.wait()
    for _ in range(50):  # Ten seconds, with a little more for the steps of the clock.
        await elapse(0.205)
    await until_done(connecting)
    with pytest.raises(Timeout, match="server/discover" if revision else "initialize"):
        connecting.result()
    assert pool.methods == (["server/discover"] if revision else ["server/discover", "initialize"])


async def test_pinned_modern_server_that_is_slow_to_answer_is_waited_for() -> None:
    far = Scripted()
    connecting = asyncio.ensure_future(Client(far.ours, timeout=10, probe_timeout=1, revision=MODERN).connect())
    probe = await far.next()
    await elapse(6)
    far.answer(probe, DISCOVERED)
    client = await connecting
    assert client.revision == MODERN
    await client.close()


async def until_done(connecting: asyncio.Future[Any]) -> None:
    """Let a client give up; it has no time left, so that only the loop has to run."""
    for _ in range(200):
        if connecting.done():
            return
        await asyncio.sleep(0)
    connecting.cancel()
    raise AssertionError("connecting goes on after the timeout")


class SilentPool(Pool):
    """A pool whose server answers nothing."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.asked = asyncio.Event()

    async def send(self, method: str, url: str, headers: Any, body: bytes | None) -> HttpResponse:
        self.methods.append(msgspec.json.decode(body or b"{}").get("method"))
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        """Close nothing."""


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
        await elapse(20)
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


@pytest.mark.parametrize("over", ["memory", "http"])
async def test_a_verdict_on_a_server_expires(over: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was upgraded still answers `initialize`, so that only asking again finds out."""
    now = 1000.0
    monkeypatch.setattr("toolwire.client.target.monotonic", lambda: now)
    server = Server("upgraded")
    app = server.http_app()
    pool = AsgiPool(app)
    target: Target = ServerTarget(server) if over == "memory" else HttpTarget("http://localhost/mcp", pool=pool)
    target.verdict = "legacy"
    async with Client(target) as client:
        assert client.revision == "2025-11-25"
    now += VERDICT_SECONDS
    assert target.verdict is None
    async with Client(target) as client:
        assert client.revision == MODERN
    app.drain()
    await pool.close()
    await app.stop()
