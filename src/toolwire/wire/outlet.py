"""The way back from a handler to whoever asked."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Raw

from toolwire.protocol import types as t


class Outlet(Protocol):
    """The way back to whoever sent a request, for as long as it is being handled."""

    connection: Any

    @property
    def is_local(self) -> bool:
        """Whether the request came over stdio, or from within the process."""

    @property
    def congested(self) -> bool: ...

    async def drain(self) -> None: ...

    def notify(self, method: str, params: t.Wire) -> bool: ...

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw: ...
