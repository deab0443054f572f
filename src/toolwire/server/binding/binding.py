"""`Binding`: a function, ready to be listed and called."""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any, NamedTuple, cast

import msgspec

from toolwire.protocol.errors import ServerError
from toolwire.protocol.types import CallToolResult
from toolwire.schemas import Profile, Schema
from toolwire.server.binding import docstrings
from toolwire.server.binding.arguments import Parameter, Reader, raw_reader, record_reader, typed_reader
from toolwire.server.binding.results import Returns, returns_of
from toolwire.server.binding.signature import IsContext, Signature, function_name, plain_function
from toolwire.server.dependencies import Dependency, Plan, compile_plan
from toolwire.server.dependencies import Signature as DependencySignature
from toolwire.server.header_arguments import header_paths


class CallPlan(NamedTuple):
    """The other values that a function takes: the context under `context`, and those that `dependencies` makes."""

    context: str | None
    dependencies: Plan | None
    positional_only: tuple[str, ...]
    context_type: Any
    in_order: bool
    """Whether the arguments are all it takes, and can be given in the order of the parameters."""


class BoundFunction(ABC):
    """A function with its binding; tests can replace the functions that make its dependencies."""

    _bound: Binding | None

    def replace_dependencies(self, replaced: Mapping[Any, Any]) -> bool:
        """Replace functions that make dependencies; an empty mapping undoes that. Return whether anything changes."""
        if self._bound is None or not self._bound.dependencies:
            return False
        concerned = self._bound.replace_dependencies(replaced)
        self._compile(self._bound)
        return concerned

    @abstractmethod
    def _compile(self, binding: Binding) -> None:
        """Make what calls the function."""


class Binding:
    """A function, ready to be listed and called."""

    title: str | None = None

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        description: str | None,
        parameters: tuple[Parameter, ...],
        reader: Reader,
        returns: Returns,
        plan: CallPlan,
        dependencies: dict[str, Dependency],
        of_dependency: DependencySignature,
    ) -> None:
        import inspect

        self.function = function
        self.name = name
        self.description = description
        self.parameters = parameters
        self.input_schema: Schema = reader.schema
        self.output_schema: Schema | None = returns.schema
        self.call_plan: CallPlan = plan
        self.context_parameter: str | None = plan.context
        self.dependencies = dependencies
        self._of_dependency: DependencySignature = of_dependency
        self.headers: dict[str, tuple[str, ...]] = header_paths(reader.schema, f"the input schema of {name!r}")
        target = plain_function(function)
        self.is_async_generator: bool = inspect.isasyncgenfunction(target)
        self.is_generator: bool = inspect.isgeneratorfunction(target)
        self.is_async: bool = inspect.iscoroutinefunction(target) or self.is_async_generator
        self.arguments: Callable[..., dict[str, Any]] = reader.read
        self.arguments_in_order: Callable[..., tuple[Any, ...]] | None = reader.read_in_order if plan.in_order else None
        self.meant: Callable[[dict[str, Any]], dict[str, Any]] = reader.meant
        self.convert: Callable[[Any], CallToolResult] = returns.convert

    def arguments_from_strings(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Read strings (prompt arguments, template variables) as the annotated types; return keyword arguments."""
        # Every revision, prompts/get: argument values are strings on the wire.
        return self.arguments(msgspec.json.encode(values))

    def replace_dependencies(self, replaced: Mapping[Any, Any]) -> bool:
        """Use other functions as dependencies from now on; return whether that makes a difference."""
        before = self.call_plan
        plan = compile_plan(self.dependencies, self._of_dependency, replaced)
        self.call_plan = before._replace(dependencies=plan)
        return plan is not None and plan.steps != cast("Plan", before.dependencies).steps

    def call(self, arguments: dict[str, Any], context: Any = None, values: Mapping[str, Any] | None = None) -> Any:
        """Call the function with `arguments` from `arguments()`, the context, and the values of its dependencies."""
        plan = self.call_plan
        if plan.context is not None:
            arguments[plan.context] = context
        if values:
            arguments.update(values)
        if plan.positional_only:
            return self.function(*[arguments.pop(name) for name in plan.positional_only], **arguments)
        return self.function(**arguments)


def bind(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    input_schema: Any = None,
    output_schema: Schema | None = None,
    schema_profile: Profile = "portable",
    made_schema: bool = False,
    structured: bool | None = None,
    decoder: Callable[[dict[str, Any]], Any] | None = None,
    encoder: Callable[[Any], Any] | None = None,
    validate_input: bool = True,
    is_context: IsContext,
) -> Binding:
    """Compile a function. Raise `TypeError` or `ServerError` for what cannot be described and enforced.

    `input_schema` is a JSON Schema or a record class; without it, the signature says what is taken. `made_schema` says
    that Toolwire wrote the schema, so that it is published in the keywords of `schema_profile`.
    """
    if not callable(function):
        raise ServerError(f"A handler is a function, not {type(function).__name__}")
    name = name or function_name(function)
    if decoder is not None and input_schema is None:
        raise ServerError(f"{name!r}: decoder= goes with input_schema=")
    if not validate_input and input_schema is None:
        raise ServerError(
            f"{name!r}: validate_input=False goes with input_schema= or parameters=. A signature is what the function "
            "relies on: annotate what it should not check as Any"
        )
    signature = Signature(function, is_context)
    documented = docstrings.parse(
        plain_function(function).__doc__ if not isinstance(function, type) else function.__doc__
    )
    if input_schema is None:
        parameters, reader = typed_reader(signature, documented.parameters, schema_profile)
        context = signature.context
    elif isinstance(input_schema, type) or typing.get_origin(input_schema) is not None:
        parameters = ()
        if decoder is not None or not validate_input:
            raise ServerError(f"{name!r}: decoder= and validate_input= go with a JSON Schema; a record reads itself")
        reader, context = record_reader(signature, input_schema, name, schema_profile)
    else:
        parameters = ()
        profile = schema_profile if made_schema else None
        reader, context = raw_reader(signature, input_schema, decoder, name, profile=profile, validate=validate_input)
    returns = returns_of(signature, name, output_schema, structured, encoder)
    plan = CallPlan(
        context,
        compile_plan(signature.dependencies, signature.of_dependency),
        tuple(each.name for each in signature.parameters if each.kind is each.POSITIONAL_ONLY),
        signature.context_type,
        len(parameters) == len(signature.parameters) and _takes_in_order(function, signature),
    )
    return Binding(
        function,
        name,
        documented.description or None,
        parameters,
        reader,
        returns,
        plan,
        signature.dependencies,
        signature.of_dependency,
    )


def _takes_in_order(function: Callable[..., Any], signature: Signature) -> bool:
    """Return whether the signature is the function's own. A wrapper may take arguments by name alone."""
    is_own = isinstance(function, FunctionType | MethodType) and not (
        hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
    )
    return is_own and not any(each.kind is each.KEYWORD_ONLY for each in signature.parameters)
