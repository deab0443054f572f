"""The credentials with which a gateway acts at one server behind it.

The token of a caller never goes there, unless `Passthrough` says so. A server that answers 401 or 403 means the
credential that it got, and not the caller of this server. So no such answer becomes one of ours: it leads to another
token, to a question to connect an account, or to an error that names the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from toolwire.auth.errors import NotConnected
from toolwire.auth.vault.vault import Asker, Credential, Vault
from toolwire.auth.verify.verifier import Unavailable
from toolwire.protocol.errors import ToolwireError, Unreachable
from toolwire.server.call import Call
from toolwire.server.credentials import asker_of, connect_error, credential_for

#: For how many seconds a credential is used that was obtained for a call. A request that comes later asks the vault.
FRESH_SECONDS: Final = 1.0
#: How often one request is sent again because the server refused its token.
MAX_REFUSALS: Final = 2


class HasVault(Protocol):
    """The gateway, whose vault has the credentials."""

    @property
    def vault(self) -> Vault: ...


class OwnerAuth:
    """Signs the requests of one owner to a server: an `Auth` of the HTTP client."""

    def __init__(self, host: HasVault, name: str, asker: Asker) -> None:
        self._host = host
        self._name = name
        self._asker = asker
        self._obtained: tuple[float, Credential] | None = None
        # By the task of a request: the token that it was sent with, and how often it was refused.
        self._sent: WeakKeyDictionary[asyncio.Task[object], tuple[Credential, int]] = WeakKeyDictionary()

    def use(self, asker: Asker, credential: Credential) -> None:
        """Sign the next requests with the credential that was obtained for a call."""
        self._asker = asker
        self._obtained = (asyncio.get_running_loop().time() + FRESH_SECONDS, credential)

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        credential = await self._current()
        task = asyncio.current_task()
        if task is not None:
            _, refusals = self._sent.get(task, (credential, 0))
            self._sent[task] = (credential, refusals)
        return credential.headers(method, url)

    async def _current(self) -> Credential:
        if self._obtained is not None and asyncio.get_running_loop().time() < self._obtained[0]:
            return self._obtained[1]
        return await self._obtain(None)

    async def _obtain(self, refused: str | None) -> Credential:
        try:
            found = await self._host.vault.obtain(self._name, self._asker, refused=refused)
        except Unavailable as error:
            raise Unreachable(str(error)) from None
        self.use(self._asker, found)
        return found

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
        task = asyncio.current_task()
        sent = None if task is None else self._sent.get(task)
        if task is None or sent is None:
            return False
        credential, refusals = sent
        if refusals >= MAX_REFUSALS:
            self._sent.pop(task, None)
            return False
        self._sent[task] = (credential, refusals + 1)
        nonce = headers.get("dpop-nonce")
        if nonce is not None and credential.learn_nonce(url, nonce):
            return True
        if status != 401 or not credential.token:
            return False  # 403: another token of the same account may do no more.
        return (await self._obtain(credential.token)).token != credential.token


class BackCredentials:
    """The credentials of the callers of a gateway at one server."""

    def __init__(self, host: HasVault, name: str) -> None:
        self._host = host
        self._name = name
        self._signers: WeakValueDictionary[str, OwnerAuth] = WeakValueDictionary()

    async def signer(self, call: Call) -> tuple[str, OwnerAuth]:
        """Return the owner of the account for a call, and the object that signs requests for it.

        Raise `UrlRequired` or `ToolError` where the caller has to connect an account first.
        """
        credential = await credential_for(call, self._name)
        asker = asker_of(call, self._host.vault)
        signer = self._signers.get(credential.owner)
        if signer is None:
            signer = self._signers[credential.owner] = OwnerAuth(self._host, self._name, asker)
        signer.use(asker, credential)
        return credential.owner, signer

    async def connect_error(self, call: Call, missing: NotConnected) -> ToolwireError:
        """Return the error that asks a caller to connect the account again, because the server refused it."""
        return await connect_error(call, missing)
