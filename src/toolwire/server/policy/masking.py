"""Takes patterns out of all that leaves for the client: answers, errors, reports and questions."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import CallRefused, ProtocolError, ToolError
from toolwire.protocol.surrogates import encode_readable
from toolwire.redaction import Redaction
from toolwire.server.components import failed_result


def masked(redaction: Redaction, value: Any) -> Any:
    """Return a wire value without what the patterns match; the same object where they match nothing."""
    plain = msgspec.json.decode(t.encode(value) if isinstance(value, t.Wire) else encode_readable(value))
    clean = redaction.content(plain)
    if clean == plain:
        return value
    if isinstance(value, t.Wire):
        return t.decode(type(value), msgspec.json.encode(clean))
    return Raw(msgspec.json.encode(clean)) if isinstance(value, Raw) else clean


def masked_error(redaction: Redaction, error: ProtocolError | ToolError) -> Exception:
    """Return the error with a text and data that the client may see; the same error where nothing is hidden."""
    if isinstance(error, ProtocolError):
        data = error.data if error.data is UNSET else masked(redaction, error.data)
        message = redaction.text(error.message)
        return error if message == error.message and data is error.data else ProtocolError(error.code, message, data)
    if not isinstance(error.content, str):
        result = failed_result(error)
        clean = masked(redaction, result)
        return error if clean is result else ToolError(clean.content)
    text = redaction.text(str(error))
    if text == str(error):
        return error
    if isinstance(error, CallRefused):
        return CallRefused(text, reason=error.reason, retry_after=error.retry_after)
    return ToolError(text)
