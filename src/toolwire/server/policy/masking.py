"""Takes patterns out of all that leaves for the client: answers, errors, reports and questions."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import CallRefused, ProtocolError, ToolError
from toolwire.protocol.free_members import find_error_type, find_result_type, rewrite_members
from toolwire.protocol.surrogates import encode_readable
from toolwire.redaction import Redaction
from toolwire.server.components import failed_result
from toolwire.wire.thread_workers import ThreadWorkers

if TYPE_CHECKING:
    from toolwire.schemas import Validator

#: Results of more bytes are masked beside the loop.
LARGE: Final = 256 * 1024
_STRUCTURED: Final = "structuredContent"
_WITHHELD: Final = (
    "[The call succeeded. Its structured result is left out: a policy masks a part of it that its output schema needs.]"
)


def masked(redaction: Redaction, value: Any, type_: type[t.Wire] | None = None) -> Any:
    """Mask the matches in a wire value. Return the same object if nothing matches.

    `type_` is the wire type of JSON. JSON without one belongs to the author of the message as a whole.
    """
    plain = _decoded(value)
    type_ = type(value) if isinstance(value, t.Wire) else type_
    clean = redaction.content(plain) if type_ is None else rewrite_members(type_, plain, redaction.content)
    return value if clean == plain else _like(value, clean)


def masked_result(
    redaction: Redaction, result: Any, method: str, output_schema: Callable[[], Any], encoded: bytes | None = None
) -> Any:
    """Mask the matches in the result of a request or the state of a task.

    `output_schema` returns the schema that the client knows of the tool; it is read where structured content changed.
    `encoded` is the JSON of the result, where it is known.
    """
    plain = _decoded(result) if encoded is None else msgspec.json.decode(encoded)
    is_typed = isinstance(result, t.Wire) and method != "tasks/result"
    type_ = type(result) if is_typed else find_result_type(method, plain)
    clean = rewrite_members(type_, plain, redaction.content)
    if clean == plain:
        return result
    if issubclass(type_, t.DetailedTask) and isinstance(clean.get("result"), dict):
        clean["result"] = _withhold_unfit(plain["result"], clean["result"], output_schema)
    else:
        clean = _withhold_unfit(plain, clean, output_schema)
    return _like(result, clean)


async def mask_large(mask: Callable[[], Any]) -> Any:
    """Mask a large result in a thread, so that other calls go on meanwhile. Raise `Busy` if too many wait."""
    return await _Masking.worker.run(mask)


class _Masking:
    """The thread for large results of the process. Each thread that computes takes its share from the loop."""

    worker: ThreadWorkers = ThreadWorkers(threads=1, queue=1000)

    @classmethod
    def renew(cls) -> None:
        cls.worker = ThreadWorkers(threads=1, queue=1000)


# A fork has no threads but the one that forked.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Masking.renew)


def _decoded(value: Any) -> Any:
    return msgspec.json.decode(encoded_result(value))


def encoded_result(value: Any) -> bytes:
    """Return the JSON of a wire value."""
    return t.encode(value) if isinstance(value, t.Wire) else encode_readable(value)


def _like(value: Any, clean: Any) -> Any:
    if isinstance(value, t.Wire):
        return t.decode(type(value), msgspec.json.encode(clean))
    return Raw(msgspec.json.encode(clean)) if isinstance(value, Raw) else clean


def _withhold_unfit(plain: dict[str, Any], clean: dict[str, Any], output_schema: Callable[[], Any]) -> dict[str, Any]:
    """Leave out structured content that does not fit its schema any more.

    2025-06-18 server/tools: structured content conforms to the output schema. A result without it is an error.
    """
    structured = clean.get(_STRUCTURED, UNSET)
    if structured == plain.get(_STRUCTURED, UNSET) or clean.get("isError") is True:
        return clean
    schema = output_schema()
    validator = _compiled(msgspec.json.encode(schema)) if isinstance(schema, dict) else None
    if validator is None or validator.fits(structured) or not validator.fits(plain[_STRUCTURED]):
        return clean
    kept = {name: member for name, member in clean.items() if name != _STRUCTURED}
    blocks = clean.get("content")
    said = {"type": "text", "text": _WITHHELD}
    return {**kept, "content": [*(blocks if isinstance(blocks, list) else []), said], "isError": True}


@lru_cache(maxsize=128)
def _compiled(schema: bytes) -> Validator | None:
    # Imported here because few masks meet a schema that they break.
    from toolwire import schemas

    try:
        return schemas.compile(msgspec.json.decode(schema), what="the output schema")
    except schemas.SchemaError:
        return None  # No client can check against it, either.


def masked_error(redaction: Redaction, error: ProtocolError | ToolError) -> ProtocolError | ToolError:
    """Return the error with a text and data that the client may see; the same error where nothing is hidden."""
    if isinstance(error, ProtocolError):
        data = error.data if error.data is UNSET else masked(redaction, error.data, find_error_type(error.code))
        message = redaction.content(error.message)
        return error if message == error.message and data is error.data else ProtocolError(error.code, message, data)
    if not isinstance(error.content, str):
        result = failed_result(error)
        clean = masked(redaction, result)
        return error if clean is result else ToolError(clean.content)
    text = redaction.content(str(error))
    if text == str(error):
        return error
    if isinstance(error, CallRefused):
        return CallRefused(text, reason=error.reason, retry_after=error.retry_after)
    return ToolError(text)
