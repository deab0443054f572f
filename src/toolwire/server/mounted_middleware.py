"""The middleware of mounted servers, around what they offer through the server that mounts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from toolwire.protocol import types as t
from toolwire.server.call_target import subject_of
from toolwire.server.catalog import Catalog, Mount
from toolwire.server.context import Context
from toolwire.server.middleware import Next, answering, compose

Guard: TypeAlias = Callable[[Context, Next], Awaitable[Any]]

# Those that run something of a component. Lists are of all servers together, and so of none that is mounted.
_METHODS: Final = ("tools/call", "resources/read", "prompts/get", "completion/complete")


def around_mounted(catalog: Catalog, operations: Mapping[str, Next], guard: Guard) -> dict[str, Next]:
    """The operations of a server, within the middleware of mounted ones if there is any; `guard` runs a chain of it."""
    if not any(each.owner.kernel.own_middleware for each in catalog.family()):
        return dict(operations)
    return {**operations, **{method: _Around(operations[method], guard) for method in _METHODS}}


class _Around:
    """One operation. What belongs to a mounted server passes the middleware of every server on the way to it."""

    def __init__(self, operation: Next, guard: Guard) -> None:
        self._operation = operation
        self._guard = guard
        self._chains: dict[tuple[Mount, ...], Next] = {}

    def __call__(self, ctx: Context) -> Awaitable[Any]:
        subject = subject_of(ctx)
        found = None if subject is None else subject.found
        if found is None or not found.way:
            return self._operation(ctx)
        chain = self._chains.get(found.way)
        if chain is None:
            chain = self._chains[found.way] = self._chain(found.way)
        return self._guard(ctx, chain)

    def _chain(self, way: tuple[Mount, ...]) -> Next:
        chain = self._operation
        for depth in range(len(way), 0, -1):
            prefix = "".join(mount.prefix for mount in way[:depth])
            chain = _around(way[depth - 1].catalog.owner, prefix, chain)
        return chain


def _around(server: Any, prefix: str, following: Next) -> Next:
    middleware = [answering(each) for each in server.kernel.own_middleware]

    async def leave(inside: Any) -> Any:
        ctx: Context = inside._outside
        ctx._request.params = _renamed(inside.params, lambda name: prefix + name)
        return await following(ctx)

    chain = compose(middleware, leave)
    return (lambda ctx: chain(_Inside(ctx, server, prefix))) if middleware else following


class _Inside(Context):
    """A request as a mounted server knows it: under its own names. All else is that of the request itself."""

    __slots__ = ("_outside", "_owner", "_request")

    def __init__(self, ctx: Context, server: Any, prefix: str) -> None:
        self.__dict__ = ctx.__dict__
        self._outside = ctx
        self._owner = server
        params = _renamed(ctx.params, lambda name: name.removeprefix(prefix))
        self._request = msgspec.structs.replace(ctx._request, params=params)


def _renamed(params: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(params, t.CallToolRequestParams | t.GetPromptRequestParams):
        return msgspec.structs.replace(params, name=rename(params.name))
    if isinstance(params, t.CompleteRequestParams) and isinstance(params.ref, t.PromptReference):
        return msgspec.structs.replace(params, ref=t.PromptReference(rename(params.ref.name)))
    return params
