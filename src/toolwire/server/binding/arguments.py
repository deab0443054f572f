"""Readers of arguments: JSON text to keyword arguments, or one sentence for each thing that is wrong.

A call with plain arguments is one msgspec decode into a Struct made for the function; only a call that is refused pays
for finding out why, argument by argument.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire import adapters, schemas
from toolwire.adapters import Adapter, FreshDefault, Invalid, Problem
from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError, ToolwireError
from toolwire.protocol.steps import TooManySteps
from toolwire.schemas import Json, Schema
from toolwire.server.binding.signature import Signature

if TYPE_CHECKING:
    from toolwire.schemas import Validator

_MAX_LINES: Final = 20
# A number of JSON that Python reads as a float without a fraction: 3.0, 3e2, or one with more digits than a float has.
_MAY_BE_WHOLE: Final = lazy_pattern(rb"[0-9](?:\.0|[eE])|[0-9]{15}")

_Sent = TypeVar("_Sent")


class InvalidArguments(ToolwireError):
    """Arguments that do not fit; `lines` has one sentence for each thing that is wrong, meant for the model."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a component. `default` is UNSET when there is none, or none that is always the same."""

    name: str
    annotation: Any
    required: bool
    default: Any
    description: str | None


class Reader(msgspec.Struct, frozen=True):
    """The input schema, and the readers of arguments: by name, or in order where that is known.

    `meant` takes a decoded object and returns the JSON that the object stands for. That JSON fits the schema.
    """

    schema: Schema
    read: Callable[..., dict[str, Any]]
    meant: Callable[[dict[str, Json]], dict[str, Json]]
    read_in_order: Callable[..., tuple[Any, ...]] | None = None


# -- Typed parameters -------------------------------------------------------------------------------------------------


class _Argument(msgspec.Struct, frozen=True):
    """A parameter that callers fill: its name in Python and on the wire, its type, its default."""

    name: str
    wire_name: str
    adapter: Adapter
    default: Any
    # The text of the annotation or of the docstring. The description of a class stays with the class.
    text: str | None
    parameter: Parameter


def typed_reader(
    signature: Signature, texts: dict[str, str], profile: schemas.Profile = "portable"
) -> tuple[tuple[Parameter, ...], Reader]:
    arguments = [_argument(signature, parameter, texts) for parameter in signature.rest]
    document = _input_document(arguments)
    reader = _StructReader(arguments, document)
    parameters = tuple(argument.parameter for argument in arguments)
    return parameters, Reader(schemas.portable(document, profile), reader.read, reader.meant, reader.read_in_order)


def _argument(signature: Signature, parameter: Any, texts: dict[str, str]) -> _Argument:
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
    shown = default.shown if isinstance(default, FreshDefault) else default
    plain = Parameter(alias or parameter.name, annotation, default is UNSET, shown, text or described)
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
        shown = argument.parameter.default
        default = UNSET if shown is UNSET else adapters.json_default(shown)
        properties[argument.wire_name] = member if default is UNSET else {**member, "default": default}
    required = [argument.wire_name for argument in arguments if argument.parameter.required]
    document: Schema = {"type": "object", "properties": properties}
    if required:
        document["required"] = required
    document["additionalProperties"] = False
    return schemas.inline({**document, "$defs": definitions})


class _StructReader:
    """Reads the arguments object into a Struct made for the function."""

    def __init__(self, arguments: list[_Argument], document: Schema) -> None:
        self._arguments = arguments
        self._document = document
        late = [each for each in arguments if not _is_direct(each)]
        self._late = tuple((each.name, each.adapter.read) for each in late)
        self._late_defaults = tuple((each.name, _maker(each)) for each in late if not each.parameter.required)
        fields = [_struct_field(each) for each in arguments]
        rename = {each.name: each.wire_name for each in arguments if each.name != each.wire_name}
        made = msgspec.defstruct(
            "Arguments", fields, forbid_unknown_fields=True, kw_only=True, gc=False, rename=rename or None
        )
        self._decode = msgspec.json.Decoder(made, dec_hook=adapters.decode_hook).decode
        self.read: Callable[..., dict[str, Any]] = self._read_late if self._late else self._read_plain
        self.read_in_order: Callable[..., tuple[Any, ...]] | None = None if self._late else self._read_plain_in_order

    def _read_plain(self, raw: bytes | Raw | UnsetType = UNSET) -> dict[str, Any]:
        try:
            return msgspec.structs.asdict(self._decode(b"{}" if raw is UNSET else raw))
        except (msgspec.DecodeError, RecursionError):
            return self._reread(raw, self._decode_plain)

    def _read_plain_in_order(self, raw: bytes | Raw | UnsetType = UNSET) -> tuple[Any, ...]:
        try:
            return msgspec.structs.astuple(self._decode(b"{}" if raw is UNSET else raw))
        except (msgspec.DecodeError, RecursionError):
            return tuple(self._reread(raw, self._decode_plain).values())

    def _decode_plain(self, raw: bytes | Raw) -> dict[str, Any]:
        return msgspec.structs.asdict(self._decode(raw))

    def _read_late(self, raw: bytes | Raw | UnsetType = UNSET) -> dict[str, Any]:
        try:
            values = self._decode_late(b"{}" if raw is UNSET else raw)
        except (msgspec.DecodeError, RecursionError, ValueError):
            values = self._reread(raw, self._decode_late)
        for name, make in self._late_defaults:
            if values[name] is UNSET:
                values[name] = make()  # If this fails, the caller is not to blame.
        return values

    def _decode_late(self, raw: bytes | Raw) -> dict[str, Any]:
        values = msgspec.structs.asdict(self._decode(raw))
        for name, read in self._late:
            if values[name] is not UNSET:
                values[name] = read(values[name])
        return values

    def meant(self, sent: dict[str, Json]) -> dict[str, Json]:
        return self._each(sent, lambda adapter, value: adapter.fitting(value))

    def _reread(self, raw: bytes | Raw | UnsetType, decode: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
        """Read refused arguments in another way that fits, or report everything that is wrong."""
        texts = self._each(_sent_members(raw), lambda adapter, text: adapter.repaired(text))
        try:
            return decode(msgspec.json.encode(texts))
        except (msgspec.DecodeError, RecursionError, ValueError):
            raise InvalidArguments(["The arguments do not fit"]) from None

    def _each(self, sent: dict[str, _Sent], read: Callable[[Adapter, _Sent], _Sent]) -> dict[str, _Sent]:
        """Read each argument by itself; raise `InvalidArguments` with everything that is wrong."""
        known = {argument.wire_name: argument for argument in self._arguments}
        unknown = islice((name for name in sent if name not in known), _MAX_LINES)
        problems = [schemas.unknown_key((), name, known) for name in unknown]
        missing = [name for name, argument in known.items() if argument.parameter.required and name not in sent]
        problems += [schemas.missing_key((), name, self._document, self._document) for name in missing]
        found: dict[str, _Sent] = {}
        for name, argument in known.items():
            if name not in sent or self._is_left_out(name, sent[name]):
                continue
            try:
                found[name] = read(argument.adapter, sent[name])
            except Invalid as error:
                problems += [problem._replace(path=(name, *problem.path)) for problem in error.problems]
        if problems:
            raise InvalidArguments(_lines(problems))
        return found

    def _is_left_out(self, name: str, value: Any) -> bool:
        """Return whether an argument is null, does not accept null, and may be left out."""
        is_null = value is None or (isinstance(value, Raw) and bytes(value) == b"null")
        return is_null and not schemas.without_needless_nulls({name: None}, self._document)


def _is_direct(argument: _Argument) -> bool:
    return argument.adapter.field_type is not None


def _maker(argument: _Argument) -> Callable[[], Any]:
    if isinstance(argument.default, FreshDefault):
        return argument.default.make
    return lambda: argument.default  # the very object of the signature, as a plain call would use it


def _struct_field(argument: _Argument) -> tuple[str, Any] | tuple[str, Any, Any]:
    if not _is_direct(argument):
        return (argument.name, Raw) if argument.default is UNSET else (argument.name, Raw, UNSET)
    if argument.default is UNSET:
        return (argument.name, argument.adapter.field_type)
    if argument.default is None or isinstance(argument.default, (str, int, float, bool)):
        return (argument.name, argument.adapter.field_type, argument.default)
    return (argument.name, argument.adapter.field_type, msgspec.field(default_factory=_maker(argument)))


# -- Records as the whole input ---------------------------------------------------------------------------------------


def record_reader(
    signature: Signature, record: Any, name: str, profile: schemas.Profile = "portable"
) -> tuple[Reader, str | None]:
    """Read the arguments object as one record, which the function takes under its one parameter."""
    what = f"the input type of {name!r}"
    try:
        adapter = adapters.adapter(record, namespace=signature.namespace)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    document = schemas.inline(adapter.document("input"))
    if document.get("type") != "object" or "properties" not in document:
        raise ServerError(f"{what} is a class with named members, such as a dataclass, or a JSON Schema")
    handed, context = _handed(signature, document, True, name)
    reader = _RecordReader(adapter, handed)
    return Reader(schemas.portable(document, profile), reader.read, reader.meant), context


class _RecordReader:
    """Reads the arguments object into a record."""

    def __init__(self, adapter: Adapter, handed: str | tuple[str, ...]) -> None:
        self._adapter = adapter
        self._handed = handed

    def read(self, raw: bytes | Raw | UnsetType = UNSET) -> dict[str, Any]:
        text = b"{}" if isinstance(raw, UnsetType) else raw
        try:
            record = self._adapter.read(text)
        except (msgspec.DecodeError, RecursionError, ValueError):
            try:
                record = self._adapter.decode_lenient(msgspec.json.encode(_sent_members(text)))
            except Invalid as error:
                raise InvalidArguments(_lines(error.problems)) from None
        return {self._handed: record} if isinstance(self._handed, str) else {}

    def meant(self, sent: dict[str, Json]) -> dict[str, Json]:
        try:
            meant: dict[str, Json] = self._adapter.fitting(sent)
        except Invalid as error:
            raise InvalidArguments(_lines(error.problems)) from None
        return meant


# -- Raw schemas ------------------------------------------------------------------------------------------------------


def raw_reader(
    signature: Signature,
    schema: Schema,
    decoder: Callable[[dict[str, Any]], Any] | None,
    name: str,
    *,
    profile: schemas.Profile | None = None,
    validate: bool = True,
) -> tuple[Reader, str | None]:
    """Check the arguments against a schema. It is published as it is, or by a profile if Toolwire made it."""
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
    kind = _RawReader if validate else _UncheckedReader
    reader = kind(validator, defaults, decoder, handed)
    published = schema if profile is None else schemas.portable(schema, profile)
    return Reader(published, reader.read, reader.meant), context


def _handed(signature: Signature, schema: Schema, decoded: bool, name: str) -> tuple[str | tuple[str, ...], str | None]:
    """Return how the function wants its arguments, whole or by their names; and the name of its context.

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


def _takes_whole(signature: Signature, rest: list[Any]) -> bool:
    if len(rest) != 1:
        return False
    annotation = signature.annotations[rest[0].name]
    origin = typing.get_origin(annotation) or annotation
    return annotation is rest[0].empty or (isinstance(origin, type) and issubclass(origin, Mapping))


class SchemaReader:
    """Checks the arguments object against a schema, and hands it over as it was sent.

    `tell_nulls` is called when null was sent for members that may be left out and do not take null; they are left out.
    """

    def __init__(self, validator: Validator, tell_nulls: Callable[[], None] | None = None) -> None:
        self._validator = validator
        self._tell_nulls = tell_nulls

    def sent(self, raw: bytes | Raw | UnsetType) -> dict[str, Any]:
        """Return the arguments; raise `InvalidArguments` where they do not fit."""
        text = b"{}" if isinstance(raw, UnsetType) else bytes(raw)
        return self._checked(_sent_object(text), text)

    def meant(self, sent: dict[str, Json]) -> dict[str, Json]:
        given = schemas.without_needless_nulls(sent, self._validator.schema)
        meant: dict[str, Json]
        meant, problems = schemas.reread(given, self._validator)
        if problems:
            raise InvalidArguments(_lines(problems))
        return meant

    def _checked(self, sent: dict[str, Json], text: bytes) -> dict[str, Json]:
        if not self._validator.fits(sent, text):
            return self._reread(sent, text)
        if _MAY_BE_WHOLE.search(text) is None:
            return sent
        try:
            whole: dict[str, Json] = self._validator.whole(sent, text)
        except (TooManySteps, RecursionError):
            raise InvalidArguments(_lines([schemas.TOO_LARGE])) from None
        return whole

    def _reread(self, sent: dict[str, Json], text: bytes) -> dict[str, Json]:
        """Read refused arguments in another way that fits, or report what is wrong."""
        given = schemas.without_needless_nulls(sent, self._validator.schema) if schemas.may_have_nulls(text) else sent
        if given is not sent and self._tell_nulls is not None:
            self._tell_nulls()
        meant: dict[str, Json]
        meant, problems = schemas.reread(given, self._validator, text, is_refused=given is sent)
        if problems:
            raise InvalidArguments(_lines(problems))
        return meant


class _RawReader(SchemaReader):
    """Checks the arguments object against the author's own schema."""

    def __init__(
        self,
        validator: Validator,
        defaults: dict[str, Json],
        decoder: Callable[[dict[str, Any]], Any] | None,
        handed: str | tuple[str, ...],
    ) -> None:
        super().__init__(validator)
        self._defaults = defaults
        self._decoder = decoder
        self._handed = handed

    def read(self, raw: bytes | Raw | UnsetType = UNSET) -> dict[str, Any]:
        sent = self.sent(raw)
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
        except ValueError as error:  # A decoder's message about a value is meant for the caller.
            raise InvalidArguments([f"The arguments do not fit: {error}"]) from error


class _UncheckedReader(_RawReader):
    """Hands the arguments object over as it was sent, for a function that checks it itself."""

    def meant(self, sent: dict[str, Json]) -> dict[str, Json]:
        return sent

    def _checked(self, sent: dict[str, Json], text: bytes) -> dict[str, Json]:
        return sent


# -- What was sent, and what is wrong with it -------------------------------------------------------------------------


_decode_values = msgspec.json.Decoder(dict[str, Any] | None).decode
_decode_texts = msgspec.json.Decoder(dict[str, Raw] | None).decode


def _sent_object(text: bytes) -> dict[str, Json]:
    """Decode the arguments object."""
    return _decoded(text, _decode_values)


def _sent_members(raw: bytes | Raw | UnsetType) -> dict[str, Raw]:
    """Take the arguments object apart, each argument still as JSON text."""
    return {} if isinstance(raw, UnsetType) else _decoded(raw, _decode_texts)


def _decoded(raw: bytes | Raw, decode: Callable[[bytes | Raw], dict[str, _Sent] | None]) -> dict[str, _Sent]:
    try:
        sent = decode(raw)
    except msgspec.ValidationError:
        # 2026-07-28 server/tools, error handling: a request that does not fit the schema of the request.
        raise ProtocolError(
            INVALID_PARAMS, "The arguments must be one JSON object with a member for each argument"
        ) from None
    except RecursionError:
        raise InvalidArguments(["The arguments are too deeply nested"]) from None
    except (msgspec.DecodeError, ValueError):
        raise InvalidArguments(["The arguments are not valid JSON"]) from None
    return sent or {}


def _lines(problems: list[Problem]) -> list[str]:
    lines = list(dict.fromkeys(schemas.sentence(problem) for problem in problems))
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], f"… and {more} more"] if more > 0 else lines
