"""`Settings`: the options of a server that its parts read for each request.

They never change. A server whose options change gets another object (`Server.apply_settings`), and every call keeps
the one that it began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

from msgspec import Struct, structs

from toolwire.auth.principal import Principal
from toolwire.protocol import types as t
from toolwire.server.components.cache import Cache
from toolwire.server.components.restriction import Effective
from toolwire.server.limits import Limits


class Settings(Struct, frozen=True, kw_only=True, eq=False):
    """The options of a server that may change while it runs."""

    identity: t.Implementation
    """The name, version, title, description, address and icons that clients are told."""
    instructions: str
    capabilities: Mapping[str, Any]
    """The capabilities that do not follow from the components."""
    auth: Any
    local_principal: Principal | None
    policy: Any  # A `Policy`, which few servers import.
    limits: Limits
    audit: Any  # An `AuditLog`, which few servers import.
    page_size: int
    cache: Cache
    debug: bool
    search: Any = None  # `SearchSettings`, which few servers import; None for no search.
    beside: Any = None
    """The `Settings` whose policy and `auth=` hold, too, while others take their place; None for none."""

    @property
    def reserved_tools(self) -> frozenset[str]:
        """The names that no tool of the server can have."""
        if self.search is None:
            return frozenset()
        from toolwire.search.settings import TOOL_NAMES  # Here, because few servers have a search.

        return TOOL_NAMES

    @property
    def policies(self) -> tuple[Any, ...]:
        """The policies that hold: one, or two while another one takes its place."""
        if self.beside is None or self.beside.policy is self.policy:
            return (self.policy,)
        return (self.policy, self.beside.policy)

    def narrowed_to(self, other: Settings) -> Self:
        """Return these settings for the time until others take their place.

        Callers may do what both allow.
        """
        principal = _narrow_principal(self.local_principal, other.local_principal)
        return structs.replace(self, policy=other.policy, auth=other.auth, local_principal=principal, beside=self)

    def kept_after(self, before: Settings) -> Self:
        """Return these settings so that what differs from `before` stays when others take their place."""
        if self.beside is None or self.beside is not before.beside:
            return self
        fields = self.__struct_fields__
        changes = {name: getattr(self, name) for name in fields if getattr(self, name) is not getattr(before, name)}
        return structs.replace(self, beside=structs.replace(self.beside, **changes))

    def has_same_admission(self, other: Settings) -> bool:
        """Return whether the same callers are let in, and held to the same policies."""
        if self.auth is not other.auth or self.policy is not other.policy:
            return False
        one, two = self.beside, other.beside
        return one is two or (None not in (one, two) and one.has_same_admission(two))

    def find_effective(self) -> Effective | None:
        """Combine the scope expansions of all policies; None where no scope implies another."""
        policies = self.policies
        found = [each.effective_scopes for each in policies if each is not None and each.implies]
        if len(found) < len(policies):
            return None
        if len(found) == 1:
            return lru_cache(maxsize=1024)(found[0])
        return lru_cache(maxsize=1024)(lambda scopes: frozenset.intersection(*(each(scopes) for each in found)))


def _narrow_principal(one: Principal | None, other: Principal | None) -> Principal | None:
    """Return a local caller who may do what both of these may. None may do everything."""
    if one is None or other is None or one is other:
        return one or other
    return structs.replace(other, scopes=one.scopes & other.scopes)
