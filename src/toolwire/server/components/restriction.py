"""Restrictions of components: the scopes that a call needs, and who sees that a component exists."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from toolwire.auth.principal import Principal
from toolwire.loops import plain_callback
from toolwire.protocol.errors import ServerError

log: logging.Logger = logging.getLogger("toolwire.server")

#: Adds the scopes that others imply.
Effective: TypeAlias = Callable[[frozenset[str]], frozenset[str]]
VisibleTo: TypeAlias = "str | Iterable[str] | Callable[[Principal], bool] | None"


class ListClient(Struct, frozen=True):
    """The client of a request, as far as lists may differ between clients."""

    session: Hashable
    """The connection of a legacy client, or the id of its HTTP session; None for any other client."""
    capabilities: Mapping[str, Any]
    """The capabilities that it declares."""


#: Stands for all clients, where a question is about a principal alone.
ANY_CLIENT: Final = ListClient(object(), {})


class Audience(Struct, frozen=True):
    """An audience: callers who have one of the scopes, or whom a function picks."""

    scopes: frozenset[str] = frozenset()
    picks: Callable[[Principal], bool] | None = None
    clients: Callable[[ListClient], bool] | None = None
    """Picks clients, whatever principal they have. It says nothing of permissions."""

    def admits(self, principal: Principal | None, scopes: frozenset[str], client: ListClient = ANY_CLIENT) -> bool:
        """Return whether this caller, who has these scopes and this client, is among them."""
        if self.clients is not None:
            return client is ANY_CLIENT or self.clients(client)
        if principal is None:
            return False
        if self.picks is None:
            return not self.scopes.isdisjoint(scopes)
        try:
            return self.picks(principal) is True
        except Exception:
            # An error hides the component: the author of the function wanted to keep somebody out.
            log.exception("visible_to= failed, so nobody sees the component")
            return False


class TagRule(Struct, frozen=True):
    """A rule for every component with a tag."""

    scopes: frozenset[str]
    visible_to: Audience | None


def audience_of(visible_to: VisibleTo) -> Audience | None:
    if visible_to is None:
        return None
    if callable(visible_to):
        return Audience(picks=plain_callback(visible_to, "visible_to="))
    return Audience(names_of(visible_to, "visible_to="))


# One object for all, because most components have no names of any kind.
_NOBODY: Final[frozenset[str]] = frozenset()


def names_of(names: str | Iterable[str] | None, what: str) -> frozenset[str]:
    """Return the names in one name, several, or none."""
    if names is None:
        return _NOBODY
    found: list[Any] = [names] if isinstance(names, str) else list(names)
    if not all(isinstance(each, str) and each and " " not in each for each in found):
        raise ServerError(f"{what} takes names without spaces, not {names!r}")
    return frozenset(found)
