"""`SyncContext`: the context in a `def` handler, which runs in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast, overload

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.server.context.context import Context
from toolwire.server.context.forms import Elicited
from toolwire.server.context.progress import Progress
from toolwire.server.input_requests import Asking
from toolwire.wire.thread_workers import CancelToken

T = TypeVar("T")


class SyncContext(Context):
    """The context of a `def` handler: the same calls, plain. They hand over to the loop and wait there."""

    _call: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
    _origin: Context
    _token: CancelToken

    @staticmethod
    def current() -> SyncContext:
        """The context of the request that is being handled in this thread; `LookupError` where there is none."""
        ctx = Context.current()
        if not isinstance(ctx, SyncContext):
            raise LookupError("this is no worker thread: on the loop use Context.current(), and await its calls")
        return ctx

    def adopt(self, ctx: Context) -> None:
        """Share what another context of the same request has gathered, and what is still to come of its questions."""
        self._origin = ctx
        self._threaded = True
        self._asking = ctx._asking
        self._deadline = ctx._deadline
        self._last_progress = ctx._last_progress
        self._mask = ctx._mask
        self._owner = ctx._owner
        self._state = ctx.state
        self._task_run = ctx._task_run
        self.replay: bool = ctx.replay

    async def _open_asking(self) -> Asking:
        self._asking = self._origin._asking or await self._origin._open_asking()
        return self._asking

    def progress(  # type: ignore[override]
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> bool:
        if self._request.progress_token is UNSET and self._task_run is None:
            return False
        return cast(bool, self._call(lambda: Context.progress(self, progress, total, message)))

    report_progress = progress  # type: ignore[assignment]

    def track(self, total: float | None = None) -> Progress:
        async def made() -> Progress:
            return Context.track(self, total)

        return cast(Progress, self._call(made))

    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return cast(bool, self._call(lambda: Context.log(self, level, data, logger)))

    def debug(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("debug", data, logger)

    def info(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("info", data, logger)

    def warning(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("warning", data, logger)

    def error(self, data: Any, logger: str | None = None) -> bool:  # type: ignore[override]
        return self.log("error", data, logger)

    @overload  # type: ignore[override]
    def elicit(self, message: str, *, key: str | None = None, timeout: float | None = None) -> Elicited[bool]: ...

    @overload
    def elicit(
        self, message: str, type: list[str], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[str]: ...

    @overload
    def elicit(
        self, message: str, type: type[T], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[T]: ...

    @overload
    def elicit(
        self, message: str, type: Any, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[Any]: ...

    def elicit(
        self, message: str, type: Any = bool, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[Any]:
        return cast("Elicited[Any]", self._call(lambda: Context.elicit(self, message, type, key=key, timeout=timeout)))

    def elicit_url(  # type: ignore[override]
        self, message: str, url: str, *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[None]:
        return cast(
            "Elicited[None]", self._call(lambda: Context.elicit_url(self, message, url, key=key, timeout=timeout))
        )

    def elicitation_complete(self, id: str | None) -> bool:  # type: ignore[override]
        return cast(bool, self._call(lambda: Context.elicitation_complete(self, id)))

    def sample(self, messages: Any, **options: Any) -> t.CreateMessageResult:  # type: ignore[override]
        return cast("t.CreateMessageResult", self._call(lambda: Context.sample(self, messages, **options)))

    def list_roots(  # type: ignore[override]
        self, *, key: str | None = None, timeout: float | None = None
    ) -> list[t.Root]:
        return cast("list[t.Root]", self._call(lambda: Context.list_roots(self, key=key, timeout=timeout)))

    def step(self, name: str, function: Callable[[], Any]) -> Any:
        async def in_thread() -> Any:
            # The step itself may block, so it stays in a thread.
            return await asyncio.to_thread(function)

        return self._call(lambda: Context.step(self, name, in_thread))

    def read_resource(self, uri: str) -> list[t.ResourceContents]:  # type: ignore[override]
        return cast("list[t.ResourceContents]", self._call(lambda: Context.read_resource(self, uri)))

    def detach(self) -> None:  # type: ignore[override]
        self._call(lambda: Context.detach(self))

    def close_stream(self, *, retry_ms: int | None = None) -> None:  # type: ignore[override]
        self._call(lambda: Context.close_stream(self, retry_ms=retry_ms))


def is_blocking(annotation: Any) -> bool:
    """Return whether a parameter of this annotation receives the context of a `def` handler, and no other."""
    return isinstance(annotation, type) and issubclass(annotation, SyncContext)
