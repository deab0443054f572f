"""The way back from a handler to whoever asked."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from msgspec import Raw

from toolwire.protocol import types as t


class Outlet(Protocol):
    """The way back to whoever sent a request, for as long as it is being handled."""

    connection: Any

    @property
    def is_local(self) -> bool:
        """Return whether the request came over stdio, or from within the process."""

    @property
    def answered(self) -> asyncio.Future[Any] | None:
        """Done when the transport has the answer, or will never get one; None where nobody is answered.

        Only the handler of the request may ask for it. Whoever waits for it is called back: it is never awaited inside
        the request, which it would hold up for ever.
        """

    @property
    def congested(self) -> bool: ...

    async def drain(self) -> None: ...

    def notify(self, method: str, params: t.Wire) -> bool: ...

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw: ...
