"""Requests of ours that wait for their answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct

from toolwire.protocol import types as t

OnProgress: TypeAlias = Callable[[t.ProgressNotificationParams], None]


class Timed(Protocol):
    """A request of ours, as far as time is concerned."""

    method: str
    timeout: float | None
    expires: float
    ceiling: float


class Pending(Struct, eq=False):
    """A request of ours that waits for its answer; progress may push its deadline back, up to a ceiling."""

    future: asyncio.Future[Raw | None]
    method: str
    on_progress: OnProgress | None = None
    timeout: float | None = None
    expires: float = math.inf
    ceiling: float = math.inf

    def resolve(self, result: Raw | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
