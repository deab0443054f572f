"""Servers behind a server: one address in front of many servers, whichever revision each of them speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolwire.gateway.back_health import Breaker, Health
from toolwire.gateway.gateway import Back, Gateway

if TYPE_CHECKING:
    from toolwire.gateway.config import gateway_of as gateway_of

__all__ = ["Back", "Breaker", "Gateway", "Health", "gateway_of"]


def __getattr__(name: str) -> Any:
    # Resolved when it is first used: a gateway that a program describes needs nothing of the tables of files.
    if name == "gateway_of":
        from toolwire.gateway.config import gateway_of

        globals()[name] = gateway_of
        return gateway_of
    raise AttributeError(f"module 'toolwire.gateway' has no attribute {name!r}")
