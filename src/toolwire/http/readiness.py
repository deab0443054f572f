"""`/readyz`: whether the stores of a server can be used, at the cost of one look for any number of probes."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import Final

from toolwire.protocol.errors import ToolwireError
from toolwire.stores import Stores

log: logging.Logger = logging.getLogger("toolwire.http")

#: How long one look may take, and for how long its result counts. Probes need no token, so they must not load a store.
LOOK_SECONDS: Final = 2.0
COUNTS_SECONDS: Final = 1.0


class Readiness:
    """The result of the last look at the stores."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._look: asyncio.Task[bool] | None = None
        self._counts_until = -inf
        self._is_said = False

    async def is_ready(self) -> bool:
        loop = asyncio.get_running_loop()
        look = self._look
        if look is None or look.get_loop() is not loop or (look.done() and loop.time() >= self._counts_until):
            look = self._look = loop.create_task(self._check())
        # A probe that gives up does not end the look of the others.
        return await asyncio.shield(look)

    async def _check(self) -> bool:
        trouble: object = None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._stores.check()
        except TimeoutError:
            trouble = "the store took too long to answer"
        except ToolwireError as error:
            trouble = error
        if trouble is not None and not self._is_said:
            log.warning("this process is not ready: %s", trouble)
        self._is_said = trouble is not None
        self._counts_until = asyncio.get_running_loop().time() + COUNTS_SECONDS
        return trouble is None
