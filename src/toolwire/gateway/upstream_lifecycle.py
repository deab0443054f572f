"""`UpstreamLifecycle`: how far an upstream is on its way from being prepared to being gone.

held back  it connects, and nothing of it is offered: it waits for the other servers of a change of the configuration
offered    its components are listed as soon as they are known, or their time is over
retired    nothing of it is offered; its calls, questions and tasks end
"""

from __future__ import annotations

import asyncio
from typing import Final

#: How many seconds an upstream may wait for its turn to connect, while replaced ones end.
BEGIN_SECONDS: Final = 60.0


class UpstreamLifecycle:
    """The users of one upstream, and whether it is offered to clients."""

    def __init__(self, patience: float) -> None:
        """`patience` is how many seconds lists wait for the upstream."""
        self._patience = patience
        self._users = 0
        self.deadline: float = 0.0
        """When lists stop to wait, by the clock of the loop."""
        self.is_settled: asyncio.Event = asyncio.Event()
        """Set when the lists are known, or when their time is over."""
        self.is_held_back: bool = False
        self.is_retired: bool = False
        self.leaving: asyncio.Task[None] | None = None
        """Waits for the end of what began here before the upstream was retired."""

    @property
    def is_offered(self) -> bool:
        """Return whether lists have the components as soon as they are known."""
        return self.is_settled.is_set() and not self.is_held_back

    def enter(self) -> bool:
        """Note one more user; return whether it is the first one, so that the upstream begins."""
        self._users += 1
        if self._users > 1:
            return False
        self.deadline = asyncio.get_running_loop().time() + self._patience
        self.is_settled.clear()
        return True

    def leave(self) -> bool:
        """Note one user less; return whether it was the last one, so that the upstream ends."""
        self._users -= 1
        return not self._users

    async def wait_until_settled(self) -> None:
        """Wait until the lists are known, or their time is over. Call this of an upstream that is held back."""
        async with asyncio.timeout(self._patience + BEGIN_SECONDS):
            await self.is_settled.wait()

    async def stop_leaving(self) -> None:
        """Wait no more for the end of what began here."""
        if self.leaving is not None:
            self.leaving.cancel()
            await asyncio.wait({self.leaving})
        self.leaving = None
