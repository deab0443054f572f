"""The tools that a client knows of its server, and the way from a result to a value.

Definitions are known after `list_tools()`, until the server says that they changed. A result is checked against the
output schema of its tool. For that the tools are listed once in a connection, at its first structured result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.errors import InvalidResponse
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import ToolFailed, ToolwireError
from toolwire.protocol.parameter_headers import BadHeader, Paths, header_paths, parameter_headers

if TYPE_CHECKING:
    from toolwire.adapters import Adapter
    from toolwire.schemas import Validator

log: logging.Logger = logging.getLogger("toolwire.client")

# The name under which servers of 2025-06-18 and 2025-11-25 wrap a value that is not an object.
_WRAPPED: Final = "result"
# How much of a value an error message shows.
_SHOWN: Final = 100

#: About how many bytes the compiled output schemas of a server may take. The ones used last are kept.
MAX_KEPT: Final = 32 * 1024 * 1024


class _TypedResult(t.CallToolResult, kw_only=True):
    """A result whose structured value stays as it came, for the reader of the type that the caller wants."""

    structured_content: Raw | UnsetType = UNSET


class _Plain(Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    """The shape of JSON whose every member has a type here. Values are skipped, not read."""


class _PlainText(_Plain, tag_field="type", tag="text"):
    text: Raw


class _PlainImage(_Plain, tag_field="type", tag="image"):
    data: Raw
    mime_type: Raw


class _PlainAudio(_Plain, tag_field="type", tag="audio"):
    data: Raw
    mime_type: Raw


class _PlainContents(_Plain):
    uri: Raw
    text: Raw | UnsetType = UNSET
    blob: Raw | UnsetType = UNSET
    mime_type: Raw | UnsetType = UNSET


class _PlainResource(_Plain, tag_field="type", tag="resource"):
    resource: _PlainContents


class _PlainLink(_Plain, tag_field="type", tag="resource_link"):
    uri: Raw
    name: Raw
    title: Raw | UnsetType = UNSET
    description: Raw | UnsetType = UNSET
    mime_type: Raw | UnsetType = UNSET
    size: Raw | UnsetType = UNSET


class _PlainMeta(_Plain):
    # META-8: nearly every result of 2026-07-28 has this key, and nothing else.
    server_info: Raw | UnsetType = msgspec.field(default=UNSET, name=t.SERVER_INFO_KEY)


class _PlainResult(_Plain, kw_only=True):
    """The shape of a result that the plain decoder reads without a loss; most have it."""

    # In the order of the wire, which is the quickest to read.
    result_type: Raw | UnsetType = UNSET
    meta: _PlainMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")
    content: list[_PlainText | _PlainImage | _PlainAudio | _PlainResource | _PlainLink]
    structured_content: Raw | UnsetType = UNSET
    is_error: Raw | UnsetType = UNSET


_check_plain = msgspec.json.Decoder(_PlainResult).decode
_decode_result = decoder_of(t.CallToolResult).decode
_decode_typed = decoder_of(_TypedResult).decode
_decode = msgspec.json.Decoder().decode


def decode_result(raw: Raw) -> t.CallToolResult:
    """Decode a result: fast where every member is known, keeping unknown members and blocks otherwise."""
    try:
        _check_plain(raw)
        return _decode_result(raw)
    except msgspec.ValidationError:
        return t.decode(t.CallToolResult, raw)


class RawResult(Struct):
    """A result as it came."""

    raw: Raw
    result_type: str

    @property
    def is_error(self) -> bool:
        """Is true for the result of a tool that failed."""
        return decoder_of(_MayFail).decode(self.raw).is_error is True


class _MayFail(Struct, rename="camel"):
    is_error: Any = None


class TaskAnswer(Struct, frozen=True):
    """The answer to a call that the server made a task. It completes the request as a result does."""

    result_type: ClassVar[str] = "complete"

    task_id: str


def decode_called(raw: Raw) -> Any:
    """Decode the answer to a call: a result, or on 2026-07-28 a task."""
    try:
        _check_plain(raw)
        return _decode_result(raw)
    except msgspec.ValidationError:
        return _task_in(raw) or t.decode(t.CallToolResult, raw)


def decode_called_typed(raw: Raw) -> Any:
    try:
        _check_plain(raw)
        return _decode_typed(raw)
    except msgspec.ValidationError:
        return _task_in(raw) or t.decode(_TypedResult, raw)


def _task_in(raw: Raw) -> TaskAnswer | None:
    try:
        task = decoder_of(t.TaskCreatedResult).decode(raw)
    except msgspec.ValidationError:
        return None
    return TaskAnswer(task.task_id) if task.result_type == "task" else None


def decode_typed(raw: Raw) -> t.CallToolResult:
    try:
        _check_plain(raw)
        return _decode_typed(raw)
    except msgspec.ValidationError:
        return t.decode(_TypedResult, raw)


class _Known:
    __slots__ = ("checked", "definition", "paths")

    def __init__(self, definition: t.Tool, paths: Paths) -> None:
        self.definition = definition
        self.checked = definition.output_schema is not UNSET
        # The arguments that headers repeat.
        self.paths = paths


_NO_PATHS: Final[Paths] = {}


class KnownTools:
    """The definitions of the last list, each with its output validator, compiled when first needed."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        # Ordered by their last use.
        self._validators: dict[str, Validator] = {}
        # The tool whose result was checked last, and its check: most results come from the same tool.
        self._latest: str | None = None
        self._fits: Callable[[Any], bool] = bool
        self.confirmed: dict[str, Any] = {}
        """Output schemas that were confirmed after an unfit result, by the name of the tool."""
        self.listed: bool = False
        self.current: bool = False
        """Whether what is known is what the server said last, as far as it told."""
        self.learning: asyncio.Task[None] | None = None
        """The listing that the first structured result waits for."""
        self.only_tasks: frozenset[str] = frozenset()
        """Tools of 2025-11-25 that refuse to be called otherwise."""

    def learn(self, tools: Iterable[t.Tool], *, with_headers: bool = False) -> None:
        """Replace all definitions. `with_headers`: arguments may have to be repeated in headers."""
        tools = tuple(tools)
        self.only_tasks = frozenset(
            tool.name for tool in tools if tool.execution is not UNSET and tool.execution.task_support == "required"
        )
        self._known = {
            tool.name: _Known(tool, header_paths(tool.input_schema) if with_headers else _NO_PATHS) for tool in tools
        }
        self._forget_validators()
        self.confirmed = {name: schema for name, schema in self.confirmed.items() if name in self._known}
        self.listed = self.current = True

    def headers(self, name: str, arguments: Raw | UnsetType) -> dict[str, str]:
        """XMH-2: return the headers that repeat the arguments of a call."""
        known = self._known.get(name)
        if known is None or not known.paths or arguments is UNSET:
            return {}
        return parameter_headers(known.paths, msgspec.json.decode(arguments))

    @property
    def names(self) -> Iterable[str]:
        """The names of the tools that are known now."""
        return self._known

    @property
    def definitions(self) -> list[t.Tool]:
        """The definitions of all tools that are known now."""
        return [each.definition for each in self._known.values()]

    def definition(self, name: str) -> t.Tool | None:
        known = self._known.get(name)
        return None if known is None else known.definition

    def forget(self) -> None:
        self._known = {}
        self._forget_validators()
        self.current = False

    def _forget_validators(self) -> None:
        self._validators = {}
        self._latest = None

    def is_repeatable(self, name: str) -> bool:
        """Say whether the tool claims that a second call does no harm (`readOnlyHint`, `idempotentHint`)."""
        known = self._known.get(name)
        annotations = UNSET if known is None else known.definition.annotations
        if annotations is UNSET:
            return False
        return annotations.read_only_hint is True or annotations.idempotent_hint is True

    def check(self, name: str, result: t.CallToolResult) -> None:
        """OUT-2: raise `InvalidResponse` unless structured content fits the output schema. Errors of tools are exempt
        (T-19).
        """
        structured = result.structured_content
        if name == self._latest and type(structured) is not Raw:
            try:
                if self._fits(structured):
                    return
            except (TypeError, ValueError, RecursionError):
                pass  # What is wrong is said below.
        known = self._known.get(name)
        if known is None or not known.checked or result.is_error is True:
            return
        if structured is UNSET:
            raise InvalidResponse(f"The tool {name!r} has an output schema but returned no structured content")
        validator = self._validator(name, known)
        if type(structured) is Raw:
            problems = validator.check(_decode(structured), bytes(structured))
        else:
            problems = validator.check(structured)
        if problems:
            from toolwire.schemas import sentence

            told = "; ".join(sentence(problem, "value") for problem in problems)
            raise InvalidResponse(f"The result of {name!r} does not fit the tool's output schema: {told}")

    def _validator(self, name: str, known: _Known) -> Validator:
        validator = self._validators.pop(name, None)
        is_new = validator is None
        if validator is None:
            # Imported here because most clients never list a tool with an output schema.
            from toolwire import schemas

            try:
                validator = schemas.compile(known.definition.output_schema, what=f"the output schema of {name!r}")
            except schemas.SchemaError as error:
                raise InvalidResponse(str(error)) from None
        self._validators[name] = validator
        self._latest, self._fits = name, validator.quick()
        # Not `Expiring`, which evicts what is too heavy: the newest stays, because the next result needs it.
        while (
            is_new and len(self._validators) > 1 and sum(each.weight for each in self._validators.values()) > MAX_KEPT
        ):
            del self._validators[next(iter(self._validators))]
        return validator

    def wraps(self, name: str) -> bool:
        """Say whether the tool's output schema is an object with nothing but `result`, which wraps a value that is no
        object.
        """
        known = self._known.get(name)
        schema = None if known is None else known.definition.output_schema
        if not isinstance(schema, dict):
            return False
        properties = schema.get("properties")
        return isinstance(properties, dict) and list(properties) == [_WRAPPED] and schema.get("required") == [_WRAPPED]


def one_of_each(tools: Iterable[t.Tool]) -> list[t.Tool]:
    """Return one tool of each name: the first, which is also the one that is checked, shown and approved.

    2026-07-28 server/tools, tool names: they should be unique within a server. A call names one tool, so a second
    definition could only tell the model something that no call is checked against.
    """
    found: dict[str, t.Tool] = {}
    for tool in tools:
        first = found.setdefault(tool.name, tool)
        if first is not tool and first != tool:
            log.warning("the server lists two tools %r; the second is left out", tool.name[:100])
    return list(found.values())


def with_valid_headers(tools: Iterable[t.Tool]) -> list[t.Tool]:
    """XMH-1: over HTTP, leave out tools whose header annotations break the rules."""
    valid: list[t.Tool] = []
    for tool in tools:
        try:
            header_paths(tool.input_schema)
        except BadHeader as error:
            log.warning("the tool %r is left out: %s", tool.name[:100], error)
            continue
        valid.append(tool)
    return valid


# --- Typed values ----------------------------------------------------------------------------------------------------


def value_of(name: str, result: t.CallToolResult, returns: Any, wrapped: bool) -> Any:
    """Return the result of a tool as a value of the type `returns`."""
    if result.is_error is True:
        failed = ToolResult.from_wire(_readable(result))
        raise ToolFailed(failed.text or f"The tool {name!r} failed without a message", failed)
    if returns is ToolResult:
        return ToolResult.from_wire(_readable(result))
    if returns is type(None):
        return None
    reader = adapter_of(returns)
    if result.structured_content is not UNSET:
        return _structured(name, result.structured_content, reader, wrapped)
    return _textual(name, result, reader, returns)


def _structured(name: str, raw: Raw, reader: Adapter, wrapped: bool) -> Any:
    inner = _inside(raw)
    if inner is None:
        return _first_fit(name, reader, [(reader.decode_output, raw)])
    if wrapped:
        return _first_fit(name, reader, [(reader.decode_output, inner), (reader.decode_output, raw)])
    # It is not known whether the value is wrapped. The whole value is used first only if it fits exactly: a class whose
    # members all have defaults would otherwise fit everything, because it ignores `result`.
    exact = (reader.decode, raw)
    return _first_fit(name, reader, [exact, (reader.decode_output, inner), (reader.decode_output, raw)])


def _textual(name: str, result: t.CallToolResult, reader: Adapter, returns: Any) -> Any:
    """Read a value from text, which is all there is before 2025-06-18: as it is for `str`, as JSON otherwise."""
    texts = [block.text for block in result.content if isinstance(block, t.TextContent)]
    if returns is str:
        return "\n".join(texts)
    attempts: list[tuple[Callable[..., Any], Raw | bytes]]
    attempts = [(reader.decode_output, reading) for reading in _readings(texts)]
    return _first_fit(name, reader, attempts, "\n".join(texts))


def _first_fit(
    name: str, reader: Adapter, attempts: list[tuple[Callable[..., Any], Raw | bytes]], text: str | None = None
) -> Any:
    """Return the first reading that fits the type.

    `text` is what the tool returned in place of a structured value.
    """
    refusals: list[ToolwireError] = []
    for read, reading in attempts:
        try:
            return read(reading)
        except ToolwireError as error:
            refusals.append(error)
    wanted = type_name(reader.type)
    if text is not None:
        raise InvalidResponse(f"{name!r} returned the text {_excerpt(text)!r}, which cannot be read as {wanted}")
    value = _excerpt(bytes(attempts[-1][1]).decode("utf-8", "replace"))
    raise InvalidResponse(f"{name!r} returned {value}, which cannot be read as {wanted}: {refusals[0]}")


def _excerpt(text: str) -> str:
    """Return the beginning of a value, for an error message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _readings(texts: list[str]) -> list[bytes]:
    """Return the values that texts may stand for. Some servers send a list as one block for each item."""
    as_json, as_strings = [text.encode() for text in texts], [msgspec.json.encode(text) for text in texts]
    lists = [b"[" + b",".join(items) + b"]" for items in (as_json, as_strings)]
    return [as_json[0], as_strings[0], *lists] if len(texts) == 1 else lists


def _inside(raw: Raw) -> Raw | None:
    """Return the wrapped value, if the value is an object with the single member `result`."""
    try:
        members = msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.DecodeError:
        return None
    return members[_WRAPPED] if list(members) == [_WRAPPED] else None


def type_name(tp: Any) -> str:
    """Return the name of a type for an error text."""
    return tp.__name__ if isinstance(tp, type) and not hasattr(tp, "__args__") else str(tp)


def _readable(result: t.CallToolResult) -> t.CallToolResult:
    """Decode the structured value of a result, for people."""
    if isinstance(result.structured_content, Raw):
        result.structured_content = msgspec.json.decode(result.structured_content)
    return result


def adapter_of(returns: Any) -> Adapter:
    """Return the adapter of a type; the adapters of the types used last are kept."""
    try:
        return _cached_adapter(returns)
    except TypeError:
        return _new_adapter(returns)  # A type that cannot be hashed, or that no adapter can read: the latter says so.


def _new_adapter(returns: Any) -> Adapter:
    # Imported here because only typed calls need it.
    from toolwire.adapters import adapter

    return adapter(returns)


_cached_adapter = lru_cache(maxsize=256)(_new_adapter)
