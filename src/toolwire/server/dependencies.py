"""Dependencies of handlers: values made for one request, and cleaned up after its answer is formed.

The graph is compiled at registration. So a cycle, or a parameter that nothing can fill, is an error there, and a
component without dependencies has no cost. A generator yields the value, and the rest of it is the clean-up. A failure
of the handler is raised in the generator, so that a transaction can roll back.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple

from msgspec import Struct

from toolwire.protocol.errors import ServerError

RunSync = Callable[..., Awaitable[Any]]
_CONTEXT: Final = -1


def Depends(function: Callable[..., Any], *, use_cache: bool = True) -> Any:
    """Mark a parameter whose value a function makes: `db: Db = Depends(connect)` or `Annotated[Db, Depends(connect)]`.

    The function may be `def` or `async def`, may `yield` its value once, may take the context and dependencies of its
    own. It runs once a request however many ask for it, unless `use_cache=False`.
    """
    # A function that returns Any, because a type checker is to accept it as the default of any parameter.
    return Dependency(function, use_cache)


class Dependency:
    """The mark itself."""

    __slots__ = ("function", "use_cache")

    def __init__(self, function: Callable[..., Any], use_cache: bool) -> None:
        if not callable(function):
            raise TypeError("Depends takes a function")
        self.function: Callable[..., Any] = function
        self.use_cache: bool = use_cache

    def __repr__(self) -> str:
        return f"Depends({_name(self.function)})"


class _Kind(enum.Enum):
    FUNCTION = "def"
    COROUTINE = "async def"
    CONTEXT_MANAGER = "a generator, or a function made by contextlib.contextmanager"
    ASYNC_CONTEXT_MANAGER = "an async generator, or a function made by contextlib.asynccontextmanager"


class _Step(NamedTuple):
    kind: _Kind
    call: Callable[..., Any]
    # Parameter name and the step whose value it takes.
    takes: tuple[tuple[str, int], ...]


class Plan(Struct, frozen=True):
    """Steps in the order to run them, and which step fills which parameter of the handler."""

    steps: tuple[_Step, ...]
    fills: tuple[tuple[str, int], ...]

    @property
    def is_plain(self) -> bool:
        """Return whether nothing in it is `async`."""
        return all(step.kind in _PLAIN for step in self.steps)


class DependencyParameter(Struct, frozen=True):
    """A parameter of a dependency, as `compile` is told of it."""

    name: str
    annotation: Any
    has_default: bool
    depends: Dependency | None
    is_context: bool


Signature = Callable[[Callable[..., Any]], "list[DependencyParameter]"]


def compile_plan(
    dependencies: Mapping[str, Dependency], signature: Signature, replaced: Mapping[Any, Any] | None = None
) -> Plan | None:
    """Return the plan of a handler's dependencies, None when it has none. `signature` reads a function's parameters.

    For each function in `replaced`, the other function is called instead, with dependencies of its own.
    """
    if not dependencies:
        return None
    compiler = _Compiler(signature, replaced or {})
    fills = tuple((name, compiler.step(depends, ())) for name, depends in dependencies.items())
    return Plan(tuple(compiler.steps), fills)


class _Compiler:
    def __init__(self, signature: Signature, replaced: Mapping[Any, Any]) -> None:
        self.steps: list[_Step] = []
        self._signature = signature
        self._replaced = replaced
        self._cached: dict[Callable[..., Any], int] = {}

    def step(self, depends: Dependency, inside: tuple[Callable[..., Any], ...]) -> int:
        function = self._replaced.get(depends.function, depends.function)
        if function in inside:
            around = " → ".join(_name(each) for each in (*inside[inside.index(function) :], function))
            raise ServerError(f"dependencies form a cycle: {around}")
        if depends.use_cache and function in self._cached:
            return self._cached[function]
        takes = []
        for parameter in self._signature(function):
            if parameter.is_context:
                takes.append((parameter.name, _CONTEXT))
            elif parameter.depends is not None:
                takes.append((parameter.name, self.step(parameter.depends, (*inside, function))))
            elif not parameter.has_default:
                raise ServerError(
                    f"nothing fills the parameter {parameter.name!r} of the dependency {_name(function)}: "
                    "give it a default, Depends(...), or the context"
                )
        kind, call = _callable(function)
        self.steps.append(_Step(kind, call, tuple(takes)))
        position = len(self.steps) - 1
        if depends.use_cache:
            self._cached[function] = position
        return position


def _callable(function: Callable[..., Any]) -> tuple[_Kind, Callable[..., Any]]:
    import inspect

    target = function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__
    if inspect.isasyncgenfunction(target):
        return _Kind.ASYNC_CONTEXT_MANAGER, asynccontextmanager(function)
    if inspect.isgeneratorfunction(target):
        return _Kind.CONTEXT_MANAGER, contextmanager(function)
    if inspect.iscoroutinefunction(target):
        return _Kind.COROUTINE, function
    # contextlib's decorators leave the generator function behind as `__wrapped__`.
    wrapped = getattr(function, "__wrapped__", None)
    if inspect.isasyncgenfunction(wrapped):
        return _Kind.ASYNC_CONTEXT_MANAGER, function
    if inspect.isgeneratorfunction(wrapped):
        return _Kind.CONTEXT_MANAGER, function
    return _Kind.FUNCTION, function


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__).rpartition("<locals>.")[2]


async def resolve(
    plan: Plan,
    context: Any,
    stack: AsyncExitStack,
    run_sync: RunSync,
    plain_context: Callable[[Any], Any] = lambda context: context,
) -> dict[str, Any]:
    """Run the plan; return the values by parameter name. Clean-up happens when `stack` closes, in reverse order.

    `run_sync(function, *args)` runs a function that is not `async` in a place where it may block.
    `plain_context(context)` makes the context for such a function.
    """
    values: list[Any] = []
    for kind, call, takes in plan.steps:
        arguments = {name: values[step] for name, step in takes if step != _CONTEXT}
        for name, step in takes:
            if step == _CONTEXT:
                arguments[name] = plain_context(context) if kind in _PLAIN else context
        values.append(await _MAKERS[kind](call, arguments, stack, run_sync))
    return {name: values[step] for name, step in plan.fills}


def resolve_here(plan: Plan, context: Any, stack: ExitStack) -> dict[str, Any]:
    """Run a plan in which nothing is `async`, in the thread of the caller."""
    values: list[Any] = []
    for kind, call, takes in plan.steps:
        made = call(**{name: context if step == _CONTEXT else values[step] for name, step in takes})
        values.append(_entered(made, stack) if kind is _Kind.CONTEXT_MANAGER else made)
    return {name: values[step] for name, step in plan.fills}


def _entered(manager: AbstractContextManager[Any], stack: ExitStack) -> Any:
    value = manager.__enter__()

    def leave(*error: Any) -> None:
        manager.__exit__(*error)

    stack.push(leave)
    return value


async def _function(call: Any, arguments: dict[str, Any], stack: AsyncExitStack, run_sync: RunSync) -> Any:
    return await run_sync(lambda: call(**arguments))


async def _coroutine(call: Any, arguments: dict[str, Any], stack: AsyncExitStack, run_sync: RunSync) -> Any:
    return await call(**arguments)


async def _context_manager(call: Any, arguments: dict[str, Any], stack: AsyncExitStack, run_sync: RunSync) -> Any:
    manager = call(**arguments)
    value = await run_sync(manager.__enter__)

    async def leave(*error: Any) -> None:
        await run_sync(manager.__exit__, *error)

    stack.push_async_exit(leave)
    return value


async def _async_context_manager(call: Any, arguments: dict[str, Any], stack: AsyncExitStack, run_sync: RunSync) -> Any:
    manager = call(**arguments)
    value = await manager.__aenter__()

    async def leave(*error: Any) -> None:
        # The return value of the manager is dropped: clean-up may see a failure, but must not turn it into a success.
        await manager.__aexit__(*error)

    stack.push_async_exit(leave)
    return value


_PLAIN: Final = frozenset({_Kind.FUNCTION, _Kind.CONTEXT_MANAGER})
_MAKERS: Final = {
    _Kind.FUNCTION: _function,
    _Kind.COROUTINE: _coroutine,
    _Kind.CONTEXT_MANAGER: _context_manager,
    _Kind.ASYNC_CONTEXT_MANAGER: _async_context_manager,
}
