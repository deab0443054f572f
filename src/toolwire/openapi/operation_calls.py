"""Typed calls of operations from code that is written by hand.

Arguments are checked against the same schema as those of a model, and requests carry the credentials of the caller of
the handler. The limits that protect a model do not hold: an answer is whole, or the call fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.adapters import Adapter, adapter
from toolwire.adapters.annotations import type_name
from toolwire.base_errors import ServerError, ToolwireError
from toolwire.content import ToolResult
from toolwire.openapi.answer.answers import AnswerParts, ApiAnswers
from toolwire.openapi.answer.response_cache import cache_hint
from toolwire.openapi.calling import ApiExchange, GeneratedTool
from toolwire.openapi.model import ToolDefinition
from toolwire.openapi.request.media_types import STREAMS
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ResourceNotFound, ToolError
from toolwire.protocol.surrogates import encode_readable
from toolwire.server.binding.arguments import InvalidArguments
from toolwire.server.call import CURRENT, Call
from toolwire.server.components.cache import Cache
from toolwire.server.components.tools import error_result

T = TypeVar("T")
Arguments: TypeAlias = Mapping[str, Any] | None
# The member of the `_meta` of a result with what is noted of its answer. It never leaves this module.
_NOTES: Final = "toolwire/openapi"
_NOT_THERE: Final = (404, 410)


class _Notes(Struct, frozen=True):
    """Notes about an answer beside its result."""

    status: int | None = None
    """Its status; None where there was no answer."""
    is_empty: bool = False
    hint: Cache = Cache()


class OperationFailed(ToolError):
    """The API refused a call, or its answer cannot be used.

    Uncaught, it is the error of the tool that called.
    """

    def __init__(self, text: str, status: int | None, result: ToolResult) -> None:
        super().__init__(text)
        self.status: int | None = status
        """The status of the answer; None where there was none."""
        self.result: ToolResult = result
        """The failure as the tool of the operation would tell it."""


class Operation:
    """The call of one operation, for a handler.

    Requests carry the credentials of the handler's caller.
    """

    def __init__(self, definition: ToolDefinition, tool: GeneratedTool) -> None:
        self.definition: ToolDefinition = definition
        self._tool = tool

    @property
    def name(self) -> str:
        """The id of the operation, else method and path."""
        return self.definition.operation.label

    @overload
    async def __call__(self, arguments: Arguments = None, /, *, returns: type[T], **named: Any) -> T: ...

    @overload
    async def __call__(self, arguments: Arguments = None, /, *, returns: Any = None, **named: Any) -> Any: ...

    async def __call__(self, arguments: Arguments = None, /, *, returns: Any = None, **named: Any) -> Any:
        """Call the API and return its answer as a value of the type `returns`.

        Without a type, JSON becomes Python values, a text a `str`, anything else `bytes`, and no content None. Give
        arguments by name, or as a mapping if a name is not a Python name or is `returns`. Raise `OperationFailed` where
        the API refuses the call, and `ToolError` where the arguments do not fit.
        """
        call = CURRENT.get(None)
        if call is None:
            raise ServerError(f"{self.name} is called by a handler: it needs the caller whose credentials are sent")
        return await self.call_for(call, {**(arguments or {}), **named}, returns)

    async def call_for(self, call: Call, arguments: Mapping[str, Any], returns: Any) -> Any:
        """Call the API on behalf of the caller of a request."""
        try:
            checked = self._tool.compile().sent(encode_readable(arguments))
        except InvalidArguments as error:
            raise ToolError(f"{self.name} was not called.\n{error}") from None
        result, notes = _split_notes(await self._tool.caller.call(call, checked))
        if result.is_error is True:
            raise _failed(self.name, result, notes)
        return self._value(result, notes, returns)

    async def contents_for(self, call: Call, uri: str, arguments: dict[str, Any]) -> list[t.ResourceContents]:
        """Return the answer as the contents of a resource.

        Values of an address are texts, and are read as meant.
        """
        try:
            checked = self._tool.compile().meant(arguments)
        except InvalidArguments as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from None
        result, notes = _split_notes(await self._tool.caller.call(call, checked))
        if result.is_error is True:
            # RES-2 of every revision: what is not there is an error of its own.
            raise ResourceNotFound() if notes.status in _NOT_THERE else _failed(self.name, result, notes)
        call.cache_hint = notes.hint
        if isinstance(result.structured_content, Raw):
            text = bytes(result.structured_content).decode()
            return [t.ResourceContents(uri=uri, mime_type="application/json", text=text)]
        block = result.content[0] if result.content else None
        if isinstance(block, t.EmbeddedResource):
            return [msgspec.structs.replace(block.resource, uri=uri)]
        return [t.ResourceContents(uri=uri, mime_type="text/plain", text=_plain(result, notes) or "")]

    def _value(self, result: t.CallToolResult, notes: _Notes, returns: Any) -> Any:
        if returns is ToolResult:
            return ToolResult.from_wire(result)
        if returns is type(None):
            return None
        written = result.structured_content
        if isinstance(written, Raw):
            return msgspec.json.decode(written) if returns is None else self._typed(written, returns)
        value = _plain(result, notes)
        if returns is None or type(value) is returns:
            return value
        return self._typed(Raw(msgspec.json.encode(value if isinstance(value, str) else None)), returns)

    def _typed(self, written: Raw, returns: Any) -> Any:
        reader = _adapter(returns)
        try:
            return reader.decode_output(written)
        except ToolwireError as error:
            raise OperationFailed(
                f"The answer of {self.name} is not of type {type_name(returns)}: {error}",
                None,
                ToolResult(is_error=True),
            ) from None

    def __repr__(self) -> str:
        return f"<Operation {self.name}>"


@lru_cache(maxsize=1024)
def _adapter(returns: Any) -> Adapter:
    return adapter(returns)


def _failed(name: str, result: t.CallToolResult, notes: _Notes) -> OperationFailed:
    texts = [block.text for block in result.content if isinstance(block, t.TextContent)]
    return OperationFailed("\n".join(texts) or f"{name} failed", notes.status, ToolResult.from_wire(result))


def _split_notes(result: t.CallToolResult) -> tuple[t.CallToolResult, _Notes]:
    """Remove the notes from a result, because it may go to a client unchanged."""
    meta = dict(result.meta) if isinstance(result.meta, dict) else {}
    notes = meta.pop(_NOTES, None) or _Notes()
    result.meta = meta or UNSET
    return result, notes


def _plain(result: t.CallToolResult, notes: _Notes) -> Any:
    """Return an answer that is not JSON: a text, bytes, or None without content."""
    if notes.is_empty:
        return None
    block = result.content[0] if result.content else None
    if isinstance(block, t.EmbeddedResource) and isinstance(block.resource.blob, bytes):
        return block.resource.blob
    return block.text if isinstance(block, t.TextContent) else None


def for_code(definition: ToolDefinition, max_bytes: int) -> ToolDefinition:
    """Return a definition for code: no published schema, and nothing cut for a model."""
    settings = definition.settings
    most = max_bytes if settings.max_bytes is None else settings.max_bytes
    return msgspec.structs.replace(
        definition,
        output_schema=None,
        select=None,
        settings=msgspec.structs.replace(settings, output="none", max_tokens=most, inline_bytes=0),
    )


def with_bytes(answers: ApiAnswers, parts: AnswerParts, *, is_kept: bool = True) -> AnswerParts:
    """Return the readers of answers for code: bytes stay bytes, too large ones fail.

    `is_kept`: answers may be kept for as long as their headers permit.
    """

    async def binary(exchange: ApiExchange) -> t.CallToolResult:
        data, is_whole = await exchange.read(answers.max_bytes)
        if not is_whole:
            return await too_large(exchange, data)
        contents = t.ResourceContents(uri=exchange.request.url, mime_type=exchange.answer.media_type, blob=data)
        return t.CallToolResult(content=[t.EmbeddedResource(resource=contents)])

    async def too_large(exchange: ApiExchange, beginning: bytes) -> t.CallToolResult:
        exchange.close()
        return error_result(f"The answer of {answers.operation.name} has more than {answers.max_bytes:,} bytes")

    def noted(exchange: ApiExchange, result: t.CallToolResult) -> t.CallToolResult:
        if parts.after is not None:
            result = parts.after(exchange, result)
        notes = _Notes(
            None if exchange.response is None else exchange.response.status,
            not exchange.received,
            cache_hint(exchange) if is_kept and exchange.response is not None else Cache(),
        )
        result.meta = {**(result.meta if isinstance(result.meta, dict) else {}), _NOTES: notes}
        return result

    readers = {name: reader for name, reader in parts.media_types.items() if name in STREAMS}
    return msgspec.structs.replace(
        parts,
        media_types={**readers, "image/*": binary, "audio/*": binary, "*/*": binary},
        too_large=too_large,
        after=noted,
    )
