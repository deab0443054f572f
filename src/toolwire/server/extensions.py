"""Extensions: methods, notifications, result types and listen filters of one's own, under a negotiated name.

An extension is in force for a request only where both sides declared it (2026-07-28 basic/versioning, extension
negotiation). Everywhere else its methods are refused and its filters ignored.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import ServerError
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.revisions import MODERN, REVISIONS
from toolwire.server.call import Call
from toolwire.server.context import context_of

F = TypeVar("F", bound=Callable[..., Any])

# 2026-07-28 basic, `_meta`: the grammar of names, with the prefix that extensions must have.
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z][A-Za-z0-9-]*)+/[A-Za-z0-9][A-Za-z0-9_./-]*")


class OpenParams(t.RequestParams, kw_only=True):
    """The params of an extension method without a type of its own. `extra` has the members that this type lacks."""


class Extension:
    """One extension of a server."""

    def __init__(self, identifier: str, settings: Mapping[str, Any]) -> None:
        if _IDENTIFIER.fullmatch(identifier) is None:
            raise ServerError(
                f"{identifier!r} is not an extension name: use your domain in reverse, a slash and a name"
            )
        self.identifier = identifier
        self.settings: dict[str, Any] = dict(settings)
        self.rows: dict[str, Method] = {}
        self.handlers: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.filters: dict[str, Callable[[Any], Any]] = {}
        self.result_types: set[str] = set()

    def method(self, name: str, *, params: type[t.RequestParams] = OpenParams) -> Callable[[F], F]:
        """Register an async handler `(params, ctx)` for a request; `params` is a subclass of `types.RequestParams`.

        Without a type, the handler finds all members in `params.extra`.
        """
        return self._register(name, "request", params)

    def notification(self, name: str, *, params: type[t.NotificationParams] = t.NotificationParams) -> Callable[[F], F]:
        """Register a plain handler `(params)` for a notification of the client."""
        register = self._register(name, "notification", params)
        return lambda handler: register(plain_callback(handler, f"The notification {name}"))

    def _register(self, name: str, kind: Any, params: Any) -> Callable[[F], F]:
        if any(name in methods(revision) for revision in REVISIONS):
            raise ServerError(f"{name!r} is a method of the protocol; an extension has names of its own")
        if not (isinstance(params, type) and issubclass(params, t.Wire)):
            raise ServerError("The params of an extension's method are a subclass of types.RequestParams")

        def register(handler: F) -> F:
            self.rows[name] = Method(
                name=name, kind=kind, sender="client", params=params, result=t.Result, revisions=frozenset({MODERN})
            )
            self.handlers[name] = handler
            return handler

        return register

    def listen_filter(self, name: str, accept: Callable[[Any], Any]) -> None:
        """Add a member to the filter of `subscriptions/listen`.

        `accept` gets the value that the client asked for, and returns the part that is honoured, or None. Then
        `server.publish(name, …)` reaches the streams that asked for it.
        """
        self.filters[name] = accept

    def result_type(self, name: str) -> None:
        """Allow handlers to answer with this `resultType`."""
        if name in ("complete", "input_required"):
            raise ServerError(f"{name!r} is a result type of the protocol")
        self.result_types.add(name)

    def declared_by(self, capabilities: Mapping[str, Any]) -> bool:
        extensions = capabilities.get("extensions")
        return isinstance(extensions, Mapping) and self.identifier in extensions

    async def handle(self, call: Call) -> Any:
        request = call.request
        if isinstance(request.params, OpenParams) and not isinstance(request.raw, UnsetType):
            request.params = t.decode(OpenParams, request.raw)
        result = await self.handlers[call.method](call.params, context_of(call))
        if result is None:
            return t.Result()
        if isinstance(result, t.Wire):
            return result
        members = result if isinstance(result, dict) else msgspec.to_builtins(result)
        if not isinstance(members, dict):
            raise TypeError(f"{call.method} returned {type(result).__name__}; a result is an object")
        kind = members.get("resultType", "complete")
        if kind != "complete" and kind not in self.result_types:
            # RPC-7: a client that does not expect a result type takes it for an invalid answer.
            raise TypeError(f"{call.method} answered with the result type {kind!r}, which was not registered")
        return members


def plain_callback(callback: F, what: str) -> F:
    """Return the callback; raise for an `async def`, whose body would never run."""
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__):
        raise ServerError(f"{what} takes a plain function: make it a def, which may start a task for what takes long")
    return callback
