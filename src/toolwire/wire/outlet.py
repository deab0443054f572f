"""The outlet: how a handler reaches the client of its request."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from msgspec import Raw

from toolwire.protocol import types as t


class Outlet(Protocol):
    """The connection to the client of a request, while the request is handled."""

    connection: Any

    @property
    def is_local(self) -> bool:
        """Return whether the request came over stdio, or from this process."""

    @property
    def answered(self) -> asyncio.Future[Any] | None:
        """Return a future that is done when the transport has the answer, or will never get one; None without one.

        Only the handler of the request may ask for it, and adds a callback. Inside the request it must not be awaited,
        because the request would then wait for its own end.
        """

    @property
    def congested(self) -> bool:
        """Return whether the client is behind, so that optional notifications are dropped."""

    @property
    def full(self) -> bool:
        """Return whether too much waits for the client: the call should end."""

    async def drain(self) -> None:
        """Wait until the client has caught up."""

    def notify(self, method: str, params: t.Wire) -> bool:
        """Queue a notification; return False if it cannot be sent, or was dropped."""

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw: ...
