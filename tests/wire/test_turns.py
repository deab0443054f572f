"""Turns: who waits gets one in order, and who gives up leaves it to the next."""

from __future__ import annotations

import asyncio

import pytest

from toolwire.wire.shares import Shares, Turns


def make_turns(limit: int, share: float = 1.0) -> tuple[Turns, list[int]]:
    """Make turns. The list gets how many are free whenever `on_free` is called."""
    told: list[int] = []
    turns = Turns(Shares(limit, share, "calls"), lambda: told.append(turns.free))
    return turns, told


async def test_those_who_wait_go_first_and_in_their_order() -> None:
    turns, told = make_turns(1)
    assert turns.take("a")
    order: list[str] = []

    async def waits(name: str) -> None:
        await turns.wait(name)
        order.append(name)

    waiting = [asyncio.create_task(waits(name)) for name in ("b", "c")]
    await asyncio.sleep(0)
    assert not turns.take("d")
    turns.give_back("a")
    assert not turns.take("d"), "it is promised already"
    await waiting[0]
    turns.give_back("b")
    await waiting[1]
    assert (order, told) == (["b", "c"], [])
    turns.give_back("c")
    assert (turns.running, told) == (0, [1])


@pytest.mark.parametrize("has_turn", [False, True])
async def test_one_who_gives_up_leaves_the_turn_to_others(has_turn: bool) -> None:
    turns, told = make_turns(1)
    assert turns.take("a")
    waiting = asyncio.create_task(turns.wait("b"))
    await asyncio.sleep(0)
    if has_turn:
        turns.give_back("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not has_turn:
        turns.give_back("a")
    assert (turns.running, turns.free, told) == (0, 1, [1])


async def test_one_who_waits_for_its_share_stands_in_nobodys_way() -> None:
    turns, _ = make_turns(4, 0.5)
    assert turns.take("a", 2)
    waiting = asyncio.create_task(turns.wait("a"))
    await asyncio.sleep(0)
    assert (turns.free, turns.shares.full()) == (2, {"a"})
    assert turns.take("b")
    turns.give_back("a")
    await waiting
    assert turns.running == 3


async def test_a_turn_that_was_kept_free_goes_to_a_caller_within_its_share() -> None:
    turns, _ = make_turns(4, 0.5)
    assert turns.take(None, 3)
    assert turns.exchange("a")
    assert turns.exchange("a")
    assert not turns.exchange("a")
    assert (turns.running, turns.free) == (2, 2)


async def test_callers_take_turns_in_the_queue() -> None:
    turns, _ = make_turns(1)
    assert turns.take("a")
    order: list[str] = []

    async def wait(name: str) -> None:
        await turns.wait(name[0])
        order.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in ("a1", "a2", "b1", "c1")]
    await asyncio.sleep(0)
    assert (turns.waiting, turns.queue_length("a"), turns.has_queue("d")) == (4, 2, False)
    for holder in "aabc":
        turns.give_back(holder)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert (order, turns.waiting) == (["a1", "b1", "c1", "a2"], 0)


async def test_wait_ends_after_its_time() -> None:
    turns, _ = make_turns(1)
    assert turns.take()
    with pytest.raises(TimeoutError):
        await turns.wait(None, 0.001)
    assert turns.waiting == 0
    turns.give_back()
    assert (turns.running, turns.free) == (0, 1)


def test_turn_of_a_loop_that_ended_goes_to_the_next() -> None:
    turns, _ = make_turns(1)
    assert turns.take()
    loops = [asyncio.new_event_loop() for _ in range(2)]
    waiting = [loop.create_task(turns.wait()) for loop in loops]
    for loop in loops:
        loop.run_until_complete(asyncio.sleep(0))
    loops[0].close()
    turns.give_back()
    loops[1].run_until_complete(waiting[1])
    assert (turns.running, turns.waiting) == (1, 0)
    loops[1].close()
    waiting[0].get_coro().close()  # type: ignore[union-attr]


def test_queued_work_begins_in_the_thread_that_gives_its_turn_back() -> None:
    turns, _ = make_turns(2, 0.5)
    began: list[str] = []

    def begin(name: str, is_wanted: bool = True) -> bool:
        began.append(name)
        return is_wanted

    assert turns.take_or_queue("a", lambda: begin("a1")) is None
    waiters = [turns.take_or_queue("a", lambda name=name: begin(name, name != "a2")) for name in ("a2", "a3", "a4")]
    assert all(waiters) and not began
    turns.give_back("a")
    assert began == ["a2", "a3"], "nothing needs the turn of the first any more"
    assert turns.drop_queue() == [waiters[2]] and turns.waiting == 0
    turns.give_back("a")
    assert turns.running == 0
