"""The credentials with which a gateway acts at one server behind it.

The token of a caller never goes there, unless `Passthrough` says so. A server that answers 401 or 403 means the
credential that it got, and not the caller of this server. So no such answer becomes one of ours: it leads to another
token, to a question to connect an account, or to an error that names the server.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec import Struct

from toolwire.auth.errors import NotConnected
from toolwire.auth.flow.urls import same_origin
from toolwire.auth.vault.kinds import WITH_SUBJECT_TOKEN, Kind, NoCredential, Provider, bind_to_origin
from toolwire.auth.vault.vault import Asker, Credential, Vault
from toolwire.auth.verify.verifier import Unavailable
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target, fingerprint
from toolwire.client.targets import CommandTarget
from toolwire.gateway.back_health import CredentialMissing
from toolwire.gateway.names import credential_names
from toolwire.http1.url import origin
from toolwire.protocol.errors import ServerError, ToolwireError, Unauthorized
from toolwire.server.call import Call
from toolwire.server.credentials import asker_of, connect_error, credential_for

#: For how many seconds a credential is used that was obtained for a call. A request that comes later asks the vault.
FRESH_SECONDS: Final = 1.0
#: How often one request is sent again because the server refused its token.
MAX_REFUSALS: Final = 2
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


class _Sent(Struct):
    """The last request of an asyncio task: its credential, and how often it was refused."""

    credential: Credential
    refusals: int = 0
    is_repeated: bool = False


class OwnerAuth:
    """Signs the requests of one owner to one server: an `Auth` of the HTTP client."""

    def __init__(self, vault: Vault, name: str, kind: Kind, urls: Sequence[str], asker: Asker) -> None:
        self._vault = vault
        self._name = name
        self._kind = kind
        self._urls = urls
        self._asker = asker
        self._obtained: tuple[float, Credential] | None = None
        self._sent: WeakKeyDictionary[asyncio.Task[Any], _Sent] = WeakKeyDictionary()

    def use(self, asker: Asker, credential: Credential) -> None:
        """Sign the next requests with the credential that was obtained for a call."""
        self._asker = asker
        self._obtained = (asyncio.get_running_loop().time() + FRESH_SECONDS, credential)

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        if not any(same_origin(url, own) for own in self._urls):
            return {}  # A server that redirects elsewhere takes no credential there.
        credential = await self._current()
        task = asyncio.current_task()
        assert task is not None
        before = self._sent.get(task)
        refusals = before.refusals if before is not None and before.is_repeated else 0
        self._sent[task] = _Sent(credential, refusals)
        return credential.headers(method, url)

    async def _current(self) -> Credential:
        if self._obtained is not None and asyncio.get_running_loop().time() < self._obtained[0]:
            return self._obtained[1]
        return await self._obtain(None)

    async def _obtain(self, refused: str | None) -> Credential:
        try:
            found = await self._vault.obtain(self._name, self._asker, refused=refused, kind=self._kind)
        except Unavailable as error:
            raise CredentialMissing(str(error)) from None
        self.use(self._asker, found)
        return found

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
        task = asyncio.current_task()
        sent = None if task is None else self._sent.get(task)
        if sent is None or sent.refusals >= MAX_REFUSALS or not sent.credential.token:
            return False
        sent.refusals += 1
        sent.is_repeated = await self._is_mended(sent.credential, url, status, headers)
        return sent.is_repeated

    async def _is_mended(self, credential: Credential, url: str, status: int, headers: Mapping[str, str]) -> bool:
        """Get another token, or a nonce; return whether the request may be sent again."""
        nonce = headers.get("dpop-nonce")
        if nonce is not None and "use_dpop_nonce" in headers.get("www-authenticate", ""):
            return credential.learn_nonce(url, nonce)
        # 403: another token of the same account may do no more.
        return status == 401 and (await self._obtain(credential.token)).token != credential.token


class BackCredentials(ABC):
    """The credentials of the callers of a gateway at one server."""

    def __init__(self, vault: Vault, name: str) -> None:
        self._vault = vault
        self._name = name
        # Those of this server: another one may have its name by now.
        self._kind = vault.kind(name)

    async def place_for(self, call: Call) -> tuple[str, Target]:
        """Return a text for the account of a call, and the place of the server for it.

        Calls with the same text share connections. Raise `UrlRequired` or `ToolError` where the caller has to connect
        an account first.
        """
        credential = await credential_for(call, self._vault, self._name, kind=self._kind)
        return self._place(credential, asker_of(call, self._vault))

    def asker(self, call: Call) -> Asker:
        """Return the caller as the vault sees it."""
        return asker_of(call, self._vault)

    async def place_of(self, asker: Asker) -> tuple[str, Target] | None:
        """Return the same as `place_for`; None where the caller has no account."""
        try:
            return self._place(await self._vault.obtain(self._name, asker, kind=self._kind), asker)
        except (NotConnected, Unauthorized):
            return None

    def account(self, text: str) -> str:
        """Return the part of a text of `place_for` that is the same for all credentials of one account."""
        return text

    @abstractmethod
    def _place(self, credential: Credential, asker: Asker) -> tuple[str, Target]: ...

    async def connect_error(self, call: Call, missing: NotConnected) -> ToolwireError:
        """Return the error that asks a caller to connect the account again, because the server refused it."""
        return await connect_error(call, self._vault, missing)


class SignedRequests(BackCredentials):
    """Credentials that every request to a server carries, by HTTP."""

    def __init__(self, vault: Vault, name: str, place: HttpTarget) -> None:
        super().__init__(vault, name)
        self._place_of_server = place
        self._places: WeakValueDictionary[str, HttpTarget] = WeakValueDictionary()
        self._signers: WeakKeyDictionary[HttpTarget, OwnerAuth] = WeakKeyDictionary()
        self._is_made_of_token = isinstance(vault.kind(name), WITH_SUBJECT_TOKEN)

    def account(self, text: str) -> str:
        return text.partition(":")[0]

    def _place(self, credential: Credential, asker: Asker) -> tuple[str, Target]:
        # Two tokens of one user may allow different things, and so do the credentials that are made of them.
        text = credential.owner
        if self._is_made_of_token:
            text = f"{text}:{fingerprint(asker.subject_token or '')}"
        place = self._places.get(text)
        if place is None:
            server = self._place_of_server
            auth = OwnerAuth(self._vault, self._name, self._kind, server.urls, asker)
            place = self._places[text] = server.signed_by(auth)
            self._signers[place] = auth
        self._signers[place].use(asker, credential)
        return text, place


class SecretVariables(BackCredentials):
    """Credentials that a command finds in its environment: each account has processes of its own."""

    def __init__(self, vault: Vault, name: str, place: CommandTarget, variable: str) -> None:
        super().__init__(vault, name)
        self._command = place
        self._variable = variable

    def _place(self, credential: Credential, asker: Asker) -> tuple[str, Target]:
        async def secrets() -> Mapping[str, str]:
            return _variables(self._variable, credential)

        # A process keeps the secret that it was started with. So a new secret is another process.
        return f"{credential.owner}:{fingerprint(credential.token)}", self._command.with_secrets(secrets)


def signed_place(
    vault: Vault, name: str, place: Target, kind: Kind | None, lists: Kind | None, variable: str | None
) -> tuple[Target, BackCredentials | None]:
    """Return the place of a server with the credential of the gateway, and the credentials of callers if they differ.

    `lists` is the account of the gateway that reads the lists for all callers. Without it, each caller's account reads
    those of the caller. `variable` is where a command finds the secret.
    """
    if isinstance(place, CommandTarget) is (variable is None) or not isinstance(place, CommandTarget | HttpTarget):
        raise ServerError(
            f"credentials= of {name!r} is for a URL, or for a command that finds the secret in credential_variable="
        )
    if variable is not None and _VARIABLE.fullmatch(variable) is None:
        raise ServerError(f"{variable[:100]!r} is no name of an environment variable")
    of_calls, of_lists = credential_names(name)
    kind = NoCredential() if kind is None else kind
    if lists is not None and (lists.is_per_user or not kind.is_per_user):
        raise ServerError(
            f"list_credentials= of {name!r} is an account of the gateway, beside credentials= with accounts of callers"
        )
    vault.add(of_calls, _for(kind, place))
    if kind.is_per_user:
        # The server may quote to one caller what another one sent to it.
        place = place.without_quotes()
    if not kind.is_per_user:
        return _own(vault, of_calls, place, variable), None
    of_callers = (
        SignedRequests(vault, of_calls, place)
        if isinstance(place, HttpTarget)
        else SecretVariables(vault, of_calls, place, variable or "")
    )
    if lists is None:
        return place, of_callers
    vault.add(of_lists, _for(lists, place))
    return _own(vault, of_lists, place, variable), of_callers


def _own(vault: Vault, name: str, place: HttpTarget | CommandTarget, variable: str | None) -> Target:
    """Return the place of a server with a credential of the gateway itself."""
    anonymous, kind = Asker(None), vault.kind(name)
    if isinstance(place, HttpTarget):
        return place.signed_by(OwnerAuth(vault, name, kind, place.urls, anonymous))

    async def secrets() -> Mapping[str, str]:
        try:
            return _variables(variable or "", await vault.obtain(name, anonymous, kind=kind))
        except Unavailable as error:
            raise CredentialMissing(str(error)) from None

    return place.with_secrets(secrets)


def _variables(variable: str, credential: Credential) -> dict[str, str]:
    if credential.is_bound:
        raise CredentialMissing("A token that is bound to a key is of no use in an environment variable")
    return {variable: credential.token} if credential.token else {}


def _for(kind: Kind, place: Target) -> Kind:
    """Return a kind for the server at a URL.

    Accounts are used for its origin only. Tokens are for this server (RFC 8707), unless the kind names another.
    """
    if not isinstance(place, HttpTarget):
        return kind
    bound = bind_to_origin(kind, origin(place.url))
    if isinstance(bound, Provider) and bound.resource is None and bound.token_endpoint is None:
        bound.resource = place.url
    return bound
