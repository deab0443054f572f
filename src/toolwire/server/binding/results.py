"""Converters of results: what a handler returns as content, as structured content, or as both."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw

from toolwire import adapters, schemas
from toolwire.adapters import Adapter, Invalid
from toolwire.content import Audio, File, Image, ToolResult, to_blocks
from toolwire.protocol.errors import ServerError, ToolError, ToolwireError
from toolwire.protocol.open_codec import has_unknown
from toolwire.protocol.surrogates import encode_readable, readable
from toolwire.protocol.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from toolwire.schemas import Schema
from toolwire.server.binding.signature import Signature

if TYPE_CHECKING:
    from toolwire.schemas import Validator


class ResultError(ToolwireError, TypeError):
    """A handler returned what cannot be sent: not JSON, or not what its output schema promises. For the log, masked."""


class OpenResult(CallToolResult, kw_only=True):
    """A result with members that its types do not know, which the plain encoder would leave out."""


class Returns(msgspec.Struct, frozen=True):
    """The output schema, and the converter of a handler's value to a result with its structured part as JSON text."""

    schema: Schema | None
    convert: Callable[[Any], CallToolResult]


_CONTENT_TYPES: Final = (
    TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, UnknownContent,
    ResourceContents, Image, Audio, File, ToolResult, CallToolResult,
)  # fmt: skip
_LISTS: Final = ("Sequence", "Iterable", "Collection")


def returns_of(
    signature: Signature,
    name: str,
    output_schema: Schema | None,
    structured: bool | None,
    encoder: Callable[[Any], Any] | None,
) -> Returns:
    """Return the converter for the declared result of a function."""
    if output_schema is not None:
        validator = schemas.compile(output_schema, what=f"the output schema of {name!r}")
        return Returns(output_schema, _Checked(name, validator, encoder).convert)
    returned = _result_type(signature)
    if structured and _is_content(returned):
        raise ServerError(f"{name!r} returns content, which is never structured: leave structured= out")
    # A plain string, an untyped dict or content has no useful schema. It gets none, and is sent once, unless asked for.
    if (
        encoder is not None
        or structured is False
        or _is_content(returned)
        or (_is_untyped(returned) and not structured)
    ):
        keeps_list = _is_content(returned) and returned is not str
        return Returns(None, _Dynamic(name, bool(structured), structured is False, encoder, keeps_list).convert)
    if returned is UNSET or returned in (Any, object):
        return Returns(None, _Dynamic(name, bool(structured), False, encoder, False).convert)
    try:
        adapter = adapters.adapter(returned, namespace=signature.namespace)
    except TypeError as error:
        raise TypeError(f"{signature.label}, result: {error}; or give encoder=") from None
    return Returns(adapter.schema("output"), _Typed(name, adapter).convert)


def _result_type(signature: Signature) -> Any:
    """Return the declared type of the result. For a generator it is the returned type; its yields are progress."""
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


def _is_untyped(returned: Any) -> bool:
    """Return whether a schema adds nothing to a type: str, None, bare or Any-valued containers, unions of these."""
    if returned is UNSET or returned in (Any, object, None, type(None), str, dict, list, tuple):
        return True
    origin, arguments = typing.get_origin(returned), typing.get_args(returned)
    if origin is typing.Annotated:
        return _is_untyped(arguments[0])
    if origin in (typing.Union, types.UnionType):
        # Bytes become text on the wire, and nobody could tell that text from the other member of the union.
        known = [argument for argument in arguments if argument is not bytes or str not in arguments]
        return all(_is_untyped(argument) for argument in known)
    is_plain = origin in (dict, list, tuple) or getattr(origin, "__name__", "") in ("Mapping", *_LISTS)
    return is_plain and bool(arguments) and arguments[-1] in (Any, object)


class _Converter:
    def __init__(self, name: str) -> None:
        self._name = name

    def _as_is(
        self, result: ToolResult | CallToolResult, check: Callable[[Any], bytes] | None = None
    ) -> CallToolResult:
        """Use a full result as it is; refuse a structured value that breaks the promised schema."""
        wire = result.to_wire() if isinstance(result, ToolResult) else result
        structured = wire.structured_content
        if check is not None and wire.is_error is not True:
            if structured is UNSET:
                # 2025-06-18 server/tools onwards: with an output schema, a success carries structured content.
                raise ToolError(
                    f"The tool {self._name!r} promises a structured result and returned none. Its author can return "
                    "ToolResult(structured=...), or declare the function as -> ToolResult to promise nothing."
                )
            structured = Raw(check(structured))
        # A copy: middleware may change the result, and the handler's own object must stay as it is.
        kind = OpenResult if has_unknown(wire) else CallToolResult
        copy = kind(
            content=wire.content,
            structured_content=structured,
            is_error=True if wire.is_error is True else UNSET,
            meta=UNSET if wire.meta == {} else wire.meta,
        )
        if kind is OpenResult:
            copy.__dict__.update(wire.__dict__)
        return copy

    def _mismatch(self, error: Invalid) -> ResultError:
        lines = "; ".join(schemas.sentence(problem, "result") for problem in error.problems[:5])
        return ResultError(f"{self._name!r} returned what its output schema does not allow: {lines}")

    def _not_json(self, value: Any, error: Exception) -> ResultError:
        reason = close_coroutine(value) or error
        return ResultError(f"{self._name!r} returned a {type(value).__name__} that cannot be sent as JSON: {reason}")


def close_coroutine(value: Any) -> str:
    """Close a coroutine that a handler returned, and return the advice; "" for other values."""
    if not isinstance(value, types.CoroutineType):
        return ""
    # It is refused and never awaited, which Python would warn of at any later time.
    value.close()
    return "write await before the call that it returns"


class _Typed(_Converter):
    """A declared type: checked, sent as JSON text and as structured content."""

    def __init__(self, name: str, adapter: Adapter) -> None:
        super().__init__(name)
        self._validate = adapter.validate_output

    def convert(self, value: Any) -> CallToolResult:
        if isinstance(value, (ToolResult, CallToolResult)):
            return self._as_is(value, self._checked)
        try:
            data = self._validate(value)
        except (Invalid, TypeError, ValueError, RecursionError):
            data = self._checked(value)  # It may be JSON already; otherwise this says what is wrong.
        return CallToolResult(content=[TextContent(data.decode())], structured_content=Raw(data))

    def _checked(self, value: Any) -> bytes:
        try:
            return self._validate(msgspec.json.decode(value) if isinstance(value, Raw) else value)
        except Invalid as error:
            raise self._mismatch(error) from None
        except UnicodeEncodeError:
            return self._validate(readable(value, adapters.encode_hook))
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_json(value, error) from error


class _Checked(_Converter):
    """A raw output schema: checked, sent as JSON text and as structured content."""

    def __init__(self, name: str, validator: Validator, encoder: Callable[[Any], Any] | None) -> None:
        super().__init__(name)
        self._validator = validator
        self._encoder = encoder

    def convert(self, value: Any) -> CallToolResult:
        if isinstance(value, (ToolResult, CallToolResult)):
            return self._as_is(value, self._checked)
        data = self._checked(value if self._encoder is None else self._encoder(value))
        return CallToolResult(content=[TextContent(data.decode())], structured_content=Raw(data))

    def _checked(self, value: Any) -> bytes:
        try:
            data = bytes(value) if isinstance(value, Raw) else encode_readable(value, adapters.encode_hook)
            plain = msgspec.json.decode(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_json(value, error) from error
        if problems := self._validator.check(plain):
            raise self._mismatch(Invalid(problems))
        return data


class _Dynamic(_Converter):
    """A result without a useful declared type. Its value decides how it is sent."""

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

    def convert(self, value: Any) -> CallToolResult:
        if self._encoder is not None and not isinstance(value, (ToolResult, CallToolResult)):
            value = self._encoder(value)
        if isinstance(value, str) and not self._structured:
            return CallToolResult(content=[TextContent(value)])
        if value is None and not self._structured:
            return CallToolResult(content=[])
        if isinstance(value, (ToolResult, CallToolResult)):
            return self._as_is(value)
        if self._lists_are_content and isinstance(value, (list, tuple)) and not value:
            return CallToolResult(content=[])
        blocks = None if self._structured else to_blocks(list(value) if _is_sequence(value) else value)
        if blocks is not None:
            return (OpenResult if has_unknown(blocks) else CallToolResult)(content=blocks)
        try:
            data = encode_readable(value, adapters.encode_hook)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_json(value, error) from error
        is_typed = self._structured or (not self._text_only and _is_record(value))
        return CallToolResult(content=[TextContent(data.decode())], structured_content=Raw(data) if is_typed else UNSET)


def _is_sequence(value: Any) -> bool:
    """Return whether a tuple is a list of content, rather than a pair of bytes and type or a NamedTuple."""
    return type(value) is tuple and not (len(value) == 2 and isinstance(value[0], (bytes, bytearray)))


def _is_record(value: Any) -> bool:
    """Return whether the value's own class says what its members are."""
    cls = type(value)
    return isinstance(value, msgspec.Struct) or hasattr(cls, "__dataclass_fields__") or hasattr(cls, "model_fields")
