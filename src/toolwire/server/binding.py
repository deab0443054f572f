"""From a function to what the protocol needs of it: schemas, a reader of arguments, a result converter.

All of it is worked out once, when the function is registered. A call with plain arguments is then one msgspec decode
into a generated Struct; only a call that is refused pays for finding out why, argument by argument.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire import adapters, schemas
from toolwire.adapters import Adapter, Invalid, Problem
from toolwire.content import Audio, File, Image, ToolResult, to_blocks
from toolwire.protocol.errors import ServerError, ToolwireError
from toolwire.protocol.types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from toolwire.schemas import Json, Schema, Validator
from toolwire.server import depends, docstrings
from toolwire.server.depends import Depends

IsContext = Callable[[Any], bool]
NO_ARGUMENTS: Final[Schema] = {"type": "object", "additionalProperties": False}
_MAX_LINES: Final = 20


class InvalidArguments(ToolwireError):
    """Arguments that do not fit; `lines` has one sentence for each thing that is wrong, meant for the model."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class ResultError(ToolwireError, TypeError):
    """A handler returned what cannot be sent: not JSON, or not what its output schema promises. For the log, masked."""


class Header:
    """`Annotated[str, Header("Region")]`: clients repeat this argument in the header `Mcp-Param-Region`."""

    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        self.token = token

    @property
    def __json_schema__(self) -> Schema:
        return {"x-mcp-header": self.token}

    def __repr__(self) -> str:
        return f"Header({self.token!r})"


class Parameter(NamedTuple):
    """One argument of a component. `default` is UNSET when there is none."""

    name: str
    annotation: Any
    required: bool
    default: Any
    description: str | None


class CallPlan(NamedTuple):
    """What else the function takes: the context under `context`, the values that `dependencies` makes."""

    context: str | None
    dependencies: depends.Plan | None
    positional_only: tuple[str, ...]


class Converted(msgspec.Struct, frozen=True, gc=False):
    """A handler's value as a tool result. `structured` is JSON text (`Raw`), or UNSET when there is none."""

    content: list[ContentBlock]
    structured: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] | Raw | UnsetType = UNSET


class Binding:
    """A function, ready to be listed and called."""

    title: str | None = None

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        description: str | None,
        parameters: tuple[Parameter, ...],
        reader: _Reader,
        returns: _Returns,
        plan: CallPlan,
        dependencies: dict[str, Depends],
    ) -> None:
        import inspect

        self.function = function
        self.name = name
        self.description = description
        self.parameters = parameters
        self.input_schema: Schema = reader.schema
        self.output_schema: Schema | None = returns.schema
        self.call_plan = plan
        self.context_parameter = plan.context
        self.dependencies = dependencies
        self.headers: dict[str, tuple[str, ...]] = header_paths(reader.schema, f"the input schema of {name!r}")
        target = _target(function)
        self.is_async_generator = inspect.isasyncgenfunction(target)
        self.is_generator = inspect.isgeneratorfunction(target)
        self.is_async = inspect.iscoroutinefunction(target) or self.is_async_generator
        self.arguments: Callable[..., dict[str, Any]] = reader.read
        self.convert: Callable[[Any], Converted] = returns.convert

    def arguments_from_strings(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Keyword arguments out of strings (prompt arguments, template variables), read as the annotated types."""
        # Every revision, prompts/get: argument values are strings on the wire.
        return self.arguments(msgspec.json.encode(values))

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
    description: str | None = None,
    input_schema: Schema | None = None,
    output_schema: Schema | None = None,
    structured: bool | None = None,
    decoder: Callable[[dict[str, Any]], Any] | None = None,
    encoder: Callable[[Any], Any] | None = None,
    is_context: IsContext,
) -> Binding:
    """Compile a function. What cannot be described and enforced is refused here (`TypeError` or `ServerError`)."""
    if not callable(function):
        raise ServerError(f"A handler is a function, not {type(function).__name__}")
    name = name or _function_name(function)
    if decoder is not None and input_schema is None:
        raise ServerError(f"{name!r}: decoder= goes with input_schema=")
    signature = _Signature(function, is_context)
    documented = docstrings.parse(_target(function).__doc__ if not isinstance(function, type) else function.__doc__)
    if input_schema is None:
        parameters, reader = _typed_reader(signature, documented.parameters, name)
        context = signature.context
    else:
        parameters = ()
        reader, context = _raw_reader(signature, input_schema, decoder, name)
    returns = _returns(signature, name, output_schema, structured, encoder)
    plan = CallPlan(
        context,
        depends.compile(signature.dependencies, signature.of_dependency),
        tuple(each.name for each in signature.parameters if each.kind is each.POSITIONAL_ONLY),
    )
    text = description if description is not None else documented.description or None
    return Binding(function, name, text, parameters, reader, returns, plan, signature.dependencies)


# ---------------------------------------------------------------------------------------------------------------------
# Signatures
# ---------------------------------------------------------------------------------------------------------------------


def _target(function: Callable[..., Any]) -> Any:
    """The plain function behind methods, partials and callable objects."""
    import functools
    import inspect

    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = type(function).__call__
    return getattr(function, "__func__", function)


def _function_name(function: Callable[..., Any]) -> str:
    target = _target(function)
    name = target.__name__ if target.__name__ != "__call__" else type(function).__name__
    if name == "<lambda>":
        raise ServerError("a lambda has no name: give name=")
    return cast(str, name)


class _Signature:
    """The parameters of a function with their annotations resolved: context, dependencies, and the rest."""

    def __init__(self, function: Callable[..., Any], is_context: IsContext, *, is_handler: bool = True) -> None:
        import inspect

        self._is_handler = is_handler
        self._is_context = is_context
        self._inspect = inspect
        self.label = _function_name_or_type(function)
        target = inspect.unwrap(_target(function))
        self._globals = _globals_of(target)
        self.namespace = _namespace(target)
        try:
            signature = inspect.signature(function)
        except NameError as error:  # annotations that are evaluated late
            raise adapters.unknown_name(error, self.label) from None
        self.returns = self._returned(signature.return_annotation)
        self.parameters: list[Any] = []
        self.annotations: dict[str, Any] = {}
        self.dependencies: dict[str, Depends] = {}
        self.context: str | None = None
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
        elif self._takes_context(parameter, annotation):
            if self.context is not None:
                raise ServerError(f"{self.label} takes the context twice: {self.context!r} and {parameter.name!r}")
            self.context = parameter.name

    def _resolved(self, parameter: Any) -> Any:
        written = parameter.annotation
        if written is parameter.empty:
            return parameter.empty
        try:
            return adapters.evaluate(written, self._globals, self.namespace, self.label)
        except TypeError:
            # `Context` imported under TYPE_CHECKING only.
            if isinstance(written, str) and written.rpartition(".")[2].split(" ")[0] == "Context":
                return parameter.empty if parameter.name == "ctx" else _UnresolvedContext
            raise

    def _takes_context(self, parameter: Any, annotation: Any) -> bool:
        if annotation is parameter.empty:
            return bool(parameter.name == "ctx")
        bare = typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation
        members = typing.get_args(bare) if typing.get_origin(bare) in (typing.Union, types.UnionType) else (bare,)
        return any(member is _UnresolvedContext or self._is_context(member) for member in members)

    def _returned(self, written: Any) -> Any:
        if written is self._inspect.Signature.empty:
            return UNSET
        return adapters.evaluate(written, self._globals, self.namespace, self.label)

    @property
    def rest(self) -> list[Any]:
        """The parameters that a caller fills."""
        return [each for each in self.parameters if each.name != self.context and each.name not in self.dependencies]

    def of_dependency(self, function: Callable[..., Any]) -> list[depends.DependencyParameter]:
        inner = _Signature(function, self._is_context, is_handler=False)
        return [
            depends.DependencyParameter(
                each.name,
                inner.annotations[each.name],
                each.default is not each.empty,
                inner.dependencies.get(each.name),
                each.name == inner.context,
            )
            for each in inner.parameters
        ]


def _globals_of(target: Any) -> dict[str, Any]:
    found: dict[str, Any] | None = getattr(target, "__globals__", None)
    return vars(sys.modules.get(target.__module__, types.ModuleType("none"))) if found is None else found


class _UnresolvedContext:
    """Stands for a context annotation whose name only type checkers know."""


def _function_name_or_type(function: Callable[..., Any]) -> str:
    return cast(str, getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]


def _dependency(annotation: Any, default: Any) -> Depends | None:
    if isinstance(default, Depends):
        return default
    marks = annotation.__metadata__ if typing.get_origin(annotation) is typing.Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Depends)), None)


def _namespace(function: Any) -> dict[str, Any]:
    """Names that annotations may use besides the module's: what the function closes over, and the locals of callers.

    An annotation in quotes does not close over what it names, so a type local to the function that builds a server is
    looked for on the stack. The frames of that function win over the module; others only add names it does not have.
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


# ---------------------------------------------------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------------------------------------------------


class _Reader(NamedTuple):
    schema: Schema
    read: Callable[..., dict[str, Any]]


@dataclasses.dataclass(slots=True)
class _Argument:
    """A parameter that callers fill: its name in Python and on the wire, its type, its default."""

    name: str
    wire_name: str
    adapter: Adapter
    default: Any
    # What the annotation or the docstring says; the text of a class stays with the class.
    text: str | None
    parameter: Parameter


def _typed_reader(signature: _Signature, texts: dict[str, str], name: str) -> tuple[tuple[Parameter, ...], _Reader]:
    arguments = [_argument(signature, parameter, texts) for parameter in signature.rest]
    document = _input_document(arguments)
    compact = cast(Schema, schemas.without_optional_null(document))
    reader = _StructReader(arguments, document, f"the input schema of {name!r}")
    return tuple(argument.parameter for argument in arguments), _Reader(compact, reader.read)


def _argument(signature: _Signature, parameter: Any, texts: dict[str, str]) -> _Argument:
    annotation = signature.annotations[parameter.name]
    annotation = Any if annotation is parameter.empty else annotation
    default = UNSET if parameter.default is parameter.empty else parameter.default
    annotation, default, alias = adapters.from_field_default(annotation, default)
    if default is None and not _takes_none(annotation):
        annotation = typing.Optional[annotation]  # noqa: UP045  `x: int = None`
    if default is UNSET and _is_optional(annotation):
        default = None  # an optional type may be left out, whether or not a default repeats it
    try:
        adapter = adapters.adapter(annotation, namespace=signature.namespace)
    except TypeError as error:
        raise TypeError(f"{signature.label}, parameter {parameter.name!r}: {error}") from None
    described = adapter.schema("input").get("description")
    own_text = described if typing.get_origin(annotation) is typing.Annotated else None
    text = own_text or texts.get(parameter.name)
    plain = Parameter(alias or parameter.name, annotation, default is UNSET, default, text or described)
    return _Argument(parameter.name, alias or parameter.name, adapter, default, text, plain)


def _takes_none(annotation: Any) -> bool:
    return annotation in (Any, object, None, type(None)) or _is_optional(annotation)


def _is_optional(annotation: Any) -> bool:
    if typing.get_origin(annotation) is typing.Annotated:
        return _is_optional(typing.get_args(annotation)[0])
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return union and type(None) in typing.get_args(annotation)


def _input_document(arguments: list[_Argument]) -> Schema:
    definitions: dict[str, Json] = {}
    properties: dict[str, Json] = {}
    for argument in arguments:
        member = schemas.merge(definitions, argument.adapter.document("input"))
        if argument.text:
            member = {**member, "description": argument.text}
        default = UNSET if argument.default is UNSET else adapters.json_default(argument.default)
        properties[argument.wire_name] = member if default is UNSET else {**member, "default": default}
    if not properties:
        return dict(NO_ARGUMENTS)
    required = [argument.wire_name for argument in arguments if argument.default is UNSET]
    document: Schema = {"type": "object", "properties": properties}
    if required:
        document["required"] = required
    document["additionalProperties"] = False
    return schemas.inline({**document, "$defs": definitions})


class _StructReader:
    """Reads the arguments object into a Struct made for the function."""

    def __init__(self, arguments: list[_Argument], document: Schema, what: str) -> None:
        self._arguments = arguments
        self._document = document
        self._what = what
        self._validator: Validator | None = None
        self._late = tuple((each.name, each.adapter.read, each.default) for each in arguments if not _is_direct(each))
        fields = [_struct_field(each) for each in arguments]
        rename = {each.name: each.wire_name for each in arguments if each.name != each.wire_name}
        made = msgspec.defstruct(
            "Arguments", fields, forbid_unknown_fields=True, kw_only=True, gc=False, rename=rename or None
        )
        self._decode = msgspec.json.Decoder(made, dec_hook=adapters.decode_hook).decode
        self.read: Callable[..., dict[str, Any]] = self._read_late if self._late else self._read_plain

    def _read_plain(self, raw: bytes | Raw | UnsetType = UNSET) -> dict[str, Any]:
        try:
            return msgspec.structs.asdict(self._decode(b"{}" if raw is UNSET else raw))
        except (msgspec.DecodeError, RecursionError):
            return self._reread(raw, self._decode_plain)

    def _decode_plain(self, raw: bytes | Raw) -> dict[str, Any]:
        return msgspec.structs.asdict(self._decode(raw))

    def _read_late(self, raw: bytes | Raw | UnsetType = UNSET) -> dict[str, Any]:
        try:
            return self._decode_late(b"{}" if raw is UNSET else raw)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return self._reread(raw, self._decode_late)

    def _decode_late(self, raw: bytes | Raw) -> dict[str, Any]:
        values = msgspec.structs.asdict(self._decode(raw))
        for name, read, default in self._late:
            sent = values[name]
            values[name] = default if sent is UNSET else read(sent)
        return values

    def _reread(self, raw: bytes | Raw | UnsetType, decode: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
        """Arguments refused as sent: read them as what they may stand for, or say all that is wrong."""
        sent = _sent_object(raw)
        validator = self._explainer()
        meant = sent if validator is None else schemas.understood(sent, validator)
        try:
            return decode(msgspec.json.encode(meant))
        except (msgspec.DecodeError, RecursionError, ValueError):
            problems = self._by_name(meant) if validator is None else validator.check(meant)
            refused = self._refused(meant)
            # The types decide what is wrong, the schema says it better: 12.5 is a Decimal, though the schema says text.
            kept = [problem for problem in problems if problem.kind != "invalid" or _argument_of(problem) in refused]
            named = {_argument_of(problem) for problem in kept}
            more = [problem for name, found in refused.items() if name not in named for problem in found]
            raise InvalidArguments(_lines(kept + more or problems)) from None

    def _explainer(self) -> Validator | None:
        """The schema as a validator, made for the first refusal; None if the engine cannot take a pattern in it."""
        if self._validator is None:
            try:
                self._validator = schemas.compile(self._document, what=self._what)
            except schemas.SchemaError:
                return None
        return self._validator

    def _by_name(self, meant: dict[str, Json]) -> list[Problem]:
        known = {argument.wire_name: argument for argument in self._arguments}
        unknown = [schemas.unknown_key((), name, known) for name in list(meant)[:_MAX_LINES] if name not in known]
        required = [name for name, argument in known.items() if argument.default is UNSET and name not in meant]
        return unknown + [Problem((name,), "it is required", "missing") for name in required]

    def _refused(self, meant: dict[str, Json]) -> dict[str, list[Problem]]:
        """The arguments that do not fit their types, each read by itself, since msgspec stops at its first error."""
        refused: dict[str, list[Problem]] = {}
        for argument in self._arguments:
            name = argument.wire_name
            if name in meant:
                try:
                    argument.adapter.decode(msgspec.json.encode(meant[name]))
                except Invalid as error:
                    refused[name] = [problem._replace(path=(name, *problem.path)) for problem in error.problems]
        return refused


def _argument_of(problem: Problem) -> str | int | None:
    return problem.path[0] if problem.path else None


def _is_direct(argument: _Argument) -> bool:
    return argument.adapter.field_type is not None


def _struct_field(argument: _Argument) -> tuple[str, Any] | tuple[str, Any, Any]:
    if not _is_direct(argument):
        return (argument.name, Raw) if argument.default is UNSET else (argument.name, Raw, UNSET)
    if argument.default is UNSET:
        return (argument.name, argument.adapter.field_type)
    if argument.default is None or isinstance(argument.default, (str, int, float, bool)):
        return (argument.name, argument.adapter.field_type, argument.default)

    def default() -> Any:  # the very object of the signature, as a plain call would use it
        return argument.default

    return (argument.name, argument.adapter.field_type, msgspec.field(default_factory=default))


def _sent_object(raw: bytes | Raw | UnsetType) -> dict[str, Json]:
    try:
        sent = {} if isinstance(raw, UnsetType) else msgspec.json.decode(raw)
    except RecursionError:
        raise InvalidArguments(["The arguments are too deeply nested"]) from None
    except msgspec.DecodeError:
        raise InvalidArguments(["The arguments are not valid JSON"]) from None
    if isinstance(sent, str):  # the whole object in a string
        try:
            sent = msgspec.json.decode(sent)
        except (msgspec.DecodeError, RecursionError):
            pass
    if sent is None:
        return {}
    if not isinstance(sent, dict):
        raise InvalidArguments(["The arguments must be one JSON object with a member for each argument"])
    return sent


def _lines(problems: list[Problem]) -> list[str]:
    lines = list(dict.fromkeys(schemas.sentence(problem) for problem in problems))
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], f"… and {more} more"] if more > 0 else lines


# -- Raw schemas ------------------------------------------------------------------------------------------------------


def _raw_reader(
    signature: _Signature, schema: Schema, decoder: Callable[[dict[str, Any]], Any] | None, name: str
) -> tuple[_Reader, str | None]:
    what = f"the input schema of {name!r}"
    validator = schemas.compile(schema, what=what)
    if schema.get("type") != "object":
        raise schemas.SchemaError(f'{what} must have "type": "object" at its root')
    handed, context = _handed(signature, schema, decoder is not None, name)
    defaults = {
        key: member["default"]
        for key, member in schema.get("properties", {}).items()
        if isinstance(member, dict) and "default" in member
    }
    return _Reader(schema, _RawReader(validator, defaults, decoder, handed).read), context


def _handed(
    signature: _Signature, schema: Schema, decoded: bool, name: str
) -> tuple[str | tuple[str, ...], str | None]:
    """How the function wants its arguments: whole under one name, or by their names; and the name of its context.

    One parameter takes the arguments whole, a second one the context. Parameters that are called like members of the
    schema take these members.
    """
    rest, context = signature.rest, signature.context
    members = schema.get("properties", {})
    names = tuple(each.name for each in rest)
    if names and not decoded and all(each in members for each in names) and not _takes_whole(signature, rest):
        return names, context
    if len(names) == 2 and context is None:
        return names[0], names[1]
    if len(names) == 1:
        return names[0], context
    if not names:
        return (), context
    raise ServerError(
        f"{name!r} has a raw input schema: its function takes the arguments (and the context), "
        f"or parameters named like members of the schema, not {', '.join(names)}"
    )


def _takes_whole(signature: _Signature, rest: list[Any]) -> bool:
    if len(rest) != 1:
        return False
    annotation = signature.annotations[rest[0].name]
    origin = typing.get_origin(annotation) or annotation
    return annotation is rest[0].empty or (isinstance(origin, type) and issubclass(origin, Mapping))


class _RawReader:
    """Checks the arguments object against the author's own schema."""

    def __init__(
        self,
        validator: Validator,
        defaults: dict[str, Json],
        decoder: Callable[[dict[str, Any]], Any] | None,
        handed: str | tuple[str, ...],
    ) -> None:
        self._validator = validator
        self._defaults = defaults
        self._decoder = decoder
        self._handed = handed

    def read(self, raw: bytes | Raw | UnsetType = UNSET) -> dict[str, Any]:
        sent = _sent_object(raw)
        if problems := self._validator.check(sent):
            sent = schemas.understood(sent, self._validator)
            if problems := self._validator.check(sent):
                raise InvalidArguments(_lines(problems))
        elif not isinstance(raw, UnsetType) and b"." in bytes(raw):
            sent = schemas.whole_numbers(sent, self._validator.schema, self._validator.schema)
        for name, default in self._defaults.items():
            if name not in sent:
                sent[name] = msgspec.json.decode(msgspec.json.encode(default))
        if isinstance(self._handed, tuple):
            return {name: sent[name] for name in self._handed if name in sent}
        return {self._handed: sent if self._decoder is None else self._decoded(sent)}

    def _decoded(self, sent: dict[str, Json]) -> Any:
        assert self._decoder is not None
        try:
            return self._decoder(sent)
        except ValueError as error:  # what a decoder says about a value is meant for whoever sent it
            raise InvalidArguments([f"The arguments do not fit: {error}"]) from error


# ---------------------------------------------------------------------------------------------------------------------
# x-mcp-header
# ---------------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DATA: Final = ("default", "const", "enum", "examples")


def header_paths(schema: Schema, what: str) -> dict[str, tuple[str, ...]]:
    """The arguments that travel in headers too: header token to the path of names that leads to the argument.

    2026-07-28 basic/transports, custom headers: a token, unique without regard to case, on a string, integer or boolean
    that is reached from the root through `properties` alone. Anything else makes clients drop the tool.
    """
    found: dict[str, tuple[str, ...]] = {}
    _find_headers(schema, (), found, what)
    return found


def _find_headers(schema: Json, path: tuple[str, ...] | None, found: dict[str, tuple[str, ...]], what: str) -> None:
    if isinstance(schema, list):
        for part in schema:
            _find_headers(part, None, found, what)
        return
    if not isinstance(schema, dict):
        return
    if "x-mcp-header" in schema:
        token = schema["x-mcp-header"]
        _check_header(token, schema, path, found, what)
        found[token] = cast("tuple[str, ...]", path)
    for key, part in schema.items():
        if key == "properties" and isinstance(part, dict):
            for name, member in part.items():
                _find_headers(member, None if path is None else (*path, name), found, what)
        elif key in _MAPS and isinstance(part, dict):
            for member in part.values():
                _find_headers(member, None, found, what)
        elif key not in _DATA and key != "x-mcp-header":
            _find_headers(part, None, found, what)


_MAPS: Final = ("$defs", "definitions", "patternProperties", "dependentSchemas")


def _check_header(
    token: Json, schema: Schema, path: tuple[str, ...] | None, found: dict[str, tuple[str, ...]], what: str
) -> None:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ServerError(f"{what}: {token!r} is not a header name: use letters, digits and - only")
    if not path:
        raise ServerError(f"{what}: the header {token!r} must be on an argument that is always at the same place")
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise ServerError(f"{what}: the header {token!r} must be on a string, an integer or a boolean")
    if token.casefold() in (other.casefold() for other in found):
        raise ServerError(f"{what}: the header {token!r} is used twice")


# ---------------------------------------------------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------------------------------------------------


class _Returns(NamedTuple):
    schema: Schema | None
    convert: Callable[[Any], Converted]


_CONTENT_TYPES: Final = (
    TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, UnknownContent,
    ResourceContents, Image, Audio, File, ToolResult, CallToolResult,
)  # fmt: skip


def _returns(
    signature: _Signature,
    name: str,
    output_schema: Schema | None,
    structured: bool | None,
    encoder: Callable[[Any], Any] | None,
) -> _Returns:
    """The converter for what the function is declared to return."""
    if output_schema is not None:
        validator = schemas.compile(output_schema, what=f"the output schema of {name!r}")
        return _Returns(output_schema, _Checked(name, validator, encoder).convert)
    returned = _result_type(signature)
    if structured and _is_content(returned):
        raise ServerError(f"{name!r} returns content, which is never structured: leave structured= out")
    # A plain string, an untyped dict or content has no schema worth sending (and is not sent twice) unless asked for.
    if (
        encoder is not None
        or structured is False
        or _is_content(returned)
        or (_is_untyped(returned) and not structured)
    ):
        keeps_list = _is_content(returned) and returned is not str
        return _Returns(None, _Dynamic(name, bool(structured), structured is False, encoder, keeps_list).convert)
    if returned is UNSET or returned in (Any, object):
        return _Returns(None, _Dynamic(name, bool(structured), False, encoder, False).convert)
    try:
        adapter = adapters.adapter(returned, namespace=signature.namespace)
    except TypeError as error:
        raise TypeError(f"{signature.label}, result: {error}; or give encoder=") from None
    return _Returns(adapter.schema("output"), _Typed(name, adapter).convert)


def _result_type(signature: _Signature) -> Any:
    """The declared type of the result. Of a generator, the type that it returns; its yields are reports."""
    returned = signature.returns
    origin, arguments = typing.get_origin(returned), typing.get_args(returned)
    label = getattr(origin or returned, "__name__", "")
    if label in ("Generator", "AsyncGenerator", "Iterator", "AsyncIterator", "AsyncIterable"):
        is_result = label == "Generator" and len(arguments) == 3 and arguments[2] not in (None, type(None), Any)
        return arguments[2] if is_result else UNSET
    return returned


def _is_content(returned: Any) -> bool:
    if typing.get_origin(returned) is typing.Annotated:
        return _is_content(typing.get_args(returned)[0])
    if isinstance(returned, type) and issubclass(returned, _CONTENT_TYPES):
        return True
    origin, arguments = typing.get_origin(returned), typing.get_args(returned)
    if origin is tuple and arguments == (bytes, str):
        return True
    is_choice = origin in (typing.Union, types.UnionType)
    is_list = (isinstance(origin, type) and issubclass(origin, (list, tuple))) or getattr(
        origin, "__name__", ""
    ) in _LISTS
    return (is_choice or is_list) and any(_is_content(argument) for argument in arguments)


_LISTS: Final = ("Sequence", "Iterable", "Collection")


def _is_untyped(returned: Any) -> bool:
    """Types that say nothing a schema could: str, None, bare or Any-valued containers, and choices among these."""
    if returned is UNSET or returned in (Any, object, None, type(None), str, dict, list, tuple):
        return True
    origin, arguments = typing.get_origin(returned), typing.get_args(returned)
    if origin is typing.Annotated:
        return _is_untyped(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return all(_is_untyped(argument) for argument in arguments)
    is_plain = origin in (dict, list, tuple) or getattr(origin, "__name__", "") in ("Mapping", *_LISTS)
    return is_plain and bool(arguments) and arguments[-1] in (Any, object)


class _Converter:
    def __init__(self, name: str) -> None:
        self._name = name

    def _as_is(self, result: ToolResult | CallToolResult, has_schema: bool) -> Converted:
        """A result in full is used as it is; only a structured value that breaks the promised schema is refused."""
        wire = result.to_wire() if isinstance(result, ToolResult) else result
        structured = wire.structured_content
        if has_schema and wire.is_error is not True:
            if structured is UNSET:
                # 2025-06-18 server/tools onwards: with an output schema, a success carries structured content.
                raise ResultError(f"{self._name!r} has an output schema but returned no structured value")
            structured = self._checked(structured)
        return Converted(wire.content, structured, wire.is_error is True, wire.meta)

    def _checked(self, value: Any) -> Raw:
        raise NotImplementedError

    def _mismatch(self, error: Invalid) -> ResultError:
        lines = "; ".join(schemas.sentence(problem, "result") for problem in error.problems[:5])
        return ResultError(f"{self._name!r} returned what its output schema does not allow: {lines}")

    def _not_json(self, value: Any) -> ResultError:
        return ResultError(f"{self._name!r} returned a value of type {type(value).__name__}, which has no JSON form")


class _Typed(_Converter):
    """A declared type: checked, sent as JSON text and as structured content."""

    def __init__(self, name: str, adapter: Adapter) -> None:
        super().__init__(name)
        self._adapter = adapter

    def convert(self, value: Any) -> Converted:
        if isinstance(value, (ToolResult, CallToolResult)):
            return self._as_is(value, True)
        data = self._checked(value)
        return Converted([TextContent(bytes(data).decode())], data)

    def _checked(self, value: Any) -> Raw:
        try:
            value = msgspec.json.decode(value) if isinstance(value, Raw) else value
            return Raw(self._adapter.validate_output(value))
        except Invalid as error:
            raise self._mismatch(error) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_json(value) from error


class _Checked(_Converter):
    """A raw output schema: checked, sent as JSON text and as structured content."""

    def __init__(self, name: str, validator: Validator, encoder: Callable[[Any], Any] | None) -> None:
        super().__init__(name)
        self._validator = validator
        self._encoder = encoder

    def convert(self, value: Any) -> Converted:
        if isinstance(value, (ToolResult, CallToolResult)):
            return self._as_is(value, True)
        data = self._checked(value if self._encoder is None else self._encoder(value))
        return Converted([TextContent(bytes(data).decode())], data)

    def _checked(self, value: Any) -> Raw:
        try:
            data = bytes(value) if isinstance(value, Raw) else msgspec.json.encode(value, enc_hook=adapters.encode_hook)
            plain = msgspec.json.decode(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_json(value) from error
        if problems := self._validator.check(plain):
            raise self._mismatch(Invalid(problems))
        return Raw(data)


class _Dynamic(_Converter):
    """Nothing useful declared: the value itself says what it is."""

    def __init__(
        self,
        name: str,
        structured: bool,
        text_only: bool,
        encoder: Callable[[Any], Any] | None,
        lists_are_content: bool,
    ) -> None:
        super().__init__(name)
        self._structured = structured
        self._text_only = text_only
        self._encoder = encoder
        self._lists_are_content = lists_are_content

    def convert(self, value: Any) -> Converted:
        if self._encoder is not None and not isinstance(value, (ToolResult, CallToolResult)):
            value = self._encoder(value)
        if isinstance(value, str) and not self._structured:
            return Converted([TextContent(value)])
        if value is None and not self._structured:
            return Converted([])
        if isinstance(value, (ToolResult, CallToolResult)):
            return self._as_is(value, False)
        if self._lists_are_content and isinstance(value, (list, tuple)) and not value:
            return Converted([])
        blocks = None if self._structured else to_blocks(list(value) if _is_sequence(value) else value)
        if blocks is not None:
            return Converted(blocks)
        try:
            data = msgspec.json.encode(value, enc_hook=adapters.encode_hook)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_json(value) from error
        is_typed = self._structured or (not self._text_only and _is_record(value))
        return Converted([TextContent(data.decode())], Raw(data) if is_typed else UNSET)


def _is_sequence(value: Any) -> bool:
    """A tuple that is a list of content, rather than a pair of bytes and type or a NamedTuple."""
    return type(value) is tuple and not (len(value) == 2 and isinstance(value[0], (bytes, bytearray)))


def _is_record(value: Any) -> bool:
    """Whether the value's own class says what its members are."""
    cls = type(value)
    return isinstance(value, msgspec.Struct) or hasattr(cls, "__dataclass_fields__") or hasattr(cls, "model_fields")
