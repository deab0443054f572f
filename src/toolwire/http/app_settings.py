"""`AppSettings`: what an HTTP application reads for each request, and replaces as a whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from toolwire.http.authentication import HttpGate
from toolwire.http.limits import HttpLimits


class AppSettings(Struct, frozen=True, eq=False):
    """The limits and the gate of an HTTP application. A request keeps those that let it in."""

    limits: HttpLimits = HttpLimits()
    gate: HttpGate | None = None
    """Authenticates requests; None lets everybody in."""

    @property
    def key_headers(self) -> tuple[str, ...]:
        return () if self.gate is None else self.gate.key_headers


class HasSettings(Protocol):
    """The application, as far as its parts need it."""

    settings: AppSettings


#: Lets a request in once more, by the settings of now. Returns its principal and headers; raises `HttpRefusal`.
AdmitAgain: TypeAlias = Callable[[], Awaitable[tuple[Any, dict[str, str]]]]
