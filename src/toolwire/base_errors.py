"""The base of our exceptions, and those without MCP: misuse and transport failures."""

from __future__ import annotations

from typing import Any


def _rebuilt(kind: type[ToolwireError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ToolwireError:
    """Rebuild an exception as it was raised, without its constructor, which may want other arguments."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class ToolwireError(Exception):
    """The base of everything this library raises.

    It can be copied and pickled, as pools of processes do.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


class ServerError(ToolwireError):
    """The server object was used wrongly.

    It was started twice, stopped while idle, or got a component that cannot be registered.
    """


class TransportError(ToolwireError):
    """Bytes could not be moved.

    Over HTTP, `status` and `url` say what answered, if anything did. `retry_after` is in how many seconds a server that
    refused the request (429, 503) accepts it again.
    """

    status: int | None = None
    url: str | None = None
    retry_after: float | None = None


class Unreachable(TransportError):
    """There is no server at the other end, or it ended before the request."""


class UnsendableRequest(Unreachable):
    """The request cannot be written, such as a header with a line break.

    The server is not at fault.
    """


class OutcomeUnknown(TransportError):
    """No answer was read after the request left: the call may have run.

    The connection was lost, or the answer is over a limit or no HTTP response. In the last two cases it is an
    `InvalidResponse`, too: the same request would fail so again.
    """


class InvalidResponse(ToolwireError):
    """The server's answer breaks the protocol or the tool's own schema (RPC-7, OUT-2).

    `result` is the result of a tool that does not fit the tool's output schema; None for anything else. `status` is the
    HTTP status of an answer that is not a message at all.
    """

    result: Any = None
    status: int | None = None


class Timeout(ToolwireError, TimeoutError):
    """The deadline of a call passed; the other side was asked to stop."""
