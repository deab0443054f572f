"""JSON-RPC messages as typed values: `parse` reads one, `serialize` writes it back.

It is for proxies, recorders and tests, which handle messages without a connection. Members that a revision does not
know are kept, so that a parsed message is written back in full.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.protocol import jsonrpc
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, INVALID_REQUEST, ProtocolError
from toolwire.protocol.methods import Method, methods
from toolwire.protocol.revisions import MODERN, is_supported

__all__ = ["ErrorResponse", "Message", "Notification", "Request", "Response", "parse", "serialize"]


class Request(Struct):
    """A request. `params` has the type of its method, such as `types.CallToolRequestParams`."""

    id: t.RequestId
    method: str
    params: Any = UNSET


class Notification(Struct):
    """A notification. `params` has the type of its method."""

    method: str
    params: Any = UNSET


class Response(Struct):
    """The result of a request.

    It has the result type of its method if `parse` gets the method.
    """

    id: t.RequestId
    result: Any


class ErrorResponse(Struct):
    """The error response to a request.

    `id` is None if the id of the request could not be read.
    """

    id: t.RequestId | None
    error: t.Error

    def to_exception(self) -> ProtocolError:
        """Return the exception that a client raises for this error."""
        return ProtocolError(self.error.code, self.error.message, self.error.data)


Message: TypeAlias = Request | Notification | Response | ErrorResponse


def parse(message: str | bytes, *, revision: str = MODERN, answers: str | None = None) -> Message | list[Message]:
    """Read one message; a batch (2025-03-26 only) is a list of messages.

    `answers` is the method that a result belongs to; without it, a result is plain JSON. The params of a method that
    `revision` does not have are plain JSON too. Raise `ProtocolError` for a message that cannot be read, with the
    code for the answer to its sender.
    """
    if not is_supported(revision):
        raise ValueError(f"{revision!r} is not a revision of the protocol")
    read = jsonrpc.decode(message.encode() if isinstance(message, str) else message)
    if not isinstance(read, jsonrpc.Batch):
        return _typed(read, revision, answers)
    if read.oversized or not read.items or revision != "2025-03-26":
        raise ProtocolError(
            INVALID_REQUEST, f"A batch is not a message of {revision}, is empty or has too many members"
        )
    return [_typed(item, revision, answers) for item in read.items]


def _typed(read: jsonrpc.Message, revision: str, answers: str | None) -> Message:
    if isinstance(read, jsonrpc.Malformed):
        raise ProtocolError(read.code or INVALID_REQUEST, read.message)
    rows = methods(revision)
    if isinstance(read, jsonrpc.Request):
        return Request(read.id, read.method, _part(_params_of(rows.get(read.method)), read.params, read.method))
    if isinstance(read, jsonrpc.Notification):
        return Notification(read.method, _part(_params_of(rows.get(read.method)), read.params, read.method))
    if isinstance(read, jsonrpc.ErrorResponse):
        error = read.error
        return ErrorResponse(read.id, t.Error(code=error.code, message=error.message, data=error.data))
    return Response(read.id, _result(rows.get(answers or ""), read.result, answers))


def _params_of(row: Method | None) -> Any:
    return None if row is None else row.params


def _result(row: Method | None, raw: Raw, answers: str | None) -> Any:
    plain = _part(None, raw, "a request")
    if row is None or not isinstance(plain, dict):
        return plain
    said = plain.get("resultType")
    # 2025-11-25 tasks: the answer to a call that runs as a task is the task.
    undeclared = t.CreateTaskResult if said is None and "task" in plain else row.result
    kind = _DECLARED.get(said, undeclared) if isinstance(said, str) else undeclared
    result = _part(kind, raw, f"the result of {answers}")
    if said is None and isinstance(result, t.Result):
        # RPC-4: only a result of 2026-07-28 says that it is complete.
        result.result_type = UNSET
    return result


_DECLARED: dict[Any, Any] = {"input_required": t.InputRequiredResult, "task": t.TaskCreatedResult}


def _part(kind: Any, raw: Raw | UnsetType, what: str) -> Any:
    if isinstance(raw, UnsetType):
        return UNSET
    try:
        return msgspec.json.decode(raw) if kind is None else t.decode(kind, raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        reason = str(error) if isinstance(error, msgspec.ValidationError) else "it cannot be read"
        raise ProtocolError(INVALID_PARAMS, f"Invalid params or result of {what}: {reason}") from None


def serialize(message: Message | list[Message]) -> bytes:
    """Write a message as one line of JSON, without a newline; the inverse of `parse`."""
    if isinstance(message, list):
        return jsonrpc.encode_batch([serialize(each) for each in message])
    if isinstance(message, Request):
        return jsonrpc.encode_request(message.id, message.method, _raw(message.params))
    if isinstance(message, Notification):
        return jsonrpc.encode_notification(message.method, _raw(message.params))
    if isinstance(message, Response):
        return jsonrpc.encode_response(message.id, _raw(message.result))
    error = message.error
    return jsonrpc.encode_error(message.id, error.code, error.message, error.data)


def _raw(value: Any) -> Any:
    return UNSET if value is UNSET else Raw(t.encode(value))
