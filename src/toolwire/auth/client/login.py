"""Ways to ask a person to sign in: a browser, an application's function, or none."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Literal
from urllib.parse import urlsplit

from toolwire.auth.client.callback import CallbackServer
from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.authorization import Attempt
from toolwire.auth.flow.urls import is_loopback_host

#: A function that takes the URL to open, and returns the whole address that the browser was redirected to.
AskPerson = Callable[[str], Awaitable[str]]
Login = Literal["browser"] | AskPerson | None
#: A function that takes the URL to open, so that a person can open it by hand.
Announce = Callable[[str], None]

#: The redirect URI for a program that does not listen. The person copies the address from the browser.
NOWHERE: Final = "http://127.0.0.1:8765/callback"


class SignInDoor(ABC):
    """A place where the answer of a sign-in arrives."""

    redirect_uri: str

    @abstractmethod
    async def ask(self, attempt: Attempt) -> str | None:
        """Send a person to `attempt.url` and wait for the answer; None without a person."""


class _Browser(SignInDoor):
    def __init__(self, callback: CallbackServer, seconds: float, announce: Announce | None) -> None:
        self._callback = callback
        self._seconds = seconds
        self._announce = announce
        self.redirect_uri = callback.redirect_uri

    async def ask(self, attempt: Attempt) -> str | None:
        self._callback.expect(attempt.state)
        if self._announce is not None:
            self._announce(attempt.url)
        # No shell is involved, and the scheme of the URL was checked before: it is http or https.
        is_open = has_browser() and await asyncio.to_thread(webbrowser.open, attempt.url)
        if not is_open and self._announce is None:
            return None
        return await self._callback.answer(self._seconds)


class _Application(SignInDoor):
    def __init__(self, ask: AskPerson, redirect_uri: str, seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self.redirect_uri = redirect_uri

    async def ask(self, attempt: Attempt) -> str | None:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._ask(attempt.url)
        except TimeoutError:
            raise SignInFailed(f"There was no sign-in within {self._seconds:g} s") from None


class _Nobody(SignInDoor):
    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri

    async def ask(self, attempt: Attempt) -> str | None:
        return None


@asynccontextmanager
async def open_door(
    login: Login,
    redirect_uri: str | None,
    registered: Sequence[str],
    seconds: float,
    announce: Announce | None = None,
) -> AsyncIterator[SignInDoor]:
    """Open a way to sign in, for one answer.

    `registered` are redirect URIs that the authorization server knows.
    """
    async with AsyncExitStack() as stack:
        if login is None or (login == "browser" and announce is None and not has_browser()):
            yield _Nobody(redirect_uri or NOWHERE)
        elif login == "browser":
            yield _Browser(await _listen(stack, redirect_uri, registered), seconds, announce)
        else:
            assert callable(login)
            yield _Application(login, redirect_uri or NOWHERE, seconds)


async def _listen(stack: AsyncExitStack, redirect_uri: str | None, registered: Sequence[str]) -> CallbackServer:
    if redirect_uri is not None:
        return await stack.enter_async_context(CallbackServer(redirect_uri))
    for known in registered:
        if is_loopback_host(urlsplit(known).hostname or ""):
            try:
                return await stack.enter_async_context(CallbackServer(known))
            except SignInFailed:
                continue  # Another program has the port now; another one has to be registered.
    return await stack.enter_async_context(CallbackServer())


def has_browser() -> bool:
    """Return whether a browser with a window can be opened here.

    One in the terminal would disturb the program.
    """
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
