"""Stubs: the methods of a Protocol become tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, get_type_hints

P = TypeVar("P")

# Returns an awaitable, or the result itself where the client blocks.
Call = Callable[[str, Mapping[str, Any], Any], Any]


def make_stub(protocol: Callable[..., P], call: Call, *, blocking: bool = False) -> P:
    """Return an object with a method for each public method of `protocol`, which calls the tool of that name.

    Methods are `async`, and plain where the client blocks.

    Arguments are matched by the method's signature; those left out get the tool's own defaults. The return annotation
    works as `returns=` does; without one the result is the `ToolResult`.

    (`protocol` is a class. It is typed as something that makes a P, because type checkers accept no Protocol where they
    read `type[P]`.)
    """
    members: dict[str, Any] = {}
    for name in dir(protocol):
        member = getattr(protocol, name)
        if not name.startswith("_") and callable(member):
            members[name] = _method(name, member, call, blocking)
    if not members:
        raise TypeError(f"{protocol.__name__} has no methods to call tools with")
    return cast("P", type(f"{protocol.__name__}Stub", (), members)())


def _method(name: str, member: Callable[..., Any], call: Call, blocking: bool) -> Callable[..., Any]:
    # Imported here because only a stub needs it, and it is slow to load.
    import inspect

    if inspect.iscoroutinefunction(member) is blocking:
        kind = "a plain method: this client blocks" if blocking else "an async method: a tool call waits for its server"
        raise TypeError(f"{name} has to be {kind}")
    signature = inspect.signature(member)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
        raise TypeError(f"{name} takes *args or **kwargs, which name no argument of a tool")
    own = next(iter(signature.parameters), None)
    hints = get_type_hints(member, include_extras=True)
    returns = hints.get("return")

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(self, *args, **kwargs).arguments
        return call(name, {key: value for key, value in arguments.items() if key != own}, returns)

    method.__name__ = name
    method.__doc__ = member.__doc__
    return method
