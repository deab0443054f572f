"""Change a server for the time of a test: other dependencies, no rates and quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from toolwire.server.policy.enforcement import Counting
from toolwire.server.server import Server

# Seconds between two looks at a task. A client never looks more often.
_POLL: Final = 0.01


@contextmanager
def replaced(server: Any, functions: Mapping[Any, Any]) -> Iterator[None]:
    """Replace dependencies of handlers within the block: `testing.replaced(server, {connect: fake_connect})`.

    The new function is a dependency like any other: it may be `async`, yield its value, take the context, and have
    dependencies of its own. The dependencies of the replaced function are not made. Raise `LookupError` for a function
    that no handler depends on.
    """
    catalogs = (server.catalog, *server.catalog.family())
    completions = [each for catalog in catalogs for each in catalog.completions.values()]
    for component in (*server.templates, *server.prompts):
        completions += component.completions.values()
    components = [*server.tools, *server.resources, *server.templates, *server.prompts, *completions]
    try:
        for function, other in functions.items():
            if not [each for each in components if each.replace_dependencies({function: other})]:
                raise LookupError(f"no component of {server!r} depends on {function!r}")
        for each in components:
            each.replace_dependencies(functions)
        yield
    finally:
        for each in components:
            each.replace_dependencies({})


class _NoCounters:
    def take(self, counted: Any, caller: str, name: str) -> None:
        """Let every call through."""


class _NoSharedCounters:
    async def take(self, counted: Any, caller: str, name: str) -> list[str]:
        """Let every call through."""
        return []


@contextmanager
def uncounted(server: Any) -> Iterator[None]:
    """Switch off rates and quotas of a server in the block, and poll tasks quickly.

    A check then tests the tool and not its limits.
    """
    enforcer = getattr(server, "enforcer", None)
    limits = server.limits if isinstance(server, Server) else None
    nobody: Any = Counting(_NoCounters, _NoSharedCounters())  # type: ignore[arg-type]
    counting = None if enforcer is None else enforcer.count_with(nobody)
    if limits is not None:
        server.limits = replace(limits, task_poll=_POLL)
    try:
        yield
    finally:
        if enforcer is not None:
            enforcer.count_with(counting)
        if limits is not None:
            server.limits = limits
