"""Nothing is lost between the moment a stream gets the session's word and the moment it carries anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.http.httpclient import SessionClient, caught_up, serving

from toolwire import Context, Resource, Server
from toolwire.http.legacy.event_log import MAX_ENTRY
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores
from toolwire.util.out_queue import CONGESTED

NOTE, OTHER = "note://today", "note://yesterday"


class SlowKV(MemoryKV):
    """Keeps readers waiting while it is slow, but for the first two: a request, and the claim of its stream."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False
        self.readers = 0
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()

    async def get(self, key: str) -> bytes | None:
        if self.slow:
            self.readers += 1
            if self.readers > 2:
                self.waiting.set()
                await self.go_on.wait()
        return await super().get(key)


@pytest.fixture
def kv() -> SlowKV:
    return SlowKV()


@pytest.fixture
def server(kv: SlowKV) -> Server:
    server = Server("almanac", stores=Stores(kv, MemoryLog(), MemoryBus()))
    for uri in (NOTE, OTHER):
        server.add(Resource(uri, content="sunny", name=uri))
    return server


async def opened_while(client: SessionClient, kv: SlowKV, happen: Any, last_event_id: str | None = None) -> Any:
    """A stream that was being opened, and had the word already, while something happened."""
    kv.slow = True
    stream = client.start_get({"last-event-id": last_event_id})
    await kv.waiting.wait()
    happen()
    await caught_up(client.app)
    kv.go_on.set()
    return stream


async def test_what_happens_while_a_stream_is_opened_is_said_on_it(server: Server, kv: SlowKV) -> None:
    async with serving(server.http_app()) as [client]:
        await client.initialize("2025-06-18")
        await client.result("resources/subscribe", {"uri": NOTE})

        def happen() -> None:
            server.notify_updated(OTHER)
            server.notify_updated(NOTE)
            server.notify_changed("resources")
            server.log("debug", "too quiet")
            server.log("warning", "loud")

        stream = await opened_while(client, kv, happen)
        await stream.message("notifications/message")
        methods = ["notifications/resources/updated", "notifications/resources/list_changed", "notifications/message"]
        assert [message["method"] for message in stream.messages] == methods
        assert stream.messages[0]["params"]["uri"] == NOTE
        assert stream.messages[2]["params"]["data"] == "loud"


@pytest.mark.parametrize("sends", [0, 1])
async def test_a_stream_that_breaks_while_it_begins_leaves_nothing_behind(server: Server, sends: int) -> None:
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize("2025-06-18")

        async def breaking(scope: Any, receive: Any, send: Any) -> None:
            sent = 0

            async def broken(message: Any) -> None:
                nonlocal sent
                sent += 1
                if sent > sends:
                    raise OSError("the client went away")

            await app(scope, receive, broken)

        with pytest.raises(OSError, match="went away"):
            await client.at(breaking).start_get().task
        stalled = client.start_get()
        stalled.stop_reading()
        await stalled.until(lambda: stalled.stalled)
        stalled.task.cancel()
        await asyncio.wait({stalled.task})
        assert app.sessions is not None
        assert len(app.sessions.streams) == 0


async def test_what_happens_while_a_stream_is_resumed_is_said_once(server: Server, kv: SlowKV) -> None:
    async with serving(server.http_app()) as [client]:
        await client.initialize("2025-11-25")
        await client.result("resources/subscribe", {"uri": NOTE})
        first = await client.get()
        await first.until(lambda: first.last_event_id)
        await first.disconnect()
        stream = await opened_while(client, kv, lambda: server.notify_updated(NOTE), first.last_event_id)
        await stream.message("notifications/resources/updated")
        server.notify_changed("resources")
        await stream.message("notifications/resources/list_changed")
        assert len(stream.messages) == 2


@pytest.mark.covers("FLT-21")
async def test_a_client_that_missed_events_is_told_to_look_again(kv: SlowKV, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("almanac", stores=Stores(kv, MemoryLog(max_events=8), MemoryBus()))
    server.add(Resource(NOTE, content="sunny", name=NOTE))
    async with serving(server.http_app()) as [client]:
        await client.initialize("2025-06-18")
        await client.result("resources/subscribe", {"uri": NOTE})
        stream = await client.get()
        server.log("warning", "first")
        await stream.message("notifications/message")
        stream.stop_reading()
        server.log("warning", "second")
        await stream.until(lambda: stream.stalled)
        for number in range(50):
            server.log("warning", number)
        await caught_up(client.app)
        stream.read_on()
        await stream.message("notifications/resources/updated")
        await stream.message("notifications/resources/list_changed")
        assert "a client is too far behind on its stream: events were dropped" in caplog.messages
        assert [message["params"] for message in stream.messages if message["method"].endswith("updated")] == [
            {"uri": NOTE}
        ]


@pytest.mark.parametrize(("count", "is_told"), [(3, False), (20, True)])
async def test_a_client_that_had_no_event_yet_is_told_what_it_missed(kv: SlowKV, count: int, is_told: bool) -> None:
    server = Server("almanac", stores=Stores(kv, MemoryLog(max_events=8), MemoryBus()))
    server.add(Resource(NOTE, content="sunny", name=NOTE))
    async with serving(server.http_app()) as [client]:
        await client.initialize("2025-11-25")
        first = await client.get()
        await first.until(lambda: first.last_event_id)
        await first.disconnect()
        for number in range(count):
            server.log("warning", number)
        await caught_up(client.app)
        second = await client.get({"last-event-id": first.last_event_id})
        await second.until(lambda: f'"data":{count - 1}}}' in second.body.decode())
        if is_told:
            await second.message("notifications/resources/list_changed")
        server.log("warning", "last")
        await second.until(lambda: "last" in str(second.messages))
        assert any(each["method"].endswith("list_changed") for each in second.messages) == is_told


async def test_a_client_that_misses_more_is_told_again_later(server: Server) -> None:
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize("2025-06-18")
        stream = await client.get()
        assert app.sessions is not None
        (opened,) = app.sessions.streams._session_streams()
        opened.lost()
        await stream.until(lambda: len(stream.messages) == 1)
        opened.lost()
        opened.lost()
        await caught_up(app)
        assert len(stream.messages) == 1
        assert opened.has_gap
        assert opened._lost_timer is not None
        opened._lost_timer.cancel()
        opened._lost_again()  # As when its time has come.
        await stream.until(lambda: len(stream.messages) == 2)
        assert not opened.has_gap


async def test_a_client_that_misses_events_of_a_stream_that_is_not_the_owner_is_told(server: Server) -> None:
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize("2025-06-18")
        first, second = await client.get(), await client.get()
        assert app.sessions is not None
        waiting, owner = app.sessions.streams._session_streams()
        assert (waiting.owns, owner.owns) == (False, True)
        waiting.lost()
        await first.message("notifications/resources/list_changed")
        assert second.messages == []
        assert not waiting.owns


@pytest.mark.covers("FLT-21", "FLT-22")
async def test_what_waits_for_the_log_is_bounded_in_bytes(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    app = server.http_app()
    async with serving(app) as [client]:
        await client.initialize("2025-06-18")
        stream = await client.get()
        assert app.sessions is not None
        (opened,) = app.sessions.streams._session_streams()
        for number in range(15):
            opened.notify(b'{"number":%d,"x":"%b"}' % (number, b"x" * 100_000))
            assert opened._pending is not None
            assert sum(map(len, opened._pending.messages)) == opened._pending.size <= CONGESTED
        await stream.message("notifications/resources/list_changed")
        assert "the log of events is too slow: notifications are dropped, and the client looks again" in caplog.messages


async def test_what_arrives_while_a_stream_is_opened_is_bounded_in_bytes(
    server: Server, kv: SlowKV, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(server.http_app()) as [client]:
        await client.initialize("2025-06-18")

        def happen() -> None:
            for number in range(15):
                server.log("warning", f"{number}{'x' * 100_000}")

        stream = await opened_while(client, kv, happen)
        await stream.message("notifications/resources/list_changed")
        logged = [each for each in stream.messages if each["method"] == "notifications/message"]
        assert 0 < len(logged) * 100_000 <= CONGESTED
        said = "too many notifications before a stream has begun: the rest is dropped, and the client is told"
        assert caplog.messages.count(said) == 1


@pytest.mark.covers("FLT-21")
async def test_a_notification_that_the_log_cannot_keep_is_not_dropped_silently(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(server.http_app()) as [client]:
        await client.initialize("2025-06-18")
        stream = await client.get()
        server.log("warning", "first")
        await stream.message("notifications/message")
        server.log("warning", "x" * MAX_ENTRY)
        server.log("warning", "last")
        await stream.until(lambda: len(stream.messages) == 2)
        assert [message["params"]["data"] for message in stream.messages] == ["first", "last"]
        assert any("bytes is dropped" in message for message in caplog.messages)


@pytest.mark.covers("E11", "E13")
async def test_a_client_is_addressed_by_its_session_from_outside_of_a_handler(kv: SlowKV) -> None:
    stores = Stores(kv, MemoryLog(), MemoryBus())
    here, there = (Server("almanac", stores=stores, secret="s" * 32) for _ in range(2))
    ids: list[str | None] = []

    async def remember(ctx: Context) -> str:
        ids.append(ctx.session_id)
        return "remembered"

    for server in (here, there):
        server.tool(remember)
    async with serving(here.http_app(), there.http_app()) as [first, second]:
        streams = []
        for client in (first, second):
            await client.initialize("2025-11-25")
            await client.result("tools/call", {"name": "remember", "arguments": {}})
            streams.append(client.start_get())
        for stream in streams:
            await stream.until(lambda stream=stream: stream.events)
        # From whichever process, and at the level that the client wants.
        there.log("debug", "too quiet", session=ids[0])
        there.log("warning", "for the first", session=ids[0])
        here.log("warning", "for the second", session=ids[1])
        here.log("warning", "for nobody", session="x")
        there.log("error", "for all")
        for stream, own in zip(streams, ("for the first", "for the second"), strict=True):
            await stream.until(lambda stream=stream: len(stream.messages) >= 2)
            assert sorted(message["params"]["data"] for message in stream.messages) == ["for all", own]


class SlowLog(MemoryLog):
    """Once told to, keeps what was read back."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False
        self.has_read = asyncio.Event()
        self.go_on = asyncio.Event()

    async def read_after(self, *given: Any) -> Any:
        found = await super().read_after(*given)
        if self.slow and found:
            self.has_read.set()
            await self.go_on.wait()
        return found


async def test_nothing_is_sent_on_a_stream_that_ended_while_its_log_was_read(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowLog()
    server = Server("almanac", stores=Stores(MemoryKV(), slow, MemoryBus()))
    app = server.http_app()
    late: list[Any] = []

    async def strict(scope: Any, receive: Any, send: Any) -> None:
        is_over = False

        async def sent(message: Any) -> None:
            nonlocal is_over
            if is_over:
                late.append(message)
            is_over = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        await app(scope, receive, sent)

    async with serving(app) as [client]:
        await client.initialize("2025-11-25")
        streaming = client.at(strict)
        stream = await streaming.get()
        slow.slow = True
        server.log("warning", "loud")
        await slow.has_read.wait()
        assert (await client.delete()).status == 200
        await stream.finished()
        slow.go_on.set()
        await caught_up(app)
        assert late == [] and "broke" not in caplog.text
