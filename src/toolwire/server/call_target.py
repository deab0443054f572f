"""`CallTarget`: the component that a request names, and its arguments, for policies and records."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.errors import CallRefused
from toolwire.server.access import Access, View
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Found

_MAX_NAME: Final = 200


class CallTarget:
    """The target of one request. Its arguments are decoded when somebody looks at them, and only once."""

    __slots__ = ("_plain", "found", "method", "name", "params", "replaced", "variables", "version")

    def __init__(
        self, method: str, name: str, params: Any, found: Found[Any] | None, variables: dict[str, str] | None = None
    ) -> None:
        """`variables` are the values that a template takes from the address."""
        self.method: str = method
        self.name: str = name[:_MAX_NAME]
        self.found: Found[Any] | None = found
        self.params: Any = params
        self.variables: dict[str, str] = variables or {}
        self.version: int | None = None
        """The version of the catalogue in which the component was found; None if that does not matter."""
        self.replaced: CallTarget | None = None
        """The target that policies judged, where the component became another one before it ran."""
        self._plain: dict[str, Any] | None = None

    def is_same(self, other: CallTarget) -> bool:
        """Return whether both have the same component, on the same way."""
        if self.found is None or other.found is None:
            return self.found is other.found
        return self.found.component is other.found.component and self.found.way == other.found.way

    @property
    def back(self) -> str | None:
        """The name of the server behind this one that has the component; None for one of this server itself."""
        catalog = self._elsewhere
        return None if catalog is None else catalog.owner.name

    @property
    def credential(self) -> str | None:
        """The kind of the credential with which the server behind this one is called; None where there is none."""
        catalog = self._elsewhere
        return None if catalog is None or catalog.follower is None else catalog.follower.credential

    @property
    def _elsewhere(self) -> Catalog | None:
        """The catalogue of the server behind this one. Those that it shows to some callers only are mounted there."""
        if self.found is None:
            return None
        way = (self.found.owner.catalog, *(mount.catalog for mount in reversed(self.found.way)))
        return next((each for each in way if each.follower is not None), None)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the request. Raise `CallRefused` if they cannot be read, so that no rule is skipped."""
        if self._plain is None:
            self._plain = _arguments(self.params, self.variables, self.name)
        return self._plain


def target_of(call: Call) -> CallTarget | None:
    """Return the target of a call; None for requests that run no component: lists, subscriptions and the like.

    A component that the caller does not see is not found. So nothing in a record reveals that it exists.
    """
    if call.target is None:
        call.target = call.host.find_target(call)
    return cast("CallTarget | None", call.target)


def target_of_read(access: Access, uri: str, view: View | None) -> CallTarget:
    """Return the target of reading an address, by a request or by a handler."""
    params = t.ReadResourceRequestParams(uri=uri)
    matched = access.matched(uri, view)
    return CallTarget("resources/read", uri, params, *((None,) if matched is None else matched))


def find_target(access: Access, catalog: Catalog, call: Call) -> CallTarget | None:
    """Find the target of a request among the components that its caller sees."""
    request = call.request
    view = access.view(request, call.outlet) if access.active else None
    sees, params, method = None if view is None else view.sees, request.params, request.method
    match method:
        case "tools/call":
            return CallTarget(method, params.name, params, catalog.tool(params.name, sees))
        case "resources/read":
            return target_of_read(access, params.uri, view)
        case "prompts/get":
            return CallTarget(method, params.name, params, catalog.prompt(params.name, sees))
        case "completion/complete":
            is_prompt = isinstance(params.ref, t.PromptReference)
            name = params.ref.name if is_prompt else params.ref.uri
            return CallTarget(method, name, params, access.referred(is_prompt, name, view))
    # A method of an extension: the target is the method itself.
    found = catalog.extension_method(method, sees, request.capabilities)
    return None if found is None else CallTarget(method, method, params, found)


def _arguments(params: Any, variables: dict[str, str], name: str) -> dict[str, Any]:
    if isinstance(params, t.ReadResourceRequestParams):
        # A template may have a variable named `uri`. Then its function gets that variable, and not the address.
        return {"uri": params.uri, **variables}
    if isinstance(params, t.CompleteRequestParams):
        return {params.argument.name: params.argument.value}
    raw = getattr(params, "arguments", None)
    if not isinstance(raw, Raw | UnsetType):
        # The params of an extension's method are its arguments.
        return {member: value for member, value in params.to_dict().items() if member != "_meta"}
    if raw is UNSET:
        return {}
    try:
        return _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise CallRefused(f"The arguments of {name} cannot be read", reason="rule") from None


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
