"""Extensions: methods, notifications, result types and listen filters of one's own, under a negotiated name.

The server declares an extension on the revisions that the extension names. Some extensions need a client that declares
them, too (2026-07-28 basic/versioning, extension negotiation); others work for every client that sees the declaration.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw

from toolwire.loops import plain_callback
from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import ServerError
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.revisions import CARRY_EXTENSIONS, REVISIONS
from toolwire.protocol.shaping import shape
from toolwire.protocol.types.capabilities import is_extension_identifier
from toolwire.server.call import Call
from toolwire.server.components import Component
from toolwire.server.components.restriction import VisibleTo
from toolwire.server.context import context_of

if TYPE_CHECKING:
    from toolwire.server.policy import Policy

F = TypeVar("F", bound=Callable[..., Any])


_FAMILIES: Final = frozenset({"tools", "resources", "prompts"})


class OpenParams(t.RequestParams, kw_only=True):
    """The params of an extension method without a type of its own. `extra` has the members that this type lacks."""


class ListenFilter(msgspec.Struct, frozen=True):
    """A member that an extension adds to the filter of `subscriptions/listen`."""

    accept: Callable[[Any], Any]
    legacy: bool
    """Whether clients of the legacy era get all of its notifications."""


class Host(Protocol):
    """The catalogue of the server that has an extension."""

    def claim(self, extension: Extension, kind: str, name: str) -> None: ...

    def extended(self, method: ExtensionMethod) -> None: ...


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
        catalog: Host,
        is_shared: bool = False,
        is_remote: bool = False,
    ) -> None:
        """`is_shared`: the handlers answer from the catalogue of the server that gets the request, mounted servers and
        all. So servers that are mounted together may each have the extension. `is_remote`: it is the extension of a
        server that lives elsewhere. It never takes a name from another extension.
        """
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
        self.methods: dict[str, ExtensionMethod] = {}
        self.notifications: dict[str, Callable[[Any], Any]] = {}
        self.filters: dict[str, ListenFilter] = {}
        self.result_types: set[str] = set()
        self.is_shared = is_shared
        self.is_remote = is_remote
        self.any_method: AnyMethod | None = None
        """Takes the requests and notifications whose names nobody here knows."""
        self._catalog = catalog

    @property
    def capability(self) -> str:
        """The path of the extension in the capabilities of either side."""
        return f"extensions.{self.identifier}"

    def method(
        self,
        name: str,
        *,
        params: type[t.RequestParams] = OpenParams,
        policy: Policy | None = None,
        scopes: str | Iterable[str] | None = None,
        visible_to: VisibleTo = None,
        tags: str | Iterable[str] | None = None,
    ) -> Callable[[F], F]:
        """Register an async handler `(params, ctx)` for a request; `params` is a subclass of `types.RequestParams`.

        `params.extra` has the members that the type lacks; without a type, all of them. The other options are those of
        any component.
        """
        row = self._row(name, "request", params)

        def register(handler: F) -> F:
            method = ExtensionMethod(
                self, name, params, handler, policy=policy, scopes=scopes, visible_to=visible_to, tags=tags
            )
            self._claim("method", name)
            self.rows[name], self.methods[name] = row, method
            self._catalog.extended(method)
            return handler

        return register

    def notification(self, name: str, *, params: type[t.NotificationParams] = t.NotificationParams) -> Callable[[F], F]:
        """Register a plain handler `(params)` for a notification of the client."""
        row = self._row(name, "notification", params)

        def register(handler: F) -> F:
            plain = plain_callback(handler, f"The notification {name}")
            self._claim("method", name)
            self.rows[name], self.notifications[name] = row, plain
            return handler

        return register

    def _row(self, name: str, kind: Any, params: Any) -> Method:
        if any(name in methods(revision) for revision in REVISIONS):
            raise ServerError(f"{name!r} is a method of the protocol; an extension has names of its own")
        if not (isinstance(params, type) and issubclass(params, t.Wire)):
            raise ServerError("The params of an extension's method are a subclass of types.RequestParams")
        return Method(
            name=name,
            kind=kind,
            sender="client",
            params=params,
            result=t.Result,
            capability=self.capability,
            client_capability=self.capability if self.needs_client else None,
            revisions=self.revisions,
        )

    def _claim(self, kind: str, name: str) -> None:
        if not self.is_remote:
            self._catalog.claim(self, kind, name)

    def claims(self) -> Iterator[tuple[str, str]]:
        """Yield the names that no other extension of the server can have, each with its kind."""
        if self.is_remote:
            return
        yield "extension", self.identifier
        yield from (("method", name) for name in tuple(self.rows))
        yield from (("listen filter", name) for name in tuple(self.filters))

    def listen_filter(self, name: str, accept: Callable[[Any], Any], *, legacy: bool = False) -> None:
        """Add a member to the filter of `subscriptions/listen`.

        `accept` gets the value that the client asked for, and returns the part that is honoured, or None. Then
        `server.publish(name, …)` reaches the streams that asked for it. Clients of the legacy era cannot ask. With
        `legacy=True` they get everything that is published under the name, on the stream of their session; otherwise
        they get nothing of it.
        """
        self._claim("listen filter", name)
        self.filters[name] = ListenFilter(plain_callback(accept, "accept= of a listen filter"), legacy)

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


class ExtensionMethod(Component):
    """A method of an extension. Policies, restrictions and middleware hold for it as for any component."""

    kind = "extensions"
    noun = "method"

    def __init__(
        self,
        extension: Extension,
        name: str,
        params: type[t.RequestParams],
        handler: Callable[..., Any],
        **options: Any,
    ) -> None:
        self.key = name
        self.params = params
        self._extension = extension
        self._handler = handler
        super().__init__(None, **options)

    @property
    def argument_names(self) -> Collection[str]:
        return [name for name in self.params.__struct_encode_fields__ if name != "_meta"]

    def _check_policy(self, policy: Policy) -> None:
        if self.params is not OpenParams:  # Its params may have any name.
            super()._check_policy(policy)

    def definition(self, revision: str) -> dict[str, Any]:
        return {"name": self.key, "extension": self._extension.identifier}

    async def handle(self, call: Call) -> Any:
        """Run the handler, and make a result of what it returns."""
        result = await self._handler(call.params, context_of(call))
        if result is None:
            return t.Result()
        if isinstance(result, Raw):
            return result  # A handler of this library that encoded the whole result before.
        if isinstance(result, t.Result):
            self._check_type(result.result_type)
            return result
        members = result if isinstance(result, dict) else _members(result, call.revision)
        if not isinstance(members, dict):
            raise TypeError(f"{self.key} returned {type(result).__name__}; a result is an object")
        self._check_type(members.get("resultType", "complete"))
        return members

    def _check_type(self, kind: Any) -> None:
        if kind not in ("complete", UNSET) and kind not in self._extension.result_types:
            # RPC-7: a client that does not expect a result type takes it for an invalid answer.
            raise TypeError(f"{self.key} answered with the result type {kind!r}, which was not registered")


class OpenRoundParams(t.RoundRequestParams, kw_only=True):
    """The params of a method that nobody here knows. `extra` has all its members."""

    def __repr__(self) -> str:
        # Imported here because most servers have no server behind them.
        from toolwire.redaction import repr_without

        return repr_without(self, "request_state", "input_responses")


class AnyMethod(ExtensionMethod):
    """All methods of an extension whose server lives elsewhere. Nobody here knows their names."""

    def __init__(self, extension: Extension) -> None:
        super().__init__(extension, extension.identifier, OpenRoundParams, self.handle)
        self.extension: Extension = extension

    def _check_policy(self, policy: Policy) -> None:
        """Accept every rule: the params may have any name."""

    def row(self, name: str) -> Method:
        """Return the row of a method. By its name a notification is told from a request."""
        is_notification = name.startswith("notifications/")
        return Method(
            name=name,
            kind="notification" if is_notification else "request",
            sender="client",
            params=t.NotificationParams if is_notification else OpenRoundParams,
            result=t.Result,
            capability=self.extension.capability,
            revisions=self.extension.revisions,
            rounds=not is_notification,
        )

    @abstractmethod
    def likelihood(self, name: str) -> int:
        """Return how likely a method is one of this extension: the higher, the more."""

    @abstractmethod
    async def handle(self, call: Call) -> Any:
        """Hand on a request, and return the result."""

    @abstractmethod
    def notified(self, notice: Notice, session: object) -> None:
        """Hand on a notification of a client."""

    @abstractmethod
    def listening(
        self,
        call: Call,
        wanted: Mapping[str, Any],
        tell: Callable[[str, Mapping[str, Any]], None],
        end: Callable[[], None],
    ) -> AbstractAsyncContextManager[Mapping[str, Any]]:
        """Ask the server for the notifications that a `subscriptions/listen` wants, as long as the context is entered.

        The context is the part that the server honours. `tell` gets its notifications, and `end` is called when the
        server ends the subscription.
        """


def merged_settings(extensions: Iterable[Extension]) -> dict[str, Any]:
    """Merge the settings of an extension that several servers have: what one of them can do, is offered."""
    merged: dict[str, Any] = {}
    for each in extensions:
        for name, value in each.settings.items():
            merged[name] = _merged(merged[name], value) if name in merged else value
    return merged


def _merged(one: Any, other: Any) -> Any:
    """Merge two values of one setting. Flags that are on and the items of both lists hold; otherwise the first does."""
    if isinstance(one, bool) and isinstance(other, bool):
        return one or other
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(each for each in other if each not in one)]
    return one


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
