"""Sources of credentials for an API: secrets, functions, and accounts of the vault."""

from __future__ import annotations

import os
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Final, Protocol, TypeAlias
from urllib.parse import urljoin, urlsplit
from weakref import WeakKeyDictionary, WeakSet

from toolwire.auth.client.grants import Supplied, supplied
from toolwire.auth.credential_dependency import CredentialToken
from toolwire.auth.flow.challenges import oauth_challenge, parse_challenges
from toolwire.auth.flow.scopes import Scopes, union
from toolwire.auth.principal import Principal
from toolwire.auth.vault.kinds import (
    KINDS,
    Kind,
    NoCredential,
    Provider,
    ServerOAuth,
    StaticSecret,
    UserOAuth,
    UserSecret,
    bind_to_origin,
)
from toolwire.auth.vault.vault import Credential, Vault
from toolwire.base_errors import ServerError
from toolwire.openapi.model import OAuthFlow, SecuritySchemeObject
from toolwire.protocol.errors import ToolError
from toolwire.server.call import Call
from toolwire.server.credentials import credential_for
from toolwire.util.file_watch import Stamp, stamp_of
from toolwire.wire.regular_files import read_regular

#: A function that returns the secret of a caller; None for a caller who has none.
SecretFunction: TypeAlias = Callable[[Principal | None], Awaitable[str | None] | str | None]
#: What `credentials=` of an API takes for a security scheme: `"$NAME"` of the environment, a file, a user name and one
#: of these as the password, a function of the principal, a kind of the vault, `credential("name")` of the server, or
#: a TLS context with a certificate.
CredentialLike: TypeAlias = (
    str | Path | tuple[str, "str | Path"] | SecretFunction | Kind | Callable[..., Awaitable[str]] | ssl.SSLContext
)

#: How many bytes a file with a secret may have: a signed token has a few KiB.
MAX_SECRET: Final = 64 * 1024
_VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_METADATA: Final = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")
_BY_SERVER: Final = "server"


#: The kinds that were bound to the origin of an API, by the kind that was given.
_BOUND: Final[WeakKeyDictionary[Kind, dict[str, Kind]]] = WeakKeyDictionary()


class CredentialSource(ABC):
    """A source of credentials for one security scheme."""

    is_per_user: bool = False
    """Whether each caller has an account of the own."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        """The name of the scheme, for error texts."""

    @abstractmethod
    async def obtain(self, call: Call, scopes: Scopes) -> Credential | None:
        """Return the credential of a caller; None where nothing is sent. Raise `UrlRequired` or `ToolError`."""

    async def renewed(self, call: Call, scopes: Scopes, refused: Credential) -> Credential:
        """Return another credential, because the API refused one. Raise `UrlRequired` or `ToolError`."""
        # The source may have another one by now: a platform writes new secrets into files.
        found = await self.obtain(call, scopes)
        if found is None or found.token == refused.token:
            raise self.refusal(call)
        return found

    @abstractmethod
    def refusal(self, call: Call) -> ToolError:
        """Return the error for credentials that the API refuses, although they are new."""


class Nothing(CredentialSource):
    """No credential: the operator's HTTP client, or a proxy, adds it."""

    async def obtain(self, call: Call, scopes: Scopes) -> None:
        return None

    def refusal(self, call: Call) -> ToolError:
        return ToolError(f"The API wants a credential for {self.name!r}, and this server has none")


class ServerSecret(CredentialSource):
    """One secret of the server, for all callers."""

    def __init__(self, name: str, secret: Supplied) -> None:
        super().__init__(name)
        self._secret = secret

    async def obtain(self, call: Call, scopes: Scopes) -> Credential:
        try:
            found = await supplied(self._secret)
        except (ServerError, OSError, ValueError):
            raise ToolError(f"This server cannot read its credential for {self.name!r}; tell its operator") from None
        return Credential(self.name, _BY_SERVER, found)

    def refusal(self, call: Call) -> ToolError:
        return ToolError(f"The API refuses the credential of this server for {self.name!r}; tell its operator")


class CallerSecret(CredentialSource):
    """A secret of each caller, from a function of the principal."""

    is_per_user = True

    def __init__(self, name: str, function: SecretFunction) -> None:
        super().__init__(name)
        self._function = function

    async def obtain(self, call: Call, scopes: Scopes) -> Credential:
        found = self._function(call.principal)
        if isawaitable(found):
            found = await found
        if not found:
            raise ToolError(f"This server has no credential of yours for {self.name!r}")
        principal = call.principal
        return Credential(self.name, "" if principal is None else principal.subject, found)

    def refusal(self, call: Call) -> ToolError:
        return ToolError(f"The API refuses the credential that this server has of you for {self.name!r}")


class AccountOwner(Protocol):
    """A server, as far as its accounts go."""

    @property
    def vault(self) -> Vault: ...

    def vault_with(self, credential: str) -> Vault | None: ...


class VaultAccount(CredentialSource):
    """An account in the vault of the server that includes the API."""

    def __init__(self, name: str, kind: Kind) -> None:
        super().__init__(name)
        self.kind: Kind = kind
        self._given = kind
        self.is_per_user: bool = kind.is_per_user
        self._vaults: WeakSet[Vault] = WeakSet()

    def bind_to(self, service: str) -> None:
        """Bind the account to the origin of the API.

        What users connect for it is not sent to another origin.
        """
        given = self.kind
        if bind_to_origin(given, service) is given:
            return
        # APIs at one origin share the account that they were given together.
        bound = _BOUND.setdefault(given, {})
        self.kind = bound.setdefault(service, bind_to_origin(given, service))

    def add_to(self, server: AccountOwner, name: str) -> None:
        """Add the account to the vault of a server, under a name."""
        self.name = name
        there = server.vault_with(name)
        if there is not None and there.kind(name) is self._given:
            self.kind = self._given  # The server has it for other purposes, too, and names no origin.
        if there is None:
            server.vault.add(name, self.kind)
        elif there.kind(name) is not self.kind:
            raise ServerError(
                f"This server has another credential {name!r}, which is not for this API: give the one of the API to "
                "the server under a name of its own, and name it here as credential('that-name')"
            )
        self._vaults.add(server.vault)

    def remove_from(self, server: AccountOwner) -> None:
        """Remove the account from the vault of a server.

        What users connected stays in the store.
        """
        vault = server.vault_with(self.name)
        if vault is not None and vault.kind(self.name) is self.kind:
            vault.remove(self.name)
            self._vaults.discard(vault)

    def vault(self, call: Call) -> Vault:
        """Return the vault with the account.

        That is the vault of the called server, or else of one that it mounts.
        """
        called = call.host.server.vault_with(self.name)
        # A credential of the same name for another service must not be sent to this API.
        if called is not None and called.kind(self.name) is self.kind:
            return called
        for vault in self._vaults:
            if not self.is_per_user and self.name in vault and vault.kind(self.name) is self.kind:
                return vault
        raise ToolError(f"This server has no account for {self.name!r}; tell its operator")

    async def obtain(self, call: Call, scopes: Scopes) -> Credential:
        return await credential_for(call, self.vault(call), self.name, scopes=scopes)

    async def renewed(self, call: Call, scopes: Scopes, refused: Credential) -> Credential:
        vault = self.vault(call)
        found = await credential_for(call, vault, self.name, scopes=scopes, refused=refused.token)
        if found.token == refused.token:
            raise self.refusal(call)
        return found

    def refusal(self, call: Call) -> ToolError:
        if not isinstance(self.kind, UserOAuth | UserSecret):
            whose = "that this server got for you" if self.is_per_user else "of this server"
            return ToolError(f"The API refuses the token {whose} for {self.name!r}; tell the operator of this server")
        where = self.vault(call).connect_url
        at = "" if where is None else f" at {where}"
        return ToolError(f"The API refuses your account for {self.name!r}. Forget it, and connect another one{at}.")


class NamedAccount(VaultAccount):
    """An account that the server has in `credentials=`, beside the API."""

    def __init__(self, scheme: str, named: CredentialToken) -> None:
        super().__init__(scheme, NoCredential())
        self.name: str = named.name
        self._scopes = named.scopes

    def bind_to(self, service: str) -> None:
        """Leave the account as the server has it: its tools use it for other services."""

    def add_to(self, server: AccountOwner, name: str) -> None:
        found = server.vault_with(self.name)
        if found is None:
            raise ServerError(
                f"The API uses credential({self.name!r}), which the server does not have: "
                "give it in credentials= of the server"
            )
        self.kind: Kind = found.kind(self.name)
        self.is_per_user: bool = self.kind.is_per_user
        self._vaults.add(found)

    def remove_from(self, server: AccountOwner) -> None:
        """Leave the account where it is: it belongs to the server."""

    async def obtain(self, call: Call, scopes: Scopes) -> Credential:
        return await super().obtain(call, union(self._scopes, scopes))

    async def renewed(self, call: Call, scopes: Scopes, refused: Credential) -> Credential:
        return await super().renewed(call, union(self._scopes, scopes), refused)


def source_of(scheme: SecuritySchemeObject, given: CredentialLike, base: str, *, is_named: bool) -> CredentialSource:
    """Return the source of credentials that an operator gave for a scheme.

    Raises `ServerError` for one that is wrong. `base` is the address against which relative addresses in the scheme are
    read. `is_named`: the operator vouches for the addresses in the description. Otherwise they may lead to public
    addresses only.
    """
    name = scheme.name
    if isinstance(given, NoCredential):
        return Nothing(name)
    if isinstance(given, ssl.SSLContext) is not (scheme.type == "mutualTLS"):
        what = "an ssl.SSLContext with a certificate" if scheme.type == "mutualTLS" else "no ssl.SSLContext"
        raise ServerError(f"The credential of {name!r} is {what}, because its type is {scheme.type}")
    if isinstance(given, ssl.SSLContext):
        return Nothing(name)
    if isinstance(given, CredentialToken):
        return NamedAccount(name, given)
    if isinstance(given, StaticSecret):
        return ServerSecret(name, given.secret)
    if isinstance(given, KINDS):
        _check_place(scheme, given)
        kind = completed(given, scheme, base, is_named=is_named) if isinstance(given, Provider) else given
        return VaultAccount(name, kind)
    if isinstance(given, tuple):
        user, password = _pair(name, given)
        if scheme.type != "http" or scheme.scheme != "basic":
            raise ServerError(f"A user name and a password are for the scheme basic, and {name!r} is another one")
        return ServerSecret(name, lambda: f"{user}:{password()}")
    if isinstance(given, str | Path):
        return ServerSecret(name, secret_of(name, given))
    if callable(given):
        return CallerSecret(name, given)
    raise ServerError(f"The credential of {name!r} is a text, a file, a function or a kind, not {type(given).__name__}")


def _pair(name: str, given: tuple[str, str | Path]) -> tuple[str, Callable[[], str]]:
    # RFC 7617 section 2: the first colon ends the user name.
    if len(given) != 2 or not isinstance(given[0], str) or not given[0] or ":" in given[0]:
        raise ServerError(f"The credential of {name!r} is a user name without a colon, and a password")
    return given[0], secret_of(name, given[1])


def secret_of(name: str, given: str | Path) -> Callable[[], str]:
    """Return a function that returns a secret.

    The secret is in the environment (`"$NAME"`), in a file, or the text itself. Raises `ServerError` where there is
    none now.
    """
    if isinstance(given, Path):
        read = FileSecret(name, given)
        read()
        return read
    variable = _VARIABLE.fullmatch(given) if isinstance(given, str) else None
    if variable is None:
        if not isinstance(given, str) or not given:
            raise ServerError(f"The credential of {name!r} is empty")
        return lambda: given
    if not os.environ.get(variable[1]):
        raise ServerError(f"The credential of {name!r} is in the environment variable {variable[1]}, which is not set")
    return lambda: os.environ[variable[1]]


class FileSecret:
    """A secret in a file, which a platform may replace at any time."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._seen: Stamp = None
        self._secret = ""

    def __call__(self) -> str:
        try:
            seen = stamp_of(self._path)
            if seen is None or seen != self._seen:
                # The limit holds for the secret, and not for the end of its line.
                data = read_regular(self._path, MAX_SECRET + 2)
                self._secret, self._seen = data.decode().rstrip("\r\n"), seen
        except (OSError, UnicodeDecodeError) as error:
            raise ServerError(f"The credential of {self._name!r} cannot be read from {self._path}: {error}") from None
        if not 0 < len(self._secret) <= MAX_SECRET:
            raise ServerError(f"The credential of {self._name!r} in {self._path} is empty or too long")
        return self._secret


# --- accounts of the vault -------------------------------------------------------------------------------------------


def is_authorization(scheme: SecuritySchemeObject) -> bool:
    """Return whether a scheme is an API key in the header `Authorization`.

    Some descriptions call a token so.
    """
    return scheme.location == "header" and (scheme.parameter_name or "").lower() == "authorization"


def _check_place(scheme: SecuritySchemeObject, kind: Kind) -> None:
    """Refuse an OAuth account where the scheme has no place for its token."""
    takes_tokens = scheme.type in ("oauth2", "openIdConnect") or scheme.scheme == "bearer" or is_authorization(scheme)
    if isinstance(kind, Provider) and not takes_tokens and (kind.dpop or scheme.type == "http"):
        raise ServerError(f"{scheme.name!r} is not a place for the tokens of {type(kind).__name__}")


def completed(kind: Provider, scheme: SecuritySchemeObject, base: str, *, is_named: bool) -> Kind:
    """Complete an OAuth account with the endpoints of the description.

    A provider that the operator named stays as it is.
    """
    if kind.urls:
        return kind  # type: ignore[return-value]
    if (issuer := _issuer(scheme, base)) is not None:
        return kind.found_at(issuer=issuer, is_named=is_named)  # type: ignore[return-value]
    needs_person = isinstance(kind, UserOAuth) or (isinstance(kind, ServerOAuth) and kind.grant is None)
    names = ("authorizationCode",) if needs_person else ("clientCredentials", "authorizationCode", "password")
    flow = next((scheme.flows[each] for each in names if each in scheme.flows), None)
    if flow is None or flow.token_url is None or (needs_person and flow.authorization_url is None):
        known = ", ".join(scheme.flows) or "none"
        raise ServerError(
            f"The description of {scheme.name!r} has no flow that {type(kind).__name__} can use (it has: {known}): "
            "give issuer=, or the endpoints"
        )
    return kind.found_at(  # type: ignore[return-value]
        token_endpoint=_address(flow.token_url, base),
        authorization_endpoint=_authorization(flow, base),
        is_named=is_named,
    )


def _authorization(flow: OAuthFlow, base: str) -> str | None:
    return None if flow.authorization_url is None else _address(flow.authorization_url, base)


def _issuer(scheme: SecuritySchemeObject, base: str) -> str | None:
    """Return the issuer of a scheme with metadata; None if it names its endpoints."""
    url = scheme.open_id_connect_url or scheme.metadata_url
    if url is None:
        return None
    address = _address(url, base)
    parts = urlsplit(address)
    for known in _METADATA:
        # OpenID Connect Discovery 4 puts it behind the issuer, RFC 8414 section 3 between host and path.
        if parts.path.endswith(known):
            return address.removesuffix(known)
        if parts.path.startswith(f"{known}/"):
            return f"{parts.scheme}://{parts.netloc}{parts.path.removeprefix(known)}"
    raise ServerError(f"The metadata of {scheme.name!r} is at {address}, which names no issuer: give issuer=")


def _address(url: str, base: str) -> str:
    return urljoin(base, url)


def missing_scopes(status: int, headers: Mapping[str, str]) -> Scopes:
    """Return the scopes that an API demands in a refusal (RFC 6750 section 3.1)."""
    challenge = oauth_challenge(parse_challenges(headers.get("www-authenticate", "")))
    if status != 403 or challenge is None or challenge.error != "insufficient_scope":
        return ()
    return challenge.scopes or ()
