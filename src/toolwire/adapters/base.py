"""The base of adapters: read strictly or leniently, write, and report every problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from toolwire import schemas
from toolwire.adapters.annotations import type_name
from toolwire.adapters.hooks import encode_hook
from toolwire.schemas import Invalid, Json, Problem, Schema

if TYPE_CHECKING:
    from toolwire.schemas import Validator

Mode = Literal["input", "output"]


class FreshDefault(msgspec.Struct, frozen=True):
    """A default made anew for every call, with its value for schemas.

    UNSET means that the schema shows none.
    """

    make: Callable[[], Any]
    shown: Any


class Adapter(ABC):
    """Reads and writes values of one type."""

    # The type that a msgspec Struct may use for a member of this type, or None when only `decode` can read it.
    field_type: Any = None

    def __init__(self, tp: Any) -> None:
        self.type = tp
        self._validators: dict[Mode, Validator | None] = {}

    def schema(self, mode: Mode = "input") -> Schema:
        """The compact JSON Schema: what to send (`input`) or what will come (`output`)."""
        schema = schemas.inline(self.document(mode))
        return cast(Schema, schemas.without_optional_null(schema)) if mode == "input" else schema

    @abstractmethod
    def document(self, mode: Mode) -> Schema:
        """Return the full schema with every class under `$defs`.

        It is merged with other ones before it is made compact.
        """

    def decode(self, data: bytes | msgspec.Raw) -> Any:
        """The value that the JSON text says, exactly as sent. Raises `Invalid` with every problem."""
        try:
            return self.read(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise Invalid(self.problems(data, error)) from None

    def decode_lenient(self, data: bytes | msgspec.Raw) -> Any:
        """Like `decode`, but read `"3"`, `3.0` and JSON in strings as they were meant."""
        try:
            return self.read(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return self._decode_again(data, error)[1]

    def repaired(self, data: msgspec.Raw) -> msgspec.Raw:
        """Return the JSON text, repaired if needed. Raises `Invalid` if that fails."""
        try:
            self.read(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return msgspec.Raw(self._decode_again(data, error)[0])
        return data

    def fitting(self, value: Json) -> Json:
        """Return the JSON value, repaired if needed. Raises `Invalid` if that fails."""
        validator = self.validator("input")
        if validator is None or validator.fits(value):
            return value
        given = schemas.without_needless_nulls(value, validator.schema)
        other, problems = schemas.reread(given, validator, is_refused=given is value)
        if problems:
            raise Invalid(problems)
        return other

    def _decode_again(self, data: bytes | msgspec.Raw, error: Exception) -> tuple[bytes, Any]:
        """Repair the parts that do not fit, and decode again.

        Raises `Invalid` if that does not help.
        """
        given = self._without_nulls(data)
        if given is not None:
            try:
                return given, self.read(given)
            except (msgspec.DecodeError, RecursionError, ValueError) as again:
                data, error = given, again
        if isinstance(error, RecursionError) or not self._is_explained(data):
            raise Invalid(self.problems(data, error)) from None
        try:
            sent = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, ValueError):
            raise Invalid([Problem((), "not valid JSON")]) from None
        validator = self.validator("input")
        if validator is None:
            raise Invalid(self.refusal(error)) from None
        meant, problems = schemas.reread(sent, validator)
        if meant is not sent:
            other = msgspec.json.encode(meant)
            try:
                return other, self.read(other)
            except (msgspec.DecodeError, RecursionError, ValueError) as again:
                error = again
        raise Invalid(problems or self.refusal(error)) from None

    def _without_nulls(self, data: bytes | msgspec.Raw) -> bytes | None:
        """Remove needless nulls from a JSON text; None if there are none."""
        text = bytes(data)
        if not schemas.may_have_nulls(text):
            return None
        try:
            sent = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        given = schemas.without_needless_nulls(sent, schemas.inline(self.document("input")))
        return None if given is sent else msgspec.json.encode(given)

    @staticmethod
    def _is_explained(data: bytes | msgspec.Raw) -> bool:
        """Return whether a text is short enough to search it for all problems."""
        return schemas.parts_in(bytes(data)) <= schemas.MAX_EXPLAINED

    def decode_output(self, data: bytes | msgspec.Raw) -> Any:
        """Decode a value of another program (`returns=`), allowing unknown keys."""
        try:
            return self.read_output(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise Invalid(self.problems(data, error, "output")) from None

    def encode(self, value: Any) -> bytes:
        """JSON text. Raises `TypeError` when the value has no JSON form."""
        return msgspec.json.encode(value, enc_hook=encode_hook)

    def validate_output(self, value: Any) -> bytes:
        """Encode a value and check it against the type.

        Raises `Invalid` when it does not fit, `TypeError` when it is not JSON.
        """
        data = self.encode(value)
        self.decode_output(data)
        return data

    def validator(self, mode: Mode) -> Validator | None:
        """Return a validator for the type's schema, which finds every problem.

        It is built when the first value is refused. None when the schema engine cannot compile it, as with a pattern
        that only Python's `re` knows.
        """
        if mode not in self._validators:
            document = schemas.inline(self.document(mode))
            try:
                self._validators[mode] = schemas.compile(document, what=f"the schema of {type_name(self.type)}")
            except schemas.SchemaError:
                self._validators[mode] = None
        return self._validators[mode]

    def problems(self, data: bytes | msgspec.Raw, error: Exception, mode: Mode = "input") -> list[Problem]:
        if isinstance(error, RecursionError):
            return [Problem((), "too deeply nested")]
        if not self._is_explained(data):
            return self.refusal(error)
        try:
            instance = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return [Problem((), "not valid JSON")]
        validator = self.validator(mode)
        return (validator.check(instance) if validator else []) or self.refusal(error)

    def refusal(self, error: Exception) -> list[Problem]:
        """Return the problem that the type's own reader names, if the schema finds none."""
        return [_from_msgspec(error, schemas.inline(self.document("input")))]

    @abstractmethod
    def read(self, data: bytes | msgspec.Raw) -> Any:
        """The value of a JSON text; unknown keys are refused."""

    @abstractmethod
    def read_output(self, data: bytes | msgspec.Raw) -> Any:
        """The value of a JSON text from a peer; unknown keys are passed over."""


def _from_msgspec(error: Exception, schema: Schema) -> Problem:
    """`Expected `int`, got `str` - at `$.rows[0].name`` as a problem."""
    text, _, at = str(error).partition(" - at `")
    place = at.partition("`")[0].removeprefix("$").replace("[...]", "").replace("]", "").replace("[", ".")
    path = tuple(int(step) if step.isdecimal() else step for step in place.split(".") if step)
    if "format" in schema and not path:
        return Problem((), f"expected {schemas.expected(schema, schema)}")
    message = text.replace("`", "")
    return Problem(path, message[:1].lower() + message[1:])
