"""Who calls, and how to be let in: token verifiers and the resource server on one side, OAuth for clients on the other.

Names are resolved when they are first used: a server that only knows API keys loads nothing of OAuth.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.auth.contract import Auth as Auth
    from toolwire.auth.contract import Bearer as Bearer
    from toolwire.auth.principal import Principal as Principal

_HOMES = {
    "Auth": "toolwire.auth.contract",
    "Bearer": "toolwire.auth.contract",
    "Principal": "toolwire.auth.principal",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolwire.auth' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
