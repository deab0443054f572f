"""The context of a handler that runs in a process of its own: it can report, and cannot ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from toolwire.auth.principal import Principal
from toolwire.protocol.errors import NotSupported
from toolwire.server.call import Call
from toolwire.wire.process_workers import report


def _refuse(name: str) -> Callable[..., NoReturn]:
    """Make a method that needs the server's process, and so raises when it is called."""

    def method(self: ProcessContext, *args: Any, **options: Any) -> NoReturn:
        raise NotSupported(f"ctx.{name}() does not work in a process: use executor='thread'")

    return method


class ProcessContext:
    """The context that goes to the worker process with the call. Its reports come back over the pipe of the worker."""

    def __init__(self, call: Call) -> None:
        """Copy what can be pickled: the call itself stays in the server's process."""
        self.request_id: str | int = call.request_id
        self.revision: str = call.revision
        self.meta: dict[str, Any] = call.meta
        self.principal: Principal | None = call.principal
        self.attempt: int = call.attempt

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        report(("progress", progress, total, message))

    report_progress = progress

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        report(("log", level, data, logger))

    elicit: Callable[..., NoReturn] = _refuse("elicit")
    elicit_url: Callable[..., NoReturn] = _refuse("elicit_url")
    sample: Callable[..., NoReturn] = _refuse("sample")
    list_roots: Callable[..., NoReturn] = _refuse("list_roots")
    step: Callable[..., NoReturn] = _refuse("step")
    detach: Callable[..., NoReturn] = _refuse("detach")
    read_resource: Callable[..., NoReturn] = _refuse("read_resource")
    credential: Callable[..., NoReturn] = _refuse("credential")
