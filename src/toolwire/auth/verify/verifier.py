"""The protocol of verifiers: a token goes in, its principal comes out.

`None` says that the token means nothing here; `InvalidToken` says why, in words that may reach the caller;
`Unavailable` says that the issuer did not answer, so that an outage is not mistaken for a bad token.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from toolwire.auth.principal import Principal
from toolwire.protocol.errors import ServerError, ToolwireError


class InvalidToken(ToolwireError):
    """The token is refused.

    The text may reach the caller, so it names no secret and nothing internal.
    """


class ExpiredToken(InvalidToken):
    """The token was valid and has expired, so it is not a guess."""


class Unavailable(ToolwireError):
    """The token cannot be checked now, because its provider did not answer."""

    def __init__(self, message: str, retry_after: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@runtime_checkable
class Verifier(Protocol):
    """Tells whose token it is. Any object with this method will do."""

    async def verify(self, token: str) -> Principal | None: ...


class Asker(Protocol):
    """The caller on whose behalf a verifier asks a provider about a token."""

    def check(self) -> None:
        """Raise `Unavailable` where too much was asked in vain on their behalf."""

    def count_in_vain(self) -> None:
        """Count that something was asked in vain."""


Verify: TypeAlias = "Callable[[str, Asker | None], Awaitable[Principal | None]]"


def verification(verifier: Verifier) -> Verify:
    """Return the function that verifies.

    A verifier that asks a provider has `verify_for`, which also gets the caller.
    """
    told: Verify | None = getattr(verifier, "verify_for", None)
    return told or (lambda token, asker: verifier.verify(token))


def recollection(verifier: Verifier) -> Callable[[str], Principal | None] | None:
    """Return the function that looks up a token verified before; None without one.

    A class that overrides how tokens are verified, such as one that looks up revoked tokens, is asked every time.
    """
    for names in (getattr(verifier, "__dict__", {}), *map(vars, type(verifier).__mro__)):
        if "recall" in names:
            recall: Callable[[str], Principal | None] = verifier.recall  # type: ignore[attr-defined]
            return recall
        if "verify" in names or "verify_for" in names:
            return None
    return None


VerifyFunction: TypeAlias = Callable[[str], "Principal | Awaitable[Principal | None] | None"]
Verifies: TypeAlias = "Verifier | VerifyFunction | Sequence[Verifier | VerifyFunction]"


class Function:
    """A verifier made of any callable.

    One that is not `async` runs in a thread, since it may wait.
    """

    def __init__(self, function: VerifyFunction) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

    async def verify(self, token: str) -> Principal | None:
        found: Any = self._function(token) if self._is_async else await asyncio.to_thread(self._function, token)
        if inspect.isawaitable(found):
            found = await found
        if found is not None and not isinstance(found, Principal):
            raise TypeError(f"A verifier returns a Principal or None, not {type(found).__name__}")
        return found


class Chain:
    """Several verifiers, asked in turn until one knows the token."""

    def __init__(self, verifiers: Iterable[Verifier | VerifyFunction]) -> None:
        self.verifiers: list[Verifier] = [as_verifier(each) for each in verifiers]
        if not self.verifiers:
            raise ServerError("A chain needs at least one verifier")
        self._verifications = [
            (verification(each), getattr(each, "admits_all", False) is True) for each in self.verifiers
        ]

    async def verify(self, token: str) -> Principal | None:
        return await self.verify_for(token, None)

    async def verify_for(self, token: str, asker: Asker | None) -> Principal | None:
        """Verify a token on behalf of a caller."""
        refusal: InvalidToken | None = None
        outage: Unavailable | None = None
        for verify, admits_all in self._verifications:
            if admits_all and outage is not None:
                continue  # The caller may be known to a provider that is unreachable, and must not become anonymous.
            try:
                principal = await verify(token, asker)
            except InvalidToken as error:
                refusal = refusal or error
            except Unavailable as error:
                outage = outage or error
            else:
                if principal is not None:
                    return principal
        # A verifier that could not be asked might have known the token, so the token must not be refused.
        if outage is not None:
            raise outage
        if refusal is not None:
            raise refusal
        return None


def each_of(verifier: Verifier) -> Iterator[Verifier]:
    """Yield a verifier, or all that a chain is made of."""
    if isinstance(verifier, Chain):
        for inner in verifier.verifiers:
            yield from each_of(inner)
    else:
        yield verifier


def has_unique_usernames(verifier: Verifier) -> bool:
    """Return whether all verifiers of a chain have unique user names, ignoring case.

    A verifier says so with `unique_usernames = True`.
    """
    return all(getattr(each, "unique_usernames", False) is True for each in each_of(verifier))


def as_verifier(value: Any) -> Verifier:
    """Make one verifier of a verifier, a callable, or a list of either."""
    if isinstance(value, Verifier):
        return value
    if isinstance(value, list | tuple):
        return Chain(value)
    if callable(value):
        return Function(value)
    raise ServerError(f"auth= takes a verifier, a callable, a list of those or a ResourceServer, not {value!r}")
