"""An HTTP application whose store fails, or holds what nobody of us wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.http.httpclient import Answer, HttpClient, SessionClient, initialize_request

from toolwire import Context, Server
from toolwire.http import readiness
from toolwire.http.legacy import post_stream
from toolwire.stores import MemoryKV, MemoryLog, StoreFailed, StoreFull, Stores
from toolwire.testing import elapse

FAILURE = "The store redis://inside.example:6379/0 cannot be used: it is not reached"


class Breakable:
    """Fails while it is broken."""

    broken = False

    def check(self) -> None:
        if self.broken:
            raise StoreFailed(FAILURE)


class BreakableKV(MemoryKV, Breakable):
    async def get(self, key: str) -> bytes | None:
        self.check()
        return await super().get(key)

    async def put(self, key: str, value: bytes, **options: Any) -> bool:
        self.check()
        return await super().put(key, value, **options)


class BreakableLog(MemoryLog, Breakable):
    error: type[Exception] = StoreFailed
    #: Whether it takes what it says that it does not.
    takes = False

    def __init__(self) -> None:
        super().__init__()
        self.failed = asyncio.Event()

    async def append(self, stream: str, data: bytes) -> int:
        if self.broken:
            self.failed.set()
            if self.takes:
                await super().append(stream, data)
            raise self.error(FAILURE)
        return await super().append(stream, data)


@pytest.fixture
def stores() -> Stores:
    return Stores(BreakableKV(), BreakableLog(), Stores.memory().bus)


@pytest.fixture
async def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def gates() -> list[asyncio.Event]:
    return [asyncio.Event() for _ in range(3)]


@pytest.fixture
async def app(stores: Stores, gate: asyncio.Event, gates: list[asyncio.Event]) -> AsyncIterator[Any]:
    server = Server("s", stores=stores)

    @server.tool
    async def hold(ctx: Context) -> str:
        await ctx.info("under way")
        await gate.wait()
        return "done"

    @server.tool
    async def count(ctx: Context) -> str:
        await ctx.info(0)
        await gate.wait()
        for number in (1, 2, 3):
            await ctx.info(number)
        return "done"

    @server.tool
    async def steps(ctx: Context) -> str:
        await ctx.info(0)
        for number, passed in enumerate(gates, 1):
            await passed.wait()
            await ctx.info(number)
        return "done"

    @server.tool
    async def tell(ctx: Context) -> str:
        await ctx.info("under way")
        return "done"

    app = server.http_app()
    yield app
    await app.stop()


async def arrived(call: Answer, count: int) -> None:
    """Wait until so many messages are there."""
    await call.until(lambda: len(call.messages) == count)


async def test_a_session_that_cannot_be_looked_up_is_refused_for_now(
    app: Any, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    client = SessionClient(app)
    await client.initialize()
    stores.kv.broken = True  # type: ignore[attr-defined]
    for answer in (
        await client.post(client.request("tools/list")),
        await client.start_get().finished(),
        await client.delete(),
        await HttpClient(app).post(initialize_request("2025-06-18", None)),
    ):
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["message"] == "The server cannot serve this now; try again later"
        assert b"inside.example" not in answer.body
    assert FAILURE in caplog.text
    stores.kv.broken = False  # type: ignore[attr-defined]
    assert (await client.post(client.request("tools/list"))).status == 200


async def test_readiness_tells_of_the_store(app: Any, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "COUNTS_SECONDS", 0.0)

    async def probe(path: str) -> tuple[int | None, bytes]:
        answer = await HttpClient(app, path=path).start("GET").finished()
        return answer.status, answer.body

    assert await probe("/readyz") == (200, b"ok")
    stores.kv.broken = True  # type: ignore[attr-defined]
    assert await probe("/readyz") == (503, b"the store cannot be used")
    assert await probe("/livez") == (200, b"ok")


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_events_that_cannot_be_kept_are_told_all_the_same(app: Any, stores: Stores, revision: str) -> None:
    client = SessionClient(app)
    await client.initialize(revision)
    stores.log.broken = True  # type: ignore[attr-defined]
    call = await client.start_call("tell").finished()
    assert [each.get("method") for each in call.messages] == ["notifications/message", None]
    assert call.answer()["result"]["content"][0]["text"] == "done"
    assert call.last_event_id == "", "with which nobody could come back"


@pytest.mark.parametrize("error", [StoreFailed, StoreFull])
@pytest.mark.parametrize("taken", [False, True], ids=["refused", "taken, but the answer is lost"])
async def test_messages_for_a_client_that_is_away_are_kept_later_and_in_order(
    app: Any, stores: Stores, gate: asyncio.Event, error: type[Exception], taken: bool
) -> None:
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("count")
    await call.message("notifications/message")
    await call.disconnect()
    log: Any = stores.log
    log.broken, log.error, log.takes = True, error, taken
    gate.set()
    await log.failed.wait()
    log.broken = False
    resumed = await client.get({"last-event-id": call.last_event_id})
    await elapse(10.0)
    await resumed.finished()
    assert [each["params"]["data"] for each in resumed.messages[:-1]] == [1, 2, 3]
    assert resumed.answer()["result"]["content"][0]["text"] == "done"


@pytest.mark.pairwise
@pytest.mark.parametrize("error", [StoreFailed, StoreFull])
@pytest.mark.parametrize("taken", [False, True], ids=["refused", "taken, but the answer is lost"])
@pytest.mark.parametrize("has", [0, 1, 2], ids=["the client got none", "the client got one", "the client got both"])
@pytest.mark.parametrize("is_back", [False, True], ids=["the store is back later", "the store is back at once"])
async def test_messages_that_were_sent_before_they_were_kept_come_once(
    app: Any, stores: Stores, gates: list[asyncio.Event], error: type[Exception], taken: bool, has: int, is_back: bool
) -> None:
    """The connection breaks after the log failed, and nobody but the client knows what the client got."""
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("steps")
    await call.message("notifications/message")
    log: Any = stores.log
    log.broken, log.error, log.takes = True, error, taken
    for number, gate in enumerate(gates[:2], 2):
        gate.set()
        await arrived(call, number)
    ids = [event.id for event in call.events if event.data]
    assert len(set(ids)) == 3
    log.broken = not is_back
    await call.disconnect()
    log.broken = False
    resumed = await client.get({"last-event-id": ids[has]})
    gates[2].set()
    await elapse(10.0)
    await resumed.finished()
    assert [each["params"]["data"] for each in resumed.messages[:-1]] == [1, 2, 3][has:]
    assert resumed.answer()["result"]["content"][0]["text"] == "done"
    again = await client.start_get({"last-event-id": ids[0]}).finished()
    assert [each["params"]["data"] for each in again.messages[:-1]] == [1, 2, 3]


async def test_messages_are_kept_in_order_when_the_log_takes_them_again(
    app: Any, stores: Stores, gates: list[asyncio.Event]
) -> None:
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("steps")
    await call.message("notifications/message")
    log: Any = stores.log
    log.broken = True
    gates[0].set()
    await arrived(call, 2)
    log.broken = False
    for gate in gates[1:]:
        gate.set()
    await call.finished()
    ids = [event.id for event in call.events if event.data]
    assert ["+" in identifier for identifier in ids] == [False, True, False, False, False]
    for number, identifier in enumerate(ids[:-1]):
        again = await client.start_get({"last-event-id": identifier}).finished()
        assert again.messages == call.messages[number + 1 :]


async def test_messages_that_wait_for_the_log_have_a_bound(
    app: Any, stores: Stores, gates: list[asyncio.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stays gets everything. One that comes back gets an error instead of a part."""
    monkeypatch.setattr(post_stream, "MAX_UNLOGGED", 150)
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("steps")
    await call.message("notifications/message")
    log: Any = stores.log
    log.broken = True
    for number, gate in enumerate(gates[:2], 2):
        gate.set()
        await arrived(call, number)
    log.broken = False
    first, *others = [event.id for event in call.events if event.data]
    assert others == [first.replace(".", "+1.")] * 2  # The last one has none of its own.
    gates[2].set()
    await call.finished()
    assert [each["params"]["data"] for each in call.messages[:-1]] == [0, 1, 2, 3]
    resumed = await client.start_get({"last-event-id": first}).finished()
    [answer] = resumed.messages
    assert "is lost" in answer["error"]["message"]


async def test_nothing_is_kept_after_a_message_that_could_not_be(
    app: Any, stores: Stores, gates: list[asyncio.Event], caplog: pytest.LogCaptureFixture
) -> None:
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("steps")
    await call.message("notifications/message")
    await call.disconnect()
    log: Any = stores.log
    log.broken = True
    gates[0].set()
    await log.failed.wait()
    app.sessions.streams.events.hurry()  # As at the end of the process.
    while "the rest of a stream is lost" not in caplog.text:
        await asyncio.sleep(0)
    log.broken = False
    resumed = await client.get({"last-event-id": call.last_event_id})
    for gate in gates[1:]:
        gate.set()
    while app.sessions.streams._posts:
        await asyncio.sleep(0)
    (stream,) = app.sessions.streams._resumed()
    stream._heartbeat()
    await resumed.finished()
    [answer] = resumed.messages
    assert "is lost" in answer["error"]["message"]


@pytest.mark.parametrize("notices", [True, False], ids=["a connection that is gone", "one that seems to be there"])
async def test_an_answer_that_cannot_be_kept_is_kept_later(
    app: Any, stores: Stores, gate: asyncio.Event, notices: bool
) -> None:
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("hold")
    await call.message("notifications/message")
    if notices:
        await call.disconnect()
    log: Any = stores.log
    log.broken = True
    gate.set()
    await log.failed.wait()
    last_event_id = call.last_event_id
    if not notices:
        # The answer was sent, and whether the client got it nobody knows; no id comes with it.
        await call.finished()
    resumed = await client.get({"last-event-id": last_event_id})
    log.broken = False
    await resumed.finished()
    assert [each["result"]["content"][0]["text"] for each in resumed.messages] == ["done"]


async def test_an_answer_that_cannot_be_kept_does_not_hold_up_the_end(
    app: Any, stores: Stores, gate: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    client = SessionClient(app)
    await client.initialize()
    call = client.start_call("hold")
    await call.message("notifications/message")
    await call.disconnect()
    log: Any = stores.log
    log.broken = True
    gate.set()
    await log.failed.wait()
    await app.stop()
    assert "the answer of a call is lost to a client that comes back" in caplog.text


async def test_a_record_that_cannot_be_read_is_the_end_of_its_session(app: Any, stores: Stores) -> None:
    client = SessionClient(app)
    await client.initialize()
    (key,) = await stores.kv.keys("toolwire:session:")
    for garbage in (b"", b"\xff", b"[]", b'{"seen":"long ago"}', b"[" * 10_000):
        await stores.kv.put(key, garbage)
        assert (await client.post(client.request("tools/list"))).status == 404
        assert (await client.post(client.request("logging/setLevel", {"level": "debug"}))).status == 404
    await SessionClient(app).initialize()


async def test_a_name_of_the_store_that_is_none_is_replaced(app: Any, stores: Stores) -> None:
    await stores.kv.put("toolwire:http:home", b"much longer than a name")
    client = SessionClient(app)
    await client.initialize()
    assert (await client.delete()).status == 200
    assert (await client.post(client.request("tools/list"))).status == 404


async def test_clients_look_again_when_the_store_is_back(
    app: Any, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    client = SessionClient(app)
    await client.initialize()
    stream = await client.get()
    stores.kv.broken = True  # type: ignore[attr-defined]
    app.sessions.streams._on_lost()
    while "catching up with the other processes failed" not in caplog.text:
        await asyncio.sleep(0)
    stores.kv.broken = False  # type: ignore[attr-defined]
    await elapse(10.0)
    await stream.message("notifications/tools/list_changed")
    await stream.disconnect()
