"""The JSON-RPC 2.0 envelope: bytes to messages and back, with `params`, `result` and `error` left raw.

Decoding never raises for what a peer sent: what cannot be read becomes a `Malformed` value that says which error, if
any, the sender is owed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    ProtocolError,
)
from toolwire.protocol.surrogates import encode_readable, readable_error, refuse_surrogate

# 2026-07-28 basic, requests: an id is a string or an integer, never null. A number of more than 4,300 digits is refused
# by msgspec, so that a hostile id of millions is not turned into one.
RequestId: TypeAlias = int | str

MAX_DEPTH: Final = 128
MAX_BATCH: Final = 100


class _Envelope(Struct, gc=False):
    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _IdOnly(Struct):
    id: int | str


class ErrorObject(Struct, omit_defaults=True):
    """The `error` member of a response."""

    code: int
    message: str
    data: Any = UNSET

    def to_exception(self) -> ProtocolError:
        return ProtocolError(self.code, self.message, self.data)


class Request(Struct, gc=False):
    """A request as it stood on the wire."""

    id: RequestId
    method: str
    params: Raw | UnsetType


class Notification(Struct, gc=False):
    method: str
    params: Raw | UnsetType


class Response(Struct, gc=False):
    id: RequestId
    result: Raw


class PlainRequest(Request, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A request that is read in one go, because there is nothing in it but what a request has."""

    jsonrpc: Literal["2.0"]
    id: int | str
    params: Raw | UnsetType = UNSET


class PlainResponse(Response, kw_only=True, gc=False, forbid_unknown_fields=True):
    """The same for the result of a request."""

    jsonrpc: Literal["2.0"]
    id: int | str


class ErrorResponse(Struct):
    # 2025-11-25 and 2026-07-28 schema: absent when the request was too broken to read its id; some peers write null.
    id: RequestId | None
    error: ErrorObject


class Malformed(Struct):
    """A message that could not be read, with the error for its sender (`code` 0: no error, it was an answer)."""

    code: int
    message: str
    id: RequestId | None = None


class Batch(Struct):
    """An array of messages (2025-03-26 only); `oversized` when it has more members than allowed."""

    items: list[Message]
    oversized: bool = False


Message: TypeAlias = Request | Notification | Response | ErrorResponse | Malformed

# What a server, and what a client, is sent nearly always.
EXPECT_REQUESTS: Final = msgspec.json.Decoder(PlainRequest).decode
EXPECT_RESPONSES: Final = msgspec.json.Decoder(PlainResponse).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_id = msgspec.json.Decoder(_IdOnly).decode
_decode_error = msgspec.json.Decoder(ErrorObject).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_decode_raw = msgspec.json.Decoder(Raw).decode

# The closing quote is optional so that a string without one is still passed over in one go, never retried.
_STRING = lazy_pattern(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
# The first half of a character without the second, or the second without the first.
_HALVES = lazy_pattern(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def too_deep(data: bytes, limit: int = MAX_DEPTH) -> bool:
    """Return whether `data` nests arrays and objects more than `limit` deep, at the speed of C.

    A message with few brackets cannot be deep, which settles nearly all of them in a count. The rest is reduced to its
    brackets, and the depth is the highest sum of steps up and down.
    """
    if data.count(b"{") + data.count(b"[") <= limit:
        return False
    steps = memoryview(_STRING.sub(b"", data).translate(_STEPS, _NOT_BRACKETS)).cast("b")
    return max(accumulate(steps), default=0) > limit


def decode(
    data: bytes,
    max_depth: int = MAX_DEPTH,
    max_batch: int = MAX_BATCH,
    expected: Callable[[bytes], Message] | None = None,
) -> Message | Batch:
    """One frame to one message, or to a batch if the frame is an array; `expected` is tried first."""
    # msgspec does not look inside raw parts, so the encoding is checked here, for the whole frame.
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            refusal = Malformed(PARSE_ERROR, "The message is not valid UTF-8")
            return _refused(data.decode(errors="replace").encode(), refusal)
    # An object takes at least four bytes to open (`{"":`), so that a short message need only be counted for arrays.
    if data.count(b"[") + len(data) // 4 > max_depth and too_deep(data, max_depth):
        text = f"The message is nested more than {max_depth} levels deep"
        return _refused(data, Malformed(INVALID_REQUEST, text, _readable_id(data)))
    if expected is not None:
        try:
            return expected(data)
        except (msgspec.DecodeError, RecursionError, ValueError):
            pass  # It may be anything else, which is found out below.
    try:
        return _classify(_decode_envelope(data))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        whole = _mend_characters(data)
        if whole != data:
            return decode(whole, max_depth, max_batch)
        if not isinstance(error, msgspec.ValidationError):
            return Malformed(PARSE_ERROR, "The message is not valid JSON")
    if data.lstrip()[:1] == b"[":
        return _decode_batch(data, max_batch)
    if not _is_json(data):
        return Malformed(PARSE_ERROR, "The message is not valid JSON")
    return Malformed(INVALID_REQUEST, "The message is not a JSON-RPC 2.0 request", _readable_id(data))


def _mend_characters(data: bytes) -> bytes:
    """Put a replacement character where half of one is escaped.

    A program that cuts texts by UTF-16 units, as JavaScript does, leaves such halves behind, and RFC 8259 section 8.2
    lets them pass. What came with them is still good, and somebody waits for it.
    """
    if b"\\u" not in data:
        return data
    # An escaped backslash begins nothing: it is out of the way, as a byte that UTF-8 never has.
    return _HALVES.sub(rb"\\ufffd", data.replace(rb"\\", b"\xff")).replace(b"\xff", rb"\\")


def _classify(envelope: _Envelope) -> Message:
    method, identifier = envelope.method, envelope.id
    if method is not UNSET:
        if envelope.result is not UNSET or envelope.error is not UNSET:
            return Malformed(INVALID_REQUEST, "A message has a method or a result, not both", _known(identifier))
        if identifier is UNSET:
            return Notification(method, envelope.params)
        if identifier is None:
            return Malformed(INVALID_REQUEST, "A request id is a string or an integer, never null")
        return Request(identifier, method, envelope.params)
    if envelope.error is not UNSET and envelope.result is UNSET:
        try:
            return ErrorResponse(_known(identifier), _decode_error(envelope.error))
        except (msgspec.DecodeError, RecursionError):
            return Malformed(0, "The error of a response is not an error object", _known(identifier))
    if envelope.result is not UNSET and envelope.error is UNSET:
        if identifier is UNSET or identifier is None:
            return Malformed(0, "A result without an id belongs to no request")
        return Response(identifier, envelope.result)
    if envelope.result is not UNSET:
        return Malformed(0, "A response has a result or an error, not both", _known(identifier))
    return Malformed(INVALID_REQUEST, "The message has no method", _known(identifier))


def _decode_batch(data: bytes, max_batch: int) -> Message | Batch:
    try:
        parts = _decode_array(data)
    except (msgspec.DecodeError, RecursionError):
        return Malformed(PARSE_ERROR, "The message is not valid JSON")
    if len(parts) > max_batch:
        return Batch([], oversized=True)
    items: list[Message] = []
    for part in parts:
        try:
            items.append(_classify(_decode_envelope(part)))
        except (msgspec.DecodeError, RecursionError, ValueError):
            items.append(Malformed(INVALID_REQUEST, "The message is not a JSON-RPC 2.0 request", _readable_id(part)))
    return Batch(items)


def _is_json(data: bytes) -> bool:
    """A wrong member is noticed before what follows it is read, so the rest is still to be looked at."""
    try:
        _decode_raw(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _known(identifier: RequestId | UnsetType | None) -> RequestId | None:
    return None if identifier is UNSET else identifier


def _refused(data: bytes, refusal: Malformed) -> Malformed:
    """Return the refusal of a message. A refused answer gets no error back, but the request that waits for it fails."""
    try:
        message = _classify(_decode_envelope(data))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return refusal
    return Malformed(0, refusal.message, message.id) if isinstance(message, Response | ErrorResponse) else refusal


def _readable_id(data: bytes | Raw) -> RequestId | None:
    """The id of a message that is otherwise wrong, so that its sender can tell which one it was."""
    try:
        return _decode_id(data).id
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


class _RequestOut(Struct, omit_defaults=True, gc=False):
    jsonrpc: str
    id: RequestId
    method: str
    params: Any = UNSET


class _NotificationOut(Struct, omit_defaults=True):
    jsonrpc: str
    method: str
    params: Any = UNSET


class _ResponseOut(Struct, gc=False):
    jsonrpc: str
    id: RequestId
    result: Any


class _ErrorOut(Struct, omit_defaults=True):
    jsonrpc: str
    error: ErrorObject
    id: RequestId | UnsetType = UNSET


def _default(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encode = msgspec.json.Encoder(enc_hook=_default).encode


def encode_request(identifier: RequestId, method: str, params: Any = UNSET) -> bytes:
    try:
        return _encode(_RequestOut("2.0", identifier, method, params))
    except UnicodeEncodeError as error:
        raise refuse_surrogate(error) from None


def encode_notification(method: str, params: Any = UNSET) -> bytes:
    message = _NotificationOut("2.0", method, params)
    try:
        return _encode(message)
    except UnicodeEncodeError:
        return encode_readable(message)


def encode_response(identifier: RequestId, result: Any) -> bytes:
    try:
        return _encode(_ResponseOut("2.0", identifier, result))
    except UnicodeEncodeError:
        return encode_readable(_ResponseOut("2.0", identifier, result))


def encode_answer(identifier: RequestId, result: Any, limit: int) -> bytes:
    """Encode the result of a request, or an error in its place where it is over `limit` bytes."""
    data = encode_response(identifier, result)
    if len(data) > limit:
        return encode_error(identifier, INTERNAL_ERROR, f"The result is over the limit of {limit} bytes")
    return data


def encode_error(identifier: RequestId | None, code: int, message: str, data: Any = UNSET) -> bytes:
    # 1.1.6: an unreadable id is left out, never written as null.
    answer = _ErrorOut("2.0", ErrorObject(code, message, data), UNSET if identifier is None else identifier)
    try:
        return _encode(answer)
    except (TypeError, ValueError, OverflowError, RecursionError):
        answer.error = ErrorObject(*readable_error(code, message, data))
        return _encode(answer)


def bound_error(error: ProtocolError, limit: int) -> ProtocolError:
    """Return an error, or its short form where it is over `limit` bytes."""
    size = len(encode_error(None, error.code, error.message, error.data))
    return error if size <= limit else shorten_error(error, size, limit)


def shorten_error(error: ProtocolError, size: int, limit: int) -> ProtocolError:
    """Return the first words of an error of `size` bytes, and the reason why its rest is missing."""
    text = f"{error.message[:_MAX_WORDS]} [The error has {size} bytes, and {limit} are allowed. The rest is left out.]"
    code = INTERNAL_ERROR if error.code in _CODES_WITH_DATA else error.code
    return ProtocolError(code, text)


_MAX_WORDS: Final = 200
# Clients read the data of these errors, which have no meaning without it.
_CODES_WITH_DATA: Final = (MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION, URL_ELICITATION_REQUIRED)


def encode_batch(messages: list[bytes]) -> bytes:
    """2025-03-26 basic, batching: the answers to a batch, as one array."""
    return b"[" + b",".join(messages) + b"]"
