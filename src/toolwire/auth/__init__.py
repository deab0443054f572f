"""Who calls, and how to be let in: token verifiers and the resource server on one side, OAuth for clients on the other.

Names are resolved when they are first used: a server that only knows API keys loads nothing of OAuth.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.auth.contract import Auth as Auth
    from toolwire.auth.contract import Bearer as Bearer
    from toolwire.auth.errors import NeedsLogin as NeedsLogin
    from toolwire.auth.errors import Refused as Refused
    from toolwire.auth.errors import SignInFailed as SignInFailed
    from toolwire.auth.grants import ClientCredentials as ClientCredentials
    from toolwire.auth.grants import EnterpriseManaged as EnterpriseManaged
    from toolwire.auth.grants import Grant as Grant
    from toolwire.auth.grants import WorkloadIdentity as WorkloadIdentity
    from toolwire.auth.oauth import OAuth as OAuth
    from toolwire.auth.principal import Principal as Principal
    from toolwire.auth.signing import PrivateKey as PrivateKey
    from toolwire.auth.storage import FileStorage as FileStorage
    from toolwire.auth.storage import MemoryStorage as MemoryStorage
    from toolwire.auth.storage import Storage as Storage

_HOMES = {
    "Auth": "toolwire.auth.contract",
    "Bearer": "toolwire.auth.contract",
    "ClientCredentials": "toolwire.auth.grants",
    "EnterpriseManaged": "toolwire.auth.grants",
    "FileStorage": "toolwire.auth.storage",
    "Grant": "toolwire.auth.grants",
    "MemoryStorage": "toolwire.auth.storage",
    "NeedsLogin": "toolwire.auth.errors",
    "OAuth": "toolwire.auth.oauth",
    "Principal": "toolwire.auth.principal",
    "PrivateKey": "toolwire.auth.signing",
    "Refused": "toolwire.auth.errors",
    "SignInFailed": "toolwire.auth.errors",
    "Storage": "toolwire.auth.storage",
    "WorkloadIdentity": "toolwire.auth.grants",
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
