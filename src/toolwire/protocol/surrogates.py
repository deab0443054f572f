"""Text that UTF-8 cannot carry: halves of surrogate pairs, which names of files have that are in no known encoding.

A request with such text is refused before it is sent: another value must not arrive in its place.
What comes from a handler is sent all the same, with U+FFFD in their place, because one such name must not cost the
whole answer. Looked for only where encoding failed, so that all other text pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol.errors import INTERNAL_ERROR, ToolwireError

Hook: TypeAlias = Callable[[Any], Any]


def encode_readable(value: Any, enc_hook: Hook | None = None) -> bytes:
    """A value as JSON, whatever its text is made of."""
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        return msgspec.json.encode(readable(value, enc_hook))


def readable(value: Any, enc_hook: Hook | None = None) -> Any:
    """The same value in JSON types, with text that can be encoded."""

    def plain(other: Any) -> Any:
        if isinstance(other, Raw):
            return msgspec.json.decode(other)
        if enc_hook is None:
            raise TypeError(f"{type(other).__name__} is not a JSON value")
        return enc_hook(other)

    return _mended(msgspec.to_builtins(value, str_keys=True, enc_hook=plain))


def readable_text(value: str) -> str:
    """The same text, as UTF-8 can carry it."""
    # Two halves that belong together become the one character that they stand for.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_encodable(value: Any) -> bool:
    """Return whether a value can be part of a name: False for text with half of a surrogate pair."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_surrogate(error: UnicodeEncodeError) -> ToolwireError:
    """Return the error for a request that cannot be sent; its text would have to change for that."""
    half = ascii(error.object[error.start])[1:-1]
    return ToolwireError(
        f"The request was not sent: it has half of a surrogate pair ({half}), which UTF-8 cannot carry"
    )


def refusing_surrogates(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return an encoder of requests that raises `ToolwireError` for text which UTF-8 cannot carry."""

    def refusing(value: Any) -> bytes:
        try:
            return encode(value)
        except UnicodeEncodeError as error:
            raise refuse_surrogate(error) from None

    return refusing


def readable_error(code: int, message: str, data: Any) -> tuple[int, str, Any]:
    """Return the parts of an error as JSON can carry them, without data that is not JSON."""
    if data is not UNSET:
        try:
            data = Raw(encode_readable(data))
        except (TypeError, ValueError, OverflowError, RecursionError):
            data = UNSET
    is_code = isinstance(code, int) and abs(code) < 2**53
    return code if is_code else INTERNAL_ERROR, readable_text(str(message)), data


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return readable_text(value)
    if isinstance(value, dict):
        return {_mended(name): _mended(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(each) for each in value]
    return value
