"""The upstream of a component in `_meta`: the servers that lead to it, and its name there.

A gateway writes it into its lists, in place of what an upstream says of itself. A host compares it, so that a view
reaches its own upstream only, and names it in the calls and reads of the view.

The lists of a gateway also have marks of the gateways on the way, each with the servers that lead to it. A gateway that
finds its own mark leaves out what these servers list: nobody else's entries suffer from a server that copies a mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct

#: The key of `_meta`. Its value has `servers`, and for tools `name`.
UPSTREAM_KEY: Final = "io.toolwire/upstream"
#: `_meta` of a list: the marks of the gateways that its entries came through. Texts are marks of the server itself.
GATEWAYS_KEY: Final = "io.toolwire/gateways"
#: How many marks are taken from another server, and how long they are.
MAX_MARKS: Final = 100
MAX_MARK: Final = 200
#: How many servers lead to a component at most, and how long their names and those of tools are.
MAX_SERVERS: Final = 16
MAX_NAME: Final = 200


class UpstreamPath(NamedTuple):
    """The servers that lead to a component, the first one first, and the name that the last one gives it."""

    servers: tuple[str, ...] = ()
    name: str | None = None

    def has(self, servers: tuple[str, ...]) -> bool:
        """Return whether components of these servers belong to this upstream."""
        return servers[: len(self.servers)] == self.servers


def read_upstream(meta: Any) -> UpstreamPath:
    """Return what `_meta` says about the upstream; an upstream without servers if it says nothing."""
    value = meta.get(UPSTREAM_KEY) if isinstance(meta, dict) else None
    if not isinstance(value, dict):
        return UpstreamPath()
    servers, name = value.get("servers"), value.get("name")
    if not isinstance(servers, list) or not servers or not _is_way(servers):
        return UpstreamPath()
    return UpstreamPath(tuple(servers), name if _is_name(name) else None)


def upstream_meta(upstream: UpstreamPath) -> dict[str, Any]:
    """Return the member of `_meta` that says which upstream a component, or a view, belongs to."""
    named = {} if upstream.name is None else {"name": upstream.name}
    return {UPSTREAM_KEY: {"servers": list(upstream.servers), **named}}


class GatewayMark(Struct, frozen=True):
    """The mark of a gateway that entries of a list came through, and the servers that lead to it."""

    text: str
    servers: tuple[str, ...] = ()
    """Empty for the server that has the list."""

    def behind(self, servers: tuple[str, ...]) -> GatewayMark:
        """Return the mark as a gateway hands it on to which these servers lead."""
        return GatewayMark(self.text, (*servers, *self.servers)[:MAX_SERVERS])


def read_marks(meta: Any) -> list[GatewayMark]:
    """Return the marks in `_meta` of a list that another server wrote, as far as they are well-formed."""
    value = meta.get(GATEWAYS_KEY) if isinstance(meta, dict) else None
    found = map(_read_mark, value[:MAX_MARKS]) if isinstance(value, list) else ()
    return [each for each in found if each is not None]


def _read_mark(value: Any) -> GatewayMark | None:
    if isinstance(value, str):
        return GatewayMark(value[:MAX_MARK])
    text, servers = (value.get("mark"), value.get("servers")) if isinstance(value, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(servers, list) or not _is_way(servers):
        return None
    return GatewayMark(text[:MAX_MARK], tuple(servers))


def encode_marks(marks: Iterable[GatewayMark]) -> list[Any]:
    """Return the value of the member of `_meta` that has these marks."""
    return [{"mark": each.text, "servers": list(each.servers)} if each.servers else each.text for each in marks]


def _is_way(servers: list[Any]) -> bool:
    return len(servers) <= MAX_SERVERS and all(map(_is_name, servers))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME
