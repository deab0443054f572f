"""Authorization: token verifiers and the resource server for servers, OAuth for clients.

Names are resolved when they are first used: a server that only knows API keys loads nothing of OAuth.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.auth.authentication import authenticate as authenticate
    from toolwire.auth.bearer import bearer_token as bearer_token
    from toolwire.auth.client.grants import ClientCredentials as ClientCredentials
    from toolwire.auth.client.grants import EnterpriseManaged as EnterpriseManaged
    from toolwire.auth.client.grants import Grant as Grant
    from toolwire.auth.client.grants import WorkloadIdentity as WorkloadIdentity
    from toolwire.auth.client.oauth import OAuth as OAuth
    from toolwire.auth.client.signing import PrivateKey as PrivateKey
    from toolwire.auth.client.storage import FileStorage as FileStorage
    from toolwire.auth.client.storage import MemoryStorage as MemoryStorage
    from toolwire.auth.client.storage import SharedStorage as SharedStorage
    from toolwire.auth.client.storage import Storage as Storage
    from toolwire.auth.client.store_storage import StoreStorage as StoreStorage
    from toolwire.auth.contract import Auth as Auth
    from toolwire.auth.contract import Bearer as Bearer
    from toolwire.auth.credential_dependency import credential as credential
    from toolwire.auth.errors import NeedsLogin as NeedsLogin
    from toolwire.auth.errors import Refused as Refused
    from toolwire.auth.errors import SignInFailed as SignInFailed
    from toolwire.auth.presets import auth0 as auth0
    from toolwire.auth.presets import entra as entra
    from toolwire.auth.presets import github as github
    from toolwire.auth.presets import google as google
    from toolwire.auth.presets import keycloak as keycloak
    from toolwire.auth.principal import Principal as Principal
    from toolwire.auth.proxy.proxy import OAuthProxy as OAuthProxy
    from toolwire.auth.proxy.upstream import Upstream as Upstream
    from toolwire.auth.resource import ResourceServer as ResourceServer
    from toolwire.auth.vault.kinds import IdentityAssertion as IdentityAssertion
    from toolwire.auth.vault.kinds import NoCredential as NoCredential
    from toolwire.auth.vault.kinds import Passthrough as Passthrough
    from toolwire.auth.vault.kinds import ServerOAuth as ServerOAuth
    from toolwire.auth.vault.kinds import StaticSecret as StaticSecret
    from toolwire.auth.vault.kinds import TokenExchange as TokenExchange
    from toolwire.auth.vault.kinds import UserOAuth as UserOAuth
    from toolwire.auth.vault.kinds import UserSecret as UserSecret
    from toolwire.auth.vault.vault import Credential as Credential
    from toolwire.auth.vault.vault import Vault as Vault
    from toolwire.auth.verify.github import GitHub as GitHub
    from toolwire.auth.verify.google import Google as Google
    from toolwire.auth.verify.introspection import Introspection as Introspection
    from toolwire.auth.verify.jwt import JWT as JWT
    from toolwire.auth.verify.keys import Anonymous as Anonymous
    from toolwire.auth.verify.keys import ApiKeys as ApiKeys
    from toolwire.auth.verify.keys import hashed as hashed
    from toolwire.auth.verify.verifier import Chain as Chain
    from toolwire.auth.verify.verifier import InvalidToken as InvalidToken
    from toolwire.auth.verify.verifier import Unavailable as Unavailable
    from toolwire.auth.verify.verifier import Verifier as Verifier

_HOMES = {
    "Auth": "toolwire.auth.contract",
    "Bearer": "toolwire.auth.contract",
    "ClientCredentials": "toolwire.auth.client.grants",
    "EnterpriseManaged": "toolwire.auth.client.grants",
    "FileStorage": "toolwire.auth.client.storage",
    "Grant": "toolwire.auth.client.grants",
    "MemoryStorage": "toolwire.auth.client.storage",
    "NeedsLogin": "toolwire.auth.errors",
    "OAuth": "toolwire.auth.client.oauth",
    "PrivateKey": "toolwire.auth.client.signing",
    "Refused": "toolwire.auth.errors",
    "SignInFailed": "toolwire.auth.errors",
    "SharedStorage": "toolwire.auth.client.storage",
    "Storage": "toolwire.auth.client.storage",
    "StoreStorage": "toolwire.auth.client.store_storage",
    "WorkloadIdentity": "toolwire.auth.client.grants",
    "Anonymous": "toolwire.auth.verify.keys",
    "ApiKeys": "toolwire.auth.verify.keys",
    "Chain": "toolwire.auth.verify.verifier",
    "GitHub": "toolwire.auth.verify.github",
    "Google": "toolwire.auth.verify.google",
    "Introspection": "toolwire.auth.verify.introspection",
    "InvalidToken": "toolwire.auth.verify.verifier",
    "JWT": "toolwire.auth.verify.jwt",
    "OAuthProxy": "toolwire.auth.proxy.proxy",
    "Upstream": "toolwire.auth.proxy.upstream",
    "auth0": "toolwire.auth.presets",
    "authenticate": "toolwire.auth.authentication",
    "entra": "toolwire.auth.presets",
    "github": "toolwire.auth.presets",
    "google": "toolwire.auth.presets",
    "keycloak": "toolwire.auth.presets",
    "Principal": "toolwire.auth.principal",
    "ResourceServer": "toolwire.auth.resource",
    "Unavailable": "toolwire.auth.verify.verifier",
    "Verifier": "toolwire.auth.verify.verifier",
    "bearer_token": "toolwire.auth.bearer",
    "hashed": "toolwire.auth.verify.keys",
    "credential": "toolwire.auth.credential_dependency",
    "Credential": "toolwire.auth.vault.vault",
    "IdentityAssertion": "toolwire.auth.vault.kinds",
    "NoCredential": "toolwire.auth.vault.kinds",
    "Passthrough": "toolwire.auth.vault.kinds",
    "ServerOAuth": "toolwire.auth.vault.kinds",
    "StaticSecret": "toolwire.auth.vault.kinds",
    "TokenExchange": "toolwire.auth.vault.kinds",
    "UserOAuth": "toolwire.auth.vault.kinds",
    "UserSecret": "toolwire.auth.vault.kinds",
    "Vault": "toolwire.auth.vault.vault",
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
