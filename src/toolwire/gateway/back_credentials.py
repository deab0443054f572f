"""The credentials with which a gateway acts at one server behind it.

The token of a caller never goes there, unless `Passthrough` says so. A server that answers 401 or 403 means the
credential that it got, and not the caller of this server. So no such answer becomes one of ours: it leads to another
token, to a question to connect an account, or to an error that names the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import copy
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec import Struct

from toolwire.auth.errors import NotConnected
from toolwire.auth.flow.urls import same_origin
from toolwire.auth.vault.kinds import Kind, NoCredential, Provider
from toolwire.auth.vault.vault import Asker, Credential, Vault
from toolwire.auth.verify.verifier import Unavailable
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.gateway.names import credential_names
from toolwire.protocol.errors import ServerError, ToolwireError, Unreachable
from toolwire.server.call import Call
from toolwire.server.credentials import asker_of, connect_error, credential_for

#: For how many seconds a credential is used that was obtained for a call. A request that comes later asks the vault.
FRESH_SECONDS: Final = 1.0
#: How often one request is sent again because the server refused its token.
MAX_REFUSALS: Final = 2


class _Sent(Struct):
    """The last request of an asyncio task: its credential, and how often it was refused."""

    credential: Credential
    refusals: int = 0
    is_repeated: bool = False


class OwnerAuth:
    """Signs the requests of one owner to one server: an `Auth` of the HTTP client."""

    def __init__(self, vault: Vault, name: str, url: str, asker: Asker) -> None:
        self._vault = vault
        self._name = name
        self._url = url
        self._asker = asker
        self._obtained: tuple[float, Credential] | None = None
        self._sent: WeakKeyDictionary[asyncio.Task[Any], _Sent] = WeakKeyDictionary()

    def use(self, asker: Asker, credential: Credential) -> None:
        """Sign the next requests with the credential that was obtained for a call."""
        self._asker = asker
        self._obtained = (asyncio.get_running_loop().time() + FRESH_SECONDS, credential)

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        if not same_origin(url, self._url):
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
            found = await self._vault.obtain(self._name, self._asker, refused=refused)
        except Unavailable as error:
            raise Unreachable(str(error)) from None
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


class BackCredentials:
    """The credentials of the callers of a gateway at one server."""

    def __init__(self, vault: Vault, name: str, url: str) -> None:
        self._vault = vault
        self._name = name
        self._url = url
        self._signers: WeakValueDictionary[str, OwnerAuth] = WeakValueDictionary()

    async def signer(self, call: Call) -> tuple[str, OwnerAuth]:
        """Return the owner of the account for a call, and the object that signs requests for it.

        Raise `UrlRequired` or `ToolError` where the caller has to connect an account first.
        """
        credential = await credential_for(call, self._vault, self._name)
        asker = asker_of(call, self._vault)
        signer = self._signers.get(credential.owner)
        if signer is None:
            signer = self._signers[credential.owner] = OwnerAuth(self._vault, self._name, self._url, asker)
        signer.use(asker, credential)
        return credential.owner, signer

    async def connect_error(self, call: Call, missing: NotConnected) -> ToolwireError:
        """Return the error that asks a caller to connect the account again, because the server refused it."""
        return await connect_error(call, self._vault, missing)


def signed_place(
    vault: Vault, name: str, place: Target, kind: Kind | None, lists: Kind | None
) -> tuple[Target, BackCredentials | None]:
    """Return the place of a server with the credential of the gateway, and the credentials of callers if they differ.

    Lists, and changes of them, belong to no caller. So an account of a caller never reads them.
    """
    if not isinstance(place, HttpTarget):
        raise ServerError(f"credentials= is for servers that are reached by URL, and {name!r} is not")
    of_calls, of_lists = credential_names(name)
    kind = NoCredential() if kind is None else kind
    if lists is not None and (lists.is_per_user or not kind.is_per_user):
        raise ServerError(
            f"list_credentials= of {name!r} is an account of the gateway, beside credentials= with accounts of callers"
        )
    vault.add(of_calls, _for(kind, place.url))
    if not kind.is_per_user:
        return place.signed_by(OwnerAuth(vault, of_calls, place.url, Asker(None))), None
    vault.add(of_lists, _for(NoCredential() if lists is None else lists, place.url))
    for_lists = place.signed_by(OwnerAuth(vault, of_lists, place.url, Asker(None)))
    return for_lists, BackCredentials(vault, of_calls, place.url)


def _for(kind: Kind, url: str) -> Kind:
    """Return a kind whose tokens are for the server at a URL (RFC 8707), unless it names another resource."""
    if not isinstance(kind, Provider) or kind.resource is not None or kind.token_endpoint is not None:
        return kind
    named = copy(kind)
    named.resource = url
    return named
