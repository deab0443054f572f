"""The upstream of a component in `_meta`: the servers that lead to it, and its name there.

A gateway writes it into its lists, in place of what an upstream says of itself. A host compares it, so that a view
reaches its own upstream only, and names it in the calls and reads of the view.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

#: The key of `_meta`. Its value has `servers`, and for tools `name`.
UPSTREAM_KEY: Final = "io.toolwire/upstream"
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
    if not isinstance(servers, list) or not 0 < len(servers) <= MAX_SERVERS or not all(map(_is_name, servers)):
        return UpstreamPath()
    return UpstreamPath(tuple(servers), name if _is_name(name) else None)


def upstream_meta(upstream: UpstreamPath) -> dict[str, Any]:
    """Return the member of `_meta` that says which upstream a component, or a view, belongs to."""
    named = {} if upstream.name is None else {"name": upstream.name}
    return {UPSTREAM_KEY: {"servers": list(upstream.servers), **named}}


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME
