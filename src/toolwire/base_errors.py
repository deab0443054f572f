"""The root of our exceptions, and those that know nothing of MCP: misuse of an object, and failures of a transport."""

from __future__ import annotations

from typing import Any


def _rebuilt(kind: type[ToolwireError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ToolwireError:
    """Rebuild an exception as it was raised, without its constructor, which may want other arguments."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class ToolwireError(Exception):
    """Everything this library raises on purpose. It can be copied and pickled, as pools of processes do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


class ServerError(ToolwireError):
    """The server object was used wrongly: started twice, stopped while idle, a component that cannot be registered."""


class TransportError(ToolwireError):
    """Bytes could not be moved. Over HTTP, `status` and `url` say what answered, where something did.

    `retry_after` is in how many seconds a server that turned the request away (429, 503) wants to see it again.
    """

    status: int | None = None
    url: str | None = None
    retry_after: float | None = None


class Unreachable(TransportError):
    """There is no server at the other end, or it went away before it was asked."""


class UnsendableRequest(Unreachable):
    """The request cannot be written, such as a header with a line break; the server is not at fault."""


class OutcomeUnknown(TransportError):
    """No answer was read after the request left: the call may have run.

    The connection was lost, or the answer is over a limit or no HTTP response. In the last two cases it is an
    `InvalidResponse`, too: the same request would fail so again.
    """


class InvalidResponse(ToolwireError):
    """The server answered, but not with what the protocol or the tool's own schema allows (RPC-7, OUT-2).

    `result` is the result of a tool that does not fit the tool's output schema; None for anything else. `status` is the
    HTTP status of an answer that is not a message at all.
    """

    result: Any = None
    status: int | None = None


class Timeout(ToolwireError, TimeoutError):
    """The deadline of a call passed; the other side was told to stop."""
