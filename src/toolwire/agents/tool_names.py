"""Names of tools that a program gives, each for the server that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Collection

from toolwire.client.config import owner_of


class ToolNames:
    """Tools that a program has named, with or without the name of the server."""

    def __init__(self, names: Collection[str], servers: Callable[[], Collection[str]]) -> None:
        """`servers` returns the names of all servers."""
        self._names = frozenset(names)
        self._servers = servers

    def has(self, server: str, tool: str) -> bool:
        """Return whether a tool was named; with a server, only at this server."""
        if f"{server}_{tool}" in self._names:
            return True
        return tool in self._names and owner_of(tool, self._servers()) in (None, server)
