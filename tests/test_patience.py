"""The bound of waits in tests."""

from __future__ import annotations

import asyncio

import pytest
from tests.patience import patience

from toolwire.testing import elapse


async def test_a_wait_without_an_end_fails_and_says_what_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 seconds for a sign"):
        async with patience("a sign", 0.01):
            await asyncio.Event().wait()
    current = asyncio.current_task()
    assert current is not None and not current.cancelling()


async def test_a_test_that_advances_the_loop_does_not_shorten_the_wait() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(1000, done.set)

    async def wait() -> str:
        async with patience("a sign", 20):
            await done.wait()
            return "done"

    waiting = asyncio.create_task(wait())
    await elapse(500)
    await elapse(500)
    assert await waiting == "done"


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def wait() -> None:
        async with patience("a sign"):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
