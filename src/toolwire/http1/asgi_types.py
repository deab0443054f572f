"""The types of ASGI, and `Direct`: the short way between our server connection and an application that knows it."""

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
        """Return the body if all of it has arrived; it is then not received any more."""

    def answer(self, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> bool:
        """Answer at once and completely; False where that is not possible now, and it has to be sent."""

    on_lost: Callable[[], None] | None
    """Is called when the client goes away before it has its answer."""

    def watch(self) -> None:
        """Make sure that `on_lost` is called, also where the client has gone before it was set."""
