"""Extensions: methods, notifications, result types and listen filters of one's own, under a negotiated name.

The server declares an extension on the revisions that the extension names. Some extensions need a client that declares
them, too (2026-07-28 basic/versioning, extension negotiation); others work for every client that sees the declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import ServerError
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.revisions import CARRY_EXTENSIONS, REVISIONS
from toolwire.protocol.shaping import shape
from toolwire.protocol.types.capabilities import is_extension_identifier
from toolwire.server.call import Call
from toolwire.server.context import context_of

F = TypeVar("F", bound=Callable[..., Any])


_FAMILIES: Final = frozenset({"tools", "resources", "prompts"})


class OpenParams(t.RequestParams, kw_only=True):
    """The params of an extension method without a type of its own. `extra` has the members that this type lacks."""


class ListenFilter(NamedTuple):
    """A member that an extension adds to the filter of `subscriptions/listen`."""

    accept: Callable[[Any], Any]
    legacy: bool
    """Whether clients of the legacy era get all of its notifications."""


class Extension:
    """One extension of a server."""

    def __init__(
        self,
        identifier: str,
        settings: Mapping[str, Any],
        *,
        needs_client: bool,
        revisions: Iterable[str],
        families: Iterable[str],
    ) -> None:
        if not is_extension_identifier(identifier):
            raise ServerError(
                f"{identifier!r} is not an extension name: use your domain in reverse, a slash and a name"
            )
        if identifier == t.TASKS_EXTENSION:
            raise ServerError(f"The server offers {identifier} by itself: give a tool task=")
        self.identifier = identifier
        self.settings: dict[str, Any] = dict(settings)
        self.needs_client = needs_client
        self.revisions: frozenset[str] = _revisions(revisions)
        self.families: frozenset[str] = _families(families)
        self.rows: dict[str, Method] = {}
        self.handlers: dict[str, Callable[..., Any]] = {}
        self.filters: dict[str, ListenFilter] = {}
        self.result_types: set[str] = set()

    @property
    def capability(self) -> str:
        """The path of the extension in the capabilities of either side."""
        return f"extensions.{self.identifier}"

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
                name=name,
                kind=kind,
                sender="client",
                params=params,
                result=t.Result,
                capability=self.capability,
                client_capability=self.capability if self.needs_client else None,
                revisions=self.revisions,
            )
            self.handlers[name] = handler
            return handler

        return register

    def listen_filter(self, name: str, accept: Callable[[Any], Any], *, legacy: bool = False) -> None:
        """Add a member to the filter of `subscriptions/listen`.

        `accept` gets the value that the client asked for, and returns the part that is honoured, or None. Then
        `server.publish(name, …)` reaches the streams that asked for it. Clients of the legacy era cannot ask. With
        `legacy=True` they get everything that is published under the name, on the stream of their session; otherwise
        they get nothing of it.
        """
        self.filters[name] = ListenFilter(accept, legacy)

    def result_type(self, name: str) -> None:
        """Allow handlers to answer with this `resultType`."""
        if name in ("complete", "input_required"):
            raise ServerError(f"{name!r} is a result type of the protocol")
        self.result_types.add(name)

    def in_force(self, promised: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
        """Return whether the extension holds between a server and a client with these capabilities."""
        return t.has_capability(promised, self.capability) and (
            not self.needs_client or t.has_capability(declared, self.capability)
        )

    async def handle(self, call: Call) -> Any:
        request = call.request
        if not isinstance(request.raw, UnsetType):
            # The params were read without the members that their type does not know.
            request.params = t.decode(request.row.params, request.raw)
        result = await self.handlers[call.method](call.params, context_of(call))
        if result is None:
            return t.Result()
        if isinstance(result, t.Result):
            self._check_type(call, result.result_type)
            return result
        members = result if isinstance(result, dict) else _members(result, call.revision)
        if not isinstance(members, dict):
            raise TypeError(f"{call.method} returned {type(result).__name__}; a result is an object")
        self._check_type(call, members.get("resultType", "complete"))
        return members

    def _check_type(self, call: Call, kind: Any) -> None:
        if kind not in ("complete", UNSET) and kind not in self.result_types:
            # RPC-7: a client that does not expect a result type takes it for an invalid answer.
            raise TypeError(f"{call.method} answered with the result type {kind!r}, which was not registered")


def _revisions(revisions: Iterable[str]) -> frozenset[str]:
    named = frozenset([revisions] if isinstance(revisions, str) else revisions)
    if not named or not named <= CARRY_EXTENSIONS:
        allowed = ", ".join(sorted(CARRY_EXTENSIONS))
        raise ServerError(f"revisions= of an extension are revisions whose capabilities carry extensions: {allowed}")
    return named


def _families(families: Iterable[str]) -> frozenset[str]:
    named = frozenset([families] if isinstance(families, str) else families)
    if not named <= _FAMILIES:
        raise ServerError("families= of an extension are tools, resources or prompts")
    return named


def _members(result: Any, revision: str) -> Any:
    """Return the members of a result that is no `types.Result`, such as a dataclass."""
    return shape(result, revision).to_dict() if isinstance(result, t.Wire) else msgspec.to_builtins(result)


def plain_callback(callback: F, what: str) -> F:
    """Return the callback; raise for an `async def`, whose body would never run."""
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__):
        raise ServerError(f"{what} takes a plain function: make it a def, which may start a task for what takes long")
    return callback
