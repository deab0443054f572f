"""`/readyz`: whether the stores of a server can be used.

Any number of probes share one look at the store. A store that is slow for one replica is slow for all of them, and 503
would take all of them out at once. So the store's own time limits decide, and not that of a probe:

    the look                          a probe gets
    ends within `PROBE_SECONDS`       its result
    takes longer                      the result of the look before; 503 where there is none
    fails, or exceeds `LOOK_SECONDS`  503
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Final

from toolwire.protocol.errors import ToolwireError
from toolwire.stores import Stores
from toolwire.util.single_flight import SingleFlight

log: logging.Logger = logging.getLogger("toolwire.http")

#: How long a probe waits for a look that is under way: balancers give up after a few seconds.
PROBE_SECONDS: Final = 2.0
#: How long one look may take. A store answers within its own limits, or says that it cannot be used.
LOOK_SECONDS: Final = 30.0
#: For how long the result of a look counts. Probes need no token, so they must not load a store.
COUNTS_SECONDS: Final = 1.0


class Readiness:
    """The result of the last look at the stores."""

    def __init__(self, stores: Callable[[], Stores]) -> None:
        self._stores = stores
        self._looks = SingleFlight[bool]()
        self._counts_until = -inf
        self._was_ready = False
        self._is_said = False

    async def is_ready(self) -> bool:
        if asyncio.get_running_loop().time() < self._counts_until:
            return self._was_ready
        look = self._looks.start(self._check)
        # A probe that gives up does not end the look that other probes wait for.
        await asyncio.wait({look}, timeout=PROBE_SECONDS)
        return look.result() if look.done() else self._was_ready

    async def _check(self) -> bool:
        trouble: object = None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._stores().check()
        except TimeoutError:
            trouble = "the store took too long to answer"
        except ToolwireError as error:
            trouble = error
        if trouble is not None and not self._is_said:
            log.warning("this process is not ready: %s", trouble)
        self._is_said = trouble is not None
        self._was_ready = trouble is None
        self._counts_until = asyncio.get_running_loop().time() + COUNTS_SECONDS
        return trouble is None
