"""The context of a handler that runs in a process of its own: it can report, and cannot ask."""

from __future__ import annotations

from typing import Any

from toolwire.auth.principal import Principal
from toolwire.protocol.errors import NotSupported
from toolwire.server.call import Call
from toolwire.wire.process_workers import report

ASKING = frozenset({"elicit", "elicit_url", "sample", "list_roots"})


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

    def __getattr__(self, name: str) -> Any:
        if name in ASKING:
            raise NotSupported(f"A handler in a process cannot ask: ctx.{name}() needs executor='thread'")
        raise AttributeError(name)
