"""The middleware of mounted servers, which runs around their components in the server that mounts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from toolwire.protocol import types as t
from toolwire.server.call import Call
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Catalog, Mount, Owner
from toolwire.server.context import Context, MountedContext, call_of
from toolwire.server.middleware import Operation, chain_of

Guarded: TypeAlias = Callable[[Call, Operation], Awaitable[Any]]

# The methods that concern one component. A list concerns all servers, so no mounted middleware runs around it.
_METHODS: Final = ("tools/call", "resources/read", "prompts/get", "completion/complete")


def around_mounted(
    catalog: Catalog, operations: Mapping[str, Operation], extended: Operation, guarded: Guarded
) -> tuple[dict[str, Operation], Operation]:
    """Return the operations of a server, within the middleware of mounted servers if there is any.

    `extended` serves the methods of extensions. `guarded` runs a chain of middleware, and makes the answer if the chain
    raises or asks a question.
    """
    if not any(each.owner.kernel.middleware for each in catalog.family()):
        return dict(operations), extended
    around = {method: _Around(operations[method], guarded) for method in _METHODS}
    return {**operations, **around}, _Around(extended, guarded)


class _Around:
    """One operation. A call of a mounted server's component passes the middleware of every server on the way to it.

    A method of an extension counts as a component.
    """

    def __init__(self, operation: Operation, guarded: Guarded) -> None:
        self._operation = operation
        self._guarded = guarded
        self._chains: dict[tuple[Mount, ...], Operation] = {}

    def __call__(self, call: Call) -> Awaitable[Any]:
        target = target_of(call)
        found = None if target is None else target.found
        if found is None or not found.way:
            return self._operation(call)
        chain = self._chains.get(found.way)
        if chain is None:
            chain = self._chains[found.way] = self._chain(found.way)
        return self._guarded(call, chain)

    def _chain(self, way: tuple[Mount, ...]) -> Operation:
        chain = self._operation
        for depth in range(len(way), 0, -1):
            prefix = "".join(mount.prefix for mount in way[:depth])
            chain = _around(way[depth - 1].catalog.owner, prefix, chain)
        return chain


def _around(server: Owner, prefix: str, operation: Operation) -> Operation:
    """Return the operation inside the middleware of a mounted server, which sees its components without the prefix."""
    if not server.kernel.middleware:
        return operation

    def leave(ctx: Context) -> Awaitable[Any]:
        call = call_of(ctx)
        call.request.params = _renamed(ctx.params, lambda name: prefix + name)
        return operation(call)

    chain = chain_of(server.kernel.middleware, leave)

    def enter(call: Call) -> Awaitable[Any]:
        return chain(MountedContext(call, server, _renamed(call.params, lambda name: name.removeprefix(prefix))))

    return enter


def _renamed(params: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(params, t.CallToolRequestParams | t.GetPromptRequestParams):
        return msgspec.structs.replace(params, name=rename(params.name))
    if isinstance(params, t.CompleteRequestParams) and isinstance(params.ref, t.PromptReference):
        return msgspec.structs.replace(params, ref=t.PromptReference(rename(params.ref.name)))
    return params
