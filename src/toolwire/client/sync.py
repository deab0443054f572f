"""`Client` for programs without an event loop: the same methods, each of which waits for its result.

The client lives on an event loop in a thread of its own, from `connect()` to `close()`. Callbacks are called there
(`on_log`), or in another thread where they answer questions (`elicit`). It may be used from any number of threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack, overload

from toolwire.client.client import Client as AsyncClient
from toolwire.client.listen import Change
from toolwire.client.requests import Arguments, CallOptions
from toolwire.client.stub import make_stub
from toolwire.client.targets import TargetLike
from toolwire.client.tasks import TaskHandle, TaskState, WaitOptions
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import Unreachable
from toolwire.wire.threads import SHARED

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S")


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """The same method, which waits."""

    @wraps(method)
    def wait(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.wait(method(self._client, *args, **kwargs))

    return wait


def _taking_options_of(
    method: Callable[Concatenate[AsyncClient, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, P], None]]:
    """The signature of another method, so that editors and type checkers know the options."""
    return wraps(method)


class Client:
    """The client of `toolwire.client`, blocking. Takes what that one takes."""

    @_taking_options_of(AsyncClient.__init__)
    def __init__(self, target: TargetLike, **options: Any) -> None:
        self._client = AsyncClient(target, **options)
        self._loop = _LoopThread()

    def connect(self) -> Self:
        self._loop.start()
        try:
            self._loop.wait(self._client.connect())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def close(self) -> None:
        if self._loop.running:
            try:
                self._loop.wait(self._client.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        return self._client.connected

    @property
    def server(self) -> t.Implementation | None:
        return self._client.server

    @property
    def capabilities(self) -> dict[str, Any]:
        return self._client.capabilities

    @property
    def revision(self) -> str:
        return self._client.revision

    @property
    def instructions(self) -> str | None:
        return self._client.instructions

    request: Final = _blocking(AsyncClient.request)
    notify: Final = _blocking(AsyncClient.notify)
    ping: Final = _blocking(AsyncClient.ping)
    list_tools: Final = _blocking(AsyncClient.list_tools)
    list_tools_page: Final = _blocking(AsyncClient.list_tools_page)
    list_resources: Final = _blocking(AsyncClient.list_resources)
    list_resources_page: Final = _blocking(AsyncClient.list_resources_page)
    list_resource_templates: Final = _blocking(AsyncClient.list_resource_templates)
    list_resource_templates_page: Final = _blocking(AsyncClient.list_resource_templates_page)
    read_resource: Final = _blocking(AsyncClient.read_resource)
    subscribe: Final = _blocking(AsyncClient.subscribe)
    unsubscribe: Final = _blocking(AsyncClient.unsubscribe)
    list_prompts: Final = _blocking(AsyncClient.list_prompts)
    list_prompts_page: Final = _blocking(AsyncClient.list_prompts_page)
    get_prompt: Final = _blocking(AsyncClient.get_prompt)
    complete: Final = _blocking(AsyncClient.complete)
    set_level: Final = _blocking(AsyncClient.set_level)
    set_roots: Final = _blocking(AsyncClient.set_roots)

    @overload
    def call_tool(
        self, name: str, arguments: Arguments = None, *, returns: None = None, **options: Unpack[CallOptions]
    ) -> ToolResult: ...
    @overload
    def call_tool(
        self, name: str, arguments: Arguments = None, *, returns: type[T], **options: Unpack[CallOptions]
    ) -> T: ...
    @overload
    def call_tool(
        self, name: str, arguments: Arguments = None, *, returns: Any, **options: Unpack[CallOptions]
    ) -> Any: ...
    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Any:
        return self._loop.wait(self._client.call_tool(name, arguments, **options))

    def stub(self, protocol: Callable[..., S]) -> S:
        """An object with the methods of `protocol` (a class), each of which calls the tool of its name and waits."""

        def call(name: str, arguments: Mapping[str, Any], returns: Any) -> Any:
            return self.call_tool(name, arguments, returns=returns)

        return make_stub(protocol, call, blocking=True)

    @contextlib.contextmanager
    def listen(self, **selection: Any) -> Iterator[Iterator[Change]]:
        """Changes as they happen: `with client.listen(tools=True) as changes: for change in changes: ...`."""
        subscription = self._client.listen(**selection)
        self._loop.wait(subscription.__aenter__())
        try:
            yield self._changes(aiter(subscription))
        finally:
            self._loop.wait(subscription.close())

    def _changes(self, changes: AsyncIterator[Change]) -> Iterator[Change]:
        while (change := self._loop.wait(_following(changes))) is not None:
            yield change

    def call_tool_as_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> BlockingTaskHandle:
        """Call a tool and return as soon as the server has taken it on; as `Client.call_tool_as_task` does."""
        handle = self._loop.wait(self._client.call_tool_as_task(name, arguments, ttl=ttl, **options))
        return BlockingTaskHandle(handle, self._loop.wait)

    def task(self, id: str, tool: str | None = None) -> BlockingTaskHandle:
        """A handle of a task that was made earlier."""
        return BlockingTaskHandle(self._client.task(id, tool), self._loop.wait)

    def __repr__(self) -> str:
        return repr(self._client)


class BlockingTaskHandle:
    """One task; as `toolwire.client.TaskHandle`, blocking."""

    def __init__(self, handle: TaskHandle, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._handle = handle
        self._wait = wait
        self.id: str = handle.id
        self.tool: str | None = handle.tool

    def status(self, *, timeout: float | None = None) -> TaskState:
        state: TaskState = self._wait(self._handle.status(timeout=timeout))
        return state

    @overload
    def wait(self, *, returns: None = None, **options: Unpack[WaitOptions]) -> ToolResult: ...
    @overload
    def wait(self, *, returns: type[T], **options: Unpack[WaitOptions]) -> T: ...
    @overload
    def wait(self, *, returns: Any, **options: Unpack[WaitOptions]) -> Any: ...
    def wait(self, *, returns: Any = None, **options: Unpack[WaitOptions]) -> Any:
        return self._wait(self._handle.wait(returns=returns, **options))

    def cancel(self, *, timeout: float | None = None) -> None:
        self._wait(self._handle.cancel(timeout=timeout))

    def provide_input(self, answers: Mapping[str, Any], *, timeout: float | None = None) -> None:
        self._wait(self._handle.provide_input(answers, timeout=timeout))

    def updates(self) -> Iterator[TaskState]:
        states = self._handle.updates()
        while (state := self._wait(_following(states))) is not None:
            yield state


async def _following(changes: AsyncIterator[T]) -> T | None:
    return await anext(changes, None)


class _LoopThread:
    """An event loop in a thread, for as long as it is wanted."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                # A daemon, so that a client that nobody closed does not keep the program alive.
                self._thread = threading.Thread(target=_run, args=(loop,), name="toolwire-client", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            stopped: Future[bool] = Future()
            loop.call_soon_threadsafe(_stop, loop, stopped)
            if stopped.result():
                thread.join()

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the loop and wait for it here; who stops waiting (Ctrl-C) cancels it."""
        loop = self._loop
        if loop is None or threading.current_thread() is self._thread:
            work.close()
            if loop is None:
                raise Unreachable("The client is not connected: use `with Client(...)` or `client.connect()`")
            raise RuntimeError("A callback of a blocking client may not call it and wait: it would wait for itself")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _stop(loop: asyncio.AbstractEventLoop, stopped: Future[bool]) -> None:
    """Stop the loop this is called on, now or when nobody elsewhere needs what lives here; the result says which."""
    shared = {task for task in asyncio.all_tasks(loop) if task in SHARED}
    if shared:
        loop.create_task(_stop_after(loop, shared))
    else:
        loop.stop()
    stopped.set_result(not shared)


async def _stop_after(loop: asyncio.AbstractEventLoop, shared: set[asyncio.Task[Any]]) -> None:
    await asyncio.wait(shared)
    loop.stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
