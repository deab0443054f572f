"""The exception tree and the JSON-RPC error codes.

Blame is typed: `ProtocolError` is something one peer tells the other on the wire; everything else is local, so that a
timeout here can never be mistaken for an answer from there (2026-07-28 basic, error codes: locally generated failures
must be distinguishable).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from toolwire.base_errors import InvalidResponse as InvalidResponse
from toolwire.base_errors import OutcomeUnknown as OutcomeUnknown
from toolwire.base_errors import ServerError as ServerError
from toolwire.base_errors import Timeout as Timeout
from toolwire.base_errors import ToolwireError as ToolwireError
from toolwire.base_errors import TransportError as TransportError
from toolwire.base_errors import Unreachable as Unreachable

T = TypeVar("T")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# 2026-07-28 basic, error codes: -32020 to -32099 belong to the specification alone.
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022
# 2024-11-05 to 2025-11-25 server/resources; on 2026-07-28 the same situation is INVALID_PARAMS.
RESOURCE_NOT_FOUND = -32002
# 2025-11-25 client/elicitation only.
URL_ELICITATION_REQUIRED = -32042
# 2024-11-05 to 2025-11-25 client/sampling: the user said no. Outside the reserved block on purpose.
USER_REJECTED = -1
#: What decoding JSON raises for text that is malformed, not UTF-8, too deep or of another shape.
BAD_JSON: Final = (ValueError, RecursionError)
# Refusals by policy, named after the HTTP statuses they resemble. ERR-2: private codes stay outside the reserved range.
TOO_MANY_CALLS = 429
CALL_FORBIDDEN = 403


def counted(number: float, noun: str) -> str:
    """Say how many of something there are, for the text of an error: "1 call", "2 calls", "0.5 seconds"."""
    figure = f"{number:g}" if isinstance(number, float) else f"{number:,}"
    return f"{figure} {noun}{'' if number == 1 else 's'}"


class UnknownTask(ServerError):
    """The stores have no task of this server with this id."""

    def __init__(self, identifier: str) -> None:
        super().__init__(
            f"The stores have no task {identifier[:200]!r} of this server, or it has expired: "
            "give the stores and the name of the server that created it"
        )


class ProtocolError(ToolwireError):
    """A JSON-RPC error: raise it in a handler to send it, catch it in a client that received it."""

    def __init__(self, code: int, message: str, data: Any = msgspec.UNSET) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


def find_data_member(error: ProtocolError, name: str, type_: type[T]) -> T | None:
    """Return a member of an error's data; None where there is none of this type. Peers send data of any shape."""
    value = error.data.get(name) if isinstance(error.data, dict) else None
    return value if isinstance(value, type_) else None


#: The member of an error's data that says: the server does not know the outcome of the request.
_MAY_HAVE_RUN: Final = "mayHaveRun"


def outcome_unknown(message: str) -> ProtocolError:
    """Return the error of a server that does not know whether a request was carried out."""
    return ProtocolError(INTERNAL_ERROR, message, {_MAY_HAVE_RUN: True})


def judge_outcome(error: ProtocolError) -> ToolwireError:
    """Return an error as a client raises it: `OutcomeUnknown` if the server does not know the outcome."""
    return OutcomeUnknown(error.message) if find_data_member(error, _MAY_HAVE_RUN, bool) else error


class ResourceNotFound(ProtocolError):
    """There is no resource of a URI: raise it in the handler of a resource, catch it in a client.

    The server tells it with the `code` that the revision has for it: -32002 before 2026-07-28, -32602 on it.
    In a tool it is an `isError` result with its text.
    """

    def __init__(
        self, message: str = "Resource not found", data: Any = msgspec.UNSET, *, code: int = RESOURCE_NOT_FOUND
    ) -> None:
        super().__init__(code, message, data)


class InsufficientScope(ProtocolError):
    """The caller lacks scopes. Over HTTP it becomes 403 with a challenge that names all that are needed."""

    def __init__(self, scopes: Iterable[str], request_id: str | int | None = None) -> None:
        self.scopes: frozenset[str] = frozenset(scopes)
        self.request_id = request_id
        names = sorted(self.scopes)
        noun = "scope" if len(names) == 1 else "scopes"
        super().__init__(CALL_FORBIDDEN, f"This needs the {noun} {', '.join(names)}", {"requiredScopes": names})


class ToolError(ToolwireError):
    """A failure that the model is meant to know: it becomes a result with `isError`.

    `content` is a text, which is sent word for word, or whatever else a tool may return as content: an `Image`, a
    block, or a list of them.
    """

    @property
    def content(self) -> Any:
        """The text or the content that the model is sent."""
        return "" if not self.args else self.args[0] if len(self.args) == 1 else list(self.args)

    def __str__(self) -> str:
        parts = self.content if isinstance(self.content, list | tuple) else [self.content]
        return "\n".join(text for part in parts if (text := _text_of(part)))


def _text_of(part: Any) -> str:
    """Find the text of a part of an error, where only a text can be told; never the form of an object in Python."""
    if isinstance(part, str | int | float | BaseException):
        return str(part)
    text = part.get("text") if isinstance(part, dict) else getattr(part, "text", None)
    return text if isinstance(text, str) else ""


class CallRefused(ToolError):
    """The policy of the server does not let a call through; `retry_after` seconds later it may."""

    def __init__(self, message: str, *, reason: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class NotSupported(ToolwireError):
    """The client did not declare that it can do what a handler asked of it.

    Uncaught it is -32021 with the missing capability on 2026-07-28 and an `isError` text before.
    """

    def __init__(self, message: str, required: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.required: dict[str, Any] = required or {}


class NotStreamable(Unreachable):
    """There is no Streamable HTTP at a URL; HTTP+SSE, the transport before it, may be."""


class Unauthorized(ToolwireError):
    """The server wants credentials that this client does not have.

    `message` says what happened. The text of the error adds what to do in Python, which the command line and the
    inspector leave out, because they have ways of their own.
    """

    status: int | None = None
    url: str | None = None

    def __init__(self, message: str = "", in_python: str = "") -> None:
        super().__init__(f"{message}; {in_python}" if in_python else message)
        self.message: str = message


class ToolFailed(ToolwireError):
    """A tool answered with `isError` where the caller asked for a value."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class UrlRequired(ToolwireError):
    """The user must open a page before the call can succeed: sign in somewhere, say.

    On 2025-11-25 it is the error -32042; where that does not exist, the model is told the address.
    """

    def __init__(self, message: str, url: str, id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.url = url
        self.id = id
