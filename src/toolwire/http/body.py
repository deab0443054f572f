"""Reading the body of a request, with a limit of its size and its time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

from toolwire.http.responses import HttpRefusal
from toolwire.http.watch_first_await import watched
from toolwire.http1.asgi_types import Direct, Receive
from toolwire.wire.deadlines import Timeouts, timeouts
from toolwire.wire.shares import Caller, Shares


def whole_body(direct: Direct | None, limit: int) -> bytes | None:
    """Return the body if all of it has arrived, as most have; raise `HttpRefusal` when it is too long."""
    body = None if direct is None else direct.whole_body()
    if body is not None and len(body) > limit:
        raise _too_long(limit)
    return body


class Upload:
    """The bytes of one request, counted from their arrival until the request is answered."""

    __slots__ = ("_budget", "_caller", "_held", "_receive")

    def __init__(self, receive: Receive, budget: Shares, caller: Caller) -> None:
        self._receive = receive
        self._budget = budget
        self._caller = caller
        self._held = 0

    async def receive(self) -> MutableMapping[str, Any]:
        """Receive the next part; raise `Taken` where there is no room for it."""
        message = await self._receive()
        size = len(message.get("body", b""))
        if size:
            self._budget.take(self._caller, size)
            self._held += size
        return message

    def release(self) -> None:
        """Stop counting the bytes."""
        if self._held:
            self._budget.give_back(self._caller, self._held)
            self._held = 0


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int, seconds: float) -> bytes:
    """Return the whole body; raise `HttpRefusal` when it is too long, too slow or cut off."""
    length = headers.get("content-length")
    if length is not None and length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise _too_long(limit)
    timer = _Timer(seconds)
    try:
        # Most bodies have arrived already, and need no timer.
        return await watched(_read(receive, limit), timer.start)  # type: ignore[no-any-return]
    except asyncio.CancelledError:
        if timer.task is None or not timer.expired or timer.task.uncancel():
            raise
        raise HttpRefusal(408, "The body did not arrive in time") from None
    finally:
        timer.stop()


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpRefusal(400, "The body ended early")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_long(limit)
        if not message.get("more_body"):
            return b"".join([*parts, part]) if parts else part
        parts.append(part)


def _too_long(limit: int) -> HttpRefusal:
    return HttpRefusal(413, f"The body is over the limit of {limit} bytes")


class _Timer:
    """The time of a body. At its end the task that reads is cancelled."""

    __slots__ = ("_seconds", "_timeouts", "expired", "task")

    def __init__(self, seconds: float) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.expired = False
        self._seconds = seconds
        self._timeouts: Timeouts | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.task = asyncio.current_task(loop)
        self._timeouts = timeouts(loop, self._seconds)
        self._timeouts.start(self._expire)

    def stop(self) -> None:
        if self._timeouts is not None:
            self._timeouts.stop(self._expire)

    def _expire(self) -> None:
        self.expired = True
        if self.task is not None:
            self.task.cancel()
