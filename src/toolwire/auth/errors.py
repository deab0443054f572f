"""Errors of a client's sign-in. Each is an `Unauthorized`, and no message holds a secret."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from toolwire.protocol.errors import Unauthorized

_SHOWN: Final = 200


def quoted(text: str) -> str:
    """Make a text of the other side fit for a message: one line, printable, short."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN])


class SignInFailed(Unauthorized):
    """Signing in did not work; the message names the step that failed."""


class Refused(SignInFailed):
    """An authorization server said no. `error` is its code, `invalid_grant` say."""

    def __init__(self, step: str, error: str, description: str = "") -> None:
        self.error: str = quoted(error)
        self.description: str = quoted(description)
        super().__init__(f"{step} was refused: {self.error}" + (f" ({self.description})" if description else ""))


class NeedsLogin(Unauthorized):
    """A person has to open `url` and sign in, and this program cannot ask one.

    Afterwards the browser is sent to the redirect URI. Hand the whole address it was sent to (or the code alone, where
    the person was only shown a code) to `finish`, or to `OAuth.finish` in another process that shares the storage; then
    call again.
    """

    def __init__(self, url: str, finish: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(f"A person has to sign in first: open {url}")
        self.url: str = url
        self._finish = finish

    def finish(self, answer: str) -> Awaitable[None]:
        return self._finish(answer)


class NotConnected(Unauthorized):
    """The owner has to connect an account, or connect it again.

    `scopes` are what it needs.
    """

    def __init__(self, name: str, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(f"There is no account for {name!r}")
        self.name = name
        self.scopes = scopes
