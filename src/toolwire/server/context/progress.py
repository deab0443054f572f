"""`Progress`: the progress of one call as an object, for code that is not handed the context."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from toolwire.wire.threads import call_on


class Reports(Protocol):
    """A call, as far as its progress needs it."""

    @property
    def request_id(self) -> str | int: ...

    @property
    def progress_token(self) -> str | int | None: ...

    def tell_progress(self, progress: float, total: float | None, message: str | None) -> bool: ...


class Progress:
    """The progress of one call; `ctx.track(total=...)` makes it.

    `report` and `advance` work from any thread and never wait. Where reports come faster than they can be sent, the
    latest one is sent. They do nothing where the client asked for no progress, or when the call is over.
    """

    __slots__ = ("__weakref__", "_call", "_is_waiting", "_loop", "done", "message", "total")

    def __init__(self, call: Reports, total: float | None = None) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._is_waiting = False
        self.done: float = 0
        self.total = total
        self.message: str | None = None

    @property
    def request_id(self) -> str | int:
        """The id of the request."""
        return self._call.request_id

    @property
    def token(self) -> str | int | None:
        """The token under which the client asked for progress; None where it did not."""
        return self._call.progress_token

    def report(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call is."""
        self.done, self.message = done, message
        if total is not None:
            self.total = total
        # One call at most waits for the loop, so that a busy thread cannot fill the memory.
        if not self._is_waiting:
            self._is_waiting = True
            call_on(self._loop, self._send)

    def advance(self, by: float = 1, message: str | None = None) -> None:
        """Say that the call is further by `by`."""
        self.report(self.done + by, message=message)

    def _send(self) -> None:
        self._is_waiting = False
        self._call.tell_progress(self.done, self.total, self.message)

    def __repr__(self) -> str:
        of: Any = "" if self.total is None else f" of {self.total:g}"
        return f"<Progress of request {self.request_id!r}: {self.done:g}{of}>"
