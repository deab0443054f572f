"""The channel contract and the in-process pair."""

from __future__ import annotations

import asyncio

import pytest

from toolwire.protocol.errors import Unreachable
from toolwire.wire import channel as channels
from toolwire.wire.channel import Channel, memory_pair


class Log:
    """Takes what a channel pushes."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.ends: list[BaseException | None] = []

    def attach_to(self, channel: Channel) -> None:
        assert channel.attach(self.messages.append, self.ends.append)


class Smallest(Channel):
    """What somebody who brings a transport has to write."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def read(self) -> bytes | None:
        return None

    def write(self, message: bytes) -> None:
        self.sent.append(message)

    async def close(self) -> None:
        pass


@pytest.mark.covers("J88")
async def test_everything_but_read_write_and_close_has_a_default() -> None:
    channel = Smallest()
    await channel.connect()
    assert channel.is_connected
    assert not channel.congested
    assert channel.principal is None
    channel.negotiated("2025-11-25")
    channel.pause()
    channel.resume()
    assert channel.attach(channel.write, lambda error: None) is False
    route = channel.route()
    route(b"later")
    await channel.drain()
    await channel.flush()
    assert channel.sent == [b"later"]


@pytest.mark.covers("J88", "TRN-1")
async def test_messages_go_both_ways_and_reading_takes_turns_only_when_it_must() -> None:
    left, right = memory_pair()
    left.write(b"1")
    left.write(b"2")
    assert [await right.read(), await right.read()] == [b"1", b"2"]
    waiting = asyncio.ensure_future(left.read())
    await asyncio.sleep(0)
    right.write(b"3")
    assert await waiting == b"3"


async def test_an_attached_side_is_called_synchronously() -> None:
    left, right = memory_pair()
    log = Log()
    log.attach_to(right)
    left.write(b"now")
    assert log.messages == [b"now"]


async def test_what_was_written_before_attaching_comes_first_and_in_order() -> None:
    left, right = memory_pair()
    left.write(b"1")
    left.write(b"2")
    seen: list[bytes] = []

    def feed(message: bytes) -> None:
        seen.append(message)
        if message == b"1":
            left.write(b"3")

    right.attach(feed, lambda error: None)
    left.write(b"4")
    assert seen == [b"1", b"2", b"3", b"4"]


async def test_closing_one_side_ends_the_other_exactly_once() -> None:
    left, right = memory_pair()
    log, own = Log(), Log()
    log.attach_to(right)
    own.attach_to(left)
    await left.close()
    await left.close()
    await right.close()
    assert log.ends == [None]
    assert own.ends == []
    assert await left.read() is None
    assert not right.is_connected


async def test_messages_written_before_the_close_are_still_read() -> None:
    left, right = memory_pair()
    left.write(b"last")
    await left.close()
    assert await right.read() == b"last"
    assert await right.read() is None
    assert await right.read() is None


async def test_attaching_after_the_end_gives_the_rest_and_the_end() -> None:
    left, right = memory_pair()
    left.write(b"last")
    await left.close()
    log = Log()
    log.attach_to(right)
    assert (log.messages, log.ends) == ([b"last"], [None])


async def test_a_pending_read_ends_with_the_channel() -> None:
    left, right = memory_pair()
    theirs, ours = asyncio.ensure_future(right.read()), asyncio.ensure_future(left.read())
    await asyncio.sleep(0)
    await left.close()
    assert await asyncio.gather(theirs, ours) == [None, None]


async def test_writing_after_either_side_closed_is_unreachable() -> None:
    left, right = memory_pair()
    await left.close()
    for side in (left, right):
        with pytest.raises(Unreachable):
            side.write(b"x")


async def test_a_cancelled_read_loses_nothing() -> None:
    left, right = memory_pair()
    waiting = asyncio.ensure_future(right.read())
    await asyncio.sleep(0)
    left.write(b"kept")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await right.read() == b"kept"


async def test_two_readers_are_refused() -> None:
    _, right = memory_pair()
    waiting = asyncio.ensure_future(right.read())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already reading"):
        await right.read()
    waiting.cancel()


async def test_a_paused_side_keeps_messages_and_the_end_until_resumed() -> None:
    left, right = memory_pair()
    log = Log()
    log.attach_to(right)
    right.pause()
    left.write(b"1")
    await left.close()
    assert (log.messages, log.ends) == ([], [])
    right.resume()
    assert (log.messages, log.ends) == ([b"1"], [None])


async def test_a_slow_side_is_felt_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "UNREAD_CONGESTED", 2)
    monkeypatch.setattr(channels, "UNREAD_MESSAGES", 5)
    left, right = memory_pair()
    for _ in range(5):
        left.write(b"x")
    assert left.congested
    with pytest.raises(Unreachable, match="5 messages unread"):
        left.write(b"x")
    draining = asyncio.ensure_future(left.drain())
    await right.read()
    await asyncio.sleep(0)
    assert not draining.done()
    await right.read()
    await right.read()
    await draining
    assert not left.congested


async def test_draining_ends_when_the_other_side_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "UNREAD_CONGESTED", 0)
    left, right = memory_pair()
    left.write(b"x")
    draining = asyncio.ensure_future(left.drain())
    await asyncio.sleep(0)
    await right.close()
    await draining
