"""`Client` for programs without an event loop: the same methods, each of which waits for its result.

All blocking clients share one event loop, which runs in a thread of the library while one of them is connected. A
client of a `Server` object that already runs in this process lives on the loop of that server instead. Callbacks are
called on the client's loop (`on_log`), or in a worker thread where they answer questions (`elicit`). A client may be
used from any number of threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack, overload

from toolwire.client.client import Client as AsyncClient
from toolwire.client.extensions import RequestOptions
from toolwire.client.listen import Change
from toolwire.client.notifications import OnNotification
from toolwire.client.requests import Arguments, CallOptions
from toolwire.client.stub import make_stub
from toolwire.client.targets import TargetLike, check_url, taking_options_of
from toolwire.client.tasks import TaskHandle, TaskState, WaitOptions
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import Unreachable

if TYPE_CHECKING:
    from toolwire.client.apps import BlockingApps
    from toolwire.client.skills.blocking import BlockingSkills

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S")

#: How often a call that waits for the loop of a server looks whether that loop still runs.
LOOK_SECONDS: Final = 1.0


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """Return the method in a form that waits for its result."""

    @wraps(method)
    def wait(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait(method(self._client, *args, **kwargs))

    return wait


def _taking_options_of(
    method: Callable[Concatenate[AsyncClient, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, P], None]]:
    """Give a method the signature of another, so that editors and type checkers know the options."""
    return wraps(method)


class Client:
    """The client of `toolwire.client` with methods that wait. It takes the same arguments."""

    @_taking_options_of(AsyncClient.__init__)
    def __init__(self, target: TargetLike, **options: Any) -> None:
        self._make = partial(AsyncClient, target, **options)
        self._client = self._make()
        self._listeners: list[tuple[str, OnNotification, Any]] = []
        # What adds and removes servers once more, in a client that takes the place of this one.
        self._server_changes: list[Callable[[AsyncClient], Coroutine[Any, Any, None]]] = []
        self._home: _Home | None = None
        self._lock = threading.Lock()

    @classmethod
    @taking_options_of(AsyncClient.__init__)
    def remote(cls, url: str, **options: Any) -> Self:
        """Return a client of the server at a URL, as `remote` of the async client."""
        return cls(check_url(url), **options)

    def connect(self) -> Self:
        is_new = False
        with self._lock:
            if self._home is not None and self._home.is_gone:
                # Nothing of it can be used any more, not even to close it.
                self._home, self._client, is_new = None, self._make(), True
                for method, handler, params in self._listeners:
                    self._client.on_notification(method, handler, params=params)
            if self._home is None:
                self._home = _home_for(self._client)
            home = self._home
        try:
            for change in self._server_changes if is_new else ():
                home.wait(change(self._client))
            home.wait(self._client.connect())
        except BaseException as error:
            self._move_out()
            if isinstance(error, Unreachable) and home.is_shared and _loop_of_server(self._client) is not None:
                return self.connect()  # The server has just begun to run elsewhere, so the client moves there.
            raise
        return self

    def close(self) -> None:
        home = self._home
        if home is None:
            return
        home.check_thread()
        try:
            if not home.is_gone:
                home.wait(self._client.close())
        finally:
            self._move_out()

    def _move_out(self) -> None:
        with self._lock:
            home, self._home = self._home, None
        if home is not None:
            home.leave()

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        home = self._home
        if home is None:
            work.close()
            raise Unreachable("The client is not connected: use `with Client(...)` or `client.connect()`")
        return home.wait(work)

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
    def missing(self) -> Mapping[str, str]:
        return self._client.missing

    @property
    def revision(self) -> str:
        return self._client.revision

    @property
    def instructions(self) -> str | None:
        return self._client.instructions

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
    list_tasks: Final = _blocking(AsyncClient.list_tasks)
    set_level: Final = _blocking(AsyncClient.set_level)
    set_roots: Final = _blocking(AsyncClient.set_roots)

    def add_server(self, name: str, target: TargetLike) -> None:
        """Add a server to a client of several, as `Client.add_server` does."""
        self._change_servers(lambda client: client.add_server(name, target))

    def remove_server(self, name: str) -> None:
        """Take a server out of a client of several, as `Client.remove_server` does."""
        self._change_servers(lambda client: client.remove_server(name))

    def _change_servers(self, change: Callable[[AsyncClient], Coroutine[Any, Any, None]]) -> None:
        self._wait(change(self._client))
        self._server_changes.append(change)

    @overload
    def request(
        self, method: str, params: Any = None, *, returns: None = None, **options: Unpack[RequestOptions]
    ) -> dict[str, Any]: ...
    @overload
    def request(self, method: str, params: Any = None, *, returns: type[T], **options: Unpack[RequestOptions]) -> T: ...
    @overload
    def request(self, method: str, params: Any = None, *, returns: Any, **options: Unpack[RequestOptions]) -> Any: ...
    def request(self, method: str, params: Any = None, **options: Any) -> Any:
        """Send a request of any method, as `Client.request` does, and wait for its result."""
        return self._wait(self._client.request(method, params, **options))

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
        return self._wait(self._client.call_tool(name, arguments, **options))

    @property
    def skills(self) -> BlockingSkills:
        """The skills of the server, or of each server of a configuration (SEP-2640)."""
        # Imported here because most clients use no skills.
        from toolwire.client.skills.blocking import BlockingSkills

        return BlockingSkills(self._client.skills, self._wait)

    @property
    def apps(self) -> BlockingApps:
        """The views of the server, or of each server of a configuration (SEP-1865)."""
        # Imported here because most clients show no views.
        from toolwire.client.apps import BlockingApps

        return BlockingApps(self._client.apps, self._wait)

    def stub(self, protocol: Callable[..., S]) -> S:
        """Return an object with the methods of `protocol` (a class), each of which calls the tool of its name and
        waits.
        """

        def call(name: str, arguments: Mapping[str, Any], returns: Any) -> Any:
            return self.call_tool(name, arguments, returns=returns)

        return make_stub(protocol, call, blocking=True)

    def on_notification(self, method: str, handler: Any = None, *, params: Any = None) -> Any:
        """Call a function with the params of every notification of this method, as `Client.on_notification` does.

        It is called on the client's loop, also after the client was connected anew.
        """
        if handler is None:
            return partial(self.on_notification, method, params=params)
        self._listeners.append((method, handler, params))
        return self._client.on_notification(method, handler, params=params)

    @contextlib.contextmanager
    def listen(self, **selection: Any) -> Iterator[Iterator[Change]]:
        """Listen for changes: `with client.listen(tools=True) as changes: for change in changes: ...`."""
        subscription = self._client.listen(**selection)
        self._wait(subscription.__aenter__())
        try:
            yield self._changes(aiter(subscription))
        finally:
            self._wait(subscription.close())

    def _changes(self, changes: AsyncIterator[Change]) -> Iterator[Change]:
        while (change := self._wait(_following(changes))) is not None:
            yield change

    def call_tool_as_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> BlockingTaskHandle:
        """Call a tool and return a handle of its task, as `Client.call_tool_as_task` does."""
        handle = self._wait(self._client.call_tool_as_task(name, arguments, ttl=ttl, **options))
        return BlockingTaskHandle(handle, self._wait)

    def task(self, id: str, tool: str | None = None) -> BlockingTaskHandle:
        """Return a handle of a task that was made earlier."""
        return BlockingTaskHandle(self._client.task(id, tool), self._wait)

    def __repr__(self) -> str:
        return repr(self._client)


class BlockingTaskHandle:
    """One task, as `toolwire.client.TaskHandle`, with methods that wait."""

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


# --- Event loops ------------------------------------------------------------------------------------------------------


class _Home:
    """The event loop that a connected client lives on: that of its server, which others run."""

    is_shared = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process = os.getpid()

    @property
    def is_gone(self) -> bool:
        """True when the loop has ended, and in a forked child, because the thread stays with the parent."""
        return self._loop.is_closed() or self._process != os.getpid()

    def check_thread(self) -> None:
        """Raise `RuntimeError` where a wait for the loop would never end."""
        if asyncio._get_running_loop() is self._loop:
            raise RuntimeError(
                "This would wait for itself: a blocking client was used on the event loop that it lives on. Use "
                "toolwire.Client here and await it, or use the blocking client in a thread, such as a plain def handler"
            )

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop and wait for it here. It is cancelled when the wait is interrupted (Ctrl-C)."""
        try:
            self.check_thread()
            if self._process != os.getpid():
                raise Unreachable("The client was connected before this process was forked: connect() again here")
            if self._loop.is_closed():
                raise self._ended()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise
        try:
            return self._result(future)
        except CancelledError:
            raise self._ended() from None
        except BaseException:
            future.cancel()
            raise

    def _result(self, future: Future[R]) -> R:
        while not wait_for((future,), LOOK_SECONDS).done:
            if not self._loop.is_running():
                raise self._ended()
        return future.result()

    def leave(self) -> None:
        """Do without the loop from now on."""

    def _ended(self) -> Unreachable:
        return Unreachable("The event loop that the client lived on has ended: connect() again")


class _SharedHome(_Home):
    """The event loop of the blocking clients, in a thread that lives while one of them is connected."""

    is_shared = True
    _current: ClassVar[_SharedHome | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self._clients = 0
        # A daemon, so that a client that nobody closed does not keep the program alive.
        self._thread = threading.Thread(target=self._run, name="toolwire-client", daemon=True)
        self._thread.start()

    @classmethod
    def move_in(cls) -> _SharedHome:
        """Take a place on the loop; `leave` gives it back."""
        with cls._lock:
            home = cls._current
            if home is None:
                home = cls._current = _SharedHome()
            home._clients += 1
            return home

    @classmethod
    def forget(cls) -> None:
        """Start again in a child process: the parent keeps the thread and the holder of the lock."""
        cls._current, cls._lock = None, threading.Lock()

    @classmethod
    def runs(cls, loop: asyncio.AbstractEventLoop) -> bool:
        return cls._current is not None and cls._current._loop is loop

    def leave(self) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
            self._clients -= 1
            if self._clients:
                return
            _SharedHome._current = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _result(self, future: Future[R]) -> R:
        # The loop runs for as long as a client lives there.
        return future.result()

    def _run(self) -> None:
        loop = self._loop
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SharedHome.forget)


def _home_for(client: AsyncClient) -> _Home:
    """Return the loop of the client's server where that runs in this process already, and the shared one otherwise."""
    loop = _loop_of_server(client)
    if loop is None:
        return _SharedHome.move_in()
    if not loop.is_running():
        raise Unreachable(
            "The server belongs to an event loop that stands still: close its connections there, or close the loop"
        )
    return _Home(loop)


def _loop_of_server(client: AsyncClient) -> asyncio.AbstractEventLoop | None:
    """Return the loop that the client's server runs on, unless that is the shared one."""
    loop = client._target.loop
    return None if loop is None or _SharedHome.runs(loop) else loop
