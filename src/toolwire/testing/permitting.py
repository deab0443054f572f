"""What a caller sees of a server, and what it may use of that."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from toolwire.auth.principal import Principal
from toolwire.auth.resource import as_resource_server

Permission: TypeAlias = Literal["usable", "refused", "hidden"]


class Permissions(Struct, frozen=True, kw_only=True):
    """For each component by its name or address: `usable`, `refused` (seen, and not to be used) or `hidden`."""

    tools: dict[str, Permission]
    resources: dict[str, Permission]
    templates: dict[str, Permission]
    prompts: dict[str, Permission]


def permissions(server: Any, principal: Principal | None = None) -> Permissions:
    """What a caller over HTTP may do; None is one who shows no token. Nothing is called.

    Whom `auth=` does not let in sees nothing.
    """
    access, catalog = server.kernel.access, server.catalog
    let_in = _is_let_in(server, principal)
    view = access.view_of(principal)

    def of(kind: str) -> dict[str, Permission]:
        seen = catalog.all(kind, view)
        found: dict[str, Permission] = {}
        for name in catalog.all(kind):
            if not let_in or name not in seen:
                found[name] = "hidden"
            else:
                found[name] = "usable" if access.permits(principal, seen[name]) else "refused"
        return found

    return Permissions(tools=of("tools"), resources=of("resources"), templates=of("templates"), prompts=of("prompts"))


def _is_let_in(server: Any, principal: Principal | None) -> bool:
    resource_server = as_resource_server(server.auth)
    if resource_server is None:
        return True
    if principal is None or not resource_server.allows(principal):
        return False
    scopes: frozenset[str] = server.kernel.access.effective(principal.scopes)
    return resource_server.scopes <= scopes
