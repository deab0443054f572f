"""`credential`: the caller's own account at another service, as a dependency of a tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from toolwire.protocol.errors import ServerError


class ObtainedCredential(Protocol):
    """A credential, as far as a dependency needs it."""

    token: str

    @property
    def is_bound(self) -> bool: ...


if TYPE_CHECKING:
    # Only type checkers know it. So a parameter with this annotation gets the context of the request, as one does whose
    # module imports `Context` for type checkers only. The class itself belongs to a layer above.
    class Context(Protocol):
        """The context of a request, as far as a dependency needs it."""

        async def credential(self, name: str, *, scopes: Iterable[str] = ()) -> ObtainedCredential: ...


class CredentialToken(Struct, frozen=True):
    """The dependency that `credential` makes. Equal ones run once in a request."""

    name: str
    scopes: tuple[str, ...] = ()

    async def __call__(self, ctx: Context) -> str:
        found = await ctx.credential(self.name, scopes=self.scopes)
        if found.is_bound:
            raise ServerError(
                f"The token of {self.name!r} is bound to a key, and is of no use alone: "
                f"await ctx.credential({self.name!r}), and send its headers(method, url)"
            )
        return found.token


def credential(name: str, *, scopes: Iterable[str] = ()) -> Callable[..., Awaitable[str]]:
    """Give a tool the token of an account at another service, with `Depends`.

    `name` is that of an entry in `credentials=` of the server, which says whose account it is. `scopes` are what the
    tool needs beside the scopes there. Where the caller has not connected an account yet, the tool does not run: the
    caller is asked to open the page for that.

        @server.tool
        async def issues(repo: str, token: str = Depends(credential("github"))) -> list[str]: ...
    """
    if isinstance(scopes, str):
        raise ServerError("scopes= is a list of texts")
    return CredentialToken(name, tuple(scopes))
