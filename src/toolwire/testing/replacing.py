"""Other functions in the place of those that make what handlers depend on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(server: Any, functions: Mapping[Any, Any]) -> Iterator[None]:
    """Within the block, others make what handlers depend on: `testing.replaced(server, {connect: fake_connect})`.

    The other function is a dependency like any: it may be `async`, yield its value, take the context and dependencies
    of its own. What the replaced one depends on is not made. `LookupError` for a function that nothing depends on.
    """
    catalogs = (server.catalog, *server.catalog.family())
    completions = [each for catalog in catalogs for each in catalog.completions.values()]
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
