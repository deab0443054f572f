"""Hops: the requests that a call sends to a server behind this one, and who watches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Raw, Struct

from toolwire.protocol.errors import ProtocolError
from toolwire.server.call import Call

#: `ok`: the server answered. `asked`: it asked a question. `error`: it answered with an error. `failed`: it could not
#: be reached, or its answer could not be read. `no_account`: the caller has to connect an account first.
Ending: TypeAlias = Literal["ok", "asked", "error", "failed", "no_account", "cancelled"]


class Hop(Struct, eq=False):
    """One request of a call to a server behind this one."""

    back: str
    """The name of the server."""
    method: str
    params: Mapping[str, Any]
    """The params of the request, as the server gets them, without `_meta`."""
    trace: dict[str, str] = {}
    """Members that observers add to `_meta`."""
    ending: Ending = "ok"
    code: int | None = None
    """The code of the error that the server answered with."""
    error: str | None = None
    answer: Raw | None = None
    revision: str | None = None
    """The revision that was spoken with the server; None where it was not reached."""

    @property
    def name(self) -> str | None:
        """The name or the address of the component, as the server knows it."""
        name = self.params.get("name", self.params.get("uri"))
        return name if isinstance(name, str) else None

    def answered(self, answer: Raw, revision: str, *, is_question: bool) -> None:
        self.answer, self.revision = answer, revision
        self.ending = "asked" if is_question else "ok"

    def failed(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.ending = "cancelled"
            return
        self.ending, self.error = "failed", str(error)
        if isinstance(error, ProtocolError):
            self.ending, self.code = "error", error.code


class BackFigures(Struct, frozen=True):
    """The state of a server behind this one, in figures, beside the requests to it."""

    breaker: str
    """`closed`, `open` or `half-open`."""
    waiting: int
    """How many calls wait until others have ended."""
    transport: str
    connections: int
    lists_kept: int
    """How often a list was answered with what is known already."""
    lists_read: int
    """How often the lists of the server were read."""
    urls: Mapping[str, bool] = {}
    """The addresses of the server, and whether they work; empty where it has one."""


#: Is called when a hop begins; returns a function that is called when it has ended.
HopObserver: TypeAlias = Callable[[Call, Hop], Callable[[], None]]
