"""One time limit for all pages of a list, and for all rounds of a call."""

from __future__ import annotations

import asyncio

import pytest

from toolwire import Client, Server
from toolwire.backoff import FIRST_SECONDS, Backoff
from toolwire.client import listing
from toolwire.client.repeated_rounds import RoundsClock
from toolwire.errors import Timeout


class Clock:
    now = 0.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return clock


def test_rounds_share_the_time_limit_without_the_time_of_questions(clock: Clock) -> None:
    rounds = RoundsClock("tools/call", 10.0, ceiling=None, began=0.0)
    clock.now = 6.0
    rounds.stop()
    clock.now = 1000.0  # A person has answered.
    assert rounds.start() == 4.0
    clock.now = 1004.0
    rounds.stop()
    with pytest.raises(Timeout, match="in all rounds together"):
        rounds.start()


def test_progress_extends_the_limit_of_all_rounds_up_to_the_ceiling(clock: Clock) -> None:
    rounds = RoundsClock("tools/call", 10.0, ceiling=25.0, began=0.0)
    clock.now = 20.0
    rounds.stop()
    assert rounds.start() == 5.0
    assert RoundsClock("tools/call", None, ceiling=25.0, began=0.0).start() is None


async def test_pages_share_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("endless")
    async with Client(server, timeout=60) as client:
        given: list[float | None] = []
        ticks = Clock()

        async def ask(method: str, params: object, read: object, *, timeout: float | None) -> listing.t.ListToolsResult:
            given.append(timeout)
            ticks.now += 25.0
            return listing.t.ListToolsResult(tools=[], next_cursor=str(len(given)))

        monkeypatch.setattr(client, "_ask", ask)
        with monkeypatch.context() as patch:
            patch.setattr(listing.asyncio, "get_running_loop", lambda: ticks)
            with pytest.raises(Timeout, match="in all pages together"):
                await client._all_tools(None)
        assert given == [60, 35.0, 10.0]


@pytest.mark.parametrize("retry", [0, 1])
def test_server_cannot_shorten_the_first_pause(retry: int) -> None:
    assert Backoff().after(retry) == FIRST_SECONDS
    assert Backoff().after(5000) == 5.0
