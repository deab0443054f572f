"""The signature of a function with its annotations resolved: who fills which parameter.

Annotations may use names that only the scopes around the function know. Registration looks for the names there.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable
from typing import Any, cast

from msgspec import UNSET

from toolwire import adapters
from toolwire.protocol.errors import ServerError
from toolwire.server import dependencies
from toolwire.server.dependencies import Dependency

IsContext = Callable[[Any], bool]


def plain_function(function: Callable[..., Any]) -> Any:
    """Return the plain function behind methods, partials and callable objects."""
    import functools
    import inspect

    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    return getattr(function, "__func__", function)


def is_lambda(function: Any) -> bool:
    return callable(function) and plain_function(function).__name__ == "<lambda>"


def function_name(function: Callable[..., Any]) -> str:
    target = plain_function(function)
    name = target.__name__ if target.__name__ != "__call__" else type(function).__name__
    if is_lambda(function):
        raise ServerError("a lambda has no name: give name=")
    return cast(str, name)


def _misses_its_object(target: Any, function: Callable[..., Any], names: list[str]) -> bool:
    """Return whether a function was taken from the body of a class, where it has no object yet."""
    inside = getattr(target, "__qualname__", "").rpartition(".")[0]
    in_class = bool(inside) and not inside.endswith("<locals>")
    return in_class and function is target and names[:1] in (["self"], ["cls"])


class Signature:
    """The parameters of a function with their annotations resolved: context, dependencies, and the rest."""

    def __init__(self, function: Callable[..., Any], is_context: IsContext, *, is_handler: bool = True) -> None:
        import inspect

        self._is_handler = is_handler
        self._is_context = is_context
        self._inspect = inspect
        self.label: str = _function_name_or_type(function)
        target = inspect.unwrap(plain_function(function))
        self._globals = _globals_of(target)
        self.namespace: dict[str, Any] = _namespace(target)
        try:
            signature = inspect.signature(function)
        except NameError as error:  # annotations that are evaluated late
            raise adapters.unknown_name(error, self.label) from None
        self.returns: Any = self._returned(signature.return_annotation)
        self.parameters: list[Any] = []
        self.annotations: dict[str, Any] = {}
        self.dependencies: dict[str, Dependency] = {}
        self.context: str | None = None
        self.context_type: Any = None
        if is_handler and _misses_its_object(target, function, list(signature.parameters)):
            raise ServerError(
                f"{self.label} is a method, and nobody has its {next(iter(signature.parameters))}: "
                f"register it on an object, as server.tool(thing.{target.__name__})"
            )
        for parameter in signature.parameters.values():
            self._read(parameter)

    def _read(self, parameter: Any) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if not self._is_handler:
                return
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise ServerError(f"{self.label}: {stars}{parameter.name} cannot be described; name each parameter")
        annotation = self._resolved(parameter)
        self.parameters.append(parameter)
        self.annotations[parameter.name] = annotation
        if (dependency := _dependency(annotation, parameter.default)) is not None:
            self.dependencies[parameter.name] = dependency
        elif (context_type := self._context_type(parameter, annotation)) is not None:
            if self.context is not None:
                raise ServerError(f"{self.label} takes the context twice: {self.context!r} and {parameter.name!r}")
            self.context, self.context_type = parameter.name, context_type

    def _resolved(self, parameter: Any) -> Any:
        written = parameter.annotation
        if written is parameter.empty:
            return parameter.empty
        try:
            return adapters.evaluate(written, self._globals, self.namespace, self.label)
        except TypeError:
            # Imported under TYPE_CHECKING only.
            if isinstance(written, str) and written.rpartition(".")[2].split(" ")[0] in ("Context", "SyncContext"):
                return parameter.empty if parameter.name == "ctx" else _UnresolvedContext
            raise

    def _context_type(self, parameter: Any, annotation: Any) -> Any:
        """Return the annotation of the context; None for a parameter that does not take it."""
        if annotation is parameter.empty:
            return _UnresolvedContext if parameter.name == "ctx" else None
        bare = typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation
        members = typing.get_args(bare) if typing.get_origin(bare) in (typing.Union, types.UnionType) else (bare,)
        found = (member for member in members if member is _UnresolvedContext or self._is_context(member))
        return next(found, None)

    def _returned(self, written: Any) -> Any:
        if written is self._inspect.Signature.empty:
            return UNSET
        return adapters.evaluate(written, self._globals, self.namespace, self.label)

    @property
    def rest(self) -> list[Any]:
        """The parameters that a caller fills."""
        return [each for each in self.parameters if each.name != self.context and each.name not in self.dependencies]

    def of_dependency(self, function: Callable[..., Any]) -> list[dependencies.DependencyParameter]:
        inner = Signature(function, self._is_context, is_handler=False)
        return [
            dependencies.DependencyParameter(
                each.name,
                inner.annotations[each.name],
                each.default is not each.empty,
                inner.dependencies.get(each.name),
                each.name == inner.context,
            )
            for each in inner.parameters
        ]


class _UnresolvedContext:
    """Stands for a context annotation that is missing, or whose name only type checkers know."""


def _function_name_or_type(function: Callable[..., Any]) -> str:
    return cast(str, getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]


def _dependency(annotation: Any, default: Any) -> Dependency | None:
    if isinstance(default, Dependency):
        return default
    marks = annotation.__metadata__ if typing.get_origin(annotation) is typing.Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Dependency)), None)


def _globals_of(target: Any) -> dict[str, Any]:
    found: dict[str, Any] | None = getattr(target, "__globals__", None)
    return vars(sys.modules.get(target.__module__, types.ModuleType("none"))) if found is None else found


def _namespace(function: Any) -> dict[str, Any]:
    """Return the names that annotations may use besides the module's: those of the closure, and the locals of callers.

    An annotation in quotes does not close over the names in it. So a type that is local to the function that builds the
    server is looked for on the stack. The frames of that function win over the module. Other frames only add names that
    the module lacks.
    """
    globalns = getattr(function, "__globals__", {})
    enclosing = getattr(function, "__qualname__", "").rpartition(".<locals>.")[0]
    names: dict[str, Any] = {}
    lexical: dict[str, Any] = {}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is globalns and frame.f_locals is not globalns:
            if enclosing and _is_within(enclosing, frame.f_code.co_qualname):
                lexical = {**frame.f_locals, **lexical}
            else:
                names = {**{key: value for key, value in frame.f_locals.items() if key not in globalns}, **names}
        frame = frame.f_back
    captured = (
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=False) if _has_code(function) else ()
    )
    for name, cell in captured:
        try:
            lexical[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    # The type parameters of `def f[T](…)`.
    own = {each.__name__: each for each in getattr(function, "__type_params__", ())}
    return {**names, **lexical, **own}


def _has_code(function: Any) -> bool:
    return isinstance(function, types.FunctionType)


def _is_within(enclosing: str, qualname: str) -> bool:
    return enclosing == qualname or enclosing.startswith(f"{qualname}.<locals>.")
