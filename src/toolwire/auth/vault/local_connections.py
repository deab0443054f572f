"""Connect an account of the user who started this process, with a browser (stdio).

The provider sends the browser back to a port of this machine. So an address that is sent to a person on another machine
connects nothing: their browser comes back to their own machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from toolwire.auth.client.callback import CallbackServer
from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.authorization import Attempt, query_parameters
from toolwire.auth.flow.scopes import Scopes
from toolwire.auth.vault.links import LINK_SECONDS
from toolwire.auth.vault.local_secret_page import SecretPage
from toolwire.auth.vault.records import Owner
from toolwire.auth.verify.verifier import Unavailable
from toolwire.protocol.errors import ServerError

log: logging.Logger = logging.getLogger("toolwire.auth")


class Connects(Protocol):
    """The vault, as far as it connects accounts."""

    def identity(self, name: str) -> str: ...

    async def begin(self, name: str, redirect_uri: str, scopes: Scopes = (), *, identity: str) -> Attempt: ...

    async def finish(
        self, name: str, owner: Owner, attempt: Attempt, parameters: Mapping[str, str], *, identity: str
    ) -> None: ...

    def holder(self, name: str, owner: Owner) -> Owner: ...

    async def store(self, name: str, owner: Owner, secret: str, *, identity: str) -> None: ...


class LocalConnections:
    """Runs one sign-in at a time for each account and set of scopes.

    Each is for the settings with which it began, and connects nothing after they changed.
    """

    def __init__(self, vault: Connects) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._vault = vault
        # By the name of the account, the identity of its settings, and the scopes.
        self._pending: dict[tuple[str, str, Scopes], tuple[str, asyncio.Task[None]]] = {}
        self.on_connected: dict[str, Callable[[], object]] = {}
        """Called once when the account of an address is connected, by the address."""
        self._lock = asyncio.Lock()

    async def url(self, name: str, owner: Owner, scopes: Scopes) -> str:
        """Return the address that the user opens, and wait for the answer beside. Raise `SignInFailed`."""
        async with self._lock:
            identity = self._vault.identity(name)
            key = (name, identity, scopes)
            known = self._pending.get(key)
            if known is not None:
                return known[0]
            callback = await CallbackServer().__aenter__()
            try:
                attempt = await self._vault.begin(name, callback.redirect_uri, scopes, identity=identity)
            except BaseException:
                await callback.__aexit__(None, None, None)
                raise
            callback.expect(attempt.state)
            waiting = asyncio.get_running_loop().create_task(self._wait(callback, name, identity, owner, attempt))
            self._pending[key] = (attempt.url, waiting)
            waiting.add_done_callback(lambda _: self._over(key))
            return attempt.url

    def _over(self, key: tuple[str, str, Scopes]) -> None:
        url, _ = self._pending.pop(key)
        self.on_connected.pop(url, None)

    def _tell_connected(self, name: str, url: str) -> None:
        log.info("an account for %r was connected", name)
        tell = self.on_connected.pop(url, None)
        if tell is not None:
            tell()

    async def secret_url(self, name: str, owner: Owner, hint: str) -> str:
        """Return the address at which the user enters a secret. Raise `SignInFailed`."""
        async with self._lock:
            identity = self._vault.identity(name)
            key = (name, identity, ())
            known = self._pending.get(key)
            if known is not None:
                return known[0]
            entering = SecretPage(name, hint, partial(self._vault.store, name, owner, identity=identity))
            url = await entering.open()
            waiting = asyncio.get_running_loop().create_task(self._wait_for_secret(entering, name, url))
            self._pending[key] = (url, waiting)
            waiting.add_done_callback(lambda _: self._over(key))
            return url

    async def _wait_for_secret(self, entering: SecretPage, name: str, url: str) -> None:
        try:
            if await entering.wait(LINK_SECONDS):
                self._tell_connected(name, url)
        finally:
            await entering.close()

    async def _wait(self, callback: CallbackServer, name: str, identity: str, owner: Owner, attempt: Attempt) -> None:
        try:
            answer = await callback.answer(LINK_SECONDS)
            holder, parameters = self._vault.holder(name, owner), query_parameters(answer)
            await self._vault.finish(name, holder, attempt, parameters, identity=identity)
            self._tell_connected(name, attempt.url)
        except (SignInFailed, Unavailable, ServerError) as error:
            log.warning("an account for %r was not connected: %s", name, error)
        finally:
            await callback.__aexit__(None, None, None)

    async def settled(self) -> None:
        """Wait for the sign-ins that are under way."""
        if self._pending:
            await asyncio.wait([task for _, task in self._pending.values()])

    async def close(self) -> None:
        """Give up the sign-ins that are under way."""
        for _, task in tuple(self._pending.values()):
            task.cancel()
        await self.settled()
