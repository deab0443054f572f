"""Read types that mention pydantic with pydantic, which only this module imports."""

from __future__ import annotations

import sys
import types
import typing
from functools import partial
from typing import Any, Final, cast

import msgspec

from toolwire import schemas
from toolwire.adapters.annotations import ANNOTATED, Namespace, evaluate, type_name
from toolwire.adapters.base import Adapter, FreshDefault, Mode
from toolwire.adapters.constraints import meta_limits, meta_text, text_of
from toolwire.protocol.steps import TooManySteps
from toolwire.schemas import Invalid, Json, Problem, Schema
from toolwire.schemas.walking import with_subschemas

# An attempt takes pydantic up to ten microseconds where it fails, and less than one where it does not.
_MAX_ATTEMPTS: Final = 5_000
_MAX_ATTEMPTS_IF_VALID: Final = 200_000
_MAX_ERRORS: Final = 200
# Longer texts are read up to the first wrong item: pydantic takes twenty times as long to collect it as a right one.
_LONG: Final = 16_384
_CONTAINERS: Final = ("list", "tuple", "set", "frozenset", "dict")
# Members of pydantic's description of a type that hold values of the author, and no descriptions.
_NO_TYPES: Final = ("default", "metadata", "config", "expected", "members", "serialization")


class TooManyAttempts(ValueError):
    """A value that pydantic would try in so many ways that it would not end."""

    def __init__(self) -> None:
        super().__init__("nested too deeply for a choice without a discriminator")


class PydanticAdapter(Adapter):
    """pydantic reads and writes the type, as its models say."""

    def __init__(self, tp: Any, namespace: Namespace) -> None:
        super().__init__(tp)
        import pydantic

        self._error: type[Exception] = pydantic.ValidationError
        try:
            self._adapter: Any = pydantic.TypeAdapter(_for_pydantic(tp, namespace))
            self._schemas = {"input": self._generate(pydantic, "input"), "output": self._generate(pydantic, "output")}
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticUndefinedAnnotation) as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(f"pydantic cannot read {type_name(tp)}: {reason}") from None
        self._attempts = self._attempts_if_many()
        self._hasty: Any = None

    def _attempts_if_many(self) -> schemas.Attempts | None:
        """Prepare to count attempts, if choices of the type lead back to themselves.

        None for all other types.
        """
        document = self._schemas["input"]
        if "$defs" not in document:
            return None
        try:
            attempts = schemas.Attempts(document, f"the schema of {type_name(self.type)}")
        except schemas.SchemaError:
            return None
        return attempts if attempts.multiply else None

    def _generate(self, pydantic: Any, mode: Mode) -> Schema:
        generator = _pydantic_generator(pydantic)
        theirs = "validation" if mode == "input" else "serialization"
        written, shared = pydantic.TypeAdapter.json_schemas([("it", theirs, self._adapter)], schema_generator=generator)
        schema: Schema = {**written["it", theirs], **{key: shared[key] for key in ("$defs",) if key in shared}}
        if mode == "input":
            # A model that says nothing about extra keys gets the rule of every other tool: unknown ones are refused.
            self._extra = {} if generator.says_extra or not generator.can_forbid else {"extra": "forbid"}
            schema = _closed(schema) if self._extra else schema
        return schema

    def document(self, mode: Mode) -> Schema:
        return self._schemas[mode]

    def read(self, data: bytes | msgspec.Raw) -> Any:
        if self._attempts is not None:
            self._refuse_endless(data, "input")
        text = bytes(data)
        return (self._adapter if len(text) < _LONG else self._hasty_reader()).validate_json(text, **self._extra)

    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        if self._attempts is not None:
            self._refuse_endless(data, "output")
        text = bytes(data)
        return (self._adapter if len(text) < _LONG else self._hasty_reader()).validate_json(text)

    def _hasty_reader(self) -> Any:
        """Return a reader that stops at the first wrong item.

        It is built when a first text is long.
        """
        if self._hasty is None:
            self._hasty = _hasty(self._adapter)
        return self._hasty

    def _refuse_endless(self, data: bytes | msgspec.Raw, mode: Mode) -> None:
        """Refuse what pydantic would try in too many ways.

        It tries every alternative on every level anew. What fits the schema is tried less often than what does not, and
        may be nested more deeply.
        """
        assert self._attempts is not None
        try:
            plain = msgspec.json.decode(data)
            attempts = self._attempts.count(plain)
        except (msgspec.DecodeError, TooManySteps, RecursionError):
            raise TooManyAttempts from None
        if attempts > _MAX_ATTEMPTS:
            validator = self.validator(mode)
            if attempts > _MAX_ATTEMPTS_IF_VALID or validator is None or not validator.fits(plain):
                raise TooManyAttempts

    def encode(self, value: Any) -> bytes:
        return cast(bytes, self._adapter.dump_json(value, by_alias=True))

    def validate_output(self, value: Any) -> bytes:
        try:
            checked = self._adapter.validate_python(value)
        except self._error as error:
            raise Invalid(self.refusal(error)) from None
        try:
            return cast(bytes, self._adapter.dump_json(checked, by_alias=True, warnings="error"))
        except ValueError:
            raise TypeError(f"a value of type {type_name(type(value))} has no JSON form") from None

    def refusal(self, error: Exception) -> list[Problem]:
        if isinstance(error, TooManyAttempts):
            return [Problem((), str(error))]
        if not isinstance(error, self._error):
            return super().refusal(error)
        if cast(Any, error).error_count() > _MAX_ERRORS:
            # pydantic writes all of them or none.
            return [Problem((), f"expected {schemas.expected(self._schemas['input'], self._schemas['input'])}")]
        found = cast(Any, error).errors(include_url=False, include_context=False, include_input=False)
        return [_from_pydantic(each) for each in found[: schemas.MAX_PROBLEMS]]


def _hasty(adapter: Any) -> Any:
    """Build a reader that stops at the first wrong item of a container."""
    import inspect

    import pydantic_core

    if type(adapter.validator) is not pydantic_core.SchemaValidator:
        return adapter  # A plugin of pydantic watches what is read.
    functions = {kind: getattr(pydantic_core.core_schema, f"{kind}_schema") for kind in _CONTAINERS}
    kinds = [kind for kind, function in functions.items() if "fail_fast" in inspect.signature(function).parameters]
    # Otherwise a model inside of the type is read by the reader of its class, which collects every mistake.
    own = "_use_prebuilt" in inspect.signature(pydantic_core.SchemaValidator).parameters
    options: dict[str, Any] = {"_use_prebuilt": False} if own else {}
    return pydantic_core.SchemaValidator(_failing_fast(adapter.core_schema, kinds), **options)


def _failing_fast(described: Any, kinds: list[str]) -> Any:
    """Copy pydantic's description of a type, to stop at a container's first mistake."""
    if isinstance(described, (list, tuple)):
        return type(described)([_failing_fast(part, kinds) for part in described])
    if not isinstance(described, dict):
        return described
    kind = described.get("type")
    kept = _NO_TYPES if isinstance(kind, str) else ()  # Otherwise the keys are names of members.
    copy = {key: part if key in kept else _failing_fast(part, kinds) for key, part in described.items()}
    return {**copy, "fail_fast": True} if kind in kinds else copy


def _from_pydantic(found: dict[str, Any]) -> Problem:
    message = str(found["msg"])
    return Problem(tuple(found["loc"]), message[:1].lower() + message[1:])


def _pydantic_generator(pydantic: Any) -> Any:
    """Make a schema generator without invented titles.

    It notes whether a model chose what to do with extra keys.
    """
    import inspect

    base: Any = pydantic.json_schema.GenerateJsonSchema

    class Generator(base):  # type: ignore[misc]
        says_extra = False
        can_forbid = "extra" in inspect.signature(pydantic.TypeAdapter.validate_json).parameters

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def model_schema(self, schema: Any) -> Any:
            return self._untitled(super().model_schema(schema), schema)

        def dataclass_schema(self, schema: Any) -> Any:
            return self._untitled(super().dataclass_schema(schema), schema)

        def typed_dict_schema(self, schema: Any) -> Any:
            return self._untitled(super().typed_dict_schema(schema), schema)

        def enum_schema(self, schema: Any) -> Any:
            return self._untitled(super().enum_schema(schema), schema)

        def _untitled(self, written: Any, schema: Any) -> Any:
            cls = schema.get("cls")
            config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
            if "extra" in config:
                Generator.says_extra = True
            if written.get("title") == getattr(cls, "__name__", None) and not config.get("title"):
                written.pop("title", None)
            return written

    return Generator


def _closed(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    result = with_subschemas(schema, _closed)
    if result.get("type") == "object" and isinstance(result.get("properties"), dict):
        result.setdefault("additionalProperties", False)
    return result


def _for_pydantic(tp: Any, namespace: Namespace) -> Any:
    """Translate msgspec's constraints and texts in a type for pydantic."""
    import pydantic

    if isinstance(tp, (str, typing.ForwardRef)):
        tp = evaluate(tp if isinstance(tp, str) else tp.__forward_arg__, {}, namespace, "a type")
    origin, arguments = typing.get_origin(tp), typing.get_args(tp)
    if origin is typing.Annotated:
        inner: Any = _for_pydantic(arguments[0], namespace)
        for item in tp.__metadata__:
            extra: Any = item
            if isinstance(item, msgspec.Meta):
                limits = {key: value for key, value in meta_limits(item).items() if key != "tz"}
                if item.tz is not None:
                    raise TypeError("msgspec.Meta(tz=…) next to pydantic: use pydantic.AwareDatetime or NaiveDatetime")
                text = meta_text(item)
                extra = pydantic.Field(description=text.pop("description", None), json_schema_extra=text, **limits)
            elif text := text_of(item):
                extra = pydantic.Field(description=text.pop("description", None), json_schema_extra=text or None)
            inner = typing.Annotated[inner, extra]
        return inner
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(_for_pydantic(argument, namespace) for argument in arguments)]  # noqa: UP007
    if origin in (list, set, frozenset, dict, tuple):
        return origin[tuple(each if each is ... else _for_pydantic(each, namespace) for each in arguments)]
    return tp


def read_field(annotation: Any, default: Any) -> tuple[Any, Any, str | None]:
    """Return a parameter's annotation, default and wire name, with `pydantic.Field` read wherever it was written.

    `x: int = Field(3, ge=1)` means `x: Annotated[int, Field(ge=1)] = 3`. An absent default is UNSET; one that is made,
    or that a caller could change, is a `FreshDefault`, as it is new in every instance of a pydantic model.
    """
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return annotation, default, None
    info: Any = getattr(pydantic, "fields", None)
    if info is None:
        return annotation, default, None
    if isinstance(default, info.FieldInfo):
        annotation = typing.Annotated[annotation, default]
        default = msgspec.UNSET
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, default, None
    alias: str | None = None
    metadata: list[Any] = []
    for item in annotation.__metadata__:
        if not isinstance(item, info.FieldInfo):
            metadata.append(item)
            continue
        if default is msgspec.UNSET and not item.is_required():
            default = _field_default(item)
        found, item = _without_alias(item)
        alias = found or alias
        metadata.append(item)
    return ANNOTATED[(typing.get_args(annotation)[0], *metadata)], default, alias


def _field_default(item: Any) -> Any:
    if getattr(item, "default_factory_takes_validated_data", False):
        raise TypeError("the default_factory of a parameter takes no arguments")
    if item.default_factory is None and item.get_default() is item.default:
        return item.default  # It cannot be changed, or pydantic would have made a copy.
    shown = msgspec.UNSET if item.default_factory is not None else item.default
    return FreshDefault(partial(item.get_default, call_default_factory=True), shown)


def _without_alias(item: Any) -> tuple[str | None, Any]:
    """Return the alias of a `Field`, and the Field without it.

    A name belongs to a parameter, not to a type.
    """
    import copy

    if item.alias is None and item.validation_alias is None:
        return None, item
    if item.validation_alias is not None and not isinstance(item.validation_alias, str):
        raise TypeError("a parameter has one name: use a plain string as validation_alias")
    plain = copy.copy(item)
    plain.alias = plain.validation_alias = plain.serialization_alias = None
    return item.validation_alias or item.alias, plain
