"""The turns of requests of one client over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from toolwire.http.client.session import Turns


async def waiting(turns: Turns) -> asyncio.Task[None]:
    """Return a task that waits for its turn."""
    assert not turns.take()
    task = asyncio.ensure_future(turns.wait())
    await asyncio.sleep(0)
    return task


async def test_turns_come_in_their_order() -> None:
    turns = Turns(2)
    assert turns.take() and turns.take()
    first, second = await waiting(turns), await waiting(turns)
    turns.give_back()
    await first
    assert not second.done()
    turns.give_back()
    await second
    turns.give_back()
    assert turns.take()
    assert not turns.take()


@pytest.mark.parametrize("has_come", [False, True])
async def test_a_turn_that_nobody_takes_goes_to_the_next(has_come: bool) -> None:
    turns = Turns(1)
    assert turns.take()
    first, second = await waiting(turns), await waiting(turns)
    if has_come:
        turns.give_back()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not has_come:
        turns.give_back()
    await second
    turns.give_back()
    assert turns.take()
