"""Servers behind a server: one address in front of many servers, whichever revision each of them speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolwire.gateway.back_health import Breaker, Health
from toolwire.gateway.gateway import Back, Gateway

if TYPE_CHECKING:
    from toolwire.gateway.config import gateway_of as gateway_of
    from toolwire.gateway.configuration_status import ConfigurationStatus as ConfigurationStatus
    from toolwire.gateway.configuration_status import Reloaded as Reloaded

__all__ = ["Back", "Breaker", "ConfigurationStatus", "Gateway", "Health", "Reloaded", "gateway_of"]

_OF_FILES: Final = {
    "ConfigurationStatus": "toolwire.gateway.configuration_status",
    "Reloaded": "toolwire.gateway.configuration_status",
    "gateway_of": "toolwire.gateway.config",
}


def __getattr__(name: str) -> Any:
    # Resolved when it is first used: a gateway that a program describes needs nothing of the tables of files.
    if name in _OF_FILES:
        from importlib import import_module

        globals()[name] = found = getattr(import_module(_OF_FILES[name]), name)
        return found
    raise AttributeError(f"module 'toolwire.gateway' has no attribute {name!r}")
