"""The slots of a process: who waits gets one in turn, and who gives up leaves it to others."""

from __future__ import annotations

import asyncio

import pytest

from toolwire import Limits
from toolwire.server.tasks.slots import Slots


def slots_of(running: int, share: float = 1.0) -> tuple[Slots, list[int]]:
    """Slots, and how many were free whenever that was told."""
    told: list[int] = []
    slots = Slots(Limits(tasks_running=running, share=share), lambda: told.append(slots.free))
    return slots, told


async def test_those_who_wait_go_first_and_in_their_order() -> None:
    slots, told = slots_of(1)
    assert slots.take("a")
    order: list[str] = []

    async def waits(name: str) -> None:
        await slots.wait(name)
        order.append(name)

    waiting = [asyncio.create_task(waits(name)) for name in ("b", "c")]
    await asyncio.sleep(0)
    assert not slots.take("d")
    slots.give_back("a")
    assert not slots.take("d"), "it is promised already"
    await waiting[0]
    slots.give_back("b")
    await waiting[1]
    assert (order, told) == (["b", "c"], [])
    slots.give_back("c")
    assert (slots.running, told) == (0, [1])


@pytest.mark.parametrize("has_turn", [False, True])
async def test_one_who_gives_up_leaves_the_slot_to_others(has_turn: bool) -> None:
    slots, told = slots_of(1)
    assert slots.take("a")
    waiting = asyncio.create_task(slots.wait("b"))
    await asyncio.sleep(0)
    if has_turn:
        slots.give_back("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not has_turn:
        slots.give_back("a")
    assert (slots.running, slots.free, told) == (0, 1, [1])


async def test_one_who_waits_for_its_share_stands_in_nobodys_way() -> None:
    slots, _ = slots_of(4, 0.5)
    assert slots.take("a", 2)
    waiting = asyncio.create_task(slots.wait("a"))
    await asyncio.sleep(0)
    assert (slots.free, slots.at_their_share()) == (2, {"a"})
    assert slots.take("b")
    slots.give_back("a")
    await waiting
    assert slots.running == 3


async def test_a_slot_that_was_kept_free_goes_to_a_caller_within_its_share() -> None:
    slots, _ = slots_of(4, 0.5)
    assert slots.take(None, 3)
    assert slots.exchange("a")
    assert slots.exchange("a")
    assert not slots.exchange("a")
    assert (slots.running, slots.free) == (2, 2)
