"""The middleware of mounted servers, which runs around their components in the server that mounts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError
from toolwire.server.call import Call
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Catalog, Mount, Owner
from toolwire.server.components import Component
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
            chain = _around(way[depth - 1].catalog.owner, way[:depth], chain)
        return chain


def _around(server: Owner, way: tuple[Mount, ...], operation: Operation) -> Operation:
    """Return the operation inside the middleware of a mounted server, to which `way` leads.

    The middleware sees the names and the arguments that its own server has.
    """
    if not server.kernel.middleware:
        return operation

    def leave(ctx: Context) -> Awaitable[Any]:
        call = call_of(ctx)
        call.request.params = _outward(ctx.params, way, _shapes(call, way))
        return operation(call)

    chain = chain_of(server.kernel.middleware, leave)

    def enter(call: Call) -> Awaitable[Any]:
        return chain(MountedContext(call, server, _inward(call.params, way, _shapes(call, way))))

    return enter


def _shapes(call: Call, way: tuple[Mount, ...]) -> list[Component]:
    """Return the forms that the component of a call has on a part of the way, from the outside in."""
    target = target_of(call)
    component = None if target is None or target.found is None else target.found.component
    shapes: list[Component] = []
    for mount in way:
        if component is not None and component.shaped_by is mount:
            shapes.append(component)
            component = component.original
    return shapes


def _inward(params: Any, way: tuple[Mount, ...], shapes: list[Component]) -> Any:
    """Return params as the server at the end of the way has them."""

    def rename(kind: str, name: str) -> str:
        for mount in way:
            name = mount.inner_name(kind, name) or name
        return name

    for each in shapes:
        params = _with_arguments(params, each.to_original, each.to_original_name)
    return _renamed(params, rename)


def _outward(params: Any, way: tuple[Mount, ...], shapes: list[Component]) -> Any:
    """Return params of the server at the end of the way as a client of this server sends them.

    A shape has the last word: what a middleware does to an argument that is fixed or hidden there has no effect.
    """

    def rename(kind: str, name: str) -> str:
        for mount in reversed(way):
            name = mount.public_name(kind, name)
        return name

    for each in reversed(shapes):
        params = _with_arguments(params, each.from_original, each.public_argument)
    return _renamed(params, rename)


def _renamed(params: Any, rename: Callable[[str, str], str]) -> Any:
    if isinstance(params, t.CallToolRequestParams):
        return msgspec.structs.replace(params, name=rename("tools", params.name))
    if isinstance(params, t.GetPromptRequestParams):
        return msgspec.structs.replace(params, name=rename("prompts", params.name))
    if isinstance(params, t.CompleteRequestParams) and isinstance(params.ref, t.PromptReference):
        return msgspec.structs.replace(params, ref=t.PromptReference(rename("prompts", params.ref.name)))
    return params


def _with_arguments(
    params: Any, change: Callable[[dict[str, Any]], dict[str, Any]], rename: Callable[[str], str | None]
) -> Any:
    """Return params with other arguments."""
    if isinstance(params, t.CallToolRequestParams | t.GetPromptRequestParams):
        given = {} if params.arguments is UNSET else _read_arguments(params.arguments)
        return msgspec.structs.replace(params, arguments=Raw(msgspec.json.encode(change(given))))
    if isinstance(params, t.CompleteRequestParams):
        argument = msgspec.structs.replace(params.argument, name=rename(params.argument.name) or params.argument.name)
        context = params.context
        if context is not UNSET and context.arguments is not UNSET:
            context = msgspec.structs.replace(context, arguments=change(context.arguments))
        return msgspec.structs.replace(params, argument=argument, context=context)
    return params


def _read_arguments(raw: Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise ProtocolError(
            INVALID_PARAMS, "The arguments must be one JSON object with a member for each argument"
        ) from None
