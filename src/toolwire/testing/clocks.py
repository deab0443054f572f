"""`clock` and `elapse`: time that passes when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from toolwire.server.policy.enforcement import Counting
from toolwire.server.policy.rates import Counters
from toolwire.server.policy.shared_rates import SharedCounters
from toolwire.stores import Stores


async def elapse(seconds: float) -> None:
    """Advance the time of the running loop, and run everything that is due then.

    The time never goes back, because timers that began in the meantime would end too late.
    """
    loop: Any = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        raise RuntimeError(f"the time of a {type(loop).__module__} loop cannot be set: use asyncio's own in this test")
    # Tasks that were created just now must see this time pass too.
    await asyncio.sleep(0)
    now = loop.time
    later = asyncio.Event()
    loop.call_later(seconds, later.set)
    vars(loop)["time"] = lambda: now() + seconds
    await later.wait()


class Clock:
    """The time of a test.

    For rates and quotas it stands still until the test advances it.
    """

    def __init__(self) -> None:
        # A day, a week, a month and therefore every window begins at this moment.
        self._now = 420 * 86400.0

    def __call__(self) -> float:
        return self._now

    async def advance(self, seconds: float) -> None:
        """Advance the time of rates and quotas, and of timeouts and pauses on the loop."""
        self._now += seconds
        await elapse(seconds)


@contextmanager
def clock(server: Any) -> Iterator[Clock]:
    """Make the rates and quotas of a server use this clock within the block.

    It starts from zero.
    """
    made = Clock()
    if server.enforcer is None:
        yield made
        return

    def counters() -> Counters:
        # Imported here because it needs the library of the extra `policy`.
        from toolwire.server.policy.rate_counters import CounterMemory

        return Counters(CounterMemory(clock=made))

    stores = Stores.memory()
    before = server.enforcer.count_with(Counting(cache(counters), SharedCounters(lambda: stores, clock=made)))
    try:
        yield made
    finally:
        server.enforcer.count_with(before)
