"""The types of ASGI, and `Direct`, a shortcut between our server and its application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
HeaderList: TypeAlias = tuple[tuple[bytes, bytes], ...]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendMessage: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: The key under which our connection puts its `Direct` into the scope of a request.
DIRECT: Final = "toolwire.direct"


class Direct(Protocol):
    """The abilities of our connection beside ASGI, for an application that stands right behind it."""

    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[None] | None
    """The task in which the application works on the request."""

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has arrived; `receive` does not return it again."""

    def answer(self, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> bool:
        """Send a complete answer at once.

        Return False where that is not possible now, so that the application has to call `send`.
        """

    on_lost: Callable[[], None] | None
    """Is called when the client goes away before it has its answer."""

    def watch(self) -> None:
        """Call `on_lost` when the client disconnects, or now if it already has."""
