"""The part of an audit line about the API requests of a call."""

from __future__ import annotations

from typing import Any, Final, Protocol

from toolwire.server.call import Call

#: How many requests of one call a line names.
MAX_NAMED: Final = 16


class RecordedOperation(Protocol):
    """An operation, as far as a record goes."""

    @property
    def name(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str:
        """Return the template: a filled path holds arguments."""


class RecordedExchange(Protocol):
    """A call of an API that has ended."""

    @property
    def call(self) -> Call: ...
    @property
    def operation(self) -> RecordedOperation: ...
    @property
    def received(self) -> int:
        """Return how many bytes of bodies were read."""


def record_exchange(exchange: RecordedExchange, status: int | None) -> None:
    """Record a request for the audit line of its call.

    `status` is None where there was no answer.
    """
    call = exchange.call
    while call.outer is not None:
        call = call.outer
    operation = exchange.operation
    noted: dict[str, Any] = {
        "operation": operation.name,
        "method": operation.method,
        "path": operation.path,
        "status": status,
        "bytes": exchange.received,
    }
    if call.api_requests is None:
        call.api_requests = [noted]
    elif len(call.api_requests) < MAX_NAMED:
        call.api_requests.append(noted)
