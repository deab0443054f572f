"""Requests of ours that wait for their answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.jsonrpc import RequestId

OnProgress: TypeAlias = Callable[[t.ProgressNotificationParams], None]


class Pending(Struct, eq=False):
    """A request of ours that waits for its answer, and its time (`deadlines.Timed`)."""

    future: asyncio.Future[Raw | None]
    identifier: RequestId
    method: str
    on_progress: OnProgress | None = None
    seconds: float | None = None
    expires: float = math.inf
    ceiling: float = math.inf
    pauses: int = 0
    left: float = math.inf

    def resolve(self, result: Raw | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
