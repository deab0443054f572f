"""`Policy`: the rules of a server, of one of its components, or of a caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from toolwire.protocol.errors import ServerError
from toolwire.server.policy.scopes import with_implied


class Policy(Struct, frozen=True, kw_only=True, eq=False):
    """What callers may do. Everything that is left out is allowed."""

    implies: Mapping[str, Iterable[str]] = {}
    """Scopes that bring others with them: `{"admin": ["read", "write"]}`."""

    def __post_init__(self) -> None:
        for scope, implied in self.implies.items():
            if isinstance(implied, str) or not all(isinstance(each, str) for each in (scope, *implied)):
                raise ServerError(f"implies= maps a scope to a list of scopes; {scope!r} has {implied!r}")

    def effective_scopes(self, scopes: Iterable[str]) -> frozenset[str]:
        """The scopes that count for a caller who holds these."""
        return with_implied(scopes, self.implies)
